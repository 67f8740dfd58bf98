"""Every kind against every kind: the distance, the points, their derivatives, and what shapes rest on."""

import math

import numpy as np
import pytest
import torch
from narrow import CONVEX, CUBE, NAMES, PAIRS, gap, nearest, referee, sample, touch
from places import cloud

from adjoin import trace
from adjoin.collision.narrow_phase import NARROW_PHASE
from adjoin.collision.point import FAR
from adjoin.collision.shape import Shape, Vertices
from adjoin.spatial.rotation import from_quaternion

pytest.importorskip("coal")
from referee import coal_distance, mujoco_distances

every_pair = pytest.mark.parametrize("kinds", PAIRS, ids=NAMES)
convex_pairs = pytest.mark.parametrize("kinds", PAIRS[:21], ids=NAMES[:21])
COUNT = 60


def test_every_pair_of_kinds_is_there():
    for first in CONVEX:
        for second in (*CONVEX, "plane", "terrain"):
            assert ((first, second) in NARROW_PHASE) != ((second, first) in NARROW_PHASE and first != second)


@every_pair
def test_the_distance_is_the_greatest_gap_over_all_directions(kinds):
    parts = sample(kinds, COUNT, seed=1)
    _, point, _ = nearest(kinds, parts)
    distance, normal = point[:, 0], point[:, 4:]
    expected = referee(kinds, parts, normal)
    np.testing.assert_allclose(normal.norm(dim=1), 1.0, atol=1e-12)
    # Of directions along which shapes overlap nearly as little, the best may be missed.
    missed = expected - gap(kinds, parts, normal[:, None])[:, 0]
    assert (missed < 1e-6 + 1e-3 * torch.clamp(-expected, min=0.0)).all()
    # The nearest point may be one that the shape rests on, which is further by a hair.
    over = distance + missed - expected
    assert over.min() > -1e-9
    assert over.max() < 1e-4
    assert (distance < 0.0).sum() > 5
    assert (distance > 0.0).sum() > 5


@convex_pairs
def test_the_distance_of_shapes_that_are_apart_is_coals_and_mujocos(kinds):
    parts = sample(kinds, 4 * COUNT, seed=2)
    distance = nearest(kinds, parts)[1][:, 0]
    rows = (distance > 1e-3).nonzero()[:, 0].tolist()
    assert len(rows) > COUNT
    for k, theirs in zip(rows, mujoco_distances(kinds, parts, rows), strict=True):
        assert distance[k] == pytest.approx(theirs, abs=1e-4)
        assert distance[k] == pytest.approx(coal_distance(kinds, [part[k] for part in parts]), abs=1e-4)


RIM = [
    (-0.07064285710308499, 0.13090737097270905, 0.07080802498817845),
    (0.5707628080776529, 0.46859881173540346, 0.669800621257729, -0.07753772190515296),
    (0.06653830966808212, 0.19945082659102442, 0.0),
    (-0.18345871276573544, -0.2347720834823397, -0.17573332012471843),
    (0.21745049643139452, 0.7118624204166601, 0.01947487644449955, -0.6675237113299765),
    (0.0, 0.0, 0.0),
]
"""A rim of a cylinder next to an edge of the hull, where the search for the normal ends 1e-3 rad beside that edge."""


@every_pair
def test_derivatives_are_those_of_finite_differences(kinds):
    """Of distance, position and normal, to positions, rotations and sizes, wherever they are smooth."""
    parts = sample(kinds, COUNT, seed=3)
    if kinds == ("cylinder", "hull"):
        parts = [torch.cat([part, part.new_tensor([one])]) for part, one in zip(parts, RIM, strict=True)]
    parts = [part.requires_grad_() for part in parts]
    generator = torch.Generator().manual_seed(4)
    moves = []
    for part in parts:
        move = torch.randn(part.shape, generator=generator, dtype=torch.float64)
        if part.shape[1] == 4:
            move = move - (move * part).sum(1, keepdim=True) * part
        moves.append((move * (part != 0.0)).detach())
    step = 1e-6

    def moved(by):
        with torch.no_grad():
            return nearest(kinds, [part + by * move for part, move in zip(parts, moves, strict=True)])[1]

    _, point, _ = nearest(kinds, parts)
    ahead, behind = moved(step), moved(-step)
    right, left = (ahead - point) / step, (point - behind) / step
    expected = (ahead - behind) / (2.0 * step)
    scale = 1.0 + expected.abs().amax(1)
    smooth = (right - left).abs().amax(1) < 1e-3 * scale
    assert smooth.sum() > 0.9 * COUNT
    for k in range(7):
        gradients = torch.autograd.grad(point[:, k].sum(), parts, retain_graph=True)
        found = sum((gradient * move).sum(1) for gradient, move in zip(gradients, moves, strict=True))
        error = (found - expected[:, k]).abs() / scale
        assert error[smooth].max() < 1e-4


@every_pair
def test_single_precision_is_enough(kinds):
    """Where shapes touch as well: that of distances is nearly that of the poses."""
    parts = sample(kinds, 200, seed=7)
    point = nearest(kinds, parts)[1]
    parts[0][::2] += (0.001 - point[::2, :1]) * point[::2, 4:]
    double, single = nearest(kinds, parts)[1], nearest(kinds, [part.float() for part in parts])[1]
    error = (single[:, 0].double() - double[:, 0]).abs()
    assert error[double[:, 0] > 0.0].max() < 2e-6
    assert error.max() < 1e-4
    assert error.median() < 1e-7


@every_pair
def test_bits_do_not_depend_on_the_neighbors(kinds):
    parts = sample(kinds, 9, seed=5)
    together = nearest(kinds, parts)
    for k in range(9):
        alone = nearest(kinds, [part[k : k + 1] for part in parts])
        for one, other in zip(alone, together, strict=True):
            assert torch.equal(one[0], other[k])


def listed(p, q, r, s):
    """Two pairs of hulls in a loop: found first, and then computed from what was kept of them in arrays."""
    hulls = [CUBE, cloud(), cloud(25)]
    starts = np.cumsum([0, *(len(hull) for hull in hulls)])
    numbers = trace.table(np.concatenate(hulls))
    first, count = trace.table(starts[:-1].astype(int)), trace.table([len(hull) for hull in hulls])
    phase = NARROW_PHASE["hull", "hull"]
    poses = trace.scratch([x for place, quaternion in ((p, q), (r, s)) for x in (*place, *quaternion)])
    ones, others = trace.table([0, 2]), trace.table([1, 0])

    def shapes(k):
        found = []
        for side, index in enumerate((ones[k], others[k])):
            numbers_of = [poses[7 * side + i] for i in range(7)]
            pose = (from_quaternion(tuple(numbers_of[3:])), tuple(numbers_of[:3]))
            vertices = Vertices(numbers, first[index], count[index], 40)
            found.append(Shape("hull", (0.0, 0.0, 0.0), pose, vertices))
        return found

    size = phase.features + 1

    def find(k, kept):
        for i, candidate in enumerate(phase.search(*shapes(k))):
            for j, number in enumerate((candidate.distance, *candidate.feature)):
                kept[(4 * k + i) * size + j] = number
        return kept

    kept = trace.loop(2, find, trace.scratch(8 * size), detached=True)

    def add(slot, total):
        feature = [kept[slot * size + 1 + j] for j in range(phase.features)]
        a, b = shapes(trace.table([0, 0, 0, 0, 1, 1, 1, 1])[slot])
        point = phase.evaluate(a, b, feature)
        near = kept[slot * size] < 0.5 * FAR
        number = point.distance + point.position[0] * point.normal[1] + point.position[2]
        return total + trace.select(near, number * (1.0 + trace.to_float(slot)), 0.0)

    return trace.loop(8, add, 0.0)


def test_hulls_of_a_table_are_tested_in_loops():
    p, q, _, r, s, _ = (part.requires_grad_() for part in sample(("hull", "hull"), 12, seed=6, spread=0.1))
    function = trace.Function(listed, {"p": 3, "q": 4, "r": 3, "s": 4})
    found = function(p, q, r, s)
    gradients = torch.autograd.grad(found.sum(), (p, r))
    move = torch.tensor([0.3, -0.5, 0.8], dtype=torch.float64)
    ahead, behind = (function(p + step * move, q, r - step * move, s) for step in (1e-6, -1e-6))
    expected = (ahead - behind) / 2e-6
    torch.testing.assert_close(((gradients[0] - gradients[1]) * move).sum(1), expected, atol=1e-5, rtol=1e-4)
    alone = torch.cat([function(p[k : k + 1], q[k : k + 1], r[k : k + 1], s[k : k + 1]) for k in range(12)])
    assert torch.equal(alone, found)


H = math.sqrt(0.5)
UNIT, SIDEWAYS, ASKEW, UPSIDE = (1.0, 0.0, 0.0, 0.0), (H, H, 0.0, 0.0), (0.8, 0.2, -0.4, 0.4), (0.0, 1.0, 0.0, 0.0)


@every_pair
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_everything_is_finite_in_special_places(kinds, dtype):
    """Coincident, aligned, touching, far apart, and without size."""
    offsets = [(0.0, 0.0, 0.0), (0.0, 0.0, 0.2), (0.0, 0.2, 0.0), (0.2, 0.0, 0.0), (0.1, 0.1, 0.1), (1e-12, 0.0, 0.0)]
    offsets += [(0.2, 0.2, 0.2), (0.0, 0.0, 100.0), (1e-7, 1e-7, 0.2), (0.0, 0.0, 0.2 + 1e-9)]
    turns = [(UNIT, UNIT), (UPSIDE, UNIT), (SIDEWAYS, UNIT), (SIDEWAYS, SIDEWAYS), (ASKEW, UNIT), (ASKEW, ASKEW)]
    sizes = [((0.1, 0.1, 0.1), (0.1, 0.1, 0.1)), ((0.1, 0.0, 0.1), (0.1, 0.1, 0.1)), ((0.0,) * 3, (0.0,) * 3)]
    rows = [(p, q, x, (0.0,) * 3, s, y) for p in offsets for q, s in turns for x, y in sizes]
    parts = [torch.tensor([row[k] for row in rows], dtype=dtype).requires_grad_() for k in range(6)]
    distances, point, _ = nearest(kinds, parts)
    assert distances.isfinite().all()
    assert distances.abs().max() <= FAR
    assert point.isfinite().all()
    gradients = torch.autograd.grad(point.sum(), parts)
    assert all(gradient.isfinite().all() for gradient in gradients)


def about(axis, angle):
    return (math.cos(0.5 * angle), *(math.sin(0.5 * angle) * np.array(axis) / np.linalg.norm(axis)).tolist())


def resting(first, second, position, quaternion, size, other, vertices=CUBE):
    """All points of the first shape on the second, which is at the origin: distance, position, normal."""
    swapped = (first, second) not in NARROW_PHASE
    parts = [(position, quaternion, size), ((0.0, 0.0, 0.0), UNIT, other)]
    kinds = (second, first) if swapped else (first, second)
    function = touch(*kinds, vertices)
    row = [torch.tensor([x], dtype=torch.float64) for part in (reversed(parts) if swapped else parts) for x in part]
    found = []
    distances = function(*row, torch.tensor([-1.0], dtype=torch.float64))[0][0]
    for k, distance in enumerate(distances.tolist()):
        if distance < 0.5 * FAR:
            point = function(*row, torch.tensor([float(k)], dtype=torch.float64))[1][0]
            assert point[0] == pytest.approx(distance, abs=1e-8)
            found.append((point[0].item(), point[1:4].numpy(), (-1.0 if swapped else 1.0) * point[4:].numpy()))
    return found


DEPTH = 1e-4
CUBOID, DRUM, PLATE = (0.1, 0.1, 0.1), (0.1, 0.1, 0.0), (0.2, 0.2, 0.1)
TURNED = about((0, 0, 1), 0.3)
LYING = (0.5 * math.sqrt(2.0) * math.cos(0.2), *[0.0] * 3)
RESTING = {
    "box on box": ("box", "box", 0.1, TURNED, CUBOID, PLATE, 4),
    "box on its like": ("box", "box", 0.1, UNIT, CUBOID, CUBOID, 4),
    "box on the edge": ("box", "box", 0.1 * math.sqrt(2.0), about((1, 0, 0), math.pi / 4), CUBOID, PLATE, 2),
    "cylinder standing on box": ("cylinder", "box", 0.1, TURNED, DRUM, PLATE, 4),
    "cylinder lying on box": ("cylinder", "box", 0.1, about((1, 0, 0), math.pi / 2), DRUM, PLATE, 2),
    "cylinder standing on cylinder": ("cylinder", "cylinder", 0.1, TURNED, DRUM, DRUM, 4),
    "cylinder lying on cylinder": ("cylinder", "cylinder", 0.1, about((1, 0, 0), math.pi / 2), DRUM, DRUM, 2),
    "cube on cube": ("hull", "hull", 0.1, TURNED, (0.0,) * 3, (0.0,) * 3, 4),
    "cube on box": ("hull", "box", 0.1, TURNED, (0.0,) * 3, PLATE, 4),
    "box on cube": ("box", "hull", 0.1, TURNED, CUBOID, (0.0,) * 3, 4),
    "cylinder on cube": ("cylinder", "hull", 0.1, UNIT, DRUM, (0.0,) * 3, 4),
    "capsule on box": ("capsule", "box", 0.05, about((1, 0.2, 0), math.pi / 2), (0.05, 0.1, 0.0), PLATE, 2),
    "capsule on cylinder": ("capsule", "cylinder", 0.05, about((1, 0, 0), math.pi / 2), (0.05, 0.1, 0.0), DRUM, 2),
    "capsule on cube": ("capsule", "hull", 0.05, about((1, 0, 0), math.pi / 2), (0.05, 0.1, 0.0), (0.0,) * 3, 2),
    "ball on cube": ("sphere", "hull", 0.05, UNIT, (0.05, 0.0, 0.0), (0.0,) * 3, 1),
    "egg on cube": ("ellipsoid", "hull", 0.05, UNIT, (0.1, 0.08, 0.05), (0.0,) * 3, 1),
}


@pytest.mark.parametrize("tilt", [0.0, 1e-3])
@pytest.mark.parametrize("name", RESTING)
def test_what_rests_rests_on_enough_points(name, tilt):
    first, second, height, quaternion, size, other, count = RESTING[name]
    quaternion = product(about((1, 2, 0), tilt), quaternion)
    found = resting(first, second, (0.013, -0.007, 0.1 + height - DEPTH), quaternion, size, other)
    assert len(found) == count
    for distance, position, normal in found:
        assert distance == pytest.approx(-DEPTH, abs=1e-9 + 0.2 * tilt)
        assert position[2] == pytest.approx(0.1, abs=1e-4 + 0.2 * tilt)
        np.testing.assert_allclose(normal, (0.0, 0.0, 1.0), atol=1e-9 + 1.1 * tilt)
    places = np.array([position[:2] for _, position, _ in found])
    if count == 4:
        # They surround the middle of what is above, with room to spare.
        around = places - (0.013, -0.007)
        angles = np.sort(np.arctan2(around[:, 1], around[:, 0]))
        assert np.diff([*angles, angles[0] + 2.0 * math.pi]).max() < 0.85 * math.pi
        assert np.linalg.norm(around, axis=1).min() > 0.06
    if count == 2:
        assert np.linalg.norm(places[0] - places[1]) > 0.15


def product(a, b):
    """Of quaternions."""
    (w, x, y, z), (s, t, u, v) = a, b
    return (
        w * s - x * t - y * u - z * v,
        w * t + x * s + y * v - z * u,
        w * u - x * v + y * s + z * t,
        w * v + x * u - y * t + z * s,
    )
