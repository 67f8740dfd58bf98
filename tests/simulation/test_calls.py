"""Steps and rollouts whose names and signature were seen before: the same bits, gradients and errors."""

import copy
import pickle

import pytest
import torch

import adjoin
from adjoin import PerEnvironment, PerStep
from adjoin.compiler.runtime.kernel import Kernel
from adjoin.errors import InputError

MODEL = adjoin.robots.load("two_link").with_motors()
STEPS, COUNT = 3, 4


def push(q, v, control, gain, bias):
    return {"force": [gain * bias[0] * q[0], v[1] + control[0]]}


SIM = adjoin.Simulator(MODEL, dt=1e-2, pairs=[], residual=push)


def random(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def arguments(seed, steps=()):
    """A state, a control and everything that is passed by name, for one step or for many."""
    state = SIM.state(random(COUNT, 2, seed=seed), random(COUNT, 2, seed=seed + 1))
    frame = MODEL.frames[-1].name
    bias = PerEnvironment(random(COUNT, 1, seed=seed + 2))
    marked = PerStep(PerEnvironment(random(*steps, COUNT, 1, seed=seed + 2))) if steps else bias
    named = {
        "params": {"mass": 1.0 + random(COUNT, 2, seed=seed + 3) ** 2, "gravity": random(3, seed=seed + 4)},
        "external": {frame: random(*steps, COUNT, 6, seed=seed + 5)},
        "tensors": {"gain": random(seed=seed + 6), "bias": marked},
    }
    return state, random(*steps, COUNT, 2, seed=seed + 7), named


def leaves(result):
    return [result.q, result.v, *result.memory.values()]


@pytest.mark.parametrize("steps", [(), (STEPS,)], ids=["step", "rollout"])
def test_later_calls_give_the_bits_of_first_ones(steps):
    method = SIM.rollout if steps else SIM.step
    results = {seed: leaves(method(*arguments(seed, steps)[:2], **arguments(seed, steps)[2])) for seed in (0, 10)}
    for seed, expected in results.items():
        state, control, named = arguments(seed, steps)
        again = leaves(method(state, control, **named))
        assert all(torch.equal(a, b) for a, b in zip(again, expected, strict=True))
    state, control, named = arguments(10, steps)
    params = {**named["params"], "mass": named["params"]["mass"][2]}
    external = {name: x[..., 2, :] for name, x in named["external"].items()}
    bias = random(*steps, COUNT, 1, seed=12)[..., 2, :]
    tensors = {**named["tensors"], "bias": PerStep(bias) if steps else bias}
    alone = method(state[2], control[..., 2, :], params=params, external=external, tensors=tensors)
    assert torch.equal(alone.q, results[10][0][..., 2, :])
    assert torch.equal(alone.v, results[10][1][..., 2, :])


@pytest.mark.parametrize("steps", [(), (STEPS,)], ids=["step", "rollout"])
def test_gradients_of_later_calls(steps):
    method = SIM.rollout if steps else SIM.step
    state, control, named = arguments(3, steps)
    sources = [control, named["params"]["mass"], named["params"]["gravity"], named["tensors"]["gain"], state.q]
    tracked = [x.requires_grad_() for x in sources]
    found = []
    for weight in (1.0, 2.0, 1.0):
        result = method(state, control, **named)
        found.append(torch.autograd.grad(weight * result.v.square().sum() + result.q.sum(), tracked))
    for first, doubled, again in zip(*found, strict=True):
        assert torch.equal(first, again)
        assert not torch.equal(first, doubled)


def test_without_controls_and_without_a_batch():
    state = SIM.state(random(2), random(2, seed=1))
    tensors = {"gain": random(), "bias": random(1)}
    zeros = torch.zeros(2, dtype=torch.float64)
    for _ in range(2):
        assert torch.equal(SIM.step(state, tensors=tensors).q, SIM.step(state, zeros, tensors=tensors).q)
        path = SIM.rollout(state, steps=STEPS, tensors=tensors)
        assert torch.equal(path.q, SIM.rollout(state, zeros.expand(STEPS, 2), tensors=tensors).q)
        assert torch.equal(path.q[0], state.q)
        assert torch.equal(path.q[1], SIM.step(state, tensors=tensors).q)
        assert SIM.rollout(state, steps=0, tensors=tensors).q.shape == (1, 2)


def test_outputs_of_later_rollouts():
    state, controls, named = arguments(5, (STEPS,))

    def power(control, next_v):
        return control @ next_v

    for outputs in (["acceleration"], {"power": power, "next": "next_q"}):
        first, again = (SIM.rollout(state, controls, outputs=outputs, **named).outputs for _ in range(2))
        assert list(first) == list(again)
        assert all(torch.equal(first[name], again[name]) for name in first)


def test_errors_of_later_calls():
    state, control, named = arguments(7)
    for _ in range(2):
        SIM.step(state, control, **named)
    with pytest.raises(InputError, match="'control' must have the shape"):
        SIM.step(state, control[:, :1], **named)
    with pytest.raises(InputError, match="parameter 'mass' has shape"):
        SIM.step(state, control, **{**named, "params": {"mass": torch.ones(3, dtype=torch.float64)}})
    with pytest.raises(InputError, match="the state has no 'status'"):
        SIM.step(state.replace(memory={}), control, **named)
    with pytest.raises(InputError, match=r"state must be one of Simulator\.state"):
        SIM.step((state.q, state.v), control, **named)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="one dtype and device"):
        SIM.step(state, control.float(), **named)


def test_a_simulator_that_was_called_can_be_copied():
    state, control, named = arguments(8)
    expected = SIM.step(state, control, **named)
    other = copy.deepcopy(adjoin.Simulator(MODEL, dt=1e-2, pairs=[]))
    plain = other.step(state, control)
    assert torch.equal(copy.deepcopy(other).step(state, control).q, plain.q)
    assert torch.equal(pickle.loads(pickle.dumps(other)).step(state, control).q, plain.q)
    assert torch.equal(SIM.step(state, control, **named).q, expected.q)


def test_a_loop_of_steps_has_one_backward_kernel(monkeypatch):
    """Its last step has no gradient of v, its first none to the state. A mix asked for alone has its own kernel."""
    asked = []
    derive = Kernel.vjp
    monkeypatch.setattr(Kernel, "vjp", lambda self, *mix: asked.append((self.key, mix)) or derive(self, *mix))

    def loss(sim, gains, steps):
        state = sim.state(torch.linspace(-1.0, 1.0, 2 * COUNT, dtype=torch.float64).reshape(COUNT, 2))
        for _ in range(steps):
            state = sim.step(state, torch.tanh(torch.cat([state.q, state.v], -1) @ gains))
        return state.q.square().sum()

    gains = random(4, 2).requires_grad_()
    loops = adjoin.Simulator(MODEL, dt=1e-2, pairs=[])
    torch.autograd.gradcheck(lambda gains: loss(loops, gains, STEPS), gains)
    assert len(set(asked)) == 1
    asked.clear()
    single = adjoin.Simulator(MODEL, dt=2e-2, pairs=[])  # another program, which has no kernels yet
    for steps in (1, STEPS, 2):
        torch.autograd.gradcheck(lambda gains, steps=steps: loss(single, gains, steps), gains)
    (alone, _), (together, _) = dict.fromkeys(mix for _, mix in asked)
    assert sum(alone) == 1
    assert all(together)


def test_later_rollouts_have_outputs_without_numbers_of_the_same_shape():
    sim = adjoin.Simulator(MODEL, dt=1e-2, pairs=[])
    first, later = (
        sim.rollout(sim.state(batch=2), steps=3, outputs=["contacts"]).outputs["contacts"] for _ in range(2)
    )
    assert first.distance.shape == later.distance.shape == (3, 2, 0)
