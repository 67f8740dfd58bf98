"""Choices without branches, and directions that exist everywhere."""

from typing import Any

from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar, select, sqrt
from adjoin.spatial.vector import Vector3
from adjoin.trace import maximum, minimum

SHORT = 1e-20
"""The square of a length that has no direction, m²; its inverse to the power of 3/2 is a float32."""


def choose(condition: Any, a: Any, b: Any) -> Any:
    """`select` for scalars and for nested tuples of them."""
    if isinstance(a, tuple):
        return tuple(choose(condition, x, y) for x, y in zip(a, b, strict=True))
    return select(condition, a, b)


def clamp(x: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """The number of the range that is nearest to x."""
    return minimum(maximum(x, low), high)


def signed(like: Scalar, x: Any) -> Any:
    """x, or -x where `like` is negative; x may be a vector."""
    return choose(like < 0.0, vector.negate(x) if isinstance(x, tuple) else -x, x)


def unit(a: Vector3) -> tuple[Vector3, Scalar]:
    """The direction of a vector and its length; of a vector without length, the direction of z and its z."""
    square = vector.dot(a, a)
    some = square > SHORT
    length = sqrt(select(some, square, 1.0))
    inverse = select(some, 1.0 / length, 0.0)
    return (a[0] * inverse, a[1] * inverse, select(some, a[2] * inverse, 1.0)), select(some, length, a[2])


Which = tuple[Any, Any]
"""Which of three is the greatest: whether the first is, and if not, whether the second is."""


def greatest(a: Vector3) -> Which:
    """Which of three numbers is the greatest."""
    return a[0] >= maximum(a[1], a[2]), a[1] >= a[2]


def taken(which: Which, items: tuple[Any, Any, Any]) -> Any:
    """That one of three."""
    first, second = which
    return choose(first, items[0], choose(second, items[1], items[2]))


def others(which: Which, items: tuple[Any, Any, Any]) -> tuple[Any, Any]:
    """The other two of three, in their order."""
    first, second = which
    return choose(first, items[1], items[0]), choose(first | second, items[2], items[1])


def without(which: Which, a: Vector3) -> Vector3:
    """A vector with zero in that place."""
    first, second = which
    return (
        select(first, 0.0, a[0]),
        select(first, a[1], select(second, 0.0, a[1])),
        select(first | second, a[2], 0.0),
    )


def turned(which: Which, items: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """All three from that one on, round in a circle."""
    x, y, z = items
    return taken(which, (x, y, z)), taken(which, (y, z, x)), taken(which, (z, x, y))
