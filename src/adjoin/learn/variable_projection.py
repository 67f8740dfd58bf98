"""Descent on the loss as a function of what is learned alone, each window at its best start.

Where the loss of a window jumps with its start, a step of all unknowns at once stops as soon as one window stands at
the edge of a jump. Here a step moves what is learned; the starts follow, and each window is then fitted by itself, so
that no window holds up the others (variable projection: Golub and Pereyra, The differentiation of pseudo-inverses and
nonlinear least squares problems whose variables separate, 1973). What is left of the jumps is stepped over by compass
search (Kolda, Lewis and Torczon, Optimization by direct search, 2003).
"""

import torch

from adjoin.learn.jacobian import assign
from adjoin.learn.levenberg_marquardt import damped
from adjoin.learn.shooting_residuals import ShootingResiduals
from adjoin.learn.window_starts import (
    KEPT,
    Candidates,
    Start,
    best_of,
    fitted,
    improve_starts,
    sampled_starts,
    variance,
    window_losses,
)

MAX_SEARCHED = 32
"""Compass search is for this many raw numbers at most."""

WIDTHS = (1.0, 0.05)
"""Of the first and the last step of the compass search from measured starts; of a logarithm, in most cases."""

FRACTIONS = (1.0, 0.5, 0.2)
"""Of a Gauss-Newton step, tried at once."""

DEVIATIONS = (-2.0, 2.0)
"""How many standard deviations the last compass search looks away."""

_GAINED = 0.02
"""A step must gain this many variances of the residuals: less moves no estimate by more than 0.15 standard errors."""

_RISEN = 4.0
"""Variances by which the loss of a window may rise before it is fitted from other starts."""

_HELD = 0.02
"""A window whose start could gain more than this many variances by a step, but does not, is held by a jump."""

_FEW = 4
"""Steps of Levenberg and Marquardt for starts that follow."""


def search_from_measured_starts(shooting: ShootingResiduals, *points: torch.Tensor) -> None:
    """Move what is learned to the best that compass searches from some points find, windows as they were measured."""
    count = len(shooting.v[0])
    if not 0 < len(points[0]) <= MAX_SEARCHED:
        return

    def losses(points: torch.Tensor) -> torch.Tensor:
        many = len(points)
        window = torch.arange(count, device=points.device).repeat(many)
        still = torch.zeros_like(shooting.v[0]).repeat(many, 1)
        candidate = torch.arange(many, device=points.device).repeat_interleave(count)
        windows = Candidates(shooting, points).windows(candidate, window, (still, still))
        return window_losses(windows).reshape(many, count).sum(-1)

    compass = torch.eye(len(points[0])).to(points[0])
    compass = torch.cat([compass, -compass])
    found = []
    for best in points:
        width, loss = WIDTHS[0], float(losses(best[None]))
        while width > WIDTHS[1]:
            trials = best + width * compass
            lower = losses(trials)
            if float(lower.min()) < loss:
                best, loss = trials[lower.argmin()], float(lower.min())
            else:
                width *= 0.5
        found.append((loss, best))
    assign(shooting.learned, min(found, key=lambda pair: pair[0])[1])


def descend_projected(shooting: ShootingResiduals, rounds: int, history: list[float]) -> None:
    """Move what is learned and the starts to the least loss; mean losses go into the history.

    Gauss-Newton steps while they gain; then other starts; then a look around.
    """
    improve_starts(shooting)
    for round_ in range(rounds):
        searched = 0 < len(shooting.raw) <= MAX_SEARCHED
        gained = bool(len(shooting.raw)) and _step(shooting, look_around=False)
        gained = gained or improve_starts(shooting, seed=round_ + 1)
        gained = gained or (searched and _step(shooting, look_around=True))
        history.append(variance(shooting))
        if not gained:
            break


def _step(shooting: ShootingResiduals, look_around: bool) -> bool:
    """Take the best of some steps, and return whether it gained."""
    unit, losses, raw = variance(shooting), window_losses(shooting), shooting.raw
    normal, gradient, gain = _reduced(shooting, unit)
    covariance = torch.linalg.inv(normal)
    if look_around:
        deviations = unit**0.5 * covariance / covariance.diagonal().sqrt()
        steps = torch.cat([scale * deviations for scale in DEVIATIONS])
    else:
        steps = -torch.outer(gradient.new_tensor(FRACTIONS), covariance @ gradient)
    steps = torch.clamp(steps, -0.5, 0.5)
    count = len(losses)
    dq, dv = torch.einsum("wsp,kp->kws", gain, steps).flatten(0, 1).split(shooting.model.nv, -1)
    followed = (shooting.start[0].repeat(len(steps), 1) - dq, shooting.start[1].repeat(len(steps), 1) - dv)
    starts, found = _refitted(shooting, raw + steps, followed, losses + _RISEN * unit)
    found = found.reshape(-1, count)
    best = int(found.sum(-1).argmin())
    if float(losses.sum() - found[best].sum()) <= _GAINED * unit:
        return False
    assign(shooting.learned, (raw + steps)[best])
    rows = slice(best * count, (best + 1) * count)
    shooting.start = (starts[0][rows], starts[1][rows])
    return True


def _refitted(
    shooting: ShootingResiduals, points: torch.Tensor, first: Start, limits: torch.Tensor
) -> tuple[Start, torch.Tensor]:
    """Fit all windows with each of the points; those whose loss stays above its limit again, from other starts."""
    candidates, count = Candidates(shooting, points), len(limits)
    every = torch.arange(len(points) * count, device=points.device)
    start, loss = fitted(candidates, every // count, every % count, first, _FEW)
    risen = every[loss > limits.repeat(len(points))]
    if len(risen):
        window = risen % count
        samples = sampled_starts(candidates, risen // count, window, seed=0)
        others = [torch.cat([x[window], y]) for x, y in zip(shooting.start, samples, strict=True)]
        again = risen.repeat(1 + KEPT)
        found = fitted(candidates, again // count, again % count, (others[0], others[1]))
        other, lower = best_of(*found, len(risen))
        better = lower < loss[risen]
        at = risen[better]
        start[0][at], start[1][at], loss[at] = other[0][better], other[1][better], lower[better]
    return start, loss


def _reduced(shooting: ShootingResiduals, unit: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The normal equations with the starts eliminated, JᵀJ (p, p) and Jᵀr (p,), and how starts follow, (w, 2 nv, p).

    A window that a jump holds is left out: its start would not follow.
    """
    residuals, jacobian = shooting.evaluate()[0], shooting.jacobian()
    weights = shooting.weights(residuals)
    learned, starts = ((x * weights).flatten(-2) for x in (jacobian.learned, jacobian.starts))
    flat = (residuals * weights).flatten(-2)
    blocks = damped(torch.einsum("swr,twr->wst", starts, starts), 1e-9)
    mixed = torch.einsum("swr,pwr->wsp", starts, learned)
    slope = torch.einsum("swr,wr->ws", starts, flat)
    solved = torch.linalg.solve(blocks, torch.cat([mixed, slope[..., None]], -1))
    gain, step = solved[..., :-1], solved[..., -1]
    free = ((slope * step).sum(-1) <= _HELD * unit).to(flat)
    normal = torch.einsum("w,pwr,qwr->pq", free, learned, learned) - torch.einsum("w,wsp,wsq->pq", free, mixed, gain)
    gradient = torch.einsum("w,pwr,wr->p", free, learned, flat) - torch.einsum("w,wsp,ws->p", free, mixed, step)
    return damped(normal, 1e-9), gradient, gain * free[:, None, None]
