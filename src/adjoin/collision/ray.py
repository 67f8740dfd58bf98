"""Rays against shapes: how far along a ray the surface of a shape is."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from adjoin.collision.hull_faces import hull_planes
from adjoin.collision.shape import Shape
from adjoin.collision.terrain import Terrain, surface
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Vector3
from adjoin.trace import detach, floor, loop, maximum, minimum, select, sqrt, table, while_loop

MISS = 1e10
"""What a ray measures that meets nothing, m."""
TINY = 1e-15
KINDS = ("plane", "sphere", "capsule", "ellipsoid", "cylinder", "box", "hull")
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
    if shape.kind == "hull":
        enter, leave = _hull(shape.vertices, place, along)  # type: ignore[arg-type]
    else:
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


def _hull(vertices: Sequence[Vector3], place: Vector3, along: Vector3) -> Interval:
    planes = hull_planes(np.array(vertices, dtype=np.float64))
    if not len(planes):
        return MISS, -MISS

    def cut(plane: Sequence[Scalar], interval: Interval) -> Interval:
        normal = vector.vector3(plane[:3])
        rate, left = vector.dot(normal, along), plane[3] - vector.dot(normal, place)
        crosses = abs(rate) > TINY
        far = left / select(crosses, rate, 1.0)
        beside = ~crosses & (left < 0.0)
        enter = select(beside, MISS, select(crosses & (rate < 0.0), maximum(interval[0], far), interval[0]))
        return enter, select(crosses & (rate > 0.0), minimum(interval[1], far), interval[1])

    rows = table(planes)
    begin = (-MISS + 0.0 * place[0], MISS + 0.0 * place[0])
    return loop(len(planes), lambda k, interval: cut([rows[k, i] for i in range(4)], interval), begin)


def terrain_ray(terrain: Terrain, origin: Vector3, direction: Vector3) -> Scalar:
    """Return how far a ray goes until it meets terrain, from above or below; `MISS` if never.

    Args:
        terrain: the ground.
        origin: where the ray begins, in the world.
        direction: in the world.
    """

    def gap(far: Scalar) -> tuple[Scalar, Scalar]:
        """How far the ray is above the ground, and how fast that grows along it."""
        x, y, z = (o + far * d for o, d in zip(origin, direction, strict=True))
        height, normal = surface(terrain, x, y)
        return z - height, vector.dot(normal, direction) / normal[2]

    cells = [
        ((origin[k] - terrain.origin[k]) / terrain.spacing[k], direction[k] / terrain.spacing[k], float(count - 1))
        for k, count in enumerate((terrain.columns, terrain.rows))
    ]

    def advance(_: Any, carry: Any) -> Any:
        begin, _, _ = carry
        end = minimum(*[_next_line(begin, *cell) for cell in cells])
        open_ended = end >= 0.5 * MISS
        end = select(open_ended, begin + 1.0, end)
        # Between two lines of the grid the ground is a polynomial of second degree along the ray.
        low, middle, high = (gap(x)[0] for x in (begin, 0.5 * (begin + end), end))
        root = _first_root(2.0 * (low - 2.0 * middle + high), 4.0 * middle - 3.0 * low - high, low)
        meets = (root <= 1.0 + NEAR) | (open_ended & (root < 0.5 * MISS))
        found = select(meets, begin + root * (end - begin), MISS)
        return end, found, select(meets | open_ended, 0.0, 1.0)

    zero = 0.0 * origin[0]
    lines = terrain.rows + terrain.columns + 2
    carry = while_loop(lambda carry: carry[2] > 0.5, advance, (zero, MISS + zero, 1.0 + zero), lines)
    (reached,) = detach([carry[1]])
    hit = reached < 0.5 * MISS
    at = select(hit, reached, 0.0)
    above, rate = gap(at)
    (slope,) = detach([rate])
    # One step of Newton's method, which gives the place its derivative.
    refined = at - above / select(abs(slope) > TINY, slope, 1.0)
    return select(hit, refined, MISS)


NEAR = 1e-4  # cells: lines that are nearer than this are behind the ray


def _next_line(far: Scalar, start: Scalar, rate: Scalar, last: Scalar) -> Scalar:
    """Where a ray next crosses a line of the grid in one direction; `MISS` if it crosses none more."""
    place = start + far * rate
    up, down = floor(place + NEAR) + 1.0, -floor(-place + NEAR) - 1.0
    line = select(rate > 0.0, maximum(up, 0.0), minimum(down, last))
    more = ((rate > TINY) & (line <= last)) | ((rate < -TINY) & (line >= 0.0))
    return select(more, far + (line - place) / select(more, rate, 1.0), MISS)


def _first_root(a: Scalar, b: Scalar, c: Scalar) -> Scalar:
    """The least x >= 0 with a x² + b x + c = 0; `MISS` if there is none."""
    square = b * b - 4.0 * a * c
    q = -0.5 * (b + select(b < 0.0, -1.0, 1.0) * sqrt(maximum(square, 0.0)))
    roots = []
    for above, below in ((q, a), (c, q)):
        safe = abs(below) > TINY
        root = above / select(safe, below, 1.0)
        roots.append(select(safe & (root >= 0.0), root, MISS))
    return select(square >= 0.0, minimum(*roots), MISS)


_INTERVALS = {"sphere": _sphere, "ellipsoid": _ellipsoid, "cylinder": _cylinder, "capsule": _capsule, "box": _box}
