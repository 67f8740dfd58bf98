"""Scans as loops and branches, and the streams that they read and write."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from adjoin.compiler.codegen.analysis import streams_read
from adjoin.compiler.codegen.lowering import Lowering, Values
from adjoin.compiler.codegen.memory import Memory
from adjoin.compiler.codegen.storage import Storage
from adjoin.compiler.codegen.writer import Writer
from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.kinds import INT
from adjoin.compiler.ir.program import Program
from adjoin.compiler.ir.schedule import ScanSchedule, Schedule
from adjoin.compiler.ir.scratch import ELEMENT


class Loops:
    """Writes the control flow of scans.

    Attributes:
        body: writes the nodes of a schedule, given the values of its parameters, and adds theirs to the values; and
            does something once a node is computed.
        buffered: streams that another scan reads, and that therefore lie in memory.
        outputs: stream -> the positions of the outputs that it is.
        part: what is written in this context is a function of its own; see `outline`.
        parts: the scans that are.
    """

    def __init__(
        self,
        program: Program,
        writer: Writer,
        memory: Memory,
        storage: Storage,
        lowering: Lowering,
        body: Callable[[Schedule, Values, tuple[Expr, Callable[[], None]] | None], None],
        part: Callable[[], AbstractContextManager[None]],
        least: int | None,
    ):
        self.program, self.w, self.memory, self.storage, self.lowering = program, writer, memory, storage, lowering
        self.body, self.part = body, part
        self.buffered = streams_read(program.schedule)
        self.outputs: dict[Expr, list[int]] = {}
        for i, (spec, nodes) in enumerate(zip(program.outputs, program.targets, strict=True)):
            if spec.steps is not None:
                self.outputs.setdefault(nodes[0], []).append(i)
        self.parts: set[Expr] = set()
        if least is not None:
            self.find_parts(program.schedule, least)

    def find_parts(self, schedule: Schedule, least: int) -> int:
        """Choose the scans that become parts: those with enough nodes that are not in one already.

        Args:
            schedule: of the program or of a body.
            least: how many are enough.

        Returns:
            How many nodes are left.
        """
        left = len(schedule.order)
        for node, scan in schedule.scans.items():
            inside = self.find_parts(scan.schedule, least)
            if inside >= least and not scan.streams and not scan.outputs and self.is_local(node, scan):
                self.parts.add(node)
            else:
                left += inside
        return left

    def is_local(self, node: Expr, scan: ScanSchedule) -> bool:
        """Whether a scan, and those in it, read and write no tensors."""
        tensors = any(stream.op == "stream" for stream in scan.arguments(node)[2])
        streams = (node.graph.find("get", (node,), len(scan.body.results) + i) for i in scan.outputs)
        tensors |= any(stream in self.outputs for stream in streams)
        return not tensors and all(self.is_local(*inner) for inner in scan.schedule.scans.items())

    def scan(self, node: Expr, scan: ScanSchedule, values: Values, late: dict[Expr, int]) -> None:
        """A loop, or a branch; what it reads late is in spill slots."""
        if scan.where is not None:
            self.branch(node, scan, values, late)
        elif node in self.parts:
            with self.part():
                self.loop(node, scan, values)
        else:
            self.loop(node, scan, values)

    def loop(self, node: Expr, scan: ScanSchedule, values: Values) -> None:
        """A scan of many steps."""
        w, body = self.w, scan.body
        initial = scan.arguments(node)[0]
        count = self.count(node, scan, values)
        label, before = w.name()[1:], w.block
        w.line(f"  br label %{label}")
        w.label(label)
        w.line(f"  %{label}.i = phi i64 [ 0, %{before} ], [ %{label}.n, %LATCH ]")
        inside: Values = {}
        phis = []
        for i, value in zip(scan.carry, initial, strict=True):
            parameter = body.carry[i]
            if parameter.kind in ELEMENT:
                inside[parameter] = values[value]
            else:
                phis.append((len(w.lines), i, w.name(), values[value]))
                inside[parameter] = phis[-1][2]
                w.line("")
        head = len(w.lines) - len(phis) - 1
        w.line(f"  %{label}.m = icmp slt i64 %{label}.i, {count}")
        w.line(f"  br i1 %{label}.m, label %{label}.b, label %{label}.e")
        w.label(f"{label}.b")
        step = f"%{label}.i"
        if body.reverse:
            step = w.emit(f"sub i64 {w.emit(f'sub i64 {count}, 1')}, {step}")
        last = {i: inside[body.carry[i]] for i in scan.carry}  # the body may load one again, under a new name
        self.iteration(node, scan, step, inside, values, {}, f"%{label}.e")
        w.line(f"  %{label}.n = add i64 %{label}.i, 1")
        w.line(f"  br label %{label}")
        latch = w.block
        for line, i, name, first in phis:
            kind, following = self.carried_type(body.carry[i]), inside[body.results[i]]
            w.lines[line] = f"  {name} = phi {kind} [ {first}, %{before} ], [ {following}, %{latch} ]"
        w.lines[head] = w.lines[head].replace("%LATCH", f"%{latch}")
        w.label(f"{label}.e")
        _set_results(node, last, values)

    def count(self, node: Expr, scan: ScanSchedule, values: Values) -> str:
        """The trip count of a loop, as an i64 operand."""
        length = self.storage.count(scan.body.length)
        if scan.count is None:
            return length
        count = self.w.emit(f"sext i32 {values[scan.arguments(node)[1][scan.count]]} to i64")
        return self.w.intrinsic("llvm.smin.i64", "i64", ("i64", count), ("i64", length))

    def carried_type(self, parameter: Expr) -> str:
        """LLVM type of a carried value; integers are the same in all lanes."""
        return "i32" if parameter.kind == INT else self.w.lane.type_of(parameter.kind)

    def branch(self, node: Expr, scan: ScanSchedule, values: Values, late: dict[Expr, int]) -> None:
        """A scan of one step that may be left out: see `when`."""
        w, body = self.w, scan.body
        initial, captured, _, _ = scan.arguments(node)
        label, before = w.name()[1:], w.block
        condition = self.lowering.any_lane(captured[scan.where or 0], values)
        w.line(f"  br i1 {condition}, label %{label}, label %{label}.e")
        w.label(label)
        first = {i: values[value] for i, value in zip(scan.carry, initial, strict=True)}
        inside = {body.carry[i]: operand for i, operand in first.items()}
        if node in self.parts:
            loaded = {value: self.load_slot(late[value]) for value in captured if value in late}
            with self.part():
                self.iteration(node, scan, "0", inside, {**values, **loaded}, {})
        else:
            self.iteration(node, scan, "0", inside, values, late)
        w.line(f"  br label %{label}.e")
        after = w.block
        w.label(f"{label}.e")
        last = dict(first)
        for i, operand in first.items():
            following = inside[body.results[i]]
            if body.carry[i].kind not in ELEMENT and following != operand:
                kind = self.carried_type(body.carry[i])
                last[i] = w.emit(f"phi {kind} [ {operand}, %{before} ], [ {following}, %{after} ]")
        _set_results(node, last, values)

    def iteration(
        self,
        node: Expr,
        scan: ScanSchedule,
        step: str,
        inside: Values,
        values: Values,
        late: dict[Expr, int],
        end: str = "",
    ) -> None:
        """One step of a scan, of which `inside` has the carry; it goes to the end if it is not to proceed."""
        body, w = scan.body, self.w
        _, captured, streams, _ = scan.arguments(node)
        inside[body.counter] = w.emit(f"trunc i64 {step} to i32")
        for i, value in zip(scan.captures, captured, strict=True):
            parameter = body.captures[i]
            if value in late:
                inside[parameter] = self.load_slot(late[value])
            else:
                inside[parameter] = values[value]
            self.lowering.same_condition(parameter, value)
        used = set(scan.schedule.order)
        for i, stream in zip(scan.streams, streams, strict=True):
            columns = {column for column, parameter in enumerate(body.elements[i]) if parameter in used}
            for column, operand in self.read_element(stream, columns, step, values).items():
                inside[body.elements[i][column]] = operand
        proceed = body.proceed

        def go_on() -> None:
            assert proceed is not None
            label = w.name()[1:]
            w.line(f"  br i1 {self.lowering.any_lane(proceed, inside)}, label %{label}, label {end}")
            w.label(label)

        self.body(scan.schedule, inside, None if proceed is None else (proceed, go_on))
        for i in scan.outputs:
            operands = [inside[value] for value in body.outputs[i]]
            self.write_element(node, len(body.results) + i, operands, step, values)

    def load_slot(self, slot: int) -> str:
        """A value that waits in memory."""
        return self.w.emit(f"load {self.w.lane.float}, {self.storage.slot(slot)}")

    def buffer(self, stream: Expr, values: Values) -> str:
        """The memory that holds a stream between the scan that writes it and those that read it."""
        if stream not in values:
            values[stream] = self.storage.buffer(stream, stream.args[0].data.length)
        return values[stream]

    def read_element(self, stream: Expr, columns: set[int], step: str, values: Values) -> dict[int, str]:
        """Some scalars of one element of a stream, by column."""
        if stream.op == "stream":
            tensor = stream.data[0]
            read = self.memory.load(tensor, self.program.inputs[tensor], columns, step)
            return {column: read[column] for column in columns}
        buffer = self.buffer(stream, values)
        first = self.w.emit(f"mul i64 {step}, {stream.width}")
        operands = {}
        for column in sorted(columns):
            place = self.storage.element(buffer, first, offset=column)
            operands[column] = self.w.emit(f"load {self.w.lane.float}, {place}")
        return operands

    def write_element(self, node: Expr, position: int, operands: list[str], step: str, values: Values) -> None:
        """One element of an output stream of a scan: to the outputs that it is, and to memory if it is read again."""
        stream = node.graph.find("get", (node,), position)
        assert stream is not None, "a live output has a reader"
        for output in self.outputs.get(stream, ()):
            spec = self.program.outputs[output]
            for start, count in self.memory.chunks(spec):
                tensor = len(self.program.inputs) + output
                self.memory.store(tensor, spec, start, operands[start : start + count], step)
        if stream in self.buffered:
            buffer = self.buffer(stream, values)
            first = self.w.emit(f"mul i64 {step}, {stream.width}")
            for i, operand in enumerate(operands):
                place = self.storage.element(buffer, first, offset=i)
                self.w.line(f"  store {self.w.lane.float} {operand}, {place}")


def _set_results(node: Expr, last: dict[int, str], values: Values) -> None:
    """The final carry of a scan."""
    for i, operand in last.items():
        get = node.graph.find("get", (node,), i)
        if get is not None:
            values[get] = operand
