import io
import sys

import numpy as np
import pytest
import torch
from problems import LIMIT, SIM, TIGHT, bounded_optimum, cart, optimum, start

from adjoin.control.objective import Objective
from adjoin.control.optimize import optimize
from adjoin.control.optimizers.sampling import CMAES, MPPI
from adjoin.control.variables import Controls, Variables
from adjoin.errors import InputError

METHODS = [CMAES(), MPPI(samples=32, patience=200)]


def label(method):
    return type(method).__name__


def bowl(center, scale=1.0, loss=None):
    """A function of numbers alone."""
    aim = torch.tensor(center).double()

    def squares(path, inputs):
        x = inputs.tensors["x"]
        return (loss or (lambda y: y.square().sum(-1)))((x - aim) / scale)

    variables = Variables([0.0] * len(center), lambda x: {"tensors": {"x": x}})
    return Objective(SIM, start(SIM), 1, loss=squares, variables=variables)


def rosenbrock(y):
    x = y + 1.0
    return (100.0 * (x[:, 1:] - x[:, :-1].square()).square() + (1.0 - x[:, :-1]).square()).sum(-1)


def test_cma_es_finds_the_bottom_of_a_curved_valley():
    found = optimize(bowl([1.0] * 5, loss=rosenbrock), CMAES(sigma=0.5), starts=3, iterations=500)
    assert found.loss < 1e-10
    torch.testing.assert_close(found.best, torch.ones(5).double(), rtol=0.0, atol=1e-4)


def test_mppi_finds_the_bottom_of_a_bowl():
    found = optimize(bowl([0.8, -0.6, 0.3]), MPPI(decay=0.95), starts=3, iterations=150, tolerance=0.0)
    assert found.losses.amax() < 1e-5
    torch.testing.assert_close(found.best, torch.tensor([0.8, -0.6, 0.3]).double(), rtol=0.0, atol=3e-3)


@pytest.mark.parametrize(
    ("method", "close"), [(CMAES(), 1e-3), (MPPI(samples=256, decay=0.99), 0.02)], ids=["CMAES", "MPPI"]
)
def test_the_known_optimum_within_limits_is_approached_and_they_are_kept(method, close):
    least = bounded_optimum(LIMIT)[1]
    found = optimize(cart(TIGHT), method, iterations=400)
    assert least - 1e-9 <= found.loss < (1.0 + close) * least
    assert found.variables.abs().amax() <= LIMIT


def test_cma_es_without_limits_approaches_the_known_optimum():
    best, least = optimum()
    found = optimize(cart(), CMAES(), iterations=600)
    assert found.loss == pytest.approx(least, rel=1e-5)
    torch.testing.assert_close(found.best, best, rtol=0.0, atol=0.02)


def test_one_rollout_at_a_time_gives_the_same_as_a_generation_at_once():
    together = optimize(cart(), CMAES(population=6), starts=2, iterations=10)
    apart = optimize(cart(), CMAES(population=6, batched=False), starts=2, iterations=10)
    assert torch.equal(together.variables, apart.variables)
    assert together.history.rollouts.tolist() == apart.history.rollouts.tolist() == [2 + 12 * k for k in range(11)]


@pytest.mark.parametrize("batched", [True, False])
def test_a_generation_of_all_starts_is_one_launch_if_batched(batched, monkeypatch):
    objective, sizes = cart(), []
    plain = objective.losses

    def counted(numbers):
        sizes.append(len(numbers))
        return plain(numbers)

    monkeypatch.setattr(objective, "losses", counted)
    optimize(objective, CMAES(population=6, batched=batched), starts=2, iterations=3)
    assert sizes == ([2, 12, 12, 12] if batched else [1] * 38)


@pytest.mark.parametrize("method", METHODS, ids=label)
def test_a_resumed_run_has_the_bits_of_one_that_was_not_interrupted(method):
    whole = optimize(cart(), method, starts=2, iterations=12, seed=5)
    half = optimize(cart(), method, starts=2, iterations=5, seed=5)
    file = io.BytesIO()
    torch.save(half.state, file)
    file.seek(0)
    for state in (half.state, half.state, torch.load(file, weights_only=False)):
        rest = optimize(cart(), method, iterations=7, resume=state)
        assert torch.equal(rest.variables, whole.variables)
        assert torch.equal(rest.history.loss, whole.history.loss)


@pytest.mark.parametrize("method", METHODS, ids=label)
def test_many_starts_find_what_each_finds_alone(method):
    starts = cart().random(3)
    together = optimize(cart(), method, starts=starts, iterations=10, seed=7)
    alone = [optimize(cart(), method, starts=each, iterations=10, seed=7 + k) for k, each in enumerate(starts)]
    torch.testing.assert_close(together.variables, torch.cat([x.variables for x in alone]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", METHODS, ids=label)
def test_the_seed_decides_and_the_global_ones_are_left_alone(method):
    states = np.random.get_state()[1].copy(), torch.get_rng_state()  # pyright: ignore[reportAttributeAccessIssue]
    first, again, other = (optimize(cart(), method, iterations=3, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.variables, again.variables)
    assert not torch.equal(first.variables, other.variables)
    assert np.array_equal(states[0], np.random.get_state()[1])
    assert torch.equal(states[1], torch.get_rng_state())


@pytest.mark.parametrize("method", METHODS, ids=label)
def test_samples_without_a_number_are_the_worst(method):
    objective = bowl([0.5, 0.5], loss=lambda y: torch.where(y[:, 0] > 0.0, torch.nan, y.square().sum(-1)))
    found = optimize(objective, method, iterations=150, tolerance=0.0)
    assert found.loss < 1e-4
    assert float(found.best[0]) <= 0.5


def test_a_start_whose_loss_is_not_a_number_harms_no_other():
    starts = cart().random(3)
    expected = optimize(cart(), MPPI(), starts=starts, iterations=5)
    starts[1] = torch.nan
    found = optimize(cart(), MPPI(), starts=starts, iterations=5)
    assert found.stopped == ["iterations", "failed", "iterations"]
    torch.testing.assert_close(found.losses[[0, 2]], expected.losses[[0, 2]], rtol=1e-12, atol=0.0)


def test_it_stops_by_tolerance_and_when_cma_es_itself_is_done():
    found = optimize(bowl([0.3, 0.2]), CMAES(patience=10_000), iterations=2000, tolerance=0.0)
    assert found.stopped == ["stalled"]
    assert len(found.history.loss) < 500
    flat = bowl([0.3, 0.2], loss=lambda y: 1.0 + 1e-12 * y.square().sum(-1))
    assert optimize(flat, MPPI(patience=5), iterations=50).stopped == ["tolerance"]


def test_a_diagonal_covariance_takes_thousands_of_numbers():
    objective = bowl([0.1] * 2000)
    found = optimize(objective, CMAES(diagonal=True, population=8, sigma=0.02), iterations=40)
    assert found.loss < 0.98 * float(found.history.loss[0, 0])


@pytest.mark.parametrize("sigma", [0.3, 3.0, 30.0])
def test_samples_of_cma_es_may_be_wider_than_the_limits(sigma):
    def square(path, inputs):
        return inputs.tensors["x"].square().sum(-1)

    for size in (1, 2):
        variables = Variables([0.3] * size, lambda x: {"tensors": {"x": x}}, (0.0, 1.0), 0.1)
        objective = Objective(SIM, start(SIM), 2, loss=square, variables=variables)
        found = optimize(objective, CMAES(sigma=sigma), starts=4, iterations=40)
        assert found.loss < 1e-6
        assert found.variables.amin() >= 0.0


def test_cma_es_leaves_numbers_alone_that_the_limits_hold():
    limits = torch.full((20,), LIMIT).double()
    limits[::2] = 0.1
    held = cart(TIGHT, Variables([0.0] * 20, lambda x: {"controls": x.mT[..., None]}, (0.1 - 0.0 * limits, limits)))
    found = optimize(held, CMAES(), starts=2, iterations=20)
    assert found.variables[:, ::2].eq(0.1).all()
    assert found.loss < 0.9 * float(held.losses(held.box.start[None]))
    with pytest.raises(InputError, match="leave no variable to decide"):
        optimize(cart(variables=Controls(limits=(0.1, 0.1))), CMAES())


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cma", None)
    with pytest.raises(InputError, match=r"CMAES needs cma: pip install \'adjoin\[control\]\'"):
        optimize(cart(variables=Controls()), CMAES(), iterations=1)


def test_mppi_at_a_high_temperature_goes_to_the_mean_of_its_samples():
    method = MPPI(sigma=0.3, samples=4096, temperature=1e9)
    rows = optimize(bowl([2.0, -1.0]), method, starts=2, iterations=1).state["rows"]
    begun = optimize(bowl([2.0, -1.0]), method, starts=2, iterations=0).variables
    torch.testing.assert_close(rows["z"], begun, rtol=0.0, atol=5.0 * 0.3 / 4096**0.5)
    assert (rows["best"] - begun).norm(dim=-1).gt(0.5).all()


def test_mppi_keeps_its_own_mean_among_its_samples():
    seen = []

    class Bowl:
        def project(self, z):
            return z

        def losses(self, z):
            seen.append(z)
            return z.square().sum(-1)

    method, means = MPPI(sigma=5.0, samples=8), torch.tensor([[0.1, -0.2], [0.0, 0.3]])
    after = method.advance(Bowl(), method.begin(Bowl(), means, 0))  # pyright: ignore[reportArgumentType]
    assert torch.equal(seen[1][:, 0], means)
    assert not torch.equal(seen[1][:, 1], means)
    # So wide samples are all worse, and the best is where it began.
    assert torch.equal(after["best"], means)
