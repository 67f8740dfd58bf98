"""What must not depend on anything else: the bits of an environment, whatever happens around it or to its gradients."""

import functools
import io
import math
from contextlib import redirect_stderr

import pytest
import torch
from worlds import UPRIGHT, hopper, nothing, simulator, tensor

import adjoin
from adjoin.simulation.state import EXPLODED, FINE, NOT_FINITE
from adjoin.simulation.world import UNBOUNDED

STEPS, BAD = 5, 7
VALUES = (math.nan, math.inf, -math.inf, 1e11)
SIZES = {torch.float64: 40, torch.float32: 4096}
SOFT = {f"{owner}_{number}" for owner in ("geometry", "limit") for number in ("solref", "solimp")}  # Newton's alone
MEDIUM = {"fluid_density", "fluid_viscosity", "wind"}  # the hopper has no shapes that it acts on


@functools.cache
def world():
    return simulator(hopper(), 1e-3)


@functools.cache
def rollout_inputs(dtype, count):
    """Inputs of a rollout of hoppers that land, every parameter for each of them."""
    sim = world()
    generator = torch.Generator().manual_seed(0)
    q = sim.model.neutral((count,), dtype=dtype)
    q[:, 2] = 0.25 + 0.01 * torch.randn(count, generator=generator, dtype=dtype)
    found = {
        "q": q,
        "v": 0.3 * torch.randn(count, sim.model.nv, generator=generator, dtype=dtype),
        "control": torch.randn(STEPS, count, 2, generator=generator, dtype=dtype),
    }
    own = sim.model.parameters(dtype=dtype)
    return found | {name: value.expand(count, *value.shape).clone() for name, value in own.items() if value.numel()}


def environment(name, tensor, index):
    """The part of an input that belongs to some environments."""
    return tensor[:, index] if name == "control" else tensor[index]


def run(inputs, tracked=True):
    """States, outputs and, if tracked, gradients, by name."""
    leaves = {name: value.clone().requires_grad_(tracked) for name, value in inputs.items()}
    q, v, control, *params = leaves.values()
    params = dict(zip([*leaves][3:], params, strict=True))
    sim = world()
    path = sim.rollout(sim.state(q, v), control, params=params, outputs=["contacts"])
    gradients = {}
    if tracked:
        total = path.q[-1].square().sum() + path.v.sum() + 1e-3 * path.outputs["contacts"].force.square().sum()
        gradients = dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))
    return path, gradients


def bits(path):
    return [path.q, path.v, *path.memory.values(), *path.outputs["contacts"]]


def of_state(state):
    return [state.q, state.v, *state.memory.values()]


def assert_same(first, second):
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)


@functools.cache
def reference(dtype):
    return run(rollout_inputs(dtype, SIZES[dtype]))


@pytest.mark.parametrize("dtype", SIZES)
def test_nothing_goes_wrong_without_a_bad_environment(dtype):
    path, gradients = reference(dtype)
    assert (path.status == FINE).all()
    assert (path.outputs["contacts"].force[..., 2] > 0.0).any()
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    unused = {name for name, gradient in gradients.items() if not gradient.any()}
    assert unused <= {*UNBOUNDED, *SOFT, *MEDIUM, "actuator_dynamics", "frame_position", "frame_rotation"}


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("name", [*rollout_inputs(torch.float64, 1)])
def test_one_bad_environment_is_flagged_and_the_others_keep_their_bits(name, dtype):
    inputs, (path, gradients) = rollout_inputs(dtype, SIZES[dtype]), reference(dtype)
    others = [i for i in range(SIZES[dtype]) if i != BAD]
    for value in VALUES:
        spoilt = inputs[name].clone()
        environment(name, spoilt, BAD)[...] = value
        found, pulled = run({**inputs, name: spoilt})
        assert_same([x[:, others] for x in bits(found)], [x[:, others] for x in bits(path)])
        for key, gradient in pulled.items():
            assert torch.equal(environment(key, gradient, others), environment(key, gradients[key], others))
            assert environment(key, gradient, BAD).isfinite().all()
        status = found.status[:, BAD]
        if math.isnan(value) or name in ("q", "v", "control") or (math.isinf(value) and name not in UNBOUNDED):
            assert status[-1] in (NOT_FINITE, EXPLODED)
        if status[-1] != FINE:
            good = int((status == FINE).sum()) - 1
            for states in (found.q, found.v):
                frozen = states[good:, BAD].nan_to_num(9.0)
                assert torch.equal(frozen, frozen[:1].expand_as(frozen))
            assert all(not environment(key, gradient, BAD).any() for key, gradient in pulled.items())


def test_what_a_status_says():
    inputs, (path, _) = rollout_inputs(torch.float64, 40), reference(torch.float64)
    for value, status in ((math.nan, NOT_FINITE), (math.inf, NOT_FINITE), (1e11, EXPLODED), (-1e11, EXPLODED)):
        control = inputs["control"].clone()
        control[2:, BAD, 1] = value
        found, _ = run({**inputs, "control": control}, tracked=False)
        assert found.status[:3, BAD].tolist() == [FINE] * 3
        assert found.status[-1, BAD] == status
        assert torch.equal(found.q[:3, BAD], path.q[:3, BAD])
        assert found.q[:, BAD].isfinite().all()


def test_gradients_of_shared_parameters_leave_out_a_bad_environment():
    inputs, sim = rollout_inputs(torch.float64, 16), world()
    v = inputs["v"].clone()
    v[BAD] = math.nan
    kept = [i for i in range(16) if i != BAD]
    found = []
    for rows in (range(16), kept):
        own = sim.model.parameters(dtype=torch.float64)
        params = {name: own[name].requires_grad_() for name in ("mass", "geometry_friction")}
        index = torch.tensor(list(rows))
        start = sim.state(inputs["q"][index], v[index])
        path = sim.rollout(start, inputs["control"][:, index], params=params)
        total = path.v[-1].nan_to_num().square().sum()
        after = sim.step(start, inputs["control"][0, index], params)
        total = total + after.v.nan_to_num().square().sum()
        found.append(torch.autograd.grad(total, list(params.values())))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["q", "v", "control", "mass", "armature", "geometry_size", "actuator_gain"])
def test_a_bad_environment_in_a_step(name):
    inputs, sim = rollout_inputs(torch.float64, 16), world()
    params = ("mass", "armature", "geometry_size", "actuator_gain")
    inputs = {key: inputs[key] for key in ("q", "v", "control", *params)}
    others = [i for i in range(16) if i != BAD]
    found = []
    for value in (None, *VALUES):
        leaves = {key: inputs[key].clone() for key in inputs}
        if value is not None:
            environment(name, leaves[name], BAD)[...] = value
        leaves["control"] = leaves["control"][0]
        leaves = {key: leaf.requires_grad_() for key, leaf in leaves.items()}
        start = sim.state(leaves["q"], leaves["v"])
        after = sim.step(start, leaves["control"], {key: leaves[key] for key in params})
        total = after.q.square().sum() + after.v.sum()
        pulled = torch.autograd.grad(total, list(leaves.values()))
        found.append([x.detach()[others] for x in (after.q, after.v, after.status, *pulled)])
        assert_same(found[0], found[-1])
        assert all(gradient.isfinite().all() for gradient in pulled)
        if after.status[BAD] != FINE:
            assert all(not gradient[BAD].any() for gradient in pulled)
            assert torch.equal(after.q[BAD], start.q[BAD])
            assert after.q.isfinite().all()
        else:
            assert value is None or abs(value) == 1e11


@pytest.mark.parametrize("dtype", SIZES)
def test_the_same_bits_wherever_in_whichever_batch(dtype):
    inputs, (path, gradients) = rollout_inputs(dtype, SIZES[dtype]), reference(dtype)
    count = SIZES[dtype]
    for rows in ([0], [count - 1], [3, 1, 2], list(range(count // 2 - 1)), list(reversed(range(count)))):
        index = torch.tensor(rows)
        found, pulled = run({name: environment(name, value, index) for name, value in inputs.items()})
        assert_same(bits(found), [x[:, index] for x in bits(path)])
        assert_same(pulled.values(), [environment(name, value, index) for name, value in gradients.items()])


@pytest.mark.parametrize("dtype", SIZES)
def test_the_same_bits_with_other_threads_and_without_gradients(dtype):
    inputs, (path, gradients) = rollout_inputs(dtype, SIZES[dtype]), reference(dtype)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        found, pulled = run(inputs)
    finally:
        torch.set_num_threads(threads)
    assert_same(bits(found), bits(path))
    assert_same(pulled.values(), gradients.values())
    assert_same(bits(run(inputs, tracked=False)[0]), bits(path))


def test_the_same_bits_in_one_launch_in_pieces_and_step_by_step():
    sim = simulator(adjoin.robots.load("ball"), 1e-3, restitution=0.5, warm=True)
    start = sim.state(tensor(0.0, 0.0, 0.12, *UPRIGHT), tensor(1.0, 0.0, 0.0, 0.0, 3.0, 0.0))
    whole = sim.rollout(start, nothing(250), outputs=["contacts"])
    with redirect_stderr(io.StringIO()):
        pieces = sim.rollout(start, nothing(250), outputs=["contacts"], progress=True)
        sparse = sim.rollout(start, nothing(250), outputs=["contacts"], progress=True, every=7)
    assert_same(bits(whole), bits(pieces))
    assert_same(whole.outputs["contacts"], sparse.outputs["contacts"])
    kept = [*range(0, 250, 7), 250]
    assert_same([x[kept] for x in of_state(whole)], of_state(sparse))
    state = start
    for k in range(250):
        touching = sim.contacts(state)
        assert torch.equal(touching.force, whole.outputs["contacts"].force[k])
        state = sim.step(state)
    assert state.memory.keys() == {"status", "impulses"}
    assert_same(of_state(state), of_state(whole.last))


def test_reset_begins_some_environments_anew():
    sim = simulator(adjoin.robots.load("ball"), 1e-3, warm=True)
    q = tensor(0.0, 0.0, 0.1, *UPRIGHT).expand(4, 7).clone()
    q[1, 0] = math.nan
    state = sim.rollout(sim.state(q), nothing(10)).last
    assert state.status.tolist() == [FINE, NOT_FINITE, FINE, FINE]
    assert (state.memory["impulses"][[0, 2, 3], 0] > 0.0).all()
    mask = state.status != FINE
    mask[3] = True
    anew = sim.reset(state, mask)
    assert anew.status.tolist() == [FINE] * 4
    q[1] = sim.model.neutral()  # which takes the place of what is not finite
    began = sim.state(q)
    for old, new, base in zip(*map(of_state, (state, anew, began)), strict=True):
        assert torch.equal(new[[1, 3]], base[[1, 3]])
        assert torch.equal(new[[0, 2]], old[[0, 2]])
    elsewhere = sim.reset(state, mask, sim.state(tensor(1.0, 2.0, 3.0, *UPRIGHT)))
    assert elsewhere.q[1].tolist() == elsewhere.q[3].tolist() == [1.0, 2.0, 3.0, *UPRIGHT]
    assert torch.equal(elsewhere.q[[0, 2]], state.q[[0, 2]])
    assert (sim.step(anew).status == FINE).all()
