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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Union

import numpy as np
import torch

from adjoin.compiler.ir import ops, simplify
from adjoin.compiler.ir.kinds import BOOL, FLOAT, INT
from adjoin.compiler.ir.op import OPS, Traced
from adjoin.errors import TraceError

Scalar = Union["Expr", float, torch.Tensor]

RECREATED = ("const", "integer", "boolean", "length", "constants")
"""Operations whose nodes a loop body has itself, instead of capturing them."""


class Graph:
    """The nodes of one function or loop body, in the order in which they were made.

    Attributes:
        parent: the graph around this loop body; None for a kernel's own graph.
        nodes: every node, arguments before their users.
        captures: outer scalar -> the parameter that stands for it in this body.
        readers: version of a scratch array -> the nodes that read it, or None once another version replaced it.
        copies: of large versions that were replaced, what they held; see `restore` of scratch arrays.
        guard: see `implicit.guard`.
    """

    def __init__(self, parent: "Graph | None" = None):
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.nodes: list[Expr] = []
        self.captures: dict[Expr, Expr] = {}
        self.readers: dict[Expr, list[Expr] | None] = {}
        self.copies: dict[Expr, Expr] = {}
        self.guard: Expr | None = None
        self.closed = False
        self._interned: dict[tuple, Expr] = {}

    def node(self, op: str, args: tuple["Expr", ...], data: Any = None, kind: str = FLOAT) -> "Expr":
        """The node with this operation and arguments: an existing one, or a new one."""
        key = (op, data, *[arg.index for arg in args])
        node = self._interned.get(key)
        if node is None:
            node = self._interned[key] = self.fresh(op, args, data, kind)
        return node

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
        if value.op in RECREATED:
            again = self.node(value.op, (), value.data, value.kind)
            again.width = value.width
            return again
        if self.parent is None or value.graph.depth >= self.depth:
            raise TraceError(
                "two traced functions were mixed, or a value left its loop body without being returned from it"
            )
        outer = value if value.graph is self.parent else self.parent.capture(value)
        parameter = self.captures.get(outer)
        if parameter is None:
            parameter = self.captures[outer] = self.fresh("param", (), ("capture", outer.data), outer.kind)
            parameter.width, parameter.used, parameter.uniform = outer.width, outer.used, outer.uniform
        return parameter


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


class Expr(Traced):
    """One traced value. Use it like a float; it cannot be the condition of a Python `if`.

    Attributes:
        op: the operation that makes it.
        args: the nodes it is made from, all of the same graph.
        data: what else the operation needs (a constant's value, a loop's body, ...).
        kind: float, bool, int, array, stream or tuple.
        index: its place in its graph.
        width: elements of an array or of one step of a stream.
        used: of an array of which only the first records are used: how many, and the elements of each.
        may_be_infinite: infinite or NaN although every input is finite, as far as a look at the operations tells.
        uniform: of an integer or a condition: the same in all environments that a processor works on together.
    """

    __slots__ = ("args", "data", "graph", "index", "kind", "may_be_infinite", "op", "uniform", "used", "width")

    def __init__(self, graph: Graph, op: str, args: tuple["Expr", ...], data: Any, kind: str, index: int):
        self.graph = graph
        self.op = op
        self.args = args
        self.data = data
        self.kind = kind
        self.index = index
        self.width = 1
        self.used: tuple[Expr, int] | None = None
        self.may_be_infinite = OPS[op].may_be_infinite or any(arg.may_be_infinite for arg in args)
        self.uniform = kind in (INT, BOOL) and (op in UNIFORM or _all_uniform(op, args, kind))

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
            return ops.sqrt(self)
        if exponent != int(exponent):
            return ops.exp(ops.log(self) * exponent)
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

    def apply(self, op: str, args: tuple[Any, ...]) -> "Expr":
        """The result of an operation on this value and others."""
        return apply(op, *args)

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


UNIFORM = frozenset(("integer", "boolean", "length", "any"))
"""What is the same in all environments, whatever it is made of."""


def _all_uniform(op: str, args: tuple[Expr, ...], kind: str) -> bool:
    """Whether an operation on integers and conditions is the same in all environments, because its arguments are."""
    if op in ("load", "lookup"):
        return args[1].uniform
    if op == "get":
        return kind == INT  # loops carry no others
    return bool(args) and op not in ("param", "to_index") and all(arg.uniform for arg in args)


def _method(op: str) -> Callable[..., Expr]:
    return lambda *args: args[0].apply(op, args)


for _op in OPS.values():
    if _op.numpy is not None:
        setattr(Expr, _op.numpy, _method(_op.name))  # numpy calls it for np.sin(object_array) and the like


# Building nodes -------------------------------------------------------------------------------------------------------


def apply(op: str, *args: Any) -> Expr:
    """The node of an operation on values of which at least one is traced, or something simpler."""
    return (unary, binary, choose)[len(args) - 1](op, *args)


def _innermost(a: Any, b: Any) -> Graph:
    """The graph in which an operation on both belongs."""
    if isinstance(a, Expr):
        return b.graph if isinstance(b, Expr) and b.graph.depth > a.graph.depth else a.graph
    return b.graph


def unary(op: str, a: Any) -> Expr:
    """The node of an operation on one value, or something simpler."""
    entry, graph = OPS[op], a.graph
    if a.kind != entry.kind:
        if a.kind == INT and op == "neg":
            return graph.integer(0) - a
        if a.kind != INT or entry.kind != FLOAT:
            raise TraceError(f"'{op}' got a {a.kind} value")
        a = to_float(a)
    if a.op == "boolean" or a.op == "const":
        return _constant(graph, entry.fold(a.value), entry.result)
    simpler = None if entry.simplify is None else entry.simplify(a)
    return graph.node(op, (a,), None, entry.result) if simpler is None else simpler


def binary(op: str, a: Any, b: Any) -> Expr:
    """The node of an operation on two values, at least one of them traced, or something simpler."""
    for operand in (a, b):
        if not isinstance(operand, (Expr, float, int, np.floating, np.integer, np.bool_)):
            if isinstance(operand, (torch.Tensor, str)) or operand is None:
                _innermost(a, b).lift(operand)  # raises, with the reason
            return NotImplemented
    graph = _innermost(a, b)
    if type(a) is not Expr or a.graph is not graph:
        a = graph.integer(a) if isinstance(a, int) and not isinstance(a, bool) and b.kind == INT else graph.lift(a)
    if type(b) is not Expr or b.graph is not graph:
        b = graph.integer(b) if isinstance(b, int) and not isinstance(b, bool) and a.kind == INT else graph.lift(b)
    if a.kind != b.kind and INT in (a.kind, b.kind):
        a, b = to_float(a), to_float(b)
    entry = OPS[op]
    if a.kind == b.kind == INT:
        if entry.integer is None:
            raise TraceError(f"'{op}' is not defined on integers; convert with to_float()")
        if a.op == "integer" and b.op == "integer":
            return _constant(graph, entry.fold(a.data, b.data), entry.result if entry.result == BOOL else INT)
        return graph.node(op, (a, b), None, entry.result if entry.result == BOOL else INT)
    if a.kind != entry.kind or b.kind != entry.kind:
        raise TraceError(f"'{op}' got a {a.kind} and a {b.kind} value")
    if a.op == "const" and b.op == "const":
        return _constant(graph, entry.fold(a.value, b.value), entry.result)
    simpler = None if entry.simplify is None else entry.simplify(a, b)
    if simpler is not None:
        return simpler
    if entry.commutative and a.index > b.index:
        a, b = b, a
    return graph.node(op, (a, b), None, entry.result)


def choose(op: str, condition: Expr, a: Any, b: Any) -> Expr:
    """The node of a select, or something simpler."""
    graph = condition.graph
    for branch in (a, b):
        if isinstance(branch, Expr) and branch.graph.depth > graph.depth:
            graph = branch.graph
    condition, a, b = graph.lift(condition), graph.lift(a), graph.lift(b)
    if condition.kind != BOOL or a.kind != b.kind or a.kind not in (FLOAT, BOOL, INT):
        raise TraceError(f"select(condition, a, b) got a {condition.kind}, a {a.kind} and a {b.kind} value")
    simpler = simplify.select(condition, a, b)
    if simpler is not None:
        return simpler
    if condition.op == "not":
        condition, a, b = condition.args[0], b, a
    return graph.node(op, (condition, a, b), None, a.kind)


def _constant(graph: Graph, value: Any, kind: str) -> Expr:
    if kind == BOOL:
        return graph.boolean(value)
    return graph.integer(value) if kind == INT else graph.const(value)


def integer(value: int) -> Expr:
    """A whole number as a traced integer: what a loop counts with."""
    return current_graph().integer(value)


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


def as_number(value: Expr) -> Expr:
    """A value as a float: a condition becomes 0 or 1."""
    if value.kind == BOOL:
        return ops.select(value, 1.0, 0.0)
    return value.graph.node("to_float", (value,)) if value.kind == INT else value
