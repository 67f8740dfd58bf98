"""Configurations and velocities in the order and the coordinates of MuJoCo, Pinocchio and ROS, and back.

Batched and differentiable. Models of the other library say where its joints are; joints are found by name, so both must
have been loaded from the same robot.
"""

from collections.abc import Sequence
from typing import Any

import torch

from adjoin.errors import InputError, unknown_name
from adjoin.extras import needed
from adjoin.io.mjcf_compiled import body_names, joint_names
from adjoin.model.manifold import check_tensor
from adjoin.model.model import Model
from adjoin.transforms import quaternion_rotate, quaternion_rotate_inverse, wxyz_to_xyzw, xyzw_to_wxyz


def to_mujoco(
    model: Model, other: Any, q: torch.Tensor, v: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return qpos, (..., nq), and qvel, (..., nv), of a `mujoco.MjModel`.

    The linear velocity of a free joint is in world axes in MuJoCo, and in the body's here. Joints that the other model
    has and this one has not, or follows, are filled in: zero, or what they mimic.

    Args:
        model: the model here.
        other: the `mujoco.MjModel`.
        q: (..., nq).
        v: (..., nv), if velocities are wanted too.
    """
    places = _mujoco_places(other)
    _require([joint.name for joint, _ in model.independent_joints], places)
    positions, rates = _values(model, q, v)
    start = torch.as_tensor(other.qpos0, dtype=q.dtype, device=q.device)
    qpos = _scattered(start.expand(*q.shape[:-1], -1), {n: places[n][0] for n in positions if n in places}, positions)
    if rates is None:
        return qpos, None
    for joint in model.joints:
        if joint.type.floating:
            rate = rates[joint.name]
            rates[joint.name] = torch.cat(
                [quaternion_rotate(positions[joint.name][..., 3:], rate[..., :3]), rate[..., 3:]], -1
            )
    zero = q.new_zeros((*q.shape[:-1], other.nv))
    return qpos, _scattered(zero, {n: places[n][1] for n in rates if n in places}, rates)


def from_mujoco(
    model: Model, other: Any, qpos: torch.Tensor, qvel: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return q, (..., nq), and v, (..., nv), from those of a `mujoco.MjModel`; see `to_mujoco`."""
    places = _mujoco_places(other)
    joints = [joint for joint, _ in model.independent_joints]
    _require([joint.name for joint in joints], places)
    _check_sizes(other, ("qpos", qpos), ("qvel", qvel))
    q = model.pack({joint.name: qpos[..., slice(*places[joint.name][0])] for joint in joints}, like=qpos)
    if qvel is None:
        return q, None
    rates = {joint.name: qvel[..., slice(*places[joint.name][1])] for joint in joints}
    for joint in joints:
        if joint.type.floating:
            turn, rate = qpos[..., slice(*places[joint.name][0])][..., 3:], rates[joint.name]
            rates[joint.name] = torch.cat([quaternion_rotate_inverse(turn, rate[..., :3]), rate[..., 3:]], -1)
    return q, model.pack_velocity(rates, like=qvel)


def to_pinocchio(
    model: Model, other: Any, q: torch.Tensor, v: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return q, (..., nq), and v, (..., nv), of a `pinocchio.Model`.

    Pinocchio sorts joints in its own way, writes quaternions [x y z w], and continuous joints as (cos, sin).

    Args:
        model: the model here.
        other: the `pinocchio.Model`.
        q: (..., nq).
        v: (..., nv), if velocities are wanted too.
    """
    places = _pinocchio_places(other)
    _require([joint.name for joint, _ in model.independent_joints], places)
    positions, rates = _values(model, q, v)
    for joint in model.joints:
        if joint.name in places and joint.name in positions:
            positions[joint.name] = _pinocchio_coordinates(joint.type, positions[joint.name], places[joint.name][0])
    neutral = torch.as_tensor(needed("pinocchio", "pinocchio", "the order of Pinocchio").neutral(other), dtype=q.dtype)
    start = neutral.to(q.device).expand(*q.shape[:-1], -1)
    found = _scattered(start, {n: places[n][0] for n in positions if n in places}, positions)
    if rates is None:
        return found, None
    zero = q.new_zeros((*q.shape[:-1], other.nv))
    return found, _scattered(zero, {n: places[n][1] for n in rates if n in places}, rates)


def from_pinocchio(
    model: Model, other: Any, q: torch.Tensor, v: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return q, (..., nq), and v, (..., nv), from those of a `pinocchio.Model`; see `to_pinocchio`."""
    places = _pinocchio_places(other)
    joints = [joint for joint, _ in model.independent_joints]
    _require([joint.name for joint in joints], places)
    _check_sizes(other, ("q", q), ("v", v))
    values = {}
    for joint in joints:
        part = q[..., slice(*places[joint.name][0])]
        if joint.type.has_quaternion:
            part = torch.cat([part[..., :-4], xyzw_to_wxyz(part[..., -4:])], -1)
        elif part.shape[-1] == joint.type.nq + 1:  # (cos, sin) of the angle
            part = torch.cat([part[..., :-2], torch.atan2(part[..., -1:], part[..., -2:-1])], -1)
        values[joint.name] = part
    rates = None
    if v is not None:
        rates = model.pack_velocity({j.name: v[..., slice(*places[j.name][1])] for j in joints}, like=v)
    return model.pack(values, like=q), rates


def to_ros(model: Model, names: Sequence[str], q: torch.Tensor) -> torch.Tensor:
    """Return the positions of joints in the order of a `sensor_msgs/JointState`, (..., len(names)).

    Args:
        model: the model.
        names: of joints with one degree of freedom; those that mimic others have a position too.
        q: (..., nq).
    """
    positions, _ = _values(model, q, None)
    single = {name: value for name, value in positions.items() if value.shape[-1] == 1}
    _require(names, single)
    return torch.cat([single[name] for name in names], -1)


def from_ros(
    model: Model, names: Sequence[str], positions: torch.Tensor, start: torch.Tensor | None = None
) -> torch.Tensor:
    """Return q, (..., nq), from the names and positions of a `sensor_msgs/JointState`.

    Args:
        model: the model.
        names: of joints; those that mimic others, and those that the model has not, are passed over.
        positions: (..., len(names)).
        start: what the joints are that are not among the names, (..., nq); by default neutral.
    """
    if positions.shape[-1] != len(names):
        raise InputError(f"from_ros: there are {len(names)} names for {positions.shape[-1]} positions")
    own = {joint.name for joint, _ in model.independent_joints if joint.nq == 1}
    values = {name: positions[..., k] for k, name in enumerate(names) if name in own}
    return model.pack(values, start=start, like=positions)


Span = tuple[int, int]


def _values(
    model: Model, q: torch.Tensor, v: torch.Tensor | None
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor] | None]:
    """Return the coordinates and velocities of every joint, those that mimic others too."""
    check_tensor(q, "q", model.nq, model.name)
    if v is not None:
        check_tensor(v, "v", model.nv, model.name)
    positions, rates = {}, {}
    for joint, at in zip(model.joints, model.coordinates, strict=True):
        positions[joint.name] = q[..., at.q_slice] if joint.nq else at.multiplier * q[..., at.q_slice] + at.offset
        if v is not None:
            rates[joint.name] = v[..., at.v_slice] if joint.nv else at.multiplier * v[..., at.v_slice]
    return positions, rates if v is not None else None


def _check_sizes(
    other: Any, configuration: tuple[str, torch.Tensor], velocity: tuple[str, torch.Tensor | None]
) -> None:
    """Raise unless tensors, given with their names, have as many numbers as the other library's model."""
    check_tensor(configuration[1], configuration[0], other.nq, "the other model")
    if velocity[1] is not None:
        check_tensor(velocity[1], velocity[0], other.nv, "the other model")


def _scattered(start: torch.Tensor, places: dict[str, Span], values: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return a tensor with the values of joints at their places."""
    columns = list(start.unbind(-1))
    for name, (begin, end) in places.items():
        columns[begin:end] = values[name].unbind(-1)
    return torch.stack(torch.broadcast_tensors(*columns), -1)


def _mujoco_places(other: Any) -> dict[str, tuple[Span, Span]]:
    """Return where qpos and qvel of each joint are; joints without a name have the one that `load` gives them."""
    mujoco: Any = needed("mujoco", "mjcf", "the order of MuJoCo")
    if not isinstance(other, mujoco.MjModel):
        raise InputError(f"the second argument is a {type(other).__name__}; it must be a mujoco.MjModel")
    sizes = {0: (7, 6), 1: (4, 3)}
    places = {}
    for j, name in enumerate(joint_names(mujoco, other, body_names(mujoco, other))):
        nq, nv = sizes.get(int(other.jnt_type[j]), (1, 1))
        q, v = int(other.jnt_qposadr[j]), int(other.jnt_dofadr[j])
        places[name] = ((q, q + nq), (v, v + nv))
    return places


def _pinocchio_places(other: Any) -> dict[str, tuple[Span, Span]]:
    """Return where q and v of each joint are."""
    pinocchio: Any = needed("pinocchio", "pinocchio", "the order of Pinocchio")
    if not isinstance(other, pinocchio.Model):
        raise InputError(f"the second argument is a {type(other).__name__}; it must be a pinocchio.Model")
    places = {}
    for name, joint in zip(other.names, other.joints, strict=True):
        if joint.nv > 0:
            places[name] = ((joint.idx_q, joint.idx_q + joint.nq), (joint.idx_v, joint.idx_v + joint.nv))
    return places


def _pinocchio_coordinates(kind: Any, part: torch.Tensor, span: Span) -> torch.Tensor:
    if kind.has_quaternion:
        return torch.cat([part[..., :-4], wxyz_to_xyzw(part[..., -4:])], -1)
    if span[1] - span[0] == part.shape[-1] + 1:
        angle = part[..., -1:]
        return torch.cat([part[..., :-1], angle.cos(), angle.sin()], -1)
    return part


def _require(names: Sequence[str], known: Any) -> None:
    for name in names:
        if name not in known:
            raise InputError(unknown_name("joint", "joints", name, known))
