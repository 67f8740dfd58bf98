"""Cloth that keeps its distance from itself: nodes against triangles.

Pairs of a node and a triangle that may come close within some steps are found again and again, by their distance and
speed. A node above a triangle and closer to it than the thickness feels a spring and a damper along the line to its
foot, and friction across; the corners of the triangle feel the opposite, by their share of the foot.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from adjoin.compiler.maps.sequence import Connection, Field, Read, Stage
from adjoin.errors import InputError
from adjoin.trace import maximum, minimum, select, sqrt

PAIRS, TOUCHING = "pairs", "touching"
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
        """Return the field of the forces."""
        return [Field("repelled", PAIRS, (3,), "temporary", TOUCHING)]

    def connection(self) -> Connection:
        """Return the connection of pairs with the node and the three corners."""
        return Connection(TOUCHING, PAIRS, "nodes", 4)

    def stage(self, dt: float) -> Stage:
        """Return the stage that pushes nodes and triangles apart."""

        def repel(x: Any, v: Any, mass: Any) -> dict[str, Any]:
            return {"repelled": self.forces(x, v, mass[0], dt)}

        reads = {name: Read(name, TOUCHING) for name in ("x", "v", "mass")}
        return Stage("repel", PAIRS, repel, reads)

    def forces(self, x: Any, v: Any, mass: Any, dt: float) -> Any:
        """Return the force on a node and on the corners of a triangle, (4, 3), N.

        Args:
            x: positions of the node and the corners, (4, 3).
            v: velocities, (4, 3).
            mass: of the node, kg.
            dt: s, of a step: friction takes away at most half of the slip.
        """
        a, b, p = x[2] - x[1], x[3] - x[1], x[0] - x[1]
        aa, ab, bb, pa, pb = a @ a, a @ b, b @ b, p @ a, p @ b
        below = aa * bb - ab * ab
        second, third = (bb * pa - ab * pb) / below, (aa * pb - ab * pa) / below
        shares = np.array([1.0 - second - third, second, third], dtype=object)
        away = p - second * a - third * b
        distance = sqrt(away @ away + 1e-24)
        normal = away / distance
        above = (shares[0] >= 0.0) & (shares[1] >= 0.0) & (shares[2] >= 0.0)
        depth = select(above, maximum(self.thickness - distance, 0.0), 0.0)
        relative = v[0] - shares @ v[1:]
        speed = relative @ normal
        pressing = select(depth > 0.0, maximum(self.stiffness * depth - self.damping * speed, 0.0), 0.0)
        slip = relative - speed * normal
        slipping = sqrt(slip @ slip + 1e-12)
        force = pressing * normal - minimum(self.friction * pressing / slipping, 0.5 * mass / dt) * slip
        return np.array([force, *[-share * force for share in shares]], dtype=object)

    def pairs(self, triangles: np.ndarray, x: torch.Tensor, v: torch.Tensor, time: float) -> np.ndarray:
        """Return the pairs that may come closer than the thickness within a time, (pairs, 4), in a fixed order.

        Args:
            triangles: (triangles, 3).
            x: positions, (*batch, nodes, 3); a pair of any variant is one of all.
            v: velocities, (*batch, nodes, 3).
            time: s; speeds may grow by ten times gravity meanwhile.
        """
        x = x.detach().reshape(-1, *x.shape[-2:])
        speed = v.detach().norm(dim=-1).nan_to_num(0.0).max().item()
        reach = self.thickness + 2 * time * (speed + 98.1 * time)
        corners = torch.as_tensor(triangles, device=x.device)
        nodes = x.shape[1]
        own = torch.zeros((nodes, len(triangles)), dtype=torch.bool, device=x.device)
        own[corners.T, torch.arange(len(triangles), device=x.device)] = True
        close = torch.zeros_like(own)
        rows = max(1, CHUNK // max(len(triangles), 1))
        for variant in x:
            middle = variant[corners].mean(1)
            radius = (variant[corners] - middle[:, None]).norm(dim=-1).amax(1)
            for first in range(0, nodes, rows):
                distance = torch.cdist(variant[first : first + rows], middle)
                close[first : first + rows] |= distance <= radius + reach
        node, triangle = (close & ~own).nonzero().T.cpu().numpy()
        if not len(node):  # a map runs over something: a pair that is far apart feels nothing
            node, triangle = (~own).nonzero()[-1:].T.cpu().numpy()
        return np.concatenate([node[:, None], triangles[triangle]], 1)

    def segment(self, steps: int, keep: int | None) -> int:
        """Return the steps between two searches: they divide what is kept."""
        if keep is None:
            return max(1, min(self.refresh, steps))
        return math.gcd(keep, self.refresh) if keep % self.refresh else self.refresh
