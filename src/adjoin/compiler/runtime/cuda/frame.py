"""The frame of a kernel on an NVIDIA GPU: one thread an environment; a warp shares its staging memory."""

from adjoin.compiler.codegen.layout import Layout
from adjoin.compiler.codegen.renderer import Limits, Rendered, Renderer
from adjoin.compiler.codegen.storage import Storage
from adjoin.compiler.codegen.team.affinity import affinity_of
from adjoin.compiler.codegen.team.fission import split_loops
from adjoin.compiler.codegen.team.parts import make_parts
from adjoin.compiler.codegen.team.placement import choose_homes, divide
from adjoin.compiler.codegen.team.renderer import PartRenderer, rows_of
from adjoin.compiler.codegen.writer import Lane, Writer
from adjoin.compiler.ir.program import Program, TensorSpec
from adjoin.compiler.runtime.cuda.staging import WARP, StagingMemory

REGISTERS = 240  # 32-bit values that every program keeps alive; faster to compile and to run than unlimited
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

    def reserve(self, name: str, elements: int, kind: str | None = None) -> str:
        """Allocate local memory under a name, at the start of the kernel."""
        super().reserve(f"{name}.generic", elements, kind)
        self.prologue.append(f"  {name} = addrspacecast ptr {name}.generic to {self.stack}")
        return name


def render(program: Program, lane: Lane, warps: int = 1) -> Rendered:
    """The kernel that takes the words of its layout as arguments.

    Args:
        program: what it computes.
        lane: the type of a scalar.
        warps: how many work on the same environments.
    """
    layout = Layout.of(program)
    w = Writer(lane)
    words = [f"%w{i}" for i in range(layout.words)]
    storage, memory = LocalStorage(w, layout, words), StagingMemory(w, layout, words)
    thread, block, size = (w.intrinsic(f"llvm.nvvm.read.ptx.sreg.{name}.x", "i32") for name in ("tid", "ctaid", "ntid"))
    lane_index = w.emit(f"and i32 {thread}, {WARP - 1}")
    warp = w.emit(f"lshr i32 {thread}, 5")
    rows, within, offset = size, w.emit(f"sub i32 {thread}, {lane_index}"), w.emit(f"mul i32 {warp}, SHARED")
    if warps > 1:
        rows, within, offset = str(WARP), "0", "0"
    patch = len(w.lines) - 1
    block_start = w.emit(f"mul i64 {w.emit(f'zext i32 {block} to i64')}, {w.emit(f'zext i32 {rows} to i64')}")
    first = w.emit(f"add i64 {block_start}, {w.emit(f'zext i32 {within} to i64')}")
    batch = words[layout.batch]
    outside = w.emit(f"icmp sge i64 {first}, {batch}")
    w.line(f"  br i1 {outside}, label %done, label %inside")
    w.label("inside")
    last = w.emit(f"sub i64 {w.emit(f'sub i64 {batch}, {first}')}, 1")
    last = w.intrinsic("llvm.smin.i64", "i64", ("i64", last), ("i64", str(WARP)))
    limit = w.emit(f"trunc i64 {last} to i32")
    base = w.emit(f"getelementptr {lane.scalar}, ptr addrspace(3) @shared, i32 {offset}")
    memory.begin(lane_index, first, limit, base)
    storage.begin(first, lane_index)
    storage.hide_zero()
    live = set(program.schedule.order)
    inputs = [
        (i, spec)
        for i, (spec, nodes) in enumerate(zip(program.inputs, program.sources, strict=True))
        if not spec.shared and spec.steps is None and not spec.table and not live.isdisjoint(nodes)
    ]
    limits = Limits(REGISTERS * 32 // lane.bits, BLOCK, REPEATS)
    if warps > 1:
        renderer, shared = _team(program, w, storage, memory, inputs, limits, warp, warps)
    else:
        memory.fetch(memory.choose(inputs))
        renderer = Renderer(program, w, memory, storage, limits)
        renderer.choose_order()
        renderer.run()
        shared = memory.offset
    w.lines[patch] = w.lines[patch].replace("SHARED", str(shared))
    w.line("  br label %done")
    w.label("done")
    w.line("  ret void")
    head = f"define ptx_kernel void @kernel({', '.join(f'i64 {word}' for word in words)}) #0 {{"
    external = f"@shared = external addrspace(3) global [0 x {lane.scalar}], align 16\n"
    return renderer.finish(head, external, f"attributes #0 = {{ nounwind }}\n{METADATA}", shared)


def _team(
    program: Program,
    w: Writer,
    storage: LocalStorage,
    memory: StagingMemory,
    inputs: list[tuple[int, TensorSpec]],
    limits: Limits,
    warp: str,
    warps: int,
) -> tuple[Renderer, int]:
    """Write the code of each warp of a team; return one of their renderers, and the shared memory of the team."""
    program = split_loops(program)
    affinity, rows = affinity_of(program), rows_of(program, memory)
    homes = choose_homes(program.schedule, affinity, warps)
    pieces = [program.targets[i][start : start + count] for i, start, count in rows]
    parts, slots = make_parts(divide(program.schedule, affinity, homes, warps, pieces))
    chosen = memory.choose(inputs)
    memory.lend(slots, storage)
    memory.worker = w.emit(f"zext i32 {warp} to i64")
    cases = " ".join(f"i32 {k}, label %worker.{k}" for k in range(1, warps))
    w.line(f"  switch i32 {warp}, label %worker.0 [ {cases} ]")
    places: dict[object, str] = {}
    renderer, offset = None, memory.offset
    for k, part in enumerate(parts):
        w.label(f"worker.{k}")
        own = memory.for_worker(offset)
        own.fetch(chosen[k::warps])
        own.wait_for_workers()
        renderer = PartRenderer(program, w, own, own, storage, limits, part, rows, places, renderer)
        renderer.run()
        if k < warps - 1:
            w.line("  br label %done")
        offset = own.offset
    assert renderer is not None
    return renderer, offset
