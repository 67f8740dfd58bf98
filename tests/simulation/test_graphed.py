import pytest
import torch

import adjoin
from adjoin.errors import InputError

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def pendulum(device):
    sim = adjoin.Simulator(adjoin.robots.load("two_link"), 1e-2)
    torch.manual_seed(0)
    policy = torch.nn.Sequential(
        torch.nn.Linear(sim.model.nq + sim.model.nv, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
    )
    policy = policy.to(device, torch.float64)

    def run(state, scale):
        for _ in range(5):
            state = sim.step(state, scale * policy(torch.cat([state.q, state.v], -1)))
        return {"end": state, "steps": 5}

    def arguments(seed):
        generator = torch.Generator().manual_seed(seed)
        q, v = (torch.randn(3, n, generator=generator, dtype=torch.float64) for n in (sim.model.nq, sim.model.nv))
        return sim.state(q.to(device), v.to(device).requires_grad_()), torch.ones(
            (), dtype=torch.float64, device=device
        )

    return run, arguments, policy


def test_on_a_cpu_a_function_stays_what_it_is():
    run, arguments, _ = pendulum("cpu")
    assert adjoin.graphed(run, arguments(0)) is run


@pytest.mark.parametrize("example", [(), (1.0, None)])
def test_an_example_needs_tensors(example):
    with pytest.raises(InputError, match="the example needs tensors on one device, got none"):
        adjoin.graphed(lambda *_: None, example)


@gpu
def test_results_and_gradients_are_those_of_the_function():
    run, arguments, policy = pendulum("cuda")
    fast = adjoin.graphed(run, arguments(0), list(policy.parameters()))
    earlier = fast(*arguments(7))["end"].q
    kept = earlier.clone()
    for seed in range(3):
        found = []
        for function in (run, fast):
            state, scale = arguments(seed)
            result = function(state, scale)
            assert result["steps"] == 5
            loss = result["end"].q.square().sum() + result["end"].v.sum()
            found.append([result["end"].q, *torch.autograd.grad(loss, [state.v, *policy.parameters()])])
        for a, b in zip(*found, strict=True):
            assert torch.allclose(a, b, rtol=1e-12, atol=1e-12)
    assert torch.equal(earlier, kept)


@gpu
def test_weights_may_change_between_replays():
    run, arguments, policy = pendulum("cuda")
    fast = adjoin.graphed(run, arguments(0), list(policy.parameters()))
    with torch.no_grad():
        for weight in policy.parameters():
            weight += 0.1
    state, scale = arguments(1)
    assert torch.allclose(fast(state, scale)["end"].q, run(state, scale)["end"].q, rtol=1e-12)


@gpu
def test_what_was_not_recorded_is_an_error():
    run, arguments, _ = pendulum("cuda")
    fast = adjoin.graphed(run, arguments(0))
    state, scale = arguments(1)
    with pytest.raises(InputError, match=r"was recorded with torch.float64 \(\) on cuda:0 .*got torch.float32"):
        fast(state, scale.float())
    with pytest.raises(InputError, match="arguments of another structure"):
        fast(state)
    with pytest.raises(InputError, match="must not wait for the GPU"):
        adjoin.graphed(lambda state: state.q * float(state.q.detach().sum()), (state,))
