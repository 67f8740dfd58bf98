"""Functions of traced scalars, floats, torch tensors and numpy arrays of scalars alike.

An algorithm written with these and with ordinary arithmetic runs on all of them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from adjoin.compiler.ir.fold import FOLD
from adjoin.compiler.ir.graph import BOOL, Expr, binary, unary
from adjoin.errors import TraceError


def _generic(op: str, name: str, doc: str) -> Callable[..., Any]:
    on_tensor = getattr(torch, name)

    def function(*args: Any) -> Any:
        if any(isinstance(arg, Expr) for arg in args):
            return binary(op, *args) if len(args) == 2 else unary(op, *args)
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
