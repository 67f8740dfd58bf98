"""How coordinates move points and frames of bodies, in world axes."""

from collections.abc import Iterable

from adjoin.dynamics.state import State
from adjoin.spatial import vector
from adjoin.spatial.motion import Spatial
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Vector3

Arms = dict[int, Scalar]
"""Coordinate -> by how much something grows with it; the others do not matter."""


def point_columns(state: State, body: int, place: Vector3, without: Iterable[int] = ()) -> list[tuple[int, Spatial]]:
    """Return for each coordinate that moves a body the (angular, linear) motion of a point of it, in world axes.

    Args:
        state: the robot.
        body: index of the body, or WORLD.
        place: the point, in the world.
        without: bodies whose joints are left out.
    """
    columns = []
    for other in state.robot.ancestors(body):
        if other in without:
            continue
        rotation, position = state.poses[other]
        arm = vector.subtract(place, position)
        for dof, (angular, linear) in state.robot.subspaces[other]:
            turning = vector.apply(rotation, angular)
            moving = vector.add(vector.apply(rotation, linear), vector.cross(turning, arm))
            columns.append((dof, (turning, moving)))
    return columns


def relative_point_columns(
    state: State, first: int, second: int, first_place: Vector3, second_place: Vector3
) -> list[tuple[int, Spatial]]:
    """Return the motion of a point of one body less that of a point of another, without joints that move both."""
    ahead, behind = state.robot.ancestors(first), state.robot.ancestors(second)
    columns = point_columns(state, first, first_place, behind)
    for dof, (angular, linear) in point_columns(state, second, second_place, ahead):
        columns.append((dof, (vector.negate(angular), vector.negate(linear))))
    return columns


def add_arms(arms: Arms, columns: Iterable[tuple[int, Spatial]], angular: Vector3, linear: Vector3) -> None:
    """Add to arms what columns have along an angular and a linear direction."""
    for dof, (turning, moving) in columns:
        value = vector.dot(angular, turning) + vector.dot(linear, moving)
        arms[dof] = arms[dof] + value if dof in arms else value


def rate_of(arms: Arms, v: list[Scalar]) -> Scalar:
    """Return how fast something grows at a velocity."""
    return sum((arm * v[dof] for dof, arm in arms.items()), 0.0)
