"""Timing functions beside each other, and what they ran on."""

import platform
import time
from collections.abc import Callable
from typing import Any


def in_turn(
    *functions: Callable[[], Any],
    rounds: int,
    least: float = 0.02,
    clock: Callable[[], float] = time.thread_time,
) -> list[list[float]]:
    """Seconds a call of each takes, one list a function, measured in turn so that a disturbance meets all of them.

    Args:
        functions: what to call.
        rounds: turns of each.
        least: seconds that a turn lasts.
        clock: by default the processor time of this thread, for work that runs on one core: what else runs on a shared
            machine does not count.
    """

    def seconds(function: Callable[[], Any], calls: int) -> float:
        start = clock()
        for _ in range(calls):
            function()
        return clock() - start

    counts = []
    for function in functions:
        function()  # compiles
        count = 1
        while (taken := seconds(function, count)) < least:
            count = max(2 * count, int(count * least / max(taken, 1e-9)))
        counts.append(count)
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, count, own in zip(functions, counts, times, strict=True):
            own.append(seconds(function, count) / count)
    return times


def cpu_name() -> str:
    """The model of this machine's processor."""
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
