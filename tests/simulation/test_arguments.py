"""Tensors that traced functions take by name: shared, per environment, per step, or both."""

import functools

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck
from worlds import hinge, tensor

import adjoin
from adjoin import PerEnvironment, PerStep
from adjoin.errors import InputError
from adjoin.simulation.simulator import Simulator
from adjoin.simulation.step import STEP_VALUES

STEPS, COUNT = 12, 3


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def spring(q, v, target):
    """A residual that pulls toward a target."""
    return {"force": 3.0 * (target - q) - 0.1 * v}


def servo(q, v, control, target):
    return 5.0 * (target - q) - 0.5 * v + control


def away(next_q, control, target):
    return (next_q - target) @ (next_q - target) + 0.01 * (control @ control)


@functools.cache
def arm(residual=None):
    return Simulator(adjoin.robots.load("two_link"), 0.02, pairs=[], limits=False, residual=residual)


def start():
    return arm().state(0.3 * random(COUNT, 2), random(COUNT, 2, seed=1))


# How a tensor is laid out, and which part of it one environment gets in one step.
LAYOUTS = {
    "shared": ((2,), lambda x: x, lambda x, t, i: x),
    "per environment": ((COUNT, 2), PerEnvironment, lambda x, t, i: x[i]),
    "the same for all environments": ((1, 2), PerEnvironment, lambda x, t, i: x[0]),
    "per step": ((STEPS, 2), PerStep, lambda x, t, i: x[t]),
    "per step and environment": ((STEPS, COUNT, 2), lambda x: PerStep(PerEnvironment(x)), lambda x, t, i: x[t, i]),
    "per step, the same for all": ((STEPS, 1, 2), lambda x: PerStep(PerEnvironment(x)), lambda x, t, i: x[t, 0]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_named_tensor_does_what_a_loop_of_steps_does(layout):
    shape, mark, part = LAYOUTS[layout]
    controls = random(STEPS, COUNT, 2, seed=2)
    results = []
    for inside in (True, False):
        target = random(*shape, seed=3).requires_grad_()
        if inside:
            named = {"target": mark(target)}
            path = arm().rollout(start(), controls, controller=servo, outputs={"away": away}, tensors=named)
            ends, cost = path.last, path.outputs["away"]
        else:
            state, costs = start(), []
            for t in range(STEPS):
                now = torch.stack([part(target, t, i) for i in range(COUNT)])
                control = 5.0 * (now - state.q) - 0.5 * state.v + controls[t]
                state = arm().step(state, control)
                costs.append((state.q - now).square().sum(-1) + 0.01 * control.square().sum(-1))
            ends, cost = state, torch.stack(costs)
        (gradient,) = torch.autograd.grad(cost.sum() + ends.q.square().sum(), target)
        results.append([ends.q.detach(), ends.v.detach(), cost.detach(), gradient])
    assert results[0][3].abs().min() > 0.0
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_residual_takes_named_tensors_too(layout):
    shape, mark, part = LAYOUTS[layout]
    target = random(*shape, seed=3)
    path = arm(spring).rollout(start(), steps=STEPS, tensors={"target": mark(target)})
    for i in range(COUNT):
        state = start()[i]
        for t in range(STEPS):
            state = arm(spring).step(state, tensors={"target": part(target, t, i)})
        torch.testing.assert_close(path.q[-1, i], state.q, rtol=1e-13, atol=1e-13)


def test_everything_that_takes_steps_takes_named_tensors():
    sim, target, state = arm(spring), random(COUNT, 2, seed=3), start()
    named = {"target": PerEnvironment(target)}
    A, B = sim.linearize(state, tensors=named)
    for i in range(COUNT):
        alone = sim.linearize(state[i], tensors={"target": target[i]})
        torch.testing.assert_close([A[i], B[i]], list(alone), rtol=1e-13, atol=1e-13)
    found = sim.diagnose(state, None, lambda path: path.q[-1].sum(), steps=STEPS, tensors=named)
    assert found.adjoint.shape == (STEPS + 1, COUNT)
    pulled = Simulator(adjoin.robots.load("ball"), 1e-3, residual=lambda q, v, push: {"force": push})
    push = tensor([0.0, 0.0, -5.0, 0.0, 0.0, 0.0], [0.0, 0.0, 5.0, 0.0, 0.0, 0.0])
    balls = pulled.state(tensor(0.0, 0.0, 0.1, 1.0, 0.0, 0.0, 0.0).repeat(2, 1))
    force = pulled.contacts(balls, tensors={"push": PerEnvironment(push)}).force[..., 2]
    torch.testing.assert_close(force[:, 0], tensor(14.81, 4.81), rtol=1e-3, atol=0.0)


def test_gradients_to_named_tensors_are_those_of_finite_differences():
    def end(shared, each, timed, both):
        named = {"a": shared, "b": PerEnvironment(each), "c": PerStep(timed), "d": PerStep(PerEnvironment(both))}
        path = arm().rollout(start(), steps=3, controller=lambda q, a, b, c, d: a * b - c * d * q, tensors=named)
        return path.q[-1], path.v[-1]

    inputs = [random(*shape, seed=k) for k, shape in enumerate(((2,), (COUNT, 2), (3, 2), (3, COUNT, 2)))]
    assert gradcheck(end, [x.requires_grad_() for x in inputs], check_forward_ad=True)


# What a traced function may be


def test_functions_take_any_of_what_there_is_in_any_order():
    named = {"gain": tensor(4.0)[0], "offset": random(2)}
    controls = random(STEPS, COUNT, 2, seed=2)

    class Controller:
        def __call__(self, offset, q, gain=1.0, factor=2.0):
            return gain * factor * q + offset

    class Module(torch.nn.Module):
        def forward(self, offset, q, gain):
            return gain * 2.0 * q + offset

    def everything(q, **tensors):
        assert tensors.keys() == {"gain", "offset"}
        return tensors["gain"] * 2.0 * q + tensors["offset"]

    def scaled(factor, gain, q, offset):
        return gain * factor * q + offset

    paths = [
        arm().rollout(start(), controls, controller=controller, tensors=named).q
        for controller in (
            lambda gain, offset, q: gain * 2.0 * q + offset,
            Controller(),
            Module(),
            everything,
            functools.partial(scaled, factor=2.0),
            lambda *, q, gain, offset, v=None: gain * 2.0 * q + offset + 0.0 * v,
        )
    ]
    for other in paths[1:]:
        assert torch.equal(paths[0], other)


def test_a_controller_may_ask_for_the_status():
    path = arm().rollout(start(), random(STEPS, COUNT, 2), controller=lambda status, control: control + status)
    assert torch.equal(path.q, arm().rollout(start(), random(STEPS, COUNT, 2)).q)


def test_steps_may_stand_for_controls():
    state = start()
    zero = arm().rollout(state, torch.zeros(STEPS, 2, dtype=torch.float64))
    assert torch.equal(arm().rollout(state, steps=STEPS).q, zero.q)
    assert torch.equal(arm().rollout(state, torch.zeros(STEPS, 2, dtype=torch.float64), steps=STEPS).q, zero.q)
    driven = arm().rollout(state, steps=STEPS, controller=lambda q, control: control - q)
    state = start()
    for _ in range(STEPS):
        state = arm().step(state, -state.q)
    torch.testing.assert_close(driven.last.q, state.q, rtol=1e-13, atol=1e-13)
    assert arm().rollout(state, steps=0).q.shape == (1, COUNT, 2)
    with pytest.raises(InputError, match=r"pass controls, .* or how many steps to take as steps="):
        arm().rollout(state)
    with pytest.raises(InputError, match="there are 12 controls for 7 steps"):
        arm().rollout(state, random(STEPS, 2), steps=7)
    for wrong in (-1, 2.5):
        with pytest.raises(InputError, match="how many steps to take"):
            arm().rollout(state, steps=wrong)


# Errors


NAMES = ", ".join(STEP_VALUES)
GOOD = tensor(0.1, 0.2)
WRONG = {
    "unknown argument of a controller": (
        lambda s: s.rollout(start(), steps=4, controller=lambda q, goal: goal - q),
        r"the controller takes 'goal', which is neither a tensor of this call nor one of q, v, status, control; "
        r"pass tensors=\{'goal': ...\}",
    ),
    "unknown argument of an output": (
        lambda s: s.rollout(start(), steps=4, outputs={"cost": lambda q, goal: goal @ q}),
        rf"the output 'cost' takes 'goal', which is neither a tensor of this call nor one of {NAMES};",
    ),
    "nobody takes it": (
        lambda s: s.rollout(start(), steps=4, controller=lambda q: -q, tensors={"gaol": GOOD}),
        r"rollout: no function here takes tensors\['gaol'\]",
    ),
    "nobody takes it in a step": (
        lambda s: s.step(start(), tensors={"goal": GOOD}),
        r"step: no function here takes tensors\['goal'\]",
    ),
    "the name of a step value": (
        lambda s: s.rollout(start(), steps=4, controller=lambda q, next_q: next_q - q, tensors={"next_q": GOOD}),
        r"rollout: tensors\['next_q'\] has the name of something that a step has; rename it",
    ),
    "environments": (
        lambda s: s.rollout(start(), steps=4, controller=servo, tensors={"target": PerEnvironment(random(2, 2))}),
        r"rollout: tensors\['target'\] must have the shape \(3, ...\), got \(2, 2\)",
    ),
    "steps": (
        lambda s: s.rollout(start(), steps=4, controller=servo, tensors={"target": PerStep(random(5, 2))}),
        r"rollout: tensors\['target'\] must have the shape \(4, ...\), got \(5, 2\)",
    ),
    "one step for all": (
        lambda s: s.rollout(start(), steps=4, controller=servo, tensors={"target": PerStep(random(1, 2))}),
        r"rollout: tensors\['target'\] must have the shape \(4, ...\), got \(1, 2\)",
    ),
    "steps and environments": (
        lambda s: s.rollout(
            start(), steps=4, controller=servo, tensors={"target": PerStep(PerEnvironment(random(3, 4, 2)))}
        ),
        r"rollout: tensors\['target'\] must have the shape \(4, 3, ...\), got \(3, 4, 2\)",
    ),
    "too few dimensions": (
        lambda s: s.rollout(start(), steps=4, controller=servo, tensors={"target": PerStep(PerEnvironment(random(4)))}),
        r"rollout: tensors\['target'\] must have the shape \(4, 3, ...\), got \(4,\)",
    ),
    "per step in a step": (
        lambda s: s.step(start(), tensors={"target": PerStep(random(1, 2))}),
        r"step: tensors\['target'\] is given per step, but this call is about one step",
    ),
    "not a tensor": (
        lambda s: s.rollout(start(), steps=4, controller=servo, tensors={"target": [0.1, 0.2]}),
        r"rollout: tensors\['target'\] must be a torch tensor, got a list",
    ),
    "marked, and not a tensor": (
        lambda s: s.rollout(start(), steps=4, controller=servo, tensors={"target": PerEnvironment(np.zeros((3, 2)))}),
        r"rollout: tensors\['target'\] must be a torch tensor, got a ndarray",
    ),
    "marked the wrong way around": (
        lambda s: s.rollout(
            start(), steps=4, controller=servo, tensors={"target": PerEnvironment(PerStep(random(4, 3, 2)))}
        ),
        r"rollout: tensors\['target'\] must be a torch tensor, got a PerStep",
    ),
    "dtype": (
        lambda s: s.rollout(start(), steps=4, controller=servo, tensors={"target": GOOD.float()}),
        r"one dtype and device; 'q' is torch.float64 .* 'tensors\['target'\]' is torch.float32",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(case):
    call, message = WRONG[case]
    with pytest.raises(InputError, match=message):
        call(arm())


def test_an_unknown_argument_of_a_residual_is_told_what_there_is():
    sim = Simulator(hinge(), 1e-2, residual=lambda q, wind: {"force": wind * q})
    with pytest.raises(InputError, match=r"the residual takes 'wind', which is neither .* nor one of q, v, control"):
        sim.step(sim.state())
