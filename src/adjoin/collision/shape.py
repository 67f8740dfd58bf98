"""A collision shape where it is in the world, over scalars."""

from dataclasses import dataclass

from adjoin.model.parts import GeometryKind
from adjoin.spatial import vector
from adjoin.spatial.motion import Transform
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Vector3


@dataclass(frozen=True)
class Shape:
    """A shape in the world.

    Attributes:
        kind: what it is.
        size: as in `adjoin.model.parts.Geometry`: radii, half lengths, half edges, m.
        pose: of its frame in the world.
        vertices: of a hull, in its frame.
    """

    kind: GeometryKind
    size: Vector3
    pose: Transform
    vertices: tuple[Vector3, ...] = ()

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
