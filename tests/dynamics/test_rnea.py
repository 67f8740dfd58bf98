"""Inverse dynamics against Pinocchio; external forces; springs, damping, friction and armature; parameters."""

import numpy as np
import pinocchio
import pytest
import torch
from kernel_checks import check_kernel
from peers import close, peer, robot, states
from reference import Reference, samples, worst
from small import chain, tree

import adjoin
from adjoin.dynamics.passive import passive_forces
from adjoin.dynamics.rnea import bias_forces, gravity_forces, rnea
from adjoin.model.parts import WORLD
from adjoin.spatial.rotation import from_quaternion

REFERENCES = {
    "local": pinocchio.ReferenceFrame.LOCAL,
    "world": pinocchio.ReferenceFrame.WORLD,
    "local_world_aligned": pinocchio.ReferenceFrame.LOCAL_WORLD_ALIGNED,
}


def test_followers_move_as_pinocchios_own_do():
    model, pin = robot("panda"), peer("panda")
    q, v, a = states(model, 128, spin=10.0)
    expected = [
        pinocchio.rnea(pin.pin, pin.data, pin.q(x), y.numpy(), z.numpy()).copy()
        for x, y, z in zip(q, v, a, strict=True)
    ]
    assert worst(rnea(model, q, v, a), expected) < 1e-10


# Forces from outside


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("name", ["go2", "panda"])
def test_an_external_force_takes_away_its_work_along_the_motion(name, reference):
    model, pin = robot(name), peer(name)
    q, v, a, _ = samples(model, 8)
    generator = torch.Generator().manual_seed(3)
    chosen = [model.frames[2].name, model.frames[-1].name]
    wrenches = {frame: torch.randn(8, 6, generator=generator, dtype=torch.float64) for frame in chosen}
    forces = rnea(model, q, v, a) - rnea(model, q, v, a, external=wrenches, reference=reference)
    expected = torch.zeros(8, model.nv, dtype=torch.float64)
    for i in range(8):
        for frame, wrench in wrenches.items():
            J = pinocchio.computeFrameJacobian(pin.pin, pin.data, pin.q(q[i]), pin.frame(frame), REFERENCES[reference])
            expected[i] += torch.from_numpy(J.T @ wrench[i].numpy())
    close(forces, expected)


@pytest.mark.parametrize("reference", REFERENCES)
def test_an_external_force_does_the_work_of_the_point_forces_it_stands_for(reference):
    # A push at the frame's origin and two opposite ones beside it; their work by finite differences of the points.
    model, frame, step = tree(), "tip", 1e-6
    q, v, a, _ = (x[0] for x in samples(model, 1))
    arms = np.array([[0.0, 0.0, 0.0], [0.3, -0.2, 0.1], [-0.3, 0.2, -0.1]])
    pushes = np.array([[1.0, -2.0, 0.5], [0.4, 0.7, -0.9], [-0.4, -0.7, 0.9]])  # in world axes
    theirs = Reference(model)

    def points(q):
        placement = theirs.place(q, frame)
        return arms @ placement.rotation.T + placement.translation

    placement = theirs.place(q, frame)
    center = np.zeros(3) if reference == "world" else placement.translation
    force, moment = pushes.sum(0), np.cross(points(q) - center, pushes).sum(0)
    if reference == "local":
        force, moment = placement.rotation.T @ force, placement.rotation.T @ moment
    external = {frame: torch.from_numpy(np.concatenate([force, moment]))}
    got = rnea(model, q, v, a) - rnea(model, q, v, a, external=external, reference=reference)

    along = torch.eye(model.nv, dtype=torch.float64)
    moves = [points(model.integrate(q, e, step)) - points(model.integrate(q, e, -step)) for e in along]
    close(got, [(pushes * move).sum() / (2 * step) for move in moves], 1e-9)


def test_forces_by_frame_and_for_all_bodies_are_the_same():
    model = robot("go2")
    q, v, a, _ = samples(model, 4)
    everywhere = torch.randn(4, len(model.bodies), 6, dtype=torch.float64)
    for reference in REFERENCES:
        by_name = {}
        for body in range(len(model.bodies)):
            frame = next(f for f in model.frames if f.body == body and f.position == (0.0, 0.0, 0.0))
            by_name[frame.name] = everywhere[:, body]
        one = rnea(model, q, v, a, external=everywhere, reference=reference)
        other = rnea(model, q, v, a, external=by_name, reference=reference)
        close(one, other, 1e-13)


def test_a_force_on_the_world_does_nothing():
    model = robot("two_link")
    assert model.frames[model.frame_index("base")].body == WORLD
    q, v, a, _ = samples(model, 4)
    for reference in REFERENCES:
        pushed = rnea(model, q, v, a, external={"base": torch.ones(6, dtype=torch.float64)}, reference=reference)
        assert torch.equal(pushed, rnea(model, q, v, a))


def test_forces_on_two_frames_of_one_body_add_up():
    model = robot("two_link")
    q, v, a, _ = samples(model, 4)
    one, two = torch.randn(2, 4, 6, dtype=torch.float64)
    at_rest = rnea(model, q, v, a)
    both = rnea(model, q, v, a, external={"arm2": one, "endEffector": two})
    apart = [rnea(model, q, v, a, external={frame: wrench}) for frame, wrench in (("arm2", one), ("endEffector", two))]
    close(both - at_rest, sum(part - at_rest for part in apart), 1e-13)


# What joints do by themselves


def test_passive_forces_by_hand():
    model = chain("revolute", "prismatic").with_parameters(
        {
            "damping": torch.tensor([0.5, 2.0]),
            "friction": torch.tensor([0.1, 0.3]),
            "stiffness": torch.tensor([4.0, 0.0]),
            "spring_reference": torch.tensor([0.25, 7.0]),
        }
    )
    q = torch.tensor([[1.25, 0.1], [0.25, -0.2], [-0.75, 0.0]], dtype=torch.float64)
    v = torch.tensor([[2.0, -1.0], [0.0, 0.5], [-2.0, 0.0]], dtype=torch.float64)
    expected = [[-4.0 - 1.0 - 0.1, 2.0 + 0.3], [0.0, -1.0 - 0.3], [4.0 + 1.0 + 0.1, 0.0]]
    close(passive_forces(model, q, v), expected, 1e-7)  # the parameters were given in float32
    a = torch.randn(3, 2, dtype=torch.float64)
    for with_passive, without in (
        (rnea(model, q, v, a, passive=True), rnea(model, q, v, a)),
        (bias_forces(model, q, v, passive=True), bias_forces(model, q, v)),
    ):
        close(without - with_passive, passive_forces(model, q, v), 1e-13)


def test_the_spring_of_a_ball_joint_pulls_straight_back():
    model = chain("ball").with_parameters({"stiffness": torch.tensor([3.0, 3.0, 3.0])})
    turn = torch.tensor([[0.3, -0.5, 0.2], [0.0, 0.0, 0.0], [2.0, 1.0, -1.0]], dtype=torch.float64)
    q = model.integrate(model.neutral((3,), dtype=torch.float64), turn)
    close(passive_forces(model, q, torch.zeros_like(turn)), -3.0 * turn, 1e-13)


def test_followers_add_their_damping_and_armature_to_the_joint_they_follow():
    model = robot("panda")
    finger = model.coordinates[model.joint_index("panda_finger_joint2")]
    assert finger.leader == model.joint_index("panda_finger_joint1")
    joints = [body.joint for body in model.bodies]
    expected = sum(joints[name].damping[0] for name in (finger.leader, finger.leader + 1))
    q, v = model.neutral(dtype=torch.float64), torch.zeros(model.nv, dtype=torch.float64)
    v[finger.v] = 2.0
    friction = sum(joints[name].friction[0] for name in (finger.leader, finger.leader + 1))
    close(passive_forces(model, q, v)[finger.v], -2.0 * expected - friction, 1e-12)


def test_armature_is_felt_by_accelerations_only():
    model = robot("two_link")
    q, v, a, _ = samples(model, 4)
    armature = torch.tensor([0.3, 0.7], dtype=torch.float64)
    close(rnea(model, q, v, a, params={"armature": armature}) - rnea(model, q, v, a), armature * a, 1e-12)
    assert torch.equal(bias_forces(model, q, v, params={"armature": armature}), bias_forces(model, q, v))


# Parameters and shapes


def test_gravity_and_masses_can_differ_by_environment():
    model = robot("go2")
    q, v, a, _ = samples(model, 5)
    own = model.parameters(dtype=torch.float64)
    generator = torch.Generator().manual_seed(7)
    gravity = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    mass = own["mass"] * (0.5 + torch.rand(5, len(model.bodies), generator=generator, dtype=torch.float64))
    got = rnea(model, q, v, a, params={"gravity": gravity, "mass": mass})
    down = gravity_forces(model, q, params={"gravity": gravity, "mass": mass})
    for i in range(5):
        other = model.with_parameters({"gravity": gravity[i], "mass": mass[i]})
        expected = Reference(other).answer(q[i], v[i], a[i], a[i])
        close(got[i], expected["rnea"])
        close(down[i], expected["gravity_forces"])


@pytest.mark.parametrize("parameter", ["mass", "com", "inertia", "joint_position", "joint_rotation", "armature"])
def test_a_parameter_given_is_a_parameter_of_the_model(parameter):
    model = tree()
    q, v, a, _ = samples(model, 3)
    generator = torch.Generator().manual_seed(1)
    value = model.parameters(dtype=torch.float64)[parameter]
    noise = 0.1 * torch.rand(value.shape, generator=generator, dtype=torch.float64)
    value = value * (1.0 + noise[..., :1]) if parameter == "inertia" else value + noise  # of a solid still
    other = model.with_parameters({parameter: value})
    close(rnea(model, q, v, a, params={parameter: value}), rnea(other, q, v, a), 1e-13)


def test_quaternions_given_as_parameters_are_normalized():
    model = tree()
    q, v, a, _ = samples(model, 3)
    rotation = model.parameters(dtype=torch.float64)["joint_rotation"]
    close(rnea(model, q, v, a, params={"joint_rotation": 3.0 * rotation}), rnea(model, q, v, a), 1e-12)


@pytest.mark.parametrize("batch", [(), (1,), (0,), (2, 3), (4, 1, 2)])
def test_any_batch_shape(batch):
    model = robot("two_link")
    q, v, a = (torch.randn(*batch, 2, dtype=torch.float64) for _ in range(3))
    tau = rnea(model, q, v, a)
    assert tau.shape == (*batch, 2)
    flat = rnea(model, *(x.reshape(-1, 2) for x in (q, v, a)))
    assert torch.equal(tau.reshape(-1, 2), flat)


def test_inputs_and_parameters_broadcast():
    model = robot("two_link")
    q, v, a, _ = samples(model, 3)
    gravity = torch.randn(4, 1, 3, dtype=torch.float64)
    got = rnea(model, q, v[0], a, params={"gravity": gravity})
    assert got.shape == (4, 3, 2)
    for i in range(4):
        close(got[i], rnea(model, q, v[0].expand(3, 2), a, params={"gravity": gravity[i, 0]}), 1e-14)


def test_a_body_in_free_fall_needs_no_force_and_a_held_one_its_weight():
    model = robot("box")
    q, v, _, _ = samples(model, 16)
    turn = from_quaternion(q[:, 3:].unbind(-1))
    down = torch.stack([torch.stack(row, -1) for row in turn], -2).mT @ torch.tensor(model.gravity, dtype=torch.float64)
    still = torch.zeros_like(v)
    falling = torch.cat([down, torch.zeros_like(down)], -1)
    close(rnea(model, q, still, falling), torch.zeros(16, 6), 1e-13)
    close(gravity_forces(model, q)[:, :3], -model.mass * down, 1e-13)


# Kernels


@pytest.mark.parametrize("passive", [False, True])
def test_the_kernel_of_a_chain_of_every_joint_satisfies_what_every_kernel_must(passive):
    model = tree()

    @adjoin.function(q=model.nq, v=model.nv, a=model.nv)
    def function(q, v, a):
        return rnea(model, q, v, a, passive=passive)

    check_kernel(function.kernel, samples(model, 5, spin=1.0)[:3], second=False)


def test_the_kernel_with_forces_and_parameters_satisfies_what_every_kernel_must():
    model = robot("two_link")
    q, v, a, _ = samples(model, 5, spin=1.0)
    own = model.parameters(dtype=torch.float64)

    @adjoin.function(q=2, v=2, a=2, wrench=6, gravity=3, mass=2, com=(2, 3), inertia=(2, 6))
    def function(q, v, a, wrench, **params):
        return rnea(model, q, v, a, external={"endEffector": wrench}, params=params, reference="world")

    given = [own[name].repeat(5, *[1] * own[name].dim()) for name in ("gravity", "mass", "com", "inertia")]
    check_kernel(function.kernel, [q, v, a, torch.randn(5, 6, dtype=torch.float64), *given], second=False)
