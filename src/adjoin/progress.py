"""What a user sees while something takes long: progress bars, and a line about a kernel that is being compiled.

All of it goes to standard error. A terminal and a notebook show a bar that moves; a log file gets a line now and then.
"""

import logging
import shutil
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm.std import tqdm

REDRAW_INTERVAL = 0.05
"""Seconds before a bar is drawn again."""
LOG_INTERVAL = 10.0
"""Seconds before a log file gets another line."""
ANNOUNCE_AFTER = 1.0
"""Seconds that something takes before it is announced."""

_log = logging.getLogger("adjoin")


class Progress:
    """Iterates over pieces of work, and shows a bar on the way.

    Ctrl-C is not caught here: it ends the loop as it would without a bar. See `until_interrupt`.

    Args:
        pieces: pairs of where a piece begins and ends; a number n stands for n pieces of one.
        shown: whether to draw the bar at all.
        unit: what is counted, in the plural.

    Attributes:
        note: text after the bar, such as the loss; it may change on the way.
    """

    def __init__(self, pieces: Sequence[tuple[int, int]] | int, shown: bool, unit: str = "steps"):
        self.pieces = [(k, k + 1) for k in range(pieces)] if isinstance(pieces, int) else pieces
        self.shown, self.unit, self.note = shown, unit, ""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        if not self.shown:
            yield from self.pieces
            return
        with _bar(total=self.pieces[-1][1] if self.pieces else 0, unit=f" {self.unit}") as bar:
            for piece in self.pieces:
                yield piece
                bar.set_postfix_str(self.note, refresh=False)
                bar.update(piece[1] - bar.n)


@contextmanager
def until_interrupt(return_on_interrupt: bool) -> Iterator[None]:
    """Let Ctrl-C end the block quietly if the caller asked for the partial result; otherwise it propagates."""
    try:
        yield
    except KeyboardInterrupt:
        if not return_on_interrupt:
            raise


def _bar(**options: Any) -> "tqdm":
    """A bar that suits standard error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notebook without widgets shows a bar of text
        from tqdm.auto import tqdm
    from tqdm.std import tqdm as plain

    class Lines(plain):
        """A bar in a log file: a line each time, in place of one that is drawn again."""

        printed = 0

        def display(self, *_: Any, **__: Any) -> None:
            if self.n > self.printed:
                print(self, file=self.fp, flush=True)
                self.printed = self.n

    options |= {"miniters": 1, "mininterval": REDRAW_INTERVAL}
    if type(sys.stderr).__module__.startswith("ipykernel"):
        return tqdm(**options)
    if getattr(sys.stderr, "isatty", bool)():
        size = shutil.get_terminal_size()  # tqdm alone draws nothing in a terminal that does not tell its size
        return tqdm(**options, ncols=size.columns, nrows=size.lines)
    return Lines(**{**options, "mininterval": LOG_INTERVAL}, ncols=80, ascii=True, leave=False)


@contextmanager
def announced(what: str) -> Iterator[None]:
    """Say what is being done if it takes over a second.

    Whoever has set up Python's logging gets it there, from the logger "adjoin" at level INFO.
    """
    timer = threading.Timer(ANNOUNCE_AFTER, _say, [f"{what} ..."])
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
