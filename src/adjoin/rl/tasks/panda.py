"""The Panda arm reaches for points, and pushes a box on a table."""

import torch

from adjoin.dynamics.kinematics import forward_kinematics
from adjoin.rl.environment import EnvironmentState
from adjoin.rl.random import Random
from adjoin.rl.task import Start, Task, register_task
from adjoin.robots import load
from adjoin.simulation.simulator import Simulator

HAND = "panda_hand"


@register_task
class PandaReach(Task):
    """The hand is to reach a point in front of the arm; the reward is minus the distance and small costs."""

    name = "panda_reach"
    decimation = 4
    episode_steps = 100
    action_scale = 0.5  # rad, around the home pose

    def __init__(self):
        model = load("panda").with_servos(kp=400.0, kd=40.0)
        self._home = model.keyframe("home").q
        self.action_offset = self._home
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
