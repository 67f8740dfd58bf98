"""Pairs that the broad phase leaves out cannot touch."""

from dataclasses import dataclass

import numpy as np
import pytest

from adjoin.collision.broad_phase import bounding_box, bounding_radius, boxes_near, spheres_near
from adjoin.model.parts import Geometry


@dataclass
class Boxes:
    """Boxes with poses that are numbers."""

    poses: list
    halves: list

    def pose(self, i):
        return self.poses[i]

    def center(self, i):
        return self.poses[i][1]

    def axis(self, i):
        return self.poses[i][0][:, 2]


def random_boxes(rng):
    turns = [np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(2)]
    turns = [turn * np.sign(np.linalg.det(turn)) for turn in turns]
    return Boxes([(turn, rng.normal(size=3)) for turn in turns], [rng.uniform(0.1, 0.8, 3) for _ in range(2)])


def test_boxes_that_have_a_point_in_common_are_near():
    rng, common, far = np.random.default_rng(0), 0, 0
    for _ in range(2000):
        boxes = random_boxes(rng)
        (turn, place), (other, origin) = boxes.poses
        points = rng.uniform(-1, 1, (30, 3)) * boxes.halves[0] @ turn.T + place
        inside = (np.abs((points - origin) @ other) < boxes.halves[1]).all(1).any()
        near = boxes_near(boxes, ("box", "box"), 0, 1, 0.0)  # pyright: ignore[reportArgumentType]
        assert near or not inside
        common, far = common + inside, far + (not near)
    assert common > 100
    assert far > 100


@dataclass
class Spheres:
    """Bounding spheres whose numbers are known."""

    centers: list

    def center(self, i):
        return self.centers[i]


@pytest.mark.parametrize("gap", [-0.01, 0.01])
def test_the_gap_between_spheres_is_exact(gap):
    rng = np.random.default_rng(2)
    for _ in range(200):
        radii, way = rng.uniform(0.1, 0.8, 2), rng.normal(size=3)
        first = rng.normal(size=3)
        second = first + (radii.sum() + 0.1 + gap) * way / np.linalg.norm(way)
        spheres = Spheres([first, second])
        near = spheres_near(spheres, ("box", "box"), 0, 1, radii.sum() + 0.1)  # pyright: ignore[reportArgumentType]
        assert near == (gap < 0.0)


@pytest.mark.parametrize("gap", [-0.01, 0.01])
def test_the_gap_to_a_plane_is_exact(gap):
    rng = np.random.default_rng(1)
    for _ in range(200):
        boxes = random_boxes(rng)
        turn, origin = boxes.poses[1]
        corners = np.array(np.meshgrid(*[(-1, 1)] * 3)).reshape(3, -1).T * boxes.halves[0] @ boxes.poses[0][0].T
        height = (corners @ turn[:, 2]).min()
        boxes.poses[0] = boxes.poses[0][0], origin + (0.1 + gap - height) * turn[:, 2] + rng.normal() * turn[:, 0]
        near = boxes_near(boxes, ("box", "plane"), 0, 1, 0.1)  # pyright: ignore[reportArgumentType]
        assert near == (gap < 0.0)


def test_a_hull_far_from_its_origin_is_bounded_about_its_own_middle():
    rng = np.random.default_rng(5)
    for _ in range(50):
        vertices = rng.uniform(-1.0, 1.0, (12, 3)) * rng.uniform(0.1, 1.0, 3) + rng.normal(size=3) * 3.0
        hull = Geometry("hull", "hull", 0, "hull", vertices=tuple(map(tuple, vertices.tolist())))
        (middle, half), radius = bounding_box(hull, hull.size), bounding_radius(hull, hull.size)
        apart = np.abs(vertices - middle)
        assert np.allclose(apart.max(0), half, rtol=0.0, atol=1e-12)
        assert np.linalg.norm(apart, axis=1).max() == pytest.approx(radius, abs=1e-12)
        assert radius <= np.linalg.norm(half) + 1e-12
