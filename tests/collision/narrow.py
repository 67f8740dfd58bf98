"""Narrow phases as kernels over poses and sizes, random pairs of shapes, and a referee of their distance."""

import functools
from itertools import combinations_with_replacement, product

import torch
from places import COUNTS, cloud

from adjoin.collision.branchless import choose
from adjoin.collision.narrow_phase import NARROW_PHASE
from adjoin.collision.point import FAR
from adjoin.collision.shape import Shape
from adjoin.spatial.rotation import from_quaternion
from adjoin.trace import Function, select

CONVEX = ("sphere", "capsule", "box", "cylinder", "ellipsoid", "hull")
PAIRS = [*combinations_with_replacement(CONVEX, 2), *((kind, "plane") for kind in CONVEX)]
NAMES = [f"{a}-{b}" for a, b in PAIRS]


CUBE = tuple(product((-0.1, 0.1), repeat=3))
"""The vertices of a hull that is a cube."""


@functools.cache
def touch(first, second, vertices=None):
    """Distances of all candidates and one point, given positions, quaternions, sizes and which of them.

    The kernel takes (p, q, x, r, s, y, which): position, quaternion and size of both shapes, and which candidate, or a
    negative number for the nearest. Hulls have the given vertices, or random ones. It gives the distances as the search
    finds them, then distance, position and normal of that one point as they are evaluated, and its feature.
    """
    phase = NARROW_PHASE[first, second]

    def touch(p, q, x, r, s, y, which):
        a, b = (
            Shape(kind, tuple(size), (from_quaternion(tuple(quaternion)), tuple(position)), _vertices(kind, vertices))
            for kind, position, quaternion, size in ((first, p, q, x), (second, r, s, y))
        )
        found = phase.search(a, b)
        best = (found[0].distance, found[0].feature)
        for k, candidate in enumerate(found[1:], 1):
            take = select(which < 0.0, candidate.distance, select(which == float(k), -FAR, FAR)) < select(
                which < 0.0, best[0], FAR - 1.0
            )
            best = choose(take, tuple(candidate), best)
        point = phase.evaluate(a, b, best[1])
        return (
            [candidate.distance for candidate in found],
            [point.distance, *point.position, *point.normal],
            list(best[1]) or [0.0 * p[0]],
        )

    return Function(touch, {"p": 3, "q": 4, "x": 3, "r": 3, "s": 4, "y": 3, "which": ()})


def _vertices(kind, vertices):
    return (vertices or cloud()) if kind == "hull" else ()


def sample(kinds, count, seed=0, spread=0.3):
    """Random poses and sizes of two shapes: the arguments of `touch`, without which."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(low, high, width):
        return low + (high - low) * torch.rand(count, width, generator=generator, dtype=torch.float64)

    parts = []
    for kind in kinds:
        quaternion = torch.randn(count, 4, generator=generator, dtype=torch.float64)
        size = uniform(0.05, 0.3, 3)
        size[:, COUNTS[kind] :] = 0.0
        parts += [uniform(-spread, spread, 3), torch.nn.functional.normalize(quaternion, dim=-1), size]
    return parts


def rotation(q):
    """The matrices of unit quaternions."""
    w, x, y, z = q.unbind(-1)
    rows = [
        torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], -1),
        torch.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], -1),
        torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1),
    ]
    return torch.stack(rows, -2)


def _support(kind, size, d):
    """The point of a shape in its frame that reaches furthest along directions d (batch, directions, 3)."""
    sign, size = torch.where(d < 0.0, -1.0, 1.0), size[:, None]
    unit = torch.nn.functional.normalize(d, dim=-1)
    along = torch.tensor([0.0, 0.0, 1.0], dtype=d.dtype) * size[..., 1:2] * sign
    if kind == "sphere":
        return size[..., :1] * unit
    if kind == "capsule":
        return size[..., :1] * unit + along
    if kind == "box":
        return size * sign
    if kind == "cylinder":
        flat = torch.nn.functional.normalize(d * torch.tensor([1.0, 1.0, 0.0], dtype=d.dtype), dim=-1)
        return size[..., :1] * flat + along
    if kind == "ellipsoid":
        return size * torch.nn.functional.normalize(size * d, dim=-1)
    vertices = torch.tensor(cloud(), dtype=d.dtype)
    return vertices[(d @ vertices.T).argmax(-1)]


def gap(kinds, parts, n):
    """How far a plane with normal n (batch, directions, 3) keeps the shapes apart, negative where they overlap."""
    p, q, x, r, s, y = parts
    first, second = rotation(q), rotation(s)
    at_a = _support(kinds[0], x, -(n @ first)) @ first.mT + p[:, None]
    if kinds[1] == "plane":
        return (n * (at_a - r[:, None])).sum(-1)
    at_b = _support(kinds[1], y, n @ second) @ second.mT + r[:, None]
    return (n * (at_a - at_b)).sum(-1)


def referee(kinds, parts, more, directions=400, kept=8, rounds=45):
    """The greatest gap over all directions, by looking at many and improving the best of them at random.

    Args:
        kinds: of the shapes.
        parts: their poses and sizes.
        more: further directions to look at (batch, 3).
        directions: how many are looked at first.
        kept: how many of them are improved.
        rounds: how often.
    """
    generator = torch.Generator().manual_seed(1)
    first, second = rotation(parts[1]), rotation(parts[4])
    if kinds[1] == "plane":
        return gap(kinds, parts, second[:, None, :, 2])[:, 0]

    def random(*shape):
        return torch.randn(len(more), *shape, generator=generator, dtype=torch.float64)

    n = torch.nn.functional.normalize(random(directions, 3), dim=-1)
    n = torch.cat([more[:, None], n, first.mT, -first.mT, second.mT, -second.mT], 1)
    best, top = gap(kinds, parts, n).topk(kept, 1)
    n = n.gather(1, top[..., None].expand(-1, -1, 3))
    for k in range(rounds):
        step = 0.1 * 0.75**k * random(kept, 16, 3)
        tried = torch.nn.functional.normalize(n[:, :, None] + step, dim=-1)
        values, place = gap(kinds, parts, tried.flatten(1, 2)).unflatten(1, (kept, 16)).max(-1)
        moved = tried.gather(2, place[..., None, None].expand(-1, -1, 1, 3))[:, :, 0]
        n = torch.where((values > best)[..., None], moved, n)
        best = torch.maximum(best, values)
    return best.max(1).values


def nearest(kinds, parts):
    """The nearest point of each pair, as `touch` evaluates it."""
    return touch(*kinds)(*parts, -torch.ones_like(parts[0][:, 0]))
