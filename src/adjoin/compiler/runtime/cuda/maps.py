"""Maps on an NVIDIA GPU: a thread a lane, and a CUDA graph of many steps that is replayed."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch

from adjoin.compiler.codegen.map_access import Map
from adjoin.compiler.codegen.map_memory import Layout, MapMemory
from adjoin.compiler.codegen.renderer import Rendered, Renderer
from adjoin.compiler.codegen.writer import Lane, Writer
from adjoin.compiler.runtime.backend import build
from adjoin.compiler.runtime.cache import Cache
from adjoin.compiler.runtime.cuda.driver import check, driver, driver_version, launch_early
from adjoin.compiler.runtime.cuda.frame import BLOCK, REGISTERS, LocalStorage
from adjoin.compiler.runtime.cuda.kernel import CudaTarget
from adjoin.compiler.runtime.cuda.staging import WARP
from adjoin.compiler.runtime.map_plan import Cells, Launch, in_order, padded
from adjoin.compiler.runtime.map_target import MapTarget
from adjoin.errors import InputError

GRAPH = 64  # steps of a graph of a long run, whose own cost vanishes beside them; a quarter of it in short runs
SMALL = 1 << 18  # lanes up to which small blocks spread better over the multiprocessors
LARGEST_GRID = 65_535  # of blocks along its second axis
_GLOBAL = "ptr addrspace(1)"


class WarpMemory(MapMemory):
    """Sums over lanes are those of warps, added pairwise in a fixed order."""

    thread = ""

    def reduce(self, binding: int, size: int, column: int, value: str) -> None:
        """Add a column to the sums of the warp."""
        w, lane = self.w, self.w.lane
        value = self._of_members(value)
        for distance in (16, 8, 4, 2, 1):
            value = w.add(value, self._from_lane(value, distance))
        leader = w.emit(f"icmp eq i32 {self.thread}, 0")
        label = w.name()[1:]
        w.line(f"  br i1 {leader}, label %{label}, label %{label}.e")
        w.label(label)
        warp = w.emit(f"lshr i64 {self.first}, 5")
        place = self._at(binding, w.emit(f"add i64 {w.emit(f'mul i64 {warp}, {size}')}, {column}"))
        total = w.add(self._load(lane.scalar, place), value)
        w.line(f"  store {lane.scalar} {total}, {self.pointer} {place}, align {lane.bits // 8}")
        w.line(f"  br label %{label}.e")
        w.label(f"{label}.e")

    def _from_lane(self, value: str, distance: int) -> str:
        """Return the value of the lane whose number differs in one bit."""
        w = self.w

        def shuffle(word: str) -> str:
            arguments = (("i32", "-1"), ("i32", word), ("i32", str(distance)), ("i32", "31"))
            return w.intrinsic("llvm.nvvm.shfl.sync.bfly.i32", "i32", *arguments)

        if w.lane.bits == 32:
            bits = shuffle(w.emit(f"bitcast float {value} to i32"))
            return w.emit(f"bitcast i32 {bits} to float")
        bits = w.emit(f"bitcast double {value} to i64")
        low = w.emit(f"trunc i64 {bits} to i32")
        high = w.emit(f"trunc i64 {w.emit(f'lshr i64 {bits}, 32')} to i32")
        low, high = (w.emit(f"zext i32 {shuffle(word)} to i64") for word in (low, high))
        return w.emit(f"bitcast i64 {w.emit(f'or i64 {low}, ' + w.emit(f'shl i64 {high}, 32'))} to double")


# Blocks of a kernel take their places while the kernel before it still runs, wait there until it has ended and its
# results are seen, and let the blocks of the next kernel do the same. So launching costs less.
_EARLY = """
  call void asm sideeffect "griddepcontrol.wait;", "~{memory}"()
  call void asm sideeffect "griddepcontrol.launch_dependents;", "~{memory}"()
"""


def begins_early(capability: int) -> bool:
    """Return whether kernels of a GPU can begin before the one before has ended."""
    return capability >= 90


def render(map_: Map, lane: Lane, early: bool = False) -> Rendered:
    """Return the kernel, which takes its words, the address of the step's number, and what to add to that."""
    layout: Any = Layout(map_)
    w = Writer(lane)
    if early:
        w.line(_EARLY.strip("\n"))
    words = [f"%w{i}" for i in range(layout.words)]
    storage, memory = LocalStorage(w, layout, words), WarpMemory(w, map_, words, _GLOBAL)
    renderer = Renderer(map_.program, w, memory, storage, REGISTERS * 32 // lane.bits, BLOCK)
    thread, block, size = (w.intrinsic(f"llvm.nvvm.read.ptx.sreg.{name}.x", "i32") for name in ("tid", "ctaid", "ntid"))
    row, later, rows = (
        w.intrinsic(f"llvm.nvvm.read.ptx.sreg.{name}", "i32") for name in ("ctaid.y", "ctaid.z", "nctaid.y")
    )
    start = w.emit(f"mul i64 {w.emit(f'zext i32 {block} to i64')}, {w.emit(f'zext i32 {size} to i64')}")
    memory.first = w.emit(f"add i64 {start}, {w.emit(f'zext i32 {thread} to i64')}")
    memory.thread = w.emit(f"and i32 {thread}, {WARP - 1}")
    warp_start = w.emit(f"and i64 {memory.first}, {-WARP}")
    outside = w.emit(f"icmp sge i64 {warp_start}, {words[layout.batch]}")
    w.line(f"  br i1 {outside}, label %done, label %inside")
    w.label("inside")
    counter = w.emit(f"inttoptr i64 %counter to {_GLOBAL}")
    lowest = w.emit(f"add i64 {w.emit(f'load i64, {_GLOBAL} {counter}')}, %offset")
    step = w.emit(f"add i64 {lowest}, {w.emit(f'zext i32 {later} to i64')}")
    storage.hide_zero()
    variant = w.emit(f"zext i32 {row} to i64")
    members = w.emit(f"and i64 {w.emit(f'add i64 {words[layout.batch]}, {WARP - 1}')}, {-WARP}")
    before = w.emit(f"zext i32 {w.emit(f'add i32 {row}, ' + w.emit(f'mul i32 {later}, {rows}'))} to i64")
    own = w.emit(f"add i64 {warp_start}, {w.emit(f'mul i64 {before}, {members}')}")
    storage.begin(own, memory.thread)
    memory.begin(step, variant)
    renderer.run()
    w.line("  br label %done")
    w.label("done")
    w.line("  ret void")
    arguments = ", ".join(f"i64 {word}" for word in (*words, "%counter", "%offset"))
    head = f"define ptx_kernel void @kernel({arguments}) #0 {{"
    return renderer.finish(head, "", "attributes #0 = { nounwind }\n!0 = !{}")


# Particles take slots of their cell as they come. Then a thread puts the particles of each cell in order, and makes the
# number of slots that are taken zero again for the next sort.
_SORT = """
define ptx_kernel void @fill(ARGUMENTS) {
entry:
EARLY
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
EARLY
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
  %turn = and i64 %step, %w10
  %turn.first = mul i64 %turn, %w11
  %table = add i64 %turn.first, %variant
  %cell.b = inttoptr i64 %w0 to GLOBAL
  %cell.v = mul i64 %w1, %table
  %cell = getelementptr i32, GLOBAL %cell.b, i64 %cell.v
  %counts.b = inttoptr i64 %w2 to GLOBAL
  %counts.v = mul i64 %w3, %table
  %counts = getelementptr i32, GLOBAL %counts.b, i64 %counts.v
  %slots.b = inttoptr i64 %w4 to GLOBAL
  %slots.v = mul i64 %w5, %table
  %slots = getelementptr i32, GLOBAL %slots.b, i64 %slots.v
  %taken.b = inttoptr i64 %w12 to GLOBAL
  %taken = getelementptr i32, GLOBAL %taken.b, i64 %counts.v
  %overflow.b = inttoptr i64 %w9 to GLOBAL
  %overflow = getelementptr i32, GLOBAL %overflow.b, i64 %table
"""


def sort_text(early: bool = False) -> str:
    """Return the kernels that sort particles into cells."""
    arguments = ", ".join([*[f"i64 %w{i}" for i in range(13)], "i64 %counter", "i64 %offset"])
    text = _SORT.replace("EARLY", _EARLY if early else "").replace("HEAD", _SORT_HEAD)
    return text.replace("ARGUMENTS", arguments).replace("GLOBAL", _GLOBAL)


def _target(device: torch.device) -> CudaTarget:
    major, minor = torch.cuda.get_device_capability(device)
    return CudaTarget(major * 10 + minor)


@lru_cache(maxsize=4)
def _sort_functions(index: int) -> dict[str, ctypes.c_void_p]:
    device = torch.device("cuda", index)
    target = _target(device)
    text = sort_text(begins_early(target.capability))
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


class CudaMap:
    """A map on one GPU, for one float format.

    Attributes:
        workspace: bytes that a thread needs.
    """

    def __init__(self, map_: Map, bits: int, device: torch.device, cache: Cache | None = None):
        self.map = map_
        processor = _target(device)
        target = MapTarget(processor, map_, partial(render, early=begins_early(processor.capability)))
        (lane,) = target.lanes(bits)
        binary = build(map_.program, lane, target, cache or Cache())
        self.workspace = binary.workspace[""] * lane.bits // 8
        with torch.cuda.device(device):
            torch.cuda.current_stream()  # the context exists from here on
            self.module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
            check(driver().cuModuleLoadData(ctypes.byref(self.module), binary.code))
            check(driver().cuModuleGetFunction(ctypes.byref(self.function), self.module, b"kernel"))


def compile_map(map_: Map, bits: int, device: torch.device) -> CudaMap:
    """Return a map, ready to run."""
    return CudaMap(map_, bits, device)


def sums(lanes: int, bits: int) -> tuple[int, int]:
    """Return how many slots a sum over lanes has, and how many numbers a slot has for each column."""
    return -(-lanes // WARP), 1


def steps_at_once(lanes: int) -> int:
    """Return for how many steps a launch of so many lanes had better run: a power of two, until the GPU is busy."""
    steps = 1
    while 2 * steps <= GRAPH // 4 and 2 * steps * lanes <= SMALL:
        steps *= 2
    return steps


def run(launches: Sequence[Launch], first: int, count: int, sign: int, variants: int) -> None:
    """Run launches one after the other for each of some steps: first, first + sign, ..."""
    if not launches or count <= 0:
        return
    if variants > LARGEST_GRID:
        raise InputError(f"a GPU runs at most {LARGEST_GRID} variants at a time, got {variants}")
    device = launches[0].keep[0].device
    with torch.cuda.device(device):
        counter = torch.tensor([first], dtype=torch.int64, device=device)
        space = max(launch.map.workspace * padded(launch.lanes) * variants * launch.steps for launch in launches)
        workspace = torch.empty(space, dtype=torch.uint8, device=device)  # one launch after the other uses it
        calls = [_Enqueued(launch, counter, variants, workspace) for launch in launches]
        length = GRAPH if count > 64 * GRAPH else GRAPH // 4
        replays = count // length if count >= 4 * length else 0
        if replays:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.stream(torch.cuda.Stream()):  # torch.cuda.graph would give back all unused memory first
                graph.capture_begin()
                try:
                    _enqueue(launches, calls, length, sign)
                    counter.add_(sign * length)
                finally:
                    graph.capture_end()
            for _ in range(replays):
                graph.replay()
            torch.cuda.current_stream().synchronize()  # the graph and its memory must outlive the replays
        _enqueue(launches, calls, count - replays * length, sign)


class _Enqueued:
    """A launch with the memory of its arguments, which the driver reads while it enqueues."""

    def __init__(self, launch: Launch, counter: torch.Tensor, variants: int, workspace: torch.Tensor):
        own = (*launch.words[:-1], workspace.data_ptr()) if launch.map.workspace else launch.words
        words = (*own, counter.data_ptr(), 0)
        self.arguments = (ctypes.c_int64 * len(words))(*words)
        self.size = ctypes.c_size_t(8 * len(words))
        self.extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(self.arguments), 2, ctypes.addressof(self.size), 0)
        self.threads = 64 if launch.lanes * variants * launch.steps <= SMALL else 128
        self.blocks = -(-launch.lanes // self.threads)
        self.variants, self.function, self.index = variants, launch.map.function, counter.device.index
        # Graphs have kernels that begin early since CUDA 12.3.
        self.early = begins_early(_target(counter.device).capability) and driver_version() >= 12030

    def enqueue(self, offset: int, steps: int, stream: int) -> None:
        self.arguments[len(self.arguments) - 1] = offset
        shape = (self.blocks, self.variants, steps, self.threads, 1, 1, 0)
        if self.early:
            launch_early(self.function, shape, stream, self.extra)
        else:
            check(driver().cuLaunchKernel(self.function, *shape, stream, None, self.extra))


def _enqueue(launches: Sequence[Launch], calls: Sequence[_Enqueued], count: int, sign: int) -> None:
    stream = torch._C._cuda_getCurrentRawStream(calls[0].index)
    for i, offset, steps in in_order(launches, count, sign):
        calls[i].enqueue(offset, steps, stream)
