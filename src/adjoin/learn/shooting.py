"""Identification through simulated motions, contacts included, by multiple shooting.

Recorded motions are cut into windows. Each is simulated from its start, and what comes out is compared with what was
measured: q on the configuration manifold and v, over the standard deviations of their noise. Short windows keep the
problem tame where motions are chaotic or contacts come and go. Starts are the measured states, or unknowns themselves,
which noise asks for; what one window ends with and the next begins with can be held together (Bock and Plitt, A
multiple shooting algorithm for direct solution of optimal control problems, 1984).

`Shooting.solve` is Gauss-Newton with the damping of Levenberg and Marquardt. A start meets only its own window and the
next, so the starts are eliminated window by window. `Shooting.descend` is Adam or L-BFGS by the reverse mode, for
networks with many weights.
"""

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from adjoin.errors import InputError
from adjoin.learn.data import columns
from adjoin.learn.gauss_newton import flatten, raw_numbers, unflatten
from adjoin.learn.local_coordinates import local_coordinates
from adjoin.learn.parameters import Parameters
from adjoin.learn.report import Report, quantities_of, summary
from adjoin.learn.windows import Named, Slopes, Windows
from adjoin.progress import Progress

COARSE = 1e-2  # share of the cost that an iteration gains at least before the starts are freed

__all__ = ["Named", "Shooting", "tridiagonal_solve"]


class Shooting(Windows):
    """Recorded motions, and a simulator that should repeat them once it has learned; arguments as of `Windows`."""

    # Solution

    def solve(
        self, iterations: int = 30, *, tolerance: float = 1e-6, damping: float = 1e-3, progress: bool = False
    ) -> list[float]:
        """Move what is learned, and free starts, to where the sum of squared residuals is least.

        Args:
            iterations: at most this many.
            tolerance: it ends when the sum falls by less than this share.
            damping: to begin with, relative to the diagonal of JᵀJ.
            progress: whether to show a bar; Ctrl-C ends it with what is found.

        Returns:
            The loss before the first iteration and after each.
        """
        if not self.free and not raw_numbers(self.learned):
            raise InputError("Shooting: nothing is learned: no module has parameters that require gradients")
        self.check_finite()
        free, robust = self.free, self.robust
        bar = iter(Progress(iterations, progress, "iterations"))
        history: list[float] = []
        try:
            if raw_numbers(self.learned) and (free or robust < math.inf):
                # First plain least squares from the measured starts: free ones would fit to whatever it begins with,
                # and a robust loss would take for outliers what has most to tell.
                self.free, self.robust = False, math.inf
                self._iterate(bar, COARSE, damping, history)
            self.free, self.robust = free, robust
            self._iterate(bar, tolerance, damping, history)
        except KeyboardInterrupt:
            if not progress:
                raise
        finally:
            self.free, self.robust, self.reach = free, robust, robust
        return history

    def _iterate(self, bar: Iterator[Any], tolerance: float, damping: float, history: list[float]) -> None:
        """Iterate until the cost falls no more; the losses go into the history. The robust loss narrows on the way."""
        rest, gaps, _ = self.evaluate()
        self.reach = max(self.robust, 3.0 * float(rest.square().mean().sqrt()))
        history += [] if history else [float(self.squares(rest).mean())]
        for _ in bar:
            cost, slopes = self._cost(rest, gaps), self.jacobian()
            if len(history) == 1:
                self._warn(slopes.learned)
            damping, lower = self._improve(slopes, rest, gaps, cost, damping)
            rest, gaps, _ = self.evaluate()
            history.append(float(self.squares(rest).mean()))
            if self.reach == self.robust and cost - lower <= tolerance * cost:
                return
            if self.reach > self.robust:
                self.reach, damping = max(self.robust, 0.5 * self.reach), min(damping, 1.0)

    def _cost(self, rest: torch.Tensor, gaps: torch.Tensor) -> float:
        return float(self.squares(rest).sum() + gaps.square().sum())

    def _improve(
        self, slopes: Slopes, rest: torch.Tensor, gaps: torch.Tensor, cost: float, damping: float
    ) -> tuple[float, float]:
        """One step that lowers the cost; the damping for the next, and the cost."""
        like, before = raw_numbers(self.learned), self.start
        point = flatten(like) if like else self.v.new_zeros(0)
        better = False
        try:
            while damping < 1e10:
                step, starts = self._step(slopes, rest, gaps, damping)
                _set(self.learned, unflatten(point - step, like))
                if self.free:
                    dq, dv = starts.split(self.model.nv, -1)
                    self.start = before[0] - dq, before[1] - dv
                moved, apart, fine = self.evaluate()
                lower = self._cost(moved, apart)
                better = fine and lower <= cost
                if better:
                    return max(0.2 * damping, 1e-9), lower
                damping *= 10.0
            return damping, cost
        finally:
            if not better:
                _set(self.learned, unflatten(point, like))
                self.start = before

    def _step(
        self, slopes: Slopes, rest: torch.Tensor, gaps: torch.Tensor, damping: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The raw numbers' step and the starts', (windows, 2 nv): what (JᵀJ + damping) step = Jᵀ r gives."""
        weights = self.weights(rest)
        learned, starts = ((x * weights).flatten(-2) for x in (slopes.learned, slopes.starts))
        flat = (rest * weights).flatten(-2)
        normal = torch.einsum("pwr,qwr->pq", learned, learned)
        pull = torch.einsum("pwr,wr->p", learned, flat)
        if not self.free:
            return self._short(torch.linalg.solve(_damped(normal, damping), pull)), starts.new_zeros(0)
        groups = self.groups
        blocks = torch.einsum("swr,twr->wst", starts, starts).unflatten(0, groups)
        both = torch.einsum("swr,pwr->wsp", starts, learned).unflatten(0, groups)
        pulls = torch.einsum("swr,wr->ws", starts, flat).unflatten(0, groups)
        below = torch.zeros_like(blocks[:, 1:])
        if self.continuity:
            ends, own, follows = slopes.ends[: len(learned)], slopes.ends[len(learned) :], slopes.follows
            normal = normal + torch.einsum("pmkc,qmkc->pq", ends, ends)
            pull = pull + torch.einsum("pmkc,mkc->p", ends, gaps)
            for place, slope in ((slice(None, -1), own), (slice(1, None), follows)):
                blocks[:, place] += torch.einsum("smkc,tmkc->mkst", slope, slope)
                both[:, place] += torch.einsum("smkc,pmkc->mksp", slope, ends)
                pulls[:, place] += torch.einsum("smkc,mkc->mks", slope, gaps)
            below = torch.einsum("smkc,tmkc->mkst", follows, own)
        found = tridiagonal_solve(_damped(blocks, damping), below, torch.cat([both, pulls[..., None]], -1))
        onto, alone = found[..., :-1], found[..., -1]
        reduced = _damped(normal, damping) - torch.einsum("mksp,mksq->pq", both, onto)
        step = self._short(torch.linalg.solve(reduced, pull - torch.einsum("mksp,mks->p", both, alone)))
        return step, (alone - onto @ step).flatten(0, 1)

    def _short(self, step: torch.Tensor) -> torch.Tensor:
        """A step with which no raw number leaps: it may be the logarithm of what is learned."""
        if not len(step):
            return step
        limit = 1.0 + 0.1 * flatten(raw_numbers(self.learned)).abs()
        return torch.clamp(step, -limit, limit)

    def descend(
        self,
        iterations: int = 200,
        *,
        method: str = "adam",
        rate: float = 1e-2,
        sparsity: float = 0.0,
        progress: bool = False,
    ) -> list[float]:
        """Follow the gradient of the loss; free starts stay where they are.

        Args:
            iterations: how many.
            method: "adam", or "lbfgs" with a line search.
            rate: of learning.
            sparsity: with Adam, what outputs of residual networks pay for not being 0; see `Residual.proximal`.
            progress: whether to show a bar; Ctrl-C ends it with what is found.

        Returns:
            The loss before each iteration, and the last.
        """
        weights = [x for x in self.learned.parameters() if x.requires_grad]
        if method not in ("adam", "lbfgs"):
            raise InputError(f"Shooting.descend: no method {method!r}; methods: adam, lbfgs")
        sparse: list[Any] = [x for x in self.learned.parts if hasattr(x, "proximal")] if sparsity else []
        if sparse and method != "adam":
            raise InputError("Shooting.descend: sparsity goes with method='adam'")
        if method == "adam":
            optimizer: torch.optim.Optimizer = torch.optim.Adam(weights, lr=rate)
        else:
            optimizer = torch.optim.LBFGS(weights, lr=rate, max_iter=5, line_search_fn="strong_wolfe")
        self.check_finite()
        history: list[float] = []

        def closure() -> float:
            optimizer.zero_grad()
            loss = self.loss()
            loss.backward()
            return float(loss.detach())

        try:
            for _ in Progress(iterations, progress, "iterations"):
                history.append(float(optimizer.step(closure)))  # pyright: ignore[reportArgumentType]
                if not math.isfinite(history[-1]):
                    raise InputError(f"Shooting.descend: the loss is {history[-1]} in iteration {len(history) - 1}")
                for module in sparse:
                    module.proximal(optimizer, sparsity)
        except KeyboardInterrupt:
            if not progress:
                raise
        with torch.no_grad():
            return [*history, float(self.loss())]

    # What was found

    def report(self) -> Report:
        """Estimates, their standard errors, what the data do not determine, and how well the motions fit.

        Free starts count as unknowns; that windows continue one another is not counted as knowledge.
        """
        rest, _, _ = self.evaluate()
        slopes, weights = self.jacobian(), self.weights(rest)
        learned, starts = slopes.learned * weights, (slopes.starts * weights).flatten(-2)
        if self.free:
            blocks = torch.einsum("swr,twr->wst", starts, starts)
            both = torch.einsum("swr,pwr->wsp", starts, learned.flatten(-2))
            onto = torch.linalg.solve(_damped(blocks, 1e-12), both)
            learned = learned - torch.einsum("wsp,swr->pwr", onto, starts).reshape(learned.shape)
        by_row = learned.movedim(0, -1).flatten(0, 1)
        root = torch.linalg.qr(by_row.flatten(0, 1)).R
        information = torch.einsum("rcp,rcq->cpq", by_row, by_row)
        # The starts take their share of the freedom: what is left is smaller than the noise.
        count = rest.numel()
        share = math.sqrt(count / max(count - (self.start[0].numel() * 2 if self.free else 0), 1))
        sigma = torch.cat(self.noise)
        rates = columns(self.model, "v")
        channels = [*map(_place, rates), *rates]
        names, units, estimate, turn = self._quantities(by_row.shape[-1])
        found = summary(rest * weights * share, root, information, names, units, estimate, turn, channels)

        def joined(x: torch.Tensor) -> torch.Tensor:
            """(windows, samples, ...) as whole trajectories, without the samples that windows begin with."""
            return x[:, -(len(self.q) - 1) :].unflatten(0, self.groups).flatten(1, 2)

        q, v = (x.transpose(0, 1) for x in (self.q, self.v))
        measured = torch.cat([local_coordinates(self.model, self.q[0, 0], q), v], -1)
        parts = {"residuals": rest * sigma, "measured": measured, "time": self.time}
        return replace(found, noise=found.noise * sigma, **{name: joined(x) for name, x in parts.items()})

    def _quantities(self, count: int) -> tuple[list[str], list[str], torch.Tensor, torch.Tensor]:
        names, units, values, turns, first = [], [], [], [], 0
        for module in self.learned.parts:
            numbers = sum(x.numel() for x in module.parameters() if x.requires_grad)
            if not numbers:
                continue
            given = None if isinstance(module, Parameters) or hasattr(module, "weights") else _as_they_are
            own_names, own_units, value, turn = quantities_of(module, given)
            wide = turn.new_zeros(len(value), count)
            wide[:, first : first + numbers] = turn
            names, units, first = names + own_names, units + own_units, first + numbers
            values.append(value)
            turns.append(wide)
        return names, units, torch.cat(values), torch.cat(turns)

    def _warn(self, slopes: torch.Tensor) -> None:
        """Say what changes nothing, before time is spent on it; networks begin that way."""
        if len(slopes) and not slopes.any():
            raise InputError("Shooting: too little excitation: nothing that is learned changes these motions")
        like = raw_numbers(self.learned)
        for name, own in zip(like, slopes.split([x.numel() for x in like.values()]), strict=True):
            part: Any = self.learned.parts[int(name.split(".")[1])]
            if not own.any() and not hasattr(part, "weights"):
                said = f"too little excitation: these motions do not change with {name.split('.', 2)[2]}"
                warnings.warn(said, stacklevel=3)


def tridiagonal_solve(blocks: torch.Tensor, below: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The solution of symmetric systems of blocks, each of which meets only the next.

    Args:
        blocks: on the diagonal, (..., k, n, n).
        below: those below it, (..., k - 1, n, n); above are their transposes.
        right: (..., k, n, m).
    """
    count = blocks.shape[-3]
    if count == 1 or not below.any():
        return torch.linalg.solve(blocks, right)
    pivots, left = [blocks[..., 0, :, :]], [right[..., 0, :, :]]
    for k in range(1, count):
        gain = torch.linalg.solve(pivots[-1], below[..., k - 1, :, :].mT).mT
        pivots.append(blocks[..., k, :, :] - gain @ below[..., k - 1, :, :].mT)
        left.append(right[..., k, :, :] - gain @ left[-1])
    found = [torch.linalg.solve(pivots[-1], left[-1])]
    for k in reversed(range(count - 1)):
        rest = left[k] - below[..., k, :, :].mT @ found[0]
        found.insert(0, torch.linalg.solve(pivots[k], rest))
    return torch.stack(found, -3)


def _damped(normal: torch.Tensor, damping: float) -> torch.Tensor:
    """Matrices with a share of their diagonal added to it; what has none gets a little of the greatest."""
    diagonal = normal.diagonal(dim1=-2, dim2=-1)
    least = 1e-9 * diagonal.amax(-1, keepdim=True) + torch.finfo(normal.dtype).tiny
    return normal + damping * torch.diag_embed(torch.maximum(diagonal, least))


def _set(module: torch.nn.Module, values: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name in values:
                parameter.copy_(values[name])


def _place(rate: str) -> str:
    """The name of a column of v as that of what changes at that rate."""
    start, dot, end = rate.rpartition(".")
    ends = {"vx": "x", "vy": "y", "vz": "z", "wx": "turn_x", "wy": "turn_y", "wz": "turn_z", "w": "angle"}
    return f"q{start[1:]}.{ends[end]}" if dot and end in ends else f"q{rate[1:]}"


def _as_they_are(params: Any) -> dict[str, torch.Tensor]:
    return params
