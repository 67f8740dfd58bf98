"""Frames, and motions and forces of links in them, under the names of differentiable-robot-model."""

import torch

from adjoin.transforms import (
    axis_angle_to_quaternion,
    matrix_to_quaternion,
    quaternion_to_matrix,
    wxyz_to_xyzw,
)


def x_rot(angle: torch.Tensor) -> torch.Tensor:
    """Return the rotation matrices of turns about the x axis, (B, 3, 3), from angles, (B, 1), or from one."""
    return _turn((1.0, 0.0, 0.0), angle)


def y_rot(angle: torch.Tensor) -> torch.Tensor:
    """Return those of turns about the y axis; see `x_rot`."""
    return _turn((0.0, 1.0, 0.0), angle)


def z_rot(angle: torch.Tensor) -> torch.Tensor:
    """Return those of turns about the z axis; see `x_rot`."""
    return _turn((0.0, 0.0, 1.0), angle)


class CoordinateTransform:
    """Where a frame is in another.

    Args:
        rot: rotation matrices, (B, 3, 3) or (3, 3); by default none.
        trans: positions, (B, 3) or (3,); by default 0.
        device: of these defaults.
    """

    def __init__(
        self, rot: torch.Tensor | None = None, trans: torch.Tensor | None = None, device: torch.device | str = "cpu"
    ):
        self.set_rotation(torch.eye(3, device=device) if rot is None else rot)
        self.set_translation(torch.zeros(3, device=device) if trans is None else trans)

    def set_translation(self, t: torch.Tensor) -> None:
        """Put the frame elsewhere."""
        self._trans = t[None] if t.dim() == 1 else t

    def set_rotation(self, rot: torch.Tensor) -> None:
        """Turn the frame."""
        self._rot = rot[None] if rot.dim() == 2 else rot

    def translation(self) -> torch.Tensor:
        """Return the position, (B, 3)."""
        return self._trans

    def rotation(self) -> torch.Tensor:
        """Return the rotation matrix, (B, 3, 3)."""
        return self._rot

    def get_quaternion(self) -> torch.Tensor:
        """Return the quaternion [x y z w], (B, 4)."""
        return wxyz_to_xyzw(matrix_to_quaternion(self._rot))

    def inverse(self) -> "CoordinateTransform":
        """Return where the other frame is in this one."""
        back = self._rot.mT
        return CoordinateTransform(back, -_turned(back, self._trans))

    def multiply_transform(self, coordinate_transform: "CoordinateTransform") -> "CoordinateTransform":
        """Return where a third frame is in the other, given where it is in this one."""
        place = _turned(self._rot, coordinate_transform.translation()) + self._trans
        return CoordinateTransform(self._rot @ coordinate_transform.rotation(), place)

    def trans_cross_rot(self) -> torch.Tensor:
        """Return the cross product matrix of the position times the rotation, (B, 3, 3)."""
        return _crossing(self._trans) @ self._rot

    def to_matrix(self) -> torch.Tensor:
        """Return what takes motions [angular; linear] of the other frame into this one, (B, 6, 6)."""
        back = self._rot.mT
        return _blocks(back, -back @ _crossing(self._trans), back)

    def to_matrix_transpose(self) -> torch.Tensor:
        """Return the matrix with the inverse rotation on its diagonal and (position x) times it below, (B, 6, 6)."""
        back = self._rot.mT
        return _blocks(back, _crossing(self._trans) @ back, back)


class _SpatialVec:
    """A linear and an angular part, (..., 3) each."""

    def __init__(self, lin: torch.Tensor | None, ang: torch.Tensor | None, device: torch.device | str | None):
        self.lin = torch.zeros(1, 3, device=device) if lin is None else lin
        self.ang = torch.zeros(1, 3, device=device) if ang is None else ang

    def get_vector(self) -> torch.Tensor:
        """Return [angular; linear], or [moment; force], (..., 6)."""
        return torch.cat([self.ang, self.lin], -1)

    def multiply(self, v: torch.Tensor) -> "SpatialForceVec":
        """Return the numbers times one number for each of the batch, as a force also where this is a motion."""
        times = v.reshape(-1, 1)
        return SpatialForceVec(self.lin * times, self.ang * times)

    def dot(self, smv: "_SpatialVec") -> torch.Tensor:
        """Return the sum of the products of both parts, (...)."""
        return (self.ang * smv.ang).sum(-1) + (self.lin * smv.lin).sum(-1)


class SpatialMotionVec(_SpatialVec):
    """A velocity or acceleration: linear at the frame's origin and angular, (..., 3) each.

    Args:
        lin_motion: linear part; by default 0.
        ang_motion: angular part; by default 0.
        device: of these defaults.
    """

    def __init__(
        self,
        lin_motion: torch.Tensor | None = None,
        ang_motion: torch.Tensor | None = None,
        device: torch.device | str | None = None,
    ):
        super().__init__(lin_motion, ang_motion, device)

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

    def transform(self, transform: CoordinateTransform) -> "SpatialMotionVec":
        """Return the motion in another frame, in which this frame's place is given."""
        ang = _turned(transform.rotation(), self.ang)
        lin = _turned(transform.rotation(), self.lin) + _turned(transform.trans_cross_rot(), self.ang)
        return SpatialMotionVec(lin, ang)

    def to_child(self, rotation: torch.Tensor, position: torch.Tensor) -> "SpatialMotionVec":
        """Return the motion in the frame of a child, whose pose in this frame is given."""
        lin = self.lin + torch.linalg.cross(self.ang, position)
        return SpatialMotionVec(_turned(rotation.mT, lin), _turned(rotation.mT, self.ang))


class SpatialForceVec(_SpatialVec):
    """A force, and the moment about the frame's origin, (..., 3) each.

    Args:
        lin_force: the force; by default 0.
        ang_force: the moment; by default 0.
        device: of these defaults.
    """

    def __init__(
        self,
        lin_force: torch.Tensor | None = None,
        ang_force: torch.Tensor | None = None,
        device: torch.device | str | None = None,
    ):
        super().__init__(lin_force, ang_force, device)

    def add_force_vec(self, sfv: "SpatialForceVec") -> "SpatialForceVec":
        """Return the sum."""
        return SpatialForceVec(self.lin + sfv.lin, self.ang + sfv.ang)

    def transform(self, transform: CoordinateTransform) -> "SpatialForceVec":
        """Return the force in another frame, in which this frame's place is given."""
        return self.to_parent(transform.rotation(), transform.translation())

    def to_parent(self, rotation: torch.Tensor, position: torch.Tensor) -> "SpatialForceVec":
        """Return the force in the frame of the parent, in which this frame's pose is given."""
        lin, ang = _turned(rotation, self.lin), _turned(rotation, self.ang)
        return SpatialForceVec(lin, ang + torch.linalg.cross(position.expand_as(lin), lin))


class DifferentiableSpatialRigidBodyInertia(torch.nn.Module):
    """Mass, center of mass and inertia of a link; `mass`, `com` and `inertia_mat` are modules that return them."""

    def multiply_motion_vec(self, smv: SpatialMotionVec) -> "SpatialForceVec":
        """Return the inertia times a motion of the link's frame."""
        mass, com, inertia = self._values(smv.lin)
        return inertial_force(mass, com, inertia, smv)

    def get_spatial_mat(self) -> torch.Tensor:
        """Return the inertia about the frame's origin, of motions [angular; linear], (6, 6)."""
        motions = torch.eye(6).unbind(-1)
        like: torch.Tensor = self.mass()  # type: ignore[operator]
        columns = [SpatialMotionVec(motion[3:].to(like), motion[:3].to(like)) for motion in motions]
        return torch.stack([self.multiply_motion_vec(column).get_vector() for column in columns], -1)

    def _values(self, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        found = [getattr(self, name)().to(like) for name in ("mass", "com", "inertia_mat")]
        inertia = found[2].reshape(-1)
        if len(inertia) == 6:  # xx xy xz yy yz zz
            inertia = inertia[[0, 1, 2, 1, 3, 4, 2, 4, 5]]
        return found[0].reshape(()), found[1].reshape(3), inertia.reshape(3, 3)


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


def _turn(axis: tuple[float, float, float], angle: torch.Tensor) -> torch.Tensor:
    flat = torch.as_tensor(angle).reshape(-1)
    return quaternion_to_matrix(axis_angle_to_quaternion(flat.new_tensor(axis), flat))


def _crossing(v: torch.Tensor) -> torch.Tensor:
    """The matrix that multiplies by v from the left as a cross product, (..., 3, 3)."""
    return torch.linalg.cross(v[..., None, :].expand(*v.shape, 3), torch.eye(3).to(v).expand(*v.shape, 3)).mT


def _blocks(first: torch.Tensor, below: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """The matrix (..., 6, 6) of three blocks and a zero."""
    return torch.cat([torch.cat([first, torch.zeros_like(first)], -1), torch.cat([below, last], -1)], -2)
