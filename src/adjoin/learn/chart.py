"""Motions written in nv plain coordinates around a center, and what they are as q, v and a.

The coordinates of a joint around its center: the displacement or angle; for a ball joint the rotation vector from the
center; for planar and free joints the displacement in the world's axes, and the angle or rotation vector.
"""

from typing import Any

import torch

from adjoin.model.joint import Joint
from adjoin.model.model import Coordinates, Model
from adjoin.spatial import vector
from adjoin.spatial.angles import wrap
from adjoin.spatial.rotation import (
    from_quaternion,
    quaternion_conjugate,
    quaternion_exp,
    quaternion_log,
    quaternion_multiply,
    quaternion_normalize,
)


def independent(model: Model) -> list[tuple[Joint, Coordinates]]:
    """The joints that have coordinates of their own, with where these are."""
    return [(j, at) for j, at in zip(model.joints, model.coordinates, strict=True) if j.nq]


def coordinates(model: Model, center: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """The coordinates of q around a center.

    Args:
        model: the robot.
        center: (..., nq).
        q: (..., nq).

    Returns:
        (..., nv).
    """
    center, q = torch.broadcast_tensors(center, q)
    parts: list[Any] = []
    for joint, at in independent(model):
        c, x = (list(tensor[..., at.q : at.q + joint.nq].unbind(-1)) for tensor in (center, q))
        if joint.kind in ("ball", "free"):
            parts += [b - a for a, b in zip(c[:-4], x[:-4], strict=True)]
            parts += quaternion_log(quaternion_multiply(quaternion_conjugate(_quaternion(c)), _quaternion(x)))
        elif joint.kind == "planar":
            parts += [x[0] - c[0], x[1] - c[1], wrap(x[2] - c[2])]
        else:
            parts.append(wrap(x[0] - c[0]) if joint.kind == "continuous" else x[0] - c[0])
    return torch.stack(parts, -1) if parts else q.new_zeros((*q.shape[:-1], 0))


def motion(
    model: Model, center: torch.Tensor, value: torch.Tensor, rate: torch.Tensor, second: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, v and a of coordinates around a center that change in time.

    Args:
        model: the robot.
        center: (..., nq).
        value: the coordinates, (..., nv).
        rate: their first derivative in time, (..., nv).
        second: their second derivative in time, (..., nv).

    Returns:
        q (..., nq), v (..., nv) and a (..., nv); exact.
    """
    batch = torch.broadcast_shapes(center.shape[:-1], value.shape[:-1])
    center = center.expand(*batch, -1)
    value, rate, second = (tensor.expand(*batch, -1) for tensor in (value, rate, second))
    parts: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    for joint, at in independent(model):
        here = center[..., at.q : at.q + joint.nq]
        own = slice(at.v, at.v + joint.nv)
        parts.append(_joint(joint.kind, here, value[..., own], rate[..., own], second[..., own]))
    if not parts:
        return center, value, value
    q, v, a = (torch.cat(own, -1) for own in zip(*parts, strict=True))
    return q, v, a


def _joint(
    kind: str, center: torch.Tensor, value: torch.Tensor, rate: torch.Tensor, second: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if kind == "planar":
        angle, spin, spin_rate = (x[..., 2] for x in (center + value, rate, second))
        c, s = angle.cos(), angle.sin()

        def turned(x: torch.Tensor) -> torch.Tensor:
            return torch.stack([c * x[..., 0] + s * x[..., 1], c * x[..., 1] - s * x[..., 0]], -1)

        v, a = turned(rate), turned(second)
        a = a + spin[..., None] * torch.stack([v[..., 1], -v[..., 0]], -1)
        return center + value, torch.cat([v, spin[..., None]], -1), torch.cat([a, spin_rate[..., None]], -1)
    if kind not in ("ball", "free"):
        return center + value, rate, second
    turn, spin, spin_rate = _turning(center[..., -4:], value[..., -3:], rate[..., -3:], second[..., -3:])
    if kind == "ball":
        return turn, spin, spin_rate
    matrix = torch.stack([torch.stack(row, -1) for row in from_quaternion(_quaternion(turn.unbind(-1)))], -2)
    v = (rate[..., None, :3] @ matrix)[..., 0, :]
    a = (second[..., None, :3] @ matrix)[..., 0, :] - torch.linalg.cross(spin, v)
    q = torch.cat([center[..., :3] + value[..., :3], turn], -1)
    return q, torch.cat([v, spin], -1), torch.cat([a, spin_rate], -1)


def _turning(
    center: torch.Tensor, value: torch.Tensor, rate: torch.Tensor, second: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The quaternion, and the angular velocity and acceleration in the turned frame, of a rotation vector in time."""

    def path(time: torch.Tensor) -> torch.Tensor:
        along = value + time * rate + 0.5 * time * time * second
        turned = quaternion_multiply(_quaternion(center.unbind(-1)), quaternion_exp(vector.vector3(along.unbind(-1))))
        return torch.stack(quaternion_normalize(turned), -1)

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


def _quaternion(numbers: Any) -> Any:
    return tuple(numbers[-4:])
