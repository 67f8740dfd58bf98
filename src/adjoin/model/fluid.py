"""A medium that bodies move in, and what of them it acts on."""

from dataclasses import dataclass

from adjoin.model.joint import Mat3, Vec3
from adjoin.spatial.vector import IDENTITY, ZERO


@dataclass(frozen=True)
class FluidShape:
    """A box or an ellipsoid that a medium acts on, as in MuJoCo's two models of fluid forces.

    Attributes:
        frame: name of the frame that it is on.
        position: of its center in the frame, m.
        rotation: x_frame = rotation x_shape + position.
        size: the edges of a box; the half axes of an ellipsoid, m.
        coefficients: of an ellipsoid, MuJoCo's 12: interaction, blunt drag, slender drag, angular drag, Kutta lift,
            Magnus lift, virtual mass (3), virtual inertia (3); none for a box.
    """

    frame: str
    position: Vec3 = ZERO
    rotation: Mat3 = IDENTITY
    size: Vec3 = ZERO
    coefficients: tuple[float, ...] = ()


@dataclass(frozen=True)
class Medium:
    """A medium.

    Attributes:
        density: kg/m³.
        viscosity: Pa s.
        wind: its velocity in world axes, m/s.
        shapes: what it acts on.
    """

    density: float = 0.0
    viscosity: float = 0.0
    wind: Vec3 = ZERO
    shapes: tuple[FluidShape, ...] = ()


VACUUM = Medium()
