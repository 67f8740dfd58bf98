"""A capsule and a box touch where MuJoCo has them touch, outside of each other and deep inside, with gradients."""

import mujoco
import numpy as np
import pytest
import torch

import adjoin
from adjoin.collision.capsule_box_points import capsule_box_point_at, places, search_capsule_box
from adjoin.collision.shape import Shape

SCENE = """
<mujoco>
  <worldbody>
    <geom name="box" type="box" size="{}"/>
    <body><freejoint/><geom name="capsule" type="capsule" size="{}"/></body>
  </worldbody>
</mujoco>
"""


def rows(points):
    """Distance, position and normal of each, in order."""
    return np.array(sorted(np.hstack([x[0], *x[1:]]).tolist() for x in points)).reshape(-1, 7)


def shape(kind, size, data, index):
    rotation, place = data.geom_xmat[index].reshape(3, 3), data.geom_xpos[index]
    return Shape(kind, tuple(size), (tuple(map(tuple, rotation)), tuple(place)), ())


def test_points_are_mujocos():
    generator = np.random.default_rng(0)
    deep = touching = 0
    for _ in range(20):
        size, own = generator.uniform(0.05, 0.5, 3), generator.uniform((0.02, 0.05), (0.1, 0.6))
        text = SCENE.format(*(" ".join(map(repr, map(float, x))) for x in (size, own)))
        m = mujoco.MjModel.from_xml_string(text)
        data = mujoco.MjData(m)
        for _ in range(40):
            data.qpos[:3] = generator.uniform(-0.5, 0.5, 3)
            data.qpos[3:] = generator.standard_normal(4)
            mujoco.mj_normalizeQuat(m, data.qpos)
            mujoco.mj_forward(m, data)
            box, capsule = shape("box", size, data, 0), shape("capsule", (*own, 0.0), data, 1)
            near = [c for c in search_capsule_box(capsule, box) if c.distance < 0.0]
            ours = rows([capsule_box_point_at(capsule, box, c.feature) for c in near])
            sides = [1.0 if contact.geom[0] == 0 else -1.0 for contact in data.contact]
            expected = [(c.dist, c.pos, side * c.frame[:3]) for c, side in zip(data.contact, sides, strict=True)]
            assert np.abs(ours - rows(expected)).max(initial=0.0) < 1e-9
            touching, deep = touching + len(ours), deep + (len(ours) > 0 and ours[0, 0] < -own[0])
    assert touching > 200
    assert deep > 50


@pytest.mark.parametrize("middle", [(0.17, 0.12, 0.31), (0.05, 0.3, 0.2), (-0.02, 0.13, 0.04)])
def test_places_have_gradients(middle):
    size = (0.3, 0.25, 0.15)

    @adjoin.function(x=6)
    def both(x):
        return np.array(places(size, tuple(x[:3]), tuple(x[3:]))[:2], dtype=object)

    x = torch.tensor([*middle, 0.2, -0.1, 0.07], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(both, (x,), eps=1e-7, atol=1e-6)
