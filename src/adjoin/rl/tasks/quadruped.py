"""The Go2 follows velocity commands, on flat ground and on random terrain."""

import math
from typing import Any

import torch

from adjoin.collision.terrain import Heightfield
from adjoin.compiler.runtime.function import function
from adjoin.constraints.pgs import PGS
from adjoin.errors import InputError
from adjoin.rl.environment import EnvironmentState
from adjoin.rl.random import Normal, Random, Randomize, Uniform, constant
from adjoin.rl.task import Push, Start, Task, register_task
from adjoin.rl.tasks.physics import contact_simulator
from adjoin.robots import load
from adjoin.spatial.rotation import from_quaternion
from adjoin.spatial.vector import apply, apply_transposed

LEGS = ("FL", "FR", "RL", "RR")
SCAN = tuple((0.15 * i, 0.15 * j) for i in range(-3, 4) for j in range(-2, 3))  # m, in the axes of the heading


@register_task
class Go2(Task):
    """The Go2 is to walk at a commanded velocity (forward, sideways, turning).

    The observation has angular velocity and the direction of gravity in the axes of the base, linear velocity, the
    command, joint angles relative to the stance, joint velocities and the latest action. The reward has a part for
    each of the two velocities, and costs of bouncing, rolling, torque-like effort and jerky actions.

    Args:
        roughness: The height of the terrain's bumps, m; 0 for flat ground.
        randomize: Whether masses, friction, gains and gravity differ from one environment to the next.
    """

    name = "go2"
    decimation = 4
    episode_steps = 1000
    action_scale = 0.25  # rad
    spacing, nodes = 0.2, 96  # m, and along each side of the terrain

    def __init__(self, roughness: float = 0.0, randomize: bool = True):
        if not isinstance(roughness, (int, float)) or not 0.0 <= roughness < math.inf:
            raise InputError(f"go2: roughness must be a number of at least 0, got {roughness!r}")
        model = load("go2").with_servos(kp=30.0, kd=0.8)
        self._home = model.keyframe("home")
        self.action_offset = self._home.q[7:]
        self.roughness = roughness
        terrain = None
        if roughness > 0.0:
            side = self.spacing * (self.nodes - 1)
            heights = torch.zeros(self.nodes, self.nodes)
            terrain = Heightfield(heights, (self.spacing, self.spacing), origin=(-0.5 * side, -0.5 * side, 0.0))
        feet = [(f"{leg}_foot", "ground") for leg in LEGS]
        self.simulator = contact_simulator(
            model, 0.005, contact=PGS(), pairs=[*feet, ("base", "ground")], **({"terrain": terrain} if terrain else {})
        )
        if randomize:
            self.randomized = (
                Randomize("mass", scale=Uniform(0.9, 1.1)),
                Randomize("geometry_friction", scale=Uniform(0.5, 1.25), shared=True),
                Randomize("gains", scale=Uniform(0.9, 1.1)),
                *([Randomize("terrain", sample=self._terrain)] if terrain else []),
            )
            self.push = Push("base", Uniform(-100.0, 100.0), every=4.0, duration=0.1)
            self.observation_noise = Normal(0.0, 0.01)
        elif terrain:
            self.randomized = (Randomize("terrain", sample=self._terrain),)

        @function(q=model.nq, v=model.nv)
        def base(q: Any, v: Any) -> Any:
            turn = from_quaternion(tuple(q[3:7]))
            return [*v[:3], *v[3:6], *apply_transposed(turn, (0.0, 0.0, -1.0)), *apply(turn, (1.0, 0.0, 0.0))]

        self._base = base

    def start(self, n: int, random: Random) -> Start:
        """Begin near the stance, with a command that lasts for the episode."""
        home = random.constant(self._home.q).repeat(n, 1)
        home[:, 2] += 0.5 * self.roughness + 0.02
        home[:, 7:] += random.uniform(-0.1, 0.1, n, 12)
        yaw = random.uniform(-3.14, 3.14, n, 1)
        home[:, 3:7] = torch.cat([(0.5 * yaw).cos(), 0.0 * yaw, 0.0 * yaw, (0.5 * yaw).sin()], -1)
        command = random.constant([1.0, 0.5, 1.0]) * random.uniform(-1.0, 1.0, n, 3)
        return Start(home, random.uniform(-0.1, 0.1, n, 18), {"command": command})

    def observe(self, state: EnvironmentState) -> torch.Tensor:
        """Return what the robot feels, its command, its joints and its latest action, and the ground around it."""
        row = self._base(state.q, state.v)
        home = constant(self._home.q[7:], state.q.dtype, state.q.device)
        parts = [row[:, 3:6] * 0.25, row[:, 6:9], row[:, :3] * 2.0, state.memory["command"] * 2.0]
        parts += [state.q[:, 7:] - home, 0.05 * state.v[:, 6:], state.action]
        return torch.cat([*parts, *([self._scan(state, row[:, 9:11])] if self.roughness > 0.0 else [])], -1)

    def reward(self, before: EnvironmentState, action: torch.Tensor, after: EnvironmentState) -> torch.Tensor:
        """Return how well the command is followed, minus what is unwanted."""
        command, row = after.memory["command"], self._base(after.q, after.v)
        linear = (row[:, :2] - command[:, :2]).square().sum(-1)
        angular = (row[:, 5] - command[:, 2]).square()
        effort = 2e-4 * after.v[:, 6:].square().sum(-1)
        jerk = 0.01 * (action - before.action).square().sum(-1)
        unwanted = 2.0 * row[:, 2].square() + 0.05 * row[:, 3:5].square().sum(-1) + effort + jerk
        tilt = 5.0 * row[:, 6:8].square().sum(-1)
        return self.control_dt * (1.5 * (-4.0 * linear).exp() + 0.75 * (-4.0 * angular).exp() - unwanted - tilt) + 0.01

    def terminated(self, state: EnvironmentState) -> torch.Tensor:
        """Return where the base lies on its side or on the ground."""
        gravity = self._base(state.q, state.v)[:, 6:9]
        low = state.q[:, 2] - self._ground(state, state.q[:, None, :2])[:, 0] < 0.15
        return (gravity[:, 2] > -0.5) | low

    def _terrain(self, random: Random, n: int) -> torch.Tensor:
        """Draw bumps, (n, rows, columns), level around the origin."""
        coarse = random.uniform(0.0, self.roughness, n, 1, self.nodes // 2, self.nodes // 2)
        heights = torch.nn.functional.interpolate(coarse, (self.nodes, self.nodes), mode="nearest")[:, 0]
        return heights + random.uniform(0.0, 0.3 * self.roughness, n, self.nodes, self.nodes)

    def _scan(self, state: EnvironmentState, heading: torch.Tensor) -> torch.Tensor:
        """Return the base's height above points of the ground around it, (n, points)."""
        heading = torch.nn.functional.normalize(heading, dim=-1)
        x, y = (constant(tuple(each), heading.dtype, heading.device) for each in zip(*SCAN, strict=True))
        place = torch.stack([heading[:, :1] * x - heading[:, 1:] * y, heading[:, 1:] * x + heading[:, :1] * y], -1)
        return state.q[:, 2:3] - self._ground(state, state.q[:, None, :2] + place)

    def _ground(self, state: EnvironmentState, place: torch.Tensor) -> torch.Tensor:
        """Return the height of the ground at points (n, points, 2), (n, points)."""
        if self.roughness == 0.0:
            return torch.zeros_like(place[..., 0])
        heights = state.params["terrain"]
        side = self.spacing * (self.nodes - 1)
        inside = (place / (0.5 * side)).clamp(-1.0, 1.0)
        sampled = torch.nn.functional.grid_sample(heights[:, None], inside[:, None], align_corners=True)
        return sampled[:, 0, 0]
