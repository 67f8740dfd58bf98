"""A Panda lifts a soft cube by friction; how hard to grip and how high to lift is found by gradients.

Servos drive the arm and its fingers. The cube feels the fingers, and fingers and arm feel the cube: both are one
rollout, and the gradient of the cube's height at the end passes through cube, contact, arm and servos.
One learns: a robot and a soft body in one world, gradients through both, a replay with both.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from matplotlib.figure import Figure

import adjoin
from adjoin.continuum import Collider, Solid, SolidMaterial, box_mesh
from adjoin.coupling import CoupledWorld, Link
from adjoin.viewer import SoftBody, record

DT, CLOSED, GRIPPED, LIFTED, END = 5e-4, 0.1, 0.16, 0.5, 0.7  # s
SIDE, REACH, GOAL = 0.04, 0.45, 0.2  # m
KP, KD = [4000.0] * 7 + [400.0], [80.0] * 7 + [10.0]


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    torch.set_default_dtype(torch.float64)
    model = adjoin.robots.load("panda").with_servos(KP, KD)
    cells = (2, 2, 2) if quick else (3, 3, 3)
    mesh = box_mesh(cells, (SIDE, SIDE, SIDE))
    pad = Collider("box", (0.021, 0.005, 0.021), stiffness=400.0, damping=0.05, friction=1.0, thickness=1e-3)
    ground = Collider("plane", stiffness=400.0, damping=0.05, friction=0.5)
    cube = Solid(mesh, SolidMaterial("neo_hookean", 400.0, 2e4, 0.3, drag=5.0), DT, colliders=(pad, pad, ground))
    simulator = adjoin.Simulator(model, dt=DT, pairs=[], limits=False)
    fingers = [Link(f"panda_{side}finger", (0.0, y, 0.045)) for side, y in (("left", 0.005), ("right", -0.005))]
    world = CoupledWorld(simulator, cube, [*fingers, Link()])
    lying = cube.state(torch.tensor(mesh.nodes) + torch.tensor([REACH - SIDE / 2, -SIDE / 2, 0.0]))

    def angles(height: torch.Tensor, q0: torch.Tensor) -> torch.Tensor:
        """Joint angles with the hand above the cube, looking down."""
        pose = torch.tensor([[1.0, 0, 0, REACH], [0, -1, 0, 0], [0, 0, -1, 0], [0, 0, 0, 1]])
        pose[2, 3] = height
        joints = [joint.name for joint in model.joints[:7]]
        return adjoin.inverse_kinematics(model, {"panda_hand_tcp": pose}, q0, joints=joints, seeds=4).q[:7]

    low = angles(torch.tensor(SIDE / 2), torch.tensor([0.0, 0.0, 0.0, -2.0, 0.0, 2.0, 0.785, 0.03]))
    open_ = torch.cat([low, torch.tensor([0.03])])
    start = simulator.state(open_)
    t = DT * torch.arange(round(END / DT))
    up = ((t - GRIPPED) / (LIFTED - GRIPPED)).clamp(0, 1)[:, None]
    up, shut = up * up * (3 - 2 * up), (t / CLOSED).clamp(0, 1)

    def controls(aim: torch.Tensor, height: torch.Tensor) -> torch.Tensor:
        """Where the servos aim, with what the arm weighs added as the angle by which its servos give way."""
        q = torch.cat([low + up * (angles(height, open_) - low), (0.03 + shut * (aim - 0.03))[:, None]], -1)
        weight = adjoin.rnea(model, q, torch.zeros(len(t), model.nv), torch.zeros(len(t), model.nv))
        return torch.cat([q[:, :7] + weight[:, :7] / torch.tensor(KP[:7]), q[:, 7:]], -1)

    aim = torch.tensor(0.0195, requires_grad=True)  # of each finger, from the middle, m
    height = torch.tensor(0.15, requires_grad=True)  # of the hand, m
    needed = 9.81 * cube.material.density * SIDE**3 * 2  # N of each finger, four times what just holds it
    heights, forces = [], []
    gripped = slice(round(0.9 * GRIPPED / DT), round(GRIPPED / DT))
    for _ in range(6 if quick else 30):
        path = world.rollout(start, lying, controls(aim, height))
        center, force = path.body.x[:, 2].mean(), path.wrench[gripped, :2, 1].abs().mean()
        heights.append(center.item())
        forces.append(force.item())
        loss = ((center - GOAL) / 0.01) ** 2 + 100 * (1 - force / needed).clamp(min=0.0) ** 2
        slopes = torch.autograd.grad(loss, (aim, height))
        with torch.no_grad():  # steps of at most 0.3 mm and 2 cm
            aim -= (1e-5 * slopes[0]).clamp(-3e-4, 3e-4)
            height -= (4e-5 * slopes[1]).clamp(-2e-2, 2e-2)
    print(f"the cube is at {heights[0]:.3f} m at first and at {heights[-1]:.3f} m at last, wanted {GOAL} m")
    path = world.rollout(start, lying, controls(aim, height).detach(), keep=len(t) // 35)
    soft = SoftBody(path.body.x, mesh.surface(), path.body.v.norm(dim=-1), "speed, m/s")
    record(model, path.robot.q, DT * (len(t) // 35), folder / "lift.html", soft=[soft])
    figure = Figure(figsize=(9.0, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(heights, "o-")
    left.axhline(GOAL, color="gray", linestyle="--")
    left.set(xlabel="iteration", ylabel="height of the cube, m", title="learning to lift")
    right.plot(t, path.wrench[:, :2, 1].abs(), label=["left finger", "right finger"])
    right.set(xlabel="time, s", ylabel="force on a finger, N", title="the grip")
    right.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(folder / "lift.png", dpi=120)
    return folder / "lift.png"


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--folder", type=Path)
    print(main(**vars(options.parse_args())))
