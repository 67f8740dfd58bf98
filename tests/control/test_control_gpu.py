from typing import Any

import numpy as np
import pytest
import torch

import adjoin
from adjoin import PerEnvironment
from adjoin.control import ILQR, LBFGS, MPC, Controls, ILQRResult, Objective, optimize

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
F32, F64 = torch.float32, torch.float64
# A search ends when 1e-5 (1e-9 in double precision) of the cost is left to gain, which is more in what it depends on.
COSTS, STATES = {F32: 1e-4, F64: 1e-9}, {F32: 1e-2, F64: 1e-6}


def running(q: Any, v: Any, control: Any, target: Any) -> Any:
    return np.concatenate([q - target, 0.1 * v, 0.05 * control])


def last(q: Any, v: Any, target: Any) -> Any:
    return 5.0 * np.concatenate([q - target, 0.2 * v])


def two_link(contact: bool = False) -> adjoin.Simulator:
    return adjoin.Simulator(adjoin.robots.load("two_link"), dt=0.02, pairs=[], limits=contact)


def targets(dtype: torch.dtype, device: str) -> torch.Tensor:
    return (0.5 * torch.randn(33, 2, generator=torch.Generator().manual_seed(0), dtype=F64)).to(device, dtype)


def reach(solver: ILQR, dtype: torch.dtype, device: str) -> ILQRResult:
    state = solver.sim.state(batch=33, dtype=dtype, device=device)
    guess = torch.zeros(25, 33, 2, dtype=dtype, device=device)
    return solver.solve(state, guess, tensors={"target": PerEnvironment(targets(dtype, device))})


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("contact", [False, True])
def test_ilqr_finds_on_the_gpu_what_it_finds_on_the_cpu(contact: bool, dtype: torch.dtype) -> None:
    solver = ILQR(two_link(contact), running, last, limits=(-2.0, 2.0))
    here, there = (reach(solver, dtype, device) for device in ("cpu", "cuda"))
    assert {x.device.type for x in there} == {"cuda"}
    assert bool(there.converged.all())
    torch.testing.assert_close(there.cost.cpu(), here.cost, rtol=COSTS[dtype], atol=0.0)
    torch.testing.assert_close(there.q.cpu(), here.q, rtol=0.0, atol=STATES[dtype])
    if dtype == F64:
        torch.testing.assert_close(there.controls.cpu(), here.controls, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(there.gain.cpu(), here.gain, rtol=1e-4, atol=1e-4)


def test_a_problem_that_is_not_a_number_touches_no_other_on_the_gpu() -> None:
    solver = ILQR(two_link(), running, last)
    state = solver.sim.state(batch=33, dtype=F64, device="cuda")
    goals = targets(F64, "cuda")
    goals[4] = torch.nan
    guess = torch.zeros(25, 33, 2, dtype=F64, device="cuda")
    found = solver.solve(state, guess, tensors={"target": PerEnvironment(goals)})
    assert (~found.converged).nonzero().tolist() == [[4]]


@pytest.mark.parametrize("dtype", [F32, F64])
def test_mpc_drives_on_the_gpu_as_on_the_cpu(dtype: torch.dtype) -> None:
    solver, ends = ILQR(two_link(), running, last), []
    for device in ("cpu", "cuda"):
        mpc = MPC(solver, torch.zeros(15, 2, dtype=dtype, device=device), first=10, every=2)
        state = solver.sim.state(batch=33, dtype=dtype, device=device)
        for _ in range(6):
            state = solver.sim.step(state, mpc(state, tensors={"target": PerEnvironment(targets(dtype, device))}))
        ends.append(state.q.cpu())
    torch.testing.assert_close(*ends, rtol=0.0, atol=STATES[dtype])


@pytest.mark.parametrize("dtype", [F32, F64])
def test_optimize_finds_on_the_gpu_what_it_finds_on_the_cpu(dtype: torch.dtype) -> None:
    sim, losses = two_link(), []
    for device in ("cpu", "cuda"):
        objective = Objective(
            sim,
            sim.state(dtype=dtype, device=device),
            20,
            cost=lambda control: 1e-3 * (control @ control),
            terminal=lambda q, v: (q[0] - 0.3) ** 2 + (q[1] + 0.2) ** 2 + 0.1 * (v @ v),
            variables=Controls(),
        )
        starts = 0.1 * torch.linspace(-1.0, 1.0, 4 * objective.size, dtype=dtype, device=device).reshape(4, -1)
        found = optimize(objective, LBFGS(), starts=starts, iterations=60)
        assert found.variables.device.type == device
        losses.append(found.losses.cpu())
    torch.testing.assert_close(*losses, rtol=1e-2 if dtype == F32 else 1e-5, atol=1e-6)
