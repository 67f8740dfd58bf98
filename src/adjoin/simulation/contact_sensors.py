"""Sensors of contacts between shapes: which there are, where, and with what force."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adjoin.collision.branchless import choose
from adjoin.collision.pairs import Pair
from adjoin.collision.point import FAR
from adjoin.collision.records import indices_table
from adjoin.collision.signed_distance import signed_distance
from adjoin.constraints.motions import Motions, relative
from adjoin.dynamics.linear import is_zero
from adjoin.dynamics.state import State
from adjoin.model.model import Model
from adjoin.model.sensor import Sensor
from adjoin.simulation.constraint_forces import contact_details
from adjoin.spatial import vector
from adjoin.spatial.motion import Spatial
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Vector3
from adjoin.trace import Scratch, maximum, select, sqrt, table, to_index

if TYPE_CHECKING:
    from adjoin.simulation.sensors import Reading

ORDER = ("plane", "sphere", "capsule", "ellipsoid", "cylinder", "box", "hull")
"""Kinds of shapes, in the order in which MuJoCo has the two of a contact."""


class Match(NamedTuple):
    """A contact that a sensor measures.

    Attributes:
        found: whether it is one, 1 or 0.
        order: by how much it comes first.
        place: which contact it is.
        distance: between the surfaces, m.
        position: in the world, m.
        axes: normal from the first side to the second, and two directions across.
        force: on the second side, in world axes, N.
        moment: on the second side, in world axes, Nm.
        angular: angular velocity of the second side against the first, in world axes, rad/s.
        linear: velocity of the second side against the first, in world axes, m/s.
    """

    found: Any
    order: Any
    place: Scalar
    distance: Scalar
    position: Vector3
    axes: tuple[Vector3, Vector3, Vector3]
    force: Vector3
    moment: Vector3
    angular: Vector3
    linear: Vector3

    def field(self, name: str, count: Scalar) -> Sequence[Scalar]:
        """Return what `Sensor.data` calls a field."""
        vectors = {"force": self.force, "torque": self.moment, "linvel": self.linear, "angvel": self.angular}
        if name in vectors:
            return [vector.dot(axis, vectors[name]) for axis in self.axes]
        normal, tangent, _ = self.axes
        own = {"dist": (self.distance,), "pos": self.position, "normal": normal, "tangent": tangent}
        return own.get(name, (count,))


_NOTHING = Match(0.0, FAR, -1.0, 0.0, vector.ZERO, vector.IDENTITY, *(vector.ZERO,) * 4)


def contact_readings(reading: "Reading", sensor: Sensor) -> list[Scalar]:
    """Return what a contact sensor measures; see `Sensor.data`."""
    matches = _matches(reading, sensor)
    count = sum((match.found for match in matches), 0.0)
    slots = [_together(matches)] if sensor.reduce == "netforce" else _first(matches, sensor.slots)
    readings: list[Scalar] = []
    for number in range(sensor.slots):
        match = slots[number] if number < len(slots) else _NOTHING
        for field in sensor.data.split():
            readings += [select(match.found > 0.5, x, 0.0) for x in match.field(field, count)]
    return readings


class _Motion:
    """Velocities of the shapes of pairs against each other, by the number of the pair."""

    def __init__(self, state: State, pairs: Sequence[Pair]):
        shapes = state.robot.model.geometries
        bodies = [(shapes[pair.first].body, shapes[pair.second].body) for pair in pairs]
        carriers = sorted({body for both in bodies for body in both})
        self.twists: Scratch = Motions(state, carriers).twist_array(state.v)
        self.ends = [indices_table([carriers.index(both[k]) for both in bodies]) for k in (0, 1)]

    def at(self, pair: Any, position: Vector3) -> Spatial:
        """Return angular and linear velocity of the first shape against the second."""
        number = to_index(maximum(pair, 0.0))
        return relative(self.twists, self.ends[0][number], self.ends[1][number], position)


def _matches(reading: "Reading", sensor: Sensor) -> list[Match]:
    """The contacts of a step between the two sides of a sensor."""
    step = reading.step
    world, contacts = step.plant.world, step["contacts"]
    pairs = world.contact_pairs
    signs = [_signs(world.model, pair.first, pair.second, sensor) for pair in pairs]
    if not any(sign for sign, _ in signs):
        return []
    ranked = sorted({(_rank(world.model, pair), k) for k, pair in enumerate(pairs)})
    rank = {k: place for place, (_, k) in enumerate(ranked)}
    known = [(*sign, float(rank[k])) for k, sign in enumerate(signs)]
    lookup = table(np.array(known)) if world.listed else None
    fields = set(sensor.data.split())
    motion = _Motion(reading.state, pairs) if fields & {"linvel", "angvel"} else None
    detailed = fields & {"torque", "tangent", "force", "linvel", "angvel"}
    details = contact_details(step) if detailed else [(vector.ZERO, vector.ZERO)] * len(contacts.pair)
    zone = None
    if sensor.site:
        zone = reading.state.frame_pose(world.model.frame_index(sensor.site))
    matches: list[Match] = []
    for k, number in enumerate(contacts.pair):
        if lookup is None:
            sign, flip, first = known[k]
        else:
            sign, flip, first = (lookup[to_index(maximum(number, 0.0)), i] for i in range(3))
        if is_zero(sign):
            continue
        distance = contacts.distance[k]
        active = number > -0.5 if world.listed else distance < 0.0
        position, normal, force = (vector.vector3(x[k]) for x in (contacts.position, contacts.normal, contacts.force))
        if zone is not None:
            inside = vector.apply_transposed(zone[0], vector.subtract(position, zone[1]))
            active = active & (signed_distance(sensor.zone, sensor.size, inside) < 0.0)
        found = select(active & (abs(sign) > 0.5), 1.0, 0.0)
        order = {"mindist": distance, "maxforce": -vector.dot(force, force)}.get(sensor.reduce, first)
        moment, tangent = details[k]
        way, across = vector.scale(-sign, normal), vector.scale(flip, tangent)
        angular, linear = motion.at(number, position) if motion else (vector.ZERO, vector.ZERO)
        on_second = [vector.scale(-sign, x) for x in (force, moment, angular, linear)]
        matches.append(
            Match(
                found,
                select(found > 0.5, order, FAR * FAR),
                float(k),
                distance,
                position,
                (way, across, vector.cross(way, across)),
                *on_second,
            )
        )
    return matches


def _signs(model: Model, first: int, second: int, sensor: Sensor) -> tuple[float, float]:
    """Which side of a sensor the first shape of a pair is on: 1, or -1 for the second side, or 0 for no match.

    The other is -1 if MuJoCo has the two in the other order than the sensor, else 1.
    """
    names = [model.geometries[index].name for index in (first, second)]
    one, other = set(sensor.target.splitlines()), set(sensor.reference.splitlines())
    regular = (not one or names[0] in one) and (not other or names[1] in other)
    reverse = (not one or names[1] in one) and (not other or names[0] in other)
    keys = [(ORDER.index(model.geometries[index].kind), index) for index in (first, second)]
    native = 1.0 if keys[0] < keys[1] else -1.0
    if regular and reverse:
        return native, 1.0
    sign = float(regular) - float(reverse)
    return sign, sign * native


def _rank(model: Model, pair: Pair) -> tuple[Any, ...]:
    """The order in which MuJoCo has pairs: by links, then by shapes."""
    links = list(dict.fromkeys(shape.link for shape in model.geometries))
    shapes = sorted((pair.first, pair.second))
    return (*sorted(links.index(model.geometries[index].link) for index in shapes), *shapes)


def _first(matches: Sequence[Match], count: int) -> list[Match]:
    """The matches that come first, in order."""
    slots: list[Match] = []
    left = list(matches)
    for _ in range(min(count, len(left))):
        best = left[0]
        for match in left[1:]:
            best = Match(*choose(match.order < best.order, tuple(match), tuple(best)))
        slots.append(best)
        # What was taken is as far away as what does not match.
        same = [match.place == best.place for match in left]
        left = [
            m._replace(found=select(is_best, 0.0, m.found), order=select(is_best, FAR * FAR, m.order))
            for m, is_best in zip(left, same, strict=True)
        ]
    return slots


def _together(matches: Sequence[Match]) -> Match:
    """All contacts as one, where their forces are on average, in world axes."""
    force, place, total, count = vector.ZERO, vector.ZERO, 0.0, 0.0
    for match in matches:
        square = vector.dot(match.force, match.force)
        weight = match.found * select(square > 0.0, sqrt(select(square > 0.0, square, 1.0)), 0.0)
        force = vector.add(force, vector.scale(match.found, match.force))
        place = vector.add(place, vector.scale(weight, match.position))
        total, count = total + weight, count + match.found
    place = vector.scale(1.0 / maximum(total, 1e-15), place)
    moment = vector.ZERO
    for match in matches:
        turning = vector.cross(vector.subtract(match.position, place), match.force)
        moment = vector.add(moment, vector.scale(match.found, vector.add(match.moment, turning)))
    found = select(count > 0.5, 1.0, 0.0)
    return _NOTHING._replace(found=found, position=place, force=force, moment=moment)
