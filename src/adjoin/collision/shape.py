"""A collision shape where it is in the world, over scalars."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adjoin import trace
from adjoin.collision.branchless import choose
from adjoin.collision.resting_points import linked_faces, resting_points
from adjoin.model.parts import Geometry, GeometryKind
from adjoin.spatial import vector
from adjoin.spatial.motion import Transform
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Vector3

TOGETHER = 8
"""Vertices that are compared in a tree, since one after the other each comparison would wait for the one before."""


@dataclass(frozen=True)
class Faces:
    """The faces around each vertex of hulls that have faces, in a table; see `resting_points`.

    Attributes:
        normals: (faces of all vertices of all hulls, 3).
        others: up to three further vertices of each of these faces, (n, 3), as indices in their hull.
        starts: of each vertex of all hulls, `TOGETHER` times a whole number of each, the first of its faces.
        counts: of each such vertex, how many it has: none of those of hulls without faces.
        links: of each of these faces where its vertices begin in `rings`, how many it has, and the vertices before and
            after the one that it is around, (n, 4); see `linked_faces`.
        rings: the vertices of all faces, as indices in their hull, (m, 1).
        most: how many faces any vertex has.
        longest: how many vertices any face has.
        everywhere: whether all hulls have faces.
    """

    normals: Any
    others: Any
    starts: Any
    counts: Any
    links: Any
    rings: Any
    most: int
    longest: int
    everywhere: bool

    @classmethod
    def of(cls, geometries: Sequence[Geometry]) -> "Faces | None":
        """The faces of hulls as tables of the function that is being traced; None if there are none."""
        hulls = [geometry for geometry in geometries if geometry.vertices]
        if not any(hull.faces for hull in hulls):
            return None
        nothing = np.zeros((0, 3))
        parts = [
            resting_points(hull) if hull.faces else (nothing, nothing, np.zeros(len(hull.vertices))) for hull in hulls
        ]
        normals, others = (np.concatenate([part[k] for part in parts]) for k in range(2))
        counts = np.concatenate([np.pad(part[2], (0, -len(part[2]) % TOGETHER)) for part in parts])
        most = int(counts.max())
        past = np.zeros((most, 3))  # vertices with fewer are read on
        linked = [linked_faces(hull) if hull.faces else (np.zeros((0, 4)), np.zeros(0)) for hull in hulls]
        begins = np.cumsum([0, *(len(ring) for _, ring in linked)])
        links = [part + np.array([begin, 0.0, 0.0, 0.0]) for (part, _), begin in zip(linked, begins, strict=False)]
        rings = np.concatenate([ring for _, ring in linked])[:, None]
        return cls(
            trace.table(np.concatenate([normals, past]), checked=False),
            trace.table(np.concatenate([others, past]), checked=False),
            trace.table((np.cumsum(counts) - counts).astype(np.int32), checked=False),
            trace.table(counts.astype(float), checked=False),
            trace.table(np.concatenate([*links, np.zeros((most, 4))]), checked=False),
            trace.table(rings),
            most,
            int(max(part[:, 1].max(initial=0.0) for part, _ in linked)),
            all(hull.faces for hull in hulls),
        )


@dataclass(frozen=True)
class Vertices:
    """Vertices that are read where the data says: those of one hull among all of a table.

    Attributes:
        table: (vertices of all hulls, 3); see `trace.table`.
        start: the first of this hull's: a number, or a traced integer that is the same in all environments.
        count: how many it has: a number, or such an integer.
        at_most: how many any hull has that it stands for.
        blocks: how many times `TOGETHER` its number is, rounded up: such an integer, if it is `padded`.
        faces: of the hulls of the table, if some have any.
        box: the middle and the half edges of the box around this hull in its frame, if they are known.
    """

    table: Any
    start: Any
    count: Any
    at_most: int
    blocks: Any = None
    faces: Faces | None = None
    box: tuple[Vector3, Vector3] | None = None

    @classmethod
    def of(cls, vertices: "Sequence[Vector3] | Vertices") -> "Vertices":
        """The vertices as a table of the function that is being traced."""
        if isinstance(vertices, Vertices):
            return vertices
        return cls(trace.table(np.array(vertices, dtype=np.float64)), 0, len(vertices), len(vertices))

    def __getitem__(self, index: Any) -> Vector3:
        """A vertex, in the hull's frame; the index is an integer, or a float that holds one."""
        place = self.place(index)
        return self.table[place, 0], self.table[place, 1], self.table[place, 2]

    def furthest(self, d: Vector3) -> tuple[Scalar, Scalar]:
        """How far the hull reaches in a direction, and the first vertex that does, as a float."""
        repeated = self.blocks is not None
        together = TOGETHER if repeated else min(TOGETHER, self.at_most)
        most = -(-self.at_most // together)
        last = trace.integer(self.count - 1) if isinstance(self.count, int) else self.count - 1

        def visit(block: Any, best: Any) -> Any:
            places = [block * together + k for k in range(together)]
            if not repeated:
                places = [trace.minimum(place, trace.inside(last)) for place in places]
            found = [(vector.dot(d, self[place]), trace.to_float(place)) for place in places]
            while len(found) > 1:
                rest = found[2 * (len(found) // 2) :]
                pairs = zip(found[::2], found[1::2], strict=False)
                found = [choose(other[0] > one[0], other, one) for one, other in pairs] + rest
            return choose(found[0][0] > best[0], found[0], best)

        blocks = self.blocks if repeated else most
        return trace.loop(blocks, visit, (-1e30, 0.0), at_most=most, detached=True)

    def place(self, index: Any) -> Any:
        """Where in the table a vertex is."""
        return self.start + (trace.to_index(index) if isinstance(index, trace.Expr) else index)


def padded(vertices: Sequence[Vector3]) -> list[Vector3]:
    """Return the vertices of a hull with the last one repeated, up to a multiple of `TOGETHER`."""
    return [*vertices, *list(vertices[-1:]) * (-len(vertices) % TOGETHER)]


@dataclass(frozen=True)
class Shape:
    """A shape in the world.

    Attributes:
        kind: what it is.
        size: as in `adjoin.model.parts.Geometry`: radii, half lengths, half edges, m.
        pose: of its frame in the world.
        vertices: of a hull, in its frame: one by one, or in a table.
    """

    kind: GeometryKind
    size: Vector3
    pose: Transform
    vertices: tuple[Vector3, ...] | Vertices = ()

    @property
    def center(self) -> Vector3:
        """Where its frame is."""
        return self.pose[1]

    @property
    def axis(self) -> Vector3:
        """The direction of its z axis: that of symmetry, or a plane's normal."""
        return vector.transpose(self.pose[0])[2]

    @property
    def radius(self) -> Scalar:
        """Of a sphere, capsule or cylinder."""
        return self.size[0]

    @property
    def half(self) -> Scalar:
        """Half the length of a capsule's or cylinder's axis."""
        return self.size[1]
