"""Joints: what each kind adds to the configuration q and the velocity v of a robot.

| kind | q | v |
|---|---|---|
| revolute | angle about the axis, rad | rad/s |
| continuous | the same without limits; `difference` takes the short way round | rad/s |
| prismatic | displacement along the axis, m | m/s |
| ball | quaternion [w x y z] | angular velocity in the body's frame |
| planar | [x y, angle] in the plane across the axis | [vx vy, angular rate], velocity in the body's frame |
| free | [x y z, qw qx qy qz] | [linear; angular], both in the body's frame |

A continuous joint is a plain angle, not (cos, sin) as in Pinocchio: the same numbers as a revolute joint, one per
degree of freedom, and nothing to normalize. (cos q, sin q) is the mapping.
"""

import math
from dataclasses import dataclass
from typing import Literal

Vec3 = tuple[float, float, float]
Mat3 = tuple[Vec3, Vec3, Vec3]

JointKind = Literal["revolute", "continuous", "prismatic", "ball", "planar", "free"]

NQ: dict[str, int] = {"revolute": 1, "continuous": 1, "prismatic": 1, "ball": 4, "planar": 3, "free": 7}
"""How many numbers of q a joint of each kind takes."""

NV: dict[str, int] = {"revolute": 1, "continuous": 1, "prismatic": 1, "ball": 3, "planar": 3, "free": 6}
"""How many numbers of v a joint of each kind takes: its degrees of freedom."""

NEUTRAL: dict[str, tuple[float, ...]] = {
    "revolute": (0.0,),
    "continuous": (0.0,),
    "prismatic": (0.0,),
    "ball": (1.0, 0.0, 0.0, 0.0),
    "planar": (0.0, 0.0, 0.0),
    "free": (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0),
}
"""The part of q where a joint of each kind is at rest in its placement."""


@dataclass(frozen=True)
class Mimic:
    """A joint that follows another one: q = multiplier * q_other + offset.

    Attributes:
        joint: name of the joint that leads.
        multiplier: the ratio of the two.
        offset: rad or m.
    """

    joint: str
    multiplier: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True)
class Joint:
    """How a body moves against its parent.

    Numbers given per degree of freedom have `NV[kind]` entries.

    Attributes:
        name: unique among the joints.
        kind: one of the kinds above.
        axis: unit vector in the joint's frame: of rotation, of sliding, or across the plane. Not used by ball and free.
        lower: least q of a one-dimensional joint, rad or m; -inf if there is none.
        upper: greatest q of a one-dimensional joint; of a ball joint, the greatest angle from its neutral pose, rad.
        velocity_limit: rad/s or m/s.
        effort_limit: N m or N.
        damping: N m s/rad or N s/m, per degree of freedom.
        friction: dry friction, N m or N, per degree of freedom.
        armature: inertia of the drive seen at the joint, kg m^2 or kg, per degree of freedom.
        stiffness: of a spring toward `spring_reference`, N m/rad or N/m, per degree of freedom.
        spring_reference: the q at which the spring rests, `NQ[kind]` entries.
        mimic: the joint that this one follows, if any; it then has no coordinates of its own.
    """

    name: str
    kind: JointKind
    axis: Vec3 = (0.0, 0.0, 1.0)
    lower: float = -math.inf
    upper: float = math.inf
    velocity_limit: float = math.inf
    effort_limit: float = math.inf
    damping: tuple[float, ...] = ()
    friction: tuple[float, ...] = ()
    armature: tuple[float, ...] = ()
    stiffness: tuple[float, ...] = ()
    spring_reference: tuple[float, ...] = ()
    mimic: Mimic | None = None

    def __post_init__(self):
        nv = NV.get(self.kind, 0)
        for field in ("damping", "friction", "armature", "stiffness"):
            if not getattr(self, field):
                object.__setattr__(self, field, (0.0,) * nv)
        if not self.spring_reference:
            object.__setattr__(self, "spring_reference", NEUTRAL.get(self.kind, ()))

    @property
    def nq(self) -> int:
        """Numbers of q this joint has of its own: none if it mimics another."""
        return 0 if self.mimic else NQ[self.kind]

    @property
    def nv(self) -> int:
        """Degrees of freedom this joint has of its own: none if it mimics another."""
        return 0 if self.mimic else NV[self.kind]
