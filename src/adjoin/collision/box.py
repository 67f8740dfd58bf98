"""Balls against boxes: spheres, and capsules by the two of their balls that hold them up."""

from collections.abc import Callable
from typing import Any

from adjoin.collision.branchless import SHORT, choose, clamp, greatest, signed
from adjoin.collision.point import Point
from adjoin.collision.shape import Shape
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar, select, sqrt
from adjoin.spatial.vector import Vector3, vector3
from adjoin.trace import implicit, maximum, minimum

ALONG = 1e-4
"""The square of the sine of the angle below which a capsule lies along a face, an edge or another capsule."""

PULL = 1e-8
"""How much nearer to the box's middle counts beside nearer to the box, so that one point of an axis is the nearest."""

BEYOND = 1e9
"""More than any coordinate."""


def from_box(size: Vector3, at: Vector3) -> tuple[Vector3, Scalar]:
    """The direction to a point from the nearest point of a box's surface, and the distance, negative inside.

    Args:
        size: half edges.
        at: the point, in the box's frame.
    """
    out = vector3([x - clamp(x, -h, h) for x, h in zip(at, size, strict=True)])
    square = vector.dot(out, out)
    outside = square > SHORT
    length = sqrt(select(outside, square, 1.0))
    inverse = 1.0 / length
    depths = vector3([abs(x) - h for x, h in zip(at, size, strict=True)])
    first, second = greatest(depths)
    faces = (
        select(first, signed(at[0], 1.0), 0.0),
        select(first, 0.0, select(second, signed(at[1], 1.0), 0.0)),
        select(first | second, 0.0, signed(at[2], 1.0)),
    )
    shallowest = maximum(depths[0], maximum(depths[1], depths[2]))
    return choose(outside, vector.scale(inverse, out), faces), select(outside, length, shallowest)


def ball_box(center: Vector3, radius: Scalar, box: Shape, local: Vector3) -> Point:
    """A ball against a box; from inside, it leaves by the nearest face.

    Args:
        center: of the ball, in the world.
        radius: of the ball.
        box: the second shape.
        local: the ball's center in the box's frame.
    """
    toward, apart = from_box(box.size, local)
    normal = vector.apply(box.pose[0], toward)
    distance = apart - radius
    return Point(distance, vector.subtract(center, vector.scale(radius + 0.5 * distance, normal)), normal)


def sphere_box(a: Shape, b: Shape) -> list[Point]:
    """One point."""
    local = vector.apply_transposed(b.pose[0], vector.subtract(a.center, b.center))
    return [ball_box(a.center, a.radius, b, local)]


def capsule_box(a: Shape, b: Shape) -> list[Point]:
    """Two points: balls of the capsule, at the nearest point of its axis, or about it.

    Where the axis runs along a face or an edge the balls lie at the ends of what they have in common, and they come
    together at the nearest point as it turns away.
    """
    return [capsule_box_at(a, b, pick) for pick in (lambda low, high: low, lambda low, high: high)]


def capsule_box_at(a: Shape, b: Shape, pick: Callable[[Scalar, Scalar], Scalar], alone: Any = False) -> Point:
    """One of the two points, or the nearest.

    Args:
        a: the capsule.
        b: the box.
        pick: which of the lower and the upper end of what the axis has in common with the box.
        alone: where it is to be the ball at the nearest point of the axis instead.
    """
    middle = vector.apply_transposed(b.pose[0], vector.subtract(a.center, b.center))
    axis = vector.apply_transposed(b.pose[0], a.axis)
    crossings = _crossings(b.size, middle, axis)
    nearest = _nearest(b.size, middle, axis, crossings)
    # An axis through the box: the middle of what is inside.
    enters, leaves = crossings[0]
    for first, last in crossings[1:]:
        enters, leaves = maximum(enters, first), minimum(leaves, last)
    inside = 0.5 * (clamp(enters, -a.half, a.half) + clamp(leaves, -a.half, a.half))
    nearest = select(enters < leaves, inside, clamp(nearest, -a.half, a.half))
    toward, _ = from_box(b.size, vector.add(middle, vector.scale(nearest, axis)))
    across = vector3([n * n for n in toward])
    turn = sum((n * x * x for n, x in zip(across, axis, strict=True)), 0.0)
    gathered = select(alone, 1.0, turn / maximum(turn, ALONG))
    low, high = -a.half, a.half
    for beside, (first, last) in zip(across, crossings, strict=True):
        bounds = beside < ALONG
        low = maximum(low, select(bounds, first, -a.half))
        high = minimum(high, select(bounds, last, a.half))
    end = pick(minimum(low, a.half), maximum(high, -a.half))
    along = end + gathered * (nearest - end)
    center = vector.add(a.center, vector.scale(along, a.axis))
    return ball_box(center, a.radius, b, vector.add(middle, vector.scale(along, axis)))


def _crossings(size: Vector3, middle: Vector3, axis: Vector3) -> list[tuple[Scalar, Scalar]]:
    """Where a line, middle + s axis, crosses the planes of each pair of faces, the lesser s first."""
    found = []
    for h, m, x in zip(size, middle, axis, strict=True):
        inverse = 1.0 / select(abs(x) < 1e-6, 1e-6, x)
        center, half = -m * inverse, h * abs(inverse)
        found.append((center - half, center + half))
    return found


def _nearest(size: Vector3, middle: Vector3, axis: Vector3, crossings: list[tuple[Scalar, Scalar]]) -> Scalar:
    """Where on a line it is nearest to the box: the zero of the slope of half the squared distance.

    The slope rises with s and is straight between the crossings, is negative at the first of them and positive at the
    last. The two next to the zero give it.
    """
    own = -vector.dot(middle, axis)

    def slope(s: Scalar, crossed: int | None = None) -> Scalar:
        total = PULL * (s - own)
        for k, (h, m, x) in enumerate(zip(size, middle, axis, strict=True)):
            if k != crossed:
                at = m + s * x
                total = total + x * (at - clamp(at, -h, h))
        return total

    low, high, below, above = -BEYOND, BEYOND, -BEYOND, BEYOND
    for k, pair in enumerate(crossings):
        for s in pair:
            value = slope(s, k)
            falls = value < 0.0
            low, below = maximum(low, select(falls, s, -BEYOND)), maximum(below, select(falls, value, -BEYOND))
            high, above = minimum(high, select(falls, BEYOND, s)), minimum(above, select(falls, BEYOND, value))
    rise = above - below
    zero = low - below * (high - low) / select(rise > 1e-12, rise, 1.0)
    outside = [abs(m + zero * x) > h for h, m, x in zip(size, middle, axis, strict=True)]
    curvature = sum((select(out, x * x, 0.0) for out, x in zip(outside, axis, strict=True)), PULL)
    return implicit([zero], lambda x: [slope(x[0])], lambda b: [b[0] / curvature])[0]
