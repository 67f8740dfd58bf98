"""A collision shape where it is in the world, over scalars."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adjoin import trace
from adjoin.model.parts import GeometryKind
from adjoin.spatial import vector
from adjoin.spatial.motion import Transform
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Vector3


@dataclass(frozen=True)
class Vertices:
    """Vertices that are read where the data says: those of one hull among all of a table.

    Attributes:
        table: (vertices of all hulls, 3); see `trace.table`.
        start: the first of this hull's: a number, or a traced integer that is the same in all environments.
        count: how many it has: a number, or such an integer.
        at_most: how many any hull has that it stands for.
    """

    table: Any
    start: Any
    count: Any
    at_most: int

    @classmethod
    def of(cls, vertices: "Sequence[Vector3] | Vertices") -> "Vertices":
        """The vertices as a table of the function that is being traced."""
        if isinstance(vertices, Vertices):
            return vertices
        return cls(trace.table(np.array(vertices, dtype=np.float64)), 0, len(vertices), len(vertices))

    def __getitem__(self, index: Any) -> Vector3:
        """A vertex, in the hull's frame; the index is an integer, or a float that holds one."""
        place = self.start + (trace.to_index(index) if isinstance(index, trace.Expr) else index)
        return self.table[place, 0], self.table[place, 1], self.table[place, 2]


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
