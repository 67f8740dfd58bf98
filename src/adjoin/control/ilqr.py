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
from adjoin.control.riccati import SMALL, Fused, Gains, Wide, clamped
from adjoin.errors import InputError
from adjoin.model import manifold
from adjoin.simulation.given import Input, slot
from adjoin.simulation.rollout import Values
from adjoin.simulation.simulator import Simulator
from adjoin.simulation.state import FINE, SimulatorState
from adjoin.trace import scan, select
from adjoin.trace.function import Function, PerStep

SHORTER = tuple(0.5**n for n in range(1, 9))
"""Parts of a step that are tried where the whole one is no good."""

SHORT = 0.1
"""The part of a step below which regularisation rises; it falls after whole steps."""

ENOUGH = 0.1
"""The part of the expected fall of the cost that must come true."""

LEAST, MOST, FASTER = 1e-6, 1e8, 10.0
"""Regularisation: from where it rises, where a problem is given up, and how it rises and falls."""

SMALLEST = 1e-4
"""Regularisation up to which a problem can be done."""

LEAVING = 0.25
"""The part of the batch that must be done before it leaves."""

AT_ONCE = 64
"""Problems that a thread of a CPU works on together."""

PROBLEMS = ("cost", "converged", "iterations")
"""Results that a problem has once, not for each step."""

ENDS = ("last_q", "last_v", "cost")
"""What a path has once, not for each step."""

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
        self._made: dict[Any, _Passes] = {}

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
        flat = {name: _flattened(given, batch) for name, given in fixed.items()}
        timed = self._timed(controls, batch, streams)
        _check_alike({"controls": controls, **{n: x for n, (_, x) in {**fixed, **timed}.items()}}, state.q)
        shapes = [{name: given.shape for name, given in each.items()} for each in (fixed, timed)]
        passes = self._passes(*shapes)
        along = {name: x.detach().reshape(len(x), count, *shape).contiguous() for name, (shape, x) in timed.items()}
        lower, upper = (controls.new_tensor(side) for side in zip(*self.bounds, strict=True))
        guess = controls.detach().clamp(lower, upper).reshape(len(controls), count, nu)
        if tolerance is None:
            tolerance = 1e-9 if controls.dtype == torch.float64 else 1e-5
        with torch.no_grad():
            results = passes.room(begin, guess, feedback)
            histories = []
            for rows in _pieces(count, guess):
                own = {name: x[rows] if name in passes.individual(flat) else x for name, x in flat.items()}
                first = {name: x[rows] for name, x in begin.items()}
                search = _Search(passes, first, guess[:, rows], own, {name: x[:, rows] for name, x in along.items()})
                search.results = {name: x[rows] if name in PROBLEMS else x[:, rows] for name, x in results.items()}
                histories.append(search.run(iterations, tolerance, progress))
        longest = max(map(len, histories))
        padded = [torch.cat([x, x[-1:].expand(longest - len(x), -1)]) for x in histories]
        results["history"] = torch.cat(padded, 1)
        return Solution(**{name: _unflattened(x, name, batch) for name, x in results.items()})

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

    def _passes(self, shapes: Mapping[str, Any], timed: Mapping[str, Any]) -> "_Passes":
        key = (tuple(shapes.items()), tuple(timed.items()))
        if key not in self._made:
            expansion = Expansion(self.sim, self.cost, self.terminal, shapes, timed)
            self._made[key] = _Passes(expansion, self.bounds, self.second_order)
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


class _Passes:
    """The kernels of both passes."""

    def __init__(self, expansion: Expansion, bounds: list[tuple[float, float]], second_order: bool):
        self.expansion, self.bounds = expansion, bounds
        fused = expansion.width <= SMALL and not expansion.loops
        self.backward = (Fused if fused else Wide)(expansion, bounds, second_order)
        nu, size = expansion.model.nu, expansion.size
        states = expansion.sim._carried()
        self.streams = {**{f"near_{name}": states[name] for name in ("q", "v")}, "control": (nu,), "feed": (nu,)}
        self.streams |= {"gain": (nu, size), **expansion.timed}
        self.start, self.named = tuple(states), tuple(expansion.fixed)

        def forward(**values: Any) -> Any:
            return self._forward(values)

        forward.__name__ = f"forward({expansion.model.name})"
        streams = {name: PerStep(shape) for name, shape in self.streams.items()}
        self._function = Function(forward, {**states, **streams, "part": (), **expansion.fixed})
        self._outputs = [slot.name for slot in self._function.kernel.program.outputs]

    def room(self, begin: Values, guess: torch.Tensor, feedback: bool) -> dict[str, torch.Tensor]:
        """For the results of a search: all that `Solution` has but the history."""
        steps, count, nu = guess.shape
        q, v, cost = begin["q"], begin["v"], begin["status"]
        return {
            "controls": torch.empty_like(guess),
            "q": q.new_empty(steps + 1, *q.shape),
            "v": v.new_empty(steps + 1, *v.shape),
            "cost": torch.empty_like(cost),
            "gain": guess.new_empty(steps if feedback else 0, count, nu, self.expansion.size),
            "converged": torch.zeros_like(cost, dtype=torch.bool),
            "iterations": torch.zeros_like(cost, dtype=torch.int64),
        }

    def individual(self, fixed: Mapping[str, torch.Tensor]) -> list[str]:
        """Which of these tensors are one per problem."""
        ranks = {name: len(shape) for name, shape in self.expansion.fixed.items() if isinstance(shape, tuple)}
        return [name for name, x in fixed.items() if name in ranks and x.dim() > ranks[name]]

    def _forward(self, values: Values) -> dict[str, Any]:
        expansion = self.expansion
        model, fixed = expansion.model, {name: values[name] for name in self.named}

        def body(_: Any, carry: Any, elements: list[Any]) -> tuple[Any, Any]:
            state, total = carry
            near = dict(zip(self.streams, elements, strict=True))
            turned = manifold.difference(model, list(near["near_q"]), list(state["q"]))
            away = np.array([*turned, *(state["v"] - near["near_v"])], dtype=object)
            control = near["control"] + values["part"] * near["feed"] + near["gain"] @ away
            control = np.array(clamped(list(control), self.bounds), dtype=object)
            here = {**state, **fixed, "control": control, **{name: near[name] for name in expansion.timed}}
            after, _ = expansion.unlimited._next(here)
            after = {name: np.array(x, dtype=object) if name != "status" else x for name, x in after.items()}
            kept = {name: x for name, x in state.items() if name != "status"}
            return (after, total + expansion.value(here)), {**kept, "control": control}

        start = {name: values[name] for name in self.start}
        (last, total), path = scan(body, (start, 0.0), [values[name] for name in self.streams])
        total = total + expansion.value({**last, **fixed}, controlled=False)
        ends = {"last_q": last["q"], "last_v": last["v"]}
        return {**path, **ends, "cost": select(last["status"] == FINE, total, math.inf)}

    def forward(
        self, begin: Values, path: Values, gains: Gains, part: torch.Tensor, fixed: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """The path and its cost, with a part of the steps that the gains ask for, (batch,)."""
        near = {"near_q": path["q"], "near_v": path["v"], "control": path["control"]}
        along = {name: path[name] for name in self.expansion.timed}
        near |= {"feed": gains.feed, "gain": gains.gain, **along}
        streams = [near[name] for name in self.streams]
        tensors = [*[begin[name] for name in self.start], *streams, part, *[fixed[name] for name in self.named]]
        results = self._function.kernel(tensors, (len(gains.feed),))
        return {**dict(zip(self._outputs, results, strict=True)), **along}


class _Search:
    """The iterations: the problems that go on, and the results of all."""

    def __init__(
        self,
        passes: _Passes,
        begin: dict[str, torch.Tensor],
        guess: torch.Tensor,
        fixed: dict[str, torch.Tensor],
        along: dict[str, torch.Tensor] | None = None,
    ):
        self.passes, self.begin, self.fixed = passes, begin, fixed
        self.individual = passes.individual(fixed)
        steps, count, nu = guess.shape
        still = {"q": begin["q"].expand(steps, -1, -1), "v": begin["v"].expand(steps, -1, -1), "control": guess}
        still |= along or {}
        gain, ones = guess.new_zeros(steps, count, nu, passes.expansion.size), guess.new_ones(count)
        self.path = passes.forward(begin, still, Gains(torch.zeros_like(guess), gain, ones, ones, ones), ones, fixed)
        self.mu, self.gain = torch.zeros_like(ones), gain
        self.index = torch.arange(count, device=guess.device)
        self.done = torch.zeros(count, dtype=torch.bool, device=guess.device)
        self.results: dict[str, torch.Tensor] = {}

    def run(
        self, iterations: int, tolerance: float, progress: Callable[[int, torch.Tensor], Any] | None
    ) -> torch.Tensor:
        """See `ILQR.solve`; writes into `results` and gives the history of the costs."""
        results, history = self.results, [self.path["cost"]]
        results["cost"].copy_(self.path["cost"])
        for iteration in range(iterations):
            if int(self.done.sum()) >= LEAVING * len(self.done):
                self._go_on((~self.done).nonzero().squeeze(-1))
            if progress is not None:
                progress(iteration, self.path["cost"])
            gains = self.passes.backward(self.path, self.mu, self.fixed)
            self.gain = gains.gain
            left = -(gains.first + gains.second)
            ready = (gains.fine > 0.0) & (left <= tolerance * self.path["cost"].abs().clamp(min=1.0))
            ready &= self.mu <= SMALLEST
            ends = (ready | (self.mu > MOST)) & ~self.done
            results["converged"][self.index] |= ready
            self._keep(ends.nonzero().squeeze(-1))
            self.done |= ends
            if bool(self.done.all()):
                break
            results["iterations"][self.index] += ~self.done
            self._step(gains)
            going = (~self.done).nonzero().squeeze(-1)
            results["cost"][self.index[going]] = self.path["cost"][going]
            history.append(results["cost"].clone())
        self._keep((~self.done).nonzero().squeeze(-1))
        return torch.stack(history)

    def _keep(self, rows: torch.Tensor) -> None:
        """Write down where some problems have got to."""
        path, places = self.path, self.index[rows]
        for name in ("q", "v"):
            self.results[name][:-1, places] = path[name][:, rows]
            self.results[name][-1, places] = path[f"last_{name}"][rows]
        self.results["controls"][:, places] = path["control"][:, rows]
        if len(self.results["gain"]):
            self.results["gain"][:, places] = self.gain[:, rows]
        self.results["cost"][places] = path["cost"][rows]

    def _go_on(self, rows: torch.Tensor) -> None:
        """Leave all problems but some."""
        self.begin, self.path, self.fixed = self._some(rows)
        self.mu, self.index, self.done = self.mu[rows], self.index[rows], self.done[rows]

    def _some(self, rows: torch.Tensor) -> tuple[dict[str, torch.Tensor], ...]:
        """The states, the path and the tensors of some problems."""
        begin = {name: x[rows] for name, x in self.begin.items()}
        path = {name: x[rows] if name in ENDS else x[:, rows] for name, x in self.path.items()}
        return begin, path, {name: x[rows] if name in self.individual else x for name, x in self.fixed.items()}

    def _step(self, gains: Gains) -> None:
        """Take the whole step where it is good, and shorter and shorter ones elsewhere."""
        whole = self.passes.forward(self.begin, self.path, gains, torch.ones_like(self.mu), self.fixed)
        length = torch.ones_like(self.mu)
        bad = _bad(self.path["cost"], whole["cost"], gains, length)
        length[bad] = 0.0
        rows = (bad & (gains.fine > 0.0) & ~self.done).nonzero().squeeze(-1)
        for part in SHORTER:
            if not len(rows):
                break
            begin, path, fixed = self._some(rows)
            own, parts = _of(gains, rows), torch.full_like(length[rows], part)
            tried = self.passes.forward(begin, path, own, parts, fixed)
            bad = _bad(path["cost"], tried["cost"], own, parts)
            length[rows] = torch.where(bad, 0.0, parts)
            _write(whole, tried, rows)
            rows = rows[bad]
        still = (length == 0.0).nonzero().squeeze(-1)
        if len(still):
            _write(whole, self._some(still)[1], still)
        self.path = whole
        fallen = torch.where(self.mu <= LEAST, 0.0, self.mu / FASTER)
        risen = torch.where(length < SHORT, (self.mu * FASTER).clamp(min=LEAST), self.mu)
        self.mu = torch.where(length == 1.0, fallen, risen)


def _bad(before: torch.Tensor, after: torch.Tensor, gains: Gains, part: torch.Tensor) -> torch.Tensor:
    """Whether too little of the expected fall of the cost came true, as far as numbers can tell."""
    expected = -(part * gains.first + part * part * gains.second)
    noise = 4.0 * torch.finfo(before.dtype).eps * after.abs()
    return ~((gains.fine > 0.0) & after.isfinite() & (before - after >= ENOUGH * expected - noise))


def _write(into: dict[str, torch.Tensor], path: dict[str, torch.Tensor], rows: torch.Tensor) -> None:
    """Put the paths of some problems in their places."""
    for name, x in path.items():
        if name in ENDS:
            into[name][rows] = x
        else:
            into[name][:, rows] = x


def _of(gains: Gains, rows: torch.Tensor) -> Gains:
    return Gains(gains.feed[:, rows], gains.gain[:, rows], *[x[rows] for x in gains[2:]])


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


def _flattened(given: Input, batch: Sequence[int]) -> torch.Tensor:
    """A tensor with one batch dimension, or none if it is the same for all problems."""
    rank = len(given.shape) if isinstance(given.shape, tuple) else given.tensor.dim()
    tensor = given.tensor.detach()
    if tensor.dim() == rank:
        return tensor
    own = tensor.shape[tensor.dim() - rank :]
    return tensor.expand(*batch, *own).reshape(math.prod(batch), *own)


def _check_alike(tensors: Mapping[str, torch.Tensor], like: torch.Tensor) -> None:
    """Raise at the first tensor of another dtype or device than the states."""
    for name, tensor in tensors.items():
        if tensor.dtype != like.dtype or tensor.device != like.device:
            raise InputError(
                f"ILQR: all tensors must have one dtype and device; the state is {like.dtype} on {like.device}, "
                f"{name} {tensor.dtype} on {tensor.device}"
            )


def _pieces(count: int, guess: torch.Tensor) -> list[slice]:
    """Problems that are solved together: on a CPU so many that their gains stay in its caches."""
    size = AT_ONCE * torch.get_num_threads() if guess.device.type == "cpu" else max(1, count)
    return [slice(start, start + size) for start in range(0, count, size)]


def _unflattened(x: torch.Tensor, name: str, batch: tuple[int, ...]) -> torch.Tensor:
    """A result in the shape of the batch."""
    first = 0 if name in PROBLEMS else 1
    return x.reshape((*x.shape[:first], *batch, *x.shape[first + 1 :]))
