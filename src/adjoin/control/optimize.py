"""The search for decisions with a small loss, from many starts at once, by any method."""

import copy
import math
import time
from dataclasses import dataclass
from typing import Any

import torch

from adjoin.control.descent import LBFGS, SGD, Adam, GaussNewton
from adjoin.control.method import FAILURES, Method, Problem, Rows
from adjoin.control.objective import Objective
from adjoin.errors import InputError
from adjoin.progress import Progress

__all__ = ["LBFGS", "REASONS", "SGD", "Adam", "Found", "GaussNewton", "History", "optimize"]

REASONS = ("iterations", "tolerance", "stalled", "failed", "target")
"""Why a start has stopped: they were used up; it gains too little; no step helps; its loss is not finite; it is met."""

_RUNNING, _TOLERANCE, _STALLED, _FAILED, _TARGET = range(len(REASONS))


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
        state: what `optimize(..., resume=)` takes; `torch.save` writes it.
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


def optimize(
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
        raise InputError(f"optimize: the objective must be an Objective, got a {type(objective).__name__}")
    method = LBFGS() if method is None else method
    if isinstance(method, type) or not hasattr(method, "advance"):
        raise InputError(f"optimize: the method must be one such as LBFGS() or Adam(), got {method!r}")
    if not isinstance(iterations, int) or iterations < 0:
        raise InputError(f"optimize: iterations must be a whole number of at least 0, got {iterations!r}")
    for name, value, wanted, fine in (
        ("tolerance", tolerance, "a number of at least 0", lambda x: x >= 0.0),
        ("target", target, "a number", lambda x: not math.isnan(x)),
        ("seed", seed, "a whole number of at least 0", lambda x: isinstance(x, int) and x >= 0),
    ):
        if not isinstance(value, int | float) or not fine(value):
            raise InputError(f"optimize: {name} must be {wanted}, got {value!r}")
    problem, begun = Problem(objective), time.perf_counter()
    if resume is None:
        run = _started(problem, method, _starts(objective, starts, seed), seed)
        _record(run, time.perf_counter() - begun, problem.rollouts)
    else:
        run = _resumed(resume, method, objective.size)
        begun, problem.rollouts = begun - run["seconds"][-1], run["rollouts"][-1]
    bar = Progress(iterations, progress, "iterations")
    try:
        for _ in bar:
            if float(run["least"].min()) <= target:
                break
            active = (run["stopped"] == _RUNNING).nonzero()[:, 0]
            if not len(active):
                break
            _merge(run["rows"], method.advance(problem, _take(run["rows"], active)), active)
            _judge(run, method, tolerance, active)
            bar.note = f"loss {float(run['least'].min()):.4g}"  # waits for the device, too
            _record(run, time.perf_counter() - begun, problem.rollouts)
    except KeyboardInterrupt:
        if not progress:
            raise
    met = run["least"] <= target
    why = torch.where(met, _TARGET, run["stopped"]).tolist()
    seconds, rollouts = torch.tensor(run["seconds"], dtype=torch.float64), torch.tensor(run["rollouts"])
    history = History(torch.stack(run["losses"]), seconds, rollouts)
    return Found(problem.numbers(run["best"]), run["least"], [REASONS[k] for k in why], history, run)


# The state of a run


def _started(problem: Problem, method: Method, numbers: torch.Tensor, seed: int) -> dict[str, Any]:
    box = problem.objective.box
    rows = method.begin(problem, problem.project((numbers - box.start) / box.spread), seed)
    rows = {name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in rows.items()}
    loss = rows["loss"]
    failed = ~loss.isfinite()
    if bool(failed.all()):
        raise InputError("optimize: the loss of no start is finite; look at `objective.rollout(start).status`")
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
        raise InputError("optimize: resume must be the `state` of what an earlier run found")
    if state["method"] != repr(method) or state["best"].shape[1] != size:
        raise InputError(
            f"optimize: resume is of {state['method']} for {state['best'].shape[1]} numbers; got {method!r} for {size}"
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
            raise InputError(f"optimize: starts must be at least 1, got {starts}")
        return objective.random(starts, seed)
    if not isinstance(starts, torch.Tensor):
        raise InputError(
            f"optimize: starts must be a whole number or a tensor (starts, {objective.size}), got {starts!r}"
        )
    given = starts[None] if starts.ndim == 1 else starts
    if given.ndim != 2 or given.shape[1] != objective.size or not len(given):
        raise InputError(f"optimize: starts must be (starts, {objective.size}), got {tuple(starts.shape)}")
    return given.detach().to(objective.box.start)
