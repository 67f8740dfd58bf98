"""Scalar expressions: interned nodes in a graph, folded as they are built.

An `Expr` is one scalar of one environment. Arithmetic on it appends a node to its graph, unless the same node is there
already (common terms are shared) or the result is known (constants are folded, zeros and ones vanish: `0 * x` is 0
whatever x is, NaN included).

A graph may have a parent: the body of a loop is a graph whose parent is the code around the loop. A body may use the
scalars of its parents freely; each becomes a *capture*, an argument of the loop.
"""

import gc
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Union

import numpy as np
import torch

from adjoin.compiler.ir.fold import FOLD, SIMPLIFY
from adjoin.errors import TraceError

Scalar = Union["Expr", float, torch.Tensor]

FLOAT, BOOL, INT, ARRAY, STREAM, TUPLE = "float", "bool", "int", "array", "stream", "tuple"
TABLE = "table"

COMMUTATIVE = frozenset(("add", "mul", "eq", "ne", "and", "or"))
RISKY = frozenset(("div", "sqrt", "tan", "asin", "acos", "exp", "log", "param", "get", "load"))
BOOLEAN = frozenset(("lt", "le", "eq", "ne", "and", "or", "not"))


class Graph:
    """The nodes of one function or loop body, in the order in which they were made.

    Attributes:
        parent: the graph around this loop body; None for a kernel's own graph.
        nodes: every node, arguments before their users.
        captures: outer scalar -> the parameter that stands for it in this body.
        readers: version of a scratch array -> the nodes that read it, or None once another version replaced it.
        guard: see `implicit.guard`.
    """

    def __init__(self, parent: "Graph | None" = None):
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.nodes: list[Expr] = []
        self.captures: dict[Expr, Expr] = {}
        self.readers: dict[Expr, list[Expr] | None] = {}
        self.guard: Expr | None = None
        self.closed = False
        self._interned: dict[tuple, Expr] = {}

    def node(self, op: str, args: tuple["Expr", ...], data: Any = None, kind: str = FLOAT) -> "Expr":
        """The node with this operation and arguments: an existing one, or a new one."""
        key = (op, data, *[arg.index for arg in args])
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = self.fresh(op, args, data, kind)
        return found

    def find(self, op: str, args: tuple["Expr", ...], data: Any = None) -> "Expr | None":
        """The node with this operation and arguments, if it was made before."""
        return self._interned.get((op, data, *[arg.index for arg in args]))

    def fresh(self, op: str, args: tuple["Expr", ...] = (), data: Any = None, kind: str = FLOAT) -> "Expr":
        """A new node, never shared: parameters, loops and memory operations."""
        if self.closed:
            raise TraceError(
                "a value from inside a loop body was used after the loop ended; "
                "return it from the body, as a carry or a per-step output"
            )
        expr = Expr(self, op, args, data, kind, len(self.nodes))
        self.nodes.append(expr)
        return expr

    def const(self, value: float) -> "Expr":
        """A float constant. The two zeros differ."""
        value = float(value)
        return self.node("const", (), (value, math.copysign(1.0, value)) if value == 0 else value)

    def integer(self, value: int) -> "Expr":
        """An integer constant, for indices."""
        return self.node("integer", (), int(value), INT)

    def boolean(self, value: bool) -> "Expr":
        """A constant condition."""
        return self.node("boolean", (), bool(value), BOOL)

    def lift(self, value: Any) -> "Expr":
        """A scalar of this graph: constants are made here, scalars of outer graphs captured."""
        if isinstance(value, Expr):
            return value if value.graph is self else self.capture(value)
        if isinstance(value, (bool, np.bool_)):
            return self.boolean(bool(value))
        if isinstance(value, (int, float, np.floating, np.integer)):
            return self.const(float(value))
        if isinstance(value, torch.Tensor):
            raise TraceError(
                "a torch tensor met a traced scalar; make the tensor a named input of the traced function, "
                "or a constant of the kernel with .tolist()"
            )
        raise TraceError(f"expected a traced scalar or a number, got {type(value).__name__}: {value!r}")

    def capture(self, value: "Expr") -> "Expr":
        """The stand-in, in this body, for a scalar of a graph around it."""
        if value.op in ("const", "integer", "boolean", "length"):
            return self.node(value.op, (), value.data, value.kind)
        if self.parent is None or value.graph.depth >= self.depth:
            raise TraceError(
                "two traced functions were mixed, or a value left its loop body without being returned from it"
            )
        outer = value if value.graph is self.parent else self.parent.capture(value)
        found = self.captures.get(outer)
        if found is None:
            found = self.captures[outer] = self.fresh("param", (), ("capture", outer.data), outer.kind)
            found.width = outer.width
        return found


_tracing = threading.local()


@contextmanager
def tracing(graph: Graph) -> Iterator[None]:
    """Make a graph the one that new loops and scratch arrays of this thread go into."""
    before = getattr(_tracing, "graph", None)
    _tracing.graph = graph
    try:
        yield
    finally:
        _tracing.graph = before


@contextmanager
def uncollected() -> Iterator[None]:
    """Without Python's search for cycles of garbage, which walks a growing graph again and again, and finds none."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def current_graph() -> Graph:
    """The graph of the function or loop body being traced."""
    graph = getattr(_tracing, "graph", None)
    if graph is None:
        raise TraceError("loop, scan and scratch work inside a traced function only; see adjoin.function")
    return graph


class Expr:
    """One traced value. Use it like a float; it cannot be the condition of a Python `if`.

    Attributes:
        op: the operation that makes it.
        args: the nodes it is made from, all of the same graph.
        data: what else the operation needs (a constant's value, a loop's body, ...).
        kind: float, bool, int, array, stream or tuple.
        index: its place in its graph.
        width: elements of an array or of one step of a stream.
        risky: may be infinite or NaN although every input is finite, as far as a look at the operations tells.
    """

    __slots__ = ("args", "data", "graph", "index", "kind", "op", "risky", "width")

    def __init__(self, graph: Graph, op: str, args: tuple["Expr", ...], data: Any, kind: str, index: int):
        self.graph = graph
        self.op = op
        self.args = args
        self.data = data
        self.kind = kind
        self.index = index
        self.width = 1
        self.risky = op in RISKY or any(arg.risky for arg in args)

    @property
    def value(self) -> Any:
        """The number a constant holds."""
        return self.data[0] if type(self.data) is tuple else self.data

    def __add__(self, other: Any) -> "Expr":
        return binary("add", self, other)

    def __radd__(self, other: Any) -> "Expr":
        return binary("add", other, self)

    def __sub__(self, other: Any) -> "Expr":
        return binary("sub", self, other)

    def __rsub__(self, other: Any) -> "Expr":
        return binary("sub", other, self)

    def __mul__(self, other: Any) -> "Expr":
        return binary("mul", self, other)

    def __rmul__(self, other: Any) -> "Expr":
        return binary("mul", other, self)

    def __truediv__(self, other: Any) -> "Expr":
        return binary("div", self, other)

    def __rtruediv__(self, other: Any) -> "Expr":
        return binary("div", other, self)

    def __neg__(self) -> "Expr":
        return unary("neg", self)

    def __pos__(self) -> "Expr":
        return self

    def __abs__(self) -> "Expr":
        return unary("abs", self)

    def __pow__(self, exponent: Any) -> "Expr":
        if not isinstance(exponent, (int, float)):
            raise TraceError(
                f"x ** y is traced for a number y only, got {type(exponent).__name__}: use exp(y * log(x))"
            )
        if exponent == 0.5:
            return self.sqrt()
        if exponent != int(exponent):
            return (self.log() * exponent).exp()
        power, result = int(abs(exponent)), None
        square = self
        while power:
            if power & 1:
                result = square if result is None else result * square
            square, power = square * square, power >> 1
        result = self.graph.const(1.0) if result is None else result
        return 1.0 / result if exponent < 0 else result

    def __lt__(self, other: Any) -> "Expr":
        return binary("lt", self, other)

    def __le__(self, other: Any) -> "Expr":
        return binary("le", self, other)

    def __gt__(self, other: Any) -> "Expr":
        return binary("lt", other, self)

    def __ge__(self, other: Any) -> "Expr":
        return binary("le", other, self)

    def __eq__(self, other: Any) -> "Expr":  # pyright: ignore[reportIncompatibleMethodOverride]
        return binary("eq", self, other)

    def __ne__(self, other: Any) -> "Expr":  # pyright: ignore[reportIncompatibleMethodOverride]
        return binary("ne", self, other)

    __hash__ = object.__hash__

    def __and__(self, other: Any) -> "Expr":
        return binary("and", self, other)

    def __or__(self, other: Any) -> "Expr":
        return binary("or", self, other)

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> "Expr":
        return unary("not", self)

    # numpy calls these methods for np.sin(object_array) and the like.

    def sqrt(self) -> "Expr":
        """Square root."""
        return unary("sqrt", self)

    def sin(self) -> "Expr":
        """Sine."""
        return unary("sin", self)

    def cos(self) -> "Expr":
        """Cosine."""
        return unary("cos", self)

    def tan(self) -> "Expr":
        """Tangent."""
        return unary("tan", self)

    def arcsin(self) -> "Expr":
        """Inverse sine."""
        return unary("asin", self)

    def arccos(self) -> "Expr":
        """Inverse cosine."""
        return unary("acos", self)

    def arctan2(self, x: Any) -> "Expr":
        """Angle of the point (x, self)."""
        return binary("atan2", self, x)

    def exp(self) -> "Expr":
        """Exponential."""
        return unary("exp", self)

    def log(self) -> "Expr":
        """Natural logarithm."""
        return unary("log", self)

    def tanh(self) -> "Expr":
        """Hyperbolic tangent."""
        return unary("tanh", self)

    def floor(self) -> "Expr":
        """Largest whole number not above."""
        return unary("floor", self)

    def conjugate(self) -> "Expr":
        """Itself: every traced scalar is real."""
        return self

    def __bool__(self) -> NoReturn:
        raise TraceError(
            "a traced value has no truth value while tracing, so `if`, `and`, `or`, `not`, `min` and `max` cannot use "
            "it; use adjoin.trace.select(condition, a, b), &, |, ~, minimum and maximum"
        )

    def __float__(self) -> NoReturn:
        raise TraceError("a traced value has no number yet, so float(), int() and math functions cannot use it")

    __int__ = __index__ = __float__

    def __iter__(self) -> NoReturn:
        raise TraceError("a traced scalar cannot be iterated over")

    def __repr__(self) -> str:
        if self.op in ("const", "integer", "boolean"):
            return f"{self.value}"
        return f"<{self.kind} {self.op} #{self.index}>"


# Building nodes: rules that make the graph smaller ------------------------------------------------------------------


def _home(a: Any, b: Any) -> Graph:
    """The graph in which an operation on both belongs: the innermost."""
    if isinstance(a, Expr):
        if isinstance(b, Expr) and b.graph.depth > a.graph.depth:
            return b.graph
        return a.graph
    return b.graph


def binary(op: str, a: Any, b: Any) -> Expr:
    """The node of an operation on two values, at least one of them traced, or something simpler."""
    for operand in (a, b):
        if not isinstance(operand, (Expr, float, int, np.floating, np.integer, np.bool_)):
            if isinstance(operand, (torch.Tensor, str)) or operand is None:
                _home(a, b).lift(operand)  # raises, with the reason
            return NotImplemented
    graph = _home(a, b)
    if type(a) is not Expr or a.graph is not graph:
        a = graph.integer(a) if isinstance(a, int) and not isinstance(a, bool) and b.kind == INT else graph.lift(a)
    if type(b) is not Expr or b.graph is not graph:
        b = graph.integer(b) if isinstance(b, int) and not isinstance(b, bool) and a.kind == INT else graph.lift(b)
    if a.kind != b.kind and INT in (a.kind, b.kind):
        a, b = to_float(a), to_float(b)
    if a.kind != (BOOL if op in ("and", "or") else a.kind) or a.kind != b.kind or a.kind not in (FLOAT, INT, BOOL):
        raise TraceError(f"'{op}' got a {a.kind} and a {b.kind} value")
    if a.kind == INT:
        return _integer(op, graph, a, b)
    if a.kind == BOOL:
        return _logic(op, graph, a, b)
    if a.op == "const" and b.op == "const":
        value = FOLD[op](a.value, b.value)
        return graph.boolean(value) if op in BOOLEAN else graph.const(value)
    simpler = SIMPLIFY[op](graph, a, b) if op in SIMPLIFY else None
    if simpler is not None:
        return simpler
    if op in COMMUTATIVE and a.index > b.index:
        a, b = b, a
    return graph.node(op, (a, b), None, BOOL if op in BOOLEAN else FLOAT)


def _integer(op: str, graph: Graph, a: Expr, b: Expr) -> Expr:
    if op not in ("add", "sub", "mul", "lt", "le", "eq", "ne", "min", "max"):
        raise TraceError(f"'{op}' is not defined on integers; convert with to_float()")
    if a.op == "integer" and b.op == "integer":
        value = FOLD[op](a.data, b.data)
        return graph.boolean(value) if op in BOOLEAN else graph.integer(value)
    return graph.node(op, (a, b), None, BOOL if op in BOOLEAN else INT)


def _logic(op: str, graph: Graph, a: Expr, b: Expr) -> Expr:
    if op not in ("and", "or"):
        raise TraceError(f"'{op}' is not defined on conditions")
    for this, other in ((a, b), (b, a)):
        if this.op == "boolean":
            return other if this.data == (op == "and") else this
    if a is b:
        return a
    return graph.node(op, (a, b) if a.index < b.index else (b, a), None, BOOL)


def unary(op: str, a: Expr) -> Expr:
    """The node of an operation on one value, or something simpler."""
    graph = a.graph
    if a.kind != (BOOL if op == "not" else FLOAT):
        if a.kind == INT and op == "neg":
            return graph.integer(0) - a
        if a.kind == INT and op != "not":
            a = to_float(a)
        else:
            raise TraceError(f"'{op}' got a {a.kind} value")
    if a.op == "boolean":
        return graph.boolean(not a.data)
    if a.op == "const":
        return graph.const(FOLD[op](a.value))
    if op in ("neg", "not") and a.op == op:
        return a.args[0]
    if op == "neg" and a.op == "sub":
        return a.args[1] - a.args[0]
    if op == "abs" and a.op in ("neg", "abs"):
        a = a.args[0]
    return graph.node(op, (a,), None, BOOL if op == "not" else FLOAT)


def to_float(value: Expr) -> Expr:
    """An integer, such as a loop's counter, as a float."""
    if value.kind != INT:
        return value
    if value.op == "integer":
        return value.graph.const(float(value.data))
    return value.graph.node("to_float", (value,))


def to_index(value: Expr) -> Expr:
    """The integer part of a float, for indexing scratch memory. NaN becomes 0; the access itself clamps."""
    if value.kind == INT:
        return value
    return value.graph.node("to_index", (value,), None, INT)
