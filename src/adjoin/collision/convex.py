"""Any convex shape against any other: the search for up to four points, and one point with its derivatives.

A point's feature is what it hangs on, as numbers: the normal and what it is tied to (`normal`), a point of each shape,
and the plane, or the two lines, in which the shapes meet there. Each of these moves with its shape, so the point does,
and its derivatives are those of distance, position and normal wherever the features stay the same. Where they change
the derivatives are those of the side that the search has chosen: faces before edges, the first shape's before the
second's, as long as that makes no difference to the distance.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from adjoin.collision.branchless import choose
from adjoin.collision.core import Core, bounds, core_of, corner, point
from adjoin.collision.faces import Feature, feature_of
from adjoin.collision.manifold import Corner, Polygon, Shared, share
from adjoin.collision.normal import (
    CROSS,
    EDGE_A,
    FACE_A,
    FACE_B,
    Ties,
    constant,
    differentiable,
    frame_of,
    tie,
    tied_to,
)
from adjoin.collision.point import FAR, Candidate, Point
from adjoin.collision.separation import Cores, separate
from adjoin.collision.shape import Shape
from adjoin.spatial import vector
from adjoin.spatial.motion import IDENTITY_TRANSFORM, transform_point
from adjoin.spatial.scalar import Scalar, is_number, select
from adjoin.spatial.vector import ZERO, Vector3, vector3
from adjoin.trace import detach, inside, maximum, minimum, to_index, when

MISSED = 3e-4
"""How much nearer, in terms of the shapes' size, the nearest point is than what they rest on to be a point itself.

A cylinder that leans by less than about this angle stands on the corners of its end, not on the lowest point of its
rim, which has no place when it stands upright."""

PARALLEL = 0.02
"""The sine of the angle below which two edges lie along each other."""

A_POINT, B_POINT, CROSSING, A_OVER_FACE, B_OVER_FACE, A_OVER_EDGE, B_OVER_EDGE = (float(k) for k in range(7))
"""Which shape has a point of its own where they meet, and what the other has there: anything across the normal, a face
or an edge; or whether two edges cross."""


class Contact(NamedTuple):
    """The feature of a point of contact.

    Attributes:
        normal: nearly the normal, in the first shape's frame.
        mode: what it is tied to, see `normal`.
        place: which shape has a point of its own, and what the other has.
        smooth: whether the smooth part of the shapes' points follows the normal: 1 if that of a does, 2 of b, 4 of p
            and 8 of q, added up.
        a: the coordinates of a point of the first's feature, see `core.point`.
        b: of the second's.
        u: along an edge, or normal to a face, of the first, in its frame.
        v: the same of the second.
        p: where edges cross, a unit vector along the first's; otherwise the coordinates of the nearest point.
        q: the same of the second.
        r: along the edge, in its shape's frame, that the normal is perpendicular to if there is only one.
    """

    normal: Vector3
    mode: Scalar
    place: Scalar
    smooth: Scalar
    a: Vector3
    b: Vector3
    u: Vector3
    v: Vector3
    p: Vector3
    q: Vector3
    r: Vector3

    def numbers(self) -> tuple[Scalar, ...]:
        """All of it, one after the other."""
        return tuple(x for part in self for x in (part if isinstance(part, tuple) else (part,)))

    @classmethod
    def of(cls, numbers: Sequence[Scalar]) -> "Contact":
        """The feature again."""
        vectors = [vector3(numbers[k : k + 3]) for k in (0, *range(6, FEATURES, 3))]
        return cls(vectors[0], *numbers[3:6], *vectors[1:])

    def follows(self) -> list[Any]:
        """Whether the smooth parts of a, b, p and q follow the normal."""
        left, found = self.smooth, []
        for bit in (8.0, 4.0, 2.0, 1.0):
            found.append(left > bit - 0.5)
            left = select(found[-1], left - bit, left)
        return found[::-1]


FEATURES = 27
"""How many numbers a feature has."""


class Approach(NamedTuple):
    """How near two shapes are.

    Attributes:
        cores: of both, in the frame of the first.
        size: of the smaller.
        normal: from the second toward the first, in the frame of the first.
        mode: what it is tied to.
        features: what of each is next to it.
        alone: the feature of the nearest point.
        nearest: that point.
    """

    cores: Cores
    size: Scalar
    normal: Vector3
    mode: Scalar
    features: tuple[Feature | None, Feature | None]
    alone: Contact
    nearest: Candidate


def search(a: Shape, b: Shape, within: Scalar = math.inf) -> list[Candidate]:
    """The points of two convex shapes: four if both have faces, two if one of them is a capsule, otherwise one.

    Args:
        a: the first shape.
        b: the second.
        within: how near they must be; those that are not may have any distances that are no less.
    """
    return search_near(a, b, within, resting, FEATURES)


def search_near(
    a: Shape, b: Shape, within: Scalar, points: Callable[["Approach"], list[Candidate]], features: int
) -> list[Candidate]:
    """The points of two convex shapes if they are near, for which nothing else is computed where they are not.

    Args:
        a: the first shape.
        b: the second.
        within: how near they must be.
        points: gives them.
        features: how many numbers the feature of a point has.
    """
    cores, size, gap, n = separation(a, b, within)
    if is_number(within) and within == math.inf:
        return points(approach(cores, size, gap, n))
    near = gap - (cores.a.radius + cores.b.radius) < within
    ranks = min(cores.a.rank, cores.b.rank)
    nothing = [(FAR, (0.0, 0.0, 1.0, *[0.0] * (features - 3)))] * 2**ranks

    def find(_: Any) -> Any:
        # From numbers of the branch, so that it is computed there.
        return [tuple(one) for one in points(approach(cores, size, inside(gap), vector3([inside(x) for x in n])))]

    return [Candidate(distance, tuple(feature)) for distance, feature in when(near, find, nothing, detached=True)]


def separation(a: Shape, b: Shape, within: Scalar = math.inf) -> tuple[Cores, Scalar, Scalar, Vector3]:
    """How far apart two convex shapes are.

    Args:
        a: the first shape.
        b: the second.
        within: the distance beyond which it need not be known.

    Returns:
        The cores in the frame of the first, the size of the smaller, and the gap and the unit vector along which it is.
    """
    first, second = core_of(a), core_of(b)
    turn = vector.multiply(vector.transpose(a.pose[0]), b.pose[0])
    offset = vector.apply_transposed(a.pose[0], vector.subtract(b.center, a.center))
    cores = Cores(first, second, IDENTITY_TRANSFORM, (turn, offset))
    (middle, half), (other_middle, other_half) = bounds(first), bounds(second)
    size = minimum(_greatest(half), _greatest(other_half))
    thin = minimum(_least(half), _least(other_half))
    between = vector.subtract(middle, transform_point(cores.second, other_middle))
    return cores, size, *separate(cores, between, thin, size, within + first.radius + second.radius)


def approach(cores: Cores, size: Scalar, gap: Scalar, n: Vector3) -> Approach:
    """The nearest point of two convex shapes, of what `separation` gives."""
    first, second = cores.a, cores.b
    d, e = cores.toward(n)
    ends = corner(first, d), corner(second, e)
    one = feature_of(first, d) if first.rank else None
    other = feature_of(second, e) if second.rank else None

    def points(n: Vector3) -> tuple[Vector3, Vector3]:
        d, e = cores.toward(n)
        return point(first, ends[0], True, d), transform_point(cores.second, point(second, ends[1], True, e))

    mode, n, gap = tie(cores, n, gap, size, (one, other), points)
    radii = first.radius + second.radius
    alone = _alone(cores, n, mode, one, other)
    return Approach(cores, size, n, mode, (one, other), alone, Candidate(gap - radii, alone.numbers()))


def resting(near: Approach) -> list[Candidate]:
    """The points on which two shapes rest on each other, as many as `search` has."""
    cores, size, n, _, (one, other), alone, nearest = near
    if one is None or other is None:
        return [nearest]
    radii = cores.a.radius + cores.b.radius
    across = vector.cross(one.edge, vector.apply(cores.second[0], other.edge))
    aligned = vector.dot(across, across) < PARALLEL * PARALLEL
    shared = share(cores, n, (one, other), size, aligned)
    found = []
    for k, place in enumerate(shared.corners):
        contact = _resting(cores, shared, (one, other), place, alone)
        distance = select(place.distance < 0.5 * FAR, place.distance - radii, FAR)
        candidate = Candidate(distance, contact.numbers())
        # The nearest point takes the place of the nearest corner, or of the first where there is none.
        takes = (place.distance < 0.5 * FAR) & (place.side == shared.nearest.side)
        takes = takes | ~(shared.nearest.distance < 0.5 * FAR) if k == 0 else takes
        missed = takes & (nearest.distance < distance - MISSED * size)
        found.append(Candidate(*choose(missed, tuple(nearest), tuple(candidate))))
    return found


def _greatest(v: Vector3) -> Scalar:
    return maximum(v[0], maximum(v[1], v[2]))


def _least(v: Vector3) -> Scalar:
    return minimum(v[0], minimum(v[1], v[2]))


def _alone(cores: Cores, n: Vector3, mode: Scalar, one: Feature | None, other: Feature | None) -> Contact:
    """The feature of the nearest point."""
    d, e = cores.toward(n)
    edge_a, edge_b = one.edge if one else ZERO, other.edge if other else ZERO
    # On its flat side the smooth part has no support point of its own.
    on_face = (mode == FACE_A) | (mode == FACE_B)
    smooth = 0.0
    for bit, feature in ((1.0, one), (2.0, other)):
        flat = feature is not None and feature.smooth is not False
        smooth = smooth + 5.0 * (select(feature.on_face & on_face, 0.0, bit) if feature and flat else bit)
    place = select((mode == FACE_A) | (mode == EDGE_A), B_POINT, select(mode == CROSS, CROSSING, A_POINT))
    ends = corner(cores.a, d), corner(cores.b, e)
    p, q = choose(mode == CROSS, (edge_a, edge_b), ends)
    return Contact(n, mode, place, smooth, *ends, edge_a, edge_b, p, q, choose(mode == EDGE_A, edge_a, edge_b))


def _resting(cores: Cores, shared: Shared, features: tuple[Feature, Feature], at: Corner, alone: Contact) -> Contact:
    """The feature of a corner of what two features share."""
    first, second = shared.first, shared.second
    on_second = at.side > first.count - 0.5
    inside = at.meets < -0.5
    meets = maximum(at.meets, 0.0)
    a, u = _side(cores.a, first, select(on_second, meets, at.side))
    b, v = _side(cores.b, second, select(on_second, at.side - first.count, meets))
    # A side that enters an edge by its end meets a point there.
    place_a = choose(inside, select(second.flat, A_OVER_FACE, A_OVER_EDGE), select(second.flat, CROSSING, B_OVER_EDGE))
    place_b = choose(inside, select(first.flat, B_OVER_FACE, B_OVER_EDGE), select(first.flat, CROSSING, A_OVER_EDGE))
    place = select(on_second, place_b, place_a)
    one, other = features
    over_b, over_a = (place == A_OVER_FACE) | (place == A_OVER_EDGE), (place == B_OVER_FACE) | (place == B_OVER_EDGE)
    u, v = choose(over_a, one.level, u), choose(over_b, other.level, v)
    _, _, follows_p, follows_q = alone.follows()
    flags = zip((one.smooth, other.smooth, follows_p, follows_q), (1.0, 2.0, 4.0, 8.0), strict=True)
    smooth = sum((_flag(condition, bit) for condition, bit in flags), 0.0)
    return alone._replace(place=place, smooth=smooth, a=a, b=b, u=u, v=v)


def _flag(condition: Any, value: float) -> Scalar:
    return 0.0 if condition is False else select(condition, value, 0.0)


def _side(core: Core, polygon: Polygon, k: Scalar) -> tuple[Vector3, Vector3]:
    """Where a side begins, as coordinates of a feature, and the vector along it, in the core's frame."""
    index = to_index(k)
    begin, end = polygon.corner(index), polygon.corner(polygon.following(index))
    return begin, vector3([s * (y - x) for s, x, y in zip(core.scale, begin, end, strict=True)])


def evaluate(a: Shape, b: Shape, feature: Sequence[Scalar]) -> Point:
    """The point of contact of a feature, with derivatives to the shapes' places and sizes."""
    contact = Contact.of(detach(list(feature)))
    cores = Cores(core_of(a), core_of(b), a.pose, b.pose)
    turn_a, turn_b = a.pose[0], b.pose[0]
    follows = contact.follows()

    def points(n: Vector3, a_at: Vector3, b_at: Vector3, follows_a: Any, follows_b: Any) -> tuple[Vector3, Vector3]:
        d, e = cores.toward(n)
        return (
            transform_point(a.pose, point(cores.a, a_at, follows_a, d)),
            transform_point(b.pose, point(cores.b, b_at, follows_b, e)),
        )

    cross = contact.mode == CROSS
    edge_a = vector.apply(turn_a, choose(cross, contact.p, contact.r))
    edge_b = vector.apply(turn_b, choose(cross, contact.q, contact.r))
    (n,) = constant([vector.apply(turn_a, contact.normal)])
    frame = frame_of(n, contact.mode, *constant([edge_a, edge_b]))
    on_a = constant([vector.apply_transposed(turn_a, t) for t in frame])
    on_b = constant([vector.apply_transposed(turn_b, t) for t in frame])
    face_a = vector.apply(turn_a, on_a[0]), vector.apply(turn_a, on_a[1])
    face_b = vector.apply(turn_b, on_b[0]), vector.apply(turn_b, on_b[1])
    edges, tied = tied_to(contact.mode, frame, edge_a, edge_b, face_a, face_b)
    ties = Ties(cores, lambda n: points(n, contact.p, contact.q, *follows[2:]), frame, edges, tied)
    n = differentiable(ties, n)
    at_a, at_b = points(n, contact.a, contact.b, *follows[:2])
    between = vector.subtract(at_a, at_b)
    u, v = vector.apply(turn_a, contact.u), vector.apply(turn_b, contact.v)
    place = contact.place
    crossing, by_b = place == CROSSING, (place == B_POINT) | (place == B_OVER_FACE) | (place == B_OVER_EDGE)
    over_edge = (place == A_OVER_EDGE) | (place == B_OVER_EDGE)
    over_face = (place == A_OVER_FACE) | (place == B_OVER_FACE)
    level = choose(by_b, u, v)
    square = vector.dot(level, level)
    beside = vector.subtract(n, vector.scale(vector.dot(n, level) / select(square > 0.0, square, 1.0), level))
    across = choose(crossing, vector.cross(u, v), choose(over_face, level, choose(over_edge, beside, n)))
    reach = vector.dot(n, across)
    gap = vector.dot(between, across) / select(abs(reach) > 0.0, reach, 1.0)
    distance = gap - (cores.a.radius + cores.b.radius)
    # Along the first's edge, to where the second's crosses it.
    side = vector.cross(v, n)
    slant = vector.dot(u, side)
    along = -vector.dot(between, side) / select(abs(slant) > 0.0, slant, 1.0)
    from_a = vector.add(at_a, vector.scale(select(crossing, along, 0.0), u))
    from_a = vector.subtract(from_a, vector.scale(cores.a.radius + 0.5 * distance, n))
    from_b = vector.add(at_b, vector.scale(cores.b.radius + 0.5 * distance, n))
    return Point(distance, choose(by_b, from_b, from_a), n)
