"""One step of time, over scalars: what it is of, and what comes out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from adjoin.collision.pairs import Pair
from adjoin.constraints.blocks import Block
from adjoin.constraints.rows import Contact, Equality, brakes, holds, stops
from adjoin.constraints.solver import Solver
from adjoin.dynamics.state import State
from adjoin.spatial.scalar import Scalar

if TYPE_CHECKING:
    from adjoin.simulation.plant import Plant


@dataclass(frozen=True)
class Physics:
    """What a simulator simulates: constants of its kernels.

    Attributes:
        dt: s.
        contact: the solver.
        integrator: how steps are taken.
        pairs: shapes that can touch.
        constraints: frames that are held, joints that are coupled.
        limits: whether joints have stops.
    """

    dt: float
    contact: Solver
    integrator: "Integrator"
    pairs: tuple[Pair, ...]
    constraints: tuple[Equality, ...] = ()
    limits: bool = True


class Stepped(NamedTuple):
    """A state after a step.

    Attributes:
        q: nq scalars.
        v: nv scalars.
        impulses: of all constraint rows, contacts first.
        contacts: in order.
        modes: of all constraints, see `Settled`.
        stages: what was computed on the way, in order, by name.
    """

    q: list[Scalar]
    v: list[Scalar]
    impulses: list[Scalar]
    contacts: list[Contact]
    modes: list[Scalar]
    stages: dict[str, list[Scalar]]


def other_blocks(state: State, physics: Physics) -> list[Block]:
    """All constraints but contacts."""
    stopped = stops(state) if physics.limits else []
    return [*stopped, *brakes(state, physics.dt), *holds(state, physics.constraints)]


class Integrator(Protocol):
    """A frozen object that takes steps."""

    def require(self, name: str, blocks: Sequence[Block]) -> None:
        """Raise if it cannot serve a model with these constraints."""

    def advance(
        self, plant: "Plant", q: Sequence[Scalar], v: Sequence[Scalar], start: Sequence[Scalar] | None = None
    ) -> Stepped:
        """One step.

        Args:
            plant: what is stepped.
            q: nq scalars.
            v: nv scalars.
            start: impulses of the step before, if the solver keeps them.
        """
        ...
