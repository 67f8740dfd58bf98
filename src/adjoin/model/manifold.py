"""Configurations as points of a manifold: integrate, difference, normalize, random.

The formulas are those of the joints' types, written over lists of scalars of any kind, one entry per number of q or v,
so that the simulator traces the very ones that tensors go through here. Free joints move along SE(3), planar ones along
SE(2): with a constant velocity in the body's frame the path is a screw, as in Pinocchio.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from adjoin.errors import InputError
from adjoin.model.joint_types.base import Sampler
from adjoin.spatial.scalar import Scalar

if TYPE_CHECKING:
    from adjoin.model.model import Model


def integrate(model: "Model", q: Sequence[Scalar], v: Sequence[Scalar], dt: Scalar = 1.0) -> list[Scalar]:
    """Implement `Model.integrate` over scalars: nq of them and nv of them in, nq out."""
    moved: list[Scalar] = []
    for joint, at in model.independent_joints:
        moved += joint.type.integrate(q[at.q_slice], [dt * x for x in v[at.v_slice]])
    return moved


def rate(model: "Model", q: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
    """Return dq/dt over scalars: nq of them and nv of them in, nq out."""
    return [x for joint, at in model.independent_joints for x in joint.type.rate(q[at.q_slice], v[at.v_slice])]


def difference(model: "Model", q0: Sequence[Scalar], q1: Sequence[Scalar]) -> list[Scalar]:
    """Implement `Model.difference` over scalars: nq of them twice in, nv out."""
    return [x for joint, at in model.independent_joints for x in joint.type.difference(q0[at.q_slice], q1[at.q_slice])]


def normalize(model: "Model", q: Sequence[Scalar]) -> list[Scalar]:
    """Implement `Model.normalize` over scalars: nq of them in, nq out."""
    return [x for joint, at in model.independent_joints for x in joint.type.normalize(q[at.q_slice])]


def on_tensors(
    model: "Model", function: Callable[..., list[Any]], *inputs: tuple[torch.Tensor, str, int], dt: Any = None
) -> torch.Tensor:
    """Run one of the functions above on tensors (..., n): checked, broadcast, taken apart and put together."""
    for tensor, name, size in inputs:
        check_tensor(tensor, name, size, model.name)
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


def check_tensor(tensor: object, name: str, size: int, robot: str) -> None:
    """Raise unless an argument is a tensor (..., size) of floating-point numbers; `robot` is whom it is for."""
    if not isinstance(tensor, torch.Tensor):
        raise InputError(f"{name} is a {type(tensor).__name__}; it must be a torch tensor of shape (..., {size})")
    if not tensor.dtype.is_floating_point:
        raise InputError(f"{name} has dtype {tensor.dtype}; it must be a floating-point tensor")
    if tensor.ndim == 0 or tensor.shape[-1] != size:
        raise InputError(f"{name} has shape {tuple(tensor.shape)}; {robot!r} needs (..., {size})")


def random(
    model: "Model",
    batch: tuple[int, ...],
    generator: torch.Generator | None,
    dtype: torch.dtype,
    device: torch.device | str | None,
) -> torch.Tensor:
    """Implement `Model.random`."""
    lower, upper = model.limits()
    sampler = Sampler(batch, generator, dtype, device)
    parts = [
        joint.type.sample(joint, lower[at.q_slice], upper[at.q_slice], sampler)
        for joint, at in model.independent_joints
    ]
    return torch.cat(parts, -1) if parts else torch.zeros(*batch, 0, dtype=dtype, device=device)
