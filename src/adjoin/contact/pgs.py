"""Projected Gauss-Seidel: impulses one after the other, each as if the others were right, for a fixed number of sweeps.

As in Qiao et al., Efficient Differentiable Simulation of Articulated Bodies (ICML 2021). The sweeps are one loop of the
kernel, so that their number costs no code.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from adjoin.contact.adjoint import Adjoint, Unrolled
from adjoin.contact.blocks import Block, Clip, Relax
from adjoin.contact.law import Law
from adjoin.contact.solver import Free, Settled
from adjoin.contact.system import System
from adjoin.dynamics.linear import Factor, dot, is_zero
from adjoin.errors import InputError
from adjoin.spatial.scalar import Scalar
from adjoin.trace import loop

DENSE = 40  # rows up to which J H⁻¹ Jᵀ is computed, whose entries grow with their square


@dataclass(frozen=True)
class PGS(Law):
    """Projected Gauss-Seidel on the impulses of contacts, stops, friction and equalities; it takes all that `Law` does.

    Attributes:
        iterations: sweeps over all constraints.
        warm: whether a step begins with the impulses of the one before, less the share `error_reduction` of them: with
            all of them, what sweeps reach only slowly (the rocking of a tall stack) would swing up.
        adjoint: how gradients pass: `Unrolled()`, `Implicit()` or `Anticipating()`.
    """

    iterations: int = 20
    warm: bool = False
    adjoint: Adjoint = field(default_factory=Unrolled)

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.iterations, int) or self.iterations < 1:
            raise InputError(f"PGS: iterations must be a whole number of at least 1, got {self.iterations!r}")

    def settle(self, free: Free, blocks: Sequence[Block], start: Sequence[Scalar] | None) -> Settled:
        """The step with its constraints; see `Solver`."""
        system = System(Factor(free.inertia), free.right, blocks, self, free.mass, free.dt)
        impulses = self.solve(system, start) if blocks else []
        change, impulses = self.adjoint.attach(system, system.change(impulses), impulses, free.missing)
        modes, first = [], 0
        for block in blocks:
            modes.append(block.mode(impulses[first : first + len(block.rows)]))
            first += len(block.rows)
        return Settled(change, impulses, modes)

    def solve(self, system: System, start: Sequence[Scalar] | None) -> list[Scalar]:
        """The impulses of a system's blocks.

        Args:
            system: what to solve.
            start: impulses to begin with, of the first rows; the others begin with 0.
        """

        def push(i: int, trial: Scalar) -> Scalar:
            return self.adjoint.push(trial, system.gain[i], system.dt)

        share = 1.0 - self.error_reduction
        first: list[Scalar] = [0.0] * len(system.rows)
        if start is not None:
            first[: len(start)] = [share * impulse for impulse in start]
        if len(system.rows) > DENSE:
            return self._solve_by_velocity(system, first, push)

        def sweep(_: object, impulses: list[Scalar]) -> list[Scalar]:
            impulses = list(impulses)

            def relax(i: int) -> Scalar:
                others = dot(system.matrix[i][:i], impulses[:i]) + dot(system.matrix[i][i + 1 :], impulses[i + 1 :])
                relaxed = -(system.bias[i] + others) * system.gain[i]
                return relaxed if is_zero(system.kept[i]) else relaxed + system.kept[i] * impulses[i]

            swept(system, impulses, relax, push)
            return impulses

        return list(loop(self.iterations, sweep, first))

    def _solve_by_velocity(self, system: System, start: list[Scalar], push: Clip) -> list[Scalar]:
        """The same sweeps, with dv carried along instead of products of all impulses with all others."""

        def sweep(_: object, carry: tuple[list[Scalar], list[Scalar]]) -> tuple[list[Scalar], list[Scalar]]:
            dv = list(carry[1])
            impulses = Felt(carry[0], system.columns, dv)

            def relax(i: int) -> Scalar:
                u = system.offsets[i] + dot(system.rows[i].jacobian, dv) + system.softness[i] * impulses[i]
                return impulses[i] - system.gain[i] * u

            swept(system, impulses, relax, push)
            return list(impulses), dv

        return list(loop(self.iterations, sweep, (start, system.change(start)))[0])


class Felt(list[Scalar]):
    """Impulses whose changes go into a change of velocity at once."""

    def __init__(self, impulses: Sequence[Scalar], columns: Sequence[Sequence[Scalar]], dv: list[Scalar]):
        super().__init__(impulses)
        self.columns, self.dv = columns, dv

    def __setitem__(self, place: Any, value: Any) -> None:
        if isinstance(place, slice):
            for i, x in zip(range(*place.indices(len(self))), value, strict=True):
                self[i] = x
            return
        change = value - self[place]
        for dof, x in enumerate(self.columns[place]):
            if not is_zero(x):
                self.dv[dof] = self.dv[dof] + change * x
        super().__setitem__(place, value)


def swept(system: System, impulses: list[Scalar], relax: Relax, push: Clip) -> None:
    """Relax all blocks in turn, in place."""
    first = 0
    for block in system.blocks:
        block.sweep(impulses, first, relax, push)
        first += len(block.rows)
