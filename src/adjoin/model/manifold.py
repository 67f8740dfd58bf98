"""Configurations as points of a manifold: integrate, difference, normalize, random.

The formulas are written over lists of scalars of any kind, one entry per number of q or v, so that the simulator traces
the very ones that tensors go through here. Free joints move along SE(3), planar ones along SE(2): with a constant
velocity in the body's frame the path is a screw, as in Pinocchio.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from adjoin.errors import InputError
from adjoin.spatial import vector
from adjoin.spatial.angles import cosc, cotc, sinc, wrap
from adjoin.spatial.motion import se3_between, se3_exp
from adjoin.spatial.rotation import (
    from_quaternion,
    quaternion_conjugate,
    quaternion_exp,
    quaternion_log,
    quaternion_multiply,
    quaternion_normalize,
)
from adjoin.spatial.scalar import Scalar, cos, sin

if TYPE_CHECKING:
    from adjoin.model.model import Model


def integrate_joint(kind: str, q: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
    """q of one joint after moving with v for unit time."""
    if kind == "ball":
        moved = quaternion_multiply(_quaternion(q), quaternion_exp(vector.vector3(v)))
        return list(quaternion_normalize(moved))
    if kind == "free":
        turn, step = se3_exp(vector.vector3(v[3:]), vector.vector3(v[:3]))
        here = _quaternion(q[3:])
        position = vector.add(vector.vector3(q[:3]), vector.apply(from_quaternion(here), step))
        return [*position, *quaternion_normalize(quaternion_multiply(here, turn))]
    if kind == "planar":
        x, y, angle = q
        vx, vy, rate = v
        along, across = sinc(rate * rate), rate * cosc(rate * rate)
        dx, dy = along * vx - across * vy, across * vx + along * vy
        c, s = cos(angle), sin(angle)
        return [x + c * dx - s * dy, y + s * dx + c * dy, angle + rate]
    return [q[0] + v[0]]


def rate_joint(kind: str, q: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
    """dq/dt of one joint that moves with v."""
    if kind in ("ball", "free"):
        here = _quaternion(q[-4:])
        turning = quaternion_multiply(here, (0.0, *vector.scale(0.5, vector.vector3(v[-3:]))))
        moving = vector.apply(from_quaternion(here), vector.vector3(v[:3])) if kind == "free" else ()
        return [*moving, *turning]
    if kind == "planar":
        c, s = cos(q[2]), sin(q[2])
        return [c * v[0] - s * v[1], s * v[0] + c * v[1], v[2]]
    return [v[0]]


def difference_joint(kind: str, q0: Sequence[Scalar], q1: Sequence[Scalar]) -> list[Scalar]:
    """The v of one joint that leads from q0 to q1 in unit time, the short way round."""
    if kind == "ball":
        return list(quaternion_log(quaternion_multiply(quaternion_conjugate(_quaternion(q0)), _quaternion(q1))))
    if kind == "free":
        angular, linear = se3_between(
            _quaternion(q0[3:]), vector.vector3(q0[:3]), _quaternion(q1[3:]), vector.vector3(q1[:3])
        )
        return [*linear, *angular]
    if kind == "planar":
        rate = wrap(q1[2] - q0[2])
        c, s = cos(q0[2]), sin(q0[2])
        dx, dy = q1[0] - q0[0], q1[1] - q0[1]
        x, y = c * dx + s * dy, c * dy - s * dx
        half = 0.5 * rate
        along = 1.0 - half * half * cotc(half * half)
        return [along * x + half * y, along * y - half * x, rate]
    if kind == "continuous":
        return [wrap(q1[0] - q0[0])]
    return [q1[0] - q0[0]]


def normalize_joint(kind: str, q: Sequence[Scalar]) -> list[Scalar]:
    """q of one joint with a unit quaternion, or with its angle within one turn."""
    if kind == "ball":
        return list(quaternion_normalize(_quaternion(q)))
    if kind == "free":
        return [*q[:3], *quaternion_normalize(_quaternion(q[3:]))]
    if kind == "planar":
        return [q[0], q[1], wrap(q[2])]
    if kind == "continuous":
        return [wrap(q[0])]
    return list(q)


def integrate(model: "Model", q: Sequence[Scalar], v: Sequence[Scalar], dt: Scalar = 1.0) -> list[Scalar]:
    """`Model.integrate` over scalars: nq of them and nv of them in, nq out."""
    out: list[Scalar] = []
    for joint, at in _independent(model):
        step = [dt * x for x in v[at.v : at.v + joint.nv]]
        out += integrate_joint(joint.kind, q[at.q : at.q + joint.nq], step)
    return out


def rate(model: "Model", q: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
    """dq/dt over scalars: nq of them and nv of them in, nq out."""
    out: list[Scalar] = []
    for joint, at in _independent(model):
        out += rate_joint(joint.kind, q[at.q : at.q + joint.nq], v[at.v : at.v + joint.nv])
    return out


def difference(model: "Model", q0: Sequence[Scalar], q1: Sequence[Scalar]) -> list[Scalar]:
    """`Model.difference` over scalars: nq of them twice in, nv out."""
    out: list[Scalar] = []
    for joint, at in _independent(model):
        part = slice(at.q, at.q + joint.nq)
        out += difference_joint(joint.kind, q0[part], q1[part])
    return out


def normalize(model: "Model", q: Sequence[Scalar]) -> list[Scalar]:
    """`Model.normalize` over scalars: nq of them in, nq out."""
    out: list[Scalar] = []
    for joint, at in _independent(model):
        out += normalize_joint(joint.kind, q[at.q : at.q + joint.nq])
    return out


def _independent(model: "Model"):
    return [(j, c) for j, c in zip(model.joints, model.coordinates, strict=True) if j.nq]


def _quaternion(q: Sequence[Scalar]):
    w, x, y, z = q
    return (w, x, y, z)


def on_tensors(
    model: "Model", function: Callable[..., list[Any]], *inputs: tuple[torch.Tensor, str, int], dt: Any = None
) -> torch.Tensor:
    """Run one of the functions above on tensors (..., n): checked, broadcast, taken apart and put together."""
    for tensor, name, size in inputs:
        if not isinstance(tensor, torch.Tensor):
            raise InputError(f"{name} is a {type(tensor).__name__}; it must be a torch tensor of shape (..., {size})")
        if not tensor.dtype.is_floating_point:
            raise InputError(f"{name} has dtype {tensor.dtype}; it must be a floating-point tensor")
        if tensor.ndim == 0 or tensor.shape[-1] != size:
            raise InputError(f"{name} has shape {tuple(tensor.shape)}; {model.name!r} needs (..., {size})")
    try:
        batch = torch.broadcast_shapes(
            *(tensor.shape[:-1] for tensor, _, _ in inputs), *([dt.shape] if isinstance(dt, torch.Tensor) else [])
        )
    except RuntimeError:
        shapes = " and ".join(f"{name} {tuple(tensor.shape)}" for tensor, name, _ in inputs)
        raise InputError(f"the batch shapes of {shapes} do not broadcast") from None
    scalars = [list(tensor.unbind(-1)) for tensor, _, _ in inputs]
    out = function(model, *scalars) if dt is None else function(model, *scalars, dt)
    if not out:
        return inputs[0][0].new_zeros((*batch, 0))
    return torch.stack([x.expand(batch) for x in out], -1)


def random(
    model: "Model",
    batch: tuple[int, ...],
    generator: torch.Generator | None,
    dtype: torch.dtype,
    device: torch.device | str | None,
) -> torch.Tensor:
    """`Model.random`."""

    def uniform(low: float, high: float, *shape: int) -> torch.Tensor:
        return low + (high - low) * torch.rand(*batch, *shape, generator=generator, dtype=dtype, device=device)

    def orientation(greatest: float) -> torch.Tensor:
        direction = torch.randn(*batch, 4, generator=generator, dtype=dtype, device=device)
        if math.isinf(greatest):
            return direction / direction.norm(dim=-1, keepdim=True)
        axis = direction[..., 1:] / direction[..., 1:].norm(dim=-1, keepdim=True)
        return torch.stack(quaternion_exp(vector.vector3((uniform(0.0, greatest, 1) * axis).unbind(-1))), -1)

    lower, upper = model.limits()
    parts: list[torch.Tensor] = []
    for joint, at in _independent(model):
        if joint.kind == "ball":
            parts.append(orientation(joint.upper))
        elif joint.kind == "free":
            parts += [uniform(-1.0, 1.0, 3), orientation(math.inf)]
        elif joint.kind == "planar":
            parts += [uniform(-1.0, 1.0, 2), uniform(-math.pi, math.pi, 1)]
        else:
            reach = 1.0 if joint.kind == "prismatic" else math.pi
            low, high = lower[at.q], upper[at.q]
            if math.isinf(low) and math.isinf(high):
                low, high = -reach, reach
            elif math.isinf(low):
                low = high - 2 * reach
            elif math.isinf(high):
                high = low + 2 * reach
            parts.append(uniform(low, high, 1))
    return torch.cat(parts, -1) if parts else torch.zeros(*batch, 0, dtype=dtype, device=device)
