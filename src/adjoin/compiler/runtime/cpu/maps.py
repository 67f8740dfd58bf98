"""Maps on a CPU: a kernel for a range of lanes, and one loop over steps and kernels for every thread."""

import ctypes
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm
import torch

from adjoin.compiler.codegen.map_access import Map
from adjoin.compiler.codegen.map_memory import CHUNK, Layout, MapMemory
from adjoin.compiler.codegen.renderer import Rendered, Renderer
from adjoin.compiler.codegen.writer import Lane, Writer
from adjoin.compiler.runtime.backend import build
from adjoin.compiler.runtime.cache import Cache
from adjoin.compiler.runtime.cpu.frame import ThreadStorage
from adjoin.compiler.runtime.cpu.kernel import host
from adjoin.compiler.runtime.cpu.objects import link
from adjoin.compiler.runtime.map_plan import Cells, Launch, cell_tables
from adjoin.compiler.runtime.map_target import MapTarget

WORTHWHILE = 30_000  # vector instructions a step from which a second thread pays: barriers cost about a microsecond

# Threads take fixed shares of the lanes, in order, so that a thread finds its lanes in its own cache at every step.
# They meet after each kernel: the count of arrivals is monotonic, and whoever waits long lets others run.
_DRIVER = """
declare i32 @sched_yield()
define void @drive(ptr %facts, i64 %thread) {
entry:
  %arrived.at = getelementptr i64, ptr %facts, i64 0
  %threads.at = getelementptr i64, ptr %facts, i64 1
  %first.at = getelementptr i64, ptr %facts, i64 2
  %count.at = getelementptr i64, ptr %facts, i64 3
  %sign.at = getelementptr i64, ptr %facts, i64 4
  %launches.at = getelementptr i64, ptr %facts, i64 5
  %threads = load i64, ptr %threads.at
  %start = load i64, ptr %first.at
  %count = load i64, ptr %count.at
  %sign = load i64, ptr %sign.at
  %launches = load i64, ptr %launches.at
  %next.thread = add i64 %thread, 1
  br label %steps
steps:
  %s = phi i64 [ 0, %entry ], [ %s.next, %step.end ]
  %goal0 = phi i64 [ 0, %entry ], [ %goal, %step.end ]
  %more = icmp slt i64 %s, %count
  br i1 %more, label %step.begin, label %done
step.begin:
  %moved = mul i64 %s, %sign
  %step = add i64 %start, %moved
  br label %launch
launch:
  %k = phi i64 [ 0, %step.begin ], [ %k.next, %launch.end ]
  %goal = phi i64 [ %goal0, %step.begin ], [ %goal.next, %launch.end ]
  %k.more = icmp slt i64 %k, %launches
  br i1 %k.more, label %launch.begin, label %step.end
launch.begin:
  %k.5 = mul i64 %k, 5
  %k.at = add i64 %k.5, 8
  %fn.at = getelementptr i64, ptr %facts, i64 %k.at
  %words.at = getelementptr i64, ptr %fn.at, i64 1
  %lanes.at = getelementptr i64, ptr %fn.at, i64 2
  %chunks.at = getelementptr i64, ptr %fn.at, i64 3
  %tasks.at = getelementptr i64, ptr %fn.at, i64 4
  %fn = load ptr, ptr %fn.at
  %words = load ptr, ptr %words.at
  %lanes = load i64, ptr %lanes.at
  %chunks = load i64, ptr %chunks.at
  %tasks = load i64, ptr %tasks.at
  %low.n = mul i64 %tasks, %thread
  %low = sdiv i64 %low.n, %threads
  %high.n = mul i64 %tasks, %next.thread
  %high = sdiv i64 %high.n, %threads
  br label %task
task:
  %t = phi i64 [ %low, %launch.begin ], [ %t.end, %run ]
  %t.more = icmp slt i64 %t, %high
  br i1 %t.more, label %run, label %meet
run:
  %variant = sdiv i64 %t, %chunks
  %variant.first = mul i64 %variant, %chunks
  %chunk = sub i64 %t, %variant.first
  %variant.next = add i64 %variant.first, %chunks
  %t.short = icmp slt i64 %variant.next, %high
  %t.end = select i1 %t.short, i64 %variant.next, i64 %high
  %run.chunks = sub i64 %t.end, %variant.first
  %begin = mul i64 %chunk, CHUNK
  %end.0 = mul i64 %run.chunks, CHUNK
  %inside = icmp slt i64 %end.0, %lanes
  %end = select i1 %inside, i64 %end.0, i64 %lanes
  call void %fn(ptr %words, i64 %step, i64 %variant, i64 %begin, i64 %end, i64 %thread)
  br label %task
meet:
  %goal.next = add i64 %goal, %threads
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %launch.end, label %arrive
arrive:
  %before = atomicrmw add ptr %arrived.at, i64 1 acq_rel
  br label %wait
wait:
  %turns = phi i64 [ 0, %arrive ], [ %turns.next, %wait.again ]
  %now = load atomic i64, ptr %arrived.at acquire, align 8
  %met = icmp sge i64 %now, %goal.next
  br i1 %met, label %launch.end, label %again
again:
  %turns.next = add i64 %turns, 1
  %long = icmp sgt i64 %turns, 2000
  br i1 %long, label %yield, label %wait.again
yield:
  %ignored = call i32 @sched_yield()
  br label %wait.again
wait.again:
  br label %wait
launch.end:
  %k.next = add i64 %k, 1
  br label %launch
step.end:
  %s.next = add i64 %s, 1
  br label %steps
done:
  ret void
}
"""


# The particles of each cell in their own order: one pass, so that sums over cells have a fixed order.
_SORT = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define void @sort(ptr %words, i64 %step, i64 %variant, i64 %begin, i64 %end, i64 %thread) {
entry:
LOADS
TABLES
  %bytes = mul i64 %w8, 4
  call void @llvm.memset.p0.i64(ptr %counts, i8 0, i64 %bytes, i1 false)
  br label %loop
loop:
  %p = phi i64 [ 0, %entry ], [ %p.next, %next ]
  %more = icmp slt i64 %p, %w7
  br i1 %more, label %body, label %done
body:
  %cell.at = getelementptr i32, ptr %cell, i64 %p
  %c = load i32, ptr %cell.at
  %c.64 = sext i32 %c to i64
  %count.at = getelementptr i32, ptr %counts, i64 %c.64
  %count = load i32, ptr %count.at
  %count.64 = sext i32 %count to i64
  %fits = icmp slt i64 %count.64, %w6
  br i1 %fits, label %place, label %full
place:
  %row = mul i64 %c.64, %w6
  %slot = add i64 %row, %count.64
  %slot.at = getelementptr i32, ptr %slots, i64 %slot
  %p.32 = trunc i64 %p to i32
  store i32 %p.32, ptr %slot.at
  %count.next = add i32 %count, 1
  store i32 %count.next, ptr %count.at
  br label %next
full:
  store i32 1, ptr %overflow
  br label %next
next:
  %p.next = add i64 %p, 1
  br label %loop
done:
  ret void
}
"""


class MapStorage(ThreadStorage):
    """Threads have their workspaces one after the other; a kernel finds its own by the number of its thread."""

    def finish(self) -> None:
        """Compute at the start of the kernel where its workspace is."""
        super().finish()
        self.prologue += [
            f"  %workspace.elements = add i64 {self._end()}, 0",
            "  %workspace.first = mul i64 %thread, %workspace.elements",
            f"  %workspace.all = inttoptr i64 {self.words[self.layout.workspace]} to ptr",
            f"  %workspace = getelementptr {self.w.lane.float}, ptr %workspace.all, i64 %workspace.first",
        ]


def render(map_: Map, lane: Lane) -> Rendered:
    """Return the kernel `void kernel(words, step, variant, begin, end, thread)` for a range of lanes, in LLVM IR."""
    layout: Any = Layout(map_)
    w = Writer(lane)
    words = []
    for i in range(layout.words):
        words.append(w.emit(f"load i64, ptr {w.emit(f'getelementptr i64, ptr %words, i64 {i}')}"))
    memory = MapMemory(w, map_, words)
    memory.begin("%step", "%variant")
    storage = MapStorage(w, layout, words)
    renderer = Renderer(map_.program, w, memory, storage)
    w.line("  br label %blocks")
    w.label("blocks")
    w.line("  %first = phi i64 [ %begin, %entry ], [ %next, %NEXT ]")
    patch = len(w.lines) - 1
    w.line("  %more = icmp slt i64 %first, %end\n  br i1 %more, label %block, label %done")
    w.label("block")
    memory.first = "%first"
    renderer.run()
    w.lines[patch] = w.lines[patch].replace("%NEXT", f"%{w.block}")
    w.line(f"  %next = add i64 %first, {lane.width}\n  br label %blocks")
    w.label("done")
    w.line("  ret void")
    head = "define void @kernel(ptr noalias %words, i64 %step, i64 %variant, i64 %begin, i64 %end, i64 %thread) #0 {"
    bits = max(128, lane.width * lane.bits)
    attributes = f'attributes #0 = {{ nounwind alignstack={bits // 8} "min-legal-vector-width"="{bits}" }}'
    return renderer.finish(head, "", attributes)


class CpuMap:
    """A map in memory, for one float format.

    Attributes:
        workspace: bytes that a thread needs.
    """

    def __init__(self, map_: Map, bits: int, cache: Cache | None = None):
        self.map = map_
        target = MapTarget(host(), map_, render)
        (lane,) = target.lanes(bits)
        binary = build(map_.program, lane, target, cache or Cache())
        self.engine, self.library = link(binary.code, host().machine(), "kernel")
        self.address: int = self.library["kernel"]
        self.work = map_.program.work / lane.width
        self.workspace = binary.workspace[""] * lane.width * lane.bits // 8


@dataclass(frozen=True)
class CpuSort:
    """The code that sorts particles into cells; one lane does it."""

    address: int
    work: float = 0.0
    workspace: int = 0


def sort_launches(cells: Cells) -> list[Launch]:
    """Return what sorts the particles of every variant into their cells."""
    _, address, _ = _driver()
    keep = (cells.cell.tensor, cells.counts, cells.slots, cells.overflow)
    return [Launch(CpuSort(address), 1, cells.words, keep)]


def compile_map(map_: Map, bits: int, device: torch.device) -> CpuMap:
    """Return a map, ready to run."""
    return CpuMap(map_, bits)


def sums(lanes: int, bits: int) -> tuple[int, int]:
    """Return how many slots a sum over lanes has, and how many numbers a slot has for each column."""
    return -(-lanes // CHUNK), host().lane(bits).width


def steps_at_once(lanes: int) -> int:
    """Return for how many steps a launch of so many lanes had better run: a CPU is busy with one."""
    return 1


def run(launches: Sequence[Launch], first: int, count: int, sign: int, variants: int) -> None:
    """Run launches one after the other for each of some steps: first, first + sign, ..."""
    if not launches or count <= 0:
        return
    work = sum(launch.lanes * launch.map.work for launch in launches) * variants
    largest = max(-(-launch.lanes // CHUNK) * variants for launch in launches)
    threads = 1 if work < WORTHWHILE else min(torch.get_num_threads(), largest)
    space = torch.empty(threads * max(launch.map.workspace for launch in launches), dtype=torch.uint8)
    keep = []
    facts = [0, threads, first, count, sign, len(launches), 0, 0]
    for launch in launches:
        words = (ctypes.c_int64 * len(launch.words))(*launch.words)
        if launch.map.workspace:
            words[len(words) - 1] = space.data_ptr()
        keep.append(words)
        chunks = -(-launch.lanes // CHUNK)
        facts += [launch.map.address, ctypes.addressof(words), launch.lanes, chunks, chunks * variants]
    memory = (ctypes.c_int64 * len(facts))(*facts)
    drive = _driver()[0]
    if threads == 1:
        drive(memory, 0)
        return
    futures = [_pool(os.getpid(), threads - 1).submit(drive, memory, i) for i in range(1, threads)]
    drive(memory, 0)
    for future in futures:
        future.result()


@lru_cache(maxsize=1)
def _driver() -> tuple[Any, int, Any]:
    """Return the loop over steps, the address of the sort, and what keeps them alive."""
    engine = llvm.create_lljit_compiler()
    loads = [f"  %a{i} = getelementptr i64, ptr %words, i64 {i}\n  %w{i} = load i64, ptr %a{i}" for i in range(12)]
    sort = _SORT.replace("LOADS", "\n".join(loads)).replace("TABLES", cell_tables("ptr"))
    text = _DRIVER.replace("CHUNK", str(CHUNK)) + sort
    builder = llvm.JITLibraryBuilder().add_ir(text).add_current_process()
    library = builder.export_symbol("drive").export_symbol("sort").link(engine, "maps")
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    return prototype(library["drive"]), library["sort"], (engine, library)


@lru_cache(maxsize=4)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return the threads of this process; a forked child gets its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="adjoin-maps")
