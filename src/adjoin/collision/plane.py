"""Shapes against a plane: the half space below z = 0 of its frame, without end whatever size it is drawn with.

Each shape has a function that gives all its points at once; those with several also have a search for the points that
matter (`search_...`) and a function for one of them (`..._at`), see `narrow_phase.NarrowPhase`.
"""

import math
from collections.abc import Sequence
from typing import Any

from adjoin.collision.branchless import choose, greatest, others, signed, taken
from adjoin.collision.point import FAR, Candidate, Point, on_surface
from adjoin.collision.shape import Faces, Shape, Vertices
from adjoin.spatial import vector
from adjoin.spatial.motion import transform_point
from adjoin.spatial.scalar import Scalar, select, sqrt
from adjoin.spatial.vector import Vector3, vector3
from adjoin.trace import loop, maximum, to_float

UPRIGHT = 0.01
"""The sine of the tilt below which the lowest point of a standing cylinder moves inwards, to its axis."""

TILT = 0.02
"""How far the directions are from the normal in which a hull's lowest vertices are looked for."""

_TETRAHEDRON = ((1.0, 1.0, 1.0), (1.0, -1.0, -1.0), (-1.0, 1.0, -1.0), (-1.0, -1.0, 1.0))


def height(plane: Shape, at: Vector3) -> Scalar:
    """Of a point over the plane."""
    return vector.dot(plane.axis, at) - vector.dot(plane.axis, plane.center)


def ball(center: Vector3, radius: Scalar, level: Scalar, normal: Vector3) -> Point:
    """A ball whose center is at this level over the plane."""
    distance = level - radius
    return Point(distance, vector.subtract(center, vector.scale(radius + 0.5 * distance, normal)), normal)


def sphere_plane(a: Shape, b: Shape) -> list[Point]:
    """One point."""
    return [ball(a.center, a.radius, height(b, a.center), b.axis)]


def capsule_plane(a: Shape, b: Shape) -> list[Point]:
    """Two points: the balls at its ends."""
    level, reach = height(b, a.center), vector.scale(a.half, a.axis)
    rise = vector.dot(b.axis, reach)
    return [
        ball(vector.add(a.center, reach), a.radius, level + rise, b.axis),
        ball(vector.subtract(a.center, reach), a.radius, level - rise, b.axis),
    ]


def search_capsule_plane(a: Shape, b: Shape) -> list[Candidate]:
    """The feature is the end: 1 or -1."""
    return [Candidate(point.distance, (end,)) for point, end in zip(capsule_plane(a, b), (1.0, -1.0), strict=True)]


def capsule_plane_at(a: Shape, b: Shape, feature: Sequence[Scalar]) -> Point:
    """The ball at one end."""
    center = vector.add(a.center, vector.scale(feature[0] * a.half, a.axis))
    return ball(center, a.radius, height(b, center), b.axis)


def box_plane(a: Shape, b: Shape) -> list[Point]:
    """Four points: the corners of the face that looks down the most, among them the lowest corner and edge."""
    columns = vector.transpose(a.pose[0])
    slopes = vector.vector3([vector.dot(b.axis, column) for column in columns])
    # Half an edge, and how much it rises.
    x, y, z = ((*vector.scale(h, c), h * s) for h, c, s in zip(a.size, columns, slopes, strict=True))
    down = greatest(vector.vector3([abs(slope) for slope in slopes]))
    face, (left, right) = taken(down, (x, y, z)), others(down, (x, y, z))
    face = choose(face[3] < 0.0, face, tuple(-x for x in face))
    middle = (*a.center, height(b, a.center))
    found = []
    for s, t in ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)):
        corner = [m + f + s * u + t * v for m, f, u, v in zip(middle, face, left, right, strict=True)]
        found.append(on_surface(corner[3], vector3(corner[:3]), b.axis))
    return found


def search_box_plane(a: Shape, b: Shape) -> list[Candidate]:
    """The feature is the corner: the signs of its coordinates in the box's frame."""
    slopes = vector.apply_transposed(a.pose[0], b.axis)
    first, second = greatest(vector3([abs(slope) for slope in slopes]))
    face = vector3([select(slope < 0.0, 1.0, -1.0) for slope in slopes])
    level, found = height(b, a.center), []
    for s, t in ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)):
        corner = (
            select(first, face[0], s),
            select(first, s, select(second, face[1], t)),
            select(first | second, t, face[2]),
        )
        rises = [c * h * slope for c, h, slope in zip(corner, a.size, slopes, strict=True)]
        found.append(Candidate(level + sum(rises, 0.0), corner))
    return found


def search_lower_corners(a: Shape, b: Shape) -> list[Candidate]:
    """MuJoCo's points: of each two opposite corners the lower one. The feature is that of `search_box_plane`."""
    slopes = vector.apply_transposed(a.pose[0], b.axis)
    x, y, z = (h * slope for h, slope in zip(a.size, slopes, strict=True))
    level, found = height(b, a.center), []
    for s, t in ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)):
        rise = s * x + t * y + z
        lower = select(rise < 0.0, 1.0, -1.0)
        found.append(Candidate(level - abs(rise), (lower * s, lower * t, lower)))
    return found


def box_plane_at(a: Shape, b: Shape, feature: Sequence[Scalar]) -> Point:
    """One corner."""
    corner = transform_point(a.pose, vector3([s * h for s, h in zip(feature, a.size, strict=True)]))
    return on_surface(height(b, corner), corner, b.axis)


def cylinder_plane(a: Shape, b: Shape) -> list[Point]:
    """Five points: the lowest of either end, on which it rolls, and three round the lower end, on which it stands.

    Near upright the direction of the lowest point is not well defined. There it moves inwards, so that it stays on the
    end and its place is a smooth function of the tilt.
    """
    normal, level = b.axis, height(b, a.center)
    slope = vector.dot(normal, a.axis)
    outwards = vector.subtract(vector.scale(slope, a.axis), normal)
    square = vector.dot(outwards, outwards)
    length = sqrt(maximum(square, UPRIGHT * UPRIGHT))
    side = vector.scale(a.radius / length, outwards)
    dip = a.radius * square / length
    end = vector.scale(-a.half, signed(slope, a.axis))
    drop = a.half * abs(slope)
    lower, upper = vector.add(a.center, end), vector.subtract(a.center, end)
    found = [
        on_surface(level - drop - dip, vector.add(lower, side), normal),
        on_surface(level + drop - dip, vector.add(upper, side), normal),
    ]
    x, y, _ = vector.transpose(a.pose[0])
    for k in range(3):
        turn = 2.0 * math.pi * k / 3.0
        spoke = vector.add(vector.scale(math.cos(turn), x), vector.scale(math.sin(turn), y))
        rim = vector.scale(a.radius, spoke)
        found.append(on_surface(level - drop + vector.dot(normal, rim), vector.add(lower, rim), normal))
    return found


def search_cylinder_plane(a: Shape, b: Shape) -> list[Candidate]:
    """The lowest point of the lower end, two points of its rim, and a third or the lowest of the upper end.

    The third point of the rim counts while the axis is nearer to the normal than to the plane. The feature is the end,
    1 or -1, and the direction of the point from the axis in the cylinder's frame, 0 for the lowest point.
    """
    lower, upper, *rim = cylinder_plane(a, b)
    slope = vector.dot(b.axis, a.axis)
    end = select(slope < 0.0, 1.0, -1.0)
    lies = slope * slope < 0.5
    spokes = [(end, math.cos(turn), math.sin(turn)) for turn in (0.0, 2.0 * math.pi / 3.0, 4.0 * math.pi / 3.0)]
    third = choose(lies, (upper.distance, (-end, 0.0, 0.0)), (rim[0].distance, spokes[0]))
    return [
        Candidate(lower.distance, (end, 0.0, 0.0)),
        Candidate(*third),
        *(Candidate(point.distance, spoke) for point, spoke in zip(rim[1:], spokes[1:], strict=True)),
    ]


def cylinder_plane_at(a: Shape, b: Shape, feature: Sequence[Scalar]) -> Point:
    """One point of either end: a given one, or the lowest, which moves inwards as in `cylinder_plane`."""
    end, cosine, sine = feature
    x, y, _ = vector.transpose(a.pose[0])
    slope = vector.dot(b.axis, a.axis)
    outwards = vector.subtract(vector.scale(slope, a.axis), b.axis)
    length = sqrt(maximum(vector.dot(outwards, outwards), UPRIGHT * UPRIGHT))
    spoke = vector.add(vector.scale(cosine, x), vector.scale(sine, y))
    lowest = (cosine == 0.0) & (sine == 0.0)
    side = vector.scale(a.radius, choose(lowest, vector.scale(1.0 / length, outwards), spoke))
    at = vector.add(vector.add(a.center, vector.scale(end * a.half, a.axis)), side)
    return on_surface(height(b, at), at, b.axis)


def search_cylinder_plane_triangle(a: Shape, b: Shape) -> list[Candidate]:
    """MuJoCo's points: the lowest of either end, and two more that make a triangle with that of the lower end.

    The feature is the end, 1 or -1, the direction from the axis to the lowest point in the cylinder's frame, and which
    corner of the triangle it is: 0, 1 or -1.
    """
    direction = vector.apply_transposed(a.pose[0], vector.negate(b.axis))
    square = direction[0] * direction[0] + direction[1] * direction[1]
    upright = square < 1e-30
    length = sqrt(select(upright, 1.0, square))
    lowest = select(upright, 1.0, direction[0] / length), select(upright, 0.0, direction[1] / length)
    end = select(direction[2] < 0.0, -1.0, 1.0)
    features = [(side, *lowest, corner) for side, corner in ((end, 0.0), (-end, 0.0), (end, 1.0), (end, -1.0))]
    return [Candidate(cylinder_plane_triangle_at(a, b, feature).distance, feature) for feature in features]


def cylinder_plane_triangle_at(a: Shape, b: Shape, feature: Sequence[Scalar]) -> Point:
    """One point of either end. Near upright the directions are those of the feature, so that its place is smooth."""
    end, cosine, sine, corner = feature
    x, y, _ = vector.transpose(a.pose[0])
    outwards = vector.subtract(vector.scale(vector.dot(b.axis, a.axis), a.axis), b.axis)
    square = vector.dot(outwards, outwards)
    tilted = square > UPRIGHT * UPRIGHT
    known = vector.add(vector.scale(cosine, x), vector.scale(sine, y))
    direction = choose(tilted, vector.scale(1.0 / sqrt(select(tilted, square, 1.0)), outwards), known)
    across = vector.scale(0.5 * math.sqrt(3.0) * corner, vector.cross(direction, a.axis))
    spoke = choose(corner == 0.0, direction, vector.subtract(across, vector.scale(0.5, direction)))
    at = vector.add(vector.scale(end * a.half, a.axis), vector.scale(a.radius, spoke))
    at = vector.add(a.center, at)
    return on_surface(height(b, at), at, b.axis)


def ellipsoid_plane(a: Shape, b: Shape) -> list[Point]:
    """One point: the lowest, where the outward normal is the plane's reversed."""
    slopes = vector.apply_transposed(a.pose[0], b.axis)
    scaled = vector.vector3([r * s for r, s in zip(a.size, slopes, strict=True)])
    square = vector.dot(scaled, scaled)
    depth = sqrt(square)
    inverse = 1.0 / select(square > 0.0, depth, 1.0)
    lowest = vector.vector3([-(r * s) * inverse for r, s in zip(a.size, scaled, strict=True)])
    return [on_surface(height(b, a.center) - depth, transform_point(a.pose, lowest), b.axis)]


def hull_plane(a: Shape, b: Shape) -> list[Point]:
    """Four points: the lowest vertices in directions a little off the plane's normal, to the four corners.

    On a flat face they are the vertices furthest out, otherwise the lowest vertex. One so blunt that it stands out by
    less than `TILT` times the distance to its neighbors may be passed over.
    """
    assert isinstance(a.vertices, tuple)
    slopes = vector.apply_transposed(a.pose[0], b.axis)
    middle = height(b, a.center)
    found = list(a.vertices)
    if len(found) > len(_TETRAHEDRON):
        levels = [vector.dot(slopes, vertex) for vertex in a.vertices]
        found = []
        for corner in _TETRAHEDRON:
            keys = [level + TILT * vector.dot(corner, v) for level, v in zip(levels, a.vertices, strict=True)]
            found.append(_least(list(zip(keys, a.vertices, strict=True)))[1])
    return [on_surface(middle + vector.dot(slopes, v), transform_point(a.pose, v), b.axis) for v in found]


def search_hull_plane(a: Shape, b: Shape) -> list[Candidate]:
    """Four vertices of a hull: those on which its lowest face rests if it has faces, else those in four directions.

    The feature is the vertex's index.
    """
    vertices = Vertices.of(a.vertices)
    if vertices.faces is None:
        return _lowest_in_directions(a, b, vertices)
    on_face, has_faces = _lowest_face(a, b, vertices, vertices.faces)
    if vertices.faces.everywhere:
        return on_face
    pairs = zip(on_face, _lowest_in_directions(a, b, vertices), strict=True)
    return [Candidate(*choose(has_faces, one, other)) for one, other in pairs]


def _lowest_face(a: Shape, b: Shape, vertices: Vertices, faces: Faces) -> tuple[list[Candidate], Any]:
    """The lowest vertex and up to three others of the face around it that looks down the most; whether it has faces."""
    slopes = vector.apply_transposed(a.pose[0], b.axis)
    middle = height(b, a.center)

    height_below, lowest = vertices.furthest(vector.negate(slopes))
    level = -height_below
    place = vertices.place(lowest)
    start, count = faces.starts[place], faces.counts[place]

    def visit(k: Any, best: Any) -> Any:
        down = -vector.dot(slopes, vector3([faces.normals[start + k, i] for i in range(3)]))
        further = tuple(faces.others[start + k, i] for i in range(3))
        return choose((down > best[0]) & (to_float(k) < count), (down, further), best)

    _, others = loop(faces.most, visit, (-2.0, (-1.0, -1.0, -1.0)), detached=True)
    found = [Candidate(middle + level, (lowest,))]
    for index in others:
        known = index > -0.5
        vertex = select(known, index, 0.0)
        distance = middle + vector.dot(slopes, vertices[vertex])
        found.append(Candidate(select(known, distance, FAR), (vertex,)))
    return found, count > 0.5


def _lowest_in_directions(a: Shape, b: Shape, vertices: Vertices) -> list[Candidate]:
    """The vertices that `hull_plane` finds, each once, and the lowest of all."""
    slopes = vector.apply_transposed(a.pose[0], b.axis)

    def visit(i: Scalar, best: Sequence[Candidate]) -> list[Candidate]:
        vertex = vertices[i]
        level = vector.dot(slopes, vertex)
        keys = [level, *(level + TILT * vector.dot(corner, vertex) for corner in _TETRAHEDRON)]
        return [choose(key < old[0], (key, to_float(i)), old) for key, old in zip(keys, best, strict=True)]

    (_, lowest), *corners = loop(vertices.count, visit, [(FAR, 0.0)] * 5, at_most=vertices.at_most, detached=True)
    middle = height(b, a.center)
    found: list[Candidate] = []
    indices = [index for _, index in corners]
    known = indices[0] == lowest
    for index in indices[1:]:
        known = known | (index == lowest)
    # One that was passed over takes the place of the first.
    indices[0] = select(known, indices[0], lowest)
    for k, index in enumerate(indices):
        level = vector.dot(slopes, vertices[index])
        for before in indices[:k]:
            level = select(index == before, FAR - middle, level)
        found.append(Candidate(middle + level, (index,)))
    return found


def hull_plane_at(a: Shape, b: Shape, feature: Sequence[Scalar]) -> Point:
    """One vertex."""
    vertex = transform_point(a.pose, Vertices.of(a.vertices)[feature[0]])
    return on_surface(height(b, vertex), vertex, b.axis)


def _least(keyed: list[tuple[Scalar, Vector3]]) -> tuple[Scalar, Vector3]:
    """The one with the least key, by pairs."""
    while len(keyed) > 1:
        pairs = list(zip(keyed[::2], keyed[1::2], strict=False))
        keyed = [choose(p[0] <= q[0], p, q) for p, q in pairs] + keyed[2 * len(pairs) :]
    return keyed[0]
