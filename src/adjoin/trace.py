"""The kernel compiler: trace a Python function over scalars, differentiate it, run it as one fused kernel."""

from adjoin.compiler.autodiff.implicit import detach, guard, implicit
from adjoin.compiler.ir.control_flow import Scratch, Stream, inside, loop, scan, scratch, when
from adjoin.compiler.ir.graph import Expr, to_float, to_index
from adjoin.compiler.ir.scalar_math import (
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
from adjoin.compiler.runtime.function import Function, Integer, PerStep, Table, function

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
