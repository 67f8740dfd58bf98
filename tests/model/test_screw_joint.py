"""A kind of joint from outside the library: a screw, which slides by its pitch times its angle.

Kinematics, dynamics, simulation, inverse kinematics, limits, logs and files take it from one class.
"""

import math

import pytest
import torch

import adjoin
from adjoin.errors import InputError, ModelError
from adjoin.learn.data import columns
from adjoin.learn.local_coordinates import local_coordinates, motion
from adjoin.model.joint import Joint, Mimic
from adjoin.model.joint_types import JOINT_TYPES, JointType, joint_type
from adjoin.model.parts import WORLD, Body, Frame
from adjoin.spatial.rotation import from_axis_angle, from_rpy
from adjoin.spatial.vector import scale

PITCH = 0.03
AXIS = (0.48, -0.6, 0.64)


class Screw(JointType):
    name = "screw"
    constants = ("pitch",)
    urdf = "screw"
    urdf_needs_limit = True

    def transform(self, joint, q):
        return from_axis_angle(joint.axis, q[0]), scale(joint.constants[0] * q[0], joint.axis)

    def directions(self, joint):
        return ((joint.axis, scale(joint.constants[0], joint.axis)),)


@pytest.fixture(autouse=True)
def _registered():
    joint_type(Screw)
    yield
    del JOINT_TYPES["screw"]


def chain(*joints):
    """Bodies one after the other, placed at odd angles, with a frame on each."""
    inertia = (0.06, 0.004, -0.003, 0.05, 0.002, 0.04)
    turn = from_rpy(0.4, -0.9, 1.3)
    bodies = [
        Body(f"b{k}", k - 1 if k else WORLD, joint, (0.2, -0.1, 0.3), turn, 1.3, (0.05, 0.1, -0.2), inertia)
        for k, joint in enumerate(joints)
    ]
    return adjoin.Model("screws", tuple(bodies), tuple(Frame(body.name, k) for k, body in enumerate(bodies)))


def screws():
    """Three of them, between a free base and a follower; the second has limits and a spring."""
    spring = {"stiffness": (2.0,), "spring_reference": (0.3,), "damping": (0.1,), "armature": (0.05,)}
    return chain(
        Joint("base", "free"),
        Joint("first", "screw", AXIS, constants=(PITCH,)),
        Joint("second", "screw", lower=-0.5, upper=1.5, velocity_limit=2.0, constants=(-0.1,), **spring),
        Joint("third", "screw", (0.0, 1.0, 0.0), constants=(0.2,), mimic=Mimic("first", -2.0, 0.1)),
    )


def states(model, count=5):
    generator = torch.Generator().manual_seed(3)
    q = model.random((count,), generator=generator, dtype=torch.float64)
    v, a = torch.randn(2, count, model.nv, generator=generator, dtype=torch.float64)
    return q, v, a


def test_it_slides_by_its_pitch_times_its_angle():
    model = chain(Joint("j", "screw", AXIS, constants=(PITCH,)))
    start, turned = torch.tensor([[0.0], [math.pi]], dtype=torch.float64)
    poses = adjoin.forward_kinematics(model, torch.stack([start, turned]), "b0", output="quaternion")
    assert (poses[1, :3] - poses[0, :3]).norm() == pytest.approx(math.pi * PITCH)
    matrices = adjoin.forward_kinematics(model, torch.stack([start, turned]), "b0")
    assert torch.allclose(matrices[:, :3, 3], poses[:, :3], atol=1e-15)


def test_dynamics_are_inverse_to_one_another_and_derivatives_are_slopes():
    model = screws()
    q, v, a = states(model)
    tau = adjoin.rnea(model, q, v, a)
    assert torch.allclose(adjoin.aba(model, q, v, tau), a, atol=1e-10)
    mass = adjoin.crba(model, q)
    bias = adjoin.bias_forces(model, q, v)
    assert torch.allclose((mass @ a[..., None])[..., 0] + bias, tau, atol=1e-10)
    energy = 0.5 * (v * (mass @ v[..., None])[..., 0]).sum(-1)
    assert torch.allclose(adjoin.kinetic_energy(model, q, v), energy, atol=1e-10)
    slopes = adjoin.rnea_derivatives(model, q, v, a, passive=True)
    step = 1e-6
    for k in range(model.nv):
        way = torch.zeros(model.nv, dtype=torch.float64)
        way[k] = step
        ahead, back = (adjoin.rnea(model, model.integrate(q, s * way), v, a, passive=True) for s in (1.0, -1.0))
        assert torch.allclose((ahead - back) / (2.0 * step), slopes.dtau_dq[..., k], atol=1e-7)


def test_jacobians_are_slopes_of_poses():
    model = screws()
    q, v, _ = states(model)
    step = 1e-6
    ahead, back = (adjoin.forward_kinematics(model, model.integrate(q, v, s * step), "b3") for s in (1.0, -1.0))
    speed = (adjoin.jacobian(model, q, "b3", "local_world_aligned") @ v[..., None])[..., 0]
    assert torch.allclose((ahead - back)[..., :3, 3] / (2.0 * step), speed[..., :3], atol=1e-8)


def test_configurations_are_sampled_inside_limits_and_differ_by_what_leads_between_them():
    model = screws()
    q, _, _ = states(model, 200)
    lower, upper = model.limits()
    assert (lower[8], upper[8]) == (-0.5, 1.5)
    assert bool((q[:, 8] >= -0.5).all() and (q[:, 8] <= 1.5).all() and (q[:, 7].abs() > 1.0).any())
    other = q.flip(0)
    assert torch.allclose(model.integrate(q, model.difference(q, other))[:, 7:], other[:, 7:], atol=1e-12)
    value = 0.1 * torch.ones(200, model.nv, dtype=torch.float64)
    moved, v, a = motion(model, q, value, value, value)
    assert torch.allclose(local_coordinates(model, q, moved), value, atol=1e-12)
    assert torch.equal(v[:, 6:], value[:, 6:])
    assert torch.equal(a[:, 6:], value[:, 6:])


def test_simulation_keeps_energy_and_joint_limits():
    free = chain(Joint("a", "screw", AXIS, constants=(PITCH,)), Joint("b", "screw", constants=(0.2,)))
    sim = adjoin.Simulator(free, dt=1e-3, integrator=adjoin.RK4())
    path = sim.rollout(
        sim.state(torch.tensor([0.3, -0.2], dtype=torch.float64)), torch.zeros(500, 0, dtype=torch.float64)
    )
    energy = adjoin.mechanical_energy(free, path.q, path.v)
    assert float((energy - energy[0]).abs().max()) < 1e-8
    assert float((path.q - path.q[0]).abs().max()) > 0.3
    bounded = chain(Joint("a", "screw", AXIS, lower=-0.1, upper=0.1, constants=(PITCH,)))
    sim = adjoin.Simulator(bounded, dt=1e-3)
    path = sim.rollout(sim.state(torch.zeros(1, dtype=torch.float64)), torch.zeros(2000, 0, dtype=torch.float64))
    assert 0.09 < float(path.q.abs().max()) < 0.11


def test_inverse_kinematics_finds_it_and_stays_inside_limits():
    model = screws()
    q, _, _ = states(model)
    target = adjoin.forward_kinematics(model, q, "b3")
    found = adjoin.inverse_kinematics(model, {"b3": target}, q0=model.neutral((5,), dtype=torch.float64))
    assert bool(found.success.all())
    assert bool((found.q[:, 8] >= -0.5).all() and (found.q[:, 8] <= 1.5).all())


def test_files_logs_and_tables_name_it(tmp_path):
    model = screws()
    assert columns(model, "q")[-2:] == ["q:first", "q:second"]
    assert "screw" in str(model)
    adjoin.save(model, tmp_path / "model.safetensors")
    assert adjoin.load(tmp_path / "model.safetensors") == model
    again = adjoin.load(adjoin.to_urdf(model))
    assert [joint.constants for joint in again.joints] == [joint.constants for joint in model.joints]
    assert again.limits() == model.limits()
    q, v, a = states(model)
    assert torch.allclose(adjoin.rnea(again, q, v, a), adjoin.rnea(model, q, v, a), atol=1e-12)


def test_it_needs_its_constants():
    with pytest.raises(ModelError, match=r"joint 'j': constants \(pitch\) has 0 numbers; it needs 1"):
        chain(Joint("j", "screw"))


def test_a_name_is_registered_once():
    with pytest.raises(InputError, match="there is a joint type 'screw' already"):
        joint_type(Screw)
