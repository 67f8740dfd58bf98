"""On a height field of an MJCF shapes touch where MuJoCo has them touch, with gradients, and not beyond its border."""

import mujoco
import numpy as np
import pytest
import torch

import adjoin
from adjoin.errors import InputError

GEOMS = {
    "capsule": 'type="capsule" size="0.05 0.1"',
    "box": 'type="box" size="0.1 0.08 0.05"',
    "ellipsoid": 'type="ellipsoid" size="0.1 0.07 0.05"',
}
TOLERANCE = {"ellipsoid": 1e-5}  # MuJoCo approaches it by polytopes
STATES = 48


def scene():
    """One of each kind, which touch only the ground.

    Its margin is almost nothing, but not 0: without one, MuJoCo's search for the depth of a box ends when a corner of
    it comes a second time, though it is with another corner of the prism.
    """
    heights = " ".join(map(repr, np.random.default_rng(0).random(42).tolist()))
    bodies = "".join(
        f'<body name="{name}"><freejoint/><geom contype="0" {geom}/></body>' for name, geom in GEOMS.items()
    )
    return f"""
    <mujoco>
      <option gravity="0 0 0"/>
      <asset>
        <hfield name="hills" nrow="6" ncol="7" size="0.6 0.5 0.1 0.2" elevation="{heights}"/>
      </asset>
      <worldbody>
        <geom type="hfield" hfield="hills" pos="0.02 0.01 0.05" conaffinity="0" margin="1e-9"/>{bodies}
      </worldbody>
    </mujoco>
    """


def poses(generator):
    place = generator.uniform((-0.65, -0.55, 0.1), (0.65, 0.55, 0.25), (STATES, len(GEOMS), 3))
    turn = generator.standard_normal((STATES, len(GEOMS), 4))
    turn /= np.linalg.norm(turn, axis=-1, keepdims=True)
    return np.concatenate([place, turn], -1).reshape(STATES, -1)


def rows(points):
    """Distance, position and normal of each, in order."""
    return np.array(sorted(np.hstack(x).tolist() for x in points)).reshape(-1, 7)


def test_points_are_mujocos():
    m = mujoco.MjModel.from_xml_string(scene())
    m.opt.ccd_tolerance, m.opt.ccd_iterations = 1e-12, 200
    sim = adjoin.Simulator(adjoin.load(scene()), 1e-3, adjoin.Newton(), max_contacts=200)
    data, states = mujoco.MjData(m), poses(np.random.default_rng(1))
    q = torch.tensor(states, requires_grad=True)
    found = sim.contacts(sim.state(q))
    pairs = [first.split("/")[0] for first, _ in sim.contact_names]
    touching, differ = dict.fromkeys(GEOMS, 0), 0
    for k, state in enumerate(states):
        data.qpos[:] = state
        mujoco.mj_forward(m, data)
        parts = [x[k].detach().numpy() for x in (found.pair, found.distance, found.position, found.normal)]
        for number, name in enumerate(GEOMS):
            expected = rows([(c.dist, c.pos, c.frame[:3]) for c in data.contact if c.geom[1] == number + 1])
            ours = rows([part[1:] for part in zip(*parts, strict=True) if part[0] >= 0 and pairs[int(part[0])] == name])
            assert len(ours) == len(expected), (k, name)
            error = np.abs(ours - expected)
            assert error[:, 0].max(initial=0.0) < 1e-6, (k, name)
            differ += error.max(initial=0.0) > TOLERANCE.get(name, 1e-6)
            touching[name] += len(ours) > 0
    assert min(touching.values()) > 10, touching
    assert differ <= 1  # two directions with the same depth

    # Along the motion of each body, by differences.
    gradient = torch.autograd.grad(found.distance[found.distance < 0.0].sum(), q)[0]
    step = torch.zeros_like(q)
    step[:, 2::7], step[:, 0::7] = 1e-7, 0.5e-7
    with torch.no_grad():
        either = [sim.contacts(sim.state(q + sign * step)).distance for sign in (1.0, -1.0)]
    smooth = ((either[0] < 0.0) == (either[1] < 0.0)).all(1)
    sums = [torch.where(x < 0.0, x, 0.0).sum(1) for x in either]
    error = ((gradient * step).sum(1) - (sums[0] - sums[1]) / 2.0)[smooth].abs()
    assert smooth.sum() > 40
    assert (error < 1e-10).double().mean() > 0.8


def test_the_ground_ends_at_its_border():
    """With a base it does; without one it goes on level."""
    flat, place = torch.zeros(3, 3), torch.tensor([[0.9, 0.3, 0.1], [1.3, 0.3, 0.1]], dtype=torch.float64)
    heights = []
    for base in (0.5, 0.0):
        terrain = adjoin.Heightfield(flat, 1.0, base=base)
        sim = adjoin.Simulator(adjoin.robots.load("ball"), 2e-3, adjoin.Newton(), terrain=terrain)
        q = sim.model.neutral((2,), dtype=torch.float64)
        q[:, :3] = place
        heights.append(sim.rollout(sim.state(q), steps=100).last.q[:, 2])
    inside, beyond = heights[0].tolist()
    assert heights[1].tolist() == pytest.approx([inside, inside], abs=1e-9)
    assert beyond == pytest.approx(0.1 - 0.5 * 9.81 * 0.2**2, rel=0.03)
    with pytest.raises(InputError, match="base must be below all heights"):
        adjoin.Heightfield(flat, 1.0, base=-0.1)
