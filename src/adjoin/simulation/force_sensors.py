"""Sensors of forces: between a link and what carries it, and of limits."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from adjoin.constraints.model_rows import tendon_frictions
from adjoin.dynamics.passive import tendon_forces
from adjoin.dynamics.tendon import tendon_ends
from adjoin.model.equality import EqualityConstraint
from adjoin.model.parts import WORLD
from adjoin.model.sensor import Sensor
from adjoin.simulation.constraint_forces import RowForces, row_forces, touching_forces
from adjoin.spatial import vector
from adjoin.spatial.inertia import to_matrix
from adjoin.spatial.motion import Transform, transform_multiply, transform_point
from adjoin.spatial.rotation import (
    quaternion_along,
    quaternion_conjugate,
    quaternion_multiply,
    quaternion_normalize,
)
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import ZERO, Vector3
from adjoin.trace import select

if TYPE_CHECKING:
    from adjoin.simulation.sensors import Reading


def interaction(reading: "Reading", sensor: Sensor) -> tuple[Vector3, Vector3]:
    """Return force and torque of what carries a link on the link, at the sensor and in its axes, as MuJoCo has them.

    What the links beyond the sensor need for their motion, less what contacts, external forces, equalities and tendons
    give.
    """
    state, model = reading.state, reading.state.robot.model
    own = reading.body(sensor.target)
    listed = set(sensor.carried.splitlines())
    bodies = _beyond(reading, own) if not listed else {f.body for f in model.frames if f.name in listed} - {own}
    links = listed or {frame.name for frame in model.frames if frame.body in bodies}
    frame, (turn, place) = reading.pose(sensor), reading.pose(sensor)
    force, moment = ZERO, ZERO

    def add(push: Vector3, at: Vector3, twist: Vector3 = ZERO) -> None:
        nonlocal force, moment
        force = vector.add(force, push)
        moment = vector.add(moment, vector.add(twist, vector.cross(vector.subtract(at, place), push)))

    coms, inertias = state.robot.numbers("com"), state.robot.numbers("inertia")
    for body in sorted(bodies - {WORLD}):
        inertia = state.robot.mass[body], coms[body], inertias[body]
        _add_motion(reading, body, state.poses[body], inertia, add)
    if listed:
        mass, *rest = sensor.carried_inertia
        _add_motion(reading, own, frame, (mass, rest[:3], rest[3:]), add)
    for touching in touching_forces(reading.step, links):
        push, twist = (vector.scale(-1.0 * touching.side, x) for x in (touching.force, touching.moment))
        add(push, touching.position, twist)
    for name, given in reading.step.plant.external.items():
        if name in links or reading.body(name) in bodies:
            at = state.frame_pose(model.frame_index(name))[1]
            add(vector.negate(vector.vector3(given[:3])), at, vector.negate(vector.vector3(given[3:])))
    _add_equalities(reading, links, add)
    _add_tendons(reading, links, add)
    return vector.apply_transposed(turn, force), vector.apply_transposed(turn, moment)


def _beyond(reading: "Reading", root: int) -> set[int]:
    """A body and all that it carries."""
    robot = reading.state.robot
    return {body for body in range(robot.count) if root == WORLD or root in robot.ancestors(body)} | {root}


def _add_motion(reading: "Reading", body: int, frame: Transform, inertia, add) -> None:
    """Add what moves a part of a body: mass, center and inertia in a frame."""
    mass, center, central = inertia
    place = transform_point(frame, vector.vector3(center))
    alpha, felt = reading.acceleration(body, place)
    omega, _ = reading.velocity(body, place)
    matrix = to_matrix(tuple(central))

    def turned(x: Vector3) -> Vector3:
        return vector.apply(frame[0], vector.apply(matrix, vector.apply_transposed(frame[0], x)))

    add(vector.scale(mass, felt), place, vector.add(turned(alpha), vector.cross(omega, turned(omega))))


def _add_equalities(reading: "Reading", links: set[str], add) -> None:
    """Take away what the connects and welds of the model do to links: a force, and of welds a moment."""
    state, model = reading.state, reading.state.robot.model
    ends = [(k, e) for k, e in enumerate(model.equalities) if e.kind in ("connect", "weld")]
    if not ends:
        return
    forces = limits_of(reading).equalities
    for index, equality in ends:
        if index not in forces:
            continue
        push, twist = vector.vector3(forces[index][:3]), ZERO
        if equality.kind == "weld":
            twist = _weld_moment(reading, equality, forces[index][3:6])
        near = vector.vector3(state.robot.numbers("equality_position")[index])
        for name, at, sign in ((equality.first, near, -1.0), (equality.second, equality.other_position, 1.0)):
            if name in links:
                place = transform_multiply(state.frame_pose(model.frame_index(name)), (vector.IDENTITY, at))[1]
                add(vector.scale(sign, push), place, vector.scale(sign, twist))


def _add_tendons(reading: "Reading", links: set[str], add) -> None:
    """Take away what springs, damping, limits, friction and actuators of spatial tendons do to links."""
    state, model = reading.state, reading.state.robot.model
    if not any(tendon.path[0].kind != "joint" for tendon in model.tendons):
        return
    assert reading.step.result.effort is not None
    drives = list(zip(model.actuators, reading.step.result.effort.actuator_forces, strict=True))
    held = any(not math.isinf(x) for t in model.tendons for x in (t.lower, t.upper)) or tendon_frictions(state)
    pulls = limits_of(reading).pulls if held else {}
    for index, (tendon, ends, pull) in enumerate(
        zip(model.tendons, tendon_ends(state), tendon_forces(state), strict=True)
    ):
        pull = pull + pulls.get(index, 0.0)
        pull = pull + sum((force * drive.gear[0] for drive, force in drives if drive.tendon == tendon.name), 0.0)
        for point, grows in ends:
            if point.frame in links:
                add(vector.scale(-1.0 * pull, grows), point.place)


def _weld_moment(reading: "Reading", weld: EqualityConstraint, forces: Sequence[Scalar]) -> Vector3:
    """The moment of a weld on its first frame: its rows are the vector part of a quaternion, not an angle."""
    state = reading.state
    turns = [state.frame_pose(state.robot.model.frame_index(name))[0] for name in (weld.first, weld.second)]
    one, other, relative = (quaternion_normalize(quaternion_along(turn)) for turn in (*turns, weld.rotation))
    goal, back = quaternion_multiply(one, relative), quaternion_conjugate(other)
    sign = select(quaternion_multiply(back, goal)[0] < 0.0, -0.5, 0.5)
    moment = []
    for axis in vector.AXES:
        rates = quaternion_multiply(quaternion_multiply(back, (0.0, *axis)), goal)[1:]
        moment.append(sign * weld.torque_scale * vector.dot(vector.vector3(rates), vector.vector3(forces)))
    return vector.vector3(moment)


def limits_of(reading: "Reading") -> RowForces:
    """Return the forces of limits and equalities, computed once."""
    if "row forces" not in reading.state.computed:
        reading.state.computed["row forces"] = row_forces(reading.step, reading.state)
    return reading.state.computed["row forces"]


def limit(reading: "Reading", sensor: Sensor, part: int) -> list[Scalar]:
    """Return how far a joint or tendon is from its nearer limit, how fast it leaves it, or the limit's force.

    All are 0 while the limit is farther away than its margin.
    """
    model = reading.state.robot.model
    if sensor.kind.startswith("tendon"):
        index = model.tendon_index(sensor.target)
        margin, found = model.tendons[index].margin, limits_of(reading).tendons.get(index)
    else:
        index = model.joint_index(sensor.target)
        margin, found = model.joints[index].limit_margin, limits_of(reading).limits.get(index)
    if found is None:
        return [0.0]
    gap = found[0] - margin
    return [select(gap < 0.0, (gap, *found[1:])[part], 0.0)]
