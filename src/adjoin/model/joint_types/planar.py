"""Joints that move in a plane."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from adjoin.model.joint_types.base import JointType, LocalMotion, Sampler, joint_type
from adjoin.spatial import vector
from adjoin.spatial.angles import cosc, cotc, sinc, wrap
from adjoin.spatial.motion import Spatial, Transform, se3_log_slopes
from adjoin.spatial.rotation import from_axis_angle
from adjoin.spatial.scalar import Scalar, cos, sin
from adjoin.spatial.vector import ZERO, Matrix3, Vector3

if TYPE_CHECKING:
    from adjoin.model.joint import Joint


@joint_type
class Planar(JointType):
    """A motion in the plane across the axis, along SE(2): with a constant v the path is a circle."""

    name = "planar"
    neutral = (0.0, 0.0, 0.0)
    units = ("m", "m", "rad")
    additive = False
    wraps = True
    limited = None
    q_names = ("x", "y", "angle")
    v_names = ("vx", "vy", "w")
    slider_names = ("x", "y", "angle")
    urdf = "planar"

    def transform(self, joint: "Joint", q: Sequence[Scalar]) -> Transform:
        along, across = plane_axes(joint.axis)
        position = vector.add(vector.scale(q[0], along), vector.scale(q[1], across))
        return from_axis_angle(joint.axis, q[2]), position

    def directions(self, joint: "Joint") -> tuple[Spatial, ...]:
        along, across = plane_axes(joint.axis)
        return ((ZERO, along), (ZERO, across), (joint.axis, ZERO))

    def integrate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
        x, y, angle = q
        vx, vy, rate = v
        along, across = sinc(rate * rate), rate * cosc(rate * rate)
        dx, dy = along * vx - across * vy, across * vx + along * vy
        c, s = cos(angle), sin(angle)
        return [x + c * dx - s * dy, y + s * dx + c * dy, angle + rate]

    def rate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
        c, s = cos(q[2]), sin(q[2])
        return [c * v[0] - s * v[1], s * v[0] + c * v[1], v[2]]

    def difference(self, q0: Sequence[Scalar], q1: Sequence[Scalar]) -> list[Scalar]:
        rate = wrap(q1[2] - q0[2])
        c, s = cos(q0[2]), sin(q0[2])
        dx, dy = q1[0] - q0[0], q1[1] - q0[1]
        x, y = c * dx + s * dy, c * dy - s * dx
        half = 0.5 * rate
        along = 1.0 - half * half * cotc(half * half)
        return [along * x + half * y, along * y - half * x, rate]

    def difference_slopes(self, q0: Sequence[Scalar], q1: Sequence[Scalar]) -> list[list[Scalar]]:
        # A planar joint is a free one that stays in its plane.
        rate = self.difference(q0, q1)[2]
        dx, dy, c, s = q1[0] - q0[0], q1[1] - q0[1], cos(q0[2]), sin(q0[2])
        slopes = se3_log_slopes((0.0, 0.0, rate), (c * dx + s * dy, c * dy - s * dx, 0.0))
        columns = [[*linear[:2], angular[2]] for linear, angular in (slopes[0], slopes[1], slopes[5])]
        return [list(row) for row in zip(*columns, strict=True)]

    def normalize(self, q: Sequence[Scalar]) -> list[Scalar]:
        return [q[0], q[1], wrap(q[2])]

    def drift(self, v: Sequence[Scalar]) -> list[Scalar]:
        return [*vector.cross((v[0], v[1], 0.0), (0.0, 0.0, v[2]))[:2], 0.0]

    def advance(self, q: Sequence[Scalar], v: Sequence[Scalar], dt: Scalar) -> tuple[list[Scalar], list[Scalar]]:
        path = vector.apply(_about_z(q[2]), (dt * v[0], dt * v[1], 0.0))
        velocity = vector.apply_transposed(_about_z(dt * v[2]), (v[0], v[1], 0.0))[:2]
        return [q[0] + path[0], q[1] + path[1], q[2] + dt * v[2]], [*velocity, v[2]]

    def turned(self, q0: Sequence[Scalar], q1: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
        return [*vector.apply(_about_z(q0[2] - q1[2]), (v[0], v[1], 0.0))[:2], v[2]]

    def sample(self, joint: "Joint", lower: Sequence[float], upper: Sequence[float], sampler: Sampler) -> torch.Tensor:
        return torch.cat([sampler.uniform(-1.0, 1.0, 2), sampler.uniform(-math.pi, math.pi)], -1)

    def local_coordinates(self, center: Sequence[Scalar], q: Sequence[Scalar]) -> list[Scalar]:
        return [q[0] - center[0], q[1] - center[1], wrap(q[2] - center[2])]

    def local_motion(
        self, center: torch.Tensor, value: torch.Tensor, rate: torch.Tensor, second: torch.Tensor
    ) -> LocalMotion:
        angle, spin, spin_rate = (x[..., 2] for x in (center + value, rate, second))
        c, s = angle.cos(), angle.sin()

        def turned(x: torch.Tensor) -> torch.Tensor:
            return torch.stack([c * x[..., 0] + s * x[..., 1], c * x[..., 1] - s * x[..., 0]], -1)

        v, a = turned(rate), turned(second)
        a = a + spin[..., None] * torch.stack([v[..., 1], -v[..., 0]], -1)
        return center + value, torch.cat([v, spin[..., None]], -1), torch.cat([a, spin_rate[..., None]], -1)

    def features(self, joint: "Joint", q: Sequence[Scalar]) -> list[Scalar]:
        return [sin(q[2]), cos(q[2])]


def plane_axes(normal: Vector3) -> tuple[Vector3, Vector3]:
    """Return the directions of a planar joint's x and y: the joint's own x and y axes if the normal is its z axis.

    For another normal they come from the shortest turn that takes z to it; (0, 0, -1) turns about x.
    """
    x, y, z = normal
    if z < -1.0 + 1e-12:
        return (1.0, 0.0, 0.0), (0.0, -1.0, 0.0)
    k = 1.0 / (1.0 + z)
    return (1.0 - k * x * x, -k * x * y, -x), (-k * x * y, 1.0 - k * y * y, -y)


def _about_z(angle: Scalar) -> Matrix3:
    c, s = cos(angle), sin(angle)
    return ((c, -s, 0.0), (s, c, 0.0), (0.0, 0.0, 1.0))
