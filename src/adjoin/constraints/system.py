"""The equations of one step: H dv = rhs + Jᵀ impulses, with rows of J that say what the velocity v + dv may be."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from adjoin.constraints.blocks import (
    Block,
    ContactBlock,
    JointFrictionBlock,
    Row,
    UnilateralBlock,
    gains,
    unsettled_speed,
)
from adjoin.constraints.contact_model import ContactModel
from adjoin.constraints.impact import Impact, impact
from adjoin.dynamics.linear import Factor, Rows, dot, is_zero
from adjoin.spatial.scalar import Scalar
from adjoin.trace import inside, maximum


@dataclass(frozen=True)
class System:
    """A step's constraints and what they act on.

    Attributes:
        inertia: H, of which the lower half is read.
        rhs: impulses of everything but the constraints.
        blocks: the constraints.
        contact: the constants of contact.
        mass: of the robot, kg.
        dt: s.
        time_of_impact: whether what hits within the step does so at its time; see `impact`.
    """

    inertia: Rows
    rhs: Sequence[Scalar]
    blocks: Sequence[Block]
    contact: ContactModel
    mass: Scalar
    dt: float
    time_of_impact: bool = False

    @cached_property
    def factor(self) -> Factor:
        """Of H."""
        return Factor(self.inertia)

    def with_blocks(self, blocks: Sequence[Block]) -> "System":
        """The same with fewer blocks."""
        other = replace(self, blocks=blocks)
        other.__dict__["factor"] = self.factor
        return other

    def inside(self, places: Sequence[int]) -> "System":
        """The same, some of whose rows cost nothing outside of the body that is being traced."""
        other, factor = replace(self), self.factor.mapped(inside)
        rows = enumerate(self.rows)
        other.__dict__["factor"] = factor
        other.__dict__["half_solved"] = [
            (factor if i in places else self.factor).half_solve(row.jacobian) for i, row in rows
        ]
        return other

    @cached_property
    def rows(self) -> list[Row]:
        """Of all blocks, in order."""
        return [row for block in self.blocks for row in block.rows]

    @cached_property
    def first_rows(self) -> list[int]:
        """Of the first row of each block."""
        return list(itertools.accumulate((len(block.rows) for block in self.blocks), initial=0))[:-1]

    @cached_property
    def offsets(self) -> list[Scalar]:
        """u of each row, if the velocity did not change."""
        offsets = [offset for block in self.blocks for offset in block.offsets(self.contact, self.dt)]
        for place, hit in self.impacts.items():
            offsets[place] = hit.offset
        return offsets

    @cached_property
    def impacts(self) -> dict[int, Impact]:
        """What each row that only pushes does, by its place, if the time of impacts counts."""
        if not self.time_of_impact:
            return {}
        return {
            place: impact(self.contact, self.rows[place], dot(self.half_solved[place], self.free_velocity), self.dt)
            for block, place in zip(self.blocks, self.first_rows, strict=True)
            if isinstance(block, UnilateralBlock | ContactBlock)
        }

    def late_change(self, impulses: Sequence[Scalar]) -> list[Scalar]:
        """What impulses change the velocity by, times the share of the step that was over when they acted."""
        if not self.impacts:
            return []
        late: list[Scalar] = [0.0] * len(self.rows)
        for block, place in zip(self.blocks, self.first_rows, strict=True):
            if place in self.impacts:
                for i in range(place, place + len(block.rows)):
                    late[i] = self.impacts[place].share * impulses[i]
        return self.factor.finish_half_solve(self.with_impulses([0.0] * len(self.inertia), late))

    @cached_property
    def softness(self) -> list[Scalar]:
        """Regularization: of each row, this times its impulse is added to u."""
        soft = self.contact.softness / self.mass
        return [0.0 if isinstance(block, JointFrictionBlock) else soft for block in self.blocks for _ in block.rows]

    @cached_property
    def half_solved(self) -> list[list[Scalar]]:
        """What each row's impulse adds to the half-solved velocity: L⁻ᵀ Jᵀ over the roots of D, with H = Lᵀ D L.

        The product of two is an entry of J H⁻¹ Jᵀ. A row's half has numbers only for the joints on its way to the root.
        """
        return [self.factor.half_solve(row.jacobian) for row in self.rows]

    @cached_property
    def free_velocity(self) -> list[Scalar]:
        """The half-solved change of velocity without constraints."""
        return self.factor.half_solve(self.rhs)

    def delassus_entry(self, i: int, j: int) -> Scalar:
        """One number of J H⁻¹ Jᵀ."""
        return dot(self.half_solved[max(i, j)], self.half_solved[min(i, j)])

    @cached_property
    def delassus(self) -> list[list[Scalar]]:
        """J H⁻¹ Jᵀ, symmetric."""
        count = len(self.rows)
        return [[self.delassus_entry(i, j) for j in range(count)] for i in range(count)]

    @cached_property
    def bias(self) -> list[Scalar]:
        """What u of each row would be without constraints."""
        return [self.speed(i, self.free_velocity) for i in range(len(self.rows))]

    @cached_property
    def gain(self) -> list[Scalar]:
        """By how much the impulse of each row changes for a unit of u."""
        found: list[Scalar] = []
        for block in self.blocks:
            places = range(len(found), len(found) + len(block.rows))
            own = [[self.delassus_entry(i, k) + (self.softness[i] if i == k else 0.0) for k in places] for i in places]
            found += gains(block, own)
        return found

    @cached_property
    def retained(self) -> list[Scalar]:
        """What is left of each impulse when it is relaxed: 0 where all of u is taken away."""
        found: list[Scalar] = [0.0] * len(self.rows)
        first = 0
        for block in self.blocks:
            if isinstance(block, ContactBlock) and block.elliptic:
                for i in range(first + 1, first + len(block.rows)):
                    found[i] = 1.0 - self.gain[i] * (self.delassus_entry(i, i) + self.softness[i])
            first += len(block.rows)
        return found

    def speed(self, i: int, half: Sequence[Scalar]) -> Scalar:
        """J v of a row and its offset, at a half-solved velocity."""
        return self.offsets[i] + dot(self.half_solved[i], half)

    def with_impulses(self, half: Sequence[Scalar], impulses: Sequence[Scalar], place: int = 0) -> list[Scalar]:
        """A half-solved velocity with the impulses of all rows added, or of those from a place on."""
        total = list(half)
        for impulse, own in zip(impulses, self.half_solved[place:], strict=False):
            total = [x if is_zero(h) else x + impulse * h for x, h in zip(total, own, strict=True)]
        return total

    def unsettled_speed(self, change: Sequence[Scalar], impulses: Sequence[Scalar]) -> Scalar:
        """How far a change of velocity and impulses are from the solution; see `blocks.unsettled_speed`."""
        parts = zip(self.offsets, self.rows, self.softness, impulses, strict=True)
        speeds = [offset + dot(row.jacobian, change) + soft * p for offset, row, soft, p in parts]
        greatest: Scalar = 0.0
        for block, first in zip(self.blocks, self.first_rows, strict=True):
            own = slice(first, first + len(block.rows))
            greatest = maximum(greatest, unsettled_speed(block, impulses[own], speeds[own], self.gain[own]))
        return greatest

    def solve(self, rhs: Sequence[Scalar], impulses: Sequence[Scalar]) -> list[Scalar]:
        """H⁻¹ (rhs + Jᵀ impulses)."""
        return self.factor.finish_half_solve(self.with_impulses(self.factor.half_solve(rhs), impulses))
