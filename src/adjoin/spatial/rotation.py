"""Rotations: matrices, unit quaternions [w x y z], rotation vectors and roll-pitch-yaw, over any scalar.

A rotation takes coordinates in the rotated frame to coordinates in the reference frame: `x_parent = R x_child`.
"""

import math

from adjoin.spatial.angles import angle_over_sine, cosine, sinc
from adjoin.spatial.scalar import Scalar, cos, is_number, select, sin, sqrt
from adjoin.spatial.vector import IDENTITY, Matrix3, Vector3, add, cross, dot, multiply, scale

Quaternion = tuple[Scalar, Scalar, Scalar, Scalar]

IDENTITY_QUATERNION: Quaternion = (1.0, 0.0, 0.0, 0.0)


def from_axis_angle(axis: Vector3, angle: Scalar) -> Matrix3:
    """Return rotation by `angle` (rad) about a unit axis (Rodrigues' formula)."""
    x, y, z = axis
    c, s = cos(angle), sin(angle)
    d = 1.0 - c

    def diagonal(component: Scalar) -> Scalar:
        # On a coordinate axis this is exactly 1; (1 - c) + c would hide it from the tracer.
        return 1.0 if is_number(component) and component * component == 1.0 else component * component * d + c

    return (
        (diagonal(x), x * y * d - z * s, x * z * d + y * s),
        (x * y * d + z * s, diagonal(y), y * z * d - x * s),
        (x * z * d - y * s, y * z * d + x * s, diagonal(z)),
    )


def from_rpy(roll: Scalar, pitch: Scalar, yaw: Scalar) -> Matrix3:
    """Return Rz(yaw) Ry(pitch) Rx(roll): URDF's fixed-axis roll, pitch, yaw (rad)."""
    sr, cr, sp, cp, sy, cy = sin(roll), cos(roll), sin(pitch), cos(pitch), sin(yaw), cos(yaw)
    return (
        (cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr),
        (sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr),
        (-sp, cp * sr, cp * cr),
    )


def to_rpy(m: Matrix3) -> Vector3:
    """Return roll, pitch, yaw (rad) of a rotation given in floats.

    Roll is measured after yaw is undone, so that the three together are exact to rounding near pitch = +-90 degrees
    too, where each alone is not well defined.
    """
    yaw = math.atan2(m[1][0], m[0][0])
    c, s = math.cos(yaw), math.sin(yaw)
    pitch = math.atan2(-m[2][0], c * m[0][0] + s * m[1][0])
    roll = math.atan2(s * m[0][2] - c * m[1][2], c * m[1][1] - s * m[0][1])
    return (roll, pitch, yaw)


def from_quaternion(q: Quaternion) -> Matrix3:
    """Return matrix of a unit quaternion [w x y z]; the norm is not checked."""
    w, x, y, z = q
    return (
        (1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)),
        (2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x)),
        (2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)),
    )


def to_quaternion(m: Matrix3) -> Quaternion:
    """Return unit quaternion [w x y z] with w >= 0 of a rotation given in floats (Shepperd's method)."""
    trace = m[0][0] + m[1][1] + m[2][2]
    choices = (trace, m[0][0], m[1][1], m[2][2])
    largest = choices.index(max(choices))
    if largest == 0:
        q = (1.0 + trace, m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1])
    elif largest == 1:
        q = (m[2][1] - m[1][2], 1.0 + 2.0 * m[0][0] - trace, m[0][1] + m[1][0], m[0][2] + m[2][0])
    elif largest == 2:
        q = (m[0][2] - m[2][0], m[0][1] + m[1][0], 1.0 + 2.0 * m[1][1] - trace, m[1][2] + m[2][1])
    else:
        q = (m[1][0] - m[0][1], m[0][2] + m[2][0], m[1][2] + m[2][1], 1.0 + 2.0 * m[2][2] - trace)
    n = math.copysign(math.sqrt(sum(c * c for c in q)), q[0] if q[0] != 0.0 else 1.0)
    return (q[0] / n, q[1] / n, q[2] / n, q[3] / n)


def quaternion_multiply(a: Quaternion, b: Quaternion) -> Quaternion:
    """Return a b: first b, then a."""
    av, bv = a[1:], b[1:]
    v = add(add(scale(a[0], bv), scale(b[0], av)), cross(av, bv))
    return (a[0] * b[0] - dot(av, bv), *v)


def quaternion_conjugate(q: Quaternion) -> Quaternion:
    """Return the inverse of a unit quaternion."""
    return (q[0], -q[1], -q[2], -q[3])


def quaternion_normalize(q: Quaternion) -> Quaternion:
    """Return q / |q|."""
    n = sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3])
    return (q[0] / n, q[1] / n, q[2] / n, q[3] / n)


def quaternion_exp(rotation_vector: Vector3) -> Quaternion:
    """Return unit quaternion of a rotation vector (rad); smooth everywhere."""
    quarter = 0.25 * dot(rotation_vector, rotation_vector)
    return (cosine(quarter), *scale(0.5 * sinc(quarter), rotation_vector))


def quaternion_log(q: Quaternion) -> Vector3:
    """Return rotation vector (rad) of a quaternion of any norm, the short way round; smooth except at half turns."""
    sign = select(q[0] < 0, -1.0, 1.0)
    v = scale(sign, q[1:])
    return scale(2.0 * angle_over_sine(dot(v, v), sign * q[0]), v)


def quaternion_along(m: Matrix3) -> Quaternion:
    """Return a nonzero multiple of the quaternion [w x y z] of a rotation matrix, for `quaternion_log`.

    Shepperd's method: each row and column of 4 q qᵀ is a multiple of q, and its diagonal says which is the longest.
    """
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = m
    rows = (
        (1.0 + xx + yy + zz, zy - yz, xz - zx, yx - xy),
        (zy - yz, 1.0 + xx - yy - zz, xy + yx, xz + zx),
        (xz - zx, xy + yx, 1.0 - xx + yy - zz, yz + zy),
        (yx - xy, xz + zx, yz + zy, 1.0 - xx - yy + zz),
    )

    def longer(i: int, j: int) -> tuple[Scalar, ...]:
        first = rows[i][i] >= rows[j][j]
        return tuple(select(first, a, b) for a, b in zip((*rows[i], rows[i][i]), (*rows[j], rows[j][j]), strict=True))

    a, b = longer(0, 1), longer(2, 3)
    w, x, y, z = (select(a[4] >= b[4], s, t) for s, t in zip(a[:4], b[:4], strict=True))
    return (w, x, y, z)


TIDIED = 2e-15
"""How close to 0, 1 or -1 an entry of a rotation is rounding."""


def tidy(m: Matrix3) -> Matrix3:
    """Set entries of a float matrix within rounding of 0, 1 and -1 to these, so that kernels see the zeros."""
    if m is IDENTITY or (isinstance(m, tuple) and m == IDENTITY):
        return IDENTITY
    (a, b, c), (d, e, f), (g, h, i) = m
    return (
        (_tidied(a), _tidied(b), _tidied(c)),
        (_tidied(d), _tidied(e), _tidied(f)),
        (_tidied(g), _tidied(h), _tidied(i)),
    )


def _tidied(x: float) -> float:
    if TIDIED < abs(x) < 1.0 - TIDIED:
        return x
    if x == 0.0:
        return 0.0
    nearest = float(round(x))
    return nearest + 0.0 if abs(x - nearest) <= TIDIED else x


def matrix_of(w: float, x: float, y: float, z: float) -> Matrix3:
    """Return the tidied matrix of a quaternion in floats, of any length but zero."""
    if (abs(w), x, y, z) == IDENTITY_QUATERNION:
        return IDENTITY
    n = math.sqrt(w * w + x * x + y * y + z * z)
    return tidy(from_quaternion((w / n, x / n, y / n, z / n)))


def compose(a: Matrix3, b: Matrix3) -> Matrix3:
    """Return a b in floats, tidied."""
    if a is IDENTITY or a == IDENTITY:
        return tidy(b)
    return tidy(a if b == IDENTITY else multiply(a, b))
