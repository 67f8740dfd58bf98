"""The joint-space inertia matrix, by the composite-rigid-body algorithm (Featherstone, chapter 6)."""

from collections.abc import Mapping
from typing import Any

from adjoin.dynamics.call import Array, call
from adjoin.dynamics.quantity import quantity
from adjoin.dynamics.state import State
from adjoin.model.model import Model
from adjoin.model.parts import WORLD
from adjoin.spatial import inertia, vector
from adjoin.spatial.motion import Spatial, force_to_parent, spatial_dot
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Vector3

Composite = tuple[Scalar, Vector3, inertia.Symmetric3]
"""Mass, first moment, and rotational inertia about the frame's origin."""


def composite_inertias(state: State) -> list[Composite]:
    """Return the inertia of each body and all that it carries, in the body's frame."""
    robot = state.robot
    composites: list[Composite] = list(robot.regrouped_inertias)
    for body in reversed(range(robot.count)):
        parent = robot.parents[body]
        if parent != WORLD:
            (rotation, position), (mass, moment, about) = state.transforms[body], composites[body]
            composites[parent] = composite_add(
                composites[parent], composite_to_parent(rotation, position, mass, moment, about)
            )
    return composites


def composite_to_parent(
    rotation: Any, position: Vector3, mass: Scalar, moment: Vector3, about: inertia.Symmetric3
) -> Composite:
    """Return a composite inertia seen from the parent frame of a transform."""
    turned = vector.apply(rotation, moment)
    # h p' + p h' moves the inertia of the first moment, point_mass that of the mass.
    x, y, z = position
    hx, hy, hz = turned
    xx, yy, zz = x * hx, y * hy, z * hz
    cross_terms = (
        2.0 * (yy + zz),
        -(x * hy + y * hx),
        -(x * hz + z * hx),
        2.0 * (xx + zz),
        -(y * hz + z * hy),
        2.0 * (xx + yy),
    )
    moved = inertia.symmetric_add(inertia.rotate(rotation, about), cross_terms)
    return (
        mass,
        vector.add(turned, vector.scale(mass, position)),
        inertia.symmetric_add(moved, inertia.point_mass(mass, position)),
    )


def composite_add(a: Composite, b: Composite) -> Composite:
    """Return two composite inertias given in one frame, as one."""
    return a[0] + b[0], vector.add(a[1], b[1]), inertia.symmetric_add(a[2], b[2])


def momentum(composite: Composite, motion: Spatial) -> Spatial:
    """Return I m: the momentum of a composite body, about its frame's origin."""
    mass, moment, about = composite
    angular, linear = motion
    turning = vector.add(vector.apply(inertia.to_matrix(about), angular), vector.cross(moment, linear))
    return turning, vector.subtract(vector.scale(mass, linear), vector.cross(moment, angular))


@quantity("crba", "q", square=True)
def crba_of(state: State) -> list[list[Scalar]]:
    """Compute `crba` over scalars. Entries that are zero by the tree's structure are the number 0."""
    robot = state.robot
    matrix: list[list[Scalar]] = [[0.0] * robot.nv for _ in range(robot.nv)]
    for dof, armature in enumerate(robot.numbers("armature")):
        matrix[dof][dof] = armature
    composites = composite_inertias(state)

    def enter(row: int, column: int, value: Scalar) -> None:
        matrix[row][column] = matrix[row][column] + value

    for body in range(robot.count):
        for k, (row, direction) in enumerate(robot.subspaces[body]):
            force = momentum(composites[body], direction)
            for column, other in robot.subspaces[body][: k + 1]:
                value = spatial_dot(other, force)
                enter(row, column, value)
                if column != row:
                    enter(column, row, value)
            child = body
            for ancestor in robot.ancestors(body)[1:]:
                force = force_to_parent(state.transforms[child], force)
                for column, other in robot.subspaces[ancestor]:
                    value = spatial_dot(other, force)
                    enter(row, column, value)
                    enter(column, row, value)
                child = ancestor
    return matrix


def crba(model: Model, q: Array, params: Mapping[str, Array] | None = None, *, out: Array | None = None) -> Array:
    """Return the joint-space inertia matrix M, armature included.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        params: parameters to take the place of the model's.
        out: a tensor that the result is written into; no gradients pass.

    Returns:
        M, (..., nv, nv), symmetric, both halves.
    """
    return call("crba", model, q, params=params, out=out)
