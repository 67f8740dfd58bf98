"""Lengths of tendons, and how coordinates change them.

A string that is taut takes the shortest path: straight between points, and around a sphere or cylinder along an arc.
In the plane of a circle of radius r, a string from a point at the distance a to one at the distance b that sweeps the
angle θ about the center touches the circle over the angle θ - acos(r/a) - acos(r/b), and not at all if that is
negative. The length changes only with the ends of its straight parts.
"""

from typing import NamedTuple

from adjoin.dynamics.point_motion import Arms, add_arms, relative_point_columns
from adjoin.dynamics.state import State
from adjoin.model.tendon import Tendon, Waypoint
from adjoin.spatial import vector
from adjoin.spatial.motion import transform_multiply
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import ZERO, Vector3
from adjoin.trace import atan2, cos, implicit, loop, maximum, minimum, select, sin, sqrt

TINY = 1e-12


class TendonState(NamedTuple):
    """A tendon at an instant.

    Attributes:
        length: m; of a combination of joints, whatever it combines.
        arms: by how much the length grows with each coordinate.
    """

    length: Scalar
    arms: Arms


class Point(NamedTuple):
    """A point that a tendon passes.

    Attributes:
        body: what it is on.
        place: in the world.
        frame: the frame that it is fixed to.
    """

    body: int
    place: Vector3
    frame: str


class Growth(NamedTuple):
    """By how much a length grows.

    Attributes:
        arms: with each coordinate.
        ends: as the ends of its straight parts move.
    """

    arms: Arms
    ends: list[tuple[Point, Vector3]]


def tendons_of(state: State) -> list[TendonState]:
    """Return all tendons of a model; they are computed once for a state."""
    if "tendons" not in state.computed:
        found = [tendon_of(state, tendon) for tendon in state.robot.model.tendons]
        state.computed["tendons"] = [TendonState(length, growth.arms) for length, growth in found]
        state.computed["tendon ends"] = [growth.ends for _, growth in found]
    return state.computed["tendons"]


def tendon_ends(state: State) -> list[list[tuple[Point, Vector3]]]:
    """Return, for each tendon, where its straight parts end, and by how much its length grows as each end moves."""
    tendons_of(state)
    return state.computed["tendon ends"]


def tendon_of(state: State, tendon: Tendon) -> tuple[Scalar, Growth]:
    """Return the length of one tendon and how it grows."""
    length: Scalar = 0.0
    arms: Arms = {}
    growth = Growth(arms, [])
    if tendon.path[0].kind == "joint":
        model = state.robot.model
        for part in tendon.path:
            body = model.joint_index(part.name)
            at = model.coordinates[body]
            length = length + part.factor * state.coordinates(body)[0]
            arms[at.v] = arms.get(at.v, 0.0) + part.factor * at.multiplier
        return length, growth
    share = 1.0
    before: Point | None = None
    around: Waypoint | None = None
    for part in tendon.path:
        if part.kind == "pulley":
            share, before, around = 1.0 / part.factor, None, None
        elif part.kind != "site":
            around = part
        else:
            here = point_of(state, part)
            if before is not None:
                length = length + share * _span(state, before, here, around, growth, share)
            before, around = here, None
    return length, growth


def point_of(state: State, part: Waypoint) -> Point:
    """Return where a point or the center of a shape is."""
    index = state.robot.model.frame_index(part.name)
    rotation, position = state.frame_pose(index)
    place = vector.add(position, vector.apply(rotation, part.position))
    return Point(state.robot.model.frames[index].body, place, part.name)


def _span(state: State, first: Point, last: Point, around: Waypoint | None, growth: Growth, share: Scalar) -> Scalar:
    """Return the length between two points, and add its growth."""
    if around is None:
        return _straight(state, first, last, growth, share)
    touches, entry, leave, arc = _wrap(state, first, last, around)
    near = entry._replace(place=_chosen(touches, entry.place, last.place))
    far = leave._replace(place=_chosen(touches, leave.place, first.place))
    # Where the string does not touch the shape, its one straight part is from the first point to the last.
    wrapped, direct = select(touches, share, 0.0), select(touches, 0.0, share)
    length = _straight(state, first, near, growth, wrapped)
    away = _straight(state, far, last, growth, wrapped)
    plain = _straight(state, first, last, growth, direct)
    return select(touches, length + away + arc, plain)


def _straight(state: State, first: Point, last: Point, growth: Growth, share: Scalar) -> Scalar:
    """Return a distance, and add a share of its growth."""
    way = vector.subtract(last.place, first.place)
    length = sqrt(maximum(vector.dot(way, way), TINY * TINY))
    unit = vector.scale(share / length, way)
    growth.ends.extend([(first, vector.negate(unit)), (last, unit)])
    if first.body != last.body:
        add_arms(growth.arms, relative_point_columns(state, last.body, first.body, last.place, first.place), ZERO, unit)
    return length


def _wrap(state: State, first: Point, last: Point, around: Waypoint) -> tuple[Scalar, Point, Point, Scalar]:
    """Return whether a string touches a shape, where it comes to it, where it leaves it, and how long the arc is."""
    index = state.robot.model.frame_index(around.name)
    rotation, center = transform_multiply(state.frame_pose(index), (around.rotation, around.position))
    a, b = (vector.apply_transposed(rotation, vector.subtract(p.place, center)) for p in (first, last))
    x, y = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)
    if around.kind == "sphere":
        x = _unit(a)
        across = vector.cross(a, b)
        parallel = vector.dot(across, across) < TINY * TINY
        across = _chosen(parallel, vector.cross(x, (0.0, 1.0, 1.0)), across)
        y = _unit(vector.cross(_unit(across), x))
    (ax, ay), (bx, by) = ((vector.dot(p, x), vector.dot(p, y)) for p in (a, b))
    swept = _angle(ax, ay, bx, by)
    if around.side:
        place = state.frame_pose(state.robot.model.frame_index(around.side))[1]
        s = vector.apply_transposed(rotation, vector.subtract(place, center))
        sx, sy = vector.dot(s, x), vector.dot(s, y)
        swept = _angle(ax, ay, sx, sy) + _angle(sx, sy, bx, by)
    around_or_through = _through_ring if around.inside else _around_circle
    touches, places, straights, arc = around_or_through((ax, ay), (bx, by), swept, around.radius)
    touched = [vector.add(vector.scale(u, x), vector.scale(v, y)) for u, v in places]
    if around.kind == "cylinder":
        # Unrolled, the path is one straight line: it climbs in proportion to its length.
        whole = straights[0] + arc + straights[1]
        climb = (b[2] - a[2]) / whole
        heights = (a[2] + climb * straights[0], a[2] + climb * (straights[0] + arc))
        touched = [(p[0], p[1], height) for p, height in zip(touched, heights, strict=True)]
        arc = sqrt(maximum(arc * arc + (climb * arc) * (climb * arc), TINY * TINY))
    body = state.robot.model.frames[index].body
    entry, leave = (Point(body, vector.add(center, vector.apply(rotation, p)), around.name) for p in touched)
    return touches, entry, leave, arc


Planar = tuple[Scalar, Scalar]
Touch = tuple[Scalar, list[Planar], list[Scalar], Scalar]
"""Whether a string touches a circle, where it comes to it and leaves it, its length before and after, and the arc."""


def _around_circle(a: Planar, b: Planar, swept: Scalar, radius: float) -> Touch:
    """Return how a string runs around a circle, from one point to another that is a swept angle away."""
    lengths = [_length(a), _length(b)]
    outside = (lengths[0] >= radius) & (lengths[1] >= radius)
    tangents = [sqrt(maximum(length * length - radius * radius, TINY * TINY)) for length in lengths]
    openings = [atan2(tangent, radius) for tangent in tangents]
    way = select(swept < 0.0, -1.0, 1.0)
    angle = abs(swept) - openings[0] - openings[1]
    turns = (way * openings[0], -(way * openings[1]))
    places = [_on_circle(p, length, t, radius) for p, length, t in zip((a, b), lengths, turns, strict=True)]
    return outside & (angle > 0.0), places, tangents, radius * maximum(angle, 0.0)


def _through_ring(a: Planar, b: Planar, _: Scalar, radius: float) -> Touch:
    """Return how a string is held by a ring that it runs through, where it would pass beside it: at one point.

    It leaves the point as light leaves a mirror: with z the sine of the angle there, the angle between both ends is
    2 asin z - asin(r z / |a|) - asin(r z / |b|).
    """
    lengths = [_length(a), _length(b)]
    swept = _angle(*a, *b)
    between = abs(swept)
    ratios = [radius / length for length in lengths]

    def gap(z: Scalar) -> Scalar:
        return _arcsine(ratios[0] * z) + _arcsine(ratios[1] * z) - 2.0 * _arcsine(z) + between

    def slope(z: Scalar) -> Scalar:
        rates = [x / sqrt(maximum(1.0 - x * x * z * z, 1e-30)) for x in (*ratios, 1.0)]
        return rates[0] + rates[1] - 2.0 * rates[2]

    start = 1.0 - 1e-7
    found = loop(20, lambda _, z: minimum(z - gap(z) / minimum(slope(z), -TINY), start), start, detached=True)
    sine = implicit([found], lambda z: [gap(z[0])], lambda r: [r[0] / minimum(slope(found), -TINY)])[0]
    way = select(swept < 0.0, -1.0, 1.0)
    mirrored = _on_circle(a, lengths[0], way * (_arcsine(sine) - _arcsine(ratios[0] * sine)), radius)
    middle = (a[0] + b[0], a[1] + b[1])
    halfway = _on_circle(middle, _length(middle), 0.0, radius)
    solved = (abs(gap(found)) < 1e-6) & (gap(start) <= 0.0)
    place = (select(solved, mirrored[0], halfway[0]), select(solved, mirrored[1], halfway[1]))
    apart = (b[0] - a[0], b[1] - a[1])
    along = -(apart[0] * a[0] + apart[1] * a[1]) / maximum(apart[0] * apart[0] + apart[1] * apart[1], TINY)
    nearest = (a[0] + along * apart[0], a[1] + along * apart[1])
    beside = (along <= 0.0) | (along >= 1.0) | (_length(nearest) > radius)
    outside = (lengths[0] > radius) & (lengths[1] > radius)
    straights = [_length((place[0] - p[0], place[1] - p[1])) for p in (a, b)]
    return outside & beside, [place, place], straights, 0.0


def _on_circle(p: Planar, length: Scalar, turn: Scalar, radius: float) -> Planar:
    """Return the point of a circle in the direction of another point, turned about the center."""
    u, v, c, s = p[0] / length, p[1] / length, cos(turn), sin(turn)
    return radius * (u * c - v * s), radius * (u * s + v * c)


def _length(p: Planar) -> Scalar:
    return sqrt(maximum(p[0] * p[0] + p[1] * p[1], TINY * TINY))


def _arcsine(x: Scalar) -> Scalar:
    return atan2(x, sqrt(maximum(1.0 - x * x, 1e-30)))


def _angle(ax: Scalar, ay: Scalar, bx: Scalar, by: Scalar) -> Scalar:
    """Return the angle from one direction of a plane to another, the short way."""
    return atan2(ax * by - ay * bx, ax * bx + ay * by)


def _unit(a: Vector3) -> Vector3:
    return vector.scale(1.0 / sqrt(maximum(vector.dot(a, a), TINY * TINY)), a)


def _chosen(condition: Scalar, a: Vector3, b: Vector3) -> Vector3:
    return (select(condition, a[0], b[0]), select(condition, a[1], b[1]), select(condition, a[2], b[2]))


def spring_pull(length: Scalar, stiffness: Scalar, rest: tuple[Scalar, Scalar]) -> Scalar:
    """Return the force of a tendon's spring: none between its rest lengths."""
    return stiffness * (maximum(rest[0] - length, 0.0) + minimum(rest[1] - length, 0.0))
