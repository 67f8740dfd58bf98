import functools
import math

import numpy as np
import pytest
import torch
from kernel_checks import check_kernel
from places import random_turn, shape, turn

import adjoin
from adjoin import trace
from adjoin.collision.narrow_phase import NARROW_PHASE, points
from adjoin.collision.point import FAR
from adjoin.collision.shape import Shape
from adjoin.collision.terrain import KINDS, Terrain, surface, terrain_points
from adjoin.errors import InputError
from adjoin.spatial.rotation import from_quaternion

ROWS, COLUMNS = 4, 5
ORIGIN, SPACING = (-0.4, -0.5, 0.05), (0.2, 0.3)


def terrain(heights, origin=ORIGIN):
    heights = np.asarray(heights).tolist()
    return Terrain(origin, SPACING, ROWS, COLUMNS, lambda row, column: heights[row][column])


def nodes():
    x = ORIGIN[0] + SPACING[0] * np.arange(COLUMNS)
    y = ORIGIN[1] + SPACING[1] * np.arange(ROWS)
    return np.meshgrid(x, y)


def rough(seed=0):
    return np.random.default_rng(seed).uniform(-0.1, 0.1, (ROWS, COLUMNS))


@pytest.mark.parametrize("kind", ["sphere", "capsule", "box"])
def test_a_slope_is_a_plane(kind):
    rng = np.random.default_rng(0)
    x, y = nodes()
    ground = terrain(0.3 * x - 0.2 * y)
    normal = np.array([-0.3, 0.2, 1.0]) / math.sqrt(1.13)
    side = np.cross([0.0, 1.0, 0.0], normal)
    side /= np.linalg.norm(side)
    rotation = np.stack([side, np.cross(normal, side), normal], 1)
    plane = Shape("plane", (0.0, 0.0, 0.0), (tuple(map(tuple, rotation.tolist())), (0.0, 0.0, 0.05)))
    for _ in range(20):
        body = shape(kind, rng.uniform(-0.1, 0.1, 3).tolist(), random_turn(rng))
        found = terrain_points(body, ground)
        assert len(found) == {"sphere": 1, "capsule": 2, "box": 8}[kind]
        for expected in points(body, plane):
            assert any(
                point.distance == pytest.approx(expected.distance, abs=1e-12)
                and point.position == pytest.approx(expected.position, abs=1e-12)
                and point.normal == pytest.approx(expected.normal, abs=1e-12)
                for point in found
            )


def test_heights_are_met_at_nodes_and_are_straight_between_them():
    heights = rough()
    ground = terrain(heights)
    for row in range(ROWS):
        for column in range(COLUMNS):
            x, y = ORIGIN[0] + SPACING[0] * column, ORIGIN[1] + SPACING[1] * row
            assert surface(ground, x, y)[0] == pytest.approx(0.05 + heights[row, column])
            if column < COLUMNS - 1:
                middle = surface(ground, x + 0.25 * SPACING[0], y)[0]
                assert middle == pytest.approx(0.05 + 0.75 * heights[row, column] + 0.25 * heights[row, column + 1])


def test_the_normal_is_that_of_the_surface():
    ground = terrain(rough())
    rng = np.random.default_rng(1)
    step = 1e-6
    for x, y in zip(rng.uniform(-0.4, 0.4, 30), rng.uniform(-0.5, 0.4, 30), strict=True):
        _, normal = surface(ground, x, y)
        rise = [
            (surface(ground, x + step * i, y + step * j)[0] - surface(ground, x - step * i, y - step * j)[0])
            / (2 * step)
            for i, j in ((1, 0), (0, 1))
        ]
        expected = np.array([-rise[0], -rise[1], 1.0])
        np.testing.assert_allclose(normal, expected / np.linalg.norm(expected), atol=1e-7)


def test_beyond_the_border_the_ground_goes_on_level():
    heights = rough()
    ground = terrain(heights)
    height, normal = surface(ground, 7.0, -9.0)
    assert height == pytest.approx(0.05 + heights[0, -1])
    assert normal == (0.0, 0.0, 1.0)
    middle, normal = surface(ground, 7.0, ORIGIN[1] + 0.5 * SPACING[1])
    assert middle == pytest.approx(0.05 + 0.5 * (heights[0, -1] + heights[1, -1]))
    assert normal[0] == 0.0
    assert normal[1] != 0.0


@adjoin.function(p=3, q=4, heights=(ROWS, COLUMNS))
def on_terrain(p, q, heights):
    table = trace.scratch([h for row in heights for h in row])
    ground = Terrain(ORIGIN, SPACING, ROWS, COLUMNS, lambda row, column: table[row * COLUMNS + column])
    found = terrain_points(shape("box", p, from_quaternion(tuple(q))), ground)
    return [x.distance for x in found], [list(x.position) for x in found], [list(x.normal) for x in found]


def places(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    p = torch.rand(count, 3, generator=generator, dtype=torch.float64) - 0.5
    q = torch.nn.functional.normalize(torch.randn(count, 4, generator=generator, dtype=torch.float64), dim=-1)
    heights = 0.2 * torch.rand(count, ROWS, COLUMNS, generator=generator, dtype=torch.float64)
    return p, q, heights


def test_a_kernel_gives_what_floats_give():
    inputs = places(20)
    distances, positions, normals = on_terrain(*inputs)
    for i in range(20):
        p, q, heights = (x[i].tolist() for x in inputs)
        found = terrain_points(shape("box", p, turn(q)), terrain(heights))
        np.testing.assert_allclose(distances[i], [x.distance for x in found], atol=1e-12)
        np.testing.assert_allclose(positions[i], [x.position for x in found], atol=1e-12)
        np.testing.assert_allclose(normals[i], [x.normal for x in found], atol=1e-12)


def test_the_kernel_passes_every_check():
    check_kernel(on_terrain.kernel, places(4, seed=1), scale=1e4, second=False)


@functools.cache
def narrow(kind):
    """The distances that the search finds, and the points that are evaluated, on terrain and on a plane."""
    on_ground, on_plane = NARROW_PHASE[kind, "terrain"], NARROW_PHASE[kind, "plane"]

    @adjoin.function(p=3, q=4, heights=(ROWS, COLUMNS), r=3, s=4)
    def touch(p, q, heights, r, s):
        table = trace.scratch([h for row in heights for h in row])
        ground = Terrain(ORIGIN, SPACING, ROWS, COLUMNS, lambda row, column: table[row * COLUMNS + column])
        body = shape(kind, p, from_quaternion(tuple(q)))
        plane = Shape("plane", (0.0, 0.0, 0.0), (from_quaternion(tuple(s)), tuple(r)))
        found = []
        for phase, other in ((on_ground, ground), (on_plane, plane)):
            candidates = phase.search(body, other)
            points = [phase.evaluate(body, other, candidate.feature) for candidate in candidates]
            found.append([candidate.distance for candidate in candidates])
            found.append([[point.distance, *point.position, *point.normal] for point in points])
        return tuple(found)

    return touch


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_on_a_slope_is_on_a_plane(kind):
    x, y = nodes()
    heights = torch.tensor(0.3 * x - 0.2 * y).expand(20, -1, -1).contiguous()
    normal = np.array([-0.3, 0.2, 1.0]) / math.sqrt(1.13)
    axis = np.cross([0.0, 0.0, 1.0], normal)
    angle = math.asin(np.linalg.norm(axis))
    axis *= math.sin(0.5 * angle) / np.linalg.norm(axis)
    s = torch.tensor([[math.cos(0.5 * angle), *axis]]).expand(20, -1).contiguous()
    r = torch.tensor([[0.0, 0.0, 0.05]], dtype=torch.float64).expand(20, -1).contiguous()
    p, q, _ = places(20)
    distances, found, levels, expected = narrow(kind)(0.2 * p, q, heights, r, s)
    real = distances < 0.5 * FAR
    torch.testing.assert_close(found[..., 0][real], distances[real], atol=1e-12, rtol=0.0)
    for k in range(20):
        for level, point in zip(levels[k], expected[k], strict=True):
            if level < 0.5 * FAR:
                assert (found[k] - point).abs().amax(-1).min() < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_derivatives_on_terrain(kind):
    p, q, heights = places(5, seed=2)
    r, s = torch.zeros(5, 3, dtype=torch.float64), torch.tensor([[1.0, 0.0, 0.0, 0.0]] * 5, dtype=torch.float64)
    inputs = [0.5 * p, q, heights]
    inputs = [x.requires_grad_() for x in inputs]

    def nearest(*inputs):
        distances, found, _, _ = narrow(kind)(*inputs, r, s)
        return found[torch.arange(5), distances.argmin(-1)]

    assert torch.autograd.gradcheck(nearest, inputs, atol=1e-6, rtol=1e-4)


def test_what_cannot_stand_on_terrain_is_refused():
    with pytest.raises(InputError, match="a plane cannot stand on terrain; these can: sphere, capsule, box, cylinder"):
        terrain_points(shape("plane", (0, 0, 0), turn((1.0, 0.0, 0.0, 0.0))), terrain(rough()))
    with pytest.raises(InputError, match="1 rows and 5 columns"):
        Terrain(ORIGIN, SPACING, 1, 5, lambda row, column: 0.0)
