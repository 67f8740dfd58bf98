"""Heat against scikit-fem on the same meshes, closed forms, energy balances and finite differences."""

import numpy as np
import pytest
import torch

from adjoin.continuum import Checkpoints, Heat, HeatMaterial, Laser, Mesh, box_mesh
from adjoin.errors import InputError

STEEL = HeatMaterial(density=7800.0, specific_heat=500.0, conductivity=40.0)


def distorted(cells, size, tetrahedra, everywhere=False):
    mesh = box_mesh(cells, size, tetrahedra)
    noise = np.random.default_rng(0).uniform(-0.1, 0.1, mesh.nodes.shape) * np.divide(size, cells)
    inside = ((mesh.nodes > 0) & (mesh.nodes < size)).all(1, keepdims=True)  # boundary faces stay rectangles
    return Mesh(mesh.nodes + noise * (inside | everywhere), mesh.elements)


@pytest.mark.parametrize("tetrahedra", [False, True])
def test_steps_are_those_of_scikit_fem(tetrahedra):
    skfem = pytest.importorskip("skfem")
    from skfem.helpers import dot, grad

    mesh = distorted((4, 3, 3), (0.4, 0.3, 0.3), tetrahedra)
    if tetrahedra:
        theirs, element = skfem.MeshTet(mesh.nodes.T, mesh.elements.T), skfem.ElementTetP1()
    else:
        # scikit-fem numbers the corners by coordinates: 000, 001, 010, 100, 011, 101, 110, 111 in z, y, x
        order = [0, 4, 3, 1, 7, 5, 2, 6]
        theirs, element = skfem.MeshHex(mesh.nodes.T, mesh.elements[:, order].T), skfem.ElementHex1()
    basis = skfem.Basis(theirs, element, intorder=3)
    stiffness = skfem.BilinearForm(lambda u, v, w: 40.0 * dot(grad(u), grad(v))).assemble(basis)
    mass = skfem.BilinearForm(lambda u, v, w: 7800.0 * 500.0 * u * v).assemble(basis)
    facets = skfem.FacetBasis(theirs, element, intorder=3)
    surface = np.asarray(skfem.BilinearForm(lambda u, v, w: u * v).assemble(facets).sum(1)).ravel()
    capacity = np.asarray(mass.sum(1)).ravel()
    heat = Heat(mesh, STEEL, dt=1.0, convection=25.0)
    temperature = 300 + 100 * np.random.default_rng(1).random(len(mesh.nodes))
    ours = heat.rollout(torch.tensor(temperature), steps=5).temperature
    for _ in range(5):
        temperature = temperature - (stiffness @ temperature + 25.0 * surface * (temperature - 300)) / capacity
    assert np.abs(ours.numpy() - temperature).max() < 1e-9


def test_a_sine_in_a_slab_decays_as_it_should_and_converges_with_order_two():
    errors = []
    for cells in (8, 16):
        mesh = box_mesh((cells, 1, 1), (0.1, 0.02, 0.02))
        heat = Heat(mesh, STEEL, dt=0.02)
        x = torch.tensor(mesh.nodes[:, 0])
        wave = torch.cos(torch.pi * x / 0.1)
        last = heat.rollout(300 + 50 * wave, steps=2000).temperature
        rate = 40.0 / (7800.0 * 500.0) * (np.pi / 0.1) ** 2
        errors.append((last - 300 - 50 * np.exp(-40.0 * rate) * wave).abs().max().item())
    assert errors[0] < 0.2
    assert 3.5 < errors[0] / errors[1] < 4.5


def test_energy_that_goes_in_stays_in_while_elements_melt():
    mesh = distorted((6, 2, 3), (6.0, 2.0, 3.0), False)
    material = HeatMaterial(0.03, 0.5, 0.01, latent_heat=20.0, solidus=320.0, liquidus=380.0)
    source = 0.3 * torch.rand(len(mesh.nodes), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    path = Heat(mesh, material, dt=1e-3).rollout(
        torch.full((len(mesh.nodes),), 300.0, dtype=torch.float64), steps=4000, params={"source": source}
    )
    volumes, _ = mesh.integrals()
    share = torch.zeros(len(mesh.nodes), dtype=torch.float64)
    share.index_add_(0, torch.as_tensor(mesh.elements).ravel(), volumes.ravel())
    s = ((path.temperature - 320.0) / 60.0).clamp(0, 1)
    molten = s * s * (3 - 2 * s)
    energy = (0.03 * share * (0.5 * (path.temperature - 300.0) + 20.0 * molten)).sum()
    assert 0.05 < molten.mean() < 0.999
    assert torch.isclose(energy, 4.0 * source.sum(), rtol=1e-4)


def test_a_face_takes_up_the_laser_from_the_birth_of_its_element_until_it_is_covered():
    mesh = box_mesh((8, 8, 2), (8.0, 8.0, 2.0))
    layer = mesh.nodes[mesh.elements].mean(1)[:, 2] > 1.0
    heat = Heat(
        mesh,
        HeatMaterial(0.03, 0.5, 0.01),
        dt=0.01,
        laser=Laser(radius=1.5, absorptivity=0.5),
        birth=np.where(layer, 0.095, 0),
    )
    start = torch.full((len(mesh.nodes),), 300.0, dtype=torch.float64)
    power = torch.full((20,), 0.1, dtype=torch.float64)
    focus = torch.tensor([4.0, 4.0, 2.0], dtype=torch.float64).expand(20, 3)
    path = heat.rollout(start, power, focus, keep=1)
    volumes, _ = mesh.integrals()
    born = torch.zeros(2, len(mesh.nodes), dtype=torch.float64)
    for row, there in enumerate((~layer, np.full(len(layer), True))):
        index = torch.as_tensor(mesh.elements[there])
        born[row].index_add_(0, index.ravel(), volumes[torch.as_tensor(there)].ravel())
    rise = torch.diff(path.temperature, dim=0) * 0.03 * 0.5
    before, later = (rise[:10] * born[0]).sum(-1), (rise[10:] * born[1]).sum(-1)
    assert torch.allclose(before, torch.full_like(before, 0.01 * 0.5 * 0.1), rtol=2e-3)
    assert torch.allclose(later, torch.full_like(later, 0.01 * 0.5 * 0.1), rtol=2e-3)
    top = torch.as_tensor(mesh.nodes[:, 2] == 2.0)
    assert (path.temperature[10, top] == 300.0).all()
    assert path.temperature[20, top].max() > 300.01


@pytest.mark.parametrize("tetrahedra", [False, True])
def test_gradients_of_a_rollout_are_finite_differences(tetrahedra):
    mesh = distorted((3, 2, 2), (3.0, 2.0, 2.0), tetrahedra, everywhere=True)
    birth = np.random.default_rng(0).uniform(0, 0.1, len(mesh.elements))
    material = HeatMaterial(0.03, [0.5, 1e-4], [0.01, 1e-6], latent_heat=30.0, solidus=200.0, liquidus=900.0)
    heat = Heat(
        mesh, material, dt=0.01, convection=5e-5, emissivity=0.2, laser=Laser(1.0), birth=birth, sensors=[3, 7],
        stefan_boltzmann=5.67e-14,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(1)

    def random(*shape):
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    values = {
        "temperature": 300 + 10 * random(len(mesh.nodes)), "power": 50 + 20 * random(12),
        "position": 1 + random(12, 3), "nodes": torch.tensor(mesh.nodes),
        "conductivity": torch.tensor([0.01, 1e-6]).double(), "specific_heat": torch.tensor([0.5, 1e-4]).double(),
        "density": torch.tensor(0.03).double(), "convection": torch.tensor(5e-5).double(),
        "emissivity": torch.tensor(0.2).double(), "ambient": torch.tensor(290.0).double(),
        "latent_heat": torch.tensor(30.0).double(), "source": random(len(mesh.nodes)),
    }  # fmt: skip

    def loss(v):
        arguments = [v[name] for name in ("temperature", "power", "position")]
        rest = {name: v[name] for name in list(values)[4:]}
        path = heat.rollout(*arguments, params=rest, nodes=v["nodes"], checkpoints=Checkpoints("sqrt"))
        return 1e-4 * (path.temperature**2).mean() + 1e-2 * path.sensors.sum()

    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    gradients = torch.autograd.grad(loss(leaves), list(leaves.values()))
    for (name, value), gradient in zip(values.items(), gradients, strict=True):
        direction = (random(*value.shape) - 0.5) * value.abs().mean()
        sides = [loss(values | {name: value + sign * 1e-5 * direction}) for sign in (1, -1)]
        slope = (sides[0] - sides[1]) / 2e-5
        assert torch.isclose((gradient * direction).sum(), slope, rtol=1e-5, atol=1e-9), name


def test_variants_run_as_they_would_alone():
    mesh = box_mesh((3, 2, 2), (0.3, 0.2, 0.2))
    heat = Heat(mesh, STEEL, dt=1.0, convection=10.0)
    start = 300 + 50 * torch.rand(3, len(mesh.nodes), generator=torch.Generator().manual_seed(0))
    conductivity = torch.tensor([20.0, torch.nan, 45.0])
    together = heat.rollout(start, steps=7, params={"conductivity": conductivity}).temperature
    for i in (0, 2):
        alone = heat.rollout(start[i], steps=7, params={"conductivity": conductivity[i]}).temperature
        assert together[i].equal(alone)
    assert together[1].isnan().all()


def test_errors_name_what_is_wrong():
    mesh = box_mesh((2, 1, 1), (2.0, 1.0, 1.0))
    with pytest.raises(InputError, match=r"dt 1e\+06 is not in the range of stable explicit steps; the largest is"):
        Heat(mesh, STEEL, dt=1e6)
    with pytest.raises(InputError, match="emissivity is from 0 to 1, got -5"):
        Heat(box_mesh((1, 1, 1), (1.0, 1.0, 1.0)), HeatMaterial(1.0, 1.0, 1.0), 1e-3, convection=-5.0)
    with pytest.raises(InputError, match="conductivity must be positive and finite, got -1"):
        HeatMaterial(1.0, 1.0, -1.0)
    with pytest.raises(InputError, match=r"element 1 \(nodes .*\) is inverted"):
        Mesh(mesh.nodes, np.stack([mesh.elements[0], mesh.elements[1][[4, 5, 6, 7, 0, 1, 2, 3]]]))
    flat = mesh.nodes.copy()
    flat[:, 2] = 0.0
    with pytest.raises(InputError, match=r"element 0 .* is degenerate"):
        Mesh(flat, mesh.elements)
    with pytest.raises(InputError, match="element 0 names node 99, but there are 12 nodes, 0 to 11"):
        Mesh(mesh.nodes, np.where(mesh.elements == 0, 99, mesh.elements))
    with pytest.raises(InputError, match="no node 40 for a sensor"):
        Heat(mesh, STEEL, dt=1.0, sensors=[40])
    for name, values, message in (
        ("conductivity", [20.0, -3.0], "conductivity of variant 1 must be positive, got -3"),
        ("conductivity", [[20.0], [-3.0]], "conductivity of variant 1 must be positive, got -3"),
        ("emissivity", 1.5, "emissivity must be from 0 to 1, got 1.5"),
    ):
        with pytest.raises(InputError, match=f"^heat: {message}$"):
            Heat(mesh, STEEL, dt=1.0).rollout(torch.zeros(2, 12), steps=1, params={name: torch.tensor(values)})
    with pytest.raises(InputError, match="no parameter 'mass'; parameters: density"):
        Heat(mesh, STEEL, dt=1.0).rollout(torch.zeros(12), steps=1, params={"mass": torch.zeros(())})
