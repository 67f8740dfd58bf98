"""Mass moments of bodies about one origin, over any scalar: mass, first moment and second moment.

The first moment is the integral of r dm, the second that of r rᵀ dm. Unlike inertias, these simply add up, and can be
those of any part of a body.
"""

from typing import NamedTuple

from adjoin.spatial import inertia, vector
from adjoin.spatial.inertia import Symmetric3
from adjoin.spatial.motion import Transform
from adjoin.spatial.scalar import Scalar, is_number
from adjoin.spatial.vector import ZERO, Vector3

NEGLIGIBLE = 1e-15  # of the largest entry; what is less was meant to be 0


class MassMoments(NamedTuple):
    """Mass, first moment (mass times center of mass), and second moment as (xx, xy, xz, yy, yz, zz)."""

    mass: Scalar = 0.0
    first: Vector3 = ZERO
    second: Symmetric3 = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

    @property
    def is_known(self) -> bool:
        """Return whether all entries are plain numbers, known now."""
        return all(map(is_number, (self.mass, *self.first, *self.second)))

    @property
    def rotational_inertia(self) -> Symmetric3:
        """Return the rotational inertia about the origin."""
        return inertia.from_second_moment(self.second)


def from_inertia(mass: Scalar, com: Vector3, central: Symmetric3) -> MassMoments:
    """Return the moments about the origin of a body with a rotational inertia about its center of mass."""
    about = inertia.about_origin((mass, com, central))
    return MassMoments(mass, vector.scale(mass, com), inertia.second_moment(about))


def add(a: MassMoments, b: MassMoments) -> MassMoments:
    """Return the moments of two bodies together."""
    return MassMoments(a.mass + b.mass, vector.add(a.first, b.first), inertia.symmetric_add(a.second, b.second))


def to_parent(x: Transform, m: MassMoments) -> MassMoments:
    """Return moments in the child frame of a transform, in the parent frame."""
    rotation, position = x
    turned = vector.apply(rotation, m.first)
    px, py, pz = position
    hx, hy, hz = vector.add(turned, vector.scale(0.5 * m.mass, position))
    shift = (
        2.0 * px * hx,
        px * hy + py * hx,
        px * hz + pz * hx,
        2.0 * py * hy,
        py * hz + pz * hy,
        2.0 * pz * hz,
    )
    return MassMoments(
        m.mass,
        vector.add(turned, vector.scale(m.mass, position)),
        inertia.symmetric_add(inertia.rotate(rotation, m.second), shift),
    )


def split_off_axis(m: MassMoments, axis: Vector3) -> tuple[MassMoments, MassMoments]:
    """Return moments in floats as two parts: what is left, and what is as if it lay on an axis through the origin.

    The second part has all of the mass, and of the moments what is along the axis.
    """
    x, y, z = axis
    along = vector.scale(vector.dot(axis, m.first), axis)
    spread = vector.dot(axis, vector.apply(inertia.to_matrix(m.second), axis))
    line = (spread * x * x, spread * x * y, spread * x * z, spread * y * y, spread * y * z, spread * z * z)
    least, smallest = (NEGLIGIBLE * max(map(abs, part)) for part in (m.first, m.second))
    a, b, c = (0.0 if abs(p - q) <= least else p - q for p, q in zip(m.first, along, strict=True))
    xx, xy, xz, yy, yz, zz = (0.0 if abs(p - q) <= smallest else p - q for p, q in zip(m.second, line, strict=True))
    return MassMoments(0.0, (a, b, c), (xx, xy, xz, yy, yz, zz)), MassMoments(m.mass, along, line)
