"""Rigid-body inertias over any scalar: (mass, center of mass, rotational inertia about the center of mass).

The rotational inertia is its six entries (xx, xy, xz, yy, yz, zz), in the axes of the frame the inertia is given in.
"""

from adjoin.spatial import vector
from adjoin.spatial.motion import Spatial, Transform, transform_point
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import IDENTITY, ZERO, Matrix3, Vector3

Symmetric3 = tuple[Scalar, Scalar, Scalar, Scalar, Scalar, Scalar]
Inertia = tuple[Scalar, Vector3, Symmetric3]

ZERO_INERTIA: Inertia = (0.0, ZERO, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0))


def to_matrix(s: Symmetric3) -> Matrix3:
    """Return the full symmetric matrix."""
    return ((s[0], s[1], s[2]), (s[1], s[3], s[4]), (s[2], s[4], s[5]))


def from_matrix(m: Matrix3) -> Symmetric3:
    """Return the upper triangle of a symmetric matrix."""
    return (m[0][0], m[0][1], m[0][2], m[1][1], m[1][2], m[2][2])


def symmetric_add(a: Symmetric3, b: Symmetric3) -> Symmetric3:
    """Return a + b."""
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4], a[5] + b[5])


def rotate(r: Matrix3, s: Symmetric3) -> Symmetric3:
    """Return R S Rᵀ: the same tensor in the axes that R leads to."""
    if r is IDENTITY:
        return symmetric_add(s, ZERO_INERTIA[2])  # as the products would, without a sign of zeros
    return from_matrix(vector.multiply(vector.multiply(r, to_matrix(s)), vector.transpose(r)))


def from_principal(r: Matrix3, moments: Vector3) -> Symmetric3:
    """Return R diag(moments) Rᵀ: an inertia given along its principal axes, in the axes that R leads to."""
    a, b, c = moments
    (xa, xb, xc), (ya, yb, yc), (za, zb, zc) = r
    ax, bx, cx, ay, by, cy, az, bz, cz = xa * a, xb * b, xc * c, ya * a, yb * b, yc * c, za * a, zb * b, zc * c
    return (
        ax * xa + bx * xb + cx * xc,
        ax * ya + bx * yb + cx * yc,
        ax * za + bx * zb + cx * zc,
        ay * ya + by * yb + cy * yc,
        ay * za + by * zb + cy * zc,
        az * za + bz * zb + cz * zc,
    )


def point_mass(mass: Scalar, at: Vector3) -> Symmetric3:
    """Return rotational inertia about the origin of a mass concentrated in a point."""
    x, y, z = at
    return (
        mass * (y * y + z * z),
        -(mass * (x * y)),
        -(mass * (x * z)),
        mass * (x * x + z * z),
        -(mass * (y * z)),
        mass * (x * x + y * y),
    )


def about_origin(inertia: Inertia) -> Symmetric3:
    """Return rotational inertia about the frame's origin (parallel axis theorem)."""
    mass, com, central = inertia
    return symmetric_add(central, point_mass(mass, com))


def second_moment(about: Symmetric3) -> Symmetric3:
    """Return integral of r rᵀ dm, given the rotational inertia about the same point: half its trace less itself."""
    xx, xy, xz, yy, yz, zz = about
    half = 0.5 * (xx + yy + zz)
    return (half - xx, -xy, -xz, half - yy, -yz, half - zz)


def from_second_moment(second: Symmetric3) -> Symmetric3:
    """Return the rotational inertia about the point of a second moment: the trace of the second moment less itself."""
    xx, xy, xz, yy, yz, zz = second
    return (yy + zz, -xy, -xz, xx + zz, -yz, xx + yy)


def transformed(a: Transform, inertia: Inertia) -> Inertia:
    """Return an inertia given in the child frame, expressed in the parent frame of the transform."""
    mass, com, central = inertia
    return mass, transform_point(a, com), rotate(a[0], central)


def combined(a: Inertia, b: Inertia) -> Inertia:
    """Return the inertia of two bodies welded together, in the same frame, in floats; a zero one changes no digit."""
    total = a[0] + b[0]
    if total == 0.0:
        return a[0], a[1], symmetric_add(a[2], b[2])
    if not a[0] and not any(a[2]):
        return b
    if not b[0] and not any(b[2]):
        return a
    com = vector.scale(1.0 / total, vector.add(vector.scale(a[0], a[1]), vector.scale(b[0], b[1])))
    apart = vector.subtract(a[1], b[1])
    central = symmetric_add(symmetric_add(a[2], b[2]), point_mass(a[0] * b[0] / total, apart))
    return total, com, central


def times_motion(inertia: Inertia, m: Spatial) -> Spatial:
    """Return momentum (moment about the origin, linear) of a body that moves with the spatial velocity m."""
    mass, com, central = inertia
    angular, linear = m
    momentum = vector.scale(mass, vector.add(linear, vector.cross(angular, com)))
    moment = vector.add(vector.apply(to_matrix(central), angular), vector.cross(com, momentum))
    return moment, momentum
