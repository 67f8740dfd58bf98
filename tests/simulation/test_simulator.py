import functools
import io
import math
from contextlib import redirect_stderr

import numpy as np
import pytest
import torch
from worlds import FEET, UPRIGHT, hinge, hopper, nothing, row_of_balls, servant, simulator, tensor

import adjoin
from adjoin import PerEnvironment, progress
from adjoin.constraints.adjoints import AnticipatingAdjoint
from adjoin.constraints.pgs import PGS
from adjoin.errors import InputError, ModelError
from adjoin.simulation.simulator import Simulator
from adjoin.trace import tanh


@functools.cache
def world():
    return simulator(hopper(), 1e-3)


def zeros(*shape):
    return torch.zeros(*shape, dtype=torch.float64)


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def standing(*batch):
    """Hoppers with a foot on the ground that move."""
    sim = world()
    q = sim.model.neutral(batch, dtype=torch.float64)
    q[..., 2] = 0.2497
    return sim.state(q, 0.3 * random(*batch, sim.model.nv))


def carry(state):
    """What a step hands to the next, by name."""
    return {"q": state.q, "v": state.v, **state.memory}


# States and shapes


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_shapes(batch):
    sim, state = world(), standing(*batch)
    shapes = {"q": (*batch, 9), "v": (*batch, 8), "status": batch}
    assert {name: x.shape for name, x in carry(state).items()} == shapes
    assert state.batch == batch
    after = sim.step(state, zeros(2))
    assert {name: x.shape for name, x in carry(after).items()} == shapes
    path = sim.rollout(state, zeros(4, 2), outputs=["contacts"])
    assert {name: x.shape for name, x in carry(path).items()} == {name: (5, *shape) for name, shape in shapes.items()}
    assert path.outputs.keys() == {"contacts"}
    assert {name: x.shape for name, x in path.outputs["contacts"]._asdict().items()} == {
        "pair": (4, *batch, 5),
        "distance": (4, *batch, 5),
        "position": (4, *batch, 5, 3),
        "normal": (4, *batch, 5, 3),
        "force": (4, *batch, 5, 3),
    }
    touching = sim.contacts(state)
    for value, all_steps in zip(touching, path.outputs["contacts"], strict=True):
        assert torch.equal(value, all_steps[0])
    A, B = sim.linearize(state)
    assert A.shape == (*batch, 16, 16)
    assert B.shape == (*batch, 16, 2)


def test_a_state_is_neutral_unless_given():
    sim = world()
    state = sim.state(batch=(2, 3), dtype=torch.float64)
    assert torch.equal(state.q, sim.model.neutral((2, 3), dtype=torch.float64))
    assert not state.v.any()
    assert sim.state().q.dtype == torch.get_default_dtype()
    assert sim.state(v=zeros(5, 8)).q.shape == (5, 9)
    both = sim.state(state.q[:, :1], random(3, 8))
    assert both.q.shape == (2, 3, 9)
    assert both.v.shape == (2, 3, 8)


def test_batches_broadcast_like_torch():
    sim, state = world(), standing(2, 3)
    controls = random(6, 1, 3, 2)
    mass = 1.0 + random(2, 1, 3, seed=1).abs()
    friction = sim.model.parameters(dtype=torch.float64)["geometry_friction"] * 0.5
    whole = sim.rollout(state, controls, {"mass": mass, "geometry_friction": friction})
    for i in range(2):
        for j in range(3):
            alone = sim.rollout(
                sim.state(state.q[i, j], state.v[i, j]),
                controls[:, 0, j],
                {"mass": mass[i, 0], "geometry_friction": friction},
            )
            assert torch.equal(alone.q, whole.q[:, i, j])
    one = sim.state(state.q[0, 0], state.v[0, 0])
    wide = sim.rollout(one, controls.expand(6, 2, 3, 2))
    assert wide.q.shape == (7, 2, 3, 9)
    assert torch.equal(wide.q[:, 1, 2], sim.rollout(one, controls[:, 0, 2]).q)


def test_controls_for_all_environments():
    sim, controls = world(), random(6, 2)
    for count in (2, 3):  # two is also the number of actuators
        state = standing(count)
        shared = sim.rollout(state, controls)
        assert torch.equal(shared.q, sim.rollout(state, controls[:, None].expand(6, count, 2)).q)


def test_a_rollout_is_steps_one_after_another():
    sim, state, controls = world(), standing(3), random(20, 3, 2)
    path = sim.rollout(state, controls)
    for k in range(20):
        state = sim.step(state, controls[k])
        assert torch.equal(state.q, path.q[k + 1])
        assert torch.equal(state.v, path.v[k + 1])
    assert torch.equal(path.last.q, state.q)
    assert sim.rollout(state, controls[:0]).q.shape == (1, 3, 9)


def test_parameters_given_are_those_of_another_model():
    sim, state = world(), standing(3)
    other = sim.model.parameters(dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    for name in ("mass", "damping", "stiffness", "armature", "gravity", "geometry_size", "actuator_gain", "friction"):
        other[name] = other[name] * (
            1.0 + 0.2 * torch.rand(other[name].shape, generator=generator, dtype=torch.float64)
        )
    changed = simulator(sim.model.with_parameters(other), 1e-3)
    path = sim.rollout(state, random(50, 3, 2), {name: other[name] for name in other if name != "inertia"})
    expected = changed.rollout(state, random(50, 3, 2))
    torch.testing.assert_close(path.q, expected.q, rtol=0.0, atol=1e-12)


# Contacts


def test_contacts_of_a_block_that_rests():
    sim = simulator(adjoin.robots.load("box"), 1e-3)
    assert sim.contact_names == [("box", "ground")] * 4
    touching = sim.contacts(sim.state(tensor(0.3, 0.0, 0.1, *UPRIGHT)))
    torch.testing.assert_close(touching.distance, zeros(4), rtol=0.0, atol=1e-12)
    torch.testing.assert_close(touching.normal, tensor([0.0, 0.0, 1.0]).expand(4, 3))
    torch.testing.assert_close(touching.force.sum(0), tensor(0.0, 0.0, 9.81), rtol=1e-3, atol=1e-3)
    corners = sorted((round(x, 6), round(y, 6)) for x, y, _ in touching.position.tolist())
    assert corners == [(0.2, -0.1), (0.2, 0.1), (0.4, -0.1), (0.4, 0.1)]


def test_pairs_are_chosen_or_ignored_by_name():
    model = hopper()
    on_ground = [("foot", "ground"), *[("trunk", "ground")] * 4]
    assert Simulator(model).contact_names == [("foot", "trunk"), *on_ground]
    assert Simulator(model, self_collision=False).contact_names == on_ground
    assert Simulator(model, pairs=[("foot", "ground")]).contact_names == [("foot", "ground")]
    assert Simulator(model, ignore=[("trunk", "ground")]).contact_names == [("foot", "trunk"), ("foot", "ground")]
    assert Simulator(model, ground=False).contact_names == [("foot", "trunk")]


def test_ground_is_there_for_what_can_fall():
    assert Simulator(adjoin.robots.load("pendulum")).contact_names == []
    assert Simulator(adjoin.robots.load("pendulum"), ground=True).contact_names == [("link1", "ground")] * 2
    assert Simulator(adjoin.robots.load("ball")).contact_names == [("ball", "ground")]
    assert Simulator(row_of_balls(2, 0.1)).contact_names == [("ball0", "ball1")]


def test_a_slot_stays_though_it_cannot_move_where_the_robot_is_neutral():
    # Hanging down, the rod moves only sideways.
    sim = simulator(adjoin.robots.load("pendulum"), 1e-3, ground=True, warm=True)
    path = sim.rollout(sim.state(tensor(1.7)), steps=1000, outputs=["contacts"])
    assert path.outputs["contacts"].distance.shape == (1000, 2)
    assert path.outputs["contacts"].force[-1, :, 2].max() > 1.0


def test_a_shape_that_cannot_leave_the_ground_does_not_rub_on_it():
    sim = simulator(row_of_balls(2, 1.0), 1e-3, ground=True)
    assert sim.contact_names == [("ball0", "ball1")]
    path = sim.rollout(sim.state(v=tensor(0.5, 0.0)), nothing(100))
    torch.testing.assert_close(path.v[-1], tensor(0.5, 0.0), rtol=0.0, atol=1e-12)


def test_warm_starts_with_parameters_that_add_constraints():
    sim = simulator(hopper(), 1e-3, warm=True)
    state = sim.state(standing(3).q)
    own = sim.model.parameters(dtype=torch.float64)
    more = {"friction": own["friction"] + 0.1, "upper": own["upper"].clamp(max=2.0)}
    path = sim.rollout(state, zeros(30, 2), more)
    assert path.memory["impulses"].shape == (31, 3, 15)
    assert (path.memory["impulses"][-1, :, 0] > 0.0).all()
    assert (path.status == 0).all()
    cold = world().rollout(world().state(standing(3).q), zeros(30, 2), more)
    assert (path.q - cold.q).abs().max() < 1e-4


# Linearization


def test_a_linearization_is_that_of_finite_differences():
    sim, state, control = world(), standing(4), random(4, 2)
    mass = tensor(1.1, 0.3, 0.25)
    A, B = sim.linearize(state, control, {"mass": mass})
    nv, step = sim.model.nv, 1e-6
    after = sim.step(state, control, {"mass": mass})

    def moved(change):
        dq, dv, du = change[:nv], change[nv : 2 * nv], change[2 * nv :]
        start = state.replace(q=sim.model.integrate(state.q, dq.expand(4, nv)), v=state.v + dv)
        end = sim.step(start, control + du, {"mass": mass})
        return torch.cat([sim.model.difference(after.q, end.q), end.v], -1)

    for column, direction in enumerate(torch.eye(2 * nv + 2, dtype=torch.float64)):
        difference = (moved(step * direction) - moved(-step * direction)) / (2.0 * step)
        found = torch.cat([A, B], -1)[..., column]
        torch.testing.assert_close(found, difference, rtol=1e-6, atol=1e-6)


# Controllers and costs


def pd(q, v, control, gains):
    return gains[0] * (control - q[7:]) - gains[1] * v[6:]


def effort(next_v, control, gains):
    return (next_v * next_v).sum() + gains[0] * 1e-4 * (control * control).sum()


def step_by_step(sim, state, controls, controller, cost, params=None):
    """The same rollout and costs as a loop of torch."""
    costs = []
    for given in controls:
        control = controller(state, given)
        state = sim.step(state, control, params)
        costs.append(cost(state, control))
    return state, torch.stack(costs)


def test_a_pd_controller_and_a_cost_inside_the_rollout():
    sim, state = world(), standing(3)
    targets, mass = 0.2 * random(30, 2), tensor(1.0, 0.3, 0.2)
    found = []
    for inside in (True, False):
        leaves = [tensor(5.0, 0.2), state.v.clone(), targets.clone(), mass.clone()]
        gains, v, given, own = leaves = [leaf.requires_grad_() for leaf in leaves]
        start = sim.state(state.q, v)
        if inside:
            named = {"gains": gains}
            path = sim.rollout(start, given, {"mass": own}, controller=pd, outputs={"cost": effort}, tensors=named)
            last, costs = path.last, path.outputs["cost"]
        else:
            last, costs = step_by_step(
                sim,
                start,
                given,
                lambda s, g, gains=gains: gains[0] * (g - s.q[..., 7:]) - gains[1] * s.v[..., 6:],
                lambda s, u, gains=gains: s.v.square().sum(-1) + gains[0] * 1e-4 * u.square().sum(-1),
                {"mass": own},
            )
        assert costs.shape == (30, 3)
        gradients = torch.autograd.grad(costs.sum() + last.q.square().sum(), leaves)
        found.append([costs.detach(), last.q.detach(), *gradients])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def network(q, v, control, w1, b1, w2):
    hidden = [tanh(x) for x in w1 @ np.concatenate([q[2:], v]) + b1]
    return control + w2 @ np.array(hidden)


def test_a_network_inside_the_rollout():
    sim, state = world(), standing(3)
    shapes = {"w1": (4, 15), "b1": (4,), "w2": (2, 4)}
    found = []
    for inside in (True, False):
        weights = {name: (0.3 * random(*shape, seed=7)).requires_grad_() for name, shape in shapes.items()}
        w1, b1, w2 = weights.values()
        if inside:
            path = sim.rollout(state, zeros(40, 2), controller=network, outputs={"cost": speed}, tensors=weights)
            total = path.outputs["cost"].sum()
        else:
            _, costs = step_by_step(
                sim,
                state,
                zeros(40, 2),
                lambda s, g, w1=w1, b1=b1, w2=w2: torch.tanh(torch.cat([s.q[..., 2:], s.v], -1) @ w1.T + b1) @ w2.T + g,
                lambda s, u: s.v.square().sum(-1),
            )
            total = costs.sum()
        found.append([total.detach(), *torch.autograd.grad(total, list(weights.values()))])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def speed(next_v):
    return (next_v * next_v).sum()


def test_what_a_controller_takes_may_be_one_per_environment():
    sim, state = world(), standing(3)
    goal = random(3, 2).requires_grad_()

    def toward(q, control, goal, gain):
        return gain * (goal - q[7:]) + control

    gain = tensor(4.0).reshape(()).requires_grad_()
    named = {"goal": PerEnvironment(goal), "gain": gain}
    path = sim.rollout(state, zeros(10, 2), controller=toward, tensors=named)
    (slope,) = torch.autograd.grad(path.q[-1, 1].sum(), goal)
    assert slope[1].any()
    assert not slope[[0, 2]].any()
    alone = sim.rollout(state[2], zeros(10, 2), controller=toward, tensors={"goal": goal[2], "gain": gain})
    assert torch.equal(alone.q, path.q[:, 2])


def test_what_a_controller_is_given_may_have_any_shape():
    sim, state = world(), standing(3)

    def pick(control):
        return control[1, :2]

    given = random(5, 3, 2, 4)
    found = sim.rollout(state, given, controller=pick)
    assert torch.equal(found.q, sim.rollout(state, given[:, :, 1, :2]).q)


# Real robots at once


def test_quadrupeds_in_float32_stay_near_those_in_float64():
    model = servant("go2", 100.0, 4.0)
    sim = simulator(model, 2e-3, FEET["go2"])
    home = tensor(*model.keyframe("home").q)
    paths = []
    for dtype in (torch.float64, torch.float32):
        q = home.to(dtype).expand(64, -1)
        paths.append(sim.rollout(sim.state(q), q[0, 7:].expand(250, -1)))
        assert (paths[-1].status == 0).all()
    assert (paths[0].q - paths[1].q).abs().max() < 1e-3


# Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_progress_bar_says_how_far_it_is(monkeypatch):
    monkeypatch.setattr(progress, "REDRAW_INTERVAL", -1.0)
    sim = simulator(hinge(), 1e-3)
    shown = Terminal()
    with redirect_stderr(shown):
        sim.rollout(sim.state(batch=2, dtype=torch.float64), zeros(200, 1), progress=True)
    lines = shown.getvalue().split("\r")
    assert [done for done in range(2, 201, 2) if not any(f" {done}/200 [" in line for line in lines)] == []
    assert "steps/s" in lines[50]
    assert lines[-1].startswith("100%|")
    assert lines[-1].endswith("\n")
    quiet = io.StringIO()
    with redirect_stderr(quiet):
        sim.rollout(sim.state(batch=2, dtype=torch.float64), zeros(200, 1))
    assert quiet.getvalue() == ""


@pytest.mark.parametrize("every", [1, 7])
def test_an_interrupt_is_raised_from_a_rollout_with_a_progress_bar(monkeypatch, every):
    monkeypatch.setattr(progress, "REDRAW_INTERVAL", -1.0)
    sim, control = simulator(hinge(), 1e-3), random(700, 1)
    seen = []

    class Impatient(Terminal):
        def write(self, text):
            seen.append(text)
            if "350/700" in text:
                raise KeyboardInterrupt  # what Ctrl-C does, unless the shell ignores it for a background job
            return super().write(text)

    with redirect_stderr(Impatient()), pytest.raises(KeyboardInterrupt):
        sim.rollout(sim.state(v=tensor(1.0)), control, every=every, progress=True)
    assert not any("700/700" in text for text in seen)


def test_an_interrupt_without_a_progress_bar_is_an_interrupt(monkeypatch):
    sim = simulator(hinge(), 1e-3)
    state = sim.state(batch=2, dtype=torch.float64)
    sim.rollout(state, zeros(3, 1))

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("adjoin.simulation.rolled.RolledOut.call_prepared", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sim.rollout(state, zeros(3, 1))


# Messages


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.state(zeros(3, 8)), r"state of 'hopper': 'q' must have the shape \(..., 9\), got \(3, 8\)"),
        (lambda s: s.state(v=zeros(3, 9)), r"state of 'hopper': 'v' must have the shape \(..., 8\), got \(3, 9\)"),
        (lambda s: s.state(zeros(3, 9), zeros(2, 8)), r"batch shapes of q and v do not broadcast: \(3,\) and \(2,\)"),
        (lambda s: s.step(standing(3), zeros(3, 5)), r"'control' must have the shape \(..., 2\), got \(3, 5\)"),
        (lambda s: s.step(standing(3), zeros(3, 2).float()), r"one dtype.*'control' is torch.float32"),
        (lambda s: s.step(standing(3), params={"masses": zeros(3)}), r"no parameter 'masses'; parameters: mass, com"),
        (lambda s: s.step(standing(3), params={"mass": zeros(2)}), r"'mass' has shape \(2,\); it needs \(..., 3\)"),
        (
            lambda s: s.rollout(standing(3), zeros(4, 3, 5)),
            r"\(steps, ..., 2\), got \(4, 3, 5\) for states of the batch",
        ),
        (lambda s: s.rollout(standing(3), zeros(2)), r"\(steps, ..., 2\), got \(2,\)"),
        (lambda s: s.rollout(standing(3), [0.0]), r"controls must be a torch tensor, got list"),
        (lambda s: s.rollout(standing(3), zeros(4, 2, 2)), r"do not broadcast: 'q' \(3,\).*'control' \(2,\)"),
        (lambda s: s.rollout(standing(3), zeros(4, 2).float()), r"one dtype.*'control' is torch.float32"),
        (lambda s: s.rollout(standing(3), zeros(4, 2), {"mass": zeros(3).float()}), r"one dtype.*mass.*torch.float32"),
        (lambda s: s.rollout(standing(3).replace(q=zeros(3, 8)), zeros(4, 2)), r"'q' must have the shape \(..., 9\)"),
        (lambda s: s.rollout(standing(3), zeros(4, 2), every=0), r"every must be a whole number of at least 1, got 0"),
        (
            lambda s: s.rollout(standing(3), zeros(4, 2), controller=lambda control: control[:1]),
            r"the controller returned \(1,\); a control is \(2,\)",
        ),
        (
            lambda s: s.rollout(standing(3), zeros(4, 2), {"terrain": zeros(2, 2)}),
            r"'terrain' is not a parameter of this simulator",
        ),
        (lambda s: s.reset(standing(3), torch.ones(3)), r"mask must be of booleans, \(3,\); got torch.float32"),
        (lambda s: s.reset(standing(3), torch.ones(2, dtype=torch.bool)), r"mask must be of booleans, \(3,\); got"),
        (lambda _: Simulator("go2"), r"the model must be an adjoin.Model, got a str"),
        (lambda _: Simulator(hopper(), dt=0.0), r"dt must be a positive number of seconds, got 0.0"),
        (lambda _: Simulator(hopper(), dt=-1e-3), r"dt must be a positive number of seconds, got -0.001"),
        (lambda _: Simulator(hopper(), dt=math.nan), r"dt must be a positive number of seconds, got nan"),
        (lambda _: Simulator(hopper(), contact="pgs"), r"contact must be a solver such as PGS\(\), got 'pgs'"),
        (lambda _: Simulator(hopper(), pairs=[("feet", "ground")]), r"no shape 'feet'; shapes: foot, trunk, ground"),
        (lambda _: Simulator(hopper(), ignore=["foot"]), r"ignored must be pairs of names"),
        (lambda _: PGS(iterations=0), r"iterations must be a whole number of at least 1, got 0"),
        (lambda _: PGS(restitution=1.5), r"restitution must be between 0 and 1, got 1.5"),
        (lambda _: PGS(softness=-1.0), r"softness must not be negative, got -1.0"),
        (lambda _: AnticipatingAdjoint(reach=0.0), r"reach must be positive, got 0.0"),
    ],
)
def test_messages(call, message):
    with pytest.raises(InputError, match=message):
        call(world())


def test_a_model_without_actuators_takes_no_control():
    sim = simulator(adjoin.robots.load("ball"), 1e-3)
    state = sim.state(batch=3, dtype=torch.float64)
    assert torch.equal(sim.step(state, zeros(3, 0)).q, sim.rollout(state, nothing(1)).q[1])
    with pytest.raises(InputError, match=r"'control' must have the shape \(..., 0\), got \(3, 4\)"):
        sim.step(state, zeros(3, 4))


def test_a_rollout_of_what_cannot_move_is_refused():
    sim = adjoin.Simulator(adjoin.load('<robot name="rock"><link name="a"/></robot>'), 1e-3, pairs=[])
    with pytest.raises(InputError, match="nothing of 'rock' moves; load it with floating_base=True"):
        sim.rollout(sim.state(), torch.zeros(3, 0))


def test_a_state_may_be_a_key_frame():
    sim = simulator(adjoin.robots.load("go2"), 1e-3)
    home = sim.model.keyframe("home")
    many = sim.state("home", batch=3, dtype=torch.float64)
    assert many.q.shape == (3, 19)
    assert many.q[1].tolist() == list(home.q)
    assert many.v[1].tolist() == list(home.v)
    moving = sim.state("home", torch.ones(2, 18, dtype=torch.float64))
    assert moving.q.shape == (2, 19)
    assert moving.v.min() == 1.0
    assert sim.state("home").q.dtype == torch.float32
    with pytest.raises(ModelError, match="home"):
        sim.state("hone")


def test_a_model_without_actuators_is_told_how_to_get_some():
    sim = simulator(adjoin.robots.load("ball"), 1e-3)
    with pytest.raises(InputError, match=r"it has no actuators: with_motors\(\) and with_servos\(\) give it some"):
        sim.rollout(sim.state(), torch.zeros(5, 1))
