"""Scalar expressions: interned nodes in a graph, folded as they are built.

An `Expr` is one scalar of one environment. Arithmetic on it appends a node to its graph, unless the same node is there
already (common terms are shared) or the result is known (constants are folded, zeros and ones vanish: `0 * x` is 0
whatever x is, NaN included). The functions of this module (`sin`, `select`, ...) take traced scalars, floats and torch
tensors alike, so that an algorithm written with them runs on all three; and numpy arrays of traced scalars.

A graph may have a parent: the body of a loop is a graph whose parent is the code around the loop. A body may use the
scalars of its parents freely; each becomes a *capture*, an argument of the loop.
"""

import math
import operator
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Union

import numpy as np
import torch

from adjoin.errors import TraceError

Scalar = Union["Expr", float, torch.Tensor]

FLOAT, BOOL, INT, ARRAY, STREAM, TUPLE = "float", "bool", "int", "array", "stream", "tuple"

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
    """

    def __init__(self, parent: "Graph | None" = None):
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.nodes: list[Expr] = []
        self.captures: dict[Expr, Expr] = {}
        self.readers: dict[Expr, list[Expr] | None] = {}
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
        return _binary("add", self, other)

    def __radd__(self, other: Any) -> "Expr":
        return _binary("add", other, self)

    def __sub__(self, other: Any) -> "Expr":
        return _binary("sub", self, other)

    def __rsub__(self, other: Any) -> "Expr":
        return _binary("sub", other, self)

    def __mul__(self, other: Any) -> "Expr":
        return _binary("mul", self, other)

    def __rmul__(self, other: Any) -> "Expr":
        return _binary("mul", other, self)

    def __truediv__(self, other: Any) -> "Expr":
        return _binary("div", self, other)

    def __rtruediv__(self, other: Any) -> "Expr":
        return _binary("div", other, self)

    def __neg__(self) -> "Expr":
        return _unary("neg", self)

    def __pos__(self) -> "Expr":
        return self

    def __abs__(self) -> "Expr":
        return _unary("abs", self)

    def __pow__(self, exponent: Any) -> "Expr":
        if not isinstance(exponent, (int, float)):
            raise TraceError(
                f"x ** y is traced for a number y only, got {type(exponent).__name__}: use exp(y * log(x))"
            )
        if exponent == 0.5:
            return self.sqrt()
        if exponent != int(exponent):
            return exp(self.log() * exponent)
        power, result = int(abs(exponent)), None
        square = self
        while power:
            if power & 1:
                result = square if result is None else result * square
            square, power = square * square, power >> 1
        result = self.graph.const(1.0) if result is None else result
        return 1.0 / result if exponent < 0 else result

    def __lt__(self, other: Any) -> "Expr":
        return _binary("lt", self, other)

    def __le__(self, other: Any) -> "Expr":
        return _binary("le", self, other)

    def __gt__(self, other: Any) -> "Expr":
        return _binary("lt", other, self)

    def __ge__(self, other: Any) -> "Expr":
        return _binary("le", other, self)

    def __eq__(self, other: Any) -> "Expr":  # pyright: ignore[reportIncompatibleMethodOverride]
        return _binary("eq", self, other)

    def __ne__(self, other: Any) -> "Expr":  # pyright: ignore[reportIncompatibleMethodOverride]
        return _binary("ne", self, other)

    __hash__ = object.__hash__

    def __and__(self, other: Any) -> "Expr":
        return _binary("and", self, other)

    def __or__(self, other: Any) -> "Expr":
        return _binary("or", self, other)

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> "Expr":
        return _unary("not", self)

    # numpy calls these methods for np.sin(object_array) and the like.

    def sqrt(self) -> "Expr":
        """Square root."""
        return _unary("sqrt", self)

    def sin(self) -> "Expr":
        """Sine."""
        return _unary("sin", self)

    def cos(self) -> "Expr":
        """Cosine."""
        return _unary("cos", self)

    def tan(self) -> "Expr":
        """Tangent."""
        return _unary("tan", self)

    def arcsin(self) -> "Expr":
        """Inverse sine."""
        return _unary("asin", self)

    def arccos(self) -> "Expr":
        """Inverse cosine."""
        return _unary("acos", self)

    def arctan2(self, x: Any) -> "Expr":
        """Angle of the point (x, self)."""
        return _binary("atan2", self, x)

    def exp(self) -> "Expr":
        """Exponential."""
        return _unary("exp", self)

    def log(self) -> "Expr":
        """Natural logarithm."""
        return _unary("log", self)

    def tanh(self) -> "Expr":
        """Hyperbolic tangent."""
        return _unary("tanh", self)

    def floor(self) -> "Expr":
        """Largest whole number not above."""
        return _unary("floor", self)

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


def is_const(value: Any, number: float | None = None) -> bool:
    """Whether a node is a constant, or this one. A negative zero counts as zero."""
    return value.op == "const" and (number is None or value.value == number)


def _home(a: Any, b: Any) -> Graph:
    """The graph in which an operation on both belongs: the innermost."""
    if isinstance(a, Expr):
        if isinstance(b, Expr) and b.graph.depth > a.graph.depth:
            return b.graph
        return a.graph
    return b.graph


def _binary(op: str, a: Any, b: Any) -> Expr:
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


def _add(graph: Graph, a: Expr, b: Expr) -> Expr | None:
    if is_const(a, 0.0):
        return b
    if is_const(b, 0.0):
        return a
    if b.op == "neg":
        return a - b.args[0]
    if a.op == "neg":
        return b - a.args[0]
    return None


def _sub(graph: Graph, a: Expr, b: Expr) -> Expr | None:
    if is_const(b, 0.0):
        return a
    if is_const(a, 0.0):
        return -b
    if a is b:
        return graph.const(0.0)
    if b.op == "neg":
        return a + b.args[0]
    if a.op == "neg":
        return -(a.args[0] + b)
    return None


def _mul(graph: Graph, a: Expr, b: Expr) -> Expr | None:
    if b.op == "const":
        a, b = b, a
    if a.op == "const":
        value = a.value
        if value == 0.0:
            return graph.const(0.0)
        if value == 1.0:
            return b
        if value == -1.0:
            return -b
        if b.op == "mul" and b.args[0].op == "const":
            return graph.const(value * b.args[0].value) * b.args[1]
        if b.op == "mul" and b.args[1].op == "const":
            return graph.const(value * b.args[1].value) * b.args[0]
        if b.op == "neg":
            return graph.const(-value) * b.args[0]
    if a.op == "neg":
        return -(a.args[0] * b)
    if b.op == "neg":
        return -(a * b.args[0])
    return None


def _div(graph: Graph, a: Expr, b: Expr) -> Expr | None:
    if is_const(a, 0.0):
        return graph.const(0.0)
    if b.op == "const" and b.value != 0.0 and math.isfinite(b.value):
        return a * (1.0 / b.value)
    if a.op == "neg":
        return -(a.args[0] / b)
    if b.op == "neg":
        return -(a / b.args[0])
    return None


def _same(graph: Graph, a: Expr, b: Expr) -> Expr | None:
    return a if a is b else None


SIMPLIFY: dict[str, Callable[[Graph, Expr, Expr], Expr | None]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "min": _same,
    "max": _same,
}


def _unary(op: str, a: Expr) -> Expr:
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


def _guard(function: Callable[..., float], outside: float = math.nan) -> Callable[..., float]:
    """A math function that answers like IEEE arithmetic where Python raises."""

    def fold(*values: float) -> float:
        try:
            return function(*values)
        except (ValueError, OverflowError, ZeroDivisionError):
            return outside

    return fold


def _divide(a: float, b: float) -> float:
    if b == 0.0:
        return math.nan if a == 0.0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _smaller(a: float, b: float) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else min(a, b)


def _larger(a: float, b: float) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)


def _sign(a: float) -> float:
    return a if math.isnan(a) or a == 0.0 else math.copysign(1.0, a)


FOLD: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _divide,
    "min": _smaller,
    "max": _larger,
    "atan2": math.atan2,
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
    "neg": operator.neg,
    "abs": abs,
    "sign": _sign,
    "sqrt": _guard(math.sqrt),
    "sin": _guard(math.sin),
    "cos": _guard(math.cos),
    "tan": _guard(math.tan),
    "asin": _guard(math.asin),
    "acos": _guard(math.acos),
    "exp": _guard(math.exp, math.inf),
    "log": lambda a: -math.inf if a == 0.0 else _guard(math.log)(a),
    "tanh": math.tanh,
    "floor": lambda a: float(math.floor(a)) if math.isfinite(a) and a != 0.0 else a,
}


# Functions of traced scalars, floats and tensors --------------------------------------------------------------------


def _generic(op: str, name: str, doc: str) -> Callable[..., Any]:
    on_tensor = getattr(torch, name)

    def function(*args: Any) -> Any:
        if any(isinstance(arg, Expr) for arg in args):
            return _binary(op, *args) if len(args) == 2 else _unary(op, *args)
        if any(isinstance(arg, np.ndarray) for arg in args):
            return np.frompyfunc(function, len(args), 1)(*args)
        if any(isinstance(arg, torch.Tensor) for arg in args):
            like = next(arg for arg in args if isinstance(arg, torch.Tensor))
            return on_tensor(*[arg if isinstance(arg, torch.Tensor) else torch.full_like(like, arg) for arg in args])
        return FOLD[op](*[float(arg) for arg in args])

    function.__name__ = op
    function.__doc__ = doc
    return function


sqrt = _generic("sqrt", "sqrt", "Square root; its derivative at 0 is taken as 0.")
sin = _generic("sin", "sin", "Sine.")
cos = _generic("cos", "cos", "Cosine.")
tan = _generic("tan", "tan", "Tangent.")
asin = _generic("asin", "asin", "Inverse sine; its derivative at -1 and 1 is taken as 0.")
acos = _generic("acos", "acos", "Inverse cosine; its derivative at -1 and 1 is taken as 0.")
atan2 = _generic("atan2", "atan2", "atan2(y, x), the angle of (x, y); its derivative at the origin is taken as 0.")
exp = _generic("exp", "exp", "Exponential.")
log = _generic("log", "log", "Natural logarithm.")
tanh = _generic("tanh", "tanh", "Hyperbolic tangent.")
sign = _generic("sign", "sign", "-1, 0 or 1; its derivative is 0.")
floor = _generic("floor", "floor", "Largest whole number not above; its derivative is 0.")
minimum = _generic("min", "minimum", "The smaller; NaN if either is. A tie's derivative goes to the first argument.")
maximum = _generic("max", "maximum", "The larger; NaN if either is. A tie's derivative goes to the first argument.")


def select(condition: Any, a: Any, b: Any) -> Any:
    """Take `a` where the condition holds, else `b`. What is not taken has no influence, on gradients either."""
    if any(isinstance(value, np.ndarray) for value in (condition, a, b)):
        return np.frompyfunc(select, 3, 1)(condition, a, b)
    if isinstance(condition, torch.Tensor):
        return torch.where(condition, a, b)
    if not isinstance(condition, Expr):
        return a if condition else b
    graph = condition.graph
    for branch in (a, b):
        if isinstance(branch, Expr) and branch.graph.depth > graph.depth:
            graph = branch.graph
    condition, a, b = graph.lift(condition), graph.lift(a), graph.lift(b)
    if condition.kind != BOOL or a.kind != b.kind:
        raise TraceError(f"select(condition, a, b) got a {condition.kind}, a {a.kind} and a {b.kind} value")
    if condition.op == "boolean":
        return a if condition.data else b
    if a is b:
        return a
    if condition.op == "not":
        condition, a, b = condition.args[0], b, a
    return graph.node("select", (condition, a, b), None, a.kind)


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
