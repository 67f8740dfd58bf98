"""Robots and soft bodies in one world: momentum, prescribed motion as a limit, finite differences, one bad variant."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import adjoin
from adjoin.continuum import Checkpoints, Collider, Motion, ParticleMaterial, Particles, Solid, SolidMaterial, box_mesh
from adjoin.coupling import CoupledWorld, Link, link_shapes
from adjoin.errors import InputError, ModelError

DT = 5e-4


def ball(mass=1.0):
    """A ball that floats without gravity."""
    model = adjoin.robots.load("ball")
    (body,) = model.bodies
    scale = mass / body.mass
    body = replace(body, mass=mass, inertia=tuple(scale * x for x in body.inertia))
    return replace(model, bodies=(body,), gravity=(0.0, 0.0, 0.0))


def cube(**collider):
    mesh = box_mesh((1, 1, 1), (0.2, 0.2, 0.2), tetrahedra=True)
    sphere = Collider("sphere", (0.1,), stiffness=400.0, damping=1.0, friction=0.3, **collider)
    return Solid(mesh, SolidMaterial("neo_hookean", 500.0, 2e4, 0.3), DT, colliders=(sphere,))


def weightless():
    return {"gravity": torch.zeros(3, dtype=torch.float64)}


def throw(model, solid, q=(0.02, 0.03, 0.28), v=(0.1, 0.2, -1.0), spin=(0.0, 0.0, 0.0), **options):
    sim = adjoin.Simulator(model, dt=DT, ground=False)
    world = CoupledWorld(sim, solid, [Link("ball")])
    place = torch.tensor([*q, 1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    start = sim.state(place, torch.tensor([*v, *spin], dtype=torch.float64))
    return world.rollout(start, solid.state(), steps=120, params=weightless(), **options)


def test_what_a_soft_body_gains_its_robot_loses():
    solid = cube()
    path = throw(ball(), solid, keep=20)
    mass = solid.inputs(solid.state()).parameters["mass"]
    soft = (mass[:, None] * path.body.v).sum(1)
    turn = adjoin.transforms.quaternion_to_matrix(path.robot.q[:, 3:])
    rigid = (turn @ path.robot.v[:, :3, None])[..., 0]
    total = soft + rigid
    assert soft[-1].norm() > 0.1
    assert torch.allclose(total, total[0].expand_as(total), atol=1e-12)
    impulse = DT * path.wrench[:, 0, :3].sum(0)
    assert torch.allclose(rigid[-1] - rigid[0], impulse, atol=1e-12)
    # About the world's origin: what nodes have as orbital momentum, the ball has as orbital momentum and spin.
    orbital = (mass[:, None] * torch.linalg.cross(path.body.x, path.body.v)).sum(1)
    spin = 0.4 * 0.1**2 * (turn @ path.robot.v[:, 3:, None])[..., 0]
    moment = orbital + torch.linalg.cross(path.robot.q[:, :3], rigid) + spin
    assert torch.allclose(moment, moment[0].expand_as(moment), atol=2e-3)  # semi-implicit Euler: first order in dt


def test_a_heavy_robot_is_a_prescribed_motion():
    solid = cube()
    path = throw(ball(1e9), solid)
    t = DT * torch.arange(120, dtype=torch.float64)
    velocity = torch.tensor([0.1, 0.2, -1.0], dtype=torch.float64)
    place = torch.tensor([0.02, 0.03, 0.28], dtype=torch.float64) + t[:, None] * velocity
    rotation = torch.eye(3, dtype=torch.float64).expand(120, 1, 3, 3)
    still = torch.zeros(120, 1, 3, dtype=torch.float64)
    motion = Motion(place[:, None], rotation, velocity.expand(120, 1, 3), still)
    alone = solid.rollout(solid.state(), motion=motion, params=weightless())
    assert torch.allclose(path.body.x, alone.x, atol=1e-8)
    assert torch.allclose(path.wrench, alone.wrench, atol=1e-5)
    assert alone.wrench.abs().max() > 1.0


def arm():
    """A bar on a hinge with a motor, with a soft cube below its tip."""
    model = adjoin.load(
        '<robot name="arm"><link name="base"/><link name="bar"><inertial><origin xyz="0.2 0 0"/><mass value="0.5"/>'
        '<inertia ixx="1e-3" ixy="0" ixz="0" iyy="5e-3" iyz="0" izz="5e-3"/></inertial></link>'
        '<joint name="hinge" type="revolute"><parent link="base"/><child link="bar"/><axis xyz="0 1 0"/>'
        '<origin xyz="-0.25 0.1 0.32"/><limit lower="-2" upper="2" effort="50" velocity="50"/></joint></robot>'
    ).with_motors()
    return adjoin.Simulator(model, dt=DT)


def test_gradients_through_robot_and_body_are_finite_differences():
    sim, solid = arm(), cube()
    world = CoupledWorld(sim, solid, [Link("bar", (0.35, 0.0, -0.02))])
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    steps = 40
    values = {
        "controls": 4.0 * random(steps, 1),
        "shear": torch.tensor(8e3, dtype=torch.float64),
        "mass": torch.tensor([0.5], dtype=torch.float64),
        "q": torch.tensor([0.05], dtype=torch.float64),
        "x": torch.tensor(solid.mesh.nodes) + 1e-3 * random(8, 3),
    }

    def loss(values):
        start = replace(sim.state(torch.zeros(1, dtype=torch.float64)), q=values["q"])
        path = world.rollout(
            start, solid.state(values["x"]), values["controls"], robot_params={"mass": values["mass"]},
            params={"shear": values["shear"]}, keep=steps // 2, checkpoints=Checkpoints("sqrt"),
        )  # fmt: skip
        return path.robot.q.sum() + path.robot.v.sum() + 10 * path.body.v.square().sum() + path.wrench.sum()

    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    gradients = torch.autograd.grad(loss(leaves), list(leaves.values()))
    for (name, value), gradient in zip(values.items(), gradients, strict=True):
        direction = random(*value.shape) * value.abs().mean()
        h = 1e-6
        slope = (loss(values | {name: value + h * direction}) - loss(values | {name: value - h * direction})) / (2 * h)
        assert slope.abs() > 1e-6, name
        assert torch.isclose((gradient * direction).sum(), slope, rtol=1e-5), name
    path = world.rollout(
        sim.state(torch.full((2, 1), 0.05, dtype=torch.float64)),
        solid.state(torch.stack([values["x"], values["x"] * torch.nan])),
        values["controls"],
    )
    assert path.robot.status.tolist() == [0, 1]  # the force of a body that is not finite stops its own robot alone
    assert path.body.x[0].isfinite().all()


def test_particles_push_a_link_back():
    shovel = Collider("box", (0.05, 0.05, 0.05), stiffness=100.0, friction=0.4, thickness=0.01)
    sand = Particles((10, 10, 10), 0.05, 1e-3, ParticleMaterial("neo_hookean", 1000.0, 2e4), colliders=(shovel,))
    axis = torch.arange(0.2, 0.3, 0.025, dtype=torch.float64)
    x = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
    model = ball(2.0)
    sim = adjoin.Simulator(model, dt=1e-3, ground=False)
    world = CoupledWorld(sim, sand, [Link("ball")])
    start = sim.state(
        torch.tensor([0.25, 0.25, 0.36, 1, 0, 0, 0]).double(), torch.tensor([0.0, 0, -1, 0, 0, 0]).double()
    )
    params = {"gravity": torch.zeros(3, dtype=torch.float64)}
    path = world.rollout(start, sand.state(x), steps=30, volume=0.025**3, params=params)
    momentum = 1000.0 * 0.025**3 * path.body.v.sum(0)
    assert momentum[2] < -0.01
    assert torch.allclose(momentum[2] + 2.0 * path.robot.v[2], torch.tensor(-2.0).double(), atol=1e-9)


def test_what_is_wrong_is_named():
    sim, solid = arm(), cube()
    with pytest.raises(InputError, match="a link for each of the body's 1 colliders, got 0"):
        CoupledWorld(sim, solid, [])
    with pytest.raises(ModelError, match="no link 'hand'; links: base, bar"):
        CoupledWorld(sim, solid, [Link("hand")])
    with pytest.raises(InputError, match=r"must have one dt, got 0\.001 and 0\.0005"):
        CoupledWorld(adjoin.Simulator(sim.model, dt=1e-3), solid, [Link("bar")])
    with pytest.raises(InputError, match="needs controls or steps"):
        CoupledWorld(sim, solid, [Link("bar")]).rollout(sim.state(dtype=torch.float64), solid.state())


def test_a_robot_of_many_pairs_steps_as_it_does_alone():
    solid = Solid(box_mesh((1, 1, 1), (0.04,) * 3), SolidMaterial(), DT, colliders=(Collider(stiffness=400.0),))
    sim = adjoin.Simulator(adjoin.robots.load("panda"), dt=DT, ground=False, self_collision=True)
    assert len(sim.contact_names) > 400
    world = CoupledWorld(sim, solid, [Link()])
    start = sim.state(dtype=torch.float64)
    path = world.rollout(start, solid.state(), steps=5)
    assert path.robot.q.equal(sim.rollout(start, steps=5).last.q)


def test_the_shapes_of_links_are_colliders_where_the_robot_has_them():
    model = adjoin.robots.load("panda")
    with pytest.raises(InputError, match="'panda_hand_tcp' has no shapes; links that have some: panda_"):
        link_shapes(model, ["panda_hand_tcp"])
    name = "panda_link4"
    colliders, links = link_shapes(model, [name], stiffness=50.0, friction=0.4)
    shapes = [one for one in model.geometries if one.link == name]
    assert [one.kind for one in colliders] == [one.kind for one in shapes] == ["cylinder", "sphere", "sphere"]
    assert [one.size for one in colliders] == [tuple(x for x in one.size if x) for one in shapes]
    assert colliders[0].friction == 0.4
    frame = model.frames[model.frame_index(name)]
    turn, place = torch.tensor(frame.rotation), torch.tensor(frame.position)
    for link, shape in zip(links, shapes, strict=True):
        assert torch.allclose(turn @ torch.tensor(link.position) + place, torch.tensor(shape.position), atol=1e-6)


def test_a_panda_of_hulls_pushes_a_soft_block_with_them():
    """Every shape of the arm as the hull of points on it, as a file with meshes has it."""
    model = adjoin.robots.load("panda")
    directions = np.random.default_rng(0).standard_normal((24, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)

    def as_hull(shape):
        radius, half = shape.size[0], shape.size[1] if shape.kind == "cylinder" else 0.0
        points = radius * directions + half * np.sign(directions[:, 2:]) * [0.0, 0.0, 1.0]
        return replace(shape, kind="hull", size=(0.0, 0.0, 0.0), vertices=tuple(map(tuple, points.tolist())))

    model = replace(model, geometries=tuple(as_hull(shape) for shape in model.geometries))
    names = ["panda_link7", "panda_hand"]
    colliders, links = link_shapes(model, names, stiffness=400.0, thickness=2e-3)
    assert {one.kind for one in colliders} == {"hull"}
    mesh = box_mesh((1, 1, 1), (0.1, 0.1, 0.1))
    solid = Solid(mesh, SolidMaterial("neo_hookean", 500.0, 2e4, 0.3), 1e-3, colliders=colliders)
    sim = adjoin.Simulator(model, dt=1e-3, ground=False, pairs=[])
    start = sim.state(dtype=torch.float64)
    hand = adjoin.forward_kinematics(model, start.q, "panda_hand")[:3, 3]
    x = torch.tensor(mesh.nodes) + hand
    path = CoupledWorld(sim, solid, links).rollout(start, solid.state(x), steps=10, params=weightless())
    assert path.wrench.abs().amax((0, 2)).max() > 1.0
    mass = solid.inputs(solid.state()).parameters["mass"]
    gained = (mass[:, None] * path.body.v).sum(0)
    assert torch.allclose(gained, -1e-3 * path.wrench[..., :3].sum((0, 1)), atol=1e-12)
