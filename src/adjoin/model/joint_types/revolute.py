"""Joints that turn about an axis."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from adjoin.model.joint_types.base import JointType, joint_type
from adjoin.spatial.angles import wrap
from adjoin.spatial.motion import Spatial, Transform
from adjoin.spatial.rotation import from_axis_angle
from adjoin.spatial.scalar import Scalar, cos, sin
from adjoin.spatial.vector import ZERO

if TYPE_CHECKING:
    from adjoin.model.joint import Joint


@joint_type
class Revolute(JointType):
    """A turn about the axis; q is the angle."""

    name = "revolute"
    urdf = "revolute"
    urdf_needs_limit = True
    mjcf = "hinge"

    def transform(self, joint: "Joint", q: Sequence[Scalar]) -> Transform:
        return from_axis_angle(joint.axis, q[0]), ZERO

    def directions(self, joint: "Joint") -> tuple[Spatial, ...]:
        return ((joint.axis, ZERO),)

    def features(self, joint: "Joint", q: Sequence[Scalar]) -> list[Scalar]:
        return [sin(q[0]), cos(q[0])] if math.isinf(joint.lower) and math.isinf(joint.upper) else list(q)


@joint_type
class Continuous(Revolute):
    """A turn about the axis without limits: angles that differ by full turns are one configuration."""

    name = "continuous"
    wraps = True
    urdf = "continuous"
    urdf_needs_limit = False
    mjcf = None

    def difference(self, q0: Sequence[Scalar], q1: Sequence[Scalar]) -> list[Scalar]:
        return [wrap(q1[0] - q0[0])]

    def normalize(self, q: Sequence[Scalar]) -> list[Scalar]:
        return [wrap(q[0])]
