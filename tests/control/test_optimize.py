import io
import time

import pytest
import torch
from problems import LIMIT, SIM, STEPS, TIGHT, bounded_optimum, cart, cart_squares, optimum, start, system, two_links

from adjoin.control import LBFGS, SGD, Adam, GaussNewton, optimize
from adjoin.control.objective import Objective
from adjoin.control.optimizers.gauss_newton import _secants
from adjoin.control.optimizers.gradient_descent import _clipped
from adjoin.control.optimizers.sampling import CMAES, MPPI
from adjoin.control.plot import plot_losses
from adjoin.control.variables import Controls, ModuleParameters, Spline, Variables
from adjoin.errors import InputError
from adjoin.learn.modules import Positive
from adjoin.learn.parameters import Parameters

TWO = two_links()
ADAM = Adam(rate=0.1, betas=(0.9, 0.99), decay=0.99, patience=500)
METHODS = [Adam(rate=0.1), SGD(rate=0.05, momentum=0.5), LBFGS(), LBFGS(memory=0), GaussNewton()]


def label(method):
    return f"{type(method).__name__}{getattr(method, 'memory', '')}"


def swing(method):
    def energy(path, inputs):
        return torch.cat([path.q[-1] - 1.0, path.v[-1], 0.03 * inputs.controls.transpose(0, 1).flatten(1)], -1)

    return Objective(TWO, TWO.state(torch.zeros(2).double()), 20, residuals=energy, variables=Spline(5, spread=3.0))


@pytest.mark.parametrize(
    ("method", "iterations", "close"),
    [
        (ADAM, 500, 1e-4),
        (SGD(rate=0.01, momentum=0.8, patience=400), 400, 1e-10),
        (LBFGS(), 60, 1e-7),
        (GaussNewton(), 5, 1e-9),
    ],
    ids=lambda x: label(x) if hasattr(x, "patience") else "",
)
def test_the_known_optimum_is_found_from_every_start(method, iterations, close):
    best, least = optimum()
    objective = cart_squares() if isinstance(method, GaussNewton) else cart()
    least = 0.5 * least if isinstance(method, GaussNewton) else least
    found = optimize(objective, method, starts=3, iterations=iterations, tolerance=0.0)
    assert found.losses.tolist() == pytest.approx([least] * 3, rel=close)
    torch.testing.assert_close(found.best, best, rtol=0.0, atol=30.0 * close**0.5)


@pytest.mark.parametrize("method", [ADAM, LBFGS(), GaussNewton()], ids=label)
def test_the_optimum_within_limits_is_found_and_they_are_kept(method):
    best, least = bounded_optimum(LIMIT)
    held = int(best.abs().eq(LIMIT).sum())
    assert 4 < held < STEPS
    assert least > 1.1 * optimum()[1]
    objective = cart_squares(TIGHT) if isinstance(method, GaussNewton) else cart(TIGHT)
    least = 0.5 * least if isinstance(method, GaussNewton) else least
    found = optimize(objective, method, starts=3, iterations=500)
    assert found.losses.tolist() == pytest.approx([least] * 3, rel=1e-5)
    assert found.variables.abs().amax() <= LIMIT
    assert optimize(objective, method, starts=3, iterations=2).variables.abs().amax() <= LIMIT


def test_gauss_newton_meets_few_residuals_with_the_least_change_of_many_numbers():
    rows, right = (part[:2] for part in system())
    ends = Objective(
        SIM, start(SIM), STEPS, residuals=lambda p, i: torch.cat([10.0 * (p.q[-1] - 1.0), 10.0 * p.v[-1]], -1)
    )
    found = optimize(ends, GaussNewton(), iterations=8, target=0.5e-24)
    assert found.stopped == ["target"]
    torch.testing.assert_close(found.best, torch.linalg.pinv(rows) @ right, rtol=0.0, atol=1e-10)
    tight = Objective(TIGHT, start(TIGHT), STEPS, residuals=lambda p, i: 10.0 * (p.q[-1] - 0.7))
    held = optimize(tight, GaussNewton(), starts=4, iterations=10, target=0.5e-24)
    assert held.stopped.count("target") > 0
    assert held.variables.abs().amax() == LIMIT


@pytest.mark.parametrize("method", [GaussNewton(), LBFGS()], ids=label)
def test_parameters_that_explain_a_motion_are_found(method):
    begin, still = TWO.state(torch.tensor([0.5, 0.5]).double()), torch.zeros(40, 2).double()
    true = torch.tensor([0.7, 1.6]).double()
    recorded = TWO.rollout(begin, still, params={"mass": true}).q
    learned = Parameters(TWO.model, dtype=torch.float64).learn("mass", Positive(torch.tensor([0.7, 0.5]).double()))
    variables = ModuleParameters(learned, spread=0.2)

    def apart(path, inputs):
        return (path.q - recorded[:, None]).transpose(0, 1).flatten(1)

    objective = Objective(TWO, begin, 40, residuals=apart, variables=variables)
    found = optimize(objective, method, starts=3, iterations=40, tolerance=0.0)
    variables.assign(found.best)
    share = learned()["mass"] / learned()["mass"].sum()
    torch.testing.assert_close(share, true / true.sum(), rtol=1e-5, atol=0.0)


def test_a_control_at_its_limit_can_leave_it():
    away = optimize(cart(TIGHT), starts=torch.full((STEPS,), LIMIT).double(), iterations=200)
    assert away.loss == pytest.approx(bounded_optimum(LIMIT)[1], rel=1e-5)


@pytest.mark.parametrize("method", METHODS, ids=label)
def test_a_resumed_run_has_the_bits_of_one_that_was_not_interrupted(method):
    whole = optimize(swing(method), method, starts=3, iterations=12, tolerance=0.0)
    half = optimize(swing(method), method, starts=3, iterations=5, tolerance=0.0)
    before = half.variables.clone()
    file = io.BytesIO()
    torch.save(half.state, file)
    file.seek(0)
    for state in (half.state, torch.load(file, weights_only=True)):
        rest = optimize(swing(method), method, iterations=7, tolerance=0.0, resume=state)
        assert torch.equal(rest.variables, whole.variables)
        assert torch.equal(rest.history.loss, whole.history.loss)
        assert torch.equal(rest.history.rollouts, whole.history.rollouts)
    assert torch.equal(half.variables, before)
    assert len(half.history.loss) == 6


@pytest.mark.parametrize("method", METHODS, ids=label)
def test_many_starts_find_what_each_finds_alone(method):
    objective = swing(method)
    starts = objective.random(5)
    together = optimize(objective, method, starts=starts, iterations=4)
    alone = [optimize(objective, method, starts=each, iterations=4) for each in starts]
    torch.testing.assert_close(together.variables, torch.cat([x.variables for x in alone]), rtol=1e-9, atol=1e-9)
    assert together.losses.std() > 0.0 or isinstance(method, GaussNewton)


@pytest.mark.parametrize("method", METHODS, ids=label)
def test_losses_fall_and_are_those_of_the_numbers(method):
    found = optimize(swing(method), method, starts=3, iterations=10)
    torch.testing.assert_close(swing(method).losses(found.variables), found.losses, rtol=1e-12, atol=0.0)
    history = found.history
    assert history.loss.shape == (len(history.seconds), 3)
    assert history.seconds.diff().gt(0.0).all()
    assert history.rollouts.diff().gt(0).all()
    assert history.best[-1].lt(0.8 * history.loss[0]).all()
    assert torch.equal(history.best[-1], found.losses)


def test_it_stops_by_tolerance_start_by_start():
    best, _ = optimum()
    method = Adam(rate=0.1, decay=0.97, patience=10)
    found = optimize(cart(), method, starts=torch.stack([best, best + 3.0]), iterations=500, tolerance=1e-3)
    assert found.stopped == ["tolerance", "tolerance"]
    assert len(found.history.loss) < 400
    steady = found.history.loss.diff(dim=0).eq(0.0)
    assert steady[10:, 0].all()
    assert not steady[:10, 0].any()
    assert not steady[10:, 1].any()
    assert optimize(cart(), LBFGS(), starts=best, iterations=500, tolerance=0.0).stopped == ["stalled"]


def test_it_stops_as_soon_as_one_start_meets_the_target():
    best, least = optimum()
    starts = torch.stack([best + 3.0, best + 0.1])
    found = optimize(cart(), Adam(rate=0.02), starts=starts, iterations=500, target=1.01 * least)
    assert found.stopped == ["iterations", "target"]
    assert found.loss <= 1.01 * least
    assert found.history.best[-2].amin() > 1.01 * least


@pytest.mark.parametrize("method", METHODS[:4], ids=label)
def test_a_start_whose_loss_is_not_a_number_harms_no_other(method):
    objective = cart()
    starts = objective.random(3)
    expected = optimize(objective, method, starts=starts, iterations=20)
    starts[1, 3] = torch.nan
    found = optimize(objective, method, starts=starts, iterations=20)
    assert found.stopped[1] == "failed"
    assert found.losses[1] == torch.inf
    torch.testing.assert_close(found.losses[[0, 2]], expected.losses[[0, 2]], rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("method", [Adam(rate=0.5), SGD(rate=0.5), LBFGS(first=2.0)], ids=label)
def test_steps_to_where_there_is_no_number_are_taken_back(method):
    def root(path, inputs):
        return -(1.0 - inputs.controls[0, :, 0]).sqrt() + inputs.controls[..., 0].square().sum(0)

    objective = Objective(SIM, start(SIM), 3, loss=root)
    found = optimize(objective, method, starts=torch.tensor([[0.9, 0.0, 0.0], [-0.5, 1.0, 1.0]]).double())
    assert found.losses.tolist() == pytest.approx([found.loss] * 2, rel=1e-3)
    assert found.best[0] == pytest.approx(-0.21, abs=0.02)


def test_numbers_of_different_size_are_balanced_by_their_spread():
    def bowl(path, inputs):
        x = inputs.tensors["x"]
        return ((x / torch.tensor([1e3, 1e-3])) - 1.0).square().sum(-1)

    variables = Variables([0.0, 0.0], lambda x: {"tensors": {"x": x}}, spread=[1e3, 1e-3])
    found = optimize(Objective(SIM, start(SIM), 1, loss=bowl, variables=variables), Adam(rate=0.05), iterations=300)
    torch.testing.assert_close(found.best, torch.tensor([1e3, 1e-3]).double(), rtol=1e-3, atol=0.0)


def test_float32_reaches_what_float32_can():
    found = optimize(cart(dtype=torch.float32), starts=3, iterations=100)
    assert found.losses.dtype == torch.float32
    assert found.losses.tolist() == pytest.approx([optimum()[1]] * 3, rel=1e-4)


def landing(degree):
    """Residuals that can be zero: where a pendulum of two links ends."""

    def away(path, inputs):
        return torch.cat([path.q[-1] - 1.0, path.v[-1]], -1)

    return Objective(
        TWO, TWO.state(torch.zeros(2).double()), 20, residuals=away, variables=Spline(5, degree, spread=3.0)
    )


@pytest.mark.parametrize("degree", [1, 3])
def test_secants_save_derivatives_and_lead_to_the_same_place(degree, monkeypatch):
    objective, counts = landing(degree), []
    plain = objective.jacobians

    def counted(numbers):
        counts.append(len(numbers))
        return plain(numbers)

    monkeypatch.setattr(objective, "jacobians", counted)
    fresh = optimize(objective, GaussNewton(renew=0.0), starts=3, iterations=15, tolerance=0.0)
    renewed = sum(counts)
    counts.clear()
    found = optimize(objective, GaussNewton(), starts=3, iterations=25, tolerance=0.0)
    assert fresh.losses.amax() < 0.5e-20
    assert found.losses.amax() < 0.5e-20
    assert sum(counts) < 0.7 * renewed


def test_secants_are_met_along_the_shortest_way_and_elsewhere_if_the_residuals_are_linear():
    generator = torch.Generator().manual_seed(0)
    slopes, ways, guess = (
        torch.randn(size, generator=generator).double() for size in ((2, 3, 6), (2, 4, 6), (2, 3, 6))
    )
    changes = ways @ slopes.mT
    ways[0, 1], changes[0, 1] = 1e-9 * ways[0, 2], 1.0  # too short to tell anything
    changes[1, 3] = torch.inf
    found = _secants(guess, ways, changes)
    shortest = ways.square().sum(-1)[:, [0, 2]].argmin(1) * 2
    for k, at in enumerate(shortest.tolist()):
        torch.testing.assert_close(found[k] @ ways[k, at], changes[k, at])
    whole = _secants(guess, torch.eye(6).double().expand(2, 6, 6), slopes.mT)
    torch.testing.assert_close(whole, slopes)


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda: Adam(rate=-1.0), "Adam: rate must be a positive number, got -1.0"),
        (lambda: Adam(betas=(1.0, 0.9)), "Adam: betas must be two numbers"),
        (lambda: SGD(clip=0.0), "SGD: clip must be a positive number"),
        (lambda: SGD(momentum=2.0), "SGD: momentum must be a number from 0 to 1, got 2.0"),
        (lambda: LBFGS(trials=0), "LBFGS: trials must be a whole number of at least 1, got 0"),
        (lambda: GaussNewton(renew=float("nan")), "GaussNewton: renew must be a number from 0 to 1"),
        (lambda: CMAES(sigma=0.0), "CMAES: sigma must be a positive number"),
        (lambda: CMAES(population=1), "CMAES: population must be a whole number of at least 2"),
        (lambda: MPPI(samples=1), "MPPI: samples must be a whole number of at least 2"),
    ],
)
def test_a_method_with_a_wrong_number_says_which(make, wanted):
    with pytest.raises(InputError, match=wanted):
        make()


def test_pictures_of_losses_show_every_start_and_refuse_what_is_none():
    history = optimize(cart(), starts=3, iterations=2).history
    _, axes = plot_losses({"L-BFGS": history, "the same": history}, 3)
    assert [len(axis.lines) for axis in axes] == [6, 6, 0]
    assert [axis.get_xlabel() for axis in axes[:2]] == ["iteration", "time, s"]
    for wrong in ({}, {"L-BFGS": optimize(cart(), iterations=1)}):
        with pytest.raises(InputError, match="histories must be method -> history"):
            plot_losses(wrong)
    with pytest.raises(InputError, match="panels must be at least 2, got 1"):
        plot_losses({"L-BFGS": history}, 1)


def test_a_bar_shows_the_loss(capsys):
    optimize(cart(), Adam(rate=0.01), iterations=30, progress=True)
    said = capsys.readouterr().err
    assert "30/30 [" in said
    assert "loss " in said


def test_ctrl_c_propagates_unless_the_partial_result_is_asked_for(monkeypatch):
    objective, calls = cart(), []
    plain = objective.gradients

    def interrupted(numbers):
        calls.append(time.perf_counter())
        if len(calls) == 6:
            raise KeyboardInterrupt
        return plain(numbers)

    monkeypatch.setattr(objective, "gradients", interrupted)
    found = optimize(objective, Adam(rate=0.1), return_on_interrupt=True)
    assert len(found.history.loss) == 5
    assert found.loss < float(found.history.loss[0, 0])
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        optimize(objective, Adam(rate=0.1), progress=True)


def test_errors_say_what_would_be_right():
    with pytest.raises(InputError, match="must be an Objective"):
        optimize(lambda x: x)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="such as LBFGS"):
        optimize(cart(), "adam")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="iterations must be"):
        optimize(cart(), iterations=-1)
    with pytest.raises(InputError, match=r"starts must be \(starts, 20\), got \(3, 4\)"):
        optimize(cart(), starts=torch.zeros(3, 4))
    with pytest.raises(InputError, match="starts must be at least 1"):
        optimize(cart(), starts=0)
    for given, wanted in (
        ({"starts": [0.0]}, "starts must be a whole number or a tensor"),
        ({"tolerance": -1.0}, "tolerance must be a number of at least 0, got -1.0"),
        ({"target": float("nan")}, "target must be a number, got nan"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"method": LBFGS}, "such as LBFGS"),
    ):
        with pytest.raises(InputError, match=wanted):
            optimize(cart(), **given)
    with pytest.raises(InputError, match="loss of no start is finite"):
        optimize(cart(), starts=torch.full((2, STEPS), torch.nan))
    with pytest.raises(InputError, match="must have residuals"):
        optimize(cart(), GaussNewton())
    with pytest.raises(InputError, match="`state` of an earlier result"):
        optimize(cart(), resume={})
    with pytest.raises(InputError, match="resume is of SGD"):
        optimize(cart(), Adam(), resume=optimize(cart(), SGD(), iterations=1).state)
    with pytest.raises(InputError, match="for 20 variables; got"):
        optimize(cart(variables=Spline(4)), resume=optimize(cart(variables=Controls()), iterations=1).state)


def test_clipping_leaves_short_gradients_as_they_are():
    gradients = torch.tensor([[3.0, 4.0], [0.03, 0.04], [0.0, 0.0]])
    clipped = _clipped(gradients, 1.0)
    torch.testing.assert_close(clipped, torch.tensor([[0.6, 0.8], [0.03, 0.04], [0.0, 0.0]]))
    assert _clipped(gradients, None) is gradients


def test_gauss_newton_refuses_an_objective_with_a_cost_beside_its_residuals():
    task = cart_squares()
    mixed = Objective(task.sim, task.start, STEPS, residuals=task.residual, cost=lambda control: control @ control)
    with pytest.raises(InputError, match="GaussNewton: the objective must have residuals, and no cost"):
        optimize(mixed, method=GaussNewton(), iterations=1)
