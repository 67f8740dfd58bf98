"""Environments for skrl."""

from typing import Any

import torch

from adjoin.extras import needed
from adjoin.rl.adapters.boxes import boxes
from adjoin.rl.environment import Environment
from adjoin.rl.vector import Vector


def skrl_env(environment: Environment, num_envs: int, generator: torch.Generator | None = None) -> Any:
    """Return a wrapped environment of skrl, with tensors of torch."""
    base = needed("skrl.envs.wrappers.torch.base", "skrl", "skrl_env").Wrapper
    vector = Vector(environment, num_envs, generator, graph=True)

    class AdjoinWrapper(base):
        observation_space, action_space = boxes(environment)
        state_space, num_envs, device = None, vector.n, environment.device

        def reset(self) -> Any:
            return vector.observe(), {}

        @torch.no_grad()
        def step(self, actions: torch.Tensor) -> Any:
            step = vector.step(actions)
            columns = (x[:, None] for x in (step.reward, step.terminated, step.truncated))
            return step.observation, *columns, {"final_observation": step.final_observation}

        def state(self) -> None:
            return None

        def render(self, *args: Any, **kwargs: Any) -> None:
            return None

        def close(self) -> None:
            return None

    return AdjoinWrapper(vector)
