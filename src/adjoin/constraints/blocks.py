"""What a solver works on: blocks of constraint rows, each with what its impulses may be.

A row says what its velocity u, J v and an offset, should be: 0, or at least 0; its impulse changes v by H⁻¹ Jᵀ impulse.
Blocks are relaxed one after the other: `relax(i)` is the impulse that would make u of row i smaller, or zero, if all
others stayed as they are, and a block puts it where it may be. `project` does that for a whole block at once, and
`slopes` is the derivative of `project`: at the solution, impulses = project(impulses - gain u) with its `gains`.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adjoin.constraints.contact_model import ContactModel
from adjoin.spatial.scalar import Scalar
from adjoin.trace import maximum, minimum, select, sqrt

Relax = Callable[[int], Scalar]
Clip = Callable[[int, Scalar], Scalar]
Rows = list[list[Scalar]]

TINY = 1e-30  # keeps a quotient finite; its root is far below any impulse
ROUNDING = 1e-5  # of a length in float32


@dataclass(frozen=True)
class Row:
    """One scalar constraint.

    Attributes:
        jacobian: nv scalars; structural zeros are the number 0.
        speed: J v before the step.
        gap: how far it is from touching, or from where it is held: m or rad.
        turning: whether it is about an angle.
    """

    jacobian: Sequence[Scalar]
    speed: Scalar
    gap: Scalar = 0.0
    turning: bool = False


@dataclass(frozen=True)
class EqualityBlock:
    """Equalities: their impulses are not bounded."""

    rows: tuple[Row, ...]

    def offsets(self, contact: ContactModel, dt: float) -> list[Scalar]:
        """u of each row, if the velocity did not change."""
        return [row.speed + contact.error_reduction / dt * row.gap for row in self.rows]

    def sweep(self, impulses: list[Scalar], first: int, relax: Relax, push: Clip) -> None:
        """Relax the impulses from `first` on, in place; `push(i, x)` is x, or 0 if it is negative."""
        for i in range(first, first + len(self.rows)):
            impulses[i] = relax(i)

    def project(self, trial: Sequence[Scalar]) -> list[Scalar]:
        """The nearest impulses that may be."""
        return list(trial)

    def mode(self, impulses: Sequence[Scalar]) -> Scalar:
        """Return 0 where it is inactive, 1 where it holds or sticks, 2 where it slips."""
        return 1.0

    def slopes(self, trial: Sequence[Scalar]) -> Rows:
        """The derivative of `project`."""
        return [[1.0 if i == k else 0.0 for k in range(len(trial))] for i in range(len(trial))]


@dataclass(frozen=True)
class UnilateralBlock:
    """An inequality, u >= 0: the impulse only pushes. A contact without friction."""

    rows: tuple[Row, ...]

    def offsets(self, contact: ContactModel, dt: float) -> list[Scalar]:
        """u of each row, if the velocity did not change."""
        return [self.rows[0].speed + contact.approach(self.rows[0].gap, self.rows[0].speed, dt)]

    def sweep(self, impulses: list[Scalar], first: int, relax: Relax, push: Clip) -> None:
        """Relax the impulses from `first` on, in place; `push(i, x)` is x, or 0 if it is negative."""
        impulses[first] = push(first, relax(first))

    def project(self, trial: Sequence[Scalar]) -> list[Scalar]:
        """The nearest impulses that may be."""
        return [maximum(trial[0], 0.0)]

    def mode(self, impulses: Sequence[Scalar]) -> Scalar:
        """Return 0 where it is inactive, 1 where it holds or sticks, 2 where it slips."""
        return one_if(impulses[0] > 0.0)

    def slopes(self, trial: Sequence[Scalar]) -> Rows:
        """The derivative of `project`."""
        return [[one_if(trial[0] > 0.0)]]


@dataclass(frozen=True)
class JointLimitBlock(UnilateralBlock):
    """A joint limit, which most steps do not reach."""


@dataclass(frozen=True)
class JointFrictionBlock:
    """Resistance up to a limit: dry friction of a joint.

    Attributes:
        rows: one.
        limit: the greatest impulse to either side.
    """

    rows: tuple[Row, ...]
    limit: Scalar

    def offsets(self, contact: ContactModel, dt: float) -> list[Scalar]:
        """u of each row, if the velocity did not change."""
        return [self.rows[0].speed]

    def sweep(self, impulses: list[Scalar], first: int, relax: Relax, push: Clip) -> None:
        """Relax the impulses from `first` on, in place; `push(i, x)` is x, or 0 if it is negative."""
        impulses[first] = clamp(relax(first), self.limit)

    def project(self, trial: Sequence[Scalar]) -> list[Scalar]:
        """The nearest impulses that may be."""
        return [clamp(trial[0], self.limit)]

    def mode(self, impulses: Sequence[Scalar]) -> Scalar:
        """Return 0 where it is inactive, 1 where it holds or sticks, 2 where it slips."""
        return select(abs(impulses[0]) < self.limit, 1.0, 2.0)

    def slopes(self, trial: Sequence[Scalar]) -> Rows:
        """The derivative of `project`."""
        return [[one_if(abs(trial[0]) < self.limit)]]


@dataclass(frozen=True)
class ContactBlock:
    """A contact with friction.

    Attributes:
        rows: the normal one, then those across it, or about it.
        friction: for each of the others, its greatest impulse per normal impulse.
        elliptic: whether the others together lie in a cone, instead of each in its own bounds.
    """

    rows: tuple[Row, ...]
    friction: tuple[Scalar, ...]
    elliptic: bool = False

    def offsets(self, contact: ContactModel, dt: float) -> list[Scalar]:
        """u of each row, if the velocity did not change."""
        first, *others = self.rows
        return [first.speed + contact.approach(first.gap, first.speed, dt), *[row.speed for row in others]]

    def sweep(self, impulses: list[Scalar], first: int, relax: Relax, push: Clip) -> None:
        """Relax the impulses from `first` on, in place; `push(i, x)` is x, or 0 if it is negative."""
        impulses[first] = push(first, relax(first))
        across = range(first + 1, first + len(self.rows))
        if self.elliptic:
            impulses[first + 1 : across.stop] = self._cone(impulses[first], [relax(i) for i in across])
        else:
            for i, coefficient in zip(across, self.friction, strict=True):
                impulses[i] = clamp(relax(i), coefficient * impulses[first])

    def project(self, trial: Sequence[Scalar]) -> list[Scalar]:
        """The nearest impulses that may be, once the normal one is settled."""
        normal = maximum(trial[0], 0.0)
        if self.elliptic:
            return [normal, *self._cone(normal, trial[1:])]
        return [normal, *[clamp(x, c * normal) for x, c in zip(trial[1:], self.friction, strict=True)]]

    @property
    def ratios(self) -> list[Scalar]:
        """The coefficients over the first of them."""
        first = self.friction[0]
        return [1.0 if same(c, first) else maximum(c / maximum(first, TINY), TINY) for c in self.friction]

    def _cone(self, normal: Scalar, others: Sequence[Scalar]) -> list[Scalar]:
        share = minimum(self.friction[0] * normal / self._length(others), 1.0)
        return [x * share for x in others]

    def _length(self, others: Sequence[Scalar]) -> Scalar:
        """Of impulses across, each over its ratio."""
        return sqrt(maximum(sum(((x / r) * (x / r) for x, r in zip(others, self.ratios, strict=True)), 0.0), TINY))

    def mode(self, impulses: Sequence[Scalar]) -> Scalar:
        """Return 0 where it is inactive, 1 where it holds or sticks, 2 where it slips."""
        touching = impulses[0] > 0.0
        if self.elliptic:
            slips = self._length(impulses[1:]) >= (1.0 - ROUNDING) * self.friction[0] * impulses[0]
            return select(touching, select(slips, 2.0, 1.0), 0.0)
        mode: Scalar = 1.0
        for impulse, coefficient in zip(impulses[1:], self.friction, strict=True):
            mode = select(abs(impulse) < coefficient * impulses[0], mode, 2.0)
        return select(touching, mode, 0.0)

    def slopes(self, trial: Sequence[Scalar]) -> Rows:
        """The derivative of `project`."""
        touching = one_if(trial[0] > 0.0)
        normal = maximum(trial[0], 0.0)
        size = len(self.rows)
        found: Rows = [[touching, *[0.0] * (size - 1)]]
        if not self.elliptic:
            for i, coefficient in enumerate(self.friction, 1):
                bound = coefficient * normal
                side = select(trial[i] >= bound, coefficient, select(trial[i] <= -bound, -coefficient, 0.0))
                inside = one_if(abs(trial[i]) < bound)
                found.append([touching * side, *[inside if i == k else 0.0 for k in range(1, size)]])
            return found
        length, ratios, bound = self._length(trial[1:]), self.ratios, self.friction[0] * normal
        slips = bound < length
        unit = [x / (r * length) for x, r in zip(trial[1:], ratios, strict=True)]
        share = bound / length
        for i, ratio in enumerate(ratios):
            row = [select(slips, touching * self.friction[0] * ratio * unit[i], 0.0)]
            for k, other in enumerate(ratios):
                along = (1.0 if i == k else 0.0) - unit[i] * unit[k] * (ratio / other)
                row.append(select(slips, share * along, 1.0 if i == k else 0.0))
            found.append(row)
        return found


Block = EqualityBlock | UnilateralBlock | JointFrictionBlock | ContactBlock


def gains(block: Block, own: Sequence[Sequence[Scalar]]) -> list[Scalar]:
    """By how much each impulse of a block changes for a unit of u.

    Alone, an impulse takes all of its u away. Those of a cone change together: friction works against the velocity, so
    they take steps of one size in all directions, short enough for every one (the greatest sum of a row bounds the
    eigenvalues); with unequal coefficients, in directions that are scaled by them.

    Args:
        block: the constraint.
        own: its part of J H⁻¹ Jᵀ, with the softness on the diagonal.
    """
    alone = [1.0 / row[i] for i, row in enumerate(own)]
    if not isinstance(block, ContactBlock) or not block.elliptic:
        return alone
    scaled = [
        [abs(x) * a * b for x, b in zip(row[1:], block.ratios, strict=True)]
        for row, a in zip(own[1:], block.ratios, strict=True)
    ]
    greatest = functools.reduce(maximum, [sum(row, 0.0) for row in scaled])
    return [alone[0], *[ratio * ratio / greatest for ratio in block.ratios]]


def unsettled_speed(
    block: Block, impulses: Sequence[Scalar], speeds: Sequence[Scalar], gains: Sequence[Scalar]
) -> Scalar:
    """How far a block is from its solution: the greatest speed that one more relaxation would take from a row.

    Args:
        block: the constraint.
        impulses: of its rows.
        speeds: u of its rows, softness included.
        gains: see `gains`.
    """
    settled = block.project([p - g * u for p, u, g in zip(impulses, speeds, gains, strict=True)])
    return functools.reduce(maximum, [abs(p - x) / g for p, x, g in zip(impulses, settled, gains, strict=True)])


def clamp(x: Scalar, limit: Scalar) -> Scalar:
    """x, but not further than the limit to either side; where both are 0, derivatives are those of the limit."""
    return maximum(-limit, minimum(limit, x))


def same(a: Scalar, b: Scalar) -> bool:
    """Whether two scalars are known to be equal."""
    return a is b or (isinstance(a, float) and isinstance(b, float) and a == b)


def one_if(condition: Scalar) -> Scalar:
    """1 where a condition holds, else 0."""
    return select(condition, 1.0, 0.0)
