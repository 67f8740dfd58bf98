"""A program as LLVM IR, for a lane type: one renderer for CPU vectors and GPU threads.

The two kernels differ only in their frame (a loop over blocks of environments, or a thread's place in the grid) and in
how they reach memory (`memory.py`); everything between is the same walk over the plan.
"""

from collections.abc import Callable
from dataclasses import dataclass

from adjoin.compiler.codegen import elementary
from adjoin.compiler.codegen.analysis import fused, overwritten, streams_read
from adjoin.compiler.codegen.layout import WARP, Layout
from adjoin.compiler.codegen.spill import Parking, park
from adjoin.compiler.codegen.storage import Storage
from adjoin.compiler.codegen.writer import Lane, Writer
from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.kinds import ARRAY, BOOL, INT, STREAM
from adjoin.compiler.ir.op import OPS
from adjoin.compiler.ir.program import Program
from adjoin.compiler.ir.schedule import ScanSchedule, Schedule
from adjoin.compiler.runtime.cpu.transpose import Rows
from adjoin.compiler.runtime.cuda.staging import Staged

# What follows was measured on chains of bodies and their gradients, of 3,000 to 50,000 operations.
LARGE = 20_000  # nodes from which LLVM is spared most of the register allocation; below, it does better itself
REGISTERS = 128  # values that large programs keep alive on a CPU
BLOCK = 500  # nodes of a basic block of them: compiling takes half the time of one block of everything
GPU_REGISTERS = 256  # values that every program keeps alive on a GPU; faster to compile and to run than unlimited
GPU_BLOCK = 4000  # nodes of a basic block on a GPU


@dataclass(frozen=True)
class Rendered:
    """The text of a kernel and what launching it needs.

    Attributes:
        text: LLVM IR of a function named `kernel`.
        layout: of the argument array.
        workspace: elements of workspace a lane: a fixed number under "", and for each run-time integer a factor.
        shared: elements of shared memory a warp.
    """

    text: str
    layout: Layout
    workspace: dict[str, int]
    shared: int


def render_cpu(program: Program, lane: Lane) -> Rendered:
    """The kernel `void kernel(words, first, last, workspace)` for a range of environments, in blocks of a vector."""
    layout = Layout.of(program)
    w = Writer(lane)
    w.line("  %here = alloca i64")
    words = []
    for i in range(layout.words):
        pointer = w.emit(f"getelementptr i64, ptr %words, i64 {i}")
        words.append(w.emit(f"load i64, ptr {pointer}"))
    kernel = _Kernel(program, w, layout, words, memory := Rows(w, layout))
    w.line("  br label %blocks")
    w.label("blocks")
    w.line("  %first = phi i64 [ %begin, %entry ], [ %next, %NEXT ]")
    patch = len(w.lines) - 1
    w.line("  %more = icmp ult i64 %first, %end\n  br i1 %more, label %block, label %done")
    w.label("block")
    w.line("  store i64 %first, ptr %here")
    for i, spec in enumerate((*program.inputs, *program.outputs)):
        memory.prefetch(i, spec, i >= len(program.inputs))
    large = len(program.schedule.order) > LARGE
    if large:
        kernel.registers, kernel.block = REGISTERS, BLOCK
        kernel.storage.hide_zero()
    kernel.run(eager=not large)
    w.lines[patch] = w.lines[patch].replace("%NEXT", f"%{w.block}")
    w.line(f"  %next = add i64 %first, {lane.width}\n  br label %blocks")
    w.label("done")
    w.line("  ret void")
    head = "define void @kernel(ptr noalias %words, i64 %begin, i64 %end, ptr noalias %workspace) #0 {"
    bits = max(128, lane.width * lane.bits)
    # Vectors that are spilled to a stack aligned to less straddle cache lines, which costs a third.
    attributes = f'attributes #0 = {{ nounwind alignstack={bits // 8} "min-legal-vector-width"="{bits}" }}'
    return kernel.finish(head, "", attributes)


def render_gpu(program: Program, lane: Lane) -> Rendered:
    """The kernel of one thread an environment; a warp shares its staging memory."""
    layout = Layout.of(program)
    w = Writer(lane)
    words = [f"%w{i}" for i in range(layout.words)]
    kernel = _Kernel(program, w, layout, words, memory := Staged(w, words))
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
    rest = w.emit(f"sub i64 {w.emit(f'sub i64 {batch}, {first}')}, 1")
    rest = w.intrinsic("llvm.smin.i64", "i64", ("i64", rest), ("i64", str(WARP)))
    limit = w.emit(f"trunc i64 {rest} to i32")
    offset = w.emit(f"mul i32 {warp}, SHARED")
    patch = len(w.lines) - 1
    base = w.emit(f"getelementptr {lane.scalar}, ptr addrspace(3) @shared, i32 {offset}")
    memory.begin(lane_index, first, limit, base)
    storage = kernel.storage
    storage.thread = w.emit(f"add i64 {first}, {w.emit(f'sext i32 {lane_index} to i64')}")
    live = set(program.schedule.order)
    read = [i for i, nodes in enumerate(program.sources) if not live.isdisjoint(nodes)]
    kernel.registers = GPU_REGISTERS * 32 // lane.bits
    storage.hide_zero()
    storage.stack = "ptr addrspace(5)"
    kernel.block = GPU_BLOCK
    memory.fetch([(i, s) for i in read if not (s := program.inputs[i]).shared and s.steps is None and not s.table])
    kernel.run()
    w.lines[patch] = w.lines[patch].replace("SHARED", str(memory.offset))
    w.line("  br label %done")
    w.label("done")
    w.line("  ret void")
    head = f"define ptx_kernel void @kernel({', '.join(f'i64 {word}' for word in words)}) #0 {{"
    shared = f"@shared = external addrspace(3) global [0 x {lane.scalar}], align 16\n"
    return kernel.finish(head, shared, "attributes #0 = { nounwind }\n!0 = !{}", memory.offset)


def lower(op: str) -> Callable[..., str]:
    """What writes an operation on floats and conditions: a function of a writer, the node and the operands."""
    entry = OPS[op].lower
    if callable(entry):
        return entry
    assert isinstance(entry, str), op
    if hasattr(Writer, entry):
        return lambda w, node, *operands: getattr(w, entry)(*operands)
    return lambda w, node, *operands: getattr(elementary, entry)(w, *operands)


class _Kernel:
    """Walks a plan and writes its instructions."""

    def __init__(self, program: Program, w: Writer, layout: Layout, words: list[str], memory: Rows | Staged):
        self.program = program
        self.w = w
        self.layout = layout
        self.words = words
        self.memory = memory
        self.storage = Storage(w, layout, words)
        self.registers: int | None = None
        self.block: int | None = None
        self.uniform: set[Expr] = set()
        self.read = streams_read(program.schedule)
        self.outputs: dict[Expr, list[int]] = {}
        for i, (spec, nodes) in enumerate(zip(program.outputs, program.targets, strict=True)):
            if spec.steps is not None:
                self.outputs.setdefault(nodes[0], []).append(i)

    def finish(self, head: str, globals_: str, tail: str, shared: int = 0) -> Rendered:
        """Put the text of the kernel together."""
        self.storage.finish()
        prologue = self.storage.prologue
        lines = [*sorted(self.w.declarations), globals_, head, "entry:", *prologue, *self.w.lines, "}", tail]
        return Rendered("\n".join(lines), self.layout, self.storage.workspace, shared)

    def run(self, eager: bool = False) -> None:
        """The whole program for one block: compute, and write each piece of an output once it is complete.

        Args:
            eager: read every input at the start, where their addresses are at hand, rather than when first used.
        """
        schedule = self.program.schedule
        place = {node: i for i, node in enumerate(schedule.order)}
        due: dict[int, list[tuple[int, int, int]]] = {}
        for i, (spec, nodes) in enumerate(zip(self.program.outputs, self.program.targets, strict=True)):
            if spec.steps is None:
                for start, count in self.memory.chunks(spec):
                    last = max(place[node] for node in nodes[start : start + count])
                    due.setdefault(last, []).append((i, start, count))
        values: dict[Expr, str] = {}
        live = set(schedule.order)
        for i, (spec, nodes) in enumerate(zip(self.program.inputs, self.program.sources, strict=True)):
            if spec.table:
                values[nodes[0]] = str(i)
                continue
            columns = {column for column, node in enumerate(nodes) if node in live}
            passing = isinstance(self.memory, Staged) and not spec.shared and i not in self.memory.kept
            if (eager or passing) and spec.steps is None and columns:
                found = self.memory.load(i, spec, columns, None)
                values.update({nodes[column]: found[column] for column in columns})
        self.region(schedule, values, due)

    def region(self, schedule: Schedule, values: dict[Expr, str], due: dict[int, list[tuple[int, int, int]]]) -> None:
        sums = fused(schedule)
        skipped = {product for product, *_ in sums.values()}
        together: dict[tuple[str, tuple[Expr, ...]], tuple[str, ...]] = {}
        complete = overwritten(schedule)
        columns: dict[int, set[int]] = {}
        for node in schedule.order:
            if node.op == "input":
                columns.setdefault(node.data[0], set()).add(node.data[1])
        parking = self.park(schedule, sums, due)
        slots: dict[Expr, int] = {}
        for position, node in enumerate(schedule.order):
            if self.block and position % self.block == self.block - 1:
                label = self.w.name()[1:]
                self.w.line(f"  br i1 %never, label %done, label %{label}")  # a plain jump would be merged away
                self.w.label(label)
            for parked in parking.loads.get(position, ()):
                if parked in slots:
                    values[parked] = self.w.emit(f"load {self.w.lane.float}, {self.storage.slot(slots[parked])}")
                else:
                    values.update(self.read_row(parked, {parked.data[1]}))
            if node in values or node in skipped:
                pass
            elif node in sums:
                values[node] = self.fma(*sums[node], values)
            elif node.op == "input":
                for other, operand in self.read_row(node, columns[node.data[0]]).items():
                    values.setdefault(other, operand)
            elif isinstance(part := OPS[node.op].lower, tuple):
                routine, place = part
                if (routine, node.args) not in together:
                    arguments = [values[arg] for arg in node.args]
                    together[routine, node.args] = getattr(elementary, routine)(self.w, *arguments)
                values[node] = together[routine, node.args][place]
            elif node.op == "scratch":
                values[node] = self.storage.array(node.width)
                if node not in complete:
                    self.storage.clear(values[node], node.width)
            elif node.op == "scan":
                late = {value: slots[value] for value in parking.late.get(position, ())}
                self.scan(node, schedule.scans[node], values, late)
            elif node.kind != STREAM and node.op != "get":
                values[node] = self.instruction(node, values)
            for parked in parking.frees.get(position, ()):
                self.storage.give_slot(slots[parked])
            for parked in parking.stores.get(position, ()):
                slots[parked] = self.storage.take_slot()
                self.w.line(f"  store {self.w.lane.float} {values[parked]}, {self.storage.slot(slots[parked])}")
            for output, start, count in due.get(position, ()):
                spec, nodes = self.program.outputs[output], self.program.targets[output]
                chunk = [values[node] for node in nodes[start : start + count]]
                self.memory.store(len(self.program.inputs) + output, spec, start, chunk, None)

    # Straight-line code ---------------------------------------------------------------------------------------------

    def read_row(self, node: Expr, columns: set[int]) -> dict[Expr, str]:
        """Read an input, and those of the given columns of the same tensor that come along."""
        tensor, column = node.data
        found = self.memory.load(tensor, self.program.inputs[tensor], {column}, None)
        nodes = self.program.sources[tensor]
        return {nodes[other]: operand for other, operand in found.items() if other in columns}

    def park(self, schedule: Schedule, sums: dict[Expr, tuple], due: dict[int, list[tuple[int, int, int]]]) -> Parking:
        """Decide which values wait in memory."""
        if self.registers is None:
            return Parking()
        skipped = {product for product, *_ in sums.values()}
        operands: list[list[Expr]] = []
        late: set[int] = set()
        for position, node in enumerate(schedule.order):
            if node in skipped or node.op == "get":
                reads = []
            elif node in sums:
                product, other, *_ = sums[node]
                reads = [*product.args, other]
            elif node.op == "scan":
                carry, captures, _, _ = schedule.scans[node].arguments(node)
                reads = carry + captures
                if schedule.scans[node].where is not None:
                    late.add(position)
            else:
                reads = list(node.args[:3])
            for output, start, count in due.get(position, ()):
                reads += [value for value in self.program.targets[output][start : start + count] if value is not node]
            operands.append(reads)
        kept = self.memory.kept if isinstance(self.memory, Staged) else {}
        return park(
            schedule.order, operands, self.registers, lambda node: node.op == "input" and node.data[0] in kept, late
        )

    def fma(self, product: Expr, other: Expr, negate_product: bool, negate_other: bool, values: dict[Expr, str]) -> str:
        a, b = values[product.args[0]], values[product.args[1]]
        c = values[other]
        if negate_product:
            a = self.w.neg(a)
        return self.w.fma(a, b, self.w.neg(c) if negate_other else c)

    def instruction(self, node: Expr, values: dict[Expr, str]) -> str:
        w, op = self.w, node.op
        if op == "const":
            return w.const(node.value)
        if op == "boolean":
            return w.splat("i1", "true" if node.data else "false")
        if op in ("integer", "length") or node.kind == INT or (node.args and node.args[0].kind == INT):
            return self.integer(node, values)
        if op in ("load", "store"):
            return self.access(node, values)
        if op == "lookup":
            tensor, index = int(values[node.args[0]]), node.args[1]
            alike = index in self.uniform or w.lane.width == 1
            return self.memory.look_up(tensor, self.program.inputs[tensor], values[index], alike)
        return lower(op)(w, node, *[values[arg] for arg in node.args])

    # Integers: i32, one for all lanes where they cannot differ --------------------------------------------------------

    def integer(self, node: Expr, values: dict[Expr, str]) -> str:
        w, lane = self.w, self.w.lane
        if node.op == "integer":
            self.uniform.add(node)
            return str(node.data)
        if node.op == "length":
            self.uniform.add(node)
            return w.emit(f"trunc i64 {self.words[self.layout.integer(node.data)]} to i32")
        if node.op == "to_index":
            kind = lane.vector("i32")
            suffix = kind if lane.width == 1 else f"v{lane.width}i32"
            name = f"llvm.fptosi.sat.{suffix}.{lane.suffix}"
            return w.intrinsic(name, kind, (lane.float, values[node.args[0]]))
        uniform = all(arg in self.uniform for arg in node.args) or lane.width == 1
        kind = "i32" if uniform else lane.vector("i32")
        args = [values[arg] if uniform or arg not in self.uniform else self.spread(values[arg]) for arg in node.args]
        if node.op == "to_float":
            scalar = w.emit(f"sitofp {kind} {args[0]} to {lane.scalar if uniform else lane.float}")
            return self.spread(scalar, lane.scalar) if uniform else scalar
        if node.op == "select":
            return w.select(values[node.args[0]], args[1], args[2], INT)
        instruction = OPS[node.op].integer
        assert instruction is not None, node.op
        if instruction.startswith("llvm."):
            suffix = kind if uniform else f"v{lane.width}i32"
            result = w.intrinsic(f"{instruction}.{suffix}", kind, (kind, args[0]), (kind, args[1]))
        else:
            result = w.emit(f"{instruction} {kind} {args[0]}, {args[1]}")
        if uniform and node.kind == INT:
            self.uniform.add(node)
        return self.spread(result, "i1") if uniform and node.kind == BOOL else result

    def spread(self, operand: str, scalar: str = "i32") -> str:
        """One value, in every lane."""
        w, width = self.w, self.w.lane.width
        if width == 1:
            return operand
        kind = w.lane.vector(scalar)
        single = w.emit(f"insertelement {kind} poison, {scalar} {operand}, i64 0")
        return w.emit(f"shufflevector {kind} {single}, {kind} poison, <{width} x i32> zeroinitializer")

    # Scratch arrays ---------------------------------------------------------------------------------------------------

    def access(self, node: Expr, values: dict[Expr, str]) -> str:
        w, lane = self.w, self.w.lane
        array, index = node.args[:2]
        base, stack = values[array], self.storage.stack
        if index in self.uniform or lane.width == 1:
            clamped = values[index] if index.op == "integer" else self.clamp(values[index], array.width, "i32")
            place = w.emit(f"getelementptr {lane.float}, {stack} {base}, i32 {clamped}")
            if node.op == "load":
                return w.emit(f"load {lane.float}, {stack} {place}")
            w.line(f"  store {lane.float} {values[node.args[2]]}, {stack} {place}")
            return base
        # Each lane has its own index: element index * width + lane of an array of scalars.
        kind = lane.vector("i32")
        clamped = self.clamp(values[index], array.width, kind)
        scaled = w.emit(f"mul {kind} {clamped}, splat (i32 {lane.width})")
        lanes = ", ".join(f"i32 {i}" for i in range(lane.width))
        offsets = w.emit(f"add {kind} {scaled}, <{lanes}>")
        loaded = "poison"
        for i in range(lane.width):
            offset = w.emit(f"extractelement {kind} {offsets}, i64 {i}")
            place = w.emit(f"getelementptr {lane.scalar}, {stack} {base}, i32 {offset}")
            if node.op == "load":
                element = w.emit(f"load {lane.scalar}, {stack} {place}")
                loaded = w.emit(f"insertelement {lane.float} {loaded}, {lane.scalar} {element}, i64 {i}")
            else:
                element = w.emit(f"extractelement {lane.float} {values[node.args[2]]}, i64 {i}")
                w.line(f"  store {lane.scalar} {element}, {stack} {place}")
        return loaded if node.op == "load" else base

    def clamp(self, operand: str, size: int, kind: str) -> str:
        w = self.w
        suffix = kind if kind == "i32" else f"v{w.lane.width}i32"
        low, high = ("0", str(size - 1)) if kind == "i32" else ("zeroinitializer", f"splat (i32 {size - 1})")
        above = w.intrinsic(f"llvm.smax.{suffix}", kind, (kind, operand), (kind, low))
        return w.intrinsic(f"llvm.smin.{suffix}", kind, (kind, above), (kind, high))

    # Loops ------------------------------------------------------------------------------------------------------------

    def scan(self, node: Expr, scan: ScanSchedule, values: dict[Expr, str], late: dict[Expr, int]) -> None:
        """A loop, or a branch; what it reads late waits in slots."""
        if scan.where is not None:
            self.branch(node, scan, values, late)
            return
        w, body = self.w, scan.body
        initial = scan.arguments(node)[0]
        count = self.storage.count(body.length)
        label, before = w.name()[1:], w.block
        w.line(f"  br label %{label}")
        w.label(label)
        w.line(f"  %{label}.i = phi i64 [ 0, %{before} ], [ %{label}.n, %LATCH ]")
        inside: dict[Expr, str] = {}
        phis = []
        for i, value in zip(scan.carry, initial, strict=True):
            parameter = body.carry[i]
            if parameter.kind == ARRAY:
                inside[parameter] = values[value]
            else:
                phis.append((len(w.lines), i, w.name(), values[value]))
                inside[parameter] = phis[-1][2]
                w.line("")
        patch = len(w.lines)
        w.line(f"  %{label}.m = icmp slt i64 %{label}.i, {count}")
        w.line(f"  br i1 %{label}.m, label %{label}.b, label %{label}.e")
        w.label(f"{label}.b")
        step = f"%{label}.i"
        if body.reverse:
            step = w.emit(f"sub i64 {w.emit(f'sub i64 {count}, 1')}, {step}")
        last = {i: inside[body.carry[i]] for i in scan.carry}  # the region may load one again, under a new name
        self.iteration(node, scan, step, inside, values, {})
        w.line(f"  %{label}.n = add i64 %{label}.i, 1")
        w.line(f"  br label %{label}")
        latch = w.block
        for line, i, name, first in phis:
            kind, following = self.kind(body.carry[i]), inside[body.results[i]]
            w.lines[line] = f"  {name} = phi {kind} [ {first}, %{before} ], [ {following}, %{latch} ]"
        head = patch - len(phis) - 1
        w.lines[head] = w.lines[head].replace("%LATCH", f"%{latch}")
        w.label(f"{label}.e")
        self.give(node, last, values)

    def branch(self, node: Expr, scan: ScanSchedule, values: dict[Expr, str], late: dict[Expr, int]) -> None:
        """A scan of one step that may be left out: see `when`."""
        w, body = self.w, scan.body
        initial, captured, _, _ = scan.arguments(node)
        label, before = w.name()[1:], w.block
        w.line(f"  br i1 {w.any_lane(values[captured[scan.where or 0]])}, label %{label}, label %{label}.e")
        w.label(label)
        first = {i: values[value] for i, value in zip(scan.carry, initial, strict=True)}
        inside = {body.carry[i]: operand for i, operand in first.items()}
        self.iteration(node, scan, "0", inside, values, late)
        w.line(f"  br label %{label}.e")
        after = w.block
        w.label(f"{label}.e")
        last = dict(first)
        for i, operand in first.items():
            following = inside[body.results[i]]
            if body.carry[i].kind != ARRAY and following != operand:
                kind = self.kind(body.carry[i])
                last[i] = w.emit(f"phi {kind} [ {operand}, %{before} ], [ {following}, %{after} ]")
        self.give(node, last, values)

    def iteration(
        self,
        node: Expr,
        scan: ScanSchedule,
        step: str,
        inside: dict[Expr, str],
        values: dict[Expr, str],
        late: dict[Expr, int],
    ) -> None:
        """One step of a scan, of which `inside` has the carry."""
        body = scan.body
        _, captured, streams, _ = scan.arguments(node)
        inside[body.counter] = self.w.emit(f"trunc i64 {step} to i32")
        self.uniform.add(body.counter)
        for i, value in zip(scan.captures, captured, strict=True):
            parameter = body.captures[i]
            if value in late:
                inside[parameter] = self.w.emit(f"load {self.w.lane.float}, {self.storage.slot(late[value])}")
            else:
                inside[parameter] = values[value]
            if value in self.uniform:
                self.uniform.add(parameter)
        used = set(scan.schedule.order)
        for i, stream in zip(scan.streams, streams, strict=True):
            self.read_step(stream, body.elements[i], used, step, inside, values)
        self.region(scan.schedule, inside, {})
        for i in scan.outputs:
            operands = [inside[value] for value in body.outputs[i]]
            self.write_step(node, len(body.results) + i, operands, step, values)

    def kind(self, value: Expr) -> str:
        return self.w.lane.bool if value.kind == BOOL else self.w.lane.float

    def give(self, node: Expr, last: dict[int, str], values: dict[Expr, str]) -> None:
        """The final carry of a scan."""
        for i, operand in last.items():
            get = node.graph.find("get", (node,), i)
            if get is not None:
                values[get] = operand

    def buffer(self, stream: Expr, values: dict[Expr, str]) -> str:
        """The memory that holds a stream between the scan that makes it and those that read it."""
        if stream not in values:
            values[stream] = self.storage.buffer(stream, stream.args[0].data.length)
        return values[stream]

    def read_step(
        self, stream: Expr, step_nodes: list[Expr], used: set[Expr], step: str, inside: dict, values: dict[Expr, str]
    ) -> None:
        columns = {i for i, node in enumerate(step_nodes) if node in used}
        if stream.op == "stream":
            tensor = stream.data[0]
            found = self.memory.load(tensor, self.program.inputs[tensor], columns, step)
            inside.update({step_nodes[i]: found[i] for i in columns})
            return
        buffer = self.buffer(stream, values)
        first = self.w.emit(f"mul i64 {step}, {stream.width}")
        for i in sorted(columns):
            place = self.storage.element(buffer, self.w.emit(f"add i64 {first}, {i}"))
            inside[step_nodes[i]] = self.w.emit(f"load {self.w.lane.float}, {place}")

    def write_step(self, node: Expr, position: int, operands: list[str], step: str, values: dict[Expr, str]) -> None:
        stream = node.graph.find("get", (node,), position)
        assert stream is not None, "a live output has a reader"
        for output in self.outputs.get(stream, ()):
            spec = self.program.outputs[output]
            for start, count in self.memory.chunks(spec):
                tensor = len(self.program.inputs) + output
                self.memory.store(tensor, spec, start, operands[start : start + count], step)
        if stream in self.read:
            buffer = self.buffer(stream, values)
            first = self.w.emit(f"mul i64 {step}, {stream.width}")
            for i, operand in enumerate(operands):
                place = self.storage.element(buffer, self.w.emit(f"add i64 {first}, {i}"))
                self.w.line(f"  store {self.w.lane.float} {operand}, {place}")
