"""A symmetric matrix in an array of the kernel, to which a loop adds."""

from collections.abc import Collection, Sequence
from typing import Any

from adjoin.collision.records import indices_table
from adjoin.dynamics.linear import Factor, Rows, is_zero
from adjoin.spatial.scalar import Scalar
from adjoin.trace import Scratch, integer, loop, scratch, when


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
        """The solution with all entries, by loops: Lᵀ D L in place, from the last row to the first."""
        n = self.size
        lines = indices_table([i * (i + 1) // 2 for i in range(n)])
        copied = scratch([self.entries[k] for k in range(n * (n + 1) // 2)], checked=False)

        def eliminate(step: Any, carry: Any) -> Any:
            entries, x = carry
            k = integer(n - 1) - step
            base = lines[k]
            inverse = 1.0 / entries[base + k]
            top = x[k]

            def line(i: Any, carry: Any) -> Any:
                entries, x = carry
                factor = entries[base + i] * inverse
                x.add(i, -(factor * top))
                place = lines[i]

                def entry(j: Any, entries: Scratch) -> Scratch:
                    entries.add(place + j, -(factor * entries[base + j]))
                    return entries

                return loop(i + 1, entry, entries, at_most=n), x

            entries, x = loop(k, line, (entries, x), at_most=n)
            x[k] = top * inverse
            return entries, x

        def substitute(k: Any, carry: Any) -> Any:
            entries, x = carry
            base = lines[k]
            inverse = 1.0 / entries[base + k]

            def entry(i: Any, total: Scalar) -> Scalar:
                return total - entries[base + i] * inverse * x[i]

            x[k] = loop(k, entry, x[k], at_most=n)
            return entries, x

        carry = copied, scratch(list(right), checked=False)
        _, x = loop(n, substitute, loop(n, eliminate, carry))
        return [x[i] for i in range(n)]
