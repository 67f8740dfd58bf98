"""What bad input gets: an error that names it, before anything is lost."""

import pytest
import torch
from arm import Arm

from adjoin.errors import InputError
from adjoin.rl import (
    SHAC,
    Environment,
    LogUniform,
    Normal,
    Push,
    Randomize,
    Start,
    TracedPolicy,
    Uniform,
    Vector,
    clip_between_steps,
    diagnose,
    make_task,
    memory,
    train,
)

GRADIENTS = ["shac", "sapo", "apg", "policy_enhancement", "sample_enhancement"]


def learn(task, algorithm="shac", **options):
    sizes = {"epoch_steps": 4} if algorithm.endswith(("mbpo", "enhancement")) else {"horizon": 4}
    return train(task, algorithm, **{"iterations": 2, "environments": 3, "progress": False, **sizes, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iterations": 0}, "iterations must be a whole number of at least 1, got 0"),
        ({"environments": 2.5}, "environments must be a whole number of at least 1, got 2.5"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"horizon": 0}, "horizon must be a whole number of at least 1, got 0"),
        ({"horizon": True}, "horizon must be a whole number of at least 1, got True"),
        ({"first_horizon": 0}, "first_horizon must be a whole number of at least 1 or None, got 0"),
        ({"minibatches": 0}, "minibatches must be a whole number of at least 1"),
        ({"discount": 2}, "discount must be a number from 0 to 1, got 2"),
        ({"actor_rate": torch.nan}, "actor_rate must be a number of at least 0, got nan"),
        ({"clip": 0.0}, "clip must be a positive number"),
        ({"actor": 64}, "actor must be a tuple of whole numbers of at least 1, got 64"),
        ({"betas": (0.9, 1.0)}, "betas must be two numbers of at least 0 and less than 1"),
        ({"normalize": "no"}, "normalize must be True or False, got 'no'"),
        ({"algorithm": "mbpo", "batch": 0}, "batch must be a whole number of at least 1"),
        ({"algorithm": "mbpo", "real_share": 2.0}, "real_share must be a number from 0 to 1"),
        ({"algorithm": "sapo", "entropy": torch.inf}, "entropy must be a finite number"),
        ({"resume": True}, "resume needs a folder; pass folder='FOLDER'"),
        ({"tensorboard": True}, "tensorboard needs a folder"),
        ({"checkpoint_every": 0}, "checkpoint_every must be a whole number of at least 1"),
        ({"device": "gpu"}, "no device 'gpu'; devices: cpu, cuda"),
        ({"device": "cuda:9"}, r"device 'cuda:9': torch sees \d GPUs"),
        ({"task_options": {"links": 3}}, "task 'arm' is made already; pass links to its class"),
    ],
)
def test_options_of_training(options, message):
    with pytest.raises(InputError, match=message):
        learn(Arm(), **options)


def test_tasks_by_name():
    with pytest.raises(InputError, match=r"task 'pendulum': no option 'length'; options: links, integrator, substeps"):
        make_task("pendulum", length=3)
    with pytest.raises(InputError, match=r"no option 'links'; options: .*integrator"):
        make_task("ant2021", links=3)
    with pytest.raises(InputError, match="substeps must be a whole number of at least 1, got 0"):
        make_task("pendulum", substeps=0)
    with pytest.raises(InputError, match="roughness must be a number of at least 0, got -1"):
        make_task("go2", roughness=-1)
    with pytest.raises(InputError, match=r"an instance such as Arm\(\), got the class"):
        train(Arm)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(2.0, 1.0), "Uniform: low must be at most high, got 2.0 and 1.0"),
        (lambda: Uniform(0.0, torch.inf), "Uniform: high must be a finite number, got inf"),
        (lambda: LogUniform(0.0, 1.0), "LogUniform: low must be a positive number"),
        (lambda: Normal(0.0, -1.0), "Normal: deviation must be a number of at least 0, got -1.0"),
        (lambda: Randomize("mass", scale=0.1), r"Randomize\('mass'\): scale must be a distribution such as Uniform"),
        (lambda: Randomize("gains", sample=lambda random, n: None), "or sample actuator_gain and actuator_bias"),
    ],
)
def test_distributions(make, message):
    with pytest.raises(InputError, match=message):
        make()


def start(n, memory):
    return Start(torch.zeros(n, 1), torch.zeros(n, 1), memory)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            {"randomized": Randomize("mass", scale=Uniform(0.5, 1.0))},
            "randomized must be a sequence of Randomize, got ",
        ),
        ({"action_scale": "big"}, "action_scale must be one finite number or 1 of them, got 'big'"),
        ({"start": lambda n, random: start(n, {"goal": torch.zeros(3)})}, r"goal of start must be a tensor \(1, ...\)"),
        ({"name": None}, "Arm: a task must have a name, a str"),
        ({"simulator": None}, "Arm: a task must have a simulator, a Simulator"),
        ({"episode_steps": 0}, "task 'arm': episode_steps must be a whole number of at least 1, got 0"),
        ({"decimation": 1.5}, "decimation must be a whole number"),
        ({"action_delay": (2, 0)}, "action_delay must be the least and the greatest delay, .* got "),
        ({"observation_delay": (-1, 0)}, "observation_delay must be the least and the greatest delay"),
        ({"observation_noise": 0.1}, "observation_noise must be a distribution such as Uniform.* or None, got 0.1"),
        ({"push": Push("tip", 5.0)}, "push: force must be a distribution"),  # type: ignore[arg-type]
        ({"push": Push("tip", Uniform(0.0, 1.0), every=0.0)}, "push: every must be a positive number"),
        ({"observe": lambda state: state.q[:, 0]}, r"observe must be torch.float32, \(1, size\); got .*\(1,\)"),
        ({"observe": lambda state: state.q.double()}, "observe must be torch.float32, .* got torch.float64"),
        ({"observe": lambda state: state.q / 0.0}, "task 'arm': what is observed at a start is not finite"),
        ({"start": lambda n, random: Start(torch.zeros(n, 2), torch.zeros(n, 1))}, r"q of start must be .*\(1, 1\)"),
        ({"start": lambda n, random: Start(torch.zeros(n, 1), torch.zeros(1))}, r"v of start must be .*\(1, 1\)"),
    ],
)
def test_attributes_of_a_task(attributes, message):
    with pytest.raises(InputError, match=message):
        Environment(Arm(**attributes))


@pytest.mark.parametrize(
    ("randomize", "message"),
    [
        (
            Randomize("mass", scale=Uniform(-0.5, 1.0)),
            r"'arm': Randomize\('mass'\): a value can be -.* must be positive",
        ),
        (Randomize("mass", add=Normal(0.0, 10.0)), "a value can be -.* must be positive"),
        (Randomize("inertia", scale=Uniform(-1.0, 1.0)), "must be an inertia"),
        (Randomize("damping", sample=lambda random, n: torch.full((n, 1), torch.nan)), "nan; it must be finite"),
        (
            Randomize("damping", sample=lambda random, n: torch.zeros(n, 3)),
            r"sample must return \('n', 1\); .* \(1, 3\)",
        ),
        (Randomize("damping", sample=lambda random, n: 0.1), "sample must return a tensor, got a float"),  # type: ignore[arg-type]
    ],
)
def test_randomized_parameters_that_nothing_physical_has(randomize, message):
    with pytest.raises(InputError, match=message):
        Environment(Arm(randomized=[randomize]))


def test_randomized_parameters_may_be_what_the_model_has():
    humanoid = make_task("humanoid")  # with bodies of no mass, between the axes of a joint
    humanoid.randomized = [Randomize("mass", scale=Uniform(0.8, 1.2))]
    Environment(humanoid)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda vector: vector.environment.reset(-1), "reset: n must be a whole number of at least 1, got -1"),
        (lambda vector: vector.reset(torch.ones(3, dtype=torch.bool)), r"must be torch.bool, \(2,\); got .*\(3,\)"),
        (lambda vector: vector.reset([True, False]), r"must be torch.bool, \(2,\); got list"),
        (lambda vector: vector.step(torch.zeros(2, 1).double()), "actions must be torch.float32"),
        (lambda vector: clip_between_steps(vector.state, 0.0), "the limit must be positive, got 0.0"),
        (lambda vector: Environment(Arm(), dtype=torch.int32), "dtype must be torch.float32 or torch.float64"),
        (lambda vector: SHAC(vector.environment, {}), "shac: options must be SHACOptions, got a dict"),
        (lambda vector: TracedPolicy(torch.nn.Linear(2, 1)), "must be a torch.nn.Sequential, got a Linear"),  # type: ignore[arg-type]
        (lambda vector: diagnose(vector.environment, vector.state, lambda x: x[:, :1], 0), "steps must be a whole"),
    ],
)
def test_calls_of_environments(call, message):
    with pytest.raises(InputError, match=message):
        call(Vector(Environment(Arm()), 2))


def test_memory_that_a_step_forgets():
    class Forgetful(Arm):
        def start(self, n, random):
            return start(n, {"goal": torch.zeros(n)})

        def remember(self, before, after):
            return {}

    with pytest.raises(InputError, match="remember must return what the start has: goal; got nothing"):
        Vector(Environment(Forgetful()), 2).step(torch.zeros(2, 1))


@pytest.mark.parametrize("algorithm", GRADIENTS)
def test_a_reward_without_gradient_is_named_with_its_task(algorithm):
    class Detached(Arm):
        def reward(self, before, action, after):
            return super().reward(before, action, after).detach()

    with pytest.raises(InputError, match=f"task 'arm': the reward does not depend on the action .* {algorithm} needs"):
        learn(Detached(), algorithm)


@pytest.mark.parametrize("algorithm", ["shac", "mbpo"])
def test_numbers_that_are_not_finite_are_named_with_task_and_environment(algorithm):
    def second(x):
        """NaN in the second environment, if there are three of them."""
        return torch.where(torch.arange(len(x)) % 3 == 1, torch.nan, x)

    class NoReward(Arm):
        def reward(self, before, action, after):
            return second(super().reward(before, action, after))

    class NoSight(Arm):
        def observe(self, state):
            seen = super().observe(state)
            return torch.cat([second(seen[:, 0])[:, None], seen[:, 1:]], -1)

    with pytest.raises(InputError, match="task 'arm': the reward of environment 1 is not finite"):
        learn(NoReward(), algorithm)
    with pytest.raises(InputError, match="task 'arm': the observation of environment 1 is not finite"):
        learn(NoSight(), algorithm)


@pytest.mark.parametrize("algorithm", ["shac", "mbpo"])
def test_more_environments_than_memory_are_refused_before_they_are_made(monkeypatch, algorithm):
    made = []
    monkeypatch.setattr(memory, "free_memory", lambda device: 1e6)
    monkeypatch.setattr(Arm, "start", lambda self, n, random, start=Arm.start: made.append(n) or start(self, n, random))
    message = r"10,000,000 environments of task 'arm' do not fit into the memory of cpu; about [\d,]+ do: pass "
    with pytest.raises(InputError, match=message + "environments="):
        learn(Arm(), algorithm, environments=10_000_000)
    with pytest.raises(InputError, match=message + "n="):
        Vector(Environment(Arm()), 10_000_000)
    assert max(made) <= 64


def test_memory_of_environments_is_estimated():
    """The estimate is that of the gradient over the horizon: it grows with it, and as many as fit are not refused."""
    from adjoin.rl.training import _bytes_each

    environment = Environment(Arm())
    kind = train(Arm(), iterations=1, environments=2, horizon=2, progress=False).learner
    short, long = (_bytes_each(environment, type(kind), kind.Options(horizon=h)) for h in (4, 16))
    assert 2.0 < long / short < 5.0
    memory.check_memory("arm", 2, long, environment.device, "environments")
