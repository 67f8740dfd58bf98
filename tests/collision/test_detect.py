import math

import numpy as np
import pytest
import torch
from kernel_checks import check_kernel
from places import GROUND, KINDS, NAMES, SIZES, deepest, kernel, places, random_pair, random_turn, shape, theirs, turn

from adjoin.collision.narrow_phase import listed, points, supported
from adjoin.collision.point import FAR
from adjoin.collision.shape import Shape
from adjoin.errors import InputError
from adjoin.spatial.motion import transform_multiply
from adjoin.trace import Function

SLOTS = {
    ("sphere", "plane"): 1,
    ("capsule", "plane"): 2,
    ("box", "plane"): 4,
    ("cylinder", "plane"): 5,
    ("ellipsoid", "plane"): 1,
    ("hull", "plane"): 4,
    ("sphere", "sphere"): 1,
    ("sphere", "capsule"): 1,
    ("sphere", "box"): 1,
    ("sphere", "cylinder"): 1,
    ("capsule", "capsule"): 2,
    ("capsule", "box"): 2,
    ("box", "box"): 8,
}
every_pair = pytest.mark.parametrize("kinds", KINDS, ids=NAMES)


def shallow(a, b):
    """Not so deep that a capsule's axis is inside a box, where the shortest way out is a matter of definition."""
    return (a.kind, b.kind) != ("capsule", "box") or deepest(points(a, b)).distance > -a.size[0]


@pytest.mark.parametrize("kinds", [k for k in KINDS if k != ("box", "box")], ids=[n for n in NAMES if n != "box-box"])
def test_the_least_distance_and_its_place_are_mujocos(kinds):
    rng = np.random.default_rng(1)
    # MuJoCo has meshes in float32; the balls of a capsule along a box are spread by a hair.
    tolerance, place = {("hull", "plane"): (1e-7, 1e-6), ("capsule", "box"): (1e-7, 1e-4)}.get(kinds, (1e-12, 1e-9))
    compared = 0
    for _ in range(60):
        a, b = random_pair(kinds, rng)
        if not shallow(a, b):
            continue
        found = points(a, b)
        assert len(found) == SLOTS[kinds]
        distance, contacts = theirs(a, b)
        ours = deepest(found)
        assert ours.distance == pytest.approx(distance, abs=tolerance)
        if contacts:
            dist, position, normal = min(contacts, key=lambda contact: contact[0])
            assert ours.distance == pytest.approx(dist, abs=tolerance)
            np.testing.assert_allclose(ours.position, position, atol=place)
            np.testing.assert_allclose(ours.normal, normal, atol=place)
            compared += 1
    assert compared >= 10


@every_pair
def test_points_move_with_the_shapes(kinds):
    rng = np.random.default_rng(2)
    for _ in range(10):
        a, b = random_pair(kinds, rng)
        motion = (tuple(map(tuple, random_turn(rng))), tuple(rng.normal(size=3).tolist()))
        moved = [Shape(s.kind, s.size, transform_multiply(motion, s.pose), s.vertices) for s in (a, b)]
        for here, there in zip(points(a, b), points(*moved), strict=True):
            assert there.distance == pytest.approx(here.distance, abs=1e-12)
            rotation, position = np.array(motion[0]), np.array(motion[1])
            np.testing.assert_allclose(there.position, rotation @ here.position + position, atol=1e-9)
            np.testing.assert_allclose(there.normal, rotation @ here.normal, atol=1e-9)


@every_pair
def test_swapping_the_shapes_reverses_the_normal(kinds):
    rng = np.random.default_rng(3)
    for _ in range(20):
        a, b = random_pair(kinds, rng)
        one, other = deepest(points(a, b)), deepest(points(b, a))
        assert one.distance == pytest.approx(other.distance, abs=1e-3 if kinds == ("box", "box") else 1e-12)
        np.testing.assert_allclose(one.normal, np.negative(other.normal), atol=1e-9)


@every_pair
def test_normals_are_unit_vectors_that_part_the_shapes(kinds):
    rng = np.random.default_rng(4)
    for _ in range(20):
        a, b = random_pair(kinds, rng)
        if not shallow(a, b):
            continue
        before = points(a, b)
        for point in before:
            assert math.hypot(*point.normal) == pytest.approx(1.0, abs=1e-12)
        ours = deepest(before)
        moved = tuple(x + 1e-6 * n for x, n in zip(a.pose[1], ours.normal, strict=True))
        after = deepest(points(Shape(a.kind, a.size, (a.pose[0], moved), a.vertices), b))
        assert after.distance - ours.distance == pytest.approx(1e-6, rel=1e-3)


@every_pair
def test_a_kernel_gives_what_floats_give(kinds):
    inputs = places(40)
    distances, positions, normals = kernel(*kinds)(*inputs)
    for i in range(40):
        p, q, r, s = (x[i].tolist() for x in inputs)
        found = points(shape(kinds[0], p, turn(q)), shape(kinds[1], r, turn(s)))
        np.testing.assert_allclose(distances[i], [x.distance for x in found], atol=1e-12)
        np.testing.assert_allclose(positions[i], [x.position for x in found], atol=1e-10)
        np.testing.assert_allclose(normals[i], [x.normal for x in found], atol=1e-12)


@every_pair
def test_gradients_are_those_of_finite_differences(kinds):
    inputs = [x.requires_grad_() for x in places(6, seed=5)]
    assert torch.autograd.gradcheck(kernel(*kinds), inputs, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("kinds", [("capsule", "capsule"), ("cylinder", "plane"), ("box", "box")])
def test_kernels_pass_every_check(kinds):
    check_kernel(kernel(*kinds).kernel, places(5, seed=6), scale=1e4, second=kinds == ("capsule", "capsule"))


ASKEW = (0.8, 0.2, -0.4, 0.4)
UPSIDE, SIDEWAYS, UNIT = (0.0, 1.0, 0.0, 0.0), (math.sqrt(0.5), math.sqrt(0.5), 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)


@every_pair
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_everything_is_finite_in_special_places(kinds, dtype):
    """Coincident, aligned, touching and far apart."""
    offsets = [(0.0, 0.0, 0.0), (0.0, 0.0, 0.3), (0.0, 0.4, 0.0), (0.2, 0.0, 0.0), (0.1, 0.1, 0.1), (1e-12, 0.0, 0.0)]
    offsets += [(0.2, 0.4, 0.3), (0.0, 0.0, 100.0), (1e-7, 1e-7, 0.3)]
    turns = [(UNIT, UNIT), (UPSIDE, UNIT), (SIDEWAYS, UNIT), (SIDEWAYS, SIDEWAYS), (ASKEW, UNIT), (ASKEW, ASKEW)]
    rows = [(p, q, s) for p in offsets for q, s in turns]
    inputs = [torch.tensor([row[k] for row in rows], dtype=dtype) for k in (0, 1, 2)]
    p, q, s = (x.requires_grad_() for x in inputs)
    r = torch.zeros_like(p).requires_grad_()
    outputs = kernel(*kinds)(p, q, r, s)
    assert all(out.isfinite().all() for out in outputs)
    assert outputs[0].abs().max() <= FAR
    gradients = torch.autograd.grad([out.sum() for out in outputs], [p, q, r, s])
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_balls_in_the_same_place_part_upwards():
    here = (0.1, 0.2, 0.3)
    (point,) = points(shape("sphere", here, turn(UNIT)), shape("sphere", here, turn(UNIT)))
    assert point.normal == (0.0, 0.0, 1.0)
    assert point.distance == pytest.approx(-0.22)
    assert point.position == pytest.approx(here)
    inputs = [torch.tensor([x], dtype=torch.float64, requires_grad=True) for x in (here, UNIT, here, UNIT)]
    distance = kernel("sphere", "sphere")(*inputs)[0]
    gradient = torch.autograd.grad(distance.sum(), inputs[0])[0]
    assert gradient.tolist() == [[0.0, 0.0, 1.0]]


def test_a_sphere_on_level_ground_costs_four_operations():
    def touch(p):
        (point,) = points(Shape("sphere", (0.1, 0.0, 0.0), (GROUND.pose[0], tuple(p))), GROUND)
        return [point.distance, *point.position, *point.normal]

    assert Function(touch, {"p": 3}).kernel.program.operations == 4


def test_planes_do_not_touch_and_everything_else_does():
    for first in SIZES:
        for second in SIZES:
            assert supported(first, second) == ((first, second) != ("plane", "plane"))
    with pytest.raises(InputError, match="points: a plane and a plane do not touch"):
        points(GROUND, GROUND)
    assert "capsule and box" in listed()


def test_pairs_without_a_closed_form_are_found_in_kernels():
    """In either order, with the distance `FAR` where there is no point."""
    inputs = [x.requires_grad_() for x in places(30)]
    one, other = kernel("box", "hull"), kernel("hull", "box")
    found, swapped = one(*inputs), other(*inputs[2:], *inputs[:2])
    torch.testing.assert_close(swapped[0], found[0])
    torch.testing.assert_close(swapped[2], -found[2])
    distances, positions, normals = found
    assert (distances[:, 1:] == FAR).any()
    assert (distances.min(-1).values < 0.0).any()
    gradient = torch.autograd.grad((distances[:, 0] + positions[:, 0].sum(-1) + normals[:, 0].sum(-1)).sum(), inputs)
    assert all(x.isfinite().all() and x.abs().max() > 0.0 for x in gradient)


@pytest.mark.parametrize("kind", ["capsule", "box", "cylinder"])
def test_points_on_a_plane_lie_half_their_distance_from_it(kind):
    rng = np.random.default_rng(3)
    for _ in range(20):
        body = shape(kind, (0.3, -0.2, 0.1), random_turn(rng))
        found = points(body, shape("plane", (0.0, 0.0, 0.0), turn((1.0, 0.0, 0.0, 0.0))))
        for point in found:
            assert point.position[2] == pytest.approx(0.5 * point.distance, abs=1e-12)
