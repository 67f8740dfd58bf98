"""Whether environments fit into memory.

Where a GPU's is full, torch raises. Where the machine's is, the system kills the process, so this asks before.
"""

import math
import os
from pathlib import Path

import torch

from adjoin.errors import InputError


def check_memory(task: str, n: int, each: float, device: torch.device, argument: str) -> None:
    """Raise where environments on a CPU take more memory than there is.

    Args:
        task: The name of their task.
        n: How many.
        each: Bytes that one of them takes at least.
        device: Where they are.
        argument: What the caller passed n as.
    """
    if device.type == "cpu" and n * each > 2**28 and n * each > free_memory(device):
        raise too_many(task, n, each, device, argument)


def too_many(task: str, n: int, each: float, device: torch.device, argument: str) -> InputError:
    """Return the error about more environments than fit; see `check_memory`."""
    fit = max(1, int(min(n - 1, 0.8 * free_memory(device) / each)))
    return InputError(
        f"{n:,} environments of task {task!r} do not fit into the memory of {device}; about {fit:,} do: "
        f"pass {argument}={fit}"
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether there was not enough memory."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


def free_memory(device: torch.device) -> float:
    """Return how many bytes this process can still take; infinity where that is not known."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return min(_available(), _below_limit()) / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _available() -> float:
    """Return what the system has to give without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # not Linux
        return math.inf


def _below_limit() -> float:
    """Return what is left of the limit of a container."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit, used = (int((folder / name).read_text()) for name in ("memory.max", "memory.current"))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return float(limit - used + int(stat.get("inactive_file", 0)))
    except (OSError, ValueError):  # there is none, or it is "max"
        return math.inf
