"""The table of operations: what each means, how it simplifies, is differentiated and is computed.

A new function of floats is one entry here and its polynomial in `codegen/elementary.py`. The rest follows from the
table: `adjoin.trace.<name>`, numpy's functions on arrays of traced scalars, both modes of differentiation, the
reference interpreter and every backend. `op.py` says what the parts of an entry are.

Where a derivative does not exist, this is taken:

    sqrt at 0 (and so a norm at 0)      0
    asin, acos at -1 and 1              0
    atan2 at the origin                 0
    abs at 0                            0
    minimum, maximum at a tie           all of it goes to the first argument
    sign, floor, comparisons            0 everywhere
    select                              to the branch taken; what is not taken gets exactly 0
"""

import math
import operator
from typing import Any

import numpy as np
import torch

from adjoin.compiler.ir import simplify
from adjoin.compiler.ir.kinds import BOOL
from adjoin.compiler.ir.op import FLAT, Branch, Traced, construct, define, elementary, operation

__all__ = [
    "acos",
    "asin",
    "atan2",
    "cos",
    "exp",
    "floor",
    "log",
    "maximum",
    "minimum",
    "select",
    "sign",
    "sin",
    "sqrt",
    "tan",
    "tanh",
]

# Operators of Python --------------------------------------------------------------------------------------------------


def _divide(x: float, y: float) -> float:
    if y == 0.0:
        return math.nan if x == 0.0 or math.isnan(x) else math.copysign(math.inf, x) * math.copysign(1.0, y)
    return x / y


def _quotient_derivative(quotient: Any, x: Any, y: Any) -> tuple[Any, list[Any]]:
    inverse = 1.0 / y
    return inverse, [inverse, quotient, -1.0]


define("add", operator.add, torch.add, lambda _, x, y: (1.0, 1.0), simplify.add, integer="add", commutative=True)
define("sub", operator.sub, torch.sub, lambda _, x, y: (1.0, -1.0), simplify.sub, integer="sub")
define("mul", operator.mul, torch.mul, lambda _, x, y: (y, x), simplify.mul, integer="mul", commutative=True)
define("div", _divide, torch.div, _quotient_derivative, simplify.div, may_be_infinite=True)
define("neg", operator.neg, torch.neg, lambda _, x: -1.0, simplify.neg)
define("abs", abs, torch.abs, lambda _, x: sign(x), simplify.absolute)

define("lt", operator.lt, torch.lt, FLAT, integer="icmp slt", result=BOOL)
define("le", operator.le, torch.le, FLAT, integer="icmp sle", result=BOOL)
define("eq", operator.eq, torch.eq, FLAT, integer="icmp eq", result=BOOL, commutative=True)
define("ne", operator.ne, torch.ne, FLAT, integer="icmp ne", result=BOOL, commutative=True)

_LOGIC: dict[str, Any] = {"derivative": FLAT, "kind": BOOL, "result": BOOL}
define(
    "and",
    operator.and_,
    torch.logical_and,
    simplify=simplify.and_,
    lower="logical_and",
    commutative=True,
    **_LOGIC,
)
define("or", operator.or_, torch.logical_or, simplify=simplify.or_, lower="logical_or", commutative=True, **_LOGIC)
define("not", operator.not_, torch.logical_not, simplify=simplify.not_, lower="logical_not", **_LOGIC)

# Choices --------------------------------------------------------------------------------------------------------------


def _extremum(w: Any, node: Any, x: str, y: str) -> str:
    """The first form is one instruction and keeps a NaN in y; one in x needs a second look."""
    if node.args[1].op == "const":
        x, y = y, x
    taken = w.lt(x, y) if node.op == "min" else w.lt(y, x)
    result = w.select(taken, x, y)
    if "const" in (node.args[0].op, node.args[1].op):
        return result
    return w.select(w.ne(x, x), x, result)


@operation(
    "min",
    torch.minimum,
    lambda _, x, y: Branch(x <= y, 0, 1),
    simplify.extremum,
    lower=_extremum,
    integer="llvm.smin",
)
def minimum(x: Any, y: Any) -> Any:
    """The smaller of two numbers; NaN if either is. The derivative at a tie goes to the first."""
    return math.nan if math.isnan(x) or math.isnan(y) else min(x, y)


@operation(
    "max",
    torch.maximum,
    lambda _, x, y: Branch(y <= x, 0, 1),
    simplify.extremum,
    lower=_extremum,
    integer="llvm.smax",
)
def maximum(x: Any, y: Any) -> Any:
    """The larger of two numbers; NaN if either is. The derivative at a tie goes to the first."""
    return math.nan if math.isnan(x) or math.isnan(y) else max(x, y)


define(
    "select",
    lambda c, a, b: a if c else b,
    torch.where,
    lambda _, c, a, b: Branch(c, 1, 2),
    simplify.select,
    lower=lambda w, node, c, a, b: w.select(c, a, b, node.kind),
    integer="select",
)


def select(condition: Any, a: Any, b: Any) -> Any:
    """Take `a` where the condition holds, else `b`. What is not taken has no influence, on gradients either."""
    if any(isinstance(value, np.ndarray) for value in (condition, a, b)):
        return np.frompyfunc(select, 3, 1)(condition, a, b)
    if isinstance(condition, torch.Tensor):
        return torch.where(condition, a, b)
    if not isinstance(condition, Traced):
        return a if condition else b
    return condition.apply("select", (condition, a, b))


# Functions ------------------------------------------------------------------------------------------------------------


@elementary(torch.sqrt, lambda root, x: select(root > 0.0, 0.5 / root, 0.0), may_be_infinite=True, cost=1)
def sqrt(x: Any) -> Any:
    """Square root; its derivative at 0 is taken as 0."""
    return math.sqrt(x)


@elementary(torch.sin, lambda _, x: cos(x), lower=("sincos", 0))
def sin(x: Any) -> Any:
    """Sine of an angle in radians."""
    return math.sin(x)


@elementary(torch.cos, lambda _, x: -sin(x), lower=("sincos", 1))  # pyright: ignore[reportGeneralTypeIssues]
def cos(x: Any) -> Any:
    """Cosine of an angle in radians."""
    return math.cos(x)


@elementary(torch.tan, lambda tangent, x: 1.0 + tangent * tangent, may_be_infinite=True)
def tan(x: Any) -> Any:
    """Tangent of an angle in radians."""
    return math.tan(x)


def _arc_derivative(_: Any, x: Any) -> Any:
    return select(abs(x) < 1.0, 1.0 / sqrt(1.0 - x * x), 0.0)


@elementary(torch.asin, _arc_derivative, may_be_infinite=True, numpy="arcsin")
def asin(x: Any) -> Any:
    """Inverse sine, in radians; its derivative at -1 and 1 is taken as 0."""
    return math.asin(x)


@elementary(torch.acos, lambda _, x: -_arc_derivative(_, x), may_be_infinite=True, numpy="arccos")
def acos(x: Any) -> Any:
    """Inverse cosine, in radians; its derivative at -1 and 1 is taken as 0."""
    return math.acos(x)


def _atan2_derivative(_: Any, y: Any, x: Any) -> tuple[Any, Any]:
    square = x * x + y * y
    inverse = select(square > 0.0, 1.0 / square, 0.0)
    return x * inverse, -(y * inverse)


@elementary(torch.atan2, _atan2_derivative, numpy="arctan2")
def atan2(y: Any, x: Any) -> Any:
    """Angle of the point (x, y), in radians; its derivative at the origin is taken as 0."""
    return math.atan2(y, x)


@elementary(torch.exp, lambda result, x: result, may_be_infinite=True)
def exp(x: Any) -> Any:
    """Exponential function."""
    return math.exp(x)


@elementary(torch.log, lambda _, x: 1.0 / x, may_be_infinite=True)
def log(x: Any) -> Any:
    """Natural logarithm."""
    return -math.inf if x == 0.0 else math.log(x)


@elementary(torch.tanh, lambda result, x: 1.0 - result * result)
def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    return math.tanh(x)


@elementary(lambda x: torch.where(x.isnan(), x, torch.sign(x)), FLAT, cost=1)
def sign(x: Any) -> Any:
    """Sign of a number: -1, 0 or 1. Its derivative is 0."""
    return x if math.isnan(x) or x == 0.0 else math.copysign(1.0, x)


@elementary(torch.floor, FLAT, cost=1, numpy="__floor__")
def floor(x: Any) -> Any:
    """Largest whole number not above a number; its derivative is 0."""
    return float(math.floor(x)) if math.isfinite(x) and x != 0.0 else x


# Constructs: what gives a graph its structure. Whoever walks a graph has a rule of its own for each -------------------

construct("const", FLAT)  # a float
construct("boolean", FLAT)  # a constant condition
construct("integer", FLAT)  # a constant integer
construct("length", FLAT)  # a run-time integer of the kernel
construct("input", FLAT)  # one scalar of an input tensor
construct("stream", FLAT)  # an input tensor with one element a step
construct("table", FLAT)  # an input tensor that is read at computed indices
construct("param", FLAT, may_be_infinite=True)  # what a body gets from outside
construct("to_float", FLAT)  # an integer as a float
construct("to_index", FLAT)  # the integer part of a float
construct("constants", FLAT)  # a table of numbers known now
construct("lookup", FLAT)  # one number of a table; no gradient goes to tables
construct("any", FLAT)  # whether a condition holds in any environment that a processor works on together
construct("scratch")  # a new array of zeros
construct("load", may_be_infinite=True)  # one element of an array
construct("store")  # the next version of an array
construct("accumulate")  # the next version, with a number added to an element
construct("scan")  # a loop
construct("implicit")  # values that solve equations
construct("get", may_be_infinite=True)  # one result of a scan or of an implicit node
