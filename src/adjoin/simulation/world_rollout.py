"""Rollouts of a world: controller, steps and outputs traced into one kernel."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from adjoin.compiler.runtime.bounded import BoundedCache
from adjoin.compiler.runtime.torch_compile import called_while_tracing, object_at
from adjoin.errors import InputError
from adjoin.simulation.arguments import Argument, bind
from adjoin.simulation.rollout import Rollout
from adjoin.simulation.state import FINE, SimulatorState, Trajectory, map_structure
from adjoin.simulation.step import STEP_VALUES, added_functions
from adjoin.simulation.world import Plant, Values, World

Outputs = Sequence[str] | Mapping[str, str | Callable[..., Any]]
"""What a rollout returns besides its states: names of step values, or labels with a name or a traced function."""


class WorldRollout:
    """One call of a rollout.

    Args:
        label: What the call is, for messages.
        world: What is simulated.
        kernels: Kernels of earlier calls, by what they were traced for.
        carry: The state to begin with, by name.
        controls: See `Simulator.rollout`, like all that follows.
        steps: See `Simulator.rollout`.
        controller: See `Simulator.rollout`.
        outputs: See `Simulator.rollout`.
        held: The control where no controls are given, (..., nu); by default 0.

    Attributes:
        steps: How many there are.
        functions: The traced functions that the call was given.
        inputs: What the kernel takes besides the carry, by the names of its inputs; the caller adds to it.
        traced: After a run, the rollout, and for each output the structure of what it returns.
    """

    traced: tuple[Rollout, dict[str, Any]]

    def __init__(
        self,
        label: str,
        world: World,
        kernels: BoundedCache[Any],
        carry: Mapping[str, torch.Tensor],
        controls: torch.Tensor | None,
        steps: int | None,
        controller: Callable[..., Any] | None,
        outputs: Outputs,
        held: torch.Tensor | None = None,
    ):
        self.label, self.world, self.kernels, self.carry, self.controller = label, world, kernels, carry, controller
        model = world.model
        if model.nv == 0:
            raise InputError(f"{label}: nothing of {model.name!r} moves; load it with floating_base=True")
        self.outputs = check_outputs(label, outputs)
        self.functions = [x for x in (controller, *self.outputs.values()) if callable(x)]
        self.steps = self._count(controls, steps)
        if controls is None:
            controls = carry["q"].new_zeros((self.steps, model.nu))
            controls = controls if held is None or controller is not None else held.expand(self.steps, *held.shape)
        batch, shape = carry["q"].shape[:-1], (model.nu,)
        if batch and controls.shape[:-1] == batch and steps is None and controller is None:
            raise InputError(
                f"{label}: controls {tuple(controls.shape)} have the shape of the batch, without steps; time is the "
                f"first dimension: pass controls[None] for one step, or controls[:, None] for {len(controls)} steps "
                f"of all environments"
            )
        if controller is not None:
            own = controls.shape[1 : 1 + len(batch)] == batch
            shape = tuple(controls.shape[1 + len(batch) :] if own else controls.shape[1:])
        elif controls.dim() < 2 or controls.shape[-1] != model.nu:
            none = "; it has no actuators: with_motors() and with_servos() give it some" if model.nu == 0 else ""
            raise InputError(
                f"{label}: controls of {model.name!r} must have the shape (steps, ..., {model.nu}), "
                f"got {tuple(controls.shape)} for states of the batch shape {tuple(batch)}{none}"
            )
        self.inputs = {"control": Argument(shape, controls, True)}

    def _count(self, controls: Any, steps: int | None) -> int:
        """How many steps there are."""
        if controls is None:
            if not isinstance(steps, int) or steps < 0:
                raise InputError(f"{self.label}: pass controls, (steps, ..., nu), or how many steps to take as steps=")
            return steps
        if not isinstance(controls, torch.Tensor):
            raise InputError(f"{self.label}: controls must be a torch tensor, got {type(controls).__name__}")
        count = len(controls) if controls.dim() else 0
        if steps is not None and count != steps:
            raise InputError(f"{self.label}: there are {count} controls for {steps} steps")
        return count

    def run(
        self, every: int = 1, progress: bool = False, nudges: Mapping[str, torch.Tensor] | None = None
    ) -> Trajectory:
        """Take the steps.

        Args:
            every: See `Simulator.rollout`.
            progress: See `Simulator.rollout`.
            nudges: What is added to q and v after each step, (steps, ..., n); for `diagnose`, which then also gets the
                outputs "fault" and "constraint_modes".
        """
        inputs = dict(self.inputs)
        for name, x in (nudges or {}).items():
            inputs[f"nudge_{name}"] = Argument(self.world.carry[name], x, True)
        wanted = {**self.outputs, **({name: name for name in ("fault", "constraint_modes")} if nudges else {})}
        if torch.compiler.is_compiling() and not nudges:
            self._prepare(wanted, inputs)
        rollout, structure = self.traced = self.find(wanted, inputs, tuple(nudges or ()))
        streams = {name: x.tensor for name, x in inputs.items() if x.streamed}
        constants = {name: x.tensor for name, x in inputs.items() if not x.streamed}
        states, arrays = rollout(self.carry, streams, constants, every, progress)
        return trajectory(states, arrays, structure, self.steps)

    def _prepare(self, wanted: Mapping[str, Any], inputs: Mapping[str, Argument]) -> None:
        """Trace for torch.compile, which cannot follow it: beside, by plain constants, where there are no functions."""
        label, _, items, shapes = key = self._key(wanted, inputs)
        if not self.functions:
            _trace_beside(id(self.world), id(self.kernels), label, items, shapes)
        elif key not in self.kernels:
            _refuse(self.label)

    def _key(self, wanted: Mapping[str, Any], inputs: Mapping[str, Argument]) -> tuple[Any, ...]:
        shapes = tuple([(name, x.shape, x.streamed) for name, x in inputs.items()])
        return self.label, self.controller, tuple(wanted.items()), shapes

    def find(
        self, wanted: Mapping[str, Any], inputs: Mapping[str, Argument], nudged: tuple[str, ...] = ()
    ) -> tuple[Rollout, dict[str, Any]]:
        """Return the rollout, and for each output the structure of what it returns; traced if it is new."""
        return self.kernels.get(self._key(wanted, inputs), lambda: self._trace(wanted, inputs, nudged))

    def _trace(
        self, wanted: Mapping[str, Any], inputs: Mapping[str, Argument], nudged: Sequence[str]
    ) -> tuple[Rollout, dict[str, Any]]:
        """The rollout, and for each output the structure of what it returns."""
        structure: dict[str, Any] = {}
        label, world, controller = self.label, self.world, self.controller  # `self` has tensors, and `step` is kept

        def step(carry: Values, elements: Values, constants: Values) -> tuple[Values, Values]:
            values = {**elements, **constants}
            if controller is not None:
                values["control"] = _control(label, world, controller, carry, values)
            plant = plant_of(world, values)
            after, taken = world.step(plant, carry)
            for name in nudged:  # before the outputs, which may depend on what follows the step
                after[name] = np.array(after[name]) + elements[f"nudge_{name}"]
            results: Values = {}

            def place(value: Any) -> _Place:
                scalars = np.array(value, dtype=object)
                if not scalars.size:
                    return _Place(scalars.shape)
                results[str(len(results))] = scalars
                return _Place(str(len(results) - 1))

            for output, what in wanted.items():
                bound = functools.partial(bind, f"the output {output!r}", what, taken, plant.tensors)
                structure[output] = map_structure(place, taken[what] if isinstance(what, str) else bound())
            return after, results

        streams = {name: x.shape for name, x in inputs.items() if x.streamed}
        constants = {name: x.shape for name, x in inputs.items() if not x.streamed}
        key = (world, controller, dict(wanted), tuple(nudged), added_functions())
        name = f"{label}({world.model.name})"
        rollout = Rollout(name, step, world.carry, streams, constants, is_fine, key, structure)
        return rollout, structure


def _control(label: str, world: World, controller: Callable[..., Any], carry: Values, values: Values) -> np.ndarray:
    """What the controller returns for a state."""
    known = {"q": carry["q"], "v": carry["v"], "status": carry["status"], "control": values["control"]}
    control = np.array(bind("the controller", controller, known, part(values, "tensors")), dtype=object)
    if control.shape != (nu := world.model.nu,):
        raise InputError(f"{label}: the controller returned {control.shape}; a control is ({nu},)")
    return control


@called_while_tracing
def _refuse(label: str) -> None:
    """Raise, in a way that torch.compile can follow."""
    raise InputError(
        f"{label}: torch.compile cannot trace controllers and functions of outputs; make the same call once before, "
        "outside of what is compiled"
    )


@called_while_tracing
def _trace_beside(
    world: int, kernels: int, label: str, wanted: tuple[Any, ...], shapes: tuple[tuple[str, Any, bool], ...]
) -> bool:
    """Trace a rollout while torch compiles a call of it."""
    call = WorldRollout.__new__(WorldRollout)
    call.label, call.controller = label, None
    call.world, call.kernels = object_at(world), object_at(kernels)
    empty = torch.empty(0)
    call.find(dict(wanted), {name: Argument(shape, empty, streamed) for name, shape, streamed in shapes})
    return True


def is_fine(carry: Values) -> Any:
    """Whether nothing has gone wrong by the end of a step."""
    return carry["status"] == float(FINE)


def trajectory(
    states: dict[str, torch.Tensor],
    arrays: Mapping[str, torch.Tensor],
    structure: dict[str, Any],
    steps: int,
    before: SimulatorState | None = None,
) -> Trajectory:
    """Return the results of a rollout as a trajectory, with the start of the state that it began with."""
    q, v = states.pop("q"), states.pop("v")

    def result(place: str | tuple[int, ...]) -> torch.Tensor:
        return arrays[place] if isinstance(place, str) else v.new_empty((steps, *v.shape[1:-1], *place))

    outputs = map_structure(lambda place: result(place.value), structure) if structure else {}
    return Trajectory(q, v, states, {} if before is None else before.expand_start(q.shape[:-1]), outputs)


class _Place:
    """Where an output is: the name of a result, or the shape of one without numbers."""

    def __init__(self, value: str | tuple[int, ...]):
        self.value = value


def check_outputs(label: str, outputs: Outputs) -> dict[str, str | Callable[..., Any]]:
    """Return the outputs of a call by label."""
    if isinstance(outputs, str):
        raise InputError(f"{label}: outputs must be a list of names, or a mapping from labels; got {outputs!r}")
    labels: dict[str, str | Callable[..., Any]] = {}
    labels.update(outputs if isinstance(outputs, Mapping) else {name: name for name in outputs})
    for name, what in labels.items():
        if not callable(what) and what not in STEP_VALUES:
            raise InputError(f"{label}: no output {what!r} for {name!r}; outputs: {', '.join(STEP_VALUES)}")
    return labels


def plant_of(world: World, values: Values) -> Plant:
    """Return the plant of the values of a kernel's inputs."""
    parts = [part(values, kind) for kind in ("params", "external", "tensors")]
    return world.plant(values.get("control", ()), *parts)


def input_name(kind: str, name: str) -> str:
    """Return the name that an input has in a kernel, as messages show it."""
    return f"{kind}['{name}']"


def part(values: Values, kind: str) -> Values:
    """Return those of the values of a kernel's inputs that are of one kind, by name."""
    start = f"{kind}['"
    return {key[len(start) : -2]: value for key, value in values.items() if key.startswith(start)}
