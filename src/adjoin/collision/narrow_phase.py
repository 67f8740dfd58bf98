"""Where two shapes touch: a fixed number of points for every pair of kinds."""

from collections.abc import Callable

from adjoin.collision.box import capsule_box, sphere_box
from adjoin.collision.box_box import box_box
from adjoin.collision.capsule import capsule_capsule
from adjoin.collision.plane import (
    box_plane,
    capsule_plane,
    cylinder_plane,
    ellipsoid_plane,
    hull_plane,
    sphere_plane,
)
from adjoin.collision.point import Point, swapped
from adjoin.collision.shape import Shape
from adjoin.collision.sphere import sphere_capsule, sphere_sphere
from adjoin.errors import InputError

DETECT: dict[tuple[str, str], Callable[[Shape, Shape], list[Point]]] = {
    ("sphere", "plane"): sphere_plane,
    ("capsule", "plane"): capsule_plane,
    ("box", "plane"): box_plane,
    ("cylinder", "plane"): cylinder_plane,
    ("ellipsoid", "plane"): ellipsoid_plane,
    ("hull", "plane"): hull_plane,
    ("sphere", "sphere"): sphere_sphere,
    ("sphere", "capsule"): sphere_capsule,
    ("sphere", "box"): sphere_box,
    ("capsule", "capsule"): capsule_capsule,
    ("capsule", "box"): capsule_box,
    ("box", "box"): box_box,
}
"""How kinds of shapes are tested, in one order each."""


def supported(first: str, second: str) -> bool:
    """Whether shapes of these kinds can touch."""
    return (first, second) in DETECT or (second, first) in DETECT


def listed() -> str:
    """The pairs of kinds that can touch, for messages."""
    return ", ".join(f"{first} and {second}" for first, second in DETECT)


def points(a: Shape, b: Shape) -> list[Point]:
    """The points where two shapes touch or nearly do.

    Always the same number of them for the same kinds; a slot without a point has the distance `FAR`.

    Args:
        a: the first shape.
        b: the second; normals lead from it toward the first.

    Raises:
        InputError: the kinds cannot be tested against each other.
    """
    if (a.kind, b.kind) in DETECT:
        return DETECT[a.kind, b.kind](a, b)
    if (b.kind, a.kind) in DETECT:
        return [swapped(point) for point in DETECT[b.kind, a.kind](b, a)]
    raise InputError(f"points: a {a.kind} and a {b.kind} cannot be tested for contact; these can: {listed()}")
