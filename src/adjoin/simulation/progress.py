"""A progress bar on the terminal."""

import sys
import time
from collections.abc import Iterator, Sequence

SECONDS = 0.05
"""How long to wait before drawing again."""


class Progress:
    """Goes through pieces of work, and shows how far it is.

    Args:
        pieces: pairs of where a piece begins and ends.
        shown: whether to draw at all.
        unit: what is counted.

    Attributes:
        note: said after the bar; may be changed on the way.
    """

    def __init__(self, pieces: Sequence[tuple[int, int]], shown: bool, unit: str = "steps"):
        self.pieces, self.shown, self.unit, self.note = pieces, shown, unit, ""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        if not self.shown:
            yield from self.pieces
            return
        start = drawn = time.perf_counter()
        try:
            for piece in self.pieces:
                yield piece
                now, total = time.perf_counter(), self.pieces[-1][1]
                if now - drawn > SECONDS or piece[1] == total:
                    self._draw(piece[1], total, now - start)
                    drawn = now
        finally:
            print(file=sys.stderr)

    def _draw(self, done: int, total: int, seconds: float) -> None:
        filled = 30 * done // total
        rest = seconds * (total - done) / done
        bar = "=" * filled + " " * (30 - filled)
        print(
            f"\r[{bar}] {done}/{total} {self.unit}, {rest:.0f} s left {self.note} ", end="", file=sys.stderr, flush=True
        )
