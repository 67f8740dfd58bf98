"""Maps on an NVIDIA GPU: a thread a lane, and a CUDA graph of many steps that is replayed."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from adjoin.compiler.codegen.renderer import Rendered, Renderer
from adjoin.compiler.codegen.writer import Lane, Writer
from adjoin.compiler.maps.access import Map
from adjoin.compiler.maps.memory import Layout, MapMemory
from adjoin.compiler.maps.plan import Launch
from adjoin.compiler.runtime.backend import build
from adjoin.compiler.runtime.cache import Cache
from adjoin.compiler.runtime.cuda.driver import check, driver
from adjoin.compiler.runtime.cuda.frame import BLOCK, REGISTERS, LocalStorage
from adjoin.compiler.runtime.cuda.kernel import CudaTarget
from adjoin.compiler.runtime.cuda.staging import WARP
from adjoin.errors import CompileError

GRAPH = 64  # steps of a graph: so many that a replay's own cost vanishes beside them
_GLOBAL = "ptr addrspace(1)"


class WarpMemory(MapMemory):
    """Sums over lanes are those of warps, added pairwise in a fixed order."""

    thread = ""

    def reduce(self, binding: int, size: int, column: int, value: str) -> None:
        """Add a column to the sums of the warp."""
        w, lane = self.w, self.w.lane
        valid = w.emit(f"icmp slt i64 {self.first}, {self.words[self.map.words]}")
        value = w.select(valid, value, w.const(0.0))
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


def render(map_: Map, lane: Lane) -> Rendered:
    """Return the kernel, which takes its words, the address of the step's number, and what to add to that."""
    layout: Any = Layout(map_)
    w = Writer(lane)
    words = [f"%w{i}" for i in range(layout.words)]
    storage, memory = LocalStorage(w, layout, words), WarpMemory(w, map_, words, _GLOBAL)
    renderer = Renderer(map_.program, w, memory, storage, REGISTERS * 32 // lane.bits, BLOCK)
    thread, block, size = (w.intrinsic(f"llvm.nvvm.read.ptx.sreg.{name}.x", "i32") for name in ("tid", "ctaid", "ntid"))
    row = w.intrinsic("llvm.nvvm.read.ptx.sreg.ctaid.y", "i32")
    start = w.emit(f"mul i64 {w.emit(f'zext i32 {block} to i64')}, {w.emit(f'zext i32 {size} to i64')}")
    memory.first = w.emit(f"add i64 {start}, {w.emit(f'zext i32 {thread} to i64')}")
    memory.thread = w.emit(f"and i32 {thread}, {WARP - 1}")
    warp_start = w.emit(f"and i64 {memory.first}, {-WARP}")
    outside = w.emit(f"icmp sge i64 {warp_start}, {words[layout.batch]}")
    w.line(f"  br i1 {outside}, label %done, label %inside")
    w.label("inside")
    counter = w.emit(f"inttoptr i64 %counter to {_GLOBAL}")
    step = w.emit(f"add i64 {w.emit(f'load i64, {_GLOBAL} {counter}')}, %offset")
    storage.thread = memory.first
    storage.hide_zero()
    memory.begin(step, w.emit(f"zext i32 {row} to i64"))
    renderer.run()
    w.line("  br label %done")
    w.label("done")
    w.line("  ret void")
    arguments = ", ".join(f"i64 {word}" for word in (*words, "%counter", "%offset"))
    head = f"define ptx_kernel void @kernel({arguments}) #0 {{"
    rendered = renderer.finish(head, "", "attributes #0 = { nounwind }\n!0 = !{}")
    if any(rendered.workspace.values()):
        raise CompileError(f"{map_.program.name}: a map's scratch arrays must fit the stack")
    return rendered


@dataclass(frozen=True)
class MapTarget:
    """A GPU to compile a map for; see `adjoin.compiler.runtime.backend.Target`."""

    gpu: CudaTarget
    digest: str
    map: Map

    def __repr__(self) -> str:
        return f"map {self.digest} for {self.gpu!r}"

    @property
    def description(self) -> str:
        """Return what it is, for messages."""
        return self.gpu.description

    def lanes(self, bits: int) -> tuple[Lane, ...]:
        """Return the lane type of a thread."""
        return self.gpu.lanes(bits)

    def render(self, program: Any, lane: Lane) -> Rendered:
        """Return the text of the kernel."""
        return render(self.map, lane)

    def compile(self, rendered: Rendered) -> bytes:
        """Return machine code."""
        return self.gpu.compile(rendered)


class CudaMap:
    """A map on one GPU, for one float format."""

    def __init__(self, map_: Map, bits: int, device: torch.device, cache: Cache | None = None):
        self.map = map_
        major, minor = torch.cuda.get_device_capability(device)
        target = MapTarget(CudaTarget(major * 10 + minor), map_.digest, map_)
        (lane,) = target.lanes(bits)
        binary = build(map_.program, lane, target, cache or Cache())
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


def run(launches: Sequence[Launch], first: int, count: int, sign: int, variants: int) -> None:
    """Run launches one after the other for each of some steps: first, first + sign, ..."""
    if not launches or count <= 0:
        return
    device = launches[0].keep[0].device
    with torch.cuda.device(device):
        counter = torch.tensor([first], dtype=torch.int64, device=device)
        replays = count // GRAPH if count >= 2 * GRAPH else 0
        if replays:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                _enqueue(launches, counter, GRAPH, sign, variants)
                counter.add_(sign * GRAPH)
            for _ in range(replays):
                graph.replay()
            torch.cuda.current_stream().synchronize()  # the graph and its memory must outlive the replays
        _enqueue(launches, counter, count - replays * GRAPH, sign, variants)


def _enqueue(launches: Sequence[Launch], counter: torch.Tensor, count: int, sign: int, variants: int) -> None:
    stream = torch._C._cuda_getCurrentRawStream(counter.device.index)
    for step in range(count):
        for launch in launches:
            threads = 64 if launch.lanes * variants < 1 << 18 else 128
            words = (*launch.words, counter.data_ptr(), sign * step)
            arguments = (ctypes.c_int64 * len(words))(*words)
            size = ctypes.c_size_t(8 * len(words))
            extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(arguments), 2, ctypes.addressof(size), 0)
            blocks = -(-launch.lanes // threads)
            check(
                driver().cuLaunchKernel(launch.map.function, blocks, variants, 1, threads, 1, 1, 0, stream, None, extra)
            )
