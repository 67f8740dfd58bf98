"""Motions and forces of links, in their own frames, under the names of differentiable-robot-model."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class SpatialMotionVec:
    """A velocity or acceleration: linear at the frame's origin and angular, (..., 3) each."""

    lin: torch.Tensor
    ang: torch.Tensor

    def add_motion_vec(self, smv: "SpatialMotionVec") -> "SpatialMotionVec":
        """Return the sum."""
        return SpatialMotionVec(self.lin + smv.lin, self.ang + smv.ang)

    def cross_motion_vec(self, smv: "SpatialMotionVec") -> "SpatialMotionVec":
        """Return the cross product with another motion."""
        lin = torch.linalg.cross(self.ang, smv.lin) + torch.linalg.cross(self.lin, smv.ang)
        return SpatialMotionVec(lin, torch.linalg.cross(self.ang, smv.ang))

    def cross_force_vec(self, sfv: "SpatialForceVec") -> "SpatialForceVec":
        """Return the cross product with a force."""
        ang = torch.linalg.cross(self.ang, sfv.ang) + torch.linalg.cross(self.lin, sfv.lin)
        return SpatialForceVec(torch.linalg.cross(self.ang, sfv.lin), ang)

    def to_child(self, rotation: torch.Tensor, position: torch.Tensor) -> "SpatialMotionVec":
        """Return the motion in the frame of a child, whose pose in this frame is given."""
        lin = self.lin + torch.linalg.cross(self.ang, position)
        return SpatialMotionVec(*(_turned(rotation.mT, x) for x in (lin, self.ang)))

    def get_vector(self) -> torch.Tensor:
        """Return [angular; linear], (..., 6)."""
        return torch.cat([self.ang, self.lin], -1)


@dataclass(frozen=True)
class SpatialForceVec:
    """A force, and the moment about the frame's origin, (..., 3) each."""

    lin: torch.Tensor
    ang: torch.Tensor

    def add_force_vec(self, sfv: "SpatialForceVec") -> "SpatialForceVec":
        """Return the sum."""
        return SpatialForceVec(self.lin + sfv.lin, self.ang + sfv.ang)

    def to_parent(self, rotation: torch.Tensor, position: torch.Tensor) -> "SpatialForceVec":
        """Return the force in the frame of the parent, in which this frame's pose is given."""
        lin, ang = _turned(rotation, self.lin), _turned(rotation, self.ang)
        return SpatialForceVec(lin, ang + torch.linalg.cross(position, lin))

    def get_vector(self) -> torch.Tensor:
        """Return [moment; force], (..., 6)."""
        return torch.cat([self.ang, self.lin], -1)


def inertial_force(
    mass: torch.Tensor, com: torch.Tensor, inertia: torch.Tensor, motion: SpatialMotionVec
) -> SpatialForceVec:
    """Return the inertia of a link times a motion.

    Args:
        mass: one number, kg.
        com: center of mass, (3,), m.
        inertia: about it, (3, 3), kg m².
        motion: of the link's frame.
    """
    force = mass * (motion.lin + torch.linalg.cross(motion.ang, com.expand_as(motion.ang)))
    moment = _turned(inertia, motion.ang) + torch.linalg.cross(com.expand_as(force), force)
    return SpatialForceVec(force, moment)


def _turned(rotation: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return (rotation @ x[..., None])[..., 0]
