"""Page faults of large results, which can cost more than what a kernel writes to them.

The system hands out memory page by page, each filled with zeros when it is first touched. Two things spare most of
that: pages of two megabytes instead of four kilobytes, and memory that is used again instead of given back.
"""

import ctypes
import os
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import torch

from adjoin.compiler.runtime.backend import PreparedLaunch

HUGE_PAGE = 2 << 20  # bytes
_HUGE_PAGE_ADVICE = 14  # MADV_HUGEPAGE of Linux
_LARGEST_KEPT = 32 << 20  # bytes: the most that glibc takes
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # options of glibc's mallopt


def with_huge_pages(launch: PreparedLaunch, outputs: Sequence[torch.Tensor]) -> PreparedLaunch:
    """Return a launch that asks for huge pages for those of its results that are large.

    Args:
        launch: takes addresses, of which the last are those of the outputs.
        outputs: tensors of the size of the results.
    """
    sizes = [(i - len(outputs), output.nbytes) for i, output in enumerate(outputs)]
    large = [(i, size) for i, size in sizes if size >= 2 * HUGE_PAGE]
    if not large or sys.platform != "linux":
        return launch
    _keep_freed_memory()
    advise = _advise()

    def advised(addresses: Iterable[int]) -> None:
        addresses = [*addresses]
        for i, size in large:
            start = -(-addresses[i] // HUGE_PAGE) * HUGE_PAGE
            advise(start, (addresses[i] + size - start) // HUGE_PAGE * HUGE_PAGE, _HUGE_PAGE_ADVICE)
        launch(addresses)

    return advised


@lru_cache(maxsize=1)
def _advise() -> Callable[[int, int, int], int]:
    """Return the system's `madvise`: address, bytes, advice."""
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return advise


@lru_cache(maxsize=1)
def _keep_freed_memory() -> None:
    """Have glibc use the memory of freed results again, of up to 32 MB each and 64 MB in all.

    Its allocator gives large pieces of memory back to the system, until one of their size was freed once: it then takes
    pieces up to that size to be temporary, and keeps them. That is set here, since a piece that happens to fit a hole
    in the heap teaches the allocator nothing. Whoever has set these thresholds in the environment keeps them.
    """
    chosen = os.environ.keys() & {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"}
    if platform.libc_ver()[0] != "glibc" or chosen:
        return
    set_option = ctypes.CDLL(None).mallopt
    set_option(_MMAP_THRESHOLD, _LARGEST_KEPT)
    set_option(_TRIM_THRESHOLD, 2 * _LARGEST_KEPT)
