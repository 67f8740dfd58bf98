"""What runs while torch.compile traces a call, because torch cannot follow it: tracing and compiling of our own."""

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


def called_while_tracing(function: Callable[..., Result]) -> Callable[..., Result]:
    """Mark a function that torch.compile calls as it traces, on plain constants, and takes the result for one too.

    It is `torch.compiler.assume_constant_result`, which would import torch._dynamo, and that takes a second.
    """
    function._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]
    return function


def object_at(address: int) -> Any:
    """Return the object with an `id`: constants are all that such a function gets. Its caller holds the object."""
    return ctypes.cast(address, ctypes.py_object).value
