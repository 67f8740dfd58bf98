import math

import numpy as np
import pytest
from places import deepest, random_pair, shape, theirs

from adjoin.collision.narrow_phase import points
from adjoin.spatial.rotation import from_rpy
from adjoin.spatial.vector import IDENTITY

ACROSS = from_rpy(0.0, math.pi / 2, 0.0)


def along(found, axis=0):
    return sorted(p.position[axis] for p in found)


def test_parallel_capsules_rest_on_the_ends_of_what_they_share():
    lower = shape("capsule", (0.0, 0.0, 0.0), ACROSS, (0.1, 0.3, 0.0))
    for offset, tilt in ((0.0, 0.0), (0.2, 0.0), (0.2, 1e-9), (0.2, -1e-6), (-0.35, 0.0)):
        upper = shape("capsule", (offset, 0.0, 0.199), from_rpy(0.0, math.pi / 2 + tilt, 0.0), (0.1, 0.2, 0.0))
        found = points(upper, lower)
        assert [p.distance for p in found] == pytest.approx([-0.001, -0.001], abs=1e-6)
        assert along(found) == pytest.approx([max(offset - 0.2, -0.3), min(offset + 0.2, 0.3)], abs=1e-6)
        assert all(p.normal == pytest.approx((0.0, 0.0, 1.0), abs=1e-5) for p in found)


def test_points_of_crossing_capsules_come_together_without_a_jump():
    lower = shape("capsule", (0.0, 0.0, 0.0), ACROSS, (0.1, 0.3, 0.0))
    angles = np.linspace(0.0, 0.03, 301)
    places = []
    for angle in angles:
        upper = shape("capsule", (0.05, 0.02, 0.2), from_rpy(0.0, math.pi / 2, angle), (0.1, 0.2, 0.0))
        found = points(upper, lower)
        places.append(along(found))
        distance, _ = theirs(upper, lower)
        assert 0.0 <= deepest(found).distance - distance + 1e-12 <= 2e-5
    steps = np.abs(np.diff(places, axis=0))
    assert steps.max() < 0.02
    assert places[0][1] - places[0][0] == pytest.approx(0.4)
    assert places[-1][1] - places[-1][0] < 1e-9


def test_a_capsule_lies_on_a_box_at_both_ends():
    box = shape("box", (0.0, 0.0, 0.0), IDENTITY, (0.3, 0.2, 0.1))
    for offset, tilt in ((0.0, 0.0), (0.25, 0.0), (0.25, 1e-7), (0.25, -1e-7), (0.0, 1e-5)):
        for half in (0.15, 0.5):
            capsule = shape("capsule", (offset, 0.0, 0.149), from_rpy(0.0, math.pi / 2 + tilt, 0.0), (0.05, half, 0.0))
            found = points(capsule, box)
            assert along(found) == pytest.approx([max(offset - half, -0.3), min(offset + half, 0.3)], abs=1e-3)
            assert [p.distance for p in found] == pytest.approx([-0.001, -0.001], abs=1e-5)
            assert all(p.normal == pytest.approx((0.0, 0.0, 1.0), abs=1e-3) for p in found)


def test_a_capsule_lies_along_an_edge_at_both_ends():
    box = shape("box", (0.0, 0.0, 0.0), IDENTITY, (0.3, 0.2, 0.1))
    reach = 0.049 / math.sqrt(2.0)
    capsule = shape("capsule", (0.1, 0.2 + reach, 0.1 + reach), ACROSS, (0.05, 0.25, 0.0))
    found = points(capsule, box)
    assert along(found) == pytest.approx([-0.15, 0.3])
    assert [p.distance for p in found] == pytest.approx([-0.001, -0.001])
    assert all(p.normal == pytest.approx((0.0, math.sqrt(0.5), math.sqrt(0.5))) for p in found)


def test_a_capsule_that_tips_over_an_edge_keeps_the_edge_and_lets_go_without_a_jump():
    box = shape("box", (0.0, 0.0, 0.0), IDENTITY, (0.3, 0.2, 0.1))
    places = []
    for tilt in np.linspace(-0.03, 0.03, 601):
        middle = (0.3, 0.0, 0.1 + 0.049)
        capsule = shape("capsule", middle, from_rpy(0.0, math.pi / 2 + tilt, 0.0), (0.05, 0.2, 0.0))
        found = points(capsule, box)
        distance, _ = theirs(capsule, box)
        assert -1e-12 <= deepest(found).distance - distance <= 1e-5
        places.append(along(found))
    assert np.abs(np.diff(places, axis=0)).max() < 0.01
    assert places[0] == pytest.approx([0.1, 0.1], abs=1e-2)
    assert places[-1] == pytest.approx([0.3, 0.3], abs=1e-2)


def test_an_axis_through_a_box_gives_a_way_out():
    rng = np.random.default_rng(0)
    through = 0
    for _ in range(200):
        a, b = random_pair(("capsule", "box"), rng)
        best = deepest(points(a, b))
        distance, _ = theirs(a, b)
        if distance < -a.size[0] - 1e-3:
            through += 1
            assert best.distance < -a.size[0]
            assert best.distance > -a.size[0] - min(b.size)
    assert through > 20
