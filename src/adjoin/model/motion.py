"""How joints move, over any scalar: the transform across a joint, and the directions it can move in."""

from collections.abc import Sequence

from adjoin.model.joint import Joint, Vec3
from adjoin.spatial.motion import Spatial, Transform
from adjoin.spatial.rotation import from_axis_angle, from_quaternion
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import IDENTITY, ZERO, add, scale, vector3

_AXES: tuple[Vec3, Vec3, Vec3] = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def joint_transform(joint: Joint, q: Sequence[Scalar]) -> Transform:
    """Where the body's frame is in the joint's placement.

    Args:
        joint: any joint.
        q: the joint's own coordinates, `NQ[kind]` scalars; quaternions of unit length, which is not checked.
    """
    if joint.kind in ("revolute", "continuous"):
        return from_axis_angle(joint.axis, q[0]), ZERO
    if joint.kind == "prismatic":
        return IDENTITY, scale(q[0], joint.axis)
    if joint.kind == "planar":
        along, across = plane_axes(joint.axis)
        return from_axis_angle(joint.axis, q[2]), add(scale(q[0], along), scale(q[1], across))
    w, x, y, z = q[-4:]
    return from_quaternion((w, x, y, z)), vector3(q[:3]) if joint.kind == "free" else ZERO


def joint_directions(joint: Joint) -> tuple[Spatial, ...]:
    """The motion subspace: one spatial motion (angular, linear) per number of v, constant in the body's frame."""
    if joint.kind in ("revolute", "continuous"):
        return ((joint.axis, ZERO),)
    if joint.kind == "prismatic":
        return ((ZERO, joint.axis),)
    if joint.kind == "planar":
        along, across = plane_axes(joint.axis)
        return ((ZERO, along), (ZERO, across), (joint.axis, ZERO))
    turning = tuple((axis, ZERO) for axis in _AXES)
    return turning if joint.kind == "ball" else (*((ZERO, axis) for axis in _AXES), *turning)


def plane_axes(normal: Vec3) -> tuple[Vec3, Vec3]:
    """The directions of a planar joint's x and y: the joint's own x and y axes if the normal is its z axis.

    For another normal they come from the shortest turn that takes z to it; (0, 0, -1) turns about x.
    """
    x, y, z = normal
    if z < -1.0 + 1e-12:
        return (1.0, 0.0, 0.0), (0.0, -1.0, 0.0)
    k = 1.0 / (1.0 + z)
    return (1.0 - k * x * x, -k * x * y, -x), (-k * x * y, 1.0 - k * y * y, -y)
