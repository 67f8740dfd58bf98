"""How traced functions get their arguments: by name, from what a step has and from tensors that a call passes.

A traced function takes what it names: a controller `lambda q, v, gains: ...` gets the state and the tensor that the
call passed as `tensors={"gains": ...}`. A plain tensor is shared by the batch; `PerEnvironment` and `PerStep` say
otherwise.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from adjoin.compiler.runtime.function import PerStep, Table
from adjoin.errors import InputError


@dataclass(frozen=True)
class PerEnvironment:
    """Marks a tensor as one value per environment, (*batch, *shape); inside `PerStep`, (steps, *batch, *shape)."""

    value: torch.Tensor


@dataclass(frozen=True)
class AsTable:
    """Marks a tensor as a table: traced functions read `x[i, j]` at computed indices, and its numbers have no gradient.

    Loops over the rows of a matrix need it; without the mark all numbers of a tensor are read one by one.
    """

    value: torch.Tensor


Tensors = Mapping[str, torch.Tensor | PerEnvironment | PerStep | AsTable]
"""Tensors that traced functions take by name."""


def unmarked(value: Any) -> Any:
    """Return the tensor that `PerEnvironment`, `PerStep` and `AsTable` mark."""
    while isinstance(value, (PerEnvironment, PerStep, AsTable)):
        value = value.value
    return value


class Argument(NamedTuple):
    """A tensor and how it is laid out.

    Attributes:
        shape: Its shape for one environment and one step, or a `Table`.
        tensor: The tensor.
        streamed: Whether its first dimension is time.
    """

    shape: Any
    tensor: torch.Tensor
    streamed: bool = False


def arguments(label: str, tensors: Tensors | None, batch: Sequence[int], steps: int | None) -> dict[str, Argument]:
    """Check the named tensors of a call.

    Args:
        label: The call, for messages.
        tensors: What it was passed.
        batch: The batch shape of the states.
        steps: How many steps there are; None where time has no meaning.
    """
    checked = {}
    for name, marked in (tensors or {}).items():
        value, streamed, single = marked, isinstance(marked, PerStep), False
        if isinstance(value, PerStep):
            if steps is None:
                raise InputError(f"{label}: tensors[{name!r}] is given per step, but this call is about one step")
            value = value.value
        if isinstance(value, PerEnvironment):
            value, single = value.value, True
        if isinstance(marked, AsTable):
            value = marked.value
        if not isinstance(value, torch.Tensor):
            raise InputError(f"{label}: tensors[{name!r}] must be a torch tensor, got a {type(value).__name__}")
        leading = (*((steps or 0,) if streamed else ()), *(batch if single else ()))
        if not _broadcasts(value.shape[: len(leading)], leading, streamed):
            wanted = ", ".join([*map(str, leading), "..."])
            raise InputError(f"{label}: tensors[{name!r}] must have the shape ({wanted}), got {tuple(value.shape)}")
        shape = tuple(value.shape[len(leading) :])
        checked[name] = Argument(Table(shape) if isinstance(marked, AsTable) else shape, value, streamed)
    return checked


def _broadcasts(shape: Sequence[int], leading: Sequence[int], streamed: bool) -> bool:
    first = 1 if streamed else 0
    if len(shape) != len(leading) or tuple(shape[:first]) != tuple(leading[:first]):
        return False
    return all(size in (1, wanted) for size, wanted in zip(shape[first:], leading[first:], strict=True))


@lru_cache(maxsize=512)
def _parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    called = function.forward if isinstance(function, torch.nn.Module) else function
    return tuple(inspect.signature(called).parameters.values())


def bind(label: str, function: Callable[..., Any], values: Mapping[str, Any], tensors: Mapping[str, Any]) -> Any:
    """Call a traced function with what it names.

    Args:
        label: What the function is, for messages.
        function: It may also take `**tensors`: all named tensors.
        values: What the step has, by name.
        tensors: The named tensors.
    """
    chosen: dict[str, Any] = {}
    for parameter in _parameters(function):
        if parameter.kind is parameter.VAR_KEYWORD:
            chosen.update({name: value for name, value in tensors.items() if name not in chosen})
        elif parameter.name in values:  # not all at once: a step computes a value when it is first asked for
            chosen[parameter.name] = values[parameter.name]
        elif parameter.name in tensors:
            chosen[parameter.name] = tensors[parameter.name]
        elif parameter.default is parameter.empty:
            raise InputError(
                f"{label} takes {parameter.name!r}, which is neither a tensor of this call nor one of "
                f"{', '.join(values)}; pass tensors={{{parameter.name!r}: ...}}"
            )
    return function(**chosen)


def takes(function: Callable[..., Any], name: str) -> bool:
    """Tell whether a traced function takes an argument of this name."""
    return any(each.name == name or each.kind is each.VAR_KEYWORD for each in _parameters(function))


def check_taken(
    label: str, tensors: Mapping[str, Any], functions: Sequence[Callable[..., Any] | None], reserved: Sequence[str]
) -> None:
    """Raise at a named tensor that no function takes, or whose name means something else."""
    for name in tensors:
        if name in reserved:
            raise InputError(f"{label}: tensors[{name!r}] has the name of something that a step has; rename it")
        if not any(function is not None and takes(function, name) for function in functions):
            raise InputError(f"{label}: no function here takes tensors[{name!r}]")
