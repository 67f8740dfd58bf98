"""Implicit solids: scikit-fem's linear elasticity, small steps are explicit ones, contact, finite differences."""

import math

import numpy as np
import pytest
import torch

from adjoin.continuum import (
    BodyState,
    Collider,
    ConjugateGradients,
    ImplicitSolid,
    InvertedElement,
    Motion,
    NotConverged,
    Solid,
    SolidMaterial,
    box_mesh,
)  # fmt: skip
from adjoin.continuum.implicit import solve
from adjoin.errors import InputError


def tight(**options):
    return ConjugateGradients(1e-11, **options)


def test_small_loads_bend_a_beam_as_scikit_fem_says():
    skfem = pytest.importorskip("skfem")
    from skfem.models.elasticity import lame_parameters, linear_elasticity

    mesh = box_mesh((6, 2, 2), (0.6, 0.1, 0.1), tetrahedra=True)
    solid = ImplicitSolid(mesh, SolidMaterial("corotated", 1000.0, 1e6, 0.3), solver=tight())
    clamped = torch.as_tensor(mesh.nodes[:, 0] == 0.0)
    load = torch.zeros(len(mesh.nodes), 3, dtype=torch.float64)
    load[torch.as_tensor(mesh.nodes[:, 0] == 0.6), 2] = -1e-3
    still = solid.rollout(solid.state(), fixed=clamped, params={"load": load, "gravity": torch.zeros(3).double()})
    peer = skfem.MeshTet(mesh.nodes.T, mesh.elements.T)
    basis = skfem.Basis(peer, skfem.ElementVector(skfem.ElementTetP1()))
    stiffness = linear_elasticity(*lame_parameters(1e6, 0.3)).assemble(basis)
    forces = np.zeros(basis.N)
    forces[basis.nodal_dofs] = load.numpy().T
    fixed = basis.nodal_dofs[:, mesh.nodes[:, 0] == 0.0].ravel()
    expected = skfem.solve(*skfem.condense(stiffness, forces, D=fixed))[basis.nodal_dofs].T
    moved = (still.x - torch.tensor(mesh.nodes)).numpy()
    assert np.abs(moved - expected).max() < 5e-4 * np.abs(expected).max()
    assert still.v.abs().max() == 0.0


def test_small_steps_are_explicit_ones_and_long_ones_come_to_rest():
    mesh = box_mesh((2, 1, 1), (0.2, 0.1, 0.1))
    material = SolidMaterial("neo_hookean", 1000.0, 1e5, 0.3)
    x = torch.tensor(mesh.nodes) + 1e-3 * torch.rand(len(mesh.nodes), 3, generator=torch.Generator().manual_seed(0))
    errors = []
    for dt in (2e-5, 1e-5):
        explicit = Solid(mesh, material, dt).rollout(BodyState(x, 0 * x), steps=round(1e-4 / dt))
        implicit = ImplicitSolid(mesh, material, dt).rollout(BodyState(x, 0 * x), steps=round(1e-4 / dt))
        errors.append((implicit.x - explicit.x).abs().max().item())
    assert errors[1] < 0.6 * errors[0] < 1e-5  # both are of first order, on either side of the truth
    ground = Collider(stiffness=2e3, damping=5.0, friction=0.5)
    stiff = SolidMaterial("neo_hookean", 1000.0, 1e7, 0.3)
    long = ImplicitSolid(mesh, stiff, 0.02, colliders=(ground,))
    assert long.dt > 20 * Solid(mesh, stiff, 1e-5).stable_dt
    last = long.rollout(long.state(torch.tensor(mesh.nodes) + torch.tensor([0.0, 0.0, 1e-3])), steps=40)
    weight = 9.81 * 2.0
    assert last.v.abs().max() < 1e-3
    assert torch.allclose(last.wrench[-1, 0, :3], torch.tensor([0.0, 0.0, -weight]).double(), atol=0.01 * weight)


def test_friction_holds_on_a_slope_up_to_its_angle():
    mesh = box_mesh((1, 1, 1), (0.1, 0.1, 0.1))
    ground = Collider(stiffness=3e3, damping=10.0, friction=0.5)
    solid = ImplicitSolid(mesh, SolidMaterial("neo_hookean", 1000.0, 1e6, 0.3), 5e-3, colliders=(ground,))
    start = torch.tensor(mesh.nodes).expand(2, 8, 3) + torch.tensor([0.0, 0.0, -8e-4])
    angles = torch.tensor([0.8, 1.2], dtype=torch.float64) * math.atan(0.5)
    gravity = 9.81 * torch.stack([angles.sin(), 0 * angles, -angles.cos()], -1)
    last = solid.rollout(solid.state(start), steps=40, params={"gravity": gravity})
    speed = last.v[..., 0].mean(1)
    assert abs(speed[0]) < 2e-3  # the creep that the smooth friction has
    expected = 0.2 * 9.81 * (math.sin(angles[1]) - 0.5 * math.cos(angles[1]))
    assert abs(speed[1] / expected - 1.0) < 0.05


@pytest.mark.parametrize("kind", ["neo_hookean", "corotated"])
def test_gradients_through_steps_are_finite_differences(kind):
    mesh = box_mesh((1, 1, 1), (0.1, 0.1, 0.1), tetrahedra=True)
    sphere = Collider("sphere", (0.05,), stiffness=800.0, damping=1.0, friction=0.3, thickness=0.01)
    solid = ImplicitSolid(
        mesh, SolidMaterial(kind, 1000.0, 2e4, 0.3, drag=1.0), 5e-3, muscles=1, colliders=(sphere,), solver=tight()
    )
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5

    steps, count = 2, len(mesh.elements)
    values = {
        "x": torch.tensor(mesh.nodes) + 2e-3 * random(8, 3),
        "v": 0.1 * random(8, 3),
        "activation": 1e3 * random(steps, 1),
        "shear": 8e3 + 1e3 * random(count),
        "rest": torch.tensor(mesh.nodes) + 1e-3 * random(8, 3),
        "position": torch.tensor([0.05, 0.05, 0.13]).double().expand(steps, 1, 3) + 1e-3 * random(steps, 1, 3),
        "load": 0.1 * random(8, 3),
    }
    fibers = random(count, 1, 3)
    fixed = torch.as_tensor(mesh.nodes[:, 2] == 0.0)

    def loss(v):
        still = torch.zeros(steps, 1, 3, dtype=torch.float64)
        turn = torch.eye(3, dtype=torch.float64).expand(steps, 1, 3, 3)
        last = solid.rollout(
            solid.state(v["x"], v["v"]), v["activation"], fibers, nodes=v["rest"], fixed=fixed,
            motion=Motion(v["position"], turn, still, still), params={"shear": v["shear"], "load": v["load"]},
        )  # fmt: skip
        return 100 * (last.x**2).sum() + (last.v**2).sum() + 0.1 * last.wrench.sin().sum()

    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    gradients = torch.autograd.grad(loss(leaves), list(leaves.values()))
    for (name, value), gradient in zip(values.items(), gradients, strict=True):
        direction = random(*value.shape) * value.abs().mean()
        h = 1e-5
        slope = (loss(values | {name: value + h * direction}) - loss(values | {name: value - h * direction})) / (2 * h)
        assert torch.isclose((gradient * direction).sum(), slope, rtol=1e-5, atol=1e-9), name


@pytest.mark.parametrize(("kind", "dt", "force"), [("neo_hookean", 1e-2, 1e6), ("corotated", 1e-3, 1e5)])
def test_a_load_that_inverts_elements_is_an_error(kind, dt, force):
    mesh = box_mesh((1, 1, 2), (0.05, 0.05, 0.1))
    solid = ImplicitSolid(mesh, SolidMaterial(kind), dt)
    clamped = torch.as_tensor(mesh.nodes[:, 2] == 0.0)
    start = solid.state(torch.tensor(mesh.nodes).expand(2, -1, 3))
    gravity = torch.tensor([[0.0, 0.0, -9.81], [0.0, 0.0, -force]], dtype=torch.float64)
    with pytest.raises(
        InvertedElement, match=r"step 0, variant 1: element \d \(nodes .*\) is inverted: .* reaches -.* smaller steps"
    ):
        solid.rollout(start, fixed=clamped, params={"gravity": gravity})
    weak = solid.rollout(start, fixed=clamped, params={"gravity": gravity[0]})
    assert solid.mesh.determinants(weak.x).min() > 0
    assert torch.allclose(8 * mesh.determinants(start.x), start.x.new_tensor(0.05**3))


def test_residuals_that_stop_being_finite_are_an_error():
    class Log:
        """log(x) = p by Newton's method from where its steps lead below 0."""

        solver, newton = ConjugateGradients(), 10

        def residual(self, unknown, parameters):
            return torch.log(unknown) - parameters["p"]

        def linearized(self, unknown, parameters):
            return (lambda d: d / unknown), 1 / unknown

    guess = torch.tensor([[1.0], [1.0], [torch.nan]], dtype=torch.float64)
    found = solve(Log(), guess, {"p": torch.tensor([[0.5], [0.1], [0.0]]).double()})
    assert torch.allclose(found[:2].log().flatten(), torch.tensor([0.5, 0.1]).double(), atol=1e-6)
    assert found[2].isnan().all()
    with pytest.raises(NotConverged, match="Log: variant 1: the residual is not finite along a step"):
        solve(Log(), guess, {"p": torch.tensor([[0.5], [-1e4], [0.0]]).double()})


def test_a_bad_variant_leaves_the_others_alone_and_errors_are_named():
    mesh = box_mesh((1, 1, 1), (0.1, 0.1, 0.1))
    solid = ImplicitSolid(mesh, SolidMaterial(), 1e-2)
    x = torch.tensor(mesh.nodes)
    both = solid.rollout(solid.state(torch.stack([x * torch.nan, x])))
    assert both.x[1].equal(solid.rollout(solid.state(x[None])).x[0])
    assert both.x[0].isnan().all()
    with pytest.raises(NotConverged, match=r"ImplicitSolid: the residual is .* after 1 iterations of Newton's method"):
        ImplicitSolid(mesh, SolidMaterial(), 1e-2, newton=1).rollout(solid.state(x * torch.tensor([1.3, 0.8, 1.0])))
    with pytest.raises(InputError, match="dt and slip must be positive"):
        ImplicitSolid(mesh, SolidMaterial(), -1.0)
