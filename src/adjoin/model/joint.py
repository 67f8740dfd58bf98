"""Joints: how a body moves against its parent. What depends on the kind of joint is in `joint_types`."""

import math
from dataclasses import dataclass

from adjoin.errors import ModelError
from adjoin.model.joint_types import JOINT_TYPES, JointType
from adjoin.spatial.vector import ZERO

Vec3 = tuple[float, float, float]
Mat3 = tuple[Vec3, Vec3, Vec3]


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

    Attributes:
        name: unique among the joints.
        kind: name of its type, a key of `JOINT_TYPES`: revolute, continuous, prismatic, ball, planar or free.
        axis: unit vector in the joint's frame: of rotation, of sliding, or across the plane. Not used by ball and free.
        lower: least q of a one-dimensional joint, rad or m; -inf if there is none.
        upper: greatest q of a one-dimensional joint; of a ball joint, the greatest angle from its neutral pose, rad.
        velocity_limit: rad/s or m/s.
        effort_limit: the greatest sum of the forces of its actuators, N m or N.
        motor_carries_weight: 1 if gravity compensation counts as a force of its actuators.
        lopsided_effort: least and greatest such sum, where they are not alike; none where they are.
        damping: N m s/rad or N s/m, per degree of freedom.
        friction: dry friction, N m or N, per degree of freedom.
        armature: inertia of the drive seen at the joint, kg m^2 or kg, per degree of freedom.
        stiffness: of a spring toward `spring_reference`, N m/rad or N/m, per degree of freedom.
        spring_reference: the q at which the spring rests, `type.nq` entries.
        mimic: the joint that this one follows, if any; it then has no coordinates of its own.
        constants: further numbers of some types of joints, as `type.constants` names them.
        limit_margin: distance from a limit below which it acts in MuJoCo's soft model, rad or m.
        limit_solref: MuJoCo's (time constant s, damping ratio) of its limits.
        limit_solimp: MuJoCo's impedance of its limits.
        friction_solref: the same of its dry friction.
        friction_solimp: the same of its dry friction.
    """

    name: str
    kind: str
    axis: Vec3 = (0.0, 0.0, 1.0)
    lower: float = -math.inf
    upper: float = math.inf
    velocity_limit: float = math.inf
    effort_limit: float = math.inf
    motor_carries_weight: int = 0
    lopsided_effort: tuple[float, ...] = ()
    damping: tuple[float, ...] = ()
    friction: tuple[float, ...] = ()
    armature: tuple[float, ...] = ()
    stiffness: tuple[float, ...] = ()
    spring_reference: tuple[float, ...] = ()
    mimic: Mimic | None = None
    constants: tuple[float, ...] = ()
    limit_margin: float = 0.0
    limit_solref: tuple[float, float] = (0.02, 1.0)
    limit_solimp: tuple[float, float, float, float, float] = (0.9, 0.95, 0.001, 0.5, 2.0)
    friction_solref: tuple[float, float] = (0.02, 1.0)
    friction_solimp: tuple[float, float, float, float, float] = (0.9, 0.95, 0.001, 0.5, 2.0)

    def __post_init__(self):
        if self.kind not in JOINT_TYPES:
            raise ModelError(f"joint {self.name!r}: kind {self.kind!r} is not one of {', '.join(sorted(JOINT_TYPES))}")
        if not (self.damping and self.friction and self.armature and self.stiffness):
            for field in ("damping", "friction", "armature", "stiffness"):
                if not getattr(self, field):
                    object.__setattr__(self, field, (0.0,) * self.type.nv)
        if not self.spring_reference:
            object.__setattr__(self, "spring_reference", self.type.neutral)

    @property
    def type(self) -> JointType:
        """Return what joints of this kind have in common: sizes, motion, limits."""
        return JOINT_TYPES[self.kind]

    @property
    def effort_range(self) -> tuple[float, float]:
        """Return the least and the greatest force that its actuators may add up to, N m or N."""
        least, greatest = self.lopsided_effort or (-self.effort_limit, self.effort_limit)
        return least, greatest

    @property
    def turns_about_axis(self) -> bool:
        """Return whether the body turns about the axis through its origin, and moves in no other way."""
        return self.type.directions(self) == ((self.axis, ZERO),)

    @property
    def nq(self) -> int:
        """Return numbers of q this joint has of its own: none if it mimics another."""
        return 0 if self.mimic else self.type.nq

    @property
    def nv(self) -> int:
        """Return degrees of freedom this joint has of its own: none if it mimics another."""
        return 0 if self.mimic else self.type.nv


@dataclass(frozen=True)
class JointCoordinates:
    """Where a joint finds its numbers: its q is multiplier * q[q_slice] + offset, its v is multiplier * v[v_slice].

    Attributes:
        leader: index of the body whose joint has the coordinates: the body itself, unless its joint mimics another.
        q_slice: the leader's part of q.
        v_slice: the leader's part of v.
        multiplier: 1 unless the joint mimics another.
        offset: 0 unless the joint mimics another.
    """

    leader: int
    q_slice: slice
    v_slice: slice
    multiplier: float
    offset: float

    @property
    def q(self) -> int:
        """Return where the leader's part of q begins."""
        return self.q_slice.start

    @property
    def v(self) -> int:
        """Return where the leader's part of v begins."""
        return self.v_slice.start
