"""What bodies are made of, about one origin, over any scalar: mass, first moment, and second moment.

The first moment is the integral of r dm, the second that of r rᵀ dm, its six entries (xx, xy, xz, yy, yz, zz). Unlike
inertias, these simply add up, and can be those of any part of a body.
"""

from adjoin.spatial import inertia, vector
from adjoin.spatial.inertia import Symmetric3
from adjoin.spatial.motion import Transform
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Vector3

Matter = tuple[Scalar, Vector3, Symmetric3]

ROUNDING = 1e-15  # of the largest entry; what is less was meant to be 0


def rotational(second: Symmetric3) -> Symmetric3:
    """The rotational inertia of a second moment, about the same point: its trace less itself."""
    xx, xy, xz, yy, yz, zz = second
    return (yy + zz, -xy, -xz, xx + zz, -yz, xx + yy)


def together(a: Matter, b: Matter) -> Matter:
    """Both."""
    return a[0] + b[0], vector.add(a[1], b[1]), inertia.symmetric_add(a[2], b[2])


def to_parent(x: Transform, m: Matter) -> Matter:
    """Matter in the child frame of a transform, in the parent frame."""
    rotation, position = x
    mass, moment, second = m
    turned = vector.apply(rotation, moment)
    px, py, pz = position
    hx, hy, hz = vector.add(turned, vector.scale(0.5 * mass, position))
    shift = (
        2.0 * px * hx,
        px * hy + py * hx,
        px * hz + pz * hx,
        2.0 * py * hy,
        py * hz + pz * hy,
        2.0 * pz * hz,
    )
    return (
        mass,
        vector.add(turned, vector.scale(mass, position)),
        inertia.symmetric_add(inertia.rotate(rotation, second), shift),
    )


def without_axis(m: Matter, axis: Vector3) -> tuple[Matter, Matter]:
    """Matter in floats as two parts: what is left, and what is as if it lay on an axis through the origin.

    The second part has all of the mass, and of the moments what is along the axis.
    """
    mass, moment, second = m
    x, y, z = axis
    along = vector.scale(vector.dot(axis, moment), axis)
    spread = vector.dot(axis, vector.apply(inertia.to_matrix(second), axis))
    line = (spread * x * x, spread * x * y, spread * x * z, spread * y * y, spread * y * z, spread * z * z)
    least, smallest = (ROUNDING * max(map(abs, part)) for part in (moment, second))
    a, b, c = (0.0 if abs(p - q) <= least else p - q for p, q in zip(moment, along, strict=True))
    xx, xy, xz, yy, yz, zz = (0.0 if abs(p - q) <= smallest else p - q for p, q in zip(second, line, strict=True))
    return (0.0, (a, b, c), (xx, xy, xz, yy, yz, zz)), (mass, along, line)
