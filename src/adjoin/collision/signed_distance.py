"""How far a point is from the surface of a shape: positive outside of it, negative inside."""

from collections.abc import Callable, Sequence

from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Vector3
from adjoin.trace import maximum, minimum, select, sqrt

TINY = 1e-15


def signed_distance(kind: str, size: Sequence[Scalar], place: Vector3) -> Scalar:
    """Return the distance of a point from a shape, by MuJoCo's formulas, in units of `size`.

    Its sign is exact. Inside of a box, and of an ellipsoid everywhere, its amount is not the least distance.

    Args:
        kind: one of `MEASURED`, see `Geometry.kind`.
        size: see `Geometry.size`.
        place: the point, in the frame of the shape.
    """
    return _DISTANCES[kind](size, place)


def _length(*parts: Scalar) -> Scalar:
    square = sum((x * x for x in parts), 0.0)
    return sqrt(maximum(square, TINY * TINY))


def _box(size: Sequence[Scalar], place: Vector3) -> Scalar:
    over = [abs(x) - half for x, half in zip(place, size, strict=True)]
    outside = _length(*(maximum(x, 0.0) for x in over))
    # Inside, distances are measured along a direction that turns from the center's to the normals of the faces.
    inner = [maximum(-x, TINY) for x in over]
    way = [half / x for half, x in zip(size, inner, strict=True)]
    along = [x / y for x, y in zip(inner, way, strict=True)]
    depth = minimum(along[0], minimum(along[1], along[2])) * _length(*way)
    is_inside = maximum(over[0], maximum(over[1], over[2])) < 0.0
    return select(is_inside, -depth, outside)


def _capsule(size: Sequence[Scalar], place: Vector3) -> Scalar:
    beyond = place[2] - minimum(maximum(place[2], -size[1]), size[1])
    return _length(place[0], place[1], beyond) - size[0]


def _ellipsoid(size: Sequence[Scalar], place: Vector3) -> Scalar:
    scaled = [x / half for x, half in zip(place, size, strict=True)]
    length = _length(*scaled)
    return length * (length - 1.0) / _length(*(x / half for x, half in zip(scaled, size, strict=True)))


def _cylinder(size: Sequence[Scalar], place: Vector3) -> Scalar:
    aside, above = _length(place[0], place[1]) - size[0], abs(place[2]) - size[1]
    outside = _length(maximum(aside, 0.0), maximum(above, 0.0))
    return select(maximum(aside, above) < 0.0, maximum(aside, above), outside)


_DISTANCES: dict[str, Callable[[Sequence[Scalar], Vector3], Scalar]] = {
    "plane": lambda _, place: place[2],
    "sphere": lambda size, place: _length(*place) - size[0],
    "capsule": _capsule,
    "ellipsoid": _ellipsoid,
    "cylinder": _cylinder,
    "box": _box,
}
MEASURED = tuple(_DISTANCES)
"""Kinds of shapes whose distance from a point is known."""
