"""A progress bar on the terminal."""

import sys
import time
from collections.abc import Iterator, Sequence


class Progress:
    """Goes through pieces of work, and shows how far it is.

    Args:
        pieces: pairs of where a piece begins and ends.
        shown: whether to draw at all.
    """

    def __init__(self, pieces: Sequence[tuple[int, int]], shown: bool):
        self.pieces, self.shown = pieces, shown

    def __iter__(self) -> Iterator[tuple[int, int]]:
        start = time.perf_counter()
        for piece in self.pieces:
            yield piece
            if self.shown:
                self._draw(piece[1], self.pieces[-1][1], time.perf_counter() - start)
        if self.shown:
            print(file=sys.stderr)

    def _draw(self, done: int, total: int, seconds: float) -> None:
        filled = 30 * done // total
        rest = seconds * (total - done) / done
        bar = "=" * filled + " " * (30 - filled)
        print(f"\r[{bar}] {done}/{total} steps, {rest:.0f} s left ", end="", file=sys.stderr, flush=True)
