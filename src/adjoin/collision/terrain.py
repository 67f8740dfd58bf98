"""Terrain: heights on a grid, straight along the sides of each cell (bilinear), and what stands on it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from adjoin.collision.branchless import clamp
from adjoin.collision.faces import tangents
from adjoin.collision.plane import (
    ball,
    cylinder_plane_at,
    ellipsoid_plane,
    search_cylinder_plane,
    search_hull_plane,
)
from adjoin.collision.point import FAR, Candidate, Point
from adjoin.collision.shape import Shape, Vertices
from adjoin.dynamics.robot import Robot
from adjoin.errors import InputError
from adjoin.model.model import Model
from adjoin.spatial import vector
from adjoin.spatial.motion import transform_point
from adjoin.spatial.scalar import Scalar, floor, is_number, select, sqrt
from adjoin.spatial.vector import ZERO, Vector3
from adjoin.trace import detach, minimum, to_index

LookUp = Callable[[Any, Any], Scalar]


@dataclass(frozen=True)
class Terrain:
    """Ground whose height is given on a grid; beyond the border it goes on level.

    Attributes:
        origin: x and y of the node (0, 0) and what is added to all heights, m.
        spacing: between columns, along x, and between rows, along y, m.
        rows: nodes along y, at least 2.
        columns: nodes along x, at least 2.
        look_up: (row, column) -> the height of a node, m. Indices are numbers, or traced integers.
        base: how far below its origin the ground ends; 0 if it does not. If it does, its cells are prisms for MuJoCo's
            contact, see `prisms`, with nothing beyond the border.
    """

    origin: Vector3
    spacing: tuple[Scalar, Scalar]
    rows: int
    columns: int
    look_up: LookUp
    base: float = 0.0

    def __post_init__(self):
        if self.rows < 2 or self.columns < 2:
            raise InputError(f"Terrain: {self.rows} rows and {self.columns} columns; it needs at least 2 of each")


KINDS = ("sphere", "capsule", "box", "cylinder", "ellipsoid", "hull")
"""Shapes that can stand on terrain."""


class Heightfield:
    """Terrain for a simulator, which takes the place of the flat ground.

    Its place and friction are those of the shape "ground": `geometry_position` of it moves the whole terrain.

    Args:
        heights: (rows, columns), m; rows lie along y, columns along x.
        spacing: between columns and between rows, m.
        origin: x, y of the first node, and what is added to all heights; by default the terrain is centered.
        base: how far the ground reaches down below the heights' zero, m; 0 if it has no end. If it has, `Newton` has
            MuJoCo's points of contact: the nearest one with each of the prisms, two under each cell, and none beyond
            the border.
    """

    def __init__(
        self,
        heights: torch.Tensor | Sequence[Sequence[float]],
        spacing: float | tuple[float, float] = 0.1,
        origin: tuple[float, float, float] | None = None,
        base: float = 0.0,
    ):
        self.heights = torch.as_tensor(heights, dtype=torch.float64).detach().cpu().clone()
        if self.heights.dim() != 2 or min(self.heights.shape) < 2 or not self.heights.isfinite().all():
            raise InputError(
                f"Heightfield: heights must be finite and of shape (rows, columns), at least 2 of each; "
                f"got {tuple(self.heights.shape)}"
            )
        self.spacing = spacing if isinstance(spacing, tuple) else (spacing, spacing)
        if not min(self.spacing) > 0.0:
            raise InputError(f"Heightfield: spacing must be positive, got {spacing!r}")
        if base != 0.0 and not -self.heights.min() < base < math.inf:
            raise InputError(f"Heightfield: base must be below all heights, got {base!r}")
        self.base = base
        rows, columns = self.heights.shape
        self.shape = (rows, columns)
        centered = (-0.5 * self.spacing[0] * (columns - 1), -0.5 * self.spacing[1] * (rows - 1), 0.0)
        self.origin = centered if origin is None else origin
        self._copy = self.heights
        self._fingerprint = (self.heights, self.spacing, self.origin, base)

    @classmethod
    def of(cls, model: Model) -> "Heightfield | None":
        """Return the terrain of a model, in the frame of the plane that it takes the place of; None if it has none."""
        for grid in model.terrain:
            return cls(torch.tensor(grid.heights, dtype=torch.float64), grid.spacing, grid.origin, grid.base)
        return None

    def heights_like(self, like: torch.Tensor) -> torch.Tensor:
        """Return the heights in the dtype and on the device of a tensor; the last copy is kept."""
        if self._copy.dtype != like.dtype or self._copy.device != like.device:
            self._copy = self.heights.to(like)
        return self._copy

    def at(self, place: Vector3, look_up: LookUp) -> Terrain:
        """The terrain with the ground's frame at a place, over scalars."""
        return Terrain(vector.add(place, self.origin), self.spacing, *self.shape, look_up, self.base)


class OnTerrain(Robot):
    """A robot with terrain in the place of one of its shapes.

    Attributes:
        ground: the index of that shape.
        terrain: the ground.
    """

    def __init__(self, model: Model, given: Mapping[str, Any], ground: int, field: Heightfield, look_up: LookUp):
        super().__init__(model, given)
        self.ground = ground
        self.terrain = field.at(self.geometries[ground][1], look_up)


def surface(terrain: Terrain, x: Scalar, y: Scalar) -> tuple[Scalar, Vector3]:
    """The height of the ground at a place, and the upward unit normal there."""
    column, s, slope_x = _cell(x, terrain.origin[0], terrain.spacing[0], terrain.columns)
    row, t, slope_y = _cell(y, terrain.origin[1], terrain.spacing[1], terrain.rows)
    here, right = terrain.look_up(row, column), terrain.look_up(row, column + 1)
    above, corner = terrain.look_up(row + 1, column), terrain.look_up(row + 1, column + 1)
    near, far = right - here, corner - above
    height = here + s * near + t * (above - here + s * (far - near))
    rise_x = (near + t * (far - near)) * slope_x
    rise_y = (above - here + s * (far - near)) * slope_y
    upward = 1.0 / sqrt(1.0 + rise_x * rise_x + rise_y * rise_y)
    return terrain.origin[2] + height, (-rise_x * upward, -rise_y * upward, upward)


def _cell(x: Scalar, origin: Scalar, spacing: Scalar, count: int) -> tuple[Any, Scalar, Scalar]:
    """The cell that a coordinate falls into, where in it from 0 to 1, and how fast that changes."""
    free = (x - origin) / spacing
    place = clamp(free, 0.0, count - 1.0)
    cell = minimum(floor(place), count - 2.0)
    moves = (free >= 0.0) & (free <= count - 1.0)
    return int(cell) if is_number(cell) else to_index(cell), place - cell, select(moves, 1.0 / spacing, 0.0)


def terrain_points(shape: Shape, terrain: Terrain) -> list[Point]:
    """Where a shape, the first, touches the ground, the second.

    A sphere has one point, a capsule one at each end, a box one at each of its eight corners, anything else those that
    it has on the plane that touches the ground under its middle. Distances are those to the plane that touches the
    ground straight below each point: exact on a slope, of first order elsewhere.

    Raises:
        InputError: a shape of another kind.
    """
    if shape.kind == "sphere":
        return [_ball(shape.center, shape.radius, terrain)]
    if shape.kind == "capsule":
        reach = vector.scale(shape.half, shape.axis)
        ends = (vector.add(shape.center, reach), vector.subtract(shape.center, reach))
        return [_ball(end, shape.radius, terrain) for end in ends]
    if shape.kind == "box":
        x, y, z = (vector.scale(h, c) for h, c in zip(shape.size, vector.transpose(shape.pose[0]), strict=True))
        corners = [shape.center]
        for edge in (x, y, z):
            corners = [move(corner, edge) for corner in corners for move in (vector.add, vector.subtract)]
        return [_ball(corner, 0.0, terrain) for corner in corners]
    if shape.kind not in KINDS:
        raise InputError(f"terrain_points: a {shape.kind} cannot stand on terrain; these can: {', '.join(KINDS)}")
    found = search_terrain(shape, terrain)
    points = [terrain_point_at(shape, terrain, detach(list(candidate.feature))) for candidate in found]
    return [
        point._replace(distance=select(candidate.distance < 0.5 * FAR, point.distance, FAR))
        for candidate, point in zip(found, points, strict=True)
    ]


def search_terrain(shape: Shape, terrain: Terrain) -> list[Candidate]:
    """The points that `terrain_points` has.

    The feature is the end of a capsule, the signs of a box's corner, or what it is on a plane.
    """
    if shape.kind in ("sphere", "ellipsoid"):
        return [Candidate(terrain_point_at(shape, terrain, ()).distance)]
    if shape.kind == "capsule":
        features: list[tuple[Scalar, ...]] = [(1.0,), (-1.0,)]
    elif shape.kind == "box":
        features = list(product((1.0, -1.0), repeat=3))
    else:
        search = search_cylinder_plane if shape.kind == "cylinder" else search_hull_plane
        found = search(shape, _tangent_plane(terrain, shape.center))
        distances = [terrain_point_at(shape, terrain, one.feature).distance for one in found]
        return [
            Candidate(select(one.distance < 0.5 * FAR, distance, FAR), one.feature)
            for one, distance in zip(found, distances, strict=True)
        ]
    return [Candidate(terrain_point_at(shape, terrain, feature).distance, feature) for feature in features]


def terrain_point_at(shape: Shape, terrain: Terrain, feature: Sequence[Scalar]) -> Point:
    """One of the points."""
    if shape.kind == "sphere":
        return _ball(shape.center, shape.radius, terrain)
    if shape.kind == "capsule":
        end = vector.add(shape.center, vector.scale(feature[0] * shape.half, shape.axis))
        return _ball(end, shape.radius, terrain)
    if shape.kind == "box":
        corner = vector.vector3([s * h for s, h in zip(feature, shape.size, strict=True)])
        return _ball(transform_point(shape.pose, corner), 0.0, terrain)
    if shape.kind == "hull":
        return _ball(transform_point(shape.pose, Vertices.of(shape.vertices)[feature[0]]), 0.0, terrain)
    if shape.kind == "cylinder":
        touch = cylinder_plane_at(shape, _tangent_plane(terrain, shape.center), feature)
        return _ball(_from_first(touch), 0.0, terrain)
    at = shape.center
    for _ in range(3):  # the lowest point over the plane that touches the ground below the last one
        (touch,) = ellipsoid_plane(shape, _tangent_plane(terrain, at))
        at = _from_first(touch)
    return _ball(at, 0.0, terrain)


def _from_first(point: Point) -> Vector3:
    """The place on the first shape's surface."""
    return vector.add(point.position, vector.scale(0.5 * point.distance, point.normal))


def _tangent_plane(terrain: Terrain, below: Vector3) -> Shape:
    """The plane that touches the ground straight below a point."""
    height, normal = surface(terrain, below[0], below[1])
    axes = (*tangents(normal), normal)
    return Shape("plane", ZERO, (vector.transpose(axes), (below[0], below[1], height)))


def _ball(center: Vector3, radius: Scalar, terrain: Terrain) -> Point:
    height, normal = surface(terrain, center[0], center[1])
    return ball(center, radius, (center[2] - height) * normal[2], normal)
