"""Trajectories by iterative LQR and differential dynamic programming, for a batch of problems at once.

Li and Todorov 2004 for iLQR; Tassa, Mansard and Todorov 2014 for limits of the controls. What is asked for is checked
and arranged here; `search` has the iterations.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from adjoin.compiler.runtime.function import Table
from adjoin.control.expansion import Expansion, accepted
from adjoin.control.search import Passes, Search
from adjoin.errors import InputError
from adjoin.simulation.given import Input, slot
from adjoin.simulation.simulator import Simulator
from adjoin.simulation.state import SimulatorState

PROBLEMS = ("cost", "converged", "iterations")
"""Results that a problem has once, not for each step."""

Limits = bool | tuple[Any, Any]


class Solution(NamedTuple):
    """What `ILQR.solve` found.

    Attributes:
        controls: (steps, ..., nu).
        q: (steps + 1, ..., nq).
        v: (steps + 1, ..., nv).
        cost: (...).
        gain: K, (steps, ..., nu, 2 nv): near this motion, control + K (dq, dv) is the best feedback; (0, ...) if it was
            not to be kept.
        converged: whether no more than the tolerance is left to gain, (...).
        iterations: how many there were, (...).
        history: the costs at first and after each iteration, (iterations + 1, ...).
    """

    controls: torch.Tensor
    q: torch.Tensor
    v: torch.Tensor
    cost: torch.Tensor
    gain: torch.Tensor
    converged: torch.Tensor
    iterations: torch.Tensor
    history: torch.Tensor


class ILQR:
    """Finds controls that take a robot along a trajectory of least cost, for a batch of problems at once.

    Args:
        sim: the simulator; contacts and stops included.
        cost: running cost, a traced function `cost(q, v, control, **named)` of the state before each step and the
            control of that step. It gives one number, whose Hessian is taken, or a row of residuals r: the cost is
            then half their squares, and its Hessian JᵀJ, which is never indefinite and often quicker.
        terminal: terminal cost, a traced function `terminal(q, v, **named)` of the last state, likewise.
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
        self._made: dict[Any, Passes] = {}

    def solve(
        self,
        state: SimulatorState,
        controls: torch.Tensor,
        params: Mapping[str, torch.Tensor] | None = None,
        *,
        constants: Mapping[str, torch.Tensor] | None = None,
        individual: Mapping[str, torch.Tensor] | None = None,
        streams: Mapping[str, torch.Tensor] | None = None,
        iterations: int = 100,
        tolerance: float | None = None,
        feedback: bool = True,
        progress: bool | Callable[[int, torch.Tensor], Any] = False,
    ) -> Solution:
        """Improve controls until nothing more is to be gained.

        Args:
            state: to begin with, any batch shape.
            controls: a first guess, (steps, ..., nu).
            params: parameters to take the place of the model's, one for the batch or one per problem.
            constants: tensors that costs and the simulator's residual take by name, the same for all problems.
            individual: tensors that they take by name, one per problem, (..., *shape): targets, for example.
            streams: tensors that the running cost takes by name, one a step, (steps, ..., *shape): a motion to follow,
                for example.
            iterations: at most.
            tolerance: a problem is done when the next step is expected to lower its cost by less, relative to it or to
                1, whichever is greater; by default 1e-9, or 1e-5 in single precision.
            feedback: whether the gains are kept, which takes memory and some time.
            progress: whether to show a progress bar; Ctrl-C then ends the search early with what is found. Or a
                function, called before each iteration with the number of those before and the costs of the problems
                that are worked on.
        """
        _check_search(iterations, tolerance)
        self._check_shapes(state, controls)
        self._check_named(constants, individual, streams)
        batch, nu = tuple(state.status.shape), self.sim.model.nu
        count = math.prod(batch)
        fixed = {**self.sim._fixed(state, params), **_named("constants", constants, ())}
        fixed |= _named("individual", individual, batch)
        timed = _named("streams", streams, (len(controls), *batch))
        _check_alike({"controls": controls, **{n: x for n, (_, x) in {**fixed, **timed}.items()}}, state.q)
        shapes, each = ({name: given.shape for name, given in some.items()} for some in (fixed, timed))
        passes = self._passes(shapes, each, state.q.dtype)
        begin = {name: x.detach().reshape(count, *x.shape[len(batch) :]) for name, x in state._asdict().items()}
        along = {name: x.detach().reshape(len(x), count, *shape).contiguous() for name, (shape, x) in timed.items()}
        lower, upper = (controls.new_tensor(side) for side in zip(*self.bounds, strict=True))
        guess = controls.detach().clamp(lower, upper).reshape(len(controls), count, nu)
        if tolerance is None:
            tolerance = 1e-9 if controls.dtype == torch.float64 else 1e-5
        own = {name: _flattened(name, given, batch) for name, given in fixed.items() if _extra(given)}
        same = {name: given.tensor.detach() for name, given in fixed.items() if not _extra(given)}
        with torch.no_grad():
            search = Search(passes, begin, guess, own, same, along, feedback)
            search.run(iterations, tolerance, progress)
        return Solution(**{name: _unflattened(x, name, batch) for name, x in search.results.items()})

    def _passes(self, shapes: Mapping[str, Any], timed: Mapping[str, Any], dtype: torch.dtype) -> Passes:
        key = (tuple(shapes.items()), tuple(timed.items()), dtype)
        if key not in self._made:
            expansion = Expansion(self.sim, self.cost, self.terminal, shapes, timed)
            self._made[key] = Passes(expansion, self.bounds, self.second_order, dtype)
        return self._made[key]

    def _check_shapes(self, state: SimulatorState, controls: torch.Tensor) -> None:
        """Raise if the states or the controls are not of this model."""
        if not isinstance(state, SimulatorState):
            raise InputError(f"ILQR: state must be one of Simulator.state, got a {type(state).__name__}")
        batch, nu = tuple(state.status.shape), self.sim.model.nu
        for name, shape in self.sim._carried().items():
            own = tuple(getattr(state, name).shape)
            if own != (*batch, *shape):
                raise InputError(
                    f"ILQR: {name} of the state must have the shape {(*batch, *shape)}, got {own}; "
                    "was it made by another simulator?"
                )
        if not isinstance(controls, torch.Tensor):
            raise InputError(f"ILQR: controls must be a torch tensor, got a {type(controls).__name__}")
        if controls.dim() != 2 + len(batch) or tuple(controls.shape[1:]) != (*batch, nu) or not len(controls):
            wanted = ", ".join(["steps", *map(str, batch), str(nu)])
            raise InputError(f"ILQR: controls must have the shape ({wanted}), got {tuple(controls.shape)}")

    def _check_named(self, *given: Mapping[str, torch.Tensor] | None) -> None:
        """Raise at what is given by name that no function takes, and at what one needs that is not given."""
        constants, individual, streams = (dict(each or {}) for each in given)
        functions = {
            "the running cost": (self.cost, ("q", "v", "control"), {**constants, **individual, **streams}),
            "the terminal cost": (self.terminal, ("q", "v"), {**constants, **individual}),
            "the simulator's residual": (self.sim.residual, ("q", "v", "control"), {**constants, **individual}),
        }
        taken: set[str] = set()
        for label, (function, first, named) in functions.items():
            if function is None:
                continue
            own = [name for name in named if accepted(function, len(first))(name)]
            taken.update(own)
            try:
                inspect.signature(function).bind(*first, **dict.fromkeys(own))
            except TypeError as error:
                raise InputError(f"ILQR: {label} cannot be called with {', '.join([*first, *own])}: {error}") from None
        for kind, named in (("constants", constants), ("individual", individual), ("streams", streams)):
            for name in named:
                if name not in taken:
                    raise InputError(f"ILQR: no function here takes {kind}[{name!r}]")
                if sum(name in each for each in (constants, individual, streams)) > 1:
                    raise InputError(f"ILQR: {name!r} is given twice")


def _check_search(iterations: int, tolerance: float | None) -> None:
    if not isinstance(iterations, int) or iterations < 1:
        raise InputError(f"ILQR: iterations must be a whole number of at least 1, got {iterations!r}")
    if tolerance is not None and not (isinstance(tolerance, (int, float)) and tolerance >= 0.0):
        raise InputError(f"ILQR: tolerance must be a number of at least 0, got {tolerance!r}")


def _named(kind: str, given: Mapping[str, torch.Tensor] | None, leading: tuple[int, ...]) -> dict[str, Input]:
    """Named tensors by slot; their shapes begin with steps and batch."""
    found = {}
    for name, tensor in (given or {}).items():
        if not isinstance(tensor, torch.Tensor):
            raise InputError(f"ILQR: {kind}[{name!r}] must be a torch tensor, got a {type(tensor).__name__}")
        if tuple(tensor.shape[: len(leading)]) != leading:
            wanted = ", ".join([*map(str, leading), "..."])
            raise InputError(f"ILQR: {kind}[{name!r}] must have the shape ({wanted}), got {tuple(tensor.shape)}")
        found[slot(kind, name)] = Input(tuple(tensor.shape[len(leading) :]), tensor)
    return found


def _bounds(sim: Simulator, limits: Limits) -> list[tuple[float, float]]:
    """Lower and upper limit of each control."""
    if isinstance(limits, bool):
        own = [each.control_range for each in sim.model.actuators]
        return [(float(low), float(high)) if limits else (-math.inf, math.inf) for low, high in own]
    count = sim.model.nu
    try:
        lower, upper = (np.broadcast_to(np.asarray(side, dtype=float), (count,)).tolist() for side in limits)
    except (TypeError, ValueError):
        raise InputError(
            f"ILQR: limits must be True, False, or a pair of lower and upper limits, each a number or {count} of them; "
            f"got {limits!r}"
        ) from None
    found = []
    for actuator, low, high in zip(sim.model.actuators, lower, upper, strict=True):
        least, greatest = actuator.control_range
        if not low <= high:
            raise InputError(f"ILQR: lower limits must not be above upper ones; {actuator.name!r} has {low} and {high}")
        if low > greatest or high < least:
            raise InputError(
                f"ILQR: the limits of {actuator.name!r}, {low} to {high}, are outside its own, {least} to {greatest}"
            )
        found.append((max(low, least), min(high, greatest)))
    return found


def _extra(given: Input) -> int:
    """How many dimensions a tensor has for the batch."""
    shape = given.shape.shape if isinstance(given.shape, Table) else given.shape
    return given.tensor.dim() - len(shape)


def _flattened(name: str, given: Input, batch: tuple[int, ...]) -> torch.Tensor:
    """A tensor of each problem, with one dimension for the batch."""
    first = _extra(given)
    own, whole = given.tensor.shape[first:], given.tensor.detach()
    try:
        return whole.expand(*batch, *own).reshape(math.prod(batch), *own)
    except RuntimeError:
        raise InputError(
            f"ILQR: {name} is for a batch of the shape {tuple(whole.shape[:first])}, the states are {batch}"
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
    first = 0 if name in PROBLEMS else 1
    return x.reshape((*x.shape[:first], *batch, *x.shape[first + 1 :]))
