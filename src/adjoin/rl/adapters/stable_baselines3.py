"""Environments for stable-baselines3."""

from typing import Any

import numpy as np
import torch

from adjoin.extras import needed
from adjoin.rl.adapters.boxes import boxes
from adjoin.rl.adapters.gymnasium import array
from adjoin.rl.environment import Environment
from adjoin.rl.vector import Vector


def stable_baselines3_env(environment: Environment, num_envs: int, generator: torch.Generator | None = None) -> Any:
    """Return a `VecEnv` of stable-baselines3, with arrays of numpy."""
    base = needed("stable_baselines3.common.vec_env", "sb3", "stable_baselines3_env").VecEnv
    vector = Vector(environment, num_envs, generator, graph=True)

    class AdjoinVecEnv(base):
        render_mode = None

        def reset(self) -> np.ndarray:
            return array(vector.reset())

        def step_async(self, actions: np.ndarray) -> None:
            self._action = torch.as_tensor(actions, dtype=environment.dtype, device=environment.device)

        @torch.no_grad()
        def step_wait(self) -> Any:
            observation, reward, terminated, truncated, final = map(array, vector.step(self._action))
            infos: list[dict[str, Any]] = [{} for _ in range(num_envs)]
            for k in np.flatnonzero(terminated | truncated):
                infos[k] = {"terminal_observation": final[k], "TimeLimit.truncated": bool(truncated[k])}
            return observation, reward, terminated | truncated, infos

        def close(self) -> None:
            return None

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [getattr(self, attr_name)] * num_envs

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            setattr(self, attr_name, value)

        def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
            return [getattr(self, method_name)(*args, **kwargs)] * num_envs

        def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
            return [False] * num_envs

    return AdjoinVecEnv(num_envs, *boxes(environment))
