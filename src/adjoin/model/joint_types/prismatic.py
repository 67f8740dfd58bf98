"""Joints that slide along an axis."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from adjoin.model.joint_types.base import JointType, joint_type
from adjoin.spatial.motion import Spatial, Transform
from adjoin.spatial.rotation import IDENTITY_QUATERNION, Quaternion
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import IDENTITY, ZERO, scale

if TYPE_CHECKING:
    from adjoin.model.joint import Joint


@joint_type
class Prismatic(JointType):
    """A displacement along the axis; q is the distance."""

    name = "prismatic"
    units = ("m",)
    urdf = "prismatic"
    urdf_needs_limit = True
    mjcf = "slide"

    def transform(self, joint: "Joint", q: Sequence[Scalar]) -> Transform:
        return IDENTITY, scale(q[0], joint.axis)

    def directions(self, joint: "Joint") -> tuple[Spatial, ...]:
        return ((ZERO, joint.axis),)

    def quaternion(self, joint: "Joint", q: Sequence[Scalar]) -> Quaternion:
        return IDENTITY_QUATERNION
