"""Few vertices that stand for many: collision kernels pay for every one."""

from functools import cache

import numpy as np

from adjoin.io.hull import directions
from adjoin.spatial.vector import Vector3, vector3

MOST = 32
"""Vertices that are kept of a hull."""


@cache
def corners(vertices: tuple[Vector3, ...], most: int = MOST) -> tuple[Vector3, ...]:
    """The vertices that matter most: one after the other, that which stands out the most from those taken before.

    Args:
        vertices: of a hull, numbers.
        most: how many to take at most; fewer are taken if they reach as far in all of 128 directions.

    Returns:
        Some of the vertices, in their order.
    """
    if len(vertices) <= most:
        return vertices
    reach = np.array(vertices) @ directions().astype(np.float64)
    goal = reach.max(0)
    kept = [int(reach[:, 0].argmax())]
    while len(kept) < most:
        short = goal - reach[kept].max(0)
        if short.max() <= 1e-9 * np.abs(goal).max():
            break
        kept.append(int(reach[:, short.argmax()].argmax()))
    return tuple(vector3(vertices[k]) for k in sorted(kept))
