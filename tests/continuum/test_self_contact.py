"""Cloth that touches itself: two sheets that meet, momentum, finite differences, all pairs beside those found."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import adjoin
from adjoin.continuum import BodyState, Cloth, ClothMaterial, Collider, Motion, SelfContact
from adjoin.coupling import CoupledWorld, Link
from adjoin.errors import InputError


def sheets(touch, cells=2, side=0.1, gap=0.02):
    """Two squares of one cloth, one above the other and a little aside."""
    axis = np.linspace(0, side, cells + 1)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    one = np.stack([x.ravel(), y.ravel(), np.zeros(x.size)], 1)
    number = np.arange(len(one)).reshape(cells + 1, cells + 1)
    a, b, c, d = number[:-1, :-1].ravel(), number[:-1, 1:].ravel(), number[1:, 1:].ravel(), number[1:, :-1].ravel()
    triangles = np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])
    nodes = np.concatenate([one, one + np.array([0.013, 0.017, gap])])
    return Cloth(
        nodes, np.concatenate([triangles, triangles + len(one)]), ClothMaterial(drag=0.0), 1e-3, self_contact=touch
    )


def weightless():
    return {"gravity": torch.zeros(3, dtype=torch.float64), "drag": torch.tensor(0.0, dtype=torch.float64)}


def falling(cloth, speed=1.0):
    x = torch.tensor(cloth.nodes)
    v = torch.zeros_like(x)
    v[len(x) // 2 :, 2] = -speed
    return BodyState(x, v)


def test_sheets_that_meet_bounce_and_keep_their_momentum():
    touch = SelfContact(0.01, stiffness=40.0, friction=0.3, refresh=10)
    cloth = sheets(touch)
    start = falling(cloth)
    path = cloth.rollout(start, steps=60, params=weightless(), keep=20)
    half = len(start.x) // 2
    height = path.x[:, half:, 2].mean(1) - path.x[:, :half, 2].mean(1)
    assert height.min() > 0.0
    through = Cloth(cloth.nodes, cloth.triangles, cloth.material, cloth.dt).rollout(
        start, steps=60, params=weightless()
    )
    assert through.x[half:, 2].mean() < through.x[:half, 2].mean() - 0.02  # without contact they pass
    mass = cloth.inputs(start).parameters["mass"][:, None]
    momentum = (mass * path.v).sum(1)
    assert torch.allclose(momentum, momentum[0].expand_as(momentum), atol=1e-14)
    assert path.v[-1, half:, 2].mean() > -0.9
    angular = (mass * torch.linalg.cross(path.x, path.v)).sum(1)
    assert torch.allclose(angular[0], angular[-1], atol=1e-6)


def crossed(touch):
    """Two strips of two triangles, one across the other: no node is above a triangle, only edges meet."""
    one = np.array([[-0.2, -0.01, 0.0], [0.2, -0.01, 0.0], [0.2, 0.01, 0.0], [-0.2, 0.01, 0.0]])
    nodes = np.concatenate([one, one[:, [1, 0, 2]] * [-1, 1, 1] + [0.003, 0.002, 0.02]])
    triangles = np.array([[0, 1, 2], [0, 2, 3]])
    return Cloth(nodes, np.concatenate([triangles, triangles + 4]), ClothMaterial(), 4e-4, self_contact=touch)


def test_edges_do_not_pass_through_edges():
    cloth = crossed(SelfContact(0.01, stiffness=40.0, friction=0.3))
    path = cloth.rollout(falling(cloth), steps=160, params=weightless(), keep=40)
    height = path.x[:, 4:, 2].mean(1) - path.x[:, :4, 2].mean(1)
    assert height.min() > 0.0
    assert path.v[-1, 4:, 2].mean() > path.v[-1, :4, 2].mean()  # they part again
    mass = cloth.inputs(falling(cloth)).parameters["mass"][:, None]
    momentum, angular = (mass * path.v).sum(1), (mass * torch.linalg.cross(path.x, path.v)).sum(1)
    assert torch.allclose(momentum, momentum[0].expand_as(momentum), atol=1e-14)
    assert torch.allclose(angular[0], angular[-1], atol=1e-6)
    alone = replace(cloth, self_contact=None).rollout(falling(cloth), steps=160, params=weightless())
    assert alone.x[4:, 2].mean() < alone.x[:4, 2].mean() - 0.02


def test_a_link_is_felt_by_cloth_that_touches_itself():
    """Two sheets fall on a ball that nothing moves: as on one that rests by decree."""
    cloth = replace(sheets(SelfContact(0.01, refresh=7)), colliders=(Collider("sphere", (0.05,), stiffness=20.0),))
    model = adjoin.robots.load("ball")
    (body,) = model.bodies
    heavy = replace(body, mass=1e9, inertia=tuple(1e9 * x for x in body.inertia))
    sim = adjoin.Simulator(replace(model, bodies=(heavy,), gravity=(0.0, 0.0, 0.0)), dt=cloth.dt, ground=False)
    place = torch.tensor([0.05, 0.05, -0.06], dtype=torch.float64)
    start = sim.state(torch.cat([place, torch.tensor([1.0, 0.0, 0.0, 0.0])]).double())
    path = CoupledWorld(sim, cloth, [Link("ball")]).rollout(start, cloth.state(), steps=120, keep=60)
    still = Motion.at_rest(place[None], None, 120)
    alone = cloth.rollout(cloth.state(), motion=still, keep=60)
    assert torch.allclose(path.body.x, alone.x, atol=1e-9)
    assert torch.allclose(path.wrench, alone.wrench, atol=1e-9)
    assert alone.wrench[:, 0, 2].min() < -0.1


def test_what_is_found_is_what_all_pairs_give():
    found = sheets(SelfContact(0.01, refresh=5))
    start = falling(found, 0.5)
    some = found.rollout(start, steps=40, params=weightless())
    triangles = np.asarray(found.triangles)
    close = found.self_contact.pairs(triangles, start.x, start.v, 5e-3)
    everything = found.self_contact.pairs(triangles, start.x, start.v, 1e3)
    for pairs in ("node_triangle", "edge_edge"):
        assert 0 < len(close[pairs]) < len(everything[pairs])
    assert len(everything["node_triangle"]) == 18 * 16 - 48  # all but a triangle's own nodes
    every = sheets(SelfContact(0.01, refresh=1000))  # a segment so long that all pairs are in reach
    assert torch.allclose(every.rollout(start, steps=40, params=weightless()).x, some.x, atol=1e-12)
    assert some.x.equal(found.rollout(start, steps=40, params=weightless()).x)


def test_gradients_are_finite_differences():
    cloth = sheets(SelfContact(0.012, damping=0.01, friction=0.2, refresh=7))
    generator = torch.Generator().manual_seed(0)
    x = torch.tensor(cloth.nodes) + 1e-3 * torch.rand(18, 3, generator=generator, dtype=torch.float64)
    values = {"x": x, "v": falling(cloth).v, "young": torch.tensor(90.0).double()}

    def loss(v):
        params = weightless() | {"young": v["young"]}
        path = cloth.rollout(BodyState(v["x"], v["v"]), steps=24, params=params, keep=12)
        return 10 * (path.x**2).sum() + (path.v**2).sum()

    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    gradients = torch.autograd.grad(loss(leaves), list(leaves.values()))
    for (name, value), gradient in zip(values.items(), gradients, strict=True):
        direction = torch.rand(value.shape, generator=generator, dtype=torch.float64) * value.abs().mean()
        sides = [loss(values | {name: value + sign * 1e-6 * direction}) for sign in (1, -1)]
        assert torch.isclose((gradient * direction).sum(), (sides[0] - sides[1]) / 2e-6, rtol=1e-5), name


def test_what_is_wrong_is_named():
    with pytest.raises(InputError, match="thickness and stiffness must be positive"):
        SelfContact(0.0)
    cloth = sheets(SelfContact(0.01, stiffness=1e6))
    with pytest.raises(InputError, match=r"allow a stiffness of self-contact of at most .* N/m"):
        cloth.rollout(cloth.state(), steps=1)
