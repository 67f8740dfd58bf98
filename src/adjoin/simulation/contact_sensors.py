"""Sensors of contacts between shapes: which there are, where, and with what force."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from adjoin.collision.branchless import choose
from adjoin.collision.point import FAR
from adjoin.dynamics.linear import is_zero
from adjoin.model.sensor import Sensor
from adjoin.simulation.step import Step
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Vector3
from adjoin.trace import maximum, select, sqrt, table, to_index

Match = tuple[Any, Any, Scalar, Vector3, Vector3, Vector3]
"""Whether a contact matches, 1 or 0; then by how much it comes first, distance, position, normal and force."""


def contact_readings(step: Step, sensor: Sensor) -> list[Scalar]:
    """Return what a contact sensor measures; see `Sensor.data`."""
    matches = _matches(step, sensor)
    count = sum((match[0] for match in matches), 0.0)
    slots = [_together(matches)] if sensor.reduce == "netforce" else _first(matches, sensor.slots)
    readings: list[Scalar] = []
    for number in range(sensor.slots):
        some, _, distance, position, normal, force = slots[number] if number < len(slots) else _NOTHING
        fields = {"found": (count,), "force": force, "dist": (distance,), "pos": position, "normal": normal}
        for field in sensor.data.split():
            readings += [select(some > 0.5, x, 0.0) for x in fields[field]]
    return readings


_NOTHING: Match = (0.0, FAR, 0.0, vector.ZERO, vector.ZERO, vector.ZERO)


def _matches(step: Step, sensor: Sensor) -> list[Match]:
    """The contacts of a step between the two sides of a sensor."""
    world, contacts = step.plant.world, step["contacts"]
    signs = np.array([_sign(world.model, pair.first, pair.second, sensor) for pair in world.contact_pairs], dtype=float)
    if not signs.any():
        return []
    lookup = table(signs[:, None]) if world.listed else None
    matches: list[Match] = []
    for k, number in enumerate(contacts.pair):
        sign = signs[k] if lookup is None else lookup[to_index(maximum(number, 0.0)), 0]
        if is_zero(sign):
            continue
        distance = contacts.distance[k]
        active = number > -0.5 if world.listed else distance < 0.0
        matched = select(active & (abs(sign) > 0.5), 1.0, 0.0)
        position, normal, force = (vector.vector3(x[k]) for x in (contacts.position, contacts.normal, contacts.force))
        order = {"mindist": distance, "maxforce": -vector.dot(force, force)}.get(sensor.reduce, float(k))
        order = select(matched > 0.5, order, FAR)
        matches.append((matched, order, distance, position, vector.scale(-sign, normal), vector.scale(-sign, force)))
    return matches


def _sign(model: Any, first: int, second: int, sensor: Sensor) -> int:
    """1 if the first shape of a pair is on the first side, -1 if the second one is, 0 if the pair does not match."""
    names = [model.geometries[index].name for index in (first, second)]
    one, other = set(sensor.target.splitlines()), set(sensor.reference.splitlines())
    if names[0] in one and (not other or names[1] in other):
        return 1
    return -1 if names[1] in one and (not other or names[0] in other) else 0


def _first(matches: Sequence[Match], count: int) -> list[Match]:
    """The matches that come first, in order."""
    slots: list[Match] = []
    left = list(matches)
    for _ in range(min(count, len(left))):
        best = left[0]
        for match in left[1:]:
            best = choose(match[1] < best[1], match, best)
        slots.append(best)
        # What was taken is as far away as what does not match.
        taken = best[1]
        left = [(select(m[1] <= taken, 0.0, m[0]), select(m[1] <= taken, FAR, m[1]), *m[2:]) for m in left]
    return slots


def _together(matches: Sequence[Match]) -> Match:
    """All contacts as one, where their forces are on average."""
    force, place, total, count = vector.ZERO, vector.ZERO, 0.0, 0.0
    for matched, _, _, position, _, push in matches:
        square = vector.dot(push, push)
        weight = matched * select(square > 0.0, sqrt(select(square > 0.0, square, 1.0)), 0.0)
        force = vector.add(force, vector.scale(matched, push))
        place = vector.add(place, vector.scale(weight, position))
        total, count = total + weight, count + matched
    place = vector.scale(1.0 / maximum(total, 1e-15), place)
    return (select(count > 0.5, 1.0, 0.0), 0.0, 0.0, place, (1.0, 0.0, 0.0), force)
