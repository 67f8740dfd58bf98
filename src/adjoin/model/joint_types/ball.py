"""Joints whose q has a quaternion: those that turn about any axis, and those that also move freely."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from adjoin.model.joint_types.base import JointType, LocalMotion, Sampler, is_bound, joint_type
from adjoin.spatial import vector
from adjoin.spatial.motion import Spatial, Transform, se3_between, se3_exp, se3_log_slopes, so3_log_slope
from adjoin.spatial.rotation import (
    Quaternion,
    from_quaternion,
    from_rpy,
    quaternion_conjugate,
    quaternion_exp,
    quaternion_log,
    quaternion_multiply,
    quaternion_normalize,
    to_quaternion,
    to_rpy,
)
from adjoin.spatial.scalar import Scalar, select, sqrt
from adjoin.spatial.vector import AXES, ZERO

if TYPE_CHECKING:
    from adjoin.model.joint import Joint

TURNING: tuple[Spatial, ...] = tuple((axis, ZERO) for axis in AXES)


@joint_type
class Ball(JointType):
    """A turn about any axis; q is a unit quaternion, v the angular velocity in the body's frame."""

    name = "ball"
    neutral = (1.0, 0.0, 0.0, 0.0)
    units = ("rad", "rad", "rad")
    has_axis = False
    additive = False
    has_quaternion = True
    limited = "angle"
    q_names = ("qw", "qx", "qy", "qz")
    v_names = ("wx", "wy", "wz")
    slider_names = ("roll", "pitch", "yaw")
    urdf = "spherical"
    mjcf = "ball"

    def transform(self, joint: "Joint", q: Sequence[Scalar]) -> Transform:
        return from_quaternion(_quaternion(q)), ZERO

    def directions(self, joint: "Joint") -> tuple[Spatial, ...]:
        return TURNING

    def quaternion(self, joint: "Joint", q: Sequence[Scalar]) -> Quaternion:
        return _quaternion(q)

    def integrate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
        moved = quaternion_multiply(_quaternion(q), quaternion_exp(vector.vector3(v)))
        return list(quaternion_normalize(moved))

    def rate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
        return list(quaternion_multiply(_quaternion(q), (0.0, *vector.scale(0.5, vector.vector3(v[-3:])))))

    def difference(self, q0: Sequence[Scalar], q1: Sequence[Scalar]) -> list[Scalar]:
        return list(quaternion_log(quaternion_multiply(quaternion_conjugate(_quaternion(q0)), _quaternion(q1))))

    def difference_slopes(self, q0: Sequence[Scalar], q1: Sequence[Scalar]) -> list[list[Scalar]]:
        stretch = vector.vector3(self.difference(q0, q1))
        return [list(row) for row in zip(*[so3_log_slope(stretch, axis) for axis in AXES], strict=True)]

    def normalize(self, q: Sequence[Scalar]) -> list[Scalar]:
        return [*q[:-4], *quaternion_normalize(_quaternion(q))]

    def chart_rate(self, offset: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
        return [*v[:-3], *so3_log_slope(vector.vector3(offset[-3:]), vector.vector3(v[-3:]))]

    def clamp(self, q: Sequence[Scalar], lower: Scalar, upper: Scalar) -> list[Scalar]:
        if not is_bound(upper):
            return list(q)
        turn = quaternion_log(_quaternion(q))
        square = vector.dot(turn, turn)
        outside = square > upper * upper
        nearest = quaternion_exp(vector.scale(upper / sqrt(select(outside, square, 1.0)), turn))
        return [select(outside, x, y) for x, y in zip(nearest, q, strict=True)]

    def reach(self, joint: "Joint") -> tuple[float, ...]:
        return (min(joint.upper, 1.0) / math.sqrt(3.0),) * 3

    def sample(self, joint: "Joint", lower: Sequence[float], upper: Sequence[float], sampler: Sampler) -> torch.Tensor:
        direction = sampler.normal(4)
        if math.isinf(joint.upper):
            return direction / direction.norm(dim=-1, keepdim=True)
        axis = direction[..., 1:] / direction[..., 1:].norm(dim=-1, keepdim=True)
        return torch.stack(quaternion_exp(vector.vector3((sampler.uniform(0.0, joint.upper) * axis).unbind(-1))), -1)

    def local_motion(
        self, center: torch.Tensor, value: torch.Tensor, rate: torch.Tensor, second: torch.Tensor
    ) -> LocalMotion:
        def path(time: torch.Tensor) -> torch.Tensor:
            along = value + time * rate + 0.5 * time * time * second
            turn = quaternion_exp(vector.vector3(along.unbind(-1)))
            return torch.stack(quaternion_normalize(quaternion_multiply(_quaternion(center.unbind(-1)), turn)), -1)

        def speed(time: torch.Tensor) -> Any:
            return torch.func.jvp(path, (time,), (torch.ones_like(time),))

        start = value.new_zeros(())
        both: Any = torch.func.jvp(speed, (start,), (torch.ones_like(start),))
        (q, first), (_, q_second) = both
        # 2 q* q' is the velocity; the derivative of it has |q'|² more, which is real, and so no part of the vector.
        back = quaternion_conjugate(_quaternion(q.unbind(-1)))
        velocity, acceleration = (
            torch.stack(vector.scale(2.0, quaternion_multiply(back, _quaternion(x.unbind(-1)))[1:]), -1)
            for x in (first, q_second)
        )
        return q, velocity, acceleration

    def features(self, joint: "Joint", q: Sequence[Scalar]) -> list[Scalar]:
        return list(from_quaternion(_quaternion(q))[2])

    def to_sliders(self, q: Sequence[float]) -> list[float]:
        return [*q[:-4], *to_rpy(from_quaternion(quaternion_normalize(_quaternion(q))))]

    def from_sliders(self, joint: "Joint", numbers: Sequence[float]) -> list[float]:
        roll, pitch, yaw = numbers[-3:]
        return self.clamp([*numbers[:-3], *to_quaternion(from_rpy(roll, pitch, yaw))], joint.lower, joint.upper)


@joint_type
class Free(Ball):
    """A free motion along SE(3): with a constant v the path is a screw."""

    name = "free"
    neutral = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
    units = ("m", "m", "m", "rad", "rad", "rad")
    floating = True
    limited = None
    q_names = ("x", "y", "z", "qw", "qx", "qy", "qz")
    v_names = ("vx", "vy", "vz", "wx", "wy", "wz")
    slider_names = ("x", "y", "z", "roll", "pitch", "yaw")
    urdf = "floating"
    mjcf = "free"

    def transform(self, joint: "Joint", q: Sequence[Scalar]) -> Transform:
        return from_quaternion(_quaternion(q)), vector.vector3(q[:3])

    def directions(self, joint: "Joint") -> tuple[Spatial, ...]:
        return (*((ZERO, axis) for axis in AXES), *TURNING)

    def integrate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
        turn, step = se3_exp(vector.vector3(v[3:]), vector.vector3(v[:3]))
        here = _quaternion(q)
        position = vector.add(vector.vector3(q[:3]), vector.apply(from_quaternion(here), step))
        return [*position, *quaternion_normalize(quaternion_multiply(here, turn))]

    def rate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
        turning = super().rate(q, v)
        return [*vector.apply(from_quaternion(_quaternion(q)), vector.vector3(v[:3])), *turning]

    def difference(self, q0: Sequence[Scalar], q1: Sequence[Scalar]) -> list[Scalar]:
        places = (vector.vector3(q0[:3]), vector.vector3(q1[:3]))
        angular, linear = se3_between(_quaternion(q0), places[0], _quaternion(q1), places[1])
        return [*linear, *angular]

    def difference_slopes(self, q0: Sequence[Scalar], q1: Sequence[Scalar]) -> list[list[Scalar]]:
        stretch = self.difference(q0, q1)
        away = vector.subtract(vector.vector3(q1[:3]), vector.vector3(q0[:3]))
        position = vector.apply_transposed(from_quaternion(_quaternion(q0)), away)
        slopes = se3_log_slopes(vector.vector3(stretch[3:]), position)
        return [list(row) for row in zip(*[[*linear, *angular] for linear, angular in slopes], strict=True)]

    def drift(self, v: Sequence[Scalar]) -> list[Scalar]:
        return [*vector.cross(vector.vector3(v[:3]), vector.vector3(v[3:])), 0.0, 0.0, 0.0]

    def advance(self, q: Sequence[Scalar], v: Sequence[Scalar], dt: Scalar) -> tuple[list[Scalar], list[Scalar]]:
        here, linear, angular = _quaternion(q), vector.vector3(v[:3]), vector.vector3(v[3:])
        turn = quaternion_exp(vector.scale(dt, angular))
        path = vector.apply(from_quaternion(here), vector.scale(dt, linear))
        position = vector.add(vector.vector3(q[:3]), path)
        moved = [*position, *quaternion_normalize(quaternion_multiply(here, turn))]
        return moved, [*vector.apply_transposed(from_quaternion(turn), linear), *angular]

    def turned(self, q0: Sequence[Scalar], q1: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
        linear = vector.apply(from_quaternion(_quaternion(q0)), vector.vector3(v[:3]))
        return [*vector.apply_transposed(from_quaternion(_quaternion(q1)), linear), *v[3:]]

    def clamp(self, q: Sequence[Scalar], lower: Scalar, upper: Scalar) -> list[Scalar]:
        return list(q)

    def reach(self, joint: "Joint") -> tuple[float, ...]:
        return (1.0, 1.0, 1.0, 0.5, 0.5, 0.5)

    def sample(self, joint: "Joint", lower: Sequence[float], upper: Sequence[float], sampler: Sampler) -> torch.Tensor:
        position, direction = sampler.uniform(-1.0, 1.0, 3), sampler.normal(4)
        return torch.cat([position, direction / direction.norm(dim=-1, keepdim=True)], -1)

    def local_coordinates(self, center: Sequence[Scalar], q: Sequence[Scalar]) -> list[Scalar]:
        return [*(x - c for c, x in zip(center[:3], q[:3], strict=True)), *super().difference(center, q)]

    def local_motion(
        self, center: torch.Tensor, value: torch.Tensor, rate: torch.Tensor, second: torch.Tensor
    ) -> LocalMotion:
        parts = zip((center, value, rate, second), (-4, -3, -3, -3), strict=True)
        turn, spin, spin_rate = super().local_motion(*(x[..., first:] for x, first in parts))
        matrix = torch.stack([torch.stack(row, -1) for row in from_quaternion(_quaternion(turn.unbind(-1)))], -2)
        v = (rate[..., None, :3] @ matrix)[..., 0, :]
        a = (second[..., None, :3] @ matrix)[..., 0, :] - torch.linalg.cross(spin, v)
        q = torch.cat([center[..., :3] + value[..., :3], turn], -1)
        return q, torch.cat([v, spin], -1), torch.cat([a, spin_rate], -1)


def _quaternion(q: Sequence[Scalar]) -> Quaternion:
    w, x, y, z = q[-4:]
    return (w, x, y, z)
