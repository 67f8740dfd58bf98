"""Forward dynamics and the inverse of the inertia matrix against Pinocchio."""

from dataclasses import replace

import pytest
import torch
from kernel_checks import check_kernel
from peers import close, robot
from reference import Reference, samples, worst
from small import chain, tree

import adjoin
from adjoin.dynamics.aba import aba, minverse
from adjoin.dynamics.call import compute
from adjoin.dynamics.crba import crba
from adjoin.dynamics.passive import passive_forces
from adjoin.dynamics.rnea import rnea
from adjoin.errors import InputError
from adjoin.model.manifold import normalize


@pytest.mark.parametrize("reference", ["local", "world", "local_world_aligned"])
@pytest.mark.parametrize("model", [tree(), chain("free", "revolute", "ball")], ids=lambda model: model.name)
def test_forces_from_outside_are_those_of_inverse_dynamics(model, reference):
    q, v, a, _ = samples(model, 8)
    wrench = {"tip": torch.randn(8, 6, dtype=torch.float64)}
    tau = rnea(model, q, v, a, external=wrench, reference=reference)
    close(aba(model, q, v, tau, external=wrench, reference=reference), a)


@pytest.mark.parametrize("model", [tree(), chain("revolute", "prismatic", "ball")], ids=lambda model: model.name)
def test_passive_forces_act_beside_the_torques(model):
    q, v, _, tau = samples(model, 8)
    params = {name: 0.1 + torch.rand(model.nv, dtype=torch.float64) for name in ("damping", "friction", "stiffness")}
    passive = passive_forces(model, q, v, params=params)
    assert passive.abs().min() > 0.0
    close(aba(model, q, v, tau, params=params, passive=True), aba(model, q, v, tau + passive), 1e-12)


def test_parameters_can_differ_by_environment():
    model = tree()
    q, v, a, tau = samples(model, 4)
    own = model.parameters(dtype=torch.float64)
    generator = torch.Generator().manual_seed(7)
    params = {}
    for name in ("mass", "com", "inertia", "joint_position", "joint_rotation", "armature", "gravity"):
        noise = torch.rand(4, *own[name].shape, generator=generator, dtype=torch.float64)
        noise = noise[..., :1] if name == "inertia" else noise  # of a solid still
        params[name] = own[name] * (0.8 + 0.4 * noise)
    got, inverse = aba(model, q, v, tau, params=params), minverse(model, q, params=params)
    for i in range(4):
        other = model.with_parameters({name: value[i] for name, value in params.items()})
        expected = Reference(other).answer(q[i], v[i], a[i], tau[i])
        close(got[i], expected["aba"])
        close(inverse[i], expected["minverse"])


def test_armature_given_as_a_parameter_is_armature_of_the_model():
    # On a joint along a coordinate axis the algorithm keeps zeros that armature fills.
    model = chain("free", "revolute", "revolute", "prismatic")
    q, v, _, tau = samples(model, 4)
    armature = torch.rand(model.nv, dtype=torch.float64)
    other = model.with_parameters({"armature": armature})
    close(aba(model, q, v, tau, params={"armature": armature}), aba(other, q, v, tau), 1e-12)
    close(minverse(other, q), torch.linalg.inv(crba(other, q)))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("axis", [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.6, 0.0, -0.8)])
@pytest.mark.parametrize("kind", ["revolute", "prismatic"])
def test_every_axis_and_its_opposite(kind, axis, sign):
    axis = tuple(sign * x for x in axis)
    model = chain("free", kind, "revolute", axis=axis)
    model = model.with_parameters({"armature": torch.linspace(0.1, 0.8, 8, dtype=torch.float64)})
    q, v, a, tau = samples(model, 3)
    got = compute(model, q, v, tau=tau, quantities=["aba", "minverse"])
    expected = Reference(model).answers(q, v, a, tau)
    assert worst(got["aba"], expected["aba"]) < 1e-10
    assert worst(got["minverse"], expected["minverse"]) < 1e-10


def massless(armature=()):
    model = chain("revolute", "revolute", "prismatic")
    *others, last = model.bodies
    joint = replace(last.joint, armature=armature)
    return replace(model, bodies=(*others, replace(last, joint=joint, mass=0.0, inertia=(0.0,) * 6)))


def test_a_joint_that_moves_nothing_is_named():
    model = massless()
    q, v, a, tau = samples(model, 2)
    for call in (lambda: aba(model, q, v, tau), lambda: minverse(model, q)):
        with pytest.raises(InputError) as error:
            call()
        assert str(error.value) == (
            "forward dynamics of 'revolute_revolute_prismatic': joint 'j2' moves no mass and has no armature, so its "
            "acceleration is not determined; give it armature or lock it"
        )
    assert rnea(model, q, v, a)[:, 2].tolist() == [0.0, 0.0]
    assert not crba(model, q)[:, 2].any()


def test_armature_alone_is_enough():
    model = massless(armature=(0.5,))
    q, v, _, tau = samples(model, 2)
    close(aba(model, q, v, tau)[:, 2], tau[:, 2] / 0.5)


@pytest.mark.parametrize("model", [tree(), chain("free", "revolute")], ids=lambda model: model.name)
def test_the_kernel_satisfies_what_every_kernel_must(model):
    # Derivatives are those of the equation of motion, which hold for unit quaternions only.
    @adjoin.function(q=model.nq, v=model.nv, tau=model.nv)
    def function(q, v, tau):
        return aba(model, normalize(model, q), v, tau)

    q, v, _, tau = samples(model, 5, spin=1.0)
    check_kernel(function.kernel, [q, v, tau], second=False)


def test_the_kernel_of_the_inverse_satisfies_what_every_kernel_must():
    model = chain("ball", "revolute", "prismatic")

    @adjoin.function(q=model.nq, mass=3)
    def function(q, mass):
        return minverse(model, q, params={"mass": mass})

    mass = model.parameters(dtype=torch.float64)["mass"]
    check_kernel(function.kernel, [samples(model, 5)[0], mass.repeat(5, 1)], second=False)


def test_the_kernel_with_forces_and_parameters_satisfies_what_every_kernel_must():
    model = robot("two_link")
    q, v, _, tau = samples(model, 5, spin=1.0)
    own = model.parameters(dtype=torch.float64)

    @adjoin.function(q=2, v=2, tau=2, wrench=6, gravity=3, mass=2, com=(2, 3), inertia=(2, 6), armature=2)
    def function(q, v, tau, wrench, **params):
        return aba(model, q, v, tau, external={"endEffector": wrench}, params=params, reference="world")

    given = [own[n].repeat(5, *[1] * own[n].dim()) for n in ("gravity", "mass", "com", "inertia", "armature")]
    check_kernel(function.kernel, [q, v, tau, torch.randn(5, 6, dtype=torch.float64), *given])
