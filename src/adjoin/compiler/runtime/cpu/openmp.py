"""Threads for one call of a kernel: those of the OpenMP runtime that torch has loaded, if it has one.

They wake up ten times faster than threads of Python do, and are the same that torch's own operations use.
"""

import ctypes
import os
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm

# Each thread draws a number, which says which piece of the workspace it has; then all take turns at the batch.
_WORKER = """
define void @work(ptr %facts) {
entry:
  %kernel.at = getelementptr i64, ptr %facts, i64 0
  %words.at = getelementptr i64, ptr %facts, i64 1
  %batch.at = getelementptr i64, ptr %facts, i64 2
  %stride.at = getelementptr i64, ptr %facts, i64 3
  %space.at = getelementptr i64, ptr %facts, i64 4
  %size.at = getelementptr i64, ptr %facts, i64 5
  %next.at = getelementptr i64, ptr %facts, i64 6
  %number.at = getelementptr i64, ptr %facts, i64 7
  %kernel = load ptr, ptr %kernel.at
  %words = load ptr, ptr %words.at
  %batch = load i64, ptr %batch.at
  %stride = load i64, ptr %stride.at
  %space = load ptr, ptr %space.at
  %size = load i64, ptr %size.at
  %number = atomicrmw add ptr %number.at, i64 1 monotonic
  %offset = mul i64 %number, %size
  %mine = getelementptr i8, ptr %space, i64 %offset
  br label %turn
turn:
  %first = atomicrmw add ptr %next.at, i64 %stride monotonic
  %more = icmp slt i64 %first, %batch
  br i1 %more, label %run, label %done
run:
  %last = add i64 %first, %stride
  %inside = icmp slt i64 %last, %batch
  %end = select i1 %inside, i64 %last, i64 %batch
  call void %kernel(ptr %words, i64 %first, i64 %end, ptr %mine)
  br label %turn
done:
  ret void
}
"""


def run(kernel: int, words: int, batch: int, stride: int, space: int, size: int, threads: int) -> bool:
    """Run a kernel over a batch with several threads; False if there is no OpenMP to do it with.

    Args:
        kernel: address of the code.
        words: address of its arguments.
        batch: number of environments.
        stride: how many a thread takes at a time.
        space: address of a workspace for all threads.
        size: bytes of it for one thread.
        threads: how many.
    """
    loaded = _load(os.getpid())
    if loaded is None:
        return False
    parallel, worker, _ = loaded
    facts = (ctypes.c_int64 * 8)(kernel, words, batch, stride, space, size, 0, 0)
    parallel(worker, facts, threads, 0)
    return True


_BORN = os.getpid()  # OpenMP does not survive a fork, whoever used it before


@lru_cache(maxsize=2)
def _load(process: int) -> tuple[Callable[..., Any], int, Any] | None:
    path = _runtime() if process == _BORN else None
    if path is None:
        return None
    parallel = ctypes.CDLL(path).GOMP_parallel
    parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    parallel.restype = None
    engine = llvm.create_lljit_compiler()
    library = llvm.JITLibraryBuilder().add_ir(_WORKER).export_symbol("work").link(engine, "openmp")
    return parallel, library["work"], (engine, library)


def _runtime() -> str | None:
    """Return the OpenMP library of this process that speaks GNU's interface: GNU's own, LLVM's or Intel's."""
    try:
        with open("/proc/self/maps") as maps:
            path = re.search(r"(/\S*/lib(?:gomp|iomp5|omp)\S*\.so\S*)", maps.read())
    except OSError:
        return None
    return path.group(1) if path else None
