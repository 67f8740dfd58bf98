"""Each adapter against the real package: its checker, and an iteration of training."""

import warnings

import numpy as np
import pytest
import torch
from arm import Arm

from adjoin.rl import Environment, Vector
from adjoin.rl.adapters.gymnasium import gymnasium_env, gymnasium_vector, register_gymnasium


@pytest.fixture
def environment():
    return Environment(Arm())


def test_gymnasium_checks_a_single_environment(environment):
    checker = pytest.importorskip("gymnasium.utils.env_checker")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it wishes for bounds of observations, and for a spec
        checker.check_env(gymnasium_env(environment), skip_render_check=True)


def test_gymnasium_makes_vectors_by_name():
    gymnasium = pytest.importorskip("gymnasium")
    names = register_gymnasium()
    assert {"adjoin/ant-v0", "adjoin/pendulum-v0"} <= set(names)
    assert register_gymnasium() == names
    vector = gymnasium.make_vec("adjoin/pendulum-v0", num_envs=3, links=2)
    observation, info = vector.reset(seed=4)
    assert vector.observation_space.contains(observation)
    assert info == {}
    row = vector.step(vector.action_space.sample())
    assert vector.observation_space.contains(row[0])
    assert row[1].shape == row[2].shape == row[3].shape == (3,)
    single = gymnasium.make("adjoin/pendulum-v0")
    assert single.observation_space.contains(single.reset(seed=1)[0])


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_gymnasium_resets_as_its_own_vectors_do(environment, mode):
    """The same actions in a vector of gymnasium, made of single environments: ends come at the same steps."""
    gymnasium = pytest.importorskip("gymnasium")
    ours = gymnasium_vector(environment, 2, mode)
    theirs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium_env(environment)] * 2, autoreset_mode=mode)
    steps = environment.task.episode_steps
    environment.task.limit = 1e9  # episodes end by time alone, so that starts do not matter
    ours.reset(seed=0)
    theirs.reset(seed=0)
    assert ours.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"]
    action = np.zeros((2, 1), np.float32)
    for k in range(3 * steps):
        mine, others = ours.step(action), theirs.step(action)
        assert mine[2].tolist() == others[2].tolist(), k
        assert mine[3].tolist() == others[3].tolist(), k
        assert ("final_obs" in mine[4]) == ("final_obs" in others[4]), k
        assert (mine[1] == 0.0).tolist() == (others[1] == 0.0).tolist(), k


def test_rsl_rl_trains(environment, tmp_path):
    runners = pytest.importorskip("rsl_rl.runners")
    from adjoin.rl.adapters.rsl_rl import rsl_rl_env

    network = {"class_name": "MLPModel", "hidden_dims": [8], "activation": "elu", "obs_normalization": True}
    config = {
        "num_steps_per_env": 8,
        "save_interval": 100,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": {**network, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 0.5}},
        "critic": network,
        "algorithm": {"class_name": "PPO", "num_learning_epochs": 1, "num_mini_batches": 1},
        "logger": "tensorboard",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = runners.OnPolicyRunner(rsl_rl_env(environment, 4), config, None, "cpu")
        before = [p.clone() for p in runner.alg.actor.parameters()]
        runner.learn(2, init_at_random_ep_len=True)
    assert any(not torch.equal(p, old) for p, old in zip(runner.alg.actor.parameters(), before, strict=True))


def test_skrl_trains(environment, tmp_path):
    pytest.importorskip("skrl")
    from skrl.agents.torch.ppo import PPO, PPO_CFG
    from skrl.memories.torch import RandomMemory
    from skrl.trainers.torch import SequentialTrainer, SequentialTrainerCfg
    from skrl.utils.model_instantiators.torch import deterministic_model, gaussian_model

    from adjoin.rl.adapters.skrl import skrl_env

    env = skrl_env(environment, 4)
    observation, _ = env.reset()
    assert observation.shape == (4, 3)
    observation, reward, terminated, truncated, _ = env.step(torch.zeros(4, 1))
    assert observation.shape == (4, 3)
    assert reward.shape == terminated.shape == truncated.shape == (4, 1)
    assert (env.num_envs, env.action_space.shape, env.observation_space.shape) == (4, (1,), (3,))
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space, "device": "cpu"}
    network = [{"name": "net", "input": "OBSERVATIONS", "layers": [8], "activations": "elu"}]
    models = {
        "policy": gaussian_model(**spaces, network=network, output="ACTIONS"),
        "value": deterministic_model(**spaces, network=network, output="ONE"),
    }
    for model in models.values():
        model.act({"observations": observation}, role="policy")  # it makes its layers
    before = [p.clone() for p in models["policy"].parameters()]
    config = PPO_CFG(rollouts=8, learning_epochs=1, mini_batches=1)
    config.experiment.directory, config.experiment.write_interval = str(tmp_path), 0
    config.experiment.checkpoint_interval = 0
    agent = PPO(models=models, memory=RandomMemory(memory_size=8, num_envs=4, device="cpu"), **spaces, cfg=config)
    trainer = SequentialTrainer(
        env=env,
        agents=agent,
        cfg=SequentialTrainerCfg(timesteps=8, disable_progressbar=True, close_environment_at_exit=False),
    )
    trainer.train()
    assert any(not torch.equal(p, old) for p, old in zip(models["policy"].parameters(), before, strict=True))


def test_stable_baselines3_trains(environment):
    sb3 = pytest.importorskip("stable_baselines3")
    from adjoin.rl.adapters.stable_baselines3 import stable_baselines3_env

    env = stable_baselines3_env(environment, 4)
    agent = sb3.PPO("MlpPolicy", env, n_steps=16, batch_size=32, n_epochs=1, device="cpu", seed=0)
    before = agent.policy.action_net.weight.clone()
    agent.learn(64)
    assert not torch.equal(agent.policy.action_net.weight, before)
    env.reset()
    ended = []
    for _ in range(10):
        _, _, done, infos = env.step(np.zeros((4, 1), np.float32))
        ended += [info for info, end in zip(infos, done, strict=True) if end]
    assert all("terminal_observation" in info for info in ended)
    assert ended


def test_torchrl_checks_and_rolls_out_with_gradients(environment):
    envs = pytest.importorskip("torchrl.envs")
    from adjoin.rl.adapters.torchrl import torchrl_env

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        envs.check_env_specs(torchrl_env(environment, 3))
        path = torchrl_env(environment, 3).rollout(10, break_when_any_done=False)
        assert path["next", "reward"].shape == (3, 10, 1)
        gain = torch.tensor(0.3, requires_grad=True)

        def policy(observation):
            return (gain * observation[..., :1]).tanh()

        torch.manual_seed(0)
        path = torchrl_env(environment, 3, gradients=True).rollout(5, policy, break_when_any_done=False)
        (gradient,) = torch.autograd.grad(path["next", "reward"].sum(), gain)
    assert gradient.abs() > 0.0
    assert Vector(environment, 3).n == 3
