"""Drop-in replacement for the calls of BARD 0.4, Batched Articulated Robot Dynamics: `from adjoin.compat import bard`.

BARD caches kinematics in a workspace; here `Data` only remembers the state, and every call is one fused kernel. Batches
may be of any size, and calls are differentiable in all inputs.
"""

import os
import warnings
from typing import Any

import torch

from adjoin.dynamics import aba as forward
from adjoin.dynamics import crba as inertia
from adjoin.dynamics import jacobian as jacobians
from adjoin.dynamics import kinematics
from adjoin.dynamics import rnea as inverse
from adjoin.errors import InputError, ModelWarning
from adjoin.io.load import load
from adjoin.model import model as models
from adjoin.model.assemble import FLOATING_BASE

__all__ = [
    "Data",
    "Model",
    "aba",
    "build_model_from_urdf",
    "crba",
    "create_data",
    "forward_kinematics",
    "jacobian",
    "rnea",
    "spatial_acceleration",
    "update_kinematics",
]


class Model:
    """A robot with BARD's names for its parts; `model.robot` is Adjoin's own.

    Args:
        robot: the model.
        dtype: of tensors that `ensure_tensor` and `joint_limits` make.
        device: of those.

    Attributes:
        robot: the model.
        frames: names of the links, in the order of their numbers.
    """

    def __init__(self, robot: models.Model, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"):
        self.robot, self.dtype, self.device = robot, dtype, torch.device(device)
        self.frames = [frame.name for frame in robot.frames]
        self.nq, self.nv = robot.nq, robot.nv
        self.has_floating_base = any(joint.name == FLOATING_BASE for joint in robot.joints)
        self.n_frames, self.n_joints = len(self.frames), len(self.get_joint_names())

    @property
    def joint_limits(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the lower and upper limits of the joints, (n_joints,) each."""
        lower, upper = (torch.tensor(x, dtype=self.dtype, device=self.device) for x in self.robot.limits())
        return self.unpack_q(lower)[1], self.unpack_q(upper)[1]

    def get_frame_id(self, frame_name: str) -> int:
        """Return the number of a link."""
        return self.robot.frame_index(frame_name)

    def get_frame_names(self, exclude_fixed: bool = True) -> list[str]:
        """Return the names of the links; by default of those that a moving joint carries."""
        moved = {body.name for body in self.robot.bodies}
        return [name for name in self.frames if name in moved or not exclude_fixed]

    def get_joint_names(self) -> list[str]:
        """Return the names of the joints in the order of their coordinates, without the floating base."""
        return [joint.name for joint, _ in self.robot.independent_joints if joint.name != FLOATING_BASE]

    def get_joint_parameter_names(self, exclude_fixed: bool = True) -> list[str]:
        """Return the names of the joints in the order of their coordinates; the option is ignored."""
        return self.get_joint_names()

    def ensure_tensor(self, value: Any) -> torch.Tensor:
        """Return a value as a tensor of the model's dtype on its device."""
        return torch.as_tensor(value, dtype=self.dtype, device=self.device)

    def unpack_q(self, q: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Return the base's position and quaternion [w x y z], (..., 7) or None, and the joints' positions."""
        return (q[..., :7], q[..., 7:]) if self.has_floating_base else (None, q)

    def unpack_v(self, v: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Return the base's velocity, (..., 6) or None, and the joints' velocities."""
        return (v[..., :6], v[..., 6:]) if self.has_floating_base else (None, v)

    def pack_q(self, q_base: torch.Tensor | None, q_joints: torch.Tensor) -> torch.Tensor:
        """Return q, (..., nq), from the base's and the joints' parts."""
        return q_joints if q_base is None else torch.cat([q_base, q_joints], -1)

    def pack_v(self, v_base: torch.Tensor | None, v_joints: torch.Tensor) -> torch.Tensor:
        """Return v, (..., nv), from the base's and the joints' parts."""
        return v_joints if v_base is None else torch.cat([v_base, v_joints], -1)

    def create_data(self, max_batch_size: int = 1024) -> "Data":
        """Return a workspace; see `create_data`."""
        return Data(max_batch_size)

    def to(self, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> "Model":
        """Set the dtype and the device, and return the model."""
        self.dtype = dtype or self.dtype
        self.device = torch.device(device) if device is not None else self.device
        return self


class Data:
    """The state that `update_kinematics` was given last.

    Args:
        max_batch_size: is kept; batches may be larger.
    """

    def __init__(self, max_batch_size: int = 1024):
        self.max_batch_size = max_batch_size
        self.q: torch.Tensor | None = None
        self.qd: torch.Tensor | None = None

    @property
    def has_velocity(self) -> bool:
        """Return whether velocities were given."""
        return self.qd is not None

    @property
    def batch_size(self) -> int:
        """Return the size of the batch that was given last; 0 before that."""
        return 0 if self.q is None else len(self.q)

    def position(self, function: str) -> torch.Tensor:
        """Return q, or raise what is missing."""
        if self.q is None:
            raise InputError(f"{function}: call update_kinematics(model, data, q) first")
        return self.q

    def velocity(self, function: str) -> torch.Tensor:
        """Return qd, or raise what is missing."""
        if self.qd is None:
            raise InputError(f"{function}: the velocity is missing; call update_kinematics(model, data, q, qd) first")
        return self.qd


def build_model_from_urdf(
    path: str | os.PathLike[str],
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    floating_base: bool = False,
    **_: Any,
) -> Model:
    """Load a URDF; options about compilation are ignored, since everything is compiled.

    Args:
        path: of the file.
        dtype: see `Model`.
        device: see `Model`.
        floating_base: put a free joint under the root link.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        return Model(load(path, floating_base=floating_base, meshes="ignore"), dtype, device)


def create_data(model: Model, max_batch_size: int = 1024) -> Data:
    """Return a workspace; batches may be larger than it says."""
    return model.create_data(max_batch_size)


def update_kinematics(model: Model, data: Data, q: torch.Tensor, qd: torch.Tensor | None = None) -> Data:
    """Remember a state, (B, nq) and (B, nv), for the calls that follow."""
    data.q, data.qd = q, qd
    return data


def forward_kinematics(model: Model, data: Data, frame_id: int, *, q: torch.Tensor | None = None) -> torch.Tensor:
    """Return the pose of a link in the world, (B, 4, 4)."""
    q = data.position("forward_kinematics") if q is None else q
    return kinematics.forward_kinematics(model.robot, q, model.frames[frame_id])


def jacobian(
    model: Model,
    data: Data,
    frame_id: int,
    *,
    q: torch.Tensor | None = None,
    reference_frame: str = "world",
    return_pose: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Return the Jacobian of a link, (B, 6, nv), rows [linear; angular], and its pose (B, 4, 4) if asked for."""
    q, name = data.position("jacobian") if q is None else q, model.frames[frame_id]
    matrix = jacobians.jacobian(model.robot, q, name, _reference(reference_frame))
    return (matrix, forward_kinematics(model, data, frame_id, q=q)) if return_pose else matrix


def rnea(model: Model, data: Data, qdd: torch.Tensor, *, gravity: torch.Tensor | None = None) -> torch.Tensor:
    """Return the generalized forces for accelerations, (B, nv)."""
    q, qd = data.position("rnea"), data.velocity("rnea")
    return inverse.rnea(model.robot, q, qd, qdd, params=_gravity(gravity, q))


def crba(model: Model, data: Data) -> torch.Tensor:
    """Return the joint-space inertia matrix, (B, nv, nv)."""
    return inertia.crba(model.robot, data.position("crba"))


def aba(model: Model, data: Data, tau: torch.Tensor, *, gravity: torch.Tensor | None = None) -> torch.Tensor:
    """Return the accelerations under generalized forces, (B, nv)."""
    q, qd = data.position("aba"), data.velocity("aba")
    return forward.aba(model.robot, q, qd, tau, params=_gravity(gravity, q))


def spatial_acceleration(
    model: Model, data: Data, qdd: torch.Tensor, frame_id: int, *, reference_frame: str = "world"
) -> torch.Tensor:
    """Return the spatial acceleration of a link, (B, 6), [linear; angular], without gravity."""
    q, qd = data.position("spatial_acceleration"), data.velocity("spatial_acceleration")
    reference = _reference(reference_frame)
    return kinematics.frame_acceleration(model.robot, q, qd, qdd, model.frames[frame_id], reference)


def _reference(name: str) -> Any:
    if name not in ("world", "local"):
        raise InputError(f'reference_frame must be "world" or "local", got {name!r}')
    return name


def _gravity(gravity: torch.Tensor | None, like: torch.Tensor) -> dict[str, torch.Tensor] | None:
    return None if gravity is None else {"gravity": torch.as_tensor(gravity, dtype=like.dtype, device=like.device)}
