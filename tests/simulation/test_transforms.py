"""Rollouts and steps under the transforms of torch: vmap, grad, jacobians, forward mode, second order, compilation."""

import functools
import math

import pytest
import torch
from torch.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap
from worlds import hopper, simulator

import adjoin
from adjoin import PerEnvironment, PerStep
from adjoin.simulation.simulator import Simulator
from adjoin.simulation.state import FINE

STEPS, COUNT = 6, 4


def random(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def hopping():
    """Hoppers on one foot: the simulator, and q, v, controls and masses of each."""
    sim = simulator(hopper(), 1e-3, pairs=[("foot", "ground")])
    q = sim.model.neutral((COUNT,), dtype=torch.float64)
    q[:, 2] = 0.2496 + 1e-4 * torch.arange(COUNT)
    masses = sim.model.parameters(dtype=torch.float64)["mass"] * (1.0 + 0.1 * random(COUNT, 3, seed=2))
    return sim, (q, 0.3 * random(COUNT, 8), random(STEPS, COUNT, 2, seed=1), masses)


SIM, INPUTS = hopping()


def roll(q, v, controls, mass, every=1):
    return SIM.rollout(SIM.state(q, v), controls, {"mass": mass}, outputs=OUTPUTS, every=every)


OUTPUTS = {"contacts": "contacts", "power": lambda control, next_v: control @ next_v[6:]}


def loss(*inputs):
    """Something that depends on all of the motion, on forces and on an output."""
    path = roll(*inputs)
    force = path.outputs["contacts"].force
    return path.q[-1].square().sum() + path.v.sum() + 1e-3 * force.square().sum() + path.outputs["power"].sum()


def gradients(function, inputs):
    leaves = [x.clone().requires_grad_() for x in inputs]
    return torch.autograd.grad(function(*leaves), leaves)


@functools.cache
def reference():
    return gradients(loss, INPUTS)


def close(one, other, tolerance=1e-10):
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


DIMS = (0, 0, 1, 0)
"""Where the environments are in q, v, controls and masses."""


# vmap


def test_vmap_over_states_controls_and_parameters_is_a_batch():
    inputs = INPUTS
    path = roll(*inputs)

    def parts(*one):
        found = roll(*one)
        assert found.q.shape == (STEPS + 1, 9)
        return found.q, found.v, found.status, found.outputs["contacts"].force, found.outputs["power"]

    found = vmap(parts, DIMS, out_dims=1)(*inputs)
    for one, other in zip(
        found, (path.q, path.v, path.status, path.outputs["contacts"].force, path.outputs["power"]), strict=True
    ):
        assert torch.equal(one, other)


@pytest.mark.parametrize("argument", range(4), ids=["q", "v", "controls", "mass"])
def test_vmap_over_one_input(argument):
    inputs = INPUTS
    one = [x.select(dim, 1) for x, dim in zip(inputs, DIMS, strict=True)]
    dims = tuple(dim if k == argument else None for k, dim in enumerate(DIMS))
    mixed = [inputs[k] if k == argument else one[k] for k in range(4)]
    found = vmap(lambda *x: roll(*x).v, dims)(*mixed)
    for i in range(COUNT):
        alone = [x.select(dim, i) if k == argument else x for k, (x, dim) in enumerate(zip(mixed, DIMS, strict=True))]
        assert torch.equal(found[i], roll(*alone).v)


def test_states_and_trajectories_go_through_vmap_as_trees():
    q, v, controls, _ = INPUTS
    state = SIM.state(q, v)
    after = vmap(SIM.step)(state, controls[0])
    expected = SIM.step(state, controls[0])
    assert torch.equal(after.q, expected.q)
    assert torch.equal(after.status, expected.status)
    path = vmap(lambda one, u: SIM.rollout(one, u, outputs=["contacts"]), (0, 1), out_dims=1)(state, controls)
    expected = SIM.rollout(state, controls, outputs=["contacts"])
    assert torch.equal(path.q, expected.q)
    assert torch.equal(path.last[2].v, expected.last[2].v)
    assert torch.equal(path.outputs["contacts"].force, expected.outputs["contacts"].force)


def servo(q, control, gain, target, bias):
    return gain * (target - q[7:]) + bias + control


def test_vmap_over_named_tensors():
    q, v, controls, _ = INPUTS
    gains, targets, biases = random(5, seed=3), random(5, COUNT, 2, seed=4), random(5, STEPS, 2, seed=5)

    def end(gain, target, bias):
        named = {"gain": gain, "target": PerEnvironment(target), "bias": PerStep(bias)}
        return SIM.rollout(SIM.state(q, v), controls, controller=servo, tensors=named).last.q

    found = vmap(end)(gains, targets, biases)
    for i in range(5):
        assert torch.equal(found[i], end(gains[i], targets[i], biases[i]))


def test_vmap_inside_vmap():
    q, v, controls, _ = INPUTS

    def end(v, mass):
        return SIM.rollout(SIM.state(q[0], v), controls[:, 0], {"mass": mass}).last.v

    masses = INPUTS[3][:3]
    found = vmap(vmap(end, (None, 0)), (0, None))(v, masses)
    assert found.shape == (COUNT, 3, 8)
    assert torch.equal(found[2, 1], end(v[2], masses[1]))


# First derivatives


def test_grad_has_the_gradients_of_autograd():
    inputs = INPUTS
    close(list(grad(loss, argnums=(0, 1, 2, 3))(*inputs)), list(reference()))
    slopes, value = grad_and_value(loss, argnums=(2,))(*inputs)
    assert torch.equal(value, loss(*inputs))
    close(slopes[0], reference()[2])


def test_gradients_of_a_state_are_a_state():
    q, v, controls, _ = INPUTS

    def end(state):
        return SIM.step(state, controls[0]).v.square().sum()

    found = grad(end)(SIM.state(q, v))
    leaves = [q.clone().requires_grad_(), v.clone().requires_grad_()]
    expected = torch.autograd.grad(end(SIM.state(*leaves)), leaves)
    close([found.q, found.v], list(expected))


def test_vmap_of_grad_gives_the_gradients_of_each():
    inputs = INPUTS
    found = vmap(grad(loss, argnums=(0, 1, 2, 3)), DIMS, out_dims=DIMS)(*inputs)
    close(list(found), list(reference()))


def test_jacobians_agree_and_are_those_of_autograd():
    q, v, controls, masses = INPUTS

    def end(v, controls):
        path = SIM.rollout(SIM.state(q[1], v), controls, {"mass": masses[1]})
        return path.q[-1], path.outputs

    def last(v, controls):
        return end(v, controls)[0]

    inputs = (v[1], controls[:, 1])
    backward, forward = (transform(last, argnums=(0, 1))(*inputs) for transform in (jacrev, jacfwd))
    expected = torch.autograd.functional.jacobian(last, inputs)
    assert backward[1].shape == (9, STEPS, 2)
    for one, other, third in zip(backward, forward, expected, strict=True):
        close(one, third)
        close(other, third)


def test_jvp_is_that_of_finite_differences_and_vjp_its_transpose():
    inputs = INPUTS
    along = tuple(random(*x.shape, seed=k) for k, x in enumerate(inputs))

    def ends(*inputs):
        path = roll(*inputs)
        return path.q[1:], path.v[1:], path.outputs["contacts"].force, path.outputs["power"]

    values, tangents = jvp(ends, inputs, along)
    step = 1e-7
    sides = [ends(*[x + sign * step * d for x, d in zip(inputs, along, strict=True)]) for sign in (1.0, -1.0)]
    for tangent, after, before in zip(tangents, *sides, strict=True):
        difference = (after - before) / (2.0 * step)
        torch.testing.assert_close(tangent, difference, rtol=0.0, atol=1e-5 * float(difference.abs().max()))
    same, pull = vjp(ends, *inputs)
    for one, other in zip(values, same, strict=True):
        assert torch.equal(one, other)
    weights = tuple(random(*x.shape, seed=9) for x in same)
    forward = sum((w * t).sum() for w, t in zip(weights, tangents, strict=True))
    backward = sum((g * d).sum() for g, d in zip(pull(weights), along, strict=True))
    close(forward, backward, 1e-9)


def test_tangents_of_the_first_state_are_its_own():
    q, v, controls, _ = INPUTS
    along = random(COUNT, 8, seed=5)
    _, tangent = jvp(lambda v: SIM.rollout(SIM.state(q, v), controls).v, (v,), (along,))
    assert torch.equal(tangent[0], along)


# Second derivatives, of a smooth system


@functools.cache
def arm():
    return Simulator(adjoin.robots.load("two_link"), 0.02, pairs=[], limits=False)


def reach(controls, mass):
    sim = arm()
    start = sim.state(torch.tensor([0.3, -0.2], dtype=torch.float64))
    path = sim.rollout(start, controls, {"mass": mass}, outputs={"cost": lambda q, control: q @ q + control @ control})
    return path.q[-1].square().sum() + path.outputs["cost"].sum() + path.v[2].sum()


def test_hessians_are_those_of_finite_differences():
    controls, mass = random(4, 2), arm().model.parameters(dtype=torch.float64)["mass"]
    found = hessian(reach, argnums=(0, 1))(controls, mass)
    slope = grad(reach, argnums=(0, 1))
    step = 1e-5
    for k, size in enumerate((8, len(mass))):
        for at, direction in enumerate(torch.eye(size, dtype=torch.float64)):
            moved = [step * direction.reshape(x.shape) if i == k else 0.0 for i, x in enumerate((controls, mass))]
            after, before = (slope(controls + s * moved[0], mass + s * moved[1]) for s in (1.0, -1.0))
            for i in (0, 1):
                difference = (after[i] - before[i]) / (2.0 * step)
                column = found[i][k].flatten(-(2 if k == 0 else 1))[..., at]
                torch.testing.assert_close(column, difference, rtol=1e-6, atol=1e-8)
    whole = torch.autograd.functional.hessian(lambda u: reach(u, mass), controls)
    close(found[0][0], whole)


def test_orders_of_second_derivatives_agree():
    mass = arm().model.parameters(dtype=torch.float64)["mass"]

    def of_controls(controls):
        return reach(controls, mass)

    controls = random(3, 2)
    expected = hessian(of_controls)(controls)
    for other in (jacrev(jacrev(of_controls)), jacfwd(jacrev(of_controls)), jacrev(jacfwd(of_controls))):
        close(other(controls), expected)
    direction = random(3, 2, seed=1)
    product = jvp(grad(of_controls), (controls,), (direction,))[1]
    close(product, (expected.reshape(6, 6) @ direction.flatten()).reshape(3, 2))


def test_hessians_of_a_batch():
    mass = arm().model.parameters(dtype=torch.float64)["mass"]
    controls = random(5, 3, 2)
    found = vmap(hessian(lambda u: reach(u, mass)))(controls)
    for i in range(5):
        close(found[i], hessian(lambda u: reach(u, mass))(controls[i]))


# Which states are kept


@pytest.mark.parametrize("every", [2, 4, 6, 9])
def test_every_keeps_the_same_states_under_transforms(every):
    inputs = INPUTS
    plain = roll(*inputs, every=every)
    found = vmap(lambda *x: roll(*x, every=every).q, DIMS, out_dims=1)(*inputs)
    assert torch.equal(found, plain.q)
    kept = [*range(0, STEPS, every), STEPS]
    assert torch.equal(plain.q, roll(*inputs).q[kept])

    def ends(*inputs):
        path = roll(*inputs, every=every)
        return path.q.square().sum() + path.v[-1].sum() + path.outputs["power"].sum()

    def all_of_them(*inputs):
        path = roll(*inputs)
        return path.q[kept].square().sum() + path.v[-1].sum() + path.outputs["power"].sum()

    expected = gradients(all_of_them, inputs)
    close(list(grad(ends, argnums=(0, 1, 2, 3))(*inputs)), list(expected))
    close(list(gradients(ends, inputs)), list(expected))
    along = tuple(random(*x.shape, seed=k) for k, x in enumerate(inputs))
    tangent = jvp(lambda *x: roll(*x, every=every).v, inputs, along)[1]
    close(tangent, jvp(lambda *x: roll(*x).v, inputs, along)[1][kept])


# Environments that failed


BAD = 2
FAILURES = {"not finite": math.nan, "exploded": 1e12}


def spoilt(value):
    q, v, controls, masses = INPUTS
    controls = controls.clone()
    controls[3, BAD, 1] = value
    return q, v, controls, masses


def all_states(*inputs):
    """A loss that also depends on the first state and on those before anything goes wrong."""
    path = roll(*inputs)
    return path.q.square().sum() + path.v[:3].sum() + path.v[-1].square().sum()


@pytest.mark.parametrize("way", ["autograd", "grad", "vmap of grad", "compile"])
@pytest.mark.parametrize("value", FAILURES.values(), ids=FAILURES)
def test_gradients_of_an_environment_that_failed_are_exactly_zero(value, way):
    inputs = spoilt(value)
    status = roll(*inputs).status[-1]
    assert (status != FINE).tolist() == [False, False, True, False]
    if way == "autograd":
        found = gradients(all_states, inputs)
    elif way == "grad":
        found = grad(all_states, argnums=(0, 1, 2, 3))(*inputs)
    elif way == "vmap of grad":
        found = vmap(grad(all_states, argnums=(0, 1, 2, 3)), DIMS, out_dims=DIMS)(*inputs)
    else:
        found = gradients(compiled(all_states), inputs)
    others = [i for i in range(COUNT) if i != BAD]
    good = [x.index_select(dim, torch.tensor(others)) for x, dim in zip(inputs, DIMS, strict=True)]
    expected = gradients(all_states, good)
    for name, slope, dim, other in zip(("q", "v", "controls", "mass"), found, DIMS, expected, strict=True):
        assert not slope.select(dim, BAD).any(), name
        close(slope.index_select(dim, torch.tensor(others)), other)


@pytest.mark.parametrize("value", FAILURES.values(), ids=FAILURES)
def test_tangents_of_an_environment_that_failed_end_where_it_did(value):
    inputs = spoilt(value)
    along = tuple(torch.ones_like(x) for x in inputs)
    tangent = jvp(lambda *x: roll(*x).v, inputs, along)[1]
    assert tangent.isfinite().all()
    assert tangent[3, BAD].any()
    assert not tangent[4:, BAD].any()


def test_gradients_of_a_step_that_failed_are_exactly_zero():
    q, v, controls, _ = INPUTS
    control = controls[0].clone()
    control[BAD, 0] = math.nan

    def end(q, v, control):
        return SIM.step(SIM.state(q, v), control).v.square().sum()

    for slope in grad(end, argnums=(0, 1, 2))(q, v, control):
        assert slope.isfinite().all()
        assert not slope[BAD].any()
        assert slope[0].any()


# Compilation


def compiled(function):
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager")


@pytest.mark.filterwarnings("ignore")  # torch's own warnings
def test_a_loss_of_a_rollout_compiles_into_one_graph():
    inputs = INPUTS
    expected, fast = loss(*inputs), compiled(loss)
    assert torch.equal(fast(*inputs), expected)
    close(list(gradients(fast, inputs)), list(reference()))
    fewer = [x.narrow(dim, 0, 3) for x, dim in zip(inputs, DIMS, strict=True)]
    close(fast(*fewer), loss(*fewer))
    close(list(gradients(fast, fewer)), list(gradients(loss, fewer)))


@pytest.mark.filterwarnings("ignore")  # torch's own warnings
def test_a_loss_of_a_step_compiles_into_one_graph():
    q, v, controls, masses = INPUTS

    def end(q, v, control, mass):
        after = SIM.step(SIM.state(torch.cat([q[..., :7], torch.tanh(q[..., 7:])], -1), v), control, {"mass": mass})
        return after.q.square().sum() + after.v.sum() + SIM.contacts(after).force.sum()

    inputs = (q, v, controls[0], masses)
    expected, fast = end(*inputs), compiled(end)
    close(fast(*inputs), expected)
    close(list(gradients(fast, inputs)), list(gradients(end, inputs)))


@pytest.mark.filterwarnings("ignore")  # torch's own warnings
def test_controllers_named_tensors_and_kept_states_compile_too():
    q, v, controls, _ = INPUTS

    def end(gain, target, bias):
        named = {"gain": gain.exp(), "target": PerEnvironment(target), "bias": PerStep(bias)}
        path = SIM.rollout(SIM.state(q, v), controls, controller=servo, outputs=OUTPUTS, tensors=named, every=4)
        return path.last.q.square().sum() + path.outputs["power"].sum()

    inputs = (random(), random(COUNT, 2, seed=4), random(STEPS, 2, seed=5))
    expected, fast = end(*inputs), compiled(end)
    close(fast(*inputs), expected)
    close(list(gradients(fast, inputs)), list(gradients(end, inputs)))


@pytest.mark.filterwarnings("ignore")  # torch's own warnings
def test_states_go_in_and_out_of_what_is_compiled():
    q, v, controls, _ = INPUTS

    def twice(state, control):
        return SIM.step(SIM.step(state, control), control)

    state = SIM.state(q, v)
    expected, after = twice(state, controls[0]), compiled(twice)(state, controls[0])
    assert torch.equal(after.q, expected.q)
    assert torch.equal(after.status, expected.status)


def unseen():
    """A simulator of a model that nothing was called with."""
    model = adjoin.robots.load("two_link")
    return adjoin.Simulator(model.with_parameters({"mass": 1.1 * model.parameters(dtype=torch.float64)["mass"]}), 1e-3)


@pytest.mark.filterwarnings("ignore")  # torch's own warnings
@pytest.mark.parametrize("way", ["rollout", "steps"])
def test_what_was_never_called_before_compiles_into_one_graph(way):
    sim, q, controls = unseen(), random(3, 2), random(4, 3, 2)

    def end(q, controls, mass):
        state = sim.state(q)
        if way == "rollout":
            path = sim.rollout(state, controls, {"mass": mass}, outputs=["acceleration"])
            return path.q.square().sum() + path.outputs["acceleration"].sum()
        for control in controls:
            state = sim.step(state, control, {"mass": mass})
        return state.q.square().sum()

    inputs = (q, controls, sim.model.parameters(dtype=torch.float64)["mass"])
    fast = compiled(end)
    found = list(gradients(fast, inputs))
    close(found, list(gradients(end, inputs)))


@pytest.mark.filterwarnings("ignore")  # torch's own warnings
def test_functions_that_were_never_traced_say_what_to_do():
    sim, q, controls = unseen(), random(3, 2), random(4, 3, 2)

    def end(q):
        return sim.rollout(sim.state(q), controls, controller=lambda q, control: control - q).q.sum()

    with pytest.raises(Exception, match="make the same call once before, outside of what is compiled"):
        compiled(end)(q)
