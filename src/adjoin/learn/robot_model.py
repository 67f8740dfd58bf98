"""The learnable robot model with the interface of differentiable-robot-model 0.2.3 (Meier et al. 2022, Differentiable
and learnable robot models), on fused kernels: change the import, keep the program.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from adjoin.dynamics.aba import aba_of
from adjoin.dynamics.crba import crba_of
from adjoin.dynamics.jacobian import jacobian_of
from adjoin.dynamics.rnea import inverse_dynamics
from adjoin.dynamics.state import REST, State
from adjoin.errors import InputError
from adjoin.learn.links import SIZES, Key, Links
from adjoin.model.parts import WORLD
from adjoin.spatial.motion import Transform, motion_to_child
from adjoin.spatial.rotation import Quaternion, quaternion_along, quaternion_normalize
from adjoin.spatial.scalar import Scalar, select
from adjoin.trace.function import Function

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


@dataclass(frozen=True)
class Pose:
    """Where a link is in the world, after `update_kinematic_state`."""

    position: torch.Tensor
    quaternion: torch.Tensor
    matrix: torch.Tensor

    def translation(self) -> torch.Tensor:
        """Position, (..., 3)."""
        return self.position

    def rotation(self) -> torch.Tensor:
        """Rotation matrix, (..., 3, 3)."""
        return self.matrix

    def get_quaternion(self) -> torch.Tensor:
        """Quaternion [x y z w], (..., 4)."""
        return self.quaternion


@dataclass(frozen=True)
class Motion:
    """How a link moves, in its own frame, after `update_kinematic_state`: linear and angular velocity, (..., 3)."""

    lin: torch.Tensor
    ang: torch.Tensor


class Link(torch.nn.Module):
    """A link: its parameters as modules, and what `update_kinematic_state` set."""

    pose: Pose
    vel: Motion

    def __init__(self, links: Links, name: str, device: torch.device):
        super().__init__()
        self.name = name
        self.inertia = torch.nn.Module()
        for parameter, shape in _SHAPES.items():
            value = torch.tensor(links.own(name, parameter), dtype=torch.float32, device=device).reshape(shape)
            self.holder(parameter).add_module(parameter, Fixed(value))

    def holder(self, parameter: str) -> torch.nn.Module:
        """The module that has a parameter's module for an attribute."""
        return self if parameter in _OF_JOINT else self.inertia


class DifferentiableRobotModel(torch.nn.Module):
    """A robot whose links' parameters can be learned.

    Inputs are [n] or [B, n], float32 or float64; results are of the inputs' dtype, on their device. Joints are in the
    order of their child links in the file. Nothing passed in is changed.

    Args:
        urdf_path: the URDF.
        name: of the robot.
        device: of the learnable parameters; the CPU if not given.
        floating_base: give the root link a free joint. Then q begins with its position and quaternion [x y z w], and
            velocities, accelerations and forces with six numbers [linear; angular] in the root link's frame.
        check: whether learned values are checked for NaN at each call.
    """

    def __init__(
        self,
        urdf_path: str | os.PathLike[str],
        name: str = "",
        device: torch.device | str | None = None,
        *,
        floating_base: bool = False,
        check: bool = True,
    ):
        super().__init__()
        self.name = name
        self.check = check
        self._device = torch.device(device) if device is not None else torch.device("cpu")
        self._links = Links(urdf_path, floating_base)
        self._n_dofs = self._links.model.nv
        self._name_to_idx_map = {link: index for index, link in enumerate(self._links.names)}
        self._bodies = torch.nn.ModuleList(Link(self._links, link, self._device) for link in self._links.names)
        self._learned: dict[Key, tuple[torch.nn.Module, int]] = {}
        self._functions: dict[Any, Function] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_functions": {}}

    # Kinematics

    def update_kinematic_state(self, q: torch.Tensor, qd: torch.Tensor) -> None:
        """Set pose and velocity of every link: `_bodies[i].pose` and `_bodies[i].vel`.

        Args:
            q: joint positions, [B, n].
            qd: joint velocities, [B, n].
        """
        found = self._call(_kinematic_state, q=q, qd=qd)
        for link in self._bodies:
            assert isinstance(link, Link)
            position, quaternion, matrix, linear, angular = found[link.name]
            link.pose, link.vel = Pose(position, quaternion, matrix), Motion(linear, angular)

    def compute_forward_kinematics_all_links(self, q: torch.Tensor) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Where all links are.

        Args:
            q: joint positions, [B, n].

        Returns:
            link name -> position [B, 3] and quaternion [x y z w], [B, 4], in the world.
        """
        return self._call(_all_poses, q=q)

    def compute_forward_kinematics(
        self, q: torch.Tensor, link_name: str, recursive: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Where a link is.

        Args:
            q: joint positions, [B, n].
            link_name: of the link.
            recursive: changes nothing.

        Returns:
            Position [B, 3] and quaternion [x y z w], [B, 4], in the world.
        """
        self._links.require(link_name, "compute_forward_kinematics")
        return self._call(_pose, (link_name,), q=q)

    def compute_endeffector_jacobian(self, q: torch.Tensor, link_name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """How a link's origin moves and turns, in world axes, with the joint velocities.

        Args:
            q: joint positions, [B, n].
            link_name: of the link.

        Returns:
            Linear and angular Jacobian, [B, 3, n] each.
        """
        self._links.require(link_name, "compute_endeffector_jacobian")
        return self._call(_jacobian, (link_name,), q=q)

    # Dynamics

    def compute_inverse_dynamics(
        self,
        q: torch.Tensor,
        qd: torch.Tensor,
        qdd_des: torch.Tensor,
        include_gravity: bool | None = True,
        use_damping: bool | None = True,
    ) -> torch.Tensor:
        """The joint torques for given accelerations.

        Args:
            q: joint positions, [B, n].
            qd: joint velocities, [B, n].
            qdd_des: joint accelerations, [B, n].
            include_gravity: whether there is gravity, 9.81 m/s^2 downwards.
            use_damping: whether the joints' damping is overcome too.

        Returns:
            Torques, [B, n].
        """
        return self._call(_inverse_dynamics, (bool(use_damping),), bool(include_gravity), q=q, qd=qd, qdd_des=qdd_des)

    def compute_non_linear_effects(
        self,
        q: torch.Tensor,
        qd: torch.Tensor,
        include_gravity: bool | None = True,
        use_damping: bool | None = True,
    ) -> torch.Tensor:
        """The joint torques without acceleration: Coriolis, centrifugal, gravity and damping.

        Args:
            q: joint positions, [B, n].
            qd: joint velocities, [B, n].
            include_gravity: whether there is gravity.
            use_damping: whether the joints' damping counts.

        Returns:
            Torques, [B, n].
        """
        return self._call(_inverse_dynamics, (bool(use_damping),), bool(include_gravity), q=q, qd=qd)

    def compute_lagrangian_inertia_matrix(
        self, q: torch.Tensor, include_gravity: bool | None = True, use_damping: bool | None = True
    ) -> torch.Tensor:
        """The joint-space inertia matrix.

        Args:
            q: joint positions, [B, n].
            include_gravity: changes nothing.
            use_damping: changes nothing.

        Returns:
            [B, n, n].
        """
        return self._call(_inertia_matrix, q=q)

    def compute_forward_dynamics(
        self,
        q: torch.Tensor,
        qd: torch.Tensor,
        f: torch.Tensor,
        include_gravity: bool | None = True,
        use_damping: bool | None = False,
    ) -> torch.Tensor:
        """The joint accelerations under given torques.

        Args:
            q: joint positions, [B, n].
            qd: joint velocities, [B, n].
            f: joint torques, [B, n].
            include_gravity: whether there is gravity.
            use_damping: whether the joints are damped.

        Returns:
            Accelerations, [B, n].
        """
        return self._call(_forward_dynamics, (bool(use_damping),), bool(include_gravity), q=q, qd=qd, f=f)

    # Learning

    def make_link_param_learnable(self, link_name: str, parameter_name: str, parametrization: torch.nn.Module) -> None:
        """Learn a parameter of a link.

        Args:
            link_name: of the link, moving or not.
            parameter_name: "trans" and "rot_angles" (roll, pitch, yaw) of its joint's placement, "joint_damping",
                "mass", "com", or "inertia_mat" about the centre of mass.
            parametrization: its `forward()` gives 3, 3, 1, 1, 3, or 9 numbers (an inertia also as the 6 of
                xx xy xz yy yz zz), of any shape.
        """
        holder = self._holder(link_name, parameter_name)
        if not isinstance(parametrization, torch.nn.Module):
            raise InputError(
                f"make_link_param_learnable: {parameter_name!r} of link {link_name!r} needs a torch.nn.Module, got a "
                f"{type(parametrization).__name__}"
            )
        parametrization.to(self._device)
        with torch.no_grad():
            value: Any = parametrization()
        sizes = (SIZES[parameter_name], *((6,) if parameter_name == "inertia_mat" else ()))
        if not isinstance(value, torch.Tensor) or value.numel() not in sizes:
            got = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise InputError(
                f"{parameter_name!r} of link {link_name!r}: {type(parametrization).__name__} returned {got}; it must "
                f"return a tensor of {' or '.join(map(str, sizes))} numbers"
            )
        setattr(holder, parameter_name, parametrization)
        self._learned[link_name, parameter_name] = (parametrization, value.numel())
        self._functions.clear()

    def freeze_learnable_link_param(self, link_name: str, parameter_name: str) -> None:
        """Let a learnable parameter stay as it is.

        Args:
            link_name: of the link.
            parameter_name: of the parameter.
        """
        self._learnable(link_name, parameter_name).requires_grad_(False)

    def unfreeze_learnable_link_param(self, link_name: str, parameter_name: str) -> None:
        """Learn a frozen parameter again.

        Args:
            link_name: of the link.
            parameter_name: of the parameter.
        """
        self._learnable(link_name, parameter_name).requires_grad_(True)

    def print_learnable_params(self) -> None:
        """Print the name and value of all learnable parameters."""
        for name, param in self.named_parameters():
            print(f"{name}: {param}")

    # Description

    def get_joint_limits(self) -> list[dict[str, float]]:
        """Limits of the joints: "effort", "lower", "upper" and "velocity", infinite where there are none."""
        found = []
        for index in self._links.joints:
            joint = self._links.model.joints[index]
            limits = (joint.effort_limit, joint.lower, joint.upper, joint.velocity_limit)
            found += [dict(zip(("effort", "lower", "upper", "velocity"), limits, strict=True))] * joint.nv
        return found

    def get_link_names(self) -> list[str]:
        """Names of all links, in the order of the file."""
        return list(self._links.names)

    def print_link_names(self) -> None:
        """Print the names of all links."""
        print("\n".join(self._links.names))

    # Calls

    def _holder(self, link: str, parameter: str) -> torch.nn.Module:
        self._links.require(link, parameter)
        if parameter not in SIZES:
            raise InputError(f"no parameter {parameter!r} of links; parameters: {', '.join(SIZES)}")
        body = self._bodies[self._name_to_idx_map[link]]
        assert isinstance(body, Link)
        return body.holder(parameter)

    def _learnable(self, link: str, parameter: str) -> torch.nn.Module:
        self._holder(link, parameter)
        if (link, parameter) not in self._learned:
            listed = ", ".join(f"{of} {name}" for of, name in self._learned) or "none"
            raise InputError(f"{parameter!r} of link {link!r} is not learnable; learnable: {listed}")
        return self._learned[link, parameter][0]

    def _call(
        self, quantity: Callable[..., Any], options: tuple[Any, ...] = (), gravity: bool = True, **inputs: Any
    ) -> Any:
        """A quantity of tensors, by the kernel made when first asked for."""
        key = (quantity, options, gravity, len(inputs))
        function = self._functions.get(key)
        if function is None:
            function = self._functions[key] = self._traced(quantity, options, gravity, list(inputs))
        if not self._learned:
            return function(*inputs.values())
        return function(*inputs.values(), self._values(inputs["q"]))

    def _values(self, like: torch.Tensor) -> torch.Tensor:
        """The learned numbers, one after the other."""
        parts = []
        for (link, parameter), (module, size) in self._learned.items():
            value = module()
            if value.numel() != size:
                raise InputError(
                    f"{parameter!r} of link {link!r}: {type(module).__name__} returned {tuple(value.shape)}; it must "
                    f"return {size} numbers"
                )
            parts.append(value.reshape(-1))
        values = parts[0] if len(parts) == 1 else torch.cat(parts)
        if self.check and not values.detach().sum().isfinite().item():
            for (link, parameter), part in zip(self._learned, parts, strict=True):
                if not bool(part.isfinite().all()):
                    module = type(self._learned[link, parameter][0]).__name__
                    raise InputError(f"{parameter!r} of link {link!r}: {module} returned {part.tolist()}")
        return values if values.dtype == like.dtype else values.to(like.dtype)

    def _traced(
        self, quantity: Callable[..., Any], options: tuple[Any, ...], gravity: bool, inputs: list[str]
    ) -> Function:
        links, sizes = self._links, {key: size for key, (_, size) in self._learned.items()}
        shapes = {name: links.model.nq if name == "q" else links.model.nv for name in inputs}

        def traced(q: Any, learned: Any = (), **rates: Any) -> Any:
            values, start = {}, 0
            for key, size in sizes.items():
                values[key], start = list(learned[start : start + size]), start + size
            robot = links.robot(values, gravity)
            ordered = [[value[k] for k in links.v_places] for value in rates.values()]
            moment = _Moment(links, values, robot, [q[k] for k in links.q_places], *ordered)
            return _arrays(quantity(moment, *options))

        traced.__name__ = f"{quantity.__name__.strip('_')}({self.name or links.model.name})"
        return Function(traced, {**shapes, **({"learned": sum(sizes.values())} if sizes else {})})


class _Moment:
    """A state of the robot over scalars, with velocities and whatever else was given, in the model's order."""

    def __init__(self, links: Links, learned: Mapping[Key, Any], robot: Any, q: Any, qd: Any = None, given: Any = None):
        self.links, self.learned, self.given = links, learned, given
        self.state = State(robot, q, qd)

    def ordered(self, rows: Sequence[Any]) -> list[Any]:
        """Values in the model's order, in the caller's."""
        found: list[Any] = [None] * len(rows)
        for row, place in zip(rows, self.links.v_places, strict=True):
            found[place] = row
        return found

    def damped(self, sign: float, forces: Sequence[Scalar]) -> list[Scalar]:
        """Forces with damping times velocity added or taken away."""
        damping = self.links.damping(self.learned)
        return [x + sign * (d * v) for x, d, v in zip(forces, damping, self.state.v, strict=True)]

    def pose(self, link: str) -> Transform:
        """Of a link in the world."""
        return self.state.frame_pose(self.links.model.frame_index(link))


def _inverse_dynamics(at: _Moment, use_damping: bool) -> list[Scalar]:
    tau = inverse_dynamics(at.state, at.given or [0.0] * at.links.model.nv)
    return at.ordered(at.damped(1.0, tau) if use_damping else tau)


def _forward_dynamics(at: _Moment, use_damping: bool) -> list[Scalar]:
    at.state.tau = at.damped(-1.0, at.given) if use_damping else list(at.given)
    return at.ordered(list(aba_of(at.state)))


def _inertia_matrix(at: _Moment) -> list[list[Scalar]]:
    return at.ordered([at.ordered(row) for row in crba_of(at.state)])


def _jacobian(at: _Moment, link: str) -> tuple[Any, Any]:
    rows = [at.ordered(row) for row in jacobian_of(at.state, link, "local_world_aligned")]
    return rows[:3], rows[3:]


def _pose(at: _Moment, link: str) -> tuple[Any, Any]:
    rotation, position = at.pose(link)
    return list(position), list(_xyzw(quaternion_normalize(quaternion_along(rotation))))


def _all_poses(at: _Moment) -> dict[str, Any]:
    return {link: _pose(at, link) for link in at.links.names}


def _kinematic_state(at: _Moment) -> dict[str, Any]:
    robot, found = at.state.robot, {}
    for index, frame in enumerate(at.links.model.frames):
        velocity = REST if frame.body == WORLD else at.state.velocities[frame.body]
        angular, linear = motion_to_child(robot.frames[index], velocity)
        rotation, _ = at.pose(frame.name)
        found[frame.name] = (*_pose(at, frame.name), [list(row) for row in rotation], list(linear), list(angular))
    return found


def _arrays(value: Any) -> Any:
    """Nested lists of scalars as arrays, inside tuples and dictionaries."""
    if isinstance(value, dict):
        return {name: _arrays(part) for name, part in value.items()}
    return tuple(map(_arrays, value)) if isinstance(value, tuple) else np.array(value, dtype=object)


def _xyzw(q: Quaternion) -> Quaternion:
    """The one of the two quaternions of a rotation that has w > 0, or its greatest component if w is below a half."""
    w, x, y, z = q
    sign = select(w < -0.5, -1.0, 1.0)
    return sign * x, sign * y, sign * z, sign * w
