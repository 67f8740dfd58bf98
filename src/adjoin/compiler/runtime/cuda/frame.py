"""The frame of a kernel on an NVIDIA GPU: one thread an environment; a warp shares its staging memory."""

from adjoin.compiler.codegen.layout import Layout
from adjoin.compiler.codegen.renderer import Limits, Rendered, Renderer
from adjoin.compiler.codegen.storage import Storage
from adjoin.compiler.codegen.writer import Lane, Writer
from adjoin.compiler.ir.program import Program
from adjoin.compiler.runtime.cuda.staging import WARP, StagingMemory

REGISTERS = 240  # 32-bit values that every program keeps alive; faster to compile and to run than unlimited
LARGE_PROGRAM = 30_000  # operations from which on a warp waits for memory more than for anything else
EARLY = 96  # nodes that take about as long as a load from the second cache
UNDER_WAY = 20  # registers for what is loaded early
REPEATS = 16  # operations that take less time than a value's way to memory and back
METADATA = '!0 = !{}\n!1 = distinct !{!1, !2}\n!2 = !{!"llvm.loop.unroll.disable"}'
BLOCK = 4000  # nodes of a basic block


class LocalStorage(Storage):
    """The stack is local memory. Each warp has a workspace, in which the same element of its threads lies side by side.

    Attributes:
        base: the operand that has the address of the thread's first element.
    """

    stack = "ptr addrspace(5)"
    constants = "ptr addrspace(1)"
    base = ""

    def begin(self, warp_start: str, lane_index: str) -> None:
        """Find the thread's part of the workspace."""
        w, kind = self.w, self.w.lane.float
        first = w.emit(f"mul i64 {warp_start}, %workspace.elements")
        first = w.emit(f"add i64 {first}, {w.emit(f'sext i32 {lane_index} to i64')}")
        space = w.emit(f"inttoptr i64 {self.words[self.layout.workspace]} to ptr addrspace(1)")
        self.base = w.emit(f"getelementptr {kind}, ptr addrspace(1) {space}, i64 {first}")

    def finish(self) -> None:
        """Compute at the start of the kernel how many elements a thread has."""
        super().finish()
        self.prologue.append(f"  %workspace.elements = add i64 {self._end()}, 0")

    def workspace_element(self, index: str) -> str:
        """The typed address of an element of the thread's workspace."""
        kind = f"[{WARP} x {self.w.lane.float}]"
        return f"ptr addrspace(1) {self.w.emit(f'getelementptr {kind}, ptr addrspace(1) {self.base}, i64 {index}')}"

    def hide_zero(self) -> None:
        """Make the zero of what differs between threads: the assembler drops fetches from where all look."""
        super().hide_zero()
        self.prologue.append("  %lanes.below = call i32 @llvm.nvvm.read.ptx.sreg.lanemask.lt()")
        self.prologue.append("  %none.below = lshr i32 %lanes.below, 31")
        self.prologue.append("  %apart = zext i32 %none.below to i64")
        self.w.declarations.add("declare i32 @llvm.nvvm.read.ptx.sreg.lanemask.lt()")
        self.zero = "%apart"

    def fetch(self, slot: int) -> None:
        """Ask the cache of the multiprocessor for a slot."""
        place = self.w.emit(f"ptrtoint {self.slot(slot)} to i64")
        self.w.line(f'  call void asm sideeffect "prefetch.local.L1 [$0];", "l"(i64 {place})')

    def reserve(self, name: str, elements: int, kind: str | None = None) -> str:
        """Allocate local memory under a name, at the start of the kernel."""
        super().reserve(f"{name}.generic", elements, kind)
        self.prologue.append(f"  {name} = addrspacecast ptr {name}.generic to {self.stack}")
        return name


def render(program: Program, lane: Lane) -> Rendered:
    """The kernel that takes the words of its layout as arguments."""
    layout = Layout.of(program)
    w = Writer(lane)
    words = [f"%w{i}" for i in range(layout.words)]
    storage, memory = LocalStorage(w, layout, words), StagingMemory(w, layout, words)
    under_way, early = (UNDER_WAY, EARLY) if program.operations >= LARGE_PROGRAM else (0, 0)
    limits = Limits((REGISTERS - under_way) * 32 // lane.bits, BLOCK, REPEATS, early)
    renderer = Renderer(program, w, memory, storage, limits)
    thread, block, size = (w.intrinsic(f"llvm.nvvm.read.ptx.sreg.{name}.x", "i32") for name in ("tid", "ctaid", "ntid"))
    lane_index = w.emit(f"and i32 {thread}, {WARP - 1}")
    warp = w.emit(f"lshr i32 {thread}, 5")
    block_start = w.emit(f"mul i64 {w.emit(f'zext i32 {block} to i64')}, {w.emit(f'zext i32 {size} to i64')}")
    warp_start = w.emit(f"sub i32 {thread}, {lane_index}")
    first = w.emit(f"add i64 {block_start}, {w.emit(f'zext i32 {warp_start} to i64')}")
    batch = words[layout.batch]
    outside = w.emit(f"icmp sge i64 {first}, {batch}")
    w.line(f"  br i1 {outside}, label %done, label %inside")
    w.label("inside")
    last = w.emit(f"sub i64 {w.emit(f'sub i64 {batch}, {first}')}, 1")
    last = w.intrinsic("llvm.smin.i64", "i64", ("i64", last), ("i64", str(WARP)))
    limit = w.emit(f"trunc i64 {last} to i32")
    offset = w.emit(f"mul i32 {warp}, SHARED")
    patch = len(w.lines) - 1
    base = w.emit(f"getelementptr {lane.scalar}, ptr addrspace(3) @shared, i32 {offset}")
    memory.begin(lane_index, first, limit, base)
    storage.begin(first, lane_index)
    storage.hide_zero()
    live = set(program.schedule.order)
    rows = [
        (i, spec)
        for i, (spec, nodes) in enumerate(zip(program.inputs, program.sources, strict=True))
        if not spec.shared and spec.steps is None and not spec.table and not live.isdisjoint(nodes)
    ]
    memory.fetch(rows)
    renderer.choose_order()
    renderer.run()
    w.lines[patch] = w.lines[patch].replace("SHARED", str(memory.offset))
    w.line("  br label %done")
    w.label("done")
    w.line("  ret void")
    head = f"define ptx_kernel void @kernel({', '.join(f'i64 {word}' for word in words)}) #0 {{"
    shared = f"@shared = external addrspace(3) global [0 x {lane.scalar}], align 16\n"
    return renderer.finish(head, shared, f"attributes #0 = {{ nounwind }}\n{METADATA}", memory.offset)
