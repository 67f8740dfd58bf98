"""Faces and edges of convex cores next to a direction: what a normal may be tied to, and what can rest on what."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from adjoin.collision.branchless import choose, greatest, taken, unit
from adjoin.collision.core import Core, signs
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar, select
from adjoin.spatial.vector import IDENTITY, Vector3, vector3
from adjoin.trace import loop, to_float

TILT = 0.02
"""The sine of the angle from the normal up to which a face or an edge counts as one on which a shape can rest."""

KINK = 5e-3
"""The sine of the angle from a face's normal, or an edge's cross section, up to which a normal may be tied to it."""

NEXT = 1.5e-3
"""The sine of the angle off a normal at which other vertices of a hull are looked for that it may be tied to: more than
the search for the greatest gap leaves, since the gap is nearly level there."""

EVEN = 1e-5
"""How far vertices of one face are off its plane at most, in terms of its length."""


class Feature(NamedTuple):
    """What of a core is next to a direction, in its frame.

    Attributes:
        on_face: whether the direction is nearly that of a face's normal.
        on_edge: whether it is nearly perpendicular to an edge.
        normal: of the face.
        edge: the unit vector along the edge.
        flat: whether a face is near enough to rest on.
        long: whether no face is, but an edge.
        corners: of the face in order about it, or twice one end of the edge and then the other (for a polygon of more
            corners half of them each), as coordinates of a feature; anything where there is neither.
        level: the face's normal, or the unit vector along the edge: that of what `corners` are of.
        smooth: whether the support point of the smooth part comes on top of the corners.
    """

    on_face: Any
    on_edge: Any
    normal: Vector3
    edge: Vector3
    flat: Any
    long: Any
    corners: Sequence[Vector3]
    level: Vector3
    smooth: Any = False


def feature_of(core: Core, d: Vector3) -> Feature:
    """The feature next to a unit vector d in a core's frame, of a core with edges."""
    if core.kind == "box":
        return _box(d)
    return _hull(core, d) if core.vertices is not None else _round(core, d)


def _box(d: Vector3) -> Feature:
    lengths = vector3([abs(x) for x in d])
    sign = signs(d)
    which = greatest(lengths)
    normal = taken(which, vector3([vector.scale(s, axis) for s, axis in zip(sign, IDENTITY, strict=True)]))
    least = greatest(vector.negate(lengths))
    edge, small = taken(least, IDENTITY), taken(least, lengths)
    beside = 1.0 - taken(which, lengths) * taken(which, lengths)
    x, y, z = (length < TILT for length in lengths)
    # Along one of two free axes the corners alternate as +--+, along the other, or the only one, as ++--.
    corners = []
    for first, second in ((1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0), (1.0, -1.0)):
        corners.append(
            (
                select(x, select(y | z, first, second), sign[0]),
                select(y, select(z, first, second), sign[1]),
                select(z, second, sign[2]),
            )
        )
    flat = (x & y) | (x & z) | (y & z)
    long = (x | y | z) & ~flat
    on_face = beside < KINK * KINK
    return Feature(on_face, small < KINK, normal, edge, flat, long, corners, choose(flat, normal, edge))


def _round(core: Core, d: Vector3) -> Feature:
    """A capsule's or a cylinder's."""
    axis = (0.0, 0.0, 1.0)
    sign = signs(d)[2]
    beside = d[0] * d[0] + d[1] * d[1]
    long, on_edge = abs(d[2]) < TILT, abs(d[2]) < KINK
    ends = [(0.0, 0.0, 1.0 if k < core.corners // 2 else -1.0) for k in range(core.corners)]
    if core.rank == 1:
        return Feature(False, on_edge, axis, axis, False, long, ends, axis)
    flat = beside < TILT * TILT
    turns = [2.0 * math.pi * (k + 0.5) / core.corners for k in range(core.corners)]
    rim = [(math.cos(turn), math.sin(turn), sign) for turn in turns]
    corners = [choose(flat, one, other) for one, other in zip(rim, ends, strict=True)]
    return Feature(beside < KINK * KINK, on_edge, (0.0, 0.0, sign), axis, flat, long, corners, axis, ~flat)


def _hull(core: Core, d: Vector3) -> Feature:
    """By the vertices that reach furthest in four directions a little off d, and a little more off d.

    Of these the two that are furthest apart, and the furthest to either side of them, which may not be among the four.
    """
    # Turned, so that they are not along the edges of what has edges along its axes.
    x, y = tangents(d)
    s = vector.add(vector.scale(math.cos(0.4), x), vector.scale(math.sin(0.4), y))
    t = vector.cross(d, s)
    around = (s, t, vector.negate(s), vector.negate(t))
    tilts = (NEXT, TILT)
    found = _furthest(core, d, [(tilt, axis) for tilt in tilts for axis in around])
    ends = [_ends(part) for part in (found[:4], found[4:])]
    aside = [unit(vector.cross(d, vector.subtract(end, begin)))[0] for begin, end in ends]
    sides = _furthest(core, d, [(k * tilt, axis) for tilt, axis in zip(tilts, aside, strict=True) for k in (-1.0, 1.0)])
    near, wide = ((begin, sides[2 * k], end, sides[2 * k + 1]) for k, (begin, end) in enumerate(ends))
    on_face, _, normal, _, _ = _spanned(near, d)
    on_edge, edge = _highest_edge(near, d)
    flat, long, level, along, even = _spanned(wide, d)
    # Vertices that are not in one plane are of several faces: only the one next to d counts, if there is one.
    uneven = flat & ~even
    wide = choose(uneven, near, wide)
    flat, long = flat & (even | on_face), long | (uneven & on_edge & ~on_face)
    level, along = choose(uneven, normal, level), choose(uneven, edge, along)
    begin, _, end, _ = wide
    corners = [choose(flat, corner, other) for corner, other in zip(wide, (begin, begin, end, end), strict=True)]
    return Feature(on_face, on_edge, normal, edge, flat, long, corners, choose(flat, level, along))


def _furthest(core: Core, d: Vector3, tilts: Sequence[tuple[Scalar, Vector3]]) -> list[Vector3]:
    """The vertices of a hull that reach furthest in directions that are off d by so much along other vectors."""
    vertices = core.vertices
    assert vertices is not None

    def visit(i: Any, best: Any) -> Any:
        vertex = vertices[i]
        level = vector.dot(d, vertex)
        keys = [level + tilt * vector.dot(axis, vertex) for tilt, axis in tilts]
        return [choose(key > old[0], (key, to_float(i)), old) for key, old in zip(keys, best, strict=True)]

    best = loop(vertices.count, visit, [(-1e30, 0.0)] * len(tilts), at_most=vertices.at_most, detached=True)
    return [vertices[index] for _, index in best]


def _ends(corners: Sequence[Vector3]) -> tuple[Vector3, Vector3]:
    """The ends of the longer of two diagonals."""
    one, other = (vector.subtract(corners[k], corners[k + 2]) for k in (0, 1))
    long = vector.dot(one, one) > vector.dot(other, other)
    return choose(long, (corners[0], corners[2]), (corners[1], corners[3]))


def _highest_edge(corners: Sequence[Vector3], d: Vector3) -> tuple[Any, Vector3]:
    """Whether some vertices are different ones, and the direction between the two of them that reach furthest."""
    top = (vector.dot(d, corners[0]), corners[0])
    for corner in corners[1:]:
        level = vector.dot(d, corner)
        top = choose(level > top[0], (level, corner), top)
    best = (-1e30, d)
    for corner in corners:
        off = vector.subtract(corner, top[1])
        level = vector.dot(d, off)
        best = choose((vector.dot(off, off) > 0.0) & (level > best[0]), (level, off), best)
    return best[0] > -1e29, unit(best[1])[0]


def _spanned(corners: Sequence[Vector3], d: Vector3) -> tuple[Any, Any, Vector3, Vector3, Any]:
    """What four vertices in order about d span.

    Returns:
        Whether it is a face, whether it is only an edge, the face's normal, the edge's direction, and whether all four
        are in one plane.
    """
    one, other = (vector.subtract(corners[k], corners[k + 2]) for k in (0, 1))
    square = vector.dot(one, one)
    normal, area = unit(vector.cross(one, other))
    reach = vector.dot(d, normal)
    normal = choose(reach < 0.0, vector.negate(normal), normal)
    face = (area * area > 1e-6 * square * square) & (reach * reach > 0.99) & (square > 0.0)
    off = vector.dot(normal, vector.subtract(corners[1], corners[0]))
    return face, (square > 0.0) & ~face, normal, unit(one)[0], off * off <= EVEN * EVEN * square


def tangents(n: Vector3) -> tuple[Vector3, Vector3]:
    """Two unit vectors that make a right-handed frame with a unit vector, smooth but where n points down -z.

    Duff et al., Building an Orthonormal Basis, Revisited (2017).
    """
    x, y, z = n
    sign: Scalar = select(z < 0.0, -1.0, 1.0)
    a = -1.0 / (sign + z)
    b = x * y * a
    return (1.0 + sign * x * x * a, sign * b, -sign * x), (b, sign + y * y * a, -y)
