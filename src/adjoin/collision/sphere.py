"""Spheres against spheres, capsules and cylinders."""

from adjoin.collision.branchless import SHORT, choose, clamp, signed, unit
from adjoin.collision.point import Point
from adjoin.collision.shape import Shape
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar, select, sqrt
from adjoin.spatial.vector import Vector3
from adjoin.trace import maximum


def balls(
    first: Vector3, first_radius: Scalar, second: Vector3, second_radius: Scalar, otherwise: Vector3 | None = None
) -> Point:
    """Two balls by their centers; they part along z, or along another unit vector, where the centers coincide."""
    between = vector.subtract(first, second)
    normal, apart = unit(between)
    if otherwise is not None:
        normal = choose(vector.dot(between, between) > SHORT, normal, otherwise)
    distance = apart - (first_radius + second_radius)
    reach = first_radius + 0.5 * distance
    return Point(distance, vector.subtract(first, vector.scale(reach, normal)), normal)


def sphere_sphere(a: Shape, b: Shape) -> list[Point]:
    """One point."""
    return [balls(a.center, a.radius, b.center, b.radius)]


def sphere_capsule(a: Shape, b: Shape) -> list[Point]:
    """One point: the ball of the capsule that is nearest to the sphere's."""
    along = clamp(vector.dot(vector.subtract(a.center, b.center), b.axis), -b.half, b.half)
    return [balls(a.center, a.radius, vector.add(b.center, vector.scale(along, b.axis)), b.radius)]


def sphere_cylinder(a: Shape, b: Shape) -> list[Point]:
    """One point; from inside, the sphere leaves by the side or the end that is nearer."""
    x, y, z = vector.apply_transposed(b.pose[0], vector.subtract(a.center, b.center))
    square = x * x + y * y
    off_axis = square > SHORT
    from_axis = sqrt(select(off_axis, square, 1.0))
    inverse = 1.0 / from_axis
    across = (select(off_axis, x * inverse, 1.0), select(off_axis, y * inverse, 0.0))
    side, end = select(off_axis, from_axis, 0.0) - b.radius, abs(z) - b.half
    up = signed(z, 1.0)
    beside, above = maximum(side, 0.0), maximum(end, 0.0)
    square = beside * beside + above * above
    outside = square > SHORT
    length = sqrt(select(outside, square, 1.0))
    inverse = 1.0 / length
    out = (across[0] * beside * inverse, across[1] * beside * inverse, up * above * inverse)
    by_side = side > end
    inward = choose(by_side, (*across, 0.0), (0.0, 0.0, up))
    normal = vector.apply(b.pose[0], choose(outside, out, inward))
    distance = select(outside, length, select(by_side, side, end)) - a.radius
    return [Point(distance, vector.subtract(a.center, vector.scale(a.radius + 0.5 * distance, normal)), normal)]
