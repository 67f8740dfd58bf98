import math

import pytest
import torch
from arm import Arm

from adjoin.errors import InputError
from adjoin.rl import SHAC, Environment, evaluate, make_task, train
from adjoin.rl.vector import Vector

BAR = -1000.0  # hanging still costs 2,370; three seeds whose gradients were cut between steps reached -1,890 at best


def test_a_pole_is_swung_up_by_gradients_through_the_simulator():
    run = train(
        "cartpole",
        iterations=70,
        environments=32,
        horizon=24,
        critic_passes=4,
        actor_rate=1e-2,
        critic_rate=1e-2,
        progress=False,
    )
    assert evaluate(run.learner.environment, run.policy, 16).mean() > BAR


def test_the_loss_is_the_discounted_return_with_values_where_episodes_end():
    options = SHAC.Options(horizon=4, discount=0.5, trace=0.9)
    learner = SHAC(Environment(Arm()), options)
    reward = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    value = torch.tensor([[10.0], [20.0], [30.0], [40.0]])
    done = torch.tensor([[False], [True], [False], [False]])
    first = 1.0 + 0.5 * (2.0 + 0.5 * 20.0)
    second = 3.0 + 0.5 * (4.0 + 0.5 * 40.0)
    assert learner._loss(reward, value, done).item() == -(first + second) / 4.0
    third = 4.0 + 0.5 * 40.0
    targets = [0.0, 2.0 + 0.5 * 20.0, 3.0 + 0.5 * (0.1 * 30.0 + 0.9 * third), third]
    targets[0] = 1.0 + 0.5 * (0.1 * 10.0 + 0.9 * targets[1])
    assert torch.allclose(learner._targets(reward, value, done)[:, 0], torch.tensor(targets))


def test_the_gradient_of_the_actor_is_that_of_finite_differences():
    learner = SHAC(Environment(Arm(limit=5.0), dtype=torch.float64), SHAC.Options(horizon=6, environments=3))
    start, seed = [x.clone() for x in learner.vector.tensors()], learner.generator.get_state()
    weight = learner.actor.mean[0].weight

    def loss():
        learner.generator.set_state(seed)
        learner._state = [x.clone() for x in start]
        learner.vector.store([x.clone() for x in start])
        for mine, first in zip(learner.vector.tensors(), start, strict=True):
            mine.copy_(first)
        return learner._roll(6)[0]

    loss()
    gradient = weight.grad[3, 1].clone()
    with torch.no_grad():
        weight[3, 1] += 1e-6
        above = loss()
        weight[3, 1] -= 2e-6
        below = loss()
    assert torch.allclose(gradient, (above - below) / 2e-6, rtol=1e-5)
    assert gradient.abs() > 1e-8


def test_a_run_resumes_bit_for_bit(tmp_path):
    options = {"environments": 4, "horizon": 5, "critic_passes": 2, "progress": False, "iterations": 6}
    whole = train(Arm(), folder=tmp_path / "whole", **options)
    parts = {"folder": tmp_path / "parts", **options}
    train(Arm(), until=lambda learner, row: learner.iteration == 3, **parts)
    rest = train(Arm(), resume=True, **parts)
    for name in ("return", "actor_loss", "critic_loss", "gradient", "steps"):
        mine, others = ([row[name] for row in run.rows] for run in (rest, whole))
        assert torch.equal(torch.tensor(mine).nan_to_num(-1.0), torch.tensor(others).nan_to_num(-1.0)), name
    assert len(rest.rows) == 6
    assert all(torch.equal(x, whole.learner.tensors()[name]) for name, x in rest.learner.tensors().items())
    with pytest.raises(InputError, match="is of the task 'arm', not 'cartpole'"):
        train("cartpole", folder=tmp_path / "whole", resume=True, progress=False)
    with pytest.raises(InputError, match="has 4 environments, and this run 5"):
        train(Arm(), folder=tmp_path / "whole", resume=True, **{**options, "environments": 5})


def test_an_interrupted_run_keeps_its_best_policy(tmp_path):
    def interrupt(learner, row):
        if learner.iteration == 4:
            raise KeyboardInterrupt
        return False

    run = train(Arm(), folder=tmp_path, until=interrupt, environments=4, horizon=5, progress=False, iterations=10)
    assert run.interrupted
    assert not math.isnan(run.best)
    assert (tmp_path / "best.safetensors").is_file()
    assert run.best == max(row["return"] for row in run.rows if not math.isnan(row["return"]))


def test_the_horizon_can_grow():
    learner = SHAC(Environment(Arm()), SHAC.Options(iterations=10, horizon=20, first_horizon=4))
    horizons = []
    for iteration in range(10):
        learner.iteration = iteration
        horizons.append(learner.horizon)
    assert horizons == [4, 7, 10, 14, 17, 20, 20, 20, 20, 20]


def test_more_environments_than_memory_says_how_many_fit(monkeypatch):
    iterate = SHAC.iterate

    def hungry(self):
        if self.options.environments > 1000:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return iterate(self)

    monkeypatch.setattr(SHAC, "iterate", hungry)
    with pytest.raises(InputError, match=r"5,000 environments of task 'arm' .* about [\d,]+ do: pass environments="):
        train(Arm(), environments=5000, horizon=4, critic_passes=1, iterations=2, progress=False)


def test_wrong_options_are_named():
    with pytest.raises(InputError, match=r"shac: no option 'horizont'; options: .*horizon"):
        train(Arm(), horizont=3)
    with pytest.raises(InputError, match=r"no algorithm 'shack'; algorithms: .*shac"):
        train(Arm(), "shack")
    assert make_task(task := Arm()) is task
    assert Vector(Environment(task), 2).n == 2
