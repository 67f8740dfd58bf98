"""What runs with a free base: the ants of DiffRL (Xu et al., ICLR 2022) and of Qiao et al. (ICML 2021)."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from adjoin.compiler.runtime.function import function
from adjoin.constraints.compliant import Compliant
from adjoin.constraints.solver import Solver
from adjoin.model.joint import Joint
from adjoin.model.model import Model
from adjoin.rl.environment import EnvironmentState
from adjoin.rl.random import Random
from adjoin.rl.task import Start, Task, register_task
from adjoin.rl.tasks.physics import contact_simulator, rescaled
from adjoin.robots import load
from adjoin.spatial.rotation import from_quaternion
from adjoin.spatial.vector import apply

HEIGHT, FORWARD_SPEED, BASE = 0, 5, 11  # where numbers are in an observation, and how many are about the base

# Ranges of joints (degrees) and coefficient of friction of DiffRL's ant, and the springs of its simulator: 40 kN/m for
# contact, which grow by a quarter for each m/s of approach, and 1 kN m/rad for limits. These damp joints by
# 10 N m s/rad wherever they are, which adds to the joints' own 1.
RANGES = {"hip": (-40.0, 40.0), "ankle": (30.0, 100.0)}
FRICTION = 0.75
SPRINGS = Compliant(stiffness=220.0, dissipation=0.25, depth=5e-3, transition=0.1, lever=0.158)
DAMPING = 11.0


class Locomotion(Task):
    """A robot with a free base is to run along x.

    The observation has the height and the quaternion of the base, its linear and angular velocity in world axes, joint
    angles, joint velocities times 0.2, how upright it is and how well it heads along x (both cosines), and the latest
    action.

    Attributes:
        height: The height of the base at the start, m.
        angles: The joint angles at the start, rad.
        scatter: How far starts are from there, evenly on both sides: m, rad of the base, rad of joints, velocities.
    """

    decimation = 4
    height: float
    angles: Sequence[float]
    scatter = (0.1, math.radians(7.5), 0.2, 0.25)

    def __init__(self, model: Model, **physics: Any):
        self.simulator = contact_simulator(model, 1.0 / 60.0 / self.decimation, **physics)

        @function(q=model.nq, v=model.nv)
        def features(q: Any, v: Any) -> Any:
            turn = from_quaternion(tuple(q[3:7]))
            linear, angular = (apply(turn, tuple(part)) for part in (v[:3], v[3:6]))
            joints = [*q[7:], *[0.2 * x for x in v[6:]]]
            return [q[2], *q[3:7], *linear, *angular, *joints, turn[2][2], turn[0][0]]

        self._features = features

    def start(self, n: int, random: Random) -> Start:
        """Begin near the usual pose, with small velocities."""
        place, tilt, bend, speed = self.scatter
        model = self.simulator.model
        angles = random.constant(self.angles)
        position = random.uniform(-place, place, n, 3)
        position[:, 2] += self.height
        axis = torch.nn.functional.normalize(random.uniform(-1.0, 1.0, n, 3), dim=-1)
        half = 0.5 * random.uniform(-tilt, tilt, n, 1)
        joints = angles + random.uniform(-bend, bend, n, len(self.angles))
        q = torch.cat([position, half.cos(), half.sin() * axis, joints], -1)
        return Start(q, random.uniform(-speed, speed, n, model.nv))

    def observe(self, state: EnvironmentState) -> torch.Tensor:
        """Return height, orientation, velocities, joints, uprightness, heading and the latest action."""
        return torch.cat([self._features(state.q, state.v), state.action], -1)

    def _parts(self, state: EnvironmentState) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return height, forward speed, uprightness and heading."""
        row = self._features(state.q, state.v)
        return row[:, HEIGHT], row[:, FORWARD_SPEED], row[:, -2], row[:, -1]


@register_task
class Ant(Locomotion):
    """An ant of 182 kg is to run; 37 observations, reward v_x + 0.1 up + heading + (height - 0.27).

    Its ground is as soft as DiffRL's, and a step an eighth of an action: gradients then show a learner farther than on
    hard ground.
    """

    name = "ant"
    decimation = 8
    height, lowest = 0.75, 0.27
    angles = (0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0)

    def __init__(self):
        model = rescaled(load("ant"), density=200.0, armature=0.05, damping=DAMPING, actuator_gear=200.0)
        bodies = tuple(replace(body, joint=_with_range(body.joint)) for body in model.bodies)
        shapes = tuple(replace(shape, friction=(FRICTION, *shape.friction[1:])) for shape in model.geometries)
        super().__init__(replace(model, bodies=bodies, geometries=shapes), contact=SPRINGS)

    def reward(self, before: EnvironmentState, action: torch.Tensor, after: EnvironmentState) -> torch.Tensor:
        """Return the speed along x, and bonuses for an upright base."""
        height, speed, up, heading = self._parts(after)
        return speed + 0.1 * up + heading + (height - self.lowest)

    def terminated(self, state: EnvironmentState) -> torch.Tensor:
        """Return where the base is too low."""
        return state.q[:, 2] < self.lowest


def _with_range(joint: Joint) -> Joint:
    """Return a joint with the range of its kind; two ankles turn the other way."""
    kind = joint.name.partition("_")[0]
    if kind not in RANGES:
        return joint
    low, high = (math.radians(x) for x in RANGES[kind])
    return replace(joint, lower=low, upper=high) if joint.upper > 0.0 else replace(joint, lower=-high, upper=-low)


@register_task
class SeedAnt(Locomotion):
    """The Ant of Qiao et al. (ICML 2021): 27 observations, 0.05 s an action, reward dx/0.05 - 0.5 |a|² + 1.

    Args:
        contact: The solver of contacts; by default MuJoCo's soft contact.
        physics: Other options of the simulator.
    """

    name = "ant2021"
    decimation = 5
    height, low, high = 0.75, 0.2, 1.0
    angles = (0.0,) * 8
    scatter = (0.0, 0.0, 0.1, 0.1)

    def __init__(self, contact: Solver | None = None, **physics: Any):
        model = load("ant")
        # The floor of MuJoCo's file has a margin of 0.01 m, as the shapes of the robot have; they are added.
        model = replace(model, geometries=tuple(replace(shape, margin=0.02) for shape in model.geometries))
        super().__init__(model)
        chosen = physics if contact is None else {"contact": contact, **physics}
        self.simulator = contact_simulator(model, 0.01, **chosen)

    def start(self, n: int, random: Random) -> Start:
        """Begin at the height of 0.75 m with joints near 0."""
        place, _, bend, speed = self.scatter
        q = random.uniform(-bend, bend, n, 15)
        base = random.constant([0.0, 0.0, self.height, 1.0, 0.0, 0.0, 0.0])
        q = torch.cat([base.expand(n, -1) + place, q[:, 7:]], -1)
        return Start(q, speed * random.normal(n, 14))

    def observe(self, state: EnvironmentState) -> torch.Tensor:
        """Return orientation, height, joints, and velocities times 0.05."""
        return torch.cat([state.q[:, 3:7], state.q[:, 2:3], state.q[:, 7:], 0.05 * state.v], -1)

    def reward(self, before: EnvironmentState, action: torch.Tensor, after: EnvironmentState) -> torch.Tensor:
        """Return the mean speed along x, minus a cost of actions, plus 1 for being alive."""
        speed = (after.q[:, 0] - before.q[:, 0]) / self.control_dt
        return speed - 0.5 * action.square().sum(-1) + 1.0

    def terminated(self, state: EnvironmentState) -> torch.Tensor:
        """Return where the base is too low or too high."""
        return (state.q[:, 2] < self.low) | (state.q[:, 2] > self.high)

    def observation_terminated(self, observation: torch.Tensor) -> torch.Tensor:
        """Return where the base is too low or too high."""
        return (observation[:, 4] < self.low) | (observation[:, 4] > self.high)
