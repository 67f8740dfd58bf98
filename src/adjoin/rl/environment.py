"""Environments: pure functions of a state, batched and differentiable."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree

from adjoin.errors import InputError
from adjoin.rl import distributed
from adjoin.rl.random import Random, check_randomized, draw_parameters
from adjoin.rl.ranges import check_attributes
from adjoin.rl.task import Push, Start, Task
from adjoin.simulation.simulator import Simulator
from adjoin.simulation.state import SimulatorState

OBSERVATIONS = "observations"


@dataclass(frozen=True, eq=False)
class EnvironmentState:
    """The state of a batch of environments.

    Attributes:
        simulation: The state of the simulator.
        steps: How many actions were taken since the reset, (n,).
        actions: The latest actions, the newest first, (n, delay + 1, nu).
        memory: What the task keeps, by name.
        params: The parameters that are drawn for each environment, by name.
        hidden: What delays and pushes need: "action_delay", "observation_delay", "push", and "observations", the latest
            ones, the newest first, (n, delay + 1, size).
    """

    simulation: SimulatorState
    steps: torch.Tensor
    actions: torch.Tensor
    memory: dict[str, torch.Tensor] = field(default_factory=dict)
    params: dict[str, torch.Tensor] = field(default_factory=dict)
    hidden: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def q(self) -> torch.Tensor:
        """Return the configurations, (n, nq)."""
        return self.simulation.q

    @property
    def v(self) -> torch.Tensor:
        """Return the velocities, (n, nv)."""
        return self.simulation.v

    @property
    def action(self) -> torch.Tensor:
        """Return the latest actions, (n, nu)."""
        return self.actions[:, 0]

    def __len__(self) -> int:
        return len(self.steps)

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> "EnvironmentState":
        """Return the same structure with a function applied to every tensor."""
        return _pytree.tree_map(function, self)

    def detach(self) -> "EnvironmentState":
        """Cut the graph of gradients."""
        return self.map(torch.Tensor.detach)

    def replace(self, **changes: Any) -> "EnvironmentState":
        """Return a copy in which some of the attributes are replaced."""
        return replace(self, **changes)

    def where(self, mask: torch.Tensor, other: "EnvironmentState") -> "EnvironmentState":
        """Return this state where a mask (n,) holds, and another one elsewhere."""

        def chosen(mine: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
            return torch.where(mask.reshape(-1, *[1] * (mine.dim() - 1)), mine, others)

        return _pytree.tree_map(chosen, self, other)


_pytree.register_pytree_node(
    EnvironmentState,
    lambda x: ([getattr(x, each.name) for each in fields(x)], None),
    lambda values, _: EnvironmentState(*values),
    serialized_type_name="adjoin.EnvironmentState",
)


class Step(NamedTuple):
    """What a step of environments returns.

    Attributes:
        state: The state after the step, without resets.
        reward: (n,).
        terminated: Which episodes ended for good, (n,) booleans. A fault of the simulator ends an episode so.
        truncated: Which ones ended because their time was over, (n,) booleans.
    """

    state: EnvironmentState
    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor


class Environment:
    """A task as pure functions of a state.

    Args:
        task: The task.
        device: Where the states are; by default the CPU.
        dtype: The dtype of all numbers.
    """

    def __init__(self, task: Task, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32):
        if not isinstance(task, Task):
            raise InputError(f"Environment: the task must be a Task, got a {type(task).__name__}; see make_task")
        for attribute, kind in {"name": str, "simulator": Simulator}.items():
            if not isinstance(getattr(task, attribute, None), kind):
                raise InputError(f"{type(task).__name__}: a task must have a {attribute}, a {kind.__name__}")
        self._named = f"task {task.name!r}: "
        check_attributes(self._named, task, Task.__annotations__)
        if task.push is not None:
            check_attributes(f"{self._named}push: ", task.push, Push.__annotations__)
        if dtype not in (torch.float32, torch.float64):
            raise InputError(f"Environment: dtype must be torch.float32 or torch.float64, got {dtype}")
        self.task, self.device, self.dtype = task, distributed.device_of(device), dtype
        model = task.simulator.model
        self.action_size = model.nu
        if not model.nu:
            raise InputError(f"task {task.name!r}: the model {model.name!r} has no actuators; see Model.with_motors")
        ranges = [actuator.control_range for actuator in model.actuators]
        middles = [0.5 * (low + high) if math.isfinite(high - low) else 0.0 for low, high in ranges]
        offset = _per_actuator(task, "action_offset", middles)
        scale = _per_actuator(task, "action_scale", [0.5 * (high - low) for low, high in ranges])
        self._offset, self._scale = (torch.tensor(x, dtype=dtype, device=self.device) for x in (offset, scale))
        with torch.no_grad():
            generator = torch.Generator(self.device).manual_seed(0)
            check_randomized(task.name, task.simulator, task.randomized, dtype, self.device)
            state = self._begin(1, generator)
            observation = self.task.observe(state)
            check_tensor(f"{self._named}observe", observation, dtype, 1, "size")
            if not observation.isfinite().all():
                raise InputError(f"{self._named}what is observed at a start is not finite")
            self.observation_size = observation.shape[-1]
            self.bytes = sum(x.numel() * x.element_size() for x in (*_pytree.tree_leaves(state), observation))

    def reset(self, n: int, generator: torch.Generator | None = None) -> EnvironmentState:
        """Begin n episodes.

        Args:
            n: How many environments.
            generator: Where the random numbers come from; it must be on the device of the environment.
        """
        if not isinstance(n, int) or n < 1:
            raise InputError(f"reset: n must be a whole number of at least 1, got {n!r}")
        state = self._begin(n, generator)
        if max(self.task.observation_delay) > 0:
            repeated = self.task.observe(state)[:, None].repeat(1, max(self.task.observation_delay) + 1, 1)
            state = state.replace(hidden={**state.hidden, OBSERVATIONS: repeated})
        return state

    def step(self, state: EnvironmentState, action: torch.Tensor) -> Step:
        """Take one step; it is differentiable.

        Args:
            state: The state before.
            action: (n, nu), in [-1, 1]; what is outside counts as the nearer bound. An environment whose action is not
                finite ends its episode with reward 0.
        """
        check_tensor(f"{self._named}actions", action, self.dtype, len(state), self.action_size)
        finite = action.isfinite().all(-1)
        action = torch.where(finite[:, None], action, 0.0).clamp(-1.0, 1.0)
        actions = torch.cat([action[:, None], state.actions[:, :-1]], 1)
        simulation = self._simulate(state, self._delayed(actions, state.hidden.get("action_delay")))
        after = state.replace(simulation=simulation, steps=state.steps + 1, actions=actions)
        memory = dict(self.task.remember(state, after))
        if memory.keys() != state.memory.keys():
            names, kept = (", ".join(each) or "nothing" for each in (state.memory, memory))
            raise InputError(f"{self._named}remember must return what the start has: {names}; got {kept}")
        after = after.replace(memory=memory)
        reward = self.task.reward(state, action, after)
        failed = self.task.terminated(after)
        check_tensor(f"{self._named}reward", reward, self.dtype, len(state))
        check_tensor(f"{self._named}terminated", failed, torch.bool, len(state))
        frozen = (simulation.status != 0) | ~finite
        if OBSERVATIONS in state.hidden:
            latest = torch.cat([self.task.observe(after)[:, None], state.hidden[OBSERVATIONS][:, :-1]], 1)
            after = after.replace(hidden={**state.hidden, OBSERVATIONS: latest})
        terminated = failed | frozen
        truncated = (after.steps >= self.task.episode_steps) & ~terminated
        return Step(after, torch.where(frozen, 0.0, reward), terminated, truncated)

    def observe(self, state: EnvironmentState, generator: torch.Generator | None = None) -> torch.Tensor:
        """Return the observations, (n, size).

        Args:
            state: The state.
            generator: Where the noise of the task comes from; without it there is none.
        """
        observation = (
            self.task.observe(state)
            if OBSERVATIONS not in state.hidden
            else self._delayed(state.hidden[OBSERVATIONS], state.hidden.get("observation_delay"))
        )
        if self.task.observation_noise is not None and generator is not None:
            random = Random(generator, self.device, self.dtype)
            observation = observation + self.task.observation_noise.sample(random, *observation.shape)
        return observation

    def control(self, action: torch.Tensor) -> torch.Tensor:
        """Return the controls of the simulator for actions in [-1, 1], (..., nu)."""
        return self._offset + self._scale * action

    def _begin(self, n: int, generator: torch.Generator | None) -> EnvironmentState:
        task, random = self.task, Random(generator, self.device, self.dtype)
        start = Start(*task.start(n, random))
        for name, size in {"q": task.simulator.model.nq, "v": task.simulator.model.nv}.items():
            check_tensor(f"{self._named}{name} of start", getattr(start, name), None, n, size)
        for name, value in start.memory.items():
            if not isinstance(value, torch.Tensor) or value.shape[:1] != (n,):
                got = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
                raise InputError(f"{self._named}{name} of start must be a tensor ({n}, ...); got {got}")
        q, v = (x.to(self.device, self.dtype) for x in (start.q, start.v))
        hidden = {}
        for name, (low, high) in {
            "action_delay": task.action_delay,
            "observation_delay": task.observation_delay,
        }.items():
            if high > 0:
                hidden[name] = random.integers(low, high, n)
        if task.push is not None:
            horizontal = task.push.force.sample(random, n, 2)
            hidden["push"] = torch.cat([horizontal, horizontal.new_zeros(n, 4)], -1)
        # As `Simulator.state` without its checks of values, which would end a CUDA graph.
        carry = task.simulator.world.carry.items()
        memory = {name: q.new_zeros((n, *shape)) for name, shape in carry if name not in ("q", "v")}
        return EnvironmentState(
            SimulatorState(q, v, memory),
            torch.zeros(n, dtype=torch.int64, device=self.device),
            torch.zeros(n, max(task.action_delay) + 1, self.action_size, dtype=self.dtype, device=self.device),
            dict(start.memory),
            draw_parameters(task.simulator, task.randomized, random, n),
            hidden,
        )

    def _simulate(self, state: EnvironmentState, action: torch.Tensor) -> SimulatorState:
        simulator, count = self.task.simulator, self.task.decimation
        control, external = self.control(action), None
        if self.task.push is not None:
            push = self.task.push
            period, length = (max(1, round(time / self.task.control_dt)) for time in (push.every, push.duration))
            acts = (state.steps >= period) & (state.steps % period < length)
            external = {push.frame: torch.where(acts[:, None], state.hidden["push"], 0.0)}
        if count == 1:
            return simulator.step(state.simulation, control, state.params, external=external)
        if external is not None:
            external = {name: force.expand(count, *force.shape) for name, force in external.items()}
        controls = control.expand(count, *control.shape)
        path = simulator.rollout(state.simulation, controls, state.params, external=external, every=count)
        return path.last

    def _delayed(self, latest: torch.Tensor, delay: torch.Tensor | None) -> torch.Tensor:
        if delay is None:
            return latest[:, 0]
        return latest.gather(1, delay[:, None, None].expand(-1, 1, latest.shape[-1]))[:, 0]


def check_tensor(what: str, value: Any, dtype: torch.dtype | None, *shape: int | str) -> None:
    """Raise where a value is not a tensor of a dtype and a shape, in which the name of a size stands for any."""
    tensor = isinstance(value, torch.Tensor)
    fits = tensor and value.dim() == len(shape) and dtype in (None, value.dtype)
    if not fits or any(x != size for x, size in zip(value.shape, shape, strict=True) if isinstance(size, int)):
        got = f"{value.dtype}, {tuple(value.shape)}" if tensor else type(value).__name__
        sizes = ", ".join(map(str, shape)) + "," * (len(shape) == 1)
        raise InputError(f"{what} must be {dtype or 'a tensor'}, ({sizes}); got {got}")


def _per_actuator(task: Task, name: str, default: Sequence[float]) -> list[float]:
    count, value = len(default), getattr(task, name)
    if value is None:
        value = default
    try:
        numbers = [float(value)] * count if isinstance(value, (int, float)) else [float(x) for x in value]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != count or not all(map(math.isfinite, numbers)):
        unbounded = [a.name for a in task.simulator.model.actuators if not all(map(math.isfinite, a.control_range))]
        raise InputError(
            f"task {task.name!r}: {name} must be one finite number or {count} of them, got {value!r}"
            + (f"; these actuators have no control range: {', '.join(unbounded)}" if unbounded else "")
        )
    return numbers
