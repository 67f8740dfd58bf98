"""Regressors against Pinocchio, against inverse dynamics and energies, and against gradients to the parameters."""

import numpy as np
import pinocchio
import pytest
import torch
from answers import answers
from kernel_checks import check_kernel
from peers import ROBOTS, close, robot
from reference import Reference, samples, worst
from small import chain, tree

import adjoin
from adjoin.dynamics.call import compute
from adjoin.dynamics.energy import kinetic_energy, potential_energy
from adjoin.dynamics.regressor import (
    from_inertial_parameters,
    inertial_parameters,
    kinetic_energy_regressor,
    potential_energy_regressor,
    torque_regressor,
)
from adjoin.dynamics.rnea import rnea
from adjoin.errors import InputError

QUANTITIES = ("torque_regressor", "kinetic_energy_regressor", "potential_energy_regressor")


def theirs(model, q, v, a):
    other = Reference(model)
    pin, data, G = other.peer.pin, other.peer.data, other.ratios
    rows = {name: [] for name in QUANTITIES}
    for row in zip(q, v.numpy(), a.numpy(), strict=True):
        x, y, z = other.q(row[0]), G @ row[1], G @ row[2]
        matrix = pinocchio.computeJointTorqueRegressor(pin, data, x, y, z).reshape(len(G), -1)
        rows["torque_regressor"].append(G.T @ matrix)
        rows["kinetic_energy_regressor"].append(pinocchio.computeKineticEnergyRegressor(pin, data, x, y).copy())
        rows["potential_energy_regressor"].append(pinocchio.computePotentialEnergyRegressor(pin, data, x).copy())
    return {name: np.stack(values) for name, values in rows.items()}


@pytest.mark.parametrize("name", ROBOTS)
def test_regressors_are_pinocchios_and_give_torques_and_energies(name):
    model = robot(name)
    q, v, a, tau = samples(model, 20)
    ours = answers(model, [*QUANTITIES, "rnea", "kinetic_energy", "potential_energy"], q, v, a, tau)
    for quantity, expected in theirs(model, q, v, a).items():
        assert worst(ours[quantity], expected) < 1e-10, quantity
    own = model.parameters(dtype=torch.float64)
    pi = inertial_parameters(model, own).flatten()
    assert worst(ours["torque_regressor"] @ pi + own["armature"] * a, ours["rnea"]) < 1e-10
    drives = 0.5 * (own["armature"] * v * v).sum(-1)
    assert worst(ours["kinetic_energy_regressor"] @ pi + drives, ours["kinetic_energy"]) < 1e-10
    scale = ours["potential_energy_regressor"] * pi
    assert worst(ours["potential_energy_regressor"] @ pi, ours["potential_energy"], scale.abs().sum(-1).numpy()) < 1e-10


@pytest.mark.parametrize("model", [tree(), chain("free", "planar", "ball")], ids=lambda model: model.name)
def test_every_kind_of_joint(model):
    q, v, a, _ = samples(model, 20)
    ours = compute(model, q, v, a, quantities=list(QUANTITIES))
    turned = Reference(model).peer.turns  # the parameters of planar bodies are in other axes there
    for quantity, expected in theirs(model, q, v, a).items():
        for body in (k for k in range(len(model.bodies)) if np.allclose(turned[k].rotation, np.eye(3))):
            own = slice(10 * body, 10 * body + 10)
            assert worst(ours[quantity][..., own], expected[..., own]) < 1e-10, (quantity, body)
    pi = inertial_parameters(model, model.parameters(dtype=torch.float64)).flatten()
    armature = model.parameters(dtype=torch.float64)["armature"]
    assert worst(ours["torque_regressor"] @ pi + armature * a, rnea(model, q, v, a)) < 1e-10


def test_the_ten_parameters_are_pinocchios():
    model = robot("go2")
    pin = Reference(model).peer.pin
    expected = [inertia.toDynamicParameters() for inertia in list(pin.inertias)[1:]]
    close(inertial_parameters(model, {"mass": model.parameters(dtype=torch.float64)["mass"]}), expected, 1e-12)


def test_parameters_go_there_and_back():
    model = tree()
    own = model.parameters(dtype=torch.float64)
    mass = own["mass"] * torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    pi = inertial_parameters(model, {"mass": mass, "com": own["com"]})
    assert (pi.shape, pi.dtype) == ((2, len(model.bodies), 10), torch.float64)
    back = from_inertial_parameters(model, pi)
    close(back["mass"], mass, 1e-14)
    close(back["com"], own["com"].expand(2, -1, -1), 1e-14)
    close(back["inertia"], own["inertia"].expand(2, -1, -1), 1e-14)
    q, v, a, _ = samples(model, 2)
    close(rnea(model, q, v, a, params=back), rnea(model, q, v, a, params={"mass": mass}), 1e-12)


def test_a_body_without_mass_has_its_center_in_its_origin():
    model = chain("revolute", "revolute")
    pi = inertial_parameters(model).clone()
    pi[1] = 0.0
    back = from_inertial_parameters(model, pi.requires_grad_())
    assert back["com"][1].tolist() == [0.0, 0.0, 0.0]
    back["inertia"].sum().backward()
    assert pi.grad.isfinite().all()


@pytest.mark.parametrize(
    "model", [robot("two_link"), robot("panda"), robot("ant"), tree()], ids=lambda model: model.name
)
def test_gradients_to_masses_are_the_regressors(model):
    q, v, a, weights = samples(model, 3)
    own = model.parameters(dtype=torch.float64)
    leaves = {name: own[name].clone().requires_grad_() for name in ("mass", "com", "inertia")}
    (rnea(model, q, v, a, params=leaves) * weights).sum().backward()
    through = {name: own[name].clone().requires_grad_() for name in leaves}
    tau = torque_regressor(model, q, v, a) @ inertial_parameters(model, through).flatten()
    (tau * weights).sum().backward()
    for name, leaf in leaves.items():
        assert leaf.grad.abs().max() > 0.0
        close(leaf.grad, through[name].grad)


def test_other_parameters_count():
    model = chain("free", "revolute")
    q, v, a, _ = samples(model, 4)
    given = {"gravity": torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)}
    other = model.with_parameters(given)
    pi = inertial_parameters(model, {"mass": model.parameters(dtype=torch.float64)["mass"]}).flatten()
    close(torque_regressor(model, q, v, a, params=given) @ pi, rnea(other, q, v, a))
    close(kinetic_energy_regressor(model, q, v, params=given) @ pi, kinetic_energy(other, q, v))
    close(potential_energy_regressor(model, q, params=given) @ pi, potential_energy(other, q))


def test_what_is_wrong_is_named():
    model = robot("two_link")
    with pytest.raises(InputError, match=r"'two_link' needs a tensor \(..., 2, 10\), got \(3, 10\)"):
        from_inertial_parameters(model, torch.zeros(3, 10))
    with pytest.raises(InputError, match="no parameter 'masses'; parameters: mass, com"):
        inertial_parameters(model, {"masses": torch.ones(2)})
    with pytest.raises(InputError, match="parameter 'com' has shape"):
        inertial_parameters(model, {"mass": torch.ones(2), "com": torch.ones(2, 2)})


def test_the_kernels_satisfy_what_every_kernel_must():
    model = chain("planar", "ball")

    @adjoin.function(q=model.nq, v=model.nv, a=model.nv)
    def function(q, v, a):
        kinetic, potential = kinetic_energy_regressor(model, q, v), potential_energy_regressor(model, q)
        return torque_regressor(model, q, v, a), kinetic, potential

    check_kernel(function.kernel, samples(model, 5, spin=1.0)[:3], second=False)
