"""The inertia matrix against Pinocchio: symmetric, positive, sparse where branches part."""

import pinocchio
import pytest
import torch
from kernel_checks import check_kernel
from peers import close, peer, robot
from reference import Reference, full, samples, worst
from small import chain, tree

import adjoin
from adjoin.dynamics.crba import crba


def test_followers_count_as_pinocchios_own_do():
    model, pin = robot("panda"), peer("panda")
    q = samples(model, 128)[0]
    expected = [full(pinocchio.crba(pin.pin, pin.data, pin.q(row)).copy()) for row in q]
    assert worst(crba(model, q), expected) < 1e-10


def test_a_free_body_has_its_mass_and_its_inertia():
    model = robot("box")
    M = crba(model, samples(model, 3)[0])
    assert torch.equal(M[0], M[2])
    close(M[0, :3, :3], model.mass * torch.eye(3), 1e-15)
    assert torch.linalg.eigvalsh(M[0, 3:, 3:]).tolist() == pytest.approx(
        sorted(model.bodies[0].inertia[k] for k in (0, 3, 5)), rel=1e-12
    )


def test_armature_is_on_the_diagonal():
    model = robot("go2")
    q = samples(model, 3)[0]
    armature = torch.rand(3, model.nv, dtype=torch.float64)
    without = crba(model, q, params={"armature": torch.zeros(model.nv, dtype=torch.float64)})
    close(crba(model, q, params={"armature": armature}) - without, torch.diag_embed(armature), 1e-13)


def test_masses_and_placements_can_differ_by_environment():
    model = tree()
    q = samples(model, 4)[0]
    own = model.parameters(dtype=torch.float64)
    generator = torch.Generator().manual_seed(7)
    params = {}
    for name in ("mass", "com", "inertia", "joint_position", "joint_rotation", "armature"):
        noise = torch.rand(4, *own[name].shape, generator=generator, dtype=torch.float64)
        noise = noise[..., :1] if name == "inertia" else noise  # of a solid still
        params[name] = own[name] * (0.8 + 0.4 * noise)
    got = crba(model, q, params=params)
    zero = torch.zeros(model.nv, dtype=torch.float64)
    for i in range(4):
        other = model.with_parameters({name: value[i] for name, value in params.items()})
        close(got[i], Reference(other).answer(q[i], zero, zero, zero)["crba"])


def test_the_kernel_satisfies_what_every_kernel_must():
    model = chain("free", "revolute", "prismatic")

    @adjoin.function(q=model.nq, mass=3, com=(3, 3))
    def function(q, mass, com):
        return crba(model, q, params={"mass": mass, "com": com})

    own = model.parameters(dtype=torch.float64)
    check_kernel(
        function.kernel, [samples(model, 5)[0], own["mass"].repeat(5, 1), own["com"].repeat(5, 1, 1)], second=False
    )


def test_the_kernel_of_every_joint_satisfies_what_every_kernel_must():
    model = tree()

    @adjoin.function(q=model.nq)
    def function(q):
        return crba(model, q)

    check_kernel(function.kernel, [samples(model, 5)[0]])
