"""Policies inside the launch: the values and gradients of the torch network that they were made of."""

import time

import pytest
import torch
from torch import nn

import adjoin
from adjoin import trace as at
from adjoin.errors import InputError
from adjoin.rl import TracedPolicy

STEPS, BATCH = 6, 3


def pendulum():
    return adjoin.Simulator(adjoin.robots.pendulum(2).with_motors(), dt=0.02, pairs=[], ground=False, limits=False)


def observe(q, v):
    return [*[f(x) for x in q for f in (at.sin, at.cos)], *v]


def start(sim, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return sim.state(*torch.randn(2, BATCH, 2, generator=generator, dtype=dtype))


def in_torch(sim, network, state):
    """The same rollout by single steps, with torch's network between them."""
    path = []
    for _ in range(STEPS):
        row = torch.stack([f(x) for x in state.q.unbind(-1) for f in (torch.sin, torch.cos)], -1)
        state = sim.step(state, network(torch.cat([row, state.v], -1)))
        path.append(state.q)
    return torch.stack(path)


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ELU, nn.SiLU, nn.ReLU])
def test_a_rollout_has_the_values_and_gradients_of_the_torch_network(activation):
    torch.manual_seed(0)
    layers = [nn.Linear(6, 5), activation(), nn.LayerNorm(5), nn.Linear(5, 4, bias=False), nn.Tanh(), nn.Linear(4, 2)]
    network = nn.Sequential(*layers).double()
    sim, policy = pendulum(), TracedPolicy(network, observe)
    state = start(sim)
    state.q.requires_grad_()
    path = policy.rollout(sim, state, STEPS)
    expected = in_torch(sim, network, state)
    assert torch.allclose(path.q[1:], expected, rtol=0.0, atol=1e-12)
    weights = [state.q, *network.parameters()]
    found = torch.autograd.grad(path.q[1:].square().sum(), weights)
    wanted = torch.autograd.grad(expected.square().sum(), weights)
    for a, b in zip(found, wanted, strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-12)
    assert torch.equal(policy(path.outputs["observation"]), network(path.outputs["observation"]))


def test_gradients_to_weights_are_those_of_finite_differences():
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    sim, policy = pendulum(), TracedPolicy(network)
    noise = 0.3 * torch.randn(STEPS, BATCH, 2, dtype=torch.float64)

    def cost():
        return policy.rollout(sim, start(sim), STEPS, noise=noise).v[-1].square().sum()

    cost().backward()
    weight = network[0].weight
    assert weight.grad is not None
    with torch.no_grad():
        for place in ((0, 0), (2, 3)):
            costs = []
            for change in (1e-6, -2e-6):
                weight[place] += change
                costs.append(cost().item())
            weight[place] += 1e-6
            assert abs(weight.grad[place] - (costs[0] - costs[1]) / 2e-6) < 1e-6 * (1.0 + weight.grad[place].abs())


def test_a_network_of_64_by_64_compiles_in_seconds(monkeypatch):
    monkeypatch.setenv("ADJOIN_CACHE_DIR", "off")
    network = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    sim, policy = pendulum(), TracedPolicy(network)
    began = time.process_time()
    path = policy.rollout(sim, start(sim, torch.float32), STEPS)
    path.q[-1].sum().backward()
    assert time.process_time() - began < 8.0  # about 1 s; unrolled it takes 16 s
    assert all(x.grad is not None and x.grad.abs().max() > 0.0 for x in network.parameters())


def test_what_cannot_be_traced_is_named():
    with pytest.raises(InputError, match=r"module 1, Dropout, cannot be traced.*Tanh"):
        TracedPolicy(nn.Sequential(nn.Linear(2, 2), nn.Dropout()))
    sim = pendulum()
    wide = TracedPolicy(nn.Sequential(nn.Linear(5, 2)).double())
    with pytest.raises(InputError, match=r"takes 5 numbers, got 4"):
        wide.rollout(sim, start(sim), 2)
