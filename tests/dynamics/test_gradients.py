"""Gradients of the core: against finite differences, Pinocchio's derivatives, and over what training does with them."""

import pinocchio
import pytest
import torch
from peers import close, peer, robot
from reference import full, samples, worst
from small import chain, tree
from torch.autograd import gradcheck, gradgradcheck

from adjoin.dynamics.aba import aba, minverse
from adjoin.dynamics.call import compute
from adjoin.dynamics.crba import crba
from adjoin.dynamics.passive import passive_forces
from adjoin.dynamics.rnea import bias_forces, gravity_forces, rnea
from adjoin.model import manifold

INERTIAL = ("mass", "com", "inertia", "joint_position", "joint_rotation", "armature")


def leaves(*tensors):
    return [x.detach().clone().requires_grad_() for x in tensors]


def parameters(model, *names):
    own = model.parameters(dtype=torch.float64)
    return {name: own[name] for name in names}


# Against finite differences, on a tree of every kind of joint and one that follows


@pytest.mark.parametrize("function", ["rnea", "aba"])
def test_gradients_reach_every_input_and_every_parameter(function):
    model = tree()
    q, v, a, tau = samples(model, 2, spin=1.0)
    passive = ("damping", "friction", "stiffness", "spring_reference")
    params = parameters(model, *INERTIAL, *passive, "gravity", "frame_position", "frame_rotation")
    params["stiffness"] = params["stiffness"] + 0.5
    wrench = torch.randn(2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def call(q, v, last, wrench, *values):
        given = dict(zip(params, values, strict=True))
        # Derivatives of forward dynamics are those of the equation of motion, which hold for unit quaternions only.
        given["spring_reference"] = model.normalize(given["spring_reference"])
        chosen = {"rnea": rnea, "aba": aba}[function]
        return chosen(model, model.normalize(q), v, last, {"tip": wrench}, given, passive=True)

    inputs = leaves(q, v, a if function == "rnea" else tau, wrench, *params.values())
    assert gradcheck(call, inputs, atol=1e-6)
    found = torch.autograd.grad((call(*inputs) ** 2).sum(), inputs)
    for name, gradient in zip(("q", "v", "last", "wrench", *params), found, strict=True):
        assert gradient.any(), name


@pytest.mark.parametrize("reference", ["local", "local_world_aligned"])
def test_gradients_to_where_a_force_acts(reference):
    model = chain("free", "revolute")
    q, v, a, _ = samples(model, 2, spin=1.0)
    params = parameters(model, "frame_position", "frame_rotation")
    wrench = torch.randn(2, 6, dtype=torch.float64)

    def call(q, wrench, *values):
        return rnea(model, q, v, a, {"tip": wrench}, dict(zip(params, values, strict=True)), reference=reference)

    assert gradcheck(call, leaves(q, wrench, *params.values()))


@pytest.mark.parametrize("function", [crba, minverse, gravity_forces])
def test_gradients_of_what_depends_on_the_configuration(function):
    model = tree()
    q = samples(model, 2)[0]
    params = parameters(model, *INERTIAL)

    def call(q, *values):
        return function(model, model.normalize(q), dict(zip(params, values, strict=True)))

    assert gradcheck(call, leaves(q, *params.values()))


@pytest.mark.parametrize("function", [bias_forces, passive_forces])
def test_gradients_of_what_depends_on_the_velocity(function):
    model = tree()
    q, v, _, _ = samples(model, 2, spin=1.0)
    stiffness = parameters(model, "stiffness")["stiffness"] + 0.5

    def call(q, v, stiffness):
        return function(model, model.normalize(q), v, params={"stiffness": stiffness})

    assert gradcheck(call, leaves(q, v, stiffness))


def test_second_order():
    model = chain("ball", "revolute")
    q, v, a, tau = samples(model, 1, spin=1.0)
    mass = parameters(model, "mass")["mass"]

    def inverse(q, v, a, mass):
        return rnea(model, q, v, a, params={"mass": mass})

    def forward(q, v, tau, mass):
        return aba(model, model.normalize(q), v, tau, params={"mass": mass})

    assert gradgradcheck(inverse, leaves(q, v, a, mass))
    assert gradgradcheck(forward, leaves(q, v, tau, mass))
    assert gradgradcheck(lambda q, mass: crba(model, q, {"mass": mass}), leaves(q, mass))
    assert gradgradcheck(lambda q: minverse(model, model.normalize(q)), leaves(q))


# Against Pinocchio's derivatives


def on_tangent(model, q, gradient):
    """A gradient to q as one to the velocity that moves q."""
    units = torch.eye(model.nv, dtype=torch.float64)
    moves = [torch.stack(manifold.rate(model, q.unbind(-1), unit.expand(len(q), -1).unbind(-1)), -1) for unit in units]
    return torch.stack([(gradient * move).sum(-1) for move in moves], -1)


@pytest.mark.parametrize("name", ["go2", "xarm7", "racecar"])
def test_gradients_are_pinocchios_derivatives(name):
    model, pin = robot(name), peer(name)
    q, v, a, tau = samples(model, 16)
    weights = torch.randn(16, model.nv, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def gradients(function, *inputs):
        inputs = leaves(*inputs)
        found = torch.autograd.grad((weights * function(model, *inputs)).sum(), inputs)
        return [on_tangent(model, q, found[0]), *found[1:]]

    ours = {"rnea": gradients(rnea, q, v, a), "aba": gradients(aba, q, v, tau)}
    theirs = {"rnea": [], "aba": []}
    for q_, v_, a_, tau_, w in zip(q, *(x.numpy() for x in (v, a, tau, weights)), strict=True):
        pinocchio.computeRNEADerivatives(pin.pin, pin.data, pin.q(q_), v_, a_)
        theirs["rnea"].append([w @ pin.data.dtau_dq, w @ pin.data.dtau_dv, w @ full(pin.data.M)])
        pinocchio.computeABADerivatives(pin.pin, pin.data, pin.q(q_), v_, tau_)
        theirs["aba"].append([w @ pin.data.ddq_dq, w @ pin.data.ddq_dv, w @ full(pin.data.Minv)])
    for function, found in ours.items():
        for k, gradient in enumerate(found):
            assert worst(gradient, [row[k] for row in theirs[function]]) < 1e-10, (function, k)


@pytest.mark.parametrize("function", ["rnea", "aba"])
def test_gradients_to_the_parameters_of_a_whole_robot(function):
    model = robot("go2")
    q, v, _, last = samples(model, 4, spin=1.0)
    generator = torch.Generator().manual_seed(0)
    names = ("mass", "com", "inertia", "joint_position", "gravity")
    own = parameters(model, *names)
    weights = torch.randn(4, model.nv, generator=generator, dtype=torch.float64)
    chosen = {"rnea": rnea, "aba": aba}[function]

    def loss(params):
        return (weights * chosen(model, q, v, last, params=params)).sum()

    given = dict(zip(names, leaves(*own.values()), strict=True))
    found = torch.autograd.grad(loss(given), list(given.values()))
    for name, gradient in zip(names, found, strict=True):
        direction = torch.randn(own[name].shape, generator=generator, dtype=torch.float64) * own[name].abs()
        step = 1e-5
        ahead, behind = (loss(own | {name: own[name] + s * step * direction}) for s in (1.0, -1.0))
        expected = (ahead - behind) / (2 * step)
        assert (gradient * direction).sum().item() == pytest.approx(expected.item(), rel=1e-6), name


def test_float32_gradients_are_close_to_float64():
    model = robot("go2")
    inputs = [x.float() for x in samples(model, 256, spin=1.0)]
    found = []
    for dtype in (torch.float32, torch.float64):
        q, v, a, tau = leaves(*(x.to(dtype) for x in inputs))
        loss = rnea(model, q, v, a).square().sum() + 1e-4 * aba(model, q, v, tau).square().sum()
        found.append(torch.autograd.grad(loss, (q, v, a, tau)))
    for single, double in zip(*found, strict=True):
        assert worst(single, double) < 2e-5


# What goes wrong elsewhere


@pytest.mark.parametrize("function", [rnea, aba])
def test_a_second_call_and_a_second_backward(function):
    model = robot("two_link")
    q, v, a, _ = leaves(*samples(model, 3))
    first = function(model, q, v, a)
    function(model, q + 1.0, v, a).sum().backward()
    once = q.grad.clone()
    first.sum().backward(retain_graph=True)
    q.grad = None
    first.sum().backward()
    expected = torch.autograd.grad(function(model, q, v, a).sum(), q)[0]
    assert torch.equal(q.grad, expected)
    assert not torch.equal(once, expected)


def test_results_that_are_changed_in_place_do_not_spoil_gradients():
    model = robot("two_link")
    q, v, a, tau = leaves(*samples(model, 3))
    found = compute(model, q, v, a, tau, quantities=["rnea", "crba", "aba"])
    loss = found["aba"].square().sum()
    expected = torch.autograd.grad(loss, q, retain_graph=True)[0]
    with torch.no_grad():
        found["rnea"].zero_()
        found["crba"].zero_()
    assert torch.equal(torch.autograd.grad(loss, q)[0], expected)


@pytest.mark.parametrize("function", [rnea, aba])
def test_inertias_are_found_from_data_over_many_iterations(function):
    model = robot("two_link")
    q, v, a, _ = samples(model, 64, spin=2.0)
    own = parameters(model, "mass", "com", "inertia")
    truth = {name: value * 1.3 + 0.01 for name, value in own.items()}
    data = function(model, q, v, a, params=truth)
    guess = dict(zip(own, leaves(*own.values()), strict=True))
    optimizer = torch.optim.Adam(guess.values(), lr=0.02)
    losses = []
    for _ in range(300):
        optimizer.zero_grad()
        loss = (function(model, q, v, a, params=guess) - data).square().mean() / data.square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 1e-4 * losses[0]
    assert all(torch.isfinite(value).all() for value in guess.values())


def test_gradients_are_finite_at_rest_and_where_formulas_are_singular():
    model = tree()
    q = model.neutral((2,), dtype=torch.float64).requires_grad_()
    v, a = torch.zeros(2, 2, model.nv, dtype=torch.float64).requires_grad_()
    found = compute(
        model,
        q,
        v,
        a,
        a,
        quantities={name: (name, {"passive": True}) for name in ("rnea", "aba", "bias_forces")},
    )
    total = sum(value.square().sum() + value.sum() for value in found.values())
    first = torch.autograd.grad(total, (q, v), create_graph=True)
    second = torch.autograd.grad(sum(x.sum() for x in first), (q, v))
    assert all(torch.isfinite(x).all() for x in (*first, *second))


def test_shared_inputs_get_the_sum_of_gradients():
    model = robot("two_link")
    q, v, a, _ = samples(model, 5)
    mass = parameters(model, "mass")["mass"]
    shared, apart = leaves(mass, mass.expand(5, 2))
    rnea(model, q, v, a, params={"mass": shared}).square().sum().backward()
    rnea(model, q, v, a, params={"mass": apart}).square().sum().backward()
    close(shared.grad, apart.grad.sum(0), 1e-13)


def test_gradients_of_one_environment_do_not_reach_another():
    model = chain("free", "revolute")
    q, v, a, _ = leaves(*samples(model, 4))
    rnea(model, q, v, a)[1].sum().backward()
    assert q.grad[1].any()
    assert not q.grad[[0, 2, 3]].any()


def test_a_chain_of_thirty_links_keeps_its_digits():
    model = chain(*["revolute"] * 30)
    q, v, _, tau = samples(model, 2, spin=0.1)
    direction = torch.randn(model.nq, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    (leaf,) = leaves(q)
    gradient = torch.autograd.grad(rnea(model, leaf, v, tau).sum(), leaf)[0]
    step = 1e-6
    slope = (rnea(model, q + step * direction, v, tau) - rnea(model, q - step * direction, v, tau)).sum() / (2 * step)
    assert (gradient * direction).sum().item() == pytest.approx(slope.item(), rel=1e-7)
