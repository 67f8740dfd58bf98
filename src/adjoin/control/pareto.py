"""Several objectives at once: a front of compromises, found as one batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from adjoin.errors import InputError
from adjoin.extras import needed


@dataclass(frozen=True)
class ParetoFront:
    """Compromises between objectives.

    Attributes:
        x: decision variables, (points, ...).
        values: objectives, (points, objectives); smaller is better.
        efficient: whether no other point is as good in all objectives and better in one, (points,).
    """

    x: torch.Tensor
    values: torch.Tensor
    efficient: torch.Tensor


def pareto_front(
    objectives: Callable[[torch.Tensor], torch.Tensor] | Sequence[Callable[[torch.Tensor], torch.Tensor]],
    start: torch.Tensor,
    points: int = 20,
    *,
    method: Literal["weighted", "chebyshev", "epsilon"] = "chebyshev",
    iterations: int = 200,
    learning_rate: float = 0.05,
    bounds: tuple[float, float] | None = None,
    penalty: float = 100.0,
) -> ParetoFront:
    """Find compromises between objectives, all of them in one batch with Adam.

    The objectives are scaled to the range between their values where each is best alone, which are found first.

    Args:
        objectives: takes decision variables (batch, ...), gives (batch, objectives); smaller is better. Or a sequence
            of functions that give (batch,) each, such as an `Objective`.
        start: decision variables to begin with, (...).
        points: of the front.
        method: "weighted" minimizes weighted sums, which reaches the convex part of a front; "chebyshev" the largest
            weighted distance from the best values, which reaches all of it; "epsilon" the first objective with bounds
            on the others, by a penalty, for two objectives or more with one grid of bounds.
        iterations: of Adam: for each objective alone, and then twice for the front; in between and at the end every
            point takes the best for it of all that were tried and are not dominated, each at the end another.
        learning_rate: of Adam.
        bounds: of the decision variables, kept by projection.
        penalty: of a violated bound of "epsilon", relative to the range of the first objective.
    """
    if points < 2 or iterations < 1:
        raise InputError(
            f"pareto_front: points must be at least 2 and iterations at least 1, got {points}, {iterations}"
        )
    evaluate = objectives if callable(objectives) else _together(objectives)
    with torch.no_grad():
        first = evaluate(start[None])
    if first.dim() != 2 or first.shape[1] < 2:
        raise InputError(f"pareto_front: objectives must give (batch, two or more), got {tuple(first.shape)}")
    count = first.shape[1]
    if method not in ("weighted", "chebyshev", "epsilon"):
        raise InputError(f"pareto_front: no method {method!r}; methods: weighted, chebyshev, epsilon")
    archive = _Archive(start, count)
    alone = 0.98 * torch.eye(count, dtype=start.dtype, device=start.device) + 0.02 / count

    def run(x: torch.Tensor, loss: Callable[[torch.Tensor], torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the best decision variables of each row, and their objectives."""
        x = x.detach().clone().requires_grad_()
        optimizer = torch.optim.Adam([x], lr=learning_rate)
        best, found, values = (
            torch.full(x.shape[:1], torch.inf, dtype=x.dtype, device=x.device),
            x.detach().clone(),
            None,
        )
        for step in range(iterations + 1):
            now = evaluate(x)
            losses = loss(now)
            with torch.no_grad():
                archive.add(x, now)
                better = losses < best
                best = torch.where(better, losses, best)
                found[better] = x[better]
                values = now.clone() if values is None else torch.where(better[:, None], now, values)
            if step < iterations:
                optimizer.zero_grad()
                losses[losses.isfinite()].sum().backward()
                optimizer.step()
                if bounds is not None:
                    with torch.no_grad():
                        x.clamp_(*bounds)
        assert values is not None
        return found, values.detach()

    begin = start.expand(count, *start.shape)
    size = first[0].abs().clamp(min=1e-12)
    corners, extremes = run(begin, lambda values: (alone * (values - first) / size).sum(-1))
    low = extremes.min(0).values
    span = (extremes.max(0).values - low).clamp(min=1e-12)
    weights = _directions(points, count, start)
    nearest = weights.argmax(-1)
    if method == "epsilon":
        limits = low[1:] + span[1:] * torch.linspace(0.0, 1.0, points, dtype=start.dtype, device=start.device)[:, None]

        def scalar(values: torch.Tensor) -> torch.Tensor:
            over = ((values[:, 1:] - limits) / span[1:]).clamp(min=0.0)
            return (values[:, 0] - low[0]) / span[0] + penalty * (over + over * over).sum(-1)
    elif method == "weighted":

        def scalar(values: torch.Tensor) -> torch.Tensor:
            return (weights * (values - low) / span).sum(-1)
    else:

        def scalar(values: torch.Tensor) -> torch.Tensor:
            scaled = weights * (values - low) / span
            return scaled.max(-1).values + 1e-3 * scaled.sum(-1)

    def chosen(distinct: bool) -> torch.Tensor:
        """Return for every point which of the archive is best for it."""
        scores = torch.stack([scalar(one.expand(points, count)) for one in archive.values], -1)
        best = scores.argmin(-1)
        if distinct and len(archive.values) >= points:
            for i in range(points):
                best[i] = scores[i].argmin()
                scores[:, best[i]] = torch.inf
        return best

    x = corners[nearest]
    for turn in range(2):
        run(x, scalar)
        if not len(archive.values):
            raise InputError("pareto_front: the objectives are not finite at any point that was tried")
        best = chosen(distinct=turn == 1)
        x, values = archive.x[best], archive.values[best]
    order = values[:, 0].argsort()
    return ParetoFront(x[order], values[order], efficient(values[order]))


class _Archive:
    """What was tried and is not dominated, each once."""

    def __init__(self, start: torch.Tensor, count: int):
        self.x, self.values = start.new_empty((0, *start.shape)), start.new_empty((0, count))

    def add(self, x: torch.Tensor, values: torch.Tensor) -> None:
        """Add points; drop what they dominate."""
        finite = values.isfinite().all(-1)
        x, values = x[finite], values[finite]
        twice = (values[:, None] == values[None]).all(-1).tril(-1).any(-1)
        known = (self.values[:, None] <= values).all(-1).any(0)
        good = efficient(values) & ~twice & ~known
        x, values = x[good], values[good]
        left = ~(values[:, None] <= self.values).all(-1).any(0)
        self.x, self.values = torch.cat([self.x[left], x]), torch.cat([self.values[left], values])


def _together(objectives: Sequence[Callable[[torch.Tensor], torch.Tensor]]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function to (batch, objectives) from functions to (batch,)."""
    return lambda x: torch.stack([objective(x) for objective in objectives], -1)


def efficient(values: torch.Tensor) -> torch.Tensor:
    """Return which points no other dominates, (points,), of objectives (points, objectives)."""
    no_worse = (values[:, None] <= values[None]).all(-1)
    better = (values[:, None] < values[None]).any(-1)
    return ~(no_worse & better).any(0)


def _directions(points: int, count: int, like: torch.Tensor) -> torch.Tensor:
    """Return weights that spread over all compromises, (points, objectives)."""
    place = {"dtype": like.dtype, "device": like.device}
    if count == 2:
        first = torch.linspace(0.02, 0.98, points, **place)
        return torch.stack([first, 1.0 - first], -1)
    sequence = torch.quasirandom.SobolEngine(count, seed=0).draw(points).to(**place).clamp(1e-3, 1 - 1e-3)
    exponential = -sequence.log()
    return (exponential / exponential.sum(-1, keepdim=True)).clamp(min=0.02)


def plot_pareto(front: ParetoFront, names: Sequence[str]) -> Any:
    """Plot the first two objectives of a front; returns a matplotlib figure.

    Args:
        front: what to show.
        names: of the objectives, with units.
    """
    figure = needed("matplotlib.figure", "plot", "plot_pareto").Figure(figsize=(5.0, 4.0), layout="constrained")
    axes = figure.subplots()
    values, good = front.values.cpu(), front.efficient.cpu()
    axes.plot(*values[good][:, :2].T, "o-", label="non-dominated")
    if not bool(good.all()):
        axes.plot(*values[~good][:, :2].T, "x", color="gray", label="dominated")
    axes.set(xlabel=names[0], ylabel=names[1])
    axes.legend()
    axes.grid(alpha=0.3)
    return figure
