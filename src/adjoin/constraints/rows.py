"""A state's constraints as blocks of rows: contacts, joint limits, joint friction, equalities.

Contact is speculative: while two shapes are apart they may approach by what is left between them, so every slot has its
row at all times, and no environment has more rows than another. Once they overlap, a share of the overlap is undone.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from adjoin.collision.narrow_phase import points
from adjoin.collision.pairs import Pair
from adjoin.collision.point import Point
from adjoin.collision.shape import Shape
from adjoin.collision.terrain import OnTerrain, terrain_points
from adjoin.constraints.blocks import (
    Block,
    ContactBlock,
    EqualityBlock,
    JointFrictionBlock,
    JointLimitBlock,
    Row,
    UnilateralBlock,
)
from adjoin.constraints.joint_equality import JointEquality
from adjoin.constraints.model_rows import equality_rows, is_active, tendon_frictions, tendon_limits
from adjoin.dynamics.frame_constraint import EvaluatedConstraint, FrameConstraint
from adjoin.dynamics.linear import dot, is_zero
from adjoin.dynamics.point_motion import Arms
from adjoin.dynamics.state import State
from adjoin.spatial import vector
from adjoin.spatial.motion import Spatial, transform_multiply
from adjoin.spatial.rotation import quaternion_log
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Matrix3, Vector3
from adjoin.trace import maximum, select, sqrt

NO_TURN = 1e-12  # rad: turns that are smaller have no axis

GROUND = "ground"
"""The name of the shape that a simulator adds, and that terrain stands in for."""


Equality = FrameConstraint | JointEquality
"""What a simulator can hold."""


class Contact(NamedTuple):
    """A point of contact in its frame.

    Attributes:
        pair: its shapes.
        point: where it is.
        axes: its normal, then two directions across.
        block: its constraint.
        number: which of the points of its pair it is.
    """

    pair: Pair
    point: Point
    axes: Matrix3
    block: Block
    number: int


def contacts(state: State, pairs: Sequence[Pair], elliptic: bool) -> list[Contact]:
    """The contacts between pairs of shapes; whether their friction lies in a cone instead of a pyramid."""
    robot = state.robot
    found = []
    for pair in pairs:
        first, second = (robot.model.geometries[index] for index in (pair.first, pair.second))
        friction = pair.coefficients(robot.numbers("geometry_friction"))
        for number, point in enumerate(between(state, pair)):
            if pair.points is not None and number not in pair.points:
                continue
            axes = basis(point.normal)
            columns = relative_columns(state, first.body, second.body, point.position)
            directions = [(axes[0], 1), (axes[1], 1), (axes[2], 1), (axes[0], 0), (axes[1], 0), (axes[2], 0)]
            rows = []
            for direction, part in directions[: pair.condim]:
                jacobian: list[Scalar] = [0.0] * robot.nv
                for dof, motion in columns:
                    jacobian[dof] = jacobian[dof] + vector.dot(direction, motion[part])
                rows.append(jacobian)
            if pair.points is None and all(is_zero(x) for x in rows[0]):
                continue
            gaps = [point.distance - pair.margin, *[0.0] * (len(rows) - 1)]
            made = tuple(Row(row, dot(row, state.v), gap) for row, gap in zip(rows, gaps, strict=True))
            bounds = friction[: len(made) - 1]
            block = ContactBlock(made, bounds, elliptic) if bounds else UnilateralBlock(made)
            found.append(Contact(pair, point, axes, block, number))
    return found


def between(state: State, pair: Pair) -> list[Point]:
    """The points of contact of two shapes; ground may be terrain."""
    first, robot = shape(state, pair.first), state.robot
    if isinstance(robot, OnTerrain) and pair.second == robot.ground:
        return terrain_points(first, robot.terrain)
    return points(first, shape(state, pair.second))


def shape(state: State, index: int) -> Shape:
    """A collision shape of the model, where it is now."""
    robot, geometry = state.robot, state.robot.model.geometries[index]
    return Shape(
        geometry.kind,
        vector.vector3(robot.numbers("geometry_size")[index]),
        transform_multiply(state.pose(geometry.body), robot.geometries[index]),
        geometry.vertices,
    )


def relative_columns(state: State, first: int, second: int, place: Vector3) -> list[tuple[int, Spatial]]:
    """For each coordinate that matters, the motion of a body against another at a place, in world axes."""
    robot = state.robot
    ahead, behind = robot.ancestors(first), robot.ancestors(second)
    found = []
    for path, other, sign in ((ahead, behind, 1.0), (behind, ahead, -1.0)):
        for body in path:
            if body in other:
                continue
            rotation, position = state.poses[body]
            arm = vector.subtract(place, position)
            for dof, (angular, linear) in robot.subspaces[body]:
                turning = vector.apply(rotation, angular)
                moving = vector.add(vector.apply(rotation, linear), vector.cross(turning, arm))
                found.append((dof, (vector.scale(sign, turning), vector.scale(sign, moving))))
    return found


def basis(normal: Vector3) -> Matrix3:
    """A normal and two directions across it, each across the other.

    Duff et al., Building an Orthonormal Basis, Revisited (2017): no square root, and one seam, at normals with z = 0.
    """
    x, y, z = normal
    side = select(z < 0.0, -1.0, 1.0)
    a = -1.0 / (side + z)
    b = x * y * a
    return normal, (1.0 + side * x * x * a, side * b, -(side * x)), (b, side + y * y * a, -y)


class JointLimit(NamedTuple):
    """The limit of a joint that is nearer.

    Attributes:
        body: the body that the joint moves.
        jacobian: coordinate -> how much it opens the gap.
        gap: how far the limit is, rad or m.
    """

    body: int
    jacobian: dict[int, Scalar]
    gap: Scalar


def nearest_limits(state: State, dt: float = 0.0) -> list[JointLimit]:
    """Of each joint with limits the one that is nearer.

    Args:
        state: of the robot.
        dt: how long the joints go on at their speed before the limits are compared, s. With the step of time, a joint
            that would cross more than half of its range within a step meets the limit that it goes to.
    """
    robot = state.robot
    lower, upper = robot.numbers("lower"), robot.numbers("upper")
    limits = []
    for body, joint in enumerate(robot.model.joints):
        at, least, greatest = robot.model.coordinates[body], lower[body], upper[body]
        open_below, open_above = (isinstance(x, float) and math.isinf(x) for x in (least, greatest))
        if joint.type.limited == "angle" and not open_above:
            axis, angle = axis_and_angle(quaternion_log(tuple(state.coordinates(body)[-4:])))
            first = at.v + joint.nv - 3
            limits.append(JointLimit(body, {first + k: -x for k, x in enumerate(axis)}, greatest - angle))
        if joint.type.limited != "coordinate" or (open_below and open_above):
            continue
        place = state.coordinates(body)[0]
        below, above = place - least, greatest - place
        if open_above:
            side, gap = 1.0, below
        elif open_below:
            side, gap = -1.0, above
        else:
            moved = 2.0 * dt * at.multiplier * state.v[at.v] if dt else 0.0
            is_lower = below + moved <= above
            side, gap = select(is_lower, 1.0, -1.0), select(is_lower, below, above)
        limits.append(JointLimit(body, {at.v: side * at.multiplier}, gap))
    return limits


def axis_and_angle(turn: Vector3) -> tuple[Vector3, Scalar]:
    """A rotation vector as a unit vector and an angle from 0 on; a turn of 0 has no axis."""
    square = vector.dot(turn, turn)
    angle = sqrt(maximum(square, NO_TURN * NO_TURN))
    return vector.scale(1.0 / angle, turn), angle


def joint_limits(state: State, dt: float) -> list[Block]:
    """The joint limits: of each joint the one that is nearer at the end of the step."""
    blocks: list[Block] = []
    for body, arms, gap in nearest_limits(state, dt):
        jacobian: list[Scalar] = [0.0] * state.robot.nv
        for dof, arm in arms.items():
            jacobian[dof] = arm
        speed = dot(jacobian, state.v)
        turning = state.robot.model.joints[body].type.units[0] == "rad"
        blocks.append(JointLimitBlock((Row(jacobian, speed, gap, turning),)))
    return blocks


def joint_frictions(state: State, dt: float) -> list[Block]:
    """Dry friction of joints."""
    turning = {dof for body in state.robot.subspaces for dof, (angular, _) in body if not all(map(is_zero, angular))}
    found = []
    for dof, friction in enumerate(state.robot.numbers("friction")):
        if not is_zero(friction):
            jacobian = [1.0 if i == dof else 0.0 for i in range(state.robot.nv)]
            row = Row(jacobian, state.v[dof], turning=dof in turning)
            found.append(JointFrictionBlock((row,), dt * friction))
    return found


def tendon_blocks(state: State, dt: float, limits: bool) -> list[Block]:
    """Limits and dry friction of tendons."""
    blocks: list[Block] = []
    for _, arms, gap, _ in tendon_limits(state) if limits else []:
        blocks.append(JointLimitBlock((_row(state, arms, gap),)))
    for _, arms, friction in tendon_frictions(state):
        blocks.append(JointFrictionBlock((_row(state, arms, 0.0),), dt * friction))
    return blocks


def model_equalities(state: State) -> list[Block]:
    """What the model itself holds together."""
    blocks: list[Block] = []
    for index in range(len(state.robot.model.equalities)):
        active = is_active(state, index)
        if not is_zero(active):
            rows = [
                _row(state, {dof: active * arm for dof, arm in arms.items()}, active * error, turning)
                for arms, error, turning, _ in equality_rows(state, index)
            ]
            blocks.append(EqualityBlock(tuple(rows)))
    return blocks


def _row(state: State, arms: Arms, gap: Scalar, turning: bool = False) -> Row:
    jacobian: list[Scalar] = [0.0] * state.robot.nv
    for dof, arm in arms.items():
        jacobian[dof] = arm
    return Row(jacobian, dot(jacobian, state.v), gap, turning)


def equalities(state: State, constraints: Sequence[Equality]) -> list[Block]:
    """Frames that are held to the world or to one another, and joints that follow one another."""
    found = []
    for constraint in constraints:
        if isinstance(constraint, JointEquality):
            found.append(constraint.block(state))
            continue
        held = EvaluatedConstraint(state, constraint)
        parts = zip(held.rows, held.velocity(), held.error(), (False,) * 3 + (True,) * 3, strict=False)
        found.append(EqualityBlock(tuple(Row(*part) for part in parts)))
    return found


def other_blocks(state: State, dt: float, limits: bool, constraints: Sequence[Equality]) -> list[Block]:
    """All constraints of a state but its contacts: limits, if there are any, friction and equalities."""
    bounds = joint_limits(state, dt) if limits else []
    blocks = [*bounds, *joint_frictions(state, dt), *tendon_blocks(state, dt, limits)]
    return [*blocks, *equalities(state, constraints), *model_equalities(state)]
