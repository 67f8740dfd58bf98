import pytest
import torch
from problems import LIMIT, STEPS, TIGHT, arrive, cart, cart_squares, effort, optimum, start, two_links

import adjoin
from adjoin.control.decision import Controls, Learned, Numbers, Spline, b_spline
from adjoin.control.objective import Objective
from adjoin.errors import InputError
from adjoin.learn.modules import Positive
from adjoin.learn.parameters import Parameters

TWO = two_links()
BALL = adjoin.Simulator(adjoin.robots.load("ball"), dt=2e-3)


def differences(function, point, step=1e-6):
    sides = [(function(point + step * x) - function(point - step * x)) / (2.0 * step) for x in torch.eye(len(point.T))]
    return torch.stack(sides, -1)


def torque(q, v, control):
    return 1e-2 * (control @ control)


def upright(q, v, goal):
    return (q - goal) @ (q - goal) + 0.1 * (v @ v)


def servo(q, v, given, gains):
    return gains * (given - q) - 0.5 * v


def masses():
    learned = Parameters(TWO.model, dtype=torch.float64)
    learned.learn("mass", Positive(torch.tensor([1.2, 0.8]).double()))
    return learned.learn("damping", Positive(torch.tensor(0.3).double()))


def objectives():
    goal = {"goal": torch.tensor([1.0, 0.5]).double()}
    begin = TWO.state(torch.tensor([0.3, -0.2]).double())
    gains = Numbers([3.0, 2.0], lambda x: {"individual": {"gains": x}})
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

    return {
        "controls": Objective(TWO, begin, 15, cost=torque, terminal=upright, constants=goal),
        "spline": Objective(TWO, begin, 15, cost=torque, loss=tip, decision=Spline(5)),
        "residuals": Objective(TWO, begin, 15, cost=torque, residuals=far, decision=Spline(4, degree=1)),
        "learned": Objective(TWO, begin, 15, residuals=far, decision=Learned(masses()), controls=still),
        "together": Objective(
            TWO, begin, 15, cost=torque, terminal=upright, constants=goal, controller=servo, decision=[Spline(5), gains]
        ),
        "contact": Objective(
            BALL, BALL.state(dtype=torch.float64), 60, loss=landed, decision=Numbers([2.0, -1.0], thrown)
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


@pytest.mark.parametrize("name", ["learned", "residuals"])
def test_jacobians_are_those_of_finite_differences(name):
    objective = objectives()[name]
    point = objective.random(3, seed=1)
    values, slopes = objective.jacobians(point)
    inputs = objective.inputs(point)
    torch.testing.assert_close(values, objective.residual(objective.rollout(point), inputs))

    def residuals(x):
        return objective.residual(objective.rollout(x), objective.inputs(x))

    torch.testing.assert_close(slopes, differences(residuals, point), rtol=1e-6, atol=1e-7)


def test_jacobians_of_many_numbers_come_in_pieces(monkeypatch):
    point = cart_squares().random(5)
    whole = cart_squares().jacobians(point)
    monkeypatch.setattr("adjoin.control.objective.MOST", 2 * STEPS)
    pieces = cart_squares().jacobians(point)
    torch.testing.assert_close(pieces, whole, rtol=0.0, atol=0.0)


def test_loss_is_the_sum_of_its_parts():
    best, least = optimum()
    assert float(cart().losses(best[None])) == pytest.approx(least, rel=1e-10)
    assert float(cart_squares().losses(best[None])) == pytest.approx(least, rel=1e-10)


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
    decision = Learned(learned)
    objective = Objective(TWO, TWO.state(torch.zeros(2).double()), 5, residuals=lambda p, i: p.q[-1], decision=decision)
    torch.testing.assert_close(objective.inputs(objective.box.start[None]).params["mass"][0], learned()["mass"])
    decision.assign(objective.box.start + 1.0)
    torch.testing.assert_close(learned()["mass"], torch.tensor([1.2, 0.8]).double() * torch.e)
    assert objective.inputs(objective.box.start[None]).params["damping"].amax() < 0.31


def test_rollout_of_one_has_no_batch_dimension():
    path = cart().rollout(optimum()[0])
    assert path.q.shape == (STEPS + 1, 1)
    assert path.outputs["cost"].shape == (STEPS,)
    assert float(path.outputs["cost"].sum()) == pytest.approx(float(optimum()[0].square().sum()), rel=1e-10)


def test_errors_say_what_would_be_right():
    one = start(TIGHT)
    with pytest.raises(InputError, match="at least one of cost, terminal, loss and residuals"):
        Objective(TIGHT, one, 3)
    with pytest.raises(InputError, match=r"no function here takes constants\['gaol'\]"):
        Objective(TIGHT, one, 3, cost=effort, terminal=upright, constants={"gaol": torch.zeros(1)})
    with pytest.raises(InputError, match="state of one environment"):
        Objective(TIGHT, TIGHT.state(torch.zeros(2, 1)), 3, cost=effort)
    with pytest.raises(InputError, match="steps must be"):
        Objective(TIGHT, one, 0, cost=effort)
    with pytest.raises(InputError, match="has no actuators"):
        Objective(BALL, BALL.state(), 3, cost=effort)
    with pytest.raises(InputError, match="at least 4 knots, got 3"):
        Spline(3)
    with pytest.raises(InputError, match="start of the shape"):
        cart(decision=Controls(start=torch.zeros(7)))
    with pytest.raises(InputError, match="lower limit must be at most"):
        cart(decision=Controls(limits=(1.0, -1.0)))
    with pytest.raises(InputError, match=r"\(batch, 20\), got \(3, 4\)"):
        cart().losses(torch.zeros(3, 4).double())
    with pytest.raises(InputError, match=r"must be torch\.float64"):
        cart().losses(torch.zeros(3, 20))
    with pytest.raises(InputError, match="gave 'control'; a rollout gets: state, controls"):
        cart(decision=Numbers([0.0], lambda x: {"control": x})).losses(torch.zeros(1, 1).double())
    with pytest.raises(InputError, match="does not depend on what is decided"):
        cart(decision=Numbers([0.0], lambda x: {})).gradients(torch.zeros(1, 1).double())
    with pytest.raises(InputError, match=r"loss must give \(batch,\), here 2 of them"):
        Objective(TIGHT, one, 3, loss=lambda p, i: p.q[-1]).losses(torch.zeros(2, 3).double())
    with pytest.raises(InputError, match="no residuals"):
        Objective(TIGHT, one, 3, terminal=arrive).jacobians(torch.zeros(1, 3).double())
