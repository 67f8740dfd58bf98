"""A Go2 stands up from a crouch and trots forward, under model-predictive control through its contacts.

The controls are the angles that the joints' servos go for. Every 0.04 s iLQR plans 0.4 s ahead, from where the last
plan has got to, with derivatives through the solver of contacts; in between the plan's own feedback acts. The cost asks
for a height, a speed, a level base, and legs that stay near a rhythm: diagonal pairs are lifted in turn.
One learns: MPC through contact, with tensors per step that tell the cost what to follow.
"""

import argparse
import math
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

import adjoin
from adjoin.control import ILQR, MPC
from adjoin.viewer import record

DT, HORIZON, RATE = 0.02, 20, 2.0  # s, steps, trots a second
GO, SPEED = 0.8, 0.5  # s: when it begins to trot; m/s
FEET = ("FL_foot", "FR_foot", "RL_foot", "RR_foot")
CROUCH, STAND, LIFT, STRIDE = (0.0, 1.3, -2.6), (0.0, 0.8, -1.5), (0.0, 0.25, -0.6), 0.08  # rad
RADIUS = 0.022  # m, of a foot


def following(q: Any, v: Any, control: Any, joints: Any, speed: Any, height: Any) -> Any:
    """What is asked for, as residuals."""
    base = [10.0 * (q[2:3] - height), 3.0 * q[4:7], 3.0 * (v[:1] - speed), v[1:3], 0.3 * v[3:6]]
    return math.sqrt(DT) * np.concatenate([*base, q[7:] - joints, 0.01 * v[6:], 0.5 * (control - joints)])


def rhythm(times: torch.Tensor) -> torch.Tensor:
    """The angles of all joints, (steps, 12)."""
    trotting = (times > GO).double()
    legs = []
    for shift in (0.0, math.pi, math.pi, 0.0):
        phase = 2.0 * math.pi * RATE * times + shift
        lift, swing = torch.sin(phase).clamp(min=0.0) * trotting, -STRIDE * torch.cos(phase) * trotting
        hip, thigh, calf = (rest + up * lift for rest, up in zip(STAND, LIFT, strict=True))
        legs += [hip, thigh + swing, calf]
    return torch.stack(legs, -1)


def posed(model: adjoin.Model, leg: tuple[float, ...]) -> torch.Tensor:
    """The configuration with all legs alike and the feet on the ground."""
    q = model.neutral(dtype=torch.float64)
    q[7:] = torch.tensor(leg * 4)
    q[2] = RADIUS - adjoin.forward_kinematics(model, q, FEET)[:, 2, 3].min()
    return q


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    steps = 80 if quick else 250
    model = adjoin.robots.load("go2").with_servos(40.0, 1.5)
    pairs = [(foot, "ground") for foot in FEET]
    sim = adjoin.Simulator(model, DT, adjoin.PGS(iterations=8), pairs=pairs, ground=True, limits=False)
    state = sim.state(posed(model, CROUCH)[None])
    height = posed(model, STAND)[2].expand(HORIZON, 1)
    mpc = MPC(ILQR(sim, following), state.q[0, 7:].expand(HORIZON, -1), iterations=2, first=10, every=2)
    states, begun = [state], 0.0
    for step in range(steps):
        times = DT * (step + torch.arange(HORIZON, dtype=torch.float64))
        wanted = {"joints": rhythm(times), "speed": SPEED * (times > GO).double()[:, None], "height": height}
        control = mpc(state, tensors={name: adjoin.PerStep(x) for name, x in wanted.items()})
        state = sim.step(state, control)
        states.append(state)
        begun = begun or time.perf_counter()  # the first step compiles
    seconds = time.perf_counter() - begun
    q, v = torch.cat([each.q for each in states]), torch.cat([each.v for each in states])
    moving = v[int((GO + 0.4) / DT) :, 0]
    print(f"base at {q[-1, 2]:.3f} m of {height[0, 0]:.3f} m, {q[-1, 0]:.2f} m ahead, status {int(state.status)}")
    tilt = math.degrees(2.0 * q[:, 4:6].abs().max())
    print(f"speed {moving.mean():.3f} m/s of {SPEED} m/s, never tilted by more than {tilt:.1f} degrees")
    print(f"{DT * (steps - 1):.1f} s of motion planned and run in {seconds:.1f} s")
    if not quick and find_spec("viser"):
        print(f"to be opened in a browser: {record(sim.model, q, DT, folder / 'trot.html', title='A trot')}")
    return plot(model, q, v, folder / "trot.png")


def plot(model: adjoin.Model, q: torch.Tensor, v: torch.Tensor, path: Path) -> Path:
    """Height, speed and feet over time."""
    times = DT * np.arange(len(q))
    heights = adjoin.forward_kinematics(model, q, FEET)[..., 2, 3] - RADIUS
    figure = Figure(figsize=(15, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    left.plot(times, q[:, 2])
    left.set(title="height of the base", xlabel="time, s", ylabel="m")
    middle.plot(times, v[:, 0])
    middle.plot(times, np.where(times > GO, SPEED, 0.0), "k:")
    middle.set(title="speed, and what was asked for", xlabel="time, s", ylabel="m/s")
    for k in range(len(FEET)):
        right.plot(times, heights[:, k] + 0.1 * k)
    right.set(title="heights of the feet, 0.1 m from line to line", xlabel="time, s")
    right.set_yticks([0.1 * k for k in range(4)], FEET)
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=90)
    print(f"heights, speed and feet: {path}")
    return path


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="a shorter motion")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
