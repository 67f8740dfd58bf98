"""Maps on an NVIDIA GPU: a thread a lane, and a CUDA graph of many steps that is replayed."""

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from adjoin.compiler.codegen.map_access import Map
from adjoin.compiler.codegen.map_memory import Layout, MapMemory
from adjoin.compiler.codegen.renderer import Limits, Rendered, Renderer
from adjoin.compiler.codegen.writer import Lane, Writer
from adjoin.compiler.runtime.backend import build
from adjoin.compiler.runtime.cache import Cache
from adjoin.compiler.runtime.cuda.driver import check, driver
from adjoin.compiler.runtime.cuda.early import CAPABILITY, WAIT, can_launch_early, launch_early
from adjoin.compiler.runtime.cuda.frame import BLOCK, REGISTERS, LocalStorage
from adjoin.compiler.runtime.cuda.kernel import CudaTarget
from adjoin.compiler.runtime.cuda.sort import sort_launches as sort_launches  # what a backend of maps has
from adjoin.compiler.runtime.cuda.staging import WARP
from adjoin.compiler.runtime.map_plan import Launch, in_order, padded
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


def render(map_: Map, lane: Lane, early: bool = False) -> Rendered:
    """Return the kernel, which takes its words, the address of the step's number, and what to add to that."""
    layout: Any = Layout(map_)
    w = Writer(lane)
    if early:
        w.line(WAIT.strip("\n"))
    words = [f"%w{i}" for i in range(layout.words)]
    storage, memory = LocalStorage(w, layout, words), WarpMemory(w, map_, words, _GLOBAL)
    renderer = Renderer(map_.program, w, memory, storage, Limits(REGISTERS * 32 // lane.bits, BLOCK))
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


class CudaMap:
    """A map on one GPU, for one float format.

    Attributes:
        workspace: bytes that a thread needs.
    """

    def __init__(self, map_: Map, bits: int, device: torch.device, cache: Cache | None = None):
        self.map = map_
        major, minor = torch.cuda.get_device_capability(device)
        processor = CudaTarget(major * 10 + minor)
        target = MapTarget(processor, map_, partial(render, early=processor.capability >= CAPABILITY))
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
        self.early = can_launch_early(self.index)

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
