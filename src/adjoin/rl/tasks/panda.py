"""The Panda arm reaches for points, and pushes a box on a table."""

from dataclasses import replace
from typing import Any

import torch

from adjoin.compiler.runtime.function import function
from adjoin.constraints.compliant import Compliant
from adjoin.constraints.rows import GROUND
from adjoin.dynamics.kinematics import forward_kinematics
from adjoin.model.compose import forest
from adjoin.model.model import Model
from adjoin.model.parts import Geometry
from adjoin.rl.environment import EnvironmentState
from adjoin.rl.random import Random
from adjoin.rl.task import Start, Task, register_task
from adjoin.rl.tasks.physics import contact_simulator
from adjoin.robots import load
from adjoin.simulation.simulator import Simulator
from adjoin.spatial.rotation import from_quaternion
from adjoin.spatial.vector import add, apply

HAND = "panda_hand"


def velocity_panda() -> Model:
    """Return a Panda whose controls are joint velocities, and whose weight is carried, as its own controller does.

    The gains are such that an error of 2 rad/s needs no more torque than a joint has: a torque at its limit would have
    no gradient.
    """
    panda = load("panda").with_servos(kp=0.0, kd=[40.0] * 4 + [5.0] * 3 + [40.0])
    for servo in panda.actuators:
        panda = panda.with_actuator(replace(servo, gain=-servo.bias[2]))
    carried = [replace(body, compensated_mass=body.mass, compensated_com=body.com) for body in panda.bodies]
    return replace(panda, bodies=tuple(carried))


@register_task
class PandaReach(Task):
    """The hand is to reach a point in front of the arm; the reward is minus the distance and small costs.

    Actions are joint velocities.
    """

    name = "panda_reach"
    decimation = 4
    episode_steps = 100
    action_scale = (1.0,) * 7 + (0.0,)  # rad/s; the fingers stay
    action_offset = 0.0

    def __init__(self):
        model = velocity_panda()
        self._home = model.keyframe("home").q
        self.simulator = Simulator(model, dt=0.01, pairs=[])

    def start(self, n: int, random: Random) -> Start:
        """Begin near the home pose; the goal is drawn from a box of 0.4 x 0.6 x 0.4 m."""
        home = random.constant(self._home)
        q = home + random.uniform(-0.1, 0.1, n, len(self._home)) * (home != 0.04)
        goal = random.constant([0.5, 0.0, 0.4]) + random.constant([0.2, 0.3, 0.2]) * random.uniform(-1.0, 1.0, n, 3)
        return Start(q, torch.zeros_like(q), {"goal": goal})

    def hand(self, state: EnvironmentState) -> torch.Tensor:
        """Return the place of the hand, (n, 3), m."""
        return forward_kinematics(self.simulator.model, state.q, HAND)[..., :3, 3]

    def observe(self, state: EnvironmentState) -> torch.Tensor:
        """Return joints, their velocities, the goal and the way from the hand to it."""
        goal = state.memory["goal"]
        return torch.cat([state.q, 0.1 * state.v, goal, goal - self.hand(state), state.action], -1)

    def reward(self, before: EnvironmentState, action: torch.Tensor, after: EnvironmentState) -> torch.Tensor:
        """Return minus the distance, a bonus near the goal, and costs of speed and of jerky actions."""
        distance = (self.hand(after) - after.memory["goal"]).square().sum(-1).add(1e-6).sqrt()
        near = (-(distance / 0.05).square()).exp()
        costs = 1e-3 * after.v.square().sum(-1) + 0.01 * (action - before.action).square().sum(-1)
        return -distance + 0.5 * near - costs


@register_task
class PandaPush(Task):
    """A peg in the closed hand is to push a box on the table to a goal.

    The reward falls with the way of the box to its goal, and with the way of the peg to the place behind the box, seen
    from the goal; it is positive where both are near. The observation has the joints, their velocities, the box (place,
    axes and velocities), the ways from the peg to the box and from the box to the goal, and the latest action.
    """

    name = "panda_push"
    decimation = 8
    episode_steps = 100
    rest = (0.0, 0.1384, 0.0, -2.6305, 0.0, 2.7689, 0.7854, 0.0)  # the hand at (0.43, 0, 0.2), pointing down
    action_scale = (0.6,) * 6 + (0.0, 0.0)  # rad/s; the last joint of the arm and the fingers stay
    action_offset = 0.0
    edge, mass = 0.1, 0.5  # of the box, m and kg
    radius = 0.025  # of the peg, m

    def __init__(self):
        cube = self.mass * self.edge**2 / 6.0
        numbers = {"mass": [self.mass], "inertia": [[cube, 0.0, 0.0, cube, 0.0, cube]]}
        numbers["geometry_size"] = [[0.5 * self.edge] * 3]
        box = load("box").with_parameters({name: torch.tensor(x) for name, x in numbers.items()})
        panda = velocity_panda()
        hand = panda.frames[panda.frame_index(HAND)]
        middle = add(hand.position, apply(hand.rotation, (0.0, 0.0, 0.12)))
        peg = Geometry("peg", "capsule", hand.body, HAND, (self.radius, 0.04, 0.0), middle, hand.rotation)
        model = forest({"panda": panda.with_geometry(peg), "box": box})
        pairs = [("box/box", GROUND), ("panda/peg", "box/box"), ("panda/peg", GROUND)]
        soft = Compliant(stiffness=100.0, depth=2e-3, transition=0.05)
        self.simulator = contact_simulator(model, 0.005, contact=soft, pairs=pairs)

        @function(q=model.nq, v=model.nv)
        def box_row(q: Any, v: Any) -> Any:
            turn = from_quaternion(tuple(q[11:15]))
            linear, angular = (apply(turn, tuple(part)) for part in (v[8:11], v[11:14]))
            return [*q[8:11], *[turn[i][k] for k in (0, 1) for i in range(3)], *linear, *angular]

        self._box = box_row

    def start(self, n: int, random: Random) -> Start:
        """Begin with the peg in front of the box, and a goal farther out."""
        arm = random.constant(self.rest) + random.uniform(-0.03, 0.03, n, 8) * random.constant([1.0] * 7 + [0.0])
        yaw = random.uniform(-0.3, 0.3, n, 1)
        place = random.constant([0.56, 0.0]) + random.constant([0.03, 0.05]) * random.uniform(-1.0, 1.0, n, 2)
        zero = torch.zeros_like(yaw)
        box = torch.cat([place, zero + 0.5 * self.edge, (0.5 * yaw).cos(), zero, zero, (0.5 * yaw).sin()], -1)
        goal = place + random.constant([0.1, 0.0]) + random.constant([0.03, 0.06]) * random.uniform(-1.0, 1.0, n, 2)
        return Start(torch.cat([arm, box], -1), torch.zeros(n, 14, dtype=arm.dtype, device=arm.device), {"goal": goal})

    def peg(self, state: EnvironmentState) -> torch.Tensor:
        """Return the place of the peg, 3.5 cm from its tip, (n, 3), m."""
        pose = forward_kinematics(self.simulator.model, state.q, f"panda/{HAND}")
        return pose[..., :3, 3] + 0.15 * pose[..., :3, 2]

    def observe(self, state: EnvironmentState) -> torch.Tensor:
        """Return joints, box, the ways from peg to box to goal, and the latest action."""
        box = self._box(state.q, state.v)
        ways = [box[:, :3] - self.peg(state), state.memory["goal"] - box[:, :2]]
        return torch.cat([state.q[:, :7], 0.1 * state.v[:, :7], box, *ways, state.action[:, :6]], -1)

    def reward(self, before: EnvironmentState, action: torch.Tensor, after: EnvironmentState) -> torch.Tensor:
        """Return 1 less the ways of box and peg, a bonus at the goal, and small costs of speed and jerky actions."""
        box, goal = after.q[:, 8:11], after.memory["goal"]
        way = goal - box[:, :2]
        far = way.square().sum(-1).add(1e-6).sqrt()
        apart = (0.5 * self.edge + self.radius) / (far.square() + 1e-4).sqrt()
        behind = torch.cat([box[:, :2] - apart[:, None] * way, box[:, 2:]], -1)
        miss = (self.peg(after) - behind).square().sum(-1).add(1e-6).sqrt()
        at_goal = (-(far / 0.03).square()).exp()
        costs = 1e-3 * after.v[:, :7].square().sum(-1) + 0.01 * (action - before.action).square().sum(-1)
        return 1.0 - 5.0 * far - miss + at_goal - costs
