"""Transfer to MuJoCo: a policy that was trained here acts in MuJoCo's Ant (Table 5 of Qiao et al., ICML 2021).

The policy is not tuned any further. MuJoCo steps gymnasium's ant.xml; observations, reward and the end of an episode
are computed afresh from its state. One policy is trained as MuJoCo steps, with soft contact and RK4, another with hard
contact (`PGS`). That one must not depend on the exact response of the ground, so friction, masses, torques and the
numbers of the contact differ between environments, observations are noisy, and leaps and great speed do not pay. Of its
policies at several times of the training, the best in validation episodes in MuJoCo, which are not those that are
reported, is taken.
"""

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rl_ppo import PPO

import adjoin
from adjoin.rl import Environment, EnvironmentState, Normal, Randomize, Uniform, evaluate, make_task
from adjoin.rl.tasks.locomotion import SeedAnt

PAPER = 1735.0
SOFT, HARD = "soft contact", "hard contact"
PHYSICS: dict[str, dict[str, Any]] = {
    SOFT: {"integrator": adjoin.ConstrainedRK4()},
    HARD: {"contact": adjoin.PGS()},
}
KEPT = {SOFT: (200.0,), HARD: (40.0, 80.0, 105.0)}  # seconds of training after which a policy is kept
VALIDATION = 1000  # seed of the episodes that choose among them
FOLDER = "ADJOIN_POLICIES"  # names the folder that policies are kept in: what is there is not trained again
Policy = Callable[[torch.Tensor], torch.Tensor]


class SteadyAnt(SeedAnt):
    """The ant of `SeedAnt`, which learns to run without leaps, on ground that differs between environments.

    In MuJoCo a landing throws the ant up by about 0.5 m/s more than hard contact does (of 2.9 m/s), out of the range of
    heights in which an episode goes on, or onto its back. So leaps cost, speed beyond `fastest` is worth no more, and
    an episode ends well before it would in MuJoCo.
    """

    low, high, upright = 0.3, 0.85, 0.5
    fastest = 2.0  # m/s
    leaps = 2.0  # cost of vertical speed, s²/m²
    observation_noise = Normal(0.0, 0.02)
    action_delay = (0, 1)
    randomized = (
        Randomize("geometry_friction", scale=Uniform(0.5, 1.5), shared=True),
        Randomize("mass", scale=Uniform(0.8, 1.25)),
        Randomize("armature", scale=Uniform(0.8, 1.25)),
        Randomize("damping", scale=Uniform(0.7, 1.3)),
        Randomize("actuator_gear", scale=Uniform(0.8, 1.2)),
        Randomize("contact_error_reduction", scale=Uniform(0.5, 4.0)),
        Randomize("contact_softness", add=Uniform(0.0, 0.5)),
        Randomize("contact_recovery", scale=Uniform(1.0, 20.0)),
        Randomize("contact_restitution", add=Uniform(0.0, 0.5)),
        Randomize("gravity", scale=Uniform(0.7, 1.1)),
    )

    def reward(self, before: EnvironmentState, action: torch.Tensor, after: EnvironmentState) -> torch.Tensor:
        """Return the speed along x up to the greatest one, less the costs of actions and leaps, plus 1."""
        speed = (after.q[:, 0] - before.q[:, 0]) / self.control_dt
        rise = (after.q[:, 2] - before.q[:, 2]) / self.control_dt
        return speed.clamp(max=self.fastest) - 0.5 * action.square().sum(-1) - self.leaps * rise.square() + 1.0

    def terminated(self, state: EnvironmentState) -> torch.Tensor:
        """Return where the base is too low, too high or tilted."""
        up = 1.0 - 2.0 * (state.q[:, 4].square() + state.q[:, 5].square())
        return super().terminated(state) | (up < self.upright)


def trained(
    contact: str, device: str, times: tuple[float, ...], environments: int, folder: Path | None
) -> tuple[PPO, list[dict[str, torch.Tensor]]]:
    """A run of PPO of rsl_rl, and its actors after these seconds."""
    run = PPO((SeedAnt if contact == SOFT else SteadyAnt)(**PHYSICS[contact]), environments, device)
    files = [folder / f"ant2021 {contact}.{k}.pt" for k in range(len(times))] if folder else []
    if files and all(file.is_file() for file in files):
        return run, [torch.load(file, map_location=device, weights_only=True) for file in files]
    actors: list[dict[str, torch.Tensor]] = []
    for at in run.learn(times[-1]):
        while len(actors) < len(times) and at >= times[len(actors)]:
            actors.append({name: value.clone() for name, value in run.runner.alg.actor.state_dict().items()})
    for actor, file in zip(actors, files, strict=False):
        torch.save(actor, file)
    return run, actors


def in_mujoco(policy: Policy, device: str, episodes: int = 16, seed: int = 0) -> list[float]:
    """Returns of episodes in MuJoCo."""
    mujoco: Any = importlib.import_module("mujoco")
    gymnasium: Any = importlib.import_module("gymnasium")
    file = Path(gymnasium.__file__).parent / "envs/mujoco/assets/ant.xml"
    model = mujoco.MjModel.from_xml_path(str(file))
    data, random, task = mujoco.MjData(model), np.random.default_rng(seed), make_task("ant2021")
    skip = round(task.control_dt / model.opt.timestep)
    joints = [model.joint(joint.name) for joint in task.simulator.model.joints[1:]]
    motors = [_motor(mujoco, model, actuator.joint) for actuator in task.simulator.model.actuators]
    places, speeds = [int(joint.qposadr[0]) for joint in joints], [int(joint.dofadr[0]) for joint in joints]

    def observation() -> np.ndarray:
        turn = np.zeros(9)
        mujoco.mju_quat2Mat(turn, data.qpos[3:7])
        linear = turn.reshape(3, 3).T @ data.qvel[:3]  # MuJoCo has it in the axes of the world
        velocities = np.concatenate([linear, data.qvel[3:6], data.qvel[speeds]])
        return np.concatenate([data.qpos[3:7], data.qpos[2:3], data.qpos[places], 0.05 * velocities])

    returns = []
    for _ in range(episodes):
        mujoco.mj_resetData(model, data)
        data.qpos[:7] = [0.0, 0.0, 0.75, 1.0, 0.0, 0.0, 0.0]
        data.qpos[places] = random.uniform(-0.1, 0.1, 8)
        data.qvel[:] = 0.1 * random.standard_normal(14)
        total = 0.0
        for _ in range(task.episode_steps):
            row = torch.tensor(observation(), dtype=torch.float32, device=device)[None]
            action = policy(row)[0].clamp(-1.0, 1.0).cpu().numpy()
            data.ctrl[motors] = action
            before = data.qpos[0]
            mujoco.mj_step(model, data, skip)
            total += float(data.qpos[0] - before) / task.control_dt - 0.5 * float(action @ action) + 1.0
            if not 0.2 <= data.qpos[2] <= 1.0:
                break
        returns.append(total)
    return returns


def _motor(mujoco: Any, model: Any, joint: str) -> int:
    wanted = model.joint(joint).id
    return next(k for k in range(model.nu) if model.actuator_trnid[k, 0] == wanted)


def transfer(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    folder = Path(os.environ[FOLDER]) if FOLDER in os.environ else None
    mujoco = importlib.util.find_spec("mujoco") is not None
    for contact, times in KEPT.items():
        times = tuple(0.02 * time for time in times) if quick else times
        run, actors = trained(contact, device, times, 64 if quick else 4096, folder)

        def validated(actor: dict[str, torch.Tensor], run: PPO = run) -> float:
            run.runner.alg.actor.load_state_dict(actor)
            return float(np.mean(in_mujoco(run.policy, device, 2 if quick else 8, VALIDATION)))

        actor = max(actors, key=validated) if mujoco and len(actors) > 1 else actors[-1]
        run.runner.alg.actor.load_state_dict(actor)
        here = evaluate(Environment(make_task("ant2021", **PHYSICS[contact]), device=device), run.policy, 16)
        name = f"ant2021, PPO, {contact}"
        yield {"name": f"{name}: return here", "value": here.mean().item(), "unit": ""}
        if not mujoco:
            continue
        returns = in_mujoco(run.policy, device, 2 if quick else 16)
        spread = f"{min(returns):,.0f} to {max(returns):,.0f} in {len(returns)} episodes"
        bar = {} if quick else {"at_least": PAPER}
        value = sum(returns) / len(returns)
        yield {"name": f"{name}: return in MuJoCo", "value": value, "unit": "", "note": spread, **bar}
