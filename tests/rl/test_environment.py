import dataclasses

import pytest
import torch
from arm import Arm

import adjoin
from adjoin.errors import InputError
from adjoin.rl import Environment, Normal, Push, Randomize, Uniform, Vector, make_task
from adjoin.rl.gradients import clip_between_steps, diagnose


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def double(task):
    return Environment(task, dtype=torch.float64)


def test_an_environment_is_a_pure_function():
    environment = Environment(Arm())
    first, second = (environment.reset(5, generator(3)) for _ in range(2))
    assert torch.equal(first.q, second.q)
    before = first.q.clone()
    action = torch.full((5, 1), 0.3)
    one, two = environment.step(first, action), environment.step(second, action)
    assert torch.equal(one.state.q, two.state.q)
    assert torch.equal(first.q, before)
    assert environment.observation_size == 3
    assert environment.action_size == 1
    assert environment.observe(one.state).shape == (5, 3)


def test_an_action_lasts_as_many_steps_as_the_task_says_and_is_scaled():
    task = Arm()
    environment = double(task)
    state = environment.reset(3, generator())
    step = environment.step(state, torch.full((3, 1), 0.4, dtype=torch.float64))
    expected = state.simulation
    for _ in range(task.decimation):
        expected = task.simulator.step(expected, torch.full((3, 1), 0.5 + 5.0 * 0.4, dtype=torch.float64))
    assert torch.allclose(step.state.q, expected.q)
    assert torch.allclose(step.state.v, expected.v)
    clipped = environment.step(state, torch.full((3, 1), 7.0, dtype=torch.float64))
    assert torch.equal(clipped.state.q, environment.step(state, torch.ones(3, 1, dtype=torch.float64)).state.q)


def test_actions_are_scaled_by_the_control_range_of_the_file():
    environment = Environment(make_task("cartpole"))
    assert environment.control(torch.tensor([0.5])).item() == 0.5
    with pytest.raises(InputError, match=r"task 'arm': action_scale .* no control range: joint1"):
        Environment(Arm(action_scale=None))


def test_resets_and_ends_are_those_of_a_plain_loop():
    """Each environment on its own, with its own random numbers, in a loop as one would write it by hand."""
    n, task = 6, Arm()
    environment = double(task)
    vector = Vector(environment, n, generator(1))
    mirror = generator(1)
    state = environment.reset(n, mirror)
    states, steps, ended = [state.q[k : k + 1] for k in range(n)], [0] * n, set()
    speeds = [state.v[k : k + 1] for k in range(n)]
    for k in range(20):
        action = torch.linspace(-1.0, 1.0, n, dtype=torch.float64)[:, None] * (1.0 if k % 3 else -1.0)
        transition = vector.step(action)
        fresh = environment.reset(n, mirror)
        for i in range(n):
            now = task.simulator.state(states[i], speeds[i])
            for _ in range(task.decimation):
                now = task.simulator.step(now, 0.5 + 5.0 * action[i : i + 1])
            steps[i] += 1
            final = torch.cat([now.q.sin(), now.q.cos(), now.v], -1)[0]
            fails = bool(now.v.abs() > task.limit)
            late = steps[i] == task.episode_steps and not fails
            assert torch.allclose(transition.final_observation[i], final)
            reward = -((now.q[0, 0] - 1.0) ** 2) - 0.01 * action[i, 0] ** 2
            assert torch.allclose(transition.reward[i], reward)
            assert (bool(transition.terminated[i]), bool(transition.truncated[i])) == (fails, late)
            if fails or late:
                ended.add("fails" if fails else "late")
                states[i], speeds[i], steps[i] = fresh.q[i : i + 1], fresh.v[i : i + 1], 0
                first = torch.cat([fresh.q[i].sin(), fresh.q[i].cos(), fresh.v[i]])
                assert torch.allclose(transition.observation[i], first)
            else:
                states[i], speeds[i] = now.q, now.v
                assert torch.allclose(transition.observation[i], final)
    assert ended == {"fails", "late"}


def test_the_gradient_of_a_return_is_that_of_finite_differences_and_is_cut_at_resets():
    environment = double(Arm(limit=3.0))
    start = environment.reset(4, generator(2))

    def total(actions):
        vector = Vector(environment, 4, generator(2))
        vector.state = start
        rewards = [vector.step(action).reward for action in actions]
        return torch.stack(rewards)

    actions = 0.3 * torch.randn(10, 4, 1, dtype=torch.float64, generator=generator(4))
    actions.requires_grad_()
    rewards = total(actions)
    (gradient,) = torch.autograd.grad(rewards.sum(), actions)
    for index in ((0, 0, 0), (3, 2, 0), (8, 1, 0)):
        change = torch.zeros_like(actions)
        change[index] = 1e-6
        with torch.no_grad():
            slope = (total(actions + change).sum() - total(actions - change).sum()) / 2e-6
        assert torch.allclose(gradient[index], slope, rtol=1e-5, atol=1e-8)
    (late,) = torch.autograd.grad(total(actions)[7:].sum(), actions)  # all episodes have ended once by step 7
    assert late[:7].abs().max() == 0.0
    assert late[7:].abs().min() > 0.0


def test_detach_cuts_the_graph():
    vector = Vector(Environment(Arm()), 2)
    action = torch.zeros(2, 1, requires_grad=True)
    vector.step(action)
    assert vector.state.q.requires_grad
    vector.detach()
    assert not vector.state.q.requires_grad


def test_a_frozen_environment_ends_with_reward_0_and_no_nan_reaches_the_policy():
    environment = Environment(Arm())
    vector = Vector(environment, 3, generator())
    speeds = vector.state.v.clone()
    speeds[1] = 1e9  # too fast: the simulator freezes it
    vector.state = vector.state.replace(simulation=dataclasses.replace(vector.state.simulation, v=speeds))
    action = torch.zeros(3, 1, requires_grad=True)
    transition = vector.step(action)
    assert transition.terminated.tolist() == [False, True, False]
    assert transition.reward[1] == 0.0
    (gradient,) = torch.autograd.grad(transition.reward.sum() + transition.observation.sum(), action)
    assert gradient.isfinite().all()
    transition = vector.step(torch.tensor([[0.0], [0.0], [torch.nan]]))
    assert transition.terminated.tolist() == [False, False, True]
    assert transition.reward[2] == 0.0
    assert transition.observation.isfinite().all()
    assert transition.final_observation.isfinite().all()


def test_delays_noise_and_pushes():
    plain, late = (Environment(task) for task in (Arm(), Arm(action_delay=(2, 2), observation_delay=(1, 1))))
    one, two = plain.reset(2, generator()), late.reset(2, generator())
    two = two.replace(simulation=one.simulation)
    idle = -0.1 * torch.ones(2, 1)
    for k in range(4):
        observed = plain.observe(one)
        one = plain.step(one, torch.zeros(2, 1) if k < 2 else idle).state
        two = late.step(two, idle).state
        if k:
            assert torch.equal(late.observe(two), observed)
    assert torch.equal(one.q, two.q)

    noisy = Environment(Arm(observation_noise=Normal(0.0, 0.1)))
    state = noisy.reset(1000, generator())
    noise = noisy.observe(state, generator(5)) - noisy.observe(state)
    assert abs(noise.std().item() - 0.1) < 0.01

    push = Push("tip", Uniform(30.0, 40.0), every=0.12, duration=0.04)
    shoved, calm = Environment(Arm(push=push)), Environment(Arm())
    one = shoved.reset(2, generator())
    two = calm.reset(2, generator()).replace(simulation=one.simulation)
    still = torch.zeros(2, 1)
    differences = []
    for _ in range(4):  # the fourth action begins after 0.12 s
        one, two = shoved.step(one, still).state, calm.step(two, still).state
        differences.append((one.v - two.v).abs().max().item())
    assert differences[:3] == [0.0, 0.0, 0.0]
    assert differences[3] > 0.0


def test_parameters_are_drawn_for_each_environment():
    randomized = (
        Randomize("mass", scale=Uniform(0.5, 2.0), of="link1"),
        Randomize("gravity", add=Normal(0.0, 0.1)),
        Randomize("damping", sample=lambda random, n: random.uniform(0.0, 0.1, n, 1)),
    )
    task = Arm(randomized=randomized)
    environment = double(task)
    state = environment.reset(50, generator())
    own = task.simulator.model.parameters(dtype=torch.float64)
    factor = state.params["mass"] / own["mass"]
    assert (factor.min() > 0.5) & (factor.max() < 2.0) & (factor.std() > 0.1)
    assert torch.allclose(state.params["inertia"], own["inertia"] * factor[..., None])
    assert state.params["gravity"].std(0).min() > 0.05
    action = torch.zeros(50, 1, dtype=torch.float64)
    step = environment.step(state, action)
    alone = task.simulator.state(state.q[7], state.v[7])
    for _ in range(2):
        params = {name: x[7] for name, x in state.params.items()}
        alone = task.simulator.step(alone, torch.tensor([0.5], dtype=torch.float64), params)
    assert torch.allclose(step.state.q[7], alone.q)
    vector = Vector(environment, 50, generator())
    before = vector.state.params["mass"].clone()
    vector.step(action)
    for _ in range(task.episode_steps):
        vector.step(action)
    assert not torch.equal(vector.state.params["mass"], before)  # drawn anew at resets


def test_gradients_between_steps_are_bounded():
    environment = double(Arm())
    state = environment.reset(3, generator())
    q = state.q.clone().requires_grad_()
    clipped = clip_between_steps(state.replace(simulation=dataclasses.replace(state.simulation, q=q)), 1.0)
    factors = torch.tensor([[100.0], [0.5], [torch.nan]], dtype=torch.float64)
    (gradient,) = torch.autograd.grad((clipped.q * factors).sum(), q)
    assert torch.allclose(gradient, torch.tensor([[1.0], [0.5], [0.0]], dtype=torch.float64))
    adjoints = diagnose(environment, state, lambda observation: 0.1 * observation[:, :1], 5)
    assert adjoints.norm.shape == (6, 3)
    assert adjoints.norm[:-1].min() > 0.0
    assert adjoints.norm[-1].max() == 0.0
    assert "environment" in str(adjoints)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": lambda before, action, after: after.q}, r"task 'arm': reward must be torch.float32, \(2,\)"),
        ({"reward": lambda before, action, after: 1.0}, "got float"),
        ({"terminated": lambda state: state.q[:, 0]}, "terminated must be torch.bool"),
    ],
)
def test_wrong_results_of_a_task_are_named(change, message):
    environment = Environment(Arm(**change))
    with pytest.raises(InputError, match=message):
        environment.step(environment.reset(2), torch.zeros(2, 1))


def test_wrong_arguments_are_named():
    environment = Environment(Arm())
    with pytest.raises(InputError, match=r"actions must be torch.float32, \(2, 1\); got torch.float32, \(2, 3\)"):
        environment.step(environment.reset(2), torch.zeros(2, 3))
    with pytest.raises(InputError, match=r"no task 'pendulm'; tasks: .*cartpole.*pendulum"):
        make_task("pendulm")
    with pytest.raises(InputError, match="one of scale, add and sample"):
        Randomize("mass")
    with pytest.raises(InputError, match="no body 'leg'"):
        Environment(Arm(randomized=[Randomize("mass", scale=Uniform(0.5, 1.0), of="leg")]))
    with pytest.raises(InputError, match="no parameter 'maas'"):
        Environment(Arm(randomized=[Randomize("maas", scale=Uniform(0.5, 1.0))]))
    with pytest.raises(InputError, match="must be a Task"):
        Environment("pendulum")  # type: ignore[arg-type]
    assert adjoin.rl.Vector is Vector
