import pytest
import torch

import adjoin
from adjoin.contact import pgs
from adjoin.errors import InputError

FEET = [(f"{leg}_foot", "ground") for leg in ("FL", "FR", "RL", "RR")]


def landing(elliptic):
    """A quadruped that comes down on its feet with joints at their stops, and the gradient of where it gets to."""
    model = adjoin.robots.load("go2")
    sim = adjoin.Simulator(model, 2e-3, adjoin.PGS(iterations=12, elliptic=elliptic), pairs=FEET)
    generator = torch.Generator().manual_seed(0)
    q = model.neutral((3,), dtype=torch.float64)
    q[:, 2] = 0.27
    q[:, 7:] = torch.tensor([0.0, 0.9, -1.7] * 4) + 0.1 * torch.randn(3, 12, generator=generator, dtype=torch.float64)
    controls = torch.randn(15, 3, 12, generator=generator, dtype=torch.float64).requires_grad_()
    end = sim.rollout(sim.state(q), controls).last
    (gradient,) = torch.autograd.grad(end.q.square().sum() + end.v.square().sum(), controls)
    return torch.cat([end.q, end.v], -1).detach(), gradient


@pytest.mark.parametrize("elliptic", [False, True])
def test_sweeps_that_carry_the_velocity_are_the_same_sweeps(elliptic, monkeypatch):
    state, gradient = landing(elliptic)
    monkeypatch.setattr(pgs, "DENSE", 0)
    again, by_velocity = landing(elliptic)
    torch.testing.assert_close(again, state, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(by_velocity, gradient, rtol=1e-7, atol=1e-8 * float(gradient.abs().max()))


def test_shapes_of_one_robot_touch_only_if_asked():
    model = adjoin.robots.load("spined_quadruped")
    alone, itself = adjoin.Simulator(model), adjoin.Simulator(model, self_collision=True)
    assert {second for _, second in alone.contact_names} == {"ground"}
    assert len(itself.contact_names) > len(alone.contact_names)
    two = adjoin.forest({"a": adjoin.robots.load("ball"), "b": adjoin.robots.load("ball")})
    assert len(adjoin.Simulator(two).contact_names) == 3


def test_too_many_rows_for_the_implicit_adjoint_are_named():
    sim = adjoin.Simulator(adjoin.robots.load("laikago"), contact=adjoin.PGS(adjoint=adjoin.Implicit()))
    with pytest.raises(InputError, match=r"Implicit: 252 rows of constraints are too many for it, at most 80"):
        sim.step(sim.state())
