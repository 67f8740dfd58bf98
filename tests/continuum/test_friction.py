"""Friction at colliders: what lies on a slope stays up to the angle of friction, slides beyond, and pushes back."""

import math
from dataclasses import replace

import pytest
import torch

from adjoin.continuum import (
    Collider,
    Motion,
    ParticleMaterial,
    Particles,
    Solid,
    SolidMaterial,
    box_mesh,
)

FRICTION = 0.5  # holds up to 26.6 degrees


def tilted(degrees):
    angle = math.radians(degrees)
    return 9.81 * torch.tensor([math.sin(angle), 0.0, -math.cos(angle)], dtype=torch.float64)


def solid_on_a_slope():
    ground = Collider("plane", stiffness=2000.0, damping=5.0, friction=FRICTION)
    mesh = box_mesh((2, 2, 2), (0.1, 0.1, 0.1))
    solid = Solid(mesh, SolidMaterial("neo_hookean", 1000.0, 1e5, 0.3, drag=15.0), 2e-4, colliders=(ground,))
    return solid.rollout, solid.state(), 1.0, 2e-4


def particles_on_a_slope():
    axis = torch.arange(0.3, 0.5, 0.025, dtype=torch.float64)
    x = torch.stack(torch.meshgrid(axis, axis, axis[:4] - 0.1, indexing="ij"), -1).reshape(-1, 3)
    ground = Collider("plane", stiffness=3000.0, damping=5.0, friction=FRICTION)
    material = ParticleMaterial("neo_hookean", 1000.0, 2e5, 0.3)
    world = Particles((20, 20, 12), 0.05, 5e-4, material, colliders=(ground,))
    place = torch.tensor([[0.0, 0.0, 0.195]], dtype=torch.float64)

    def rollout(state, steps, **options):
        motion = Motion.at_rest(place, None, steps)
        return world.rollout(state, 0.025**3, steps=steps, motion=motion, **options)

    return rollout, world.state(x), 1000.0 * 0.025**3 * len(x), 5e-4


@pytest.mark.parametrize("scene", [solid_on_a_slope, particles_on_a_slope])
def test_what_lies_on_a_slope_stays_up_to_the_angle_of_friction(scene):
    rollout, start, mass, dt = scene()
    resting = replace(rollout(start, steps=round(0.4 / dt)), wrench=None)
    steps = round(0.8 / dt)
    holds = rollout(resting, steps=steps, keep=steps // 2, params={"gravity": tilted(24)})
    slides = rollout(resting, steps=steps, keep=steps // 2, params={"gravity": tilted(34)})
    (_, half, end), (_, early, late) = (path.x[..., 0].mean(-1) for path in (holds, slides))
    assert abs(end - half) < 2e-5  # m in 0.4 s: it has leaned over, and does not creep
    assert late - early > 0.02
    wrench = holds.wrench[-steps // 4 :, 0, :3].mean(0)
    assert torch.allclose(wrench, mass * tilted(24), atol=0.01 * mass * 9.81)


def test_particles_and_a_plate_that_drags_them_exchange_momentum():
    """And gradients through what sticks and what slips are finite differences."""
    plate = Collider("plane", stiffness=2000.0, damping=1.0, friction=0.4)
    world = Particles((12, 12, 12), 0.1, 1e-3, ParticleMaterial("neo_hookean", 1000.0, 1e5, 0.3), colliders=(plate,))
    generator = torch.Generator().manual_seed(0)
    x = 0.45 + 0.25 * torch.rand(12, 3, generator=generator, dtype=torch.float64)
    v = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    steps, mass = 10, 1000.0 * 1e-4
    still = torch.zeros(steps, 1, 3, dtype=torch.float64)
    position = torch.tensor([0.0, 0.0, 0.55], dtype=torch.float64).expand(steps, 1, 3)
    turn = torch.eye(3, dtype=torch.float64).expand(steps, 1, 3, 3)

    def run(velocity, start):
        gravity = {"gravity": torch.zeros(3, dtype=torch.float64)}
        motion = Motion(position, turn, velocity, still)
        return world.rollout(world.state(x, start), 1e-4, steps=steps, motion=motion, params=gravity)

    def loss(velocity, start):
        path = run(velocity, start)
        return (path.x * torch.tensor([1.0, 2.0, 3.0])).sum() + 1e-2 * path.wrench.square().sum()

    velocity = still + torch.tensor([0.5, -0.3, 0.0])
    path = run(velocity, v)
    impulse = 1e-3 * path.wrench[:, 0, :3].sum(0)
    assert impulse[:2].norm() > 0.01
    assert torch.allclose(mass * (path.v - v).sum(0), -impulse, atol=1e-10)
    leaves = velocity.clone().requires_grad_(), v.clone().requires_grad_()
    gradients = torch.autograd.grad(loss(*leaves), leaves)
    for i, (leaf, gradient) in enumerate(zip((velocity, v), gradients, strict=True)):
        direction = torch.randn(leaf.shape, generator=generator, dtype=torch.float64)
        sides = [
            loss(*(value + sign * 1e-7 * direction if i == j else value for j, value in enumerate((velocity, v))))
            for sign in (1, -1)
        ]
        assert torch.allclose((sides[0] - sides[1]) / 2e-7, (gradient * direction).sum(), rtol=2e-5)
