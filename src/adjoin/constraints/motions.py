"""Motions of bodies in world axes, at the origin of the world: velocities add up along the tree, forces down it.

A twist is (angular velocity, velocity of the point of the body that is at the origin), a wrench (moment about the
origin, force). With both at one point and in one set of axes, no transforms are needed between bodies.
"""

from collections.abc import Sequence
from typing import Any

from adjoin.dynamics.linear import dot
from adjoin.dynamics.state import State
from adjoin.model.parts import WORLD
from adjoin.spatial import vector
from adjoin.spatial.motion import ZERO_SPATIAL, Spatial, spatial_add
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Vector3
from adjoin.trace import Scratch, scratch


class Motions:
    """The directions in which coordinates move bodies.

    Args:
        state: the robot.
        carriers: the bodies whose twists and wrenches are read and written at traced indices; the world may be one.

    Attributes:
        directions: of each body's joint, the coordinates and the twist of each.
        direction_array: all of these twists, six numbers each, in the order of the bodies.
    """

    def __init__(self, state: State, carriers: Sequence[int]):
        self.state, self.carriers = state, list(carriers)
        self.directions: list[list[tuple[int, Spatial]]] = []
        for (rotation, position), subspace in zip(state.poses, state.robot.subspaces, strict=True):
            joint = []
            for dof, (angular, linear) in subspace:
                turning = vector.apply(rotation, angular)
                moving = vector.add(vector.apply(rotation, linear), vector.cross(position, turning))
                joint.append((dof, (turning, moving)))
            self.directions.append(joint)
        numbers = [x for body in self.directions for _, twist in body for x in (*twist[0], *twist[1])]
        self.direction_array = scratch(numbers, checked=False)

    def twists(self, rates: Sequence[Scalar]) -> list[Spatial]:
        """Of each body, for rates of the coordinates."""

        def step(body: int, twist: Spatial) -> Spatial:
            for dof, (angular, linear) in self.directions[body]:
                moved = (vector.scale(rates[dof], angular), vector.scale(rates[dof], linear))
                twist = spatial_add(twist, moved)
            return twist

        return self.state.outward(ZERO_SPATIAL, step)

    def twist_array(self, rates: Sequence[Scalar]) -> Scratch:
        """The twists of the carriers, six numbers each."""
        twists = self.twists(rates)
        chosen = [ZERO_SPATIAL if body == WORLD else twists[body] for body in self.carriers]
        return scratch([x for twist in chosen for x in (*twist[0], *twist[1])], checked=False)

    def wrench_array(self) -> Scratch:
        """Room for wrenches on the carriers, six zeros each."""
        return scratch(6 * len(self.carriers), checked=False)

    def generalized(self, wrenches: Scratch) -> list[Scalar]:
        """The generalized forces of wrenches on the carriers, nv scalars."""
        totals: dict[int, Spatial] = {}
        for place, body in enumerate(self.carriers):
            if body != WORLD:
                x = [wrenches[6 * place + k] for k in range(6)]
                totals[body] = ((x[0], x[1], x[2]), (x[3], x[4], x[5]))
        forces: list[Scalar] = [0.0] * self.state.robot.nv
        for body in reversed(range(self.state.robot.count)):
            if body not in totals:
                continue
            wrench, parent = totals[body], self.state.robot.parents[body]
            for dof, twist in self.directions[body]:
                forces[dof] = forces[dof] + _product(twist, wrench)
            if parent != WORLD:
                totals[parent] = spatial_add(totals[parent], wrench) if parent in totals else wrench
        return forces


def _product(twist: Spatial, wrench: Spatial) -> Scalar:
    return dot([*twist[0], *twist[1]], [*wrench[0], *wrench[1]])


def read(array: Scratch, place: Any) -> Spatial:
    """A twist or wrench of an array."""
    x = [array[place * 6 + k] for k in range(6)]
    return (x[0], x[1], x[2]), (x[3], x[4], x[5])


def add(array: Scratch, place: Any, wrench: Spatial, sign: float = 1.0) -> None:
    """Add to a wrench of an array."""
    for k, x in enumerate((*wrench[0], *wrench[1])):
        array.add(place * 6 + k, sign * x)


def relative(array: Scratch, first: Any, second: Any, position: Vector3) -> Spatial:
    """Angular and linear velocity of a body against another, or against the world if it is None, at a point."""
    one, other = read(array, first), ZERO_SPATIAL if second is None else read(array, second)
    angular = vector.subtract(one[0], other[0])
    return angular, vector.add(vector.subtract(one[1], other[1]), vector.cross(angular, position))
