"""A place where two shapes touch, or nearly do."""

from typing import NamedTuple

from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Vector3

FAR = 1e3
"""The distance of a slot in which there is no point, m."""


class Point(NamedTuple):
    """A point of contact between a first shape and a second.

    Attributes:
        distance: between the surfaces, negative where they overlap, m.
        position: in the world, midway between the surfaces, m.
        normal: unit vector in the world from the second shape toward the first: moving the first along it parts them.
    """

    distance: Scalar
    position: Vector3
    normal: Vector3


class Candidate(NamedTuple):
    """A point of contact as a search finds it, before it is computed.

    Attributes:
        distance: of the point, m, or `FAR` where there is none.
        feature: numbers that say which point it is.
    """

    distance: Scalar
    feature: tuple[Scalar, ...] = ()


def on_surface(distance: Scalar, at: Vector3, normal: Vector3) -> Point:
    """The point of contact, given a point of the first shape's surface and its distance from the second's."""
    return Point(distance, vector.subtract(at, vector.scale(0.5 * distance, normal)), normal)


def swapped(point: Point) -> Point:
    """The same point with the shapes in the other order."""
    return point._replace(normal=vector.negate(point.normal))
