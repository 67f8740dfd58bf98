"""Rows of what a model itself holds together: frames, joints and tendons; and of the limits and friction of tendons."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from adjoin.dynamics.linear import is_zero
from adjoin.dynamics.point_motion import Arms, point_columns, rate_of
from adjoin.dynamics.rnea import body_motions, spin_matrix
from adjoin.dynamics.state import State
from adjoin.dynamics.tendon import tendons_of
from adjoin.model.equality import EqualityConstraint
from adjoin.model.parts import WORLD
from adjoin.spatial import vector
from adjoin.spatial.motion import IDENTITY_TRANSFORM, Spatial, Transform
from adjoin.spatial.rotation import (
    Quaternion,
    from_quaternion,
    quaternion_along,
    quaternion_conjugate,
    quaternion_multiply,
    quaternion_normalize,
)
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Matrix3, Vector3
from adjoin.trace import minimum, select


class EqualityRow(NamedTuple):
    """One number that is held at zero.

    Attributes:
        arms: by how much it grows with each coordinate.
        error: the number.
        turning: whether it is about an angle.
        drift: its second derivative in time if no coordinate accelerates: what MuJoCo calls Jdot v.
    """

    arms: Arms
    error: Scalar
    turning: bool
    drift: Scalar = 0.0


class PointMotion(NamedTuple):
    """How a point of a body moves if no coordinate accelerates, in world axes.

    Attributes:
        omega: the angular velocity.
        alpha: the angular acceleration.
        acceleration: of the point, as seen by someone in free fall.
    """

    omega: Vector3
    alpha: Vector3
    acceleration: Vector3


def coasting(state: State, body: int, place: Vector3) -> PointMotion:
    """How a point of a body moves if no coordinate accelerates; free bodies go on straight."""
    if body == WORLD:
        return PointMotion(vector.ZERO, vector.ZERO, vector.negate(state.robot.gravity))
    if "coasting" not in state.computed:
        onwards = [
            x for joint, at in state.robot.model.independent_joints for x in joint.type.drift(state.v[at.v_slice])
        ]
        state.computed["coasting"] = body_motions(state, onwards)
    omega, alpha, acceleration = state.computed["coasting"][body]
    rotation, position = state.poses[body]
    arm = vector.apply_transposed(rotation, vector.subtract(place, position))
    point = vector.add(acceleration, vector.apply(spin_matrix(omega, alpha), arm))
    return PointMotion(*(vector.apply(rotation, x) for x in (omega, alpha, point)))


def equality_rows(state: State, index: int) -> list[EqualityRow]:
    """The rows of one of the model's equalities."""
    equality = state.robot.model.equalities[index]
    if equality.kind in ("joint", "tendon"):
        return [_polynomial(state, equality, state.robot.numbers("equality_coefficients")[index])]
    position, other_position = (
        vector.vector3(state.robot.numbers(f"equality_{name}")[index]) for name in ("position", "other_position")
    )
    (first, one), (second, other) = (_frame(state, name) for name in (equality.first, equality.second))
    places = [
        vector.add(place, vector.apply(turn, at)) for (turn, place), at in ((one, position), (other, other_position))
    ]
    sides = [point_columns(state, body, place) for body, place in zip((first, second), places, strict=True)]
    gap = vector.subtract(*places)
    motions = [coasting(state, body, place) for body, place in zip((first, second), places, strict=True)]
    drift = vector.subtract(motions[0].acceleration, motions[1].acceleration)
    rows = []
    for k in range(3):
        arms = _along(sides, lambda motion, k=k: motion[1][k])  # type: ignore[misc]
        rows.append(EqualityRow(arms, gap[k], False, drift[k]))
    if equality.kind == "connect":
        return rows
    relative = equality.rotation
    if "equality_rotation" in state.robot.params:
        w, x, y, z = state.robot.numbers("equality_rotation")[index]
        relative = from_quaternion(quaternion_normalize((w, x, y, z)))
    return rows + _turns(equality.torque_scale, relative, one[0], other[0], sides, motions)


def _frame(state: State, name: str) -> tuple[int, Transform]:
    if not name:
        return WORLD, IDENTITY_TRANSFORM
    index = state.robot.model.frame_index(name)
    return state.robot.model.frames[index].body, state.frame_pose(index)


def _along(sides: Sequence[Sequence[tuple[int, Spatial]]], part) -> Arms:
    """What the columns of the first side have, less those of the second."""
    arms: Arms = {}
    for columns, sign in zip(sides, (1.0, -1.0), strict=True):
        for dof, motion in columns:
            value = sign * part(motion)
            arms[dof] = arms[dof] + value if dof in arms else value
    return arms


def _turns(
    torque_scale: float,
    rotation: Matrix3,
    first: Matrix3,
    second: Matrix3,
    sides: Sequence[Sequence[tuple[int, Spatial]]],
    motions: Sequence[PointMotion],
) -> list[EqualityRow]:
    """The rows of the orientation: the vector part of the quaternion from the second frame to where it should be."""
    one, other, relative = (quaternion_normalize(quaternion_along(turn)) for turn in (first, second, rotation))
    goal = quaternion_multiply(one, relative)
    error = quaternion_multiply(quaternion_conjugate(other), goal)
    sign = select(error[0] < 0.0, -1.0, 1.0)
    scale = sign * torque_scale

    def corrected(k: int, turn: Quaternion) -> Scalar:
        turned = quaternion_multiply(quaternion_multiply(quaternion_conjugate(other), turn), goal)
        return 0.5 * turned[k + 1]

    fast, slow = ((0.0, *motion.omega) for motion in motions)
    apart: Quaternion = (0.0, *vector.subtract(motions[0].omega, motions[1].omega))
    ahead, behind = quaternion_multiply(apart, fast), quaternion_multiply(slow, apart)
    rate: Quaternion = (0.0, *vector.subtract(motions[0].alpha, motions[1].alpha))
    w, x, y, z = (r + 0.5 * (a - b) for r, a, b in zip(rate, ahead, behind, strict=True))
    rows = []
    for k in range(3):
        arms = _along(sides, lambda motion, k=k: corrected(k, (0.0, *motion[0])))  # type: ignore[misc]
        scaled = {dof: scale * arm for dof, arm in arms.items()}
        rows.append(EqualityRow(scaled, scale * error[k + 1], True, scale * corrected(k, (w, x, y, z))))
    return rows


def _polynomial(state: State, equality: EqualityConstraint, coefficients: Sequence[Scalar]) -> EqualityRow:
    """The row of a coordinate or length that follows a polynomial of another."""
    value, arms = _scalar(state, equality, equality.first)
    error = value - equality.reference - coefficients[0]
    arms = dict(arms)
    if equality.second:
        other, others = _scalar(state, equality, equality.second)
        x = other - equality.other_reference
        _, a, b, c, d = coefficients
        error = error - x * (a + x * (b + x * (c + x * d)))
        slope = a + x * (2.0 * b + x * (3.0 * c + x * (4.0 * d)))
        for dof, arm in others.items():
            arms[dof] = arms.get(dof, 0.0) - slope * arm
    return EqualityRow(arms, error, False)


def _scalar(state: State, equality: EqualityConstraint, name: str) -> tuple[Scalar, Arms]:
    model = state.robot.model
    if equality.kind == "tendon":
        return tendons_of(state)[model.tendon_index(name)]
    body = model.joint_index(name)
    at = model.coordinates[body]
    return state.coordinates(body)[0], {at.v: at.multiplier}


class TendonLimit(NamedTuple):
    """The limit of a tendon that is nearer.

    Attributes:
        tendon: its index.
        arms: by how much the gap grows with each coordinate.
        gap: how far the limit is, m.
        side: 1 if the gap grows with the length, -1 if it shrinks.
    """

    tendon: int
    arms: Arms
    gap: Scalar
    side: Scalar


def tendon_limits(state: State) -> list[TendonLimit]:
    """Of each tendon with limits the one that is nearer."""
    found = []
    for index, ((length, arms), least, greatest) in enumerate(
        zip(tendons_of(state), *map(state.robot.numbers, ("tendon_lower", "tendon_upper")), strict=True)
    ):
        open_below, open_above = (isinstance(x, float) and math.isinf(x) for x in (least, greatest))
        if open_below and open_above:
            continue
        below, above = length - least, greatest - length
        if open_above:
            side, gap = 1.0, below
        elif open_below:
            side, gap = -1.0, above
        else:
            side, gap = select(below <= above, 1.0, -1.0), minimum(below, above)
        found.append(TendonLimit(index, {dof: side * arm for dof, arm in arms.items()}, gap, side))
    return found


def tendon_frictions(state: State) -> list[tuple[int, Arms, Scalar]]:
    """Of each tendon with dry friction: its index, its arms and the friction."""
    numbers = zip(tendons_of(state), state.robot.numbers("tendon_friction"), strict=True)
    return [(index, arms, f) for index, ((_, arms), f) in enumerate(numbers) if not is_zero(f)]


def speed(arms: Arms, state: State) -> Scalar:
    """How fast what has these arms grows."""
    return rate_of(arms, state.v)


def is_active(state: State, index: int) -> Scalar:
    """Whether one of the model's equalities acts: 1 or 0."""
    return state.robot.numbers("equality_active")[index]
