import functools
from dataclasses import replace

import numpy as np
import pinocchio
import pytest
import torch
from kernel_checks import check_kernel
from kinds import ALL, branched, floating, named
from peers import close, peer, robot, states
from reference import Reference, worst

import adjoin
from adjoin.dynamics.call import compute
from adjoin.dynamics.centroidal import (
    center_of_mass,
    center_of_mass_acceleration,
    center_of_mass_jacobian,
    center_of_mass_velocity,
    centroidal_momentum,
    centroidal_momentum_matrix,
    centroidal_momentum_matrix_derivative,
    centroidal_momentum_rate,
)
from adjoin.errors import InputError

QUANTITIES = (
    "center_of_mass",
    "center_of_mass_jacobian",
    "center_of_mass_velocity",
    "center_of_mass_acceleration",
    "centroidal_momentum",
    "centroidal_momentum_matrix",
    "centroidal_momentum_matrix_derivative",
    "centroidal_momentum_rate",
)


@functools.cache
def found(name):
    """States of a robot, and everything about them."""
    model = named(name)
    q, v, a = states(model, 20, spin=10.0)
    return q, v, a, compute(model, q, v, a, quantities=QUANTITIES)


@pytest.mark.parametrize("name", ALL)
def test_all_of_it_agrees_with_pinocchio(name):
    q, v, a, ours = found(name)
    peer = Reference(named(name))
    pin, data, full = peer.peer.pin, peer.peer.data, peer.ratios
    for k in range(len(q)):
        at, moving, accelerating = peer.q(q[k]), full @ v[k].numpy(), full @ a[k].numpy()
        pinocchio.centerOfMass(pin, data, at, moving, accelerating)
        close(ours["center_of_mass"][k], data.com[0])
        close(ours["center_of_mass_velocity"][k], data.vcom[0])
        close(ours["center_of_mass_acceleration"][k], data.acom[0])
        center = pinocchio.jacobianCenterOfMass(pin, data, at).reshape(3, -1)
        close(ours["center_of_mass_jacobian"][k], center @ full)
        pinocchio.dccrba(pin, data, at, moving)
        close(ours["centroidal_momentum"][k], data.hg.vector)
        close(ours["centroidal_momentum_matrix"][k], data.Ag.reshape(6, -1) @ full)
        close(ours["centroidal_momentum_matrix_derivative"][k], data.dAg.reshape(6, -1) @ full)
        rate = pinocchio.computeCentroidalMomentumTimeVariation(pin, data, at, moving, accelerating)
        close(ours["centroidal_momentum_rate"][k], rate.vector)


def test_float32_is_as_good_as_it_can_be():
    model = robot("go2")
    inputs = [x.float() for x in states(model, 500, spin=10.0)]
    single = compute(model, *inputs, quantities=QUANTITIES)
    double = compute(model, *[x.double() for x in inputs], quantities=QUANTITIES)
    for what in QUANTITIES:
        assert worst(single[what], double[what]) < 5e-6, what


@pytest.mark.parametrize("name", ["every_kind", "go2", "panda", "allegro"])
def test_matrices_give_momentum_and_its_rate(name):
    _, v, a, ours = found(name)
    A, rate = ours["centroidal_momentum_matrix"], ours["centroidal_momentum_matrix_derivative"]
    v, a = v[..., None], a[..., None]
    close(ours["centroidal_momentum"], (A @ v)[..., 0])
    close(ours["centroidal_momentum_rate"], (rate @ v + A @ a)[..., 0])
    close(ours["center_of_mass_velocity"], (ours["center_of_mass_jacobian"] @ v)[..., 0])
    close(ours["centroidal_momentum"][:, :3], named(name).mass * ours["center_of_mass_velocity"])
    close(ours["centroidal_momentum_rate"][:, :3], named(name).mass * ours["center_of_mass_acceleration"])


@pytest.mark.parametrize("name", ["every_kind", "panda"])
def test_rates_are_differences(name):
    model = named(name)
    q, v, a = states(model, 8)
    step = 1e-6

    def at(time):
        q_then = model.integrate(q, v + 0.5 * time * a, time)
        return compute(model, q_then, v + time * a, a, quantities=QUANTITIES)

    before, now, after = at(-step), at(0.0), at(step)
    for value, rate in (
        ("center_of_mass", "center_of_mass_velocity"),
        ("center_of_mass_velocity", "center_of_mass_acceleration"),
        ("centroidal_momentum_matrix", "centroidal_momentum_matrix_derivative"),
        ("centroidal_momentum", "centroidal_momentum_rate"),
    ):
        close(now[rate], (after[value] - before[value]) / (2 * step), 1e-7)


def test_only_gravity_changes_the_momentum_of_a_robot_in_the_air():
    model, theirs = robot("go2"), peer("go2")
    q, v, _ = states(model, 5)
    tau = torch.cat([torch.zeros(5, 6), torch.randn(5, 12, generator=torch.Generator().manual_seed(3))], -1).double()
    a = [
        pinocchio.aba(theirs.pin, theirs.data, theirs.q(x), y.numpy(), t.numpy()).copy()
        for x, y, t in zip(q, v, tau, strict=True)
    ]
    rate = centroidal_momentum_rate(model, q, v, torch.tensor(np.stack(a)))
    weight = torch.tensor([*[model.mass * g for g in model.gravity], 0.0, 0.0, 0.0], dtype=torch.float64)
    close(rate, weight.expand(5, 6))


def test_the_momentum_does_not_depend_on_where_the_robot_is():
    model = floating()
    q, v, a = (x.float() for x in states(model, 20))
    far = q.clone()
    far[:, :3] += 1e6
    what = [name for name in QUANTITIES if name != "center_of_mass"]
    here, there = (compute(model, x, v, a, quantities=what) for x in (q, far))
    for name in what:
        assert torch.equal(here[name], there[name]), name


def test_gravity_has_no_part_in_the_rate():
    model = floating()
    q, v, a = states(model, 5)
    heavier = replace(model, gravity=(1.0, 2.0, -30.0))
    close(centroidal_momentum_rate(heavier, q, v, a), centroidal_momentum_rate(model, q, v, a))


PARAMETERS = ("mass", "com", "inertia", "joint_position", "joint_rotation")


def test_gradients_reach_every_input_and_every_parameter():
    model = floating()
    q, v, a = states(model, 1)
    parameters = model.parameters(dtype=torch.float64)

    def everything(q, v, a, *values):
        found = compute(model, q, v, a, quantities=QUANTITIES, params=dict(zip(PARAMETERS, values, strict=True)))
        return tuple(found.values())

    inputs = [q, v, a, *[parameters[name] for name in PARAMETERS]]
    assert torch.autograd.gradcheck(everything, [value.requires_grad_() for value in inputs])


def test_masses_may_differ_between_environments():
    model = branched()
    q, v, _ = states(model, 3)
    mass = torch.rand(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) + 0.5
    centers = center_of_mass(model, q, {"mass": mass})
    momenta = centroidal_momentum(model, q, v, {"mass": mass})
    for k in range(3):
        changed = model.with_parameters({"mass": mass[k]})
        close(centers[k], center_of_mass(changed, q[k]))
        close(momenta[k], centroidal_momentum(changed, q[k], v[k]))


def test_kernels_pass_every_check():
    model = robot("two_link")
    q, v, a = states(model, 5)

    @adjoin.function(q=model.nq, v=model.nv, a=model.nv)
    def everything(q, v, a):
        return {
            "center": center_of_mass(model, q),
            "center_jacobian": center_of_mass_jacobian(model, q),
            "center_velocity": center_of_mass_velocity(model, q, v),
            "center_acceleration": center_of_mass_acceleration(model, q, v, a),
            "momentum": centroidal_momentum(model, q, v),
            "matrix": centroidal_momentum_matrix(model, q),
            "derivative": centroidal_momentum_matrix_derivative(model, q, v),
            "rate": centroidal_momentum_rate(model, q, v, a),
        }

    check_kernel(everything.kernel, [q, v, a])


def test_a_robot_without_mass_has_no_center():
    model = floating()
    light = replace(model, bodies=tuple(replace(body, mass=0.0, inertia=(0.0,) * 6) for body in model.bodies))
    q, _, _ = states(light, 2)
    with pytest.raises(InputError, match=r"^'floating' has no center of mass: the masses of its bodies are 0$"):
        center_of_mass(light, q)
    mass = torch.ones(3, dtype=torch.float64)
    assert center_of_mass(light, q, {"mass": mass}).isfinite().all()
