"""Where MuJoCo has the points of two meshes, or of a mesh and a box: at the corners of a face that is clipped.

A face or an edge of one lies against a face of the other and is clipped by planes through the sides of that face, along
its normal (Sutherland and Hodgman, Reentrant Polygon Clipping, 1974). What is left and not beyond the face are points;
of more than four those of a quadrangle of the greatest area. Where nothing lies against anything there is one point.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from adjoin.collision import convex
from adjoin.collision.adjacent import APART, EDGE_OF_A, FACES, Meeting, Solid, meet
from adjoin.collision.branchless import choose, unit
from adjoin.collision.core import core_of
from adjoin.collision.point import FAR, Candidate, Point
from adjoin.collision.shape import Shape
from adjoin.spatial import vector
from adjoin.spatial.motion import transform_point
from adjoin.spatial.scalar import Scalar, select
from adjoin.spatial.vector import Vector3, vector3
from adjoin.trace import Scratch, detach, inside, scratch, to_float, to_index, when, while_loop

BORDER = 1e-15
"""How far outside of a side a point still is inside, m."""

WIDTH = 7
"""Numbers of a corner: where it is, the side that begins there, what it is, and two numbers more; see `Corner`."""

VERTEX, CROSSED, PROJECTED = 0.0, 1.0, 2.0
"""What a corner is: a vertex of what is clipped, where a side of it crosses one of the face, or where a vertex of the
face is above it."""

FEATURES = 1 + convex.FEATURES
"""How many numbers a feature has: 1 and those of a corner, or 0 and those of `convex`."""


class Corner(NamedTuple):
    """A corner of what is clipped.

    Attributes:
        place: where it is.
        side: the side that begins there: one of what is clipped, or -1 - k for the side k of the face.
        kind: `VERTEX`, `CROSSED` or `PROJECTED`.
        one: the vertex, the side that crosses, or the vertex of the face.
        other: the side of the face that is crossed.
    """

    place: Vector3
    side: Scalar
    kind: Scalar
    one: Scalar
    other: Scalar


def _read(array: Scratch, index: Any) -> Corner:
    x = [array[to_index(index) * WIDTH + k] for k in range(WIDTH)]
    return Corner(vector3(x[:3]), *x[3:])


def _write(array: Scratch, index: Any, corner: Corner) -> None:
    for k, x in enumerate((*corner.place, *corner[1:])):
        array[to_index(index) * WIDTH + k] = x


class Clipping:
    """A face, and what lies against it.

    Args:
        solids: both.
        meeting: what of them.
    """

    def __init__(self, solids: tuple[Solid, Solid], meeting: Meeting):
        self.solids, self.meeting = solids, meeting
        self.by_b = meeting.kind == EDGE_OF_A
        self.is_face = meeting.kind == FACES
        a, b = solids
        counts = [solid.link(face, 1) for solid, face in zip(solids, meeting.faces, strict=True)]
        self.sides = select(self.by_b, counts[1], counts[0])
        self.corners = select(self.is_face, counts[1], 2.0)
        self.normal = choose(self.by_b, b.turned(meeting.faces[1]), a.turned(meeting.faces[0]))
        self.room = a.faces.longest + b.faces.longest + 3

    def face(self, k: Scalar) -> tuple[Vector3, Vector3]:
        """A vertex of the face as coordinates of a feature, and where it is; after the last comes the first."""
        k = select(k > self.sides - 0.5, k - self.sides, k)
        a, b = (solid.corner(face, k) for solid, face in zip(self.solids, self.meeting.faces, strict=True))
        return choose(self.by_b, b, a), choose(self.by_b, *(self._place(i, x) for i, x in ((1, b), (0, a))))

    def clipped(self, k: Scalar) -> tuple[Vector3, Vector3]:
        """A vertex of what is clipped, likewise."""
        k = select(k > self.corners - 0.5, k - self.corners, k)
        first, second = (
            solid.vertices[select(k < 0.5, edge[0], edge[1])]
            for solid, edge in zip(self.solids, self.meeting.edges, strict=True)
        )
        second = choose(self.is_face, self.solids[1].corner(self.meeting.faces[1], k), second)
        return choose(self.by_b, first, second), choose(self.by_b, self._place(0, first), self._place(1, second))

    def _place(self, which: int, coordinates: Vector3) -> Vector3:
        solid = self.solids[which]
        return transform_point(solid.pose, solid.scaled(coordinates))

    def polygon(self) -> tuple[Scratch, Scalar, Scalar]:
        """What is left: corners in an array, the first of them, and how many there are."""
        room = self.room

        def begin(k: Any, array: Scratch) -> Scratch:
            number = to_float(k)
            _write(array, k, Corner(self.clipped(number)[1], number, VERTEX, number, 0.0))
            return array

        def fill(k: Any, carry: Any) -> Any:
            return begin(k, carry[0]), to_float(k) + 1.0

        array = scratch(2 * room * WIDTH)
        array, _ = while_loop(lambda carry: carry[1] < self.corners, fill, (array, 0.0), room)

        def cut(k: Any, carry: Any) -> Any:
            array, source, count, _ = carry
            target = room - source
            side = to_float(k)
            start, end = self.face(side)[1], self.face(side + 1.0)[1]
            plane = unit(vector.cross(vector.subtract(end, start), self.normal))[0]

            def visit(i: Any, carry: Any) -> Any:
                array, kept, _ = carry
                number = to_float(i)
                p = _read(array, source + number)
                q = _read(array, source + select(number > count - 1.5, 0.0, number + 1.0))
                before, after = (vector.dot(plane, vector.subtract(x.place, start)) for x in (p, q))
                stays, comes = before > -BORDER, after > -BORDER
                change = before - after
                along = before / select(abs(change) > 0.0, change, 1.0)
                apart = vector.subtract(q.place, p.place)
                crossing = vector.add(p.place, vector.scale(along, apart))
                own = p.side > -0.5
                previous = -1.0 - p.side
                corner = select(previous > side - 1.5, side, select(side > self.sides - 1.5, 0.0, side + 1.0))
                crossed = Corner(
                    crossing,
                    select(stays, -1.0 - side, p.side),
                    select(own, CROSSED, PROJECTED),
                    select(own, p.side, corner),
                    side,
                )
                crosses = select(stays, ~comes, comes) & (along >= 0.0) & (along <= 1.0)
                _write(array, target + kept, crossed)
                kept = kept + select(crosses, 1.0, 0.0)
                _write(array, target + kept, q)
                return array, kept + select(comes, 1.0, 0.0), number + 1.0

            array, kept, _ = while_loop(lambda carry: carry[2] < count, visit, (array, 0.0, 0.0), room)
            return array, target, kept, side + 1.0

        carry = (array, 0.0, self.corners, 0.0)
        array, source, count, _ = while_loop(lambda carry: carry[3] < self.sides, cut, carry, room)
        origin = self.face(0.0)[1]
        target = room - source

        def touching(i: Any, carry: Any) -> Any:
            array, kept, _ = carry
            corner = _read(array, source + to_float(i))
            beyond = vector.dot(self.normal, vector.subtract(corner.place, origin)) > 0.0
            _write(array, target + kept, corner)
            return array, kept + select(beyond, 0.0, 1.0), to_float(i) + 1.0

        array, kept, _ = while_loop(lambda carry: carry[2] < count, touching, (array, 0.0, 0.0), room)
        return array, target, kept

    def candidates(self) -> tuple[list[Candidate], Scalar]:
        """Up to four points, and how many there are."""
        array, first, count = self.polygon()
        places = _quadrangle(array, first, count, self.room)
        ends = _ends(array, first, count)
        many, line = count > 4.5, ~self.is_face & (count > 2.5)
        places = choose(many, places, choose(line, (*ends, 0.0, 0.0), (0.0, 1.0, 2.0, 3.0)))
        total = select(many, 4.0, select(line, 2.0, count))
        origin = self.face(0.0)[1]
        found = []
        for k, place in enumerate(places):
            corner = _read(array, first + place)
            distance = vector.dot(self.normal, vector.subtract(corner.place, origin))
            found.append(Candidate(select(total > k + 0.5, distance, FAR), self.feature(corner)))
        return found, total

    def feature(self, corner: Corner) -> tuple[Scalar, ...]:
        """The numbers of a corner, from which `evaluate` has it again."""
        crossed, projected = corner.kind == CROSSED, corner.kind == PROJECTED
        on_face = select(crossed, corner.other, select(projected, corner.one, 0.0))
        on_clipped = select(projected, 0.0, corner.one)
        vertex, other = self.face(on_face)[0], self.clipped(on_clipped)[0]
        along = vector.subtract(self.face(on_face + 1.0)[0], vertex)
        side = vector.subtract(self.clipped(on_clipped + 1.0)[0], other)
        first, second = (solid.normal(face) for solid, face in zip(self.solids, self.meeting.faces, strict=True))
        normal = choose(self.by_b, second, first)
        numbers = (select(self.by_b, 1.0, 0.0), select(self.is_face, 1.0, 0.0), corner.kind)
        rest = (0.0,) * (FEATURES - 1 - 3 - 18)
        return (1.0, *numbers, *normal, *second, *vertex, *along, *other, *side, *rest)


def _area(a: Vector3, b: Vector3, c: Vector3, d: Vector3) -> Scalar:
    """The square of twice the area of a quadrangle."""
    across = vector.cross(vector.subtract(c, a), vector.subtract(d, b))
    return vector.dot(across, across)


def _quadrangle(array: Scratch, first: Scalar, count: Scalar, room: int) -> tuple[Scalar, ...]:
    """Four corners of a convex polygon that span much: each goes on as long as the area grows, from all beginnings."""

    def place(k: Scalar) -> Vector3:
        return _read(array, first + k).place

    def after(k: Scalar) -> Scalar:
        return select(k > count - 1.5, 0.0, k + 1.0)

    start = (0.0, 1.0, 2.0, 3.0)
    most = _area(*(place(k) for k in start))

    def step(_: Any, carry: Any) -> Any:
        """Move the corner `moving`: 3 is the last; 0 for the next beginning."""
        (a, b, c, d), best, most, moving = carry
        last, third, second = moving > 2.5, (moving > 1.5) & (moving < 2.5), (moving > 0.5) & (moving < 1.5)
        tried = (a, select(second, after(b), b), select(third, after(c), c), select(last, after(d), d))
        area = _area(*(place(k) for k in tried))
        onward = moving < 0.5
        grows = (area > most) & ~onward
        moved = choose(grows, tried, (a, b, c, d))
        best, most = choose(grows, (tried, area), (best, most))
        # From the last to the third, to the second and back, each as long as the area grows.
        middle = select(third, select(grows, 2.0, 1.0), select(grows, 1.0, 3.0))
        following = select(last, select(grows, 2.0, 0.0), middle)
        same_b = b == a
        next_b = select(same_b, after(b), b)
        same_c = same_b & (c == next_b)
        next_c = select(same_c, after(c), c)
        next_d = select(same_c & (d == next_c), after(d), d)
        corners = choose(onward, (a + 1.0, next_b, next_c, next_d), moved)
        return corners, best, most, select(onward, 3.0, following)

    carry = (start, start, most, 3.0)
    return while_loop(lambda carry: (carry[0][0] < count) & (count > 4.5), step, carry, 12 * room)[1]


def _ends(array: Scratch, first: Scalar, count: Scalar) -> tuple[Scalar, Scalar]:
    """The two of up to four corners that are the furthest apart."""
    places = [_read(array, first + float(k)).place for k in range(4)]
    best: Any = (0.0, (0.0, 1.0))
    for i in range(4):
        for j in range(i + 1, 4):
            off = vector.subtract(places[j], places[i])
            square = vector.dot(off, off)
            best = choose((square > best[0]) & (count > j + 0.5), (square, (float(i), float(j))), best)
    return best[1]


def search(a: Shape, b: Shape, within: Scalar = math.inf) -> list[Candidate]:
    """Up to four points of two hulls, or of a hull and a box; where they do not overlap, those of `convex`.

    Args:
        a: the first shape.
        b: the second.
        within: how near they must be, see `convex.search`.
    """
    return convex.search_near(a, b, within, _points, FEATURES)


def _points(near: convex.Approach) -> list[Candidate]:
    found: Any = [(one.distance, (0.0, *one.feature)) for one in convex.resting(near)]
    first, second = Solid.of(near.cores.a, near.cores.first), Solid.of(near.cores.b, near.cores.second)
    if first is None or second is None:
        return [Candidate(*one) for one in found]

    def clip(values: Any) -> Any:
        turn, offset = near.cores.second
        pose = tuple(vector3([inside(x) for x in row]) for row in turn), vector3([inside(x) for x in offset])
        solids = first, second._replace(pose=pose)  # type: ignore[arg-type]
        meeting = meet(*solids, vector3([inside(x) for x in near.normal]))
        points, count = Clipping(solids, meeting).candidates()
        some = (meeting.kind > APART + 0.5) & (count > 0.5)
        alone = [(near.nearest.distance, (0.0, *near.nearest.feature))]
        alone += [(FAR, one[1]) for one in values[1:]]
        return [choose(some, tuple(point), one) for point, one in zip(points, alone, strict=True)]

    overlap = near.nearest.distance <= 0.0
    return [Candidate(*one) for one in when(overlap, clip, found, detached=True)]


_NOTHING = (0.0, 0.0, 1.0, *[0.0] * (convex.FEATURES - 3))


def evaluate(a: Shape, b: Shape, feature: Sequence[Scalar]) -> Point:
    """The point of a feature, with derivatives to the shapes' places and sizes."""
    numbers = detach(list(feature))
    cut = numbers[0] > 0.5
    alone = convex.evaluate(a, b, choose(cut, _NOTHING, tuple(numbers[1:])))
    by_b, is_face = numbers[1] > 0.5, numbers[2] > 0.5
    crossed, projected = numbers[3] == CROSSED, numbers[3] == PROJECTED
    normal, other_normal, vertex, along, other, side = (vector3(numbers[k : k + 3]) for k in range(4, 22, 3))
    scales = core_of(a).scale, core_of(b).scale

    def turned(which: int, v: Vector3) -> Vector3:
        return vector.apply((a, b)[which].pose[0], v)

    def scaled(which: int, v: Vector3) -> Vector3:
        return vector3([s * x for s, x in zip(scales[which], v, strict=True)])

    def placed(which: int, v: Vector3) -> Vector3:
        return transform_point((a, b)[which].pose, scaled(which, v))

    n = choose(by_b, turned(1, normal), turned(0, normal))
    opposite = turned(1, other_normal)
    at = choose(by_b, placed(1, vertex), placed(0, vertex))
    beginning = choose(by_b, placed(0, other), placed(1, other))
    u = choose(by_b, turned(1, scaled(1, along)), turned(0, scaled(0, along)))
    w = choose(by_b, turned(0, scaled(0, side)), turned(1, scaled(1, side)))
    plane = vector.cross(u, n)
    between = vector.subtract(at, beginning)
    slant, slope = vector.dot(plane, w), vector.dot(n, opposite)
    on_side = vector.dot(plane, between) / select(crossed & (abs(slant) > 0.0), slant, 1.0)
    above = -vector.dot(opposite, between) / select(projected & (abs(slope) > 0.0), slope, 1.0)
    place = choose(crossed, vector.add(beginning, vector.scale(on_side, w)), beginning)
    place = choose(projected, vector.add(at, vector.scale(above, n)), place)
    height = vector.dot(n, vector.subtract(place, at))
    # On a face it is measured from the other along that one's normal.
    place = choose(is_face, vector.subtract(place, vector.scale(height, n)), place)
    distance = select(is_face, -slope * height, height)
    toward = choose(is_face, opposite, choose(by_b, n, vector.negate(n)))
    middle = vector.add(place, vector.scale(select(by_b | is_face, -0.5, 0.5) * distance, toward))
    return Point(*choose(cut, (distance, middle, toward), tuple(alone)))
