from typing import Any

import numpy as np
import pytest
import torch

import adjoin
from adjoin import PerEnvironment
from adjoin.control.ilqr import ILQR
from adjoin.control.mpc import MPC
from adjoin.errors import InputError


def two_link() -> adjoin.Simulator:
    return adjoin.Simulator(adjoin.robots.load("two_link"), dt=0.02, pairs=[], limits=False)


def running(q: Any, v: Any, control: Any, target: Any) -> Any:
    return np.concatenate([q - target, 0.1 * v, 0.02 * control])


def last(q: Any, v: Any, target: Any) -> Any:
    return 5.0 * np.concatenate([q - target, 0.2 * v])


def controller(**options: Any) -> MPC:
    return MPC(ILQR(two_link(), running, last), torch.zeros(20, 2, dtype=torch.float64), **options)


def drive(mpc: MPC, steps: int, mass: float = 1.0) -> torch.Tensor:
    sim = mpc.solver.sim
    targets = torch.tensor([[0.4, -0.3], [-0.5, 0.6]], dtype=torch.float64)
    state = sim.state(batch=2, dtype=torch.float64)
    params = {"mass": mass * sim.model.parameters(dtype=torch.float64)["mass"]}
    for _ in range(steps):
        state = sim.step(state, mpc(state, tensors={"target": PerEnvironment(targets)}), params)
    return (state.q - targets).abs().amax(-1)


@pytest.mark.parametrize("every", [1, 4])
def test_reaches_its_targets_with_few_iterations_a_plan(every: int) -> None:
    mpc = controller(iterations=1, every=every)
    start = torch.tensor([0.4, 0.6], dtype=torch.float64)
    assert bool((drive(mpc, 80) < 0.15 * start).all())


def test_feedback_corrects_a_wrong_model() -> None:
    closed = drive(controller(iterations=1), 60, mass=1.3)
    mpc = controller(iterations=1, every=20)
    sim, targets = mpc.solver.sim, torch.tensor([[0.4, -0.3], [-0.5, 0.6]], dtype=torch.float64)
    state = sim.state(batch=2, dtype=torch.float64)
    guess = torch.zeros(60, 2, 2, dtype=torch.float64)
    plan = mpc.solver.solve(state, guess, tensors={"target": PerEnvironment(targets)})
    params = {"mass": 1.3 * sim.model.parameters(dtype=torch.float64)["mass"]}
    opened = (sim.rollout(state, plan.controls, params).q[-1] - targets).abs().amax(-1)
    assert bool((closed < 0.5 * opened).all())


def test_plans_begin_with_the_one_before() -> None:
    mpc = controller(iterations=2)
    drive(mpc, 1)
    first = mpc.plan
    assert first is not None
    state = mpc.solver.sim.state(first.q[1], first.v[1])
    mpc(state, tensors={"target": PerEnvironment(torch.tensor([[0.4, -0.3], [-0.5, 0.6]], dtype=torch.float64))})
    assert mpc.plan is not None
    assert bool((first.history[0] > 1.5 * first.cost).all())
    assert bool((mpc.plan.history[0] < 1.02 * mpc.plan.cost).all())
    mpc.reset()
    assert mpc.plan is None


def test_wrong_options_are_named() -> None:
    with pytest.raises(InputError, match="iterations must be a whole number"):
        controller(iterations=0)
    with pytest.raises(InputError, match="longer than the horizon"):
        controller(every=21)
    with pytest.raises(InputError, match="solver must be an ILQR"):
        MPC(two_link(), torch.zeros(20, 2))  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"\(horizon, \.\.\., 2\), got \(20, 3\)"):
        MPC(controller().solver, torch.zeros(20, 3))


def test_batches_that_do_not_fit_are_named() -> None:
    mpc = controller(first=1)
    one, two = (mpc.solver.sim.state(batch=n, dtype=torch.float64) for n in (1, 2))
    mpc(one, tensors={"target": torch.zeros(2, dtype=torch.float64)})
    with pytest.raises(InputError, match=r"the plan is for \(1,\) robots, and there are \(2,\); call reset"):
        mpc(two, tensors={"target": torch.zeros(2, dtype=torch.float64)})
    mpc.reset()
    mpc(two, tensors={"target": torch.zeros(2, dtype=torch.float64)})
    wide = MPC(mpc.solver, torch.zeros(20, 3, 2, dtype=torch.float64))
    with pytest.raises(InputError, match=r"controls are for \(3,\) robots, states for \(2,\)"):
        wide(two, tensors={"target": torch.zeros(2, dtype=torch.float64)})
