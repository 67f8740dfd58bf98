"""Tendons: combinations of joints, and strings that run over points, pulleys, spheres and cylinders."""

import math
from dataclasses import dataclass
from typing import Literal

from adjoin.model.joint import Mat3, Vec3
from adjoin.spatial.vector import IDENTITY, ZERO


@dataclass(frozen=True)
class Waypoint:
    """A part of a tendon's path.

    Attributes:
        kind: "joint": the tendon's length is a sum of coordinates; "site": a point; "pulley": what follows counts
            divided by a factor; "sphere" and "cylinder": the tendon runs around it, from the point before to the next.
        name: of the joint, or of the frame that a point or a shape is on.
        factor: of a joint, its share; of a pulley, the divisor.
        position: of a point or shape in its frame, m.
        rotation: of a shape in its frame; the axis of a cylinder is its z.
        radius: of a shape, m.
        side: name of the frame on the side that the tendon passes; "" for the shorter way.
        inside: 1 if the tendon runs through the shape as through a ring, else 0.
    """

    kind: Literal["joint", "site", "pulley", "sphere", "cylinder"]
    name: str = ""
    factor: float = 1.0
    position: Vec3 = ZERO
    rotation: Mat3 = IDENTITY
    radius: float = 0.0
    side: str = ""
    inside: int = 0


@dataclass(frozen=True)
class Tendon:
    """A length that depends on the configuration, with a spring, damping, limits and friction of its own.

    Attributes:
        name: unique among the tendons.
        path: all of kind "joint", or none.
        stiffness: N/m; the spring acts outside of `spring_length`.
        damping: N s/m.
        friction: dry friction, N.
        spring_length: least and greatest length at which the spring rests, m.
        lower: the least length, m; -inf if there is none.
        upper: the greatest length, m; inf if there is none.
        effort_range: least and greatest sum of the forces of its actuators, N.
        margin: distance from a limit below which it acts in MuJoCo's soft model, m.
        limit_solref: MuJoCo's (time constant s, damping ratio) of its limits.
        limit_solimp: MuJoCo's impedance of its limits.
        friction_solref: the same of its dry friction.
        friction_solimp: the same of its dry friction.
        inverse_weight: MuJoCo's `tendon_invweight0`: how light it is in the initial configuration, 1/kg; 0: computed.
    """

    name: str
    path: tuple[Waypoint, ...]
    stiffness: float = 0.0
    damping: float = 0.0
    friction: float = 0.0
    spring_length: tuple[float, float] = (0.0, 0.0)
    lower: float = -math.inf
    upper: float = math.inf
    effort_range: tuple[float, float] = (-math.inf, math.inf)
    margin: float = 0.0
    limit_solref: tuple[float, float] = (0.02, 1.0)
    limit_solimp: tuple[float, float, float, float, float] = (0.9, 0.95, 0.001, 0.5, 2.0)
    friction_solref: tuple[float, float] = (0.02, 1.0)
    friction_solimp: tuple[float, float, float, float, float] = (0.9, 0.95, 0.001, 0.5, 2.0)
    inverse_weight: float = 0.0
