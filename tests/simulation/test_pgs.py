import pytest
import torch

import adjoin
from adjoin.constraints import pgs
from adjoin.errors import InputError


def tumbling(elliptic):
    """A box that lands on an edge and slides, and the gradient of where it gets to."""
    model = adjoin.robots.load("box")
    sim = adjoin.Simulator(model, 2e-3, adjoin.PGS(iterations=12, elliptic=elliptic))
    q, v = model.neutral((3,), dtype=torch.float64), torch.zeros(3, 6, dtype=torch.float64)
    size = model.geometries[0].size
    q[:, 2] = size[2] + torch.tensor([-0.001, 0.001, 0.02])
    q[:, 3:] = torch.nn.functional.normalize(torch.tensor([1.0, 0.02, -0.03, 0.3], dtype=torch.float64), dim=0)
    v[:, :3] = torch.tensor([0.7, -0.4, -0.5])
    v[:, 3:] = torch.tensor([0.3, 0.2, 1.0])
    v.requires_grad_()
    end = sim.rollout(sim.state(q, v), torch.zeros(40, 3, 0, dtype=torch.float64)).last
    (gradient,) = torch.autograd.grad(end.q.square().sum() + end.v.square().sum(), v)
    return torch.cat([end.q, end.v], -1).detach(), gradient


@pytest.mark.parametrize("elliptic", [False, True])
def test_sweeps_that_carry_the_velocity_are_the_same_sweeps(elliptic, monkeypatch):
    state, gradient = tumbling(elliptic)
    monkeypatch.setattr(pgs, "dense", lambda system: False)
    monkeypatch.setenv("ADJOIN_CACHE_DIR", "off")  # it knows the library by its source
    again, by_velocity = tumbling(elliptic)
    torch.testing.assert_close(again, state, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(by_velocity, gradient, rtol=1e-7, atol=1e-8 * float(gradient.abs().max()))


def test_shapes_of_one_robot_touch_unless_they_are_not_to():
    model = adjoin.robots.load("spined_quadruped")
    alone, itself = adjoin.Simulator(model, self_collision=False), adjoin.Simulator(model)
    assert {second for _, second in alone.contact_names} == {"ground"}
    assert len(itself.contact_names) > len(alone.contact_names)
    assert "left out: 2 pairs (out of reach)" in repr(itself)
    arm = adjoin.robots.load("fetch_arm")
    assert len(adjoin.Simulator(arm).contact_names) == 16
    assert not adjoin.Simulator(arm, self_collision=False).contact_names
    two = adjoin.forest({"a": adjoin.robots.load("ball"), "b": adjoin.robots.load("ball")})
    assert len(adjoin.Simulator(two).contact_names) == 3


def test_too_many_rows_for_the_implicit_adjoint_are_named():
    contact = adjoin.PGS(adjoint=adjoin.ImplicitAdjoint())
    sim = adjoin.Simulator(adjoin.robots.load("laikago"), contact=contact, as_list=False, self_collision=False)
    with pytest.raises(InputError, match=r"ImplicitAdjoint: 240 rows of constraints are too many for it, at most 80"):
        sim.step(sim.state())


@pytest.mark.parametrize("speed", [-500.0, 60.0, 200.0, 5000.0])
def test_a_limit_holds_a_joint_that_would_cross_its_range_within_a_step(speed):
    joint = adjoin.Joint("hinge", "revolute", lower=-1.0, upper=1.0)
    body = adjoin.Body("arm", -1, joint, mass=1.0, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, 1.0))
    model = adjoin.Model("arm", (body,), (adjoin.Frame("arm", 0),), gravity=(0.0, 0.0, 0.0))
    sim = adjoin.Simulator(model, 0.01, adjoin.PGS(softness=0.0))
    q = torch.tensor([[-0.5], [0.0], [0.5]], dtype=torch.float64)
    path = sim.rollout(sim.state(q, torch.full_like(q, speed)), steps=5)
    assert path.q.abs().max() < 1.0 + 1e-9
    assert path.v[-1].abs().max() < 1e-9
