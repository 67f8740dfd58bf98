"""A link with the joint that it hangs on, under the names of differentiable-robot-model."""

from collections.abc import Mapping

import torch

from adjoin.compat.differentiable_robot_model.links import Links
from adjoin.compat.differentiable_robot_model.spatial_vector_algebra import (
    CoordinateTransform,
    DifferentiableSpatialRigidBodyInertia,
    SpatialForceVec,
    SpatialMotionVec,
    x_rot,
    y_rot,
    z_rot,
)
from adjoin.transforms import axis_angle_to_quaternion, quaternion_to_matrix

_SHAPES = {
    "trans": (1, 3),
    "rot_angles": (1, 3),
    "joint_damping": (1,),
    "mass": (1,),
    "com": (1, 3),
    "inertia_mat": (1, 3, 3),
}
_OF_JOINT = ("trans", "rot_angles", "joint_damping")


class Fixed(torch.nn.Module):
    """A parameter that is not learned: the URDF's value.

    Args:
        value: the value.
    """

    value: torch.Tensor

    def __init__(self, value: torch.Tensor):
        super().__init__()
        self.register_buffer("value", value, persistent=False)

    def forward(self) -> torch.Tensor:
        """The value."""
        return self.value


class Pose(CoordinateTransform):
    """Where a link is in the world, after `update_kinematic_state`, with the kernel's quaternion.

    Args:
        position: (..., 3).
        quaternion: [x y z w], (..., 4).
        matrix: (..., 3, 3).
    """

    def __init__(self, position: torch.Tensor, quaternion: torch.Tensor, matrix: torch.Tensor):
        super().__init__(matrix, position)
        self._quaternion = quaternion

    def get_quaternion(self) -> torch.Tensor:
        """Return the quaternion [x y z w], (..., 4)."""
        return self._quaternion


class DifferentiableRigidBody(torch.nn.Module):
    """A link and the joint that it hangs on: its parameters as modules, and what `update_kinematic_state` set.

    Attributes:
        name: of the link.
        joint_id: its place among the links.
        joint_idx: the place of its joint among the coordinates, or None if that is fixed.
        joint_axis: (1, 3); zeros if the joint is fixed.
        joint_limits: "effort", "lower", "upper" and "velocity" as the file states them, or None if the joint is fixed.
        pose: in the world; before the first update, none at all.
        vel: in its own frame; before the first update, 0.
        joint_acc: acceleration of its joint alone, in its own frame, which `update_joint_acc` sets.
        acc: in its own frame, after `iterative_newton_euler`.
        force: of its joint on it, in its own frame, after `iterative_newton_euler`.
    """

    def __init__(self, links: Links, name: str, device: torch.device):
        super().__init__()
        self.name = name
        edge = links.joint_of(name)
        moving = edge is not None and edge.joint is not None
        self.joint_id = links.names.index(name)
        self.joint_idx: int | None = None
        axis = edge.joint.axis if edge is not None and edge.joint is not None else (0.0, 0.0, 0.0)
        self.joint_axis = torch.tensor([axis], dtype=torch.float32, device=device)
        self.joint_limits = dict(links.limits[edge.name]) if edge is not None and moving else None
        zero = torch.zeros(1, 3, device=device)
        none = torch.tensor([[0.0, 0.0, 0.0, 1.0]], device=device)
        self.pose: CoordinateTransform = Pose(zero, none, torch.eye(3, device=device)[None])
        self.vel = self.joint_acc = self.acc = SpatialMotionVec(zero, zero)
        self.force = SpatialForceVec(zero, zero)
        self._slides = edge is not None and edge.joint is not None and edge.joint.kind == "prismatic"
        self._joint_state = zero[:, :1], zero[:, :1]
        self._children: list[DifferentiableRigidBody] = []
        self.inertia = DifferentiableSpatialRigidBodyInertia()
        for parameter, shape in _SHAPES.items():
            value = torch.tensor(links.values(name, parameter), dtype=torch.float32, device=device)
            self.holder(parameter).add_module(parameter, Fixed(value.reshape(shape)))

    def get_joint_limits(self) -> dict[str, float] | None:
        """Return the limits of its joint as the file states them, or None if that is fixed."""
        return self.joint_limits

    def get_joint_damping_const(self) -> torch.Tensor:
        """Return the damping of its joint, (1,)."""
        return self.joint_damping()  # type: ignore[operator]

    def add_child(self, child: "DifferentiableRigidBody") -> None:
        """Hang a link on this one, which `forward_kinematics` then finds."""
        self._children.append(child)

    def update_joint_state(self, q: torch.Tensor, qd: torch.Tensor) -> None:
        """Set the position and the velocity of its joint, [B, 1] each."""
        self._joint_state = q, qd

    def update_joint_acc(self, qdd: torch.Tensor) -> None:
        """Set the acceleration of its joint, [B, 1]."""
        self.joint_acc = self._along(qdd)

    @property
    def joint_pose(self) -> CoordinateTransform:
        """Where it is in the frame of its parent; its joint is where `update_joint_state` last set it."""
        return self._pose_at(self._joint_state[0])

    @property
    def joint_vel(self) -> SpatialMotionVec:
        """The velocity of its joint alone, in its own frame."""
        return self._along(self._joint_state[1])

    def forward_kinematics(self, q_dict: Mapping[str, torch.Tensor]) -> dict[str, CoordinateTransform]:
        """Return where it and the links that it carries are in the frame of its parent, by name.

        Args:
            q_dict: name of a link to the position of its joint, [B, 1]; the others are where they were last set.
        """
        pose = self._pose_at(q_dict[self.name]) if self.name in q_dict else self.joint_pose
        found = {self.name: pose}
        for child in self._children:
            carried = child.forward_kinematics(q_dict)
            found.update({name: pose.multiply_transform(place) for name, place in carried.items()})
        return found

    def holder(self, parameter: str) -> torch.nn.Module:
        """The module that has a parameter's module for an attribute."""
        return self if parameter in _OF_JOINT else self.inertia

    def _along(self, rate: torch.Tensor) -> SpatialMotionVec:
        """The motion of its joint at a rate, [B, 1]."""
        moving = rate @ self.joint_axis.to(rate)
        still = torch.zeros_like(moving)
        return SpatialMotionVec(*((moving, still) if self._slides else (still, moving)))

    def _pose_at(self, q: torch.Tensor) -> CoordinateTransform:
        roll, pitch, yaw = self.rot_angles().to(q).reshape(3)  # type: ignore[operator]
        placed = z_rot(yaw) @ y_rot(pitch) @ x_rot(roll)
        place = self.trans().to(q).reshape(1, 3).expand(len(q), 3)  # type: ignore[operator]
        axis = self.joint_axis.to(q)
        if self._slides:
            return CoordinateTransform(placed.expand(len(q), 3, 3), place + (placed @ (q * axis)[..., None])[..., 0])
        return CoordinateTransform(placed @ quaternion_to_matrix(axis_angle_to_quaternion(axis, q[:, 0])), place)
