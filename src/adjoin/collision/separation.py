"""The direction in which two convex cores are furthest apart, or overlap the least.

Let M be the set of all a - b, for a in the first core and b in the second. The gap along a unit vector n is the least
n . m in M: positive if a plane with this normal is between the cores, and minus the distance that the first has to move
along n if they overlap. Its greatest value over all n is the distance of the cores, or minus the depth of their
overlap.

M is moved along the best n so far until the gap is a margin; then the method of Gilbert, Johnson and Keerthi (1988)
finds the point of M that is nearest to the origin, and its direction is the next n. The gap never falls: if d is the
direction of the point nearest to the origin of M + t n, then gap(d) + t n . d >= gap(n) + t. Where it rises no more it
has a local maximum. There is only one if the cores are apart; where they overlap by much, the search begins again in
the directions that are best among many.
"""

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from adjoin.collision.branchless import choose, clamp, unit
from adjoin.collision.core import TINY, Core, support
from adjoin.spatial import vector
from adjoin.spatial.motion import Transform, transform_point
from adjoin.spatial.scalar import Scalar, select, sqrt
from adjoin.spatial.vector import IDENTITY, Vector3
from adjoin.trace import maximum, scratch, table, to_float, while_loop

TOLERANCE = 1e-7
"""How much the nearest point may be nearer than the one that is taken for it, in terms of its distance."""

STALLED = 1e-4
"""The same where it comes no nearer because of rounding, in terms of the margin and a tenth of its distance."""

SAME = 1e-12
"""The square of the angle between two directions that are the same."""

STEPS = 60
"""How many support points are looked for at most, for one beginning."""

SHALLOW = 0.01
"""The depth, in terms of the smaller shape's smallest half edge, from which on several beginnings are tried."""

DEEP = 0.1
"""The depth, in the same terms, from which on many are."""

SEVERAL, MANY = 4, 16
"""How many are tried at most: in the best of `COARSE` directions, or of all."""

NEAR = 0.95
"""The cosine of the angle within which no second beginning is tried."""

MOMENTUM = 0.7
"""How much of the last change of direction is added to the next: the ascent is slow where the gap is nearly flat."""

PARALLEL = 1e-4
"""The sine of the angle below which two edges of boxes have no common perpendicular of their own."""

MARGIN = 0.01
"""How far apart the cores are moved, in terms of the smaller shape's largest half edge."""


def _directions() -> np.ndarray:
    """Unit vectors to look along, and 0 for those along the first's axes or 1 for the second's; first the coarse."""
    grid = np.array([d for d in product((-1.0, -0.5, 0.0, 0.5, 1.0), repeat=3) if max(map(abs, d)) == 1.0])
    grid = grid[np.argsort(np.any(abs(grid) == 0.5, axis=1), kind="stable")]
    coarse = COARSE // 2
    grid /= np.linalg.norm(grid, axis=1, keepdims=True)
    parts = [(part, frame) for part in (grid[:coarse], grid[coarse:]) for frame in (0.0, 1.0)]
    return np.concatenate([np.column_stack([part, np.full(len(part), frame)]) for part, frame in parts])


COARSE = 52
"""Directions to the faces, edges and corners of a cube about either shape."""

_DIRECTIONS = _directions()


class Cores(NamedTuple):
    """Two cores in one frame.

    Attributes:
        a: the first.
        b: the second.
        first: the pose of the first.
        second: the pose of the second.
    """

    a: Core
    b: Core
    first: Transform
    second: Transform

    def toward(self, n: Vector3) -> tuple[Vector3, Vector3]:
        """The directions, in the frame of each, in which they reach toward the other, for n toward the first."""
        rotations = self.first[0], self.second[0]
        return vector.negate(vector.apply_transposed(rotations[0], n)), vector.apply_transposed(rotations[1], n)

    def difference(self, n: Vector3) -> Vector3:
        """The point of M with the least n . m."""
        d, e = self.toward(n)
        first = transform_point(self.first, support(self.a, d))
        return vector.subtract(first, transform_point(self.second, support(self.b, e)))


Simplex = tuple[Vector3, Vector3, Vector3]


def nearest(simplex: Sequence[Vector3], new: Vector3, shift: Vector3) -> tuple[Simplex, Vector3]:
    """The point nearest to the origin of the edges and faces from a new point to those of a simplex.

    Args:
        simplex: three points, which may coincide.
        new: a fourth.
        shift: by how much all are moved.

    Returns:
        The points, not moved, of the edge or face with the nearest point, and that point, moved.
    """
    q = vector.add(new, shift)
    others = [vector.add(p, shift) for p in simplex]
    edges = [vector.subtract(p, q) for p in others]
    squares = [vector.dot(e, e) for e in edges]
    best: Any = None
    for p, e, square in zip(simplex, edges, squares, strict=True):
        along = clamp(-vector.dot(q, e) / maximum(square, TINY), 0.0, 1.0)
        at = vector.add(q, vector.scale(along, e))
        found = (vector.dot(at, at), ((new, p, p), at))
        best = found if best is None else choose(found[0] < best[0], found, best)
    across = [vector.cross(q, p) for p in others]
    for i, j in ((0, 1), (1, 2), (0, 2)):
        normal = vector.cross(edges[i], edges[j])
        square = vector.dot(normal, normal)
        some = square > 1e-8 * squares[i] * squares[j]
        inside = vector.dot(normal, across[i]) >= 0.0
        inside = inside & (vector.dot(normal, across[j]) <= 0.0)
        inside = inside & (vector.dot(normal, vector.cross(others[i], others[j])) >= 0.0)
        at = vector.scale(vector.dot(normal, q) / select(some, square, 1.0), normal)
        found = (vector.dot(at, at), ((new, simplex[i], simplex[j]), at))
        best = choose(some & inside & (found[0] < best[0]), found, best)
    return best[1]


def ascend(cores: Cores, start: Vector3, margin: Scalar, enough: Scalar) -> tuple[Scalar, Vector3]:
    """The greatest gap that is reached from a direction, and where.

    Args:
        cores: the shapes.
        start: a unit vector.
        margin: the gap to which the cores are moved apart.
        enough: a gap at which no greater one is looked for.
    """
    first = cores.difference(start)
    gap = vector.dot(start, first)
    shift = vector.scale(maximum(margin - gap, 0.0), start)
    going = select(gap >= enough, 0.0, 1.0)
    carry = ((first, first, first), shift, start, vector.add(first, shift), (gap, start), going, 0.0)

    def step(_: Any, carry: Any) -> Any:
        simplex, shift, pushed, v, best, _, stalled = carry
        length = sqrt(maximum(vector.dot(v, v), TINY))
        n = vector.scale(1.0 / length, v)
        new = cores.difference(n)
        gap = vector.dot(n, new)
        best = choose(gap > best[0], (gap, n), best)
        error = length - (gap + vector.dot(n, shift))
        arrived = (error <= TOLERANCE * length) | (stalled > 0.5)
        still = vector.dot(shift, shift) <= TINY
        off = vector.subtract(n, pushed)
        final = (arrived & ((vector.dot(off, off) <= SAME) | (still & (gap >= margin)))) | (gap >= enough)
        # Beyond n, as far again in part as it came: any way that leaves the margin along n will do.
        ahead = vector.add(n, vector.scale(MOMENTUM, off))
        push = maximum(margin - gap, 0.0) / maximum(vector.dot(n, ahead), 0.5)
        shift = choose(arrived, vector.scale(push, ahead), shift)
        simplex, following = nearest(simplex, new, shift)
        # Where rounding keeps the nearest point from coming nearer, it is the nearest, or the simplex is useless.
        square = vector.dot(following, following)
        near = (
            (error <= 0.1 * STALLED * length + STALLED * margin) & ~arrived & (square >= (1.0 - 3e-7) * length * length)
        )
        useless = ~near & ~arrived & (square >= length * length)
        simplex, following = choose(useless, ((new, new, new), vector.add(new, shift)), (simplex, following))
        following = choose(near, v, following)
        pushed = choose(arrived, n, pushed)
        return simplex, shift, pushed, following, best, select(final, 0.0, 1.0), select(near, 1.0, 0.0)

    return while_loop(lambda carry: carry[5] > 0.5, step, carry, STEPS)[4]


def separate(
    cores: Cores, between: Vector3, smallest: Scalar, largest: Scalar, enough: Scalar = math.inf
) -> tuple[Scalar, Vector3]:
    """The greatest gap between two cores, and the unit vector along which it is.

    Args:
        cores: the shapes, in the frame of the first.
        between: from the second's middle to the first's.
        smallest: the smallest half edge of the boxes around them.
        largest: the lesser of the largest half edges of each.
        enough: a gap at which no greater one is looked for.
    """
    margin = MARGIN * largest
    count = len(_DIRECTIONS)

    def direction(k: Any) -> Vector3:
        """One of the directions that are looked at."""
        numbers = table(_DIRECTIONS)
        d = (numbers[k, 0], numbers[k, 1], numbers[k, 2])
        return choose(numbers[k, 3] > 0.5, vector.apply(cores.second[0], d), d)

    def begin(_: Any, carry: Any) -> Any:
        best, start, gaps, number, most = carry
        found = ascend(cores, start, margin, enough)
        best = choose(found[0] > best[0], found, best)
        initial = number < 0.5
        shallow, deep = best[0] > -SHALLOW * smallest, best[0] < -DEEP * smallest
        most = select(initial, select(shallow, 0.0, select(deep, float(MANY), float(SEVERAL))), most)
        number = number + 1.0
        goes_on = number < most
        looked = select(goes_on, select(most > SEVERAL + 0.5, float(count), float(COARSE)), 0.0)

        def look(k: Any, carry: Any) -> Any:
            _, gaps = carry
            d = direction(k)
            gaps[k] = vector.dot(d, cores.difference(d))
            return to_float(k) + 1.0, gaps

        first = select(initial, looked, 0.0)
        _, gaps = while_loop(lambda carry: carry[0] < first, look, (0.0, gaps), count)

        def visit(k: Any, carry: Any) -> Any:
            _, (greatest, at), gaps = carry
            d = direction(k)
            near = (vector.dot(d, start) > NEAR) | (vector.dot(d, found[1]) > NEAR)
            here = select(near, -1e30, gaps[k])
            gaps[k] = here
            return to_float(k) + 1.0, choose(here > greatest, (here, d), (greatest, at)), gaps

        _, (greatest, ahead), gaps = while_loop(
            lambda carry: carry[0] < looked, visit, (0.0, (-1e30, start), gaps), count
        )
        ahead = choose(number > most - 1.5, best[1], ahead)  # the last one goes on where the best ended
        return best, ahead, gaps, number, select(greatest > -1e29, most, 0.0)

    if {cores.a.kind, cores.b.kind} <= {"box", "capsule"}:
        return ascend(cores, _separating_axis(cores), margin, enough)
    start, _ = unit(between)
    carry = ((-1e30, start), start, scratch(count, cleared=False), 0.0, 1.0)
    return while_loop(lambda carry: carry[3] < carry[4], begin, carry, MANY)[0]


def _separating_axis(cores: Cores) -> Vector3:
    """Of the normals of two boxes' faces and those across two edges, that along which the gap is the greatest.

    If they overlap there is no better one (Gottschalk, Lin and Manocha, OBBTree, 1996). A segment is a box with edges
    along one axis only.
    """
    turn, offset = cores.second
    columns = vector.transpose(turn)
    best: Any = (-1e30, columns[2])
    edges = [axes if core.rank == 2 else axes[2:] for core, axes in ((cores.a, IDENTITY), (cores.b, columns))]
    faces = [axis for core, axes in zip((cores.a, cores.b), edges, strict=True) if core.rank == 2 for axis in axes]
    for axis in (*faces, *(vector.cross(one, other) for one in edges[0] for other in edges[1])):
        square = vector.dot(axis, axis)
        some = square > PARALLEL * PARALLEL
        axis = vector.scale(1.0 / sqrt(select(some, square, 1.0)), axis)
        axis = choose(vector.dot(axis, offset) > 0.0, vector.negate(axis), axis)
        reach = sum((h * abs(x) for h, x in zip(cores.a.box, axis, strict=True)), 0.0)
        reach = sum((h * abs(vector.dot(x, axis)) for h, x in zip(cores.b.box, columns, strict=True)), reach)
        gap = select(some, -vector.dot(axis, offset) - reach, -1e30)
        best = choose(gap > best[0], (gap, axis), best)
    return best[1]
