"""MuJoCo's muscles: force from length, speed and activation (its documentation, Modeling, "Muscle actuators").

The constants are those of MuJoCo: range (2), force, scale, lmin, lmax, vmax, fpmax, fvmax, then the least and greatest
length of the tendon, and the acceleration `acc0` that a unit of force gives.
"""

from collections.abc import Sequence
from typing import NamedTuple

from adjoin.spatial.scalar import Scalar
from adjoin.trace import maximum, minimum, select

LEAST = 1e-15


class Normalized(NamedTuple):
    """A muscle's constants.

    Attributes:
        force: the greatest active force, N.
        optimum: the length at which it is reached, m.
        length: over the optimum, of the tendon now.
    """

    force: float
    optimum: float
    length: Scalar


def _normalized(length: Scalar, constants: Sequence[float]) -> Normalized:
    low, high, force, scale = constants[:4]
    shortest, longest, acceleration = constants[9:12]
    force = scale / max(LEAST, acceleration) if force < 0.0 else force
    optimum = (longest - shortest) / max(LEAST, high - low)
    return Normalized(force, optimum, low + (length - shortest) / max(LEAST, optimum))


def muscle_gain(length: Scalar, rate: Scalar, constants: Sequence[float]) -> tuple[Scalar, Scalar]:
    """Return the active force per activation, which pulls, and its derivative to the rate."""
    force, optimum, place = _normalized(length, constants)
    least, greatest, fastest, peak = constants[4], constants[5], constants[6], constants[8]
    speed = max(LEAST, optimum * fastest)
    fast = rate / speed
    by_length = _bell(place, least, greatest)
    over = peak - 1.0
    rising = maximum(fast + 1.0, 0.0)
    left = maximum(over - fast, 0.0)
    by_speed = select(fast <= 0.0, rising * rising, peak - left * left / max(LEAST, over))
    slope = select(fast <= 0.0, 2.0 * rising, 2.0 * left / max(LEAST, over))
    return -force * by_length * by_speed, -force * by_length * slope / speed


def _bell(place: Scalar, least: float, greatest: float) -> Scalar:
    """Return the active force over the greatest, at a normalized length: four parabolas around 1."""
    low, high = 0.5 * (least + 1.0), 0.5 * (1.0 + greatest)
    shares = [
        (place - least) / max(LEAST, low - least),
        (1.0 - place) / max(LEAST, 1.0 - low),
        (place - 1.0) / max(LEAST, high - 1.0),
        (greatest - place) / max(LEAST, greatest - high),
    ]
    begin, before, after, end = (0.5 * x * x for x in shares)
    value = select(place <= 1.0, select(place <= low, begin, 1.0 - before), select(place <= high, 1.0 - after, end))
    return select((place < least) | (place > greatest), 0.0, value)


def muscle_bias(length: Scalar, constants: Sequence[float]) -> Scalar:
    """Return the passive force, which pulls where the muscle is stretched."""
    force, _, place = _normalized(length, constants)
    greatest, passive = constants[5], constants[7]
    half = max(LEAST, 0.5 * (1.0 + greatest) - 1.0)
    over = maximum((place - 1.0) / half, 0.0)
    return -force * passive * select(over <= 1.0, 0.5 * over * over, over - 0.5)


def activation_rate(control: Scalar, activation: Scalar, constants: Sequence[Scalar]) -> Scalar:
    """Return how fast the activation of a muscle follows its control (Millard et al. 2013)."""
    control = maximum(minimum(control, 1.0), 0.0)
    scale = 0.5 + 1.5 * maximum(minimum(activation, 1.0), 0.0)
    up, down, width = constants[0] * scale, constants[1] / scale, constants[2]
    excess = control - activation
    x = maximum(minimum(excess / maximum(width, LEAST) + 0.5, 1.0), 0.0)
    smooth = down + (up - down) * (x * x * x * (3.0 * x * (2.0 * x - 5.0) + 10.0))
    constant = select(width < LEAST, select(excess > 0.0, up, down), smooth)
    return excess / maximum(constant, LEAST)
