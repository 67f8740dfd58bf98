"""Environments for rsl-rl-lib, for its PPO."""

from typing import Any

import torch

from adjoin.extras import needed
from adjoin.rl.environment import Environment
from adjoin.rl.vector import Vector


def rsl_rl_env(environment: Environment, num_envs: int, generator: torch.Generator | None = None) -> Any:
    """Return an `rsl_rl.env.VecEnv` whose observations have one group, "policy"."""
    base = needed("rsl_rl.env", "rslrl", "rsl_rl_env").VecEnv
    tensordict = needed("tensordict", "rslrl", "rsl_rl_env").TensorDict

    class AdjoinVecEnv(base):
        def __init__(self):
            self.num_envs, self.num_actions, self.device = num_envs, environment.action_size, environment.device
            self.max_episode_length, self.cfg = environment.task.episode_steps, {"task": environment.task.name}
            self.vector = Vector(environment, num_envs, generator, graph=True)
            self._observation = self.vector.observe()

        @property
        def episode_length_buf(self) -> torch.Tensor:
            return self.vector.state.steps

        @episode_length_buf.setter
        def episode_length_buf(self, steps: torch.Tensor) -> None:
            self.vector.state = self.vector.state.replace(steps=steps)

        def get_observations(self) -> Any:
            return tensordict({"policy": self._observation}, [num_envs])

        @torch.no_grad()
        def step(self, actions: torch.Tensor) -> Any:
            step = self.vector.step(actions)
            self._observation = step.observation
            return self.get_observations(), step.reward, step.done.long(), {"time_outs": step.truncated}

    return AdjoinVecEnv()
