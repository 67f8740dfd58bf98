"""Rules that make a graph smaller as it is built: constants are computed, zeros and ones vanish."""

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adjoin.compiler.ir.graph import Expr, Graph


def is_const(value: "Expr", number: float | None = None) -> bool:
    """Whether a node is a constant, or this one. A negative zero counts as zero."""
    return value.op == "const" and (number is None or value.value == number)


def _add(graph: "Graph", a: "Expr", b: "Expr") -> "Expr | None":
    if is_const(a, 0.0):
        return b
    if is_const(b, 0.0):
        return a
    if b.op == "neg":
        return a - b.args[0]
    if a.op == "neg":
        return b - a.args[0]
    return None


def _sub(graph: "Graph", a: "Expr", b: "Expr") -> "Expr | None":
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


def _mul(graph: "Graph", a: "Expr", b: "Expr") -> "Expr | None":
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


def _div(graph: "Graph", a: "Expr", b: "Expr") -> "Expr | None":
    if is_const(a, 0.0):
        return graph.const(0.0)
    if b.op == "const" and b.value != 0.0 and math.isfinite(b.value):
        return a * (1.0 / b.value)
    if a.op == "neg":
        return -(a.args[0] / b)
    if b.op == "neg":
        return -(a / b.args[0])
    return None


def _same(graph: "Graph", a: "Expr", b: "Expr") -> "Expr | None":
    return a if a is b else None


SIMPLIFY: dict[str, "Callable[[Graph, Expr, Expr], Expr | None]"] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "min": _same,
    "max": _same,
}


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
