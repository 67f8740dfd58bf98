"""The frame of a kernel on a CPU: a loop over blocks of as many environments as a vector has lanes."""

from dataclasses import replace

from adjoin.compiler.codegen.layout import Layout
from adjoin.compiler.codegen.renderer import Limits, Rendered, Renderer
from adjoin.compiler.codegen.storage import Storage
from adjoin.compiler.codegen.writer import Lane, Writer
from adjoin.compiler.ir.program import Program
from adjoin.compiler.ir.schedule import Schedule
from adjoin.compiler.runtime.cpu.transpose import TransposingMemory

# What follows was measured on chains of bodies and their gradients, of 3,000 to 50,000 operations.
LARGE_PROGRAM = 20_000  # nodes from which LLVM is spared most of the register allocation; below, it does better itself
REGISTERS = 128  # values that large programs keep alive
REPEATS = 0  # operations to compute a value again: the cache gives it back as fast
BLOCK = 400  # nodes of a basic block of them: LLVM's time grows with the square of a block, and of their number
PART = 1000  # nodes of a loop or branch from which on it is a function of its own, in programs that are large in all


class ThreadStorage(Storage):
    """Each thread has a workspace of its own, which every block of environments uses again."""

    def workspace_element(self, index: str) -> str:
        """Return the typed address of an element of the thread's workspace."""
        return f"ptr {self.w.emit(f'getelementptr {self.w.lane.float}, ptr %workspace, i64 {index}')}"


# The whole batch with one argument: a call from Python costs by the argument.
_WHOLE = """
define void @whole(ptr %words) {{
  %batch.at = getelementptr i64, ptr %words, i64 {batch}
  %batch = load i64, ptr %batch.at
  %workspace.at = getelementptr i64, ptr %words, i64 {workspace}
  %workspace = load ptr, ptr %workspace.at
  call void @kernel(ptr %words, i64 0, i64 %batch, ptr %workspace)
  ret void
}}
"""


def render(program: Program, lane: Lane) -> Rendered:
    """Return `void kernel(words, first, last, workspace)` for a range of environments, and `void whole(words)`."""
    layout = Layout.of(program)
    w = Writer(lane)
    w.line("  %here = alloca i64")
    words = []
    for i in range(layout.words):
        pointer = w.emit(f"getelementptr i64, ptr %words, i64 {i}")
        words.append(w.emit(f"load i64, ptr {pointer}"))
    storage = ThreadStorage(w, layout, words)
    large = _largest(program.schedule) > LARGE_PROGRAM
    memory = TransposingMemory(w, layout, load_at_start=not large)
    memory.place_outputs(len(program.inputs), program.outputs)
    limits = Limits(REGISTERS, BLOCK, REPEATS) if large else Limits()
    if program.operations > LARGE_PROGRAM:
        limits = replace(limits, part=PART)
    renderer = Renderer(program, w, memory, storage, limits)
    w.line("  br label %blocks")
    w.label("blocks")
    w.line("  %first = phi i64 [ %begin, %entry ], [ %next, %NEXT ]")
    patch = len(w.lines) - 1
    w.line("  %more = icmp ult i64 %first, %end\n  br i1 %more, label %block, label %done")
    w.label("block")
    w.line("  store i64 %first, ptr %here")
    memory.begin_block()
    for i, spec in enumerate((*program.inputs, *program.outputs)):
        memory.prefetch(i, spec, i >= len(program.inputs))
    if large:
        storage.hide_zero()
    renderer.run()
    w.lines[patch] = w.lines[patch].replace("%NEXT", f"%{w.block}")
    w.line(f"  %next = add i64 %first, {lane.width}\n  br label %blocks")
    w.label("done")
    memory.end_blocks()
    w.line("  ret void")
    head = "define void @kernel(ptr noalias %words, i64 %begin, i64 %end, ptr noalias %workspace) #0 {"
    bits = max(128, lane.width * lane.bits)
    # Vectors that are spilled to a stack aligned to less straddle cache lines, which costs a third.
    attributes = f'attributes #0 = {{ nounwind alignstack={bits // 8} "min-legal-vector-width"="{bits}" }}'
    whole = _WHOLE.format(batch=layout.batch, workspace=layout.workspace)
    return renderer.finish(head, "", attributes + whole)


def _largest(schedule: Schedule) -> int:
    """Return the nodes of the program or of the body of a loop, whichever has most."""
    return max([len(schedule.order), *[_largest(scan.schedule) for scan in schedule.scans.values()]])
