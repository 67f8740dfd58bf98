"""An objective over a rollout: its loss and derivatives as functions of decision variables, for a batch at once."""

import copy
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.autograd import forward_ad

from adjoin.compiler.runtime.bounded import BoundedCache
from adjoin.compiler.runtime.function import Function, PerStep, Table
from adjoin.control.continuation import SOFT
from adjoin.control.variables import Box, Controls, DecisionVariables, Spline
from adjoin.errors import InputError
from adjoin.simulation.arguments import PerEnvironment, Tensors, arguments, bind, check_taken, takes
from adjoin.simulation.simulator import Simulator
from adjoin.simulation.state import FINE, SimulatorState, Trajectory
from adjoin.simulation.step import STEP_VALUES
from adjoin.simulation.world_rollout import Outputs, check_outputs

PARTS = ("state", "controls", "params", "tensors")
"""What decision variables may be for a rollout."""

MAX_ENVIRONMENTS = 8192
"""Environments that a launch for a Jacobian has at most."""


class Inputs(NamedTuple):
    """What a rollout gets for a batch of decision variables; one after the other, each with all its scenarios.

    Attributes:
        state: the initial state.
        controls: (steps, batch, width).
        params: parameters, (batch, ...) each.
        tensors: what controller and costs take by name, (batch, ...) each.
    """

    state: SimulatorState
    controls: torch.Tensor
    params: dict[str, torch.Tensor]
    tensors: dict[str, torch.Tensor]


class Objective:
    """The loss of a motion as a function of decision variables.

    The loss is the sum of the parts that there are: the running cost over all steps, the terminal cost, `loss`, and
    half the sum of squares of `residuals`. It is infinite where the simulation fails.

    A traced cost returns one number, or a row of residuals, of which half the sum of squares is the cost.

    A motion that has to be good in several scenarios, from several starts or with several sets of parameters, is
    simulated in each of them, in the same launch; its loss is the mean over them.

    Args:
        sim: the simulator.
        start: the initial state, of one environment, or of (scenarios,).
        steps: of the rollout.
        cost: running cost, a traced function that takes what it names: `q` and `v` before each step, its `control`,
            `next_q` and `next_v` after it, other values of the step, and named tensors.
        terminal: terminal cost, a traced function of `q` and `v` of the last state, and of named tensors.
        loss: a function `loss(path, inputs)` from a `Trajectory` and the `Inputs` that led to it to (batch,) by torch
            operations: anything that the other two cannot say.
        residuals: a function `residuals(path, inputs)` to (batch, m) by torch operations; see `GaussNewton`.
        variables: the decision variables: `Controls()`, `Spline(knots)`, `ModuleParameters(module)`, `Variables(...)`,
            or a list of them.
        controls: where they are not decided, (steps, width); by default 0.
        params: parameters that are not decided; those of the shape (scenarios, ...) differ between scenarios.
        tensors: tensors that controller, costs and the simulator's residual take by name; `PerEnvironment` marks those
            that differ between scenarios, (scenarios, ...).
        controller: see `Simulator.rollout`.
        external: external forces, frame name -> (steps, 6); see `Simulator.rollout`.
        outputs: what `path.outputs` has besides; see `Simulator.rollout`.
        every: which states are kept, see `Simulator.rollout`; `path` then has these only.

    Attributes:
        box: lower limits, start, upper limits and spread of the decision variables, (size,) each.
        size: how many decision variables there are.
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
        variables: DecisionVariables | Sequence[DecisionVariables] | None = None,
        controls: torch.Tensor | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
        tensors: Tensors | None = None,
        controller: Callable[..., Any] | None = None,
        external: Mapping[str, torch.Tensor] | None = None,
        outputs: Outputs = (),
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
        self.sim, self.start, self.steps = sim, start, steps
        self.params, self.tensors, self.external = dict(params or {}), dict(tensors or {}), dict(external or {})
        self.scenario_count = self._count_scenarios()
        self.cost, self.terminal, self.loss, self.residual = cost, terminal, loss, residuals
        self.controller, self.every = controller, every
        self.outputs = check_outputs("Objective", outputs)
        if cost is not None:
            self.outputs["cost"] = HalvedSquares(cost)
        variables = Controls() if variables is None else variables
        kinds: list[Any] = list(variables) if isinstance(variables, list | tuple) else [variables]
        if not kinds or any(isinstance(kind, type) or not hasattr(kind, "box") for kind in kinds):
            raise InputError(f"Objective: variables must be such as Controls() or Spline(10), got {variables!r}")
        if controller is not None:
            # What a controller gets is no control, so the actuators' limits do not apply to it.
            of_controls = (isinstance(kind, Controls | Spline) and kind.width is None for kind in kinds)
            pairs = zip(kinds, of_controls, strict=True)
            kinds = [replace(kind, width=sim.model.nu) if unlimited else kind for kind, unlimited in pairs]
        self.variables = kinds
        self.controls = start.q.new_zeros(steps, sim.model.nu) if controls is None else controls
        if not isinstance(self.controls, torch.Tensor) or self.controls.ndim < 2 or len(self.controls) != steps:
            got = tuple(controls.shape) if isinstance(controls, torch.Tensor) else type(controls).__name__
            raise InputError(f"Objective: controls must be a tensor ({steps}, width), got {got}")
        named = arguments("Objective", self.tensors, (self.scenario_count,), steps)
        functions = (controller, sim.world.residual, terminal, *[x for x in self.outputs.values() if callable(x)])
        check_taken("Objective", named, functions, list(STEP_VALUES))
        boxes = [kind.box(sim, steps, start.q) for kind in self.variables]
        self.box = Box(*[torch.cat(parts) for parts in zip(*boxes, strict=True)])
        self._sizes = [len(box.start) for box in boxes]
        self.size = sum(self._sizes)
        self._terminals: BoundedCache[Function] = BoundedCache(16)
        self._residual_count: int | None = None

    def __repr__(self) -> str:
        terms = {"cost": self.cost, "terminal": self.terminal, "loss": self.loss, "residuals": self.residual}
        given = ", ".join(name for name, function in terms.items() if function is not None)
        kinds = ", ".join(type(kind).__name__ for kind in self.variables)
        return (
            f"Objective({self.sim.model.name!r}, {self.steps} steps, {self.scenario_count} scenarios: {given}; "
            f"{self.size} decision variables: {kinds})"
        )

    def softened(self, params: Mapping[str, torch.Tensor]) -> "Objective":
        """Return the same objective with `Compliant` contact, with these parameters of it; see `Continuation`."""
        other = copy.copy(self)
        other.sim = self._soft_sim
        known = {name: value for name, value in self.params.items() if name in other.sim.world.parameters}
        other.params = {**known, **params}
        return other

    @functools.cached_property
    def _soft_sim(self) -> Simulator:
        return self.sim.with_contact(SOFT)

    # Decision variables

    def split(self, values: torch.Tensor) -> list[torch.Tensor]:
        """Return the values of each kind of variables, (..., n) each."""
        if values.shape[-1] != self.size:
            raise InputError(f"Objective: there are {self.size} variables to split, got {tuple(values.shape)}")
        return list(values.split(self._sizes, -1))

    def inputs(self, values: torch.Tensor) -> Inputs:
        """Return what a rollout gets for values (batch, size) of the decision variables."""
        times, values = len(values), values.repeat_interleave(self.scenario_count, 0)
        state = self.start
        if state.q.ndim == 1:
            state = state.map(lambda x: x.expand(self.scenario_count, *x.shape))
        state = state.map(lambda x: _repeated(x, times))
        varied = {name: _repeated(self.params[name], times) for name in self._varied}
        inputs: dict[str, Any] = {"state": state, "params": varied, "tensors": {}}
        for kind, part in zip(self.variables, self.split(values), strict=True):
            decoded, label = kind.inputs(part, self.sim, self.steps), type(kind).__name__
            if not isinstance(decoded, Mapping):
                raise InputError(f"Objective: {label} must give a dictionary, got a {type(decoded).__name__}")
            for name, value in decoded.items():
                self._check_input(label, name, value, len(values))
                inputs[name] = {**inputs[name], **value} if name in ("params", "tensors") else value
        if "controls" not in inputs:
            inputs["controls"] = self.controls[:, None].expand(-1, len(values), *self.controls.shape[1:])
        return Inputs(**inputs)

    def _check_input(self, label: str, name: str, value: Any, rows: int) -> None:
        if name not in PARTS:
            raise InputError(f"Objective: {label} gave {name!r}; a rollout gets: {', '.join(PARTS)}")
        kinds = {"state": SimulatorState, "controls": torch.Tensor}
        if not isinstance(value, kinds.get(name, Mapping)):
            expected = {"state": "sim.state(q, v)", "controls": "a tensor"}.get(name, "a dictionary of tensors")
            raise InputError(f"Objective: {label} must give {expected} as {name!r}, got a {type(value).__name__}")
        if name == "controls" and value.shape[:2] != (self.steps, rows):
            wanted = f"({self.steps}, {rows}, ...)"
            raise InputError(f"Objective: {label} must give controls {wanted}, got {tuple(value.shape)}")
        if name == "state" and self.start.q.ndim == 2:
            raise InputError(f"Objective: {label} decides the start, so start must be of one environment")
        if name == "params" and (both := self._varied & value.keys()):
            raise InputError(f"Objective: {label} decides what differs between scenarios: {', '.join(both)}")

    def rollout(self, values: torch.Tensor) -> Trajectory:
        """Simulate the motion for values (batch, size), or (size,) for one without batch dimension; one launch.

        Where there are several scenarios, the dimension that follows is theirs.
        """
        one = isinstance(values, torch.Tensor) and values.ndim == 1
        path = self._roll(self.inputs(self._checked(values[None] if one else values)))

        def shaped(value: torch.Tensor) -> torch.Tensor:
            value = value.unflatten(1, (-1, self.scenario_count)) if self.scenario_count > 1 else value
            return value[:, 0] if one else value

        return path.map(shaped)

    def random(self, count: int, seed: int = 0) -> torch.Tensor:
        """Return random starts (count, size): uniform, up to the spread away from the start, within the limits."""
        if not isinstance(count, int) or count < 1:
            raise InputError(f"Objective: random starts must be at least 1, got {count!r}")
        generator = torch.Generator().manual_seed(seed)
        away = 2.0 * torch.rand(count, self.size, generator=generator, dtype=torch.float64, device="cpu") - 1.0
        return (self.box.start + away.to(self.box.start) * self.box.spread).clamp(self.box.lower, self.box.upper)

    # Losses and derivatives

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        """Return the losses (batch,) of values (batch, size); differentiable, one launch."""
        inputs = self.inputs(self._checked(values))
        path = self._roll(inputs)
        total = values.new_zeros(path.q.shape[1])
        if self.cost is not None:
            total = total + self._batched("cost", path.outputs["cost"].sum(0), (len(total),))
        if self.terminal is not None:
            total = total + self._batched("terminal", self._terminal(path.last, inputs), (len(total),))
        if self.loss is not None:
            total = total + self._batched("loss", self.loss(path, inputs), (len(total),))
        total = total.unflatten(0, (-1, self.scenario_count)).mean(1)
        if self.residual is not None:
            total = total + 0.5 * self._residuals(path, inputs).square().sum(-1)
        return torch.where(self._succeeded(path) & total.isfinite(), total, torch.inf)

    def losses(self, values: torch.Tensor) -> torch.Tensor:
        """Return the losses (batch,) of values (batch, size); infinite where the simulation fails."""
        with torch.no_grad():
            return self(values)

    def gradients(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the losses (batch,) and their gradients (batch, size); one launch forward and one back."""
        with torch.enable_grad():
            point = values.detach().requires_grad_()
            losses = self(point)
            if not losses.requires_grad:
                raise InputError("Objective: the loss does not depend on the decision variables")
            (gradients,) = torch.autograd.grad(losses.sum(), point)
        return losses.detach(), gradients

    def residuals(self, values: torch.Tensor) -> torch.Tensor:
        """Return the residuals (batch, m) of values (batch, size); infinite where the simulation fails."""
        self._require_residuals()
        with torch.no_grad():
            inputs = self.inputs(self._checked(values))
            path = self._roll(inputs)
            return torch.where(self._succeeded(path)[:, None], self._residuals(path, inputs), torch.inf)

    def jacobians(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the residuals (batch, m) and their Jacobians (batch, m, size).

        Every variable has an environment of its own, in forward mode, or every residual, in reverse mode, whichever are
        fewer; so that this is one launch, or a few for many.
        """
        self._require_residuals()
        size = self._checked(values).shape[1]
        if self._residual_count is None:
            self.residuals(values[:1])
        count = self._residual_count or 0
        chunk = max(1, MAX_ENVIRONMENTS // (min(count, size) * self.scenario_count))
        differentiate = self._reverse_mode if count < size else self._forward_mode
        parts = [differentiate(part, count) for part in values.detach().split(chunk)]
        residuals, jacobians = (torch.cat(part) for part in zip(*parts, strict=True))
        return residuals, jacobians

    def _forward_mode(self, values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See `jacobians`: an environment for each variable."""
        batch, size = values.shape
        wide = values.repeat_interleave(size, 0)
        directions = torch.eye(size, dtype=wide.dtype, device=wide.device).repeat(batch, 1)
        with torch.no_grad(), forward_ad.dual_level():
            inputs = self.inputs(forward_ad.make_dual(wide, directions))
            path = self._roll(inputs)
            value, slope = forward_ad.unpack_dual(self._residuals(path, inputs))
            slope = torch.zeros_like(value) if slope is None else slope
            fine = self._succeeded(path)[:, None]
        return torch.where(fine, value, torch.inf)[::size], slope.where(fine, 0.0).unflatten(0, (batch, size)).mT

    def _reverse_mode(self, values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See `jacobians`: an environment for each residual."""
        with torch.enable_grad():
            wide = values.repeat_interleave(count, 0).requires_grad_()
            inputs = self.inputs(wide)
            path = self._roll(inputs)
            value = self._residuals(path, inputs)
            rows = torch.eye(count, dtype=wide.dtype, device=wide.device).repeat(len(values), 1)
            (slope,) = torch.autograd.grad(value, wide, rows)
        fine = self._succeeded(path)[:, None]
        return torch.where(fine, value.detach(), torch.inf)[::count], slope.unflatten(0, (-1, count))

    def _roll(self, inputs: Inputs) -> Trajectory:
        functions = [x for x in (self.controller, self.sim.world.residual, *self.outputs.values()) if callable(x)]
        named = {k: x for k, x in self._named(inputs).items() if any(takes(function, k) for function in functions)}
        return self.sim.rollout(
            inputs.state,
            inputs.controls,
            {**self.params, **inputs.params} or None,
            external={name: force[:, None] for name, force in self.external.items()} or None,
            controller=self.controller,
            outputs=self.outputs,
            tensors=named,
            every=self.every,
        )

    def _named(self, inputs: Inputs) -> dict[str, Any]:
        """The named tensors of a rollout: those of the objective, and those that are decided."""
        times = len(inputs.state) // self.scenario_count
        named = {name: _repeated_marked(value, times) for name, value in self.tensors.items()}
        return {**named, **{name: PerEnvironment(value) for name, value in inputs.tensors.items()}}

    def _terminal(self, last: SimulatorState, inputs: Inputs) -> torch.Tensor:
        terminal = self.terminal
        assert terminal is not None
        named = {name: x for name, x in self._named(inputs).items() if takes(terminal, name)}
        taken = arguments("terminal", named, last.batch, None)
        shapes = {name: argument.shape for name, argument in taken.items()}
        squares = HalvedSquares(terminal)

        def of_last_state(q: Any, v: Any, **tensors: Any) -> Any:
            return bind("the terminal cost", squares, {"q": q, "v": v}, tensors)

        def compute() -> Function:
            of_last_state.__name__ = f"terminal({self.sim.model.name})"
            return Function(of_last_state, {"q": self.sim.model.nq, "v": self.sim.model.nv, **shapes})

        function = self._terminals.get(tuple(shapes.items()), compute)
        return function(q=last.q, v=last.v, **{name: x.tensor for name, x in taken.items()})

    @functools.cached_property
    def _varied(self) -> set[str]:
        """The parameters that differ between scenarios."""
        return {name for name, value in self.params.items() if _rank(self.sim, name, value) > 0}

    def _count_scenarios(self) -> int:
        """How many scenarios there are."""
        counts = {"start": len(self.start.q)} if self.start.q.ndim == 2 else {}
        for name, value in self.params.items():
            if (rank := _rank(self.sim, name, value)) > 1:
                raise InputError(f"Objective: params[{name!r}] must be (scenarios, ...), got {tuple(value.shape)}")
            counts.update({f"params[{name!r}]": len(value)} if rank else {})
        for name, value in self.tensors.items():
            streamed, inner = isinstance(value, PerStep), value.value if isinstance(value, PerStep) else value
            if isinstance(inner, PerEnvironment) and isinstance(inner.value, torch.Tensor):
                counts.update({f"tensors[{name!r}]": size for size in inner.value.shape[streamed : streamed + 1]})
        if len(set(counts.values())) > 1 or 0 in counts.values():
            said = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise InputError(f"Objective: all must be of the same number of scenarios, at least one; there are {said}")
        return next(iter(counts.values()), 1)

    def _require_residuals(self) -> None:
        if self.residual is None:
            raise InputError("Objective: it has no residuals; give residuals=")

    def _residuals(self, path: Trajectory, inputs: Inputs) -> torch.Tensor:
        assert self.residual is not None
        residuals = self._batched("residuals", self.residual(path, inputs), (path.q.shape[1], -1))
        residuals = residuals.unflatten(0, (-1, self.scenario_count)).flatten(1) / math.sqrt(self.scenario_count)
        self._residual_count = residuals.shape[1]
        return residuals

    def _succeeded(self, path: Trajectory) -> torch.Tensor:
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

    def _checked(self, values: torch.Tensor) -> torch.Tensor:
        like = self.box.start
        if not isinstance(values, torch.Tensor) or values.ndim != 2 or values.shape[1] != self.size:
            got = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
            raise InputError(f"Objective: decision variables must be a tensor (batch, {self.size}), got {got}")
        if values.dtype != like.dtype or values.device != like.device:
            raise InputError(
                f"Objective: decision variables must be {like.dtype} on {like.device} like the start, "
                f"got {values.dtype} on {values.device}"
            )
        return values


@dataclass(frozen=True)
class HalvedSquares:
    """A traced cost as one number: itself, or half the sum of squares of the residuals that it returns.

    Attributes:
        cost: The cost; this takes the same arguments.
    """

    cost: Callable[..., Any]

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """Return the function whose arguments `inspect.signature` finds."""
        return self.cost.forward if isinstance(self.cost, torch.nn.Module) else self.cost

    def __call__(self, **values: Any) -> Any:
        """Return the cost as one number."""
        value = np.array(self.cost(**values), dtype=object)
        if value.ndim > 1:
            raise InputError(f"a cost returns one number or a row of residuals, not the shape {value.shape}")
        return 0.5 * (value @ value) if value.ndim else value.item()


def _rank(sim: Simulator, name: str, value: Any) -> int:
    """How many dimensions a parameter has in front of its own; 0 where it is not known, which is an error later."""
    shape = sim.world.parameters.get(name)
    if shape is None or not isinstance(value, torch.Tensor):
        return 0
    return value.ndim - len(shape.shape if isinstance(shape, Table) else shape)


def _repeated(value: torch.Tensor, times: int, dim: int = 0) -> torch.Tensor:
    return value.repeat(*[times if k == dim else 1 for k in range(value.ndim)])


def _repeated_marked(value: Any, times: int, dim: int = 0) -> Any:
    if isinstance(value, PerStep):
        return PerStep(_repeated_marked(value.value, times, 1))
    return PerEnvironment(_repeated(value.value, times, dim)) if isinstance(value, PerEnvironment) else value
