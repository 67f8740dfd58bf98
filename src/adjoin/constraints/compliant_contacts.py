"""Compliant contacts as a list: what they add to the equations of a step."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from adjoin.constraints.blocks import Row
from adjoin.constraints.contact_matrix import ContactMatrix, Solve
from adjoin.constraints.contact_rows import ContactFrame, ContactRows
from adjoin.constraints.packed import structure
from adjoin.constraints.solver import Scene
from adjoin.dynamics.linear import Rows
from adjoin.spatial.scalar import Scalar
from adjoin.trace import Scratch, select

if TYPE_CHECKING:
    from adjoin.constraints.compliant import Compliant, Force


class CompliantContacts(ContactRows):
    """The contacts of a step.

    Args:
        solver: Its constants.
        scene: The robot and what touches.
        mass: Of everything that moves, kg.
        dt: s.
    """

    def __init__(self, solver: "Compliant", scene: Scene, mass: Scalar, dt: float):
        super().__init__(scene)
        self.solver, self.mass, self.dt = solver, mass, dt

    def row(self, contact: ContactFrame, active: Any) -> list[Row]:
        """Return speeds and gap of a contact, without its Jacobian."""
        speeds = self.rates(contact, self.velocities)
        gap = self.contacts.distance[contact.slot] - self.margin[contact.pair][0]
        return [Row((), speeds[0], select(active, gap, 0.0)), *[Row((), speed) for speed in speeds[1:]]]

    def forces(self, contact: ContactFrame, active: Any) -> "list[Force]":
        """Return the forces of a contact; 0 where it is not there."""
        first, *others = self.row(contact, active)
        normal = self.solver.push(first, self.mass, self.dt)
        friction = self.solver.friction(others, self.coefficients(contact.pair), normal.strength)
        return [
            force._replace(strength=select(active, force.strength, 0.0), damping=select(active, force.damping, 0.0))
            for force in (normal, *friction)
        ]

    def assemble(self, inertia: Rows) -> tuple[list[Scalar], Solve]:
        """Return the impulses of a velocity that does not change, and what solves with H + dt Jᵀ D J."""

        def respond(original: ContactFrame) -> tuple[list[Scalar], Rows]:
            contact, active = self.masked(original.slot)
            forces = self.forces(contact, active)
            drags = [
                [self.dt * force.damping if i == k else 0.0 for k in range(i + 1)] for i, force in enumerate(forces)
            ]
            return [self.dt * force.strength for force in forces], drags

        return ContactMatrix(self, structure(inertia)).assemble(inertia, respond, detached=True)

    def impulses(self, contact: ContactFrame, active: Any, twists: Scratch) -> list[Scalar]:
        """Return the impulses of a contact, at the twists of a change of velocity."""
        parts = zip(self.forces(contact, active), self.rates(contact, twists), strict=True)
        return [self.dt * (force.strength - force.damping * rate) for force, rate in parts]

    def generalized(self, dv: Sequence[Scalar]) -> list[Scalar]:
        """Return the generalized impulses at a change of velocity, nv scalars."""
        twists = self.motions.twist_array(dv)

        def act(original: ContactFrame, wrenches: Scratch) -> Scratch:
            contact, active = self.masked(original.slot)
            self.add_wrench(wrenches, contact, self.impulses(contact, active, twists))
            return wrenches

        return self.motions.generalized(self.each(act, self.motions.wrench_array()))

    def report(self, dv: Sequence[Scalar], write: Callable[..., Any], carry: Any) -> Any:
        """Call `write(slot, [mode, force, moment], carry)` for each contact, at a change of velocity."""
        twists = self.motions.twist_array(dv)

        def act(original: ContactFrame, carry: Any) -> Any:
            contact, active = self.masked(original.slot)
            force = [x / self.dt for x in self.impulses(contact, active, twists)]
            first, *others = self.row(contact, active)
            mode = self.solver.slips(others, self.coefficients(contact.pair)) if others else 1.0
            push, moment = contact.in_world(force)
            return write(contact.slot, [select(first.gap < 0.0, mode, 0.0), *push, *moment], carry)

        return self.each(act, carry)
