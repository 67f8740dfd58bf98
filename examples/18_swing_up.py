"""Swing-up by shooting: a cart-pole, an acrobot and a pendulum of three links, too heavy for their motors to lift.

Controls are splines within the motors' limits; the cost is the effort, and at the end height and speed. Which swing is
found depends on where the search starts, so 64 searches by L-BFGS run in one batch, and the best is kept.
One learns: many searches side by side, costs as traced functions, controls as splines.
"""

import argparse
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from matplotlib import colormaps
from matplotlib.figure import Figure

import adjoin
from adjoin import trace as at
from adjoin.control import LBFGS, Objective, OptimizeResult, Spline, optimize
from adjoin.model.joint import Joint
from adjoin.model.parts import WORLD, Actuator, Body

DT = 0.02


@dataclass(frozen=True)
class Task:
    """Rods in a row, perhaps on a cart, motors with the most that they give (N or N m), and how long a swing lasts."""

    name: str
    links: int
    motors: dict[str, float]
    seconds: float

    def model(self) -> adjoin.Model:
        model = adjoin.robots.load("pendulum", links=self.links)
        if "slide" in self.motors:
            cart = Body("cart", WORLD, Joint("slide", "prismatic", (1.0, 0.0, 0.0)), mass=1.0)
            model = replace(
                model,
                bodies=(cart, *(replace(body, parent=body.parent + 1) for body in model.bodies)),
                frames=tuple(x if x.body == WORLD else replace(x, body=x.body + 1) for x in model.frames),
                keyframes=(),
            )
        motors = tuple(Actuator(name, name, control_range=(-most, most)) for name, most in self.motors.items())
        return replace(model, name=self.name, geometries=(), actuators=motors)

    def objective(self) -> Objective:
        sim = adjoin.Simulator(self.model(), dt=DT)
        first = sim.model.nq - self.links

        def up(q: Any, v: Any) -> Any:
            cost, angle = 3.0 * (v @ v) + sum(10.0 * x * x for x in q[:first]), 0.0
            for turn in q[first:]:
                angle = angle + turn
                cost = cost + 100.0 * (1.0 + at.cos(angle))
            return cost

        def effort(control: Any) -> Any:
            return 1e-4 * (control @ control)

        start, steps = sim.state(dtype=torch.float64), round(self.seconds / DT)
        return Objective(sim, start, steps, cost=effort, terminal=up, variables=Spline(20))


TASKS = (
    Task("cart-pole", 1, {"slide": 15.0}, 2.0),
    Task("acrobot", 2, {"joint2": 10.0}, 4.0),
    Task("three links", 3, {"joint1": 20.0, "joint2": 10.0, "joint3": 5.0}, 4.0),
)


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    starts, iterations = (16, 120) if quick else (64, 400)
    results: list[tuple[Task, Objective, OptimizeResult]] = []
    for task in TASKS:
        objective = task.objective()
        found = optimize(objective, LBFGS(), starts=starts, iterations=iterations, progress=not quick)
        results.append((task, objective, found))
        last = objective.rollout(found.best).last
        tip = adjoin.forward_kinematics(objective.sim.model, last.q, "tip")[2, 3]
        print(f"{task.name:12} loss {found.loss:.4f}, median of the starts {found.losses.median():.4f}")
        print(f"{'':12} the tip at {tip:.3f} m of {task.links} m, and no joint faster than {last.v.abs().max():.3f}")
        print(f"{'':12} {found.history.rollouts[-1]} rollouts in {found.history.seconds[-1]:.1f} s")
    return plot(results, folder / "swing_up.png")


def plot(results: list[tuple[Task, Objective, OptimizeResult]], path: Path) -> Path:
    """Losses, motion and controls of each task."""
    figure = Figure(figsize=(13, 4 * len(results)), layout="constrained")
    rows = figure.subplots(len(results), 3)
    for (task, objective, found), (left, middle, right) in zip(results, rows, strict=True):
        left.semilogy(found.history.loss, color="tab:blue", alpha=0.15)
        left.semilogy(found.history.best.min(1).values, color="black")
        left.set(title=f"{task.name}: losses of all starts, and the least", xlabel="iteration", ylabel="loss")
        motion = objective.rollout(found.best).q[::4]
        frames = [*[f"link{index + 1}" for index in range(task.links)], "tip"]
        for k, pose in enumerate(adjoin.forward_kinematics(objective.sim.model, motion, frames)):
            middle.plot(pose[:, 0, 3], pose[:, 2, 3], ".-", color=colormaps["viridis"](k / len(motion)), linewidth=1)
        middle.set(title="motion, dark to light", xlabel="x, m", ylabel="z, m")
        middle.set_aspect("equal", adjustable="datalim")
        controls = objective.inputs(found.best[None]).controls[:, 0]
        for (name, most), control in zip(task.motors.items(), controls.T, strict=True):
            line = right.plot(DT * torch.arange(objective.steps), control, label=name)[0]
            right.hlines((-most, most), 0.0, task.seconds, colors=line.get_color(), linestyles=":")
        right.set(title="controls and their limits", xlabel="time, s", ylabel="N or N m")
        right.legend()
    figure.savefig(path, dpi=90)
    print(f"losses, motions and controls: {path}")
    return path


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer starts and iterations")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
