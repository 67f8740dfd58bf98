"""Starts of windows, fitted for each window by itself while what is learned is held.

Through an impact the loss of a window jumps with its start: where the impact passes a sample or comes into another
step. It has several minima, and some lie at the edge of a jump. A robust loss adds those in which samples count as
outliers. What is learned held, windows do not depend on one another: each is fitted from several starts, as far as it
gets, and keeps the best.
"""

import copy

import torch

from adjoin.learn.jacobian import raw_numbers, unflatten
from adjoin.learn.levenberg_marquardt import LOWER, RAISE, diagonal_scale
from adjoin.learn.shooting_residuals import ModuleGroup, ShootingResiduals

FITTING = 8
"""Steps of Levenberg and Marquardt from each start, at most."""

DRAWN, KEPT = 96, 5
"""Starts that are drawn from what the measurement of a start leaves open, and how many of them are fitted."""

WORTH = 0.5
"""What other starts must gain to be worth it, in variances of the residuals."""

_SETTLED, _STUCK = 1e-3, 1e3
"""A window is done when a step would gain less than this many variances, or when its damping is above that."""

Start = tuple[torch.Tensor, torch.Tensor]
"""dq and dv of windows, (windows, nv) each."""


class Candidates:
    """Raw numbers to try with the windows of a problem.

    Args:
        shooting: the problem.
        points: raw numbers, (k, p).
    """

    def __init__(self, shooting: ShootingResiduals, points: torch.Tensor):
        like = raw_numbers(shooting.learned)
        with torch.no_grad():
            outputs = [torch.func.functional_call(shooting.learned, unflatten(point, like), ()) for point in points]
        self.shooting = shooting
        self._params, self._tensors = (
            {name: torch.stack([output[part][name] for output in outputs]) for name in outputs[0][part]}
            for part in range(2)
        )

    def windows(self, candidate: torch.Tensor, window: torch.Tensor, start: Start) -> ShootingResiduals:
        """Return a problem of chosen windows, each with raw numbers and a start of its own.

        Args:
            candidate: index of the raw numbers, (n,).
            window: index of the window, (n,).
            start: (n, nv) each.
        """
        chosen = copy.copy(self.shooting)
        params, tensors = ({name: x[candidate] for name, x in part.items()} for part in (self._params, self._tensors))
        chosen.learned = _Held((params, tensors))
        chosen.per_window, chosen.start = True, start
        chosen.q, chosen.v, chosen.controls = (
            x[:, window] for x in (self.shooting.q, self.shooting.v, self.shooting.controls)
        )
        chosen.external = {name: x[:, window] for name, x in self.shooting.external.items()}
        return chosen


class _Held(ModuleGroup):
    """What modules returned, as a module that has no raw numbers."""

    def __init__(self, outputs: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]):
        super().__init__([])
        self._outputs = outputs

    def forward(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        return self._outputs


def variance(shooting: ShootingResiduals) -> float:
    """Return the mean loss of a residual, about the variance of the residuals in units of the assumed noise."""
    return float(shooting.squares(shooting.evaluate()[0]).mean())


def window_losses(shooting: ShootingResiduals) -> torch.Tensor:
    """Return the loss of each window, (windows,); infinite where a simulation failed."""
    losses = shooting.squares(shooting.evaluate()[0]).sum((-2, -1))
    return torch.where(losses.isfinite(), losses, torch.inf)


def fitted(
    candidates: Candidates, candidate: torch.Tensor, window: torch.Tensor, start: Start, iterations: int = FITTING
) -> tuple[Start, torch.Tensor]:
    """Fit the starts of windows, and return them with the loss of each; arguments as of `Candidates.windows`."""
    start = (start[0].clone(), start[1].clone())
    loss = window_losses(candidates.windows(candidate, window, start))
    damping, unit = torch.full_like(loss, 1e-3), variance(candidates.shooting)
    active = torch.arange(len(loss), device=loss.device)
    for _ in range(iterations):
        if not len(active):
            break
        now = (start[0][active], start[1][active])
        problem = candidates.windows(candidate[active], window[active], now)
        residuals = problem.evaluate()[0]
        weights = problem.weights(residuals)
        slopes = (problem.jacobian().starts * weights).flatten(-2)
        normal = torch.einsum("swr,twr->wst", slopes, slopes)
        gradient = torch.einsum("swr,wr->ws", slopes, (residuals * weights).flatten(-2))
        lifted = normal + (damping[active, None] * diagonal_scale(normal)).diag_embed()
        step = torch.linalg.solve_ex(lifted, gradient)[0]
        dq, dv = step.split(now[0].shape[-1], -1)
        trial = (now[0] - dq, now[1] - dv)
        other = window_losses(candidates.windows(candidate[active], window[active], trial))
        lower = other < loss[active]
        better = active[lower]
        start[0][better], start[1][better], loss[better] = trial[0][lower], trial[1][lower], other[lower]
        damping[active] *= torch.where(lower, LOWER, RAISE)
        moving = ((step * gradient).sum(-1) > _SETTLED * unit) & (damping[active] < _STUCK)
        active = active[moving | ~residuals.isfinite().all(-1).all(-1) & (damping[active] < _STUCK)]
    return start, loss


def sampled_starts(candidates: Candidates, candidate: torch.Tensor, window: torch.Tensor, seed: int) -> Start:
    """Draw starts about where windows were measured to begin, and return the best `KEPT` of each, (KEPT n, nv).

    The same seed draws the same. Arguments as of `Candidates.windows`.
    """
    shooting, count = candidates.shooting, len(window)
    generator = torch.Generator().manual_seed(seed)
    spread = variance(shooting) ** 0.5
    drawn = [torch.randn(DRAWN, *shooting.v[0].shape, generator=generator, dtype=torch.float64) for _ in range(2)]
    dq, dv = (
        (spread * sigma * x.to(shooting.v)[:, window]).flatten(0, 1)
        for sigma, x in zip(shooting.noise, drawn, strict=True)
    )
    losses = window_losses(candidates.windows(candidate.repeat(DRAWN), window.repeat(DRAWN), (dq, dv)))
    best = losses.reshape(DRAWN, count).argsort(0)[:KEPT] * count + torch.arange(count, device=losses.device)
    return dq[best.flatten()], dv[best.flatten()]


def best_of(start: Start, loss: torch.Tensor, windows: int) -> tuple[Start, torch.Tensor]:
    """Of several fits of each window, (several * windows, ...), return the best, (windows, ...)."""
    index = loss.reshape(-1, windows).argmin(0) * windows + torch.arange(windows, device=loss.device)
    return (start[0][index], start[1][index]), loss[index]


def improve_starts(shooting: ShootingResiduals, seed: int = 0) -> bool:
    """Move windows to better starts, and return whether that was worth it.

    Tried are the start as it is, as it was measured, where the window before ends, and samples.
    """
    count = len(shooting.v[0])
    before = float(window_losses(shooting).sum())
    window = torch.arange(count, device=shooting.v.device)
    q, v = shooting.ends()
    still = torch.zeros_like(shooting.v[0])
    continued = (shooting.model.difference(shooting.q[0], q), v - shooting.v[0])
    candidates = Candidates(shooting, shooting.raw[None])
    sampled = sampled_starts(candidates, torch.zeros_like(window), window, seed)
    starts = [shooting.start, (still, still), continued, sampled]
    first = (torch.cat([dq for dq, _ in starts]), torch.cat([dv for _, dv in starts]))
    every = window.repeat(len(starts) - 1 + KEPT)
    shooting.start, losses = best_of(*fitted(candidates, torch.zeros_like(every), every, first), count)
    return before - float(losses.sum()) > WORTH * variance(shooting)
