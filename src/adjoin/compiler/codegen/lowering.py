"""Nodes as instructions: operations by their entry in the table, constructs by a rule of their own each."""

from collections.abc import Callable
from typing import Any

from adjoin.compiler.codegen import elementary
from adjoin.compiler.codegen.memory import Memory
from adjoin.compiler.codegen.storage import Storage
from adjoin.compiler.codegen.writer import Writer
from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.kinds import BOOL, INT
from adjoin.compiler.ir.op import OPS
from adjoin.compiler.ir.program import Program

Values = dict[Expr, str]
"""Node -> the operand that names its value."""

Together = dict[tuple[str, tuple[Expr, ...]], tuple[str, ...]]
"""Routine and arguments -> the results of one that computes several operations at once, such as sine and cosine."""


def routine(name: str) -> Callable[..., Any]:
    """What the table calls by this name, as a function of a writer and operands."""
    return getattr(Writer, name) if hasattr(Writer, name) else getattr(elementary, name)


class Lowering:
    """Writes single instructions.

    Attributes:
        uniform: integers that are the same in all lanes; their operands are scalars (i32), those of others vectors.
    """

    def __init__(self, program: Program, writer: Writer, memory: Memory, storage: Storage):
        self.program, self.w, self.memory, self.storage = program, writer, memory, storage
        self.uniform: set[Expr] = set()

    def lower(self, node: Expr, values: Values, together: Together) -> str:
        """Write a node, of which the values have the arguments, and return its operand."""
        rule = CONSTRUCTS.get(node.op)
        if rule is not None:
            return rule(self, node, values)
        if node.kind == INT or node.args[0].kind == INT:
            return self.integer_operation(node, values)
        operands, lower = [values[arg] for arg in node.args], OPS[node.op].lower
        if isinstance(lower, str):
            return routine(lower)(self.w, *operands)
        if isinstance(lower, tuple):
            name, position = lower
            if (name, node.args) not in together:
                together[name, node.args] = routine(name)(self.w, *operands)
            return together[name, node.args][position]
        assert lower is not None, f"{node.op} is not lowered here"
        return lower(self.w, node, *operands)

    # Integers: i32, one for all lanes where they cannot differ --------------------------------------------------------

    def integer_operation(self, node: Expr, values: Values) -> str:
        """An operation on integers."""
        w, lane = self.w, self.w.lane
        uniform, kind, args = self.integers(node, values)
        instruction = OPS[node.op].integer
        assert instruction is not None, f"{node.op} is not defined on integers"
        if instruction == "select":
            return w.select(args[0], args[1], args[2], INT)
        if instruction.startswith("llvm."):
            suffix = kind if uniform else f"v{lane.width}i32"
            result = w.intrinsic(f"{instruction}.{suffix}", kind, (kind, args[0]), (kind, args[1]))
        else:
            result = w.emit(f"{instruction} {kind} {args[0]}, {args[1]}")
        if uniform and node.kind == INT:
            self.uniform.add(node)
        return self.spread(result, "i1") if uniform and node.kind == BOOL else result

    def integers(self, node: Expr, values: Values) -> tuple[bool, str, list[str]]:
        """The arguments of a node on integers: whether all are uniform, their LLVM type, and their operands."""
        lane = self.w.lane
        uniform = all(arg in self.uniform for arg in node.args) or lane.width == 1
        args = [values[arg] if uniform or arg not in self.uniform else self.spread(values[arg]) for arg in node.args]
        return uniform, "i32" if uniform else lane.vector("i32"), args

    def integer(self, node: Expr, values: Values) -> str:
        """A constant integer."""
        self.uniform.add(node)
        return str(node.data)

    def length(self, node: Expr, values: Values) -> str:
        """A run-time integer of the kernel."""
        self.uniform.add(node)
        return self.w.emit(f"trunc i64 {self.storage.count(node.data)} to i32")

    def to_index(self, node: Expr, values: Values) -> str:
        """The integer part of a float."""
        lane, kind = self.w.lane, self.w.lane.vector("i32")
        suffix = kind if lane.width == 1 else f"v{lane.width}i32"
        return self.w.intrinsic(f"llvm.fptosi.sat.{suffix}.{lane.suffix}", kind, (lane.float, values[node.args[0]]))

    def to_float(self, node: Expr, values: Values) -> str:
        """An integer as a float."""
        lane = self.w.lane
        uniform, kind, (operand,) = self.integers(node, values)
        number = self.w.emit(f"sitofp {kind} {operand} to {lane.scalar if uniform else lane.float}")
        return self.spread(number, lane.scalar) if uniform else number

    def spread(self, operand: str, scalar: str = "i32") -> str:
        """One value, in every lane."""
        w, width = self.w, self.w.lane.width
        if width == 1:
            return operand
        kind = w.lane.vector(scalar)
        single = w.emit(f"insertelement {kind} poison, {scalar} {operand}, i64 0")
        return w.emit(f"shufflevector {kind} {single}, {kind} poison, <{width} x i32> zeroinitializer")

    # Arrays and tables ------------------------------------------------------------------------------------------------

    def access(self, node: Expr, values: Values) -> str:
        """A load from a scratch array, or a store to it."""
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
        """An index, within an array."""
        w = self.w
        suffix = kind if kind == "i32" else f"v{w.lane.width}i32"
        low, high = ("0", str(size - 1)) if kind == "i32" else ("zeroinitializer", f"splat (i32 {size - 1})")
        above = w.intrinsic(f"llvm.smax.{suffix}", kind, (kind, operand), (kind, low))
        return w.intrinsic(f"llvm.smin.{suffix}", kind, (kind, above), (kind, high))

    def look_up(self, node: Expr, values: Values) -> str:
        """One number of a table."""
        tensor, index = int(values[node.args[0]]), node.args[1]
        uniform = index in self.uniform or self.w.lane.width == 1
        return self.memory.look_up(tensor, self.program.inputs[tensor], values[index], uniform)


CONSTRUCTS: dict[str, Callable[[Lowering, Expr, Values], str]] = {
    "const": lambda self, node, values: self.w.const(node.value),
    "boolean": lambda self, node, values: self.w.splat("i1", "true" if node.data else "false"),
    "integer": Lowering.integer,
    "length": Lowering.length,
    "to_float": Lowering.to_float,
    "to_index": Lowering.to_index,
    "load": Lowering.access,
    "store": Lowering.access,
    "lookup": Lowering.look_up,
}
"""The instructions of constructs; the renderer itself has rules for inputs, arrays and loops."""
