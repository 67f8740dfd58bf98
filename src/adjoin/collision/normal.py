"""The normal between two convex cores, tied to the features that it depends on.

The gap along n (see `separation`) is greatest where the point of M that it is at lies along n, unless n is where a
feature ends: then it stays perpendicular to the edge, or that of the face. So two equations say what n is, in
coordinates of the plane that touches the unit sphere there, and how it turns when the shapes move:

    FREE     t1 . w = 0 and t2 . w = 0      w = a(n) - b(n), the difference of the support points
    EDGE_A   e . n = 0 and (n x e) . w = 0  e along the edge of the first
    EDGE_B   the same with an edge of the second
    CROSS    e . n = 0 and f . n = 0        with an edge of each
    FACE_A   n is the normal of a face of the first
    FACE_B   of the second
"""

from collections.abc import Callable, Sequence
from typing import Any

from adjoin.collision.branchless import choose, unit
from adjoin.collision.core import Core, curvature
from adjoin.collision.faces import Feature, tangents
from adjoin.collision.separation import Cores
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar, select, sqrt
from adjoin.spatial.vector import Matrix3, Vector3, vector3
from adjoin.trace import detach, implicit, loop, maximum, minimum, table

FREE, FACE_A, FACE_B, CROSS, EDGE_A, EDGE_B = (float(k) for k in range(6))

PREFERENCE = 1e-6
"""How much less the gap may be, in terms of the size of the shapes, along a normal that is tied to more."""

Points = Callable[[Vector3], tuple[Vector3, Vector3]]
"""The support points of two cores along a normal."""

Pair = tuple[Any, Any]


def turned(cores: Cores, n: Vector3, t: Vector3) -> Vector3:
    """How the difference of the support points moves when n moves by t."""
    d, e = cores.toward(n)
    first = _curved(cores.a, cores.first[0], d, t)
    return vector.negate(vector.add(first, _curved(cores.b, cores.second[0], e, t)))


def _curved(core: Core, rotation: Matrix3, d: Vector3, t: Vector3) -> Vector3:
    return vector.apply(rotation, curvature(core, d, vector.apply_transposed(rotation, t)))


class Ties:
    """The two equations of a normal.

    Args:
        cores: the shapes.
        points: their support points.
        frame: two unit vectors perpendicular to the normal.
        edges: the vectors that the normal is perpendicular to, where it is tied.
        tied: whether it is, by each.
    """

    def __init__(self, cores: Cores, points: Points, frame: Pair, edges: Pair, tied: Pair):
        self.cores, self.points, self.frame, self.edges, self.tied = cores, points, frame, edges, tied

    def residual(self, n: Vector3) -> list[Scalar]:
        """Zero at the solution."""
        w = vector.subtract(*self.points(n))
        gap = vector.dot(n, w)
        free = [vector.dot(t, w) - gap * vector.dot(t, n) for t in self.frame]
        # Any point of an edge may stand for it, so w is off n along the edge: what is across turns with it.
        free[1] = select(self.tied[0], vector.dot(vector.cross(n, self.edges[0]), w), free[1])
        return [
            select(tied, vector.dot(edge, n), value)
            for tied, edge, value in zip(self.tied, self.edges, free, strict=True)
        ]

    def jacobian(self, n: Vector3) -> list[list[Scalar]]:
        """Of the residual at a normal, to its coordinates along the frame."""
        w = vector.subtract(*self.points(n))
        gap = vector.dot(n, w)
        moved = [turned(self.cores, n, t) for t in self.frame]
        rows = []
        for i, (tied, edge, t) in enumerate(zip(self.tied, self.edges, self.frame, strict=True)):
            free = [vector.dot(t, move) - (gap if i == j else 0.0) for j, move in enumerate(moved)]
            rows.append([select(tied, vector.dot(edge, s), x) for s, x in zip(self.frame, free, strict=True)])
        return rows


def solver(rows: Sequence[Sequence[Scalar]]) -> Callable[[Sequence[Scalar], bool], list[Scalar]]:
    """Solves with a matrix of 2 x 2, or its transpose; gives 0 where it is nearly singular."""
    (p, q), (r, s) = rows
    determinant = p * s - q * r
    some = determinant * determinant > 1e-14 * (p * p + q * q) * (r * r + s * s)
    inverse = select(some, 1.0 / select(some, determinant, 1.0), 0.0)

    def solve(b: Sequence[Scalar], transposed: bool = False) -> list[Scalar]:
        x, y = (r, q) if transposed else (q, r)
        return [(s * b[0] - x * b[1]) * inverse, (p * b[1] - y * b[0]) * inverse]

    return solve


def moved_by(n: Vector3, frame: Pair, step: Sequence[Scalar]) -> Vector3:
    """The unit vector at these coordinates in the plane that touches the unit sphere at n."""
    moved = vector.add(n, vector.add(vector.scale(step[0], frame[0]), vector.scale(step[1], frame[1])))
    return vector.scale(1.0 / sqrt(vector.dot(moved, moved)), moved)


def newton(ties: Ties, n: Vector3, furthest: float) -> list[Scalar]:
    """One step of Newton's method, so far at most."""
    step = [-x for x in solver(ties.jacobian(n))(ties.residual(n), False)]
    length = sqrt(maximum(step[0] * step[0] + step[1] * step[1], 1e-20))
    short = minimum(1.0, furthest / length)
    return [short * x for x in step]


def differentiable(ties: Ties, n: Vector3) -> Vector3:
    """A normal that nearly solves its equations, improved, with the derivatives of their solution.

    Args:
        ties: the equations; their frame is a constant to derivatives.
        n: a constant to derivatives.
    """
    step = newton(ties, n, 1e-4)
    solve = solver(ties.jacobian(n))
    step = implicit(
        step,
        lambda x: ties.residual(moved_by(n, ties.frame, x)),
        lambda b: solve(b, False),
        lambda b: solve(b, True),
    )
    return moved_by(n, ties.frame, step)


def frame_of(n: Vector3, mode: Scalar, edge_a: Vector3, edge_b: Vector3) -> Pair:
    """Two unit vectors perpendicular to n, the first of them along the edge where it is tied to one."""
    first, second = tangents(n)
    edge = choose(mode == EDGE_A, edge_a, edge_b)
    along = unit(vector.subtract(edge, vector.scale(vector.dot(edge, n), n)))[0]
    one = (mode == EDGE_A) | (mode == EDGE_B)
    return choose(one, (along, vector.cross(n, along)), (first, second))


def tied_to(
    mode: Scalar, frame: Pair, edge_a: Vector3, edge_b: Vector3, face_a: Pair, face_b: Pair
) -> tuple[Pair, Pair]:
    """The vectors that a normal is perpendicular to, and whether it is, by each.

    Args:
        mode: what it is tied to.
        frame: two vectors in place of those that do not count.
        edge_a: along the first's edge.
        edge_b: along the second's.
        face_a: two vectors in the first's face.
        face_b: two vectors in the second's.
    """
    a, b, cross = mode == FACE_A, mode == FACE_B, mode == CROSS
    first = choose(cross | (mode == EDGE_A), edge_a, edge_b)
    edges = choose(a, face_a, choose(b, face_b, (first, choose(cross, edge_b, frame[1]))))
    return edges, (mode > 0.5, a | b | cross)


def tie(
    cores: Cores, n: Vector3, gap: Scalar, size: Scalar, features: tuple[Feature | None, Feature | None], points: Points
) -> Any:
    """What a normal is tied to.

    Args:
        cores: the shapes, in the frame of the first.
        n: nearly the normal.
        gap: along n.
        size: of the shapes.
        features: what of each is next to n; None of a core without edges.
        points: support points of the features at n, where they are smooth.

    Returns:
        The mode, the normal and the gap along it.
    """
    one, other = features
    modes = [FREE]
    zero, never = (0.0, 0.0, 0.0), n[0] != n[0]
    edge_a, normal_a = (one.edge, vector.negate(one.normal)) if one else (zero, zero)
    edge_b, normal_b = zero, zero
    if other:
        edge_b, normal_b = (vector.apply(cores.second[0], x) for x in (other.edge, other.normal))
        modes.append(EDGE_B)
    if one:
        modes.append(EDGE_A)
    crossed = vector.cross(edge_a, edge_b)
    crossed = choose(vector.dot(crossed, n) < 0.0, vector.negate(crossed), crossed)
    if one and other:
        modes.append(CROSS)
    if other and cores.b.rank == 2:
        modes.append(FACE_B)
    if one and cores.a.rank == 2:
        modes.append(FACE_A)
    on_edge_a, on_face_a = (one.on_edge, one.on_face) if one else (never, never)
    on_edge_b, on_face_b = (other.on_edge, other.on_face) if other else (never, never)
    both = vector.dot(crossed, crossed) > 1e-8

    def attempt(k: Any, carry: Any) -> Any:
        (best_mode, best_n, best_gap), reference = carry
        mode = table(modes)[k]
        edge = choose(mode == EDGE_A, edge_a, edge_b)
        start = unit(vector.subtract(n, vector.scale(vector.dot(edge, n), edge)))[0]
        start = choose(mode == FREE, n, choose(mode == CROSS, unit(crossed)[0], start))
        start = choose(mode == FACE_A, normal_a, choose(mode == FACE_B, normal_b, start))
        valid = (mode == FREE) | ((mode == EDGE_A) & on_edge_a) | ((mode == EDGE_B) & on_edge_b)
        valid = valid | ((mode == CROSS) & on_edge_a & on_edge_b & both)
        valid = valid | ((mode == FACE_A) & on_face_a) | ((mode == FACE_B) & on_face_b)

        def improve(_: Any, n: Vector3) -> Vector3:
            frame = frame_of(n, mode, edge_a, edge_b)
            edges, tied = tied_to(mode, frame, edge_a, edge_b, frame, frame)
            return moved_by(n, frame, newton(Ties(cores, points, frame, edges, tied), n, 0.05))

        final = loop(3, improve, start, detached=True)
        reached = vector.dot(final, cores.difference(final))
        better = valid & (reached >= reference - PREFERENCE * size)
        best = choose(better, (mode, final, reached), (best_mode, best_n, best_gap))
        return best, select(valid, maximum(reference, reached), reference)

    # A normal that is none of these turns with the first shape.
    return loop(len(modes), attempt, ((FACE_A, n, gap), gap), detached=True)[0]


def constant(vectors: Sequence[Vector3]) -> list[Vector3]:
    """Vectors as constants to every derivative."""
    values = detach([x for v in vectors for x in v])
    return [vector3(values[k : k + 3]) for k in range(0, len(values), 3)]
