"""Tendons: gradients by finite differences, momentum, a beam that its tendon bends, and what is refused."""

import pytest
import torch

from adjoin.continuum import ImplicitSolid, Solid, SolidMaterial, box_mesh
from adjoin.errors import InputError

BEAM = box_mesh((4, 1, 1), (0.2, 0.05, 0.05))
TOP = tuple(int(i) for i in (BEAM.nodes[:, 2] > 0.04).nonzero()[0] if BEAM.nodes[i, 1] == 0.0)
BOTTOM = tuple(int(i) for i in (BEAM.nodes[:, 2] < 0.01).nonzero()[0] if BEAM.nodes[i, 1] == 0.0)
MATERIAL = SolidMaterial("neo_hookean", 1000.0, 1e5, 0.3, drag=30.0)
WEIGHTLESS = {"gravity": torch.zeros(3, dtype=torch.float64)}


def constant(steps, *values):
    return torch.tensor(values, dtype=torch.float64).expand(steps, len(values)).clone()


def test_a_tendon_bends_a_beam_to_its_side_and_moves_it_nowhere():
    solid = Solid(BEAM, MATERIAL, 1e-3, tendons=(TOP, BOTTOM))
    clamped = torch.tensor(BEAM.nodes[:, 0] == 0.0)
    tip = torch.tensor(BEAM.nodes[:, 0] == 0.2)
    for tension, side in ((constant(600, 2.0, 0.0), 1.0), (constant(600, 0.0, 2.0), -1.0)):
        last = solid.rollout(solid.state(), tension=tension, fixed=clamped, params=WEIGHTLESS)
        assert side * (last.x[tip, 2].mean() - 0.025) > 2e-3
    free = solid.rollout(solid.state(), tension=constant(200, 2.0, 1.0), params=WEIGHTLESS)
    mass = solid.inputs(solid.state(), tension=constant(1, 0.0, 0.0)).parameters["mass"]
    assert (mass @ free.v).abs().max() < 1e-12
    assert free.v.abs().max() > 0


def test_an_equilibrium_with_tendons_is_where_steps_come_to_rest():
    clamped = torch.tensor(BEAM.nodes[:, 0] == 0.0)
    tension = constant(1, 2.0, 0.5)
    still = ImplicitSolid(BEAM, MATERIAL, tendons=(TOP, BOTTOM))
    found = still.rollout(still.state(), tension=tension, fixed=clamped, params=WEIGHTLESS)
    solid = Solid(BEAM, MATERIAL, 1e-3, tendons=(TOP, BOTTOM))
    rest = solid.rollout(solid.state(), tension=tension.expand(3000, 2), fixed=clamped, params=WEIGHTLESS)
    assert torch.allclose(found.x, rest.x, atol=2e-6)


@pytest.mark.parametrize("implicit", [False, True])
def test_gradients_to_tension_are_finite_differences(implicit):
    clamped = torch.tensor(BEAM.nodes[:, 0] == 0.0)
    generator = torch.Generator().manual_seed(0)
    steps = 2 if implicit else 20
    solid = ImplicitSolid(BEAM, MATERIAL, 0.02, tendons=(TOP, BOTTOM)) if implicit else None
    solid = solid or Solid(BEAM, MATERIAL, 1e-3, tendons=(TOP, BOTTOM))
    weights = torch.randn(len(BEAM.nodes), 3, generator=generator, dtype=torch.float64)

    def loss(tension):
        return (solid.rollout(solid.state(), tension=tension, fixed=clamped).x * weights).sum()

    tension = (1.0 + torch.rand(steps, 2, generator=generator, dtype=torch.float64)).requires_grad_()
    (gradient,) = torch.autograd.grad(loss(tension), tension)
    direction = torch.randn(steps, 2, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        slope = (loss(tension + 1e-4 * direction) - loss(tension - 1e-4 * direction)) / 2e-4
    assert torch.allclose(slope, (gradient * direction).sum(), rtol=1e-4 if implicit else 1e-7)


@pytest.mark.parametrize(
    ("tendon", "message"),
    [
        ((3,), "tendon 0: a tendon runs through at least 2 nodes"),
        ((0, 99), "tendon 0: no node 99; nodes: 0 to 19"),
        ((0, 4, 4), "tendon 0: it runs from node 4 to itself"),
    ],
)
def test_tendons_that_cannot_be_are_named(tendon, message):
    for make in (
        lambda: Solid(BEAM, MATERIAL, 1e-3, tendons=(tendon,)),
        lambda: ImplicitSolid(BEAM, tendons=(tendon,), material=MATERIAL),
    ):
        with pytest.raises(InputError, match=message):
            make()


def test_tendons_need_a_tension_that_pulls():
    solid = Solid(BEAM, MATERIAL, 1e-3, tendons=(TOP,))
    with pytest.raises(InputError, match="needs their tension"):
        solid.rollout(solid.state(), steps=2)
    with pytest.raises(InputError, match="tendon 0: tendons only pull, but the tension of step 1 is -2 N"):
        solid.rollout(solid.state(), tension=torch.tensor([[1.0], [-2.0]], dtype=torch.float64))
