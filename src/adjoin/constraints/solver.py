"""What a step asks of a solver, whichever it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from adjoin.constraints.blocks import Block
from adjoin.dynamics.linear import Rows
from adjoin.spatial.scalar import Scalar


@dataclass(frozen=True)
class Free:
    """A step without constraints: H dv = right.

    Attributes:
        inertia: H, nv rows of nv scalars; structural zeros are the number 0.
        right: impulses of everything but the constraints, nv scalars.
        missing: gives H dv - right for any dv, in the way that is cheapest to differentiate.
        mass: of the robot, kg.
        dt: s.
    """

    inertia: Rows
    right: list[Scalar]
    missing: Callable[[Sequence[Scalar]], list[Scalar]]
    mass: float
    dt: float


class Settled(NamedTuple):
    """What constraints make of a step.

    Attributes:
        change: dv, nv scalars.
        impulses: of all rows, in order.
        modes: what each block does: 0 nothing, 1 it holds, 2 it slips.
    """

    change: list[Scalar]
    impulses: list[Scalar]
    modes: list[Scalar]


class Solver(Protocol):
    """A frozen object with the constants of a contact law and of how it is solved."""

    @property
    def warm(self) -> bool:
        """Whether a step begins with the impulses of the one before."""
        ...

    @property
    def elliptic(self) -> bool:
        """Whether friction is bounded by a cone instead of a pyramid."""
        ...

    def settle(self, free: Free, blocks: Sequence[Block], start: Sequence[Scalar] | None) -> Settled:
        """The step with its constraints.

        Args:
            free: the step without them.
            blocks: the constraints.
            start: impulses of the step before, if they are kept.
        """
        ...
