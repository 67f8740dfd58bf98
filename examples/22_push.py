"""An arm of two links pushes a box to 32 poses, each a contact-rich problem of iLQR, all in one batch.

The tip touches the box on one side only, and turns it by where along that side it pushes; friction lets it pull the box
a little sideways too. One learns: iLQR on residuals, with derivatives that go through the solver of contacts.
"""

import argparse
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure

import adjoin
from adjoin.control import ILQR, ILQRResult

DT, STEPS, HALF = 0.02, 75, 0.1  # s, steps, m: half a side of the box
START, BOX = (-0.798, 1.955), (0.55, 0.25, 0.0)  # rad; m, m, rad
NEAREST, FARTHEST = (-0.08, 0.1, -0.5), (0.08, 0.2, 0.5)  # how far the box is to go
LINK = """<link name="{}"><inertial><origin xyz="0.25 0 0"/><mass value="1"/>
<inertia ixx="0.02" ixy="0" ixz="0" iyy="0.02" iyz="0" izz="0.02"/></inertial>{}</link>"""
HINGE = """<joint name="{}" type="revolute"><parent link="{}"/><child link="{}"/><origin xyz="{} 0 0"/>
<axis xyz="0 0 1"/><limit lower="-3" upper="3" effort="10" velocity="20"/></joint>"""
TIP = '<collision><origin xyz="0.5 0 0"/><geometry><sphere radius="0.03"/></geometry></collision>'
URDF = f"""<robot name="pusher"><link name="table"/>{LINK.format("upper", "")}{LINK.format("lower", TIP)}
<link name="tip"/><link name="box"><inertial><mass value="0.5"/>
<inertia ixx="0.004" ixy="0" ixz="0" iyy="0.004" iyz="0" izz="0.004"/></inertial>
<collision><geometry><box size="{2 * HALF} {2 * HALF} 0.1"/></geometry></collision></link>
{HINGE.format("shoulder", "table", "upper", 0)}{HINGE.format("elbow", "upper", "lower", 0.5)}
<joint name="end" type="fixed"><parent link="lower"/><child link="tip"/><origin xyz="0.5 0 0"/></joint>
<joint name="slide" type="planar"><parent link="table"/><child link="box"/><axis xyz="0 0 1"/></joint></robot>"""


def problem() -> ILQR:
    """The arm, the box that the table brakes, and what pushing costs."""
    damping = torch.tensor((0.2, 0.2, 2.0, 2.0, 0.02), dtype=torch.float64)
    model = adjoin.load(URDF).with_motors(["shoulder", "elbow"]).with_parameters({"damping": damping})

    def running(q: Any, v: Any, control: Any, target: Any) -> Any:
        tip = adjoin.forward_kinematics(model, q, "tip")[:2, 3]
        parts = [0.1 * control, 0.05 * v, 0.3 * (q[2:] - target), 0.3 * (tip - q[2:4])]
        return math.sqrt(DT) * np.concatenate(parts)

    def last(q: Any, v: Any, target: Any) -> Any:
        return np.concatenate([30.0 * (q[2:] - target), 2.0 * v])

    contact = adjoin.PGS(iterations=10)
    return ILQR(adjoin.Simulator(model, dt=DT, contact=contact, pairs=[("lower", "box")], limits=False), running, last)


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    count, iterations = (8, 40) if quick else (32, 100)
    solver = problem()
    least, most, box = (torch.tensor(x, dtype=torch.float64) for x in (NEAREST, FARTHEST, BOX))
    away = torch.rand(count, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets = box + least + (most - least) * away
    start = torch.cat([torch.tensor(START, dtype=torch.float64), box]).expand(count, -1)
    guess = torch.tensor((0.25, 0.0), dtype=torch.float64).expand(STEPS, count, 2)  # moves the tip to the box
    found = solver.solve(
        solver.sim.state(start),
        guess,
        tensors={"target": adjoin.PerEnvironment(targets)},
        iterations=iterations,
        tolerance=1e-5,
    )
    errors = (found.q[-1, :, 2:] - targets).abs()
    there = (errors[:, :2].amax(-1) < 0.01) & (errors[:, 2] < 0.05)
    print(f"{int(there.sum())} of {count} boxes are within 1 cm and 0.05 rad of where they should be")
    middle = errors.median(0).values
    print(f"median errors {1e3 * middle[0]:.2f} mm, {1e3 * middle[1]:.2f} mm and {1e3 * middle[2]:.2f} mrad")
    return plot(solver, found, targets, folder / "push.png")


def outline(pose: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The corners of the box, seen from above."""
    x, y, angle = pose.tolist()
    corners = HALF * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]])
    c, s = math.cos(angle), math.sin(angle)
    return x + corners @ (c, -s), y + corners @ (s, c)


def plot(solver: ILQR, found: ILQRResult, targets: torch.Tensor, path: Path) -> Path:
    """Costs of all problems, and three of the motions from above."""
    figure = Figure(figsize=(17, 4.5), layout="constrained")
    left, *others = figure.subplots(1, 4)
    left.semilogy(found.history, color="tab:blue", alpha=0.4)
    left.set(title=f"{len(targets)} problems", xlabel="iteration", ylabel="cost")
    left.grid(alpha=0.3)
    places = adjoin.forward_kinematics(solver.sim.model, found.q, ["upper", "lower", "tip"])[..., :2, 3]
    for axes, k in zip(others, found.cost.argsort()[:3].tolist(), strict=True):
        for step in range(0, STEPS + 1, 15):
            shade = colormaps["viridis"](step / STEPS)
            axes.plot(*places[step, k].T, ".-", color=shade, linewidth=1)
            axes.plot(*outline(found.q[step, k, 2:]), color=shade)
        axes.plot(*outline(targets[k]), "r:", linewidth=3)
        axes.set(title="motion, dark to light; target dotted", xlabel="x, m", ylabel="y, m", aspect="equal")
    figure.savefig(path, dpi=90)
    print(f"costs and three of the motions: {path}")
    return path


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer targets and iterations")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
