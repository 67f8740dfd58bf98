"""Quaternions, rotations and poses of torch tensors: batched, broadcast, differentiable.

Quaternions are [w x y z] unless a name says xyzw; rotation vectors, angles and Euler angles are in rad. A pose is a
position (..., 3) and a quaternion (..., 4). The formulas are those that the kernels use, so that gradients are finite
at no rotation too.
"""

from collections.abc import Callable
from typing import Any

import torch

from adjoin.errors import InputError
from adjoin.spatial import motion, rotation, vector
from adjoin.spatial.angles import wrap

Pose = tuple[torch.Tensor, torch.Tensor]
"""A position (..., 3) and a quaternion [w x y z] (..., 4)."""

__all__ = [
    "axis_angle_to_quaternion",
    "euler_to_quaternion",
    "matrix_to_quaternion",
    "pose_between",
    "pose_compose",
    "pose_exp",
    "pose_inverse",
    "pose_log",
    "pose_to_matrix",
    "quaternion_conjugate",
    "quaternion_difference",
    "quaternion_exp",
    "quaternion_log",
    "quaternion_multiply",
    "quaternion_normalize",
    "quaternion_rotate",
    "quaternion_rotate_inverse",
    "quaternion_slerp",
    "quaternion_to_euler",
    "quaternion_to_matrix",
    "quaternion_yaw",
    "transform_points",
    "wrap_angle",
    "wxyz_to_xyzw",
    "xyzw_to_wxyz",
]


def quaternion_multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a b, the rotation b and then a, (..., 4)."""
    return _on_scalars(rotation.quaternion_multiply, ("a", a, 4), ("b", b, 4))


def quaternion_conjugate(q: torch.Tensor) -> torch.Tensor:
    """Return the inverse of a unit quaternion, (..., 4)."""
    return _on_scalars(rotation.quaternion_conjugate, ("q", q, 4))


def quaternion_normalize(q: torch.Tensor) -> torch.Tensor:
    """Return q / |q|, (..., 4)."""
    return _on_scalars(rotation.quaternion_normalize, ("q", q, 4))


def quaternion_exp(rotation_vector: torch.Tensor) -> torch.Tensor:
    """Return the quaternion of a rotation vector: axis times angle, (..., 3) to (..., 4)."""
    return _on_scalars(rotation.quaternion_exp, ("rotation_vector", rotation_vector, 3))


def quaternion_log(q: torch.Tensor) -> torch.Tensor:
    """Return the rotation vector of a quaternion, the short way round, (..., 4) to (..., 3)."""
    return _on_scalars(rotation.quaternion_log, ("q", q, 4))


def quaternion_difference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the rotation vector from a to b, in the axes of a, (..., 3)."""

    def between(a: Any, b: Any) -> Any:
        return rotation.quaternion_log(rotation.quaternion_multiply(rotation.quaternion_conjugate(a), b))

    return _on_scalars(between, ("a", a, 4), ("b", b, 4))


def quaternion_slerp(a: torch.Tensor, b: torch.Tensor, share: float | torch.Tensor) -> torch.Tensor:
    """Return the rotation a share of the way from a to b, at constant speed, the short way round, (..., 4).

    Args:
        a: at share 0, (..., 4).
        b: at share 1, (..., 4).
        share: a number, or (...).
    """
    share = share[..., None] if isinstance(share, torch.Tensor) else share
    return quaternion_multiply(a, quaternion_exp(share * quaternion_difference(a, b)))


def quaternion_rotate(q: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return vectors turned by unit quaternions: from the body's axes to the world's, (..., 3)."""

    def turned(q: Any, x: Any) -> Any:
        return vector.apply(rotation.from_quaternion(q), x)

    return _on_scalars(turned, ("q", q, 4), ("x", x, 3))


def quaternion_rotate_inverse(q: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return vectors turned back by unit quaternions: from the world's axes to the body's, (..., 3)."""

    def turned(q: Any, x: Any) -> Any:
        return vector.apply_transposed(rotation.from_quaternion(q), x)

    return _on_scalars(turned, ("q", q, 4), ("x", x, 3))


def quaternion_to_matrix(q: torch.Tensor) -> torch.Tensor:
    """Return the rotation matrix of a unit quaternion, (..., 4) to (..., 3, 3)."""
    flat = _on_scalars(lambda q: [x for row in rotation.from_quaternion(q) for x in row], ("q", q, 4))
    return flat.unflatten(-1, (3, 3))


def matrix_to_quaternion(matrix: torch.Tensor) -> torch.Tensor:
    """Return the unit quaternion of a rotation matrix, with w >= 0, (..., 3, 3) to (..., 4)."""
    if matrix.shape[-2:] != (3, 3):
        raise InputError(f"matrix has shape {tuple(matrix.shape)}; it must be (..., 3, 3)")

    def along(m: Any) -> Any:
        return rotation.quaternion_normalize(rotation.quaternion_along((m[0:3], m[3:6], m[6:9])))

    q = _on_scalars(along, ("matrix", matrix.flatten(-2), 9))
    return torch.where(q[..., :1] < 0.0, -q, q)


def axis_angle_to_quaternion(axis: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    """Return the quaternion of a turn about a unit axis, (..., 3) and (...) to (..., 4)."""
    return quaternion_exp(axis * angle[..., None])


def euler_to_quaternion(rpy: torch.Tensor) -> torch.Tensor:
    """Return the quaternion of roll, pitch and yaw as in URDF: about the fixed x, y and z axes in turn, (..., 3)."""
    (sr, sp, sy), (cr, cp, cy) = (f(0.5 * rpy).unbind(-1) for f in (torch.sin, torch.cos))
    w, x = cr * cp * cy + sr * sp * sy, sr * cp * cy - cr * sp * sy
    y, z = cr * sp * cy + sr * cp * sy, cr * cp * sy - sr * sp * cy
    return torch.stack([w, x, y, z], -1)


def quaternion_to_euler(q: torch.Tensor) -> torch.Tensor:
    """Return roll, pitch and yaw as in URDF of a unit quaternion, (..., 4) to (..., 3); pitch in [-pi/2, pi/2]."""
    m = quaternion_to_matrix(q)
    roll = torch.atan2(m[..., 2, 1], m[..., 2, 2])
    pitch = torch.atan2(-m[..., 2, 0], torch.hypot(m[..., 2, 1], m[..., 2, 2]))
    return torch.stack([roll, pitch, torch.atan2(m[..., 1, 0], m[..., 0, 0])], -1)


def quaternion_yaw(q: torch.Tensor) -> torch.Tensor:
    """Return the heading of a unit quaternion: the angle of its x axis in the horizontal plane, (..., 4) to (...)."""
    w, x, y, z = q.unbind(-1)
    return torch.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))


def wxyz_to_xyzw(q: torch.Tensor) -> torch.Tensor:
    """Return a quaternion in the order of Pinocchio, ROS and scipy, (..., 4)."""
    return q.roll(-1, -1)


def xyzw_to_wxyz(q: torch.Tensor) -> torch.Tensor:
    """Return a quaternion in the order used here and by MuJoCo, (..., 4)."""
    return q.roll(1, -1)


def wrap_angle(angle: torch.Tensor) -> torch.Tensor:
    """Return angles in [-pi, pi)."""
    return wrap(angle)


def pose_compose(a: Pose, b: Pose) -> Pose:
    """Return the pose b, which is given in the frame a, in the frame that a is given in."""
    return a[0] + quaternion_rotate(a[1], b[0]), quaternion_multiply(a[1], b[1])


def pose_inverse(a: Pose) -> Pose:
    """Return the pose of the frame that a is given in, in the frame a."""
    return -quaternion_rotate_inverse(a[1], a[0]), quaternion_conjugate(a[1])


def pose_between(a: Pose, b: Pose) -> Pose:
    """Return the pose b in the frame a: `pose_compose(a, pose_between(a, b))` is b."""
    return pose_compose(pose_inverse(a), b)


def transform_points(a: Pose, points: torch.Tensor) -> torch.Tensor:
    """Return points, which are given in the frame a, in the frame that a is given in, (..., 3)."""
    return a[0] + quaternion_rotate(a[1], points)


def pose_to_matrix(a: Pose) -> torch.Tensor:
    """Return the homogeneous matrix of a pose, (..., 4, 4)."""
    position, turn = torch.broadcast_tensors(a[0][..., None], quaternion_to_matrix(a[1]))
    top = torch.cat([turn, position[..., :1]], -1)
    last = top.new_tensor([0.0, 0.0, 0.0, 1.0]).expand(*top.shape[:-2], 1, 4)
    return torch.cat([top, last], -2)


def pose_exp(velocity: torch.Tensor) -> Pose:
    """Return the pose after unit time with a constant velocity [linear; angular] in the body's axes, (..., 6)."""

    def moved(x: Any) -> Any:
        turn, position = motion.se3_exp(tuple(x[3:]), tuple(x[:3]))
        return [*position, *turn]

    both = _on_scalars(moved, ("velocity", velocity, 6))
    return both[..., :3], both[..., 3:]


def pose_log(a: Pose) -> torch.Tensor:
    """Return the velocity [linear; angular] in the body's axes that leads to a pose in unit time, (..., 6)."""

    def back(position: Any, turn: Any) -> Any:
        angular, linear = motion.se3_log(turn, position)
        return [*linear, *angular]

    return _on_scalars(back, ("position", a[0], 3), ("quaternion", a[1], 4))


def _on_scalars(function: Callable[..., Any], *inputs: tuple[str, torch.Tensor, int]) -> torch.Tensor:
    """Return a function of scalars on tensors (..., n), whose last dimensions it takes apart."""
    for name, tensor, size in inputs:
        if not isinstance(tensor, torch.Tensor) or tensor.dim() == 0 or tensor.shape[-1] != size:
            got = tuple(tensor.shape) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise InputError(f"{name} must be a torch tensor (..., {size}), got {got}")
    batch = torch.broadcast_shapes(*(tensor.shape[:-1] for _, tensor, _ in inputs))
    results = function(*(tensor.unbind(-1) for _, tensor, _ in inputs))
    return torch.stack([x.expand(batch) for x in results], -1)
