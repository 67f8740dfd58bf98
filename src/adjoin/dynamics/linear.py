"""Symmetric linear systems over scalars, whose structural zeros cost nothing.

The factor is M = Lᵀ D L with unit lower triangular L, from the last row to the first: in this order the inertia matrix
of a tree fills in nothing (Featherstone, chapter 6.4). Zeros are found by looking: the number 0 is never touched.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

from adjoin.spatial.scalar import Scalar, sqrt
from adjoin.trace import Expr

Rows = list[list[Scalar]]


def is_zero(x: Scalar) -> bool:
    """Return whether a scalar is the number 0, known now; a traced constant is known too."""
    value = x.value if isinstance(x, Expr) and x.op == "const" else x
    return isinstance(value, (int, float)) and value == 0.0


def dot(a: Sequence[Scalar], b: Sequence[Scalar]) -> Scalar:
    """Return the sum of a_i b_i."""
    total: Scalar = 0.0
    for x, y in zip(a, b, strict=True):
        if not is_zero(x) and not is_zero(y):
            total = total + x * y
    return total


def eliminate(matrix: Sequence[Sequence[Scalar]], right: Sequence[Scalar]) -> list[Scalar]:
    """Return the solution of a square system without symmetry, by elimination in the order of the rows."""
    n = len(matrix)
    rows = [[*row, b] for row, b in zip(matrix, right, strict=True)]
    for k in range(n):
        inverse = 1.0 / rows[k][k]
        rows[k] = [0.0 if is_zero(x) else x * inverse for x in rows[k]]
        for i in range(k + 1, n):
            factor = rows[i][k]
            if not is_zero(factor):
                for j in range(k + 1, n + 1):
                    if not is_zero(rows[k][j]):
                        rows[i][j] = rows[i][j] - factor * rows[k][j]
    x: list[Scalar] = [0.0] * n
    for k in reversed(range(n)):
        x[k] = rows[k][n] - dot(rows[k][k + 1 : n], x[k + 1 :])
    return x


class Factor:
    """The factor of a symmetric positive definite matrix; its upper half is not read."""

    def __init__(self, matrix: Sequence[Sequence[Scalar]]):
        n = len(matrix)
        remaining = [list(matrix[i][: i + 1]) for i in range(n)]
        self.lower: Rows = [[0.0] * i for i in range(n)]
        self.inverse: list[Scalar] = [0.0] * n
        for k in reversed(range(n)):
            self.inverse[k] = 1.0 / remaining[k][k]
            row = remaining[k]
            for i in range(k):
                if not is_zero(row[i]):
                    self.lower[k][i] = row[i] * self.inverse[k]
            for i in range(k):
                if not is_zero(row[i]):
                    for j in range(i + 1):
                        if not is_zero(row[j]):
                            remaining[i][j] = remaining[i][j] - self.lower[k][i] * row[j]

    def mapped(self, function: Callable[[Scalar], Scalar]) -> "Factor":
        """Return the factor with a function of its numbers; structural zeros stay."""
        other = Factor([])
        other.lower = [[x if is_zero(x) else function(x) for x in row] for row in self.lower]
        other.inverse, other.roots = ([function(x) for x in values] for values in (self.inverse, self.roots))
        return other

    @cached_property
    def roots(self) -> list[Scalar]:
        """Return the square roots of D⁻¹."""
        return [sqrt(x) for x in self.inverse]

    def half_solve(self, right: Sequence[Scalar]) -> list[Scalar]:
        """Return D^(-1/2) L⁻ᵀ b; the product of two such is bᵀ M⁻¹ c."""
        return [0.0 if is_zero(x) else x * root for x, root in zip(self.solve_upper(right), self.roots, strict=True)]

    def solve(self, right: Sequence[Scalar]) -> list[Scalar]:
        """Return M⁻¹ b."""
        return self.solve_lower(self.solve_diagonal(self.solve_upper(right)))

    def solve_diagonal(self, right: Sequence[Scalar]) -> list[Scalar]:
        """Return D⁻¹ b."""
        return [0.0 if is_zero(x) else x * inverse for x, inverse in zip(right, self.inverse, strict=True)]

    def solve_upper(self, right: Sequence[Scalar]) -> list[Scalar]:
        """Return L⁻ᵀ b."""
        x = list(right)
        for k in reversed(range(len(x))):
            if not is_zero(x[k]):
                for i, entry in enumerate(self.lower[k]):
                    if not is_zero(entry):
                        x[i] = x[i] - entry * x[k]
        return x

    def finish_half_solve(self, right: Sequence[Scalar]) -> list[Scalar]:
        """Return L⁻¹ D^(-1/2) b: of `half_solve` of something, M⁻¹ of it."""
        return self.solve_lower([0.0 if is_zero(x) else x * root for x, root in zip(right, self.roots, strict=True)])

    def solve_lower(self, right: Sequence[Scalar]) -> list[Scalar]:
        """Return L⁻¹ b."""
        x = list(right)
        for k in range(len(x)):
            for i, entry in enumerate(self.lower[k]):
                if not is_zero(entry) and not is_zero(x[i]):
                    x[k] = x[k] - entry * x[i]
        return x
