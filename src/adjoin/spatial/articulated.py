"""Articulated inertias over any scalar: symmetric 6x6 matrices as blocks (A, B, M).

A maps angular to angular and is symmetric, M linear to linear and is symmetric, B maps linear to angular: the force
(moment, force) of the acceleration (angular, linear) is (A alpha + B a, Bᵀ alpha + M a).
"""

from collections.abc import Sequence
from typing import Any

from adjoin.spatial import inertia, vector
from adjoin.spatial.inertia import Symmetric3
from adjoin.spatial.motion import Spatial, Transform
from adjoin.spatial.scalar import Scalar, is_number
from adjoin.spatial.vector import Matrix3, Vector3

Articulated = tuple[Symmetric3, Matrix3, Symmetric3]

_PLACES = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))


def from_rigid(mass: Scalar, moment: Vector3, about: Symmetric3) -> Articulated:
    """Return that of a rigid body, from mass, first moment, and rotational inertia about the origin."""
    return about, vector.skew(moment), (mass, 0.0, 0.0, mass, 0.0, mass)


def add(a: Articulated, b: Articulated) -> Articulated:
    """Return a + b."""
    sums = (vector.add(a[1][0], b[1][0]), vector.add(a[1][1], b[1][1]), vector.add(a[1][2], b[1][2]))
    return inertia.symmetric_add(a[0], b[0]), sums, inertia.symmetric_add(a[2], b[2])


def apply(i: Articulated, m: Spatial) -> Spatial:
    """Return the force of an acceleration."""
    a, b, c = inertia.to_matrix(i[0]), i[1], inertia.to_matrix(i[2])
    return (
        vector.add(vector.apply(a, m[0]), vector.apply(b, m[1])),
        vector.add(vector.apply_transposed(b, m[0]), vector.apply(c, m[1])),
    )


def to_parent(x: Transform, i: Articulated) -> Articulated:
    """Return an articulated inertia in the child frame, expressed in the parent frame of the transform."""
    rotation, position = x
    a, m = inertia.rotate(rotation, i[0]), inertia.rotate(rotation, i[2])
    b = vector.multiply(vector.multiply(rotation, i[1]), vector.transpose(rotation))
    shift = vector.skew(position)
    moved = _plus(b, vector.multiply(shift, inertia.to_matrix(m)))
    left, right = vector.multiply(shift, vector.transpose(b)), vector.multiply(moved, shift)
    entries = [left[r][c] - right[r][c] for r, c in _PLACES]
    return inertia.symmetric_add(a, (entries[0], entries[1], entries[2], entries[3], entries[4], entries[5])), moved, m


def through_joint(
    inertia_of_child: Articulated, directions: Sequence[Spatial], U: Sequence[Spatial], D: Any, armature: Scalar
) -> Articulated:
    """Return the articulated inertia that a parent feels through a joint: I - U D⁻¹ Uᵀ.

    Args:
        inertia_of_child: I.
        directions: S, the joint's directions.
        U: I S.
        D: the factor of Sᵀ I S + armature.
        armature: of a joint with one direction.
    """
    flat = [[*u[0], *u[1]] for u in U]
    solved = [D.solve([u[row] for u in flat]) for row in range(6)]
    known: dict[int, Scalar] = {}
    if len(directions) == 1:
        # Along the joint only the armature is felt; saying so keeps exact zeros, where I - I would not be one.
        axis = [*directions[0][0], *directions[0][1]]
        if sum(x != 0 for x in axis) == 1:
            place = next(k for k, x in enumerate(axis) if x != 0)
            known[place] = armature / axis[place] * D.inverse[0]

    def entry(value: Scalar, row: int, column: int) -> Scalar:
        for here, there in ((row, column), (column, row)):
            if here in known:
                return _times(known[here], flat[0][there])
        return value - sum((s * u[column] for s, u in zip(solved[row], flat, strict=True)), 0.0)

    a = [entry(value, r, c) for value, (r, c) in zip(inertia_of_child[0], _PLACES, strict=True)]
    m = [entry(value, r + 3, c + 3) for value, (r, c) in zip(inertia_of_child[2], _PLACES, strict=True)]
    b = vector.matrix3([[entry(inertia_of_child[1][r][c], r, c + 3) for c in range(3)] for r in range(3)])
    return (a[0], a[1], a[2], a[3], a[4], a[5]), b, (m[0], m[1], m[2], m[3], m[4], m[5])


def _times(a: Scalar, b: Scalar) -> Scalar:
    return 0.0 if is_number(a) and a == 0.0 else a * b


def _plus(a: Matrix3, b: Matrix3) -> Matrix3:
    return (vector.add(a[0], b[0]), vector.add(a[1], b[1]), vector.add(a[2], b[2]))
