"""Trajectories by iterative LQR and differential dynamic programming, for a batch of problems at once.

Li and Todorov 2004 for iLQR; Tassa, Mansard and Todorov 2014 for limits of the controls. Each iteration is a backward
pass (see `riccati`) and a forward pass, a rollout with the gains as feedback. The problems whose whole step does not
lower their cost try shorter ones together; where none does, regularisation rises. Problems that are done leave the
batch.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from adjoin.control.expansion import Expansion, accepted
from adjoin.control.search import Passes, Search
from adjoin.errors import InputError
from adjoin.simulation.given import Input, slot
from adjoin.simulation.simulator import Simulator
from adjoin.simulation.state import SimulatorState
from adjoin.trace.function import Table

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
            (iLQR) iterations are cheaper, and take smaller regularisation.

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
        progress: Callable[[int, torch.Tensor], Any] | None = None,
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
            progress: called before each iteration with its number and the costs of the problems that go on.
        """
        batch = tuple(state.status.shape)
        nu = self.sim.model.nu
        if controls.dim() != 2 + len(batch) or tuple(controls.shape[1:]) != (*batch, nu) or not len(controls):
            wanted = ", ".join(["steps", *map(str, batch), str(nu)])
            raise InputError(f"ILQR: controls must have the shape ({wanted}), got {tuple(controls.shape)}")
        fixed = self._fixed(state, params, constants, individual)
        count = math.prod(batch)
        begin = {name: x.detach().reshape(count, *x.shape[len(batch) :]) for name, x in state._asdict().items()}
        timed = self._timed(controls, batch, streams)
        _check_alike({"controls": controls, **{n: x for n, (_, x) in {**fixed, **timed}.items()}}, state.q)
        shapes = [{name: given.shape for name, given in each.items()} for each in (fixed, timed)]
        passes = self._passes(*shapes)
        along = {name: x.detach().reshape(len(x), count, *shape).contiguous() for name, (shape, x) in timed.items()}
        lower, upper = (controls.new_tensor(side) for side in zip(*self.bounds, strict=True))
        guess = controls.detach().clamp(lower, upper).reshape(len(controls), count, nu)
        if tolerance is None:
            tolerance = 1e-9 if controls.dtype == torch.float64 else 1e-5
        own = {name: _flattened(given, batch) for name, given in fixed.items() if _extra(given)}
        same = {name: given.tensor.detach() for name, given in fixed.items() if not _extra(given)}
        with torch.no_grad():
            search = Search(passes, begin, guess, own, same, along, feedback)
            search.run(iterations, tolerance, progress)
        return Solution(**{name: _unflattened(x, name, batch) for name, x in search.results.items()})

    def _timed(
        self, controls: torch.Tensor, batch: tuple[int, ...], streams: Mapping[str, torch.Tensor] | None
    ) -> dict[str, Input]:
        """Tensors of each step, by slot."""
        found = {}
        for name, tensor in (streams or {}).items():
            if self.cost is None or not accepted(self.cost, 3)(name):
                raise InputError(f"ILQR: the running cost does not take streams[{name!r}]")
            if tuple(tensor.shape[: 1 + len(batch)]) != (len(controls), *batch):
                wanted = ", ".join(map(str, (len(controls), *batch)))
                raise InputError(f"ILQR: streams[{name!r}] must be ({wanted}, ...), got {tuple(tensor.shape)}")
            found[slot("streams", name)] = Input(tuple(tensor.shape[1 + len(batch) :]), tensor)
        return found

    def _passes(self, shapes: Mapping[str, Any], timed: Mapping[str, Any]) -> Passes:
        key = (tuple(shapes.items()), tuple(timed.items()))
        if key not in self._made:
            expansion = Expansion(self.sim, self.cost, self.terminal, shapes, timed)
            self._made[key] = Passes(expansion, self.bounds, self.second_order)
        return self._made[key]

    def _fixed(
        self,
        state: SimulatorState,
        params: Mapping[str, torch.Tensor] | None,
        constants: Mapping[str, torch.Tensor] | None,
        individual: Mapping[str, torch.Tensor] | None,
    ) -> dict[str, Input]:
        """Parameters and named tensors, by slot."""
        functions = ((self.cost, 3), (self.terminal, 2), (self.sim.residual, 3))
        takes = [accepted(function, first) for function, first in functions if function is not None]
        found = dict(self.sim._fixed(state, params))
        for kind, given, first in (("constants", constants, 0), ("individual", individual, state.status.dim())):
            for name, tensor in (given or {}).items():
                if not isinstance(tensor, torch.Tensor):
                    raise InputError(f"ILQR: {kind}[{name!r}] must be a torch tensor, got {type(tensor).__name__}")
                if not any(each(name) for each in takes):
                    raise InputError(f"ILQR: no function here takes {kind}[{name!r}]")
                found[slot(kind, name)] = Input(tuple(tensor.shape[first:]), tensor)
        return found


def _bounds(sim: Simulator, limits: Limits) -> list[tuple[float, float]]:
    """Lower and upper limit of each control."""
    count, own = sim.model.nu, [each.control_range for each in sim.model.actuators]
    if isinstance(limits, bool):
        return [(float(low), float(high)) if limits else (-math.inf, math.inf) for low, high in own]
    lower, upper = (np.broadcast_to(np.asarray(side, dtype=float), (count,)).tolist() for side in limits)
    if not all(low <= high for low, high in zip(lower, upper, strict=True)):
        raise InputError(f"ILQR: lower limits must not be above upper ones, got {lower} and {upper}")
    pairs = zip(lower, upper, own, strict=True)
    return [(max(low, least), min(high, greatest)) for low, high, (least, greatest) in pairs]


def _extra(given: Input) -> int:
    """How many dimensions a tensor has for the batch."""
    shape = given.shape.shape if isinstance(given.shape, Table) else given.shape
    return given.tensor.dim() - len(shape)


def _flattened(given: Input, batch: Sequence[int]) -> torch.Tensor:
    """A tensor of each problem, with one dimension for the batch."""
    own = given.tensor.shape[_extra(given) :]
    return given.tensor.detach().expand(*batch, *own).reshape(math.prod(batch), *own)


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
