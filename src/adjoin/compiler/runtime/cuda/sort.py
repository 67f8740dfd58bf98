"""The sort of particles into the cells of a grid, on an NVIDIA GPU."""

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from adjoin.compiler.codegen.renderer import Rendered
from adjoin.compiler.runtime.cuda.driver import check, driver
from adjoin.compiler.runtime.cuda.early import CAPABILITY, WAIT
from adjoin.compiler.runtime.cuda.kernel import CudaTarget
from adjoin.compiler.runtime.map_plan import Cells, Launch, cell_tables

_GLOBAL = "ptr addrspace(1)"

# Particles take slots of their cell as they come. Then a thread puts the particles of each cell in order, and makes the
# number of slots that are taken zero again for the next sort.
_SORT = """
define ptx_kernel void @fill(ARGUMENTS) {
entry:
WAIT
HEAD
  %outside = icmp sge i64 %lane, %w7
  br i1 %outside, label %done, label %work
work:
  %cell.at = getelementptr i32, GLOBAL %cell, i64 %lane
  %c = load i32, GLOBAL %cell.at
  %c.64 = sext i32 %c to i64
  %count.at = getelementptr i32, GLOBAL %taken, i64 %c.64
  %count = atomicrmw add GLOBAL %count.at, i32 1 monotonic
  %count.64 = sext i32 %count to i64
  %fits = icmp slt i64 %count.64, %w6
  br i1 %fits, label %place, label %full
place:
  %row = mul i64 %c.64, %w6
  %slot = add i64 %row, %count.64
  %slot.at = getelementptr i32, GLOBAL %slots, i64 %slot
  %p = trunc i64 %lane to i32
  store i32 %p, GLOBAL %slot.at
  br label %done
full:
  store i32 1, GLOBAL %overflow
  br label %done
done:
  ret void
}
define ptx_kernel void @order(ARGUMENTS) {
entry:
WAIT
HEAD
  %outside = icmp sge i64 %lane, %w8
  br i1 %outside, label %done, label %begin
begin:
  %taken.at = getelementptr i32, GLOBAL %taken, i64 %lane
  %all = load i32, GLOBAL %taken.at
  store i32 0, GLOBAL %taken.at
  %capacity = trunc i64 %w6 to i32
  %over = icmp sgt i32 %all, %capacity
  %held = select i1 %over, i32 %capacity, i32 %all
  %count.at = getelementptr i32, GLOBAL %counts, i64 %lane
  store i32 %held, GLOBAL %count.at
  %count = sext i32 %held to i64
  %row = mul i64 %lane, %w6
  %list = getelementptr i32, GLOBAL %slots, i64 %row
  br label %outer
outer:
  %i = phi i64 [ 1, %begin ], [ %i.next, %put ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %take, label %done
take:
  %i.at = getelementptr i32, GLOBAL %list, i64 %i
  %key = load i32, GLOBAL %i.at
  br label %inner
inner:
  %j = phi i64 [ %i, %take ], [ %j.next, %shift ]
  %front = icmp sgt i64 %j, 0
  br i1 %front, label %compare, label %put
compare:
  %j.next = sub i64 %j, 1
  %before.at = getelementptr i32, GLOBAL %list, i64 %j.next
  %before = load i32, GLOBAL %before.at
  %larger = icmp sgt i32 %before, %key
  br i1 %larger, label %shift, label %put
shift:
  %j.at = getelementptr i32, GLOBAL %list, i64 %j
  store i32 %before, GLOBAL %j.at
  br label %inner
put:
  %put.at = getelementptr i32, GLOBAL %list, i64 %j
  store i32 %key, GLOBAL %put.at
  %i.next = add i64 %i, 1
  br label %outer
done:
  ret void
}
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.z()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
"""
_SORT_HEAD = """
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %variant.32 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
  %size = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %start.32 = mul i32 %block, %size
  %lane.32 = add i32 %start.32, %tid
  %lane = zext i32 %lane.32 to i64
  %variant = zext i32 %variant.32 to i64
  %later.32 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.z()
  %later = zext i32 %later.32 to i64
  %counter.at = inttoptr i64 %counter to GLOBAL
  %first = load i64, GLOBAL %counter.at
  %lowest = add i64 %first, %offset
  %step = add i64 %lowest, %later
TABLES
  %taken.b = inttoptr i64 %w12 to GLOBAL
  %taken = getelementptr i32, GLOBAL %taken.b, i64 %counts.v
"""


def sort_text(early: bool = False) -> str:
    """Return the kernels that sort particles into cells."""
    arguments = ", ".join([*[f"i64 %w{i}" for i in range(13)], "i64 %counter", "i64 %offset"])
    text = _SORT.replace("WAIT", WAIT if early else "").replace("HEAD", _SORT_HEAD)
    text = text.replace("TABLES", cell_tables(_GLOBAL))
    return text.replace("ARGUMENTS", arguments).replace("GLOBAL", _GLOBAL)


@lru_cache(maxsize=4)
def _sort_functions(index: int) -> dict[str, ctypes.c_void_p]:
    device = torch.device("cuda", index)
    major, minor = torch.cuda.get_device_capability(device)
    target = CudaTarget(major * 10 + minor)
    text = sort_text(target.capability >= CAPABILITY)
    code = target.compile(Rendered(text, Any))  # pyright: ignore[reportArgumentType]
    functions = {}
    with torch.cuda.device(device):
        torch.cuda.current_stream()
        module = ctypes.c_void_p()
        check(driver().cuModuleLoadData(ctypes.byref(module), code))
        for name in ("fill", "order"):
            functions[name] = ctypes.c_void_p()
            check(driver().cuModuleGetFunction(ctypes.byref(functions[name]), module, name.encode()))
    return functions


@dataclass(frozen=True)
class CudaSort:
    """A kernel of the sort of particles into cells."""

    function: ctypes.c_void_p
    workspace: int = 0


def sort_launches(cells: Cells) -> list[Launch]:
    """Return what sorts the particles of every variant into their cells."""
    device = cells.counts.device
    functions = _sort_functions(torch.cuda.current_device() if device.index is None else device.index)
    taken = torch.zeros_like(cells.counts)
    keep = (cells.cell.tensor, cells.counts, cells.slots, cells.overflow, taken)
    words = (*cells.words, taken.data_ptr() + cells.margin * taken.element_size())
    return [
        Launch(CudaSort(functions[name]), lanes, words, keep)
        for name, lanes in (("fill", cells.particles), ("order", cells.cells))
    ]
