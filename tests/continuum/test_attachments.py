"""Nodes that links or moving clamps hold: they follow, their holder feels them, and gradients pass both ways."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import adjoin
from adjoin.continuum import Attachment, Cloth, ClothMaterial, Collider, Motion, Solid, SolidMaterial, box_mesh
from adjoin.coupling import CoupledWorld, Link
from adjoin.errors import InputError

DT = 5e-4
MESH = box_mesh((2, 1, 1), (0.2, 0.1, 0.1))
BASE = tuple(int(i) for i in np.flatnonzero(MESH.nodes[:, 0] == 0.0))
WEIGHTLESS = {"gravity": torch.zeros(3, dtype=torch.float64)}


def block(**options):
    return Solid(MESH, SolidMaterial("neo_hookean", 500.0, 2e4, 0.3), DT, attachments=(Attachment(BASE),), **options)


def held_by_a_ball(solid, **parts):
    """A ball of 2 kg without gravity that holds a block, at some distance and turned, with its state."""
    model = adjoin.robots.load("ball")
    (body,) = model.bodies
    body = replace(body, mass=2.0, inertia=tuple(2.0 / model.mass * x for x in body.inertia))
    sim = adjoin.Simulator(replace(model, bodies=(body,), gravity=(0.0, 0.0, 0.0)), dt=DT, ground=False)
    turn = ((0.0, -1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0))
    world = CoupledWorld(sim, solid, [*parts.get("links", ()), Link("ball", (0.1, 0.0, 0.05), turn)])
    q = torch.tensor([0.3, 0.2, 0.1, 0.8, 0.0, 0.6, 0.0], dtype=torch.float64)
    return world, sim.state(q, torch.tensor([0.3, -0.1, 0.2, 1.0, 2.0, -1.0], dtype=torch.float64))


def test_what_a_link_holds_follows_it_and_momentum_is_only_passed_on():
    solid = block()
    world, start = held_by_a_ball(solid)
    path = world.rollout(start, world.attached(start), steps=400, keep=40, params=WEIGHTLESS)
    mass = solid.inputs(solid.state()).parameters["mass"]
    turn = adjoin.transforms.quaternion_to_matrix(path.robot.q[:, 3:])
    rigid = 2.0 * (turn @ path.robot.v[:, :3, None])[..., 0]
    total = rigid + (mass[:, None] * path.body.v).sum(1)
    assert torch.allclose(total, total[0].expand_as(total), atol=1e-12)
    assert (rigid[-1] - rigid[0]).norm() > 0.02
    spin = 0.4 * 2.0 * 0.1**2 * (turn @ path.robot.v[:, 3:, None])[..., 0]
    carried = spin + torch.linalg.cross(path.robot.q[:, :3], rigid)
    moment = carried + (mass[:, None] * torch.linalg.cross(path.body.x, path.body.v)).sum(1)
    assert torch.allclose(moment, moment[0].expand_as(moment), atol=1e-12)
    assert (carried[-1] - carried[0]).norm() > 0.01
    placed = world.attached(replace(path.robot, q=path.robot.q[-1], v=path.robot.v[-1]))
    away = (path.body.x[-1] - placed.x)[list(BASE)].norm(dim=-1)
    assert (path.robot.q[-1, :3] - path.robot.q[0, :3]).norm() > 0.05
    assert 1e-9 < away.max() < 1e-3


def test_a_clamp_that_rests_is_a_fixed_base():
    """Under its own weight the block hangs as one whose base is fixed, and the clamp carries the weight."""
    solid = block()
    far = solid.rollout(solid.state(), steps=3000, params={"drag": torch.tensor(20.0).double()})
    fixed = torch.tensor(MESH.nodes[:, 0] == 0.0)
    bare = replace(solid, attachments=())
    stuck = bare.rollout(bare.state(), steps=3000, fixed=fixed, params={"drag": torch.tensor(20.0).double()})
    assert torch.allclose(far.x, stuck.x, atol=5e-4)
    assert stuck.x[:, 2].min() < -0.02
    assert far.wrench.shape == (3000, 1, 6)
    weight = 9.81 * 500.0 * 0.2 * 0.1 * 0.1
    assert torch.isclose(far.wrench[-1, 0, 2], torch.tensor(-weight).double(), rtol=1e-3)


def test_gradients_are_finite_differences():
    shape = Collider("sphere", (0.05,), stiffness=300.0, friction=0.3)
    solid = block(colliders=(shape,))
    world, start = held_by_a_ball(solid, links=(Link(None, (0.35, 0.25, 0.0)),))
    generator = torch.Generator().manual_seed(0)
    values = {
        "q": start.q,
        "shear": torch.tensor(8e3, dtype=torch.float64),
        "nodes": torch.tensor(MESH.nodes),
        "mass": torch.tensor([2.0], dtype=torch.float64),
    }

    def loss(values):
        robot = replace(start, q=values["q"])
        path = world.rollout(
            robot, world.attached(robot), steps=60, keep=30, nodes=values["nodes"],
            params=WEIGHTLESS | {"shear": values["shear"]}, robot_params={"mass": values["mass"]},
        )  # fmt: skip
        return path.robot.q.sum() + path.robot.v.sum() + path.body.x.sum() + (path.wrench * path.wrench).mean()

    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    gradients = torch.autograd.grad(loss(leaves), list(leaves.values()))
    for (name, value), gradient in zip(values.items(), gradients, strict=True):
        direction = torch.randn(value.shape, generator=generator, dtype=torch.float64) * value.abs().mean()
        h = 1e-5
        slope = (loss(values | {name: value + h * direction}) - loss(values | {name: value - h * direction})) / (2 * h)
        assert slope.abs() > 1e-6, name
        assert torch.isclose((gradient * direction).sum(), slope, rtol=1e-5), name


def test_a_clamp_moves_cloth_and_one_bad_variant_stays_alone():
    nodes = np.array([[x, y, 0.0] for x in (0.0, 0.1) for y in (0.0, 0.1)])
    cloth = Cloth(nodes, np.array([[0, 2, 1], [1, 2, 3]]), ClothMaterial(), 1e-3, attachments=(Attachment((0, 1)),))
    steps = 200
    rising = 1e-3 * torch.arange(steps, dtype=torch.float64)
    place = torch.zeros(steps, 1, 3, dtype=torch.float64)
    place[:, 0, 2] = 0.5 * rising
    velocity = torch.tensor([0.0, 0.0, 0.5], dtype=torch.float64).expand(steps, 1, 3)
    turn = torch.eye(3, dtype=torch.float64).expand(steps, 1, 3, 3)
    motion = Motion(place, turn, velocity, torch.zeros_like(velocity))
    x = torch.tensor(nodes).expand(2, 4, 3).clone()
    x[1, 2] = torch.nan
    found = cloth.rollout(cloth.state(x), motion=motion)
    alone = cloth.rollout(cloth.state(x[0]), motion=motion)
    assert torch.allclose(alone.x[:2, 2], torch.tensor(0.1).double(), atol=2e-3)
    assert found.x[0].equal(alone.x)
    assert found.x[1].isnan().any()


def test_what_is_wrong_is_named():
    material = SolidMaterial("neo_hookean", 500.0, 2e4, 0.3)
    with pytest.raises(InputError, match="attachment 0: no node 99; nodes: 0 to 11"):
        Solid(MESH, material, DT, attachments=(Attachment((99,)),))
    with pytest.raises(InputError, match="attachment 1: node 3 is held by attachment 0 already"):
        Solid(MESH, material, DT, attachments=(Attachment((3,)), Attachment((3,))))
    with pytest.raises(InputError, match="holds no nodes"):
        Attachment(())
    with pytest.raises(InputError, match="stiffness must be positive"):
        Attachment((0,), stiffness=-1.0)
    stiff = Solid(MESH, material, DT, attachments=(Attachment((0,), stiffness=1e9),))
    with pytest.raises(InputError, match=r"attachment 0: a node of .* allow a stiffness of at most"):
        stiff.rollout(stiff.state(), steps=1)
    world, _ = held_by_a_ball(block())
    with pytest.raises(InputError, match="a link for each of the body's 0 colliders and 1 attachments, got 0"):
        CoupledWorld(world.simulator, block(), [])
