"""The raw numbers of a module as one vector, and the derivative of residuals to them.

The Jacobian takes few launches, each for all of the data: one for each raw number, or one for each channel of the data.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from adjoin.errors import InputError

Residuals = Callable[[Any], torch.Tensor]
"""From what a module's forward() returns to residuals of any shape."""

MAX_RAW_NUMBERS = 2000
"""A Jacobian is taken to this many raw numbers at most."""


def raw_numbers(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters that require gradients, by name, detached: what an optimizer may move."""
    return {name: value.detach() for name, value in module.named_parameters() if value.requires_grad}


def flatten(values: dict[str, torch.Tensor]) -> torch.Tensor:
    """Join all values into one vector, (n,)."""
    return torch.cat([value.reshape(-1) for value in values.values()])


def unflatten(vector: torch.Tensor, like: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Split a vector (n,) into tensors of the names and shapes of `like`: the inverse of `flatten`."""
    parts = vector.split([value.numel() for value in like.values()])
    return {name: part.reshape(value.shape) for (name, value), part in zip(like.items(), parts, strict=True)}


def assign(module: torch.nn.Module, vector: torch.Tensor) -> None:
    """Write a vector (n,) into the raw numbers of a module."""
    with torch.no_grad():
        for name, value in unflatten(vector, raw_numbers(module)).items():
            module.get_parameter(name).copy_(value)


def jacobian(function: Residuals, module: torch.nn.Module, mode: str = "forward") -> tuple[torch.Tensor, torch.Tensor]:
    """Evaluate a function of what a module returns, and its derivative to the module's raw numbers.

    Args:
        function: takes `module()`.
        module: whose parameters that require gradients are the raw numbers.
        mode: "forward", a pass for each raw number; "vectorized", the same in one pass, for functions that
            `torch.func.vmap` takes; "reverse", a pass for each number that the function returns; or "samples", a pass
            for each channel, where the module returns a robot's `params`, and the function returns (samples, channels),
            no sample of which depends on the parameters of another.

    Returns:
        The value of the function, (...), and the derivative (..., raw numbers).
    """
    like = raw_numbers(module)
    if not like:
        raise InputError("jacobian: the module has no parameters that require gradients")
    point = flatten(like)
    if len(point) > MAX_RAW_NUMBERS:
        raise InputError(f"jacobian: the module has {len(point)} raw numbers, {MAX_RAW_NUMBERS} at most are allowed")

    def called(vector: torch.Tensor) -> torch.Tensor:
        return function(torch.func.functional_call(module, unflatten(vector, like), ()))

    if mode == "samples":
        return _of_samples(function, module)
    if mode == "vectorized":
        return called(point).detach(), torch.func.jacfwd(called)(point).detach()
    if mode == "reverse":
        with torch.enable_grad():
            slopes = torch.autograd.functional.jacobian(called, point)
        assert isinstance(slopes, torch.Tensor)
        with torch.no_grad():
            return called(point).detach(), slopes
    columns, value = [], None
    for k in range(len(point)):
        tangent = torch.zeros_like(point)
        tangent[k] = 1.0
        try:
            both: Any = torch.func.jvp(called, (point,), (tangent,))
        except RuntimeError as error:
            if "functorch" not in str(error):
                raise
            raise InputError('jacobian: not everything in the function goes forward; give mode="reverse"') from error
        value = both[0].detach()
        columns.append(both[1].detach())
    assert value is not None
    return value, torch.stack(columns, -1)


def _of_samples(function: Residuals, module: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """Each sample gets parameters of its own, so that one pass returns the gradients of all of them."""
    with torch.no_grad():
        shared = module()
        count = len(function(shared))
    with torch.enable_grad():
        separate = {name: value.expand(count, *value.shape).clone().requires_grad_() for name, value in shared.items()}
        value = function(separate)
        rows = []
        for channel in value.sum(0):
            parts = torch.autograd.grad(channel, list(separate.values()), retain_graph=True)
            rows.append(torch.cat([part.flatten(1) for part in parts], -1))
    _, turn = jacobian(flatten, module)
    return value.detach(), torch.stack(rows, 1) @ turn


def pieces(residuals: Residuals | Sequence[Residuals]) -> Sequence[Residuals]:
    """Return a list of functions, of one or of several."""
    return [residuals] if callable(residuals) else residuals
