"""What a step asks of a constraint solver."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from adjoin.collision.contact_list import Candidates, ContactList, Tangent, Visit
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


class ConstraintSolution(NamedTuple):
    """The outcome of a step with constraints.

    Attributes:
        change: The change of velocity dv, nv scalars.
        impulses: The impulses of all rows, in order.
        modes: What each block does: 0 inactive, 1 sticking or holding, 2 slipping.
    """

    change: list[Scalar]
    impulses: list[Scalar]
    modes: list[Scalar]


class ListedSolution(NamedTuple):
    """The outcome of a step whose contacts are a list.

    Attributes:
        change: The change of velocity dv, nv scalars.
        visit: Calls `write(slot, [mode, force in world axes], carry)` for each contact, see `ContactList.compacted`.
        modes: What each of the other constraints does.
        acceleration: The acceleration before implicit damping, nv scalars; empty where the solver has none.
    """

    change: list[Scalar]
    visit: Visit
    modes: list[Scalar]
    acceleration: Sequence[Scalar] = ()


class Scene(NamedTuple):
    """What a step whose contacts are a list is solved with.

    Attributes:
        state: The robot.
        candidates: The pairs that can touch.
        contacts: What touches; None if nothing can.
        constraints: Equalities.
        limits: Whether joints have limits.
        weights: How light bodies and coordinates are.
    """

    state: State
    candidates: Candidates
    contacts: ContactList | None
    constraints: Sequence[Equality]
    limits: bool
    weights: InverseWeights


class Solver(Protocol):
    """A frozen object: a contact model and the way it is solved."""

    @property
    def warm(self) -> bool:
        """Whether a step starts from the contact impulses of the one before."""
        ...

    @property
    def elliptic(self) -> bool:
        """Whether friction is bounded by a cone instead of a pyramid."""
        ...

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the numbers that calls may pass as `params`, each as `contact_<name>`."""
        ...

    def solve(self, free: FreeMotion, blocks: Sequence[Block], start: Sequence[Scalar] | None) -> ConstraintSolution:
        """Solve a step with its constraints.

        Args:
            free: The step without them.
            blocks: The constraints.
            start: The contact impulses of the step before, if they are kept.
        """
        ...


class ListedSolver(Protocol):
    """A solver of steps whose contacts are a list."""

    @property
    def warm(self) -> bool:
        """Whether a step starts from the contact impulses of the one before."""
        ...

    @property
    def elliptic(self) -> bool | None:
        """Whether friction is bounded by a cone instead of a pyramid; None for what the model says."""
        ...

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the numbers that calls may pass as `params`, each as `contact_<name>`."""
        ...

    @property
    def tangent(self) -> Tangent:
        """How the directions of friction are chosen."""
        ...

    def solve_listed(self, free: FreeMotion, scene: Scene) -> ListedSolution:
        """Solve a step with its constraints."""
        ...
