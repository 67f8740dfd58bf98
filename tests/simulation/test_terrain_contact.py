import math

import pytest
import torch
from kernel_checks import DEVICES

import adjoin
from adjoin.collision.terrain import Heightfield
from adjoin.constraints.pgs import PGS
from adjoin.errors import InputError
from adjoin.simulation.simulator import Simulator


def slope(angle, rows=9, columns=17, spacing=0.25):
    """A plane that rises along x."""
    x = spacing * (torch.arange(columns, dtype=torch.float64) - (columns - 1) / 2)
    return Heightfield((x * math.tan(angle)).expand(rows, columns), spacing)


def ball_on(terrain, **options):
    return Simulator(adjoin.robots.load("ball"), 1e-3, PGS(iterations=40, **options), terrain=terrain)


def radius(sim):
    return sim.model.geometries[0].size[0]


def resting(sim, x, y, height, batch=()):
    q = sim.model.neutral(batch, dtype=torch.float64)
    q[..., :3] = torch.tensor([x, y, height + radius(sim)], dtype=torch.float64)
    return sim.state(q)


def roll(sim, state, steps, **options):
    return sim.rollout(state, state.q.new_zeros(steps, *state.batch, 0), **options)


@pytest.mark.parametrize("device", DEVICES)
def test_a_ball_rests_on_level_terrain(device):
    sim = ball_on(Heightfield(torch.full((4, 4), 0.3), 1.0))
    state = resting(sim, 0.2, -0.3, 0.3 + 0.05)
    state = state.to(device)
    end = roll(sim, state, 600).last
    assert abs(float(end.q[2]) - 0.3 - radius(sim)) < 1e-4
    assert float(sim.contacts(end).force[0, 2]) == pytest.approx(sim.model.mass * 9.81, rel=1e-3)


def test_a_ball_rolls_down_a_slope_by_five_sevenths():
    angle, steps = 0.2, 400
    sim = ball_on(slope(angle))
    start = resting(sim, 0.5, 0.0, 0.5 * math.tan(angle) + radius(sim) * (1 / math.cos(angle) - 1))
    end = roll(sim, start, steps)
    along = 0.5 * 5 / 7 * 9.81 * math.sin(angle) * (steps * 1e-3) ** 2
    assert float(end.q[0, 0] - end.q[-1, 0]) == pytest.approx(along * math.cos(angle), rel=0.01)
    assert not end.status.any()


def test_terrain_is_what_a_tilted_plane_is():
    angle = 0.15
    on_terrain, on_plane = ball_on(slope(angle)), Simulator(adjoin.robots.load("ball"), 1e-3, PGS(iterations=40))
    turned = torch.tensor([math.cos(-angle / 2), 0.0, math.sin(-angle / 2), 0.0], dtype=torch.float64)
    rotation = on_plane.model.parameters(dtype=torch.float64)["geometry_rotation"]
    rotation[on_plane.model.geometry_index("ground")] = turned
    start = resting(on_terrain, 0.3, 0.1, 0.3 * math.tan(angle) + 0.05)
    flat, tilted = roll(on_terrain, start, 300), roll(on_plane, start, 300, params={"geometry_rotation": rotation})
    torch.testing.assert_close(flat.q, tilted.q, atol=1e-9, rtol=0)


def test_heights_and_their_offset_are_one_per_environment():
    sim = ball_on(Heightfield(torch.zeros(3, 3), 1.0))
    heights = torch.tensor([0.0, 0.1, 0.2], dtype=torch.float64)[:, None, None].expand(3, 3, 3)
    position = sim.model.parameters(dtype=torch.float64)["geometry_position"].expand(3, -1, -1).clone()
    position[:, sim.model.geometry_index("ground"), 2] = torch.tensor([0.0, 0.0, 0.5])
    start = resting(sim, 0.1, 0.1, torch.tensor(0.8), (3,))
    end = roll(sim, start, 1000, params={"terrain": heights, "geometry_position": position}).last
    torch.testing.assert_close(end.q[:, 2] - radius(sim), torch.tensor([0.0, 0.1, 0.7]).double(), atol=1e-3, rtol=0)


def test_gradients_to_the_start_and_to_the_offset_are_slopes():
    torch.manual_seed(0)
    sim = ball_on(Heightfield(0.2 * torch.rand(6, 6, dtype=torch.float64), 0.5))
    offset = sim.model.parameters(dtype=torch.float64)["geometry_position"]

    def after(q, offset):
        states = roll(sim, sim.state(q), 120, params={"geometry_position": offset})
        return torch.cat([states.q[-1], states.v[-1]])

    q = resting(sim, 0.13, 0.21, 0.2).q
    inputs = (q.requires_grad_(), offset.requires_grad_())
    weights = torch.randn(13, dtype=torch.float64)
    gradients = torch.autograd.grad(after(*inputs) @ weights, inputs)
    for i in range(2):
        direction = torch.zeros_like(inputs[i])
        direction[(0,) if i == 0 else (sim.model.geometry_index("ground"), 2)] = 1.0
        moved = [
            [x.detach() + (sign * 1e-6 * direction if i == k else 0) for k, x in enumerate(inputs)] for sign in (1, -1)
        ]
        difference = (after(*moved[0]) - after(*moved[1])) @ weights / 2e-6
        assert float((gradients[i] * direction).sum()) == pytest.approx(float(difference), rel=1e-5)


def test_legs_stand_on_rough_ground():
    torch.manual_seed(1)
    model = adjoin.robots.load("go2")
    feet = [(f"{leg}_foot", "ground") for leg in ("FL", "FR", "RL", "RR")]
    sim = Simulator(model, 1e-3, pairs=feet, terrain=Heightfield(0.05 * torch.rand(40, 40), 0.1))
    pose = torch.tensor([0.0, 0.8, -1.5] * 4, dtype=torch.float64)
    q = model.neutral(dtype=torch.float64)
    q[2], q[7:] = 0.4, pose
    stand = sim.rollout(
        sim.state(q),
        pose.expand(1500, 12),
        controller=lambda q, v, control: 40.0 * (control - q[7:]) - 2.0 * v[6:],
    )
    assert not stand.status.any()
    force = sim.contacts(stand.last, 40.0 * (pose - stand.q[-1, 7:]) - 2.0 * stand.v[-1, 6:]).force
    assert float(force.sum(0)[2]) == pytest.approx(model.mass * 9.81, rel=0.02)


def test_a_cylinder_stands_on_terrain():
    model = adjoin.load(
        """<mujoco><worldbody><body pos="0 0 0.2"><freejoint/>
        <geom name="drum" type="cylinder" size="0.1 0.15"/></body></worldbody></mujoco>"""
    )
    sim = Simulator(model, 1e-3, terrain=Heightfield(0.05 + torch.zeros(20, 20), 0.1))
    q = model.neutral(dtype=torch.float64)
    q[2] = 0.205
    last = sim.rollout(sim.state(q), torch.zeros(400, 0, dtype=torch.float64)).last
    assert last.q[2].item() == pytest.approx(0.2, abs=1e-3)
    assert last.q[3].item() == pytest.approx(1.0, abs=1e-6)
    assert float(sim.contacts(last).force.sum(0)[2]) == pytest.approx(model.mass * 9.81, rel=1e-3)


def test_heights_are_checked():
    sim = Simulator(adjoin.robots.load("ball"))
    with pytest.raises(InputError, match="'terrain' is not a parameter of this simulator"):
        sim.step(sim.state(), params={"terrain": torch.zeros(3, 3)})
    with pytest.raises(InputError, match=r"heights must be finite and of shape \(rows, columns\)"):
        Heightfield(torch.zeros(5))
