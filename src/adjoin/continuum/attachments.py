"""Nodes that a carrier holds: a link of a robot, or a clamp that follows a path.

The carrier's axes are those of the rest shape. Each node hangs on a spring and a damper at its place there, as stiff as
a step allows; the carrier feels the opposite. So nothing is gained or lost, and what is held also pulls its carrier.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from adjoin.compiler.maps.sequence import Field, Read
from adjoin.errors import InputError

STIFFNESS, DAMPING = 0.25, 0.5
"""Of the springs and dampers that a step allows: parts of mass / dt² and mass / dt."""


@dataclass(frozen=True)
class Attachment:
    """Nodes of a solid or a cloth that are fixed to a carrier.

    Attributes:
        nodes: which, by their numbers in the mesh.
        stiffness: of the spring at each node, N/m; by default a quarter of the node's mass / dt².
        damping: of the damper at each node, N s/m; by default half of the node's mass / dt.
    """

    nodes: tuple[int, ...]
    stiffness: float | None = None
    damping: float | None = None

    def __post_init__(self):
        object.__setattr__(self, "nodes", tuple(int(node) for node in self.nodes))
        if not self.nodes:
            raise InputError("attachment: it holds no nodes")
        if (self.stiffness is not None and not self.stiffness > 0) or not (self.damping or 0.0) >= 0:
            raise InputError(
                f"attachment: stiffness must be positive and damping not negative, got {self.stiffness} and "
                f"{self.damping}"
            )


def check(attachments: Sequence[Attachment], nodes: int) -> None:
    """Raise if a node does not exist, or is held twice."""
    holder: dict[int, int] = {}
    for i, attachment in enumerate(attachments):
        for node in attachment.nodes:
            if not 0 <= node < nodes:
                raise InputError(f"attachment {i}: no node {node}; nodes: 0 to {nodes - 1}")
            if node in holder:
                raise InputError(f"attachment {i}: node {node} is held by attachment {holder[node]} already")
            holder[node] = i


def fields(attachments: Sequence[Attachment]) -> list[Field]:
    """Return the field that says which nodes are held: 1 or 0 for each attachment."""
    return [Field("held", "nodes", (len(attachments),), "parameter")] if attachments else []


def reads(attachments: Sequence[Attachment]) -> dict[str, Read]:
    """Return what the stage that moves nodes reads in addition."""
    return {"held": Read("held"), "rest": Read("rest")} if attachments else {}


def inputs(attachments: Sequence[Attachment], mass: torch.Tensor, dt: float, like: torch.Tensor) -> dict[str, Any]:
    """Return the parameters of attachments; raise if a spring or damper is more than a step allows."""
    if not attachments:
        return {}
    held = torch.zeros((like.shape[-2], len(attachments)), dtype=like.dtype, device=like.device)
    for i, attachment in enumerate(attachments):
        chosen = torch.tensor(attachment.nodes, device=like.device)
        held[chosen, i] = 1.0
        lightest = mass.detach()[..., chosen].min().item()
        if (attachment.stiffness or 0.0) * dt * dt > lightest or (attachment.damping or 0.0) * dt > lightest:
            raise InputError(
                f"attachment {i}: a node of {lightest:.3g} kg and steps of {dt:g} s allow a stiffness of at most "
                f"{lightest / dt**2:.3g} N/m and a damping of at most {lightest / dt:.3g} N s/m, got "
                f"{attachment.stiffness} and {attachment.damping}"
            )
    return {"held": held}


def forces(
    attachments: Sequence[Attachment], x: Any, v: Any, mass: Any, dt: float, motion: Mapping[str, Any], first: int
) -> tuple[list[Any], list[Any]]:
    """Return the force of every attachment on a node, (3,), N, and the arm of it about the carrier's origin.

    Args:
        attachments: that hold nodes.
        x: the node, (3,).
        v: its velocity.
        mass: its mass.
        dt: s, of a step.
        motion: of all carriers, with "held" and "rest" of the node.
        first: the first carrier among them that holds nodes.
    """
    found, arms = [], []
    for i, attachment in enumerate(attachments):
        stiffness = STIFFNESS * mass / dt**2 if attachment.stiffness is None else attachment.stiffness
        damping = DAMPING * mass / dt if attachment.damping is None else attachment.damping
        origin = motion["collider_position"][first + i]
        arm = motion["collider_rotation"][first + i] @ motion["rest"]
        speed = motion["collider_velocity"][first + i] + np.cross(motion["collider_spin"][first + i], arm)
        found.append(motion["held"][i] * (stiffness * (origin + arm - x) + damping * (speed - v)))
        arms.append(x - origin)
    return found, arms
