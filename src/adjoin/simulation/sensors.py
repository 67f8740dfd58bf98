"""Sensors of a model, as values of a step: what MuJoCo calls `sensordata`, as the step begins."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoin.collision.branchless import choose
from adjoin.collision.narrow_phase import points
from adjoin.collision.point import FAR
from adjoin.collision.ray import KINDS, MISS, ray_distance, terrain_ray
from adjoin.collision.shape import Shape
from adjoin.collision.signed_distance import TINY, signed_distance
from adjoin.collision.terrain import OnTerrain
from adjoin.constraints.rows import shape
from adjoin.dynamics.energy import kinetic_energy_of, potential_energy_of
from adjoin.dynamics.point_motion import rate_of
from adjoin.dynamics.rnea import body_motions, spin_matrix
from adjoin.dynamics.state import State
from adjoin.dynamics.tendon import tendons_of
from adjoin.dynamics.transmission import transmissions_of
from adjoin.model.parts import WORLD
from adjoin.model.sensor import Sensor
from adjoin.simulation.constraint_forces import touching_forces
from adjoin.simulation.contact_sensors import contact_readings
from adjoin.simulation.euler import straight
from adjoin.simulation.force_sensors import interaction, limit
from adjoin.simulation.step import Step, array, step_value
from adjoin.simulation.tactile import tactile
from adjoin.spatial import vector
from adjoin.spatial.inertia import to_matrix
from adjoin.spatial.motion import Transform, transform_multiply, transform_point
from adjoin.spatial.rotation import quaternion_along, quaternion_normalize
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import ZERO, Matrix3, Vector3
from adjoin.trace import Scratch, loop, maximum, minimum, scratch, select, sqrt, table


@step_value
def sensors(step: Step) -> Any:
    """What the model's sensors measure as the step begins, one after the other; see `Model.sensor_slices`."""
    reading = Reading(step)
    return array([x for sensor in step.plant.model.sensors for x in reading.of(sensor)])


class Reading:
    """The sensors of one step.

    Args:
        step: the step.
    """

    def __init__(self, step: Step):
        self.step = step
        self.state, _ = step.plant.at(step["q"], step["v"])

    def of(self, sensor: Sensor) -> list[Scalar]:
        """What one sensor measures."""
        values = _KINDS[sensor.kind](self, sensor)
        if sensor.cutoff > 0.0 and sensor.kind not in _UNIT:
            values = [maximum(minimum(x, sensor.cutoff), -sensor.cutoff) for x in values]
        return values

    # Frames

    def pose(self, sensor: Sensor) -> Transform:
        """Where a sensor is in the world."""
        index = self.state.robot.model.frame_index(sensor.target)
        return transform_multiply(self.state.frame_pose(index), (sensor.rotation, sensor.position))

    def reference(self, sensor: Sensor) -> Transform:
        """Where the frame is that a sensor measures against."""
        index = self.state.robot.model.frame_index(sensor.reference)
        return transform_multiply(self.state.frame_pose(index), (sensor.reference_rotation, sensor.reference_position))

    def body(self, frame: str) -> int:
        """What a frame is on."""
        return self.state.robot.model.frames[self.state.robot.model.frame_index(frame)].body

    def velocity(self, body: int, place: Vector3) -> tuple[Vector3, Vector3]:
        """Angular velocity of a body, and velocity of a point of it, in world axes."""
        if body == WORLD:
            return ZERO, ZERO
        rotation, position = self.state.poses[body]
        angular, linear = (vector.apply(rotation, x) for x in self.state.velocities[body])
        return angular, vector.add(linear, vector.cross(angular, vector.subtract(place, position)))

    def acceleration(self, body: int, place: Vector3) -> tuple[Vector3, Vector3]:
        """Angular acceleration of a body, and acceleration of a point of it as felt there, in world axes."""
        state = self.state
        if body == WORLD:
            return ZERO, vector.negate(state.robot.gravity)
        if "felt" not in state.computed:
            onwards = straight(state.robot.model, state.v)
            a = [x + y for x, y in zip(self.step.result.beginning_acceleration, onwards, strict=True)]
            state.computed["felt"] = body_motions(state, a)
        omega, alpha, origin = state.computed["felt"][body]
        rotation, position = state.poses[body]
        arm = vector.apply_transposed(rotation, vector.subtract(place, position))
        point = vector.add(origin, vector.apply(spin_matrix(omega, alpha), arm))
        return vector.apply(rotation, alpha), vector.apply(rotation, point)

    # Subtrees

    def subtree(self, sensor: Sensor) -> tuple[Scalar, Vector3, Vector3, Vector3]:
        """Mass, center of mass, velocity of it and angular momentum about it, of a body and all that it carries."""
        state, robot = self.state, self.state.robot
        root = self.body(sensor.target)
        inside = [body for body in range(robot.count) if root == WORLD or root in robot.ancestors(body)]
        coms, inertias = robot.numbers("com"), robot.numbers("inertia")
        places = {body: transform_point(state.poses[body], vector.vector3(coms[body])) for body in inside}
        moving = {body: self.velocity(body, places[body]) for body in inside}
        mass = sum((robot.mass[body] for body in inside), 0.0)
        center, speed, spin = ZERO, ZERO, ZERO
        for body in inside:
            center = vector.add(center, vector.scale(robot.mass[body] / mass, places[body]))
            speed = vector.add(speed, vector.scale(robot.mass[body] / mass, moving[body][1]))
        for body in inside:
            rotation = state.poses[body][0]
            turning = vector.apply_transposed(rotation, moving[body][0])
            own = vector.apply(rotation, vector.apply(to_matrix(tuple(inertias[body])), turning))
            arm, drift = vector.subtract(places[body], center), vector.subtract(moving[body][1], speed)
            orbit = vector.scale(robot.mass[body], vector.cross(arm, drift))
            spin = vector.add(spin, vector.add(own, orbit))
        return mass, center, speed, spin

    # Joints, tendons and actuators

    def joint(self, sensor: Sensor) -> tuple[list[Scalar], list[Scalar]]:
        """Coordinates and velocities of a joint."""
        model = self.state.robot.model
        body = model.joint_index(sensor.target)
        rates = [dof * 1.0 for dof in self.state.v[model.coordinates[body].v_slice]]
        return self.state.coordinates(body), rates

    def tendon(self, sensor: Sensor) -> tuple[Scalar, Scalar]:
        """Length and rate of a tendon."""
        length, arms = tendons_of(self.state)[self.state.robot.model.tendon_index(sensor.target)]
        return length, rate_of(arms, self.state.v)

    def actuator(self, sensor: Sensor) -> tuple[Scalar, Scalar, Scalar]:
        """Length, rate and force of an actuator."""
        index = self.state.robot.model.actuator_index(sensor.target)
        length, arms = transmissions_of(self.state)[index]
        assert self.step.result.effort is not None
        return length, rate_of(arms, self.state.v), self.step.result.effort.actuator_forces[index]


def ray_distances(state: State, origin: Vector3, direction: Vector3, without: Sequence[int] = ()) -> Scalar:
    """How far a ray goes until it meets a shape of the model; `MISS` if it meets none.

    Args:
        state: the robot.
        origin: in the world.
        direction: in the world, a unit vector.
        without: shapes that it passes through.
    """
    nearest: Scalar = MISS
    for index, geometry in enumerate(state.robot.model.geometries):
        if index in without:
            continue
        if isinstance(state.robot, OnTerrain) and index == state.robot.ground:
            nearest = minimum(nearest, terrain_ray(state.robot.terrain, origin, direction))
        elif geometry.kind in KINDS:
            nearest = minimum(nearest, ray_distance(shape(state, index), origin, direction))
    return nearest


def _rays(reading: Reading, sensor: Sensor) -> list[Scalar]:
    """How far each of many rays goes, in one loop."""
    state, model = reading.state, reading.state.robot.model
    rotation, place = reading.pose(sensor)
    if sensor.upright:
        rotation = upright(rotation)
    trees = model.trees
    own = trees.get(sensor.target, "")
    carrier = reading.body(sensor.target)
    past = [
        index
        for index, geometry in enumerate(model.geometries)
        if geometry.body != WORLD and (geometry.body == carrier or (own and trees.get(geometry.link, "") == own))
    ]
    rows = table(np.array(sensor.rays).reshape(-1, 6))

    def cast(k: Any, readings: Scratch) -> Scratch:
        begin, along = ([rows[k, i] for i in range(start, start + 3)] for start in (0, 3))
        origin = transform_point((rotation, place), vector.vector3(begin))
        far = ray_distances(state, origin, vector.apply(rotation, vector.vector3(along)), past)
        readings[k] = select(far < 0.5 * MISS, far, -1.0)
        return readings

    readings = loop(sensor.count, cast, scratch(sensor.count))
    return [readings[k] for k in range(sensor.count)]


def upright(rotation: Matrix3) -> Matrix3:
    """The turn about the vertical of a rotation: that of its x axis, seen from above."""
    x, y = rotation[0][0], rotation[1][0]
    length = sqrt(x * x + y * y)
    level = length > 1e-9
    c, s = select(level, x / select(level, length, 1.0), 1.0), select(level, y / select(level, length, 1.0), 0.0)
    return ((c, -s, 0.0), (s, c, 0.0), (0.0, 0.0, 1.0))


def _range(reading: Reading, sensor: Sensor) -> list[Scalar]:
    rotation, place = reading.pose(sensor)
    shapes = reading.state.robot.model.geometries
    own = [index for index, geometry in enumerate(shapes) if geometry.link == sensor.reference]
    along = (rotation[0][2], rotation[1][2], rotation[2][2])
    far = ray_distances(reading.state, place, along, own)
    return [select(far < 0.5 * MISS, far, -1.0)]


def _touch(reading: Reading, sensor: Sensor) -> list[Scalar]:
    """The normal forces of contacts of a link in a zone, or before it."""
    zone = Shape(sensor.zone, sensor.size, reading.pose(sensor))  # type: ignore[arg-type]
    total: Scalar = 0.0
    for side, position, normal, force, _ in touching_forces(reading.step, {sensor.reference}):
        felt = (ray_distance(zone, position, vector.scale(-1.0 * side, normal)) < 0.5 * MISS) & (abs(side) > 0.5)
        total = total + select(felt, maximum(vector.dot(force, normal), 0.0), 0.0)
    return [total]


def _axis(k: int) -> "Kind":
    def read(reading: Reading, sensor: Sensor) -> list[Scalar]:
        rotation, _ = reading.pose(sensor)
        axis = (rotation[0][k], rotation[1][k], rotation[2][k])
        return list(vector.apply_transposed(reading.reference(sensor)[0], axis) if sensor.reference else axis)

    return read


def _position(reading: Reading, sensor: Sensor) -> list[Scalar]:
    _, place = reading.pose(sensor)
    if not sensor.reference:
        return list(place)
    rotation, origin = reading.reference(sensor)
    return list(vector.apply_transposed(rotation, vector.subtract(place, origin)))


def _orientation(reading: Reading, sensor: Sensor) -> list[Scalar]:
    rotation, _ = reading.pose(sensor)
    if sensor.reference:
        rotation = vector.multiply(vector.transpose(reading.reference(sensor)[0]), rotation)
    return list(quaternion_normalize(quaternion_along(rotation)))


def _frame_velocity(reading: Reading, sensor: Sensor) -> tuple[Vector3, Vector3]:
    _, place = reading.pose(sensor)
    angular, linear = reading.velocity(reading.body(sensor.target), place)
    if not sensor.reference:
        return angular, linear
    rotation, origin = reading.reference(sensor)
    turning, moving = reading.velocity(reading.body(sensor.reference), origin)
    linear = vector.subtract(linear, moving)
    linear = vector.add(linear, vector.cross(vector.subtract(place, origin), turning))
    apart = vector.subtract(angular, turning)
    return vector.apply_transposed(rotation, apart), vector.apply_transposed(rotation, linear)


def _own_velocity(reading: Reading, sensor: Sensor) -> tuple[Vector3, Vector3]:
    rotation, place = reading.pose(sensor)
    angular, linear = reading.velocity(reading.body(sensor.target), place)
    return vector.apply_transposed(rotation, angular), vector.apply_transposed(rotation, linear)


def _frame_acceleration(reading: Reading, sensor: Sensor) -> tuple[Vector3, Vector3]:
    return reading.acceleration(reading.body(sensor.target), reading.pose(sensor)[1])


def _accelerometer(reading: Reading, sensor: Sensor) -> list[Scalar]:
    return list(vector.apply_transposed(reading.pose(sensor)[0], _frame_acceleration(reading, sensor)[1]))


def _magnetometer(reading: Reading, sensor: Sensor) -> list[Scalar]:
    return list(vector.apply_transposed(reading.pose(sensor)[0], reading.state.robot.model.magnetic_field))


def _joint_force(reading: Reading, sensor: Sensor) -> list[Scalar]:
    model = reading.state.robot.model
    assert reading.step.result.effort is not None
    return [reading.step.result.effort.actuated[model.coordinates[model.joint_index(sensor.target)].v]]


def _tendon_force(reading: Reading, sensor: Sensor) -> list[Scalar]:
    assert reading.step.result.effort is not None
    forces = reading.step.result.effort.actuator_forces
    drives = zip(reading.state.robot.model.actuators, forces, strict=True)
    return [sum((force for drive, force in drives if drive.tendon == sensor.target), 0.0)]


def _nearest(reading: Reading, sensor: Sensor) -> tuple[Scalar, Vector3, Vector3]:
    """The distance of two sets of shapes, and the point of each nearest to the other; `FAR` beyond the cutoff."""
    model = reading.state.robot.model
    ends = [[model.geometry_index(name) for name in names.splitlines()] for names in (sensor.target, sensor.reference)]
    nearest: Any = (FAR, ZERO, ZERO)
    for i in ends[0]:
        for j in ends[1]:
            for point in points(shape(reading.state, i), shape(reading.state, j)):
                half = vector.scale(0.5 * point.distance, point.normal)
                found = point.distance, vector.add(point.position, half), vector.subtract(point.position, half)
                nearest = choose(found[0] < nearest[0], found, nearest)
    return choose(nearest[0] < sensor.cutoff, nearest, (FAR, ZERO, ZERO))


def _distance(reading: Reading, sensor: Sensor) -> list[Scalar]:
    return [minimum(_nearest(reading, sensor)[0], sensor.cutoff)]


def _direction(reading: Reading, sensor: Sensor) -> list[Scalar]:
    """The unit vector from the first shape toward the second; zeros if they are too far apart."""
    distance, first, second = _nearest(reading, sensor)
    way = vector.subtract(second, first)
    length = sqrt(maximum(vector.dot(way, way), 1e-30))
    return list(vector.scale(select(distance < 0.5 * FAR, 1.0 / length, 0.0), way))


def _segment(reading: Reading, sensor: Sensor) -> list[Scalar]:
    _, first, second = _nearest(reading, sensor)
    return [*first, *second]


def _inside(reading: Reading, sensor: Sensor) -> list[Scalar]:
    """Whether the sensor is in the volume of its reference."""
    state = reading.state
    turn, place = state.frame_pose(state.robot.model.frame_index(sensor.reference))
    inside = vector.apply_transposed(turn, vector.subtract(reading.pose(sensor)[1], place))
    return [select(signed_distance(sensor.zone, sensor.size, inside) < 0.0, 1.0, 0.0)]


def _projection(reading: Reading, sensor: Sensor) -> list[Scalar]:
    """Where a camera sees the sensor, in pixels from the upper left."""
    rotation, origin = reading.reference(sensor)
    x, y, z = vector.apply_transposed(rotation, vector.subtract(reading.pose(sensor)[1], origin))
    depth = select(abs(z) < TINY, select(z < 0.0, -TINY, TINY), z)
    wide, high, across, down = sensor.image
    return [across - wide * x / depth, down + high * y / depth]


Kind = Callable[[Reading, Sensor], list[Scalar]]

_UNIT = (
    "contact",
    "tactile",
    "user",
    "geomdist",
    "geomnormal",
    "geomfromto",
    "framequat",
    "ballquat",
    "framexaxis",
    "frameyaxis",
    "framezaxis",
)
_KINDS: dict[str, Kind] = {
    "jointpos": lambda reading, sensor: reading.joint(sensor)[0],
    "jointvel": lambda reading, sensor: reading.joint(sensor)[1],
    "jointactuatorfrc": _joint_force,
    "ballquat": lambda reading, sensor: list(quaternion_normalize(tuple(reading.joint(sensor)[0]))),
    "ballangvel": lambda reading, sensor: reading.joint(sensor)[1],
    "tendonpos": lambda reading, sensor: [reading.tendon(sensor)[0]],
    "tendonvel": lambda reading, sensor: [reading.tendon(sensor)[1]],
    "tendonactuatorfrc": _tendon_force,
    "actuatorpos": lambda reading, sensor: [reading.actuator(sensor)[0]],
    "actuatorvel": lambda reading, sensor: [reading.actuator(sensor)[1]],
    "actuatorfrc": lambda reading, sensor: [reading.actuator(sensor)[2]],
    "framepos": _position,
    "framequat": _orientation,
    "framexaxis": _axis(0),
    "frameyaxis": _axis(1),
    "framezaxis": _axis(2),
    "framelinvel": lambda reading, sensor: list(_frame_velocity(reading, sensor)[1]),
    "frameangvel": lambda reading, sensor: list(_frame_velocity(reading, sensor)[0]),
    "framelinacc": lambda reading, sensor: list(_frame_acceleration(reading, sensor)[1]),
    "frameangacc": lambda reading, sensor: list(_frame_acceleration(reading, sensor)[0]),
    "accelerometer": _accelerometer,
    "gyro": lambda reading, sensor: list(_own_velocity(reading, sensor)[0]),
    "velocimeter": lambda reading, sensor: list(_own_velocity(reading, sensor)[1]),
    "magnetometer": _magnetometer,
    "subtreecom": lambda reading, sensor: list(reading.subtree(sensor)[1]),
    "subtreelinvel": lambda reading, sensor: list(reading.subtree(sensor)[2]),
    "subtreeangmom": lambda reading, sensor: list(reading.subtree(sensor)[3]),
    "touch": _touch,
    "force": lambda reading, sensor: list(interaction(reading, sensor)[0]),
    "torque": lambda reading, sensor: list(interaction(reading, sensor)[1]),
    "jointlimitpos": lambda reading, sensor: limit(reading, sensor, 0),
    "jointlimitvel": lambda reading, sensor: limit(reading, sensor, 1),
    "jointlimitfrc": lambda reading, sensor: limit(reading, sensor, 2),
    "tendonlimitpos": lambda reading, sensor: limit(reading, sensor, 0),
    "tendonlimitvel": lambda reading, sensor: limit(reading, sensor, 1),
    "tendonlimitfrc": lambda reading, sensor: limit(reading, sensor, 2),
    "e_potential": lambda reading, _: [potential_energy_of(reading.state, springs=True)],
    "rangefinder": _range,
    "contact": contact_readings,
    "tactile": tactile,
    "camprojection": _projection,
    "user": lambda _, sensor: [0.0] * sensor.count,
    "rays": _rays,
    "clock": lambda reading, _: list(reading.step.before["time"]),
    "insidesite": _inside,
    "geomdist": _distance,
    "geomnormal": _direction,
    "geomfromto": _segment,
    "e_kinetic": lambda reading, _: [kinetic_energy_of(reading.state)],
}
