"""Implicit heat: closed forms, explicit steps, finite differences of solutions, and failures that are named."""

import numpy as np
import pytest
import torch

from adjoin.continuum import ConjugateGradients, Heat, HeatMaterial, ImplicitHeat, NotConverged, box_mesh
from adjoin.errors import InputError

STEEL = HeatMaterial(density=7800.0, specific_heat=500.0, conductivity=40.0)


@pytest.mark.parametrize("degree", [0, 3])
def test_a_slab_between_two_temperatures_and_a_slab_that_is_heated(degree):
    mesh = box_mesh((8, 2, 2), (0.1, 0.02, 0.02), tetrahedra=degree > 0)
    heat = ImplicitHeat(mesh, STEEL, solver=ConjugateGradients(1e-12, degree=degree))
    x = torch.tensor(mesh.nodes[:, 0])
    fixed = (x == 0.0) | (x == x.max())
    start = torch.where(x == 0.0, 300.0, 400.0).double()
    assert torch.allclose(heat.solve(start, fixed=fixed), 300 + 1000 * x, atol=1e-7)
    volumes, _ = mesh.integrals()
    source = torch.zeros(len(x)).double().index_add(0, torch.as_tensor(mesh.elements).ravel(), 1e5 * volumes.ravel())
    cold = torch.full_like(x, 300.0)
    heated = heat.solve(cold, fixed=fixed, params={"source": source})
    exact = 300 + 1e5 / (2 * 40.0) * x * (0.1 - x)
    assert torch.allclose(heated, exact, atol=0.05 if degree else 1e-7)  # exact at nodes in one dimension


def test_small_steps_are_those_of_the_explicit_method_and_long_ones_come_to_rest():
    mesh = box_mesh((4, 3, 2), (0.04, 0.03, 0.02))
    start = 300 + 100 * torch.rand(2, len(mesh.nodes), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    surface = {"convection": 50.0, "emissivity": 0.5}
    explicit = Heat(mesh, STEEL, dt=1e-4, **surface).rollout(start, steps=1).temperature
    implicit = ImplicitHeat(mesh, STEEL, dt=1e-4, **surface, solver=ConjugateGradients(1e-10)).solve(start)
    assert torch.allclose(implicit, explicit, atol=1e-4)
    still = ImplicitHeat(mesh, STEEL, dt=1e9, **surface).solve(start)
    assert torch.allclose(still, torch.full_like(still, 300.0), atol=1e-2)


def test_gradients_of_solutions_are_finite_differences():
    mesh = box_mesh((3, 2, 2), (0.03, 0.02, 0.02))
    material = HeatMaterial(7800.0, 500.0, [30.0, 0.02])
    heat = ImplicitHeat(mesh, material, dt=5.0, convection=50.0, emissivity=0.5, solver=ConjugateGradients(1e-13))
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    fixed = torch.as_tensor(mesh.nodes[:, 0] == 0.0)
    values = {
        "before": 400 + 200 * random(len(mesh.nodes)),
        "conductivity": torch.tensor([30.0, 0.02]).double(),
        "conductivity_of": 0.5 + random(len(mesh.elements)),
        "source": 5 * random(len(mesh.nodes)),
        "convection": torch.tensor(50.0).double(),
        "ambient": torch.tensor(310.0).double(),
        "density": torch.tensor(7800.0).double(),
    }
    weights = random(len(mesh.nodes))

    def loss(v):
        after = heat.solve(v["before"], fixed=fixed, params={name: v[name] for name in list(values)[1:]})
        return (weights * after * after).sum() * 1e-5

    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    gradients = torch.autograd.grad(loss(leaves), list(leaves.values()))
    for (name, value), gradient in zip(values.items(), gradients, strict=True):
        direction = (random(*value.shape) - 0.5) * value.abs().mean()
        sides = [loss(values | {name: value + sign * 1e-5 * direction}) for sign in (1, -1)]
        slope = (sides[0] - sides[1]) / 2e-5
        assert torch.isclose((gradient * direction).sum(), slope, rtol=1e-5, atol=1e-8), name


def test_failures_are_named():
    mesh = box_mesh((6, 2, 2), (0.1, 0.02, 0.02))
    start = torch.tensor(np.linspace(300, 400, len(mesh.nodes)))
    with pytest.raises(NotConverged, match=r"conjugate gradients: the residual is .* after 2 iterations"):
        ImplicitHeat(mesh, STEEL, dt=100.0, solver=ConjugateGradients(iterations=2)).solve(start)
    with pytest.raises(InputError, match="latent heat is for explicit steps"):
        ImplicitHeat(mesh, HeatMaterial(1.0, 1.0, 1.0, latent_heat=1.0, solidus=1.0, liquidus=2.0))
    with pytest.raises(InputError, match="no parameter 'k'; parameters: density"):
        ImplicitHeat(mesh, STEEL).solve(start, params={"k": start})
    scales = torch.ones(24, dtype=torch.float64)
    scales[3] = -1.0
    with pytest.raises(InputError, match="implicit heat: conductivity_of of element 3 must be at least 0, got -1"):
        ImplicitHeat(mesh, STEEL).solve(start, params={"conductivity_of": scales})
