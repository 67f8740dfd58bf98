"""What a step asks of a constraint solver."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from adjoin.collision.broad_phase import Shapes
from adjoin.collision.contact_list import Candidates, ContactList, Reach, Tangent, Visit
from adjoin.constraints.blocks import Block
from adjoin.constraints.inverse_weights import InverseWeights
from adjoin.constraints.rows import Equality
from adjoin.dynamics.linear import Rows
from adjoin.dynamics.state import State
from adjoin.spatial.scalar import Scalar


@dataclass(frozen=True)
class FreeMotion:
    """A step without constraints: H dv = rhs.

    Attributes:
        inertia: H, nv rows of nv scalars; structural zeros are the number 0.
        damping: What of H is implicit damping, like H.
        rhs: The impulses of everything but the constraints, nv scalars.
        residual: Computes H dv - rhs for any dv, in the way that is cheapest to differentiate.
        mass: The mass of everything that moves, kg.
        dt: The time step, s.
    """

    inertia: Rows
    damping: Rows
    rhs: list[Scalar]
    residual: Callable[[Sequence[Scalar]], list[Scalar]]
    mass: Scalar
    dt: float


def exact() -> Scalar:
    """Return the residual of a solve without iterations."""
    return 0.0


class ConstraintSolution(NamedTuple):
    """The outcome of a step with constraints.

    Attributes:
        change: The change of velocity dv, nv scalars.
        impulses: The impulses of all rows, in order.
        modes: What each block does: 0 inactive, 1 sticking or holding, 2 slipping.
        residual: Computes how far the solve got, see `step.solver_residual`.
        late: What of the change did not act on the mean velocity of the step yet, because it came late; nv scalars, or
            none.
    """

    change: list[Scalar]
    impulses: list[Scalar]
    modes: list[Scalar]
    residual: Callable[[], Scalar] = exact
    late: Sequence[Scalar] = ()


class ListedSolution(NamedTuple):
    """The outcome of a step whose contacts are a list.

    Attributes:
        change: The change of velocity dv, nv scalars.
        visit: Calls `write(slot, [mode, force, moment], carry)` for each contact, with both in world axes; see
            `ContactList.compacted`.
        modes: What each of the other constraints does.
        acceleration: The acceleration before implicit damping, nv scalars; empty where the solver has none.
        kept: What the next step starts from, if the solver starts warm.
        residual: Computes how far the solve got, see `step.solver_residual`.
    """

    change: list[Scalar]
    visit: Visit
    modes: list[Scalar]
    acceleration: Sequence[Scalar] = ()
    kept: Sequence[Scalar] = ()
    residual: Callable[[], Scalar] = exact


class Scene(NamedTuple):
    """What a step whose contacts are a list is solved with.

    Attributes:
        state: The robot.
        candidates: The pairs that can touch.
        contacts: What touches; None if nothing can.
        constraints: Equalities.
        limits: Whether joints have limits.
        weights: How light bodies and coordinates are.
        start: What the step before left for this one, if the solver is warm.
    """

    state: State
    candidates: Candidates
    contacts: ContactList | None
    constraints: Sequence[Equality]
    limits: bool
    weights: InverseWeights
    start: Sequence[Scalar] | None = None


class ContactSolver(Protocol):
    """A frozen object: a contact model and the way it is solved."""

    @property
    def warm(self) -> bool:
        """Return whether a step starts from what the one before kept: impulses of contacts, or accelerations."""
        ...

    @property
    def elliptic(self) -> bool | None:
        """Return whether friction is bounded by a cone instead of a pyramid; None for what the model says."""
        ...

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the names of the numbers that calls may pass as `params`, each as `contact_<name>`."""
        ...


class Solver(ContactSolver, Protocol):
    """A solver of steps that have rows for every point that can touch."""

    def solve(self, free: FreeMotion, blocks: Sequence[Block], start: Sequence[Scalar] | None) -> ConstraintSolution:
        """Solve a step with its constraints.

        Args:
            free: The step without them.
            blocks: The constraints.
            start: The contact impulses of the step before, if they are kept.
        """
        ...


class ListedSolver(ContactSolver, Protocol):
    """A solver of steps whose contacts are a list."""

    @property
    def tangent(self) -> Tangent | None:
        """Return how the list chooses the directions of friction, if it does."""
        ...

    def reach(self, free: FreeMotion, state: State, candidates: Candidates) -> Callable[[Shapes], Reach] | None:
        """Return how near shapes must be for a contact; None if that is the margin of each pair."""
        ...

    def memory(self, candidates: Candidates) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of what a step keeps for the next one; nothing if the solver is not warm."""
        ...

    def solve_listed(self, free: FreeMotion, scene: Scene) -> ListedSolution:
        """Solve a step with its constraints."""
        ...
