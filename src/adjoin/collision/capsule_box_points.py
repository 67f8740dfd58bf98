"""Where MuJoCo has the two points of a capsule and a box.

The first is a ball at the place of the axis that is nearest to an edge or, of the ends, to a face, also where the axis
is inside of the box. The second is as far along the face or edge as the axis is above it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from adjoin.collision.box import ball_box
from adjoin.collision.branchless import choose
from adjoin.collision.point import FAR, Candidate, Point
from adjoin.collision.shape import Shape
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar, select
from adjoin.spatial.vector import Vector3, vector3
from adjoin.trace import maximum, minimum

TINY = 1e-15
NEVER = 1e9
"""More than any square of a distance, or any number of halves of an axis."""


class Nearest(NamedTuple):
    """The place of an axis that is nearest to a feature of a box.

    Attributes:
        square: of the distance.
        along: where on the axis, from -1 to 1.
        on_edge: where on the edge, from -1 to 1.
        corner: of each axis of the box, 1 if the edge or corner is on its positive side, else 0.
        edge: 1 for the axis that the edge runs along, else 0; all 0 for a face.
        inner: 1 if the place on the edge is not one of its ends.
        face: 1 for the axis that a face is across, else 0; all 0 if an end is inside of the box.
    """

    square: Any
    along: Scalar
    on_edge: Scalar
    corner: Vector3
    edge: Vector3
    inner: Scalar
    face: Vector3


def search_capsule_box(a: Shape, b: Shape) -> list[Candidate]:
    """Look for both points. The feature is which: 0 or 1."""
    first, second, some = places(*_local(a, b))
    distances = [_at(a, b, place).distance for place in (first, second)]
    return [Candidate(distances[0], (0.0,)), Candidate(select(some, distances[1], FAR), (1.0,))]


def capsule_box_point_at(a: Shape, b: Shape, feature: Sequence[Scalar]) -> Point:
    """One of both points."""
    first, second, _ = places(*_local(a, b))
    return _at(a, b, select(feature[0] < 0.5, first, second))


def _local(a: Shape, b: Shape) -> tuple[Vector3, Vector3, Vector3]:
    """The half edges of a box, and the middle and half of a capsule's axis in its frame."""
    rotation = b.pose[0]
    middle = vector.apply_transposed(rotation, vector.subtract(a.center, b.center))
    return b.size, middle, vector.scale(a.half, vector.apply_transposed(rotation, a.axis))


def _at(a: Shape, b: Shape, place: Scalar) -> Point:
    """The point of a ball at a place on a capsule's axis."""
    center = vector.add(a.center, vector.scale(place * a.half, a.axis))
    return ball_box(center, a.radius, b, vector.apply_transposed(b.pose[0], vector.subtract(center, b.center)))


def places(size: Vector3, middle: Vector3, half: Vector3) -> tuple[Scalar, Scalar, Any]:
    """Return two places on an axis, in halves of its length from the middle, and whether there is a second.

    Args:
        size: half edges of the box.
        middle: of the axis, in the box's frame.
        half: from the middle to the end of the axis.
    """
    nearest = _nearest(size, middle, half)
    ahead = vector3([select(x > 0.0, 1.0, 0.0) for x in half])
    differs = vector3([abs(x - y) for x, y in zip(ahead, nearest.corner, strict=True)])
    reach = [2.0 * h / maximum(abs(x), TINY) for h, x in zip(size, half, strict=True)]
    is_edge = sum(nearest.edge) > 0.5
    ways = _along_corner(nearest, half, differs, reach), _along_edge(size, nearest, half, ahead, differs, reach)
    step, some = choose(nearest.inner > 0.5, ways[1], ways[0])
    step, some = choose(is_edge, (step, some), _along_face(size, middle, half, nearest))
    return nearest.along, nearest.along + step, some > 0.5


def _nearest(size: Vector3, middle: Vector3, half: Vector3) -> Nearest:
    best: Any = tuple(Nearest(NEVER, 0.0, 0.0, vector.ZERO, vector.ZERO, 0.0, vector.ZERO))
    for end in (-1.0, 1.0):
        place = vector.add(middle, vector.scale(end, half))
        over = [maximum(abs(x) - h, 0.0) for x, h in zip(place, size, strict=True)]
        out = [select(x > 0.0, 1.0, 0.0) for x in over]
        square = select(sum(out) < 1.5, sum(x * x for x in over), NEVER)
        one = Nearest(square, end, 0.0, vector.ZERO, vector.ZERO, 0.0, vector3(out))
        best = choose(square < best[0], tuple(one), best)
    for j in range(3):
        for signs in _CORNERS[j]:
            one = _to_edge(size, middle, half, j, signs)
            best = choose(one.square < best[0] - TINY, tuple(one), best)
    return Nearest(*best)


_CORNERS = [
    [[0.0 if k == j else float(2 * (i >> k & 1) - 1) for k in range(3)] for i in range(8) if not i >> j & 1]
    for j in range(3)
]
"""The four edges along each axis: on which side of each of the others they are."""


def _to_edge(size: Vector3, middle: Vector3, half: Vector3, j: int, signs: list[float]) -> Nearest:
    """The place of an axis nearest to an edge of the box."""
    start = vector3([sign * h for sign, h in zip(signs, size, strict=True)])
    gap = vector.subtract(start, middle)
    ma, mb, mc = size[j] * size[j], -size[j] * half[j], vector.dot(half, half)
    u, v = -size[j] * gap[j], vector.dot(half, gap)
    det = ma * mc - mb * mb
    slanted = abs(det) >= TINY
    inverse = 1.0 / select(slanted, det, 1.0)
    on_edge, along = (mc * u - mb * v) * inverse, (ma * v - mb * u) * inverse
    above, below = on_edge > 1.0, on_edge < -1.0
    at_end = select(above | below, select(above, 1.0, -1.0), 0.0)
    along = select(above, (v - mb) / maximum(mc, TINY), select(below, (v + mb) / maximum(mc, TINY), along))
    on_edge = maximum(minimum(on_edge, 1.0), -1.0)
    before, after = along < -1.0, along > 1.0
    again = select(after, u - mb, u + mb) / maximum(ma, TINY)
    ended = before | after
    at_end = select(ended & (again > 1.0), 1.0, select(ended & (again < -1.0), -1.0, at_end))
    on_edge = select(ended, maximum(minimum(again, 1.0), -1.0), on_edge)
    along = maximum(minimum(along, 1.0), -1.0)
    rest = vector.subtract(gap, vector.scale(along, half))
    rest = vector3([x + size[j] * on_edge if k == j else x for k, x in enumerate(rest)])
    square = select(slanted, vector.dot(rest, rest), NEVER)
    upper = select(at_end > 0.5, 1.0, 0.0)
    corner = vector3([upper if k == j else float(sign > 0.0) for k, sign in enumerate(signs)])
    edge = vector3([float(k == j) for k in range(3)])
    return Nearest(square, along, on_edge, corner, edge, select(abs(at_end) < 0.5, 1.0, 0.0), vector.ZERO)


Step = tuple[Scalar, Any]
"""How far along the axis a second place is, and whether there is one, 1 or 0."""


def _along_corner(nearest: Nearest, half: Vector3, differs: Vector3, reach: list[Scalar]) -> Step:
    """From a corner, along an edge if the axis has a small angle with it, else along a face."""
    count = sum(differs)
    single = count < 1.5
    way = select(single, 1.0, -1.0)
    alone = [select(single, x, 1.0 - x) for x in differs]
    onward, back = 1.0 - way * nearest.along, 1.0 + way * nearest.along
    along_edge, along_face = onward, back
    level = 0.0
    square = maximum(vector.dot(half, half), TINY * TINY)
    for own, bound, x in zip(alone, reach, half, strict=True):
        along_edge = minimum(along_edge, select(own > 0.5, bound, NEVER))
        along_face = minimum(along_face, select(own > 0.5, NEVER, bound))
        level = level + own * x * x / square
    some = select((count > 0.5) & (count < 2.5), 1.0, 0.0)
    return select(level > 0.5, way * along_edge, -(way * along_face)), some


def _along_edge(
    size: Vector3, nearest: Nearest, half: Vector3, ahead: Vector3, differs: Vector3, reach: list[Scalar]
) -> Step:
    """From a place on an edge, along the face that the axis has the smaller angle with."""
    step, some = 0.0, 0.0
    for j in range(3):
        first, second = (j + 1) % 3, (j + 2) % 3
        crossed = abs(half[first]) > abs(half[second])
        bit, bound = select(crossed, differs[first], differs[second]), select(crossed, reach[first], reach[second])
        way = select(bit > 0.5, 1.0, -1.0)
        far = minimum(1.0 - way * nearest.along, bound)
        same = abs(ahead[j] - bit) < 0.5
        rest = select(same, 1.0 - nearest.on_edge, 1.0 + nearest.on_edge)
        far = minimum(far, size[j] * rest / maximum(abs(half[j]), TINY))
        own = nearest.edge[j] > 0.5
        one = abs(differs[first] + differs[second] - 1.0) < 0.5
        step, some = select(own, way * far, step), select(own & one, 1.0, some)
    return step, some


def _along_face(size: Vector3, middle: Vector3, half: Vector3, nearest: Nearest) -> Step:
    """From an end above a face, toward the other as far as it is above the face."""
    way = -nearest.along
    place = vector.add(middle, vector.scale(nearest.along, half))
    far: Scalar = 2.0
    for h, x, at, across in zip(size, half, place, nearest.face, strict=True):
        slope = select(abs(x) < TINY, TINY, x)
        for side in (h, -h):
            reach = (side - at) / slope * way
            bounds = (reach > 0.0) & (across < 0.5)
            far = minimum(far, select(bounds, reach, NEVER))
    return way * far, select(sum(nearest.face) > 0.5, 1.0, 0.0)
