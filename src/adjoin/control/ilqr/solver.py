"""Trajectory optimization by iterative LQR and differential dynamic programming: arguments, checks and results.

Li and Todorov 2004 for iLQR; Tassa, Mansard and Todorov 2014 for limits of the controls.
"""

import copy
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from adjoin.compiler.runtime.bounded import BoundedCache
from adjoin.compiler.runtime.function import Table
from adjoin.control.continuation import SOFT, Continuation, require_contact, warn_of_no_gradient
from adjoin.control.ilqr.iterations import Iterations, Passes, StopReason
from adjoin.control.ilqr.local_model import LocalModel
from adjoin.errors import InputError
from adjoin.simulation.arguments import Argument, Tensors, arguments, check_taken
from adjoin.simulation.simulator import Simulator
from adjoin.simulation.state import SimulatorState
from adjoin.simulation.world_rollout import input_name

PER_PROBLEM = ("cost", "converged", "iterations", "reason")
"""Results that a problem has once, not for each step."""

Limits = bool | tuple[Any, Any]


class ILQRResult(NamedTuple):
    """The result of `ILQR.solve`.

    Attributes:
        controls: (steps, ..., nu).
        q: configurations, (steps + 1, ..., nq).
        v: velocities, (steps + 1, ..., nv).
        cost: of each problem, (...).
        gain: the feedback gain K, (steps, ..., nu, 2 nv): near this motion, control + K (dq, dv) is the best feedback;
            (0, ...) with `feedback=False`.
        converged: whether the cost was lowered until no more than the tolerance is left to gain, (...); never where
            the first guess was kept.
        iterations: of each problem, (...).
        history: the costs at first and after each iteration, (iterations + 1, ...).
        reason: why each problem ended, (...); a `StopReason`.
    """

    controls: torch.Tensor
    q: torch.Tensor
    v: torch.Tensor
    cost: torch.Tensor
    gain: torch.Tensor
    converged: torch.Tensor
    iterations: torch.Tensor
    history: torch.Tensor
    reason: torch.Tensor


class ILQR:
    """Finds controls that take a robot along a trajectory of least cost, for a batch of problems at once.

    Args:
        sim: the simulator; contacts and joint limits included.
        cost: running cost, a traced function that takes what it names: `q` and `v` before each step, its `control`,
            and named tensors. It returns one number, whose Hessian is taken, or a row of residuals r: the cost is
            then half their squares, and its Hessian JᵀJ, which is never indefinite and often quicker.
        terminal: terminal cost, a traced function of `q` and `v` of the last state and of named tensors, likewise.
        limits: of the controls: whether those of the actuators hold, or a pair of lower and upper limits within
            them. Without limits actuators give whatever is asked of them.
        second_order: whether second derivatives of the steps count (differential dynamic programming); without them
            (iLQR) iterations are cheaper, and take smaller regularization.

    Attributes:
        bounds: lower and upper limit of each control.
    """

    def __init__(
        self,
        sim: Simulator,
        cost: Callable[..., Any] | None = None,
        terminal: Callable[..., Any] | None = None,
        *,
        limits: Limits = True,
        second_order: bool = False,
    ):
        if not isinstance(sim, Simulator):
            raise InputError(f"ILQR: sim must be an adjoin.Simulator, got a {type(sim).__name__}")
        if cost is None and terminal is None:
            raise InputError("ILQR: give a running cost, a terminal cost, or both")
        for name, function in (("cost", cost), ("terminal", terminal)):
            if function is not None and not callable(function):
                raise InputError(f"ILQR: {name} must be a traced function, got {function!r}")
        if not sim.model.nu:
            raise InputError(f"ILQR: {sim.model.name!r} has no actuators; see Model.with_motors and Model.with_servos")
        self.sim, self.cost, self.terminal, self.second_order = sim, cost, terminal, second_order
        self.bounds = _bounds(sim, limits)
        self._kernels: BoundedCache[Passes] = BoundedCache(16)

    def solve(
        self,
        state: SimulatorState,
        controls: torch.Tensor,
        params: Mapping[str, torch.Tensor] | None = None,
        *,
        tensors: Tensors | None = None,
        continuation: Continuation | None = None,
        iterations: int = 100,
        tolerance: float | None = None,
        feedback: bool = True,
        progress: bool | Callable[[int, torch.Tensor], Any] = False,
        return_on_interrupt: bool = False,
    ) -> ILQRResult:
        """Improve controls until nothing more is to be gained.

        Args:
            state: the initial state, of any batch shape.
            controls: a first guess, (steps, ..., nu).
            params: parameters to take the place of the model's, one for the batch or one per problem.
            tensors: tensors that costs and the simulator's residual take by name. A plain tensor is the same for all
                problems; `PerEnvironment` marks one per problem, (..., *shape), such as targets; the running cost
                also takes `PerStep`, (steps, ...), such as a motion to follow.
            continuation: stages of soft contact to go through first, to find contacts that are not made yet. Each
                problem goes on from the best of what the stages found and the first guess.
            iterations: at most, after these stages.
            tolerance: a problem is done when the next step is expected to lower its cost by less, relative to it or to
                1, whichever is greater; by default 1e-9, or 1e-5 in single precision.
            feedback: whether the gains are returned, which takes memory and some time.
            progress: whether to show a progress bar, or a function, called before each iteration with the number of
                those before and the costs of the problems that are worked on.
            return_on_interrupt: whether Ctrl-C ends the iterations with the trajectories so far instead of raising
                KeyboardInterrupt.
        """
        _check_options(iterations, tolerance)
        self._check_shapes(state, controls)
        batch, nu = tuple(state.batch), self.sim.model.nu
        count = math.prod(batch)
        constant, per_step = self._arguments(state, params, tensors, len(controls))
        _check_alike({"controls": controls, **{n: x.tensor for n, x in {**constant, **per_step}.items()}}, state.q)
        passes = self._passes(constant, per_step, state.q.dtype)
        carried = {"q": state.q, "v": state.v, **state.memory}
        carry = {name: carried[name] for name in self.sim.world.carry}
        start = {name: x.detach().reshape(count, *x.shape[len(batch) :]) for name, x in carry.items()}
        streams = {name: _per_step(x, batch) for name, x in per_step.items()}
        lower, upper = (controls.new_tensor(side) for side in zip(*self.bounds, strict=True))
        guess = controls.detach().clamp(lower, upper).reshape(len(controls), count, nu)
        if tolerance is None:
            tolerance = 1e-9 if controls.dtype == torch.float64 else 1e-5
        individual = {name: _flattened(name, x, batch) for name, x in constant.items() if _batch_rank(x)}
        shared = {name: x.tensor.detach() for name, x in constant.items() if not _batch_rank(x)}

        def begin(guess: torch.Tensor, gains: bool) -> Iterations:
            return Iterations(passes, start, guess, individual, shared, streams, gains)

        with torch.no_grad():
            if continuation is not None:
                found = self._through_stages(continuation, state, controls, params, tensors, tolerance)
                guesses = [guess, *[x.reshape(guess.shape) for x in found]]
                costs = torch.stack([begin(x, False).results["cost"] for x in guesses]).nan_to_num(torch.inf)
                guess = torch.stack(guesses)[costs.argmin(0), :, torch.arange(count, device=guess.device)].movedim(0, 1)
            solver = begin(guess.contiguous(), feedback)
            solver.run(iterations, tolerance, progress, return_on_interrupt)
        still = int((solver.results["reason"] == StopReason.NO_GRADIENT).sum())
        if still and self.sim.contact_names:
            warn_of_no_gradient("ILQR", still, count, "problems keep their first guess")
        return ILQRResult(**{name: _unflattened(x, name, batch) for name, x in solver.results.items()})

    @functools.cached_property
    def _softened(self) -> "ILQR":
        """The same problem with contacts that are felt from a distance."""
        other = copy.copy(self)
        other.sim, other._kernels = self.sim.with_contact(SOFT), BoundedCache(16)
        return other

    def _through_stages(
        self,
        continuation: Continuation,
        state: SimulatorState,
        controls: torch.Tensor,
        params: Mapping[str, torch.Tensor] | None,
        tensors: Tensors | None,
        tolerance: float,
    ) -> list[torch.Tensor]:
        """The controls that each stage found, (steps, ..., nu) each."""
        if not isinstance(continuation, Continuation):
            raise InputError(f"ILQR: continuation must be a Continuation(), got {continuation!r}")
        require_contact("ILQR", self.sim)
        soft, found = self._softened, [controls]
        known = {name: value for name, value in (params or {}).items() if name in soft.sim.world.parameters}
        for stage in continuation.stages(controls):
            solution = soft.solve(
                state,
                found[-1],
                {**known, **stage},
                tensors=tensors,
                iterations=continuation.iterations,
                tolerance=tolerance,
                feedback=False,
            )
            found.append(solution.controls)
        return found[1:]

    def _passes(self, constant: Mapping[str, Argument], per_step: Mapping[str, Argument], dtype: torch.dtype) -> Passes:
        shapes, step_shapes = ({name: x.shape for name, x in named.items()} for named in (constant, per_step))

        def compute() -> Passes:
            local = LocalModel(self.sim, self.cost, self.terminal, shapes, step_shapes)
            return Passes(local, self.bounds, self.second_order, dtype)

        return self._kernels.get((tuple(shapes.items()), tuple(step_shapes.items()), dtype), compute)

    def _check_shapes(self, state: SimulatorState, controls: torch.Tensor) -> None:
        """Raise if the states or the controls are not of this model."""
        if not isinstance(state, SimulatorState):
            raise InputError(f"ILQR: state must be one of Simulator.state, got a {type(state).__name__}")
        batch, nu = tuple(state.batch), self.sim.model.nu
        for name, shape in self.sim.world.carry.items():
            got = tuple({"q": state.q, "v": state.v, **state.memory}.get(name, state.q.new_empty(0)).shape)
            if got != (*batch, *shape):
                raise InputError(
                    f"ILQR: {name} of the state must have the shape {(*batch, *shape)}, got {got}; "
                    "was it made by another simulator?"
                )
        if not isinstance(controls, torch.Tensor):
            raise InputError(f"ILQR: controls must be a torch tensor, got a {type(controls).__name__}")
        if controls.dim() != 2 + len(batch) or tuple(controls.shape[1:]) != (*batch, nu) or not len(controls):
            wanted = ", ".join(["steps", *map(str, batch), str(nu)])
            raise InputError(f"ILQR: controls must have the shape ({wanted}), got {tuple(controls.shape)}")

    def _arguments(
        self, state: SimulatorState, params: Mapping[str, torch.Tensor] | None, tensors: Tensors | None, steps: int
    ) -> tuple[dict[str, Argument], dict[str, Argument]]:
        """The arguments per problem and those per step, by the names of the kernels' inputs."""
        world = self.sim.world
        named = arguments("ILQR", tensors, state.batch, steps)
        check_taken("ILQR", named, (self.cost, self.terminal, world.residual), ("q", "v", "control"))
        checked = world.check_params(params, state.q, state.batch)
        constant = {input_name("params", name): Argument(world.parameters[name], x) for name, x in checked.items()}
        constant |= {input_name("tensors", name): x for name, x in named.items() if not x.streamed}
        return constant, {input_name("tensors", name): x for name, x in named.items() if x.streamed}


def _check_options(iterations: int, tolerance: float | None) -> None:
    if not isinstance(iterations, int) or iterations < 1:
        raise InputError(f"ILQR: iterations must be a whole number of at least 1, got {iterations!r}")
    if tolerance is not None and not (isinstance(tolerance, (int, float)) and tolerance >= 0.0):
        raise InputError(f"ILQR: tolerance must be a number of at least 0, got {tolerance!r}")


def _bounds(sim: Simulator, limits: Limits) -> list[tuple[float, float]]:
    """Lower and upper limit of each control."""
    if isinstance(limits, bool):
        ranges = [actuator.control_range for actuator in sim.model.actuators]
        return [(float(low), float(high)) if limits else (-math.inf, math.inf) for low, high in ranges]
    count = sim.model.nu
    try:
        lower, upper = (np.broadcast_to(np.asarray(side, dtype=float), (count,)).tolist() for side in limits)
    except (TypeError, ValueError):
        raise InputError(
            f"ILQR: limits must be True, False, or a pair of lower and upper limits, each a number or {count} of them; "
            f"got {limits!r}"
        ) from None
    bounds = []
    for actuator, low, high in zip(sim.model.actuators, lower, upper, strict=True):
        least, greatest = actuator.control_range
        if not low <= high:
            raise InputError(f"ILQR: lower limits must not be above upper ones; {actuator.name!r} has {low} and {high}")
        if low > greatest or high < least:
            raise InputError(
                f"ILQR: the limits of {actuator.name!r}, {low} to {high}, are outside its range, {least} to {greatest}"
            )
        bounds.append((max(low, least), min(high, greatest)))
    return bounds


def _per_step(argument: Argument, batch: tuple[int, ...]) -> torch.Tensor:
    """A tensor of each step, (steps, problems, *shape)."""
    steps, tensor = len(argument.tensor), argument.tensor.detach()
    if tensor.dim() == 1 + len(argument.shape):
        tensor = tensor.reshape(steps, *[1] * len(batch), *argument.shape)
    return tensor.expand(steps, *batch, *argument.shape).reshape(steps, math.prod(batch), *argument.shape).contiguous()


def _batch_rank(argument: Argument) -> int:
    """How many dimensions a tensor has for the batch."""
    shape = argument.shape.shape if isinstance(argument.shape, Table) else argument.shape
    return argument.tensor.dim() - len(shape)


def _flattened(name: str, argument: Argument, batch: tuple[int, ...]) -> torch.Tensor:
    """A tensor of each problem, with one dimension for the batch."""
    rank, tensor = _batch_rank(argument), argument.tensor.detach()
    shape = tensor.shape[rank:]
    try:
        return tensor.expand(*batch, *shape).reshape(math.prod(batch), *shape)
    except RuntimeError:
        raise InputError(
            f"ILQR: {name} is for a batch of the shape {tuple(tensor.shape[:rank])}, the states are {batch}"
        ) from None


def _check_alike(tensors: Mapping[str, torch.Tensor], like: torch.Tensor) -> None:
    """Raise at the first tensor of another dtype or device than the states."""
    for name, tensor in tensors.items():
        if tensor.dtype != like.dtype or tensor.device != like.device:
            raise InputError(
                f"ILQR: all tensors must have one dtype and device; the state is {like.dtype} on {like.device}, "
                f"{name} {tensor.dtype} on {tensor.device}"
            )


def _unflattened(x: torch.Tensor, name: str, batch: tuple[int, ...]) -> torch.Tensor:
    """A result in the shape of the batch."""
    first = 0 if name in PER_PROBLEM else 1
    return x.reshape((*x.shape[:first], *batch, *x.shape[first + 1 :]))
