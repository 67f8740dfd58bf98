"""Nonlinear least squares over the raw numbers of a module: Gauss-Newton with the damping of Levenberg and Marquardt.

The Jacobian is taken in few launches, each for all of the data: one for each raw number, or one for each channel of the
data.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from adjoin.errors import InputError
from adjoin.progress import Progress

Residuals = Callable[[Any], torch.Tensor]
"""From what a module's forward() gives to residuals of any shape."""

MOST = 2000
"""Raw numbers a Jacobian is taken to at most."""

_ROUNDING = 1e-12
"""What is less than this share of JᵀJ may be rounding, and must not be followed."""


def raw_numbers(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """What an optimizer may move, by name."""
    return {name: value.detach() for name, value in module.named_parameters() if value.requires_grad}


def flatten(values: dict[str, torch.Tensor]) -> torch.Tensor:
    """All numbers as one vector."""
    return torch.cat([value.reshape(-1) for value in values.values()])


def unflatten(vector: torch.Tensor, like: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The inverse of `flatten`."""
    parts = vector.split([value.numel() for value in like.values()])
    return {name: part.reshape(value.shape) for (name, value), part in zip(like.items(), parts, strict=True)}


def jacobian(function: Residuals, module: torch.nn.Module, mode: str = "forward") -> tuple[torch.Tensor, torch.Tensor]:
    """A function of what a module gives, and its derivative to the module's raw numbers.

    Args:
        function: takes `module()`.
        module: whose parameters that require gradients are the raw numbers.
        mode: "forward", a pass for each raw number; "vectorized", the same in one pass, for functions that
            `torch.func.vmap` takes; "reverse", a pass for each number that the function gives; or "samples", a pass for
            each channel, where the module gives a robot's `params`, and the function calls for a batch of samples
            (samples, channels), none of which depends on the parameters of another.

    Returns:
        What the function gives, (...), and the derivative (..., raw numbers).
    """
    like = raw_numbers(module)
    if not like:
        raise InputError("jacobian: the module has no parameters that require gradients")
    point = flatten(like)
    if len(point) > MOST:
        raise InputError(f"jacobian: the module has {len(point)} raw numbers, {MOST} at most are allowed")

    def called(vector: torch.Tensor) -> torch.Tensor:
        return function(torch.func.functional_call(module, unflatten(vector, like), ()))

    if mode == "samples":
        return _of_samples(function, module)
    if mode == "vectorized":
        return called(point).detach(), torch.func.jacfwd(called)(point).detach()
    if mode == "reverse":
        with torch.enable_grad():
            found = torch.autograd.functional.jacobian(called, point)
        assert isinstance(found, torch.Tensor)
        with torch.no_grad():
            return called(point).detach(), found
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
    """Each sample gets parameters of its own, so that one pass gives the gradients of all of them."""

    with torch.no_grad():
        shared = module()
        count = len(function(shared))
    with torch.enable_grad():
        apart = {name: value.expand(count, *value.shape).clone().requires_grad_() for name, value in shared.items()}
        value = function(apart)
        rows = []
        for channel in value.sum(0):
            parts = torch.autograd.grad(channel, list(apart.values()), retain_graph=True)
            rows.append(torch.cat([part.flatten(1) for part in parts], -1))
    _, turn = jacobian(flatten, module)
    return value.detach(), torch.stack(rows, 1) @ turn


def pieces(residuals: Residuals | Sequence[Residuals]) -> Sequence[Residuals]:
    """Functions whose residuals belong together."""
    return [residuals] if callable(residuals) else residuals


def gauss_newton(
    residuals: Residuals | Sequence[Residuals],
    module: torch.nn.Module,
    *,
    iterations: int = 50,
    tolerance: float | None = None,
    damping: float = 1e-3,
    mode: str = "forward",
    progress: bool = False,
) -> list[float]:
    """Move the raw numbers of a module to where the sum of squared residuals is least.

    Directions that the residuals do not depend on are left where they are. A step to where the module or the residuals
    raise `InputError` is not taken.

    Args:
        residuals: takes `module()` and gives residuals of any shape. Several such functions, each for a part of the
            data, need less memory than one: only one's Jacobian is there at a time.
        module: changed in place.
        iterations: at most this many.
        tolerance: it ends when the sum falls by less than this share; by default when it falls by less than a hundredth
            of the mean square, which moves no estimate by more than a tenth of its standard error.
        damping: to begin with, relative to the diagonal of JᵀJ.
        mode: of the Jacobian, see `jacobian`.
        progress: whether to show a bar.

    Returns:
        The mean squared residual before the first iteration and after each.
    """
    like = raw_numbers(module)
    point = flatten(like)
    history: list[float] = []
    for _ in Progress(iterations, progress, "iterations"):
        count, cost, normal, pull = 0, 0.0, point.new_zeros(len(point), len(point)), torch.zeros_like(point)
        for piece in pieces(residuals):
            value, slopes = jacobian(piece, module, mode)
            rest, slopes = value.reshape(-1), slopes.reshape(-1, len(point))
            count, cost = count + len(rest), cost + float(rest @ rest)
            normal, pull = normal + slopes.mT @ slopes, pull + slopes.mT @ rest
        if not (cost < torch.inf and normal.isfinite().all() and pull.isfinite().all()):
            raise InputError("gauss_newton: the residuals or their derivatives are not finite")
        history = history or [cost / count]
        most = float(normal.diagonal().max()) + torch.finfo(point.dtype).tiny
        floor = normal.diagonal().clamp(min=1e-8 * most)
        lower = cost
        while damping < 1e12:
            step = torch.linalg.solve(normal + (damping * floor + _ROUNDING * most).diag(), pull)
            _set(module, unflatten(point - step, like))
            lower = _sum_of_squares(residuals, module)
            if lower <= cost:
                point = point - step
                damping = max(0.1 * damping, 1e-9)
                history.append(lower / count)
                break
            damping *= 10.0
        least = min(1e-6, 1e-2 / count) if tolerance is None else tolerance
        if damping >= 1e12 or cost - lower <= least * cost:
            break
    _set(module, unflatten(point, like))
    return history


def _sum_of_squares(residuals: Residuals | Sequence[Residuals], module: torch.nn.Module) -> float:
    """Infinite where there are none."""
    try:
        with torch.no_grad():
            given = module()
            found = sum(float(piece(given).square().sum()) for piece in pieces(residuals))
    except InputError:
        return torch.inf
    return found if found == found else torch.inf


def _set(module: torch.nn.Module, values: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name in values:
                parameter.copy_(values[name])
