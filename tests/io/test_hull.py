"""Convex hulls: extreme points, exact for simple solids, close for round ones."""

import numpy as np
import pytest

from adjoin.io.hull import convex_hull


def solid(kind):
    if kind == "cube":
        return np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=float)
    if kind == "tetrahedron":
        return np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=float)
    golden = (1 + 5**0.5) / 2
    return np.array(
        [p for a in (-1, 1) for b in (-golden, golden) for p in ((0, a, b), (a, b, 0), (b, 0, a))], dtype=float
    )


@pytest.mark.parametrize("kind", ["cube", "tetrahedron", "icosahedron"])
def test_the_corners_of_simple_solids_are_found_among_points_inside(kind):
    corners = solid(kind)
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(len(corners)), 5000)
    cloud = np.concatenate([weights @ corners * 0.999, corners])
    hull = convex_hull(rng.permutation(cloud))
    assert {tuple(v) for v in hull} == {tuple(v) for v in corners}


def test_a_long_thin_box_keeps_its_corners():
    corners = solid("cube") * [10.0, 0.01, 0.3] + [100.0, -5.0, 2.0]
    assert len(convex_hull(np.repeat(corners, 50, 0))) == 8


def test_a_sphere_is_within_two_percent():
    rng = np.random.default_rng(1)
    points = rng.normal(size=(20_000, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    hull = convex_hull(points)
    assert len(hull) <= 128
    directions = rng.normal(size=(2000, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    assert (hull @ directions.T).max(0).min() > 0.97


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_points_are_their_own_hull(count):
    points = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])[:count]
    assert {tuple(v) for v in convex_hull(points)} == {tuple(v) for v in points}


def test_flat_clouds():
    rng = np.random.default_rng(2)
    points = np.concatenate([rng.uniform(-1, 1, (1000, 2)), [[1, 1], [1, -1], [-1, 1], [-1, -1]]])
    hull = convex_hull(np.concatenate([points, np.full((1004, 1), 7.0)], 1))
    corners = {tuple(v) for v in hull}
    assert {(1.0, 1.0, 7.0), (1.0, -1.0, 7.0), (-1.0, 1.0, 7.0), (-1.0, -1.0, 7.0)} <= corners
