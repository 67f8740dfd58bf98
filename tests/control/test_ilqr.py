import math
from typing import Any

import numpy as np
import pytest
import torch

import adjoin
from adjoin.control.expansion import Expansion
from adjoin.control.ilqr import ILQR, Solution
from adjoin.control.lqr import lqr
from adjoin.control.problems import Problems
from adjoin.control.riccati import Fused, Wide
from adjoin.errors import InputError
from adjoin.trace import cos
from adjoin.trace.function import Function

SLIDER = """<robot name="slider"><link name="rail"/><link name="cart"><inertial><mass value="2"/>
<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
<joint name="slide" type="prismatic"><parent link="rail"/><child link="cart"/><axis xyz="1 0 0"/>
<limit lower="-100" upper="100" effort="1000" velocity="100"/></joint></robot>"""
PUSHER = """<robot name="pusher"><link name="rail"/><link name="hand"><inertial><mass value="1"/>
<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>
<collision><geometry><sphere radius="0.05"/></geometry></collision></link>
<link name="block"><inertial><mass value="0.5"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>
<collision><geometry><box size="0.1 0.1 0.1"/></geometry></collision></link>
<joint name="reach" type="prismatic"><parent link="rail"/><child link="hand"/><axis xyz="1 0 0"/>
<limit lower="-100" upper="100" effort="20" velocity="100"/></joint>
<joint name="slide" type="prismatic"><parent link="rail"/><child link="block"/><axis xyz="1 0 0"/>
<limit lower="-100" upper="100" effort="20" velocity="100"/><dynamics damping="3"/></joint></robot>"""
PENDULUM = """<robot name="pendulum"><link name="base"/><link name="rod"><inertial><origin xyz="0 0 -0.5"/>
<mass value="1"/><inertia ixx="0.02" ixy="0" ixz="0" iyy="0.02" iyz="0" izz="0.02"/></inertial></link>
<joint name="hinge" type="continuous"><parent link="base"/><child link="rod"/><axis xyz="0 1 0"/>
<limit effort="3" velocity="100"/></joint></robot>"""


def tensor(*values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def slider() -> adjoin.Simulator:
    return adjoin.Simulator(adjoin.load(SLIDER).with_motors(), dt=0.05, limits=False)


def arm(contact: bool = False) -> adjoin.Simulator:
    model = adjoin.robots.load("two_link")
    return adjoin.Simulator(model, dt=0.02, pairs=None if contact else [], limits=contact)


def still(q: Any, v: Any, control: Any, target: Any) -> Any:
    return np.concatenate([q - target, 0.1 * v, 0.05 * control])


def ended(q: Any, v: Any, target: Any) -> Any:
    return 10.0 * np.concatenate([q - target, v])


def reach(solver: ILQR, batch: int = 4, steps: int = 25, **options: Any) -> Solution:
    draw = torch.Generator().manual_seed(1)
    targets = 0.5 * torch.randn(batch, solver.sim.model.nq, generator=draw, dtype=torch.float64)
    state = solver.sim.state(batch=batch, dtype=torch.float64)
    guess = torch.zeros(steps, batch, solver.sim.model.nu, dtype=torch.float64)
    return solver.solve(state, guess, individual={"target": targets}, **options)


def problems_at(found: Solution) -> Problems:
    zero = torch.zeros_like(found.cost)
    once = {
        "last_q": found.q[-1],
        "last_v": found.v[-1],
        "mu": zero,
        "individual['target']": zero[:, None].expand(-1, 2),
    }
    return Problems(once, {"q": found.q[:-1], "v": found.v[:-1], "control": found.controls})


def test_linear_system_takes_one_iteration_to_the_riccati_solution() -> None:
    sim = slider()
    Q, R, P = torch.diag(tensor(3.0, 0.5)), tensor([0.02]), torch.diag(tensor(40.0, 20.0))
    solver = ILQR(
        sim,
        lambda q, v, control: 0.5 * (3.0 * q[0] ** 2 + 0.5 * v[0] ** 2 + 0.02 * control[0] ** 2),
        lambda q, v: 20.0 * q[0] ** 2 + 10.0 * v[0] ** 2,
        limits=False,
    )
    start = sim.state(tensor([1.0], [-2.0]), tensor([0.5], [0.0]))
    found = solver.solve(start, torch.zeros(40, 2, 1, dtype=torch.float64))
    A, B = sim.linearize(start, torch.zeros(2, 1, dtype=torch.float64))
    exact = lqr(A, B, Q, R, steps=40, terminal=P)
    x = torch.cat([start.q, start.v], -1)
    assert found.iterations.tolist() == [1, 1]
    assert bool(found.converged.all())
    torch.testing.assert_close(found.cost, 0.5 * torch.einsum("bi,bij,bj->b", x, exact.value[0], x))
    torch.testing.assert_close(found.gain, exact.gain)
    torch.testing.assert_close(found.controls[0], (exact.gain[0] @ x[..., None])[..., 0])


def test_limits_hold_and_the_optimum_is_that_of_projected_gradients() -> None:
    sim = slider()
    solver = ILQR(
        sim,
        lambda q, v, control: np.concatenate([q - 1.0, v, 0.1 * control]),
        lambda q, v: 5.0 * np.concatenate([q - 1.0, v]),
        limits=(-1.0, 2.0),
    )
    start, steps = sim.state(tensor([0.0])), 40
    found = solver.solve(start, torch.zeros(steps, 1, 1, dtype=torch.float64))
    controls = found.controls.clone().requires_grad_()
    path = sim.rollout(start, controls)
    running = ((path.q[:-1] - 1.0) ** 2 + path.v[:-1] ** 2 + 0.01 * controls**2).sum()
    cost = 0.5 * running + 12.5 * ((path.q[-1] - 1.0) ** 2 + path.v[-1] ** 2).sum()
    torch.testing.assert_close(cost, found.cost[0])
    (slope,) = torch.autograd.grad(cost, controls)
    low, high = found.controls <= -1.0, found.controls >= 2.0
    assert bool(found.converged.all())
    assert bool(low.any())
    assert bool(high.any())
    assert slope[~low & ~high].abs().max() < 1e-5
    assert bool((slope[low] > 0.0).all())
    assert bool((slope[high] < 0.0).all())


@pytest.mark.parametrize("second_order", [False, True])
def test_both_backward_passes_agree(second_order: bool) -> None:
    solver = ILQR(arm(), still, ended, limits=(-2.0, 2.0), second_order=second_order)
    found = reach(solver, iterations=2)
    (passes,) = solver._made.values()
    problems = problems_at(found)
    problems.once["mu"] = tensor(0.0, 0.0, 0.1, 1.0)
    assert isinstance(passes.backward, Fused)
    wide = Wide(passes.expansion, solver.bounds, second_order)
    for one, other in zip(passes.backward(problems, {}), wide(problems, {}), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


def test_expected_fall_of_the_cost_is_its_slope() -> None:
    solver = ILQR(arm(), still, ended, limits=False)
    found = reach(solver, iterations=1)
    (passes,) = solver._made.values()
    problems = problems_at(found)
    gains = passes.backward(problems, {})
    problems.once.update(solver.sim.state(batch=4, dtype=torch.float64)._asdict())
    ahead, back = (
        passes.forward(problems, gains, torch.full((4,), part, dtype=torch.float64), {}).once["cost"]
        for part in (1e-5, -1e-5)
    )
    torch.testing.assert_close((ahead - back) / 2e-5, gains.first, rtol=1e-6, atol=1e-8)


def test_second_derivatives_of_a_cost_on_a_free_joint() -> None:
    sim = adjoin.Simulator(adjoin.robots.load("box").with_motors([]), dt=0.01, pairs=[], ground=False)
    model = sim.model

    def cost(q: Any, v: Any) -> Any:
        return cos(q[0]) * q[4] + q[3] * q[5] * v[2] + q[2] ** 2 * v[4] ** 2

    expansion = Expansion(sim, None, cost, {})
    function = Function(
        lambda q, v: expansion.quadratic({"q": q, "v": v}, controlled=False), {"q": model.nq, "v": model.nv}
    )
    value = Function(lambda q, v: cost(q, v), {"q": model.nq, "v": model.nv})
    q = model.random((1,), generator=torch.Generator().manual_seed(0), dtype=torch.float64)[0]
    v = torch.linspace(-1.0, 1.0, 6, dtype=torch.float64)
    slope, bend = function(q, v)

    def moved(change: torch.Tensor) -> torch.Tensor:
        return value(model.integrate(q, change[:6]), v + change[6:])

    zero = torch.zeros(12, dtype=torch.float64)
    step = 1e-4 * torch.eye(12, dtype=torch.float64)
    differences = torch.stack([(moved(zero + d) - moved(zero - d)) / 2e-4 for d in step])
    torch.testing.assert_close(slope, differences, rtol=1e-7, atol=1e-7)
    twice = torch.stack(
        [torch.stack([moved(a + b) - moved(a - b) - moved(b - a) + moved(-a - b) for b in step]) for a in step]
    )
    torch.testing.assert_close(bend, twice / 4e-8, rtol=1e-5, atol=1e-5)


def test_ddp_and_ilqr_reach_one_optimum_and_ddp_takes_fewer_iterations() -> None:
    def upright(q: Any, v: Any, control: Any) -> Any:
        return 0.02 * (0.1 * (1.0 + cos(q[0])) + 0.01 * v[0] ** 2 + 0.01 * control[0] ** 2)

    def end(q: Any, v: Any) -> Any:
        return 20.0 * (1.0 + cos(q[0])) + v[0] ** 2

    sim = adjoin.Simulator(adjoin.load(PENDULUM).with_motors(), dt=0.02, limits=False)
    guess = 0.5 * torch.ones(100, 1, 1, dtype=torch.float64)
    first, second = (
        ILQR(sim, upright, end, second_order=more).solve(sim.state(tensor([0.3])), guess, tolerance=1e-10)
        for more in (False, True)
    )
    assert bool(first.converged.all())
    assert bool(second.converged.all())
    assert abs(math.cos(second.q[-1, 0, 0].item()) + 1.0) < 1e-3
    torch.testing.assert_close(first.cost, second.cost, rtol=1e-6, atol=0.0)
    assert bool((second.iterations < first.iterations).all())


def test_contact_is_planned_with() -> None:
    model = adjoin.load(PUSHER).with_motors(["reach"])
    sim = adjoin.Simulator(model, dt=0.02, pairs=[("hand", "block")], limits=False)
    solver = ILQR(
        sim,
        lambda q, v, control: 0.03 * np.concatenate([control, v]),
        lambda q, v, target: 10.0 * np.concatenate([3.0 * (q[1:] - target), v]),
    )
    start = sim.state(tensor([0.0, 0.12], [0.0, 0.12], [0.0, 0.12]))
    targets = tensor([0.3], [0.4], [0.5])
    guess = torch.full((50, 3, 1), 1.5, dtype=torch.float64)
    found = solver.solve(start, guess, individual={"target": targets}, iterations=60)
    assert isinstance(next(iter(solver._made.values())).backward, Wide)
    path = sim.rollout(start, found.controls)
    torch.testing.assert_close(path.q, found.q, rtol=1e-9, atol=1e-9)
    assert (found.q[-1, :, 1:] - targets).abs().max() < 0.01
    assert found.v[-1].abs().max() < 0.1


@pytest.mark.parametrize("kind", [Fused, Wide])
def test_a_motion_is_followed(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind is Wide:
        monkeypatch.setattr("adjoin.control.search.SMALL", 0)
    sim = arm()
    solver = ILQR(sim, lambda q, v, control, motion: np.concatenate([10.0 * (q - motion), 1e-3 * control]))
    time = 0.02 * torch.arange(60, dtype=torch.float64)
    motion = torch.stack([0.3 * (1.0 - torch.cos(3.0 * time)), 0.2 * (1.0 - torch.cos(5.0 * time))], -1)
    guess = torch.zeros(60, 1, 2, dtype=torch.float64)
    found = solver.solve(sim.state(batch=1, dtype=torch.float64), guess, streams={"motion": motion[:, None]})
    assert isinstance(next(iter(solver._made.values())).backward, kind)
    assert (found.q[:-1, 0] - motion).abs().max() < 0.01
    with pytest.raises(InputError, match=r"must be \(60, 1, \.\.\.\)"):
        solver.solve(sim.state(batch=1, dtype=torch.float64), guess, streams={"motion": motion[:50, None]})


def test_batch_shapes_and_history() -> None:
    solver = ILQR(arm(), still, ended, limits=(-2.0, 2.0))
    flat = reach(solver, batch=6)
    draw = torch.Generator().manual_seed(1)
    targets = 0.5 * torch.randn(6, 2, generator=draw, dtype=torch.float64)
    state = solver.sim.state(batch=(2, 3), dtype=torch.float64)
    guess = torch.zeros(25, 2, 3, 2, dtype=torch.float64)
    found = solver.solve(state, guess, individual={"target": targets.reshape(2, 3, 2)})
    torch.testing.assert_close(found.cost, flat.cost.reshape(2, 3))
    assert found.gain.shape == (25, 2, 3, 2, 4)
    assert found.q.shape == (26, 2, 3, 2)
    assert bool(found.converged.all())
    assert bool((found.history.diff(dim=0) <= 1e-12).all())
    torch.testing.assert_close(found.history[-1], found.cost)
    alone = solver.solve(
        solver.sim.state(batch=(), dtype=torch.float64), guess[:, 0, 0], individual={"target": targets[0]}
    )
    torch.testing.assert_close(alone.cost, flat.cost[0])


@pytest.mark.parametrize(("room", "leaving"), [(3, 0.1), (4, 0.6)])
def test_problems_that_wait_for_room_get_what_all_at_once_do(
    room: int, leaving: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver = ILQR(arm(), still, ended)
    whole = reach(solver, batch=11)
    monkeypatch.setattr("adjoin.control.search.at_once", lambda device: room)
    monkeypatch.setattr("adjoin.control.search.LEAVING", leaving)
    parts = reach(solver, batch=11)
    assert len(whole.iterations.unique()) > 1
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other)


def test_what_is_wrong_is_said() -> None:
    solver = ILQR(arm(), still, ended)
    state = solver.sim.state(batch=3, dtype=torch.float64)
    with pytest.raises(InputError, match=r"\(steps, 3, 2\)"):
        solver.solve(state, torch.zeros(5, 2, dtype=torch.float64))
    with pytest.raises(InputError, match="no function here takes individual"):
        solver.solve(state, torch.zeros(5, 3, 2, dtype=torch.float64), individual={"goal": torch.zeros(3, 2)})
    with pytest.raises(InputError, match="one dtype and device"):
        solver.solve(state, torch.zeros(5, 3, 2, dtype=torch.float64), individual={"target": torch.zeros(3, 2)})
    with pytest.raises(InputError, match="running cost, a terminal cost"):
        ILQR(solver.sim)
    with pytest.raises(InputError, match="must not be above"):
        ILQR(solver.sim, still, limits=(1.0, -1.0))
