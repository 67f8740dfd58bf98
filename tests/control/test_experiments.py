import pytest
import scenes
import torch

import adjoin
from adjoin.control import LBFGS, GaussNewton, optimize


@pytest.fixture(scope="module")
def throw():
    return scenes.throw()


@pytest.fixture(scope="module")
def golf():
    return scenes.golf()


def slopes(objective, numbers, step):
    """The loss's derivative in a random direction, by differences and by its gradient."""
    generator = torch.Generator().manual_seed(1)
    direction = torch.nn.functional.normalize(torch.randn(numbers.shape, generator=generator, dtype=numbers.dtype))
    after, before = (objective.losses(numbers + sign * step * direction) for sign in (1.0, -1.0))
    _, gradient = objective.gradients(numbers)
    return float((after - before)[0]) / (2.0 * step), float((gradient * direction).sum())


def test_the_gradient_of_the_throw_is_that_of_the_motion(throw):
    exact = scenes.throw(adjoin.PGS())
    numbers = exact.random(1)
    differences, slope = slopes(exact, numbers, 1e-4)
    assert slope == pytest.approx(differences, rel=1e-6)
    (cheap,), (full,) = throw.gradients(numbers)[1], exact.gradients(numbers)[1]
    assert torch.linalg.norm(cheap - full) < 0.02 * torch.linalg.norm(full)


def test_the_gradient_of_the_golf_stroke_is_that_of_the_motion(golf):
    differences, slope = slopes(golf, golf.random(1), 1e-3)
    assert slope == pytest.approx(differences, rel=1e-4)


def test_the_gradient_of_the_car_is_that_of_the_motion():
    differences, slope = slopes(scenes.racecar(), torch.tensor([[0.03]], dtype=torch.float64), 1e-7)
    assert slope == pytest.approx(differences, rel=1e-6)


def test_the_arm_holds_the_ball_until_the_fingers_open(throw):
    path = throw.rollout(throw.box.start)
    held, end = path.q[: scenes.RELEASE + 1, 9:12], path.q[-1, 9:12]
    assert (held - held[0]).abs().max() < 1e-3
    assert end[2] == pytest.approx(0.01, abs=1e-6)
    assert (end - held[-1])[:2].abs().max() < 0.01


def test_the_ball_is_thrown_to_where_it_comes_to_rest(throw):
    found = optimize(throw, LBFGS(), starts=2, iterations=20, target=0.5e-12)
    path = throw.rollout(found.variables)
    assert found.history.loss[0].min() > 0.25
    assert found.losses.min() < 0.5e-12
    assert path.v[-1, :, 9:12].abs().max() < 1e-3
    hand = torch.linalg.norm(path.q[scenes.RELEASE, :, 9:11], dim=-1)
    assert float(hand.max()) < 0.7 < torch.linalg.norm(torch.tensor(scenes.THROW_TARGET[:2]))


def test_the_golf_ball_bounces_with_half_of_its_speed(golf):
    q = golf.start.q.repeat(8, 1)
    q[:, 4] += 4e-3 * torch.arange(8) / 8  # a step's fall, in parts
    v = torch.zeros(8, 8, dtype=q.dtype)
    v[:, 4] = -4.0
    path = golf.sim.rollout(golf.sim.state(q, v), torch.zeros(10, 2, dtype=q.dtype))
    bounce = path.v[:, :, 4].max(0).values / -path.v[:, :, 4].min(0).values
    assert torch.allclose(bounce, torch.tensor(0.5, dtype=q.dtype), atol=2e-3)


def test_the_golf_ball_gets_to_the_target_within_fifty_iterations(golf):
    found = optimize(golf, GaussNewton(damping=10.0), starts=4, iterations=50, target=0.5e-12)
    assert found.history.loss[0].min() > 0.5
    assert found.loss < 0.5e-12
    assert found.losses.max() < 0.5e-4
    assert found.variables.abs().max() < 30.0


def test_the_car_gets_to_the_target_within_ten_iterations():
    for seed in (0, 1):
        objective = scenes.racecar(seed)
        start = float(objective.rollout(objective.box.start).last.q[0])
        found = optimize(objective, GaussNewton(), iterations=10)
        end = float(objective.rollout(found.best).last.q[0])
        assert start > 0.98
        assert abs(end - scenes.CAR_TARGET) < 1e-6
        assert int((found.history.best[:, 0] < 0.5 * 0.01**2).nonzero()[0]) <= 3


def test_a_car_without_friction_keeps_its_speed():
    objective = scenes.racecar(3)
    last = objective.rollout(torch.zeros(1, dtype=torch.float64)).last
    assert float(last.q[0]) == pytest.approx(1.0, abs=1e-6)
    assert float(last.v[0]) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("name", "nearest"), [("08_throw", 1e-5), ("19_golf", 1e-6), ("20_racecar", 1e-6)])
def test_examples_run_and_come_near_their_targets(name, nearest, run_example):
    first = run_example(f"{name}.py").splitlines()[0]
    assert float(first.split(" m from")[0].split()[-1]) < nearest
