"""Checked motions: configurations over time, thinned to what an eye can follow, with the forces that belong to them."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike

from adjoin.errors import InputError
from adjoin.model.model import Model
from adjoin.viewer.scene import Forces
from adjoin.viewer.soft import SoftBody

Array = torch.Tensor | ArrayLike
"""Numbers that may become a tensor."""

ContactArrays = Mapping[str, Array] | tuple[Array, ...]
"""What `Simulator.contacts` returns, stacked over steps; or a mapping with its "position" and "force"."""


class Motion(NamedTuple):
    """Frames to be shown one after another.

    Attributes:
        q: (frames, environments, nq).
        period: seconds from one to the next.
        forces: of contact, if they are to be drawn.
        soft: soft bodies of the same steps.
        indices: the steps that are frames.
    """

    q: torch.Tensor
    period: float
    forces: Forces | None
    soft: Sequence[SoftBody] = ()
    indices: Sequence[int] = ()

    @property
    def sample(self) -> torch.Tensor:
        """Return a few of the configurations, from the first to the last."""
        return self.q[:: max(1, len(self.q) // 30)]


def configuration(
    caller: str, model: Model, q: Array, dimensions: int, environments: int | None = None
) -> torch.Tensor:
    """Return q as (..., environments, nq) with so many dimensions, on the CPU and apart from any graph.

    Args:
        caller: for messages.
        model: the robot.
        q: with or without the dimension of environments.
        dimensions: of the result.
        environments: how many there must be, if it is known.
    """
    path = torch.as_tensor(q).detach().cpu()
    if not path.is_floating_point():
        path = path.to(torch.get_default_dtype())
    if path.dim() == dimensions - 1:
        path = path.unsqueeze(-2)
    shape = ("steps", "environments", str(model.nq))[3 - dimensions :]
    if path.dim() != dimensions or path.shape[-1] != model.nq or 0 in path.shape:
        raise InputError(
            f"{caller}: q of {model.name!r} must have the shape ({', '.join(shape)}) or that without environments, "
            f"got {tuple(torch.as_tensor(q).shape)}"
        )
    if environments is not None and path.shape[-2] not in (1, environments):
        raise InputError(f"{caller}: q is of {path.shape[-2]} environments, the viewer has {environments}")
    bad = ~torch.isfinite(path).all(-1)
    if bad.any():
        raise InputError(f"{caller}: q is not finite at {tuple(bad.nonzero()[0].tolist())}")
    return path if environments is None else path.expand(*path.shape[:-2], environments, model.nq)


def motion(
    caller: str,
    model: Model,
    q: Array,
    dt: float,
    contacts: ContactArrays | None = None,
    *,
    environments: int | None = None,
    rate: float = 60.0,
    soft: Sequence[SoftBody] = (),
) -> Motion:
    """Return a trajectory as frames.

    Args:
        caller: for messages.
        model: the robot.
        q: (steps, nq) or (steps, environments, nq).
        dt: seconds from one step to the next.
        contacts: what `Simulator.contacts` gave for these steps, or the output "contacts" of a rollout.
        environments: how many there must be, if it is known.
        rate: frames a second that are kept at most.
        soft: soft bodies of the same steps.
    """
    path = configuration(caller, model, q, 3, environments)
    if not isinstance(dt, (int, float)) or not 0.0 < dt < math.inf:
        raise InputError(f"{caller}: dt must be a positive number of seconds, got {dt!r}")
    every = max(1, round(1.0 / (rate * dt)))
    steps = torch.arange(0, len(path), every)
    forces = None if contacts is None else _forces(caller, contacts, path.shape[:2], steps)
    for i, body in enumerate(soft):
        if (count := len(torch.as_tensor(body.points))) != len(path):
            raise InputError(f"{caller}: soft body {i} has {count} steps, q has {len(path)}")
    return Motion(path[steps], every * dt, forces, soft, steps.tolist())


def _forces(caller: str, contacts: ContactArrays, batch: torch.Size, indices: torch.Tensor) -> Forces:
    """Return forces of the kept steps; a rollout has one step less than states, and its last force stays."""
    named = contacts if isinstance(contacts, Mapping) else getattr(contacts, "_asdict", dict)()
    if "position" not in named or "force" not in named:
        raise InputError(
            f"{caller}: contacts must be what Simulator.contacts returns, or the output 'contacts' of a rollout; "
            f"got {'a mapping of ' + ', '.join(named) if named else type(contacts).__name__}"
        )
    steps, environments = batch
    parts = []
    for name in ("position", "force"):
        values = torch.as_tensor(named[name]).detach().float().cpu()
        values = values.unsqueeze(1) if values.dim() == 3 else values
        if values.dim() != 4 or values.shape[0] not in (steps, steps - 1) or values.shape[1] != environments:
            raise InputError(
                f"{caller}: {name} of contacts must have the shape ({steps} or {steps - 1}, {environments}, n, 3) "
                f"for this q, got {tuple(torch.as_tensor(named[name]).shape)}"
            )
        parts.append(np.asarray(values[indices.clamp(max=len(values) - 1)]))
    return Forces(*parts)
