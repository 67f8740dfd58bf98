"""A program as LLVM IR, for a lane type: one renderer for vectors of a CPU and threads of a GPU.

Kernels of backends differ only in their frame (a loop over blocks of environments, or a thread's place in the grid) and
in how they reach memory (`Memory`, `Storage`); everything between is the same walk over the schedule.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from adjoin.compiler.codegen.analysis import FusedSum, fused_sums, overwritten
from adjoin.compiler.codegen.layout import Layout
from adjoin.compiler.codegen.loops import Loops
from adjoin.compiler.codegen.lowering import Lowering, Together, Values
from adjoin.compiler.codegen.memory import Memory
from adjoin.compiler.codegen.outline import BEGIN, END, outline
from adjoin.compiler.codegen.spill import Spills, find_spills
from adjoin.compiler.codegen.storage import Storage
from adjoin.compiler.codegen.writer import Writer
from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.kinds import INDICES
from adjoin.compiler.ir.program import Program
from adjoin.compiler.ir.schedule import Schedule, make_schedule

Due = dict[int, list[tuple[int, int, int]]]
"""Position in the schedule -> the chunks of outputs that are complete there: output, first column, count."""

After = tuple[Expr, Callable[[], None]]
"""A node, and what to do once it is computed."""

RENDERED_HERE = frozenset(("accumulate", "input", "scratch", "scan"))
VALUED_ELSEWHERE = frozenset(("constants", "get", "stream", "param", "table"))
"""Constructs whose values come with others: of the scan, of the frame."""


@dataclass(frozen=True)
class Rendered:
    """The text of a kernel and what launching it needs.

    Attributes:
        text: LLVM IR of a function named `kernel`.
        layout: of its arguments.
        workspace: elements of workspace a lane: a fixed number under "", and for each run-time integer a factor.
        shared: elements of memory that a group of lanes shares.
        parts: modules that it calls, by the name of the function in them.
    """

    text: str
    layout: Layout
    workspace: dict[str, int] = field(default_factory=dict)
    shared: int = 0
    parts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """What a compiler behind is spared, in numbers of nodes; None spares it nothing.

    Attributes:
        registers: values that stay alive.
        block: nodes of a basic block.
        repeats: operations that computing a value again may take instead of keeping it in memory.
        early: nodes before its use at which a value is loaded from memory again.
        part: nodes of a loop or branch from which on it is a function of its own, see `outline`.
    """

    registers: int | None = None
    block: int | None = None
    repeats: int = 0
    early: int = 0
    part: int | None = None


class Renderer:
    """Walks the schedule of a program and writes its instructions.

    Attributes:
        limits: as long as a part is written, that part's.
        schedule: of the program.
    """

    def __init__(
        self, program: Program, writer: Writer, memory: Memory, storage: Storage, limits: Limits | None = None
    ):
        self.program, self.w, self.memory, self.storage = program, writer, memory, storage
        self.limits = limits or Limits()
        self.schedule = program.schedule
        self.lowering = Lowering(program, writer, memory, storage)
        self.loops = Loops(
            program,
            writer,
            memory,
            storage,
            self.lowering,
            lambda schedule, values, after: self.region(schedule, values, {}, after),
            self.part,
            self.limits.part,
        )

    @contextmanager
    def part(self) -> Iterator[None]:
        """Write what follows as a function of its own, the same in every kernel that has it; see `outline`."""
        outer, self.limits = self.limits, Limits()
        self.w.line(BEGIN)
        with self.storage.frame():
            yield
        self.w.line(END)
        label = self.w.name()[1:]
        self.w.line(f"  br label %{label}")
        self.w.label(label)
        self.limits = outer

    def finish(self, head: str, globals_: str, tail: str, shared: int = 0) -> Rendered:
        """Put the text of the kernel together."""
        storage = self.storage
        storage.finish()
        declarations = [*sorted(self.w.declarations), *self.lowering.globals.values(), globals_]
        body, parts = "\n".join(["entry:", *storage.prologue, *self.w.lines]), dict[str, str]()
        if self.limits.part is not None:
            arguments = {name: kind for kind, name in re.findall(r"(\w+)(?: noalias)? (%\w+)[,)]", head)}
            attributes = tail.partition("\n")[0]
            functions = {f"@{line.partition('@')[2].partition('(')[0]}": line for line in self.w.declarations}
            body, called, parts = outline(body, arguments, functions | self.lowering.globals, attributes)
            declarations += called
        text = "\n".join([*declarations, head, body, "}", tail])
        return Rendered(text, storage.layout, storage.workspace, shared, parts)

    def run(self) -> None:
        """The whole program for one block of environments: compute, and write each piece of an output once complete."""
        program, schedule = self.program, self.schedule
        live = set(schedule.order)
        values: Values = {}
        for i, (spec, nodes) in enumerate(zip(program.inputs, program.sources, strict=True)):
            if spec.table:
                values[nodes[0]] = str(i)
                continue
            columns = {column for column, node in enumerate(nodes) if node in live}
            if spec.steps is None and columns and self.memory.loads_at_start(i, spec):
                row = self.memory.load(i, spec, columns, None)
                values.update({nodes[column]: row[column] for column in columns})
        self.region(schedule, values, self.due(schedule))

    def due(self, schedule: Schedule) -> Due:
        """Return when the pieces of outputs are complete."""
        place = {node: i for i, node in enumerate(schedule.order)}
        due: Due = {}
        for i, (spec, nodes) in enumerate(zip(self.program.outputs, self.program.targets, strict=True)):
            if spec.steps is None:
                for start, count in self.memory.chunks(spec):
                    last = max(place[node] for node in nodes[start : start + count])
                    due.setdefault(last, []).append((i, start, count))
        return due

    def choose_order(self) -> None:
        """Compute the outputs in the order, of a few, that keeps fewest values waiting.

        As given, or by columns from the last: coordinates of a tree are numbered from its root, and gradients come
        from its tips.
        """
        targets = self.program.targets
        columns = range(1, 1 + max(map(len, targets)))
        last_first = [nodes[-column] for column in columns for nodes in reversed(targets) if column <= len(nodes)]
        self.schedule = min(self.schedule, make_schedule(last_first), key=self.waiting)

    def waiting(self, schedule: Schedule) -> int:
        """Return how much of a schedule would be spilled."""
        registers = self.limits.registers
        if registers is None:
            return 0
        return self.find_spills(schedule, fused_sums(schedule), self.due(schedule), registers - registers // 4).cost

    def region(self, schedule: Schedule, values: Values, due: Due, after: After | None = None) -> None:
        """The nodes of a schedule, straight through; `values` has its parameters, and gets the rest.

        Args:
            schedule: what to compute.
            values: the operands of nodes.
            due: what to write, and when.
            after: a node, and what to do once it is computed.
        """
        if after is not None and after[0] in values:
            after[1]()
        sums = fused_sums(schedule)
        skipped = {fused.product for fused in sums.values()}
        together: Together = {}
        complete = overwritten(schedule)
        columns: dict[int, set[int]] = {}
        for node in schedule.order:
            if node.op == "input":
                columns.setdefault(node.data[0], set()).add(node.data[1])
        spills = self.find_spills(schedule, sums, due)
        slots: dict[Expr, int] = {}
        block = self.limits.block
        for position, node in enumerate(schedule.order):
            if block and position % block == block - 1:
                label = self.w.name()[1:]
                self.w.line(f"  br i1 %never, label %done, label %{label}")  # a plain jump would be merged away
                self.w.label(label)
            for spilled in spills.fetches.get(position, ()):
                self.storage.fetch(slots[spilled])
            for spilled in spills.loads.get(position, ()):
                values[spilled] = self.w.emit(f"load {self.w.lane.float}, {self.storage.slot(slots[spilled])}")
            for spilled in spills.returns.get(position, ()):
                if spilled in slots:
                    values[spilled] = self.w.emit(f"load {self.w.lane.float}, {self.storage.slot(slots[spilled])}")
                elif spilled.op == "input":
                    values.update(self.read_row(spilled, {spilled.data[1]}))
                elif spilled in sums:
                    values[spilled] = self.fused_sum(sums[spilled], values)
                else:
                    values[spilled] = self.lowering.lower(spilled, values, together)
            if node in values or node in skipped or node.op in VALUED_ELSEWHERE:
                pass
            elif node.op == "accumulate":
                values[node] = self.lowering.accumulate(node, values, sums.get(node))
            elif node in sums:
                values[node] = self.fused_sum(sums[node], values)
            elif node.op == "input":
                for other, operand in self.read_row(node, columns[node.data[0]]).items():
                    values.setdefault(other, operand)
            elif node.op == "scratch":
                kind = "i32" if node.kind == INDICES else None
                values[node] = self.storage.array(node.width, kind)
                if node not in complete:
                    used = None if node.used is None else (values[node.args[0]], node.used[1])
                    self.storage.clear(values[node], node.width, kind, used)
            elif node.op == "scan":
                late = {value: slots[value] for value in spills.late.get(position, ())}
                self.loops.scan(node, schedule.scans[node], values, late)
            else:
                values[node] = self.lowering.lower(node, values, together)
            if after is not None and node is after[0]:
                after[1]()
            for spilled in spills.frees.get(position, ()):
                self.storage.free_slot(slots.pop(spilled))
            for spilled in spills.stores.get(position, ()):
                slots[spilled] = self.storage.take_slot()
                self.w.line(f"  store {self.w.lane.float} {values[spilled]}, {self.storage.slot(slots[spilled])}")
            for output, start, count in due.get(position, ()):
                spec, nodes = self.program.outputs[output], self.program.targets[output]
                chunk = [values[node] for node in nodes[start : start + count]]
                self.memory.store(len(self.program.inputs) + output, spec, start, chunk, None)

    def read_row(self, node: Expr, columns: set[int]) -> Values:
        """Read an input, and those of the given columns of the same tensor that come along."""
        tensor, column = node.data
        row = self.memory.load(tensor, self.program.inputs[tensor], {column}, None)
        nodes = self.program.sources[tensor]
        return {nodes[other]: operand for other, operand in row.items() if other in columns}

    def fused_sum(self, fused: FusedSum, values: Values) -> str:
        """A product and a sum in one instruction."""
        a, b, c = (values[node] for node in (*fused.product.args, fused.other))
        if fused.negate_product:
            a = self.w.neg(a)
        return self.w.fma(a, b, self.w.neg(c) if fused.negate_other else c)

    def find_spills(
        self, schedule: Schedule, sums: dict[Expr, FusedSum], due: Due, registers: int | None = None
    ) -> Spills:
        """Decide which values wait in memory."""
        registers = self.limits.registers if registers is None else registers
        if registers is None:
            return Spills()
        skipped = {fused.product for fused in sums.values()}
        operands: list[list[Expr]] = []
        late: set[int] = set()
        for position, node in enumerate(schedule.order):
            if node in skipped or node.op == "get":
                reads = []
            elif node in sums:
                reads = [*sums[node].product.args]
                reads += [] if node.op == "accumulate" else [sums[node].other]
            elif node.op == "scan":
                scan = schedule.scans[node]
                carry, captures, _, _ = scan.arguments(node)
                reads = carry + captures
                if scan.where is not None:
                    late.add(position)
            else:
                reads = list(node.args[:3])
            for output, start, count in due.get(position, ()):
                reads += [value for value in self.program.targets[output][start : start + count] if value is not node]
            operands.append(reads)

        def can_reload(node: Expr) -> bool:
            return node.op == "input" and self.memory.can_reload(node.data[0])

        repeats, early = self.limits.repeats, self.limits.early
        return find_spills(schedule.order, operands, registers, can_reload, late, repeats, early)
