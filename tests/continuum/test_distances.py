"""Distances of points from the shapes that soft bodies touch: against MuJoCo, brute force and finite differences."""

import itertools

import mujoco
import numpy as np
import pytest
import torch
from kernel_checks import check_kernel

from adjoin import trace
from adjoin.compiler.runtime.cuda.kernel import CudaTarget
from adjoin.compiler.runtime.cuda.maps import render
from adjoin.compiler.runtime.map_target import MapTarget
from adjoin.continuum import (
    Collider,
    ImplicitSolid,
    Motion,
    ParticleMaterial,
    Particles,
    Solid,
    SolidMaterial,
    box_mesh,
)
from adjoin.continuum.colliders import SIZES, _distance
from adjoin.errors import InputError

VERTICES = np.random.default_rng(3).standard_normal((20, 3)) * [0.2, 0.3, 0.4]
SLAB = tuple((x, y, z) for x in (-0.2, 0.2) for y in (-0.2, 0.2) for z in (-0.1, 0.1))
SIZE = {"box": (0.2, 0.2, 0.1), "cylinder": (0.3, 0.1), "hull": ()}
COLLIDERS = {
    "plane": Collider("plane"),
    "sphere": Collider("sphere", (0.3,)),
    "capsule": Collider("capsule", (0.2, 0.3)),
    "cylinder": Collider("cylinder", (0.25, 0.15)),
    "box": Collider("box", (0.2, 0.3, 0.1)),
    "ellipsoid": Collider("ellipsoid", (0.1, 0.3, 0.2)),
    "hull": Collider("hull", vertices=tuple(map(tuple, VERTICES.tolist())), thickness=5.0),
}


def points(count, seed=0):
    return 0.3 * torch.randn(count, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def measure(collider):
    """Distances and normals of points, as a kernel."""
    return trace.function(p=3)(lambda p: dict(zip(("distance", "normal"), _distance(collider, p), strict=True)))


KERNELS = {kind: measure(collider) for kind, collider in COLLIDERS.items()}


def by_mujoco(kind, places):
    """Distances of points outside by the distance of a small ball."""
    size = " ".join(map(str, COLLIDERS[kind].size)) or "0 0 1"
    data = "".join(f"{x} {y} {z}  " for x, y, z in VERTICES)
    asset, shape = "", f'type="{kind}" size="{size}"'
    if kind == "hull":
        asset, shape = f'<mesh name="hull" vertex="{data}"/>', 'type="mesh" mesh="hull"'
    model = mujoco.MjModel.from_xml_string(
        f"<mujoco><asset>{asset}</asset><worldbody><geom {shape}/>"
        '<body mocap="true"><geom type="sphere" size="1e-3"/></body></worldbody></mujoco>'
    )
    simulation = mujoco.MjData(model)
    found = []
    for place in places.tolist():
        simulation.mocap_pos[0] = place
        mujoco.mj_kinematics(model, simulation)
        found.append(mujoco.mj_geomDistance(model, simulation, 0, 1, 10.0, None) + 1e-3)
    return torch.tensor(found, dtype=torch.float64)


def test_every_kind_is_checked():
    assert set(COLLIDERS) == set(SIZES)


@pytest.mark.parametrize("kind", list(COLLIDERS))
def test_distances_are_those_of_mujoco_and_the_normal_leads_to_the_surface(kind):
    p = points(200)
    found = KERNELS[kind](p)
    outside = found["distance"] > 2e-3
    assert 20 < outside.sum() < 199
    assert torch.allclose(found["distance"][outside], by_mujoco(kind, p[outside]), atol=2e-5)
    # Along the normal the distance changes by as much as the point moves, down to the surface, from inside too.
    on_surface = p - found["distance"][:, None] * found["normal"]
    again = KERNELS[kind](on_surface)
    assert again["distance"].abs().max() < 1e-8
    assert torch.allclose(found["normal"].norm(dim=1), torch.ones(200, dtype=torch.float64), atol=1e-8)


def test_the_distance_of_a_hull_is_that_of_the_nearest_combination_of_vertices():
    """Of all triples of vertices, also of those inside: the nearest triangle, edge or vertex, or the nearest plane."""
    p = points(60, seed=1)
    triples = VERTICES[list(itertools.combinations(range(len(VERTICES)), 3))]
    normals = np.cross(triples[:, 1] - triples[:, 0], triples[:, 2] - triples[:, 0])
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    heights = np.einsum("ij,ikj->ik", normals, VERTICES[None] - triples[:, :1])
    normals[heights.max(1) > 1e-12] *= -1
    bounding = np.minimum(heights.max(1), -heights.min(1)) < 1e-12
    for place, distance in zip(p.numpy(), KERNELS["hull"](p)["distance"].tolist(), strict=True):
        wanted = np.einsum("ij,ij->i", normals, place - triples[:, 0])[bounding].max()
        if wanted > 0:
            wanted = np.linalg.norm(VERTICES - place, axis=1).min()
            for size in (2, 3):
                corners = VERTICES[list(itertools.combinations(range(len(VERTICES)), size))]
                sides = np.swapaxes(corners[:, 1:] - corners[:, :1], 1, 2)
                off = place - corners[:, 0]
                shares = np.einsum("ijk,ik->ij", np.linalg.pinv(sides), off)
                within = (shares >= 0).all(1) & (shares.sum(1) <= 1)
                gaps = np.linalg.norm(off - np.einsum("ijk,ik->ij", sides, shares), axis=1)
                wanted = min(wanted, gaps[within].min(initial=np.inf))
        assert abs(distance - wanted) < 1e-8


@pytest.mark.parametrize("kind", ["cylinder", "ellipsoid", "hull"])
def test_kernels_agree_with_the_interpreter_and_finite_differences(kind):
    check_kernel(KERNELS[kind].kernel, [points(5, seed=4)], scale=1e4)


def test_where_an_ellipsoid_has_many_nearest_points_one_is_taken():
    flat = measure(Collider("ellipsoid", (0.3, 0.01, 0.2)))
    p = torch.tensor([[0.0, 0.0, 0.0], [0.1, 0.0, 0.05], [0.0, 0.3, 0.0], [2.0, 0.0, 0.0], [0.0, -5.0, 1e-3]])
    for dtype in (torch.float32, torch.float64):
        found = flat(p.to(dtype))["distance"]
        wanted = torch.tensor([-0.01, -0.01 * (1 - 0.01 / 0.0899 - 0.0025 / 0.0399) ** 0.5, 0.29, 1.7, 4.99])
        assert torch.allclose(found[[0, 2, 3, 4]].double(), wanted[[0, 2, 3, 4]].double(), atol=1e-5)
        assert torch.allclose(found[1].double(), wanted[1].double(), atol=1e-5)


@pytest.mark.parametrize("kind", ["box", "cylinder", "hull"])
def test_a_point_on_a_face_has_its_normal(kind):
    """Also after rounding, and on the line between two triangles of the face."""
    slab = measure(Collider(kind, SIZE[kind], thickness=1e-3, vertices=SLAB if kind == "hull" else ()))
    x, y = torch.meshgrid(torch.linspace(-0.1, 0.1, 9), torch.linspace(-0.1, 0.1, 9), indexing="ij")
    heights = 0.1 + torch.tensor([-1e-17, 0.0, 2e-17, 1e-12])
    for dtype in (torch.float32, torch.float64):
        p = torch.stack([a.expand(4, 9, 9) for a in (x, y, heights[:, None, None].double())], -1).to(dtype)
        normal = slab(p.reshape(-1, 3))["normal"]
        assert torch.allclose(normal, torch.tensor([0.0, 0.0, 1.0], dtype=dtype).expand_as(normal), atol=1e-12)


def test_points_beyond_the_thickness_feel_nothing_of_a_hull():
    near = measure(Collider("hull", vertices=COLLIDERS["hull"].vertices, thickness=0.05))
    p = points(300, seed=2)
    full, quick = KERNELS["hull"](p), near(p)
    touching = full["distance"] < 0.05
    assert 10 < touching.sum() < 290
    assert torch.equal(quick["distance"][touching], full["distance"][touching])
    assert (quick["distance"][~touching] >= 0.05).all()


def block_on(collider, height):
    """A soft block that rests on a shape, and the force on it."""
    solid = Solid(
        box_mesh((2, 2, 2), (0.1, 0.1, 0.1)), SolidMaterial("neo_hookean", 300.0, 5e4, 0.3, drag=20.0), 5e-4,
        colliders=(collider,),
    )  # fmt: skip
    x = torch.tensor(solid.mesh.nodes) - torch.tensor([0.05, 0.05, 0.0]) + torch.tensor([0.0, 0.0, height])
    return solid.rollout(solid.state(x), steps=1600)


@pytest.mark.parametrize("kind", ["cylinder", "hull"])
def test_a_soft_block_rests_on_a_shape(kind):
    contact = {"stiffness": 500.0, "damping": 1.0, "friction": 0.5, "thickness": 2e-3}
    shape = Collider("hull", vertices=SLAB, **contact) if kind == "hull" else Collider(kind, (0.3, 0.1), **contact)
    path = block_on(shape, 0.1)
    weight = 300.0 * 1e-3 * 9.81
    force = path.wrench[-50:, 0, :3].mean(0)
    assert torch.allclose(force, torch.tensor([0.0, 0.0, -weight], dtype=torch.float64), atol=0.01 * weight)
    assert path.x[:, 2].min() > 0.1  # the nine nodes below share the weight: 0.65 mm of 2 mm
    assert path.v.abs().max() < 1e-3


def test_gradients_pass_to_where_shapes_are_and_how_they_are_turned():
    kinds = [COLLIDERS[kind] for kind in ("cylinder", "ellipsoid", "hull")]
    colliders = tuple(Collider(one.kind, one.size, 300.0, 0.5, 0.3, 0.02, one.vertices) for one in kinds)
    world = Particles((12, 12, 12), 0.1, 1e-3, ParticleMaterial("neo_hookean", 1000.0, 1e5, 0.3), colliders=colliders)
    generator = torch.Generator().manual_seed(0)
    x = 0.4 + 0.4 * torch.rand(12, 3, generator=generator, dtype=torch.float64)
    place = torch.tensor([[0.55, 0.6, 0.62], [0.7, 0.5, 0.4], [0.3, 0.7, 0.8]], dtype=torch.float64)
    spin = torch.tensor([[0.0, 0.3, -0.2], [-0.3, 0.0, 0.5], [0.2, -0.5, 0.0]], dtype=torch.float64)
    turn = torch.linalg.matrix_exp(spin * torch.tensor([1.0, 2.0, -1.0])[:, None, None])

    def run(place, turn):
        return world.rollout(world.state(x), 1e-4, steps=5, motion=Motion.at_rest(place, turn, 5))

    def loss(place, turn):
        path = run(place, turn)
        return (path.v * torch.tensor([1.0, 2.0, 3.0])).sum() + 1e-2 * path.wrench.square().sum()

    assert (run(place, turn).wrench.abs().amax((0, 2)) > 0.1).all()
    leaves = place.clone().requires_grad_(), turn.clone().requires_grad_()
    gradients = torch.autograd.grad(loss(*leaves), leaves)
    for i, gradient in enumerate(gradients):
        direction = torch.randn(gradient.shape, generator=generator, dtype=torch.float64)
        up, down = (
            loss(*(value + sign * 1e-7 * direction if i == j else value for j, value in enumerate((place, turn))))
            for sign in (1, -1)
        )
        assert torch.allclose((up - down) / 2e-7, (gradient * direction).sum(), rtol=1e-5)
    sequence, target = world._runner(12).sequence, CudaTarget(90)
    adjoint = sequence.adjoint({"collider_position"})
    for task in [*sequence.forward, *adjoint.replay, *adjoint.tasks]:
        if task.map is not None:
            made = MapTarget(target, task.map, render)
            assert ".entry kernel" in target.ptx(made.render(task.map.program, made.lanes(32)[0]).text)


def test_implicit_steps_settle_on_a_hull_and_rise_with_it():
    hull = Collider("hull", vertices=SLAB, stiffness=200.0, damping=1.0, thickness=1e-3)
    mesh = box_mesh((1, 1, 1), (0.1, 0.1, 0.1), tetrahedra=True)
    rubber = SolidMaterial("neo_hookean", 300.0, 5e4, 0.3, drag=20.0)
    solid = ImplicitSolid(mesh, rubber, 0.01, colliders=(hull,))
    x = torch.tensor(mesh.nodes) + torch.tensor([-0.05, -0.05, 0.1])
    place = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    path = solid.rollout(solid.state(x), steps=30, motion=Motion.at_rest(place, None, 30))
    assert torch.allclose(path.wrench[-1, 0, 2], torch.tensor(-0.3 * 9.81, dtype=torch.float64), rtol=1e-3)
    (gradient,) = torch.autograd.grad(path.x[:, 2].mean(), place)
    assert torch.allclose(gradient, torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64), atol=1e-3)


def test_what_is_wrong_is_named():
    with pytest.raises(InputError, match="the 4 vertices of a hull lie in a plane or on a line"):
        Collider("hull", vertices=((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (1.0, 1.0, 0.0)))
    with pytest.raises(InputError, match="only a hull has vertices, not a sphere"):
        Collider("sphere", (1.0,), vertices=((0.0, 0.0, 0.0),))
    with pytest.raises(InputError, match=r"a hull has finite vertices \(n, 3\), got an array \(0,\)"):
        Collider("hull")
    with pytest.raises(InputError, match="no kind 'cone'; kinds: plane, sphere,"):
        Collider("cone", (1.0,))
