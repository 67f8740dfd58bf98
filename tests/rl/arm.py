"""A small task for tests: one driven link, whose episodes end at an angle or after a few steps."""

import torch

import adjoin
from adjoin.rl import Start, Task


class Arm(Task):
    name = "arm"
    episode_steps = 7

    def __init__(self, limit=2.0, **options):
        self.limit = limit
        model = adjoin.robots.pendulum(1).with_motors()
        self.simulator = adjoin.Simulator(model, dt=0.02, pairs=[], ground=False, limits=False)
        self.decimation, self.action_scale, self.action_offset = 2, 5.0, 0.5
        for name, value in options.items():
            setattr(self, name, value)

    def start(self, n, random):
        return Start(random.uniform(-0.5, 0.5, n, 1), random.uniform(-1.0, 1.0, n, 1))

    def observe(self, state):
        return torch.cat([state.q.sin(), state.q.cos(), state.v], -1)

    def reward(self, before, action, after):
        return -(after.q[:, 0] - 1.0).square() - 0.01 * action[:, 0].square()

    def terminated(self, state):
        return state.v[:, 0].abs() > self.limit
