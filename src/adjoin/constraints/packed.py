"""A symmetric matrix in an array of the kernel, to which a loop adds."""

from collections.abc import Collection, Sequence
from typing import Any

from adjoin.collision.records import indices_table
from adjoin.dynamics.linear import Factor, Rows, dot, is_zero
from adjoin.spatial.scalar import Scalar, sqrt
from adjoin.trace import Scratch, integer, loop, maximum, scratch, when

TILE = 4
"""Rows and columns that are worked on at once."""

COPIED = 16
"""Numbers that are copied at once."""

LEAST = 1e-9
"""The least pivot, over the entry of the diagonal that it began as."""


class Packed:
    """The lower half of a symmetric matrix in an array, row by row.

    Args:
        rows: scalars.
        filled: places (row, column) that are added to; the others that are the number 0 stay so in `sparse`.
    """

    def __init__(self, rows: Rows, filled: Collection[tuple[int, int]] = ()):
        self.size, self.rows, self.filled = len(rows), rows, filled
        self.entries = scratch(self.size * (self.size + 1) // 2, checked=False)
        for i, row in enumerate(rows):
            for j in range(i + 1):
                if not is_zero(row[j]):
                    self.entries[i * (i + 1) // 2 + j] = row[j]

    def sparse(self) -> Rows:
        """The rows with the zeros that they began with."""
        return [
            [
                0.0 if is_zero(x) and (i, j) not in self.filled else self.entries[i * (i + 1) // 2 + j]
                for j, x in enumerate(row[: i + 1])
            ]
            for i, row in enumerate(self.rows)
        ]

    def solve(self, right: Sequence[Scalar], coupled: Scalar | None) -> list[Scalar]:
        """Return the solution: with the zeros that the rows began with unless `coupled` says that they were filled."""
        found = Factor(self.sparse()).solve(right)
        return found if coupled is None else when(coupled > 0.5, lambda _: self.solve_dense(right), found)

    def solve_dense(self, right: Sequence[Scalar]) -> list[Scalar]:
        """The solution with all entries: L Lᵀ by loops over tiles, whose numbers are in registers at the same time."""
        n = self.size
        tiles = -(-n // TILE)
        size = tiles * TILE
        lines = indices_table([i * (i + 1) // 2 for i in range(size)])
        factor = scratch(size * (size + 1) // 2, checked=False, cleared=False)
        x = scratch([*right, *[0.0] * (size - n)], checked=False)
        for i in range(n, size):  # rows of the identity fill the last tile
            for j in range(i + 1):
                factor[i * (i + 1) // 2 + j] = 1.0 if i == j else 0.0

        def copy(step: Any, factor: Scratch) -> Scratch:
            for k in range(COPIED):
                factor[step * COPIED + k] = self.entries[step * COPIED + k]
            return factor

        count = n * (n + 1) // 2
        factor = loop(count // COPIED, copy, factor)
        for k in range(count // COPIED * COPIED, count):
            factor[k] = self.entries[k]

        def places(tile: Any) -> list[Any]:
            return [lines[tile * TILE + k] for k in range(TILE)]

        def read(array: Scratch, rows: Sequence[Any], tile: Any) -> list[list[Scalar]]:
            """A tile below the diagonal."""
            return [[array[row + tile * TILE + k] for k in range(TILE)] for row in rows]

        def line(i: Any, factor: Scratch) -> Scratch:
            rows = places(i)

            def off_diagonal(j: Any, factor: Scratch) -> Scratch:
                others = places(j)

                def subtract(k: Any, total: Any) -> Any:
                    a, b = read(factor, rows, k), read(factor, others, k)
                    return [[total[r][c] - dot(a[r], b[c]) for c in range(TILE)] for r in range(TILE)]

                total = loop(j, subtract, read(factor, rows, j), at_most=tiles)
                below = [[factor[others[r] + j * TILE + c] for c in range(r + 1)] for r in range(TILE)]
                for r in range(TILE):
                    solved: list[Scalar] = []
                    for c in range(TILE):
                        solved.append((total[r][c] - dot(below[c][:c], solved)) * below[c][c])
                        factor[rows[r] + j * TILE + c] = solved[c]
                return factor

            factor = loop(i, off_diagonal, factor, at_most=tiles)

            def subtract(k: Any, total: Any) -> Any:
                a = read(factor, rows, k)
                return [[total[r][c] - dot(a[r], a[c]) for c in range(r + 1)] for r in range(TILE)]

            diagonal = [[factor[rows[r] + i * TILE + c] for c in range(r + 1)] for r in range(TILE)]
            total = loop(i, subtract, diagonal, at_most=tiles)
            lower: list[list[Scalar]] = []
            for r in range(TILE):
                lower.append([])
                for c in range(r):
                    lower[r].append((total[r][c] - dot(lower[r], lower[c][:c])) * lower[c][c])
                pivot = total[r][r] - dot(lower[r], lower[r])
                # Rounding must not make it negative. The inverse takes the place of the diagonal.
                lower[r].append(1.0 / sqrt(maximum(pivot, LEAST * diagonal[r][r])))
                for c in range(r + 1):
                    factor[rows[r] + i * TILE + c] = lower[r][c]
            return factor

        factor = loop(tiles, line, factor)

        def forward(i: Any, x: Scratch) -> Scratch:
            rows = places(i)

            def subtract(k: Any, total: Any) -> Any:
                a, solved = read(factor, rows, k), [x[k * TILE + c] for c in range(TILE)]
                return [total[r] - dot(a[r], solved) for r in range(TILE)]

            total = loop(i, subtract, [x[i * TILE + r] for r in range(TILE)], at_most=tiles)
            solved: list[Scalar] = []
            for r in range(TILE):
                below = [factor[rows[r] + i * TILE + c] for c in range(r + 1)]
                solved.append((total[r] - dot(below[:r], solved)) * below[r])
                x[i * TILE + r] = solved[r]
            return x

        def backward(step: Any, x: Scratch) -> Scratch:
            i = integer(tiles - 1) - step
            rows = places(i)
            solved = [x[i * TILE + r] for r in range(TILE)]
            for r in reversed(range(TILE)):
                below = [factor[rows[r] + i * TILE + c] for c in range(r + 1)]
                solved[r] = solved[r] * below[r]
                for c in range(r):
                    solved[c] = solved[c] - below[c] * solved[r]
                x[i * TILE + r] = solved[r]

            def subtract(k: Any, x: Scratch) -> Scratch:
                a = read(factor, rows, k)
                for c in range(TILE):
                    x.add(k * TILE + c, -dot([a[r][c] for r in range(TILE)], solved))
                return x

            return loop(i, subtract, x, at_most=tiles)

        x = loop(tiles, backward, loop(tiles, forward, x))
        return [x[i] for i in range(n)]
