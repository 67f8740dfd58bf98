"""Motions written in nv plain coordinates around a center, and what they are as q, v and a.

The coordinates of a joint around its center: the displacement or angle; for a ball joint the rotation vector from the
center; for planar and free joints the displacement in the world's axes, and the angle or rotation vector.
"""

import torch

from adjoin.model.model import Model


def local_coordinates(model: Model, center: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """The coordinates of q around a center.

    Args:
        model: the robot.
        center: (..., nq).
        q: (..., nq).

    Returns:
        (..., nv).
    """
    center, q = torch.broadcast_tensors(center, q)
    parts: list[torch.Tensor] = []
    for joint, at in model.independent_joints:
        parts += joint.type.local_coordinates(*(x[..., at.q_slice].unbind(-1) for x in (center, q)))
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
    values = [tensor.expand(*batch, -1) for tensor in (value, rate, second)]
    if not model.independent_joints:
        return center, values[0], values[0]
    parts = [
        joint.type.local_motion(center[..., at.q_slice], *(x[..., at.v_slice] for x in values))
        for joint, at in model.independent_joints
    ]
    q, v, a = (torch.cat(part, -1) for part in zip(*parts, strict=True))
    return q, v, a
