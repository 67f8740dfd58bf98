"""The derivatives of the elementary operations, and what is taken where there is none.

sqrt at 0 (and so a norm at 0)      0
asin, acos at -1 and 1              0
atan2 at the origin                 0
abs at 0                            0
min, max at a tie                   all of it goes to the first argument
sign, floor, comparisons            0 everywhere
select                              to the branch taken; what is not taken gets exactly 0
"""

from collections.abc import Callable
from typing import Any

from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.scalar_math import select


def atan2_slopes(y: Expr, x: Expr) -> tuple[Expr, Expr]:
    """The derivatives of atan2(y, x) by y and by x."""
    square = x * x + y * y
    inverse = select(square > 0.0, 1.0 / square, 0.0)
    return x * inverse, -(y * inverse)


def _arc_slope(node: Expr, a: Expr) -> Expr:
    return select(abs(a) < 1.0, 1.0 / (1.0 - a * a).sqrt(), 0.0)


# d op / d argument of the operations of one argument, given the result and the argument.
SLOPES: dict[str, Callable[[Expr, Expr], Any]] = {
    "neg": lambda node, a: -1.0,
    "abs": lambda node, a: _sign(a),
    "sqrt": lambda node, a: select(node > 0.0, 0.5 / node, 0.0),
    "sin": lambda node, a: a.cos(),
    "cos": lambda node, a: -a.sin(),
    "tan": lambda node, a: 1.0 + node * node,
    "asin": _arc_slope,
    "acos": lambda node, a: -_arc_slope(node, a),
    "exp": lambda node, a: node,
    "log": lambda node, a: 1.0 / a,
    "tanh": lambda node, a: 1.0 - node * node,
}


def _sign(a: Expr) -> Expr:
    return a.graph.node("sign", (a,))


def first_is_taken(node: Expr, a: Expr, b: Expr) -> Expr:
    """Whether a min or max takes its first argument."""
    return (a <= b) if node.op == "min" else (b <= a)
