"""Meshes touch meshes and boxes where MuJoCo has them touch, capsules likewise, with gradients."""

import mujoco
import numpy as np
import torch

import adjoin
from adjoin.collision.adjacent import CUBE
from adjoin.collision.resting_points import linked_faces, resting_points

TURNS = 2.0 * np.pi * np.arange(5) / 5
RING = np.stack([np.cos(TURNS), np.sin(TURNS), 0.0 * TURNS], 1)
MESHES = {
    "prism": np.concatenate([(0.1, 0.1, 0.0) * RING - (0.0, 0.0, 0.06), (0.08, 0.08, 0.0) * RING + (0.0, 0.0, 0.06)]),
    "block": np.array(CUBE.vertices) * (0.1, 0.08, 0.06),
}
SHAPES = {name: f'type="mesh" mesh="{name}"' for name in MESHES}
SHAPES |= {"box": 'type="box" size="0.1 0.08 0.06"', "capsule": 'type="capsule" size="0.03 0.1"'}
PAIRS = [("block", "prism"), ("box", "prism"), ("capsule", "capsule")]


def scene():
    """One pair beside the other, and far from it."""
    meshes = "".join(
        f'<mesh name="{name}" vertex="{" ".join(map(repr, points.ravel().tolist()))}"/>'
        for name, points in MESHES.items()
    )
    geoms = [SHAPES[name] for pair in PAIRS for name in pair]
    bodies = "".join(f"<body><freejoint/><geom {geom}/></body>" for geom in geoms)
    option = '<option gravity="0 0 0"/>'
    return f"<mujoco>{option}<asset>{meshes}</asset><worldbody>{bodies}</worldbody></mujoco>"


def turned(generator, spread):
    """A quaternion near one about z, or any."""
    x = generator.standard_normal(4) if spread is None else np.array([1.0, *(spread * generator.standard_normal(3))])
    angle = 0.5 * generator.uniform(-3.0, 3.0) if spread is not None else 0.0
    quaternion = np.zeros(4)
    mujoco.mju_mulQuat(quaternion, np.array([np.cos(angle), 0.0, 0.0, np.sin(angle)]), x / np.linalg.norm(x))
    return quaternion


def poses(generator):
    """One on top of the other, nearly parallel or anyhow; capsules also exactly parallel, and with axes that meet."""
    q = []
    for k, pair in enumerate(PAIRS):
        spread = generator.choice([0.0, 0.02, 0.1, None])
        if pair[0] == "capsule":
            same = turned(generator, None)
            other = same if generator.random() < 0.3 else turned(generator, None)
            offset = generator.choice([0.0, 0.02]) * generator.standard_normal(3)
            q += [3.0 * k, 0.0, 0.0, *same, 3.0 * k + offset[0], *offset[1:], *other]
            continue
        offset = (0.06, 0.06, 0.02) * generator.standard_normal(3) + (0.0, 0.0, 0.115)
        q += [3.0 * k, 0.0, 0.0, *turned(generator, spread or 0.0), 3.0 * k + offset[0], *offset[1:]]
        q += turned(generator, spread or 0.0).tolist()
    return q


def rows(points):
    """Distance, position and normal of each, in order."""
    return np.array(sorted(np.hstack(x).tolist() for x in points)).reshape(-1, 7)


def test_points_are_mujocos():
    m = mujoco.MjModel.from_xml_string(scene())
    m.opt.ccd_tolerance, m.opt.ccd_iterations = 1e-12, 200
    sim = adjoin.Simulator(adjoin.load(scene()), 1e-3, adjoin.Newton(), ground=False, self_collision=True)
    generator, data = np.random.default_rng(0), mujoco.MjData(m)
    states = np.array([poses(generator) for _ in range(64)])
    q = torch.tensor(states, requires_grad=True)
    found = sim.contacts(sim.state(q))
    counts = np.zeros(9, dtype=int)
    for k, place in enumerate(states):
        data.qpos[:] = place
        mujoco.mj_forward(m, data)
        expected = [c for c in data.contact if c.dist < 0.0]
        some = [j for j in range(found.distance.shape[1]) if found.distance[k, j] < 0.0]
        for pair in range(len(PAIRS)):
            theirs = rows([(c.dist, c.pos, -c.frame[:3]) for c in expected if c.geom[0] == 2 * pair])
            parts = [[x[k, j].detach().numpy() for x in (found.distance, found.position, found.normal)] for j in some]
            ours = rows([part for part in parts if abs(part[1][0] - 3.0 * pair) < 1.0])
            assert len(ours) == len(theirs), (k, PAIRS[pair])
            gaps = np.abs(ours[:, None] - theirs).max(-1)
            assert gaps.min(1, initial=1.0).max(initial=0.0) < 1e-7, (k, PAIRS[pair])
            counts[len(ours)] += 1
    assert (counts[1:5] > 0).all(), counts

    # Along the motion of each body, by differences.
    gradient = torch.autograd.grad(found.distance[found.distance < 0.0].sum(), q)[0]
    step = torch.zeros_like(q)
    step[:, 2::7], step[:, 0::7] = 1e-7, 0.5e-7
    with torch.no_grad():
        either = [sim.contacts(sim.state(q + sign * step)).distance for sign in (1.0, -1.0)]
    same = [((x < 0.0) == (found.distance < 0.0)).all(1) for x in either]
    sums = [torch.where(x < 0.0, x, 0.0).sum(1) for x in either]
    expected, moved = (sums[0] - sums[1]) / 2.0, (gradient * step).sum(1)
    smooth = same[0] & same[1]
    assert smooth.sum() > 40
    assert (moved - expected)[smooth].abs().median() < 1e-13
    assert ((moved - expected)[smooth].abs() < 1e-12).double().mean() > 0.9


def test_a_box_is_a_hull():
    normals, _, counts = resting_points(CUBE)
    links, ring = linked_faces(CUBE)
    assert (counts == 3).all()
    corners = np.array(CUBE.vertices)
    for normal, (start, count, before, after) in zip(normals, links, strict=True):
        face = corners[ring[int(start) : int(start + count)].astype(int)]
        assert count == 4
        np.testing.assert_allclose(face @ normal, 1.0)
        assert np.cross(face[1] - face[0], face[2] - face[1]) @ normal < 0.0
        assert corners[int(before)] @ normal == corners[int(after)] @ normal == 1.0
