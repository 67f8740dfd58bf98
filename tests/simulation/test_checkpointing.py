import pytest
import torch

from adjoin.errors import InputError
from adjoin.simulation.checkpointing import checkpointed_rollout


def pendulum(state, torque, gains, mass):
    angle, rest = state["angle"], state["rest"]
    effort = torque - gains[0] * angle - gains[1] * rest[0]
    speed = rest[0] + 0.05 * (effort / mass - angle.sin())
    return {"rest": (speed, rest[1] + 1), "angle": angle + 0.05 * speed}


def plain(step, state, inputs, parameters):
    states = [state]
    for t in range(len(inputs)):
        states.append(step(states[-1], inputs[t], *parameters))
    return states


def start():
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(3, dtype=torch.float64, generator=generator) for _ in range(3)]
    state = {"angle": made[0].requires_grad_(), "rest": (made[1].requires_grad_(), torch.zeros(3, dtype=torch.int64))}
    torques = torch.randn(17, 3, dtype=torch.float64, generator=generator).requires_grad_()
    gains = torch.tensor([2.0, 0.3], dtype=torch.float64, requires_grad=True)
    mass = (made[2].abs() + 1.0).requires_grad_()
    return state, torques, gains, mass


@pytest.mark.parametrize("every", [1, 4, 17, 30])
def test_values_and_gradients_are_those_of_autograd(every):
    state, torques, gains, mass = start()
    leaves = [state["angle"], state["rest"][0], torques, gains, mass]
    kept = checkpointed_rollout(pendulum, state, torques, (gains, mass), every=every)
    assert list(kept) == ["angle", "rest"]
    states = plain(pendulum, state, torques, (gains, mass))
    states = [states[t] for t in [*range(0, 17, every), 17]]
    angle, speed = torch.stack([s["angle"] for s in states]), torch.stack([s["rest"][0] for s in states])
    assert torch.equal(kept["angle"], angle)
    assert torch.equal(kept["rest"][0], speed)
    assert kept["rest"][1][:, 0].tolist() == [s["rest"][1][0].item() for s in states]

    def loss(angle, speed):
        return (angle**2).sum() + (angle[1:-1] * speed[:-2]).sum() + speed[-1].exp().sum()

    expected = torch.autograd.grad(loss(angle, speed), leaves)
    found = torch.autograd.grad(loss(kept["angle"], kept["rest"][0]), leaves)
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-14, atol=1e-14)


def test_modules_get_their_gradients():
    policy = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

    def step(state, noise):
        return state + 0.1 * policy(state) + noise

    state, noise = torch.randn(5, 2, requires_grad=True), torch.randn(20, 5, 2)
    leaves = [state, *policy.parameters()]
    expected = torch.autograd.grad(plain(step, state, noise, ())[-1].square().sum(), leaves)
    kept = checkpointed_rollout(step, state, noise, modules=[policy], every=5)
    found = torch.autograd.grad(kept[-1].square().sum(), leaves)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert all(weight.grad is None for weight in policy.parameters())


def test_a_step_that_is_a_module_is_one_of_them():
    class Cell(torch.nn.GRUCell):
        def forward(self, state, given):
            return super().forward(given, state)

    cell, given = Cell(2, 3), torch.randn(6, 4, 2)
    checkpointed_rollout(cell, torch.zeros(4, 3), given)[-1].sum().backward()
    found = [weight.grad.clone() for weight in cell.parameters()]
    cell.zero_grad()
    plain(cell, torch.zeros(4, 3), given, ())[-1].sum().backward()
    assert all(torch.equal(a, weight.grad) for a, weight in zip(found, cell.parameters(), strict=True))


def test_without_gradients_it_is_a_loop():
    state, torques, gains, mass = start()
    with torch.no_grad():
        kept = checkpointed_rollout(pendulum, state, torques, (gains, mass))
    assert not kept["angle"].requires_grad
    assert torch.equal(kept["angle"][-1], plain(pendulum, state, torques, (gains, mass))[-1]["angle"])


class Saved(torch.autograd.graph.saved_tensors_hooks):
    def __init__(self):
        super().__init__(lambda tensor: Kept(self, tensor), lambda kept: kept.tensor)
        self.now = self.most = 0

    def __enter__(self):
        super().__enter__()
        return self


class Kept:
    def __init__(self, saved, tensor):
        self.saved, self.tensor = saved, tensor
        saved.now += tensor.nbytes
        saved.most = max(saved.most, saved.now)

    def __del__(self):
        self.saved.now -= self.tensor.nbytes


@pytest.mark.parametrize("every", [1, 10])
def test_memory_is_that_of_the_kept_states_and_of_one_step(every):
    width, steps, operations = 1000, 200, 20

    def step(state, given):
        for _ in range(operations):
            state = (state + given).sin()
        return state

    state, given = torch.zeros(width, dtype=torch.float64, requires_grad=True), torch.zeros(steps, 1)
    with Saved() as saved:
        plain(step, state, given, ())
    assert saved.most == steps * operations * state.nbytes
    with Saved() as saved:
        kept = checkpointed_rollout(step, state, given, every=every)
    assert saved.most == (steps // every + 2) * state.nbytes + given.nbytes
    with Saved() as saved:
        kept[-1].sum().backward()
    assert saved.most == operations * state.nbytes


def test_a_tensor_from_elsewhere_is_an_error():
    weight = torch.ones(2, requires_grad=True)
    kept = checkpointed_rollout(
        lambda s, u: s * weight.exp() + u, torch.zeros(2, requires_grad=True), torch.zeros(3, 2)
    )
    with pytest.raises(InputError, match=r"a tensor of shape \(2,\) that needs a gradient but was not passed in"):
        kept.sum().backward()


def test_messages():
    state, given = torch.zeros(2), torch.zeros(3, 2)
    with pytest.raises(InputError, match="every must be a whole number of at least 1, got 0"):
        checkpointed_rollout(torch.add, state, given, every=0)
    with pytest.raises(InputError, match="must all have the same first dimension, time"):
        checkpointed_rollout(torch.add, state, (given, given[:2]))
    with pytest.raises(InputError, match="state and inputs must be tensors"):
        checkpointed_rollout(torch.add, 1.0, given)
    with pytest.raises(InputError, match="a step must make a state of a state"):
        checkpointed_rollout(lambda s, u: (s, u), state, given)
    with pytest.raises(InputError, match="a step must make a state of a state"):
        checkpointed_rollout(lambda s, u: s[:1], state, given)
