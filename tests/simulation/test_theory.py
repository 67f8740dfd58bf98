import functools
import itertools
import math
from dataclasses import replace

import pytest
import torch
from worlds import (
    FEET,
    UPRIGHT,
    G,
    brick,
    four_bar,
    frictions,
    hinge,
    nothing,
    row_of_balls,
    servant,
    simulator,
    tensor,
    weight,
)

import adjoin
from adjoin.dynamics.frame_constraint import FrameConstraint
from adjoin.model.joint import Joint
from adjoin.model.parts import WORLD, Body


@functools.cache
def shipped(name):
    return adjoin.robots.load(name)


def test_free_fall():
    dt, t = 1e-3, 1.0
    sim = simulator(shipped("ball"), dt)
    start = sim.state(tensor(0.0, 0.0, 20.0, *UPRIGHT), tensor(1.0, 0.0, 2.0, 0.0, 0.0, 0.0))
    last = sim.rollout(start, nothing(round(t / dt))).last
    # Semi-implicit Euler is g t dt / 2 ahead of the parabola, exactly.
    expected = tensor(t, 0.0, 20.0 + 2.0 * t - G * t * (t + dt) / 2.0)
    torch.testing.assert_close(last.q[:3], expected, rtol=0.0, atol=1e-11)
    torch.testing.assert_close(last.v[:3], tensor(1.0, 0.0, 2.0 - G * t), rtol=0.0, atol=1e-11)


@pytest.mark.parametrize("dt", [1e-3, 1e-4])
def test_a_ball_bounces_to_the_heights_and_at_the_times_of_theory(dt):
    share, drop = 0.8, 1.0
    sim = simulator(shipped("ball"), dt, restitution=share)
    count = 5
    first = math.sqrt(2.0 * drop / G)
    ends = [first * (1.0 + 2.0 * sum(share**k for k in range(1, n + 1))) for n in range(count + 1)]
    start = sim.state(tensor(0.0, 0.0, 0.1 + drop, *UPRIGHT))
    height = sim.rollout(start, nothing(round((ends[-1] + 0.1) / dt))).q[:, 2] - 0.1
    speed = math.sqrt(2.0 * G * drop)
    # A bounce is up to one step early: up to speed dt too high, and so is the peak after it. Its speed is off by up to
    # g dt, and every later flight by up to 2 dt: n impacts add up to n^2 steps, and Euler's parabola has half a step.
    assert height.min() > -1e-8
    for n in range(1, count + 1):
        peak = height[round(ends[n - 1] / dt) : round(ends[n] / dt)].max()
        assert abs(peak - share ** (2 * n) * drop) < n * speed * share ** (n - 1) * dt
        low = round(ends[n - 1] / dt) - 10 * n + height[round(ends[n - 1] / dt) - 10 * n :][: 20 * n].argmin()
        assert abs(low * dt - ends[n - 1]) < (n * n + 0.5) * dt


def test_a_ball_that_does_not_bounce_stays_where_it_lands():
    sim = simulator(shipped("ball"), 1e-3)
    path = sim.rollout(sim.state(tensor(0.0, 0.0, 0.3, *UPRIGHT)), nothing(1000))
    assert abs(path.q[-1, 2] - 0.1) < 1e-7
    assert path.v[-1].abs().max() < 1e-6
    assert path.q[:, 2].min() > 0.1 - 1e-6


@pytest.mark.parametrize("elliptic", [False, True])
def test_a_sliding_block_stops_where_theory_says(elliptic):
    dt, speed, coefficients = 1e-3, 2.0, (0.1, 0.3, 0.5)
    sim = simulator(shipped("box"), dt, elliptic=elliptic)
    start = sim.state(tensor(0.0, 0.0, 0.1, *UPRIGHT).expand(3, 7), tensor(speed, 0.0, 0.0, 0.0, 0.0, 0.0))
    last = sim.rollout(start, nothing(3000), params=frictions(sim, *coefficients)).last
    # Euler's sum of a falling speed is short by half a step.
    expected = speed**2 / (2.0 * tensor(*coefficients) * G) - speed * dt / 2.0
    assert (last.q[:, 0] - expected).abs().max() < 0.1 * speed * dt
    assert last.q[:, 1].abs().max() < 0.1 * speed * dt
    assert last.v.abs().max() < 1e-5


def slope(angles):
    return torch.stack([G * angles.sin(), torch.zeros_like(angles), -G * angles.cos()], -1)


@pytest.mark.parametrize("elliptic", [False, True])
def test_a_block_on_a_slope_sticks_below_the_angle_of_friction_and_slides_above(elliptic):
    dt, friction, steps = 1e-3, 0.5, 1000
    sim = simulator(shipped("box"), dt, elliptic=elliptic, iterations=200)
    angles = torch.atan(friction * tensor(0.5, 0.99, 1.01, 1.5))
    start = sim.state(tensor(0.0, 0.0, 0.1, *UPRIGHT).expand(4, 7))
    params = {**frictions(sim, *[friction] * 4), "gravity": slope(angles)}
    last = sim.rollout(start, nothing(steps), params=params).last
    time = steps * dt
    speed = G * (angles.sin() - friction * angles.cos()).clamp(min=0.0) * time
    # What softness lets pass: its share of the impulse, each step.
    creep = 1e-4 * G * dt
    assert (last.v[:, 0] - speed).abs().max() < 1e-3 * G * time * friction
    assert last.v[:2, 0].abs().max() < 2.0 * creep
    assert last.v[3, 0] > 0.9 * speed[3]


def test_a_sliding_ball_ends_up_rolling_at_five_sevenths():
    dt, speed, friction = 1e-3, 1.0, 0.3
    sim = simulator(shipped("ball"), dt)
    slips = 2.0 * speed / (7.0 * friction * G)
    start = sim.state(tensor(0.0, 0.0, 0.1, *UPRIGHT).expand(1, 7), tensor(speed, 0.0, 0.0, 0.0, 0.0, 0.0))
    path = sim.rollout(start, nothing(round(2.0 * slips / dt)), params=frictions(sim, friction))
    middle = round(slips / 2.0 / dt)
    spatial = adjoin.frame_velocity(sim.model, path.q[:, 0], path.v[:, 0], "ball", reference="local_world_aligned")
    velocity, spin = spatial[:, :3], spatial[:, 3:]
    assert abs(velocity[middle, 0] - (speed - friction * G * middle * dt)) < 1e-3 * speed
    assert abs(velocity[-1, 0] - 5.0 / 7.0 * speed) < friction * G * dt
    assert abs(spin[-1, 1] * 0.1 - velocity[-1, 0]) < 1e-5
    rolling = (spin[:, 1] * 0.1 - velocity[:, 0]).abs() < 1e-5
    assert abs(int(rolling.double().argmax()) * dt - slips) < 2.0 * dt


def test_newtons_cradle():
    sim = simulator(row_of_balls(5, gap=4e-3), 1e-3, restitution=1.0, ground=False)
    path = sim.rollout(sim.state(v=tensor(1.0, 0.0, 0.0, 0.0, 0.0)), nothing(40))
    assert len(sim.contact_names) == 10
    # Softness of 1e-4 over the whole row's mass is 1e-5 of what a pair of balls gives way, at each of four impacts.
    torch.testing.assert_close(path.v[-1], tensor(0.0, 0.0, 0.0, 0.0, 1.0), rtol=0.0, atol=1e-4)
    torch.testing.assert_close(path.v.sum(-1), torch.ones(41, dtype=torch.float64), rtol=0.0, atol=1e-12)


def period(angles, dt):
    """Between crossings of 0 in one direction, interpolated."""
    crossings = [
        i + float(angles[i] / (angles[i] - angles[i + 1]))
        for i in range(len(angles) - 1)
        if angles[i] > 0.0 >= angles[i + 1]
    ]
    return (crossings[-1] - crossings[0]) / (len(crossings) - 1) * dt


@pytest.mark.parametrize("dt", [1e-3, 4e-3])
def test_the_period_of_a_pendulum_of_any_amplitude(dt):
    model = shipped("pendulum")
    sim = simulator(model, dt, ground=False)
    amplitudes = tensor(0.05, 1.0, 2.5)
    path = sim.rollout(sim.state(amplitudes[:, None]), nothing(round(12.0 / dt)))
    rod = model.bodies[0]
    small = 2.0 * math.pi * math.sqrt((rod.inertia[3] + rod.mass / 4.0) / (rod.mass * G / 2.0))
    for k, amplitude in enumerate(amplitudes.tolist()):
        mean, other = 1.0, math.cos(amplitude / 2.0)
        for _ in range(10):  # the arithmetic-geometric mean gives the elliptic integral
            mean, other = (mean + other) / 2.0, math.sqrt(mean * other)
        # Semi-implicit Euler's period is right to second order: (omega dt)^2 / 24 for small swings.
        assert abs(period(path.q[:, k, 0], dt) / (small / mean) - 1.0) < (2.0 * math.pi / small * dt) ** 2


def test_a_tumbling_body_flies_straight_and_keeps_angular_momentum_and_energy_to_first_order():
    drifts = []
    for dt in (2e-3, 1e-3, 5e-4):
        sim = simulator(replace(brick(), gravity=(0.0, 0.0, 0.0)), dt)
        start = sim.state(v=tensor(0.3, -0.2, 0.1, 1.0, 2.0, 0.5))
        path = sim.rollout(start, nothing(round(2.0 / dt)))
        torch.testing.assert_close(path.q[-1, :3], tensor(0.6, -0.4, 0.2), rtol=0.0, atol=1e-12)
        momentum = adjoin.centroidal_momentum(sim.model, path.q, path.v)[:, 3:]
        energy = adjoin.kinetic_energy(sim.model, path.q, path.v)
        drifts.append(
            (
                float((momentum - momentum[0]).norm(dim=-1).max() / momentum[0].norm()),
                float((energy - energy[0]).abs().max() / energy[0]),
            )
        )
    for coarse, fine in itertools.pairwise(drifts):
        for a, b in zip(coarse, fine, strict=True):
            assert 1.9 < a / b < 2.1
    assert max(drifts[1]) < 0.01


def test_a_planar_body_spins_along_a_straight_line():
    base = Body("disc", WORLD, Joint("disc", "planar"), mass=1.0, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, 1.0))
    sim = simulator(adjoin.Model("disc", (base,)), 1e-2)
    path = sim.rollout(sim.state(v=tensor(1.0, 0.5, 9.0)), nothing(100))
    torch.testing.assert_close(path.q[-1], tensor(1.0, 0.5, 9.0), rtol=0.0, atol=1e-12)
    torch.testing.assert_close(path.v[-1, :2].norm(), tensor(1.0, 0.5).norm(), rtol=0.0, atol=1e-12)


def test_a_standing_laikagos_contact_forces_sum_to_its_weight():
    model = servant("laikago", 400.0, 40.0)
    sim = simulator(model, 1e-3, FEET["laikago"])
    home = model.keyframe("home")
    q = tensor(*home.q)
    path = sim.rollout(sim.state(q), q[7:].expand(2000, 12), outputs=["contacts"])
    force = path.outputs["contacts"].force.sum(-2)
    torch.testing.assert_close(force[-1], tensor(0.0, 0.0, weight(model)), rtol=0.0, atol=1e-3 * weight(model))
    assert path.v[-1].abs().max() < 1e-3
    assert (path.outputs["contacts"].distance[-1].abs() < 1e-4).all()


def test_a_stack_of_five_boxes_stands_for_ten_seconds():
    count, dt = 5, 5e-3
    tower = adjoin.forest({f"b{k}": shipped("box") for k in range(count)})
    pairs = [("b0/box", "ground"), *[(f"b{k + 1}/box", f"b{k}/box") for k in range(count - 1)]]
    sim = simulator(tower, dt, pairs, warm=True, iterations=60)
    start = torch.cat([tensor(0.0, 0.0, 0.1 + 0.2 * k, *UPRIGHT) for k in range(count)])
    path = sim.rollout(sim.state(start), nothing(round(10.0 / dt)))
    moved = (path.q[-1] - start).reshape(count, 7)
    assert moved.abs().max() < 1e-3
    assert path.v[-1].abs().max() < 1e-3


def pile(ratio):
    """A box on one of a fraction of its mass, and where they stand."""
    box = shipped("box")
    numbers = box.parameters(dtype=torch.float64)
    heavy = box.with_parameters({name: ratio * numbers[name] for name in ("mass", "inertia")})
    start = torch.cat([tensor(0.0, 0.0, height, *UPRIGHT) for height in (0.1, 0.3)])
    return adjoin.forest({"light": box, "heavy": heavy}), start


def test_a_box_stands_on_one_of_a_hundredth_of_its_mass_by_default():
    model, start = pile(100.0)
    sim = adjoin.Simulator(model, 2e-3)
    path = sim.rollout(sim.state(start), steps=1000)
    moved = (path.q - start).reshape(-1, 2, 7)
    assert moved[..., :3].norm(dim=-1).max() < 1e-3
    assert 2.0 * moved[..., 4:].norm(dim=-1).max() < 5e-3


def test_a_box_stands_on_one_of_a_ten_thousandth_of_its_mass_with_the_sweeps_that_the_docs_say():
    model, start = pile(1e4)
    sim = simulator(model, 1e-3, [("light/box", "ground"), ("heavy/box", "light/box")], iterations=3000, warm=True)
    path = sim.rollout(sim.state(start), nothing(300))
    assert (path.q - start).abs().max() < 1e-3


def test_only_loose_things_of_different_masses_have_more_sweeps_and_a_warm_start():
    for ratio, solver in (
        (1.0, adjoin.PGS()),
        (10.0, adjoin.PGS(warm=True)),
        (30.0, adjoin.PGS(iterations=60, warm=True)),
        (1e4, adjoin.PGS(iterations=200, warm=True)),
    ):
        model, _ = pile(ratio)
        assert adjoin.Simulator(model).world.contact == solver
        apart = adjoin.Simulator(model, pairs=[("light/box", "ground"), ("heavy/box", "ground")])
        assert apart.world.contact == adjoin.PGS()
    assert adjoin.Simulator(shipped("go2")).world.contact == adjoin.PGS()


def test_what_begins_inside_the_ground_comes_out_and_does_not_jump():
    model = adjoin.robots.load("box")
    sim = simulator(model, 1e-3)
    half = model.geometries[0].size[2]
    path = sim.rollout(sim.state(tensor(0.0, 0.0, half - 0.01, *UPRIGHT)), nothing(1000))
    # It leaves the ground with the greatest speed of recovery at most, and rises by v²/2g with it.
    assert path.q[:, 2].max() < half + sim.world.contact.recovery**2 / (2.0 * G) + 1e-5
    torch.testing.assert_close(path.q[-1, 2], tensor(half)[0], rtol=0.0, atol=1e-4)


def test_joint_limits_hold():
    model = hinge(lower=-0.5, upper=0.5)
    sim = simulator(model, 1e-3)
    pushes = tensor(3.0, -3.0)
    path = sim.rollout(sim.state(batch=2, dtype=torch.float64), pushes[:, None].expand(3000, 2, 1))
    assert path.q.abs().max() < 0.5 + 1e-6
    torch.testing.assert_close(path.q[-1, :, 0], tensor(0.5, -0.5), rtol=0.0, atol=1e-6)


def test_joint_friction_holds_up_to_its_limit():
    dt, moment, friction = 1e-3, 0.5, 2.0
    sim = simulator(hinge(moment, friction=(friction,)), dt)
    pushes = tensor(0.5, 0.999, -0.999, 1.001, -1.5) * friction
    last = sim.rollout(sim.state(batch=5, dtype=torch.float64), pushes[:, None].expand(1000, 5, 1)).last
    slips = (pushes.abs() - friction).clamp(min=0.0) * pushes.sign() / moment
    torch.testing.assert_close(last.v[:, 0], slips, rtol=0.0, atol=1e-12)
    # It also stops what moves, after (I v / friction) seconds.
    path = sim.rollout(sim.state(v=tensor(1.0)), torch.zeros(1000, 1, dtype=torch.float64))
    moving = int((path.v[:, 0] > 1e-12).sum())
    assert abs(moving * dt - moment / friction) <= 2.0 * dt
    assert path.v[-1].abs().max() == 0.0


def test_a_four_bar_linkage_stays_closed_and_keeps_its_energy():
    model = four_bar()
    held = FrameConstraint("end", "pin", "point")
    q = closed(model)
    drifts = []
    for dt in (1e-3, 5e-4):
        sim = simulator(model, dt, constraints=[held])
        path = sim.rollout(sim.state(q), nothing(round(2.0 / dt)))
        places = adjoin.forward_kinematics(model, path.q, ["end", "pin"])
        gap = (places[:, 0, :3, 3] - places[:, 1, :3, 3]).norm(dim=-1)
        # Each step leaves half of dt^2 times the links' centripetal accelerations, and undoes a fifth of the gap.
        rates = torch.stack([path.v[:, 0], path.v[:, 0] + path.v[:, 1], path.v[:, 2]], -1)
        pulls = (rates**2 * tensor(0.5, 1.0, 0.6)).sum(-1).max()
        assert pulls > 10.0
        assert gap.max() < dt**2 * pulls / 2.0 / 0.2
        energy = adjoin.mechanical_energy(model, path.q, path.v)
        drifts.append(float((energy - energy[0]).abs().max()))
    assert 1.5 < drifts[0] / drifts[1] < 2.5


def closed(model):
    """A configuration in which the ends meet: crank upright, found by the law of cosines."""
    start, across = (0.0, 0.5), (1.0, 0.0)
    dx, dz = across[0] - start[0], across[1] - start[1]
    apart = math.hypot(dx, dz)
    along = (1.0 - 0.36 + apart**2) / (2.0 * apart)
    up = math.sqrt(1.0 - along**2)
    end = (start[0] + (along * dx - up * dz) / apart, start[1] + (along * dz + up * dx) / apart)
    return tensor(
        0.0, math.atan2(end[0] - start[0], end[1] - start[1]), math.atan2(end[0] - across[0], end[1] - across[1])
    )


def test_stiff_servos_are_stable_at_a_coarse_step():
    model = servant("two_link", 1e4, 1e3)
    joints = [replace(body.joint, effort_limit=math.inf) for body in model.bodies]
    bodies = [replace(body, joint=joint) for body, joint in zip(model.bodies, joints, strict=True)]
    model = replace(model, bodies=tuple(bodies))
    sim = simulator(model, 1e-2)
    target = tensor(0.7, -1.2)
    path = sim.rollout(sim.state(batch=(), dtype=torch.float64), target.expand(300, 2))
    # Without implicit damping these gains would be unstable: dt kd is far beyond the inertia.
    inertia = adjoin.crba(model, target)
    assert 5.0 * inertia.diagonal().max() < 1e-2 * 1e3
    assert (path.q - target).abs().max() <= target.abs().max() + 1e-3
    sag = adjoin.gravity_forces(model, path.q[-1]).abs().max() / 1e4
    assert (path.q[-1] - target).abs().max() < sag + 1e-6
    assert path.v[-1].abs().max() < 1e-3


def test_actuators_saturate_at_their_limits():
    moment, limit = 0.5, 2.0
    sim = simulator(hinge(moment, force_range=(-limit, 0.5 * limit)), 1e-3)
    torque = tensor(0.3, 1.7, 90.0, -1.7, -90.0)
    last = sim.rollout(sim.state(batch=5, dtype=torch.float64), torque[:, None].expand(100, 5, 1)).last
    expected = torque.clamp(-limit, 0.5 * limit) / moment * 0.1
    torch.testing.assert_close(last.v[:, 0], expected, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("elliptic", [False, True])
def test_friction_is_the_same_in_all_directions_only_within_a_cone(elliptic):
    friction, steps, dt = 0.3, 200, 1e-3
    sim = simulator(shipped("box"), dt, elliptic=elliptic)
    directions = tensor(0.0, math.pi / 8, math.pi / 4, math.pi / 2, -3.0)
    velocity = torch.zeros(5, 6, dtype=torch.float64)
    velocity[:, 0], velocity[:, 1] = 9.0 * directions.cos(), 9.0 * directions.sin()
    params = frictions(sim, *[friction] * 5)
    last = sim.rollout(sim.state(tensor(0.0, 0.0, 0.1, *UPRIGHT), velocity), nothing(steps), params=params).last
    lost = (velocity - last.v)[:, :2] / (steps * dt * friction * G)
    if elliptic:
        expected = torch.stack([directions.cos(), directions.sin()], -1)
    else:
        expected = velocity[:, :2].sign() * (velocity[:, :2].abs() > 1e-9)
    torch.testing.assert_close(lost, expected, rtol=0.0, atol=5e-3)


def rough_ball(condim, torsional, rolling):
    model = shipped("ball")
    shape = replace(model.geometries[0], condim=condim, friction=(0.8, torsional, rolling), priority=1)
    return replace(model, geometries=(shape,))


@pytest.mark.parametrize("elliptic", [False, True])
def test_torsional_friction_stops_a_spinning_ball(elliptic):
    dt, rate, torsional = 1e-3, 8.0, 0.02
    sim = simulator(rough_ball(4, torsional, 0.0), dt, elliptic=elliptic)
    start = sim.state(tensor(0.0, 0.0, 0.1, *UPRIGHT), tensor(0.0, 0.0, 0.0, 0.0, 0.0, rate))
    path = sim.rollout(start, nothing(400))
    moment = 0.4 * 0.1**2
    slows = torsional * G / moment
    time = torch.arange(401, dtype=torch.float64) * dt
    torch.testing.assert_close(path.v[:, 5], (rate - slows * time).clamp(min=0.0), rtol=0.0, atol=slows * dt)


def test_rolling_friction_stops_a_rolling_ball():
    dt, speed, rolling = 1e-3, 1.0, 0.01
    sim = simulator(rough_ball(6, 0.005, rolling), dt)
    start = sim.state(tensor(0.0, 0.0, 0.1, *UPRIGHT), tensor(speed, 0.0, 0.0, 0.0, speed / 0.1, 0.0))
    path = sim.rollout(start, nothing(2000))
    # Both the ball's mass and its turning are slowed by the moment: (m r² + I) a = -rolling m g r.
    slows = rolling * G / 0.1 / 1.4
    time = torch.arange(2001, dtype=torch.float64) * dt
    expected = speed * time - slows * time**2 / 2.0
    moving = time < speed / slows
    torch.testing.assert_close(path.q[moving, 0], expected[moving], rtol=0.0, atol=2.0 * speed * dt)
    assert path.v[-1].abs().max() < 1e-3
