"""The minimization of an objective over its decision variables, from many starts at once, by any method."""

import copy
import math
import time
from dataclasses import dataclass
from typing import Any

import torch

from adjoin.control.continuation import Continuation, require_contact, warn_of_no_gradient
from adjoin.control.objective import Objective
from adjoin.control.optimizers.lbfgs import LBFGS
from adjoin.control.optimizers.method import MAX_FAILURES, Method, MethodState, ScaledObjective, row_at
from adjoin.control.optimizers.sampling import MPPI
from adjoin.errors import InputError
from adjoin.progress import Progress, until_interrupt

REASONS = ("iterations", "tolerance", "stalled", "failed", "target", "no gradient")
"""Why a start has stopped: no iterations are left; its gain is below the tolerance; no step helps; its loss is not
finite; its loss is at the target; its gradient is zero, as where nothing touches yet, and it has not moved."""

SEARCH = MPPI(samples=32, decay=0.95)
"""How the stages of a continuation look for contacts."""

_RUNNING, _TOLERANCE, _STALLED, _FAILED, _TARGET, _NO_GRADIENT = range(len(REASONS))


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
class OptimizeResult:
    """The result of `optimize`.

    Attributes:
        variables: the best decision variables of each start, (starts, size).
        losses: their losses, (starts,).
        stopped: why each start has stopped, one of `REASONS`.
        history: how the losses fell.
        state: what `optimize(..., resume=)` takes; `torch.save` writes it.
    """

    variables: torch.Tensor
    losses: torch.Tensor
    stopped: list[str]
    history: History
    state: dict[str, Any]

    @property
    def best(self) -> torch.Tensor:
        """The decision variables with the least loss of all starts, (size,)."""
        return self.variables[self.losses.argmin()]

    @property
    def loss(self) -> float:
        """The loss of the best variables."""
        return float(self.losses.min())


def optimize(
    objective: Objective,
    method: Method | None = None,
    *,
    starts: int | torch.Tensor | None = None,
    continuation: Continuation | None = None,
    iterations: int = 100,
    tolerance: float = 1e-8,
    target: float = -math.inf,
    seed: int = 0,
    progress: bool = False,
    return_on_interrupt: bool = False,
    resume: dict[str, Any] | None = None,
) -> OptimizeResult:
    """Find decision variables with a small loss.

    Args:
        objective: what to minimize.
        method: `LBFGS()`, which is the default, `Adam()`, `SGD()`, `GaussNewton()`, `CMAES()` or `MPPI()`.
        starts: how many random ones, or the starts themselves, (starts, size) or (size,); by default the variables'.
        continuation: stages of soft contact to go through first, to find contacts that are not made yet. Each start
            goes on from the best of what the stages found and itself; `iterations` are those of the last stage.
        iterations: at most this many.
        tolerance: a start stops when its loss falls by less than this share within the method's `patience`.
        target: all stop when the loss of one of them is this small.
        seed: of random starts and of sampling.
        progress: whether to show a bar with the loss.
        return_on_interrupt: whether Ctrl-C ends the search with the best so far instead of raising KeyboardInterrupt.
        resume: the `state` of an earlier run, to go on as if it had not stopped; `starts` and `seed` then are its own.

    Returns:
        The best of each start. A start whose loss is not finite stops as "failed" and does not disturb the others.
    """
    if not isinstance(objective, Objective):
        raise InputError(f"optimize: the objective must be an Objective, got a {type(objective).__name__}")
    method = LBFGS() if method is None else method
    if isinstance(method, type) or not hasattr(method, "advance"):
        raise InputError(f"optimize: the method must be one such as LBFGS() or Adam(), got {method!r}")
    if continuation is not None and not isinstance(continuation, Continuation):
        raise InputError(f"optimize: continuation must be a Continuation(), got {continuation!r}")
    if not isinstance(iterations, int) or iterations < 0:
        raise InputError(f"optimize: iterations must be a whole number of at least 0, got {iterations!r}")
    for name, value, wanted, valid in (
        ("tolerance", tolerance, "a number of at least 0", lambda x: x >= 0.0),
        ("target", target, "a number", lambda x: not math.isnan(x)),
        ("seed", seed, "a whole number of at least 0", lambda x: isinstance(x, int) and x >= 0),
    ):
        if not isinstance(value, int | float) or not valid(value):
            raise InputError(f"optimize: {name} must be {wanted}, got {value!r}")
    problem, begun = ScaledObjective(objective), time.perf_counter()
    if resume is None:
        variables = _starts(objective, starts, seed)
        if continuation is not None:
            require_contact("optimize", objective.sim)
            variables = _through_stages(problem, method, variables, continuation, tolerance, seed)
        run = _start(problem, method, variables, seed)
        _record(run, time.perf_counter() - begun, problem.rollouts)
    else:
        run = _resume(resume, method, objective.size)
        begun, problem.rollouts = begun - run["seconds"][-1], run["rollouts"][-1]
    bar = Progress(iterations, progress, "iterations")
    with until_interrupt(return_on_interrupt):
        for _ in bar:
            if float(run["least"].min()) <= target:
                break
            active = (run["stopped"] == _RUNNING).nonzero()[:, 0]
            if not len(active):
                break
            _scatter(run["rows"], method.advance(problem, _gather(run["rows"], active)), active)
            _update(run, method, tolerance, active)
            bar.note = f"loss {float(run['least'].min()):.4g}"  # waits for the device, too
            _record(run, time.perf_counter() - begun, problem.rollouts)
    stopped = torch.where(run["least"] <= target, _TARGET, run["stopped"]).tolist()
    seconds, rollouts = torch.tensor(run["seconds"], dtype=torch.float64), torch.tensor(run["rollouts"])
    history = History(torch.stack(run["losses"]), seconds, rollouts)
    return OptimizeResult(problem.unscale(run["best"]), run["least"], [REASONS[k] for k in stopped], history, run)


def _through_stages(
    problem: ScaledObjective,
    method: Method,
    variables: torch.Tensor,
    continuation: Continuation,
    tolerance: float,
    seed: int,
) -> torch.Tensor:
    """The best that the stages found for each start, or the start itself, by the objective as it is."""
    objective, found = problem.objective, [variables]
    for params in continuation.stages(objective.box.start):
        soft = objective.softened(params)
        for way, iterations in ((SEARCH, continuation.search), (method, continuation.iterations)):
            if iterations:
                options: dict[str, Any] = {"iterations": iterations, "tolerance": tolerance, "seed": seed}
                stage = optimize(soft, way, starts=found[-1], **options)
                problem.rollouts += int(stage.history.rollouts[-1])
                found.append(stage.variables)
    candidates = torch.stack(found, 1)
    problem.rollouts += candidates.shape[0] * candidates.shape[1]
    losses = objective.losses(candidates.flatten(0, 1)).unflatten(0, candidates.shape[:2])
    best = row_at(candidates, losses.nan_to_num(torch.inf).argmin(1))
    if not continuation.search:
        return best
    last = optimize(objective, SEARCH, starts=best, iterations=continuation.search, tolerance=tolerance, seed=seed)
    problem.rollouts += int(last.history.rollouts[-1])
    return last.variables


# The state of a run


def _start(problem: ScaledObjective, method: Method, variables: torch.Tensor, seed: int) -> dict[str, Any]:
    box = problem.objective.box
    rows = method.begin(problem, problem.project((variables - box.start) / box.spread), seed)
    rows = {name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in rows.items()}
    loss = rows["loss"]
    failed = ~loss.isfinite()
    if bool(failed.all()):
        raise InputError("optimize: the loss of no start is finite; look at `objective.rollout(start).status`")
    still = _has_no_gradient(rows) & ~failed
    if problem.objective.sim.contact_names and bool(still.any()):
        warn_of_no_gradient("optimize", int(still.sum()), len(still), "starts stay where they are")
    return {
        "method": repr(method),
        "rows": rows,
        "best": rows["z"].clone(),
        "least": loss.clone(),
        "mark": loss.clone(),
        "since": torch.zeros_like(loss),
        "stopped": torch.where(failed, _FAILED, torch.where(still, _NO_GRADIENT, _RUNNING)),
        "losses": [],
        "seconds": [],
        "rollouts": [],
    }


def _has_no_gradient(rows: MethodState) -> torch.Tensor:
    """Whether the gradient of a start is zero, if the method has one."""
    gradient = rows.get("gradient")
    if "jacobian" in rows:
        gradient = torch.einsum("bmn,bm->bn", rows["jacobian"], rows["residuals"])
    if gradient is None:
        return torch.zeros_like(rows["loss"], dtype=torch.bool)
    return (gradient == 0.0).all(-1)


def _resume(state: dict[str, Any], method: Method, size: int) -> dict[str, Any]:
    if not isinstance(state, dict) or "rows" not in state:
        raise InputError("optimize: resume must be the `state` of an earlier result")
    if state["method"] != repr(method) or state["best"].shape[1] != size:
        raise InputError(
            f"optimize: resume is of {state['method']} for {state['best'].shape[1]} variables; "
            f"got {method!r} for {size}"
        )
    return copy.deepcopy(state)


def _update(run: dict[str, Any], method: Method, tolerance: float, active: torch.Tensor) -> None:
    """Remember the best, and stop starts that gain too little."""
    rows = _gather(run["rows"], active)
    loss, z = rows["loss"], rows.get("best", rows["z"])
    least, mark = run["least"][active], run["mark"][active]
    better = loss < least
    run["best"][active] = torch.where(better[:, None], z, run["best"][active])
    least = torch.where(better, loss, least)
    run["least"][active] = least
    gained = least < mark - tolerance * mark.abs()
    since = torch.where(gained, 0.0, run["since"][active] + 1.0)
    run["mark"][active] = torch.where(gained, least, mark)
    run["since"][active] = since
    stalled = rows["failures"] >= MAX_FAILURES if "failures" in rows else torch.zeros_like(better)
    running = torch.where(since >= method.patience, _TOLERANCE, _RUNNING)
    run["stopped"][active] = torch.where(stalled, _STALLED, running)


def _record(run: dict[str, Any], seconds: float, rollouts: int) -> None:
    run["losses"].append(run["rows"]["loss"].clone())
    run["seconds"].append(seconds)
    run["rollouts"].append(rollouts)


def _gather(rows: MethodState, active: torch.Tensor) -> MethodState:
    """Return the rows of these starts."""
    indices = active.tolist()
    return {k: x[active] if isinstance(x, torch.Tensor) else [x[i] for i in indices] for k, x in rows.items()}


def _scatter(rows: MethodState, updated: MethodState, active: torch.Tensor) -> None:
    """Write the rows of these starts back."""
    for name, value in updated.items():
        if isinstance(value, torch.Tensor):
            rows[name][active] = value
        else:
            for index, item in zip(active.tolist(), value, strict=True):
                rows[name][index] = item


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
    rows = starts[None] if starts.ndim == 1 else starts
    if rows.ndim != 2 or rows.shape[1] != objective.size or not len(rows):
        raise InputError(f"optimize: starts must be (starts, {objective.size}), got {tuple(starts.shape)}")
    return rows.detach().to(objective.box.start)
