"""3-vectors and 3x3 matrices as tuples of scalars of any kind (see `scalar`)."""

from collections.abc import Sequence

from adjoin.spatial.scalar import Scalar, sqrt

Vector3 = tuple[Scalar, Scalar, Scalar]
Matrix3 = tuple[Vector3, Vector3, Vector3]

ZERO: Vector3 = (0.0, 0.0, 0.0)
AXES: Matrix3 = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
IDENTITY: Matrix3 = AXES


def add(a: Vector3, b: Vector3) -> Vector3:
    """Return a + b."""
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


def subtract(a: Vector3, b: Vector3) -> Vector3:
    """Return a - b."""
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])


def negate(a: Vector3) -> Vector3:
    """Return -a."""
    return (-a[0], -a[1], -a[2])


def scale(s: Scalar, a: Vector3) -> Vector3:
    """Return s a."""
    return (s * a[0], s * a[1], s * a[2])


def dot(a: Vector3, b: Vector3) -> Scalar:
    """Return a . b."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def cross(a: Vector3, b: Vector3) -> Vector3:
    """Return a x b."""
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def norm(a: Vector3) -> Scalar:
    """Return |a|; not differentiable at zero."""
    return sqrt(dot(a, a))


def skew(a: Vector3) -> Matrix3:
    """Return the matrix [a]x with [a]x b = a x b."""
    return ((0.0, -a[2], a[1]), (a[2], 0.0, -a[0]), (-a[1], a[0], 0.0))


def transpose(m: Matrix3) -> Matrix3:
    """Return mᵀ."""
    return ((m[0][0], m[1][0], m[2][0]), (m[0][1], m[1][1], m[2][1]), (m[0][2], m[1][2], m[2][2]))


def apply(m: Matrix3, a: Vector3) -> Vector3:
    """Return m a."""
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = m
    x, y, z = a
    return (xx * x + xy * y + xz * z, yx * x + yy * y + yz * z, zx * x + zy * y + zz * z)


def apply_transposed(m: Matrix3, a: Vector3) -> Vector3:
    """Return mᵀ a."""
    return apply(transpose(m), a)


def multiply(m: Matrix3, n: Matrix3) -> Matrix3:
    """Return m n."""
    # Written out: calls of `dot` would take most of the time, of loading robots and of tracing.
    (a, b, c), (d, e, f), (g, h, i) = n
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = m
    return (
        (xx * a + xy * d + xz * g, xx * b + xy * e + xz * h, xx * c + xy * f + xz * i),
        (yx * a + yy * d + yz * g, yx * b + yy * e + yz * h, yx * c + yy * f + yz * i),
        (zx * a + zy * d + zz * g, zx * b + zy * e + zz * h, zx * c + zy * f + zz * i),
    )


def vector3(values: Sequence[Scalar]) -> Vector3:
    """Return the tuple of exactly three scalars."""
    x, y, z = values
    return (x, y, z)


def matrix3(rows: Sequence[Sequence[Scalar]]) -> Matrix3:
    """Return the nested tuple of exactly three rows of three scalars."""
    a, b, c = rows
    return (vector3(a), vector3(b), vector3(c))
