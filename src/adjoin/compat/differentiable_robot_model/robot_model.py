"""The learnable robot model with the interface of differentiable-robot-model 0.2.3 (Meier et al. 2022, Differentiable
and learnable robot models), on fused kernels: change the import, keep the program.
"""

import importlib.util
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from adjoin.compat.differentiable_robot_model import link_quantities as quantities
from adjoin.compat.differentiable_robot_model.links import SIZES, Key, Links
from adjoin.compat.differentiable_robot_model.rigid_body import DifferentiableRigidBody, Pose
from adjoin.compat.differentiable_robot_model.spatial_vector_algebra import (
    SpatialForceVec,
    SpatialMotionVec,
)
from adjoin.compiler.ir import pytree as tree
from adjoin.errors import InputError
from adjoin.learn.modules import ParameterModule
from adjoin.spatial.scalar import Scalar
from adjoin.trace import Function


class DifferentiableRobotModel(torch.nn.Module):
    """A robot whose links' parameters can be learned.

    Inputs q, qd, ... are [n] or [B, n], float32 or float64; results are of the inputs' dtype, on their device. Joints
    are in the order of their child links in the file. Nothing passed in is changed.

    Args:
        urdf_path: the URDF, or its text or bytes.
        name: of the robot.
        device: of the learnable parameters; the CPU if not given.
        floating_base: give the root link a free joint. Then q begins with its position and quaternion [x y z w], and
            velocities, accelerations and forces with six numbers [linear; angular] in the root link's frame.
        check: whether learned values are checked for NaN at each call.
        unit_inertia: whether links without `<inertial>` have a mass of 1 kg and moments of 1 kg m², as in the original.
    """

    def __init__(
        self,
        urdf_path: str | os.PathLike[str] | bytes,
        name: str = "",
        device: torch.device | str | None = None,
        *,
        floating_base: bool = False,
        check: bool = True,
        unit_inertia: bool = False,
    ):
        super().__init__()
        self.name = name
        self.check = check
        self._device = torch.device(device) if device is not None else torch.device("cpu")
        self._links = Links(urdf_path, floating_base, unit_inertia)
        self._n_dofs = self._links.model.nv
        self._name_to_idx_map = {link: index for index, link in enumerate(self._links.names)}
        self._bodies = torch.nn.ModuleList(
            DifferentiableRigidBody(self._links, link, self._device) for link in self._links.names
        )
        self._controlled_joints: list[int] = []
        count = 6 if floating_base else 0
        for index, link in enumerate(self._bodies):
            assert isinstance(link, DifferentiableRigidBody)
            if link.joint_limits is not None:
                link.joint_idx, count = count, count + 1
                self._controlled_joints.append(index)
            edge = self._links.joint_of(link.name)
            if edge is not None:
                parent = self._bodies[self._name_to_idx_map[edge.parent]]
                assert isinstance(parent, DifferentiableRigidBody)
                parent.add_child(link)
        self._learned: dict[Key, _LearnedParameter] = {}
        self._functions: dict[Any, Function] = {}
        self.register_state_dict_post_hook(_with_aliases)
        self.register_load_state_dict_pre_hook(_without_aliases)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_functions": {}}

    # Kinematics

    def update_kinematic_state(self, q: torch.Tensor, qd: torch.Tensor) -> None:
        """Set pose and velocity of every link: `_bodies[i].pose` and `_bodies[i].vel`."""
        states = self._call(quantities.kinematic_state, q=q, qd=qd)
        for link in self._bodies:
            assert isinstance(link, DifferentiableRigidBody)
            position, quaternion, matrix, linear, angular = states[link.name]
            link.pose, link.vel = Pose(position, quaternion, matrix), SpatialMotionVec(linear, angular)
            if link.joint_idx is not None:
                at = link.joint_idx - self._n_dofs  # from the end: a floating base has a number more in q than in qd
                link.update_joint_state(*(x.reshape(-1, x.shape[-1])[:, at, None] for x in (q, qd)))

    def compute_forward_kinematics_all_links(self, q: torch.Tensor) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Return link name -> position [B, 3] and quaternion [x y z w], [B, 4], in the world."""
        return self._call(quantities.all_poses, q=q)

    def compute_forward_kinematics(
        self, q: torch.Tensor, link_name: str, recursive: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a link's position [B, 3] and quaternion [x y z w], [B, 4], in the world; `recursive` is ignored."""
        self._links.require(link_name, "compute_forward_kinematics")
        return self._call(quantities.pose, (link_name,), q=q)

    def compute_endeffector_jacobian(self, q: torch.Tensor, link_name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the linear and the angular Jacobian of a link's origin, in world axes, [B, 3, n] each."""
        self._links.require(link_name, "compute_endeffector_jacobian")
        return self._call(quantities.jacobian, (link_name,), q=q)

    def iterative_newton_euler(self, base_acc: SpatialMotionVec) -> None:
        """Set acceleration and force of every link, from what `update_kinematic_state` and `update_joint_acc` set.

        Args:
            base_acc: acceleration of the base in its own frame: 9.81 m/s² upwards where there is gravity.
        """
        links = [link for link in self._bodies if isinstance(link, DifferentiableRigidBody)]
        edges = [self._links.joint_of(link.name) for link in links]
        parents = [None if edge is None else links[self._name_to_idx_map[edge.parent]] for edge in edges]
        links[0].acc = base_acc
        zero = torch.zeros_like(base_acc.lin)
        links[0].force = SpatialForceVec(zero, zero)
        places: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        for link, parent in zip(links, parents, strict=True):
            if parent is None:
                continue
            back = parent.pose.rotation().mT
            apart = (back @ (link.pose.translation() - parent.pose.translation())[..., None])[..., 0]
            place = places[link.name] = (back @ link.pose.rotation(), apart)
            carried = parent.vel.to_child(*place)
            joint_vel = SpatialMotionVec(link.vel.lin - carried.lin, link.vel.ang - carried.ang)
            link.acc = parent.acc.to_child(*place).add_motion_vec(link.joint_acc)
            link.acc = link.acc.add_motion_vec(link.vel.cross_motion_vec(joint_vel))
            momentum = link.inertia.multiply_motion_vec(link.vel)
            inertial = link.inertia.multiply_motion_vec(link.acc)
            link.force = inertial.add_force_vec(link.vel.cross_force_vec(momentum))
        for link, parent in zip(reversed(links), reversed(parents), strict=True):
            if parent is not None:
                parent.force = parent.force.add_force_vec(link.force.to_parent(*places[link.name]))

    # Dynamics: gravity is 9.81 m/s^2 downwards, and `use_damping` includes the damping of the joints

    def compute_inverse_dynamics(
        self,
        q: torch.Tensor,
        qd: torch.Tensor,
        qdd_des: torch.Tensor,
        include_gravity: bool | None = True,
        use_damping: bool | None = True,
    ) -> torch.Tensor:
        """Return the joint torques [B, n] for accelerations `qdd_des`, with gravity and damping or without."""
        return self._call(
            quantities.inverse_dynamics, (bool(use_damping),), bool(include_gravity), q=q, qd=qd, qdd_des=qdd_des
        )

    def compute_non_linear_effects(
        self, q: torch.Tensor, qd: torch.Tensor, include_gravity: bool | None = True, use_damping: bool | None = True
    ) -> torch.Tensor:
        """Return the joint torques [B, n] without acceleration: Coriolis, centrifugal, gravity and damping."""
        return self._call(quantities.inverse_dynamics, (bool(use_damping),), bool(include_gravity), q=q, qd=qd)

    def compute_lagrangian_inertia_matrix(
        self, q: torch.Tensor, include_gravity: bool | None = True, use_damping: bool | None = True
    ) -> torch.Tensor:
        """Return the joint-space inertia matrix, [B, n, n]; the options are ignored."""
        return self._call(quantities.inertia_matrix, q=q)

    def compute_forward_dynamics(
        self,
        q: torch.Tensor,
        qd: torch.Tensor,
        f: torch.Tensor,
        include_gravity: bool | None = True,
        use_damping: bool | None = False,
    ) -> torch.Tensor:
        """Return the joint accelerations [B, n] under torques `f`, with gravity and damping or without."""
        return self._call(quantities.forward_dynamics, (bool(use_damping),), bool(include_gravity), q=q, qd=qd, f=f)

    def compute_forward_dynamics_old(
        self,
        q: torch.Tensor,
        qd: torch.Tensor,
        f: torch.Tensor,
        include_gravity: bool | None = True,
        use_damping: bool | None = True,
    ) -> torch.Tensor:
        """Return the joint accelerations [B, n] by solving with the inertia matrix; damping is in by default."""
        bias = self.compute_non_linear_effects(q, qd, include_gravity, use_damping)
        return torch.linalg.solve(self.compute_lagrangian_inertia_matrix(q), f - bias)

    # Learning

    def make_link_param_learnable(self, link_name: str, parameter_name: str, parametrization: torch.nn.Module) -> None:
        """Learn a parameter of a link.

        Args:
            link_name: of the link, moving or not.
            parameter_name: "trans" and "rot_angles" (roll, pitch, yaw) of its joint's placement, "joint_damping",
                "mass", "com", or "inertia_mat" about the center of mass.
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
        self._learned[link_name, parameter_name] = _LearnedParameter(link_name, parameter_name, parametrization)
        setattr(holder, parameter_name, parametrization)
        self._functions.clear()

    def freeze_learnable_link_param(self, link_name: str, parameter_name: str) -> None:
        """Keep a learnable parameter as it is."""
        self._learnable(link_name, parameter_name).requires_grad_(False)

    def unfreeze_learnable_link_param(self, link_name: str, parameter_name: str) -> None:
        """Learn a frozen parameter again."""
        self._learnable(link_name, parameter_name).requires_grad_(True)

    def print_learnable_params(self) -> None:
        """Print the name and value of all learnable parameters."""
        for name, param in self.named_parameters():
            print(f"{name}: {param}")

    # Description

    def get_joint_limits(self) -> list[dict[str, float]]:
        """Limits of the joints as the file states them: "effort", "lower", "upper" and "velocity"."""
        limits = []
        for index in self._links.joints:
            joint = self._links.model.joints[index]
            none = {"effort": math.inf, "lower": -math.inf, "upper": math.inf, "velocity": math.inf}
            limits += [dict(self._links.limits.get(joint.name, none)) for _ in range(joint.nv)]
        return limits

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
        assert isinstance(body, DifferentiableRigidBody)
        return body.holder(parameter)

    def _learnable(self, link: str, parameter: str) -> torch.nn.Module:
        self._holder(link, parameter)
        if (link, parameter) not in self._learned:
            listed = ", ".join(f"{of} {name}" for of, name in self._learned) or "none"
            raise InputError(f"{parameter!r} of link {link!r} is not learnable; learnable: {listed}")
        return self._learned[link, parameter].module

    def _call(
        self, quantity: Callable[..., Any], options: tuple[Any, ...] = (), gravity: bool = True, **inputs: Any
    ) -> Any:
        """A quantity of tensors, by a kernel that is compiled when it is first needed."""
        key = (quantity, options, gravity, len(inputs))
        function = self._functions.get(key)
        if function is None:
            traced, shapes, learned = self._scalars(quantity, options, gravity, list(inputs))
            function = self._functions[key] = Function(traced, {**shapes, **learned})
        if not self._learned:
            return function(*inputs.values())
        results = function(*inputs.values(), *self.learned_tensors(inputs["q"]))
        if self.check:
            self.check_learned(next(tree.leaves(results)))
        return results

    def learned_tensors(self, like: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors that the learned parameters are computed from, in the dtype of `like`."""
        tensors = [tensor for learned in self._learned.values() for tensor in learned.tensors()]
        return [tensor if tensor.dtype == like.dtype else tensor.to(like.dtype) for tensor in tensors]

    def check_learned(self, result: torch.Tensor) -> None:
        """Raise if a result is not finite because a learned number is not."""
        if math.isfinite(result.detach().sum().item()):
            return
        with torch.no_grad():
            for learned in self._learned.values():
                learned.check(learned.module())

    def packed_error(self, quantity: str, use_damping: bool, gravity: bool, third_input: str) -> Function:
        """Return the squared error of a quantity, times the first of the numbers "packed"; see `train_epoch`.

        The other numbers are the learned tensors, one after the other. So the gradient to all of them has the error
        itself in front.
        """
        key = (quantity, use_damping, gravity, third_input)
        if key not in self._functions:
            inputs = ["q", "qd", third_input, "target", "variance"]
            error, shapes, learned = self._scalars(quantities.squared_error, (quantity, use_damping), gravity, inputs)
            ends = np.cumsum([1, *[math.prod(shape) for shape in learned.values()]]).tolist()

            def packed(packed: Any, **values: Any) -> Any:
                for (name, shape), start, end in zip(learned.items(), ends, ends[1:], strict=False):
                    values[name] = np.reshape(packed[start:end], shape)[()]
                return packed[0] * error(**values)

            packed.__name__ = error.__name__
            self._functions[key] = Function(packed, {**shapes, "packed": (ends[-1],)})
        return self._functions[key]

    def _scalars(
        self, quantity: Callable[..., Any], options: tuple[Any, ...], gravity: bool, inputs: list[str]
    ) -> tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]:
        """A quantity as a function of scalars by name, and the shapes of its inputs and of what is learned."""
        links, learned = self._links, {item: item.shapes() for item in self._learned.values()}
        shapes = {name: (links.model.nq if name == "q" else links.model.nv,) for name in inputs}

        def traced(**values: Any) -> Any:
            numbers = {item.key: item.numbers([values[name] for name in names]) for item, names in learned.items()}
            instant = quantities.Instant(links, numbers, gravity, {name: values[name] for name in inputs})
            return quantities.arrays(quantity(instant, *options))

        traced.__name__ = f"{quantity.__name__}({self.name or links.model.name})"
        return traced, shapes, {name: shape for item in learned.values() for name, shape in item.items()}


class _LearnedParameter:
    """A learned parameter of a link: its module, and how a kernel gets its numbers.

    The raw numbers of a module of this library go into the kernel as they are; of any other, its value.
    """

    def __init__(self, link: str, parameter: str, module: torch.nn.Module):
        self.key = (link, parameter)
        self.module = module
        self.named = f"{link} {parameter}"
        self.traced = module if isinstance(module, ParameterModule) else None
        with torch.no_grad():
            value = module()
        self.check(value)
        self.shape = value.shape

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """What goes into the kernel."""
        if self.traced is not None:
            return self.traced.inputs()
        value = self.module()
        if value.shape != self.shape:
            self.check(value)
        return (value,)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of those in the kernel."""
        return {f"{self.named} {k}": tuple(tensor.shape) for k, tensor in enumerate(self.tensors())}

    def numbers(self, arrays: list[Any]) -> list[Scalar]:
        """The parameter over scalars."""
        if self.traced is not None:
            shapes = self.traced.SHAPES.values()
            if any(shapes):
                arrays = [np.reshape(array, shape)[()] for array, shape in zip(arrays, shapes, strict=True)]
            arrays = [self.traced.of(*arrays)]
        return list(np.ravel(arrays[0]))

    def check(self, value: Any) -> None:
        """Raise if a value is of a wrong shape or not finite."""
        link, parameter = self.key
        prefix = f"{parameter!r} of link {link!r}: {type(self.module).__name__} returned"
        sizes = (SIZES[parameter], *((6,) if parameter == "inertia_mat" else ()))
        if not isinstance(value, torch.Tensor) or value.numel() not in sizes:
            got = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise InputError(f"{prefix} {got}; it must return a tensor of {' or '.join(map(str, sizes))} numbers")
        if not bool(value.isfinite().all()):
            raise InputError(f"{prefix} {value.tolist()}; every number must be finite")


def _with_aliases(robot: torch.nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Add every parameter once more for each link beyond it: there each link is a part of the links that it carries."""
    assert isinstance(robot, DifferentiableRobotModel)
    parents = [robot._links.joint_of(name) for name in robot._links.names]
    for index in range(len(parents)):
        above, path, edge = index, "", parents[index]
        while edge is not None:
            above, path = robot._name_to_idx_map[edge.parent], f"{path}._parent"
            edge = parents[above]
            begin = f"{prefix}_bodies.{above}."
            for key in [key for key in state if key.startswith(begin) and "._parent." not in key[len(prefix) :]]:
                state[f"{prefix}_bodies.{index}{path}.{key.removeprefix(begin)}"] = state[key]


def _without_aliases(_: torch.nn.Module, state: dict[str, Any], prefix: str, *more: Any) -> None:
    """Drop what `_with_aliases` adds, as files of differentiable-robot-model have it too."""
    for key in [key for key in state if key.startswith(f"{prefix}_bodies.") and "._parent." in key]:
        del state[key]


def __getattr__(name: str) -> Any:
    if name == "robot_description_folder":
        return str(_data_folder("robot_description_folder"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _data_folder(what: str) -> Path:
    """Return the folder of the robots that come with differentiable-robot-model."""
    data = importlib.util.find_spec("diff_robot_data")
    if data is None or not data.submodule_search_locations:
        raise InputError(f"{what} comes with differentiable-robot-model: pip install differentiable-robot-model")
    return Path(data.submodule_search_locations[0])


class _Bundled(DifferentiableRobotModel):
    """A robot in the data of differentiable-robot-model."""

    file: ClassVar[str]
    robot: ClassVar[str]

    def __init__(self, device: torch.device | str | None = None):
        super().__init__(_data_folder(self.file) / self.file, self.robot, device)


class DifferentiableKUKAiiwa(_Bundled):
    """The KUKA iiwa in the data of differentiable-robot-model."""

    file, robot = "kuka_iiwa/urdf/iiwa7.urdf", "differentiable_kuka_iiwa"


class DifferentiableFrankaPanda(_Bundled):
    """The Franka Panda without its gripper, in the data of differentiable-robot-model."""

    file, robot = "panda_description/urdf/panda_no_gripper.urdf", "differentiable_franka_panda"


class DifferentiableTwoLinkRobot(_Bundled):
    """The arm of two links in the data of differentiable-robot-model."""

    file, robot = "2link_robot.urdf", "diff_2d_robot"


class DifferentiableTrifingerEdu(_Bundled):
    """The three fingers in the data of differentiable-robot-model."""

    file, robot = "trifinger_edu_description/trifinger_edu.urdf", "trifinger_edu"
