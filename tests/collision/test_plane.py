import math

import numpy as np
import pytest
import torch
from places import GROUND, cloud, deepest, random_size, random_turn, shape, theirs

from adjoin.collision.narrow_phase import points
from adjoin.collision.plane import UPRIGHT, cylinder_plane_triangle_at, search_cylinder_plane_triangle
from adjoin.collision.shape import Shape
from adjoin.spatial.rotation import from_rpy
from adjoin.spatial.vector import IDENTITY, ZERO


def standing(kind, height, size=None, rotation=IDENTITY):
    return points(shape(kind, (0.3, -0.2, height), rotation, size), GROUND)


def supports(found, at, depth):
    """Whether points at a depth are around a place: some of them in every direction."""
    held = [np.array(p.position[:2]) - at for p in found if abs(p.distance + depth) < 1e-9]
    directions = [np.array([math.cos(t), math.sin(t)]) for t in np.linspace(0, 2 * math.pi, 60)]
    return all(max(d @ h for h in held) > 0.01 for d in directions)


@pytest.mark.parametrize("kind", ["box", "cylinder"])
def test_what_stands_upright_is_held_around_its_middle(kind):
    half = 0.15 if kind == "box" else 0.2
    for flipped in (IDENTITY, from_rpy(math.pi, 0.0, 0.0)):
        found = standing(kind, half - 0.001, rotation=flipped)
        assert supports(found, np.array([0.3, -0.2]), 0.001)
        assert all(p.position[2] == pytest.approx(-0.0005) for p in found if p.distance < 0)


def test_a_box_has_the_corners_that_mujoco_finds():
    rng = np.random.default_rng(0)
    for _ in range(30):
        size, rotation = random_size("box", rng), random_turn(rng)
        lowest = sum(h * abs(x) for h, x in zip(size, rotation[2], strict=True))
        box = shape("box", (0.1, 0.2, lowest - 0.01 * min(size)), rotation, size)
        found = [p for p in points(box, GROUND) if p.distance <= 0.0]
        _, contacts = theirs(box, GROUND)
        assert len(found) == len(contacts) > 0
        for distance, position, _ in contacts:
            assert any(
                np.allclose(p.position, position, atol=1e-12) and p.distance == pytest.approx(distance, abs=1e-12)
                for p in found
            )


def test_a_cylinder_on_its_side_is_held_at_both_ends():
    found = standing("cylinder", 0.099, rotation=from_rpy(math.pi / 2, 0.0, 0.3))
    low = [p for p in found if p.distance < 0]
    ends = np.array([p.position for p in low[:2]])
    assert np.linalg.norm(ends[0] - ends[1]) == pytest.approx(0.4)
    assert [p.distance for p in low[:2]] == pytest.approx([-0.001, -0.001])


def test_the_lowest_point_of_a_cylinder_is_exact_beyond_a_small_tilt_and_goes_smoothly_through_upright():
    def tilted(tilt):
        return standing("cylinder", 0.2, rotation=from_rpy(tilt, 0.0, 0.0))[0]

    for tilt in (1.01 * UPRIGHT, 0.1, 1.0, -0.5):
        assert tilted(tilt).distance == pytest.approx(0.2 - 0.2 * math.cos(tilt) - 0.1 * math.sin(abs(tilt)), abs=1e-12)
    tilts = np.linspace(-2 * UPRIGHT, 2 * UPRIGHT, 401)
    places = [tilted(t).position[1] for t in tilts]
    assert max(abs(np.diff(places))) <= 1.01 * 0.1 / UPRIGHT * (tilts[1] - tilts[0])
    exact = [0.2 - 0.2 * math.cos(t) - 0.1 * math.sin(abs(t)) for t in tilts]
    assert max(tilted(t).distance - e for t, e in zip(tilts, exact, strict=True)) <= 0.26 * UPRIGHT * 0.1


def test_a_capsule_lies_on_both_ends():
    found = standing("capsule", 0.069, rotation=from_rpy(math.pi / 2, 0.0, 0.0))
    assert [p.distance for p in found] == pytest.approx([-0.001, -0.001])
    assert abs(found[0].position[1] - found[1].position[1]) == pytest.approx(0.4)


def hull(vertices, rotation=IDENTITY, height=0.0):
    return Shape("hull", ZERO, (rotation, (0.0, 0.0, height)), tuple(map(tuple, np.asarray(vertices).tolist())))


def test_a_hull_stands_on_the_corners_of_its_face():
    corners_ = [(x, y, z) for x in (-0.1, 0.1) for y in (-0.2, 0.2) for z in (-0.15, 0.15)]
    sole = [(x, y, -0.15) for x in np.linspace(-0.1, 0.1, 5) for y in np.linspace(-0.2, 0.2, 5)]
    for yaw in (0.0, 0.7, 2.0):
        found = points(hull(corners_ + sole, from_rpy(0.0, 0.0, yaw), 0.149), GROUND)
        assert [p.distance for p in found] == pytest.approx([-0.001] * 4)
        assert supports(found, np.zeros(2), 0.001)
        assert len({tuple(np.round(p.position, 6)) for p in found}) == 4


def test_a_hull_of_few_vertices_has_them_all():
    vertices = [(0.1, 0.0, -0.1), (-0.1, 0.1, -0.1), (-0.1, -0.1, -0.1)]
    found = points(hull(vertices), GROUND)
    assert [tuple(p.position[:2]) for p in found] == [v[:2] for v in vertices]


def test_no_vertex_of_a_hull_is_left_out():
    vertices = cloud(128)
    rng = np.random.default_rng(1)
    for _ in range(20):
        rotation = random_turn(rng)
        lowest = min(np.array(vertices) @ rotation[2])
        found = points(Shape("hull", ZERO, (rotation, (0.0, 0.0, 0.3)), vertices), GROUND)
        assert min(p.distance for p in found) == pytest.approx(0.3 + lowest, abs=1e-6)


def test_an_ellipsoid_with_equal_radii_is_a_sphere():
    rng = np.random.default_rng(2)
    rotation = random_turn(rng)
    one = deepest(standing("ellipsoid", 0.15, (0.1, 0.1, 0.1), rotation))
    other = deepest(standing("sphere", 0.15, (0.1, 0.0, 0.0), rotation))
    assert one.distance == pytest.approx(other.distance)
    assert one.position == pytest.approx(other.position)


@pytest.mark.parametrize("tilt", [0.0, 1e-5, 0.3, 1.5])
def test_the_triangle_under_a_cylinder_has_the_derivatives_of_its_points(tilt):
    def found(angle, features=None):
        turned = from_rpy(angle, 0.2 * angle, 0.0)
        can = Shape("cylinder", (0.1, 0.2, 0.0), (turned, (0.0, 0.0, 0.21)))
        candidates = search_cylinder_plane_triangle(can, GROUND)
        features = features or [candidate.feature for candidate in candidates]
        at = [cylinder_plane_triangle_at(can, GROUND, feature) for feature in features]
        return features, at

    features, _ = found(tilt)
    angle = torch.tensor(tilt, dtype=torch.float64, requires_grad=True)
    for number, point in enumerate(found(angle, features)[1]):
        for read in (lambda p: p.distance, lambda p: p.position[1]):
            (slope,) = torch.autograd.grad(read(point), angle, retain_graph=True)
            ahead, behind = (read(found(tilt + d, features)[1][number]) for d in (1e-7, -1e-7))
            assert slope == pytest.approx((ahead - behind) / 2e-7, abs=1e-6)
