"""Environments for gymnasium: `gymnasium.make_vec("adjoin/ant-v0")`, after `register_gymnasium`."""

from typing import Any

import numpy as np
import torch

from adjoin.errors import InputError, unknown_name
from adjoin.extras import needed
from adjoin.rl.adapters.boxes import boxes
from adjoin.rl.environment import Environment
from adjoin.rl.task import TASKS, make_task
from adjoin.rl.vector import Vector


def gymnasium_vector(environment: Environment, num_envs: int = 1, autoreset: str = "SameStep") -> Any:
    """Return a `gymnasium.vector.VectorEnv` with arrays of numpy.

    Args:
        environment: The environment.
        num_envs: How many.
        autoreset: "SameStep": a step resets what ends in it, and `info["final_obs"]` has what was seen before.
            "NextStep": the step after does, and its action does not count.
    """
    vector = needed("gymnasium", "gymnasium", "gymnasium_vector").vector
    modes = [mode.value for mode in (vector.AutoresetMode.SAME_STEP, vector.AutoresetMode.NEXT_STEP)]
    if autoreset not in modes:
        raise InputError(unknown_name("autoreset", "modes", autoreset, modes))

    class AdjoinVectorEnv(vector.VectorEnv):
        def __init__(self):
            self.num_envs, self.autoreset = num_envs, vector.AutoresetMode(autoreset)
            self.metadata = {"autoreset_mode": self.autoreset, "render_modes": []}
            self.single_observation_space, self.single_action_space = boxes(environment)
            spaces = (self.single_observation_space, self.single_action_space)
            self.observation_space, self.action_space = (vector.utils.batch_space(x, num_envs) for x in spaces)
            self.vector = Vector(environment, num_envs, graph=True)
            self._ended = torch.zeros(num_envs, dtype=torch.bool, device=environment.device)

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            super().reset(seed=seed)
            if seed is not None:
                self.vector.generator.manual_seed(seed)
            self._ended.zero_()
            return array(self.vector.reset()), {}

        @torch.no_grad()
        def step(self, actions: Any) -> Any:
            action = torch.as_tensor(np.asarray(actions), dtype=environment.dtype, device=environment.device)
            if self.autoreset is vector.AutoresetMode.SAME_STEP:
                observation, *rest, final = map(array, self.vector.step(action))
                ended = rest[1] | rest[2]
                return observation, *rest, {"final_obs": final, "_final_obs": ended} if ended.any() else {}
            state, reward, terminated, truncated = environment.step(self.vector.state, action)
            fresh, ended = environment.reset(num_envs, self.vector.generator), self._ended
            self.vector.state = fresh.where(ended, state)
            terminated, truncated = terminated & ~ended, truncated & ~ended
            self._ended = terminated | truncated
            row = (self.vector.observe(), torch.where(ended, 0.0, reward), terminated, truncated)
            return *map(array, row), {}

    return AdjoinVectorEnv()


def gymnasium_env(environment: Environment) -> Any:
    """Return a `gymnasium.Env`: one environment, which its user resets."""
    gymnasium = needed("gymnasium", "gymnasium", "gymnasium_env")

    class AdjoinEnv(gymnasium.Env):
        def __init__(self):
            self.metadata = {"render_modes": []}
            self.observation_space, self.action_space = boxes(environment)
            self.vector = Vector(environment, 1)

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            super().reset(seed=seed)
            if seed is not None:
                self.vector.generator.manual_seed(seed)
            return array(self.vector.reset())[0], {}

        @torch.no_grad()
        def step(self, action: Any) -> Any:
            row = torch.as_tensor(np.asarray(action), dtype=environment.dtype, device=environment.device)[None]
            self.vector.state, reward, terminated, truncated = environment.step(self.vector.state, row)
            return array(self.vector.observe())[0], reward.item(), bool(terminated), bool(truncated), {}

    return AdjoinEnv()


def register_gymnasium() -> list[str]:
    """Register all tasks with gymnasium as "adjoin/<task>-v0", and return these names."""
    gymnasium = needed("gymnasium", "gymnasium", "register_gymnasium")
    import adjoin.rl.tasks  # noqa: F401 they register themselves

    def single(task: str, **options: Any) -> Any:
        options.pop("render_mode", None)
        return gymnasium_env(Environment(make_task(task, **options)))

    def many(task: str, num_envs: int, autoreset: str = "SameStep", device: str = "cpu", **options: Any) -> Any:
        options.pop("render_mode", None)
        return gymnasium_vector(Environment(make_task(task, **options), device=device), num_envs, autoreset)

    names = {f"adjoin/{task}-v0": task for task in TASKS}
    for name, task in names.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, single, vector_entry_point=many, kwargs={"task": task})
    return list(names)


def array(x: torch.Tensor) -> np.ndarray:
    """Return a tensor as an array of numpy, in single precision."""
    x = x.detach().cpu()
    return (x.float() if x.is_floating_point() else x).numpy()
