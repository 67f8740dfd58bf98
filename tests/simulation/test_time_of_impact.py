"""States after a bounce, and their gradients, against closed forms of a ball in flight."""

import pytest
import torch

import adjoin
from adjoin.errors import InputError

F64 = torch.float64
DT, G, RADIUS = 1e-3, 9.81, 0.1
BALL = adjoin.robots.load("ball")
SMOOTH = torch.zeros(2, 3, dtype=F64)  # friction of the ball and the ground


def simulated(sim, inputs, steps):
    """The state after some steps: (height of the lowest point, vertical speed, x, horizontal speed)."""
    height, upward, forward, restitution = inputs
    zero = torch.zeros_like(height)
    q = torch.stack([zero, zero, height + RADIUS, zero + 1.0, zero, zero, zero], -1)
    v = torch.stack([forward, zero, upward, zero, zero, zero], -1)
    params = {"contact_restitution": restitution, "geometry_friction": SMOOTH}
    last = sim.rollout(sim.state(q, v), steps=steps, params=params).last
    return last.q[:, 2] - RADIUS, last.v[:, 2], last.q[:, 0], last.v[:, 0]


def exact(inputs, steps):
    height, upward, forward, restitution = inputs
    time = steps * DT
    hitting = (upward.square() + 2.0 * G * height).sqrt()
    since = time - (upward + hitting) / G
    parting = restitution * hitting
    return parting * since - 0.5 * G * since.square(), parting - G * since, forward * time, forward


def landing(state, steps):
    """When and where it lands the next time, which is when and where it bounced, plus a flight."""
    height, upward, place, forward = state
    flight = (upward + (upward.square() + 2.0 * G * height).sqrt()) / G
    return steps * DT + flight, place + forward * flight


def drops(count: int) -> list[torch.Tensor]:
    """Heights, upward and forward speeds, and restitutions, so that impacts are anywhere within a step."""
    generator = torch.Generator().manual_seed(3)
    low, high = torch.tensor([[0.3, -0.5, 0.5, 0.6], [0.5, 0.5, 2.0, 0.9]], dtype=F64)
    values = low + (high - low) * torch.rand(count, 4, generator=generator, dtype=F64)
    return [x.requires_grad_() for x in values.T.contiguous()]


@pytest.mark.parametrize("adjoint", [adjoin.UnrolledAdjoint(), adjoin.ImplicitAdjoint()])
def test_time_and_place_of_a_bounce_have_the_gradients_of_the_closed_form(adjoint) -> None:
    steps = 500
    contact = adjoin.PGS(time_of_impact=True, adjoint=adjoint, iterations=4, softness=0.0)
    sim = adjoin.Simulator(BALL, dt=DT, contact=contact)
    inputs = drops(16)
    got, wanted = ([*state, *landing(state, steps)] for state in (simulated(sim, inputs, steps), exact(inputs, steps)))
    assert bool((exact(inputs, steps)[0] > 0.01).all())  # after the first bounce, before the second
    for name, value, true in zip(("height", "speed", "x", "forward", "time", "place"), got, wanted, strict=True):
        assert (value - true).abs().max() < 0.01, name
        slopes = torch.autograd.grad(value.sum(), inputs, retain_graph=True, allow_unused=True)
        exactly = torch.autograd.grad(true.sum(), inputs, retain_graph=True, allow_unused=True)
        for cause, slope, right in zip(("height", "upward", "forward", "restitution"), slopes, exactly, strict=True):
            right = torch.zeros(16, dtype=F64) if right is None else right
            slope = torch.zeros(16, dtype=F64) if slope is None else slope
            # Slopes of states pass through zero as time goes on: their error counts by the greatest of them, and by
            # half of what the slope of the height to the speed is without a bounce: 0.5 s.
            scale = right.abs() if name in ("time", "place") else right.abs().max().clamp(min=0.25)
            assert ((slope - right).abs() <= 0.01 * scale + 1e-12).all(), (name, cause)


def test_without_it_the_gradient_to_the_height_is_wrong() -> None:
    sim = adjoin.Simulator(BALL, dt=DT, contact=adjoin.PGS(iterations=4))
    inputs = drops(4)
    state, true = simulated(sim, inputs, 500), exact(inputs, 500)
    slope, right = (torch.autograd.grad(x[1].sum(), inputs[0])[0] for x in (state, true))
    assert ((slope - right).abs() > 0.2 * right.abs()).all()


def test_the_step_of_an_impact_is_continuous_in_when_it_happens() -> None:
    sim = adjoin.Simulator(BALL, dt=DT, contact=adjoin.PGS(time_of_impact=True, iterations=4, restitution=0.8))
    height = torch.linspace(0.4, 0.4 + 2.0 * DT * 2.8, 201, dtype=F64)  # moves the impact over two steps
    zero = torch.zeros_like(height)
    q = torch.stack([zero, zero, height + RADIUS, zero + 1.0, zero, zero, zero], -1)
    last = sim.rollout(sim.state(q), steps=400).last
    changes = last.q[:, 2].diff()
    assert (changes - changes.mean()).abs().max() < 0.2 * changes.mean().abs()


def test_a_box_that_spins_bounces_as_small_steps_without_it_do() -> None:
    box = adjoin.robots.load("box")
    q = torch.tensor([0.0, 0.0, 1.0, 0.9, 0.1, 0.4, 0.0], dtype=F64)
    v = torch.tensor([1.0, 0.0, 0.0, 2.0, 1.0, 3.0], dtype=F64)
    q[3:] /= q[3:].norm()
    ends = []
    for dt, split in ((1e-3, True), (2e-5, False)):
        contact = adjoin.PGS(restitution=0.5, time_of_impact=split)
        sim = adjoin.Simulator(box, dt=dt, contact=contact, as_list=False)
        path = sim.rollout(sim.state(q, v), steps=round(0.5 / dt), every=round(0.01 / dt))
        ends.append(path.q)
    first = int((ends[1][:, 2].diff() > 0).nonzero()[0])  # the step after which it rises again
    assert (ends[0][first + 2] - ends[1][first + 2]).abs().max() < 0.02


def test_what_it_cannot_serve_is_said() -> None:
    contact = adjoin.PGS(time_of_impact=True)
    for options in ({"as_list": True}, {"integrator": adjoin.ConstrainedRK4()}):
        with pytest.raises(InputError, match="time of impact"):
            adjoin.Simulator(BALL, contact=contact, **options)
