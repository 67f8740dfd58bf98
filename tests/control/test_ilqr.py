import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import adjoin
from adjoin import PerEnvironment, PerStep
from adjoin.collision.terrain import Heightfield
from adjoin.compiler.runtime.function import Function
from adjoin.control.ilqr import ILQR, ILQRResult, StopReason
from adjoin.control.ilqr.backward_pass import FusedBackwardPass, Gains, StepwiseBackwardPass
from adjoin.control.ilqr.inverse_dynamics_pass import InverseDynamicsBackwardPass
from adjoin.control.ilqr.local_model import LocalModel
from adjoin.control.ilqr.problem_batch import ProblemBatch
from adjoin.control.lqr import lqr
from adjoin.errors import AdjoinWarning, InputError
from adjoin.trace import cos

F64 = torch.float64
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


def reach(solver: ILQR, batch: int = 4, steps: int = 25, **options: Any) -> ILQRResult:
    draw = torch.Generator().manual_seed(1)
    targets = 0.5 * torch.randn(batch, solver.sim.model.nq, generator=draw, dtype=torch.float64)
    state = solver.sim.state(batch=batch, dtype=torch.float64)
    guess = torch.zeros(steps, batch, solver.sim.model.nu, dtype=torch.float64)
    return solver.solve(state, guess, tensors={"target": PerEnvironment(targets)}, **options)


def problems_at(found: ILQRResult) -> ProblemBatch:
    zero = torch.zeros_like(found.cost)
    once = {
        "last_q": found.q[-1],
        "last_v": found.v[-1],
        "mu": zero,
        "tensors['target']": zero[:, None].expand(-1, 2),
    }
    return ProblemBatch(once, {"q": found.q[:-1], "v": found.v[:-1], "control": found.controls})


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


def test_limits_may_be_of_one_side_and_of_one_control() -> None:
    sim = arm()
    solver = ILQR(sim, still, ended, limits=([-math.inf, -0.3], [0.5, math.inf]))
    found = reach(solver)
    targets = 0.5 * torch.randn(4, 2, generator=torch.Generator().manual_seed(1), dtype=F64)
    controls = found.controls.clone().requires_grad_()
    path = sim.rollout(sim.state(batch=4, dtype=F64), controls)
    running = (path.q[:-1] - targets).square().sum() + 0.01 * path.v[:-1].square().sum() + 0.0025 * (controls**2).sum()
    last = 100.0 * ((path.q[-1] - targets).square().sum() + path.v[-1].square().sum())
    (slope,) = torch.autograd.grad(0.5 * (running + last), controls)
    high, low = found.controls[..., 0] >= 0.5, found.controls[..., 1] <= -0.3
    assert bool(found.converged.all())
    assert bool(high.any())
    assert bool(low.any())
    assert bool((slope[..., 0][high] < 0.0).all())
    assert bool((slope[..., 1][low] > 0.0).all())
    assert slope[..., 0][~high].abs().max() < 1e-4
    assert slope[..., 1][~low].abs().max() < 1e-4


def assert_backward_passes_agree(solver: ILQR, found: Any, used: type, other: type, tolerance: float) -> None:
    ((_, passes),) = solver._kernels.items()
    problems = problems_at(found)
    problems.per_problem["mu"] = tensor(0.0, 0.0, 0.1, 1.0)
    assert type(passes.backward) is used
    again = other(passes.local, solver.bounds, solver.second_order)
    for one, another in zip(passes.backward(problems, {}), again(problems, {}), strict=True):
        torch.testing.assert_close(one, another, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("second_order", [False, True])
def test_both_backward_passes_agree(second_order: bool) -> None:
    solver = ILQR(arm(), still, ended, limits=(-2.0, 2.0), second_order=second_order)
    found = reach(solver, iterations=2)
    assert_backward_passes_agree(solver, found, FusedBackwardPass, StepwiseBackwardPass, 1e-8)


def unlimited(model: adjoin.Model) -> adjoin.Model:
    """The model with motors of any strength."""
    joints = [replace(body.joint, effort_limit=math.inf) for body in model.bodies]
    bodies = tuple(replace(body, joint=joint) for body, joint in zip(model.bodies, joints, strict=True))
    return replace(model, bodies=bodies)


@pytest.mark.parametrize("weight", [0.05, 1.0])
def test_the_backward_pass_by_inverse_dynamics_agrees(weight: float) -> None:
    model = unlimited(adjoin.robots.load("two_link"))
    motors = [replace(motor, gear=(2.0 + i,)) for i, motor in enumerate(model.actuators)]
    sim = adjoin.Simulator(replace(model, actuators=tuple(motors)), dt=1e-3, pairs=[], limits=False)

    def cost(q: Any, v: Any, control: Any, target: Any) -> Any:
        return q @ q + v @ v * control[0] * 0.01 + weight * (control - target) @ (control - target + 0.1 * q)

    solver = ILQR(sim, cost, ended, limits=False)
    found = reach(solver, iterations=1)
    assert_backward_passes_agree(solver, found, InverseDynamicsBackwardPass, FusedBackwardPass, 1e-7)


@pytest.mark.parametrize(
    ("robot", "options", "dtype"),
    [
        ("acrobot", {}, F64),
        ("servos", {}, F64),
        ("limits", {}, F64),
        ("arm", {"second_order": True}, F64),
        ("arm", {}, torch.float32),
    ],
)
def test_inverse_dynamics_is_left_where_controls_do_not_follow(robot: str, options: Any, dtype: torch.dtype) -> None:
    if robot == "acrobot":
        model = adjoin.robots.load("pendulum", links=2).with_motors(["joint2"])
        sim = adjoin.Simulator(model, dt=0.02, pairs=[], limits=False)
    elif robot == "servos":
        model = adjoin.robots.load("two_link").with_servos(20.0, 2.0)
        sim = adjoin.Simulator(model, dt=0.02, pairs=[], limits=False)
    else:
        sim = arm(contact=robot == "limits")
    solver = ILQR(sim, None, lambda q, v: q @ q, limits=False, **options)
    solver.solve(sim.state(batch=2, dtype=dtype), torch.zeros(3, 2, sim.model.nu, dtype=dtype), iterations=1)
    ((_, passes),) = solver._kernels.items()
    assert not isinstance(passes.backward, InverseDynamicsBackwardPass)


def test_expected_fall_of_the_cost_is_its_slope() -> None:
    solver = ILQR(arm(), still, ended, limits=False)
    found = reach(solver, iterations=1)
    ((_, passes),) = solver._kernels.items()
    problems = problems_at(found)
    gains = passes.backward(problems, {})
    start = solver.sim.state(batch=4, dtype=torch.float64)
    problems.per_problem.update({"q": start.q, "v": start.v, **start.memory})
    ahead, back = (
        passes.forward(problems, gains, torch.full((4,), part, dtype=torch.float64), {}).per_problem["cost"]
        for part in (1e-5, -1e-5)
    )
    torch.testing.assert_close((ahead - back) / 2e-5, gains.linear, rtol=1e-6, atol=1e-8)


def test_second_derivatives_of_a_cost_on_a_free_joint() -> None:
    sim = adjoin.Simulator(adjoin.robots.load("box").with_motors([]), dt=0.01, pairs=[], ground=False)
    model = sim.model

    def cost(q: Any, v: Any) -> Any:
        return cos(q[0]) * q[4] + q[3] * q[5] * v[2] + q[2] ** 2 * v[4] ** 2

    expansion = LocalModel(sim, None, cost, {})
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
    found = solver.solve(start, guess, tensors={"target": PerEnvironment(targets)}, iterations=60)
    ((_, passes),) = solver._kernels.items()
    assert isinstance(passes.backward, StepwiseBackwardPass)
    path = sim.rollout(start, found.controls)
    torch.testing.assert_close(path.q, found.q, rtol=1e-9, atol=1e-9)
    assert (found.q[-1, :, 1:] - targets).abs().max() < 0.01
    assert found.v[-1].abs().max() < 0.1


@pytest.mark.parametrize("kind", [FusedBackwardPass, StepwiseBackwardPass])
def test_a_motion_is_followed(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind is StepwiseBackwardPass:
        monkeypatch.setattr("adjoin.control.ilqr.iterations.MAX_FUSED_SIZE", 0)
    sim = arm()
    solver = ILQR(sim, lambda q, v, control, motion: np.concatenate([10.0 * (q - motion), 1e-3 * control]))
    time = 0.02 * torch.arange(60, dtype=torch.float64)
    motion = torch.stack([0.3 * (1.0 - torch.cos(3.0 * time)), 0.2 * (1.0 - torch.cos(5.0 * time))], -1)
    guess = torch.zeros(60, 1, 2, dtype=torch.float64)
    found = solver.solve(
        sim.state(batch=1, dtype=torch.float64), guess, tensors={"motion": PerStep(PerEnvironment(motion[:, None]))}
    )
    ((_, passes),) = solver._kernels.items()
    assert isinstance(passes.backward, kind)
    assert (found.q[:-1, 0] - motion).abs().max() < 0.01
    shared = solver.solve(sim.state(batch=1, dtype=torch.float64), guess, tensors={"motion": PerStep(motion)})
    assert torch.equal(shared.controls, found.controls)
    short = {"motion": PerStep(PerEnvironment(motion[:50, None]))}
    with pytest.raises(InputError, match=r"must have the shape \(60, 1, \.\.\.\)"):
        solver.solve(sim.state(batch=1, dtype=torch.float64), guess, tensors=short)


def test_batch_shapes_and_history() -> None:
    solver = ILQR(arm(), still, ended, limits=(-2.0, 2.0))
    flat = reach(solver, batch=6)
    draw = torch.Generator().manual_seed(1)
    targets = 0.5 * torch.randn(6, 2, generator=draw, dtype=torch.float64)
    state = solver.sim.state(batch=(2, 3), dtype=torch.float64)
    guess = torch.zeros(25, 2, 3, 2, dtype=torch.float64)
    found = solver.solve(state, guess, tensors={"target": PerEnvironment(targets.reshape(2, 3, 2))})
    torch.testing.assert_close(found.cost, flat.cost.reshape(2, 3))
    assert found.gain.shape == (25, 2, 3, 2, 4)
    assert found.q.shape == (26, 2, 3, 2)
    assert bool(found.converged.all())
    assert bool((found.history.diff(dim=0) <= 1e-12).all())
    torch.testing.assert_close(found.history[-1], found.cost)
    alone = solver.solve(
        solver.sim.state(batch=(), dtype=torch.float64), guess[:, 0, 0], tensors={"target": PerEnvironment(targets[0])}
    )
    torch.testing.assert_close(alone.cost, flat.cost[0])


@pytest.mark.parametrize(("room", "leaving"), [(3, 0.1), (4, 0.6)])
def test_problems_that_wait_for_room_get_what_all_at_once_do(
    room: int, leaving: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver = ILQR(arm(), still, ended)
    whole = reach(solver, batch=11)
    monkeypatch.setattr("adjoin.control.ilqr.iterations.concurrent_problems", lambda device: room)
    monkeypatch.setattr("adjoin.control.ilqr.iterations.MIN_DONE_FRACTION", leaving)
    parts = reach(solver, batch=11)
    assert len(whole.iterations.unique()) > 1
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("contact", [False, True])
@pytest.mark.parametrize("where", ["q", "controls", "target", "mass"])
def test_a_problem_that_is_not_a_number_touches_no_other(where: str, contact: bool) -> None:
    solver = ILQR(arm(contact), still, ended)
    q, controls, target = (torch.full(shape, 0.2, dtype=torch.float64) for shape in ((9, 2), (10, 9, 2), (9, 2)))
    mass = solver.sim.model.parameters(dtype=torch.float64)["mass"].repeat(9, 1)
    fine = solver.solve(solver.sim.state(q), controls, {"mass": mass}, tensors={"target": PerEnvironment(target)})
    {"q": q, "controls": controls[3], "target": target, "mass": mass}[where][4] = torch.nan
    found = solver.solve(solver.sim.state(q), controls, {"mass": mass}, tensors={"target": PerEnvironment(target)})
    others = torch.arange(9) != 4
    assert not bool(found.converged[4])
    assert not bool(found.cost[4].isfinite())
    assert bool(found.converged[others].all())
    for name in ("controls", "q", "gain"):
        assert torch.equal(getattr(found, name)[:, others], getattr(fine, name)[:, others]), name


def test_a_guess_that_explodes_has_not_converged() -> None:
    sim = adjoin.Simulator(unlimited(adjoin.load(SLIDER)).with_motors(), dt=0.05, limits=False)
    solver = ILQR(sim, lambda q, v, control: 1e-3 * control, limits=False)
    found = solver.solve(sim.state(batch=1, dtype=torch.float64), torch.full((5, 1, 1), 1e9, dtype=torch.float64))
    assert bool(found.history[0].isinf().all())
    assert bool((found.converged == found.cost.isfinite()).all())


def test_terrain_of_each_problem_is_planned_with() -> None:
    text = PUSHER.replace('box size="0.1 0.1 0.1"', 'sphere radius="0.05"').replace(
        '<child link="block"/><axis xyz="1 0 0"/>', '<child link="block"/><axis xyz="0 0 1"/>'
    )
    model = adjoin.load(text).with_motors(["slide"])
    flat = torch.zeros(3, 3, dtype=torch.float64)
    sim = adjoin.Simulator(model, dt=0.02, terrain=Heightfield(flat, 1.0), pairs=[("block", "ground")], limits=False)
    solver = ILQR(sim, lambda q, v, control: 0.03 * control, lambda q, v, height: 10.0 * (q[1:] - height))
    heights = torch.stack([flat, flat + 0.1, flat - 0.2])
    start = sim.state(torch.tensor([[0.0, 0.2]] * 3, dtype=torch.float64))
    named = {"tensors": {"height": tensor(0.0)}, "iterations": 20}
    found = solver.solve(start, torch.full((40, 3, 1), 4.0, dtype=torch.float64), {"terrain": heights}, **named)
    path = sim.rollout(start, found.controls, {"terrain": heights})
    torch.testing.assert_close(found.q, path.q)
    assert bool((found.cost < found.history[0] + 1e-9).all())
    assert found.q[-1, 1, 1] > 0.14
    assert found.q[-1, 2, 1].abs() < 0.05


def test_no_problems_are_no_problem() -> None:
    found = reach(ILQR(arm(), still, ended), batch=0)
    assert found.controls.shape == (25, 0, 2)
    assert found.history.shape == (1, 0)


def test_costs_of_iterations_are_shown() -> None:
    shown: list[tuple[int, int]] = []
    found = reach(ILQR(arm(), still, ended), progress=lambda number, costs: shown.append((number, len(costs))))
    assert shown[0] == (0, 4)
    assert [number for number, _ in shown] == list(range(len(shown)))
    assert len(shown) > int(found.iterations.max())


def test_a_bar_is_drawn_and_an_interrupt_returns_what_there_is_where_that_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    solver = ILQR(arm(), still, ended)
    whole = reach(solver, progress=True)
    assert "of 4 problems done" in capsys.readouterr().err
    ((_, passes),) = solver._kernels.items()
    backward, calls = passes.backward, []

    def interrupted(*arguments: Any) -> Gains:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return backward(*arguments)

    monkeypatch.setattr(passes, "backward", interrupted)
    found = reach(solver, return_on_interrupt=True)
    assert not bool(found.converged.any())
    assert torch.equal(found.history, whole.history[:2])
    path = solver.sim.rollout(solver.sim.state(batch=4, dtype=F64), found.controls)
    torch.testing.assert_close(found.q, path.q)
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        reach(solver, progress=True)
    monkeypatch.setattr("adjoin.control.ilqr.iterations.concurrent_problems", lambda device: 2)
    for first_call in (0, 1):  # with two problems that have not begun, before the first gains and after
        calls[:] = [()] * (1 - first_call)
        found = reach(solver, return_on_interrupt=True)
        assert found.gain.isfinite().all()
        assert not found.gain[:, 2:].any()
        assert bool(found.gain[:, :2].any()) == bool(first_call)
        assert torch.equal(found.history[0], whole.history[0])


TARGET = {"target": PerEnvironment(torch.zeros(3, 2).double())}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "state": ({"state": torch.zeros(3, 2).double()}, "state must be one of Simulator.state"),
    "another robot": ({"state": slider().state(batch=3, dtype=torch.float64)}, r"q of the state .* \(3, 2\)"),
    "list": ({"controls": [[0.0, 0.0]]}, "controls must be a torch tensor, got a list"),
    "shape": ({"controls": torch.zeros(5, 2).double()}, r"\(steps, 3, 2\)"),
    "no steps": ({"controls": torch.zeros(0, 3, 2).double()}, r"\(steps, 3, 2\)"),
    "unknown": (
        {"tensors": {**TARGET, "goal": torch.zeros(2).double()}},
        r"no function here takes tensors\['goal'\]",
    ),
    "missing": (
        {"tensors": {}},
        "ILQR: the running cost takes 'target', which is neither a tensor of this call nor one of q, v, control",
    ),
    "number": ({"tensors": {"target": 1.0}}, r"tensors\['target'\] must be a torch tensor, got a float"),
    "batch": (
        {"tensors": {"target": PerEnvironment(torch.zeros(2, 2).double())}},
        r"must have the shape \(3, \.\.\.\)",
    ),
    "dtype": ({"tensors": {"target": PerEnvironment(torch.zeros(3, 2))}}, "one dtype and device"),
    "reserved": (
        {"tensors": {**TARGET, "control": torch.zeros(2).double()}},
        r"tensors\['control'\] has the name of something that a step has; rename it",
    ),
    "parameter": ({"params": {"weight": torch.zeros(2).double()}}, "weight"),
    "parameters": ({"params": {"mass": torch.ones(2, 2).double()}}, r"'mass' has shape \(2, 2\)"),
    "per step": (
        {"tensors": {**TARGET, "motion": PerStep(torch.zeros(5, 2).double())}},
        r"no function here takes tensors\['motion'\]",
    ),
    "too few steps": (
        {"tensors": {"target": PerStep(torch.zeros(4, 2).double())}},
        r"tensors\['target'\] must have the shape \(5, \.\.\.\), got \(4, 2\)",
    ),
    "iterations": ({"iterations": 0}, "iterations must be a whole number of at least 1, got 0"),
    "tolerance": ({"tolerance": -1.0}, "tolerance must be a number of at least 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_problem_is_said(case: str) -> None:
    solver = ILQR(arm(), still, ended)
    right = {"state": solver.sim.state(batch=3, dtype=torch.float64), "controls": torch.zeros(5, 3, 2).double()}
    wrong, message = WRONG[case]
    with pytest.raises(InputError, match=message):
        solver.solve(**{**right, "tensors": TARGET, **wrong})


def test_what_is_wrong_with_a_solver_is_said() -> None:
    sim = arm()
    with pytest.raises(InputError, match=r"must be an adjoin\.Simulator"):
        ILQR(sim.model, still)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="running cost, a terminal cost"):
        ILQR(sim)
    with pytest.raises(InputError, match="cost must be a traced function"):
        ILQR(sim, 1.0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="has no actuators"):
        ILQR(adjoin.Simulator(sim.model.with_motors([])), still)
    with pytest.raises(InputError, match="lower limits must not be above"):
        ILQR(sim, still, limits=(1.0, -1.0))
    with pytest.raises(InputError, match="each a number or 2 of them"):
        ILQR(sim, still, limits=([1.0, 2.0, 3.0], 4.0))
    tight = slider().model.actuators[0].control_range[1]
    with pytest.raises(InputError, match="outside its range"):
        ILQR(slider(), ended, limits=(2.0 * tight, 3.0 * tight))
    with pytest.raises(InputError, match="one number or a row of residuals"):
        reach(ILQR(sim, lambda q, v, control, target: np.outer(q, q - target)))


def test_why_a_problem_ended_is_told_and_none_that_stays_has_converged() -> None:
    def run(solver: ILQR, guess: torch.Tensor, **options: Any) -> ILQRResult:
        state = solver.sim.state(batch=guess.shape[1], dtype=F64)
        return solver.solve(state, guess, tensors={"target": torch.full((2,), 0.2, dtype=F64)}, **options)

    solver = ILQR(arm(), still, ended)
    guess = torch.zeros(10, 2, 2, dtype=F64)
    found = run(solver, guess)
    assert found.reason.tolist() == [StopReason.CONVERGED] * 2
    again = run(solver, found.controls)
    assert again.reason.tolist() == [StopReason.STATIONARY] * 2
    assert not bool(again.converged.any())
    assert torch.equal(again.controls, found.controls)
    assert run(solver, guess, iterations=1).reason.tolist() == [StopReason.ITERATIONS] * 2
    idle = run(ILQR(arm(), lambda q, v, control, target: 0.0 * target[0] + 1.0), guess)
    assert idle.reason.tolist() == [StopReason.NO_GRADIENT] * 2
    assert not bool(idle.converged.any())


def test_a_robot_that_touches_nothing_yet_is_told_what_to_do() -> None:
    model = adjoin.load(PUSHER).with_motors(["reach"])
    sim = adjoin.Simulator(model, dt=0.02, pairs=[("hand", "block")], limits=False)
    solver = ILQR(sim, lambda q, v, control: 0.03 * control, lambda q, v: 10.0 * (q[1:] - 0.5))
    with pytest.warns(AdjoinWarning, match="ILQR: 1 of 1 problems keep their first guess: .* nothing touches yet"):
        found = solver.solve(sim.state(torch.tensor([[0.0, 0.4]], dtype=F64)), torch.zeros(5, 1, 1, dtype=F64))
    assert found.reason.tolist() == [StopReason.NO_GRADIENT]
