"""What an operation is: a record of all that the compiler has to know about it. The table of them is `ops.py`."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from adjoin.compiler.ir.kinds import FLOAT
from adjoin.errors import TraceError

Fn = TypeVar("Fn", bound=Callable[..., Any])


def _undefined(*_: Any) -> Any:
    raise TypeError("a construct of the graph has no meaning as a function of numbers")


@dataclass(frozen=True, eq=False)
class Op:
    """One operation, or one construct that gives a graph its structure (a constant, an input, a loop, ...).

    Attributes:
        name: as nodes have it.
        fold: its meaning on Python numbers, with which constants are folded.
        reference: its meaning on torch tensors, which every backend is compared with.
        lower: how LLVM computes it on floats and conditions: the name of a method of `Writer` or of a function in
            `codegen/elementary.py`; or such a name and a position, for one of several results computed together; or
            a function of a writer, the node and the operands. None for a construct.
        integer: how LLVM computes it on 32-bit integers, if it is defined on them: the instruction, or the intrinsic
            without its suffix.
        derivative: takes the result and the arguments, gives the partial derivative to each argument. A partial is a
            number, a traced value, or a list of factors that multiply a cotangent one after the other; `Branch` says
            that the result is one of the arguments; `FLAT` stands for zero. Differentiating an operation that has
            None raises, unless the construct has a rule of its own in each mode.
        simplify: takes the arguments, gives something simpler that is equal, or None.
        kind: of the arguments.
        result: kind of the result.
        commutative: the order of two arguments does not matter.
        may_be_infinite: the result may be infinite or NaN although every argument is finite and moderate.
        cost: roughly how many instructions it takes.
        numpy: numpy's name of it: `numpy.arcsin(array)` calls the method `arcsin` of each traced scalar.
    """

    name: str
    fold: Callable[..., Any] = _undefined
    reference: Callable[..., torch.Tensor] = _undefined
    derivative: Callable[..., Any] | None = None
    simplify: Callable[..., Any] | None = None
    lower: str | tuple[str, int] | Callable[..., str] | None = None
    integer: str | None = None
    kind: str = FLOAT
    result: str = FLOAT
    commutative: bool = False
    may_be_infinite: bool = False
    cost: int = 1
    numpy: str | None = None

    def partials(self, result: Any, *args: Any) -> "Branch | list[list[Any]]":
        """Return the derivative, with each partial as a list of factors; an error if there is no rule for it."""
        if self.derivative is None:
            raise TraceError(
                f"the operation '{self.name}' has no derivative; adjoin.compiler.ir.ops is where to add one"
            )
        derivative = self.derivative(result, *args)
        if isinstance(derivative, Branch):
            return derivative
        partials = derivative if isinstance(derivative, tuple) else (derivative,)
        return [partial if isinstance(partial, list) else [partial] for partial in partials]

    @property
    def is_construct(self) -> bool:
        """Return whether whoever walks a graph needs a rule of its own for it."""
        return self.lower is None


class Branch(NamedTuple):
    """The derivative of an operation whose result is one of its arguments.

    Attributes:
        condition: decides which.
        taken: position of the argument that is the result where the condition holds.
        other: position of the one that is the result elsewhere.
    """

    condition: Any
    taken: int
    other: int


def FLAT(*_: Any) -> tuple[()]:
    """Return the derivative of an operation that is constant wherever it has a derivative."""
    return ()


class Traced:
    """A value that is not known yet: instead of being computed, an operation on it becomes part of a graph."""

    __slots__ = ()

    def apply(self, op: str, args: tuple[Any, ...]) -> Any:
        """Return the result of an operation on this value and others."""
        raise NotImplementedError


OPS: dict[str, Op] = {}
"""Every operation and construct by name; filled by `ops.py`."""


def construct(name: str, derivative: Callable[..., Any] | None = None, *, may_be_infinite: bool = False) -> None:
    """Add a construct to the table."""
    OPS[name] = Op(name, derivative=derivative, may_be_infinite=may_be_infinite)


def define(
    name: str,
    meaning: Callable[..., Any],
    reference: Callable[..., torch.Tensor],
    derivative: Callable[..., Any] | None,
    simplify: Callable[..., Any] | None = None,
    **properties: Any,
) -> Op:
    """Add an operation to the table; its meaning may raise where IEEE arithmetic gives NaN or infinity."""

    def fold(*args: Any) -> Any:
        try:
            return meaning(*args)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    op = OPS[name] = Op(name, fold, reference, derivative, simplify, **{"lower": name, **properties})
    return op


def operation(name: str, *entry: Any, **properties: Any) -> Callable[[Fn], Fn]:
    """Add an operation to the table, with the decorated function as its meaning on floats.

    What takes the function's place computes the operation on floats, torch tensors, traced scalars and numpy arrays of
    scalars. The arguments are those of `define`.
    """

    def register(meaning: Fn) -> Fn:
        op = define(name, meaning, *entry, **properties)

        @functools.wraps(meaning)
        def function(*args: Any) -> Any:
            for arg in args:
                if isinstance(arg, np.ndarray):
                    return np.frompyfunc(function, len(args), 1)(*args)
            for arg in args:
                if isinstance(arg, Traced):
                    return arg.apply(name, args)
            like = next((arg for arg in args if isinstance(arg, torch.Tensor)), None)
            if like is None:
                return op.fold(*[float(arg) for arg in args])
            return op.reference(*[arg if isinstance(arg, torch.Tensor) else torch.full_like(like, arg) for arg in args])

        return function  # pyright: ignore[reportReturnType] it is called as the meaning is

    return register


def elementary(*entry: Any, **properties: Any) -> Callable[[Fn], Fn]:
    """Add a function of floats to the table; `codegen/elementary.py` computes it, under the same name."""

    def register(meaning: Fn) -> Fn:
        name = meaning.__name__
        return operation(name, *entry, **{"numpy": name, "cost": 25, **properties})(meaning)

    return register
