"""Full derivatives against Pinocchio's analytical ones and finite differences on the tangent space."""

from dataclasses import replace

import numpy as np
import pinocchio
import pytest
import torch
from answers import answers
from kernel_checks import check_kernel
from kinds import every_kind
from peers import ROBOTS, close, robot
from reference import Reference, samples, worst
from small import chain, tree

import adjoin
from adjoin.dynamics.call import compute
from adjoin.dynamics.derivatives import aba_derivatives, rnea_derivatives
from adjoin.errors import InputError
from adjoin.model.joint_types import JOINT_TYPES

REFERENCES = ("local", "world", "local_world_aligned")
BOTH = ["rnea_derivatives", "aba_derivatives"]
SMALL = [tree(), chain("free", "planar", "ball", "prismatic"), every_kind()]


def theirs(model, q, v, a, tau):
    """Pinocchio's derivatives of inverse and of forward dynamics; joints that follow others by the chain rule."""
    other = Reference(model)
    pin, data, G = other.peer.pin, other.peer.data, other.ratios
    x, v, a, tau = other.q(q), v.numpy(), a.numpy(), tau.numpy()

    def inverse(a):
        return [G.T @ part @ G for part in pinocchio.computeRNEADerivatives(pin, data, x, G @ v, G @ a)]

    M = inverse(a)[2]
    if not other.follows:
        return inverse(a), [part.copy() for part in pinocchio.computeABADerivatives(pin, data, x, v, tau)]
    dq, dv, _ = inverse(np.linalg.solve(M, tau - G.T @ pinocchio.rnea(pin, data, x, G @ v, 0 * (G @ a))))
    return inverse(a), [-np.linalg.solve(M, dq), -np.linalg.solve(M, dv), np.linalg.inv(M)]


@pytest.mark.parametrize("model", [*[robot(name) for name in ROBOTS], *SMALL], ids=lambda model: model.name)
def test_derivatives_are_pinocchios(model):
    inputs = samples(model, 20)
    ours = answers(model, BOTH, *inputs)
    expected = [theirs(model, *state) for state in zip(*inputs, strict=True)]
    for name, parts in zip(ours, zip(*expected, strict=True), strict=True):
        for got, wanted in zip(ours[name], zip(*parts, strict=True), strict=True):
            assert worst(got, np.stack(wanted)) < 1e-10, name


def differences(function, h=1e-3):
    """The derivative of a function of a batch of numbers x at 0, by central differences of eighth order."""
    weights = {1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280}
    return sum(w * (function(k * h) - function(-k * h)) for k, w in weights.items()) / h


def by_differences(model, force, q, v, third):
    """The derivatives of force(q, v, third) to all three, a column for each direction of the tangent space."""
    unit = torch.eye(model.nv, dtype=torch.float64)
    batch = [x[:, None].expand(-1, model.nv, -1) for x in (q, v, third)]

    def moved(h):
        turned = model.integrate(batch[0], h * unit)
        return [
            force(turned, batch[1], batch[2]),
            force(batch[0], batch[1] + h * unit, batch[2]),
            force(batch[0], batch[1], batch[2] + h * unit),
        ]

    return differences(lambda h: torch.stack(moved(h))).mT


def sprung(model):
    """The model with every passive force on every joint, and armature, those of free roots included."""
    generator = torch.Generator().manual_seed(6)
    names = ("damping", "friction", "stiffness", "armature")
    params = {name: torch.rand(model.nv, generator=generator, dtype=torch.float64) for name in names}
    rest = model.random((), generator=generator, dtype=torch.float64)
    return model.with_parameters({**params, "spring_reference": rest})


def wrenches(model):
    """Forces on frames, one of them in the world, or on all bodies."""
    generator = torch.Generator().manual_seed(2)
    if model.name == "fork":
        return {
            name: 5.0 * torch.randn(6, generator=generator, dtype=torch.float64) for name in ("tip", "rim", "floor")
        }
    return 5.0 * torch.randn(len(model.bodies), 6, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("model", [tree(), chain("free", "revolute", "ball")], ids=lambda model: model.name)
def test_forces_from_outside_and_passive_forces_by_finite_differences(model, reference):
    model = sprung(model)
    q, v, a, tau = samples(model, 6, spin=2.0)
    given = {"external": wrenches(model), "reference": reference}
    passive = {name: (name, {"passive": True}) for name in ("rnea", "aba", *BOTH)}
    ours = compute(model, q, v, a, tau, quantities={name: passive[name] for name in BOTH}, **given)

    def forces(q, v, third):
        both = {name: passive[name] for name in ("rnea", "aba")}
        return torch.stack(list(compute(model, q, v, third, third, quantities=both, **given).values()))

    for number, (name, third) in enumerate(zip(BOTH, (a, tau), strict=True)):
        expected = by_differences(model, lambda *state, number=number: forces(*state)[number], q, v, third)
        for got, wanted in zip(ours[name], expected, strict=True):
            assert worst(got, wanted) < 1e-8


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
    ours = compute(model, q, v, a, tau, quantities=BOTH, params=params)
    for i in range(4):
        other = model.with_parameters({name: value[i] for name, value in params.items()})
        for parts, wanted in zip(ours.values(), theirs(other, q[i], v[i], a[i], tau[i]), strict=True):
            for got, expected in zip(parts, wanted, strict=True):
                close(got[i], expected)


def test_passive_parameters_can_be_given():
    model = chain("free", "revolute", "ball")
    other = sprung(model)
    params = {
        name: other.parameters(dtype=torch.float64)[name]
        for name in ("damping", "friction", "stiffness", "armature", "spring_reference")
    }
    q, v, _, tau = samples(model, 4)
    ours = aba_derivatives(model, q, v, tau, params=params, passive=True)
    for got, expected in zip(ours, aba_derivatives(other, q, v, tau, passive=True), strict=True):
        close(got, expected)


@pytest.mark.parametrize("name", ["two_link", "panda", "racecar", "spined_quadruped"])
def test_float32_is_close_to_float64(name):
    model = robot(name)
    inputs = [x.float() for x in samples(model, 256)]
    single = compute(model, *inputs, quantities=BOTH)
    double = compute(model, *[x.double() for x in inputs], quantities=BOTH)
    for got, expected in zip(single["rnea_derivatives"], double["rnea_derivatives"], strict=True):
        assert worst(got, expected) < 2e-5
    # Those of accelerations to q are differences of terms of the size of velocities squared.
    squares = (inputs[1] ** 2).amax(-1)[:, None, None].numpy()
    assert worst(single["aba_derivatives"].da_dq, double["aba_derivatives"].da_dq, beside=squares) < 2e-5
    assert worst(single["aba_derivatives"].da_dv, double["aba_derivatives"].da_dv) < 2e-5
    assert worst(single["aba_derivatives"].da_dtau, double["aba_derivatives"].da_dtau) < 2e-5


def test_where_a_free_robot_is_and_how_it_drifts_does_not_matter():
    model = robot("go2")
    q, v, a, tau = samples(model, 3)
    da_dq, da_dv, _ = compute(model, q, v, a, tau, quantities=BOTH)["aba_derivatives"]
    assert not da_dq[..., :3].any()
    assert not da_dq[:, 3:, 3:6].any()
    assert not da_dv[:, 3:, :3].any()
    linear = torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    close((da_dv[:, :3, :3] @ linear[..., None]).squeeze(-1), torch.linalg.cross(linear, v[:, 3:6]))


def test_zeros_of_the_tree_are_exact():
    model = robot("go2")
    legs = [slice(6 + 3 * leg, 9 + 3 * leg) for leg in range(4)]
    for part in compute(model, *samples(model, 3), quantities=BOTH)["rnea_derivatives"]:
        for one, leg in enumerate(legs):
            assert not any(part[:, leg, other].any() for two, other in enumerate(legs) if one != two)
            assert part[:, leg, leg].any()


@pytest.mark.parametrize("stretched", [True, False])
@pytest.mark.parametrize("kind", ["revolute", "continuous", "ball", "planar", "free"])
def test_slopes_of_the_difference_by_finite_differences(kind, stretched):
    model, of_kind = chain(kind), JOINT_TYPES[kind]
    q0, q1 = model.random((2,), generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    if not stretched:
        q1 = model.integrate(q0, torch.full((model.nv,), 1e-7, dtype=torch.float64))
    q0, q1 = q0.tolist(), q1.tolist()

    def stretch(h):
        steps = [[h if i == k else 0.0 for i in range(model.nv)] for k in range(model.nv)]
        return np.array([of_kind.difference(q0, of_kind.integrate(q1, step)) for step in steps])

    close(of_kind.difference_slopes(q0, q1), differences(stretch).T, 1e-10)


def test_a_joint_that_moves_nothing_is_named():
    model = chain("revolute", "prismatic")
    first, second = model.bodies
    model = replace(model, bodies=(first, replace(second, mass=0.0, inertia=(0.0,) * 6)))
    with pytest.raises(InputError, match="joint 'j1' moves no mass and has no armature"):
        aba_derivatives(model, *[torch.zeros(2)] * 3)


@pytest.mark.parametrize(
    ("derivatives", "model"),
    [(rnea_derivatives, chain("free", "prismatic")), (aba_derivatives, chain("revolute", "ball"))],
    ids=lambda value: getattr(value, "__name__", None) or value.name,
)
def test_the_kernels_satisfy_what_every_kernel_must(derivatives, model):
    @adjoin.function(q=model.nq, v=model.nv, third=model.nv)
    def function(q, v, third):
        return derivatives(model, q, v, third)

    check_kernel(function.kernel, samples(model, 5, spin=1.0)[:3], second=False)


def test_the_kernels_with_forces_have_second_derivatives():
    model = sprung(robot("two_link"))

    @adjoin.function(q=2, v=2, tau=2, wrench=6, mass=2)
    def function(q, v, tau, wrench, mass):
        given = {"external": {"endEffector": wrench}, "params": {"mass": mass}, "reference": "local_world_aligned"}
        return aba_derivatives(model, q, v, tau, **given, passive=True)

    q, v, _, tau = samples(model, 5, spin=1.0)
    mass = model.parameters(dtype=torch.float64)["mass"].repeat(5, 1)
    check_kernel(function.kernel, [q, v, tau, torch.randn(5, 6, dtype=torch.float64), mass])
