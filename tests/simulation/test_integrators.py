import functools
import math
from dataclasses import replace

import pytest
import torch
from kernel_checks import check_kernel
from worlds import brick, hinge, tensor, traced_step

import adjoin
from adjoin.dynamics.frame_constraint import FrameConstraint
from adjoin.errors import InputError
from adjoin.model.joint import Joint
from adjoin.model.parts import WORLD, Body
from adjoin.simulation.integrators import RK4, SemiImplicit
from adjoin.simulation.simulator import Simulator


def chain(count):
    """Bodies that hang on one another by ball joints."""
    inertia = (0.02, 0.0, 0.0, 0.03, 0.001, 0.015)
    bodies = [
        Body(f"link{i}", i - 1, Joint(f"ball{i}", "ball"), (0.0, 0.0, -0.3 if i else 0.0), mass=1.0, inertia=inertia)
        for i in range(count)
    ]
    return adjoin.Model("chain", tuple(replace(body, com=(0.05, 0.0, -0.15)) for body in bodies))


@functools.cache
def smooth(model, dt, integrator):
    return Simulator(model, dt, pairs=[], ground=False, limits=False, integrator=integrator)


def run(model, dt, q, v, seconds, integrator):
    sim = smooth(model, dt, integrator)
    return sim.rollout(sim.state(q, v), torch.zeros(round(seconds / dt), model.nu, dtype=torch.float64))


def state(model, batch=3):
    generator = torch.Generator().manual_seed(0)
    q = model.random((batch,), generator=generator, dtype=torch.float64)
    return q, 2.0 * torch.randn(batch, model.nv, dtype=torch.float64, generator=generator)


SMOOTH = {
    "pendulum": adjoin.robots.load("pendulum", links=1),
    "brick": brick(),
    "chain": chain(2),
    "planar": adjoin.Model(
        "puck",
        (Body("puck", WORLD, Joint("slide", "planar"), mass=1.0, com=(0.1, 0.0, 0.0), inertia=(1, 0, 0, 1, 0, 1)),),
        gravity=(0.0, -9.81, 0.0),
    ),
}


@pytest.mark.parametrize(("integrator", "order"), [(RK4(), 4), (SemiImplicit(), 1)])
@pytest.mark.parametrize("model", SMOOTH.values(), ids=SMOOTH)
def test_the_error_falls_with_the_order(model, integrator, order):
    q, v = state(model)
    true = run(model, 1e-3, q, v, 0.8, RK4()).last
    errors = []
    for dt in (0.02, 0.01):
        last = run(model, dt, q, v, 0.8, integrator).last
        errors.append(max((last.q - true.q).abs().max(), (last.v - true.v).abs().max()))
    assert abs(math.log2(errors[0] / errors[1]) - order) < 0.4
    assert errors[1] > 1e-9


@pytest.mark.parametrize("model", SMOOTH.values(), ids=SMOOTH)
def test_energy_is_kept_to_fourth_order(model):
    q, v = state(model)
    start = adjoin.mechanical_energy(model, q, v)
    drifts = []
    for dt in (0.02, 0.01):
        last = run(model, dt, q, v, 2.0, RK4()).last
        drifts.append((adjoin.mechanical_energy(model, last.q, last.v) - start).abs().max())
    assert drifts[1] < max(drifts[0] / 12.0, 1e-9)


def test_a_tumbling_body_keeps_its_momentum():
    model = brick()
    q, v = state(model)
    model = replace(model, gravity=(0.0, 0.0, 0.0))
    path = run(model, 5e-3, q, v, 5.0, RK4())
    momentum = adjoin.centroidal_momentum(model, path.q, path.v)
    torch.testing.assert_close(momentum, momentum[:1].expand_as(momentum), rtol=0.0, atol=1e-5)
    torch.testing.assert_close(path.q[..., 3:].norm(dim=-1), torch.ones(1001, 3, dtype=torch.float64))


def test_damping_springs_and_motors_act():
    stiffness, damping, moment, torque = 8.0, 0.6, 0.5, 2.0
    model = hinge(moment, damping=(damping,), stiffness=(stiffness,))
    sim = smooth(model, 0.01, RK4())
    steps = 150
    path = sim.rollout(sim.state(tensor(0.3)), torch.full((steps, 1), torque, dtype=torch.float64))
    decay, rest = damping / (2.0 * moment), torque / stiffness
    omega = math.sqrt(stiffness / moment - decay**2)
    t = 0.01 * torch.arange(steps + 1, dtype=torch.float64)
    expected = rest + (0.3 - rest) * torch.exp(-decay * t) * ((omega * t).cos() + decay / omega * (omega * t).sin())
    torch.testing.assert_close(path.q[:, 0], expected, rtol=0.0, atol=1e-7)


def test_the_step_is_a_kernel_like_any_other():
    model = chain(1)
    sim = smooth(model, 0.05, RK4())
    q, v = state(model, 5)
    step = adjoin.function(q=model.nq, v=model.nv)(traced_step(sim))
    check_kernel(step.kernel, [q, v], second=False)


def test_gradients_of_a_rollout_are_those_of_finite_differences():
    model = SMOOTH["chain"]
    q, v = (x[0] for x in state(model))

    def end(speed):
        return run(model, 0.02, q, speed, 0.6, RK4()).last.q

    assert torch.autograd.gradcheck(end, (v.clone().requires_grad_(),))


def test_a_linearization_is_the_taylor_series_up_to_the_order():
    model = SMOOTH["pendulum"]
    sim = smooth(model, 0.1, RK4())
    A, _ = sim.linearize(sim.state(tensor(0.0)))
    stiffness = adjoin.gravity_forces(model, tensor(1e-4)) / math.sin(1e-4)
    rate = (stiffness / adjoin.crba(model, tensor(0.0))[0]).sqrt().item()
    x = 0.1 * rate
    cosine, sine = 1.0 - x**2 / 2.0 + x**4 / 24.0, x - x**3 / 6.0
    torch.testing.assert_close(A, tensor(cosine, sine / rate, -rate * sine, cosine).reshape(2, 2), rtol=1e-9, atol=0.0)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Simulator(adjoin.robots.load("ball"), integrator=RK4()), "'ball' has contacts with friction"),
        (lambda: Simulator(hinge(lower=-1.0, upper=1.0), integrator=RK4()), "'wheel' has joint limits or contacts"),
        (lambda: Simulator(hinge(friction=(1.0,)), integrator=RK4()), "'wheel' has joint friction"),
        (
            lambda: Simulator(
                adjoin.robots.load("box"), pairs=[], constraints=[FrameConstraint("box")], integrator=RK4()
            ),
            "'box' has equalities",
        ),
    ],
)
def test_rk4_refuses_what_is_not_smooth(make, what):
    with pytest.raises(InputError, match=f"RK4 is for smooth systems; {what}. Leave them out"):
        make()
