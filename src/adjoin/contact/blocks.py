"""What a solver works on: blocks of constraint rows, each with what its impulses may be.

A row says that J v + bias = 0, or at least may not be negative; its impulse changes the velocity by H⁻¹ Jᵀ impulse.
Blocks are relaxed one after the other: `relax(i)` is what impulse i would have to be for its row to hold if all others
stayed as they are, and a block puts it inside its bounds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adjoin.spatial.scalar import Scalar
from adjoin.trace import maximum, minimum, sqrt

Relax = Callable[[int], Scalar]


@dataclass(frozen=True)
class Row:
    """One scalar constraint.

    Attributes:
        jacobian: nv scalars; structural zeros are the number 0.
        bias: what is added to J v.
        softness: regularisation: impulse times this is added to J v as well.
    """

    jacobian: Sequence[Scalar]
    bias: Scalar
    softness: Scalar = 0.0


@dataclass(frozen=True)
class Hold:
    """An equality: the impulse may be anything."""

    rows: tuple[Row, ...]

    def sweep(self, impulses: list[Scalar], first: int, relax: Relax) -> None:
        """Relax the impulses from `first` on, in place."""
        for i in range(first, first + len(self.rows)):
            impulses[i] = relax(i)


@dataclass(frozen=True)
class Push:
    """An inequality, J v + bias >= 0: the impulse only pushes. A joint limit, or a contact without friction."""

    rows: tuple[Row]

    def sweep(self, impulses: list[Scalar], first: int, relax: Relax) -> None:
        """Relax the impulses from `first` on, in place."""
        impulses[first] = maximum(relax(first), 0.0)


@dataclass(frozen=True)
class Brake:
    """Something that resists motion up to a limit: dry friction of a joint."""

    rows: tuple[Row]
    limit: Scalar

    def sweep(self, impulses: list[Scalar], first: int, relax: Relax) -> None:
        """Relax the impulses from `first` on, in place."""
        impulses[first] = clamp(relax(first), self.limit)


@dataclass(frozen=True)
class Touch:
    """A contact with friction: a normal row, then rows across it, each with its coefficient.

    Attributes:
        rows: the normal one first.
        friction: the greatest impulse of each other row, per normal impulse.
        elliptic: whether the impulses across lie in a cone instead of a pyramid.
    """

    rows: tuple[Row, ...]
    friction: tuple[Scalar, ...]
    elliptic: bool = False

    def sweep(self, impulses: list[Scalar], first: int, relax: Relax) -> None:
        """Relax the impulses from `first` on, in place."""
        impulses[first] = push = maximum(relax(first), 0.0)
        across = range(first + 1, first + len(self.rows))
        if not self.elliptic:
            for i, coefficient in zip(across, self.friction, strict=True):
                impulses[i] = clamp(relax(i), coefficient * push)
            return
        for i in across:
            impulses[i] = relax(i)
        parts = [impulses[i] / coefficient for i, coefficient in zip(across, self.friction, strict=True)]
        length = sqrt(sum((x * x for x in parts), 0.0))
        share = minimum(push / maximum(length, TINY), 1.0)
        for i in across:
            impulses[i] = impulses[i] * share


Block = Hold | Push | Brake | Touch

TINY = 1e-30  # keeps a quotient finite; far below any impulse


def clamp(x: Scalar, limit: Scalar) -> Scalar:
    """x, but not more than the limit to either side."""
    return maximum(minimum(x, limit), -limit)
