import functools
import gc
import sys
import warnings
import weakref

import pytest
import torch
from worlds import UPRIGHT, frictions, hinge, nothing, tensor

import adjoin
from adjoin.constraints.compliant import Compliant
from adjoin.constraints.pgs import PGS
from adjoin.errors import InputError, UnsettledWarning
from adjoin.simulation.diagnostics import Diagnostics
from adjoin.simulation.integrators import RK4
from adjoin.simulation.simulator import Simulator
from adjoin.simulation.step import STAGES


@functools.cache
def ball(contact):
    return Simulator(adjoin.robots.load("ball"), 1e-3, contact)


@functools.cache
def wheel():
    return Simulator(hinge(1e-3))


def thrown(heights, speed=1.0):
    q = tensor(0.0, 0.0, 0.1, *UPRIGHT).repeat(len(heights), 1)
    q[:, 2] += tensor(*heights)
    return q, tensor(speed, *[0.0] * 5).repeat(len(heights), 1)


def cost(next_q, goal):
    return (next_q[0] - goal) * (next_q[0] - goal)


def loss(path):
    return path.outputs["cost"].sum() + path.v[20].square().sum() + path.q[-1, :, 0].sum()


def test_the_adjoint_is_that_of_autograd_step_by_step():
    sim, steps = ball(PGS()), 40
    start = sim.state(*thrown([0.002, 0.1]))
    goal = tensor(0.3)[0]
    found = sim.diagnose(start, nothing(steps), loss, outputs={"cost": cost}, tensors={"goal": goal})
    states = [start]
    for _ in range(steps):
        states.append(sim.step(states[-1].detach()))
    adjoint = [torch.zeros_like(start.q), torch.zeros_like(start.v)]
    for t in reversed(range(steps + 1)):
        if t < steps:
            before = [states[t].q.detach().requires_grad_(), states[t].v.detach().requires_grad_()]
            after = sim.step(states[t].replace(q=before[0], v=before[1]))
            adjoint = list(torch.autograd.grad([after.q, after.v], before, adjoint))
        if t > 0:
            adjoint[0][:, 0] += 2.0 * (states[t].q.detach()[:, 0] - goal) + (1.0 if t == steps else 0.0)
        if t == 20:
            adjoint[1] += 2.0 * states[t].v.detach()
        norm = torch.cat(adjoint, -1).norm(dim=-1)
        torch.testing.assert_close(found.adjoint[t], norm, rtol=1e-10, atol=1e-12)
    assert found.adjoint.shape == (steps + 1, 2)


@pytest.mark.parametrize("contact", [PGS(), PGS(elliptic=True), Compliant()])
def test_modes_are_open_then_slipping_then_holding(contact):
    sim = ball(contact)
    start = sim.state(*thrown([0.005, 1.0], 0.3))
    found = sim.diagnose(start, nothing(300), lambda path: path.q.sum(), frictions(sim, 0.1, 0.1))
    for modes, changed in zip(found.modes[..., 0].unbind(1), found.changed.unbind(1), strict=True):
        steps = modes.diff().nonzero()[:, 0] + 1
        assert torch.equal(changed.nonzero()[:, 0], steps)
    order = list(dict.fromkeys(found.modes[:, 0, 0].tolist()))
    assert order == [0, 2, 1]
    assert (found.modes[:, 1] == 0).all()
    assert not found.changed[:, 1].any()
    assert (found.fault == -1).all()
    assert (found.fault_step == -1).all()


def test_the_solver_says_how_far_it_got():
    found = {}
    for iterations, as_list in ((1, False), (1, True), (200, True)):
        sim = Simulator(adjoin.robots.load("box"), 1e-3, PGS(iterations=iterations, softness=1e-3), as_list=as_list)
        start = sim.drop(tensor(0.0, 0.0, 1.0, 1.0, 0.002, 0.001, 0.0)).replace(v=tensor(0.3, 0.1, -0.5, 0.2, 0.1, 0.0))
        path = sim.rollout(start, steps=5, outputs=["solver_residual"])
        found[iterations, as_list] = path.outputs["solver_residual"][0].item()
    assert found[1, True] > 0.01
    assert found[1, False] == pytest.approx(found[1, True], rel=1e-9)
    assert found[200, True] < 1e-9


def test_diagnostics_tell_the_residual():
    sim = ball(PGS())
    start = sim.state(*thrown([0.002, 0.1]))
    report = sim.diagnose(start, nothing(40), lambda path: path.q.sum())
    path = sim.rollout(start, nothing(40), outputs=["solver_residual"])
    assert torch.equal(report.residual, path.outputs["solver_residual"])
    assert report.residual.shape == (40, 2)
    assert f"{report.residual[:, 0].max().item():8.2e}" in str(report)


def test_newton_says_how_far_it_got():
    residuals = []
    for iterations in (1, 30):
        sim = Simulator(adjoin.robots.load("box"), 1e-3, adjoin.Newton(iterations=iterations))
        start = sim.drop(tensor(0.0, 0.0, 1.0, 1.0, 0.002, 0.001, 0.0)).replace(v=tensor(0.3, 0.1, -0.5, 0.2, 0.1, 0.0))
        path = sim.rollout(start, steps=3, outputs=["solver_residual"])
        residuals.append(path.outputs["solver_residual"].max().item())
    assert residuals[0] > 1e-4
    assert residuals[1] < 1e-9
    free = Simulator(adjoin.robots.load("pendulum"), 1e-3, integrator=RK4(), limits=False)
    assert free.rollout(free.state(), steps=1, outputs=["solver_residual"]).outputs["solver_residual"].item() == 0.0


def test_joint_limits_and_joint_friction_have_modes():
    sim = Simulator(hinge(0.5, upper=0.01, friction=(1.0,)))
    torque = tensor(0.5, 3.0)[:, None].expand(200, 2, 1)
    modes = sim.diagnose(sim.state(batch=2, dtype=torch.float64), torque, lambda path: path.q.sum()).modes
    assert modes.shape == (200, 2, 2)
    assert (modes[:, 0] == torch.tensor([0, 1])).all()
    assert modes[0, 1].tolist() == [0, 2]
    assert modes[-1, 1, 0] == 1


def faulty(name):
    """A wheel that goes well, and one in which something is not finite from step 3 on, or from the beginning."""
    q, v, control = torch.zeros(2, 1), torch.zeros(2, 1), torch.zeros(6, 2, 1)
    round_ = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0, 1.0])
    params = {"armature": torch.zeros(2, 1), "inertia": 1e-3 * round_.repeat(2, 1, 1)}
    if name == "state":
        q[1] = torch.inf
    if name == "control":
        control[3, 1] = torch.nan
    if name == "parameters":
        params["armature"][1] = torch.nan
    if name == "forces":
        control[3, 1] = 3e38
        params["actuator_gain"] = torch.tensor([[1.0], [10.0]])
    if name == "inertia":
        params["armature"][1], params["inertia"][1] = 3e38, 3e38 * round_
    if name == "velocity":
        control[3, 1] = 3e38
        params["armature"][1], params["inertia"][1] = 1e-20, 1e-20 * round_
    return q, v, control, params


@pytest.mark.parametrize("name", ["state", "control", "parameters", "forces", "inertia", "velocity"])
def test_the_first_number_that_is_not_finite_is_found(name):
    sim = wheel()
    q, v, control, params = faulty(name)
    found = sim.diagnose(sim.state(q, v), control, lambda path: path.q[-1].sum() + path.v.sum(), params)
    assert found.fault[0] == found.fault_step[0] == -1
    assert STAGES[found.fault[1]] == name
    assert found.fault_step[1] == (3 if name in ("control", "forces", "velocity") else 0)
    assert found.status[-1].tolist() == [0, 1]
    assert found.adjoint.isfinite().all()
    line = next(line for line in str(found).splitlines() if line.split()[0] == "1")
    assert line.endswith(f"{name} not finite in step {found.fault_step[1]}")
    assert "6 steps of 2 environments, 1 of them stopped by a fault" in str(found)


def test_limits_may_be_infinite():
    sim = wheel()
    params = {"upper": torch.tensor([torch.inf])}
    found = sim.diagnose(sim.state(batch=1), torch.zeros(3, 1, 1), lambda path: path.q.sum(), params)
    assert found.fault == -1


def test_what_explodes_is_no_fault_of_a_number():
    sim = wheel()
    found = sim.diagnose(sim.state(tensor(0.0)), tensor(1e12).expand(4, 1), lambda path: path.q.sum())
    assert found.status.tolist() == [0, 2, 2, 2, 2]
    assert found.fault == -1
    assert "moves too fast or too far" in str(found)


def test_rollouts_have_the_same_bits_and_no_more_outputs():
    sim = ball(PGS())
    start = sim.state(*thrown([0.005]))
    seen = []
    sim.diagnose(start, nothing(50), lambda path: seen.append(path) or path.q.sum(), outputs=["contacts"])
    path = sim.rollout(start, nothing(50), outputs=["contacts"])
    assert torch.equal(seen[0].q, path.q)
    assert torch.equal(seen[0].v, path.v)
    assert seen[0].outputs.keys() == path.outputs.keys()


def test_controllers_and_systems_without_constraints():
    sim = Simulator(hinge(0.5), 1e-2, limits=False, integrator=RK4())
    found = sim.diagnose(
        sim.state(tensor(0.3)),
        torch.zeros(100, 1, dtype=torch.float64),
        lambda path: path.q[-1].square().sum(),
        controller=lambda q, v, gains: [-gains[0] * q[0] - gains[1] * v[0]],
        tensors={"gains": tensor(10.0, 4.0)},
    )
    assert found.modes.shape == (100, 0)
    assert not found.changed.any()
    assert found.adjoint[0] < found.adjoint[-1]


def test_a_summary_names_the_environments_with_the_greatest_adjoints():
    sim = ball(PGS())
    q, v = thrown([0.001 * i for i in range(15)])
    weights = torch.arange(15.0, dtype=torch.float64)
    found = sim.diagnose(sim.state(q, v), nothing(10), lambda path: (weights * path.q[-1, :, 0]).sum())
    lines = str(found).splitlines()
    assert [int(line.split()[0]) for line in lines[2:-1]] == list(range(14, 4, -1))
    assert lines[-1] == "... 5 more"


def test_a_summary_of_no_steps():
    none, once = torch.zeros(0, 2), torch.zeros(1, 2)
    found = Diagnostics(once, once, torch.zeros(0, 2, 0), none, none, torch.full((2,), -1), torch.full((2,), -1))
    assert str(found).startswith("0 steps of 2 environments, 0 of them stopped")


def test_plot():
    pytest.importorskip("matplotlib")
    sim = ball(PGS())
    figure = sim.diagnose(sim.state(*thrown([0.005, 0.1])), nothing(60), lambda path: path.q.sum()).plot()
    (axes,) = figure.axes
    assert len(axes.lines) == 4
    assert axes.lines[0].get_xdata().size == 61


def test_plot_without_matplotlib_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    sim = ball(PGS())
    found = sim.diagnose(sim.state(*thrown([0.005])), nothing(5), lambda path: path.q.sum())
    with pytest.raises(InputError, match=r"needs matplotlib: pip install \'adjoin\[plot\]\'"):
        found.plot()


@pytest.mark.parametrize("bad", [lambda path: path.q, lambda path: 1.0, lambda path: torch.zeros(())])
def test_a_loss_is_one_number(bad):
    sim = ball(PGS())
    with pytest.raises(InputError, match="the loss must be one number that depends on the trajectory"):
        sim.diagnose(sim.state(*thrown([0.005])), nothing(5), bad)


def dropped(contact):
    """A simulator of a box, and a state of one that slides on its face and one that falls on an edge."""
    sim = Simulator(adjoin.robots.load("box"), 1e-3, contact)
    q = tensor(0.0, 0.0, 0.1, *UPRIGHT).repeat(2, 1)
    q[1, 2:] = tensor(0.16, 0.92, 0.39, 0.0, 0.0)
    return sim, sim.state(q, tensor(0.3, 0.0, -1.0, 0.5, 0.5, 0.0).repeat(2, 1))


@pytest.mark.parametrize("call", ["step", "rollout"])
def test_an_implicit_gradient_through_an_unsettled_solve_is_warned_of_once(call):
    sim, state = dropped(PGS(iterations=2, adjoint=adjoin.ImplicitAdjoint()))

    def backward():
        start = state.replace(v=state.v.detach().requires_grad_())
        last = sim.step(start) if call == "step" else sim.rollout(start, steps=30).last
        last.v.sum().backward()

    with torch.no_grad():
        sim.step(state)
    with pytest.warns(UnsettledWarning, match=r"in [12] of 2 environments.*UnrolledAdjoint") as said:
        backward()
    assert [warning.filename for warning in said] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backward()


@pytest.mark.parametrize("call", ["step", "rollout"])
@pytest.mark.parametrize(
    "adjoint", [adjoin.ImplicitAdjoint(), adjoin.UnrolledAdjoint()], ids=["watched", "not watched"]
)
def test_nothing_of_a_call_is_kept_when_its_results_are_gone(call, adjoint):
    sim, state = dropped(PGS(iterations=2, adjoint=adjoint))
    gc.disable()
    try:
        start = state.replace(q=state.q.clone(), v=state.v.clone().requires_grad_())
        result = sim.step(start) if call == "step" else sim.rollout(start, steps=3)
        kept = [weakref.ref(x) for x in (start.q, start.v, result.q, result.v)]
        result.v.sum().backward()
        del start, result
        assert [x() for x in kept] == [None] * 4
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "contact", [PGS(iterations=2), PGS(iterations=400, adjoint=adjoin.ImplicitAdjoint())], ids=["unrolled", "settled"]
)
def test_other_gradients_are_not_warned_of(contact):
    sim, state = dropped(contact)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sim.step(state.replace(v=state.v.requires_grad_())).v.sum().backward()
    assert not sim._convergence.pending
