"""Co-design: the lengths of an arm's links and the gains of its servos, found together with its motion.

An arm of two rods hangs down. Within a second it must bring a load to a target and rest there, with little torque on
the way. What is decided: where the servos should go, as a spline; their gains; and how long each rod is. A longer rod
is heavier: mass, center of mass and inertia follow from the length, by torch operations. The search runs three times,
each time with more to decide. One learns: motions, gains and designs are decided in one objective.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from matplotlib import colormaps
from matplotlib.figure import Figure

import adjoin
from adjoin import trace as at
from adjoin.control import LBFGS, Objective, OptimizeResult, Spline, Variables, optimize

DT, STEPS, RADIUS = 0.01, 100, 0.02
DENSITY, LOAD = 1.5, 1.0  # kg/m of a rod; kg at the tip
TARGET = (0.7, 0.3)  # m, x and z from the shoulder
START = (30.0, 30.0, 3.0, 3.0, 0.7, 0.7)  # N m/rad and N m s/rad of both joints; lengths, m
LIMITS = ((5.0, 5.0, 0.5, 0.5, 0.2, 0.2), (200.0, 200.0, 20.0, 20.0, 1.2, 1.2))
CASES = {"motion": 0, "motion and gains": 4, "motion, gains and lengths": 6}


def arm(x: torch.Tensor) -> dict[str, Any]:
    """What a rollout gets for gains and lengths, (batch, 6): two rods, the second with the load at its tip."""
    gains, lengths = x.split((4, 2), -1)
    none, load = torch.zeros_like(lengths), torch.tensor([0.0, LOAD]).to(x)
    mass = DENSITY * lengths + load
    center = (0.5 * DENSITY * lengths.square() + load * lengths) / mass
    about_joint = DENSITY * lengths**3 / 3.0 + load * lengths.square()
    across = about_joint - mass * center.square() + 0.25 * mass * RADIUS**2
    params = {
        "mass": mass,
        "com": torch.stack([none, none, -center], -1),
        "inertia": torch.stack([across, none, none, across, none, 0.5 * mass * RADIUS**2], -1),
        "joint_position": torch.stack([none, none, torch.stack([none[:, 0], -lengths[:, 0]], -1)], -1),
        "actuator_gain": gains[:, :2],
        "actuator_bias": -torch.stack([none, gains[:, :2], gains[:, 2:]], -1),
    }
    return {"params": params, "tensors": {"gains": gains, "lengths": lengths}}


def effort(q: Any, next_v: Any, control: Any, gains: Any) -> Any:
    torque = gains[:2] * (control - q) - gains[2:] * next_v  # damping is implicit
    return 0.01 * DT * (torque @ torque)


def arrived(q: Any, v: Any, lengths: Any) -> Any:
    x = -lengths[0] * at.sin(q[0]) - lengths[1] * at.sin(q[0] + q[1])
    z = -lengths[0] * at.cos(q[0]) - lengths[1] * at.cos(q[0] + q[1])
    return 200.0 * ((x - TARGET[0]) ** 2 + (z - TARGET[1]) ** 2) + 5.0 * (v @ v)


def problem(sim: adjoin.Simulator, free: int) -> Objective:
    """The objective in which the first so many numbers of the arm are free, and the others stay as they are."""
    start, lower, upper = (torch.tensor(x, dtype=torch.float64) for x in (START, *LIMITS))
    fixed = torch.arange(len(start)) >= free
    limits = torch.where(fixed, start, lower), torch.where(fixed, start, upper)
    variables = [Spline(5), Variables(start, arm, limits, spread=0.3 * start)]
    return Objective(sim, sim.state(dtype=torch.float64), STEPS, cost=effort, terminal=arrived, variables=variables)


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    sim = adjoin.Simulator(adjoin.robots.load("pendulum", links=2).with_servos(30.0, 3.0), dt=DT, pairs=[])
    results: dict[str, tuple[Objective, OptimizeResult]] = {}
    for name, free in CASES.items():
        objective = problem(sim, free)
        found = optimize(objective, LBFGS(), starts=8 if quick else 16, iterations=160 if quick else 300)
        results[name] = objective, found
        kp1, kp2, kd1, kd2, first, second = objective.split(found.best)[1].tolist()
        print(f"{name:26} loss {found.loss:.4f}, effort {objective.rollout(found.best).outputs['cost'].sum():.4f}")
        print(f"{'':26} kp {kp1:.1f} {kp2:.1f}, kd {kd1:.2f} {kd2:.2f}, lengths {first:.3f} {second:.3f} m")
    return plot(results, folder / "co_design.png")


def plot(results: dict[str, tuple[Objective, OptimizeResult]], path: Path) -> Path:
    """The losses, and how each arm moves."""
    figure = Figure(figsize=(16, 4.5), layout="constrained")
    left, *rest = figure.subplots(1, 1 + len(results))
    for (name, (objective, found)), axes in zip(results.items(), rest, strict=True):
        left.semilogy(found.history.best.min(1).values, label=name)
        lengths = objective.split(found.best)[1][4:]
        angles = objective.rollout(found.best).q[::5].cumsum(-1)
        rods = torch.stack([-lengths * angles.sin(), -lengths * angles.cos()], -1).cumsum(1)
        joints = torch.cat([torch.zeros_like(rods[:, :1]), rods], 1)
        for k, (x, z) in enumerate(joints.mT):
            axes.plot(x, z, ".-", color=colormaps["viridis"](k / len(joints)))
        axes.plot(*TARGET, "r*", markersize=14)
        axes.set(title=f"{name}: loss {found.loss:.3f}", xlabel="x, m", ylabel="z, m", aspect="equal")
    left.set(title="Least loss of all starts", xlabel="iteration", ylabel="loss")
    left.grid(alpha=0.3)
    left.legend()
    figure.savefig(path, dpi=90)
    print(f"losses and motions, dark to light: {path}")
    return path


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer starts and iterations")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
