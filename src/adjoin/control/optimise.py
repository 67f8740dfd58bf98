"""Optimisers of objectives, for many starts at once.

All starts move together: one launch evaluates all of them, and a line search tries all its lengths for all starts in
one launch too. Each start takes the path that it would take alone. Numbers are counted from the decision's start in
units of its spread, and kept within their limits by projection.

Sources: Adam after Kingma and Ba, Adam: a method for stochastic optimization, 2015; the two loops of L-BFGS after
Nocedal, Updating quasi-Newton matrices with limited storage, 1980, on the numbers that are not held by a limit, as in
Bertsekas, Projected Newton methods for optimization problems with simple constraints, 1982; damping after Marquardt, An
algorithm for least-squares estimation of nonlinear parameters, 1963.
"""

import copy
import math
import time
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from adjoin.control.objective import Objective
from adjoin.errors import InputError
from adjoin.simulation.progress import Progress

Rows = dict[str, Any]
"""What a method keeps between iterations: tensors and lists, one row for each start."""

REASONS = ("iterations", "tolerance", "stalled", "failed", "target")
"""Why a start has stopped: they were used up; it gains too little; no step helps; its loss is not finite; it is met."""

FAILURES = 5
"""Iterations in a row in which no step helps, after which a start stops."""

_RUNNING, _TOLERANCE, _STALLED, _FAILED, _TARGET = range(len(REASONS))


class Problem:
    """An objective in units of the spread; counts what is simulated."""

    def __init__(self, objective: Objective):
        self.objective, self.rollouts = objective, 0
        box = objective.box
        self.lower, self.upper = ((limit - box.start) / box.spread for limit in (box.lower, box.upper))

    def numbers(self, z: torch.Tensor) -> torch.Tensor:
        """The numbers that are decided."""
        box = self.objective.box
        return (box.start + z * box.spread).clamp(box.lower, box.upper)

    def project(self, z: torch.Tensor) -> torch.Tensor:
        """The nearest within the limits."""
        return z.clamp(self.lower, self.upper)

    def free(self, z: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Which numbers no limit holds back from going down."""
        return ~(((z <= self.lower) & (gradient > 0.0)) | ((z >= self.upper) & (gradient < 0.0)))

    def losses(self, z: torch.Tensor) -> torch.Tensor:
        """Losses (...,) of (..., size), in one launch."""
        flat = z.reshape(-1, z.shape[-1])
        self.rollouts += len(flat)
        return self.objective.losses(self.numbers(flat)).reshape(z.shape[:-1])

    def gradients(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Losses and gradients; each counts as one rollout."""
        self.rollouts += len(z)
        losses, found = self.objective.gradients(self.numbers(z))
        return losses, found * self.objective.box.spread

    def jacobians(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Residuals and derivatives; a rollout for each number or each residual, whichever are fewer."""
        values, found = self.objective.jacobians(self.numbers(z))
        self.rollouts += len(z) * min(found.shape[1:])
        return values, found * self.objective.box.spread


class Method(Protocol):
    """A way to go down."""

    @property
    def patience(self) -> int:
        """Iterations that may gain less than the tolerance before a start stops."""
        ...

    def begin(self, problem: Problem, z: torch.Tensor, seed: int) -> Rows:
        """What is kept, with "z" and "loss"."""
        ...

    def advance(self, problem: Problem, rows: Rows) -> Rows:
        """One iteration; "best" says where the "loss" is, if it is not of "z"."""
        ...


@dataclass(frozen=True)
class Adam:
    """Gradient descent with a step size for each number.

    Attributes:
        rate: of a step, in units of the spread.
        betas: what stays of the mean gradient and of its square in each iteration.
        decay: what the rate is multiplied with in each iteration.
        clip: gradients longer than this are shortened to it, for each start.
        patience: iterations that may gain less than the tolerance before a start stops.
    """

    rate: float = 0.05
    betas: tuple[float, float] = (0.9, 0.999)
    decay: float = 1.0
    clip: float | None = None
    patience: int = 20

    def begin(self, problem: Problem, z: torch.Tensor, seed: int) -> Rows:
        """See `Method`."""
        return _begin(problem, z, self.rate, first=torch.zeros_like(z), second=torch.zeros_like(z))

    def advance(self, problem: Problem, rows: Rows) -> Rows:
        """See `Method`."""
        gradient = _clipped(rows["gradient"], self.clip)
        keep, keep_square = self.betas
        count = rows["count"] + 1.0
        first = keep * rows["first"] + (1.0 - keep) * gradient
        second = keep_square * rows["second"] + (1.0 - keep_square) * gradient.square()
        mean = first / (1.0 - keep**count)[:, None]
        size = (second / (1.0 - keep_square**count)[:, None]).sqrt()
        step = mean / (size + 1e-8)
        return _descend(problem, rows, step, self.decay, first=first, second=second)


@dataclass(frozen=True)
class SGD:
    """Gradient descent.

    Attributes:
        rate: of a step, in units of the spread, for a gradient of 1.
        momentum: what stays of the last step in each iteration.
        decay: what the rate is multiplied with in each iteration.
        clip: gradients longer than this are shortened to it, for each start.
        patience: iterations that may gain less than the tolerance before a start stops.
    """

    rate: float = 0.05
    momentum: float = 0.0
    decay: float = 1.0
    clip: float | None = None
    patience: int = 20

    def begin(self, problem: Problem, z: torch.Tensor, seed: int) -> Rows:
        """See `Method`."""
        return _begin(problem, z, self.rate, first=torch.zeros_like(z))

    def advance(self, problem: Problem, rows: Rows) -> Rows:
        """See `Method`."""
        step = self.momentum * rows["first"] + _clipped(rows["gradient"], self.clip)
        return _descend(problem, rows, step, self.decay, first=step)


@dataclass(frozen=True)
class LBFGS:
    """Quasi-Newton with limited memory, and a line search that tries all its lengths at once.

    Attributes:
        memory: how many past steps are kept; with 0 it is steepest descent with a line search.
        trials: lengths that a line search tries, each half of the one before.
        first: how far a number moves at most in a step without memory, in units of the spread.
        patience: iterations that may gain less than the tolerance before a start stops.
    """

    memory: int = 10
    trials: int = 8
    first: float = 0.1
    patience: int = 8

    def begin(self, problem: Problem, z: torch.Tensor, seed: int) -> Rows:
        """See `Method`."""
        past = z.new_zeros(len(z), self.memory, z.shape[1])
        return _begin(problem, z, self.first, steps=past, changes=past.clone(), failures=torch.zeros_like(z[:, 0]))

    def advance(self, problem: Problem, rows: Rows) -> Rows:
        """See `Method`."""
        z, loss, gradient, rate = rows["z"], rows["loss"], rows["gradient"], rows["rate"]
        free = problem.free(z, gradient)
        pull = torch.where(free, gradient, 0.0)
        plain = pull * (rate / pull.abs().amax(-1).clamp(min=torch.finfo(z.dtype).tiny))[:, None]
        bent, any_past = _two_loops(pull, rows["steps"] * free[:, None], rows["changes"] * free[:, None])
        down = any_past & (_dot(bent, pull) > 0.0) & bent.isfinite().all(-1)
        direction = torch.where(down[:, None], bent, plain)
        lengths = 2.0 ** (1.0 - torch.arange(self.trials, dtype=z.dtype, device=z.device))
        tried = problem.project(z[:, None] - lengths[:, None] * direction[:, None])
        moved, lower, better = _least(problem.losses(tried), tried, loss)
        _, slope = problem.gradients(moved)
        better = better & slope.isfinite().all(-1)
        step, change = moved - z, slope - gradient
        curved = better & (_dot(step, change) > 1e-10 * _dot(step, step).sqrt() * _dot(change, change).sqrt())
        steps, changes = (
            torch.where(curved[:, None, None], torch.cat([past[:, 1:], new[:, None]], 1)[:, : self.memory], past)
            for past, new in ((rows["steps"], step), (rows["changes"], change))
        )
        kept = better[:, None, None]
        return {
            **rows,
            "z": torch.where(better[:, None], moved, z),
            "loss": torch.where(better, lower, loss),
            "gradient": torch.where(better[:, None], slope, gradient),
            "steps": torch.where(kept, steps, 0.0),
            "changes": torch.where(kept, changes, 0.0),
            "rate": torch.where(better, (2.0 * rate).clamp(max=self.first), torch.where(down, rate, 0.01 * rate)),
            "failures": torch.where(better, 0.0, rows["failures"] + 1.0),
        }


@dataclass(frozen=True)
class GaussNewton:
    """Gauss-Newton for objectives of `residuals` alone; tries several dampings at once.

    Attributes:
        damping: to begin with, relative to the diagonal of JᵀJ, or of JJᵀ where residuals are fewer than numbers.
        trials: dampings that an iteration tries, each ten times the one before.
        patience: iterations that may gain less than the tolerance before a start stops.
    """

    damping: float = 1e-3
    trials: int = 6
    patience: int = 4

    def begin(self, problem: Problem, z: torch.Tensor, seed: int) -> Rows:
        """See `Method`."""
        of = problem.objective
        if of.residual is None or of.cost is not None or of.terminal is not None or of.loss is not None:
            raise InputError("GaussNewton: the objective must have residuals, and no cost, terminal or loss")
        none = torch.zeros_like(z[:, 0])
        return {"z": z, "loss": problem.losses(z), "damping": none + self.damping, "failures": none}

    def advance(self, problem: Problem, rows: Rows) -> Rows:
        """See `Method`."""
        z, loss, damping = rows["z"], rows["loss"], rows["damping"]
        rest, slopes = (part.nan_to_num(0.0, 0.0, 0.0) for part in problem.jacobians(z))
        pull = torch.einsum("bmn,bm->bn", slopes, rest)
        free = problem.free(z, pull).to(z)
        dampings = damping[:, None] * 10.0 ** (torch.arange(self.trials, dtype=z.dtype, device=z.device) - 1.0)
        solve = _by_residuals if slopes.shape[1] < slopes.shape[2] else _by_numbers
        step = solve(slopes * free[:, None], rest, free, dampings)
        tried = problem.project(z[:, None] - step)
        losses = problem.losses(tried)
        moved, lower, better = _least(losses, tried, loss)
        chosen = dampings.gather(1, losses.nan_to_num(torch.inf).argmin(1, keepdim=True)).squeeze(1)
        return {
            "z": torch.where(better[:, None], moved, z),
            "loss": torch.where(better, lower, loss),
            "damping": torch.where(better, chosen.clamp(min=1e-12), 10.0 * dampings[:, -1]),
            "failures": torch.where(better, 0.0, rows["failures"] + 1.0),
        }


@dataclass(frozen=True)
class History:
    """How the losses fell.

    Attributes:
        loss: before the first iteration and after each, (iterations + 1, starts).
        seconds: since the beginning, (iterations + 1,); the first evaluation may compile kernels.
        rollouts: simulated since the beginning, (iterations + 1,); one with its gradient counts once.
    """

    loss: torch.Tensor
    seconds: torch.Tensor
    rollouts: torch.Tensor

    @property
    def best(self) -> torch.Tensor:
        """The least loss so far of each start, (iterations + 1, starts)."""
        return self.loss.cummin(0).values


@dataclass(frozen=True)
class Found:
    """What was found.

    Attributes:
        numbers: the best of each start, (starts, size).
        losses: theirs, (starts,).
        stopped: why each start has stopped, one of `REASONS`.
        history: how the losses fell.
        state: what `optimise(..., resume=)` takes; `torch.save` writes it.
    """

    numbers: torch.Tensor
    losses: torch.Tensor
    stopped: list[str]
    history: History
    state: dict[str, Any]

    @property
    def best(self) -> torch.Tensor:
        """The best numbers of all, (size,)."""
        return self.numbers[self.losses.argmin()]

    @property
    def loss(self) -> float:
        """Of the best."""
        return float(self.losses.min())


def optimise(
    objective: Objective,
    method: Method | None = None,
    *,
    starts: int | torch.Tensor | None = None,
    iterations: int = 100,
    tolerance: float = 1e-8,
    target: float = -math.inf,
    seed: int = 0,
    progress: bool = False,
    resume: dict[str, Any] | None = None,
) -> Found:
    """Find decisions with a small loss.

    Args:
        objective: what to make small.
        method: `LBFGS()`, which is the default, `Adam()`, `SGD()`, `GaussNewton()`, `CMAES()` or `MPPI()`.
        starts: how many random ones, or the starts themselves, (starts, size) or (size,); by default the decision's.
        iterations: at most this many.
        tolerance: a start stops when its loss falls by less than this share within the method's `patience`.
        target: all stop when the loss of one of them is this small.
        seed: of random starts and of sampling.
        progress: whether to show a bar with the loss; Ctrl-C then ends it with what is found.
        resume: the `state` of an earlier run, to go on as if it had not stopped; `starts` and `seed` then are its own.

    Returns:
        The best of each start. A start whose loss is not finite stops as "failed" and does not disturb the others.
    """
    if not isinstance(objective, Objective):
        raise InputError(f"optimise: the objective must be an Objective, got a {type(objective).__name__}")
    method = LBFGS() if method is None else method
    if not hasattr(method, "advance"):
        raise InputError(f"optimise: the method must be one such as LBFGS() or Adam(), got {method!r}")
    if not isinstance(iterations, int) or iterations < 0:
        raise InputError(f"optimise: iterations must be a whole number of at least 0, got {iterations!r}")
    problem, begun = Problem(objective), time.perf_counter()
    if resume is None:
        run = _started(problem, method, _starts(objective, starts, seed), seed)
        _record(run, time.perf_counter() - begun, problem.rollouts)
    else:
        run = _resumed(resume, method, objective.size)
        begun, problem.rollouts = begun - run["seconds"][-1], run["rollouts"][-1]
    bar = Progress([(k, k + 1) for k in range(iterations)], progress, "iterations")
    try:
        for _ in bar:
            if float(run["least"].min()) <= target:
                break
            active = (run["stopped"] == _RUNNING).nonzero()[:, 0]
            if not len(active):
                break
            _merge(run["rows"], method.advance(problem, _take(run["rows"], active)), active)
            _judge(run, method, tolerance, active)
            _record(run, time.perf_counter() - begun, problem.rollouts)
            bar.note = f"loss {float(run['least'].min()):.4g}"
    except KeyboardInterrupt:
        if not progress:
            raise
    met = run["least"] <= target
    why = torch.where(met, _TARGET, run["stopped"]).tolist()
    history = History(torch.stack(run["losses"]), torch.tensor(run["seconds"]), torch.tensor(run["rollouts"]))
    return Found(problem.numbers(run["best"]), run["least"], [REASONS[k] for k in why], history, run)


# The state of a run


def _started(problem: Problem, method: Method, numbers: torch.Tensor, seed: int) -> dict[str, Any]:
    box = problem.objective.box
    rows = method.begin(problem, problem.project((numbers - box.start) / box.spread), seed)
    loss = rows["loss"]
    failed = ~loss.isfinite()
    if bool(failed.all()):
        raise InputError("optimise: the loss of no start is finite; look at `objective.rollout(start).status`")
    return {
        "method": repr(method),
        "rows": rows,
        "best": rows["z"].clone(),
        "least": loss.clone(),
        "mark": loss.clone(),
        "since": torch.zeros_like(loss),
        "stopped": torch.where(failed, _FAILED, _RUNNING),
        "losses": [],
        "seconds": [],
        "rollouts": [],
    }


def _resumed(state: dict[str, Any], method: Method, size: int) -> dict[str, Any]:
    if not isinstance(state, dict) or "rows" not in state:
        raise InputError("optimise: resume must be the `state` of what an earlier run found")
    if state["method"] != repr(method) or state["best"].shape[1] != size:
        raise InputError(
            f"optimise: resume is of {state['method']} for {state['best'].shape[1]} numbers; got {method!r} for {size}"
        )
    return copy.deepcopy(state)


def _judge(run: dict[str, Any], method: Method, tolerance: float, active: torch.Tensor) -> None:
    """Remember the best, and stop starts that gain too little."""
    rows = _take(run["rows"], active)
    found, where = rows["loss"], rows.get("best", rows["z"])
    least, mark = run["least"][active], run["mark"][active]
    better = found < least
    run["best"][active] = torch.where(better[:, None], where, run["best"][active])
    least = torch.where(better, found, least)
    run["least"][active] = least
    gained = least < mark - tolerance * mark.abs()
    since = torch.where(gained, 0.0, run["since"][active] + 1.0)
    run["mark"][active] = torch.where(gained, least, mark)
    run["since"][active] = since
    stalled = rows["failures"] >= FAILURES if "failures" in rows else torch.zeros_like(better)
    why = torch.where(stalled, _STALLED, torch.where(since >= method.patience, _TOLERANCE, _RUNNING))
    run["stopped"][active] = why


def _record(run: dict[str, Any], seconds: float, rollouts: int) -> None:
    run["losses"].append(run["rows"]["loss"].clone())
    run["seconds"].append(seconds)
    run["rollouts"].append(rollouts)


def _take(rows: Rows, active: torch.Tensor) -> Rows:
    """The rows of these starts."""
    places = active.tolist()
    return {k: x[active] if isinstance(x, torch.Tensor) else [x[i] for i in places] for k, x in rows.items()}


def _merge(rows: Rows, found: Rows, active: torch.Tensor) -> None:
    """Put rows of these starts in their places."""
    for name, value in found.items():
        if isinstance(value, torch.Tensor):
            rows[name][active] = value
        else:
            for place, item in zip(active.tolist(), value, strict=True):
                rows[name][place] = item


def _starts(objective: Objective, starts: int | torch.Tensor | None, seed: int) -> torch.Tensor:
    if starts is None:
        return objective.box.start[None]
    if isinstance(starts, int):
        if starts < 1:
            raise InputError(f"optimise: starts must be at least 1, got {starts}")
        return objective.random(starts, seed)
    given = starts[None] if starts.ndim == 1 else starts
    if given.ndim != 2 or given.shape[1] != objective.size or not len(given):
        raise InputError(f"optimise: starts must be (starts, {objective.size}), got {tuple(starts.shape)}")
    return given.detach().to(objective.box.start)


# Steps


def _begin(problem: Problem, z: torch.Tensor, rate: float, **more: torch.Tensor) -> Rows:
    loss, gradient = problem.gradients(z)
    one = torch.zeros_like(loss)
    return {"z": z, "loss": loss, "gradient": gradient, "rate": one + rate, "count": one, **more}


def _descend(problem: Problem, rows: Rows, step: torch.Tensor, decay: float, **more: torch.Tensor) -> Rows:
    """One step; a start whose loss is not finite there stays, forgets its past and halves its rate."""
    z = problem.project(rows["z"] - rows["rate"][:, None] * step)
    loss, gradient = problem.gradients(z)
    fine = loss.isfinite() & gradient.isfinite().all(-1)
    wide = fine[:, None]
    return {
        "z": torch.where(wide, z, rows["z"]),
        "loss": torch.where(fine, loss, rows["loss"]),
        "gradient": torch.where(wide, gradient, rows["gradient"]),
        "rate": rows["rate"] * torch.where(fine, decay, 0.5),
        "count": torch.where(fine, rows["count"] + 1.0, 0.0),
        **{name: torch.where(wide, value, 0.0) for name, value in more.items()},
    }


def _clipped(gradient: torch.Tensor, most: float | None) -> torch.Tensor:
    if most is None:
        return gradient
    return gradient * (most / gradient.norm(dim=-1, keepdim=True).clamp(min=most))


def _least(losses: torch.Tensor, tried: torch.Tensor, loss: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of what each start tried the best, its loss, and whether that is better than before."""
    lower, at = losses.nan_to_num(torch.inf).min(1)
    moved = tried.gather(1, at[:, None, None].expand(-1, 1, tried.shape[-1])).squeeze(1)
    return moved, lower, lower < loss


def _by_numbers(slopes: torch.Tensor, rest: torch.Tensor, free: torch.Tensor, dampings: torch.Tensor) -> torch.Tensor:
    """Damped steps (starts, trials, size) from (JᵀJ + damping) step = Jᵀ r."""
    normal = slopes.mT @ slopes
    diagonal = normal.diagonal(dim1=-2, dim2=-1)
    floor = diagonal.clamp(min=1e-8 * diagonal.amax(-1, keepdim=True) + torch.finfo(rest.dtype).tiny)
    damped = normal[:, None] + (dampings[..., None] * floor[:, None] + (1.0 - free)[:, None]).diag_embed()
    pull = (slopes.mT @ rest[..., None])[:, None].expand(-1, dampings.shape[1], -1, -1)
    return torch.linalg.solve_ex(damped, pull)[0].squeeze(-1)


def _by_residuals(slopes: torch.Tensor, rest: torch.Tensor, free: torch.Tensor, dampings: torch.Tensor) -> torch.Tensor:
    """The same for fewer residuals than numbers, with one damping for all numbers: step = Jᵀ (JJᵀ + damping)⁻¹ r."""
    normal = slopes @ slopes.mT
    size = normal.diagonal(dim1=-2, dim2=-1).amax(-1)[:, None, None] + torch.finfo(rest.dtype).tiny
    damped = normal[:, None] + (dampings[..., None] * size).expand(-1, -1, rest.shape[1]).diag_embed()
    pull = rest[:, None, :, None].expand(-1, dampings.shape[1], -1, -1)
    return torch.einsum("bmn,bkm->bkn", slopes, torch.linalg.solve_ex(damped, pull)[0].squeeze(-1))


def _two_loops(gradient: torch.Tensor, steps: torch.Tensor, changes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient times the inverse Hessian that past steps and changes of the gradient tell, and whether they do."""
    products = _dot(steps, changes)
    squares = _dot(changes, changes)
    used = products > 1e-10 * (_dot(steps, steps) * squares).sqrt()
    weights = torch.where(used, 1.0 / torch.where(used, products, 1.0), 0.0)
    direction, shares = gradient, []
    for k in reversed(range(steps.shape[1])):
        share = weights[:, k] * _dot(steps[:, k], direction)
        direction = direction - share[:, None] * changes[:, k]
        shares.append(share)
    scale = torch.ones_like(gradient[:, 0])
    for k in range(steps.shape[1]):
        scale = torch.where(used[:, k], products[:, k] / torch.where(used[:, k], squares[:, k], 1.0), scale)
    direction = direction * scale[:, None]
    for k, share in zip(range(steps.shape[1]), reversed(shares), strict=True):
        back = weights[:, k] * _dot(changes[:, k], direction)
        direction = direction + (share - back)[:, None] * steps[:, k]
    return direction, used.any(1)


def _dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a * b).sum(-1)
