"""Free starts of windows that ended in a local minimum: other starts are tried for each window by itself.

Through an impact the loss of a window has several minima in its start: one for each step in which the impact may fall.
A robust loss adds those in which samples count as outliers. Parameters held, windows do not depend on one another, so
each is fitted again from where it was measured to begin, a little before and after that, and from where the window
before it ends, and keeps the best.
"""

from typing import TYPE_CHECKING

import torch

from adjoin.learn.levenberg_marquardt import LOWER, RAISE, diagonal_scale

if TYPE_CHECKING:
    from adjoin.learn.shooting_residuals import ShootingResiduals

FITTING = 8
"""Steps of Levenberg and Marquardt from each start."""

SHIFTS = (0.0, -0.7, 0.7)
"""By how many steps of time measured starts are moved along their velocity, so that impacts fall into other steps."""

WORTH = 1e-3
"""Share of the loss that other starts must gain."""

Start = tuple[torch.Tensor, torch.Tensor]
"""dq and dv of all windows, (windows, nv) each."""


def improve_starts(shooting: "ShootingResiduals") -> bool:
    """Move windows to better starts, and return whether that was worth it."""
    best = shooting.start
    q, v = shooting.ends()
    loss = window_losses(shooting, best)
    before = loss.sum()
    still, dt = torch.zeros_like(best[0]), shooting.simulator.dt
    shifted = [(shift * dt * shooting.v[0], still) for shift in SHIFTS]
    continued = (shooting.model.difference(shooting.q[0], q), v - shooting.v[0])
    for first in (*shifted, continued):
        start, other = fitted(shooting, first)
        better = other < loss
        best = (torch.where(better[:, None], start[0], best[0]), torch.where(better[:, None], start[1], best[1]))
        loss = torch.where(better, other, loss)
    shooting.start = best
    return bool(before - loss.sum() > WORTH * before)


def window_losses(shooting: "ShootingResiduals", start: Start) -> torch.Tensor:
    """Return the loss of each window from a start, (windows,); infinite where a simulation failed."""
    shooting.start = start
    losses = shooting.squares(shooting.evaluate()[0]).sum((-2, -1))
    return torch.where(losses.isfinite(), losses, torch.inf)


def fitted(shooting: "ShootingResiduals", start: Start) -> tuple[Start, torch.Tensor]:
    """Fit the starts of all windows, parameters held, and return them with the loss of each window."""
    loss = window_losses(shooting, start)
    damping = torch.full_like(loss, 1e-3)
    for _ in range(FITTING):
        shooting.start = start
        residuals = shooting.evaluate()[0]
        weights = shooting.weights(residuals)
        slopes = (shooting.jacobian().starts * weights).flatten(-2)
        normal = torch.einsum("swr,twr->wst", slopes, slopes)
        gradient = torch.einsum("swr,wr->ws", slopes, (residuals * weights).flatten(-2))
        lifted = normal + (damping[:, None] * diagonal_scale(normal)).diag_embed()
        step = torch.linalg.solve_ex(lifted, gradient)[0].split(start[0].shape[-1], -1)
        trial = (start[0] - step[0], start[1] - step[1])
        other = window_losses(shooting, trial)
        lower = other < loss
        start = (torch.where(lower[:, None], trial[0], start[0]), torch.where(lower[:, None], trial[1], start[1]))
        loss = torch.where(lower, other, loss)
        damping = damping * torch.where(lower, LOWER, RAISE)
    return start, loss
