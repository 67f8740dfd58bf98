"""Every robot that ships, at high speed: the core against Pinocchio, float32 against float64, and what must hold."""

from dataclasses import dataclass

import pytest
import torch
from peers import ROBOTS
from reference import CORE, Reference, apart, samples, worst

import adjoin
from adjoin.dynamics.call import compute
from adjoin.model.model import Model

STATES = 128


@dataclass
class Found:
    """What is said of one robot in the same states: by us, by Pinocchio, and by us in float32 of rounded states."""

    model: Model
    inputs: list[torch.Tensor]
    ours: dict
    theirs: dict
    rounded: list[torch.Tensor]
    single: dict
    double: dict


@pytest.fixture(scope="module", params=ROBOTS)
def found(request):
    model = adjoin.robots.load(request.param)
    inputs = samples(model, STATES)
    single = [x.float() for x in samples(model, 8 * STATES, seed=1)]
    rounded = [x.double() for x in single]
    ours, of_single, of_rounded = (compute(model, *x, quantities=list(CORE)) for x in (inputs, single, rounded))
    return Found(model, inputs, ours, Reference(model).answers(*inputs), rounded, of_single, of_rounded)


@pytest.mark.parametrize("quantity", CORE)
def test_values_are_pinocchios(found, quantity):
    assert worst(found.ours[quantity], found.theirs[quantity]) < 1e-10


@pytest.mark.parametrize("quantity", CORE)
def test_float32_is_close_to_float64(found, quantity):
    # An acceleration is a difference, of what torques do and of what velocity and gravity do.
    beside = torch.linalg.solve(found.double["crba"], found.rounded[3]) if quantity == "aba" else 0.0
    assert worst(found.single[quantity], found.double[quantity], beside) < 2e-5


@pytest.mark.parametrize("quantity", ["crba", "minverse"])
def test_matrices_are_symmetric_to_the_bit_and_positive_definite(found, quantity):
    matrix = found.ours[quantity]
    assert torch.equal(matrix, matrix.mT)
    assert torch.linalg.eigvalsh(matrix).min() > 0.0


def test_joints_on_different_branches_do_not_feel_each_other(found):
    zeros = torch.from_numpy(apart(found.model))
    assert not found.ours["crba"][:, zeros].any()


def product(matrix, vector):
    return (matrix @ vector[..., None])[..., 0]


def test_the_equation_of_motion(found):
    _, _, a, tau = found.inputs
    M, inverse, bias = (found.ours[name] for name in ("crba", "minverse", "bias_forces"))
    one = torch.eye(found.model.nv, dtype=torch.float64)
    assert (M @ inverse - one).abs().max() < 1e-15 * torch.linalg.cond(M).max() + 1e-12
    assert worst(product(M, a) + bias, found.ours["rnea"], beside=bias) < 1e-12
    assert worst(product(M, found.ours["aba"]) + bias, tau, beside=bias) < 1e-11
    assert worst(product(inverse, tau - bias), found.ours["aba"]) < 1e-10
