"""Elementary functions that take any scalar: a Python float, a torch tensor (a batch), or a traced expression.

Python numbers stay Python numbers, so that exact zeros and ones remain visible to the tracer.
"""

from typing import Any

from adjoin.trace import atan2, cos, floor, select, sin, sqrt

__all__ = ["Scalar", "atan2", "cos", "floor", "is_number", "select", "sin", "sqrt"]

Scalar = Any
"""A float, an int, a torch tensor or a traced scalar."""


def is_number(x: Scalar) -> bool:
    """Return whether `x` is a plain Python number, known now."""
    return isinstance(x, (int, float))
