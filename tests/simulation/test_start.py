"""States to begin with: batches and dtypes, the ground, resets, and values that are refused or flagged."""

import functools
import math
import warnings
from dataclasses import replace

import mujoco
import pytest
import torch
from worlds import UPRIGHT, tensor

import adjoin
from adjoin.errors import InputError, InsideGroundWarning, ModelError, TraceError
from adjoin.simulation.clearance import clearance
from adjoin.simulation.state import FINE, NOT_FINITE, UNPHYSICAL

WALKERS = [name for name in adjoin.robots.names() if adjoin.robots.load(name).bodies[0].joint.type.floating]


@functools.cache
def ball():
    return adjoin.Simulator(adjoin.robots.load("ball"), dt=1e-3)


@functools.cache
def arm():
    return adjoin.Simulator(adjoin.robots.load("two_link"), dt=1e-2, pairs=[])


def test_a_state_has_the_batch_and_the_dtype_that_are_asked_for():
    state = arm().state(torch.tensor([0.1, 0.2]), batch=7, dtype=torch.float64)
    assert state.batch == (7,)
    assert state.q.dtype == state.v.dtype == state.memory["status"].dtype == torch.float64
    assert arm().state(torch.zeros(3, 2), batch=3).batch == (3,)
    assert arm().state("home", batch=(2, 3)).batch == (2, 3)
    with pytest.raises(InputError, match=r"do not broadcast to batch=\(7,\): \(3,\)"):
        arm().state(torch.zeros(3, 2), batch=7)
    with pytest.raises(InputError, match="batch must be a size"):
        arm().state(batch=-1)
    with pytest.raises(InputError, match="'q' must be a torch tensor, got list"):
        arm().state([0.0, 0.0])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", adjoin.robots.names())
def test_every_robot_has_a_home_on_the_ground_inside_its_limits(name):
    model = adjoin.robots.load(name)
    q = torch.tensor(model.keyframe("home").q, dtype=torch.float64)
    lower, upper = (torch.tensor(x, dtype=torch.float64) for x in model.limits())
    assert ((lower <= q) & (q <= upper)).all()
    if name in WALKERS:
        _, heights = clearance(adjoin.World.of(model, 1e-3, contact=adjoin.Newton()), q)
        assert abs(heights.min()) < 1e-3
        # It can stand: the center of mass is above what touches the ground.
        middle = adjoin.center_of_mass(model, q)
        places = adjoin.forward_kinematics(model, q)[..., :2, 3]
        assert (places.amin(0) - 0.1 <= middle[:2]).all()
        assert (middle[:2] <= places.amax(0) + 0.1).all()


def test_a_state_of_an_mjcf_file_begins_where_mujoco_does():
    xml = '<mujoco><worldbody><body pos="1 2 3"><freejoint/><geom size="0.1"/></body></worldbody></mujoco>'
    began = mujoco.MjData(mujoco.MjModel.from_xml_string(xml)).qpos
    sim = adjoin.Simulator(adjoin.load(xml))
    assert torch.equal(sim.state(batch=2, dtype=torch.float64).q, torch.tensor(began).expand(2, 7))
    assert torch.equal(sim.state(v=torch.ones(2, 6, dtype=torch.float64)).v, torch.ones(2, 6, dtype=torch.float64))


def test_a_state_inside_the_ground_is_warned_of():
    q = torch.tensor([0.0, 0.0, 0.3, *UPRIGHT]).repeat(3, 1)
    q[1, 2] = 0.04
    with pytest.warns(InsideGroundWarning, match=r"environment 1: 'ball' begins 0.06 m inside .*\"home\""):
        ball().state(q)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ball().state("home")
        ball().drop(batch=3)
        ball().state(q[0])


def test_a_soft_foot_may_begin_as_deep_as_it_rests():
    model = adjoin.robots.load("ball")
    feet = [replace(shape, solimp=(0.015, 1.0, 0.036, 0.5, 2.0)) for shape in model.geometries]
    soft = replace(model, geometries=tuple(feet))  # with the hard ground it is half as wide
    deep = torch.tensor([0.0, 0.0, 0.08, *UPRIGHT])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adjoin.Simulator(soft, 1e-3, adjoin.Newton()).state(deep)
    for sim in (adjoin.Simulator(soft, 1e-3, adjoin.PGS()), adjoin.Simulator(model, 1e-3, adjoin.Newton())):
        with pytest.warns(InsideGroundWarning, match=r"begins 0.02 m inside"):
            sim.state(deep)


def test_a_robot_is_set_down_until_it_touches():
    tilted = torch.tensor([0.3, -0.2, 7.0, 0.9, 0.1, 0.3, 0.2], dtype=torch.float64)
    tilted[3:] /= tilted[3:].norm()
    for name in ("box", "ball"):
        sim = adjoin.Simulator(adjoin.robots.load(name), dt=1e-3)
        state = sim.drop(tilted, torch.ones(6, dtype=torch.float64))
        distance = sim.contacts(state).distance
        assert abs(distance.min()) < 1e-12
        assert torch.equal(state.q[[0, 1, 3, 4, 5, 6]], tilted[[0, 1, 3, 4, 5, 6]])
        assert torch.equal(state.v, torch.ones(6, dtype=torch.float64))


@pytest.mark.parametrize("kind", ["sphere", "box", "cylinder", "capsule", "ellipsoid", "hull"])
def test_heights_are_the_distances_of_the_narrow_phase(kind):
    size = {"sphere": (0.1, 0, 0), "box": (0.1, 0.2, 0.3), "ellipsoid": (0.1, 0.2, 0.3), "hull": (0, 0, 0)}
    corners = ((0.1, 0.0, 0.0), (0.0, 0.2, 0.0), (0.0, 0.0, 0.3), (-0.1, -0.1, -0.1), (0.2, 0.1, -0.2))
    vertices = corners if kind == "hull" else ()
    shape = adjoin.Geometry("it", kind, 0, "it", size.get(kind, (0.1, 0.2, 0)), (0.05, 0.0, 0.02), vertices=vertices)
    body = adjoin.Body("it", -1, adjoin.Joint("free", "free"), mass=1.0, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, 1.0))
    model = adjoin.Model("it", (body,), (adjoin.Frame("it", 0, (0.1, 0.0, 0.0)),), (shape,))
    world = adjoin.World.of(model, 1e-3, contact=adjoin.Newton())
    q = model.random((20,), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    q[:, 2] = 0.1
    names, heights = clearance(world, q)
    assert names == ["it"]
    if kind == "hull":
        poses = adjoin.forward_kinematics(model, q)[:, 0, :3]
        local = torch.tensor(corners, dtype=torch.float64) + torch.tensor([-0.05, 0.0, 0.02], dtype=torch.float64)
        lowest = (local @ poses[:, 2, :3].mT).mT + poses[:, 2, 3:]
        torch.testing.assert_close(heights[:, 0], lowest.amin(-1))
        return
    spec = mujoco.MjSpec()
    moved = spec.worldbody.add_body()
    moved.add_freejoint()
    moved.add_geom(type=getattr(mujoco.mjtGeom, f"mjGEOM_{kind.upper()}"), size=shape.size, pos=shape.position)
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[1, 1, 1])
    compiled = spec.compile()
    data = mujoco.MjData(compiled)
    for row, height in zip(q, heights[:, 0], strict=True):
        data.qpos[:] = row.numpy()
        mujoco.mj_forward(compiled, data)
        distance = mujoco.mj_geomDistance(compiled, data, 0, 1, 10.0, None)
        if distance > 0.0:
            assert float(height) == pytest.approx(distance, abs=1e-6)


def test_a_reset_goes_to_where_an_environment_began():
    q = torch.tensor([[0.0, 0.0, 0.3, *UPRIGHT], [1.0, 2.0, 0.4, *UPRIGHT]])
    began = ball().state(q, torch.ones(2, 6))
    state = ball().step(ball().rollout(began, steps=5).last)
    anew = ball().reset(state, torch.tensor([False, True]))
    assert torch.equal(anew.q[1], q[1])
    assert torch.equal(anew.v[1], torch.ones(6))
    assert torch.equal(anew.q[0], state.q[0])
    other = ball().state(torch.tensor([5.0, 5.0, 5.0, *UPRIGHT]), batch=2)
    moved = ball().reset(state, torch.tensor([True, False]), to=other)
    again = ball().reset(ball().step(moved), torch.tensor([True, True]))
    assert torch.equal(again.q, torch.stack([other.q[0], q[1]]))
    alone = state.replace(start={})
    with pytest.raises(InputError, match=r"pass to=sim.state"):
        ball().reset(alone, torch.tensor([True, False]))


def test_a_start_that_is_not_finite_leaves_no_nan():
    q = torch.tensor([0.0, 0.0, 0.3, *UPRIGHT]).repeat(3, 1)
    q[1, 4] = math.nan
    q.requires_grad_()
    state = ball().state(q)
    assert state.status.tolist() == [FINE, NOT_FINITE, FINE]
    path = ball().rollout(state, steps=3, outputs=["acceleration"])
    assert path.status[-1].tolist() == [FINE, NOT_FINITE, FINE]
    total = path.q.mean() + path.v.mean() + path.outputs["acceleration"].mean()
    assert total.isfinite()
    (gradient,) = torch.autograd.grad(total, q)
    assert gradient.isfinite().all()
    assert not gradient[1].any()
    assert gradient[0].any()


def test_a_zero_quaternion_is_refused():
    q = torch.tensor([0.0, 0.0, 0.3, *UPRIGHT]).repeat(3, 1)
    q[2, 3:] = 0.0
    with pytest.raises(InputError, match=r"joint 'root_joint': state: environment 2: the quaternion is 0 0 0 0"):
        ball().state(q)


def test_controls_without_time_are_refused():
    state = arm().state(batch=6)
    with pytest.raises(InputError, match=r"have the shape of the batch, without steps.*controls\[None\]"):
        arm().rollout(state, torch.zeros(6, 2))
    assert arm().rollout(state, torch.zeros(6, 2), steps=6).q.shape == (7, 6, 2)
    assert arm().rollout(state, torch.zeros(5, 2)).q.shape == (6, 6, 2)


def test_classes_in_the_place_of_objects_are_refused():
    model = adjoin.robots.load("ball")
    with pytest.raises(InputError, match=r"integrator must be an object such as RK4\(\)"):
        adjoin.Simulator(model, integrator=adjoin.RK4)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"such as ImplicitAdjoint\(\)"):
        adjoin.Simulator(model, contact=adjoin.PGS(adjoint=adjoin.ImplicitAdjoint))  # pyright: ignore[reportArgumentType]


def test_functions_of_torch_in_a_traced_function_are_named():
    state = arm().state()
    with pytest.raises(TraceError, match=r"use adjoin.trace.tanh"):
        arm().rollout(state, steps=2, controller=lambda q: torch.tanh(q))
    with pytest.raises(TraceError, match=r"numpy arrays of traced scalars, not on tensors"):
        arm().rollout(state, steps=2, controller=lambda q: q @ torch.eye(2))


# Values


WRONG = {
    "mass": torch.tensor([0.0]),
    "inertia": torch.tensor([[1.0, 0.0, 0.0, 1.0, 0.0, 2.1]]),
    "geometry_size": torch.tensor([[-0.1, 0.0, 0.0], [0.0, 0.0, 0.0]]),
    "geometry_friction": torch.tensor([[1.0, 0.0, 0.0], [-0.5, 0.0, 0.0]]),
    "friction": torch.tensor([0.0, 0.0, 0.0, 0.0, -1.0, 0.0]),
}


@pytest.mark.parametrize("name", WRONG)
def test_values_that_nothing_physical_has_are_refused_by_a_model(name):
    with pytest.raises(ModelError, match=rf"{name} is .*it must be"):
        ball().model.with_parameters({name: WRONG[name]})


def test_values_that_nothing_physical_has_are_flagged_in_a_batch():
    q = torch.tensor([0.0, 0.0, 0.0999, *UPRIGHT]).repeat(2, 1)
    own = ball().model.parameters()
    params = {name: own[name].repeat(2, *[1] * own[name].dim()) for name in WRONG}
    params["contact_softness"] = torch.tensor([1e-4, 1e-4])
    fine = ball().step(ball().state(q), params=params)
    assert fine.status.tolist() == [FINE, FINE]
    for name, wrong in [*WRONG.items(), ("contact_softness", torch.tensor(-1e-4))]:
        leaves = {key: value.clone().requires_grad_() for key, value in params.items()}
        leaves[name] = torch.stack([params[name][0], wrong]).requires_grad_()
        after = ball().step(ball().state(q), params=leaves)
        assert after.status.tolist() == [FINE, UNPHYSICAL], name
        assert torch.equal(after.q[1], q[1])
        assert torch.equal(after.q[0], fine.q[0])
        gradients = torch.autograd.grad(after.v.sum(), list(leaves.values()))
        assert all(not gradient[1].any() for gradient in gradients)


def test_what_a_model_has_already_may_stay():
    body = adjoin.Body("light", -1, adjoin.Joint("slide", "prismatic", (0.0, 0.0, 1.0), armature=(1.0,)))
    model = adjoin.Model("light", (body,), (adjoin.Frame("light", 0),))
    assert model.with_parameters(model.parameters()).bodies[0].mass == 0.0
    sim = adjoin.Simulator(model, dt=1e-3)
    assert sim.step(sim.state(), params={"mass": torch.zeros(1)}).status == FINE


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_controls_beyond_all_limits_are_flagged_though_they_are_clamped(value):
    control = torch.zeros(3, 2)
    control[1, 0] = value
    control.requires_grad_()
    gain = arm().model.parameters()["actuator_gain"].requires_grad_()
    after = arm().step(arm().state(batch=3), control, {"actuator_gain": gain})
    assert after.status.tolist() == [FINE, NOT_FINITE, FINE]
    gradients = torch.autograd.grad(after.v.sum(), [control, gain])
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert not gradients[0][1].any()


def test_infinite_external_forces_are_flagged():
    force = torch.zeros(2, 6)
    force[1, 2] = math.inf
    state = ball().state(tensor(0.0, 0.0, 0.3, *UPRIGHT).float(), batch=2)
    assert ball().step(state, external={"ball": force}).status.tolist() == [FINE, NOT_FINITE]
