"""A G1 that lies down on its back and gets up again: the table of its postures, and how they were found.

Servos follow the postures, smoothly from one to the next. Nothing is measured.

- "sit" and "crouch" are two of 1,280 random postures, simulated hundreds at once for two seconds, of those that kept
  still; "feet out", "slide" and "feet in" are between and beside them. None of these has to be passed in haste.
- "squat", "lower" and "bend" are by CMA-ES, from postures in which the center of mass is above the feet: the way up had
  to end well from six states, on six floors.
- "curl", "push" and "lean", with which it sits up, are by `search`, from a crude guess.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

import adjoin
from adjoin.control import CMAES, Objective, Variables, optimize

JOINTS = ("hip_pitch", "hip_roll", "hip_yaw", "knee", "ankle_pitch", "ankle_roll")
JOINTS += ("waist_pitch", "shoulder_pitch", "shoulder_roll", "shoulder_yaw", "elbow")
POSTURES = {  # rad, both sides alike
    "stand": (-0.08, 0.0, 0.0, 0.2, -0.13, 0.0, 0.0, 0.0, 0.2, 0.0, 0.9),
    "bend": (-0.83, 0.01, 0.11, 1.33, -0.54, -0.16, 0.32, -1.4, 0.35, 0.0, 0.9),
    "lower": (-1.45, 0.11, 0.07, 2.33, -0.86, -0.21, 0.29, -1.66, 0.35, 0.0, 0.9),
    "squat": (-1.91, 0.61, 0.23, 2.87, -0.87, -0.26, 0.34, -1.55, 0.5, 0.0, 0.9),
    "crouch": (-2.51, 0.83, 0.22, 2.81, -0.59, 0.0, 0.34, -1.18, 0.74, 0.0, 0.89),
    "feet in": (-2.45, 0.9, 0.1, 2.81, -0.2, 0.0, 0.34, -1.3, 0.6, 0.0, 1.0),
    "slide": (-2.33, 0.74, 0.32, 2.18, -0.28, 0.0, 0.32, -1.34, 0.55, 0.0, 0.93),
    "sit": (-2.2, 0.59, 0.53, 1.54, -0.36, 0.0, 0.31, -1.39, 0.5, 0.0, 0.86),
    "feet out": (-2.1, 0.3, 0.2, 0.5, 0.0, 0.0, 0.5, -1.2, 0.5, 0.0, 1.0),
    "lie": (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.45, 0.0, 1.2),
    "curl": (-0.59, 0.59, 0.53, 0.72, -0.87, 0.0, 0.52, 0.89, 0.34, 0.0, 0.72),
    "push": (-1.08, 0.59, 0.53, 0.74, -0.87, 0.0, 0.52, 0.52, 0.43, 0.0, 0.7),
    "lean": (-1.47, 0.59, 0.53, 0.9, -0.87, 0.0, 0.32, -0.7, 0.67, 0.0, 0.76),
}
DOWN = ((0.0, "stand"), (0.5, "stand"), (1.5, "bend"), (2.3, "lower"), (3.1, "squat"), (3.9, "crouch"))
DOWN += ((4.7, "feet in"), (5.4, "slide"), (6.1, "sit"), (6.9, "feet out"), (10.4, "lie"), (12.4, "lie"))
SIT_UP = ((13.2, "curl"), (13.6, "push"), (14.4, "lean"), (15.2, "sit"))
RISE = ((16.1, "slide"), (16.8, "feet in"), (17.6, "crouch"), (18.1, "crouch"))
RISE += ((19.0, "squat"), (19.7, "lower"), (20.6, "bend"), (22.1, "stand"), (25.1, "stand"))
SCRIPT = DOWN + SIT_UP + RISE
HEAD = torch.tensor([0.0, 0.0, 0.4, 1.0], dtype=torch.float64)  # m, its middle in the frame of the torso


def robot() -> adjoin.Model:
    """The G1 with position servos, stiffer ones in legs and waist; the file's effort limits bound them."""
    g1 = adjoin.robots.load("g1")
    stiff = [any(part in drive.name for part in ("hip", "knee", "ankle", "waist")) for drive in g1.actuators]
    return g1.with_servos([500.0 if x else 100.0 for x in stiff], [20.0 if x else 3.0 for x in stiff])


def targets(model: adjoin.Model, times: torch.Tensor, postures: torch.Tensor, dt: float) -> torch.Tensor:
    """The controls (steps, ..., nu) from one posture (..., k, 11) to the next, at the times (..., k)."""
    both = torch.zeros(len(JOINTS), model.nu, dtype=postures.dtype)
    for k, drive in enumerate(model.actuators):
        side, joint = drive.name.split("_", 1) if drive.name.startswith(("left", "right")) else ("", drive.name)
        mirrored = side == "right" and ("roll" in joint or "yaw" in joint)
        for row, name in enumerate(JOINTS):
            both[row, k] = (joint == f"{name}_joint") * (-1.0 if mirrored else 1.0)
    clock = dt * torch.arange(round(float(times.max()) / dt), dtype=times.dtype).view(-1, *[1] * times.dim())
    part = ((clock - times[..., :-1]) / (times[..., 1:] - times[..., :-1])).clamp(0.0, 1.0)
    smooth = 0.5 - 0.5 * torch.cos(math.pi * part)
    return (postures[..., 0, :] + torch.einsum("s...k,...kj->s...j", smooth, postures.diff(dim=-2))) @ both


def table(script: Sequence[tuple[float, str]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Times and postures of a script."""
    return torch.tensor([t for t, _ in script]).double(), torch.tensor([POSTURES[name] for _, name in script]).double()


def perform(sim: adjoin.Simulator, controls: torch.Tensor) -> Iterator[adjoin.Trajectory]:
    """Simulate from standing, a second at a time, with all contacts."""
    q = sim.model.neutral(dtype=controls.dtype)
    q[2], q[7:] = 1.0, controls[0]
    state = sim.drop(q)
    for second in controls.split(round(1.0 / sim.dt)):
        path = sim.rollout(state, second, outputs=["contacts"])
        state = path.last
        yield path


def search(
    sim: adjoin.Simulator, lying: adjoin.SimulatorState, iterations: int = 80
) -> tuple[torch.Tensor, torch.Tensor]:
    """Find how to sit up from lying: times (5,) and postures (5, 11), of which the first and the last are given.

    One motion has to do on four floors, with an upper body that is lighter and heavier than it should be.
    """
    lie, sit = (torch.tensor(POSTURES[name]).double() for name in ("lie", "sit"))
    guess = sit.repeat(3, 1)
    guess[:, 3], guess[:, 7] = torch.tensor([0.3, 0.9, 1.2]), torch.tensor([0.8, 0.8, 0.0])
    joints = {joint.name.removeprefix("left_"): joint for joint in sim.model.joints}
    low, high = (
        torch.tensor([getattr(joints[f"{name}_joint"], side) for name in JOINTS]) for side in ("lower", "upper")
    )
    free = [0, 3, 4, 6, 7, 8, 10]  # the others stay as they are when it sits

    def decode(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        between = guess.repeat(len(values), 1, 1)
        between[:, :, free] += 0.3 * values[:, :21].unflatten(1, (3, 7))
        between = torch.minimum(torch.maximum(between, low), high)
        postures = torch.cat([lie.expand(len(values), 1, -1), between, sit.expand(len(values), 1, -1)], 1)
        pauses = (0.5 + 0.1 * values[:, 21:]).clamp(0.3, 0.8)
        return torch.nn.functional.pad(pauses.cumsum(1), (1, 0)), postures

    def inputs(values: torch.Tensor) -> dict[str, Any]:
        times, postures = decode(values.double())
        until = torch.full((len(values), 1), 3.5).double()
        held = torch.cat([postures, postures[:, -1:]], 1)
        return {"controls": targets(sim.model, torch.cat([times, until], 1), held, sim.dt).to(values)}

    def away(path: adjoin.Trajectory, given: Any) -> torch.Tensor:
        """How far it is from sitting still in the last half second, and a little of how fast it moves."""
        late = path.q[-10:]
        joints = (late[..., 7:] - given.controls[-1]).square().mean((0, 2))
        low = 1.0 - (adjoin.forward_kinematics(sim.model, late, "torso_link") @ HEAD.to(late))[..., 2] / 0.58
        still = path.v[-10:].square().mean((0, 2))
        return 3.0 * (joints + low.square().mean(0)) + 0.3 * still + 0.05 * path.v.square().mean((0, 2))

    params = {name: sim.model.parameters((4,))[name] for name in ("geometry_friction", "mass")}
    params["geometry_friction"][..., 0] *= torch.tensor([[0.5], [0.7], [0.9], [1.1]])
    upper = [body.name.startswith(("waist", "torso", "left_sh", "right_sh")) for body in sim.model.bodies]
    params["mass"] *= torch.where(torch.tensor(upper), torch.tensor([[1.15], [0.9], [1.08], [1.0]]), 1.0)
    start = sim.state(lying.q.float().expand(4, -1))
    variables = Variables(torch.zeros(25), inputs, (-8.0, 8.0), spread=1.0)
    objective = Objective(sim, start, round(3.5 / sim.dt), loss=away, variables=variables, params=params, every=50)
    found = optimize(objective, CMAES(sigma=0.5, population=24), starts=1, iterations=iterations, progress=True)
    times, postures = decode(found.best[None].double())
    return times[0], postures[0]


def measured(sim: adjoin.Simulator, path: adjoin.Trajectory) -> dict[str, torch.Tensor]:
    """What happens in each step: (steps,) each."""
    torso = adjoin.forward_kinematics(sim.model, path.q[1:], "torso_link")
    contacts = path.outputs["contacts"]
    feet = torch.tensor(["ankle_roll" in a and b == "ground" for a, b in sim.contact_names])
    touching = (contacts.pair >= 0) & (contacts.force != 0.0).any(-1)
    return {
        "head": (torso @ HEAD)[:, 2],  # m
        "pelvis": path.q[1:, 2],  # m
        "chest": torso[:, 2, 0],  # 1 where it faces up
        "upright": torso[:, 2, 2],
        "speed": path.v[1:].abs().amax(-1),  # of any coordinate, m/s or rad/s
        "depth": torch.where(contacts.pair >= 0, -contacts.distance, 0.0).amax(-1),  # m, of overlaps
        "other contacts": (touching & ~feet[contacts.pair.long()]).sum(-1),  # than of feet with the ground
    }
