"""Functions of an angle that are 0/0 at zero, written so that values and gradients of every order stay finite there.

Each takes the square of the angle, which is what a rotation vector gives without a root. Below `SMALL` a Taylor
polynomial is used (its error is under 1e-17), above it the closed form, on an argument that a `select` keeps away from
zero: an unused branch must not poison the gradient.
"""

from collections.abc import Sequence

from adjoin.spatial.scalar import Scalar, atan2, cos, floor, select, sin, sqrt

SMALL = 0.25
PI = 3.141592653589793

_COS = (1.0, -1 / 2, 1 / 24, -1 / 720, 1 / 40320, -1 / 3628800, 1 / 479001600, -1 / 87178291200, 1 / 20922789888000)
_SINC = tuple(c / (2 * k + 1) for k, c in enumerate(_COS))
_COSC = tuple(-c for c in _COS[1:])
_SINCC = tuple(-s for s in _SINC[1:])
# (1 - x cot x) / x^2 = sum of 2^(2k+2) |B_(2k+2)| / (2k+2)! x^2k
_COTC = (
    1 / 3,
    1 / 45,
    2 / 945,
    1 / 4725,
    2 / 93555,
    1382 / 638512875,
    4 / 18243225,
    3617 / 162820783125,
    87734 / 38979295480125,
    349222 / 1531329465290625,
    310732 / 13447856940643125,
    472728182 / 201919571963756521875,
)
_ATAN = tuple((-1.0) ** k / (2 * k + 1) for k in range(18))


def polynomial(coefficients: Sequence[float], x: Scalar) -> Scalar:
    """Return sum of coefficients[k] x^k, by Horner's rule."""
    value: Scalar = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        value = value * x + c
    return value


def _away_from_zero(square: Scalar, small: Scalar) -> Scalar:
    return sqrt(select(small, 1.0, square))


def cosine(square: Scalar) -> Scalar:
    """Return cos(x), given x^2."""
    small = square < SMALL
    return select(small, polynomial(_COS, square), cos(_away_from_zero(square, small)))


def sinc(square: Scalar) -> Scalar:
    """Return sin(x) / x, given x^2."""
    small = square < SMALL
    x = _away_from_zero(square, small)
    return select(small, polynomial(_SINC, square), sin(x) / x)


def cosc(square: Scalar) -> Scalar:
    """Return (1 - cos(x)) / x^2, given x^2."""
    small = square < SMALL
    x = _away_from_zero(square, small)
    half = sin(0.5 * x) / x
    return select(small, polynomial(_COSC, square), 2.0 * half * half)


def sincc(square: Scalar) -> Scalar:
    """Return (x - sin(x)) / x^3, given x^2."""
    small = square < SMALL
    x = _away_from_zero(square, small)
    return select(small, polynomial(_SINCC, square), (x - sin(x)) / (x * x * x))


def cotc(square: Scalar) -> Scalar:
    """Return (1 - x cot(x)) / x^2, given x^2; |x| < pi."""
    small = square < SMALL
    x = _away_from_zero(square, small)
    return select(small, polynomial(_COTC, square), (1.0 - x * cos(x) / sin(x)) / (x * x))


def cotc_slope(square: Scalar) -> Scalar:
    """Return the derivative of `cotc` to x^2."""
    small = square < SMALL
    value = cotc(square)
    closed = (1.0 - 3.0 * value + square * value * value) / select(small, 1.0, 2.0 * square)
    return select(small, polynomial([k * c for k, c in enumerate(_COTC)][1:], square), closed)


def angle_over_sine(sine_squared: Scalar, cosine_: Scalar) -> Scalar:
    """Return x / (r sin x) for the angle x in [0, pi/2], given (r sin x)^2 and r cos x with some r > 0.

    It turns the vector part of a quaternion of any norm r into half a rotation vector.
    """
    small = sine_squared < 0.1 * cosine_ * cosine_
    safe_cosine = select(small, cosine_, 1.0)
    tangent_squared = select(small, sine_squared / (safe_cosine * safe_cosine), 0.0)
    sine = sqrt(select(small, 1.0, sine_squared))
    return select(small, polynomial(_ATAN, tangent_squared) / safe_cosine, atan2(sine, cosine_) / sine)


def wrap(angle: Scalar) -> Scalar:
    """Return the same angle in [-pi, pi)."""
    return angle - 2 * PI * floor((angle + PI) / (2 * PI))
