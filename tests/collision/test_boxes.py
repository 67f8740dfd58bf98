import itertools
import math

import numpy as np
import pytest
import torch
from places import deepest, kernel, random_pair, shape, theirs

from adjoin.collision.box_box import RESTING, SLACK
from adjoin.collision.narrow_phase import points
from adjoin.collision.point import FAR
from adjoin.spatial.rotation import from_rpy
from adjoin.spatial.vector import IDENTITY


def present(found):
    return [p for p in found if p.distance < FAR]


def rectangle(position, yaw, size):
    """Corners of a box's top, to the left."""
    c, s = math.cos(yaw), math.sin(yaw)
    corners = [(-size[0], -size[1]), (size[0], -size[1]), (size[0], size[1]), (-size[0], size[1])]
    return [np.array([position[0] + c * x - s * y, position[1] + s * x + c * y]) for x, y in corners]


def within(polygon, point, tolerance=1e-9):
    sides = zip(polygon, polygon[1:] + polygon[:1], strict=True)
    return all((b - a)[0] * (point - a)[1] - (b - a)[1] * (point - a)[0] >= -tolerance for a, b in sides)


def overlap(one, other):
    """Corners of what two polygons share: corners of one inside the other, and crossings of sides."""
    found = [p for p in one if within(other, p)] + [p for p in other if within(one, p)]
    for (a, b), (c, d) in itertools.product(*(zip(p, p[1:] + p[:1], strict=True) for p in (one, other))):
        system = np.array([b - a, c - d]).T
        if abs(np.linalg.det(system)) > 1e-12:
            s, t = np.linalg.solve(system, c - a)
            if 0.0 <= s <= 1.0 and 0.0 <= t <= 1.0:
                found.append(a + s * (b - a))
    return found


def same_places(one, other, tolerance):
    return all(min(np.abs(p - q).max() for q in other) < tolerance for p in one)


@pytest.mark.parametrize("seed", range(40))
def test_points_of_a_stack_are_the_corners_of_what_the_faces_share(seed):
    rng = np.random.default_rng(seed)
    size, other = (tuple(rng.uniform(0.05, 0.3, 3).tolist()) for _ in range(2))
    yaw, place = rng.uniform(-math.pi, math.pi), rng.uniform(-0.2, 0.2, 2)
    depth = 1e-3
    lower = shape("box", (0.0, 0.0, 0.0), IDENTITY, size)
    upper = shape("box", (*place.tolist(), size[2] + other[2] - depth), from_rpy(0.0, 0.0, yaw), other)
    shared = overlap(rectangle((0.0, 0.0), 0.0, size), rectangle(place, yaw, other))
    for a, b, sign in ((upper, lower, 1.0), (lower, upper, -1.0)):
        found = present(points(a, b))
        if len(shared) < 3 or np.ptp(shared, axis=0).min() < 0.01:
            continue
        places = [np.array(p.position[:2]) for p in found]
        sharp = 0.3 * RESTING.border * (1.0 + 1.0 / abs(math.sin(2.0 * yaw)))
        assert same_places(shared, places, sharp)
        assert same_places(places, shared, sharp)
        assert [p.distance for p in found] == pytest.approx([-depth] * len(found))
        assert all(p.normal == pytest.approx((0.0, 0.0, sign)) for p in found)
        assert all(p.position[2] == pytest.approx(size[2] - depth / 2) for p in found)


@pytest.mark.parametrize("yaw", [0.0, 1e-12, 1e-7, 1e-5, -1e-4, 1e-3, math.pi / 2, math.pi / 4])
@pytest.mark.parametrize("shift", [0.0, 1e-9, 1e-6, 1e-3])
def test_equal_boxes_almost_in_line_hold_each_other_at_all_corners(yaw, shift):
    size = (0.1, 0.1, 0.1)
    lower = shape("box", (0.0, 0.0, 0.0), IDENTITY, size)
    upper = shape("box", (shift, -shift, 0.1999), from_rpy(1e-7, -1e-7, yaw), size)
    found = present(points(upper, lower))
    assert [p.distance for p in found] == pytest.approx([-1e-4] * len(found), abs=1e-6)
    places = [np.array(p.position[:2]) for p in found]
    expected = overlap(rectangle((0.0, 0.0), 0.0, size), rectangle((shift, -shift), yaw, size))
    assert len(places) >= 4
    for angle in np.linspace(0.0, 2 * math.pi, 33):
        direction = np.array([math.cos(angle), math.sin(angle)])
        assert max(direction @ p for p in places) == pytest.approx(max(direction @ p for p in expected), abs=3e-4)


def test_penetration_and_normal_are_mujocos_or_better():
    rng = np.random.default_rng(0)
    touching = agree = crossings = faces = held = 0
    for _ in range(300):
        a, b = random_pair(("box", "box"), rng)
        found = present(points(a, b))
        best = deepest(found)
        _, contacts = theirs(a, b)
        assert (best.distance < 0.0) == bool(contacts)
        if not contacts:
            continue
        touching += 1
        crossings += len(found) == 1
        dist, position, normal = min(contacts, key=lambda contact: contact[0])
        slack = SLACK * min(*a.size, *b.size)
        assert best.distance >= dist - slack
        if np.abs(normal - best.normal).max() < 1e-9:
            agree += 1
            assert best.distance == pytest.approx(dist, abs=0.3 * RESTING.border)
            if len(found) == len(contacts) == 1:
                np.testing.assert_allclose(best.position, position, atol=1e-9)
        if len(contacts) > 3:
            # What the faces share holds boxes that overlap, also where a corner beside it is deeper.
            faces += 1
            held += sum(p.distance < 0.0 for p in found) > 2
        moved = tuple(x - best.distance * n for x, n in zip(a.pose[1], best.normal, strict=True))
        _, after = theirs(shape("box", moved, a.pose[0], a.size), b)
        assert all(contact[0] > -slack for contact in after)
    assert touching > 200
    assert agree > 0.85 * touching
    assert crossings > 20
    assert held > 0.9 * faces


@pytest.mark.parametrize("gap", [1e-3, -2e-4])
def test_boxes_that_just_touch_or_just_do_not_are_as_far_apart_as_mujoco_says(gap):
    rng = np.random.default_rng(2)
    compared = 0
    for _ in range(30):
        a, b = random_pair(("box", "box"), rng)
        direction = rng.normal(size=3)

        def moved(by, a=a, direction=direction):
            return shape("box", tuple((np.array(a.pose[1]) + by * direction).tolist()), a.pose[0], a.size)

        def apart(by, b=b, moved=moved):
            distance, contacts = theirs(moved(by), b)
            return min((contact[0] for contact in contacts), default=distance)

        near, far = 0.0, 3.0
        for _ in range(25):
            middle = 0.5 * (near + far)
            near, far = (middle, far) if apart(middle) < gap else (near, middle)
        if abs(apart(near) - gap) < 1e-5:
            compared += 1
            slack = SLACK * min(*a.size, *b.size)
            assert deepest(points(moved(near), b)).distance == pytest.approx(apart(near), abs=slack)
    assert compared >= 15


def test_a_box_that_tips_over_the_edge_of_another_is_held_along_the_edge():
    lower = shape("box", (0.0, 0.0, 0.0), IDENTITY, (0.2, 0.2, 0.1))
    for tilt in (0.02, 0.1, 0.4):
        c, s = math.cos(tilt), math.sin(tilt)
        # The upper box turns about the lower's edge x = 0.2, 5 cm from its own middle, 1 mm deep.
        upper = shape(
            "box", (0.2 + 0.05 * c + 0.099 * s, 0.0, 0.1 - 0.05 * s + 0.099 * c), from_rpy(0.0, tilt, 0.0), (0.1,) * 3
        )
        found = [p for p in points(upper, lower) if p.distance < 0.0]
        places = np.array([p.position for p in found])
        assert deepest(found).distance == pytest.approx(-0.001, abs=1e-4)
        assert np.ptp(places[:, 1]) == pytest.approx(0.2, abs=1e-3)
        assert places[:, 0] == pytest.approx([0.2] * len(found), abs=0.06)


def test_gradients_of_a_stack_almost_in_line_are_bounded():
    yaws = torch.linspace(-1e-3, 1e-3, 41, dtype=torch.float64)
    half = 0.5 * yaws
    q = torch.stack([half.cos(), 0 * half, 0 * half, half.sin()], -1).requires_grad_()
    p = torch.tensor([0.0, 0.0, 0.2999], dtype=torch.float64).expand(41, 3).clone().requires_grad_()
    still = torch.zeros(41, 3, dtype=torch.float64), torch.eye(4, dtype=torch.float64)[:1].expand(41, 4)
    distances, positions, _ = kernel("box", "box")(p, q, *still)
    present_ = distances < FAR
    gradient = torch.autograd.grad(distances[present_].sum(), p, retain_graph=True)[0]
    torch.testing.assert_close(gradient[:, 2], present_.sum(1).double(), atol=1e-6, rtol=0)
    sideways = torch.autograd.grad(positions[..., :2].sum(), p)[0]
    assert sideways.abs().max() < 8.0 / (0.5 * RESTING.border)
