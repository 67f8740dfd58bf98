"""A holder of the state of many environments, which resets those that end."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.utils import _pytree

from adjoin.errors import InputError
from adjoin.rl.capture import Captured
from adjoin.rl.environment import Environment, EnvironmentState, check_tensor
from adjoin.rl.memory import check_memory


class Transition(NamedTuple):
    """What a step of a `Vector` returns.

    Attributes:
        observation: What to act on next, (n, size): of the new episode where one began.
        reward: (n,).
        terminated: Which episodes ended for good, (n,) booleans.
        truncated: Which ones ended because their time was over, (n,) booleans.
        final_observation: The observations before any reset, (n, size): where an episode goes on, the same as
            `observation`.
    """

    observation: torch.Tensor
    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    final_observation: torch.Tensor

    @property
    def done(self) -> torch.Tensor:
        """Return which episodes ended, (n,) booleans."""
        return self.terminated | self.truncated


class Vector:
    """Keeps the state of n environments, and resets in the same step those that end.

    Gradients pass from step to step until `detach` cuts them; a reset cuts those of its environment.

    Args:
        environment: The environment.
        n: How many.
        generator: Where all random numbers come from: resets and noise.
        graph: Whether a step under `torch.no_grad()` is one CUDA graph, on GPUs. It writes over the tensors of `state`.

    Attributes:
        state: The state of all; assign to it to continue elsewhere.
    """

    def __init__(self, environment: Environment, n: int, generator: torch.Generator | None = None, graph: bool = False):
        if not isinstance(n, int) or n < 1:
            raise InputError(f"Vector: n must be a whole number of at least 1, got {n!r}")
        check_memory(environment.task.name, n, 4 * environment.bytes, environment.device, "n")
        self.environment, self.n = environment, n
        self.generator = generator or torch.Generator(environment.device).manual_seed(0)
        self.state: EnvironmentState = environment.reset(n, self.generator)
        self._graph: _StepGraph | None = None
        self._graphed = graph and environment.device.type == "cuda"

    def reset(self, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Begin all episodes anew, or those of a mask (n,), and return the observations, (n, size)."""
        if mask is not None:
            check_tensor("Vector: the mask of reset", mask, torch.bool, self.n)
        fresh = self.environment.reset(self.n, self.generator)
        self.state = fresh if mask is None else fresh.where(mask, self.state)
        return self.observe()

    def observe(self) -> torch.Tensor:
        """Return the observations, (n, size), with the noise of the task."""
        return self.environment.observe(self.state, self.generator)

    def step(self, action: torch.Tensor) -> Transition:
        """Take one step with actions (n, nu) in [-1, 1]."""
        if not self._graphed or torch.is_grad_enabled() or torch.cuda.is_current_stream_capturing():
            return self._step(action)
        if self._graph is None:
            self._graph = _StepGraph(self, action)
        return self._graph(action)

    def _step(self, action: torch.Tensor) -> Transition:
        state, reward, terminated, truncated = self.environment.step(self.state, action)
        final = self.environment.observe(state, self.generator)
        done = terminated | truncated
        fresh = self.environment.reset(self.n, self.generator)
        self.state = fresh.where(done, state)
        first = self.environment.observe(fresh, self.generator)
        observation = torch.where(done[:, None], first, final)
        return Transition(observation, reward, terminated, truncated, final)

    def scatter_starts(self) -> None:
        """Let the episodes be at different times, so that they do not all end at once."""
        last = self.environment.task.episode_steps
        steps = torch.randint(last, (self.n,), generator=self.generator, device=self.environment.device)
        self.state = self.state.replace(steps=steps)

    def detach(self) -> None:
        """Cut the graph of gradients at the present state."""
        self.state = self.state.detach()

    def tensors(self) -> list[torch.Tensor]:
        """Return all tensors of the state, in a fixed order."""
        return _pytree.tree_leaves(self.state)

    @torch.no_grad()
    def store(self, tensors: Sequence[torch.Tensor]) -> None:
        """Cut the graph of gradients, and write the present state into tensors, which hold it from now on.

        Args:
            tensors: What `tensors` returned before; a CUDA graph reads and writes the same ones each time.
        """
        for old, new in zip(tensors, self.tensors(), strict=True):
            if old is not new:
                old.copy_(new)
        self.state = _pytree.tree_unflatten(list(tensors), _pytree.tree_structure(self.state))


class _StepGraph:
    """The step of a vector as a CUDA graph, which reads and writes the same tensors each time."""

    def __init__(self, vector: Vector, action: torch.Tensor):
        self._vector = vector
        self._action = action.clone()
        self._held = [x.clone() for x in vector.tensors()]
        device, generators = vector.environment.device, [vector.generator]
        self._replay = Captured(self._step, device, generators, lambda: self._held)

    def __call__(self, action: torch.Tensor) -> Transition:
        if action.shape != self._action.shape:
            return self._vector._step(action)  # for its error
        self._vector.store(self._held)
        self._action.copy_(action)
        return Transition(*[x.clone() for x in self._replay()])

    def _step(self) -> Transition:
        self._vector.store(self._held)
        transition = self._vector._step(self._action)
        self._vector.store(self._held)
        return transition
