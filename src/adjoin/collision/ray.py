"""Rays against shapes: how far along a ray the surface of a shape is."""

from typing import Any

from adjoin.collision.shape import Shape
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Vector3
from adjoin.trace import maximum, minimum, select, sqrt

MISS = 1e10
"""What a ray measures that meets nothing, m."""
TINY = 1e-15
KINDS = ("plane", "sphere", "capsule", "ellipsoid", "cylinder", "box")
"""Kinds of shapes that rays meet."""

Interval = tuple[Any, Any]
"""Where a ray enters a convex body and where it leaves it; the first is the greater one if it misses it."""


def ray_distance(shape: Shape, origin: Vector3, direction: Vector3) -> Scalar:
    """Return how far a ray goes until it meets the surface of a shape, in lengths of its direction; `MISS` if never.

    A ray that begins inside of a shape meets it from inside. A plane is met from above only.

    Args:
        shape: of one of `KINDS`.
        origin: where the ray begins, in the world.
        direction: in the world.
    """
    rotation, position = shape.pose
    place = vector.apply_transposed(rotation, vector.subtract(origin, position))
    along = vector.apply_transposed(rotation, direction)
    if shape.kind == "plane":
        return _plane(shape, place, along)
    enter, leave = _INTERVALS[shape.kind](shape.size, place, along)
    first = select(enter >= 0.0, enter, leave)
    return select((enter <= leave) & (first >= 0.0), first, MISS)


def _plane(shape: Shape, place: Vector3, along: Vector3) -> Scalar:
    down = along[2] < -TINY
    far = -place[2] / select(down, along[2], -1.0)
    meets = down & (far >= 0.0)
    for k, half in enumerate(shape.size[:2]):
        # Half edges of 0 stand for a plane without end.
        meets = meets & ((abs(place[k] + far * along[k]) <= half) | (half <= 0.0))
    return select(meets, far, MISS)


def _quadratic(a: Scalar, b: Scalar, c: Scalar) -> Interval:
    """Where a t² + 2 b t + c is not positive."""
    determinant = b * b - a * c
    some = (determinant >= 0.0) & (a > TINY)
    root, scale = sqrt(select(some, determinant, 0.0)), select(some, a, 1.0)
    # Along a line on which it does not change, it is not positive everywhere or nowhere.
    everywhere = (a <= TINY) & (c <= 0.0)
    enter = select(some, (-b - root) / scale, select(everywhere, -MISS, MISS))
    return enter, select(some, (-b + root) / scale, select(everywhere, MISS, -MISS))


def _slab(half: Scalar, place: Scalar, along: Scalar) -> Interval:
    """Where a coordinate is at most so far from 0."""
    safe = select(abs(along) > TINY, along, select(along < 0.0, -TINY, TINY))
    a, b = (-half - place) / safe, (half - place) / safe
    return minimum(a, b), maximum(a, b)


def _both(*parts: Interval) -> Interval:
    """Where a ray is inside of all."""
    enter, leave = parts[0]
    for a, b in parts[1:]:
        enter, leave = maximum(enter, a), minimum(leave, b)
    return enter, leave


def _sphere(size: Vector3, place: Vector3, along: Vector3) -> Interval:
    square = vector.dot(place, place) - size[0] * size[0]
    return _quadratic(vector.dot(along, along), vector.dot(place, along), square)


def _ellipsoid(size: Vector3, place: Vector3, along: Vector3) -> Interval:
    p, d = ((x[0] / size[0], x[1] / size[1], x[2] / size[2]) for x in (place, along))
    return _quadratic(vector.dot(d, d), vector.dot(p, d), vector.dot(p, p) - 1.0)


def _cylinder(size: Vector3, place: Vector3, along: Vector3) -> Interval:
    p, d = (place[0], place[1], 0.0), (along[0], along[1], 0.0)
    side = _quadratic(vector.dot(d, d), vector.dot(p, d), vector.dot(p, p) - size[0] * size[0])
    return _both(side, _slab(size[1], place[2], along[2]))


def _capsule(size: Vector3, place: Vector3, along: Vector3) -> Interval:
    parts = [_cylinder(size, place, along)]
    for side in (1.0, -1.0):
        parts.append(_sphere(size, (place[0], place[1], place[2] - side * size[1]), along))
    enter, leave = MISS, -MISS
    for a, b in parts:
        meets = a <= b
        enter, leave = select(meets, minimum(enter, a), enter), select(meets, maximum(leave, b), leave)
    return enter, leave


def _box(size: Vector3, place: Vector3, along: Vector3) -> Interval:
    return _both(*[_slab(half, p, d) for half, p, d in zip(size, place, along, strict=True)])


_INTERVALS = {"sphere": _sphere, "ellipsoid": _ellipsoid, "cylinder": _cylinder, "capsule": _capsule, "box": _box}
