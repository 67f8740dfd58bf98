"""The kernel compiler: trace a Python function over scalars, differentiate it, run it as one fused kernel."""

from adjoin.trace.control import Scratch, Stream, inside, loop, scan, scratch, when
from adjoin.trace.function import Function, Integer, PerStep, Table, function
from adjoin.trace.graph import Expr, to_float, to_index
from adjoin.trace.implicit import detach, guard, implicit
from adjoin.trace.scalars import (
    acos,
    asin,
    atan2,
    cos,
    exp,
    floor,
    log,
    maximum,
    minimum,
    select,
    sign,
    sin,
    sqrt,
    tan,
    tanh,
)

__all__ = [
    "Expr",
    "Function",
    "Integer",
    "PerStep",
    "Scratch",
    "Stream",
    "Table",
    "acos",
    "asin",
    "atan2",
    "cos",
    "detach",
    "exp",
    "floor",
    "function",
    "guard",
    "implicit",
    "inside",
    "log",
    "loop",
    "maximum",
    "minimum",
    "scan",
    "scratch",
    "select",
    "sign",
    "sin",
    "sqrt",
    "tan",
    "tanh",
    "to_float",
    "to_index",
    "when",
]
