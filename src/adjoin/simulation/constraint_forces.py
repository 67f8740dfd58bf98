"""Forces of the constraints of a step, by the part of the model that they belong to."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from adjoin.constraints.model_rows import equality_rows, is_active, tendon_frictions, tendon_limits
from adjoin.constraints.newton import Newton, across
from adjoin.constraints.rows import nearest_limits
from adjoin.constraints.soft_rows import soft_rows
from adjoin.dynamics.linear import is_zero
from adjoin.dynamics.state import State
from adjoin.errors import InputError
from adjoin.simulation.step import Listed, Step
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Vector3
from adjoin.trace import maximum, table, to_index


class TouchingForce(NamedTuple):
    """A contact as one side feels it.

    Attributes:
        side: 1.0 if the first of its shapes is on that side, -1.0 if the second is, else 0.0.
        position: where it is, in the world.
        normal: from the second shape to the first.
        force: on the first shape, in the world.
        moment: on the first shape about that position, in the world.
    """

    side: Scalar
    position: Vector3
    normal: Vector3
    force: Vector3
    moment: Vector3


def contact_details(step: Step) -> list[tuple[Vector3, Vector3]]:
    """Return, for each of the contacts of a step, the moment on its first shape and a direction across its normal."""
    points = step.result.contacts
    if isinstance(points, Listed):
        return [(vector.vector3(row[:3]), vector.vector3(row[3:])) for row in points.details]
    found, first = [], 0
    for contact in points:
        turning = step.result.impulses[first : first + len(contact.block.rows)][3:]
        first += len(contact.block.rows)
        moment = vector.ZERO
        for impulse, axis in zip(turning, contact.axes, strict=False):
            moment = vector.add(moment, vector.scale(impulse / step.plant.world.dt, axis))
        found.append((moment, across(contact.point.normal)))
    return found


def touching_forces(step: Step, links: set[str]) -> list[TouchingForce]:
    """Return the contacts of a step, as some links feel those that are not between themselves."""
    world, contacts = step.plant.world, step["contacts"]
    shapes = world.model.geometries
    ends = [[shapes[i].link in links for i in (pair.first, pair.second)] for pair in world.contact_pairs]
    sides = [float(first) - float(second) for first, second in ends]
    if not any(sides):
        return []
    signs = table(np.array(sides)[:, None]) if world.listed else None
    turns = any(pair.condim > 3 for pair in world.contact_pairs)
    moments = [moment for moment, _ in contact_details(step)] if turns else [vector.ZERO] * len(contacts.pair)
    found = []
    for k, number in enumerate(contacts.pair):
        side = sides[k] if signs is None else signs[to_index(maximum(number, 0.0)), 0]
        if not is_zero(side):
            place, normal, force = (vector.vector3(x[k]) for x in (contacts.position, contacts.normal, contacts.force))
            found.append(TouchingForce(side, place, normal, force, moments[k]))
    return found


@dataclass(frozen=True)
class RowForces:
    """Forces of joint limits, tendon limits and equalities.

    Attributes:
        limits: of each joint that has limits, by the index of its body: gap, rate and force.
        tendons: the same of tendons, by their index.
        equalities: of each active equality of the model, by its index: the forces of its rows.
        pulls: of tendons with limits or dry friction, by their index, what these add to its force along its length.
    """

    limits: dict[int, tuple[Scalar, Scalar, Scalar]]
    tendons: dict[int, tuple[Scalar, Scalar, Scalar]]
    equalities: dict[int, list[Scalar]]
    pulls: dict[int, Scalar]


def row_forces(step: Step, state: State) -> RowForces:
    """Return the forces of what holds joints, tendons and links.

    Args:
        step: a step.
        state: the robot as it begins.

    Raises:
        InputError: the solver keeps no forces of these.
    """
    world = step.plant.world
    joints = nearest_limits(state) if world.limits else []
    tendons = list(tendon_limits(state)) if world.limits else []
    active = [k for k in range(len(world.model.equalities)) if not is_zero(is_active(state, k))]
    counts = [len(equality_rows(state, k)) for k in active]
    forces = _forces(step, state)
    between = len(forces) - len(joints) - len(tendons) - sum(counts)
    # Limits of tendons come right after those of joints, or after the friction of joints; then that of tendons.
    frictions = sum(not is_zero(f) for f in state.robot.numbers("friction"))
    skipped = 0 if isinstance(world.contact, Newton) else frictions
    assert between >= skipped
    first = len(joints) + skipped
    pulls: dict[int, Scalar] = {limit.tendon: limit.side * forces[first + k] for k, limit in enumerate(tendons)}
    for k, (index, *_) in enumerate(tendon_frictions(state)):
        pulls[index] = pulls.get(index, 0.0) + forces[len(joints) + len(tendons) + frictions + k]

    def rate(arms: "dict[int, Scalar]") -> Scalar:
        return sum((arm * state.v[dof] for dof, arm in arms.items()), 0.0)

    last = len(forces)
    held: dict[int, list[Scalar]] = {}
    for index, count in zip(reversed(active), reversed(counts), strict=True):
        held[index] = forces[last - count : last]
        last -= count
    return RowForces(
        {body: (gap, rate(dict(arms)), forces[k]) for k, (body, arms, gap) in enumerate(joints)},
        {limit.tendon: (limit.gap, rate(limit.arms), forces[first + k]) for k, limit in enumerate(tendons)},
        held,
        pulls,
    )


def _forces(step: Step, state: State) -> list[Scalar]:
    """Of all rows but contacts."""
    world = step.plant.world
    if isinstance(world.contact, Newton):
        rows = soft_rows(state, world.constraints, world.limits, world.inverse_weights, world.dt)
        return [row.respond(row.residual(step.result.beginning_acceleration))[0] for row in rows]
    if world.listed:
        kind = type(world.contact).__name__
        raise InputError(f"sensors: {kind} with contacts as a list keeps no forces of limits; use Newton()")
    first = sum(len(contact.block.rows) for contact in world.contacts)
    return [impulse / world.dt for impulse in step.result.impulses[first:]]
