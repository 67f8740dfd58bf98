"""Skin: how deep the points of a surface are in what touches it, and how it slides along them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from adjoin.collision.signed_distance import MEASURED, signed_distance
from adjoin.constraints.rows import shape
from adjoin.model.sensor import TAXEL, Sensor
from adjoin.spatial import vector
from adjoin.spatial.motion import transform_point
from adjoin.spatial.scalar import Scalar
from adjoin.trace import Scratch, loop, maximum, minimum, scratch, select, table, to_index

if TYPE_CHECKING:
    from adjoin.simulation.sensors import Reading


def tactile(reading: "Reading", sensor: Sensor) -> list[Scalar]:
    """Return depths of all points, then how fast they slide along their first and second direction.

    As in MuJoCo, only shapes that are in contact with the body of the sensor count, and of those not hulls of meshes.
    """
    state, body = reading.state, reading.body(sensor.target)
    pose, count = reading.pose(sensor), sensor.count // sensor.slots
    touched = _touched(reading, body)
    others = [(index, shape(state, index), near) for index, near in touched.items()]
    points = table(np.array(sensor.rays).reshape(-1, TAXEL))

    def feel(k: Any, readings: Scratch) -> Scratch:
        place, *ways = (vector.vector3([points[k, i + j] for j in range(3)]) for i in (0, 3, 6))
        at, ways = transform_point(pose, place), [vector.apply(pose[0], way) for way in ways]
        _, own = reading.velocity(body, at)
        depth, slides = 0.0, [0.0, 0.0]
        for index, other, near in others:
            turn, middle = other.pose
            inside = vector.apply_transposed(turn, vector.subtract(at, middle))
            below = minimum(signed_distance(other.kind, other.size, inside), 0.0)
            felt = near * select(below < 0.0, 1.0, 0.0)
            _, moving = reading.velocity(state.robot.model.geometries[index].body, at)
            slip = vector.subtract(own, moving)
            depth = maximum(depth, -felt * below)
            slides = [total + felt * abs(vector.dot(slip, way)) for total, way in zip(slides, ways, strict=True)]
        for channel, value in enumerate([depth, *slides][: sensor.slots]):
            readings[k + channel * count] = value
        return readings

    readings = loop(count, feel, scratch(sensor.count))
    return [readings[k] for k in range(sensor.count)]


def _touched(reading: "Reading", body: int) -> dict[int, Scalar]:
    """The shapes that may touch a body, and whether they do, 1 or 0."""
    world, contacts = reading.step.plant.world, reading.step["contacts"]
    shapes = world.model.geometries
    pairs = [(pair.first, pair.second) for pair in world.contact_pairs]
    facing = [next((b for a, b in (ends, ends[::-1]) if shapes[a].body == body), None) for ends in pairs]
    found: dict[int, Scalar] = {}
    for index in sorted({index for index in facing if index is not None and shapes[index].kind in MEASURED}):
        marks = [float(other == index) for other in facing]
        lookup = table(np.array(marks)[:, None]) if world.listed else None
        near: Scalar = 0.0
        for k, number in enumerate(contacts.pair):
            mark = marks[k] if lookup is None else lookup[to_index(maximum(number, 0.0)), 0]
            active = number > -0.5 if world.listed else contacts.distance[k] < 0.0
            near = maximum(near, select(active, mark, 0.0))
        found[index] = near
    return found
