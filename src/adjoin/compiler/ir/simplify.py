"""Rules that make a graph smaller as it is built: what equals an operation on given arguments and is simpler, or None.

A product with 0 is 0 whatever the other factor is, NaN included.
"""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adjoin.compiler.ir.graph import Expr


def _is_zero(value: "Expr") -> bool:
    return value.op == "const" and value.value == 0.0  # either zero


def add(x: "Expr", y: "Expr") -> "Expr | None":
    """Simplify x + y."""
    if _is_zero(x):
        return y
    if _is_zero(y):
        return x
    if y.op == "neg":
        return x - y.args[0]
    if x.op == "neg":
        return y - x.args[0]
    return None


def sub(x: "Expr", y: "Expr") -> "Expr | None":
    """Simplify x - y."""
    if _is_zero(y):
        return x
    if _is_zero(x):
        return -y
    if x is y:
        return x.graph.const(0.0)
    if y.op == "neg":
        return x + y.args[0]
    if x.op == "neg":
        return -(x.args[0] + y)
    return None


def mul(x: "Expr", y: "Expr") -> "Expr | None":
    """Simplify x y."""
    if y.op == "const":
        x, y = y, x
    if x.op == "const":
        value = x.value
        if value == 0.0:
            return x.graph.const(0.0)
        if value == 1.0:
            return y
        if value == -1.0:
            return -y
        if y.op == "mul" and y.args[0].op == "const":
            return x.graph.const(value * y.args[0].value) * y.args[1]
        if y.op == "mul" and y.args[1].op == "const":
            return x.graph.const(value * y.args[1].value) * y.args[0]
        if y.op == "neg":
            return x.graph.const(-value) * y.args[0]
    if x.op == "neg":
        return -(x.args[0] * y)
    if y.op == "neg":
        return -(x * y.args[0])
    return None


def div(x: "Expr", y: "Expr") -> "Expr | None":
    """Simplify x / y."""
    if _is_zero(x):
        return x.graph.const(0.0)
    if y.op == "const" and y.value != 0.0 and math.isfinite(y.value):
        return x * (1.0 / y.value)
    if x.op == "neg":
        return -(x.args[0] / y)
    if y.op == "neg":
        return -(x / y.args[0])
    return None


def neg(x: "Expr") -> "Expr | None":
    """Simplify -x."""
    if x.op == "neg":
        return x.args[0]
    return x.args[1] - x.args[0] if x.op == "sub" else None


def absolute(x: "Expr") -> "Expr | None":
    """Simplify |x|."""
    return abs(x.args[0]) if x.op in ("neg", "abs") else None


def extremum(x: "Expr", y: "Expr") -> "Expr | None":
    """Simplify the smaller or larger of two."""
    return x if x is y else None


def and_(x: "Expr", y: "Expr") -> "Expr | None":
    """Simplify x & y."""
    for this, other in ((x, y), (y, x)):
        if this.op == "boolean":
            return other if this.data else this
    return x if x is y else None


def or_(x: "Expr", y: "Expr") -> "Expr | None":
    """Simplify x | y."""
    for this, other in ((x, y), (y, x)):
        if this.op == "boolean":
            return this if this.data else other
    return x if x is y else None


def select(condition: "Expr", a: "Expr", b: "Expr") -> "Expr | None":
    """Simplify a choice."""
    if condition.op == "boolean":
        return a if condition.data else b
    return a if a is b else None


def not_(x: "Expr") -> "Expr | None":
    """Simplify ~x."""
    return x.args[0] if x.op == "not" else None
