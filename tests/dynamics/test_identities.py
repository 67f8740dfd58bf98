"""What must hold between the algorithms, whatever the numbers: on every robot, and over trajectories."""

import pytest
import torch
from peers import close, robot
from reference import SPIN, samples
from small import chain, tree

from adjoin.dynamics.aba import aba, minverse
from adjoin.dynamics.call import compute
from adjoin.dynamics.centroidal import center_of_mass, centroidal_momentum
from adjoin.dynamics.crba import crba
from adjoin.dynamics.energy import mechanical_energy
from adjoin.dynamics.passive import passive_forces
from adjoin.dynamics.rnea import bias_forces, gravity_forces, rnea
from adjoin.model import manifold

SMALL = [tree(), chain("free", "revolute", "ball"), chain("ball", "prismatic", "planar"), robot("panda")]


@pytest.mark.parametrize("model", SMALL, ids=lambda model: model.name)
def test_forward_dynamics_undoes_inverse_dynamics(model):
    q, v, a, _ = samples(model, 32)
    external = torch.randn(32, len(model.bodies), 6, dtype=torch.float64)
    params = {"gravity": torch.randn(32, 3, dtype=torch.float64)}
    given = {"external": external, "params": params, "reference": "world"}
    close(aba(model, q, v, rnea(model, q, v, a, **given), **given), a)
    tau = aba(model, q, v, a, **given)
    close(rnea(model, q, v, tau, **given), a, 1e-9)


@pytest.mark.parametrize("model", SMALL, ids=lambda model: model.name)
def test_forces_are_linear_in_accelerations_gravity_and_external_forces(model):
    q, v, a, b = samples(model, 8)
    still = torch.zeros_like(v)
    none = {"gravity": torch.zeros(3, dtype=torch.float64)}
    gravity = torch.randn(2, 3, dtype=torch.float64)
    close(
        rnea(model, q, still, 2.0 * a - b, params=none),
        2.0 * rnea(model, q, still, a, params=none) - rnea(model, q, still, b, params=none),
        1e-12,
    )
    down = [gravity_forces(model, q, params={"gravity": g}) for g in (*gravity, gravity[0] - 3.0 * gravity[1])]
    close(down[2], down[0] - 3.0 * down[1], 1e-12)
    one, two = torch.randn(2, 8, len(model.bodies), 6, dtype=torch.float64)
    at_rest = bias_forces(model, q, v)
    pushed = [bias_forces(model, q, v, external=wrench) - at_rest for wrench in (one, two, one + 0.5 * two)]
    close(pushed[2], pushed[0] + 0.5 * pushed[1], 1e-11)


@pytest.mark.parametrize("model", SMALL, ids=lambda model: model.name)
def test_velocity_forces_are_of_second_degree(model):
    q, v, _, _ = samples(model, 8)
    gravity = gravity_forces(model, q)
    once, twice, back = (bias_forces(model, q, s * v) - gravity for s in (1.0, 2.0, -1.0))
    close(twice, 4.0 * once, 1e-11)
    close(back, once, 1e-11)


@pytest.mark.parametrize("model", SMALL, ids=lambda model: model.name)
def test_gravity_forces_are_bias_forces_at_rest_and_external_forces_are_no_part_of_them(model):
    q, v, _, _ = samples(model, 8)
    external = torch.randn(8, len(model.bodies), 6, dtype=torch.float64)
    close(gravity_forces(model, q), bias_forces(model, q, torch.zeros_like(v)), 1e-13)
    found = compute(model, q, v, quantities=["gravity_forces", "bias_forces"], external=external)
    close(found["gravity_forces"], gravity_forces(model, q), 1e-13)


@pytest.mark.parametrize("model", SMALL, ids=lambda model: model.name)
def test_energy_changes_by_the_power_of_torques_and_of_passive_forces(model):
    q, v, _, tau = samples(model, 8, spin=1.0)
    rates = rate(model, q, v), aba(model, q, v, tau, passive=True)
    leaves = q.requires_grad_(), v.requires_grad_()
    slopes = torch.autograd.grad(mechanical_energy(model, *leaves).sum(), leaves)
    power = (v * (tau + passive_forces(model, q, v))).sum(-1).detach()
    close(sum((slope * along).sum(-1) for slope, along in zip(slopes, rates, strict=True)), power, 1e-11)


def rate(model, q, v):
    """dq/dt."""
    return torch.stack(manifold.rate(model, q.unbind(-1), v.unbind(-1)), -1)


# Trajectories, by the classical fourth-order Runge-Kutta method on q itself


def simulate(model, q, v, duration, steps, torques=0.0, **given):
    """The state after some time."""

    def slope(q, v):
        return rate(model, q, v), aba(model, q, v, torques + torch.zeros_like(v), **given)

    h = duration / steps
    for _ in range(steps):
        k1 = slope(q, v)
        k2 = slope(q + 0.5 * h * k1[0], v + 0.5 * h * k1[1])
        k3 = slope(q + 0.5 * h * k2[0], v + 0.5 * h * k2[1])
        k4 = slope(q + h * k3[0], v + h * k3[1])
        q, v = (x + h / 6.0 * (a + 2.0 * b + 2.0 * c + d) for x, a, b, c, d in zip((q, v), k1, k2, k3, k4, strict=True))
        q = model.normalize(q)
    return q, v


def falls_with_the_fourth_power(errors):
    """Whether halving the step takes each error down by about sixteen, until it is rounding."""
    coarse, fine = errors
    return bool(((fine < coarse / 10.0) | (fine < 1e-12)).all())


FLYING = [chain("free", "revolute", "ball"), robot("go2")]
HANGING = [tree(), chain("revolute", "revolute", "prismatic"), chain("ball", "prismatic", "planar")]


@pytest.mark.parametrize("model", [*FLYING, *HANGING], ids=lambda model: model.name)
def test_energy_is_kept_in_free_motion(model):
    q, v, _, _ = samples(model, 4, spin=1.0)
    before = mechanical_energy(model, q, v)
    errors = [
        (mechanical_energy(model, *simulate(model, q, v, 0.1, steps)) - before).abs() / before.abs().clamp(min=1.0)
        for steps in (40, 80)
    ]
    assert errors[1].max() < 1e-6
    assert falls_with_the_fourth_power(errors)


@pytest.mark.parametrize("model", FLYING, ids=lambda model: model.name)
def test_momentum_is_kept_without_gravity_and_the_center_of_mass_flies_straight(model):
    # Turning at ten radians a second, with joint torques: inner forces change the energy, not the momentum.
    q, v, _, _ = samples(model, 4, spin=1.0)
    v[:, 3:6] *= SPIN
    torques = torch.randn(model.nv, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torques[:6] = 0.0
    none = {"gravity": torch.zeros(3, dtype=torch.float64)}
    momentum, center = centroidal_momentum(model, q, v), center_of_mass(model, q)
    apart, off = [], []
    for steps in (40, 80):
        after = simulate(model, q, v, 0.05, steps, torques, params=none)
        scale = momentum.abs().max(-1, keepdim=True).values
        apart.append(((centroidal_momentum(model, *after) - momentum) / scale).abs())
        straight = center + 0.05 * momentum[:, :3] / model.mass
        off.append((center_of_mass(model, after[0]) - straight).abs())
    assert apart[1].max() < 1e-5
    assert off[1].max() < 1e-7
    assert falls_with_the_fourth_power(apart)
    assert falls_with_the_fourth_power(off)


def test_in_gravity_the_center_of_mass_falls_on_a_parabola():
    model = chain("free", "revolute", "ball")
    q, v, _, _ = samples(model, 4, spin=1.0)
    start, momentum = center_of_mass(model, q), centroidal_momentum(model, q, v)[:, :3]
    t = 0.1
    expected = start + t * momentum / model.mass + 0.5 * t * t * torch.tensor(model.gravity, dtype=torch.float64)
    close(center_of_mass(model, simulate(model, q, v, t, 80)[0]), expected, 1e-8)


def test_damping_takes_energy_and_never_gives_it():
    model = tree()
    q, v, _, _ = samples(model, 4, spin=1.0)
    energy = mechanical_energy(model, q, v, springs=True)
    for _ in range(5):
        q, v = simulate(model, q, v, 0.02, 20, passive=True)
        now = mechanical_energy(model, q, v, springs=True)
        assert (now < energy).all()
        energy = now


def test_the_inverse_times_the_matrix_is_one_on_robots_with_followers():
    model = tree()
    q = samples(model, 64)[0]
    close(crba(model, q) @ minverse(model, q), torch.eye(model.nv).expand(64, -1, -1), 1e-11)
