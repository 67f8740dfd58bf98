"""Terrain as MuJoCo has it: two prisms under each cell, down to a level base, and convex shapes against each of them.

A shape has one point with each prism that it touches, the nearest, in the order of rows, columns and the two halves of
a cell. Beyond the border there is nothing.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from adjoin.collision import convex
from adjoin.collision.branchless import clamp
from adjoin.collision.core import core_of, support
from adjoin.collision.point import FAR, Candidate, Point
from adjoin.collision.shape import Shape, Vertices
from adjoin.collision.terrain import Terrain
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar, floor, select
from adjoin.spatial.vector import IDENTITY, ZERO, Vector3, vector3
from adjoin.trace import maximum, minimum, scratch, to_index, when

POINTS = 50
"""How many points a shape has at most, as in MuJoCo."""

CORNERS = (((1, 0), (0, 0), (1, 1)), ((0, 0), (1, 1), (0, 1)))
"""Of the two prisms of a cell, how many rows and columns the corners are off the cell's first node."""


class Cells(NamedTuple):
    """The cells under a shape.

    Attributes:
        row: the first.
        column: the first.
        rows: how many, 0 beside the terrain.
        columns: how many.
        lowest: how far down the shape reaches, above the terrain's origin.
    """

    row: Scalar
    column: Scalar
    rows: Scalar
    columns: Scalar
    lowest: Scalar

    @property
    def count(self) -> Scalar:
        """Return how many prisms they have."""
        return 2.0 * self.rows * self.columns


class _Numbers:
    """Vertices in an array of the kernel, read like a table."""

    def __init__(self, vertices: Sequence[Vector3]):
        self.numbers = scratch([x for vertex in vertices for x in vertex], checked=False)

    def __getitem__(self, place: tuple[Any, int]) -> Scalar:
        return self.numbers[place[0] * 3 + place[1]]


def cells_under(shape: Shape, terrain: Terrain, margin: Scalar) -> Cells:
    """The cells that the box around a shape, wider by a margin, covers."""
    core = core_of(shape)
    turn = shape.pose[0]

    def reach(axis: int, sign: float) -> Scalar:
        """The coordinate of the point that is furthest along an axis of the terrain."""
        direction = vector3([sign * x for x in turn[axis]])
        most = vector.dot(turn[axis], support(core, direction)) + sign * (core.radius + margin)
        return shape.center[axis] - terrain.origin[axis] + most

    def covered(axis: int, count: int) -> tuple[Scalar, Scalar]:
        low = floor(reach(axis, -1.0) / terrain.spacing[axis])
        high = -floor(-reach(axis, 1.0) / terrain.spacing[axis])
        first = clamp(low, 0.0, float(count - 1))
        return first, maximum(clamp(high, 0.0, float(count - 1)) - first, 0.0)

    (column, columns), (row, rows) = covered(0, terrain.columns), covered(1, terrain.rows)
    return Cells(row, column, rows, columns, reach(2, -1.0))


def search_prism(shape: Shape, terrain: Terrain, cells: Cells, number: Scalar) -> list[Candidate]:
    """The point of a shape and one of the prisms under it."""
    cell = floor(0.5 * number)
    second = number - 2.0 * cell > 0.5
    down = floor(cell / maximum(cells.columns, 1.0))
    row = minimum(cells.row + down, terrain.rows - 2.0)
    column = minimum(cells.column + cell - down * cells.columns, terrain.columns - 2.0)
    tops: list[Vector3] = []
    for one, other in zip(*CORNERS, strict=True):
        i, j = (at + select(second, float(b), float(a)) for at, a, b in zip((row, column), one, other, strict=True))
        height = terrain.look_up(to_index(i), to_index(j))
        tops.append((j * terrain.spacing[0], i * terrain.spacing[1], height))
    high = maximum(maximum(tops[0][2], tops[1][2]), tops[2][2]) >= cells.lowest
    exists = high & (number < cells.count)
    nothing = (FAR, (0.0, 0.0, 1.0, *[0.0] * (convex.FEATURES - 3)))

    def test(_: Any) -> Any:
        bottoms = [(x, y, -terrain.base) for x, y, _ in tops]
        prism = _prism(terrain, Vertices(_Numbers([*bottoms, *tops]), 0, 6, 6))
        nearest = convex.approach(*convex.separation(shape, prism)).nearest
        return nearest.distance, nearest.feature

    distance, feature = when(exists, test, nothing, detached=True)
    return [Candidate(distance, tuple(feature))]


def prism_point_at(shape: Shape, terrain: Terrain, feature: Sequence[Scalar]) -> Point:
    """One of the points, by what the search has found: the prism's part of it is in the terrain's frame."""
    return convex.evaluate(shape, _prism(terrain, Vertices(None, 0, 0, 0)), feature)


def _prism(terrain: Terrain, vertices: Vertices) -> Shape:
    return Shape("hull", ZERO, (IDENTITY, terrain.origin), vertices)
