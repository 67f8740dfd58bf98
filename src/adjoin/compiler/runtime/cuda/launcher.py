"""Launch kernels with one argument: a call of the driver from Python costs by the argument."""

import ctypes
import struct
from collections.abc import Callable
from functools import lru_cache

import llvmlite.binding as llvm

from adjoin.compiler.runtime.llvm import initialize

# The record: address of cuLaunchKernel, function, blocks, threads a block, bytes of shared memory, bytes of arguments,
# stream, arguments. The array `extra` says where the arguments are: CU_LAUNCH_PARAM_BUFFER_POINTER is 1, _SIZE is 2.
_LAUNCH = """
define i32 @launch(ptr %record) {
  %function.at = getelementptr i64, ptr %record, i64 1
  %blocks.at = getelementptr i64, ptr %record, i64 2
  %threads.at = getelementptr i64, ptr %record, i64 3
  %shared.at = getelementptr i64, ptr %record, i64 4
  %size.at = getelementptr i64, ptr %record, i64 5
  %stream.at = getelementptr i64, ptr %record, i64 6
  %arguments = getelementptr i64, ptr %record, i64 7
  %cuLaunchKernel = load ptr, ptr %record
  %function = load ptr, ptr %function.at
  %blocks = load i32, ptr %blocks.at
  %threads = load i32, ptr %threads.at
  %shared = load i32, ptr %shared.at
  %stream = load ptr, ptr %stream.at
  %extra = alloca [5 x ptr]
  %extra.1 = getelementptr ptr, ptr %extra, i64 1
  %extra.2 = getelementptr ptr, ptr %extra, i64 2
  %extra.3 = getelementptr ptr, ptr %extra, i64 3
  %extra.4 = getelementptr ptr, ptr %extra, i64 4
  store ptr inttoptr (i64 1 to ptr), ptr %extra
  store ptr %arguments, ptr %extra.1
  store ptr inttoptr (i64 2 to ptr), ptr %extra.2
  store ptr %size.at, ptr %extra.3
  store ptr null, ptr %extra.4
  %status = call i32 %cuLaunchKernel(ptr %function, i32 %blocks, i32 1, i32 1, i32 %threads, i32 1, i32 1, i32 %shared,
                                     ptr %stream, ptr null, ptr %extra)
  ret i32 %status
}
"""


def pack_head(driver_launch: int, function: int, blocks: int, threads: int, shared: int, words: int) -> bytes:
    """Return the part of a record before the stream and the arguments, of which there are so many words."""
    return struct.pack("6q", driver_launch, function, blocks, threads, shared, 8 * words)


@lru_cache(maxsize=1)
def enqueue() -> Callable[[bytes], int]:
    """Return the function that launches a record and returns the driver's status."""
    initialize()
    engine = llvm.create_lljit_compiler()
    library = llvm.JITLibraryBuilder().add_ir(_LAUNCH).export_symbol("launch").link(engine, "launch")
    _code.append((engine, library))
    return ctypes.CFUNCTYPE(ctypes.c_int)(library["launch"])


_code: list[object] = []  # what `enqueue` runs lives as long as this
