"""Numbers by name: configurations and velocities from and to dictionaries, and the names of their coordinates."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from adjoin.errors import InputError, unknown_name
from adjoin.model import manifold
from adjoin.spatial.scalar import Scalar

if TYPE_CHECKING:
    from adjoin.model.model import Model

Q_NAMES = {"free": "x y z qw qx qy qz", "ball": "qw qx qy qz", "planar": "x y angle"}
V_NAMES = {"free": "vx vy vz wx wy wz", "ball": "wx wy wz", "planar": "vx vy rate"}
"""What the coordinates of joints with several are called, after the name of the joint and a slash."""


def coordinate_names(model: "Model", names: Mapping[str, str], size: Callable[[Any], int]) -> tuple[str, ...]:
    """Return the name of each coordinate: that of its joint, or "joint/x" where the joint has several."""
    found: list[str] = []
    for joint, _ in model.independent_joints:
        count = size(joint.type)
        parts = names[joint.kind].split() if joint.kind in names else [str(k) for k in range(count)]
        found += [joint.name] if count == 1 else [f"{joint.name}/{part}" for part in parts]
    return tuple(found)


def pack(
    model: "Model",
    values: Mapping[str, Any],
    start: torch.Tensor,
    slices: Mapping[str, slice],
    names: Sequence[str],
) -> torch.Tensor:
    """Return `start`, (..., n), with the named numbers in it.

    Args:
        model: for messages.
        values: name of a joint or of a coordinate to a number, or to a tensor (...) or (..., as many as it has).
        start: what the others are.
        slices: where the coordinates of each joint are.
        names: of the coordinates.
    """
    places = {name: slice(k, k + 1) for k, name in enumerate(names)} | dict(slices)
    columns = list(start.unbind(-1))
    for name, value in values.items():
        if name not in places:
            raise InputError(_unknown(model, name, slices))
        place = places[name]
        count = place.stop - place.start
        tensor = torch.as_tensor(value, dtype=start.dtype, device=start.device)
        if count == 1 and not (tensor.dim() and tensor.shape[-1] == 1 and name in slices):
            tensor = tensor[..., None]
        if tensor.dim() == 0 or tensor.shape[-1] != count:
            raise InputError(f"{name!r} has {count} numbers, got the shape {tuple(tensor.shape)}")
        columns[place] = tensor.unbind(-1)
    try:
        return torch.stack(torch.broadcast_tensors(*columns), -1) if columns else start
    except RuntimeError:
        shapes = {name: tuple(torch.as_tensor(value).shape) for name, value in values.items()}
        raise InputError(f"the batch shapes of the values do not broadcast: {shapes}") from None


def _unknown(model: "Model", name: str, slices: Mapping[str, slice]) -> str:
    for joint in model.joints:
        if joint.name == name and joint.mimic is not None:
            return f"joint {name!r} mimics {joint.mimic.joint!r} and has no coordinates of its own"
    return unknown_name("joint", "joints", name, slices)


def unpack(x: torch.Tensor, slices: Mapping[str, slice]) -> dict[str, torch.Tensor]:
    """Return the numbers of each joint: (...) of one with a single one, (..., n) of others."""
    return {name: x[..., s.start] if s.stop - s.start == 1 else x[..., s] for name, s in slices.items()}


def clamp(model: "Model", q: Sequence[Scalar]) -> list[Scalar]:
    """Implement `Model.clamp` over scalars: nq of them in, nq out."""
    lower, upper = model.limits()
    clamped: list[Scalar] = []
    for joint, at in model.independent_joints:
        if joint.type.limited == "coordinate":
            clamped += joint.type.clamp(q[at.q_slice], lower[at.q], upper[at.q])
        else:
            clamped += joint.type.clamp(q[at.q_slice], joint.lower, joint.upper)
    return clamped


def clamped(model: "Model", q: torch.Tensor) -> torch.Tensor:
    """Implement `Model.clamp`."""
    return manifold.on_tensors(model, clamp, (q, "q", model.nq))
