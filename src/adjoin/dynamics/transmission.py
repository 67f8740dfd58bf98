"""How actuators reach coordinates: their lengths, and by how much each coordinate changes them."""

from collections.abc import Sequence
from typing import NamedTuple

from adjoin.dynamics.linear import is_zero
from adjoin.dynamics.point_motion import Arms, add_arms, point_columns, relative_point_columns
from adjoin.dynamics.state import State
from adjoin.dynamics.tendon import tendons_of
from adjoin.model.parts import Actuator
from adjoin.spatial import vector
from adjoin.spatial.rotation import from_quaternion, quaternion_along, quaternion_log
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import ZERO, Matrix3, Vector3
from adjoin.trace import select, sqrt


class Transmission(NamedTuple):
    """An actuator's reach.

    Attributes:
        length: m or rad, gear included; 0 where it has none.
        arms: by how much the length grows with each coordinate: the force of each per force of the actuator.
    """

    length: Scalar
    arms: Arms


def transmissions_of(state: State) -> list[Transmission]:
    """Return those of all actuators; of adhesion with the arms that the step has noted: they depend on what touches."""
    if "transmissions" not in state.computed:
        gears = iter(state.robot.numbers("actuator_gear"))
        found = [transmission_of(state, a, [next(gears) for _ in a.gear]) for a in state.robot.model.actuators]
        for k, arms in enumerate(state.computed.get("adhesion", ())):
            if arms:
                found[k] = Transmission(0.0, arms)
        state.computed["transmissions"] = found
    return state.computed["transmissions"]


def transmission_of(state: State, actuator: Actuator, gear: Sequence[Scalar]) -> Transmission:
    """Return the reach of one actuator with given gears."""
    if actuator.joint:
        return _on_joint(state, actuator, gear)
    if actuator.tendon:
        length, arms = tendons_of(state)[state.robot.model.tendon_index(actuator.tendon)]
        return Transmission(gear[0] * length, {dof: gear[0] * arm for dof, arm in arms.items()})
    if actuator.body:
        return Transmission(0.0, {})
    if actuator.crank_length:
        return _crank(state, actuator, gear[0])
    return _on_site(state, actuator, gear)


def _on_joint(state: State, actuator: Actuator, gear: Sequence[Scalar]) -> Transmission:
    model = state.robot.model
    body = model.joint_index(actuator.joint)
    joint, at = model.joints[body], model.coordinates[body]
    if joint.type.nv == 1:
        scaled = gear[0] * at.multiplier
        return Transmission(scaled / at.multiplier * state.coordinates(body)[0], {at.v: scaled})
    arms, length = list(gear), 0.0
    if joint.type.has_quaternion:
        w, x, y, z = state.coordinates(body)[-4:]
        turn = from_quaternion((w, x, y, z))
        if actuator.axes == "parent":
            arms[-3:] = vector.apply_transposed(turn, vector.vector3(gear[-3:]))
        if joint.type.floating and actuator.axes != "body":
            arms[:3] = vector.apply_transposed(turn, vector.vector3(gear[:3]))
        if not joint.type.floating:
            length = vector.dot(quaternion_log((w, x, y, z)), vector.vector3(arms))
    return Transmission(length, {at.v + k: arm for k, arm in enumerate(arms)})


def _crank(state: State, actuator: Actuator, gear: Scalar) -> Transmission:
    """Return the reach of a slider-crank: the slider is where the rod from the site meets its axis."""
    (crank, tip), (slider, (turn, base)) = (_frame(state, name) for name in (actuator.site, actuator.reference))
    axis = (turn[0][2], turn[1][2], turn[2][2])
    way = vector.subtract(tip[1], base)
    along = vector.dot(way, axis)
    square = along * along + actuator.crank_length**2 - vector.dot(way, way)
    reaches = square > 0.0
    root = sqrt(select(reaches, square, 1.0))
    share = select(reaches, 1.0 - along / root, 1.0)
    by_way = vector.add(vector.scale(share, axis), vector.scale(select(reaches, 1.0 / root, 0.0), way))
    by_axis = vector.scale(share, way)
    arms: Arms = {}
    add_arms(arms, point_columns(state, crank, tip[1]), ZERO, vector.scale(gear, by_way))
    columns = point_columns(state, slider, base)
    # The slider's axis turns by omega x axis.
    turning = vector.cross(axis, vector.scale(gear, by_axis))
    add_arms(arms, columns, turning, vector.scale(-1.0 * gear, by_way))
    return Transmission(gear * (along - select(reaches, root, 0.0)), arms)


def _on_site(state: State, actuator: Actuator, gear: Sequence[Scalar]) -> Transmission:
    body, (turn, place) = _frame(state, actuator.site)
    force, moment = vector.vector3(gear[:3]), vector.vector3(gear[3:])
    arms: Arms = {}
    if not actuator.reference:
        add_arms(arms, point_columns(state, body, place), vector.apply(turn, moment), vector.apply(turn, force))
        return Transmission(0.0, arms)
    other, (base_turn, base) = _frame(state, actuator.reference)
    length: Scalar = 0.0
    if not all(map(is_zero, force)):
        length = vector.dot(vector.apply_transposed(base_turn, vector.subtract(place, base)), force)
    if not all(map(is_zero, moment)):
        length = length + vector.dot(_turn_between(base_turn, turn), moment)
    columns = relative_point_columns(state, body, other, place, base)
    add_arms(arms, columns, vector.apply(base_turn, moment), vector.apply(base_turn, force))
    return Transmission(length, arms)


def _turn_between(base: Matrix3, turned: Matrix3) -> Vector3:
    """Return the rotation vector from one orientation to another."""
    return quaternion_log(quaternion_along(vector.multiply(vector.transpose(base), turned)))


def _frame(state: State, name: str) -> tuple[int, tuple[Matrix3, Vector3]]:
    index = state.robot.model.frame_index(name)
    return state.robot.model.frames[index].body, state.frame_pose(index)
