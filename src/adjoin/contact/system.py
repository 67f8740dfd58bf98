"""The equations of one step: H dv = right + Jᵀ impulses, with rows of J that say what the velocity v + dv may be."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from adjoin.contact.blocks import Block, Brake, Row, Touch, gains
from adjoin.contact.law import Law
from adjoin.dynamics.linear import Factor, dot, is_zero
from adjoin.spatial.scalar import Scalar


@dataclass(frozen=True)
class System:
    """A step's constraints and what they act on.

    Attributes:
        inertia: the factor of H.
        right: impulses of everything but the constraints.
        blocks: the constraints.
        law: the constants of contact.
        mass: of the robot, kg.
        dt: s.
    """

    inertia: Factor
    right: Sequence[Scalar]
    blocks: Sequence[Block]
    law: Law
    mass: float
    dt: float

    @cached_property
    def rows(self) -> list[Row]:
        """Of all blocks, in order."""
        return [row for block in self.blocks for row in block.rows]

    @cached_property
    def offsets(self) -> list[Scalar]:
        """u of each row, if the velocity did not change."""
        return [offset for block in self.blocks for offset in block.offsets(self.law, self.dt)]

    @cached_property
    def softness(self) -> list[float]:
        """Regularisation: of each row, this times its impulse is added to u."""
        soft = self.law.softness / self.mass
        return [0.0 if isinstance(block, Brake) else soft for block in self.blocks for _ in block.rows]

    @cached_property
    def halves(self) -> list[list[Scalar]]:
        """L⁻ᵀ Jᵀ, one list a row."""
        return [self.inertia.half(row.jacobian) for row in self.rows]

    @cached_property
    def scaled(self) -> list[list[Scalar]]:
        """D⁻¹ L⁻ᵀ Jᵀ, one list a row."""
        return [self.inertia.scaled(half) for half in self.halves]

    def entry(self, i: int, j: int) -> Scalar:
        """One number of J H⁻¹ Jᵀ."""
        return dot(self.scaled[max(i, j)], self.halves[min(i, j)])

    @cached_property
    def matrix(self) -> list[list[Scalar]]:
        """J H⁻¹ Jᵀ, symmetric."""
        count = len(self.rows)
        return [[self.entry(i, j) for j in range(count)] for i in range(count)]

    @cached_property
    def columns(self) -> list[list[Scalar]]:
        """H⁻¹ Jᵀ, one list a row of J: what a unit of its impulse does to v."""
        return [self.inertia.rest(scaled) for scaled in self.scaled]

    @cached_property
    def bias(self) -> list[Scalar]:
        """What u of each row would be without constraints."""
        free = self.inertia.scaled(self.inertia.half(self.right))
        return [offset + dot(half, free) for offset, half in zip(self.offsets, self.halves, strict=True)]

    @cached_property
    def gain(self) -> list[Scalar]:
        """By how much the impulse of each row changes for a unit of u."""
        found: list[Scalar] = []
        for block in self.blocks:
            places = range(len(found), len(found) + len(block.rows))
            own = [[self.entry(i, k) + (self.softness[i] if i == k else 0.0) for k in places] for i in places]
            found += gains(block, own)
        return found

    @cached_property
    def kept(self) -> list[Scalar]:
        """What is left of each impulse when it is relaxed: 0 where all of u is taken away."""
        found: list[Scalar] = [0.0] * len(self.rows)
        first = 0
        for block in self.blocks:
            if isinstance(block, Touch) and block.elliptic:
                for i in range(first + 1, first + len(block.rows)):
                    found[i] = 1.0 - self.gain[i] * (self.entry(i, i) + self.softness[i])
            first += len(block.rows)
        return found

    def change(self, impulses: Sequence[Scalar]) -> list[Scalar]:
        """dv."""
        return self.solve(self.right, impulses)

    def solve(self, right: Sequence[Scalar], impulses: Sequence[Scalar]) -> list[Scalar]:
        """H⁻¹ (right + Jᵀ impulses)."""
        total = self.inertia.half(right)
        for impulse, half in zip(impulses, self.halves, strict=True):
            total = [x if is_zero(h) else x + impulse * h for x, h in zip(total, half, strict=True)]
        return self.inertia.rest(self.inertia.scaled(total))
