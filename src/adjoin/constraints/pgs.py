"""Projected Gauss-Seidel: impulses one after the other, each as if the others were right, for a fixed number of sweeps.

As in Qiao et al., Efficient Differentiable Simulation of Articulated Bodies (ICML 2021). The sweeps are one loop of the
kernel, so that their number costs no code.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from adjoin.collision.broad_phase import Shapes
from adjoin.collision.contact_list import Candidates, Reach
from adjoin.constraints.adjoints import Adjoint, ImplicitAdjoint, UnrolledAdjoint
from adjoin.constraints.blocks import Block, JointLimitBlock
from adjoin.constraints.contact_model import ContactModel
from adjoin.constraints.half_solved import HalfSolvedContacts
from adjoin.constraints.relaxation import relax_rows
from adjoin.constraints.rows import other_blocks
from adjoin.constraints.solver import ConstraintSolution, FreeMotion, ListedSolution, Scene
from adjoin.constraints.speculative_reach import SpeculativeReach
from adjoin.constraints.system import System
from adjoin.constraints.warm_start import impulses_before, warm_size
from adjoin.dynamics.linear import dot, is_zero
from adjoin.dynamics.state import State
from adjoin.errors import InputError
from adjoin.spatial.scalar import Scalar
from adjoin.trace import loop, when

Carry = tuple[list[Scalar], list[Scalar]]
"""Impulses, and the half-solved velocity that they make."""

REACH = 2e-3
"""A contact of the list is at most this far apart, m, and what shapes can approach by within a step."""

SPEEDS = 1.5
"""How much faster than they would without contact shapes may approach."""


@dataclass(frozen=True)
class PGS(ContactModel):
    """Projected Gauss-Seidel on the impulses of contacts, joint limits, friction and equalities.

    It takes all that `ContactModel` does.

    Attributes:
        iterations: sweeps over all constraints.
        warm: whether a step begins with the impulses of the one before, less the share `error_reduction` of them: with
            all of them, what sweeps reach only slowly (the rocking of a tall stack) would swing up.
        adjoint: how gradients pass: `UnrolledAdjoint()`, `ImplicitAdjoint()` or `AnticipatingAdjoint()`.
        time_of_impact: whether what bounces within a step does so when it hits, so that states after an impact have
            the right derivative to everything that changes when and where it happens. Steps then have rows for every
            point that can touch, instead of a list.
    """

    iterations: int = 20
    warm: bool = False
    adjoint: Adjoint = field(default_factory=UnrolledAdjoint)
    time_of_impact: bool = False

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.iterations, int) or self.iterations < 1:
            raise InputError(f"PGS: iterations must be a whole number of at least 1, got {self.iterations!r}")

    def solve(self, free: FreeMotion, blocks: Sequence[Block], start: Sequence[Scalar] | None) -> ConstraintSolution:
        """The step with its constraints; see `Solver`."""
        system = System(free.inertia, free.rhs, blocks, self, free.mass, free.dt, self.time_of_impact)
        change, impulses = self.solve_system(system, start)
        change, impulses = self.adjoint.attach(system, change, impulses, free.residual)
        modes = [
            block.mode(impulses[place : place + len(block.rows)])
            for block, place in zip(blocks, system.first_rows, strict=True)
        ]
        return ConstraintSolution(
            change,
            impulses,
            modes,
            lambda: system.unsettled_speed(change, impulses),
            system.late_change(impulses),
        )

    @property
    def tangent(self) -> None:
        """The directions of friction are those of `basis`."""

    def reach(self, free: FreeMotion, state: State, candidates: Candidates) -> Callable[[Shapes], Reach]:
        """What may touch within the step; what is further away has no impulse, and no derivative of one."""
        distance = REACH + self.adjoint.anticipation
        return lambda shapes: SpeculativeReach(state, candidates, free, shapes, distance, SPEEDS)

    def memory(self, candidates: Candidates) -> dict[str, tuple[int, ...]]:
        """A warm step keeps the impulses of its contacts, each with what it is an impulse of."""
        return {"impulses": (warm_size(candidates),)} if self.warm else {}

    def solve_listed(self, free: FreeMotion, scene: Scene) -> ListedSolution:
        """The step with its constraints; see `ListedSolver`."""
        blocks = other_blocks(scene.state, free.dt, scene.limits, scene.constraints)
        others = System(free.inertia, free.rhs, blocks, self, free.mass, free.dt)
        contacts = HalfSolvedContacts(self, scene, free, others.factor, isinstance(self.adjoint, ImplicitAdjoint))
        start = None
        if scene.start is not None:
            share = 1.0 - self.error_reduction
            slots = scene.candidates.slots
            start = impulses_before(contacts.contacts, slots, contacts.rows, scene.start, share)
        return self.adjoint.solve_listed(contacts, others, self.iterations, start)

    def solve_system(self, system: System, start: Sequence[Scalar] | None) -> tuple[list[Scalar], list[Scalar]]:
        """The change of velocity and the impulses of all rows.

        Joints seldom reach their limits: the system is solved without them, and where that would drive a joint
        through its limit, once more with all of them.

        Args:
            system: what to solve.
            start: impulses to begin with, of the first rows; the others begin with 0.
        """
        share = 1.0 - self.error_reduction
        first: list[Scalar] = [0.0] * len(system.rows)
        if start is not None:
            first[: len(start)] = [share * impulse for impulse in start]
        limits = [
            place
            for block, place in zip(system.blocks, system.first_rows, strict=True)
            if isinstance(block, JointLimitBlock)
        ]
        if not limits:
            return self._solve(system, first)
        some = system.with_blocks([block for block in system.blocks if not isinstance(block, JointLimitBlock)])
        others = [i for i in range(len(first)) if i not in limits]
        change, found = self._solve(some, [first[i] for i in others])
        impulses = list(first)
        for i, impulse in zip(others, found, strict=True):
            impulses[i] = impulse
        through = [system.offsets[i] + dot(system.rows[i].jacobian, change) < 0.0 for i in limits]
        hit = functools.reduce(operator.or_, through)
        return when(hit, lambda _: self._solve(system.inside(limits), first), (change, impulses))

    def _solve(self, system: System, first: list[Scalar]) -> tuple[list[Scalar], list[Scalar]]:
        """All sweeps, with J H⁻¹ Jᵀ or with the half-solved velocity, whichever takes fewer products."""

        def push_trial(trial: Scalar, gain: Scalar) -> Scalar:
            return self.adjoint.push(trial, gain, system.dt)

        def push(i: int, trial: Scalar) -> Scalar:
            return push_trial(trial, system.gain[i])

        def sweep(_: object, impulses: list[Scalar]) -> list[Scalar]:
            impulses = list(impulses)

            def relax(i: int) -> Scalar:
                others = dot(system.delassus[i][:i], impulses[:i]) + dot(system.delassus[i][i + 1 :], impulses[i + 1 :])
                relaxed = -(system.bias[i] + others) * system.gain[i]
                return relaxed if is_zero(system.retained[i]) else relaxed + system.retained[i] * impulses[i]

            for block, place in zip(system.blocks, system.first_rows, strict=True):
                block.sweep(impulses, place, relax, push)
            return impulses

        def sweep_half_solved(_: object, carry: Carry) -> Carry:
            impulses, velocity = list(carry[0]), carry[1]
            for block, place in zip(system.blocks, system.first_rows, strict=True):
                changes = relax_rows(system, block, place, impulses, velocity, push_trial)
                velocity = system.with_impulses(velocity, changes, place)
            return impulses, velocity

        if dense(system):
            impulses = loop(self.iterations, sweep, first) if first else first
            return system.solve(system.rhs, impulses), impulses
        impulses, velocity = loop(
            self.iterations, sweep_half_solved, (first, system.with_impulses(system.free_velocity, first))
        )
        return system.factor.finish_half_solve(velocity), impulses


def dense(system: System) -> bool:
    """Whether sweeps use J H⁻¹ Jᵀ, because a sweep then takes fewer products."""
    return len(system.rows) ** 2 <= 2 * sum(not is_zero(x) for half in system.half_solved for x in half)
