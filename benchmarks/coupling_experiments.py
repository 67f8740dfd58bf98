"""Robots and soft bodies: sections of continuum.py.

A Panda closes its fingers on a soft cube of 4 cm that lies on the ground, and lifts it by friction. Servos drive the
arm and the fingers; the cube feels the fingers, and the fingers and the arm feel the cube. Found by gradients through
arm, contact and cube: where the servos of the fingers aim, which is the force of the grip, and how high they lift.
"""

import time
from collections.abc import Iterator
from typing import Any

import torch
from report import panel

import adjoin
from adjoin.continuum import BodyState, Checkpoints, Collider, Solid, SolidMaterial, box_mesh
from adjoin.coupling import CoupledPath, CoupledWorld, Link

DT, CLOSED, GRIPPED, LIFTED, END = 5e-4, 0.1, 0.16, 0.5, 0.8  # s: fingers aim, have gripped; the hand is up; the end
SIDE, GOAL, REACH = 0.04, 0.2, 0.45  # m: of the cube; height of its center at the end; its distance from the arm
GAINS = [4000.0] * 7 + [400.0], [80.0] * 7 + [10.0]  # of the servos: N m/rad and N/m, N m s/rad and N s/m
PADS = (("panda_leftfinger", 0.005), ("panda_rightfinger", -0.005))


class Lift:
    """The scene: `run` takes where each finger aims, as a distance from the middle, and the height of the hand."""

    def __init__(self, quick: bool):
        self.model = adjoin.robots.load("panda").with_servos(*GAINS)
        mesh = box_mesh((2, 2, 2) if quick else (3, 3, 3), (SIDE, SIDE, SIDE))
        pad = Collider("box", (0.021, 0.005, 0.021), stiffness=400.0, damping=0.05, friction=1.0, thickness=1e-3)
        ground = Collider("plane", stiffness=400.0, damping=0.05, friction=0.5)
        material = SolidMaterial("neo_hookean", 400.0, 2e4, 0.3, drag=5.0)
        self.solid = Solid(mesh, material, DT, colliders=(pad, pad, ground))
        self.simulator = adjoin.Simulator(self.model, dt=DT, pairs=[], limits=False)
        links = [Link(frame, (0.0, offset, 0.045)) for frame, offset in PADS]
        self.world = CoupledWorld(self.simulator, self.solid, [*links, Link()])
        corner = torch.tensor([REACH - SIDE / 2, -SIDE / 2, 0.0], dtype=torch.float64)
        self.cube = self.solid.state(torch.tensor(mesh.nodes) + corner)
        self.steps = round(END / DT)
        down = torch.tensor([[1.0, 0, 0, REACH], [0, -1, 0, 0], [0, 0, -1, SIDE / 2], [0, 0, 0, 1]]).double()
        q0 = torch.tensor([0.0, 0.0, 0.0, -2.0, 0.0, 2.0, 0.785, 0.03]).double()
        self.down, self.low = down, self.angles(down, q0)

    def angles(self, pose: torch.Tensor, q0: torch.Tensor) -> torch.Tensor:
        joints = [joint.name for joint in self.model.joints[:7]]
        found = adjoin.inverse_kinematics(self.model, {"panda_hand_tcp": pose}, q0, joints=joints, seeds=4)
        assert bool(found.success.all()), "the arm reaches the cube"
        return found.q

    def controls(self, aim: torch.Tensor, height: torch.Tensor) -> torch.Tensor:
        """Where the servos aim in every step: what the arm weighs is added as the angle that its servos give way."""
        pose = self.down.clone()
        pose[2, 3] = height
        high = self.angles(pose, self.low)
        t = DT * torch.arange(self.steps, dtype=torch.float64)
        up = ((t - GRIPPED) / (LIFTED - GRIPPED)).clamp(0, 1)
        up = (up * up * (3 - 2 * up))[:, None]
        fingers = 0.03 + (t / CLOSED).clamp(0, 1) * (aim - 0.03)
        q = torch.cat([(self.low + up * (high - self.low))[:, :7], fingers[:, None]], -1)
        still = torch.zeros((self.steps, self.model.nv), dtype=torch.float64)
        weight = adjoin.rnea(self.model, q, still, still)[:, :7] / torch.tensor(GAINS[0][:7])
        return torch.cat([q[:, :7] + weight, q[:, 7:]], -1)

    def run(
        self,
        aim: torch.Tensor,
        height: torch.Tensor,
        stiffness: torch.Tensor | None = None,
        steps: int | None = None,
        **options: Any,
    ) -> CoupledPath:
        controls = self.controls(aim, height)[:steps]
        shear, first = self.solid.material.lame
        params = {} if stiffness is None else {"shear": shear * stiffness, "first": first * stiffness}
        start = self.simulator.state(torch.cat([self.low[:7], self.low.new_tensor([0.03])]))
        return self.world.rollout(start, self.cube, controls, params=params, checkpoints=Checkpoints("all"), **options)


def panda(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    scene = Lift(quick)
    aim = torch.tensor(0.0195, dtype=torch.float64, requires_grad=True)
    height = torch.tensor(0.15, dtype=torch.float64, requires_grad=True)
    begin = time.perf_counter()
    first = last = None
    weight = 9.81 * scene.solid.material.density * SIDE**3
    needed = 4.0 * weight / 2  # of each of two fingers at a coefficient of friction of 1, four times what just holds it
    for _ in range(15 if quick else 60):
        path = scene.run(aim, height)
        assert isinstance(path.body, BodyState)
        center = path.body.x[:, 2].mean()
        shut = round(GRIPPED / DT)
        grip = path.wrench[shut - 40 : shut, :2, 1].abs().mean()
        first = first if first is not None else (center.item(), grip.item())
        last = (center.item(), grip.item())
        if abs(last[0] - GOAL) < 2e-3 and last[1] > 0.95 * needed:
            break
        # Where the cube slips away its height has no slope, but the force of the closed fingers has one.
        loss = ((center - GOAL) / 0.01) ** 2 + 100 * (1 - grip / needed).clamp(min=0.0) ** 2
        slopes = torch.autograd.grad(loss, (aim, height))
        with torch.no_grad():  # steps of at most 0.3 mm and 2 cm
            aim -= (1e-5 * slopes[0]).clamp(-3e-4, 3e-4)
            height -= (4e-5 * slopes[1]).clamp(-2e-2, 2e-2)
    assert first is not None and last is not None  # noqa: PT018
    yield {"name": "panda: height of the cube at first", "value": first[0], "unit": "m"}
    yield {"name": "panda: distance of the cube from 0.2 m", "value": abs(last[0] - GOAL), "unit": "m", "at_most": 0.01}
    yield {"name": "panda: force of a finger", "value": last[1], "unit": "N"}
    yield {
        "name": "panda: stiffness from the motion while fingers close, 0.1 mm of noise",
        "value": 100 * abs(identify(scene, aim.detach(), height.detach()) - 1.0),
        "unit": "%",
        "at_most": 2.0,
    }
    yield {"name": "panda: seconds", "value": time.perf_counter() - begin, "unit": "s"}
    with torch.no_grad():
        starts = {"first": (torch.tensor(0.0195).double(), torch.tensor(0.15).double()), "found": (aim, height)}
        paths = {name: scene.run(*choice, keep=20).body.x[..., 2].mean(-1) for name, choice in starts.items()}
    lines = {name: (20 * DT * torch.arange(len(z)), z) for name, z in paths.items()}
    yield {"table": {"panels": [panel("a Panda lifts a soft cube", "s", "height of the cube, m", **lines)]}}


def identify(scene: Lift, aim: torch.Tensor, height: torch.Tensor, seed: int = 0) -> float:
    """The factor of the stiffness, which is 1, from positions of nodes with noise, by Newton's method.

    Seen is the time while the fingers close. Later, whether a node slips changes everything after.
    """
    frames = round(GRIPPED / DT)

    def positions(logarithm: torch.Tensor) -> torch.Tensor:
        return scene.run(aim, height, logarithm.exp(), frames, keep=1).body.x

    with torch.no_grad():
        seen = positions(torch.zeros((), dtype=torch.float64))
        seen = seen + 1e-4 * torch.randn(seen.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    place, slope_before, place_before = -0.4, None, 0.0
    for _ in range(12):
        logarithm = torch.tensor(place, dtype=torch.float64, requires_grad=True)
        error = (positions(logarithm) - seen).square().mean()
        slope = torch.autograd.grad(error, logarithm)[0].item()
        step = -0.1 if slope > 0 else 0.1
        if slope_before is not None and (slope - slope_before) * (place - place_before) > 0:
            step = -slope * (place - place_before) / (slope - slope_before)
        slope_before, place_before = slope, place
        place += max(-0.2, min(0.2, step))
        if abs(step) < 1e-5:
            break
    return torch.tensor(place).exp().item()
