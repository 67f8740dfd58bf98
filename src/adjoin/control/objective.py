"""An objective over a rollout: what is decided, what it costs, and the derivative, for a batch of decisions at once."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad

from adjoin.compiler.runtime.function import Function
from adjoin.control.decision import Box, Controls, Decision, Spline
from adjoin.errors import InputError
from adjoin.simulation.simulator import Simulator
from adjoin.simulation.state import FINE, SimulatorState, Trajectory

PARTS = ("state", "controls", "params", "individual")
"""What a decision may give to a rollout."""

MOST = 8192
"""Environments that a launch for a Jacobian has at most."""


class Inputs(NamedTuple):
    """What a rollout gets for a batch of decisions; one after the other, each with all its scenarios.

    Attributes:
        state: to begin with.
        controls: (steps, batch, width).
        params: parameters, (batch, ...) each.
        individual: what controller and costs take by name, (batch, ...) each.
    """

    state: SimulatorState
    controls: torch.Tensor
    params: dict[str, torch.Tensor]
    individual: dict[str, torch.Tensor]


class Objective:
    """What a motion costs, as a function of what is decided.

    The loss is the sum of the parts that are given: the running cost over all steps, the terminal cost, `loss`, and the
    sum of squares of `residuals`. It is infinite where the simulation fails.

    A motion that has to be good in several scenarios, from several starts or with several sets of parameters, is
    simulated in each of them, in the same launch, and costs the mean of what it costs there.

    Args:
        sim: the simulator.
        start: state to begin with, of one environment, or of (scenarios,).
        steps: how many.
        cost: running cost, a traced function `cost(q, v, control, **named)` of the state after each step.
        terminal: terminal cost, a traced function `terminal(q, v, **named)` of the last state.
        loss: a function `loss(path, inputs)` from a `Trajectory` and the `Inputs` that led to it to (batch,) by torch
            operations: anything that the other two cannot say.
        residuals: a function `residuals(path, inputs)` to (batch, m) by torch operations; see `GaussNewton`.
        decision: what is decided: `Controls()`, `Spline(knots)`, `Learned(module)`, `Numbers(...)`, or several of them
            together.
        controls: where no decision gives them, (steps, width); by default 0.
        params: parameters that are not decided.
        scenarios: parameters that are not decided, and differ from scenario to scenario, (scenarios, ...) each.
        constants: tensors that controller, costs and the simulator's residual take by name.
        controller: see `Simulator.rollout`.
        external: external forces, frame name -> (steps, 6); see `Simulator.rollout`.
        contacts: whether `path.outputs` has distances and forces of contact.
        every: which states are kept, see `Simulator.rollout`; `path` then has these only.

    Attributes:
        box: lower limits, start, upper limits and spread of the numbers, (size,) each.
        size: how many numbers are decided.
        scenario_count: how many scenarios there are.
    """

    def __init__(
        self,
        sim: Simulator,
        start: SimulatorState,
        steps: int,
        *,
        cost: Callable[..., Any] | None = None,
        terminal: Callable[..., Any] | None = None,
        loss: Callable[[Trajectory, Inputs], torch.Tensor] | None = None,
        residuals: Callable[[Trajectory, Inputs], torch.Tensor] | None = None,
        decision: Decision | Sequence[Decision] | None = None,
        controls: torch.Tensor | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
        scenarios: Mapping[str, torch.Tensor] | None = None,
        constants: Mapping[str, torch.Tensor] | None = None,
        controller: Callable[..., Any] | None = None,
        external: Mapping[str, torch.Tensor] | None = None,
        contacts: bool = False,
        every: int = 1,
    ):
        if not isinstance(steps, int) or steps < 1:
            raise InputError(f"Objective: steps must be a whole number of at least 1, got {steps!r}")
        if not isinstance(sim, Simulator):
            raise InputError(f"Objective: sim must be a Simulator, got a {type(sim).__name__}")
        if not isinstance(start, SimulatorState) or start.q.ndim not in (1, 2) or start.q.shape[-1] != sim.model.nq:
            got = tuple(start.q.shape) if isinstance(start, SimulatorState) else type(start).__name__
            nq = sim.model.nq
            raise InputError(
                f"Objective: start must be sim.state(q, v) with q of ({nq},), or of (scenarios, {nq}); got {got}"
            )
        if cost is None and terminal is None and loss is None and residuals is None:
            raise InputError("Objective: give at least one of cost, terminal, loss and residuals")
        functions = {"cost": cost, "terminal": terminal, "loss": loss, "residuals": residuals, "controller": controller}
        for name, function in functions.items():
            if function is not None and not callable(function):
                raise InputError(f"Objective: {name} must be a function, got {function!r}")
        for name, value in (constants or {}).items():
            if not isinstance(value, torch.Tensor):
                raise InputError(f"Objective: constants[{name!r}] must be a tensor, got {value!r}")
        self.sim, self.start, self.steps = sim, start, steps
        self.scenarios = dict(scenarios or {})
        self.scenario_count = _scenarios(start, self.scenarios)
        self.cost, self.terminal, self.loss, self.residual = cost, terminal, loss, residuals
        decision = Controls() if decision is None else decision
        decisions: list[Any] = list(decision) if isinstance(decision, list | tuple) else [decision]
        if not decisions or any(isinstance(each, type) or not hasattr(each, "box") for each in decisions):
            raise InputError(f"Objective: decision must be one such as Controls() or Spline(10), got {decision!r}")
        if controller is not None:
            # What a controller gets is no control, so the actuators' limits are not its own.
            of_controls = (isinstance(each, Controls | Spline) and each.width is None for each in decisions)
            pairs = zip(decisions, of_controls, strict=True)
            decisions = [replace(each, width=sim.model.nu) if own else each for each, own in pairs]
        self.decisions = decisions
        self.controls = start.q.new_zeros(steps, sim.model.nu) if controls is None else controls
        if not isinstance(self.controls, torch.Tensor) or self.controls.ndim < 2 or len(self.controls) != steps:
            got = tuple(controls.shape) if isinstance(controls, torch.Tensor) else type(controls).__name__
            raise InputError(f"Objective: controls must be a tensor ({steps}, width), got {got}")
        self.params, self.constants, self.external = dict(params or {}), dict(constants or {}), dict(external or {})
        self.controller, self.contacts, self.every = controller, contacts, every
        for name in self.constants:
            if not _taken(name, (controller, cost, sim.residual)) and not _taken(name, (terminal,), 2):
                raise InputError(f"Objective: no function here takes constants[{name!r}]")
        boxes = [each.box(sim, steps, start.q) for each in self.decisions]
        self.box = Box(*[torch.cat(parts) for parts in zip(*boxes, strict=True)])
        self._sizes = [len(box.start) for box in boxes]
        self.size = sum(self._sizes)
        self._terminals: dict[Any, Function] = {}
        self._count: int | None = None
        self._named = False

    # What is decided

    def split(self, numbers: torch.Tensor) -> list[torch.Tensor]:
        """The numbers of each decision, (..., n) each."""
        if numbers.shape[-1] != self.size:
            raise InputError(f"Objective: there are {self.size} numbers to split, got {tuple(numbers.shape)}")
        return list(numbers.split(self._sizes, -1))

    def inputs(self, numbers: torch.Tensor) -> Inputs:
        """What a rollout gets for numbers (batch, size)."""
        times, numbers = len(numbers), numbers.repeat_interleave(self.scenario_count, 0)
        state = self.start
        if state.q.ndim == 1:
            state = SimulatorState(*[part.expand(self.scenario_count, *part.shape) for part in state])
        state = SimulatorState(*[_repeated(part, times) for part in state])
        varied = {name: _repeated(value, times) for name, value in self.scenarios.items()}
        found: dict[str, Any] = {"state": state, "params": varied, "individual": {}}
        for decision, own in zip(self.decisions, self.split(numbers), strict=True):
            given, label = decision.inputs(own, self.sim, self.steps), type(decision).__name__
            if not isinstance(given, Mapping):
                raise InputError(f"Objective: {label} must give a dictionary, got a {type(given).__name__}")
            for name, value in given.items():
                self._check_input(label, name, value, len(numbers))
                found[name] = {**found[name], **value} if name in ("params", "individual") else value
        if "controls" not in found:
            found["controls"] = self.controls[:, None].expand(-1, len(numbers), *self.controls.shape[1:])
        return Inputs(**found)

    def _check_input(self, decision: str, name: str, value: Any, rows: int) -> None:
        if name not in PARTS:
            raise InputError(f"Objective: {decision} gave {name!r}; a rollout gets: {', '.join(PARTS)}")
        kinds = {"state": SimulatorState, "controls": torch.Tensor}
        if not isinstance(value, kinds.get(name, Mapping)):
            expected = {"state": "sim.state(q, v)", "controls": "a tensor"}.get(name, "a dictionary of tensors")
            raise InputError(f"Objective: {decision} must give {expected} as {name!r}, got a {type(value).__name__}")
        if name == "controls" and value.shape[:2] != (self.steps, rows):
            wanted = f"({self.steps}, {rows}, ...)"
            raise InputError(f"Objective: {decision} must give controls {wanted}, got {tuple(value.shape)}")
        if name == "state" and self.start.q.ndim == 2:
            raise InputError(f"Objective: {decision} decides the start, so start must be of one environment")
        if name == "params" and (both := self.scenarios.keys() & value.keys()):
            raise InputError(f"Objective: {decision} decides what scenarios give: {', '.join(both)}")

    def rollout(self, numbers: torch.Tensor) -> Trajectory:
        """The motion for numbers (batch, size), or (size,) for one without batch dimension; one launch.

        Where there are several scenarios, the dimension that follows is theirs.
        """
        one = isinstance(numbers, torch.Tensor) and numbers.ndim == 1
        path = self._roll(self.inputs(self._checked(numbers[None] if one else numbers)))

        def shaped(value: torch.Tensor) -> torch.Tensor:
            value = value.unflatten(1, (-1, self.scenario_count)) if self.scenario_count > 1 else value
            return value[:, 0] if one else value

        return Trajectory(*map(shaped, path[:4]), outputs={name: shaped(x) for name, x in path.outputs.items()})

    def random(self, count: int, seed: int = 0) -> torch.Tensor:
        """Starts (count, size): uniform, up to the spread away from the decision's start, within the limits."""
        if not isinstance(count, int) or count < 1:
            raise InputError(f"Objective: random starts must be at least 1, got {count!r}")
        generator = torch.Generator().manual_seed(seed)
        away = 2.0 * torch.rand(count, self.size, generator=generator, dtype=torch.float64, device="cpu") - 1.0
        found = self.box.start + away.to(self.box.start) * self.box.spread
        return found.clamp(self.box.lower, self.box.upper)

    # What it costs

    def __call__(self, numbers: torch.Tensor) -> torch.Tensor:
        """Losses (batch,) of numbers (batch, size); differentiable, one launch."""
        inputs = self.inputs(self._checked(numbers))
        path = self._roll(inputs)
        total = numbers.new_zeros(len(path.status[-1]))
        if self.cost is not None:
            total = total + self._batched("cost", path.outputs["cost"].sum(0), (len(total),))
        if self.terminal is not None:
            total = total + self._batched("terminal", self._terminal(path.last, inputs), (len(total),))
        if self.loss is not None:
            total = total + self._batched("loss", self.loss(path, inputs), (len(total),))
        total = total.unflatten(0, (-1, self.scenario_count)).mean(1)
        if self.residual is not None:
            total = total + self._residuals(path, inputs).square().sum(-1)
        return torch.where(self._fine(path) & total.isfinite(), total, torch.inf)

    def losses(self, numbers: torch.Tensor) -> torch.Tensor:
        """Losses (batch,) of numbers (batch, size); infinite where the simulation fails."""
        with torch.no_grad():
            return self(numbers)

    def gradients(self, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Losses (batch,) and their gradients (batch, size); one launch forward and one back."""
        with torch.enable_grad():
            point = numbers.detach().requires_grad_()
            losses = self(point)
            if not losses.requires_grad:
                raise InputError("Objective: the loss does not depend on what is decided")
            (found,) = torch.autograd.grad(losses.sum(), point)
        return losses.detach(), found

    def residuals(self, numbers: torch.Tensor) -> torch.Tensor:
        """Residuals (batch, m) of numbers (batch, size); infinite where the simulation fails."""
        self._require_residuals()
        with torch.no_grad():
            inputs = self.inputs(self._checked(numbers))
            path = self._roll(inputs)
            found = self._residuals(path, inputs)
            return torch.where(self._fine(path)[:, None], found, torch.inf)

    def jacobians(self, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Residuals (batch, m) and their derivatives (batch, m, size).

        Every number of every decision has an environment of its own, in forward mode, or every residual, in reverse
        mode, whichever are fewer; so that this is one launch, or a few for many.
        """
        self._require_residuals()
        size = self._checked(numbers).shape[1]
        if self._count is None:
            self.residuals(numbers[:1])
        count = self._count or 0
        share = max(1, MOST // (min(count, size) * self.scenario_count))
        one_by_one = self._backward if count < size else self._forward
        parts = [one_by_one(part, count) for part in numbers.detach().split(share)]
        values, slopes = (torch.cat(each) for each in zip(*parts, strict=True))
        return values, slopes

    def _forward(self, numbers: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See `jacobians`: an environment for each number."""
        batch, size = numbers.shape
        wide = numbers.repeat_interleave(size, 0)
        directions = torch.eye(size, dtype=wide.dtype, device=wide.device).repeat(batch, 1)
        with torch.no_grad(), forward_ad.dual_level():
            inputs = self.inputs(forward_ad.make_dual(wide, directions))
            path = self._roll(inputs)
            value, slope = forward_ad.unpack_dual(self._residuals(path, inputs))
            slope = torch.zeros_like(value) if slope is None else slope
            fine = self._fine(path)[:, None]
        return torch.where(fine, value, torch.inf)[::size], slope.where(fine, 0.0).unflatten(0, (batch, size)).mT

    def _backward(self, numbers: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See `jacobians`: an environment for each residual."""
        with torch.enable_grad():
            wide = numbers.repeat_interleave(count, 0).requires_grad_()
            inputs = self.inputs(wide)
            path = self._roll(inputs)
            value = self._residuals(path, inputs)
            own = torch.eye(count, dtype=wide.dtype, device=wide.device).repeat(len(numbers), 1)
            (slope,) = torch.autograd.grad(value, wide, own)
        fine = self._fine(path)[:, None]
        return torch.where(fine, value.detach(), torch.inf)[::count], slope.unflatten(0, (-1, count))

    def _roll(self, inputs: Inputs) -> Trajectory:
        named = (self.controller, self.cost, self.sim.residual)
        self._check_names(inputs.individual)
        return self.sim.rollout(
            inputs.state,
            inputs.controls,
            {**self.params, **inputs.params} or None,
            external={name: force[:, None] for name, force in self.external.items()} or None,
            controller=self.controller,
            cost=self.cost,
            constants={k: x for k, x in self.constants.items() if _taken(k, named)},
            individual={k: x for k, x in inputs.individual.items() if _taken(k, named)},
            contacts=self.contacts,
            every=self.every,
        )

    def _check_names(self, individual: Mapping[str, Any]) -> None:
        """Raise at a tensor that a function takes by name and nobody gives."""
        if self._named:
            return
        given = {*self.constants, *individual}
        for function, first in ((self.controller, 3), (self.cost, 3), (self.sim.residual, 3), (self.terminal, 2)):
            for needed in [] if function is None else [*inspect.signature(function).parameters.values()][first:]:
                open_ended = needed.kind in (needed.VAR_KEYWORD, needed.VAR_POSITIONAL)
                if needed.default is needed.empty and needed.name not in given and not open_ended:
                    raise InputError(f"Objective: a function takes {needed.name!r}; give it as constants or individual")
        self._named = True

    def _terminal(self, last: SimulatorState, inputs: Inputs) -> torch.Tensor:
        terminal = self.terminal
        assert terminal is not None
        named = {**self.constants, **inputs.individual}
        taken = {name: value for name, value in named.items() if _taken(name, [terminal], 2)}
        shapes = {k: tuple(x.shape[1:] if k in inputs.individual else x.shape) for k, x in taken.items()}
        key = tuple(shapes.items())
        if key not in self._terminals:

            def own(**values: Any) -> Any:
                return terminal(values.pop("q"), values.pop("v"), **values)

            own.__name__ = f"terminal({self.sim.model.name})"
            self._terminals[key] = Function(own, {"q": self.sim.model.nq, "v": self.sim.model.nv, **shapes})
        return self._terminals[key](q=last.q, v=last.v, **taken)

    def _require_residuals(self) -> None:
        if self.residual is None:
            raise InputError("Objective: it has no residuals; give residuals=")

    def _residuals(self, path: Trajectory, inputs: Inputs) -> torch.Tensor:
        assert self.residual is not None
        found = self._batched("residuals", self.residual(path, inputs), (path.q.shape[1], -1))
        found = found.unflatten(0, (-1, self.scenario_count)).flatten(1) / math.sqrt(self.scenario_count)
        self._count = found.shape[1]
        return found

    def _fine(self, path: Trajectory) -> torch.Tensor:
        """Whether the simulation went well in all scenarios, (batch,)."""
        return (path.status[-1] == FINE).unflatten(0, (-1, self.scenario_count)).all(1)

    def _batched(self, name: str, value: Any, shape: tuple[int, ...]) -> torch.Tensor:
        if (
            not isinstance(value, torch.Tensor)
            or value.ndim != len(shape)
            or any(has != size for has, size in zip(value.shape, shape, strict=True) if size >= 0)
        ):
            got = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            wanted = "(batch,)" if len(shape) == 1 else "(batch, m)"
            raise InputError(f"Objective: {name} must give {wanted}, here {shape[0]} of them; got {got}")
        return value

    def _checked(self, numbers: torch.Tensor) -> torch.Tensor:
        like = self.box.start
        if not isinstance(numbers, torch.Tensor) or numbers.ndim != 2 or numbers.shape[1] != self.size:
            got = tuple(numbers.shape) if isinstance(numbers, torch.Tensor) else type(numbers).__name__
            raise InputError(f"Objective: decisions must be a tensor (batch, {self.size}), got {got}")
        if numbers.dtype != like.dtype or numbers.device != like.device:
            raise InputError(
                f"Objective: decisions must be {like.dtype} on {like.device} like the start, "
                f"got {numbers.dtype} on {numbers.device}"
            )
        return numbers


def _taken(name: str, functions: Sequence[Callable[..., Any] | None], first: int = 3) -> bool:
    """Whether one of the functions takes an argument of this name, after the first ones."""
    for function in functions:
        accepted = [] if function is None else [*inspect.signature(function).parameters.values()]
        if any(x.name == name for x in accepted[first:]) or any(x.kind == x.VAR_KEYWORD for x in accepted):
            return True
    return False


def _repeated(value: torch.Tensor, times: int) -> torch.Tensor:
    return value.repeat(times, *[1] * (value.ndim - 1))


def _scenarios(start: SimulatorState, varied: Mapping[str, torch.Tensor]) -> int:
    """How many scenarios there are."""
    counts = {"start": len(start.q)} if start.q.ndim == 2 else {}
    for name, value in varied.items():
        if not isinstance(value, torch.Tensor) or not value.ndim:
            raise InputError(f"Objective: scenarios[{name!r}] must be a tensor (scenarios, ...)")
        counts[f"scenarios[{name!r}]"] = len(value)
    if len(set(counts.values())) > 1 or 0 in counts.values():
        said = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise InputError(f"Objective: all must be of the same number of scenarios, at least one; there are {said}")
    return next(iter(counts.values()), 1)
