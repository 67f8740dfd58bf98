"""Environments for torchrl, with gradients through its rollouts if they are wanted."""

from typing import Any

import torch

from adjoin.extras import needed
from adjoin.rl.environment import Environment
from adjoin.rl.vector import Vector

ENDS = ("terminated", "truncated", "done")


def torchrl_env(environment: Environment, num_envs: int, gradients: bool = False) -> Any:
    """Return a `torchrl.envs.EnvBase`; it resets environments when torchrl asks for it.

    Args:
        environment: The environment.
        num_envs: How many.
        gradients: Whether rewards and observations keep their gradients.
    """
    data = needed("torchrl.data", "torchrl", "torchrl_env")
    base = needed("torchrl.envs", "torchrl", "torchrl_env").EnvBase
    tensordict = needed("tensordict", "torchrl", "torchrl_env").TensorDict
    place = {"device": environment.device}

    class AdjoinEnvBase(base):
        def __init__(self):
            super().__init__(device=environment.device, batch_size=[num_envs])
            self.vector = Vector(environment, num_envs)
            observation, action = environment.observation_size, environment.action_size
            shape = [num_envs]
            self.observation_spec = data.Composite(
                observation=data.Unbounded((num_envs, observation), **place), shape=shape
            )
            self.action_spec = data.Bounded(-1.0, 1.0, (num_envs, action), dtype=environment.dtype, **place)
            self.reward_spec = data.Unbounded((num_envs, 1), **place)
            flags = {name: data.Binary(1, (num_envs, 1), dtype=torch.bool, **place) for name in ENDS}
            self.done_spec = data.Composite(**flags, shape=shape)

        def _reset(self, tensordict_in: Any = None, **_: Any) -> Any:
            mask = None if tensordict_in is None else tensordict_in.get("_reset", None)
            observation = self.vector.reset(None if mask is None else mask.reshape(num_envs))
            return tensordict({"observation": observation}, [num_envs], **place)

        def _step(self, tensordict_in: Any) -> Any:
            with torch.set_grad_enabled(gradients and torch.is_grad_enabled()):
                state, reward, terminated, truncated = environment.step(self.vector.state, tensordict_in["action"])
                self.vector.state = state
                row = {"observation": self.vector.observe(), "reward": reward[:, None]}
            ends = zip(ENDS, (terminated, truncated, terminated | truncated), strict=True)
            return tensordict({**row, **{name: x[:, None] for name, x in ends}}, [num_envs], **place)

        def _set_seed(self, seed: int | None) -> None:
            self.vector.generator.manual_seed(seed or 0)

    return AdjoinEnvBase()
