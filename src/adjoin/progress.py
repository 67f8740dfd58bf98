"""What is seen while something takes long: bars of long loops, a line about a kernel that is being made.

All of it goes to standard error. A terminal and a notebook show a bar that moves; a log file gets a line now and then.
"""

import logging
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

SECONDS = 0.05
"""How long to wait before a bar is drawn again."""
LOGGED = 10.0
"""How long to wait before a log file gets another line."""
PATIENCE = 1.0
"""How long something takes before it is announced."""

_log = logging.getLogger("adjoin")


class Progress:
    """Goes through pieces of work, and shows how far it is.

    Args:
        pieces: pairs of where a piece begins and ends; a number n stands for n pieces of one.
        shown: whether to draw at all.
        unit: what is counted.

    Attributes:
        note: said after the bar; may be changed on the way.
    """

    def __init__(self, pieces: Sequence[tuple[int, int]] | int, shown: bool, unit: str = "steps"):
        self.pieces = [(k, k + 1) for k in range(pieces)] if isinstance(pieces, int) else pieces
        self.shown, self.unit, self.note = shown, unit, ""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        if not self.shown:
            yield from self.pieces
            return
        moving = _redraws(sys.stderr)
        pause = SECONDS if moving else LOGGED
        start = drawn = time.perf_counter()
        done = said = 0
        try:
            for piece in self.pieces:
                yield piece
                done, now = piece[1], time.perf_counter()
                if now - drawn > pause or done == self.pieces[-1][1]:
                    self._draw(done, now - start, moving)
                    drawn, said = now, done
        finally:
            if done > said:  # it ended early
                self._draw(done, time.perf_counter() - start, moving)
            if moving:
                print(file=sys.stderr)

    def _draw(self, done: int, seconds: float, moving: bool) -> None:
        total = self.pieces[-1][1]
        filled = 30 * done // total
        rest = seconds * (total - done) / done
        bar = "=" * filled + " " * (30 - filled)
        line = f"[{bar}] {done}/{total} {self.unit}, {rest:.0f} s left {self.note} "
        print(f"\r{line}" if moving else line, end="" if moving else "\n", file=sys.stderr, flush=True)


@contextmanager
def announced(what: str) -> Iterator[None]:
    """Say what is being done if it takes over a second.

    Whoever has set up Python's logging gets it there, from the logger "adjoin" at level INFO.
    """
    timer = threading.Timer(PATIENCE, _say, [f"{what} ..."])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say(message: str) -> None:
    if _log.hasHandlers():
        _log.info(message)
    else:
        print(f"adjoin: {message}", file=sys.stderr, flush=True)


def _redraws(stream: object) -> bool:
    """Whether a carriage return takes a stream back to the start of its line: terminals and notebooks."""
    return getattr(stream, "isatty", bool)() or type(stream).__module__.startswith("ipykernel")
