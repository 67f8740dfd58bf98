"""Transfer to MuJoCo: a policy that was trained here acts in MuJoCo's Ant (Table 5 of Qiao et al., ICML 2021).

The policy is not tuned any further. MuJoCo steps gymnasium's ant.xml; observations, reward and the end of an episode
are computed afresh from its state. One policy is trained as MuJoCo steps, with soft contact and RK4, another with hard
contact (`PGS`), where friction, masses and torques differ between environments, and observations are noisy.
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
from adjoin.rl import Normal, Randomize, Uniform, evaluate, make_task

PAPER = 1735.0
CONTACTS: dict[str, dict[str, Any]] = {
    "soft contact": {"integrator": adjoin.ConstrainedRK4()},
    "hard contact": {"contact": adjoin.PGS(adjoint=adjoin.ImplicitAdjoint())},
}
RANDOMIZED = (  # ground that is harder than MuJoCo's: a policy must not live on its exact response
    Randomize("friction", scale=Uniform(0.5, 1.5), shared=True),
    Randomize("mass", scale=Uniform(0.8, 1.25)),
    Randomize("actuator_gear", scale=Uniform(0.8, 1.2)),
    Randomize("contact_error_reduction", scale=Uniform(0.3, 1.5)),
    Randomize("contact_softness", add=Uniform(0.0, 0.3)),
    Randomize("contact_recovery", scale=Uniform(1.0, 20.0)),
    Randomize("contact_restitution", add=Uniform(0.0, 0.3)),
)
FOLDER = "ADJOIN_POLICIES"  # names the folder that policies are kept in: what is there is not trained again
Policy = Callable[[torch.Tensor], torch.Tensor]


def trained(contact: str, device: str, seconds: float, environments: int, folder: Path | None) -> tuple[Policy, float]:
    """A policy by PPO of rsl_rl, and its return here."""
    task = make_task("ant2021", **CONTACTS[contact])
    if contact == "hard contact":
        task.randomized, task.observation_noise, task.action_delay = RANDOMIZED, Normal(0.0, 0.02), (0, 1)
    run = PPO(task, environments, device)
    file = folder / f"ant2021 {contact}.pt" if folder else None
    if file and file.is_file():
        run.runner.alg.actor.load_state_dict(torch.load(file, map_location=device, weights_only=True))
    else:
        for _ in run.learn(seconds):
            pass
        if file:
            torch.save(run.runner.alg.actor.state_dict(), file)
    return run.policy, evaluate(run.environment, run.policy, 16).mean().item()


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
    for contact in CONTACTS:
        policy, here = trained(contact, device, 5.0 if quick else 150.0, 64 if quick else 4096, folder)
        name = f"ant2021, PPO, {contact}"
        yield {"name": f"{name}: return here", "value": here, "unit": ""}
        if importlib.util.find_spec("mujoco") is None:
            continue
        returns = in_mujoco(policy, device, 2 if quick else 16)
        spread = f"{min(returns):,.0f} to {max(returns):,.0f} in {len(returns)} episodes"
        bar = {} if quick else {"at_least": PAPER}
        value = sum(returns) / len(returns)
        yield {"name": f"{name}: return in MuJoCo", "value": value, "unit": "", "note": spread, **bar}
