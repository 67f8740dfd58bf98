"""The equations of a step near its solution, with the modes that were found: what the implicit function theorem needs.

With the trial impulses t = p - g u, where u = J dv + offset + softness p, a step solves H dv - rhs - Jᵀ p = 0 and
p - project(t) = 0. With P, the slopes of `project`, the derivative of this is

    [H      -Jᵀ]
    [P g J   G ],   G = 1 - P (1 - g softness).

A joint limit needs no unknown of its own: while it acts, it is a stiff spring, of 1 / softness, on the diagonal of H;
where none acts, none of that is computed. Of the other rows, with dv eliminated, G + P g J H⁻¹ Jᵀ is left.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from adjoin.constraints.blocks import JointLimitBlock, Rows
from adjoin.constraints.system import System
from adjoin.dynamics.linear import dot, eliminate, is_zero
from adjoin.spatial.scalar import Scalar
from adjoin.trace import inside, loop, maximum, when

DIRECT = 24  # rows up to which a linear system is solved by elimination, whose code grows with their cube
STIFFEST = 1e-12  # the least softness of a spring


@dataclass(frozen=True)
class LinearizedStep:
    """A step's equations near its solution.

    Attributes:
        system: the step.
        gains: of all rows.
        slopes: P, of each row the numbers of its block.
        sweeps: over the linear system, where it has too many rows to be solved directly.
    """

    system: System
    gains: Sequence[Scalar]
    slopes: Sequence[Sequence[Scalar]]
    sweeps: int

    @cached_property
    def springs(self) -> dict[int, int]:
        """The rows that are springs, and the coordinate of each, of which no two have the same."""
        found: dict[int, int] = {}
        for block, place in zip(self.system.blocks, self.system.first_rows, strict=True):
            if isinstance(block, JointLimitBlock):
                dofs = [i for i, x in enumerate(block.rows[0].jacobian) if not is_zero(x)]
                if len(dofs) == 1 and dofs[0] not in found.values():  # a limit of a tendon may have several
                    found[place] = dofs[0]
        return found

    @cached_property
    def others(self) -> list[int]:
        """The other rows."""
        return [i for i in range(len(self.system.rows)) if i not in self.springs]

    @cached_property
    def active_limits(self) -> dict[int, Scalar]:
        """Of each spring, 1 where it acts, else 0; the number 0 where that is known."""
        return {i: self.slopes[i][0] for i in self.springs}

    @cached_property
    def stiffness(self) -> dict[int, Scalar]:
        """Of each spring, 0 where it does not act."""
        return {
            i: active * (1.0 / maximum(self.system.softness[i], STIFFEST)) for i, active in self.active_limits.items()
        }

    @cached_property
    def rest(self) -> System:
        """The step with springs on the diagonal of H, and the other rows."""
        pairs = zip(self.system.blocks, self.system.first_rows, strict=True)
        found = self.system.with_blocks([block for block, place in pairs if place not in self.springs])
        if all(map(is_zero, self.active_limits.values())):
            return found
        inertia = [list(row) for row in self.system.inertia]
        for i, dof in self.springs.items():
            arm = self.system.rows[i].jacobian[dof]
            inertia[dof][dof] = inertia[dof][dof] + self.stiffness[i] * arm * arm
        return replace(found, inertia=inertia)

    @cached_property
    def own(self) -> list[list[tuple[int, Scalar]]]:
        """P of the other rows, of each its entries and their places among the others."""
        found: list[list[tuple[int, Scalar]]] = []
        for block, place in zip(self.rest.blocks, self.rest.first_rows, strict=True):
            for i in self.others[place : place + len(block.rows)]:
                found.append([(place + k, x) for k, x in enumerate(self.slopes[i]) if not is_zero(x)])
        return found

    def reduced(self) -> Rows:
        """G + P g J H⁻¹ Jᵀ of the other rows."""
        count = len(self.others)
        matrix: Rows = [[1.0 if i == j else 0.0 for j in range(count)] for i in range(count)]
        for row, own in zip(matrix, self.own, strict=True):
            for k, slope in own:
                gain = self.gains[self.others[k]]
                row[k] = row[k] - slope * (1.0 - gain * self.rest.softness[k])
                for j, x in enumerate(self.rest.delassus[k]):
                    if not is_zero(x):
                        row[j] = row[j] + slope * gain * x
        return matrix

    def solve(self, b: Sequence[Scalar]) -> list[Scalar]:
        """The solution (x, y) of H x - Jᵀ y = f and P g J x + G y = g, where b is f, then g."""
        return self._where_limits_act(LinearizedStep._solve, b)

    def solve_transposed(self, b: Sequence[Scalar]) -> list[Scalar]:
        """The solution (x, y) of H x + Jᵀ g Pᵀ y = f and Gᵀ y - J x = g, where b is f, then g."""
        return self._where_limits_act(LinearizedStep._solve_transposed, b)

    def _where_limits_act(
        self, solve: Callable[["LinearizedStep", Sequence[Scalar]], list[Scalar]], b: Sequence[Scalar]
    ) -> list[Scalar]:
        """A solution, with springs only where one acts."""
        if not self.springs:
            return solve(self, b)
        slopes = [[0.0] if i in self.springs else row for i, row in enumerate(self.slopes)]
        loose = solve(replace(self, slopes=slopes), b)

        def again(_: object) -> list[Scalar]:
            inertia = [[x if is_zero(x) else inside(x) for x in row] for row in self.system.inertia]
            slopes = [[inside(row[0])] if i in self.springs else row for i, row in enumerate(self.slopes)]
            return solve(replace(self, system=replace(self.system, inertia=inertia), slopes=slopes), b)

        return when(functools.reduce(operator.or_, [x > 0.5 for x in self.active_limits.values()]), again, loose)

    def _solve(self, b: Sequence[Scalar]) -> list[Scalar]:
        nv, rows = len(self.system.inertia), self.system.rows
        f, g = list(b[:nv]), list(b[nv:])
        pulled = list(f)
        for i, dof in self.springs.items():
            pull = (1.0 - self.active_limits[i]) + self.stiffness[i] / self.gains[i]
            pulled[dof] = pulled[dof] + rows[i].jacobian[dof] * g[i] * pull
        free = self.rest.factor.half_solve(pulled)
        speeds = [dot(half, free) for half in self.rest.half_solved]
        right = []
        for i, own in zip(self.others, self.own, strict=True):
            right.append(g[i] - sum((slope * self.gains[self.others[k]] * speeds[k] for k, slope in own), 0.0))
        y = self._solve_rows(self.reduced(), right)
        x = self.rest.solve(pulled, y)
        at_springs = {
            i: g[i] if is_zero(active) else self._left(i, x, f, y) for i, active in self.active_limits.items()
        }
        return [*x, *self._all(y, at_springs)]

    def _solve_transposed(self, b: Sequence[Scalar]) -> list[Scalar]:
        nv, rows = len(self.system.inertia), self.system.rows
        f, g = list(b[:nv]), list(b[nv:])
        pulled = list(f)
        for i, dof in self.springs.items():
            if not is_zero(self.active_limits[i]):
                pulled[dof] = pulled[dof] - rows[i].jacobian[dof] * g[i] * self.stiffness[i]
        free = self.rest.factor.half_solve(pulled)
        right = [g[i] + dot(half, free) for i, half in zip(self.others, self.rest.half_solved, strict=True)]
        matrix = [list(column) for column in zip(*self.reduced(), strict=True)]
        y = self._solve_rows(matrix, right)
        z: list[Scalar] = [0.0] * len(y)
        for value, own in zip(y, self.own, strict=True):
            for k, slope in own:
                z[k] = z[k] - slope * self.gains[self.others[k]] * value
        x = self.rest.solve(pulled, z)
        at_springs = {}
        for i, dof in self.springs.items():
            at_springs[i] = loose = g[i] + rows[i].jacobian[dof] * x[dof]
            if not is_zero(self.active_limits[i]):
                at_springs[i] = loose - self.active_limits[i] * (loose + self._left(i, x, f, z) / self.gains[i])
        return [*x, *self._all(y, at_springs)]

    def _left(self, i: int, x: Sequence[Scalar], f: Sequence[Scalar], y: Sequence[Scalar]) -> Scalar:
        """What a spring gives: all of H x - f - Jᵀ y that is left. The law of a spring itself would lose all digits."""
        dof = self.springs[i]
        line = [self.system.inertia[max(dof, j)][min(dof, j)] for j in range(len(x))]
        others = [row.jacobian[dof] for row in self.rest.rows]
        return (dot(line, x) - f[dof] - dot(others, y)) / self.system.rows[i].jacobian[dof]

    def _all(self, others: Sequence[Scalar], at_springs: dict[int, Scalar]) -> list[Scalar]:
        """Values of all rows, in order."""
        found = {**dict(zip(self.others, others, strict=True)), **at_springs}
        return [found[i] for i in range(len(found))]

    def _solve_rows(self, matrix: Rows, right: list[Scalar]) -> list[Scalar]:
        if len(right) <= DIRECT:
            return eliminate(matrix, right)
        inverse = [1.0 / matrix[i][i] for i in range(len(right))]

        def sweep(_: object, y: list[Scalar]) -> list[Scalar]:
            y = list(y)
            for i, row in enumerate(matrix):
                y[i] = (right[i] - dot(row[:i], y[:i]) - dot(row[i + 1 :], y[i + 1 :])) * inverse[i]
            return y

        return list(loop(self.sweeps, sweep, list(right)))
