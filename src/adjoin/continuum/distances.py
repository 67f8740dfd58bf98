"""How far a point is from a rigid shape, and the direction away from it: negative inside, exact everywhere.

Both have derivatives to the point wherever the nearest point of the surface does not jump.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from adjoin.collision.hull_faces import hull_faces
from adjoin.errors import InputError
from adjoin.trace import loop, maximum, minimum, select, sqrt, table, to_float, to_index, when

TINY = 1e-18
"""m², under square roots: so that they have derivatives at 0."""

ON_SURFACE = 1e-8
"""m: up to here from a face a point counts as on it, since the vector to it has no direction after rounding."""

SIDE = 1e-6
"""How far beyond a side of a triangle a point still counts as over it, in terms of the hull's extent: two triangles of
one face have no gap between them."""

NEWTON = 12
"""Newton's iterations for the nearest point of an ellipsoid: enough for radii of which one is 30 times another."""


def plane_distance(p: Any) -> tuple[Any, Any]:
    """Return distance and outer normal of the plane z = 0; its normal is the z axis."""
    return p[2], np.array([0.0, 0.0, 1.0], dtype=object)


def capsule_distance(size: Sequence[float], p: Any) -> tuple[Any, Any]:
    """Return distance and outer normal of a capsule: radius and half length along z; of a sphere with half length 0."""
    radius, half = size
    away = p - np.array([0.0, 0.0, minimum(maximum(p[2], -half), half)], dtype=object)
    length = sqrt(away @ away + TINY)
    return length - radius, away / length


def box_distance(size: Sequence[float], p: Any) -> tuple[Any, Any]:
    """Return distance and outer normal of a box of half lengths."""
    sign = [select(p[i] < 0.0, -1.0, 1.0) for i in range(3)]
    distance, parts = _corner([abs(p[i]) - size[i] for i in range(3)])
    return distance, np.array([part * s for part, s in zip(parts, sign, strict=True)], dtype=object)


def cylinder_distance(size: Sequence[float], p: Any) -> tuple[Any, Any]:
    """Return distance and outer normal of a cylinder: radius and half length along z."""
    radius, half = size
    around = sqrt(p[0] * p[0] + p[1] * p[1] + TINY)
    distance, (side, cap) = _corner([around - radius, abs(p[2]) - half])
    normal = [side * p[0] / around, side * p[1] / around, cap * select(p[2] < 0.0, -1.0, 1.0)]
    return distance, np.array(normal, dtype=object)


def _corner(beyond: list[Any]) -> tuple[Any, list[Any]]:
    """Return the distance from the quadrant of negative numbers, and how much of the normal is along each axis."""
    largest = beyond[0]
    for one in beyond[1:]:
        largest = maximum(largest, one)
    inside = largest <= ON_SURFACE
    outer = [maximum(one, 0.0) for one in beyond]
    length = sqrt(sum(one * one for one in outer) + select(inside, 1.0, 0.0))
    nearest: list[Any] = []
    for one in beyond:
        here = one >= largest
        for other in nearest:
            here = here & ~other
        nearest.append(here)
    parts = [select(inside, select(n, 1.0, 0.0), o / length) for n, o in zip(nearest, outer, strict=True)]
    return select(inside, largest, length), parts


def ellipsoid_distance(size: Sequence[float], p: Any) -> tuple[Any, Any]:
    """Return distance and outer normal of an ellipsoid of radii a.

    The nearest point is y_i = a_i² p_i / (t + a_i²) with the largest t that puts it on the surface: |y / a| = 1. As
    1 / |y / a| is nearly linear in t, Newton's method finds it from below in a few iterations.
    """
    squares = [a * a for a in size]
    least = min(squares)
    more = [s - least for s in squares]
    # Off the inner planes, where the nearest point jumps from one side to the other.
    q = [x + select(x < 0.0, -1e-9 * a, 1e-9 * a) for x, a in zip(p, size, strict=True)]

    def improved(u: Any) -> Any:  # u = t + the least a²: it is positive, and small where t + a² would cancel
        scaled = [a * x / (u + m) for a, x, m in zip(size, q, more, strict=True)]
        norm = sum(x * x for x in scaled)
        slope = sum(x * x / (u + m) for x, m in zip(scaled, more, strict=True))
        return u + norm * (sqrt(norm) - 1.0) / slope

    u = size[0] * abs(q[0]) - more[0]
    for a, x, m in list(zip(size, q, more, strict=True))[1:]:
        u = maximum(u, a * abs(x) - m)
    u = loop(NEWTON, lambda _, u: improved(u), u, detached=True)
    u = improved(improved(u))  # twice: exact derivatives to second order
    gradient = np.array([x / (u + m) for x, m in zip(q, more, strict=True)], dtype=object)
    length = sqrt(gradient @ gradient)
    return (u - least) * length, gradient / length


class Hull(NamedTuple):
    """The triangles of a convex hull as numbers to read in a loop.

    Attributes:
        rows: of each triangle its normal, and of each of its sides a corner, the vector to the next one, a vector into
            the triangle perpendicular to it by which distances are in terms of the hull's extent, and 1 / its squared
            length, (triangles, 33).
        low: least coordinates of all vertices, (3,).
        high: greatest ones, (3,).
    """

    rows: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, vertices: Sequence[Sequence[float]]) -> "Hull":
        """Return the hull of points, (n, 3)."""
        points = np.array(vertices, dtype=float)
        if points.ndim != 2 or points.shape[1] != 3 or not np.isfinite(points).all():
            raise InputError(f"collider: a hull has finite vertices (n, 3), got an array {points.shape}")
        faces = hull_faces(points)
        if faces is None:
            raise InputError(f"collider: the {len(points)} vertices of a hull lie in a plane or on a line")
        corners = points[faces]
        sides = np.roll(corners, -1, 1) - corners
        normals = np.cross(sides[:, 0], sides[:, 1])
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        inward = np.cross(normals[:, None], sides)
        inward /= np.linalg.norm(inward, axis=-1, keepdims=True) * np.ptp(points, axis=0).max()
        inverse = 1.0 / (sides**2).sum(-1, keepdims=True)
        parts = np.concatenate([corners, sides, inward, inverse], -1).reshape(len(faces), -1)
        return cls(np.concatenate([normals, parts], 1), points.min(0), points.max(0))


def hull_distance(hull: Hull, thickness: float, p: Any) -> tuple[Any, Any]:
    """Return distance and outer normal of a convex hull.

    A loop over all triangles finds the nearest one of a point outside, and the plane that is nearest of a point inside.
    Points beyond the hull's bounding box by more than the thickness skip it and get the distance of any triangle, which
    is beyond the thickness as well.
    """
    rows = table(hull.rows, checked=False)

    def visit(i: Any, best: Any) -> Any:
        height, gap, which, other = best
        here = _triangle(rows, i, p)
        deeper, nearer = here.height > height, here.square < gap
        return (
            select(deeper, here.height, height),
            select(nearer, here.square, gap),
            select(deeper, to_float(i), which),
            select(nearer, to_float(i), other),
        )

    near = p[0] >= hull.low[0] - thickness
    for x, low, high in zip(p, hull.low, hull.high, strict=True):
        near = near & (x >= low - thickness) & (x <= high + thickness)
    # The height is that of a point outside where the loop is skipped.
    height, _, plane, triangle = when(
        near,
        lambda _: loop(len(hull.rows), visit, (-1e30, 1e30, 0.0, 0.0), detached=True),
        (1.0, 1e30, 0.0, 0.0),
        detached=True,
    )
    inside = height <= 0.0
    found = _triangle(rows, to_index(select(inside, plane, triangle)), p)
    flat = inside | found.on_face | (found.square <= ON_SURFACE * ON_SURFACE)
    length = sqrt(found.away @ found.away + select(flat, 1.0, 0.0))
    normal = [select(flat, n, x / length) for n, x in zip(found.normal, found.away, strict=True)]
    distance = select(inside, found.height, select(flat, abs(found.height), length))
    return distance, np.array(normal, dtype=object)


class Triangle(NamedTuple):
    """A point next to a triangle.

    Attributes:
        height: above its plane, m.
        normal: of the plane, (3,).
        on_face: whether the nearest point is within the triangle's sides.
        away: from the nearest point of its sides, (3,), m.
        square: squared distance, m².
    """

    height: Any
    normal: Any
    on_face: Any
    away: Any
    square: Any


def _triangle(rows: Any, index: Any, p: Any) -> Triangle:
    """Return where a point is next to a triangle of a hull's table."""

    def vector(first: int) -> Any:
        return np.array([rows[index, first + k] for k in range(3)], dtype=object)

    normal = vector(0)
    height = normal @ (p - vector(3))
    on_face, square, away = height > -1e30, 1e30, p
    for side in range(3):
        first = 3 + 10 * side
        from_corner, along = p - vector(first), vector(first + 3)
        share = minimum(maximum((from_corner @ along) * rows[index, first + 9], 0.0), 1.0)
        off = from_corner - share * along
        nearer = off @ off < square
        square = select(nearer, off @ off, square)
        away = np.array([select(nearer, x, y) for x, y in zip(off, away, strict=True)], dtype=object)
        on_face = on_face & (from_corner @ vector(first + 6) >= -SIDE)
    return Triangle(height, normal, on_face, away, select(on_face, height * height, square))
