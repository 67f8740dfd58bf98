"""A symmetric matrix in an array of the kernel, to which a loop adds."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from adjoin.collision.records import indices_table
from adjoin.dynamics.linear import Rows, dot, is_zero
from adjoin.spatial.scalar import Scalar, sqrt
from adjoin.trace import Scratch, indices, integer, loop, maximum, scratch

TILE = 4
"""Rows and columns that are worked on at once."""

LEAST = 1e-9
"""The least pivot, over the entry of the diagonal that it began as."""


class Packed:
    """The lower half of a symmetric matrix in an array, row by row.

    Args:
        rows: scalars, the lower half.
        envelope: where there may be numbers; see `Envelope`.
    """

    def __init__(self, rows: Rows, envelope: "Envelope"):
        self.size, self.envelope = len(rows), envelope
        size = _whole_tiles(self.size)
        self.entries = envelope.cleared(scratch(size * (size + 1) // 2, checked=False, cleared=False))
        for i, row in enumerate(rows):
            for j in range(i + 1):
                if not is_zero(row[j]):
                    self.entries[i * (i + 1) // 2 + j] = row[j]

    def solve(self, right: Sequence[Scalar]) -> list[Scalar]:
        """The solution, with L Lᵀ by loops over tiles, whose numbers are in registers at the same time.

        What is left of the envelope is zero in L too, so these loops begin at the envelope.
        """
        n, size = self.size, _whole_tiles(self.size)
        tiles = size // TILE
        entries, begin = self.entries, self.envelope.begin
        lines = indices_table([i * (i + 1) // 2 for i in range(size)])
        factor = scratch(size * (size + 1) // 2, checked=False, cleared=False)
        x = scratch([*right, *[0.0] * (size - n)], checked=False)
        for i in range(n, size):  # rows of the identity fill the last tile
            for j in range(size - TILE, i + 1):
                entries[i * (i + 1) // 2 + j] = 1.0 if i == j else 0.0

        def places(tile: Any) -> list[Any]:
            return [lines[tile * TILE + k] for k in range(TILE)]

        def read(array: Scratch, rows: Sequence[Any], tile: Any) -> list[list[Scalar]]:
            """A tile below the diagonal."""
            return [[array[row + tile * TILE + k] for k in range(TILE)] for row in rows]

        def between(first: Any, last: Any, act: Callable[[Any, Any], Any], carry: Any) -> Any:
            """Run `carry = act(tile, carry)` for some tiles of a row, but the last."""
            return loop(last - first, lambda step, carry: act(first + step, carry), carry, at_most=tiles)

        def line(i: Any, factor: Scratch) -> Scratch:
            rows, first = places(i), begin[i]

            def off_diagonal(j: Any, factor: Scratch) -> Scratch:
                others = places(j)

                def subtract(k: Any, total: Any) -> Any:
                    a, b = read(factor, rows, k), read(factor, others, k)
                    return [[total[r][c] - dot(a[r], b[c]) for c in range(TILE)] for r in range(TILE)]

                total = between(maximum(first, begin[j]), j, subtract, read(entries, rows, j))
                below = [[factor[others[r] + j * TILE + c] for c in range(r + 1)] for r in range(TILE)]
                for r in range(TILE):
                    solved: list[Scalar] = []
                    for c in range(TILE):
                        solved.append((total[r][c] - dot(below[c][:c], solved)) * below[c][c])
                        factor[rows[r] + j * TILE + c] = solved[c]
                return factor

            factor = between(first, i, off_diagonal, factor)

            def subtract(k: Any, total: Any) -> Any:
                a = read(factor, rows, k)
                return [[total[r][c] - dot(a[r], a[c]) for c in range(r + 1)] for r in range(TILE)]

            diagonal = [[entries[rows[r] + i * TILE + c] for c in range(r + 1)] for r in range(TILE)]
            total = between(first, i, subtract, diagonal)
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

            total = between(begin[i], i, subtract, [x[i * TILE + r] for r in range(TILE)])
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

            return between(begin[i], i, subtract, x)

        x = loop(tiles, backward, loop(tiles, forward, x))
        return [x[i] for i in range(n)]


class Envelope:
    """Where a symmetric matrix may have numbers: of each row of tiles, from which tile on.

    Bodies that do not touch have no numbers in common, so that a world of many costs what touches. The lanes of a
    vector share the envelope; where one has less than another, it has zeros, which change no bit of its solution.

    Args:
        size: of the matrix.
        filled: places (row, column) of the lower half that have numbers in any case.
    """

    def __init__(self, size: int, filled: Collection[tuple[int, int]]):
        tiles = _whole_tiles(size) // TILE
        first = list(range(tiles))
        for i, j in filled:
            first[i // TILE] = min(first[i // TILE], j // TILE)
        self.tile = indices_table([i // TILE for i in range(size)])
        self.begin = indices(tiles, checked=False, cleared=False)
        for tile, column in enumerate(first):
            self.begin[tile] = column

    def cleared(self, entries: Scratch) -> Scratch:
        """The entries of a matrix, zero within the envelope."""
        tiles = len(self.begin)
        lines = indices_table([i * (i + 1) // 2 for i in range(tiles * TILE)])

        def clear(i: Any, entries: Scratch) -> Scratch:
            rows, first = [lines[i * TILE + k] for k in range(TILE)], self.begin[i]

            def tile(step: Any, entries: Scratch) -> Scratch:
                for row in rows:
                    for k in range(TILE):
                        entries[row + (first + step) * TILE + k] = 0.0
                return entries

            entries = loop(i - first, tile, entries, at_most=tiles)
            for r, row in enumerate(rows):
                for k in range(r + 1):
                    entries[row + i * TILE + k] = 0.0
            return entries

        return loop(tiles, clear, entries)


def structure(rows: Rows) -> set[tuple[int, int]]:
    """The places (row, column) of the lower half of a matrix that are not the number 0."""
    return {(i, j) for i, row in enumerate(rows) for j in range(i + 1) if not is_zero(row[j])}


def _whole_tiles(size: int) -> int:
    return -(-size // TILE) * TILE
