"""Identification through simulated motions, contacts included, by multiple shooting.

Recorded motions are cut into windows. Each is simulated from its start and compared with the measurements: q on the
configuration manifold and v, over the standard deviations of their noise. Short windows keep the problem well behaved
where motions are chaotic or contacts come and go. Starts are the measured states, or unknowns themselves, which noise
asks for; the end of a window and the start of the next can be tied together (Bock and Plitt, A multiple shooting
algorithm for direct solution of optimal control problems, 1984).

`Shooting.solve` is Gauss-Newton with the damping of Levenberg and Marquardt. A start affects only its own window and
the next, so the starts are eliminated window by window. `Shooting.descend` is Adam or L-BFGS by the reverse mode, for
networks with many weights.
"""

import functools
import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from adjoin.errors import InputError
from adjoin.learn.data import columns
from adjoin.learn.jacobian import assign, raw_numbers
from adjoin.learn.levenberg_marquardt import damped, improve
from adjoin.learn.local_coordinates import local_coordinates
from adjoin.learn.parameters import Parameters
from adjoin.learn.report import Report, quantities_of, summary
from adjoin.learn.shooting_residuals import ShootingJacobian, ShootingResiduals
from adjoin.learn.variable_projection import descend_projected, search_from_measured_starts
from adjoin.progress import Progress, until_interrupt

COARSE = 1e-2  # share of the loss that an iteration gains at least before the starts are freed


class Shooting(ShootingResiduals):
    """Fits what is learned so that a simulator repeats recorded motions; arguments as of `ShootingResiduals`."""

    def solve(
        self,
        iterations: int = 30,
        *,
        tolerance: float = 1e-6,
        damping: float = 1e-3,
        progress: bool = False,
        return_on_interrupt: bool = False,
    ) -> list[float]:
        """Move what is learned, and free starts, to where the sum of squared residuals is least.

        Args:
            iterations: at most this many.
            tolerance: it ends when the sum falls by less than this share.
            damping: of the first step, relative to the diagonal of JᵀJ.
            progress: whether to show a bar.
            return_on_interrupt: whether Ctrl-C ends it with the best so far instead of raising KeyboardInterrupt.

        Returns:
            The loss before the first iteration and after each.
        """
        if not self.free and not raw_numbers(self.learned):
            raise InputError("Shooting: nothing is learned: no module has parameters that require gradients")
        self.check_finite()
        free, robust, first = self.free, self.robust, self.raw
        bar = iter(Progress(iterations, progress, "iterations"))
        history: list[float] = []
        try:
            with until_interrupt(return_on_interrupt):
                if raw_numbers(self.learned) and (free or robust < math.inf):
                    # First plain least squares from the measured starts: free ones would fit to whatever parameters it
                    # begins with, and a robust loss would take for outliers what has most to tell.
                    self.free, self.robust = False, math.inf
                    self._iterate(bar, COARSE, damping, history)
                    self.robust = self.cutoff = robust
                    if robust < math.inf:
                        search_from_measured_starts(self, first, self.raw)
                self.free = free
                projected = free and self.continuity is None
                self._iterate(bar, COARSE if projected else tolerance, damping, history)
                if projected:
                    descend_projected(self, iterations, history)
        finally:
            self.free, self.robust, self.cutoff = free, robust, robust
        return history

    def _iterate(self, bar: Iterator[Any], tolerance: float, damping: float, history: list[float]) -> None:
        """Iterate until the loss falls no more; losses go into the history. The robust loss narrows on the way."""
        residuals, gaps, _ = self.evaluate()
        self.cutoff = max(self.robust, 3.0 * float(residuals.square().mean().sqrt()))
        history += [] if history else [float(self.squares(residuals).mean())]
        point = torch.cat([self.raw, *[x.flatten() for x in self.start if self.free]])
        try:
            for _ in bar:
                loss, jacobian = self._sum(residuals, gaps), self.jacobian()
                if len(history) == 1:
                    self._warn(jacobian.learned)

                solve = functools.partial(self._steps, jacobian, residuals, gaps)
                point, lower, damping = improve(solve, self._loss_at, point, loss, damping)
                self._place(point)
                residuals, gaps, _ = self.evaluate()
                history.append(float(self.squares(residuals).mean()))
                if self.cutoff == self.robust and loss - lower <= tolerance * loss:
                    return
                if self.cutoff > self.robust:
                    self.cutoff, damping = max(self.robust, 0.5 * self.cutoff), min(damping, 1.0)
        finally:
            self._place(point)

    def _sum(self, residuals: torch.Tensor, gaps: torch.Tensor) -> float:
        return float(self.squares(residuals).sum() + gaps.square().sum())

    def _loss_at(self, point: torch.Tensor) -> float:
        self._place(point)
        residuals, gaps, succeeded = self.evaluate()
        return self._sum(residuals, gaps) if succeeded else math.inf

    def _place(self, point: torch.Tensor) -> None:
        """Set what is learned, and free starts, to a point: raw numbers, then dq and dv of the starts."""
        count = len(self.raw)
        assign(self.learned, point[:count])
        if self.free:
            dq, dv = point[count:].reshape(2, *self.start[0].shape)
            self.start = dq, dv

    def _steps(
        self, jacobian: ShootingJacobian, residuals: torch.Tensor, gaps: torch.Tensor, dampings: torch.Tensor
    ) -> torch.Tensor:
        """The step of `levenberg_marquardt.Solve` for one damping, (1, 1, n) in the order of `_place`."""
        damping = float(dampings)
        weights = self.weights(residuals)
        learned, starts = ((x * weights).flatten(-2) for x in (jacobian.learned, jacobian.starts))
        flat = (residuals * weights).flatten(-2)
        normal = torch.einsum("pwr,qwr->pq", learned, learned)
        gradient = torch.einsum("pwr,wr->p", learned, flat)
        if not self.free:
            return self._limited(torch.linalg.solve(damped(normal, damping), gradient))[None, None]
        groups = self.groups
        blocks = torch.einsum("swr,twr->wst", starts, starts).unflatten(0, groups)
        mixed = torch.einsum("swr,pwr->wsp", starts, learned).unflatten(0, groups)
        gradients = torch.einsum("swr,wr->ws", starts, flat).unflatten(0, groups)
        below = torch.zeros_like(blocks[:, 1:])
        if self.continuity:
            ends, own_start, next_start = (*jacobian.ends.tensor_split([len(learned)]), jacobian.follows)
            normal = normal + torch.einsum("pmkc,qmkc->pq", ends, ends)
            gradient = gradient + torch.einsum("pmkc,mkc->p", ends, gaps)
            for windows, slope in ((slice(None, -1), own_start), (slice(1, None), next_start)):
                blocks[:, windows] += torch.einsum("smkc,tmkc->mkst", slope, slope)
                mixed[:, windows] += torch.einsum("smkc,pmkc->mksp", slope, ends)
                gradients[:, windows] += torch.einsum("smkc,mkc->mks", slope, gaps)
            below = torch.einsum("smkc,tmkc->mkst", next_start, own_start)
        solved = tridiagonal_solve(damped(blocks, damping), below, torch.cat([mixed, gradients[..., None]], -1))
        start_gain, start_step = solved[..., :-1], solved[..., -1]
        reduced = damped(normal, damping) - torch.einsum("mksp,mksq->pq", mixed, start_gain)
        step = torch.linalg.solve(reduced, gradient - torch.einsum("mksp,mks->p", mixed, start_step))
        step = self._limited(step)
        dq, dv = (start_step - start_gain @ step).flatten(0, 1).split(self.model.nv, -1)
        return torch.cat([step, dq.flatten(), dv.flatten()])[None, None]

    def _limited(self, step: torch.Tensor) -> torch.Tensor:
        """A step with which no raw number leaps: it may be the logarithm of what is learned."""
        limit = 0.4 + 0.1 * self.raw.abs()
        return torch.clamp(step, -limit, limit)

    def descend(
        self,
        iterations: int = 200,
        *,
        method: str = "adam",
        rate: float = 1e-2,
        sparsity: float = 0.0,
        progress: bool = False,
        return_on_interrupt: bool = False,
    ) -> list[float]:
        """Follow the gradient of the loss; free starts stay where they are.

        Args:
            iterations: how many.
            method: "adam", or "lbfgs" with a line search.
            rate: of learning.
            sparsity: with Adam, the weight of the group lasso on outputs of residual networks; see
                `ResidualNetwork.proximal`.
            progress: whether to show a bar.
            return_on_interrupt: whether Ctrl-C ends it with the weights so far instead of raising KeyboardInterrupt.

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

        with until_interrupt(return_on_interrupt):
            for _ in Progress(iterations, progress, "iterations"):
                history.append(float(optimizer.step(closure)))  # pyright: ignore[reportArgumentType]
                if not math.isfinite(history[-1]):
                    raise InputError(f"Shooting.descend: the loss is {history[-1]} in iteration {len(history) - 1}")
                for module in sparse:
                    module.proximal(optimizer, sparsity)
        with torch.no_grad():
            return [*history, float(self.loss())]

    def report(self) -> Report:
        """Return estimates, standard errors, what the data do not determine, and how well the motions fit.

        Free starts count as unknowns; that windows continue one another is not counted as knowledge.
        """
        residuals, _, _ = self.evaluate()
        jacobian, weights = self.jacobian(), self.weights(residuals)
        learned, starts = jacobian.learned * weights, (jacobian.starts * weights).flatten(-2)
        if self.free:
            blocks = torch.einsum("swr,twr->wst", starts, starts)
            mixed = torch.einsum("swr,pwr->wsp", starts, learned.flatten(-2))
            gain = torch.linalg.solve(damped(blocks, 1e-12), mixed)
            learned = learned - torch.einsum("wsp,swr->pwr", gain, starts).reshape(learned.shape)
        by_row = learned.movedim(0, -1).flatten(0, 1)
        root = torch.linalg.qr(by_row.flatten(0, 1)).R
        information = torch.einsum("rcp,rcq->cpq", by_row, by_row)
        # The starts take their share of the freedom: what is left is smaller than the noise.
        count = residuals.numel()
        share = math.sqrt(count / max(count - (self.start[0].numel() * 2 if self.free else 0), 1))
        sigma = torch.cat(self.noise)
        rates = columns(self.model, "v")
        channels = [*map(_position_name, rates), *rates]
        names, units, estimate, turn = self._quantities(by_row.shape[-1])
        pulls = residuals * self._influence(residuals, weights) * share
        report = summary(pulls, root, information, names, units, estimate, turn, channels)

        def joined(x: torch.Tensor) -> torch.Tensor:
            """(windows, samples, ...) as whole trajectories, without the samples that windows begin with."""
            return x[:, -(len(self.q) - 1) :].unflatten(0, self.groups).flatten(1, 2)

        report = replace(report, unidentifiable=[*report.unidentifiable, *self._hidden_frictions(report)])
        q, v = (x.transpose(0, 1) for x in (self.q, self.v))
        measured = torch.cat([local_coordinates(self.model, self.q[0, 0], q), v], -1)
        parts = {"residuals": residuals * sigma, "measured": measured, "time": self.time}
        return replace(report, noise=report.noise * sigma, **{name: joined(x) for name, x in parts.items()})

    def _influence(self, residuals: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """What residuals count with in the standard errors; 1 without a robust loss.

        With the influence psi of a residual, errors of an M-estimator have the variance E[psi²] / E[psi']² (Huber,
        Robust Statistics, 1981), where that of weighted least squares has E[w r²] / E[w].
        """
        square = (residuals / self.cutoff).square()
        bend = ((1.0 - square) * weights.square().square()).mean((0, 1))
        return weights.square() * weights.square().mean((0, 1)).sqrt() / bend

    def _hidden_frictions(self, report: Report) -> list[str]:
        """Which frictions the data do not determine because that of another shape, which is greater, acts instead."""
        friction = self.learned()[0].get("geometry_friction")
        if friction is None:
            return []
        names, sentences = [shape.name for shape in self.simulator.model.geometries], []
        sliding = friction.detach().reshape(-1, *friction.shape[-2:])[0, :, 0].tolist()
        greater = [pair for pair in self.simulator.world.pairs if pair.friction == "greater"]
        for shape, name in enumerate(names):
            label = f"geometry_friction x of {name}"
            if label not in report.names or math.isfinite(report[label][1]):
                continue
            pairs = [(pair.first, pair.second) for pair in greater if shape in (pair.first, pair.second)]
            others = [a if b == shape else b for a, b in pairs]
            hiding = [names[other] for other in others if sliding[other] > sliding[shape]]
            if hiding and len(hiding) == len(others):
                sentences.append(
                    f"{label} is hidden by that of {', '.join(hiding)}, which is greater: of two shapes that touch the "
                    "greater friction counts. Begin above it, make it smaller, or learn one number for both"
                )
        return sentences

    def _quantities(self, count: int) -> tuple[list[str], list[str], torch.Tensor, torch.Tensor]:
        names, units, values, turns, first = [], [], [], [], 0
        for module in self.learned.parts:
            numbers = sum(x.numel() for x in module.parameters() if x.requires_grad)
            if not numbers:
                continue
            quantities = None if isinstance(module, Parameters) or hasattr(module, "weights") else dict
            module_names, module_units, value, turn = quantities_of(module, quantities)
            wide = turn.new_zeros(len(value), count)
            wide[:, first : first + numbers] = turn
            names, units, first = names + module_names, units + module_units, first + numbers
            values.append(value)
            turns.append(wide)
        return names, units, torch.cat(values), torch.cat(turns)

    def _warn(self, slopes: torch.Tensor) -> None:
        """Warn about raw numbers that change nothing, before time is spent on them; networks begin that way."""
        if len(slopes) and not slopes.any():
            raise InputError("Shooting: too little excitation: nothing that is learned changes these motions")
        like = raw_numbers(self.learned)
        for name, slope in zip(like, slopes.split([x.numel() for x in like.values()]), strict=True):
            part: Any = self.learned.parts[int(name.split(".")[1])]
            if not slope.any() and not hasattr(part, "weights"):
                message = f"too little excitation: these motions do not change with {name.split('.', 2)[2]}"
                warnings.warn(message, stacklevel=3)


def tridiagonal_solve(blocks: torch.Tensor, below: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Solve symmetric block-tridiagonal systems.

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
    solution = [torch.linalg.solve(pivots[-1], left[-1])]
    for k in reversed(range(count - 1)):
        solution.insert(0, torch.linalg.solve(pivots[k], left[k] - below[..., k, :, :].mT @ solution[0]))
    return torch.stack(solution, -3)


def _position_name(rate: str) -> str:
    """The name of a column of v as that of the coordinate that changes at that rate."""
    start, dot, end = rate.rpartition(".")
    ends = {"vx": "x", "vy": "y", "vz": "z", "wx": "turn_x", "wy": "turn_y", "wz": "turn_z", "w": "angle"}
    return f"q{start[1:]}.{ends[end]}" if dot and end in ends else f"q{rate[1:]}"
