"""What particles are made of: elastic bodies, liquids, snow and sand.

A material turns the deformation of a step, as if it were elastic, into the Kirchhoff stress, the elastic deformation
that is left, and what it remembers of the rest. Snow yields where a principal stretch leaves a range and hardens as it
is compacted (Stomakhin et al., "A material point method for snow simulation", SIGGRAPH 2013). Sand yields where shear
exceeds friction (Klár et al., "Drucker-Prager elastoplasticity for sand animation", SIGGRAPH 2016, with the volume
correction of Tampubolon et al., 2017).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from adjoin.continuum.spectral import Spectrum
from adjoin.errors import InputError
from adjoin.trace import exp, log, maximum, minimum, select, sin, sqrt

YIELD = {"snow": ("compression", "stretch", "hardening"), "sand": ("friction_angle",)}
"""The numbers of each plastic material."""

MATERIALS = ("elastic", "neo_hookean", "liquid", *YIELD)
MEMORY = {"snow": 1.0, "sand": 0.0}
"""What plastic materials remember, at the start: the volume ratio of snow's plastic deformation; the logarithm of the
volume that sand has gained."""

PLASTIC_VOLUME = (0.6, 20.0)
"""Volume ratios of snow between which it hardens and softens, as in the code of Hu et al., 2018."""


@dataclass(frozen=True)
class ParticleMaterial:
    """A material of particles.

    Attributes:
        kind: "elastic" (fixed corotated), "neo_hookean", "liquid" (weakly compressible), "snow" or "sand".
        density: kg/m³, of a two-dimensional body kg/m².
        young: Young's modulus, Pa; of a liquid its bulk modulus.
        poisson: Poisson's ratio, at least 0 and less than 0.5.
        compression: of snow: how much a principal stretch may fall below 1 before it yields.
        stretch: of snow: how much it may exceed 1.
        hardening: of snow: the stiffness grows with exp(hardening · (1 - volume ratio)).
        friction_angle: of sand, rad: the steepest slope on which it rests.
    """

    kind: str = "neo_hookean"
    density: float = 1000.0
    young: float = 1e5
    poisson: float = 0.3
    compression: float = 2.5e-2
    stretch: float = 7.5e-3
    hardening: float = 10.0
    friction_angle: float = math.radians(35.0)

    def __post_init__(self):
        if self.kind not in MATERIALS:
            raise InputError(f"particles: no material {self.kind!r}; materials: {', '.join(MATERIALS)}")
        if not (self.density > 0 and self.young > 0 and 0 <= self.poisson < 0.5):
            raise InputError(
                f"particles: a physical material has density, young > 0 and 0 <= poisson < 0.5, got {self}"
            )
        if not (0 < self.compression < 1 and self.stretch > 0 and self.hardening >= 0):
            raise InputError(
                f"particles: snow has 0 < compression < 1, stretch > 0 and hardening >= 0, got {self.compression:g}, "
                f"{self.stretch:g} and {self.hardening:g}"
            )
        if not 0 < self.friction_angle < math.pi / 2:
            raise InputError(
                f"particles: the friction angle of sand is between 0 and π/2 rad, got {self.friction_angle:g}"
            )

    @property
    def lame(self) -> tuple[float, float]:
        """Return shear modulus and Lamé's first parameter."""
        if self.kind == "liquid":
            return 0.0, self.young
        shear = self.young / (2 * (1 + self.poisson))
        return shear, self.young * self.poisson / ((1 + self.poisson) * (1 - 2 * self.poisson))

    @property
    def plasticity(self) -> dict[str, float]:
        """Return the numbers that say when it yields, by name."""
        return {name: getattr(self, name) for name in YIELD.get(self.kind, ())}


def respond(kind: str, F: Any, shear: Any, first: Any, **rest: Any) -> tuple[Any, Any, Any]:
    """Return the Kirchhoff stress, the elastic deformation and the memory after a step.

    Args:
        kind: of the material.
        F: the deformation gradient if the step was elastic, (dim, dim).
        shear: modulus, Pa.
        first: Lamé's first parameter, Pa.
        rest: of plastic materials "memory" and the numbers of `YIELD`.
    """
    if kind == "snow":
        return _snow(F, shear, first, **rest)
    if kind == "sand":
        return _sand(F, shear, first, **rest)
    dim, eye = len(F), np.eye(len(F))
    J = determinant(F)
    if kind == "liquid":
        root = sqrt(J) if dim == 2 else J ** (1.0 / 3.0)
        sphere = np.array([[root if i == j else 0.0 for j in range(dim)] for i in range(dim)], dtype=object)
        return first * (J - 1.0) * J * eye, sphere, None
    if kind == "neo_hookean":
        return shear * (F @ F.T - eye) + first * log(J) * eye, F, None
    volume = first * (J - 1.0) * J * eye
    if dim == 2:  # the rotation of two dimensions is that of (F00 + F11, F10 - F01)
        a, b = F[0, 0] + F[1, 1], F[1, 0] - F[0, 1]
        inverse = 1.0 / sqrt(a * a + b * b)
        c, s = a * inverse, b * inverse
        rotation = np.array([[c, -s], [s, c]], dtype=object)
        return 2.0 * shear * ((F - rotation) @ F.T) + volume, F, None
    squared = F @ F.T
    spectrum = Spectrum(squared)
    s = [sqrt(value) for value in spectrum.values]
    stretched = spectrum.function(s, lambda i, j: 1.0 / (s[i] + s[j]))
    return 2.0 * shear * (squared - stretched) + volume, F, None


def _snow(
    F: Any, shear: Any, first: Any, memory: Any, compression: Any, stretch: Any, hardening: Any
) -> tuple[Any, Any, Any]:
    spectrum = Spectrum(F @ F.T)
    s = [sqrt(value) for value in spectrum.values]
    low, high = 1.0 - compression, 1.0 + stretch
    c = [minimum(maximum(one, low), high) for one in s]
    ratio = memory
    for before, after in zip(s, c, strict=True):
        ratio = ratio * (before / after)
    ratio = minimum(maximum(ratio, PLASTIC_VOLUME[0]), PLASTIC_VOLUME[1])
    harder = exp(hardening * (1.0 - ratio))
    J = math.prod(c, start=1.0)

    def between(i: int, j: int) -> Any:
        """Return the divided difference of the clamped stretches to the stretches."""
        apart = abs(s[i] - s[j]) > 1e-7
        inside = select((s[i] > low) & (s[i] < high), 1.0, 0.0)
        return select(apart, (c[i] - c[j]) / select(apart, s[i] - s[j], 1.0), inside)

    def stress_ratio(i: int, j: int) -> Any:
        return 2.0 * harder * shear * (c[i] + c[j] - 1.0) * between(i, j) / (s[i] + s[j])

    def elastic_ratio(i: int, j: int) -> Any:
        return (between(i, j) - c[j] / s[j]) / (s[i] * (s[i] + s[j]))

    pressure = first * (J - 1.0) * J
    stress = spectrum.function([harder * (2.0 * shear * (x - 1.0) * x + pressure) for x in c], stress_ratio)
    left = spectrum.function([after / before for before, after in zip(s, c, strict=True)], elastic_ratio)
    return stress, left @ F, ratio


def _sand(F: Any, shear: Any, first: Any, memory: Any, friction_angle: Any) -> tuple[Any, Any, Any]:
    dim = len(F)
    spectrum = Spectrum(F @ F.T)
    d = spectrum.values
    strain = [0.5 * log(value) for value in d]
    total = sum(strain) + memory
    mean = sum(strain) / dim
    shearing = [x - mean for x in strain]
    size = sqrt(sum(x * x for x in shearing) + 1e-30)
    sine = sin(friction_angle)
    slope = math.sqrt(2.0 / 3.0) * 2.0 * sine / (3.0 - sine)
    allowed = -slope * (dim * first + 2.0 * shear) / (2.0 * shear) * total
    scale = minimum(maximum(allowed / size, 0.0), 1.0)  # of the shear that friction holds
    closed = minimum(total, 0.0)  # what is pulled apart has no stress
    after = [closed / dim + scale * x for x in shearing]
    change = [new - old for new, old in zip(after, strain, strict=True)]

    def strain_ratio(i: int, j: int) -> Any:
        both = d[i] + d[j]
        r = (d[i] - d[j]) / both
        apart, square = abs(r) > 0.03, r * r
        series = (1.0 + square * (1 / 3 + square * (1 / 5 + square * (1 / 7 + square / 9)))) / both
        return select(apart, (strain[i] - strain[j]) / select(apart, d[i] - d[j], 1.0), series)

    def elastic_ratio(i: int, j: int) -> Any:
        half = 0.5 * (change[i] - change[j])
        apart, square = abs(half) > 0.1, half * half
        series = 1.0 + square * (1 / 6 + square * (1 / 120 + square / 5040))
        sinh = (exp(half) - exp(-half)) / select(apart, 2.0 * half, 1.0)
        middle = exp(0.5 * (change[i] + change[j]))
        return middle * select(apart, sinh, series) * (scale - 1.0) * strain_ratio(i, j)

    stresses = [2.0 * shear * x + first * closed for x in after]
    stress = spectrum.function(stresses, lambda i, j: 2.0 * shear * scale * strain_ratio(i, j))
    left = spectrum.function([exp(x) for x in change], elastic_ratio)
    return stress, left @ F, maximum(total, 0.0)


def determinant(F: Any) -> Any:
    """Return the determinant of a matrix (2, 2) or (3, 3)."""
    if len(F) == 2:
        return F[0, 0] * F[1, 1] - F[0, 1] * F[1, 0]
    return (
        F[0, 0] * (F[1, 1] * F[2, 2] - F[1, 2] * F[2, 1])
        - F[0, 1] * (F[1, 0] * F[2, 2] - F[1, 2] * F[2, 0])
        + F[0, 2] * (F[1, 0] * F[2, 1] - F[1, 1] * F[2, 0])
    )
