"""Shapes in random places, alone, in kernels, and in MuJoCo."""

import functools

import numpy as np
import pytest
import torch

import adjoin
from adjoin.collision.narrow_phase import DETECT, points
from adjoin.collision.shape import Shape
from adjoin.spatial.rotation import from_quaternion
from adjoin.spatial.vector import IDENTITY, ZERO

mujoco = pytest.importorskip("mujoco")

KINDS = list(DETECT)
NAMES = [f"{a}-{b}" for a, b in KINDS]
COUNTS = {"sphere": 1, "capsule": 2, "box": 3, "cylinder": 2, "ellipsoid": 3, "plane": 0, "hull": 0}
SIZES = {
    "sphere": (0.11, 0.0, 0.0),
    "capsule": (0.07, 0.2, 0.0),
    "box": (0.1, 0.2, 0.15),
    "cylinder": (0.1, 0.2, 0.0),
    "ellipsoid": (0.1, 0.2, 0.15),
    "plane": (0.0, 0.0, 0.0),
    "hull": (0.0, 0.0, 0.0),
}
GROUND = Shape("plane", SIZES["plane"], (IDENTITY, ZERO))


@functools.cache
def cloud(count=40):
    """Vertices of a hull, all of them extreme: on an ellipsoid."""
    directions = np.random.default_rng(7).normal(size=(count, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return tuple(map(tuple, (directions * [0.1, 0.2, 0.15]).tolist()))


def shape(kind, position, rotation, size=None):
    pose = (tuple(tuple(row) for row in rotation), tuple(position))
    return Shape(kind, SIZES[kind] if size is None else size, pose, cloud() if kind == "hull" else ())


def turn(quaternion):
    """The matrix of a quaternion that need not be a unit one, in floats."""
    q = np.asarray(quaternion) / np.linalg.norm(quaternion)
    return np.array(from_quaternion(tuple(q.tolist()))).tolist()


def random_turn(rng):
    return turn(rng.normal(size=4))


def random_size(kind, rng):
    count = COUNTS[kind]
    return (*rng.uniform(0.05, 0.3, count).tolist(), *([0.0] * (3 - count)))


def random_pair(kinds, rng):
    """Two shapes of random sizes near each other."""
    a, b = (shape(k, rng.uniform(-0.25, 0.25, 3).tolist(), random_turn(rng), random_size(k, rng)) for k in kinds)
    return a, b


def deepest(found):
    return min(found, key=lambda point: point.distance)


def theirs(a, b):
    """MuJoCo's distance between two shapes, and its contacts (distance, position, normal from b to a)."""
    vertices = " ".join(f"{x} {y} {z}" for x, y, z in cloud())
    geoms = []
    for one in (a, b):
        numbers = " ".join(map(str, one.size[: COUNTS[one.kind]])) if one.kind != "plane" else "0 0 1"
        more = f'type="{one.kind}" size="{numbers}"' if one.kind != "hull" else 'type="mesh" mesh="cloud"'
        rotation = " ".join(str(x) for column in np.transpose(one.pose[0])[:2] for x in column)
        geoms.append(f'pos="{one.pose[1][0]} {one.pose[1][1]} {one.pose[1][2]}" xyaxes="{rotation}"><geom {more}/>')
    model = mujoco.MjModel.from_xml_string(
        f"""<mujoco><asset><mesh name="cloud" vertex="{vertices}"/></asset><worldbody>
        <body {geoms[0]}<freejoint/></body><body mocap="true" {geoms[1]}</body></worldbody></mujoco>"""
    )
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    distance = mujoco.mj_geomDistance(model, data, 0, 1, 10.0, None)
    sign = {0: -1.0, 1: 1.0}
    return distance, [(c.dist, np.array(c.pos), sign[int(c.geom[0])] * np.array(c.frame[:3])) for c in data.contact]


@functools.cache
def kernel(first, second):
    """Distances, positions and normals of two shapes, given their positions and quaternions."""

    @adjoin.function(p=3, q=4, r=3, s=4)
    def detect(p, q, r, s):
        a, b = shape(first, p, from_quaternion(tuple(q))), shape(second, r, from_quaternion(tuple(s)))
        found = points(a, b)
        return [x.distance for x in found], [list(x.position) for x in found], [list(x.normal) for x in found]

    return detect


def places(count, seed=0, spread=0.25):
    """Positions and unit quaternions of two shapes."""
    generator = torch.Generator().manual_seed(seed)

    def draw(size):
        return torch.randn(count, size, generator=generator, dtype=torch.float64)

    p, r = (torch.rand(count, 3, generator=generator, dtype=torch.float64) * 2 * spread - spread for _ in range(2))
    q, s = (torch.nn.functional.normalize(draw(4), dim=-1) for _ in range(2))
    return p, q, r, s
