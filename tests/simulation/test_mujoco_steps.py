"""Steps are MuJoCo's: integrators, limits of ball joints, bounds of forces on joints, armature of free joints,
meshes on a plane."""

import warnings

import mujoco_models
import mujoco_tables
import numpy as np
import pytest
import torch

import adjoin
from adjoin.errors import InsideGroundWarning

ROBOT = """
<mujoco>
  <option timestep="0.004" integrator="{}"/>
  <worldbody>
    <geom type="plane" size="2 2 1"/>
    <body pos="0 0 0.12">
      <joint type="free" armature="0.3"/>
      <geom type="capsule" fromto="-0.2 0 0 0.2 0 0" size="0.1" mass="1"/>
      <body pos="0.2 0 0">
        <joint axis="0 1 0" damping="0.5" range="-10 10" name="hinge" actuatorfrcrange="-1 2"/>
        <geom type="box" size="0.1 0.05 0.03" pos="0.1 0 0"/>
        <body pos="0.2 0 0">
          <joint type="ball" damping="0.1" range="0 20" armature="0.01"/>
          <geom type="capsule" fromto="0 0 0 0.2 0 0" size="0.04"/>
        </body>
      </body>
    </body>
    <body pos="0 0 2"><joint type="free"/><geom type="box" size="0.2 0.1 0.05" pos="0 0.1 0"/></body>
  </worldbody>
  <actuator><position joint="hinge" kp="30" kv="2"/></actuator>
</mujoco>
"""


@pytest.mark.parametrize("integrator", ["Euler", "implicitfast", "RK4"])
def test_steps_are_those_of_the_integrator_of_the_file(integrator):
    assert mujoco_models.difference(ROBOT.format(integrator)) < 1e-10


def test_a_body_with_armature_flies_straight_while_it_turns():
    free = adjoin.Joint("root", "free", armature=(0.5,) * 6)
    body = adjoin.Body("body", -1, free, mass=1.0, inertia=(0.01, 0.0, 0.0, 0.01, 0.0, 0.01))
    model = adjoin.Model("body", (body,), (adjoin.Frame("body", 0),), gravity=(0.0, 0.0, 0.0))
    sim = adjoin.Simulator(model, 1e-3, pairs=[])
    v = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0, 3.0], dtype=torch.float64)
    assert torch.allclose(
        sim.rollout(sim.state(v=v), steps=1000).last.q[:3], torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    )


@pytest.mark.parametrize("contact", [adjoin.PGS(), adjoin.Newton()])
def test_ball_joints_have_limits(contact):
    ball = adjoin.Joint("ball", "ball", lower=0.0, upper=0.35)
    body = adjoin.Body("body", -1, ball, mass=1.0, com=(0.3, 0.0, 0.0), inertia=(0.01, 0.0, 0.0, 0.01, 0.0, 0.01))
    model = adjoin.Model("pendulum", (body,), (adjoin.Frame("body", 0),))
    sim = adjoin.Simulator(model, 2e-3, contact)
    path = sim.rollout(sim.state(dtype=torch.float64), steps=300)
    angle = 2.0 * torch.acos(path.q[:, 0].clamp(max=1.0))
    assert 0.34 < angle.max() < 0.4

    def height(speed):
        moved = sim.rollout(sim.state(v=speed), steps=80)
        return (moved.last.q * torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)).sum()

    speed = torch.tensor([0.1, 1.0, 0.2], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(height, (speed,), eps=1e-6, atol=1e-5, rtol=1e-4)


def test_the_forces_of_actuators_on_a_joint_are_bounded_together():
    joint = adjoin.Joint("hinge", "revolute", effort_limit=1.0)
    body = adjoin.Body("body", -1, joint, mass=1.0, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, 1.0))
    drives = (adjoin.Actuator("a", "hinge"), adjoin.Actuator("b", "hinge", gain=-0.5))
    model = adjoin.Model("wheel", (body,), (adjoin.Frame("body", 0),), actuators=drives, gravity=(0.0, 0.0, 0.0))
    sim = adjoin.Simulator(model, 1e-2)
    control = torch.tensor([[100.0, 0.0], [0.5, 0.2], [0.0, 100.0], [9.0, 17.0]])
    after = sim.step(sim.state(batch=4), control)
    assert torch.allclose(after.v[:, 0], 1e-2 * torch.tensor([1.0, 0.4, -1.0, 0.5]))


def rocks():
    """Two rocks, of which one has a flat side with many corners, on a plane."""
    generator = np.random.default_rng(1)
    round_one = 0.2 * generator.standard_normal((24, 3))
    flat = round_one.copy()
    flat[:, 2] = np.maximum(flat[:, 2], -0.05)
    texts = [" ".join(f"{x:.5f}" for x in points.ravel()) for points in (flat, round_one)]
    meshes = "".join(f'<mesh name="{name}" vertex="{text}"/>' for name, text in zip("ab", texts, strict=True))
    bodies = "".join(
        f'<body pos="{x} 0 {z}"><freejoint/><geom type="mesh" mesh="{name}" margin="0.01"/></body>'
        for name, x, z in (("a", 0, 0.04), ("b", 2, 0.3))
    )
    return f"""
    <mujoco>
      <asset>{meshes}</asset><worldbody><geom type="plane" size="5 5 1"/>{bodies}</worldbody>
    </mujoco>
    """


def test_a_mesh_rests_on_a_plane_where_mujocos_does():
    model, sim = mujoco_models.engines(rocks())
    counts = []

    def states():
        for data in mujoco_models.random_states(model, 12, spread=0.05):
            counts.append(data.ncon)
            yield data

    with warnings.catch_warnings(), mujoco_tables.interpreted():
        warnings.simplefilter("ignore", InsideGroundWarning)
        state, _, (q, v, _) = mujoco_models.states_of(sim, model, states())
        after = sim.step(state)
    assert max(counts) >= 5
    assert max((after.q - q).abs().max(), (after.v - v).abs().max()) < 1e-9 * (v - state.v).abs().max()


CYLINDERS = """
<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body pos="0 0 0.199"><freejoint/><geom type="cylinder" size="0.1 0.2" margin="0.02"/></body>
    <body pos="1 0 0.099" euler="90 0 0"><freejoint/><geom type="cylinder" size="0.1 0.2"/></body>
  </worldbody>
</mujoco>
"""


@pytest.mark.parametrize("spread", [0.0, 0.02])
def test_a_cylinder_touches_a_plane_where_mujocos_does(spread):
    with mujoco_tables.interpreted():
        assert mujoco_models.difference(CYLINDERS, count=8, spread=spread, speed=0.3) < 1e-9


BOXES = """
<mujoco>
  <option timestep="0.004"/>
  <worldbody>
    <geom type="plane" size="2 2 1"/>
    <body pos="0 0 0.1"><freejoint/><geom type="box" size="0.1 0.08 0.1"/></body>
    <body pos="{x} {y} {z}"><freejoint/><geom type="box" size="{size}"/></body>
  </worldbody>
</mujoco>
"""


@pytest.mark.parametrize("spread", [0.003, 0.03])
def test_a_box_touches_a_box_where_mujocos_does(spread):
    document = BOXES.format(x=0.05, y=0.03, z=0.259, size="0.06 0.1 0.06")
    assert mujoco_models.difference(document, count=24, spread=spread) < 1e-9


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_boxes_whose_faces_coincide_stand_on_each_other(dtype):
    sim = adjoin.Simulator(adjoin.load(BOXES.format(x=0, y=0, z=0.2995, size="0.1 0.08 0.1")))
    state = sim.state("qpos0", dtype=dtype)
    contacts = sim.contacts(state)
    between = [k for k, p in enumerate(contacts.pair) if contacts.distance[k] < 0.0 and "plane" not in _kinds(sim, p)]
    corners = {(round(float(x), 4), round(float(y), 4)) for x, y, _ in contacts.position[between]}
    assert corners == {(x, y) for x in (-0.1, 0.1) for y in (-0.08, 0.08)}
    last = sim.rollout(state, steps=250).last
    assert (last.q[[0, 1, 7, 8]]).abs().max() < 1e-4
    assert abs(last.q[9] - last.q[2] - 0.2) < 2e-3


def _kinds(sim, pair):
    return [sim.model.geometries[sim.model.geometry_index(name)].kind for name in sim.contact_names[int(pair)]]


def test_gradients_of_a_box_on_a_box():
    sim = adjoin.Simulator(adjoin.load(BOXES.format(x=0.05, y=0.03, z=0.259, size="0.06 0.1 0.06")))
    state = sim.state("qpos0", dtype=torch.float64)
    turns = torch.tensor([[1.0, 0.01, -0.008, 0.1], [1.0, 0.02, -0.03, 0.2]], dtype=torch.float64)
    q = state.q.clone()
    q[3:7], q[10:] = torch.nn.functional.normalize(turns, dim=1)
    v = 0.2 * torch.randn(12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    names = ("geometry_size", "geometry_friction", "mass")
    values = [sim.model.parameters(dtype=torch.float64)[name] for name in names]
    values[1] = values[1] * torch.tensor([[1.1], [0.7], [0.9]], dtype=torch.float64)  # the greater of two counts

    def end(v, *values):
        last = sim.rollout(sim.state(q, v), params=dict(zip(names, values, strict=True)), steps=3).last
        return torch.cat([last.q, last.v])

    inputs = [x.requires_grad_() for x in (v, *values)]
    assert torch.autograd.gradcheck(end, inputs, eps=1e-7, atol=1e-4, rtol=1e-4)
