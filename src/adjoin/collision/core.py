"""Convex shapes as a core and a radius around it, for what is the same for all of them.

The core is the sum of a box and an ellipsoid, either of which may have no extent, or it is a hull. A sphere is a point
and a radius, a capsule a segment and a radius, a cylinder the sum of a segment and a disk. So one function is the
support of them all, and it is smooth in the direction but where the box part has edges and the disk its flat side.
"""

from dataclasses import dataclass
from typing import Any

from adjoin.collision.branchless import choose
from adjoin.collision.shape import Shape, Vertices
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar, is_number, select, sqrt
from adjoin.spatial.vector import ZERO, Vector3, vector3
from adjoin.trace import loop, maximum, minimum

TINY = 1e-24
"""The least square of a length that something is divided by, m²."""


@dataclass(frozen=True)
class Core:
    """A convex shape in its own frame.

    Attributes:
        kind: of the shape.
        box: half edges of the box part.
        disk: radii of the smooth part.
        scale: what the coordinates of a feature's point are multiplied with.
        radius: what is around the core.
        vertices: of a hull.
        rank: the highest dimension of its flat features: 0 points, 1 edges, 2 faces.
        corners: how many corners its largest flat feature is taken to have.
    """

    kind: str
    box: Vector3 = ZERO
    disk: Vector3 = ZERO
    scale: Vector3 = (1.0, 1.0, 1.0)
    radius: Scalar = 0.0
    vertices: Vertices | None = None
    rank: int = 0
    corners: int = 1

    @property
    def smooth(self) -> bool:
        """Whether it has a smooth part."""
        return any(not (is_number(x) and x == 0.0) for x in self.disk)


def core_of(shape: Shape) -> Core:
    """The core of a shape that is not a plane."""
    r, half = shape.radius, shape.half
    if shape.kind == "sphere":
        return Core(shape.kind, radius=r)
    if shape.kind == "capsule":
        return Core(shape.kind, box=(0.0, 0.0, half), scale=(0.0, 0.0, half), radius=r, rank=1, corners=2)
    if shape.kind == "box":
        return Core(shape.kind, box=shape.size, scale=shape.size, rank=2, corners=4)
    if shape.kind == "cylinder":
        disk, scale = (r, r, 0.0), (r, r, half)
        return Core(shape.kind, box=(0.0, 0.0, half), disk=disk, scale=scale, rank=2, corners=8)
    if shape.kind == "ellipsoid":
        return Core(shape.kind, disk=shape.size)
    return Core(shape.kind, vertices=Vertices.of(shape.vertices), rank=2, corners=4)


def disk_point(core: Core, d: Vector3) -> tuple[Vector3, Scalar]:
    """The support point of the smooth part in a direction, and the inverse of its distance along that."""
    scaled = vector3([r * x for r, x in zip(core.disk, d, strict=True)])
    inverse = 1.0 / sqrt(maximum(vector.dot(scaled, scaled), TINY))
    return vector3([r * x * inverse for r, x in zip(core.disk, scaled, strict=True)]), inverse


def curvature(core: Core, d: Vector3, t: Vector3) -> Vector3:
    """How the support point moves when the unit direction d moves by t."""
    if not core.smooth:
        return ZERO
    at, inverse = disk_point(core, d)
    along = vector.dot(at, t)
    return vector3([(r * r * x - p * along) * inverse for r, x, p in zip(core.disk, t, at, strict=True)])


def signs(d: Vector3) -> Vector3:
    """1 or -1 for each coordinate."""
    return vector3([select(x < 0.0, -1.0, 1.0) for x in d])


def corner(core: Core, d: Vector3) -> Vector3:
    """The point of the box part or of the hull that reaches furthest in a direction, as coordinates of a feature."""
    if core.vertices is None:
        return vector3([0.0 if is_number(h) and h == 0.0 else s for h, s in zip(core.box, signs(d), strict=True)])
    return core.vertices[core.vertices.furthest(d)[1]]


def point(core: Core, coordinates: Vector3, smooth: Any, d: Vector3) -> Vector3:
    """A point of the core in its frame.

    Args:
        core: the shape.
        coordinates: of the feature.
        smooth: whether the support point of the smooth part in the direction d comes on top.
        d: the direction.
    """
    at = vector3([s * x for s, x in zip(core.scale, coordinates, strict=True)])
    if not core.smooth or smooth is False:
        return at
    more = vector.add(at, disk_point(core, d)[0])
    return more if smooth is True else choose(smooth, more, at)


def support(core: Core, d: Vector3) -> Vector3:
    """The point of the core that reaches furthest in a direction, in its frame."""
    return point(core, corner(core, d), True, d)


def bounds(core: Core) -> tuple[Vector3, Vector3]:
    """The middle and the half edges of the box around the core in its frame, with its radius."""
    if core.vertices is None:
        return ZERO, vector3([b + r + core.radius for b, r in zip(core.box, core.disk, strict=True)])
    vertices = core.vertices
    if vertices.box is not None:
        return vertices.box

    def visit(i: Any, limits: list[tuple[Scalar, Scalar]]) -> list[tuple[Scalar, Scalar]]:
        pairs = zip(limits, vertices[i], strict=True)
        return [(minimum(low, x), maximum(high, x)) for (low, high), x in pairs]

    limits = loop(vertices.count, visit, [(1e30, -1e30)] * 3, at_most=vertices.at_most, detached=True)
    middle = vector3([0.5 * (low + high) for low, high in limits])
    return middle, vector3([0.5 * (high - low) for low, high in limits])
