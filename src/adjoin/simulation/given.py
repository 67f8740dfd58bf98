"""Tensors that a call of the simulator takes by name, as inputs of its kernels."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from adjoin.errors import InputError
from adjoin.model.model import Model
from adjoin.simulation.plant import TERRAIN
from adjoin.simulation.rollout import Values
from adjoin.spatial.scalar import Scalar
from adjoin.trace import minimum

LIMITS = ("lower", "upper")
"""Parameters that may be infinite."""


class Input(NamedTuple):
    """A tensor, and its shape without batch and steps."""

    shape: Any
    tensor: torch.Tensor


class Given(NamedTuple):
    """What a call was given; see `Simulator.rollout`."""

    params: Mapping[str, torch.Tensor] | None = None
    external: Mapping[str, torch.Tensor] | None = None
    constants: Mapping[str, torch.Tensor] | None = None
    individual: Mapping[str, torch.Tensor] | None = None

    def forces(self, model: Model) -> dict[str, Input]:
        """Those from outside, by slot."""
        for name in self.external or {}:
            model.frame_index(name)
        return {slot("external", name): Input((6,), tensor) for name, tensor in (self.external or {}).items()}

    def named(self, label: str, dimensions: int, functions: Sequence[Callable[..., Any] | None]) -> dict[str, Input]:
        """What functions take by name, by slot.

        Args:
            label: of the call, for messages.
            dimensions: of the batch.
            functions: that may take them.
        """
        found = {}
        for kind, first in (("constants", 0), ("individual", dimensions)):
            for name, tensor in (getattr(self, kind) or {}).items():
                if not isinstance(tensor, torch.Tensor):
                    raise InputError(f"{label}: {kind}[{name!r}] must be a torch tensor, got {type(tensor).__name__}")
                if not any(function is not None and takes(function, name) for function in functions):
                    raise InputError(f"{label}: no function here takes {kind}[{name!r}]")
                found[slot(kind, name)] = Input(tuple(tensor.shape[first:]), tensor)
        return found


def slot(kind: str, name: str) -> str:
    """The name that an input has in a kernel."""
    return f"{kind}['{name}']"


def part(values: Values, kind: str) -> Values:
    """Of the values of a kernel's inputs, those of one kind, by name."""
    start, end = slot(kind, "|").split("|")
    return {key.removeprefix(start).removesuffix(end): x for key, x in values.items() if key.startswith(start)}


def numbers(values: Values) -> list[Scalar]:
    """Of the parameters that are given, what must be finite; limits may be infinite, but must be numbers."""
    found: list[Scalar] = []
    for name, value in part(values, "params").items():
        given = [] if name == TERRAIN else np.array(value, dtype=object).ravel().tolist()
        found += [minimum(abs(x), 1.0) for x in given] if name in LIMITS else given
    return found


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function takes an argument of this name, after the first three."""
    accepted = [*inspect.signature(function).parameters.values()]
    return any(each.name == name for each in accepted[3:]) or any(each.kind == each.VAR_KEYWORD for each in accepted)


def bound(function: Callable[..., Any], values: Values) -> Callable[..., Any]:
    """A function with what it takes by name of the values of a kernel's inputs."""
    named = {**part(values, "constants"), **part(values, "individual")}
    own = {name: value for name, value in named.items() if takes(function, name)}
    return lambda *arguments: function(*arguments, **own)
