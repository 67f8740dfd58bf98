"""From soft contact to hard: contacts that are not made yet are found, and where they are not, it is said."""

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import adjoin
from adjoin.control import CMAES, ILQR, LBFGS, Adam, Continuation, GaussNewton, Objective, Spline, StopReason, optimize
from adjoin.errors import AdjoinWarning, InputError

HAND = """<robot name="pusher"><link name="rail"/><link name="hand"><inertial><mass value="1"/>
<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>
<collision><geometry><sphere radius="0.05"/></geometry></collision></link>
<link name="block"><inertial><mass value="0.5"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>
<collision><geometry><sphere radius="0.05"/></geometry></collision></link>
<joint name="reach" type="prismatic"><parent link="rail"/><child link="hand"/><axis xyz="1 0 0"/>
<limit lower="-100" upper="100" effort="20" velocity="100"/></joint>
<joint name="slide" type="prismatic"><parent link="rail"/><child link="block"/><axis xyz="1 0 0"/>
<limit lower="-100" upper="100" effort="20" velocity="100"/><dynamics damping="3"/></joint></robot>"""
STEPS, TARGET = 30, 0.6
SIM = adjoin.Simulator(
    adjoin.load(HAND).with_motors(["reach"]), dt=0.04, contact=adjoin.PGS(iterations=4), pairs=[("hand", "block")]
)
START = torch.tensor([0.0, 0.35], dtype=torch.float64)  # the gap is 25 cm


def effort(q, v, control):
    return 0.03 * control


def last(q, v):
    return 10.0 * (q[1:] - TARGET)


def objective(**options) -> Objective:
    return Objective(
        SIM, SIM.state(START), STEPS, **{"cost": effort, "terminal": last, "variables": Spline(6), **options}
    )


@pytest.mark.parametrize("method", [LBFGS(), Adam(rate=0.03)])
def test_a_gradient_of_zero_is_told_and_continuation_finds_the_contact(method) -> None:
    with pytest.warns(AdjoinWarning, match="optimize: 1 of 1 starts stay .* nothing touches yet. .*Continuation"):
        still = optimize(objective(), method, iterations=30)
    assert still.stopped == ["no gradient"]
    assert torch.equal(still.best, torch.zeros(6, dtype=torch.float64))
    found = optimize(objective(), method, iterations=150, continuation=Continuation(iterations=30))
    assert float(objective().rollout(found.best).q[-1, 1]) == pytest.approx(TARGET, abs=0.02)
    assert found.loss < 0.02 * still.loss
    assert int(found.history.rollouts[0]) > 90  # those of the stages count


def test_gauss_newton_says_it_too() -> None:
    def residuals(path, inputs):
        return path.q[-1, :, 1:] - TARGET

    with pytest.warns(AdjoinWarning, match="nothing touches yet"):
        found = optimize(objective(cost=None, terminal=None, residuals=residuals), GaussNewton(), iterations=3)
    assert found.stopped == ["no gradient"]


def test_continuation_leaves_a_start_that_is_better_without_it() -> None:
    best = optimize(objective(), iterations=60, continuation=Continuation()).best
    again = optimize(objective(), starts=best, iterations=0, continuation=Continuation(iterations=1))
    assert again.loss <= float(objective().losses(best[None])[0])


def test_ilqr_finds_the_contact_by_continuation() -> None:
    solver = ILQR(SIM, effort, last)
    start = SIM.state(START.expand(2, 2))
    guess = torch.zeros(STEPS, 2, 1, dtype=torch.float64)
    with pytest.warns(AdjoinWarning, match="2 of 2 problems keep their first guess: .*Continuation"):
        still = solver.solve(start, guess)
    assert still.reason.tolist() == [StopReason.NO_GRADIENT] * 2
    assert not still.converged.any()
    found = solver.solve(start, guess, continuation=Continuation())
    assert (found.q[-1, :, 1] - TARGET).abs().max() < 0.02
    assert (found.cost < 0.02 * still.cost).all()
    assert torch.equal(found.q, SIM.rollout(start, found.controls).q) or torch.allclose(
        found.q, SIM.rollout(start, found.controls).q, atol=1e-9
    )
    assert pickle.loads(pickle.dumps(Continuation())) == Continuation()


def test_contact_parameters_of_the_own_solver_do_not_disturb_the_stages() -> None:
    softness = torch.tensor(1e-3, dtype=torch.float64)
    target = objective(params={"contact_softness": softness})
    found = optimize(target, iterations=5, continuation=Continuation(depths=[0.1], iterations=5))
    assert found.loss < 6.25 / 2


def test_a_task_of_the_benchmark_is_solved_from_zero(monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[2] / "benchmarks")])
    from contact_tasks import TASKS

    assert len(TASKS) == 10
    task = TASKS["drawer"]()
    still = task.objective.rollout(task.objective.box.start)
    assert not task.success(still.q[-1:], still.v[-1:])
    found = optimize(task.objective, iterations=20, continuation=Continuation())
    closed = task.objective.rollout(found.best)
    assert task.success(closed.q[-1:], closed.v[-1:])


def test_what_is_wrong_with_a_continuation_is_said() -> None:
    for options, wanted in (
        ({"depths": ()}, "depths must be positive"),
        ({"depths": (0.1, -0.1)}, "depths must be positive"),
        ({"iterations": 0}, "whole number of at least 1"),
        ({"search": -1}, "search must be a whole number"),
        ({"weight": np.inf}, "weight must be positive"),
    ):
        with pytest.raises(InputError, match=wanted):
            Continuation(**options)
    with pytest.raises(InputError, match="optimize: continuation must be a Continuation"):
        optimize(objective(), continuation=True)  # type: ignore[arg-type]
    solver = ILQR(SIM, effort, last)
    guess = torch.zeros(STEPS, 1, dtype=torch.float64)
    with pytest.raises(InputError, match="ILQR: continuation must be a Continuation"):
        solver.solve(SIM.state(START), guess, continuation=True)  # type: ignore[arg-type]
    free = adjoin.Simulator(SIM.model, dt=0.04, pairs=[])
    alone = Objective(free, free.state(START), STEPS, cost=effort, variables=Spline(6))
    with pytest.raises(InputError, match="nothing touches"):
        optimize(alone, CMAES(), continuation=Continuation())
