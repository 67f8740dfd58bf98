"""Pairs of shapes that cannot meet while joints are inside their limits: a bound over all configurations.

Each shape is covered by balls. The range of each joint between a shape and a body is divided into parts; over one of
them a ball's center moves on an arc, and the ball around that arc, made greater by its own radius, contains all that
it reaches. So balls pass from joint to joint without a wrapping error of axes, and two shapes whose balls are all
apart in the frame of the body that carries both can never touch. The bound is conservative, not tight: it treats the
joints of both branches as independent, which they are, and a joint's parts as wholes.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from adjoin.collision.broad_phase import bounding_box
from adjoin.collision.pairs import Pair
from adjoin.model.model import Model
from adjoin.model.parts import WORLD, Geometry
from adjoin.spatial.vector import skew

PARTS = 24
"""Into about how many cells the ranges of the joints between two bodies are divided, all of them together."""

BEYOND = 0.05
"""How far beyond its limits a joint is assumed to go, of its range, since contacts push it there; and at least:"""
BEYOND_ANGLE = 0.1  # rad
BEYOND_LENGTH = 0.01  # m

APART = 0.005
"""How far apart balls must stay, m."""


class Balls(NamedTuple):
    """What the shapes of a body can reach.

    Attributes:
        centers: (cells, balls, 3), m.
        radii: (cells, balls), m.
    """

    centers: np.ndarray
    radii: np.ndarray


def out_of_reach(model: Model, pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs whose shapes cannot come within their margin of each other inside the joints' limits.

    Args:
        model: The robots.
        pairs: Shapes, no planes among them; bodies that move freely against each other always meet.
    """
    shapes = model.geometries
    covers = {index: _cover(shapes[index]) for index in sorted({index for pair in pairs for index in pair.shapes})}
    by_body: dict[int, list[int]] = {}
    places: dict[int, slice] = {}  # of the balls of each shape among those of its body
    for index, cover in covers.items():
        own = by_body.setdefault(shapes[index].body, [])
        first = places[own[-1]].stop if own else 0
        places[index] = slice(first, first + cover.radii.shape[1])
        own.append(index)

    @cache
    def seen_from(body: int, top: int) -> Balls | None:
        own = [covers[index] for index in by_body[body]]
        balls = Balls(np.concatenate([c.centers for c in own], 1), np.concatenate([c.radii for c in own], 1))
        path = model_path(model, body)
        path = path[: path.index(top)] if top != WORLD else path
        parts = max(1, int(PARTS ** (1.0 / max(1, len(path))) + 1e-9))
        for joint in path:
            moved = _through(model, joint, balls, parts)
            if moved is None:
                return None
            balls = moved
        return balls

    @cache
    def gaps(one: int, other: int) -> np.ndarray | None:
        """The least gap of each ball of one body and each of the other."""
        above = model_path(model, other)
        top = next((body for body in model_path(model, one) if body in above), WORLD)
        a, b = seen_from(one, top), seen_from(other, top)
        if a is None or b is None:
            return None
        p, q = a.centers.reshape(-1, 3), b.centers.reshape(-1, 3)
        square = (p * p).sum(1)[:, None] + (q * q).sum(1) - 2.0 * p @ q.T
        gap = np.sqrt(np.maximum(square, 0.0)) - a.radii.reshape(-1)[:, None] - b.radii.reshape(-1)
        return gap.reshape(*a.radii.shape, *b.radii.shape).min((0, 2))

    found = []
    for pair in pairs:
        i, j = pair.shapes
        gap = gaps(shapes[i].body, shapes[j].body)
        if gap is not None and gap[places[i], places[j]].min() > pair.margin + APART:
            found.append(pair)
    return found


def model_path(model: Model, body: int) -> list[int]:
    """Return a body and those that carry it, up to the root."""
    path = []
    while body != WORLD:
        path.append(body)
        body = model.bodies[body].parent
    return path


def _cover(shape: Geometry) -> Balls:
    """Up to four balls along the longest side of a shape, in the frame of its body."""
    middle, half = (np.array(part, dtype=float) for part in bounding_box(shape, shape.size))
    axis = int(half.argmax())
    if shape.kind == "sphere":
        centers, radius = middle[None], shape.size[0]
    else:
        round_about = shape.kind in ("capsule", "cylinder") and axis == 2
        across = shape.size[0] if round_about else math.hypot(*np.delete(half, axis))
        count = min(4, max(1, math.ceil(half[axis] / max(across, 1e-9))))
        centers = np.repeat(middle[None], count, 0)
        centers[:, axis] += (2.0 * np.arange(count) + 1.0 - count) / count * half[axis]
        radius = math.hypot(across, half[axis] / count)
    centers = centers @ np.array(shape.rotation).T + np.array(shape.position)
    return Balls(centers[None], np.full((1, len(centers)), radius))


def _through(model: Model, index: int, balls: Balls, parts: int) -> Balls | None:
    """What balls of a body reach in the frame of its parent; None if that has no bounds."""
    body = model.bodies[index]
    joint, axis = body.joint, np.array(body.joint.axis)
    low, high = joint_range(model, index)
    centers, radii = balls
    if joint.kind in ("revolute", "continuous"):
        width = (high - low) / parts
        middles = (low + width * (np.arange(parts) + 0.5))[:, None, None, None]
        along = (centers @ axis)[..., None] * axis
        across = centers - along
        half = min(0.5 * width, 0.5 * math.pi)
        turned = np.cos(middles) * across + np.sin(middles) * (across @ np.array(skew(joint.axis)).T)
        centers = along + math.cos(half) * turned  # the least ball around an arc is about the middle of its chord
        radii = np.broadcast_to(radii + math.sin(half) * np.linalg.norm(across, axis=-1), (parts, *radii.shape))
    elif joint.kind == "prismatic" and high - low < math.inf:
        width = (high - low) / parts
        centers = centers + (low + width * (np.arange(parts) + 0.5))[:, None, None, None] * axis
        radii = np.broadcast_to(radii + 0.5 * width, (parts, *radii.shape))
    elif joint.kind == "ball":
        centers, radii = np.zeros_like(centers), radii + np.linalg.norm(centers, axis=-1)
    else:
        return None
    count = radii.shape[-1]
    centers = centers.reshape(-1, count, 3) @ np.array(body.rotation).T + np.array(body.position)
    return Balls(centers, radii.reshape(-1, count))


def joint_range(model: Model, index: int) -> tuple[float, float]:
    """Return between which coordinates a joint is assumed to stay: its limits and some more; at most a full turn."""
    joint, at = model.joints[index], model.coordinates[index]
    low, high = joint.lower, joint.upper
    if joint.mimic is not None:
        leader = model.joints[at.leader]
        ends = [bound * at.multiplier + at.offset for bound in (leader.lower, leader.upper)]
        low, high = max(low, min(ends)), min(high, max(ends))
    angle = joint.kind in ("revolute", "continuous")
    more = max(BEYOND * (high - low), BEYOND_ANGLE if angle else BEYOND_LENGTH)
    if angle and not high - low + 2.0 * more < 2.0 * math.pi:
        return -math.pi, math.pi
    return low - more, high + more
