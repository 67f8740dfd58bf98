"""A Panda with a soft gripper picks up a box; how hard its tendons pull and how high it lifts is found by gradients.

Two fingers of rubber are fixed to the rigid ones of the hand, which carry them and feel them. A tendon along the inner
side of each bends it towards the box. Arm, fingers and box are one rollout, and gradients pass through all of it.
One learns: attachments to links, tendons; a robot, a thing and a soft body in one world.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

import adjoin
from adjoin.continuum import Attachment, Collider, Mesh, Solid, SolidMaterial, box_mesh
from adjoin.coupling import CoupledWorld, Link
from adjoin.model.compose import forest
from adjoin.viewer import SoftBody, record

DT, PULLED, GRIPPED, LIFTED, END = 2e-4, 0.1, 0.16, 0.46, 0.5  # s
SIDE, REACH, GOAL, MASS = 0.04, 0.45, 0.08, 0.03  # m: of the box, of the arm, height at the end; kg
BASE, TIP, THICK, WIDE, APART = 0.03, 0.09, 0.012, 0.02, 0.022  # m: of a soft finger in the axes of the rigid one
BOX = f"""<robot name="box"><link name="world"/><link name="box"><inertial><mass value="{MASS}"/>
<inertia ixx="8e-6" ixy="0" ixz="0" iyy="8e-6" iyz="0" izz="8e-6"/></inertial>
<collision name="box"><geometry><box size="{SIDE} {SIDE} {SIDE}"/></geometry></collision></link>
<joint name="free" type="floating"><parent link="world"/><child link="box"/></joint></robot>"""
KP, KD = [4000.0] * 7 + [2000.0], [80.0] * 7 + [20.0]


def fingers() -> tuple[Mesh, list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the mesh of both, the nodes at the base of each, and the nodes along the inner side of each."""
    one = box_mesh((2, 2, 6), (WIDE, THICK, TIP - BASE))
    left = one.nodes + np.array([-WIDE / 2, 0.0, BASE])
    right = left - np.array([0.0, THICK, 0.0])
    both = Mesh(np.concatenate([left, right]), np.concatenate([one.elements, one.elements + len(left)]))
    x, y, z = both.nodes.T
    parts = np.arange(len(both.nodes)).reshape(2, -1)
    inner = (abs(x) < 1e-9) & (abs(y) < 1e-9)
    return both, [tuple(part[z[part] < BASE + 1e-9]) for part in parts], [tuple(part[inner[part]]) for part in parts]


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    torch.set_default_dtype(torch.float64)
    panda = adjoin.robots.load("panda").with_servos(KP, KD)
    model = forest({"arm": panda, "box": adjoin.load(BOX)})
    mesh, bases, inner = fingers()
    shape = Collider("box", (SIDE / 2,) * 3, stiffness=150.0, damping=0.02, friction=1.0)
    rubber = SolidMaterial("neo_hookean", 1000.0, 2e5, 0.4, drag=10.0)
    held = tuple(Attachment(base) for base in bases)
    soft = Solid(mesh, rubber, DT, colliders=(shape,), tendons=tuple(inner), attachments=held)
    sim = adjoin.Simulator(model, dt=DT, ground=True, pairs=[("box/box", "ground")], limits=False)
    world = CoupledWorld(sim, soft, [Link("box/box"), Link("arm/panda_leftfinger"), Link("arm/panda_rightfinger")])

    def angles(height: torch.Tensor, q0: torch.Tensor) -> torch.Tensor:
        """Joint angles with the tips of the soft fingers at a height, looking down."""
        pose = torch.tensor([[1.0, 0, 0, REACH], [0, -1, 0, 0], [0, 0, -1, 0], [0, 0, 0, 1]])
        pose[2, 3] = height + TIP - 0.045
        joints = [joint.name for joint in panda.joints[:7]]
        return adjoin.inverse_kinematics(panda, {"panda_hand_tcp": pose}, q0, joints=joints, seeds=4).q[:7]

    low = angles(torch.tensor(0.005), torch.tensor([0.0, 0.0, 0.0, -2.0, 0.0, 2.0, 0.785, APART]))
    opened = torch.cat([low, torch.tensor([APART])])
    start = sim.state(torch.cat([opened, torch.tensor([REACH, 0.0, SIDE / 2, 1.0, 0.0, 0.0, 0.0])]))
    t = DT * torch.arange(round(END / DT))
    pull, up = (t / PULLED).clamp(0, 1)[:, None], ((t - GRIPPED) / (LIFTED - GRIPPED)).clamp(0, 1)[:, None]
    up = up * up * (3 - 2 * up)

    def run(tension: torch.Tensor, lift: torch.Tensor, keep: int | None = None) -> adjoin.coupling.CoupledPath:
        """Pull the tendons and lift; servos aim beside by what the arm weighs, since they give way."""
        q = torch.cat([low + up * (angles(0.005 + lift, opened) - low), torch.full((len(t), 1), APART)], -1)
        weight = adjoin.rnea(panda, q, torch.zeros(len(t), panda.nv), torch.zeros(len(t), panda.nv))
        tensions = (tension * pull).expand(-1, 2)
        return world.rollout(start, world.attached(start), q + weight / torch.tensor(KP), tension=tensions, keep=keep)

    tension, lift = torch.tensor(1.0, requires_grad=True), torch.tensor(0.04, requires_grad=True)  # N, m
    needed = 2 * 9.81 * MASS / 2  # N of each finger at a friction of 1, twice what just holds the box
    heights, grips = [], []
    gripped = slice(round(0.9 * GRIPPED / DT), round(GRIPPED / DT))
    for _ in range(6 if quick else 20):
        path = run(tension, lift)
        height, grip = path.robot.q[10], path.wrench[gripped, 1:, 1].abs().mean()
        heights.append(height.item())
        grips.append(grip.item())
        loss = ((height - GOAL) / 0.01) ** 2 + 100 * (1 - grip / needed).clamp(min=0.0) ** 2
        slopes = torch.autograd.grad(loss, (tension, lift))
        with torch.no_grad():  # steps of at most 0.4 N and 2 cm
            tension -= (1e-2 * slopes[0]).clamp(-0.4, 0.4)
            lift -= (4e-5 * slopes[1]).clamp(-2e-2, 2e-2)
    print(f"the box is at {heights[0]:.3f} m at first and at {heights[-1]:.3f} m at last, wanted {GOAL} m")
    path = run(tension.detach(), lift.detach(), keep=len(t) // 50)
    body = SoftBody(path.body.x, mesh.surface(), path.body.v.norm(dim=-1), "speed, m/s")
    record(model, path.robot.q, DT * (len(t) // 50), folder / "gripper.html", soft=[body])
    figure = Figure(figsize=(9.0, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(heights, "o-")
    left.axhline(GOAL, color="gray", linestyle="--")
    left.set(xlabel="iteration", ylabel="height of the box, m", title="learning to pick up")
    right.plot(t, path.wrench[:, 1:, 1].abs(), label=["left finger", "right finger"])
    right.set(xlabel="time, s", ylabel="force across a rigid finger, N", title="what the hand feels")
    right.legend()
    figure.savefig(folder / "gripper.png", dpi=120)
    return folder / "gripper.png"


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--folder", type=Path)
    print(main(**vars(options.parse_args())))
