"""MuJoCo's soft constraints: how stiff, how damped and how heavy each is, from its `solref` and `solimp`.

The Computation chapter of MuJoCo's documentation (version 4.0) has the model: a constraint with the position r, the
velocity u and the acceleration a is a spring of unit mass, a = -b u - k r, that gives way by R times its force.
"""

from collections.abc import Sequence
from typing import NamedTuple

from adjoin.spatial.scalar import Scalar
from adjoin.trace import exp, log, maximum, minimum, select

LEAST = 1e-15  # MuJoCo's mjMINVAL
SOFTEST, HARDEST = 1e-4, 0.9999  # bounds of an impedance


class Softness(NamedTuple):
    """Of one constraint.

    Attributes:
        stiffness: k times the impedance, 1/s².
        damping: b, 1/s.
        regularization: R over the inverse of the constraint's inertia.
    """

    stiffness: Scalar
    damping: Scalar
    regularization: Scalar


def impedance(solimp: Sequence[Scalar], violation: Scalar) -> Scalar:
    """How much of a constraint is enforced, between 0 and 1, at a distance from where it begins to act, m or rad."""
    low, high, width, middle, power = solimp
    low, high, middle = (maximum(SOFTEST, minimum(HARDEST, x)) for x in (low, high, middle))
    x = abs(violation) / maximum(width, LEAST)
    x = minimum(x, 1.0)
    exponent = maximum(power, 1.0)
    if isinstance(exponent, float) and exponent == 2.0:
        rising, falling = x * x / middle, 1.0 - (1.0 - x) * (1.0 - x) / (1.0 - middle)
    else:
        rising = middle * _power(x / middle, exponent)
        falling = 1.0 - (1.0 - middle) * _power((1.0 - x) / (1.0 - middle), exponent)
    share = select(x <= middle, rising, falling)
    return low + share * (high - low)


def softness(solref: Sequence[Scalar], solimp: Sequence[Scalar], violation: Scalar, dt: float) -> Softness:
    """Of a constraint that is violated by so much.

    Args:
        solref: (time constant, damping ratio), or both negative: -(stiffness, damping).
        solimp: see `impedance`.
        violation: position minus margin, m or rad.
        dt: the time step; a time constant is at least twice as long.
    """
    enforced = impedance(solimp, violation)
    high = maximum(SOFTEST, minimum(HARDEST, solimp[1]))
    time, ratio = solref
    constant = maximum(time, 2.0 * dt)
    by_time = 1.0 / maximum(high * high * constant * constant * ratio * ratio, LEAST)
    by_number = -time / (high * high)
    damping = 2.0 / maximum(high * constant, LEAST)
    stiffness, damping = select(time > 0.0, by_time, by_number), select(ratio > 0.0, damping, -ratio / high)
    return Softness(stiffness * enforced, damping, (1.0 - enforced) / enforced)


def _power(x: Scalar, exponent: Scalar) -> Scalar:
    """x^exponent of an x that is not negative."""
    return select(x > 0.0, exp(exponent * log(maximum(x, 1e-30))), 0.0)
