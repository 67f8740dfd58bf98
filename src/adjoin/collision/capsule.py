"""Capsules against capsules (nearest points of segments: Ericson, Real-Time Collision Detection, section 5.1.9)."""

from collections.abc import Callable

from adjoin.collision.box import ALONG
from adjoin.collision.branchless import clamp
from adjoin.collision.point import Point
from adjoin.collision.shape import Shape
from adjoin.collision.sphere import balls
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar
from adjoin.trace import maximum, minimum


def capsule_capsule(a: Shape, b: Shape) -> list[Point]:
    """Two points: balls at the nearest points of the axes, or about them.

    Where the axes are parallel the balls lie at the ends of what they have in common, and they come together at the
    nearest points as the axes turn away from each other.
    """
    return [capsule_capsule_at(a, b, end) for end in (minimum, maximum)]


def capsule_capsule_at(a: Shape, b: Shape, end: Callable[[Scalar, Scalar], Scalar]) -> Point:
    """One of the two points.

    Args:
        a: the first capsule.
        b: the second.
        end: which of the two ends of what the axes have in common.
    """
    apart = vector.subtract(a.center, b.center)
    cosine = vector.dot(a.axis, b.axis)
    on_a, on_b = vector.dot(a.axis, apart), vector.dot(b.axis, apart)
    normal = vector.cross(a.axis, b.axis)
    turn = vector.dot(normal, normal)
    # Numbers along a's axis. The nearest point is at (cosine on_b - on_a) / turn: what is gathered of it has no pole.
    inverse = 1.0 / maximum(turn, ALONG)
    gathered = turn * inverse
    nearest = clamp((cosine * on_b - on_a) * inverse, -gathered * a.half, gathered * a.half)
    reach = b.half * cosine
    ends = (-on_a - reach, -on_a + reach)
    along = nearest + (1.0 - gathered) * clamp(end(*ends), -a.half, a.half)
    along_b = clamp(on_b + along * cosine, -b.half, b.half)
    along = clamp(along_b * cosine - on_a, -a.half, a.half)
    first = vector.add(a.center, vector.scale(along, a.axis))
    second = vector.add(b.center, vector.scale(along_b, b.axis))
    return balls(first, a.radius, second, b.radius)
