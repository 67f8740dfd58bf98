"""A quadruped falls from three heights and stands: contact, forces, and what the simulator is told.

One learns: a simulator is a model, a step of time and the pairs of shapes that may touch; a rollout of a batch is one
launch; contact forces come with it; with viser, a motion becomes a page that plays offline.
"""

import argparse
import tempfile
from importlib.util import find_spec
from pathlib import Path

import torch
from matplotlib.figure import Figure

import adjoin
from adjoin.viewer import record

DT = 2e-3  # s
HEIGHTS = (0.0, 0.1, 0.2)  # m


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    # Servos hold the joints; naming the pairs keeps the kernel small: each one costs time whether it touches or not.
    model = adjoin.robots.load("go2").with_servos(kp=60.0, kd=2.0)
    feet = [(f"{leg}_foot", "ground") for leg in ("FL", "FR", "RL", "RR")]
    sim = adjoin.Simulator(model, dt=DT, pairs=feet)

    home = model.keyframe("home")
    q = torch.tensor(home.q).repeat(len(HEIGHTS), 1)
    q[:, 2] += torch.tensor(HEIGHTS)
    steps = 500 if quick else 1000
    controls = torch.tensor(home.control).expand(steps, len(HEIGHTS), model.nu)
    path = sim.rollout(sim.state(q), controls, outputs=["contacts"])  # one launch for all of them

    # Forces are on the first shape of each pair, in world axes; in units of the robot's weight:
    force = path.outputs["contacts"].force[..., 2].sum(-1) / (9.81 * model.mass)
    print(f"dropped from   lands after   greatest force    after {steps * DT:g} s: force   base height")
    for k, height in enumerate(HEIGHTS):
        landed = DT * int((force[:, k] > 0.0).byte().argmax())
        print(
            f"{height:10.1f} m {landed:11.3f} s {force[:, k].max():12.1f} weights"
            f" {force[-1, k]:13.2f} weights {path.q[-1, k, 2]:9.3f} m"
        )
    sunk = -1e3 * float(path.outputs["contacts"].distance.min())
    print(f"no foot was ever more than {sunk:.2f} mm in the ground; {int((path.status != 0).sum())} states are bad")

    if not quick and find_spec("viser"):
        page = record(
            sim.model, path.q[:-1], DT, folder / "simulate.html", path.outputs["contacts"], title="Three landings"
        )
        print(f"to be opened in a browser: {page}")

    times = DT * torch.arange(steps)
    figure = Figure(figsize=(12, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for k, height in enumerate(HEIGHTS):
        left.plot(times, path.q[1:, k, 2], label=f"from {height:g} m")
        middle.plot(times, force[:, k], linewidth=1)
    left.set(title="Height of the base", xlabel="time, s", ylabel="m")
    left.legend()
    middle.set(title="Force of the ground", xlabel="time, s", ylabel="weights of the robot")
    for k in (0, 2):
        right.plot(times, path.outputs["contacts"].force[:, -1, k, 2], label=feet[k][0], linewidth=1)
    right.set(title=f"Force on the left feet, from {HEIGHTS[-1]:g} m", xlabel="time, s", ylabel="N")
    right.legend()
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
    picture = folder / "simulate.png"
    figure.savefig(picture, dpi=100)
    print(f"heights and forces: {picture}")
    return picture


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="one second instead of two")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
