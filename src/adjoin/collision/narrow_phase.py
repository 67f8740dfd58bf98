"""Where two shapes touch: a fixed number of points for every pair of kinds."""

from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement
from typing import Any, NamedTuple, Protocol

from adjoin.collision import clipped, convex
from adjoin.collision.box import capsule_box, capsule_box_at, sphere_box
from adjoin.collision.box_box import EXACT, box_box
from adjoin.collision.branchless import choose
from adjoin.collision.capsule import (
    capsule_capsule,
    capsule_capsule_at,
    capsule_point_at,
    search_parallel_capsules,
)
from adjoin.collision.capsule_box_points import capsule_box_point_at, search_capsule_box
from adjoin.collision.plane import (
    box_plane,
    box_plane_at,
    capsule_plane,
    capsule_plane_at,
    cylinder_plane,
    cylinder_plane_at,
    cylinder_plane_triangle_at,
    ellipsoid_plane,
    hull_plane,
    hull_plane_at,
    search_box_plane,
    search_capsule_plane,
    search_cylinder_plane,
    search_cylinder_plane_triangle,
    search_hull_plane,
    search_lower_corners,
    sphere_plane,
)
from adjoin.collision.point import FAR, Candidate, Point, swapped
from adjoin.collision.prisms import cells_under, prism_point_at, search_prism
from adjoin.collision.shape import Shape
from adjoin.collision.sphere import sphere_capsule, sphere_cylinder, sphere_sphere
from adjoin.collision.terrain import KINDS, search_terrain, terrain_point_at
from adjoin.errors import InputError
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar, select
from adjoin.trace import detach, maximum, minimum, when

TOGETHER = 0.01
"""The distance, in terms of a capsule's radius, below which its two points are one."""

PASSED = 1e-3
"""How much nearer, in the same terms, the nearest point is than both of them to be a point itself."""

Detect = Callable[[Shape, Shape], list[Point]]


class Parts(Protocol):
    """Parts of a shape."""

    @property
    def count(self) -> Scalar:
        """Return how many there are, in each environment."""
        ...


class NarrowPhase(NamedTuple):
    """How two kinds of shapes are tested, in two phases, because only the second is differentiated.

    Attributes:
        search: takes both shapes, or a shape and a `Terrain`; gives the points that there are: always as many for the
            same kinds, with the distance `FAR` where there is none. It may use loops that have no derivative, so it
            runs in a body whose results are detached.
        evaluate: one of the points, by its feature.
        features: how many numbers a feature has.
        parts: what the second shape is made of near the first, if the search is for the point of one part: it then
            takes both shapes, this, and the number of the part.
        bounded: whether the search also takes how near the shapes must be, so that it can end early.
    """

    search: Callable[..., list[Candidate]]
    evaluate: Callable[[Shape, Any, Sequence[Scalar]], Point]
    features: int
    parts: Callable[[Shape, Any, Scalar], Parts] | None = None
    bounded: bool = False

    def search_within(self, a: Shape, b: Any, within: Scalar) -> list[Candidate]:
        """The points of two shapes, of which those that are farther apart may have any greater distance."""
        return self.search(a, b, within) if self.bounded else self.search(a, b)


def _single(detect: Detect) -> NarrowPhase:
    """The phases of a test that has one point, found in closed form."""
    return NarrowPhase(
        lambda a, b: [Candidate(detect(a, b)[0].distance)],
        lambda a, b, feature: detect(a, b)[0],
        0,
    )


def _apart(a: Shape, found: Sequence[Point]) -> list[Scalar]:
    """The distances of two points of a capsule, of which the second counts where it is apart from the first."""
    first, second = found
    apart = vector.subtract(first.position, second.position)
    same = vector.dot(apart, apart) <= (TOGETHER * a.radius) * (TOGETHER * a.radius)
    return [first.distance, select(same, FAR, second.distance)]


def _search_capsules(a: Shape, b: Shape) -> list[Candidate]:
    """The feature is which of two ends: 0 or 1."""
    return [Candidate(distance, (float(k),)) for k, distance in enumerate(_apart(a, capsule_capsule(a, b)))]


def _capsules_at(a: Shape, b: Shape, feature: Sequence[Scalar]) -> Point:
    return capsule_capsule_at(a, b, lambda x, y: select(feature[0] < 0.5, minimum(x, y), maximum(x, y)))


def _search_boxes(a: Shape, b: Shape) -> list[Candidate]:
    """MuJoCo's points, if two faces meet. The feature is the number of the point."""
    return [Candidate(point.distance, (float(k),)) for k, point in enumerate(box_box(a, b, EXACT))]


def _boxes_at(a: Shape, b: Shape, feature: Sequence[Scalar]) -> Point:
    first, *others = box_box(a, b, EXACT)
    for k, point in enumerate(others):
        first = Point(*choose(feature[0] > k + 0.5, tuple(point), tuple(first)))
    return first


def _search_capsule_box(a: Shape, b: Shape) -> list[Candidate]:
    """In closed form while the capsule's axis is outside of the box, otherwise as any two convex shapes.

    The first number of the feature is which of the two ends, 0 or 1, or 2 for the nearest point if it is nearer than
    both, or 3 for a feature of `convex`, which follows.
    """
    distances = _apart(a, capsule_box(a, b))
    nearest = capsule_box_at(a, b, lambda low, high: low, True).distance
    least = minimum(*distances)
    nearer = nearest < least - PASSED * a.radius
    values: list[Any] = []
    for k, distance in enumerate(distances):
        # It takes the place of the end that is further away.
        takes = nearer & (distances[1 - k] < distance) if k == 0 else nearer & ~(distance < distances[0])
        values.append((select(takes, nearest, distance), (select(takes, 2.0, float(k)), *_NOTHING)))

    def again(_: Any) -> Any:
        return [(one.distance, (3.0, *one.feature)) for one in convex.search(a, b)]

    deep = minimum(nearest, least) < -a.radius
    return [Candidate(*one) for one in when(deep, again, values, detached=True)]


def _capsule_box_at(a: Shape, b: Shape, feature: Sequence[Scalar]) -> Point:
    which = feature[0]
    one = capsule_box_at(a, b, lambda low, high: select(which < 0.5, low, high), which > 1.5)
    return Point(*choose(which > 2.5, tuple(convex.evaluate(a, b, feature[1:])), tuple(one)))


_NOTHING = (0.0, 0.0, 1.0, *[0.0] * (convex.FEATURES - 3))


DETECT: dict[tuple[str, str], Detect] = {
    ("sphere", "plane"): sphere_plane,
    ("capsule", "plane"): capsule_plane,
    ("box", "plane"): box_plane,
    ("cylinder", "plane"): cylinder_plane,
    ("ellipsoid", "plane"): ellipsoid_plane,
    ("hull", "plane"): hull_plane,
    ("sphere", "sphere"): sphere_sphere,
    ("sphere", "capsule"): sphere_capsule,
    ("sphere", "box"): sphere_box,
    ("sphere", "cylinder"): sphere_cylinder,
    ("capsule", "capsule"): capsule_capsule,
    ("capsule", "box"): capsule_box,
    ("box", "box"): box_box,
}
"""All points of two kinds at once, in one order each."""

_TERRAIN = {"sphere": 0, "capsule": 1, "box": 3, "cylinder": 3, "ellipsoid": 0, "hull": 1}

NARROW_PHASE: dict[tuple[str, str], NarrowPhase] = {
    ("sphere", "plane"): _single(sphere_plane),
    ("capsule", "plane"): NarrowPhase(search_capsule_plane, capsule_plane_at, 1),
    ("box", "plane"): NarrowPhase(search_box_plane, box_plane_at, 3),
    ("cylinder", "plane"): NarrowPhase(search_cylinder_plane, cylinder_plane_at, 3),
    ("ellipsoid", "plane"): _single(ellipsoid_plane),
    ("hull", "plane"): NarrowPhase(search_hull_plane, hull_plane_at, 1),
    ("sphere", "sphere"): _single(sphere_sphere),
    ("sphere", "capsule"): _single(sphere_capsule),
    ("sphere", "box"): _single(sphere_box),
    ("capsule", "capsule"): NarrowPhase(_search_capsules, _capsules_at, 1),
    ("capsule", "box"): NarrowPhase(_search_capsule_box, _capsule_box_at, 1 + convex.FEATURES),
    ("sphere", "cylinder"): _single(sphere_cylinder),
    **{
        kinds: NarrowPhase(convex.search, convex.evaluate, convex.FEATURES, bounded=True)
        for kinds in combinations_with_replacement(KINDS, 2)
        if kinds not in DETECT or kinds == ("box", "box")
    },
    **{(kind, "terrain"): NarrowPhase(search_terrain, terrain_point_at, _TERRAIN[kind]) for kind in KINDS},
}
"""How kinds of shapes are tested, in one order each."""


MUJOCO_PHASE: dict[tuple[str, str], NarrowPhase] = {
    **NARROW_PHASE,
    ("cylinder", "plane"): NarrowPhase(search_cylinder_plane_triangle, cylinder_plane_triangle_at, 4),
    ("capsule", "capsule"): NarrowPhase(search_parallel_capsules, capsule_point_at, 1),
    ("box", "plane"): NarrowPhase(search_lower_corners, box_plane_at, 3),
    ("capsule", "box"): NarrowPhase(search_capsule_box, capsule_box_point_at, 1),
    ("box", "box"): NarrowPhase(_search_boxes, _boxes_at, 1),
    ("box", "hull"): NarrowPhase(clipped.search, clipped.evaluate, clipped.FEATURES, bounded=True),
    ("hull", "hull"): NarrowPhase(clipped.search, clipped.evaluate, clipped.FEATURES, bounded=True),
}
"""How they are tested for MuJoCo's model of contact: by as many points, which are MuJoCo's."""

PRISM_PHASE = {
    (kind, "terrain"): NarrowPhase(search_prism, prism_point_at, convex.FEATURES, cells_under) for kind in KINDS
}
"""How they are tested on terrain that is made of prisms."""


CLASHES = ("plane", "terrain")
"""Kinds that do not touch each other."""


def supported(first: str, second: str) -> bool:
    """Whether shapes of these kinds can touch."""
    return first not in CLASHES or second not in CLASHES


def has_closed_form(first: str, second: str) -> bool:
    """Whether all points of shapes of these kinds are found at once, without a search."""
    return (first, second) in DETECT or (second, first) in DETECT


def listed() -> str:
    """The pairs of kinds that can touch, for messages."""
    return ", ".join(f"{first} and {second}" for first, second in NARROW_PHASE)


def points(a: Shape, b: Shape) -> list[Point]:
    """The points where two shapes touch or nearly do.

    Always the same number of them for the same kinds; a slot without a point has the distance `FAR`. Pairs of kinds
    that are not in `DETECT` are tested in traced functions only.

    Args:
        a: the first shape.
        b: the second; normals lead from it toward the first.

    Raises:
        InputError: two planes, which do not touch.
    """
    if not supported(a.kind, b.kind):
        raise InputError(f"points: a {a.kind} and a {b.kind} do not touch")
    if (a.kind, b.kind) in DETECT:
        return DETECT[a.kind, b.kind](a, b)
    if (a.kind, b.kind) not in NARROW_PHASE:
        return [swapped(point) for point in points(b, a)]
    phase = NARROW_PHASE[a.kind, b.kind]
    found = []
    for candidate in phase.search(a, b):
        distance, *feature = detach([candidate.distance, *candidate.feature])
        point = phase.evaluate(a, b, feature)
        found.append(point._replace(distance=select(distance < 0.5 * FAR, point.distance, FAR)))
    return found
