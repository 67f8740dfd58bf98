"""Quantities: functions from a `State` to nested scalars, registered by name with the inputs they read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adjoin.compiler.runtime.fingerprint import is_ours
from adjoin.errors import InputError

INPUTS = ("q", "v", "a", "tau")


@dataclass(frozen=True, eq=False)
class Quantity:
    """Something that can be computed of a state. Equal only to itself, so that each has kernels of its own.

    Attributes:
        name: the public function's.
        inputs: which of q, v, a and tau it reads. It can read no others.
        compute: takes the state, and options by name; returns nested scalars.
        square: whether it is matrices (nv, nv), which the empty list of a robot without joints does not tell.
    """

    name: str
    inputs: tuple[str, ...]
    compute: Callable[..., Any]
    square: bool = False


QUANTITIES: dict[str, Quantity] = {}
"""Every quantity by name."""


def quantity(name: str, *inputs: str, square: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of a state as a quantity; a decorator.

    Registering a function of the same module and name again, as running a notebook's cell twice does, replaces the
    quantity, and kernels are compiled anew.

    Args:
        name: of the quantity; its public function's.
        inputs: which of "q", "v", "a" and "tau" it reads, in the order in which `call` takes them.
        square: whether its results are (nv, nv).

    Raises:
        InputError: another function has the name, or an input is not one of the four.
    """
    for unknown in set(inputs) - set(INPUTS):
        raise InputError(f"quantity {name!r}: no input {unknown!r}; inputs: {', '.join(INPUTS)}")

    def register(compute: Callable[..., Any]) -> Callable[..., Any]:
        if name in QUANTITIES and (known := _origin(QUANTITIES[name].compute)) != _origin(compute):
            raise InputError(f"quantity {name!r} is registered already, by {known}; choose another name")
        QUANTITIES[name] = Quantity(name, inputs, compute, square)
        return compute

    return register


def added_quantities() -> tuple[Callable[..., Any], ...]:
    """Return the functions of the quantities that are not this library's: what else decides what is traced."""
    return tuple(known.compute for known in QUANTITIES.values() if not is_ours(known.compute))


def _origin(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
