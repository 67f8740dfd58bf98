"""Calls that were made before: what decides which kernel they run, and their tensors in the order of its inputs.

Checks of a call depend on names, shapes and dtypes only. So a call whose names and signature were seen before skips
them: its key finds the kernel, and the kernel recognizes the signature.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from adjoin.simulation.arguments import Argument, Tensors, unmarked
from adjoin.simulation.state import SimulatorState
from adjoin.simulation.world import World
from adjoin.simulation.world_rollout import part


class CallArguments(NamedTuple):
    """What a call of a simulator was passed; see `Simulator.step`. Of a rollout, control is (steps, ..., nu)."""

    state: SimulatorState
    control: torch.Tensor | None
    params: Mapping[str, torch.Tensor] | None
    external: Mapping[str, torch.Tensor] | None
    tensors: Tensors | None

    def key(self, name: str, *chosen: Any) -> Hashable:
        """Return what decides which kernel a call runs, apart from the shapes of its tensors.

        Args:
            name: of the method.
            chosen: options of the call.

        Returns:
            The key; None if the call is to be checked first, or an option has no hash.
        """
        state, control, params, external, tensors = self
        if type(state) is not SimulatorState or torch.compiler.is_compiling():
            return None
        key = (name, control is None, *chosen)
        if params or external or tensors:
            marks = [(name, type(x), type(getattr(x, "value", None))) for name, x in (tensors or {}).items()]
            key = (*key, tuple(params or ()), tuple(external or ()), tuple(marks))
        try:
            hash(key)
        except TypeError:
            return None
        return key


class KnownCall(NamedTuple):
    """What calls of one key have in common.

    Attributes:
        kernel: What they run.
        memory: Names of what the state carries besides q and v.
        params: Names of the parameters, in the order of the kernel's inputs.
        places: For each input of the kernel, its place among the values.
    """

    kernel: Any
    memory: list[str]
    params: list[str]
    places: list[int]

    @classmethod
    def of(cls, kernel: Any, world: World, inputs: Mapping[str, Argument]) -> "KnownCall":
        """Return what is to be known about a call.

        Args:
            kernel: What it ran.
            world: What is simulated.
            inputs: What the kernel took besides the carry, by name.
        """
        carried = range(len(world.carry))
        streamed = [argument.streamed for argument in inputs.values()]
        behind = sorted(range(len(streamed)), key=lambda i: not streamed[i])  # kernels take streams first
        memory = [name for name in world.carry if name not in ("q", "v")]
        return cls(kernel, memory, list(part(dict(inputs), "params")), [*carried, *[len(carried) + i for i in behind]])

    def values(self, world: World, call: CallArguments, steps: int | None = None) -> list[Any] | None:
        """Return the tensors of a call in the order of the kernel's inputs.

        Args:
            world: What is simulated.
            call: What was passed.
            steps: How many steps a rollout without controls has.

        Returns:
            The tensors; None if the state is of another simulator, or the control of its key frame is to be repeated.
        """
        state, control, params, external, tensors = call
        try:
            values: list[Any] = [state.q, state.v, *[state.memory[name] for name in self.memory]]
        except KeyError:
            return None
        if control is not None:
            values.append(control)
        elif "control" in state.start:
            if steps is not None:
                return None
            if world.model.nu:
                values.append(state.start["control"])
        elif steps is not None or world.model.nu:
            values.append(state.q.new_zeros(world.model.nu if steps is None else (steps, world.model.nu)))
        if external:
            values += external.values()
        if self.params:
            values += self._numbers(world, state.q, params or {})
        if tensors:
            values += [unmarked(x) for x in tensors.values()]
        return [values[i] for i in self.places]

    def _numbers(self, world: World, like: torch.Tensor, params: Mapping[str, torch.Tensor]) -> Sequence[torch.Tensor]:
        terrain = world.terrain
        return [terrain.heights_like(like) if terrain and name not in params else params[name] for name in self.params]
