"""Threads for one call of a kernel: those of the OpenMP runtime that torch has loaded, if it has one.

They wake up ten times faster than threads of Python do, and are the same that torch's own operations use.
"""

import ctypes
import os
import re
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import llvmlite.binding as llvm

CONSTANTS = 8  # words before the bounds of the pieces
LINE = 8  # words of a line of the cache

# A thread begins with its own share, which is in its cache since the last call, and then helps the others. Whoever is
# first to mark a piece runs it.
_WORKER = f"""
define void @work(ptr %facts) {{
entry:
  %space.at = getelementptr i64, ptr %facts, i64 1
  %size.at = getelementptr i64, ptr %facts, i64 2
  %words.at = getelementptr i64, ptr %facts, i64 3
  %marks.at = getelementptr i64, ptr %facts, i64 4
  %count.at = getelementptr i64, ptr %facts, i64 5
  %threads.at = getelementptr i64, ptr %facts, i64 6
  %own.number.at = getelementptr i64, ptr %facts, i64 7
  %bounds = getelementptr i64, ptr %facts, i64 {CONSTANTS}
  %kernel = load ptr, ptr %facts
  %space = load ptr, ptr %space.at
  %size = load i64, ptr %size.at
  %words.index = load i64, ptr %words.at
  %words = getelementptr i64, ptr %facts, i64 %words.index
  %marks.index = load i64, ptr %marks.at
  %marks = getelementptr i64, ptr %facts, i64 %marks.index
  %count = load i64, ptr %count.at
  %threads = load i64, ptr %threads.at
  %own.number = load ptr, ptr %own.number.at
  %number.32 = call i32 %own.number()
  %number = sext i32 %number.32 to i64
  %offset = mul i64 %number, %size
  %mine = getelementptr i8, ptr %space, i64 %offset
  %scaled = mul i64 %number, %count
  %start = udiv i64 %scaled, %threads
  br label %turn
turn:
  %i = phi i64 [ 0, %entry ], [ %i.next, %following ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %claim, label %done
claim:
  %sum = add i64 %start, %i
  %piece = urem i64 %sum, %count
  %mark = getelementptr i64, ptr %marks, i64 %piece
  %before = atomicrmw xchg ptr %mark, i64 1 monotonic
  %is.mine = icmp eq i64 %before, 0
  br i1 %is.mine, label %run, label %following
run:
  %first.at = getelementptr i64, ptr %bounds, i64 %piece
  %end.at = getelementptr i64, ptr %first.at, i64 1
  %first = load i64, ptr %first.at
  %end = load i64, ptr %end.at
  call void %kernel(ptr %words, i64 %first, i64 %end, ptr %mine)
  br label %following
following:
  %i.next = add i64 %i, 1
  br label %turn
done:
  ret void
}}
"""


class Team:
    """Threads that run a kernel over a batch in pieces.

    Args:
        kernel: address of the code.
        bounds: where each piece begins, as many in the share of each thread, and where the last ends.
        size: bytes of workspace for one thread.
        threads: how many.
    """

    def __init__(self, kernel: int, bounds: Sequence[int], size: int, threads: int):
        self.bounds, self.size, self.threads = bounds, size, threads
        self._kernel = struct.pack("q", kernel)
        self._pieces = struct.pack(f"{len(bounds)}q", *bounds)

    def run(self, words: bytes, space: int) -> bool:
        """Run the kernel; False if there is no OpenMP to do it with.

        Args:
            words: its arguments.
            space: address of a workspace for all threads.
        """
        loaded = _load(os.getpid())
        if loaded is None:
            return False
        pieces = len(self.bounds) - 1
        first_word = CONSTANTS + pieces + 1
        first_mark = first_word + len(words) // 8 + LINE
        numbers = _pack(space, self.size, first_word, first_mark, pieces, self.threads, loaded.own_number)
        marks = bytes(8 * (LINE + pieces))
        facts = ctypes.create_string_buffer(self._kernel + numbers + self._pieces + words + marks)
        loaded.parallel(loaded.worker, facts, self.threads, 0)
        return True


_pack = struct.Struct(f"{CONSTANTS - 1}q").pack


class _OpenMP(NamedTuple):
    """The functions of a runtime, and what holds the code of the worker."""

    parallel: Callable[..., Any]
    worker: int
    own_number: int
    code: Any


_BORN = os.getpid()  # OpenMP does not survive a fork, whoever used it before


@lru_cache(maxsize=2)
def _load(process: int) -> _OpenMP | None:
    path = _runtime() if process == _BORN else None
    if path is None:
        return None
    runtime = ctypes.CDLL(path)
    parallel = runtime.GOMP_parallel
    parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    parallel.restype = None
    engine = llvm.create_lljit_compiler()
    library = llvm.JITLibraryBuilder().add_ir(_WORKER).export_symbol("work").link(engine, "openmp")
    own_number = ctypes.cast(runtime.omp_get_thread_num, ctypes.c_void_p).value or 0
    return _OpenMP(parallel, library["work"], own_number, (engine, library))


def _runtime() -> str | None:
    """Return the OpenMP library of this process that speaks GNU's interface: GNU's own, LLVM's or Intel's."""
    try:
        with open("/proc/self/maps") as maps:
            path = re.search(r"(/\S*/lib(?:gomp|iomp5|omp)\S*\.so\S*)", maps.read())
    except OSError:
        return None
    return path.group(1) if path else None
