"""Reinforcement learning: environments, tasks, learners that use gradients, and adapters to other packages."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adjoin.rl.adapters.gymnasium import gymnasium_env, gymnasium_vector, register_gymnasium
    from adjoin.rl.adapters.rsl_rl import rsl_rl_env
    from adjoin.rl.adapters.skrl import skrl_env
    from adjoin.rl.adapters.stable_baselines3 import stable_baselines3_env
    from adjoin.rl.adapters.torchrl import torchrl_env
    from adjoin.rl.checkpoint import load_checkpoint, save_checkpoint
    from adjoin.rl.environment import Environment, EnvironmentState, Step
    from adjoin.rl.episodes import evaluate
    from adjoin.rl.gradients import clip_between_steps, diagnose
    from adjoin.rl.learner import Learner, register_learner
    from adjoin.rl.learners.apg import APG
    from adjoin.rl.learners.enhancement import PolicyEnhancement, SampleEnhancement
    from adjoin.rl.learners.mbpo import MBPO
    from adjoin.rl.learners.sapo import SAPO
    from adjoin.rl.learners.shac import SHAC
    from adjoin.rl.random import LogUniform, Normal, Random, Randomize, Uniform
    from adjoin.rl.task import Push, Start, Task, make_task, register_task
    from adjoin.rl.traced_policy import TracedPolicy
    from adjoin.rl.training import Run, train
    from adjoin.rl.vector import Transition, Vector

# Imported when first used, so that the command line starts without torch.
_MODULES = {
    "adapters.gymnasium": ("gymnasium_env", "gymnasium_vector", "register_gymnasium"),
    "adapters.rsl_rl": ("rsl_rl_env",),
    "adapters.skrl": ("skrl_env",),
    "adapters.stable_baselines3": ("stable_baselines3_env",),
    "adapters.torchrl": ("torchrl_env",),
    "checkpoint": ("load_checkpoint", "save_checkpoint"),
    "environment": ("Environment", "EnvironmentState", "Step"),
    "episodes": ("evaluate",),
    "gradients": ("clip_between_steps", "diagnose"),
    "learner": ("Learner", "register_learner"),
    "learners.apg": ("APG",),
    "learners.enhancement": ("PolicyEnhancement", "SampleEnhancement"),
    "learners.mbpo": ("MBPO",),
    "learners.sapo": ("SAPO",),
    "learners.shac": ("SHAC",),
    "random": ("LogUniform", "Normal", "Random", "Randomize", "Uniform"),
    "task": ("Push", "Start", "Task", "make_task", "register_task"),
    "traced_policy": ("TracedPolicy",),
    "training": ("Run", "train"),
    "vector": ("Transition", "Vector"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "APG",
    "MBPO",
    "SAPO",
    "SHAC",
    "Environment",
    "EnvironmentState",
    "Learner",
    "LogUniform",
    "Normal",
    "PolicyEnhancement",
    "Push",
    "Random",
    "Randomize",
    "Run",
    "SampleEnhancement",
    "Start",
    "Step",
    "Task",
    "TracedPolicy",
    "Transition",
    "Uniform",
    "Vector",
    "clip_between_steps",
    "diagnose",
    "evaluate",
    "gymnasium_env",
    "gymnasium_vector",
    "load_checkpoint",
    "make_task",
    "register_gymnasium",
    "register_learner",
    "register_task",
    "rsl_rl_env",
    "save_checkpoint",
    "skrl_env",
    "stable_baselines3_env",
    "torchrl_env",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"adjoin.rl.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
