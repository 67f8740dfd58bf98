"""Faces and edges around the vertices at which two hulls meet, and which of them lie against each other in MuJoCo."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from adjoin.collision.branchless import choose, unit
from adjoin.collision.core import Core
from adjoin.collision.normal import CROSS, FACE_A, FACE_B
from adjoin.collision.shape import Faces, Vertices
from adjoin.model.parts import Geometry
from adjoin.spatial import vector
from adjoin.spatial.motion import Transform, transform_point
from adjoin.spatial.scalar import Scalar, select
from adjoin.spatial.vector import Vector3, vector3
from adjoin.trace import loop, maximum, minimum, table, to_float, to_index

FACING = 0.996
"""The cosine of the angle up to which two faces lie against each other."""

ALONG = 0.0888
"""The sine of the angle up to which an edge lies along a face."""

APART, FACES, EDGE_OF_B, EDGE_OF_A = 0.0, 1.0, 2.0, 3.0
"""What lies against what: nothing, two faces, an edge of the second along a face of the first, or the reverse."""


def _cube() -> Geometry:
    """A box as a hull, in terms of its half edges: its faces in MuJoCo's order, each counterclockwise from outside."""
    corners = [(x, y, z) for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)]
    faces: list[float] = []
    x, y = ("+-+ +-- ++- +++", "--- --+ -++ -+-"), ("-++ +++ ++- -+-", "--- +-- +-+ --+")
    for ring in (*x, *y, "--+ +-+ +++ -++", "+-- --- -+- ++-"):
        signs = [[float(c == "+") for c in corner] for corner in ring.split()]
        faces += [*(4.0 * i + 2.0 * j + k for i, j, k in signs), -1.0]
    return Geometry("box", "hull", 0, "box", vertices=tuple(corners), faces=tuple(faces))


CUBE = _cube()


class Solid(NamedTuple):
    """A hull with faces, or a box as one.

    Attributes:
        core: the shape.
        vertices: as coordinates of a feature, see `core.point`.
        faces: around each vertex.
        pose: where it is.
    """

    core: Core
    vertices: Vertices
    faces: Faces
    pose: Transform

    @classmethod
    def of(cls, core: Core, pose: Transform) -> "Solid | None":
        """The solid of a core at a pose; None if it has no faces of its own."""
        if core.kind == "box":
            faces = Faces.of([CUBE])
            vertices = Vertices(table(np.array(CUBE.vertices)), 0, len(CUBE.vertices), len(CUBE.vertices), faces=faces)
            return None if faces is None else cls(core, vertices, faces, pose)
        if core.vertices is None or core.vertices.faces is None:
            return None
        return cls(core, core.vertices, core.vertices.faces, pose)

    def place(self, index: Any) -> Vector3:
        """Where a vertex is."""
        return transform_point(self.pose, self.scaled(self.vertices[index]))

    def scaled(self, coordinates: Vector3) -> Vector3:
        """A point of its frame."""
        return vector3([s * x for s, x in zip(self.core.scale, coordinates, strict=True)])

    def count(self, index: Scalar) -> Scalar:
        """How many faces are around a vertex."""
        return self.faces.counts[self.vertices.place(index)]

    def furthest(self, d: Vector3) -> Scalar:
        """The vertex that reaches furthest in a direction of its frame."""

        def visit(i: Any, best: Any) -> Any:
            level = vector.dot(d, self.scaled(self.vertices[i]))
            return choose(level > best[0], (level, to_float(i)), best)

        return loop(self.vertices.count, visit, (-1e30, 0.0), at_most=self.vertices.at_most, detached=True)[1]

    def normal(self, face: Scalar) -> Vector3:
        """The normal of a face, in the frame of the shape."""
        return vector3([self.faces.normals[to_index(face), i] for i in range(3)])

    def turned(self, face: Scalar) -> Vector3:
        """The normal of a face."""
        return vector.apply(self.pose[0], self.normal(face))

    def link(self, face: Scalar, column: int) -> Scalar:
        """Where the vertices of a face begin, how many it has, and those before and after the vertex it is around."""
        return self.faces.links[to_index(face), column]

    def corner(self, face: Scalar, k: Scalar) -> Vector3:
        """A vertex of a face, clockwise seen from outside, as coordinates of a feature."""
        return self.vertices[self.faces.rings[to_index(self.link(face, 0) + k), 0]]

    def edge(self, vertex: Scalar, face: Scalar) -> Vector3:
        """The unit vector from a vertex to the one before it on a face."""
        return unit(vector.subtract(self.place(self.link(face, 2)), self.place(vertex)))[0]

    def best(self, vertex: Scalar, keys: Callable[[Scalar], Sequence[Scalar]], count: int) -> list[Scalar]:
        """Of the faces around a vertex that with the greatest of each of so many keys."""
        start, faces = self.faces.starts[self.vertices.place(vertex)], self.count(vertex)

        def visit(k: Any, best: Any) -> Any:
            face = to_float(start + k)
            exists = to_float(k) < faces
            found = zip(keys(face), best, strict=True)
            return [choose(exists & (key > old[0]), (key, face), old) for key, old in found]

        first = to_float(start)
        return [face for _, face in loop(self.faces.most, visit, [(-1e30, first)] * count, detached=True)]


class Meeting(NamedTuple):
    """What of two solids lies against each other.

    Attributes:
        kind: `APART`, `FACES`, `EDGE_OF_B` or `EDGE_OF_A`.
        faces: a face of each.
        edges: the two vertices of an edge of each.
    """

    kind: Scalar
    faces: tuple[Scalar, Scalar]
    edges: tuple[tuple[Scalar, Scalar], tuple[Scalar, Scalar]]


def meet(a: Solid, b: Solid, n: Vector3) -> Meeting:
    """What of two solids lies against each other where they overlap the least.

    Where a face of one meets a vertex of the other it is that face, and the face around that vertex that is the most
    parallel to it, or else the first edge along it. Where two edges cross it is a face beside each of them, or else one
    of the edges and a face beside the other.

    Args:
        a: the first.
        b: the second.
        n: unit vector from the second toward the first along which they overlap the least, nearly.
    """
    solids = a, b
    vertices = _touching(solids, n)
    tops, ends, edges = [], [], []
    for solid, d, vertex in zip(solids, (vector.negate(n), n), vertices, strict=True):

        def keys(face: Scalar, solid: Solid = solid, d: Vector3 = d, vertex: Scalar = vertex) -> list[Scalar]:
            return [vector.dot(solid.turned(face), d), -abs(vector.dot(solid.edge(vertex, face), d))]

        top, level = solid.best(vertex, keys, 2)
        tops.append(top)
        ends.append(solid.link(level, 2))
        edges.append(solid.edge(vertex, level))
    normal_a, normal_b = a.turned(tops[0]), b.turned(tops[1])
    crossed, length = unit(vector.cross(*edges))
    crossed = choose(vector.dot(crossed, n) < 0.0, vector.negate(crossed), crossed)
    best: Any = (-1e30, CROSS, *vertices)
    for mode, normal in ((CROSS, crossed), (FACE_B, normal_b), (FACE_A, vector.negate(normal_a))):
        at = _touching(solids, normal)
        gap = vector.dot(normal, vector.subtract(a.place(at[0]), b.place(at[1])))
        gap = select(length > 1e-6, gap, -1e30) if mode == CROSS else gap
        best = choose(gap > best[0], (gap, mode, *(vertices if mode == CROSS else at)), best)
    _, mode, *vertices = best
    face_a, face_b, cross = mode == FACE_A, mode == FACE_B, mode == CROSS
    against, along, beside = [], [], []
    for k, (solid, vertex, end) in enumerate(zip(solids, vertices, ends, strict=True)):
        other = (normal_b, normal_a)[k]

        def again(
            face: Scalar, solid: Solid = solid, other: Vector3 = other, vertex: Scalar = vertex, end: Scalar = end
        ) -> list[Scalar]:
            facing = -vector.dot(solid.turned(face), other)
            flat = abs(vector.dot(solid.edge(vertex, face), other)) < ALONG
            sides = [-abs(solid.link(face, column) - end) for column in (2, 3)]
            return [facing, select(flat, 1.0, 0.0), *sides]

        facing, flat, *sides = solid.best(vertex, again, 4)
        against.append(facing)
        along.append(select(cross, end, solid.link(flat, 2)))
        beside.append((minimum(*sides), maximum(*sides)))
    best = (-2.0, (beside[0][0], beside[1][0]))
    for one in beside[0]:
        for other in beside[1]:
            facing = -vector.dot(a.turned(one), b.turned(other))
            best = choose(facing > best[0], (facing, (one, other)), best)
    faces = choose(face_a, (tops[0], against[1]), choose(face_b, (against[0], tops[1]), best[1]))
    lies, flat = [], []
    for k, (vertex, end) in enumerate(zip(vertices, along, strict=True)):
        solid, other = solids[k], solids[1 - k]
        edge = unit(vector.subtract(solid.place(end), solid.place(vertex)))[0]
        slopes = [abs(vector.dot(edge, other.turned(face))) < ALONG for face in (*beside[1 - k], tops[1 - k])]
        lies.append((cross & (slopes[0] | slopes[1])) | ((face_b, face_a)[k] & slopes[2]))
        # Of two that it lies along, the one that looks at it.
        toward = (n, vector.negate(n))[k]
        looks = [vector.dot(other.turned(face), toward) for face in beside[1 - k]]
        first = slopes[0] & (~slopes[1] | (looks[0] >= looks[1]))
        flat.append(select(cross, select(first, *beside[1 - k]), tops[1 - k]))
    facing = vector.dot(a.turned(faces[0]), b.turned(faces[1])) < -FACING
    kind = select(facing, FACES, select(lies[0], EDGE_OF_A, select(lies[1], EDGE_OF_B, APART)))
    known = (a.count(vertices[0]) > 0.5) & (b.count(vertices[1]) > 0.5)
    pairs = tuple(zip(vertices, along, strict=True))
    faces = choose(facing, faces, (flat[1], flat[0]))
    return Meeting(select(known, kind, APART), faces, pairs)  # type: ignore[arg-type]


def _touching(solids: tuple[Solid, Solid], n: Vector3) -> list[Scalar]:
    """The vertex of each that reaches furthest toward the other."""
    return [
        solid.furthest(vector.apply_transposed(solid.pose[0], d))
        for solid, d in zip(solids, (vector.negate(n), n), strict=True)
    ]
