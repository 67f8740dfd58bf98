"""Cloth that keeps its distance from itself: nodes against triangles, and edges against edges.

Pairs that may come close within some steps are found again and again, by their distance and speed. A node above a
triangle, or an edge across another, that is closer than the thickness feels a spring and a damper along the line
between the nearest points, and friction across; the other feels the opposite; nodes feel it by their share.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from adjoin.compiler.maps.checkpoints import Checkpoints
from adjoin.compiler.maps.rollout import StepRunner
from adjoin.compiler.maps.sequence import Connection, Field, Read, Stage
from adjoin.errors import InputError
from adjoin.trace import maximum, minimum, select, sqrt

PAIRS = {"node_triangle": "repelled", "edge_edge": "crossed"}
"""The sets of pairs, with the forces on their four nodes. The connection of a set with its nodes is "<set>_nodes"."""

CHUNK = 1 << 22
"""Pairs whose distance is computed at a time."""


@dataclass(frozen=True)
class SelfContact:
    """How cloth touches itself.

    Attributes:
        thickness: distance that is kept, m; less than the edges of triangles, and more than what moves in a step.
        stiffness: of the spring at a node, N/m.
        damping: of the damper at a node, N s/m.
        friction: Coulomb's coefficient.
        refresh: steps after which pairs are found again.
    """

    thickness: float
    stiffness: float = 20.0
    damping: float = 0.0
    friction: float = 0.0
    refresh: int = 20

    def __post_init__(self):
        if not (self.thickness > 0 and self.stiffness > 0 and min(self.damping, self.friction) >= 0):
            raise InputError(f"self-contact: thickness and stiffness must be positive, got {self}")
        if self.refresh < 1:
            raise InputError(f"self-contact: refresh must be at least 1 step, got {self.refresh}")

    def fields(self) -> list[Field]:
        """Return the fields of the forces."""
        return [Field(force, pairs, (3,), "temporary", f"{pairs}_nodes") for pairs, force in PAIRS.items()]

    def connections(self) -> list[Connection]:
        """Return the connections of pairs with their four nodes."""
        return [Connection(f"{pairs}_nodes", pairs, "nodes", 4) for pairs in PAIRS]

    def stages(self, dt: float) -> list[Stage]:
        """Return the stages that push nodes away from triangles, and edges from edges."""

        def repel(x: Any, v: Any, mass: Any) -> dict[str, Any]:
            return {"repelled": self.forces(*above_triangle(x), x, v, mass, dt)}

        def cross(x: Any, v: Any, mass: Any) -> dict[str, Any]:
            return {"crossed": self.forces(*across_edge(x), x, v, mass, dt)}

        reads = [{name: Read(name, f"{pairs}_nodes") for name in ("x", "v", "mass")} for pairs in PAIRS]
        functions = zip(PAIRS, (repel, cross), reads, strict=True)
        return [Stage(function.__name__, pairs, function, read) for pairs, function, read in functions]

    def forces(self, shares: Any, facing: Any, x: Any, v: Any, mass: Any, dt: float) -> Any:
        """Return the forces on the four nodes of a pair, (4, 3), N.

        Args:
            shares: of the nodes in the way from the other's nearest point to the one's: positive for the one, negative
                for the other, (4,).
            facing: whether the nearest points are within both.
            x: positions, (4, 3).
            v: velocities, (4, 3).
            mass: (4,), kg.
            dt: s, of a step: friction takes away at most half of the slip.
        """
        away, relative = shares @ x, shares @ v
        distance = sqrt(away @ away + 1e-24)
        normal = away / distance
        depth = select(facing, maximum(self.thickness - distance, 0.0), 0.0)
        speed = relative @ normal
        pressing = select(depth > 0.0, maximum(self.stiffness * depth - self.damping * speed, 0.0), 0.0)
        slip = relative - speed * normal
        slipping = sqrt(slip @ slip + 1e-12)
        moved = 1.0 / sum(share * share / m for share, m in zip(shares, mass, strict=True))  # kg
        force = pressing * normal - minimum(self.friction * pressing / slipping, 0.5 * moved / dt) * slip
        return np.array([share * force for share in shares], dtype=object)

    def pairs(self, triangles: np.ndarray, x: torch.Tensor, v: torch.Tensor, time: float) -> dict[str, np.ndarray]:
        """Return the pairs that may come closer than the thickness within a time, (pairs, 4) each, in a fixed order.

        Args:
            triangles: (triangles, 3).
            x: positions, (*batch, nodes, 3); a pair of any variant is one of all.
            v: velocities, (*batch, nodes, 3).
            time: s; speeds may grow by ten times gravity meanwhile.
        """
        x = x.detach().reshape(-1, *x.shape[-2:])
        speed = v.detach().norm(dim=-1).nan_to_num(0.0).max().item()
        reach = self.thickness + 2 * time * (speed + 98.1 * time)
        edges = np.unique(np.sort(triangles[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), 1), axis=0)
        nodes = np.arange(x.shape[1])[:, None]
        return {
            "node_triangle": _close(x, nodes, triangles, reach, ordered=False),
            "edge_edge": _close(x, edges, edges, reach, ordered=True),
        }

    def segment(self, steps: int, keep: int | None) -> int:
        """Return the steps between two searches: they divide what is kept."""
        if keep is None:
            return max(1, min(self.refresh, steps))
        return math.gcd(keep, self.refresh) if keep % self.refresh else self.refresh


@dataclass(frozen=True, eq=False)
class TouchingRunner:
    """Steps of cloth that touches itself: in segments, at the start of which pairs that may touch are found.

    Attributes:
        runner: of the steps, with any pairs.
        touch: how the cloth touches itself.
        triangles: (triangles, 3).
        dt: s.
    """

    runner: StepRunner
    touch: SelfContact
    triangles: np.ndarray
    dt: float

    def rollout(
        self,
        state: Mapping[str, torch.Tensor],
        parameters: Mapping[str, torch.Tensor],
        controls: Mapping[str, torch.Tensor],
        *,
        steps: int | None = None,
        keep: int | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Run steps; see `StepRunner.rollout`."""
        lengths = {len(control) for control in controls.values()} | ({steps} if steps is not None else set())
        if len(lengths) != 1:
            raise InputError(f"cloth: a rollout needs one number of steps, got {sorted(lengths) or 'none'}")
        (count,) = lengths
        if keep is not None and (keep < 1 or count % keep):
            raise InputError(f"keep must divide the {count} steps, got {keep}")
        self._check(parameters["mass"].min().item())
        states, parts = dict(state), []
        kept, length = [states], self.touch.segment(count, keep)
        for first in range(0, count, length):
            last = min(first + length, count)
            tables = self.touch.pairs(self.triangles, states["x"], states["v"], (last - first) * self.dt)
            sizes = {name: len(pairs) for name, pairs in tables.items()}
            runner = self.runner.with_tables(sizes, {f"{name}_nodes": pairs for name, pairs in tables.items()})
            given = {name: control[first:last] for name, control in controls.items()}
            states, outputs = runner.rollout(states, parameters, given, steps=last - first, checkpoints=checkpoints)
            parts.append(outputs)
            if keep is not None and last % keep == 0:
                kept.append(states)
        outputs = {one.name: torch.cat([part[one.name] for part in parts]) for one in self.runner.outputs}
        if keep is not None:
            states = {name: torch.stack([one[name] for one in kept]) for name in states}
        return states, outputs

    def _check(self, lightest: float) -> None:
        touch, dt = self.touch, self.dt
        if touch.stiffness * dt**2 > lightest or touch.damping * dt > lightest:
            raise InputError(
                f"cloth: a node of {lightest:.3g} kg and steps of {dt:g} s allow a stiffness of self-contact of at "
                f"most {lightest / dt**2:.3g} N/m and a damping of at most {lightest / dt:.3g} N s/m"
            )


def above_triangle(x: Any) -> tuple[Any, Any]:
    """Return the shares of a node and the corners of a triangle in the way to it from its foot, and if that is inside.

    Args:
        x: positions of the node and the corners, (4, 3).
    """
    a, b, p = x[2] - x[1], x[3] - x[1], x[0] - x[1]
    aa, ab, bb, pa, pb = a @ a, a @ b, b @ b, p @ a, p @ b
    below = aa * bb - ab * ab
    second, third = (bb * pa - ab * pb) / below, (aa * pb - ab * pa) / below
    first = 1.0 - second - third
    inside = (first >= 0.0) & (second >= 0.0) & (third >= 0.0)
    return np.array([1.0, -first, -second, -third], dtype=object), inside


def across_edge(x: Any) -> tuple[Any, Any]:
    """Return the shares of the ends of two edges in the way between their nearest points, and if these are within both.

    Args:
        x: positions of the ends of the one and of the other, (4, 3). Edges that are nearly parallel do not cross.
    """
    a, b, p = x[1] - x[0], x[3] - x[2], x[0] - x[2]
    aa, ab, bb, pa, pb = a @ a, a @ b, b @ b, p @ a, p @ b
    below = aa * bb - ab * ab
    crossing = below > 1e-6 * aa * bb
    below = select(crossing, below, 1.0)
    one, other = (ab * pb - bb * pa) / below, (aa * pb - ab * pa) / below
    inside = crossing & (one > 0.0) & (one < 1.0) & (other > 0.0) & (other < 1.0)
    return np.array([1.0 - one, one, other - 1.0, -other], dtype=object), inside


def _close(x: torch.Tensor, ones: np.ndarray, others: np.ndarray, reach: float, ordered: bool) -> np.ndarray:
    """Return the pairs whose balls come within reach in some variant and that share no node, (pairs, 4).

    Args:
        x: positions, (variants, nodes, 3).
        ones: nodes of each of one kind, (count, corners).
        others: nodes of each of the other.
        reach: m.
        ordered: whether both are the same: then each pair comes once.
    """
    own, other = (torch.as_tensor(nodes, device=x.device) for nodes in (ones, others))
    found, rows = [], max(1, CHUNK // max(len(others), 1))
    for first in range(0, len(own), rows):
        part = own[first : first + rows]
        close = torch.zeros((len(part), len(other)), dtype=torch.bool, device=x.device)
        for variant in x:
            middles = [variant[nodes].mean(1) for nodes in (part, other)]
            radii = [
                (variant[nodes] - middle[:, None]).norm(dim=-1).amax(1)
                for nodes, middle in zip((part, other), middles, strict=True)
            ]
            close |= torch.cdist(middles[0], middles[1]) <= radii[0][:, None] + radii[1] + reach
        pairs = close.nonzero() + torch.tensor([first, 0], device=x.device)
        if ordered:
            pairs = pairs[pairs[:, 0] < pairs[:, 1]]
        nodes = torch.cat([own[pairs[:, 0]], other[pairs[:, 1]]], 1)
        corners = ones.shape[1]
        shared = (nodes[:, :corners, None] == nodes[:, None, corners:]).any(2).any(1)
        found.append(nodes[~shared].cpu().numpy())
    result = np.concatenate(found)
    return result if len(result) else _apart(ones, others)


def _apart(ones: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return some pair that shares no node: a map runs over something, and what is far apart feels nothing."""
    for one in ones[::-1]:
        free = ~(others[:, :, None] == one).any(2).any(1)
        if free.any():
            return np.concatenate([one, others[free][-1]])[None]
    raise InputError("self-contact: every part of the cloth shares nodes with every other; it cannot touch itself")
