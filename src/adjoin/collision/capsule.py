"""Capsules against capsules (nearest points of segments: Ericson, Real-Time Collision Detection, section 5.1.9)."""

from collections.abc import Callable, Sequence

from adjoin.collision.box import ALONG
from adjoin.collision.branchless import SHORT, choose, clamp, unit
from adjoin.collision.point import FAR, Candidate, Point
from adjoin.collision.shape import Shape
from adjoin.collision.sphere import balls
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar, select
from adjoin.spatial.vector import Vector3
from adjoin.trace import maximum, minimum

MUJOCO_ALONG = 1e-15
"""Below what the square of the sine of their angle, times those of both halves, capsules are parallel in MuJoCo, m⁴."""


def capsule_capsule(a: Shape, b: Shape) -> list[Point]:
    """Two points: balls at the nearest points of the axes, or about them.

    Where the axes are parallel the balls lie at the ends of what they have in common, and they come together at the
    nearest points as the axes turn away from each other.
    """
    return [capsule_capsule_at(a, b, end) for end in (minimum, maximum)]


def search_parallel_capsules(a: Shape, b: Shape) -> list[Candidate]:
    """MuJoCo's points: two only of capsules that are exactly parallel. The feature is 0 or 1 for these, 2 for one."""
    across = vector.cross(a.axis, b.axis)
    halves = a.half * b.half
    parallel = vector.dot(across, across) * halves * halves < MUJOCO_ALONG
    first, second = capsule_capsule(a, b)
    off = vector.subtract(first.position, second.position)
    apart = parallel & (vector.dot(off, off) > SHORT)
    nearest = capsule_point_at(a, b, (2.0,)).distance
    return [
        Candidate(select(parallel, first.distance, nearest), (select(parallel, 0.0, 2.0),)),
        Candidate(select(apart, second.distance, FAR), (1.0,)),
    ]


def capsule_point_at(a: Shape, b: Shape, feature: Sequence[Scalar]) -> Point:
    """One of MuJoCo's points."""
    which = feature[0]
    across = vector.cross(a.axis, b.axis)
    # Where axes cross the capsules part across both.
    slanted = vector.dot(across, across) > SHORT
    otherwise = choose(slanted, vector.negate(unit(across)[0]), (-1.0, 0.0, 0.0))
    least = select(which > 1.5, SHORT, ALONG)
    return capsule_capsule_at(a, b, lambda x, y: select(which > 0.5, maximum(x, y), minimum(x, y)), least, otherwise)


def capsule_capsule_at(
    a: Shape,
    b: Shape,
    end: Callable[[Scalar, Scalar], Scalar],
    least: Scalar = ALONG,
    otherwise: Vector3 | None = None,
) -> Point:
    """One of the two points.

    Args:
        a: the first capsule.
        b: the second.
        end: which of the two ends of what the axes have in common.
        least: the square of the sine of the angle from which on both are one.
        otherwise: the normal where the axes meet, if not along z.
    """
    apart = vector.subtract(a.center, b.center)
    cosine = vector.dot(a.axis, b.axis)
    on_a, on_b = vector.dot(a.axis, apart), vector.dot(b.axis, apart)
    normal = vector.cross(a.axis, b.axis)
    turn = vector.dot(normal, normal)
    # Numbers along a's axis. The nearest point is at (cosine on_b - on_a) / turn: what is gathered of it has no pole.
    inverse = 1.0 / maximum(turn, least)
    gathered = turn * inverse
    nearest = clamp((cosine * on_b - on_a) * inverse, -gathered * a.half, gathered * a.half)
    reach = b.half * cosine
    ends = (-on_a - reach, -on_a + reach)
    along = nearest + (1.0 - gathered) * clamp(end(*ends), -a.half, a.half)
    along_b = clamp(on_b + along * cosine, -b.half, b.half)
    along = clamp(along_b * cosine - on_a, -a.half, a.half)
    first = vector.add(a.center, vector.scale(along, a.axis))
    second = vector.add(b.center, vector.scale(along_b, b.axis))
    return balls(first, a.radius, second, b.radius, otherwise)
