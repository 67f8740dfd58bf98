import functools
import math
from dataclasses import replace

import pytest
import torch
from kernel_checks import check_kernel
from worlds import FEET, UPRIGHT, G, frictions, hinge, nothing, row_of_balls, servant, tensor, traced_step, weight

import adjoin
from adjoin.constraints.compliant import Compliant
from adjoin.constraints.pgs import PGS
from adjoin.dynamics.frame_constraint import FrameConstraint
from adjoin.errors import InputError
from adjoin.simulation.simulator import Simulator

CONTACT = Compliant()


@functools.cache
def world(name, dt=1e-3, contact=CONTACT):
    if name in FEET:
        return Simulator(servant(name, 200.0, 5.0), dt, contact, pairs=FEET[name])
    return Simulator(adjoin.robots.load(name), dt, contact)


def overlap(force, mass):
    """Where the soft spring of a contact of a robot of this mass has this force."""
    return CONTACT.depth * math.log(math.expm1(force / (CONTACT.stiffness * mass * CONTACT.depth)))


def test_a_ball_sinks_in_until_the_ground_carries_it():
    sim = world("ball")
    last = sim.rollout(sim.state(tensor(0.0, 0.0, 0.12, *UPRIGHT)), nothing(2000)).last
    assert last.v.abs().max() < 1e-9
    assert abs(last.q[2] - (0.1 - overlap(weight(sim.model), sim.model.mass))) < 1e-9
    found = sim.contacts(last)
    torch.testing.assert_close(found.force, tensor(0.0, 0.0, weight(sim.model))[None], rtol=1e-7, atol=1e-9)
    assert abs(found.distance + overlap(weight(sim.model), sim.model.mass)) < 1e-9


@pytest.mark.parametrize("dt", [1e-3, 5e-3])
def test_what_bounces_off_is_no_faster_than_the_contact_model_says(dt):
    sim = world("ball", dt)
    heights = tensor(0.01, 0.1, 1.0, 10.0)
    q = tensor(0.0, 0.0, 0.1, *UPRIGHT).repeat(4, 1)
    q[:, 2] += heights
    path = sim.rollout(sim.state(q), nothing(round(3.0 / dt)))
    assert (path.status == 0).all()
    assert (path.v[..., 2].amax(0) < ((2.0 * G * heights).sqrt() / CONTACT.dissipation**2) ** (1.0 / 3.0)).all()
    assert path.v[-1].abs().max() < 1e-3


def slope(angles):
    return {"gravity": torch.stack([G * angles.sin(), torch.zeros_like(angles), -G * angles.cos()], -1)}


def test_a_block_on_a_slope_creeps_below_the_angle_of_friction_and_slides_above():
    sim, friction, steps = world("box"), 0.5, 3000
    angles = tensor(0.2, 0.8, 0.95, 1.5, 2.0).mul(friction).atan()
    params = {**slope(angles), **frictions(sim, *[friction] * 5)}
    path = sim.rollout(sim.state(tensor(0.0, 0.0, 0.1, *UPRIGHT).expand(5, 7)), nothing(steps), params)
    share = angles.tan() / friction
    creep = CONTACT.transition * share / (1.0 - share**2).sqrt()
    torch.testing.assert_close(1e3 * (path.q[-1] - path.q[-2])[:3, 0], creep[:3], rtol=1e-7, atol=0.0)
    gained = path.v[-1, 3:, 0] - path.v[-501, 3:, 0]
    expected = 0.5 * G * (angles.sin() - friction * angles.cos())[3:]
    torch.testing.assert_close(gained, expected, rtol=2e-3, atol=0.0)


def test_a_sliding_block_stops_where_theory_says():
    sim, speed, coefficients = world("box"), 2.0, (0.1, 0.3, 0.5)
    resting = sim.rollout(sim.state(tensor(0.0, 0.0, 0.1, *UPRIGHT)), nothing(1000)).last.q
    start = sim.state(resting.expand(3, 7), tensor(speed, 0.0, 0.0, 0.0, 0.0, 0.0))
    last = sim.rollout(start, nothing(3000), frictions(sim, *coefficients)).last
    # Below the transition speed friction fades: the last of it is a creep of about transition² / (mu g).
    expected = speed**2 / (2.0 * tensor(*coefficients) * G)
    assert ((last.q[:, 0] - resting[0]) - expected).abs().max() < 2.0 * speed * 1e-3
    assert last.v.abs().max() < 1e-6


def test_a_joint_limit_gives_way_by_what_pushes_it_and_reports_the_torque():
    model = replace(hinge(lower=-0.2, upper=0.3), sensors=(adjoin.Sensor("stop", "jointlimitfrc", "axle"),))
    sim = Simulator(model, 1e-3, CONTACT)
    torque = tensor(5.0, -3.0)[:, None]
    path = sim.rollout(sim.state(batch=2, dtype=torch.float64), torque.expand(3000, 2, 1), outputs=["sensors"])
    last = path.last
    torch.testing.assert_close(path.outputs["sensors"][-1], torque.abs(), rtol=1e-5, atol=0.0)
    beyond = tensor(*[overlap(abs(x) / CONTACT.lever, model.mass) / CONTACT.lever for x in (5.0, -3.0)])
    expected = tensor(0.3, -0.2) + beyond * tensor(1.0, -1.0)
    torch.testing.assert_close(last.q[:, 0], expected, rtol=0.0, atol=1e-7)


def test_joint_friction_holds_up_to_its_limit():
    moment, limit = 0.5, 2.0
    sim = Simulator(hinge(moment, friction=(limit,)), 1e-3, CONTACT)
    torque = tensor(0.5, 1.9, 3.0)[:, None]
    path = sim.rollout(sim.state(batch=3, dtype=torch.float64), torque.expand(6000, 3, 1))
    share = torque[:2, 0] / limit
    creep = CONTACT.transition / CONTACT.lever * share / (1.0 - share**2).sqrt()
    torch.testing.assert_close(path.v[-1, :2, 0], creep, rtol=1e-7, atol=0.0)
    torch.testing.assert_close(path.v[-1, 2, 0] - path.v[-1001, 2, 0], tensor(1.0)[0] / moment, rtol=1e-3, atol=0.0)


def test_an_equality_hangs_on_its_spring():
    model = adjoin.robots.load("box")
    hold = FrameConstraint(model.frames[0].name, position=(0.0, 0.0, 1.0))
    sim = Simulator(model, 1e-3, CONTACT, pairs=[], ground=False, constraints=[hold])
    start = sim.state(tensor(0.05, 0.0, 1.0, math.cos(0.1), math.sin(0.1), 0.0, 0.0))
    last = sim.rollout(start, nothing(3000)).last
    torch.testing.assert_close(last.q, tensor(0.0, 0.0, 1.0 - G / CONTACT.stiffness, *UPRIGHT), rtol=0.0, atol=1e-7)


def test_bodies_that_touch_each_other_keep_their_momentum():
    model = row_of_balls(3, 0.01)
    sim = Simulator(model, 1e-3, CONTACT, ground=False)
    path = sim.rollout(sim.state(tensor(0.0, 0.0, 0.0), tensor(1.0, 0.0, 0.0)), nothing(2000))
    assert (path.v.sum(-1) - 1.0).abs().max() < 1e-12
    assert path.v[-1, 0] < path.v[-1, 1] < path.v[-1, 2]


@pytest.mark.parametrize("dt", [1e-3, 2e-3])
@pytest.mark.parametrize("name", ["go2", "laikago"])
def test_a_quadruped_lands_and_stands(name, dt):
    sim = world(name, dt)
    home = sim.model.keyframe("home")
    q = tensor(*home.q).repeat(2, 1)
    q[:, 2] += tensor(0.05, 0.3)
    controls = tensor(*home.q[7:]).expand(round(4.0 / dt), sim.model.nu)
    path = sim.rollout(sim.state(q), controls, outputs=["contacts"])
    assert (path.status == 0).all()
    force = path.outputs["contacts"].force[-1].sum(-2) / weight(sim.model)
    torch.testing.assert_close(force, tensor(0.0, 0.0, 1.0).expand(2, 3), rtol=0.0, atol=0.02)
    assert path.outputs["contacts"].force[..., 2].min() > -1e-9
    assert path.outputs["contacts"].distance.min() > -0.02
    assert path.outputs["contacts"].distance[-1].abs().max() < 2e-3
    assert path.v[-1].abs().max() < 0.05
    single = sim.rollout(sim.state(q.float()), controls.float()).last
    torch.testing.assert_close(single.q, path.last.q.float(), rtol=0.0, atol=2e-3)


def test_gradients_of_a_landing_are_those_of_finite_differences():
    sim, steps = world("go2", 2e-3), 150
    model = sim.model
    home = tensor(*model.keyframe("home").q)
    values = model.parameters(dtype=torch.float64)
    values["geometry_friction"][model.geometry_index("ground"), 0] = 0.5  # else the greater of two equal ones counts
    names = ("geometry_friction", "mass", "actuator_gain", "actuator_bias")
    leaves = {
        "q": home + tensor(0.0, 0.0, 0.05, *[0.0] * 16),
        "v": tensor(0.3, 0.0, -0.5, *[0.0] * 15),
        "control": home[7:].expand(steps, 12).clone(),
        **{name: values[name].clone() for name in names},
    }

    def cost(inputs):
        params = {name: inputs[name] for name in names}
        path = sim.rollout(sim.state(inputs["q"], inputs["v"]), inputs["control"], params)
        return (path.q[-1, :3] * tensor(1.0, 2.0, 3.0)).sum() + 0.1 * path.v[-1].square().sum()

    tracked = {name: value.requires_grad_() for name, value in leaves.items()}
    gradients = dict(zip(tracked, torch.autograd.grad(cost(tracked), list(tracked.values())), strict=True))
    generator = torch.Generator().manual_seed(0)
    for name, value in leaves.items():
        direction = torch.randn(value.shape, dtype=torch.float64, generator=generator) * (value.detach().abs() + 0.1)
        size = 1e-6
        with torch.no_grad():
            ends = [cost({**leaves, name: value + side * size * direction}) for side in (1.0, -1.0)]
        expected = (ends[0] - ends[1]) / (2.0 * size)
        assert expected.abs() > 1e-4, name
        torch.testing.assert_close((gradients[name] * direction).sum(), expected, rtol=1e-5, atol=0.0, msg=name)


def test_the_step_is_a_kernel_like_any_other():
    sim = world("ball")
    generator = torch.Generator().manual_seed(1)
    q = tensor(0.0, 0.0, 0.1, *UPRIGHT).repeat(6, 1)
    q[:, 2] += tensor(-2e-3, -5e-4, 0.0, 3e-4, 2e-3, 1.0)
    v = 0.3 * torch.randn(6, 6, dtype=torch.float64, generator=generator)
    step = adjoin.function(q=7, v=6)(traced_step(sim))
    check_kernel(step.kernel, [q, v], second=False)


def test_the_ground_is_felt_before_it_is_touched():
    heights = tensor(-1e-3, 0.0, 1e-3, 3e-3, 0.1)
    slopes = {}
    for contact in (CONTACT, PGS()):
        sim = world("ball", 1e-3, contact)
        height = heights.clone().requires_grad_()
        q = torch.stack([*[torch.zeros_like(height)] * 2, 0.1 + height, *tensor(*UPRIGHT).expand(5, 4).unbind(-1)], -1)
        speed = sim.step(sim.state(q)).v[:, 2]
        (slopes[type(contact)],) = torch.autograd.grad(speed.sum(), height)
    soft = slopes[Compliant]
    assert (soft[:-1] < 0.0).all()
    assert (soft[:-1].diff() > 0.0).all()
    assert soft[-1].abs() < 1e-12
    assert (slopes[PGS][2:] == 0.0).all()


def test_friction_may_be_zero():
    sim = world("ball")
    params = {"geometry_friction": torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)}
    last = sim.rollout(sim.state(tensor(0.0, 0.0, 0.1, *UPRIGHT), tensor(1.0, *[0.0] * 5)), nothing(100), params).last
    torch.testing.assert_close(last.v[0], tensor(1.0)[0], rtol=0.0, atol=1e-12)
    (gradient,) = torch.autograd.grad(last.q.sum(), list(params.values()))
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", ["stiffness", "depth", "transition", "lever"])
def test_constants_must_be_positive(name):
    with pytest.raises(InputError, match=f"Compliant: {name} must be positive, got 0.0"):
        replace(CONTACT, **{name: 0.0})


@pytest.mark.filterwarnings("ignore::adjoin.errors.InsideGroundWarning")
def test_what_begins_deep_inside_comes_out_slowly():
    model = adjoin.robots.load("ball")
    sim = adjoin.Simulator(model, 2e-3, adjoin.Compliant())
    q = model.neutral(dtype=torch.float64).repeat(3, 1)
    q[:, 2] = torch.tensor([-0.1, -0.5, -3.0])
    path = sim.rollout(sim.state(q), steps=1500)
    assert path.v.abs().max() <= 2.0  # 10 / dissipation
    assert (path.q[-1, :, 2] > 0.0).all()
    assert (path.status[-1] == 0).all()
