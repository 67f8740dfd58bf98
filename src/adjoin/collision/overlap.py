"""Whether two convex shapes overlap, over plain numbers: the distance algorithm of Gilbert, Johnson and Keerthi (1988).

It runs when a world is built, to look at single configurations. Steps have `narrow_phase`.
"""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from adjoin.collision.core import core_of
from adjoin.collision.shape import Shape

ROUNDS = 50


def overlap(a: Shape, b: Shape, margin: float = 0.0) -> bool:
    """Return whether two shapes, neither of them a plane, are nearer to each other than the margin.

    Args:
        a: A shape over numbers.
        b: Another.
        margin: m.
    """
    one, other = _Support(a), _Support(b)
    near = one.radius + other.radius + margin
    nearest = one.center - other.center
    points = [_difference(one, other, nearest)]
    nearest = points[0]
    for _ in range(ROUNDS):
        square = float(nearest @ nearest)
        if square <= max(near, 1e-9) ** 2:
            return True
        point = _difference(one, other, nearest)
        level = float(point @ nearest)
        if level >= near * math.sqrt(square) or square - level <= 1e-9 * square:
            return False  # a plane keeps them apart
        nearest, points = _nearest([point, *points])
    return False


class _Support:
    """The point of a shape's core that reaches furthest in a direction of the world."""

    def __init__(self, shape: Shape):
        self.rotation, self.center = np.array(shape.pose[0], dtype=float), np.array(shape.pose[1], dtype=float)
        self.vertices = np.array(shape.vertices, dtype=float) if shape.kind == "hull" else None
        self.radius = 0.0
        if self.vertices is None:
            core = core_of(shape)
            self.radius = float(core.radius)
            self.box, self.disk = np.array(core.box, dtype=float), np.array(core.disk, dtype=float)

    def __call__(self, direction: np.ndarray) -> np.ndarray:
        d = direction @ self.rotation
        if self.vertices is not None:
            return self.rotation @ self.vertices[(self.vertices @ d).argmax()] + self.center
        scaled = self.disk * d
        length = math.sqrt(float(scaled @ scaled))
        point = np.where(d < 0.0, -self.box, self.box) + (self.disk * scaled / length if length > 0.0 else 0.0)
        return self.rotation @ point + self.center


def _difference(one: _Support, other: _Support, direction: np.ndarray) -> np.ndarray:
    """The point of the set of differences that reaches furthest against a direction."""
    return one(-direction) - other(direction)


def _nearest(points: Sequence[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The point nearest to the origin in the hull of up to four points, and those that it lies between.

    The first of the points is new, and nearer than those before can get.
    """
    best, kept, least = points[0], [points[0]], float(points[0] @ points[0])
    for size in range(2, len(points) + 1):
        for others in combinations(points[1:], size - 1):
            corners = np.array([points[0], *others])
            # Weights w of a point that is across to all edges of the corners and has sum(w) = 1.
            rows = np.vstack([np.ones(size), (corners[1:] - corners[0]) @ corners.T])
            try:
                weights = np.linalg.solve(rows, np.eye(size)[0])
            except np.linalg.LinAlgError:
                continue  # corners on a line or in a plane: fewer of them span the same
            if (weights < 0.0).any():
                continue
            at = weights @ corners
            if float(at @ at) < least:
                best, kept, least = at, list(corners), float(at @ at)
    return best, kept
