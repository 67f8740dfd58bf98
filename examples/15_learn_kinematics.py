"""Where does the arm stand? The placement of an iiwa's first joint, learned from where its hand was seen.

The example of the same name in differentiable-robot-model: `DifferentiableRobotModel` takes the place of theirs.
One learns: a program written for that library runs here with its import changed.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from matplotlib.figure import Figure

import adjoin
from adjoin.compat.differentiable_robot_model import DifferentiableRobotModel
from adjoin.learn import Unconstrained

LINK, HAND = "iiwa_link_1", "iiwa_link_ee"
NOISE = 1e-3  # m, of each position that is seen


def seen(arm: adjoin.Model, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random configurations, and where the hand of the true arm was in them, with noise."""
    generator = torch.Generator().manual_seed(0)
    q = arm.random((count,), generator=generator)
    position = adjoin.forward_kinematics(arm, q, HAND)[:, :3, 3]
    return q, position + NOISE * torch.randn(position.shape, generator=generator)


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    arm = adjoin.robots.load("iiwa7")
    q, position = seen(arm, 100)
    placement, angles = torch.tensor(arm.bodies[0].position), torch.zeros(3)  # the truth: it stands upright

    robot = DifferentiableRobotModel(adjoin.robots.source("iiwa7"))
    start = torch.Generator().manual_seed(1)
    robot.make_link_param_learnable(LINK, "trans", Unconstrained(0.1 * torch.randn(3, generator=start)))
    robot.make_link_param_learnable(LINK, "rot_angles", Unconstrained(0.1 * torch.randn(3, generator=start)))
    trans, rot_angles = (parameter for parameter in robot.parameters())

    optimizer = torch.optim.Adam(robot.parameters(), lr=1e-2)
    slower = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    history = []
    print("iteration   hand off by   placed off by     turned off by")
    begun = time.perf_counter()
    for iteration in range(150 if quick else 300):
        optimizer.zero_grad()
        found, _ = robot.compute_forward_kinematics(q=q, link_name=HAND)
        loss = (found - position).square().sum(-1).mean()
        loss.backward()
        optimizer.step()
        slower.step()
        off = (trans.detach() - placement).norm(), (rot_angles.detach() - angles).norm().rad2deg()
        history.append((float(loss.detach().sqrt()) * 1e3, float(off[0]) * 1e3, float(off[1])))
        if iteration % 50 == 0:
            print("{:9} {:10.2f} mm {:12.2f} mm {:13.3f} deg".format(iteration, *history[-1]))
    print("     last {:10.2f} mm {:12.2f} mm {:13.3f} deg".format(*history[-1]))
    print(
        f"{len(history)} iterations in {time.perf_counter() - begun:.1f} s; each position was seen with 1 mm of noise"
    )
    return plot(history, folder / "learn_kinematics.png")


def plot(history: list[tuple[float, float, float]], path: Path) -> Path:
    """What is left of the errors, iteration by iteration."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    hand, placed, turned = zip(*history, strict=True)
    left.semilogy(hand, label="hand, root of mean square")
    left.axhline(NOISE * 3**0.5 * 1e3, color="gray", linestyle="--", label="noise of what was seen")
    left.set(title="Where the hand is said to be", xlabel="iteration", ylabel="mm")
    right.semilogy(placed, label="position, mm")
    right.semilogy(turned, label="angles, degrees")
    right.set(title="Placement of the first joint", xlabel="iteration", ylabel="error")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=100)
    print(f"errors: {path}")
    return path


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer iterations")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
