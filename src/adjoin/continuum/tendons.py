"""Tendons: cables without weight that run through nodes of a solid and pull these together.

A tendon with the tension T has the energy T times its length, so each of its segments pulls its two nodes towards each
other with T. It slides through the nodes between its ends without friction.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from adjoin.compiler.maps.sequence import Connection, Field, Read
from adjoin.errors import InputError
from adjoin.trace import sqrt

SEGMENTS = "segments"
"""The set of the segments of all tendons."""

ENDS = "ends"
"""The connection from segments to nodes."""

Tendons = Sequence[Sequence[int]]


def check(tendons: Tendons, nodes: int) -> None:
    """Raise if a tendon does not run through nodes that exist."""
    for i, tendon in enumerate(tendons):
        if len(tendon) < 2:
            raise InputError(f"tendon {i}: a tendon runs through at least 2 nodes, got {list(tendon)}")
        for node in tendon:
            if not 0 <= node < nodes:
                raise InputError(f"tendon {i}: no node {node}; nodes: 0 to {nodes - 1}")
        for a, b in itertools.pairwise(tendon):
            if a == b:
                raise InputError(f"tendon {i}: it runs from node {a} to itself")


def fields(tendons: Tendons, role: Any) -> list[Field]:
    """Return the fields of tendons; `role` is that of the tension."""
    count = len(tendons)
    return [
        Field("tension", None, (count,), role),
        Field("tendon_of", SEGMENTS, (count,), "parameter"),
        Field("pull", SEGMENTS, (3,), "temporary", ENDS),
    ]


def connection(atomic: bool = False) -> Connection:
    """Return the connection from segments to their two nodes."""
    return Connection(ENDS, SEGMENTS, "nodes", 2, atomic=atomic)


def reads() -> dict[str, Read]:
    """Return what the stage over segments reads."""
    return {"x": Read("x", ENDS), "tension": Read("tension"), "tendon_of": Read("tendon_of")}


def table(tendons: Tendons) -> np.ndarray:
    """Return the nodes of each segment, (segments, 2)."""
    return np.array([pair for tendon in tendons for pair in itertools.pairwise(tendon)], np.int64)


def inputs(tendons: Tendons, tension: torch.Tensor | None, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tension in every step, and of each segment which tendon it belongs to, (segments, tendons)."""
    if tension is None:
        raise InputError("solid: a rollout with tendons needs their tension")
    slack = (tension.detach() < 0).nonzero()
    if len(slack):
        where = slack[0].tolist()
        raise InputError(
            f"tendon {where[-1]}: tendons only pull, but the tension of step {where[0]} is "
            f"{tension[tuple(where)].item():.4g} N"
        )
    owner = torch.tensor([i for i, tendon in enumerate(tendons) for _ in tendon[1:]])
    return tension, torch.nn.functional.one_hot(owner, len(tendons)).to(like)


def pull(x: Any, tension: Any, tendon_of: Any) -> dict[str, Any]:
    """Return the forces on the two nodes of a segment, N."""
    along = x[1] - x[0]
    force = (tension @ tendon_of) / sqrt(along @ along + 1e-18) * along
    return {"pull": np.array([force, -force], dtype=object)}
