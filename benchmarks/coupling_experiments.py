"""Robots and soft bodies: sections of continuum.py.

A Panda closes its fingers on a soft cube of 4 cm that lies on the ground, and lifts it by friction. The arm follows its
joint angles exactly; the cube feels the fingers, and the wrenches on them give the torques that the arm needs. Found by
gradients through arm, contact and cube: how far to close the fingers and how high to lift.
"""

import time
from collections.abc import Iterator
from typing import Any

import torch

import adjoin
from adjoin.continuum import BodyState, Checkpoints, Collider, Motion, Solid, SolidMaterial, box_mesh

DT, CLOSED, LIFTED, END = 5e-4, 0.1, 0.5, 0.8  # s
SIDE, GOAL, REACH = 0.04, 0.2, 0.45  # m: of the cube; height of its center at the end; its distance from the arm
PADS = ("panda_leftfinger", "panda_rightfinger")


class Lift:
    """The scene: `run` takes how far each finger is from the middle and the height of the hand at the end."""

    def __init__(self, quick: bool):
        self.model = adjoin.robots.load("panda")
        mesh = box_mesh((2, 2, 2) if quick else (3, 3, 3), (SIDE, SIDE, SIDE))
        pad = Collider("box", (0.012, 0.005, 0.012), stiffness=250.0, damping=0.05, friction=1.0, thickness=1e-3)
        ground = Collider("plane", stiffness=250.0, damping=0.05, friction=0.5)
        material = SolidMaterial("neo_hookean", 400.0, 2e4, 0.3, drag=5.0)
        self.solid = Solid(mesh, material, DT, colliders=(pad, pad, ground))
        corner = torch.tensor([REACH - SIDE / 2, -SIDE / 2, 0.0], dtype=torch.float64)
        self.start = self.solid.state(torch.tensor(mesh.nodes) + corner)
        self.steps = round(END / DT)
        down = torch.tensor([[1.0, 0, 0, REACH], [0, -1, 0, 0], [0, 0, -1, SIDE / 2], [0, 0, 0, 1]]).double()
        q0 = torch.tensor([0.0, 0.0, 0.0, -2.0, 0.0, 2.0, 0.785, 0.03]).double()
        self.down, self.low = down, self.angles(down, q0)

    def angles(self, pose: torch.Tensor, q0: torch.Tensor) -> torch.Tensor:
        joints = [joint.name for joint in self.model.joints[:7]]
        found = adjoin.inverse_kinematics(self.model, {"panda_hand_tcp": pose}, q0, joints=joints, seeds=4)
        assert bool(found.success.all()), "the arm reaches the cube"
        return found.q

    def motion(self, width: torch.Tensor, height: torch.Tensor) -> tuple[Motion, torch.Tensor]:
        """Where the pads are in every step, and the joint angles."""
        pose = self.down.clone()
        pose[2, 3] = height
        high = self.angles(pose, self.low)
        t = DT * torch.arange(self.steps + 1, dtype=torch.float64)
        up = ((t - CLOSED) / (LIFTED - CLOSED)).clamp(0, 1)
        up = (up * up * (3 - 2 * up))[:, None]
        shut = (t / CLOSED).clamp(0, 1)
        fingers = 0.03 + shut * (width - 0.03)
        q = torch.cat([(self.low + up * (high - self.low))[:, :7], fingers[:, None]], -1)
        poses = adjoin.forward_kinematics(self.model, q, frames=PADS)
        offset = torch.tensor([[0.0, 0.005, 0.045], [0.0, -0.005, 0.045]]).double()
        rotation = poses[..., :3, :3]
        position = poses[..., :3, 3] + (rotation @ offset[..., None])[..., 0]
        ground = torch.zeros((self.steps + 1, 1, 3)).double()
        position = torch.cat([position, ground], 1)
        rotation = torch.cat([rotation, torch.eye(3).double().expand(self.steps + 1, 1, 3, 3)], 1)
        velocity = position.diff(dim=0) / DT
        turning = (rotation.diff(dim=0) / DT) @ rotation[:-1].mT
        spin = torch.stack([turning[..., 2, 1], turning[..., 0, 2], turning[..., 1, 0]], -1)
        return Motion(position[:-1], rotation[:-1], velocity, spin), q

    def run(
        self, width: torch.Tensor, height: torch.Tensor, stiffness: torch.Tensor | None = None, **options: Any
    ) -> BodyState:
        motion, _ = self.motion(width, height)
        shear, first = self.solid.material.lame
        params = {} if stiffness is None else {"shear": shear * stiffness, "first": first * stiffness}
        return self.solid.rollout(self.start, motion=motion, params=params, checkpoints=Checkpoints("all"), **options)


def panda(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    scene = Lift(quick)
    width = torch.tensor(0.0207, dtype=torch.float64, requires_grad=True)
    height = torch.tensor(0.15, dtype=torch.float64, requires_grad=True)
    begin = time.perf_counter()
    first = last = None
    weight = 9.81 * scene.solid.material.density * SIDE**3
    needed = 2.0 * weight / 2  # of each of two fingers at a coefficient of friction of 1, twice what just holds it
    for _ in range(15 if quick else 60):
        path = scene.run(width, height)
        center = path.x[:, 2].mean()
        assert path.wrench is not None
        shut = round(CLOSED / DT)
        grip = path.wrench[shut - 40 : shut, :2, 1].abs().mean()
        first = first if first is not None else (center.item(), grip.item())
        last = (center.item(), grip.item())
        if abs(last[0] - GOAL) < 2e-3 and last[1] > 0.95 * needed:
            break
        # Where the cube slips away its height has no slope, but the force of the closed fingers has one.
        loss = ((center - GOAL) / 0.01) ** 2 + 100 * (1 - grip / needed).clamp(min=0.0) ** 2
        slopes = torch.autograd.grad(loss, (width, height))
        with torch.no_grad():  # steps of at most 0.3 mm and 2 cm
            width -= (1e-5 * slopes[0]).clamp(-3e-4, 3e-4)
            height -= (4e-5 * slopes[1]).clamp(-2e-2, 2e-2)
    assert first is not None and last is not None  # noqa: PT018
    yield {"name": "panda: height of the cube at first", "value": first[0], "unit": "m"}
    yield {"name": "panda: distance of the cube from 0.2 m", "value": abs(last[0] - GOAL), "unit": "m", "at_most": 0.01}
    yield {"name": "panda: force of a finger", "value": last[1], "unit": "N"}
    frames = round(1.2 * CLOSED / DT)  # while the fingers close: later, whether a node slips changes everything
    with torch.no_grad():
        true = torch.tensor(1.0, dtype=torch.float64)
        seen = scene.run(width, height, true, keep=1).x[:frames]
        seen = seen + 1e-4 * torch.randn(seen.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logarithm = torch.tensor(-0.4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([logarithm], lr=0.05)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.96)
    for _ in range(50):
        found = scene.run(width.detach(), height.detach(), logarithm.exp(), keep=1).x[:frames]
        optimizer.zero_grad()
        (found - seen).square().mean().backward()
        optimizer.step()
        decay.step()
    error = 100 * abs(logarithm.exp().item() - 1.0)
    yield {
        "name": "panda: stiffness from the motion while fingers close, 0.1 mm of noise",
        "value": error,
        "unit": "%",
        "at_most": 2.0,
    }
    yield {"name": "panda: seconds", "value": time.perf_counter() - begin, "unit": "s"}
