"""PPO of rsl_rl: the Go2 on random terrain, and the tasks that SHAC learns, as a control."""

import contextlib
import io
import os
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from rl_learning import SETTINGS

import adjoin
from adjoin.rl import Environment, make_task
from adjoin.rl.adapters.rsl_rl import rsl_rl_env

KEEP = "ADJOIN_GO2"  # names the file that takes the coordinates of four robots that walk, and their terrain
SECONDS = "ADJOIN_PPO_SECONDS"  # how long PPO trains on each of the tasks that SHAC learns
STEPS = 24  # of each environment in an iteration
WALKS = 0.25  # m/s: the greatest error of the velocity, in the mean, of a robot that walks on command


class PPO:
    """A run of rsl_rl's PPO on a task.

    Args:
        task: Its name and options.
        environments: How many.
        device: Where it runs.
        hidden: Neurons of the layers of actor and critic.
    """

    def __init__(self, task: Any, environments: int, device: str, hidden: tuple[int, ...] = (256, 128, 64)):
        from rsl_rl.runners import OnPolicyRunner

        self.environment = Environment(task, device=torch.device(device))
        self.env = rsl_rl_env(self.environment, environments)
        network = {"class_name": "MLPModel", "hidden_dims": list(hidden), "activation": "elu"}
        network["obs_normalization"] = True
        config = {
            "num_steps_per_env": STEPS,
            "save_interval": 10**9,
            "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
            "actor": {**network, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0}},
            "critic": network,
            "algorithm": {"class_name": "PPO", "entropy_coef": 0.005},
            "logger": "tensorboard",
        }
        self.device, self.iterations, self.seconds = device, 0, 0.0
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.runner = OnPolicyRunner(self.env, config, None, device)

    def learn(self, seconds: float, at_a_time: int = 20) -> Iterator[float]:
        """Train, and give the time after some iterations, the compilation left out."""
        first = True
        while self.seconds < seconds:
            start = time.perf_counter()
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.runner.learn(1 if first else at_a_time, init_at_random_ep_len=first)
            if self.device == "cuda":
                torch.cuda.synchronize()
            if not first:
                self.iterations += at_a_time
                self.seconds += time.perf_counter() - start
                yield self.seconds
            first = False

    def policy(self, observation: torch.Tensor) -> torch.Tensor:
        """The actions without noise."""
        from tensordict import TensorDict

        with torch.no_grad():
            return self.runner.alg.actor(TensorDict({"policy": observation}, [len(observation)]))


def tracking(run: PPO, n: int, seconds: float = 10.0) -> tuple[float, float, list[torch.Tensor], torch.Tensor]:
    """Let robots walk by the policy, each after its command.

    Returns:
        The mean error of the velocity of those that stay on their feet, their share, and coordinates and terrain of the
        first four.
    """
    environment = run.environment
    task = environment.task
    state = environment.reset(n, torch.Generator(environment.device).manual_seed(1))
    alive = torch.ones(n, dtype=torch.bool, device=environment.device)
    errors, states = [], []
    with torch.no_grad():
        for k in range(int(seconds / task.control_dt)):
            state, _, terminated, _ = environment.step(state, run.policy(environment.observe(state)))
            alive &= ~terminated
            states.append(state.q[:4].clone())
            if k * task.control_dt > 1.0:  # it begins at rest
                off = state.v[:, :2] - state.memory["command"][:, :2]
                errors.append(torch.where(alive, off.norm(dim=-1), 0.0))
    error = float(torch.stack(errors).mean(0)[alive].mean())
    return error, float(alive.float().mean()), states, state.params["terrain"][:4]


def go2(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    """Walk on command, on random terrain."""
    n, limit = (64, 5.0) if quick else (4096, 300.0)
    run = PPO(make_task("go2", roughness=0.08), n, device)
    curve: list[list[float]] = []
    walked = None
    for at in run.learn(limit, 2 if quick else 50):
        error, alive, *_ = tracking(run, 16 if quick else 256, 3.0)
        curve.append([round(at, 1), round(error, 4), round(alive, 4)])
        if walked is None and error < WALKS and alive > 0.9:
            walked = at
    error, alive, states, terrain = tracking(run, 16 if quick else 1024)
    bar: dict[str, Any] = {} if quick else {"at_most": 300.0}
    note = f"{run.iterations} iterations of {n} robots in {run.seconds:.0f} s; stay on their feet: {alive:.3f}"
    yield {"name": "go2 on terrain: error of the velocity", "value": error, "unit": "m/s", "note": note}
    if walked is not None:
        yield {"name": "go2 on terrain: walks after", "value": walked, "unit": "s", **bar}
    yield {"table": {"seconds, error of the velocity, share on their feet": curve}}
    if KEEP in os.environ:
        torch.save({"q": torch.stack(states), "terrain": terrain}, os.environ[KEEP])


def ppo_ant(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    """The ant alone by PPO."""
    yield from ppo(quick, device, ["ant"])


def ppo(quick: bool, device: str, tasks: Iterable[str] = SETTINGS) -> Iterator[dict[str, Any]]:
    """The tasks of SHAC by PPO."""
    curves: dict[str, list[list[float]]] = {}
    limit = 5.0 if quick else float(os.environ.get(SECONDS, "180"))
    for name in ("ant",) if quick else tasks:
        run = PPO(make_task(name), 64 if quick else 4096, device, (128, 64, 32))
        best, curve = float("-inf"), curves.setdefault(f"{name}: seconds, return", [])
        for at in run.learn(limit, 2 if quick else 50):
            returns = adjoin.rl.evaluate(run.environment, run.policy, n=64).mean().item()
            best = max(best, returns)
            curve.append([round(at, 1), round(returns, 1)])
        yield {
            "name": f"{name}, PPO of rsl_rl: best return",
            "value": best,
            "unit": "",
            "note": f"{run.iterations} iterations in {run.seconds:.0f} s",
        }
    yield {"table": curves}
