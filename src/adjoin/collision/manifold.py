"""Up to four points on which two flat features rest on each other: corners of what they share, seen along the normal.

Each feature is a polygon in the plane across the normal; an edge is one with two corners. Where polygons go round the
same way, every corner of what they share is where a side of one of them enters the other.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from adjoin.collision.branchless import choose
from adjoin.collision.core import Core, point
from adjoin.collision.faces import Feature, tangents
from adjoin.collision.point import FAR
from adjoin.collision.separation import Cores
from adjoin.spatial import vector
from adjoin.spatial.motion import Transform, transform_point
from adjoin.spatial.scalar import Scalar, select, sqrt
from adjoin.spatial.vector import Vector3, vector3
from adjoin.trace import Scratch, loop, maximum, minimum, scratch, table, to_float

BORDER = 1e-5
"""How far, in terms of the shapes' size, a polygon reaches over its border."""

SPREAD = 1e-3
"""How far apart points are at least, in terms of the shapes' size."""

CLEARLY = 1.001
"""By which factor something is further than another that comes before it, so that rounding does not decide."""

NONE = -1.0


class Polygon(NamedTuple):
    """A feature across the normal, in scratch arrays.

    Attributes:
        count: of corners.
        corners: of each corner its coordinates as a feature of its shape.
        places: of each corner its coordinates along two tangents and the normal.
        sides: of each side what is positive inside: two factors and a constant.
        level: its height along the normal: a constant, and how it changes along the tangents.
        flat: whether it is a face.
        long: whether it is an edge.
    """

    count: int
    corners: Scratch
    places: Scratch
    sides: Scratch
    level: Vector3
    flat: Any
    long: Any

    def corner(self, k: Any) -> Vector3:
        """The coordinates of a corner as a feature."""
        return self.corners[3 * k], self.corners[3 * k + 1], self.corners[3 * k + 2]

    def following(self, k: Any) -> Any:
        """The corner after one."""
        return table([*range(1, self.count), 0])[k]


def polygon(core: Core, pose: Transform, feature: Feature, axes: Sequence[Vector3], d: Vector3) -> Polygon:
    """The polygon of a feature.

    Args:
        core: the shape.
        pose: of it.
        feature: what of it is next to d.
        axes: two tangents, and the normal.
        d: the direction, in the core's frame.
    """
    count = core.corners
    half = count // 2
    corners = list(feature.corners)
    places = []
    for corner in corners:
        at = transform_point(pose, point(core, corner, feature.smooth, d))
        places.append(vector3([vector.dot(axis, at) for axis in axes]))
    if count > 2:
        i, j = count // 4, half + count // 4
        area = _cross(_minus(places[half], places[0]), _minus(places[j], places[i]))
        other_way = feature.flat & (area < 0.0)
        corners = [choose(other_way, corners[-k], corners[k]) for k in range(count)]
        places = [choose(other_way, places[-k], places[k]) for k in range(count)]
    ends = _minus(places[half], places[0])
    sides = []
    for k in range(count):
        x, y = _minus(places[(k + 1) % count], places[k])
        across = (-y, x) if count > 2 else (0.0, 0.0)
        if k in (0, half):
            cap = ends if k == 0 else (-ends[0], -ends[1])
            across = choose(feature.flat, across, cap) if count > 2 else cap
        elif count > 2:
            across = choose(feature.flat, across, (0.0, 0.0))
        inverse = 1.0 / sqrt(maximum(across[0] * across[0] + across[1] * across[1], 1e-20))
        across = (across[0] * inverse, across[1] * inverse)
        sides.append((*across, -(across[0] * places[k][0] + across[1] * places[k][1])))
    # Of a face the normal says how it climbs, of an edge its direction.
    x, y, z = (vector.dot(axis, vector.apply(pose[0], feature.level)) for axis in axes)
    down = -1.0 / select(abs(z) > 0.1, z, 1.0)
    along = z / maximum(x * x + y * y, 1e-6)
    slope = choose(feature.flat, (x * down, y * down), (x * along, y * along))
    level = places[0][2] - slope[0] * places[0][0] - slope[1] * places[0][1]
    corners, places, sides = (scratch([x for row in rows for x in row]) for rows in (corners, places, sides))
    return Polygon(count, corners, places, sides, (level, *slope), feature.flat, feature.long)


def _minus(a: Vector3, b: Vector3) -> tuple[Scalar, Scalar]:
    return a[0] - b[0], a[1] - b[1]


def _cross(a: tuple[Scalar, Scalar], b: tuple[Scalar, Scalar]) -> Scalar:
    return a[0] * b[1] - a[1] * b[0]


class Corner(NamedTuple):
    """A corner of what two polygons share.

    Attributes:
        distance: along the normal, from the second to the first, or `FAR`.
        x: along the first tangent.
        y: along the second.
        side: which side it is on: first those of the first polygon, then the second's.
        meets: which side of the other polygon it enters by there, or `NONE` where it begins inside.
    """

    distance: Scalar
    x: Scalar
    y: Scalar
    side: Scalar
    meets: Scalar


def _entries(
    found: Scratch, base: int, own: Polygon, other: Polygon, sign: float, counts: Any, border: Scalar
) -> Scratch:
    """Write where each side of a polygon enters another."""

    def visit(k: Any, found: Scratch) -> Scratch:
        after = own.following(k)
        x, y, z = (own.places[3 * k + i] for i in range(3))
        dx, dy, dz = (own.places[3 * after + i] - value for i, value in enumerate((x, y, z)))

        def cut(j: Any, carry: Any) -> Any:
            low, high, meets = carry
            a, b, c = (other.sides[3 * j + i] for i in range(3))
            start, rate = a * x + b * y + c + border, a * dx + b * dy
            steep = abs(rate) > 1e-9
            at = -start / select(steep, rate, 1.0)
            enters = steep & (rate > 0.0) & (at > low)
            low = select(enters, at, low)
            high = select(steep, select(rate < 0.0, minimum(high, at), high), select(start < 0.0, -1.0, high))
            return low, high, select(enters, to_float(j), meets)

        low, high, meets = loop(other.count, cut, (0.0, 1.0, NONE), detached=True)
        # Only the two sides from end to end of an edge count, and of a face those that have length.
        half = own.count // 2
        real = ((k == half - 1) | (k == own.count - 1) | own.flat) & (dx * dx + dy * dy > border * border)
        px, py = x + low * dx, y + low * dy
        level = other.level[0] + other.level[1] * px + other.level[2] * py
        distance = select(counts & real & (low <= high), sign * (z + low * dz - level), FAR)
        row = (distance, px, py, to_float(k) + float(base), meets)
        for i, value in enumerate(row):
            found[5 * (k + base) + i] = value
        return found

    return loop(own.count, visit, found, detached=True)


class Shared(NamedTuple):
    """What two features share.

    Attributes:
        first: the first polygon.
        second: the second.
        nearest: the nearest corner.
        corners: up to four corners, or two of edges, as they go round; it is one of them.
    """

    first: Polygon
    second: Polygon
    nearest: Corner
    corners: list[Corner]


def _in_order(corners: Sequence[Corner]) -> list[Corner]:
    """Corners as they go round, so that a step has them in the order of the one before; what is none comes last."""
    weights = [select(corner.distance < 0.5 * FAR, 1.0, 0.0) for corner in corners]
    share = 1.0 / maximum(sum(weights, 0.0), 1.0)
    middle = [sum((w * c[k] for w, c in zip(weights, corners, strict=True)), 0.0) * share for k in (1, 2)]
    rows: list[Any] = []
    for corner, weight in zip(corners, weights, strict=True):
        x, y = corner.x - middle[0], corner.y - middle[1]
        angle = 1.0 - x / maximum(abs(x) + abs(y), 1e-20)  # grows with the angle, as the angle itself
        rows.append((select(weight > 0.5, select(y < 0.0, -angle, angle), 10.0), tuple(corner)))
    swaps = [(0, 1), (2, 3), (0, 2), (1, 3), (1, 2)] if len(rows) == 4 else [(0, 1)]
    for i, j in swaps:
        wrong = rows[j][0] < rows[i][0]
        rows[i], rows[j] = choose(wrong, rows[j], rows[i]), choose(wrong, rows[i], rows[j])
    return [Corner(*row) for _, row in rows]


def share(cores: Cores, n: Vector3, features: tuple[Feature, Feature], size: Scalar, aligned: Any) -> Shared:
    """Up to four points on which the features next to a normal rest on each other.

    Args:
        cores: the shapes, in the frame of the first.
        n: the normal.
        features: of both.
        size: of the shapes.
        aligned: whether edges, if both have one, are nearly parallel.
    """
    d, e = cores.toward(n)
    axes = (*tangents(n), n)
    first = polygon(cores.a, cores.first, features[0], axes, d)
    second = polygon(cores.b, cores.second, features[1], axes, e)
    border = BORDER * size
    total = first.count + second.count
    found = scratch(5 * total, cleared=False)
    own = (first.flat & (second.flat | second.long)) | (first.long & (second.flat | (second.long & aligned)))
    of_first = own & (second.flat | first.long)
    found = _entries(found, 0, first, second, 1.0, of_first, border)
    found = _entries(found, first.count, second, first, -1.0, own & first.flat, border)

    def corner(k: Any) -> Corner:
        return Corner(*(found[5 * k + i] for i in range(5)))

    nothing = Corner(FAR, 0.0, 0.0, 0.0, NONE)

    def nearest(k: Any, best: Any) -> Any:
        here = corner(k)
        return Corner(*choose(here.distance < best[0] - border, tuple(here), tuple(best)))

    start = loop(total, nearest, nothing, detached=True)
    least = SPREAD * size

    def furthest(k: Any, carry: Any) -> Any:
        best, most = carry
        here = corner(k)
        x, y = here.x - start.x, here.y - start.y
        away = select(here.distance < 0.5 * FAR, x * x + y * y, 0.0)
        return choose(away > CLEARLY * most, (here, away), (best, most))

    away, _ = loop(total, furthest, (nothing, least * least), detached=True)
    if min(cores.a.rank, cores.b.rank) < 2:
        return Shared(first, second, start, _in_order([start, away]))
    x, y = away.x - start.x, away.y - start.y
    long = least * sqrt(x * x + y * y)

    def beside(k: Any, carry: Any) -> Any:
        left, most_left, right, most_right = carry
        here = corner(k)
        area = x * (here.y - start.y) - y * (here.x - start.x)
        area = select((here.distance < 0.5 * FAR) & (away.distance < 0.5 * FAR), area, 0.0)
        left, most_left = choose(area > CLEARLY * most_left, (here, area), (left, most_left))
        right, most_right = choose(-area > CLEARLY * most_right, (here, -area), (right, most_right))
        return left, most_left, right, most_right

    left, _, right, _ = loop(total, beside, (nothing, long, nothing, long), detached=True)
    return Shared(first, second, start, _in_order([start, away, left, right]))
