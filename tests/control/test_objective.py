from typing import Any

import numpy as np
import pytest
import torch
from problems import EFFORT, LIMIT, SIM, STEPS, TIGHT, arrive, cart, cart_squares, effort, optimum, start, two_links

import adjoin
from adjoin import PerEnvironment, PerStep
from adjoin.control.ilqr import ILQR
from adjoin.control.objective import Objective
from adjoin.control.variables import Controls, ModuleParameters, Spline, Variables, b_spline
from adjoin.errors import InputError
from adjoin.learn.modules import Positive
from adjoin.learn.parameters import Parameters

TWO = two_links()
BALL = adjoin.Simulator(adjoin.robots.load("ball"), dt=2e-3)


def differences(function, point, step=1e-6):
    sides = [(function(point + step * x) - function(point - step * x)) / (2.0 * step) for x in torch.eye(len(point.T))]
    return torch.stack(sides, -1)


def torque(control):
    return 1e-2 * (control @ control)


def upright(q, v, goal):
    return (q - goal) @ (q - goal) + 0.1 * (v @ v)


def servo(q, v, control, gains):
    return gains * (control - q) - 0.5 * v


def masses():
    learned = Parameters(TWO.model, dtype=torch.float64)
    learned.learn("mass", Positive(torch.tensor([1.2, 0.8]).double()))
    return learned.learn("damping", Positive(torch.tensor(0.3).double()))


def objectives():
    goal = {"goal": torch.tensor([1.0, 0.5]).double()}
    begin = TWO.state(torch.tensor([0.3, -0.2]).double())
    gains = Variables([3.0, 2.0], lambda x: {"tensors": {"gains": x}})
    still = torch.full((15, 2), 0.5).double()

    def tip(path, inputs):
        return (path.q[1:, :, 0] * inputs.controls[..., 1]).sum(0) ** 2

    def far(path, inputs):
        return torch.cat([path.q[-1] - 1.0, path.v[7]], -1)

    def thrown(x):
        v = torch.cat([x.new_zeros(len(x), 3), x[:, :1], x.new_zeros(len(x), 1), x[:, 1:]], -1)[:, [3, 4, 5, 0, 1, 2]]
        q = BALL.model.neutral((len(x),), dtype=x.dtype) + torch.tensor([0.0, 0.0, 0.12, 0.0, 0.0, 0.0, 0.0])
        return {"state": BALL.state(q, v)}

    def landed(path, inputs):
        return (path.q[-1, :, 0] - 0.4) ** 2 + path.v[-1, :, 4] ** 2

    some = TWO.state(torch.tensor([[0.3, -0.2], [0.1, 0.4], [0.0, 0.0]]).double())
    masses_of = {"mass": torch.tensor([[1.0, 1.0], [1.2, 0.9], [0.7, 1.4]]).double()}

    return {
        "scenarios": Objective(
            TWO, some, 15, cost=torque, terminal=upright, tensors=goal, variables=Spline(5), params=masses_of
        ),
        "scenarios of residuals": Objective(
            TWO, begin, 15, loss=tip, residuals=far, variables=Spline(3, 1), params=masses_of
        ),
        "controls": Objective(TWO, begin, 15, cost=torque, terminal=upright, tensors=goal),
        "spline": Objective(TWO, begin, 15, cost=torque, loss=tip, variables=Spline(5)),
        "residuals": Objective(TWO, begin, 15, cost=torque, residuals=far, variables=Spline(4, degree=1)),
        "learned": Objective(TWO, begin, 15, residuals=far, variables=ModuleParameters(masses()), controls=still),
        "together": Objective(
            TWO, begin, 15, cost=torque, terminal=upright, tensors=goal, controller=servo, variables=[Spline(5), gains]
        ),
        "contact": Objective(
            BALL, BALL.state(dtype=torch.float64), 60, loss=landed, variables=Variables([2.0, -1.0], thrown)
        ),
    }


@pytest.mark.parametrize("name", objectives())
def test_gradients_are_those_of_finite_differences(name):
    objective = objectives()[name]
    point = objective.box.start + 0.3 * objective.random(3, seed=1)
    losses, gradients = objective.gradients(point)
    expected = differences(objective.losses, point)
    assert gradients.abs().amax() > 1e-2
    torch.testing.assert_close(gradients, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(losses, objective.losses(point), rtol=0.0, atol=0.0)


@pytest.mark.parametrize("name", ["learned", "residuals", "scenarios of residuals"])
def test_jacobians_are_those_of_finite_differences(name):
    objective = objectives()[name]
    point = objective.random(3, seed=1)
    values, slopes = objective.jacobians(point)
    torch.testing.assert_close(values, objective.residuals(point))
    torch.testing.assert_close(slopes, differences(objective.residuals, point), rtol=1e-6, atol=1e-7)


def test_jacobians_of_many_numbers_come_in_pieces(monkeypatch):
    point = cart_squares().random(5)
    whole = cart_squares().jacobians(point)
    monkeypatch.setattr("adjoin.control.objective.MAX_ENVIRONMENTS", 2 * STEPS)
    pieces = cart_squares().jacobians(point)
    torch.testing.assert_close(pieces, whole, rtol=0.0, atol=0.0)


def test_loss_is_the_sum_of_its_parts():
    best, least = optimum()
    assert float(cart().losses(best[None])) == pytest.approx(least, rel=1e-10)
    assert float(cart_squares().losses(best[None])) == pytest.approx(0.5 * least, rel=1e-10)


def test_a_cost_may_return_residuals_of_which_half_the_squares_count():
    point = cart().random(3)
    rows = Objective(
        SIM,
        start(SIM),
        STEPS,
        cost=lambda control: (2.0 * EFFORT) ** 0.5 * control,
        terminal=lambda q, v: [200.0**0.5 * (q[0] - 1.0), 200.0**0.5 * v[0]],
    )
    torch.testing.assert_close(rows.losses(point), cart().losses(point), rtol=1e-13, atol=0.0)
    torch.testing.assert_close(rows.gradients(point)[1], cart().gradients(point)[1], rtol=1e-11, atol=1e-11)


def test_a_running_cost_is_of_the_states_before_the_steps_like_that_of_ilqr():
    def before(q, v, control):
        return np.concatenate([q - 1.0, 0.3 * v, 0.1 * control])

    def after(next_q, next_v):
        return np.concatenate([next_q - 1.0, 0.3 * next_v])

    objective = Objective(SIM, start(SIM), STEPS, cost=before)
    controls = objective.random(1)
    path = objective.rollout(controls[0])
    squares = (path.q - 1.0).square().sum(-1) + 0.09 * path.v.square().sum(-1)
    expected = 0.5 * (squares[:-1] + 0.01 * controls[0].square())
    torch.testing.assert_close(path.outputs["cost"], expected)
    torch.testing.assert_close(objective.losses(controls)[0], expected.sum())
    later = Objective(SIM, start(SIM), STEPS, cost=after).rollout(controls[0])
    torch.testing.assert_close(later.outputs["cost"], 0.5 * squares[1:])
    found = ILQR(SIM, before, limits=False).solve(start(SIM), torch.zeros(STEPS, 1).double())
    torch.testing.assert_close(objective.losses(found.controls.mT)[0], found.cost, rtol=1e-12, atol=0.0)
    assert objective.gradients(found.controls.mT)[1].abs().max() < 1e-6


def test_a_failed_simulation_costs_infinity_and_leaves_the_others_alone():
    objective = cart()
    point = objective.random(3)
    expected = objective.gradients(point)
    point[1, 4] = 1e9
    losses, gradients = objective.gradients(point)
    assert losses[1] == torch.inf
    assert not gradients[1].any()
    assert torch.equal(losses[[0, 2]], expected[0][[0, 2]])
    assert torch.equal(gradients[[0, 2]], expected[1][[0, 2]])


def test_limits_are_the_actuators_and_random_starts_are_within():
    objective = cart(TIGHT, Spline(6, start=2.0))
    assert objective.box.lower.eq(-LIMIT).all()
    assert objective.box.upper.eq(LIMIT).all()
    assert objective.box.start.eq(LIMIT).all()
    assert objective.box.spread.eq(LIMIT).all()
    starts = objective.random(200)
    assert starts.amin() >= -LIMIT
    assert starts.amax() <= LIMIT
    assert starts.amin(0).lt(0.1).all()
    assert not torch.equal(starts, objective.random(200, seed=1))
    controls = objective.inputs(starts).controls
    assert controls.abs().amax() <= LIMIT + 1e-12


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_splines_add_up_to_one_and_meet_their_ends(degree):
    basis = b_spline(41, 7, degree)
    assert basis.amin() >= 0.0
    torch.testing.assert_close(basis.sum(1), torch.ones(41).double())
    assert basis[0, 0] == 1.0
    assert basis[-1, -1] == 1.0


def test_splines_of_cubics_are_smooth_and_of_lines_straight():
    line = b_spline(13, 7, 1)
    torch.testing.assert_close(line[1], torch.tensor([0.5, 0.5, 0, 0, 0, 0, 0]).double())
    cubic = b_spline(2001, 7, 3)
    bend = cubic[2:] - 2.0 * cubic[1:-1] + cubic[:-2]
    assert (bend[1:] - bend[:-1]).abs().amax() < 0.01 * bend.abs().amax()


def test_learned_takes_its_start_from_the_module_and_gives_back_what_was_found():
    learned = masses()
    variables = ModuleParameters(learned)
    objective = Objective(
        TWO, TWO.state(torch.zeros(2).double()), 5, residuals=lambda p, i: p.q[-1], variables=variables
    )
    torch.testing.assert_close(objective.inputs(objective.box.start[None]).params["mass"][0], learned()["mass"])
    variables.assign(objective.box.start + 1.0)
    torch.testing.assert_close(learned()["mass"], torch.tensor([1.2, 0.8]).double() * torch.e)
    assert objective.inputs(objective.box.start[None]).params["damping"].amax() < 0.31


def test_the_loss_in_scenarios_is_the_mean_of_the_losses_in_each():
    objective = objectives()["scenarios"]
    point = objective.random(2)
    alone = [
        Objective(
            TWO,
            objective.start[k],
            15,
            cost=torque,
            terminal=upright,
            tensors=objective.tensors,
            variables=Spline(5),
            params={"mass": objective.params["mass"][k]},
        )
        for k in range(3)
    ]
    torch.testing.assert_close(objective.losses(point), torch.stack([each.losses(point) for each in alone]).mean(0))
    path = objective.rollout(point)
    assert path.q.shape == (16, 2, 3, 2)
    torch.testing.assert_close(path.q[:, 1, 2], alone[2].rollout(point[1]).q)
    assert objective.rollout(point[0]).outputs["cost"].shape == (15, 3)
    far = objectives()["scenarios of residuals"]
    assert far.residuals(far.random(2)).shape == (2, 12)


GOALS = {
    "shared": (torch.tensor([0.3]), lambda x: x, lambda x, i: x),
    "per scenario": (torch.tensor([[0.3], [-0.4], [1.0]]), PerEnvironment, lambda x, i: x[i]),
    "per step": (torch.linspace(-1.0, 1.0, STEPS)[:, None], PerStep, lambda x, i: PerStep(x)),
    "per step and scenario": (
        torch.linspace(-1.0, 1.0, 3 * STEPS).reshape(STEPS, 3, 1),
        lambda x: PerStep(PerEnvironment(x)),
        lambda x, i: PerStep(x[:, i]),
    ),
}


@pytest.mark.parametrize("layout", GOALS)
@pytest.mark.parametrize("more", [{}, {"mass": torch.tensor([[1.0], [1.2], [0.7]]).double()}], ids=["", "masses"])
def test_named_tensors_may_differ_between_steps_and_scenarios(layout, more):
    goal, mark, part = GOALS[layout]
    goal = goal.double()

    def near(q, goal):
        return q - goal

    whole = Objective(SIM, start(SIM), STEPS, cost=near, tensors={"goal": mark(goal)}, params=more)
    point = whole.random(2)
    alone = [
        Objective(
            SIM,
            start(SIM),
            STEPS,
            cost=near,
            tensors={"goal": part(goal, i)},
            params={name: value[i] for name, value in more.items()},
        )
        for i in range(3)
    ]
    assert whole.scenario_count == (3 if more or "scenario" in layout else 1)
    expected = torch.stack([each.losses(point) for each in alone]).mean(0)
    torch.testing.assert_close(whole.losses(point), expected, rtol=1e-12, atol=0.0)


def test_costs_may_be_modules_and_outputs_may_take_tensors():
    class Near(torch.nn.Module):
        def forward(self, q, goal):
            return (q - goal) @ (q - goal)

    goal, point = {"goal": torch.tensor([0.3]).double()}, cart().random(2)
    cost = Objective(SIM, start(SIM), STEPS, cost=Near(), tensors=goal)
    plain = Objective(SIM, start(SIM), STEPS, cost=lambda q, goal: (q - goal) @ (q - goal), tensors=goal)
    assert torch.equal(cost.losses(point), plain.losses(point))
    watched = Objective(
        SIM, start(SIM), STEPS, loss=lambda p, i: p.outputs["near"].sum(0), outputs={"near": Near()}, tensors=goal
    )
    torch.testing.assert_close(watched.losses(point), plain.losses(point))
    ends = Objective(SIM, start(SIM), STEPS, terminal=Near(), tensors=goal)
    path = ends.rollout(point)
    torch.testing.assert_close(ends.losses(point), (path.q[-1, :, 0] - 0.3).square())


def test_a_decision_that_fails_in_one_scenario_costs_infinity():
    reach = {"mass": torch.tensor([[1.0], [1e-9]]).double()}
    objective = Objective(SIM, start(SIM), 3, loss=lambda p, i: p.q[-1, :, 0] ** 2, params=reach)
    losses, gradients = objective.gradients(torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]).double())
    assert losses.tolist() == [torch.inf, 0.0]
    assert not gradients.any()


def test_errors_of_scenarios_say_what_would_be_right():
    some = TIGHT.state(torch.zeros(2, 1).double())
    with pytest.raises(InputError, match=r"there are start 2, params\['mass'\] 3"):
        Objective(TIGHT, some, 3, cost=effort, params={"mass": torch.ones(3, 1).double()})
    number: Any = {"mass": 1.0}
    with pytest.raises(InputError, match="parameter 'mass' is a float; it must be a torch tensor"):
        Objective(TIGHT, some, 3, cost=effort, params=number).losses(torch.zeros(1, 3).double())
    goals = {"goal": PerEnvironment(torch.ones(3, 1).double())}
    with pytest.raises(InputError, match=r"there are start 2, tensors\['goal'\] 3"):
        Objective(TIGHT, some, 3, cost=lambda q, goal: q - goal, tensors=goals)
    begins = Variables([0.0], lambda x: {"state": TIGHT.state(x)})
    with pytest.raises(InputError, match="decides the start, so start must be of one environment"):
        Objective(TIGHT, some, 3, terminal=arrive, variables=begins).losses(torch.zeros(1, 1).double())
    heavy = Variables([1.0], lambda x: {"params": {"mass": x}})
    varied = Objective(TIGHT, some, 3, terminal=arrive, variables=heavy, params={"mass": torch.ones(2, 1).double()})
    with pytest.raises(InputError, match="decides what differs between scenarios: mass"):
        varied.losses(torch.ones(1, 1).double())


def test_rollout_of_one_has_no_batch_dimension():
    path = cart().rollout(optimum()[0])
    assert path.q.shape == (STEPS + 1, 1)
    assert path.outputs["cost"].shape == (STEPS,)
    assert float(path.outputs["cost"].sum()) == pytest.approx(float(optimum()[0].square().sum()), rel=1e-10)


def test_errors_say_what_would_be_right():
    one = start(TIGHT)
    with pytest.raises(InputError, match="at least one of cost, terminal, loss and residuals"):
        Objective(TIGHT, one, 3)
    with pytest.raises(InputError, match=r"no function here takes tensors\['gaol'\]"):
        Objective(TIGHT, one, 3, cost=effort, terminal=upright, tensors={"gaol": torch.zeros(1)})
    with pytest.raises(InputError, match=r"q of \(1,\), or of \(scenarios, 1\); got \(2, 3, 1\)"):
        Objective(TIGHT, TIGHT.state(torch.zeros(2, 3, 1)), 3, cost=effort)
    with pytest.raises(InputError, match="must be a Simulator, got a Model"):
        Objective(TIGHT.model, one, 3, cost=effort)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"controls must be a tensor \(3, width\), got \(4, 1\)"):
        Objective(TIGHT, one, 3, cost=effort, controls=torch.zeros(4, 1))
    with pytest.raises(InputError, match="steps must be"):
        Objective(TIGHT, one, 0, cost=effort)
    with pytest.raises(InputError, match="terminal must be a function, got 3"):
        Objective(TIGHT, one, 3, terminal=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"tensors\['goal'\] must be a torch tensor, got a float"):
        Objective(TIGHT, one, 3, terminal=upright, tensors={"goal": 1.0})  # pyright: ignore[reportArgumentType]
    with pytest.raises(
        InputError, match=r"the terminal cost takes 'goal', which is neither a tensor of this call nor one of q, v;"
    ):
        Objective(TIGHT, one, 3, terminal=upright).losses(torch.zeros(1, 3).double())
    for wrong in ({"terminal": lambda q: [[q[0]]]}, {"cost": lambda q: [[q[0]]]}):
        with pytest.raises(InputError, match=r"returns one number or a row of residuals, not the shape \(1, 1\)"):
            Objective(TIGHT, one, 3, **wrong).losses(torch.zeros(1, 3).double())
    for wrong in ("controls", [], Controls):
        with pytest.raises(InputError, match=r"such as Controls\(\) or Spline\(10\)"):
            Objective(TIGHT, one, 3, cost=effort, variables=wrong)
    with pytest.raises(InputError, match=r"random starts must be at least 1, got 0"):
        cart().random(0)
    with pytest.raises(InputError, match=r"there are 20 variables to split, got \(3,\)"):
        cart().split(torch.zeros(3))
    with pytest.raises(InputError, match="has no actuators"):
        Objective(BALL, BALL.state(), 3, cost=effort)
    with pytest.raises(InputError, match="at least 4 knots, got 3"):
        Spline(3)
    with pytest.raises(InputError, match=r"must be whole numbers, got 5\.5 and 3"):
        Spline(5.5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="start must be numbers, got 'x'"):
        cart(variables=Controls(start="x"))
    with pytest.raises(InputError, match="limits must be a pair"):
        cart(variables=Controls(limits=3.0))  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="at least one number"):
        cart(variables=Variables([], lambda x: {}))
    with pytest.raises(InputError, match="decode must be a function"):
        cart(variables=Variables([0.0], 3))  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"must be a torch\.nn\.Module, got a int"):
        ModuleParameters(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"values must be \(3,\), got \(4,\)"):
        ModuleParameters(masses()).assign(torch.zeros(4))
    for given, wanted in (
        (lambda x: x, "must give a dictionary, got a Tensor"),
        (lambda x: {"params": [x]}, "must give a dictionary of tensors as 'params'"),
        (lambda x: {"controls": x}, r"must give controls \(20, 1, \.\.\.\), got \(1, 1\)"),
    ):
        with pytest.raises(InputError, match=wanted):
            cart(variables=Variables([0.0], given)).losses(torch.zeros(1, 1).double())
    with pytest.raises(InputError, match="start of the shape"):
        cart(variables=Controls(start=torch.zeros(7)))
    with pytest.raises(InputError, match="lower limit must be at most"):
        cart(variables=Controls(limits=(1.0, -1.0)))
    with pytest.raises(InputError, match=r"\(batch, 20\), got \(3, 4\)"):
        cart().losses(torch.zeros(3, 4).double())
    with pytest.raises(InputError, match=r"must be torch\.float64"):
        cart().losses(torch.zeros(3, 20))
    with pytest.raises(InputError, match="gave 'control'; a rollout gets: state, controls"):
        cart(variables=Variables([0.0], lambda x: {"control": x})).losses(torch.zeros(1, 1).double())
    with pytest.raises(InputError, match="does not depend on the decision variables"):
        cart(variables=Variables([0.0], lambda x: {})).gradients(torch.zeros(1, 1).double())
    with pytest.raises(InputError, match=r"loss must give \(batch,\), here 2 of them"):
        Objective(TIGHT, one, 3, loss=lambda p, i: p.q[-1]).losses(torch.zeros(2, 3).double())
    with pytest.raises(InputError, match="no residuals"):
        Objective(TIGHT, one, 3, terminal=arrive).jacobians(torch.zeros(1, 3).double())


def test_random_starts_do_not_depend_on_the_default_device():
    sim = adjoin.Simulator(adjoin.robots.load("two_link"), 0.01, pairs=[])
    objective = Objective(sim, sim.state(dtype=torch.float64), 5, terminal=lambda q, v: q @ q)
    before = objective.random(3)
    with torch.device("meta"):
        assert torch.equal(objective.random(3), before)
