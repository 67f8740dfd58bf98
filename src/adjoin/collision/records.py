"""Rows of numbers that a kernel reads at traced indices: constants of it, or scalars of the call."""

from collections.abc import Sequence
from typing import Any

from adjoin.spatial.scalar import Scalar, is_number
from adjoin.trace import scratch, table


class Records:
    """Rows of equal width. A column in which all numbers are the same is that number, and costs nothing.

    Args:
        rows: numbers, which become a constant table, or scalars, which lie in a scratch array.
    """

    def __init__(self, rows: Sequence[Sequence[Scalar]]):
        columns = list(zip(*rows, strict=True))
        self._same = {k: float(x[0]) for k, x in enumerate(columns) if all(map(is_number, x)) and len(set(x)) == 1}
        self._places = {k: i for i, k in enumerate(k for k in range(len(columns)) if k not in self._same)}
        numbers = [row[k] for row in rows for k in self._places]
        known = all(map(is_number, numbers))
        if numbers:
            self._numbers = (
                table([float(x) for x in numbers], checked=False) if known else scratch(numbers, checked=False)
            )
        self.width = len(columns)

    def __getitem__(self, row: Any) -> tuple[Scalar, ...]:
        first = row * len(self._places)
        return tuple(
            self._same[k] if k in self._same else self._numbers[first + self._places[k]] for k in range(self.width)
        )


def indices_table(values: Sequence[int]) -> Any:
    """A constant table of integers, whose indices are known to be inside."""
    return table([int(x) for x in values], checked=False)
