"""Boxes against boxes: the axis along which they overlap the least, then the corners of what the two faces share.

Separating axes are those of Gottschalk, Lin and Manocha, OBBTree (SIGGRAPH 1996). Two faces that meet share a polygon
of at most eight corners. Each of its sides lies on one of the eight edges of the two faces, and each of its corners is
where one of the sides begins, so every edge has a slot of its own: the point where it enters the other face.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

from adjoin.collision.branchless import choose, clamp, greatest, signed, taken, turned, unit, without
from adjoin.collision.point import FAR, Point, on_surface
from adjoin.collision.shape import Shape
from adjoin.spatial import vector
from adjoin.spatial.motion import transform_point
from adjoin.spatial.scalar import Scalar, select, sqrt
from adjoin.spatial.vector import IDENTITY, Matrix3, Vector3, matrix3, vector3
from adjoin.trace import maximum, minimum

SLACK = 0.01
"""How much less, in terms of the smallest half edge, boxes must overlap along an axis that is preferred less."""

PARALLEL = 1e-3
"""The square of the sine of the angle below which two edges have no common perpendicular of their own."""


class Margins(NamedTuple):
    """How ties are decided, and those that are as good as ties.

    Attributes:
        second: how much less, in terms of the smallest half edge, boxes must overlap along a normal of the second one.
        border: how far, in terms of its half edges, a face reaches over its border where an edge runs along that:
            corners that coincide are in both faces. An edge does whose slope, in terms of the face, is below half this.
        crossed: how far it does where an edge crosses its border.
    """

    second: float = SLACK
    border: float = 1e-3
    crossed: float = 1e-3


RESTING = Margins()
"""What rests stays on the same points."""

EXACT = Margins(0.0, 1e-6, 0.0)
"""Points are where edges cross borders, and the boxes overlap the least along the normal."""

Plane = tuple[Scalar, Scalar]
"""Two coordinates in a plane."""


class Face(NamedTuple):
    """A parallelogram: its points are middle + s left + t right with s and t in [-1, 1].

    Coordinates are two in the plane of the reference face, and the height over it.

    Attributes:
        middle: its middle.
        left: half of one pair of edges.
        right: half of the other, a turn to the left from the first if seen from above.
    """

    middle: Vector3
    left: Vector3
    right: Vector3


class Reference(NamedTuple):
    """The face of a box that the other box rests on.

    Attributes:
        middle: in the world.
        axes: in the world: two along its edges, and its outward normal.
        size: half edges.
    """

    middle: Vector3
    axes: Matrix3
    size: tuple[Scalar, Scalar]

    def in_world(self, at: Vector3) -> Vector3:
        """The point midway between the reference face and a point over it."""
        u, v, w = self.axes
        there = vector.add(vector.scale(at[0], u), vector.scale(at[1], v))
        return vector.add(self.middle, vector.add(there, vector.scale(0.5 * at[2], w)))


def box_box(a: Shape, b: Shape, margins: Margins = RESTING) -> list[Point]:
    """Eight points: the corners of the polygon that two faces share, or one where edges cross.

    Faces are preferred to edges, and the first box's to the second's, as long as that makes little difference, so that
    what rests stays on the same points. Where what the faces share is not what is nearest, or they share nothing, the
    first point is the corner that is lowest along the normal, moved onto the face.
    """
    turn = vector.multiply(vector.transpose(a.pose[0]), b.pose[0])
    offset = vector.apply_transposed(a.pose[0], vector.subtract(b.center, a.center))
    back = vector.apply_transposed(turn, offset)
    lengths = matrix3([[abs(x) for x in row] for row in turn])
    from_a = _separations(a.size, b.size, offset, lengths)
    from_b = _separations(b.size, a.size, back, vector.transpose(lengths))
    best_a, best_b = (maximum(s[0], maximum(s[1], s[2])) for s in (from_a, from_b))
    least = minimum(*(minimum(s[0], minimum(s[1], s[2])) for s in (a.size, b.size)))
    slack = SLACK * least
    second = best_b > best_a + margins.second * least
    # Each axis of the reference box: where it points, the other box's axes and middle along it, and its half edge.
    sides_a = tuple(zip(vector.transpose(a.pose[0]), turn, offset, a.size, strict=True))
    columns = vector.transpose(turn)
    sides_b = tuple(zip(vector.transpose(b.pose[0]), columns, vector.negate(back), b.size, strict=True))
    sides = turned(greatest(choose(second, from_b, from_a)), choose(second, sides_b, sides_a))
    reference, incident = _faces(choose(second, b.center, a.center), sides, choose(second, a.size, b.size))
    upward = reference.axes[2]
    normal = choose(second, upward, vector.negate(upward))

    points: list[Point] = []
    for face, (valid, s, t) in _corners(reference, incident, margins):
        at = _point(face, s, t)
        points.append(Point(select(valid, at[2], FAR), reference.in_world(at), normal))
    nearest = reduce(minimum, (point.distance for point in points))
    lowest = _lowest(reference, incident)
    missed = (nearest > 0.0) & (lowest[2] < nearest - slack)
    alone = Point(lowest[2], reference.in_world(lowest), normal)
    crossing = _crossing(a, b, turn, offset, lengths)
    edges = crossing.distance > select(missed, lowest[2], nearest) + slack
    points[0] = Point(*choose(edges, tuple(crossing), choose(missed, tuple(alone), tuple(points[0]))))
    return [points[0], *[p._replace(distance=select(edges, FAR, p.distance)) for p in points[1:]]]


def _separations(size: Vector3, other: Vector3, offset: Vector3, lengths: Matrix3) -> Vector3:
    """How far the other box is from each pair of faces of a box; negative where they overlap."""
    return vector3([abs(o) - (h + vector.dot(row, other)) for h, o, row in zip(size, offset, lengths, strict=True)])


def _faces(center: Vector3, sides: Sequence[Any], other: Vector3) -> tuple[Reference, Face]:
    """The reference face and the face of the other box that meets it.

    Args:
        center: of the reference box.
        sides: its axes, the face's first.
        other: half edges of the other box.
    """
    w, u, v = sides
    beyond = w[2]
    axes = (u[0], signed(beyond, v[0]), signed(beyond, w[0]))
    reference = Reference(vector.add(center, vector.scale(w[3], axes[2])), axes, (u[3], v[3]))
    rows = (u[1], signed(beyond, v[1]), signed(beyond, w[1]))
    x, y, z = (vector.scale(h, column) for h, column in zip(other, vector.transpose(rows), strict=True))
    depth, left, right = turned(greatest(vector3([abs(x) for x in rows[2]])), (x, y, z))
    middle = (u[2], signed(beyond, v[2]), abs(beyond) - w[3])
    return reference, Face(vector.subtract(middle, signed(depth[2], depth)), left, signed(depth[2], right))


def _corners(reference: Reference, incident: Face, margins: Margins) -> list[tuple[Face, tuple[Any, Scalar, Scalar]]]:
    """Where each edge of either face enters the other: the face, whether it does, and where on the face."""
    (mx, my, mz), (lx, ly, lz), (rx, ry, rz) = incident
    width, depth = reference.size
    across, along = 1.0 / width, 1.0 / depth
    inverse = 1.0 / (lx * ry - ly * rx)

    def on_reference(x: Scalar, y: Scalar) -> Plane:
        return x * across, y * along

    def on_incident(x: Scalar, y: Scalar) -> Plane:
        return (x * ry - y * rx) * inverse, (y * lx - x * ly) * inverse

    seen = on_reference(mx, my), on_reference(lx, ly), on_reference(rx, ry)
    back = on_incident(-mx, -my), on_incident(width, 0.0), on_incident(0.0, depth)
    # The reference face, lifted onto the plane of the other.
    level, rise, climb = (s * lz + t * rz for s, t in back)
    lifted = Face((0.0, 0.0, mz + level), (width, 0.0, rise), (0.0, depth, climb))
    return [
        *((incident, entry) for entry in _entries(*seen, margins)),
        *((lifted, entry) for entry in _entries(*back, margins)),
    ]


def _entries(middle: Plane, left: Plane, right: Plane, margins: Margins) -> list[tuple[Any, Scalar, Scalar]]:
    """Where the edges of a parallelogram enter the square [-1, 1]², going round to the left.

    Returns:
        For each edge whether it meets the square, and the numbers s and t of the point.
    """
    down, up = (_clip(middle, right, left, side, margins) for side in (-1.0, 1.0))
    near, far = (_clip(middle, left, right, side, margins) for side in (-1.0, 1.0))
    return [
        (down[0] <= down[1], minimum(down[0], 1.0), -1.0),
        (far[0] <= far[1], 1.0, minimum(far[0], 1.0)),
        (up[0] <= up[1], maximum(up[1], -1.0), 1.0),
        (near[0] <= near[1], -1.0, maximum(near[1], -1.0)),
    ]


def _clip(middle: Plane, aside: Plane, edge: Plane, side: float, margins: Margins) -> tuple[Scalar, Scalar]:
    """The range of s in [-1, 1] for which middle + side aside + s edge is in the square; empty if it is reversed."""
    low, high, slant = -1.0, 1.0, 0.5 * margins.border
    for m, x, e in zip(middle, aside, edge, strict=True):
        runs_along = abs(e) < slant
        inverse = 1.0 / select(runs_along, slant, e)
        reach = 1.0 + select(runs_along, margins.border, margins.crossed)
        center, half = -(m + side * x) * inverse, reach * abs(inverse)
        low, high = maximum(low, center - half), minimum(high, center + half)
    return low, high


def _point(face: Face, s: Scalar, t: Scalar) -> Vector3:
    return vector.add(face.middle, vector.add(vector.scale(s, face.left), vector.scale(t, face.right)))


def _lowest(reference: Reference, incident: Face) -> Vector3:
    """The lowest corner of the other box's face, moved sideways onto the reference face."""
    x, y, height = incident.middle
    for edge in incident[1:]:
        edge = signed(edge[2], edge)
        x, y, height = x - edge[0], y - edge[1], height - edge[2]
    width, depth = reference.size
    return clamp(x, -width, width), clamp(y, -depth, depth), height


def _crossing(a: Shape, b: Shape, turn: Matrix3, offset: Vector3, lengths: Matrix3) -> Point:
    """Where two edges cross: those whose common perpendicular is the axis along which the boxes overlap the least."""
    best: Any = (-FAR, 0.0, 0.0)
    for i in range(3):
        i1, i2 = (i + 1) % 3, (i + 2) % 3
        for j in range(3):
            j1, j2 = (j + 1) % 3, (j + 2) % 3
            apart = abs(offset[i2] * turn[i1][j] - offset[i1] * turn[i2][j])
            radius = a.size[i1] * lengths[i2][j] + a.size[i2] * lengths[i1][j]
            radius = radius + b.size[j1] * lengths[i][j2] + b.size[j2] * lengths[i][j1]
            square = 1.0 - turn[i][j] * turn[i][j]
            some = square > PARALLEL
            separation = select(some, (apart - radius) / sqrt(select(some, square, 1.0)), -FAR)
            best = choose(separation > best[0], (separation, float(i), float(j)), best)
    distance, i, j = best
    which_a, which_b = (i < 0.5, i < 1.5), (j < 0.5, j < 1.5)
    columns = vector.transpose(turn)
    edge_a, edge_b = taken(which_a, IDENTITY), taken(which_b, columns)
    perpendicular = vector.cross(edge_a, edge_b)
    normal, _ = unit(vector.negate(signed(vector.dot(perpendicular, offset), perpendicular)))
    on_a = vector3([-signed(n, h) for n, h in zip(normal, without(which_a, a.size), strict=True)])
    on_b = offset
    for h, column in zip(without(which_b, b.size), columns, strict=True):
        on_b = vector.add(on_b, vector.scale(signed(vector.dot(normal, column), h), column))
    between = vector.subtract(on_b, on_a)
    square = vector.dot(perpendicular, perpendicular)
    along = vector.dot(between, edge_a) - vector.dot(edge_a, edge_b) * vector.dot(between, edge_b)
    length = taken(which_a, a.size)
    at = vector.add(on_a, vector.scale(clamp(along / maximum(square, PARALLEL), -length, length), edge_a))
    return on_surface(distance, transform_point(a.pose, at), vector.apply(a.pose[0], normal))
