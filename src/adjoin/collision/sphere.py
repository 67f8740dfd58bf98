"""Spheres against spheres and capsules."""

from adjoin.collision.branchless import clamp, unit
from adjoin.collision.point import Point
from adjoin.collision.shape import Shape
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Vector3


def balls(first: Vector3, first_radius: Scalar, second: Vector3, second_radius: Scalar) -> Point:
    """Two balls by their centers; they part along z where the centers coincide."""
    normal, apart = unit(vector.subtract(first, second))
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
