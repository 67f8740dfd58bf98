"""The iterations of differential dynamic programming, for a batch of problems at once.

Each is a backward pass and a forward pass. The problems whose full step does not lower their cost try shorter ones
together; where none does, regularization rises. A CPU works on so many problems together that their gains stay in its
caches; those that are done make room for others.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from itertools import chain, repeat
from typing import Any

import torch

from adjoin.control.ilqr.backward_pass import MAX_FUSED_SIZE, FusedBackwardPass, Gains, StepwiseBackwardPass
from adjoin.control.ilqr.box_qp import Bounds, is_unlimited
from adjoin.control.ilqr.forward_pass import FINAL, ForwardPass
from adjoin.control.ilqr.inverse_dynamics_pass import InverseDynamics, InverseDynamicsBackwardPass
from adjoin.control.ilqr.local_model import LocalModel
from adjoin.control.ilqr.problem_batch import ProblemBatch
from adjoin.progress import Progress, until_interrupt

STEP_LENGTHS = tuple(0.5**n for n in range(1, 9))
"""Of the line search, where the full step does not lower the cost enough."""

SHORT_STEP = 0.1
"""The step length below which regularization rises; it falls after full steps."""

MIN_DECREASE = 0.1
"""The share of the expected decrease of the cost that must come true."""

MIN_MU, MAX_MU, MU_FACTOR = 1e-6, 1e8, 10.0
"""Regularization: from where it rises, where a problem is given up, and how it rises and falls."""

MAX_CONVERGED_MU = 1e-4
"""Regularization up to which a problem can be converged."""

MIN_DONE_FRACTION = 0.1
"""The share of the problems worked on that must be done before they make room."""

PROBLEMS_PER_THREAD = 64
"""Problems that one thread of a CPU works on together."""

RESULTS = ("q", "v", "control", *FINAL, "converged", "iterations", "reason")
"""What is stored of a problem that is done."""


class StopReason(IntEnum):
    """Why the iterations of a problem ended.

    Attributes:
        INTERRUPTED: Ctrl-C ended them.
        CONVERGED: they lowered the cost until no more than the tolerance was left to gain.
        STATIONARY: no more than the tolerance is to be gained from the first guess, which was kept.
        NO_GRADIENT: to first order no control changes the cost of the first guess, which was kept: where a robot has
            yet to touch what it should move, for example.
        STUCK: no step lowered the cost, however short and regularized.
        NOT_FINITE: the cost of the first guess is not a finite number, and no step made it one.
        ITERATIONS: there were as many as were allowed.
    """

    INTERRUPTED = 0
    CONVERGED = 1
    STATIONARY = 2
    NO_GRADIENT = 3
    STUCK = 4
    NOT_FINITE = 5
    ITERATIONS = 6


def concurrent_problems(device: torch.device) -> int:
    """How many problems are worked on together: on a GPU all."""
    return PROBLEMS_PER_THREAD * torch.get_num_threads() if device.type == "cpu" else 2**62


class Passes:
    """The kernels of both passes.

    Args:
        local: model of steps and costs.
        bounds: of the controls.
        second_order: whether the steps' second derivatives count.
        dtype: of the tensors.
    """

    def __init__(self, local: LocalModel, bounds: Bounds, second_order: bool, dtype: torch.dtype):
        self.local = local
        self.backward = self._backward(local, bounds, second_order, dtype)
        self.forward = ForwardPass(local, bounds)

    def _backward(
        self, local: LocalModel, bounds: Bounds, second_order: bool, dtype: torch.dtype
    ) -> FusedBackwardPass | StepwiseBackwardPass:
        if local.width > MAX_FUSED_SIZE or local.loops:
            return StepwiseBackwardPass(local, bounds, second_order)
        if dtype == torch.float64 and is_unlimited(bounds) and not second_order:
            inverse_dynamics = InverseDynamics(local)
            if inverse_dynamics.scale:
                return InverseDynamicsBackwardPass(local, inverse_dynamics)
        return FusedBackwardPass(local, bounds, second_order)


class Iterations:
    """Problems, those of them that are worked on, and the results so far.

    Args:
        passes: the kernels.
        start: the initial states, (count, ...).
        controls: the first guess, (steps, count, nu).
        individual: parameters and named tensors, (count, ...).
        shared: those that are the same for all problems.
        per_step: named tensors of each step, (steps, count, ...).
        feedback: whether the gains are stored.

    Attributes:
        results: all that `ILQRResult` has, by name, with one dimension for the batch.
    """

    def __init__(
        self,
        passes: Passes,
        start: Mapping[str, torch.Tensor],
        controls: torch.Tensor,
        individual: Mapping[str, torch.Tensor],
        shared: Mapping[str, torch.Tensor],
        per_step: Mapping[str, torch.Tensor],
        feedback: bool,
    ):
        self._passes, self._shared = passes, shared
        steps, count, nu = controls.shape
        size = passes.local.size
        q, v = (controls.new_empty(steps + 1, *start[name].shape) for name in ("q", "v"))
        self.results = {
            "controls": controls.new_empty(controls.shape),
            "q": q,
            "v": v,
            "cost": controls.new_empty(count),
            "gain": controls.new_empty(steps if feedback else 0, count, nu, size),
            "converged": controls.new_zeros(count, dtype=torch.bool),
            "iterations": controls.new_zeros(count, dtype=torch.int64),
            "reason": controls.new_zeros(count, dtype=torch.int64),
        }
        per_problem = {**start, **individual, "last_q": q[-1], "last_v": v[-1]}
        per_problem |= {name: self.results[name] for name in ("cost", "converged", "iterations", "reason")}
        per_problem |= {"mu": controls.new_zeros(count), "done": controls.new_zeros(count, dtype=torch.bool)}
        per_problem["index"] = torch.arange(count, device=controls.device)
        per_step = {**per_step, "q": q[:-1], "v": v[:-1], "control": self.results["controls"]}
        for name in passes.local.world.memory:
            if name in passes.forward.outputs:
                per_step[name] = controls.new_empty(steps, *start[name].shape)
        self._all = self._active = ProblemBatch(per_problem, per_step)
        self._spare: ProblemBatch | None = None
        self._gains: Gains | None = None
        constant = {name: start[name].expand(steps, *start[name].shape) for name in ("q", "v")}
        ones, zeros = controls.new_ones(count), controls.new_zeros(nu, size).expand(steps, count, nu, size)
        gains = Gains(zeros[..., 0].contiguous(), zeros, ones, ones, ones)
        guess = self._all.updated(ProblemBatch({}, {**constant, "control": controls}))
        passes.forward(guess, gains, ones, shared, self._all.subset(passes.forward.outputs))

    def run(
        self,
        iterations: int,
        tolerance: float,
        progress: bool | Callable[[int, torch.Tensor], Any],
        return_on_interrupt: bool,
    ) -> None:
        """See `ILQR.solve`."""
        cost, counts = self.results["cost"], self.results["iterations"]
        history = cost.new_empty(iterations + 1, len(cost))
        history[0] = cost
        begun = room = min(len(cost), concurrent_problems(cost.device))
        self._active = self._all.select(self._all.per_problem["index"][:begun])
        bar = Progress(-(-len(cost) // max(1, room)) * iterations, progress is True, "iterations")
        with until_interrupt(return_on_interrupt):
            for rounds, _ in enumerate(chain(bar, repeat(None))):  # making room may take longer than the bar knows
                if not len(self._active.per_problem["cost"]):
                    break
                if progress is True:
                    running = int((~self._active.per_problem["done"]).sum())
                    bar.note = f"{begun - running} of {len(cost)} problems done"
                elif progress:
                    progress(rounds, self._active.per_problem["cost"])
                self._iterate(iterations, tolerance, history)
                begun = self._make_room(begun)
        if len(self._active.per_problem["cost"]):  # interrupted
            if self._gains is None:
                self.results["gain"][:, self._active.per_problem["index"]] = 0.0
            self.results["gain"][:, begun:] = 0.0
            self._store(torch.ones_like(self._active.per_problem["done"]))
        longest = int(counts.max()) if len(counts) else 0
        rows = torch.arange(longest + 1, device=cost.device)[:, None]
        self.results["history"] = history.gather(0, rows.minimum(counts))

    def _iterate(self, iterations: int, tolerance: float, history: torch.Tensor) -> None:
        """Run both passes for the problems that are worked on."""
        active = self._active.per_problem
        gains = self._gains = self._passes.backward(self._active, self._shared, self._gains)
        decrease = -(gains.linear + gains.quadratic)
        converged = (gains.positive > 0.0) & (decrease <= tolerance * active["cost"].abs().clamp(min=1.0))
        converged &= (active["mu"] <= MAX_CONVERGED_MU) & active["cost"].isfinite()
        stuck, moved = active["mu"] > MAX_MU, ~(active["cost"] >= history[0, active["index"]])
        active["converged"] |= converged & moved
        self._stop(stuck & active["cost"].isfinite(), StopReason.STUCK)
        self._stop(stuck & ~active["cost"].isfinite(), StopReason.NOT_FINITE)
        self._stop(converged & moved, StopReason.CONVERGED)
        self._stop(converged & ~moved & (gains.linear == 0.0), StopReason.NO_GRADIENT)
        self._stop(converged & ~moved, StopReason.STATIONARY)
        running = (~active["done"]).nonzero().squeeze(-1)
        if not len(running):
            return
        self._step(gains)
        active = self._active.per_problem
        active["iterations"] += ~active["done"]
        history[active["iterations"][running], active["index"][running]] = active["cost"][running]
        self._stop(active["iterations"] >= iterations, StopReason.ITERATIONS)

    def _stop(self, which: torch.Tensor, reason: StopReason) -> None:
        """End some problems, unless they were done before."""
        active = self._active.per_problem
        active["reason"] = torch.where(which & ~active["done"], int(reason), active["reason"])
        self._store(which)

    def _store(self, which: torch.Tensor) -> None:
        """Write the results of some problems, unless they were done before."""
        active = self._active.per_problem
        rows = (which & ~active["done"]).nonzero().squeeze(-1)
        if not len(rows):
            return
        indices = active["index"][rows]
        self._all.write(self._active.subset(RESULTS).select(rows), indices)
        if len(self.results["gain"]) and self._gains is not None:
            self.results["gain"].index_copy_(1, indices, self._gains.gain.index_select(1, rows))
        active["done"][rows] = True

    def _make_room(self, begun: int) -> int:
        """Replace problems that are done by those that wait; return how many have begun."""
        done = self._active.per_problem["done"].nonzero().squeeze(-1)
        if len(done) < max(1.0, MIN_DONE_FRACTION * len(self._active.per_problem["done"])):
            return begun
        following = self._all.per_problem["index"][begun : begun + len(done)]
        if len(following):
            self._active.write(self._all.select(following), done[: len(following)])
        if len(following) < len(done):
            self._active = self._active.select((~self._active.per_problem["done"]).nonzero().squeeze(-1))
            self._spare = self._gains = None
        return begun + len(following)

    def _step(self, gains: Gains) -> None:
        """Take the full step where it is good, and shorter and shorter ones elsewhere."""
        active, forward, shared = self._active, self._passes.forward, self._shared
        mu, length = active.per_problem["mu"], torch.ones_like(active.per_problem["mu"])
        moved = forward(active, gains, length, shared, self._spare)
        rejected = _rejected(active, moved, gains, length)
        length[rejected] = 0.0
        rows = (rejected & (gains.positive > 0.0) & ~active.per_problem["done"]).nonzero().squeeze(-1)
        for step_length in STEP_LENGTHS:
            if not len(rows):
                break
            problems, row_gains = active.select(rows), _select(gains, rows)
            lengths = torch.full_like(problems.per_problem["mu"], step_length)
            trial = forward(problems, row_gains, lengths, shared)
            rejected = _rejected(problems, trial, row_gains, lengths)
            length[rows] = torch.where(rejected, 0.0, lengths)
            moved.write(trial, rows)
            rows = rows[rejected]
        before = active.subset(forward.outputs)
        unmoved = (length == 0.0).nonzero().squeeze(-1)
        if len(unmoved):
            moved.write(before.select(unmoved), unmoved)
        lowered = torch.where(mu <= MIN_MU, 0.0, mu / MU_FACTOR)
        raised = torch.where(length < SHORT_STEP, (mu * MU_FACTOR).clamp(min=MIN_MU), mu)
        self._spare, self._active = before, active.updated(moved)
        self._active.per_problem["mu"] = torch.where(length == 1.0, lowered, raised)


def _rejected(before: ProblemBatch, after: ProblemBatch, gains: Gains, length: torch.Tensor) -> torch.Tensor:
    """Whether too little of the expected decrease of the cost came true, as far as rounding lets one tell."""
    old, new = before.per_problem["cost"], after.per_problem["cost"]
    expected = -(length * gains.linear + length * length * gains.quadratic)
    rounding = 4.0 * torch.finfo(old.dtype).eps * new.abs()
    return ~((gains.positive > 0.0) & new.isfinite() & (old - new >= MIN_DECREASE * expected - rounding))


def _select(gains: Gains, rows: torch.Tensor) -> Gains:
    return Gains(*[x.index_select(1, rows) for x in gains[:2]], *[x.index_select(0, rows) for x in gains[2:]])
