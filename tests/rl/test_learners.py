"""SAPO, analytic policy gradients, MBPO and its two enhancements."""

import pytest
import torch
from arm import Arm

from adjoin.rl import APG, MBPO, SAPO, Environment, PolicyEnhancement, SampleEnhancement, train
from adjoin.rl.gradients import action_jacobian
from adjoin.rl.learners.replay import Replay

SMALL = {"environments": 4, "iterations": 4, "progress": False}
OFF_POLICY = {"epoch_steps": 12, "exploration_steps": 12, "updates": 1, "batch": 16, "hidden": (8,), "model_every": 6}


@pytest.mark.parametrize("algorithm", ["sapo", "apg", "mbpo", "sample_enhancement", "policy_enhancement"])
def test_learners_improve_and_resume_bit_for_bit(algorithm, tmp_path):
    more = (
        {"horizon": 4, "critic_passes": 1}
        if algorithm in ("sapo", "apg")
        else {**OFF_POLICY, "model_updates": 2, "model_rollouts": 8}
    )
    options = {**SMALL, **more}
    whole = train(Arm(), algorithm, folder=tmp_path / "whole", **options)
    train(Arm(), algorithm, folder=tmp_path / "parts", until=lambda learner, row: learner.iteration == 2, **options)
    rest = train(Arm(), algorithm, folder=tmp_path / "parts", resume=True, **options)
    assert len(rest.rows) == 4
    assert all(torch.equal(x, whole.learner.tensors()[name]) for name, x in rest.learner.tensors().items())
    fresh = type(whole.learner)(whole.learner.environment, whole.learner.options)
    changed = [name for name, x in fresh.networks().items() if not torch.equal(x, whole.learner.networks()[name])]
    assert any(name.startswith("modules/actor") for name in changed)
    assert all(x.isfinite().all() for x in whole.learner.networks().values())


def test_the_entropy_of_sapo_is_that_of_its_actions():
    learner = SAPO(Environment(Arm()), SAPO.Options(horizon=2, environments=4000))
    observation = learner.vector.observe()
    action, bonus = learner._sample(observation)
    mean, raw = learner.actor.network(observation).chunk(2, -1)
    low, high = learner.actor.LOG_DEVIATION
    deviation = (low + 0.5 * (high - low) * (raw.tanh() + 1.0)).exp()
    unbounded = torch.atanh(action.double())
    normal = torch.distributions.Normal(mean.double(), deviation.double())
    expected = normal.log_prob(unbounded) - (1.0 - action.double().square()).log()
    assert torch.allclose(bonus.double(), -expected[:, 0], atol=1e-3)


def test_analytic_gradients_ignore_what_comes_after_the_horizon():
    learner = APG(Environment(Arm()), APG.Options(horizon=3, environments=2))
    assert learner._value(torch.ones(3, 2, 5)).abs().max() == 0.0


def test_the_jacobian_to_the_action_is_that_of_finite_differences():
    environment = Environment(Arm(), dtype=torch.float64)
    state = environment.reset(3, torch.Generator().manual_seed(0))
    action = torch.tensor([[0.1], [-0.4], [0.7]], dtype=torch.float64)
    jacobian = action_jacobian(environment, state, action)

    def outputs(action):
        step = environment.step(state, action)
        return torch.cat([environment.observe(step.state), step.reward[:, None]], -1)

    slope = (outputs(action + 1e-6) - outputs(action - 1e-6)) / 2e-6
    assert torch.allclose(jacobian[..., 0], slope, atol=1e-8)


def test_samples_around_a_true_one_are_right_to_first_order():
    environment = Environment(Arm(), dtype=torch.float64)
    learner = SampleEnhancement(environment, SampleEnhancement.Options(environments=3, extra_samples=9))
    state, action = learner.vector.state, torch.tensor([[0.1], [-0.4], [0.7]], dtype=torch.float64)
    step = environment.step(state, action)
    row = {"observation": environment.observe(state), "action": action, "reward": step.reward}
    row |= {"next": environment.observe(step.state), "end": torch.zeros(3, dtype=torch.float64)}
    extra = learner._extra(row, action_jacobian(environment, state, action))
    assert extra["action"].shape == (27, 1)
    true = environment.step(state.map(lambda x: x.repeat(9, *[1] * (x.dim() - 1))), extra["action"])
    moved = (extra["next"] - row["next"].repeat(9, 1)).abs().max()
    assert (extra["next"] - environment.observe(true.state)).abs().max() < 0.02 * moved
    assert torch.allclose(extra["reward"], true.reward, atol=1e-4)
    coarse = SampleEnhancement(environment, SampleEnhancement.Options(environments=3, one_row=True))
    changed = coarse._extra(row, action_jacobian(environment, state, action))["next"] != row["next"].repeat(9, 1)
    assert (changed.sum(-1) == 1).all()  # one number of the observation, as in the authors' code


def test_the_gradient_of_policy_enhancement_is_that_through_the_simulator():
    environment = Environment(Arm(limit=50.0), dtype=torch.float64)
    options = PolicyEnhancement.Options(environments=3, hidden=(8,))
    learner = PolicyEnhancement(environment, options)
    state, action = learner.vector.state, torch.tensor([[0.1], [-0.4], [0.7]], dtype=torch.float64)
    step = environment.step(state, action)
    batch = {"next": environment.observe(step.state), "end": torch.zeros(3, dtype=torch.float64)}
    batch["jacobian"] = action_jacobian(environment, state, action)
    seed = learner.generator.get_state()
    slope = learner.action_gradient(batch)
    learner.generator.set_state(seed)
    leaf = action.clone().requires_grad_()
    moved = environment.step(state, leaf)
    value = moved.reward + options.discount * learner._soft_value(environment.observe(moved.state))
    (expected,) = torch.autograd.grad(value.sum(), leaf)
    assert torch.allclose(slope, expected, atol=1e-10)


def test_a_memory_keeps_the_latest_samples():
    memory = Replay(4, {"x": ()}, torch.float32, torch.device("cpu"))
    memory.add({"x": torch.tensor([1.0, 2.0, 3.0])})
    memory.add({"x": torch.tensor([4.0, 5.0])})
    assert len(memory) == 4
    assert sorted(memory.all("x").tolist()) == [2.0, 3.0, 4.0, 5.0]
    memory.add({"x": torch.arange(9.0)})
    assert sorted(memory.all("x").tolist()) == [5.0, 6.0, 7.0, 8.0]
    assert MBPO.name == "mbpo"
