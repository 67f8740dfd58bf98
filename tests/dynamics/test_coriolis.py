"""The Coriolis matrix against Pinocchio, and by what defines it."""

import numpy as np
import pinocchio
import pytest
import torch
from answers import answers
from kernel_checks import check_kernel
from kinds import every_kind
from peers import ROBOTS, robot
from reference import Reference, samples, worst
from small import chain, tree

import adjoin
from adjoin.dynamics.coriolis import coriolis_matrix
from adjoin.dynamics.crba import crba
from adjoin.dynamics.rnea import bias_forces, gravity_forces

SMALL = [tree(), chain("free", "planar", "ball", "prismatic"), every_kind()]


@pytest.mark.parametrize("model", [*[robot(name) for name in ROBOTS], *SMALL], ids=lambda model: model.name)
def test_it_is_pinocchios_and_gives_the_bias_forces(model):
    q, v, a, tau = samples(model, 20)
    other = Reference(model)
    pin, data, G = other.peer.pin, other.peer.data, other.ratios
    expected = [
        G.T @ pinocchio.computeCoriolisMatrix(pin, data, other.q(x), G @ y) @ G
        for x, y in zip(q, v.numpy(), strict=True)
    ]
    ours = answers(model, ["coriolis_matrix", "bias_forces", "gravity_forces"], q, v, a, tau)
    assert worst(ours["coriolis_matrix"], np.stack(expected)) < 1e-10
    product = (ours["coriolis_matrix"] @ v[..., None]).squeeze(-1)
    assert worst(product + ours["gravity_forces"], ours["bias_forces"], product.numpy()) < 1e-10


@pytest.mark.parametrize("model", [robot("go2"), robot("panda"), *SMALL], ids=lambda model: model.name)
def test_the_rate_of_inertia_less_twice_the_matrix_is_skew(model):
    q, v, _, _ = samples(model, 8, spin=1.0)
    h = 1e-3
    before, after, far_before, far_after = (crba(model, model.integrate(q, k * h * v)) for k in (-1, 1, -2, 2))
    rate = (8 * (after - before) - (far_after - far_before)) / (12 * h)
    C = coriolis_matrix(model, q, v)
    assert worst(C + C.mT, rate) < 1e-9


def test_parameters_count():
    model = tree()
    q, v, _, _ = samples(model, 4)
    own = model.parameters(dtype=torch.float64)
    noise = torch.rand(4, len(model.bodies), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    params = {"mass": own["mass"] * (0.5 + noise), "armature": own["armature"] + 1.0}
    product = (coriolis_matrix(model, q, v, params=params) @ v[..., None]).squeeze(-1)
    expected = bias_forces(model, q, v, params=params) - gravity_forces(model, q, params=params)
    assert worst(product, expected) < 1e-10


def test_the_kernel_satisfies_what_every_kernel_must():
    model = chain("revolute", "ball")

    @adjoin.function(q=model.nq, v=model.nv)
    def function(q, v):
        return coriolis_matrix(model, q, v)

    check_kernel(function.kernel, samples(model, 5, spin=1.0)[:2])
