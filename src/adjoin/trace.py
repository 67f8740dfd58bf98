"""The kernel compiler: trace a Python function over scalars, differentiate it, run it as one fused kernel."""

from adjoin.compiler.ir import ops
from adjoin.compiler.ir.control_flow import Stream, any_environment, inside, loop, scan, when, while_loop
from adjoin.compiler.ir.graph import Expr, integer, to_float, to_index
from adjoin.compiler.ir.implicit import detach, guard, implicit
from adjoin.compiler.ir.ops import *  # noqa: F403 every function of the table of operations
from adjoin.compiler.ir.scratch import Scratch, indices, scratch, table
from adjoin.compiler.runtime.function import Function, Integer, PerStep, Table, function

__all__ = [
    "Expr",
    "Function",
    "Integer",
    "PerStep",
    "Scratch",
    "Stream",
    "Table",
    "any_environment",
    "detach",
    "function",
    "guard",
    "implicit",
    "indices",
    "inside",
    "integer",
    "loop",
    "scan",
    "scratch",
    "table",
    "to_float",
    "to_index",
    "when",
    "while_loop",
]
__all__ += ops.__all__
