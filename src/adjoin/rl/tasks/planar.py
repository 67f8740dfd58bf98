"""Hopper and half-cheetah, which move in a plane, with the rewards of DiffRL (Xu et al., ICLR 2022)."""

import math

import torch

from adjoin.rl.environment import EnvironmentState
from adjoin.rl.random import Random
from adjoin.rl.task import Start, Task, register_task
from adjoin.rl.tasks.physics import SOFT_GROUND, contact_simulator
from adjoin.robots import load


class Planar(Task):
    """A robot in the x-z plane is to run along x, on soft ground. The observation has all of q but x, and v.

    Attributes:
        robot: The name of the robot.
        scatter: How far starts are from the usual pose, evenly on both sides: joints and velocities.
    """

    decimation = 8
    robot: str
    scatter = (0.05, 0.05)

    def __init__(self):
        model = load(self.robot)
        self.simulator = contact_simulator(model, 1.0 / 60.0 / self.decimation, contact=SOFT_GROUND)
        self._usual = model.keyframes[0].q
        self._height = self._usual[1]

    def start(self, n: int, random: Random) -> Start:
        """Begin near the usual pose, with small velocities."""
        bend, speed = self.scatter
        model = self.simulator.model
        usual = random.constant(self._usual)
        return Start(usual + random.uniform(-bend, bend, n, model.nq), random.uniform(-speed, speed, n, model.nv))

    def observe(self, state: EnvironmentState) -> torch.Tensor:
        """Return the height above the usual one, the pitch, joint angles and all velocities."""
        height = state.q[:, 1:2] - self._height
        return torch.cat([height, state.q[:, 2:], state.v], -1)


@register_task
class Hopper(Planar):
    """A leg is to hop along x; 11 observations, reward v_x + H + 1 - (pitch/30°)² - 0.1 |a|², H from the height."""

    name = "hopper"
    robot = "hopper"

    def reward(self, before: EnvironmentState, action: torch.Tensor, after: EnvironmentState) -> torch.Tensor:
        """Return the speed along x, bonuses for height and an upright torso, and a cost of actions."""
        x = (after.q[:, 1] - self._height + 0.3).clamp(-1.0, 0.3)
        height = torch.where(x > 0.0, x, -200.0 * x.square())
        upright = 1.0 - (after.q[:, 2] / math.radians(30.0)).square()
        return after.v[:, 0] + height + upright - 0.1 * action.square().sum(-1)

    def terminated(self, state: EnvironmentState) -> torch.Tensor:
        """Return where the torso has fallen by 0.45 m."""
        return state.q[:, 1] - self._height < -0.45


@register_task
class HalfCheetah(Planar):
    """Half a cheetah is to run along x; 17 observations, reward v_x - 0.1 |a|²."""

    name = "half_cheetah"
    robot = "half_cheetah"
    scatter = (0.1, 0.1)

    def reward(self, before: EnvironmentState, action: torch.Tensor, after: EnvironmentState) -> torch.Tensor:
        """Return the speed along x minus a cost of actions."""
        return after.v[:, 0] - 0.1 * action.square().sum(-1)
