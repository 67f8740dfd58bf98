"""The kernel compiler: trace a Python function over scalars, differentiate it, run it as one fused kernel."""

from adjoin.compiler.ir import ops
from adjoin.compiler.ir.control_flow import Stream, inside, loop, scan, when
from adjoin.compiler.ir.graph import Expr, to_float, to_index
from adjoin.compiler.ir.implicit import detach, guard, implicit
from adjoin.compiler.ir.ops import *  # noqa: F403 every function of the table of operations
from adjoin.compiler.ir.scratch import Scratch, scratch
from adjoin.compiler.runtime.function import Function, Integer, PerStep, Table, function

__all__ = [
    "Expr",
    "Function",
    "Integer",
    "PerStep",
    "Scratch",
    "Stream",
    "Table",
    "detach",
    "function",
    "guard",
    "implicit",
    "inside",
    "loop",
    "scan",
    "scratch",
    "to_float",
    "to_index",
    "when",
]
__all__ += ops.__all__
