"""Actuators in a step: on joints that follow others, and at the ends of their force range."""

import math

import pytest
import torch

import adjoin
from adjoin.simulation.activation import between

FORWARD = (1.0, 0.0, 0.0)
INERTIA = (1.0, 0.0, 0.0, 1.0, 0.0, 1.0)


def slider(**actuator):
    body = adjoin.Body("cart", -1, adjoin.Joint("slide", "prismatic", FORWARD), mass=2.0, inertia=INERTIA)
    motor = adjoin.Actuator("motor", "slide", **actuator)
    model = adjoin.Model("cart", (body,), (adjoin.Frame("cart", 0),), actuators=(motor,))
    return adjoin.Simulator(model, dt=0.1)


@pytest.mark.parametrize(("control", "force"), [(100.0, 1.0), (-100.0, -1.0), (5.0, 0.0)])
def test_implicit_damping_of_an_actuator_vanishes_where_its_force_is_saturated(control, force):
    sim = slider(gain=1.0, bias=(0.0, 0.0, -10.0), force_range=(-1.0, 1.0))
    v = torch.tensor([0.5], dtype=torch.float64)
    after = sim.step(sim.state(torch.zeros(1, dtype=torch.float64), v), torch.tensor([control], dtype=torch.float64))
    assert float(after.v) == pytest.approx(0.5 + 0.1 * force / 2.0, abs=1e-12)


def test_an_actuator_on_a_joint_that_mimics_another_pushes_both():
    bodies = (
        adjoin.Body("leader", -1, adjoin.Joint("lead", "prismatic", FORWARD), mass=2.0, inertia=INERTIA),
        adjoin.Body(
            "follower",
            0,
            adjoin.Joint("follow", "prismatic", FORWARD, mimic=adjoin.Mimic("lead", 2.0)),
            mass=3.0,
            inertia=INERTIA,
        ),
    )
    frames = (adjoin.Frame("leader", 0), adjoin.Frame("follower", 1))
    motor = adjoin.Actuator("motor", "follow", gain=5.0)
    sim = adjoin.Simulator(adjoin.Model("pair", bodies, frames, actuators=(motor,)), dt=0.1)
    after = sim.step(sim.state(dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    # The follower moves by 3 q against the world and by 2 q against its joint.
    assert float(after.v) == pytest.approx(0.1 * 2.0 * 5.0 / (2.0 + 9.0 * 3.0), rel=1e-12)


def test_numbers_of_a_bias_that_is_switched_off_have_no_effect():
    pytest.importorskip("mujoco")
    text = """<mujoco><worldbody><body><joint name="j" type="slide" axis="1 0 0"/><geom size="1" mass="2"/></body>
        </worldbody><actuator><general name="a" joint="j" gainprm="3" biastype="{}" biasprm="5 6 7"/></actuator>
        </mujoco>"""
    none, affine = (adjoin.load(text.format(kind)) for kind in ("none", "affine"))
    assert none.actuators[0].bias == (0.0, 0.0, 0.0)
    assert affine.actuators[0].bias == (5.0, 6.0, 7.0)


def test_rk4_normalizes_the_quaternion_of_a_fast_spin():
    sim = adjoin.Simulator(adjoin.robots.load("ball"), dt=1e-2, integrator=adjoin.RK4(), pairs=[], ground=False)
    v = torch.tensor([0.0, 0.0, 0.0, 60.0, -80.0, 40.0], dtype=torch.float64)
    path = sim.rollout(sim.state(v=v), steps=20)
    torch.testing.assert_close(path.q[:, 3:].norm(dim=-1), torch.ones(21, dtype=torch.float64), rtol=0.0, atol=1e-14)


def test_forward_mode_through_the_implicit_adjoint_with_an_active_joint_limit():
    bodies = tuple(
        adjoin.Body(
            f"link{k}",
            k - 1,
            adjoin.Joint(f"hinge{k}", "revolute", (0.0, 1.0, 0.0), lower=-0.2, upper=0.3),
            position=(0.0, 0.0, -0.5 * k),
            mass=1.0 + k,
            com=(0.1, 0.0, -0.25),
            inertia=INERTIA,
        )
        for k in range(2)
    )
    frames = tuple(adjoin.Frame(body.name, k) for k, body in enumerate(bodies))
    model = adjoin.Model("double", bodies, frames).with_motors()
    solver = adjoin.PGS(iterations=20, adjoint=adjoin.ImplicitAdjoint())
    sim = adjoin.Simulator(model, dt=1e-2, contact=solver)
    q = torch.tensor([-0.203, 0.301], dtype=torch.float64)
    v, u = torch.tensor([-0.8, 0.6], dtype=torch.float64), torch.tensor([-3.0, 2.0], dtype=torch.float64)

    def step(x):
        after = sim.step(sim.state(x[..., :2], x[..., 2:4]), x[..., 4:])
        return torch.cat([after.q, after.v], -1)

    point = torch.cat([q, v, u])
    eps = 1e-6 * torch.eye(6, dtype=torch.float64)
    slopes = ((step(point + eps) - step(point - eps)) / 2e-6).mT
    assert slopes[2, 2].abs() < 0.5  # a limit acts: without it this would be near 1
    torch.testing.assert_close(torch.cat(sim.linearize(sim.state(q, v), u), -1), slopes, rtol=1e-6, atol=1e-7)


def test_a_range_with_one_end_bounds_on_that_side():
    assert [between(x, (0.0, math.inf)) for x in (-1.0, 2.0)] == [0.0, 2.0]
    assert [between(x, (-math.inf, 1.0)) for x in (-1.0, 2.0)] == [-1.0, 1.0]
