"""Projected Gauss-Seidel over a list of contacts and the other constraints of a step."""

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from adjoin.constraints.blocks import JointLimitBlock, unsettled_speed
from adjoin.constraints.contact_rows import ContactFrame
from adjoin.constraints.half_solved import HalfSolvedContacts
from adjoin.constraints.relaxation import relax_block, relax_rows
from adjoin.constraints.solver import ListedSolution
from adjoin.constraints.system import System
from adjoin.constraints.warm_start import handed_on
from adjoin.dynamics.linear import dot, is_zero
from adjoin.spatial.scalar import Scalar
from adjoin.trace import Scratch, loop, maximum, scratch, when

Start = Callable[[Any], list[Scalar]]
"""The impulses of a slot to begin with."""


class Impulses(NamedTuple):
    """What sweeps carry.

    Attributes:
        velocity: The half-solved velocity, nv numbers, and one that nothing reads.
        contacts: The impulses of the contacts, by slot.
        others: The impulses of the other rows.
    """

    velocity: Scratch
    contacts: Scratch
    others: list[Scalar]


class ListedSweeps:
    """The sweeps of a step.

    Args:
        contacts: The contacts.
        others: The equations of the step with its other constraints.
        iterations: How many sweeps.
        push: Of a trial impulse, its gain and dt: the impulse if it is positive, else 0.
        start: The impulses of a slot to begin with, or None for 0.
        detached: Whether no derivative passes.
    """

    def __init__(
        self,
        contacts: HalfSolvedContacts,
        others: System,
        iterations: int,
        push: Callable[[Scalar, Scalar, float], Scalar],
        start: Start | None,
        detached: bool,
    ):
        self.contacts, self.others, self.iterations = contacts, others, iterations
        self.push, self.start, self.detached = push, start, detached
        self.rows, self.slots = contacts.rows, contacts.candidates.slots

    def solve(self) -> Impulses:
        """Return the solution; like `PGS.solve_system`, first without joint limits."""
        others = self.others
        pairs = list(zip(others.blocks, others.first_rows, strict=True))
        limits = [place for block, place in pairs if isinstance(block, JointLimitBlock)]
        velocity = scratch(self.contacts.nv + 1, checked=False)
        impulses = self.contacts.contacts.blank(self.rows)
        begin = Impulses(velocity, impulses, [0.0] * len(others.rows))
        if not limits:
            return self._sweeps(others, begin)
        some = others.with_blocks([block for block, _ in pairs if not isinstance(block, JointLimitBlock)])
        places = [i for i in range(len(others.rows)) if i not in limits]
        first = self._sweeps(some, begin._replace(others=[0.0] * len(places)))
        solution: list[Scalar] = [0.0] * len(others.rows)
        for i, impulse in zip(places, first.others, strict=True):
            solution[i] = impulse
        free = others.factor.finish_half_solve([first.velocity[i] for i in range(self.contacts.nv)])
        through = [others.offsets[i] + dot(others.rows[i].jacobian, free) < 0.0 for i in limits]
        hit = functools.reduce(operator.or_, through)

        def again(carry: Impulses) -> Impulses:
            return self._sweeps(others.inside(limits), carry)

        return when(hit, again, first._replace(others=solution), detached=self.detached)

    def unsettled_speed(self, solution: Impulses) -> Scalar:
        """Return how far a solution is from the one that sweeps approach; see `blocks.unsettled_speed`."""

        def visit(slot: Any, greatest: Scalar) -> Scalar:
            contact = self.contacts.half_solved(slot)
            own = [solution.contacts[slot * self.rows + k] for k in range(self.rows)]
            pairs = zip(contact.speeds(solution.velocity), own, strict=True)
            speeds = [speed + self.contacts.softness * p for speed, p in pairs]
            return maximum(greatest, unsettled_speed(contact.block, own, speeds, contact.gains))

        count = self.contacts.contacts.count
        of_contacts = loop(count, visit, 0.0, at_most=self.slots, detached=True)
        change = self.others.factor.finish_half_solve([solution.velocity[i] for i in range(self.contacts.nv)])
        return maximum(of_contacts, self.others.unsettled_speed(change, solution.others))

    def _sweeps(self, system: System, carry: Impulses) -> Impulses:
        """Run all sweeps, from the beginning, over the contacts and the rows of a system."""
        velocity, impulses, _ = carry
        for i, x in enumerate(system.free_velocity):
            velocity[i] = x

        def begin(slot: Any, carry: Any) -> Any:
            velocity, impulses = carry
            first = self.start(slot) if self.start else [0.0] * self.rows
            for k, x in enumerate(first):
                impulses[slot * self.rows + k] = x
            if self.start:
                self.contacts.half_solved(slot).push(velocity, first)
            return velocity, impulses

        def sweep(_: Any, carry: Impulses) -> Impulses:
            return self._sweep(system, carry)

        velocity, impulses = self._over_contacts(begin, (velocity, impulses))
        zeros: list[Scalar] = [0.0] * len(system.rows)
        return loop(self.iterations, sweep, Impulses(velocity, impulses, zeros), detached=self.detached)

    def _sweep(self, system: System, carry: Impulses) -> Impulses:
        velocity, impulses, others = carry
        others = list(others)

        def push(trial: Scalar, gain: Scalar) -> Scalar:
            return self.push(trial, gain, system.dt)

        def visit(slot: Any, carry: Any) -> Any:
            velocity, relaxed = carry
            contact = self.contacts.half_solved(slot)
            before = [(relaxed if self.detached else impulses)[slot * self.rows + k] for k in range(self.rows)]
            speeds = [
                speed + self.contacts.softness * x for speed, x in zip(contact.speeds(velocity), before, strict=True)
            ]
            after, changes = relax_block(contact.block, before, speeds, contact.gains, contact.own, push)
            contact.push(velocity, changes)
            for k, x in enumerate(after):
                relaxed[slot * self.rows + k] = x
            return velocity, relaxed

        def keep(slot: Any, impulses: Scratch) -> Scratch:
            for k in range(self.rows):
                impulses[slot * self.rows + k] = relaxed[slot * self.rows + k]
            return impulses

        if self.detached:
            velocity, impulses = self._over_contacts(visit, (velocity, impulses))
        else:
            # An array that a loop reads and writes is kept for the derivative at each of its steps.
            relaxed = self.contacts.contacts.blank(self.rows)
            velocity, relaxed = self._over_contacts(visit, (velocity, relaxed))
            impulses = self._over_contacts(keep, impulses)
        for block, place in zip(system.blocks, system.first_rows, strict=True):
            along = [velocity[i] for i in range(self.contacts.nv)]
            changes = relax_rows(system, block, place, others, along, push)
            for change, row in zip(changes, system.half_solved[place:], strict=False):
                for i, x in enumerate(row):
                    if not is_zero(x):
                        velocity.add(i, x * change)
        return Impulses(velocity, impulses, others)

    def _over_contacts(self, visit: Callable[[Any, Any], Any], carry: Any) -> Any:
        return loop(self.contacts.contacts.count, visit, carry, at_most=self.slots, detached=self.detached)


def listed_solution(
    contacts: HalfSolvedContacts,
    others: System,
    change: list[Scalar],
    impulses: Callable[[Any], list[Scalar]],
    other_impulses: list[Scalar],
    warm: bool,
) -> ListedSolution:
    """Return the outcome of a step.

    Args:
        contacts: The contacts.
        others: The equations with the other constraints.
        change: The change of velocity.
        impulses: Of a slot.
        other_impulses: Of the rows of the other constraints.
        warm: Whether the next step starts from these impulses.
    """

    def report(write: Callable[..., Any], carry: Any) -> Any:
        def act(contact: ContactFrame, carry: Any) -> Any:
            own = impulses(contact.slot)
            force, moment = contact.in_world([x / others.dt for x in own])
            return write(contact.slot, [contacts.block(contact.pair).mode(own), *force, *moment], carry)

        return contacts.each(act, carry)

    modes = [
        block.mode(other_impulses[place : place + len(block.rows)])
        for block, place in zip(others.blocks, others.first_rows, strict=True)
    ]
    handed: list[Scalar] = []
    if warm:

        def visit(act: Callable[..., Any], carry: Any) -> Any:
            return contacts.each(lambda contact, carry: act(contact.slot, carry), carry)

        handed = handed_on(contacts.contacts, contacts.candidates.max_contacts, contacts.rows, visit, impulses)
    return ListedSolution(change, report, modes, kept=handed)
