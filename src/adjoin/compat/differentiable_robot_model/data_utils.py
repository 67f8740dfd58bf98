"""Data sets of robot motions, under the names of differentiable-robot-model."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from adjoin.compat.differentiable_robot_model.robot_model import DifferentiableRobotModel
from adjoin.errors import InputError


class _MotionDataset(torch.utils.data.Dataset):
    """Motions by time: "q", "qd", "qdd_des" and "tau", [n, dofs] each.

    Args:
        data: those tensors by name.
    """

    target = "tau"

    def __init__(self, data: Mapping[str, torch.Tensor]):
        self.data = dict(data)

    def __getitem__(self, index: Any) -> list[torch.Tensor]:
        return [self.data[name][index, :] for name in ("q", "qd", "qdd_des", "tau")]

    def __len__(self) -> int:
        return len(self.data["q"])

    def var(self) -> torch.Tensor:
        """Return the variance of what is to be predicted, [dofs]."""
        return self.data[self.target].var(dim=0)


class InverseDynamicsDataset(_MotionDataset):
    """Motions from which torques are to be predicted."""


class ForwardDynamicsDataset(_MotionDataset):
    """Motions from which accelerations are to be predicted."""

    target = "qdd_des"


def generate_random_forward_kinematics_data(
    robot_model: DifferentiableRobotModel, n_data: int, ee_name: str
) -> dict[str, torch.Tensor]:
    """Return random configurations inside the limits, "q", and where they put a link, "ee_pos"."""
    q = _uniform(robot_model, n_data, _limit(robot_model, "lower"), _limit(robot_model, "upper"))
    return {"q": q, "ee_pos": robot_model.compute_forward_kinematics(q=q, link_name=ee_name)[0]}


def generate_random_inverse_dynamics_data(robot_model: DifferentiableRobotModel, n_data: int) -> InverseDynamicsDataset:
    """Return random states inside the limits, with velocities up to a fifth of theirs, and the torques they need."""
    speed = 0.2 * _limit(robot_model, "velocity")
    places = _limit(robot_model, "lower"), _limit(robot_model, "upper")
    ranges = (places, (-speed, speed), (-2.0 * speed, 2.0 * speed))
    q, qd, qdd = (_uniform(robot_model, n_data, *bounds) for bounds in ranges)
    tau = robot_model.compute_inverse_dynamics(q=q, qd=qd, qdd_des=qdd, include_gravity=True)
    return InverseDynamicsDataset({"q": q, "qd": qd, "qdd_des": qdd, "tau": tau})


def generate_sine_motion_inverse_dynamics_data(
    robot_model: DifferentiableRobotModel, n_data: int, dt: float, freq: float
) -> InverseDynamicsDataset:
    """Return all joints swinging by 0.7 rad at a frequency (Hz), and the torques that it takes."""
    q, qd, qdd = _sine(robot_model, n_data, dt, freq)
    tau = robot_model.compute_inverse_dynamics(q=q, qd=qd, qdd_des=qdd, include_gravity=True)
    return InverseDynamicsDataset({"q": q, "qd": qd, "qdd_des": qdd, "tau": tau})


def generate_sine_motion_forward_dynamics_data(
    robot_model: DifferentiableRobotModel, n_data: int, dt: float, freq: float
) -> ForwardDynamicsDataset:
    """Return all joints swinging by 0.7 rad at a frequency (Hz), and the torques that it takes."""
    return ForwardDynamicsDataset(generate_sine_motion_inverse_dynamics_data(robot_model, n_data, dt, freq).data)


def _limit(robot: DifferentiableRobotModel, which: str) -> np.ndarray:
    values = np.array([joint[which] for joint in robot.get_joint_limits()])
    if not np.isfinite(values).all():
        raise InputError(f"some joints have no limit {which!r}; random data needs one of every joint")
    return values


def _uniform(robot: DifferentiableRobotModel, count: int, low: np.ndarray, high: np.ndarray) -> torch.Tensor:
    """Return numbers of NumPy's global generator, as the original does: programs seed that one."""
    drawn = np.random.uniform(low, high, (count, len(low)))
    return torch.tensor(drawn, dtype=torch.float32, device=robot._device)


def _sine(robot: DifferentiableRobotModel, count: int, dt: float, freq: float) -> tuple[torch.Tensor, ...]:
    """Return angles, velocities and accelerations of a swing; time runs as in the original, up to int(n dt) - 1 s."""
    time = torch.linspace(0.0, int(count * dt) - 1, count, device=robot._device)[:, None].expand(-1, robot._n_dofs)
    rate = 2.0 * math.pi * freq
    return 0.7 * torch.sin(rate * time), 0.7 * rate * torch.cos(rate * time), -0.7 * rate**2 * torch.sin(rate * time)
