"""Sums over the processes of one machine, through memory that they share.

A sum of a few thousand numbers by Gloo takes a millisecond or two, most of it waiting for sockets and threads, which is
as long as a step of a small network. Here each process writes its numbers into memory that all see, counts up, and
watches the counts of the others: a few microseconds, if each process has a core.
"""

import ctypes
import mmap
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import torch
import torch.distributed as dist

from adjoin.compiler.runtime.cpu.kernel import host

CAPACITY = 1 << 20  # bytes that a process can give to a sum
PAGE = 4096  # bytes of counts
LINE = 64  # bytes from the count of one process to that of the next
SPINS = 20_000  # looks at a count before Python may handle signals
TIMEOUT = 1800.0  # seconds to wait for the others, as long as torch's

# Numbers written before a count is stored are seen by whoever has seen the count.
_MEET = f"""
define i64 @meet(ptr %counts, i64 %rank, i64 %size, i64 %turn) {{
entry:
  %own.offset = mul i64 %rank, {LINE}
  %own = getelementptr i8, ptr %counts, i64 %own.offset
  store atomic i64 %turn, ptr %own release, align 8
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %here ]
  %left = phi i64 [ {SPINS}, %entry ], [ %spins, %here ]
  %more = icmp ult i64 %i, %size
  br i1 %more, label %watch, label %done
watch:
  %offset = mul i64 %i, {LINE}
  %place = getelementptr i8, ptr %counts, i64 %offset
  br label %look
look:
  %spins = phi i64 [ %left, %watch ], [ %spins.next, %wait ]
  %count = load atomic i64, ptr %place acquire, align 8
  %there = icmp uge i64 %count, %turn
  br i1 %there, label %here, label %wait
wait:
  %spins.next = sub i64 %spins, 1
  %again = icmp ugt i64 %spins.next, 0
  br i1 %again, label %look, label %late
here:
  %i.next = add i64 %i, 1
  br label %next
done:
  ret i64 -1
late:
  ret i64 %i
}}
"""


class SharedSum:
    """Adds up tensors of the processes of the default group, all of which are on this machine.

    Args:
        store: of the group, through which the processes tell each other where the memory is.
    """

    def __init__(self, store: Any):
        self.rank, self.size, self.turn = dist.get_rank(), dist.get_world_size(), 0
        length = PAGE + 2 * self.size * CAPACITY
        if self.rank == 0:
            shared = Path("/dev/shm")
            handle, path = tempfile.mkstemp(prefix="adjoin-", dir=shared if shared.is_dir() else None)
            os.ftruncate(handle, length)
            store.set("shared_sum", path)
        else:
            path = store.get("shared_sum").decode()
            handle = os.open(path, os.O_RDWR)
        memory = mmap.mmap(handle, length)
        os.close(handle)
        dist.barrier()  # all have opened it, so that it can go from the folder, and with the last of them
        if self.rank == 0:
            os.unlink(path)
        whole = torch.frombuffer(memory, dtype=torch.uint8)
        self._counts = whole.data_ptr()
        self._slots = whole[PAGE:].view(2, self.size, CAPACITY)
        engine = llvm.create_lljit_compiler(host().machine())
        library = llvm.JITLibraryBuilder().add_ir(_MEET).export_symbol("meet").link(engine, "meet")
        types = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
        self._meet = ctypes.CFUNCTYPE(ctypes.c_int64, *types)(library["meet"])
        self._keep = engine, library

    def fits(self, x: torch.Tensor) -> bool:
        """Return whether a tensor is on the CPU, has numbers that can be added, and is not too large."""
        return x.device.type == "cpu" and x.dtype is not torch.bool and 0 < x.numel() * x.element_size() <= CAPACITY

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of a tensor over all processes, the same bits in each."""
        self.turn += 1
        # Two slots in turn: who writes into one again has seen that all others are done with it.
        slots = self._slots[self.turn % 2, :, : x.numel() * x.element_size()].view(x.dtype)
        slots[self.rank] = x.detach().reshape(-1)
        deadline = time.monotonic() + TIMEOUT
        while (late := self._meet(self._counts, self.rank, self.size, self.turn)) >= 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"process {late} of {self.size} did not come to a sum within {TIMEOUT:g} s")
            time.sleep(0)  # another process may need this core
        return slots.sum(0, dtype=x.dtype).view_as(x)


def on_one_machine() -> bool:
    """Return whether all processes of the default group are on this machine."""
    return os.environ.get("LOCAL_WORLD_SIZE") == str(dist.get_world_size())
