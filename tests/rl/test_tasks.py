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
    "humanoid": (76, 21),
    "panda_push": (40, 8),
    "panda_reach": (30, 8),
    "pendulum": (4, 1),
    "go2": (48, 12),
}
TIMES = {"cartpole": 240, "pendulum": 100, "panda_push": 100, "panda_reach": 100}


@pytest.mark.parametrize("name", sorted(SIZES))
def test_sizes_and_times(name):
    environment = Environment(make_task(name))
    assert (environment.observation_size, environment.action_size) == SIZES[name]
    assert environment.task.episode_steps == TIMES.get(name, 1000)
    dt = {"ant2021": 0.05, "go2": 0.02, "panda_push": 0.04, "panda_reach": 0.04}.get(name, 1.0 / 60.0)
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


@pytest.mark.parametrize("link", ["torso", "left_foot", "right_lower_arm"])
def test_the_inertias_of_the_humanoid_are_those_that_mujoco_finds_for_its_shapes(link):
    mujoco = pytest.importorskip("mujoco")
    model = make_task("humanoid").simulator.model
    body = model.bodies[model.body_index(link)]
    spec = mujoco.MjSpec()
    part = spec.worldbody.add_body()
    for shape in model.geometries:
        if shape.link == link:
            kind = {"capsule": mujoco.mjtGeom.mjGEOM_CAPSULE, "sphere": mujoco.mjtGeom.mjGEOM_SPHERE}[shape.kind]
            along = [row[2] for row in shape.rotation]
            ends = [
                [c + side * shape.size[1] * a for c, a in zip(shape.position, along, strict=True)]
                for side in (-1.0, 1.0)
            ]
            if shape.kind == "capsule":
                part.add_geom(type=kind, size=[shape.size[0], 0.0, 0.0], fromto=[*ends[0], *ends[1]])
            else:
                part.add_geom(type=kind, size=shape.size, pos=shape.position)
    found = spec.compile()
    assert abs(found.body_mass[1] - body.mass) < 1e-9
    assert max(abs(a - b) for a, b in zip(found.body_ipos[1], body.com, strict=True)) < 1e-9
    xx, xy, xz, yy, yz, zz = body.inertia
    own = torch.linalg.eigvalsh(torch.tensor([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]], dtype=torch.float64))
    assert torch.allclose(torch.tensor(sorted(found.body_inertia[1])), own, rtol=1e-9)


def test_the_humanoid_is_that_of_diffrl():
    environment = Environment(make_task("humanoid"), dtype=torch.float64)
    model = environment.task.simulator.model
    assert len(model.actuators) == 21
    assert sum(actuator.joint.endswith(("ankle_y", "ankle_x")) for actuator in model.actuators) == 4
    assert all(actuator.gear[0] == 0.35 * round(actuator.gear[0] / 0.35) for actuator in model.actuators)
    state = environment.reset(2, torch.Generator().manual_seed(0))
    action = torch.full((2, 21), 0.5, dtype=torch.float64)
    for height, bonus in ((1.3, 1.0), (0.89, 0.5), (0.8, -200.0 * 0.04**2)):
        q = state.q.clone()
        q[:, 2] = height
        moved = state.replace(simulation=environment.task.simulator.state(q, state.v))
        row = environment.observe(moved)
        expected = row[:, 5] + 0.1 * row[:, 53] + row[:, 54] + bonus - 0.002 * 21 * 0.25
        assert torch.allclose(environment.task.reward(state, action, moved), expected)


def test_the_gradient_of_a_push_is_that_of_finite_differences():
    """The peg reaches the box and moves it, so that the gradient passes through the contact of both."""
    environment = Environment(make_task("panda_push"), dtype=torch.float64)
    start = environment.reset(2, torch.Generator().manual_seed(0))

    def roll(action):
        state, total = start, torch.zeros(2, dtype=torch.float64)
        for _ in range(20):
            state, reward, _, _ = environment.step(state, action)
            total = total + reward
        return state, total

    action = torch.zeros(2, 8, dtype=torch.float64)
    action[:, [1, 3, 5]] = torch.tensor([0.5, 0.9, -0.4], dtype=torch.float64)  # the hand goes out along x
    action.requires_grad_()
    state, total = roll(action)
    assert (state.q[:, 8] - start.q[:, 8] > 0.005).all()
    (gradient,) = torch.autograd.grad(total.sum(), action)
    way = torch.randn(2, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        change = (roll(action + 1e-6 * way)[1] - roll(action - 1e-6 * way)[1]) / 2e-6
    assert torch.allclose((gradient * way).sum(-1), change, rtol=1e-5)


@pytest.mark.parametrize("name", ["panda_reach", "panda_push"])
def test_an_arm_whose_actions_are_velocities_carries_its_weight(name):
    environment = Environment(make_task(name), dtype=torch.float64)
    start = state = environment.reset(2, torch.Generator().manual_seed(0))
    for _ in range(10):
        state, *_ = environment.step(state, torch.zeros(2, 8, dtype=torch.float64))
    assert (state.q - start.q)[:, :7].abs().max() < 1e-4  # soft ground reaches the peg a little


def test_no_torque_of_the_reaching_arm_is_at_its_limit():
    """There it would have no gradient, and nothing could be learned by one; each joint follows its own action."""
    environment = Environment(make_task("panda_reach"), dtype=torch.float64)
    state = environment.reset(16, torch.Generator().manual_seed(0))
    action = 2.0 * torch.rand(16, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64) - 1.0
    action.requires_grad_()
    for _ in range(12):
        state, *_ = environment.step(state, action)
    for joint in range(7):
        (slope,) = torch.autograd.grad(state.v[:, joint].sum(), action, retain_graph=True)
        assert (slope[:, joint] > 0.6).all()
