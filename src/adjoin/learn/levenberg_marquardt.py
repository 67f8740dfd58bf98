"""Nonlinear least squares by Levenberg and Marquardt: the damped steps that identification and control both take.

A step solves (JᵀJ + damping D) step = Jᵀr for the residuals r and their Jacobian J, for a batch of problems and for
several dampings of each at once. D is the diagonal of JᵀJ (Marquardt, An algorithm for least-squares estimation of
nonlinear parameters, 1963), or its greatest entry times the identity (Levenberg, A method for the solution of certain
non-linear problems in least squares, 1944).
"""

from collections.abc import Callable, Sequence

import torch

from adjoin.errors import InputError
from adjoin.learn.jacobian import Residuals, assign, flatten, jacobian, pieces, raw_numbers
from adjoin.progress import Progress, until_interrupt

Solve = Callable[[torch.Tensor], torch.Tensor]
"""From dampings (batch, trials) to steps (batch, trials, n)."""

RAISE, LOWER = 10.0, 0.1
"""What damping is multiplied with after a step that raises the loss, and after one that does not."""

MIN_DAMPING, MAX_DAMPING = 1e-9, 1e12

_ROUNDING = 1e-12
"""What is less than this share of JᵀJ may be rounding, and must not be followed."""


def damped_steps(
    normal: torch.Tensor, gradient: torch.Tensor, dampings: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    """Solve (normal + damping diag(scale)) step = gradient for a batch of problems and several dampings of each.

    Args:
        normal: JᵀJ, (batch, n, n).
        gradient: Jᵀr, (batch, n).
        dampings: (batch, trials).
        scale: the diagonal of D, (batch, n) or (batch, 1).

    Returns:
        Steps, (batch, trials, n); what is subtracted from a point.
    """
    diagonal = (dampings[..., None] * scale[:, None]).expand(-1, -1, normal.shape[-1])
    right = gradient[:, None, :, None].expand(-1, dampings.shape[1], -1, -1)
    return torch.linalg.solve_ex(normal[:, None] + diagonal.diag_embed(), right)[0].squeeze(-1)


def identity_scale(normal: torch.Tensor) -> torch.Tensor:
    """Levenberg's D: the greatest entry on the diagonal, (batch, 1)."""
    return normal.diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True) + torch.finfo(normal.dtype).tiny


def diagonal_scale(normal: torch.Tensor) -> torch.Tensor:
    """Marquardt's D: the diagonal, (..., n); what has none gets a little of the greatest entry."""
    diagonal = normal.diagonal(dim1=-2, dim2=-1)
    return torch.maximum(diagonal, 1e-9 * diagonal.amax(-1, keepdim=True) + torch.finfo(normal.dtype).tiny)


def damped(normal: torch.Tensor, damping: float) -> torch.Tensor:
    """Return JᵀJ + damping D with Marquardt's D, (..., n, n)."""
    return normal + damping * diagonal_scale(normal).diag_embed()


def improve(
    solve: Solve, evaluate: Callable[[torch.Tensor], float], point: torch.Tensor, loss: float, damping: float
) -> tuple[torch.Tensor, float, float]:
    """Take the first step that does not raise the loss; damping grows until there is one.

    Args:
        solve: the steps for dampings, of a batch of one.
        evaluate: the loss at a point (n,), infinite where there is none.
        point: where to start, (n,).
        loss: there.
        damping: to try first.

    Returns:
        The point, its loss, and the damping to try first from there; above `MAX_DAMPING` where no step was taken.
    """
    while damping < MAX_DAMPING:
        trial = point - solve(point.new_tensor([[damping]]))[0, 0]
        lower = evaluate(trial)
        if lower <= loss:
            return trial, lower, max(LOWER * damping, MIN_DAMPING)
        damping *= RAISE
    return point, loss, damping


def gauss_newton(
    residuals: Residuals | Sequence[Residuals],
    module: torch.nn.Module,
    *,
    iterations: int = 50,
    tolerance: float | None = None,
    damping: float = 1e-3,
    mode: str = "forward",
    progress: bool = False,
    return_on_interrupt: bool = False,
) -> list[float]:
    """Move the raw numbers of a module to where the sum of squared residuals is least.

    Directions that the residuals do not depend on are left where they are. A step to where the module or the residuals
    raise `InputError` is not taken.

    Args:
        residuals: takes `module()` and returns residuals of any shape. Several such functions, each for a part of the
            data, need less memory than one: only one's Jacobian is there at a time.
        module: changed in place.
        iterations: at most this many.
        tolerance: it ends when the sum falls by less than this share; by default when it falls by less than a hundredth
            of the mean square, which moves no estimate by more than a tenth of its standard error.
        damping: of the first step, relative to the diagonal of JᵀJ.
        mode: of the Jacobian, see `jacobian`.
        progress: whether to show a bar.
        return_on_interrupt: whether Ctrl-C ends it with the best so far instead of raising KeyboardInterrupt.

    Returns:
        The mean squared residual before the first iteration and after each.
    """
    history: list[float] = []
    with until_interrupt(return_on_interrupt):
        minimize(residuals, module, history, iterations, tolerance, damping, mode, progress)
    return history


def minimize(
    residuals: Residuals | Sequence[Residuals],
    module: torch.nn.Module,
    history: list[float],
    iterations: int = 50,
    tolerance: float | None = None,
    damping: float = 1e-3,
    mode: str = "forward",
    progress: bool = False,
) -> None:
    """See `gauss_newton`; the mean squared residuals go into `history`. An interrupt leaves the module at its best."""
    point = flatten(raw_numbers(module))

    def evaluate(trial: torch.Tensor) -> float:
        assign(module, trial)
        return _sum_of_squares(residuals, module)

    try:
        for _ in Progress(iterations, progress, "iterations"):
            count, loss, normal, gradient = 0, 0.0, point.new_zeros(len(point), len(point)), torch.zeros_like(point)
            for piece in pieces(residuals):
                value, slopes = jacobian(piece, module, mode)
                value, slopes = value.reshape(-1), slopes.reshape(-1, len(point))
                count, loss = count + len(value), loss + float(value @ value)
                normal, gradient = normal + slopes.mT @ slopes, gradient + slopes.mT @ value
            if not (loss < torch.inf and normal.isfinite().all() and gradient.isfinite().all()):
                raise InputError("gauss_newton: the residuals or their derivatives are not finite")
            if not history:
                history.append(loss / count)
            scale = diagonal_scale(normal)
            ridge = normal + (_ROUNDING * scale.max()).expand_as(scale).diag()
            equations = [x[None] for x in (ridge, gradient, scale)]
            point, lower, damping = improve(
                lambda dampings, of=equations: damped_steps(of[0], of[1], dampings, of[2]),
                evaluate,
                point,
                loss,
                damping,
            )
            history += [lower / count] if damping < MAX_DAMPING else []
            least = min(1e-6, 1e-2 / count) if tolerance is None else tolerance
            if damping >= MAX_DAMPING or loss - lower <= least * loss:
                break
    finally:
        assign(module, point)


def _sum_of_squares(residuals: Residuals | Sequence[Residuals], module: torch.nn.Module) -> float:
    """Infinite where the module or the residuals refuse what they get."""
    try:
        with torch.no_grad():
            value = module()
            total = sum(float(piece(value).square().sum()) for piece in pieces(residuals))
    except InputError:
        return torch.inf
    return total if total == total else torch.inf
