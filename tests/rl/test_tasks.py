"""The tasks that ship: sizes, figures and rewards."""

import math

import pytest
import torch

from adjoin.rl import Environment, make_task

SIZES = {
    "ant": (37, 8),
    "ant2021": (27, 8),
    "cartpole": (5, 1),
    "half_cheetah": (17, 6),
    "hopper": (11, 3),
    "humanoid": (64, 17),
    "panda_reach": (30, 8),
    "pendulum": (4, 1),
    "go2": (48, 12),
}
TIMES = {"cartpole": 240, "pendulum": 100, "panda_reach": 100}


@pytest.mark.parametrize("name", sorted(SIZES))
def test_sizes_and_times(name):
    environment = Environment(make_task(name))
    assert (environment.observation_size, environment.action_size) == SIZES[name]
    assert environment.task.episode_steps == TIMES.get(name, 1000)
    dt = {"ant2021": 0.05, "go2": 0.02, "panda_reach": 0.04}.get(name, 1.0 / 60.0)
    assert math.isclose(environment.task.control_dt, dt)
    state = environment.reset(8, torch.Generator().manual_seed(0))
    assert not environment.task.terminated(state).any()
    assert environment.observe(state).isfinite().all()


def test_the_ant_is_that_of_diffrl():
    environment = Environment(make_task("ant"), dtype=torch.float64)
    model = environment.task.simulator.model
    assert abs(model.mass - 182.0) < 0.5
    assert environment.control(torch.ones(8, dtype=torch.float64)).tolist() == [1.0] * 8
    assert {actuator.gear[0] * actuator.gain for actuator in model.actuators} == {200.0}
    state = environment.reset(3, torch.Generator().manual_seed(1))
    row = environment.observe(state)
    expected = row[:, 5] + 0.1 * row[:, 27] + row[:, 28] + row[:, 0] - 0.27
    assert torch.allclose(environment.task.reward(state, state.action, state), expected)
    turned = torch.tensor([[0.0, 0.0, 0.75, math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5)]], dtype=torch.float64)
    q = torch.cat([turned, torch.zeros(1, 8, dtype=torch.float64)], -1)
    v = torch.zeros(1, 14, dtype=torch.float64)
    v[0, 1] = -2.0  # sideways in its own axes, and it faces y: 2 m/s along x
    moved = state.map(lambda x: x[:1])
    row = environment.observe(moved.replace(simulation=environment.task.simulator.state(q, v)))[0]
    assert torch.allclose(row[5:8], torch.tensor([2.0, 0.0, 0.0], dtype=torch.float64), atol=1e-12)
    assert torch.allclose(row[27:29], torch.tensor([1.0, 0.0], dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("links", [1, 3])
def test_the_return_of_the_pendulum_is_at_most_half_its_links_squared(links):
    task = make_task("pendulum", links=links)
    environment = Environment(task, dtype=torch.float64)
    state = environment.reset(1)
    up = torch.zeros(1, links, dtype=torch.float64)
    up[:, 0] = math.pi
    top = state.replace(simulation=task.simulator.state(up))
    assert abs(task.reward(state, state.action, top).item() - 0.5 * links**2) < 1e-12


def test_terrain_is_what_the_scan_sees():
    task = make_task("go2", roughness=0.1)
    environment = Environment(task)
    state = environment.reset(4, torch.Generator().manual_seed(0))
    heights = state.params["terrain"]
    assert heights.shape == (4, 96, 96)
    assert heights.std() > 0.01
    node = torch.tensor([40, 50])  # row along y, column along x
    place = task.spacing * (torch.tensor([50.0, 40.0]) - 0.5 * 95)
    seen = task._ground(state, place.expand(4, 1, 2))[:, 0]
    assert torch.allclose(seen, heights[:, node[0], node[1]], atol=1e-4)


def test_the_example_learns(run_example):
    assert "10 iterations: return" in run_example("24_learn_to_swing_up.py")
