"""How gradients pass through contact: small frozen objects that a solver takes.

| adjoint | gradient of | use it |
|---|---|---|
| `UnrolledAdjoint()` | exactly what was computed, sweep by sweep | by default: right however far the solver got |
| `ImplicitAdjoint()` | the solution that the sweeps approach, modes held | for speed, with enough sweeps to converge |
| `AnticipatingAdjoint(reach)` | the same, as if contacts began softly within reach | to find contacts not made yet |

`UnrolledAdjoint` runs the sweeps again from the last to the first. `ImplicitAdjoint` solves one linear system instead
and needs far less memory. What `AnticipatingAdjoint` gives is not the derivative of the motion: a foot that hangs above
the ground feels the ground as though it were there already, in proportion to how near it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from adjoin.constraints.half_solved import HalfSolvedContacts
from adjoin.constraints.linearized import LinearizedStep
from adjoin.constraints.listed_implicit import ListedLinearization
from adjoin.constraints.listed_sweeps import ListedSweeps, Start, listed_solution
from adjoin.constraints.solver import ListedSolution
from adjoin.constraints.system import System
from adjoin.dynamics.linear import dot, is_zero
from adjoin.errors import InputError
from adjoin.spatial.scalar import Scalar
from adjoin.trace import detach, exp, implicit, maximum

MAX_ROWS = 80  # rows that `ImplicitAdjoint` takes: its linear system has as many entries as their square


@dataclass(frozen=True)
class UnrolledAdjoint:
    """The exact reverse of the sweeps that ran."""

    @property
    def anticipation(self) -> float:
        """How far from touching a contact may be and still have a derivative, m."""
        return 0.0

    def push(self, trial: Scalar, gain: Scalar, dt: float) -> Scalar:
        """The impulse if it is positive, else 0."""
        return maximum(trial, 0.0)

    def attach(
        self, system: System, change: list[Scalar], impulses: list[Scalar], free_residual: Callable[..., list[Scalar]]
    ) -> tuple[list[Scalar], list[Scalar]]:
        """The change of velocity and the impulses, with the derivatives that they should have.

        Given the impulses, the change solves a linear system, and is differentiated as its solution.
        """

        def residual(dv: Sequence[Scalar]) -> list[Scalar]:
            return unbalanced(system, free_residual(dv), impulses)

        return implicit(change, residual, lambda b: system.factor.solve(b)), impulses

    def solve_listed(
        self, contacts: HalfSolvedContacts, others: System, iterations: int, start: Start | None
    ) -> ListedSolution:
        """Solve a step whose contacts are a list, with the derivatives that the solution should have."""
        sweeps = ListedSweeps(contacts, others, iterations, self.push, start, detached=False)
        velocity, impulses, other_impulses = found = sweeps.solve()
        change = others.factor.finish_half_solve([velocity[i] for i in range(contacts.nv)])
        rows = contacts.rows

        def impulses_of(slot: Any) -> list[Scalar]:
            return [impulses[slot * rows + k] for k in range(rows)]

        solution = listed_solution(contacts, others, change, impulses_of, other_impulses, start is not None)
        return solution._replace(residual=lambda: sweeps.unsettled_speed(found))


@dataclass(frozen=True)
class AnticipatingAdjoint(UnrolledAdjoint):
    """The reverse of the sweeps, in which contacts begin softly.

    Attributes:
        reach: the distance over which they do, m.
    """

    reach: float = 0.01

    def __post_init__(self):
        if not self.reach > 0.0:
            raise InputError(f"AnticipatingAdjoint: reach must be positive, got {self.reach!r}")

    @property
    def anticipation(self) -> float:
        """How far from touching a contact may be; further away, its slope is below exp(-20)."""
        return 20.0 * self.reach

    def push(self, trial: Scalar, gain: Scalar, dt: float) -> Scalar:
        """The impulse if it is positive, else 0; with the derivative of a soft beginning.

        Its slope rises from 0 to 1 as 1 / (1 + exp(-trial / width)), where `width` is the impulse that changes a
        velocity by reach / dt.
        """
        (slope,) = detach([1.0 / (1.0 + exp(-trial / (gain * (self.reach / dt))))])
        return implicit([maximum(trial, 0.0)], lambda x: [x[0] - slope * trial], lambda b: b)[0]


@dataclass(frozen=True)
class ImplicitAdjoint(UnrolledAdjoint):
    """The derivative of the solution, by the implicit function theorem at the contact modes that were found.

    Attributes:
        sweeps: over the linear system, where it has too many rows to be solved directly.
    """

    sweeps: int = 50

    def attach(
        self, system: System, change: list[Scalar], impulses: list[Scalar], free_residual: Callable[..., list[Scalar]]
    ) -> tuple[list[Scalar], list[Scalar]]:
        """The change of velocity and the impulses, with the derivatives that they should have: see `linearized`."""
        rows, nv = system.rows, len(change)
        gains = detach(system.gain)

        def project(dv: Sequence[Scalar], p: Sequence[Scalar], slopes: bool = False) -> list[list[Scalar]]:
            trials = [
                x - gain * (dot(row.jacobian, dv) + offset + soft * x)
                for x, gain, row, offset, soft in zip(p, gains, rows, system.offsets, system.softness, strict=True)
            ]
            found = []
            for block, place in zip(system.blocks, system.first_rows, strict=True):
                own = trials[place : place + len(block.rows)]
                found += block.slopes(own) if slopes else [block.project(own)]
            return found

        def residual(x: Sequence[Scalar]) -> list[Scalar]:
            dv, p = x[:nv], x[nv:]
            allowed = [value for block in project(dv, p) for value in block]
            return [*unbalanced(system, free_residual(dv), p), *[a - b for a, b in zip(p, allowed, strict=True)]]

        near = LinearizedStep(system, gains, project(change, impulses, slopes=True), self.sweeps)
        if len(near.others) > MAX_ROWS:
            raise InputError(
                f"ImplicitAdjoint: {len(near.others)} rows of constraints are too many for it, at most {MAX_ROWS}; "
                "choose fewer pairs of shapes, or UnrolledAdjoint()"
            )
        found = implicit([*change, *impulses], residual, near.solve, near.solve_transposed)
        return found[:nv], found[nv:]

    def solve_listed(
        self, contacts: HalfSolvedContacts, others: System, iterations: int, start: Start | None
    ) -> ListedSolution:
        """Solve a step whose contacts are a list, with the derivatives of the solution."""
        sweeps = ListedSweeps(contacts, others, iterations, self.push, start, detached=True)
        found = sweeps.solve()
        solution = ListedLinearization(contacts, others, found).solution(start is not None)
        return solution._replace(residual=lambda: sweeps.unsettled_speed(found))


def unbalanced(system: System, residual: list[Scalar], impulses: Sequence[Scalar]) -> list[Scalar]:
    """residual - Jᵀ impulses: what is left of H dv = rhs + Jᵀ impulses."""
    for row, impulse in zip(system.rows, impulses, strict=True):
        residual = [x if is_zero(j) else x - j * impulse for x, j in zip(residual, row.jacobian, strict=True)]
    return residual


Adjoint = UnrolledAdjoint | AnticipatingAdjoint | ImplicitAdjoint
