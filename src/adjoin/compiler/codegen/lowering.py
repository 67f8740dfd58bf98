"""Nodes as instructions: operations by their entry in the table, constructs by a rule of their own each."""

from collections.abc import Callable
from typing import Any

from adjoin.compiler.codegen import elementary
from adjoin.compiler.codegen.analysis import FusedSum
from adjoin.compiler.codegen.memory import Memory
from adjoin.compiler.codegen.storage import Storage
from adjoin.compiler.codegen.writer import Writer, float_literal
from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.kinds import BOOL, INDICES, INT
from adjoin.compiler.ir.op import OPS
from adjoin.compiler.ir.program import Program
from adjoin.compiler.ir.scratch import Constants

Values = dict[Expr, str]
"""Node -> the operand that names its value."""

Together = dict[tuple[str, tuple[Expr, ...]], tuple[str, ...]]
"""Routine and arguments -> the results of one that computes several operations at once, such as sine and cosine."""


def routine(name: str) -> Callable[..., Any]:
    """What the table calls by this name, as a function of a writer and operands."""
    return getattr(Writer, name) if hasattr(Writer, name) else getattr(elementary, name)


def split_offset(index: Expr) -> tuple[Expr, int]:
    """An integer as another one plus a number, for which the address of a memory access has room."""
    if index.op == "add":
        for base, offset in (index.args, index.args[::-1]):
            if offset.op == "integer" and offset.data >= 0:
                return base, offset.data
    return index, 0


class Lowering:
    """Writes single instructions.

    Attributes:
        conditions: conditions that are the same in all lanes -> the scalar (i1) that the vectors of them repeat.
        globals: constants of the kernel by name, and their definitions.
    """

    def __init__(self, program: Program, writer: Writer, memory: Memory, storage: Storage):
        self.program, self.w, self.memory, self.storage = program, writer, memory, storage
        self.conditions: dict[Expr, str] = {}
        self.globals: dict[str, str] = {}

    def lower(self, node: Expr, values: Values, together: Together) -> str:
        """Write a node, of which the values have the arguments, and return its operand."""
        rule = CONSTRUCTS.get(node.op)
        if rule is not None:
            return rule(self, node, values)
        if node.kind == INT or node.args[0].kind == INT:
            return self.integer_operation(node, values)
        if node.kind == BOOL and all(arg in self.conditions for arg in node.args):
            return self.uniform_logic(node)
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

    # Conditions that are the same in all lanes ------------------------------------------------------------------------

    def uniform_condition(self, node: Expr, scalar: str) -> str:
        """Remember the scalar of a condition, and return the vector of it."""
        self.conditions[node] = scalar
        return self.w.spread(scalar, "i1")

    def same_condition(self, node: Expr, like: Expr) -> None:
        """Remember that a parameter stands for a condition, if that is the same in all lanes."""
        self.conditions.pop(node, None)  # a body may be that of several loops
        if like in self.conditions:
            self.conditions[node] = self.conditions[like]

    def any_lane(self, condition: Expr, values: Values) -> str:
        """Whether a condition holds in any lane, as an i1."""
        return self.conditions[condition] if condition in self.conditions else self.w.any_lane(values[condition])

    def uniform_logic(self, node: Expr) -> str:
        """An operation on conditions that are the same in all lanes."""
        scalars = [self.conditions[arg] for arg in node.args]
        if node.op == "select":
            return self.uniform_condition(node, self.w.emit(f"select i1 {', i1 '.join(scalars)}"))
        operation = {"and": "and", "or": "or", "not": "xor"}[node.op]
        return self.uniform_condition(node, self.w.emit(f"{operation} i1 {', '.join([*scalars, 'true'][:2])}"))

    def any(self, node: Expr, values: Values) -> str:
        """Whether a condition holds in any lane, in every lane."""
        return self.uniform_condition(node, self.any_lane(node.args[0], values))

    def boolean(self, node: Expr, values: Values) -> str:
        """A constant condition."""
        return self.uniform_condition(node, "true" if node.data else "false")

    # Integers: i32, one for all lanes where they cannot differ --------------------------------------------------------

    def integer_operation(self, node: Expr, values: Values) -> str:
        """An operation on integers."""
        w, lane = self.w, self.w.lane
        uniform, kind, args = self.integers(node, values)
        instruction = OPS[node.op].integer
        assert instruction is not None, f"{node.op} is not defined on integers"
        if instruction == "select":
            if node.uniform:
                return w.emit(f"select i1 {self.conditions[node.args[0]]}, i32 {args[1]}, i32 {args[2]}")
            first, second = (self.w.spread(values[x]) if x.uniform else values[x] for x in node.args[1:])
            return w.select(values[node.args[0]], first, second, INT)
        if instruction.startswith("llvm."):
            suffix = kind if uniform else f"v{lane.width}i32"
            result = w.intrinsic(f"{instruction}.{suffix}", kind, (kind, args[0]), (kind, args[1]))
        else:
            result = w.emit(f"{instruction} {kind} {args[0]}, {args[1]}")
        return self.uniform_condition(node, result) if uniform and node.kind == BOOL else result

    def integers(self, node: Expr, values: Values) -> tuple[bool, str, list[str]]:
        """The arguments of a node on integers: whether all are uniform, their LLVM type, and their operands."""
        lane = self.w.lane
        uniform = all(arg.uniform for arg in node.args) or lane.width == 1
        args = [values[arg] if uniform or not arg.uniform else self.w.spread(values[arg]) for arg in node.args]
        return uniform, "i32" if uniform else lane.vector("i32"), args

    def integer(self, node: Expr, values: Values) -> str:
        """A constant integer."""
        return str(node.data)

    def length(self, node: Expr, values: Values) -> str:
        """A run-time integer of the kernel."""
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
        return self.w.spread(number, lane.scalar) if uniform else number

    # Arrays and tables ------------------------------------------------------------------------------------------------

    def access(self, node: Expr, values: Values) -> str:
        """A load from a scratch array, or a store to it."""
        array, index = node.args[:2]
        if index.uniform or self.w.lane.width == 1:
            place = self.element(node, values)
            kind = "i32" if array.kind == INDICES else self.w.lane.float
            if node.op == "load":
                return self.w.emit(f"load {kind}, {place}")
            self.w.line(f"  store {kind} {values[node.args[2]]}, {place}")
            return values[array]
        if node.op == "load":
            return self.gather(self.lane_elements(node, values))
        self.scatter(self.lane_elements(node, values), values[node.args[2]])
        return values[array]

    def accumulate(self, node: Expr, values: Values, fused: FusedSum | None) -> str:
        """An addition to an element of an array, in one instruction with the product that is added, if it is one."""
        w, (array, index, value) = self.w, node.args[:3]

        def total(before: str) -> str:
            if fused is None:
                return w.add(before, values[value])
            a, b = fused.product.args
            return w.fma(values[a], values[b], before)

        if index.uniform or w.lane.width == 1:
            place, kind = self.element(node, values), w.lane.float
            w.line(f"  store {kind} {total(w.emit(f'load {kind}, {place}'))}, {place}")
        else:
            places = self.lane_elements(node, values)
            self.scatter(places, total(self.gather(places)))
        return values[array]

    def element(self, node: Expr, values: Values) -> str:
        """The typed address of an element of an array that is the same in all lanes."""
        w, (array, index) = self.w, node.args[:2]
        kind = "i32" if array.kind == INDICES else None
        if index.op == "integer":
            return self.storage.element(values[array], values[index], kind)
        if node.data is None:
            operand = self.clamp(values[index], array.width, "i32")
            return self.storage.element(values[array], w.emit(f"zext i32 {operand} to i64"), kind)
        base, offset = split_offset(index)
        wide = w.emit(f"sext i32 {values[base]} to i64")
        return self.storage.element(values[array], wide, kind, offset)

    def lane_elements(self, node: Expr, values: Values) -> list[str]:
        """The typed address of each lane's own element: index * width + lane of an array of scalars."""
        w, lane, (array, index) = self.w, self.w.lane, node.args[:2]
        kind = lane.vector("i32")
        clamped = self.clamp(values[index], array.width, kind) if node.data is None else values[index]
        scaled = w.emit(f"mul {kind} {clamped}, splat (i32 {lane.width})")
        lanes = ", ".join(f"i32 {i}" for i in range(lane.width))
        offsets = w.emit(f"add {kind} {scaled}, <{lanes}>")
        base = self.storage.element(values[array], "0")
        space = base.rpartition(" ")[0]
        places = []
        for i in range(lane.width):
            offset = w.emit(f"extractelement {kind} {offsets}, i64 {i}")
            places.append(f"{space} {w.emit(f'getelementptr {lane.scalar}, {base}, i32 {offset}')}")
        return places

    def gather(self, places: list[str]) -> str:
        """The elements of all lanes, as a vector."""
        w, lane, loaded = self.w, self.w.lane, "poison"
        for i, place in enumerate(places):
            element = w.emit(f"load {lane.scalar}, {place}")
            loaded = w.emit(f"insertelement {lane.float} {loaded}, {lane.scalar} {element}, i64 {i}")
        return loaded

    def scatter(self, places: list[str], vector: str) -> None:
        """Write a vector to the elements of all lanes."""
        w, lane = self.w, self.w.lane
        for i, place in enumerate(places):
            element = w.emit(f"extractelement {lane.float} {vector}, i64 {i}")
            w.line(f"  store {lane.scalar} {element}, {place}")

    def clamp(self, operand: str, size: int, kind: str) -> str:
        """An index, within an array."""
        w = self.w
        suffix = kind if kind == "i32" else f"v{w.lane.width}i32"
        low, high = ("0", str(size - 1)) if kind == "i32" else ("zeroinitializer", f"splat (i32 {size - 1})")
        above = w.intrinsic(f"llvm.smax.{suffix}", kind, (kind, operand), (kind, low))
        return w.intrinsic(f"llvm.smin.{suffix}", kind, (kind, above), (kind, high))

    def look_up(self, node: Expr, values: Values) -> str:
        """One number of a table."""
        table, index = node.args
        if isinstance(table.data, Constants):
            return self.constant(node, table.data, values)
        tensor = int(values[table])
        uniform = index.uniform or self.w.lane.width == 1
        return self.memory.look_up(tensor, self.program.inputs[tensor], values[index], uniform)

    def constant(self, node: Expr, constants: Constants, values: Values) -> str:
        """One number of a table that is part of the kernel."""
        w, lane, index = self.w, self.w.lane, node.args[1]
        scalar = "i32" if node.kind == INT else lane.scalar
        name = f"@table_{constants.digest[:16]}_{scalar}"
        pointer, numbers = self.storage.constants, constants.numbers.tolist()
        if name not in self.globals:
            literals = [str(x) if node.kind == INT else float_literal(x, lane.bits) for x in numbers]
            space = pointer.partition(" ")[2]
            text = f"{name} = internal unnamed_addr {space} constant [{len(numbers)} x {scalar}] "
            self.globals[name] = f"{text}[{', '.join(f'{scalar} {x}' for x in literals)}], align 16"

        def read(operand: str, offset: int = 0) -> str:
            place = w.emit(f"getelementptr {scalar}, {pointer} {name}, i32 {operand}")
            place = w.emit(f"getelementptr {scalar}, {pointer} {place}, i32 {offset}") if offset else place
            return w.emit(f"load {scalar}, {pointer} {place}")

        if index.uniform or lane.width == 1:
            base, offset = split_offset(index)
            number = read(values[base], offset)
            return number if node.kind == INT else self.w.spread(number, scalar)
        vector, kind = "poison", lane.vector(scalar)
        for i in range(lane.width):
            number = read(w.emit(f"extractelement {lane.vector('i32')} {values[index]}, i64 {i}"))
            vector = w.emit(f"insertelement {kind} {vector}, {scalar} {number}, i64 {i}")
        return vector


CONSTRUCTS: dict[str, Callable[[Lowering, Expr, Values], str]] = {
    "const": lambda self, node, values: self.w.const(node.value),
    "any": Lowering.any,
    "boolean": Lowering.boolean,
    "integer": Lowering.integer,
    "length": Lowering.length,
    "to_float": Lowering.to_float,
    "to_index": Lowering.to_index,
    "load": Lowering.access,
    "store": Lowering.access,
    "lookup": Lowering.look_up,
}
"""The instructions of constructs; the renderer itself has rules for inputs, arrays and loops."""
