"""Actuators that make a link stick to what it touches: MuJoCo's adhesion."""

from collections.abc import Sequence
from typing import Any

from adjoin.collision.broad_phase import Shapes
from adjoin.collision.contact_list import ContactList, WithinMargin
from adjoin.collision.pairs import Pair
from adjoin.collision.records import Records
from adjoin.constraints.contact_rows import ContactRows
from adjoin.constraints.rows import Contact
from adjoin.constraints.solver import Scene
from adjoin.dynamics.point_motion import Arms
from adjoin.model.model import Model
from adjoin.spatial.scalar import Scalar
from adjoin.trace import Scratch, loop, maximum, select


class WithinGap(WithinMargin):
    """Contacts of shapes that are nearer than margin and gap of their pair: those that adhesion pulls at."""

    def __init__(self, pairs: Sequence[Pair], shapes: Shapes):
        super().__init__(pairs, shapes)
        self.margins = Records([(pair.margin + pair.gap,) for pair in pairs])


def has_adhesion(model: Model) -> bool:
    """Return whether a model has such actuators."""
    return any(actuator.body for actuator in model.actuators)


def arms_of_list(scene: Scene) -> list[Arms]:
    """Return, for each actuator of the model, how it pulls at contacts that are a list; empty for others.

    An actuator of force 1 pulls the surfaces together with a force of 1 in all, the same at each contact of its link.
    """
    model = scene.state.robot.model
    if scene.contacts is None:
        return [{} for _ in model.actuators]
    rows = ContactRows(scene)
    return [_listed_arms(rows, scene.contacts, sides, scene) if any(sides) else {} for sides in _sides(scene)]


def _sides(scene: Scene) -> list[list[float]]:
    """Return, for each actuator, 1 for each pair in which its link is, else 0."""
    model, pairs = scene.state.robot.model, scene.candidates.pairs
    return [[float(_is_in(model, actuator.body, pair)) for pair in pairs] for actuator in model.actuators]


def _is_in(model: Model, link: str, pair: Pair) -> bool:
    return bool(link) and link in (model.geometries[pair.first].link, model.geometries[pair.second].link)


def _listed_arms(rows: ContactRows, contacts: ContactList, sides: Sequence[float], scene: Scene) -> Arms:
    inside = Records([(side,) for side in sides])

    def body(slot: Any, carry: tuple[Scratch, Scalar]) -> tuple[Scratch, Scalar]:
        wrenches, count = carry
        contact, active = rows.masked(slot)
        share = select(active, inside[contact.pair][0], 0.0)
        rows.add_wrench(wrenches, contact, [share])
        return wrenches, count + share

    carry = rows.motions.wrench_array(), 0.0 * scene.state.q[0]
    wrenches, count = loop(contacts.count, body, carry, at_most=scene.candidates.slots)
    total = rows.motions.generalized(wrenches)
    return {dof: -1.0 * x / maximum(count, 1.0) for dof, x in enumerate(total)}


def arms_of_contacts(model: Model, contacts: Sequence[Contact]) -> list[Arms]:
    """Return the same of contacts with rows of their own."""
    found: list[Arms] = []
    for actuator in model.actuators:
        count: Scalar = 0.0
        arms: Arms = {}
        for contact in contacts:
            if _is_in(model, actuator.body, contact.pair):
                near = contact.point.distance < contact.pair.margin + contact.pair.gap
                count = count + select(near, 1.0, 0.0)
                for dof, x in enumerate(contact.block.rows[0].jacobian):
                    arms[dof] = arms.get(dof, 0.0) - select(near, x, 0.0)
        found.append({dof: x / maximum(count, 1.0) for dof, x in arms.items()})
    return found
