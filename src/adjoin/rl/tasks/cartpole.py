"""The swing-up of a cart-pole, with the rewards and figures of DiffRL."""

import math

import torch

from adjoin.model.joint import Joint
from adjoin.model.model import Model
from adjoin.model.parts import WORLD, Actuator, Body, Frame, Geometry
from adjoin.rl.environment import EnvironmentState
from adjoin.rl.random import Random
from adjoin.rl.task import Start, Task, register_task
from adjoin.simulation.simulator import Simulator

FORCE = 200.0  # N
CART, POLE, LENGTH = 12.0, 3.0, 1.0  # kg, kg, m


def cart_and_pole() -> Model:
    """Build a cart on a rail with a rod that stands up at q = 0."""
    across = POLE * LENGTH**2 / 12.0
    slide = Joint("slide", "prismatic", axis=(1.0, 0.0, 0.0))
    cart = Body("cart", WORLD, slide, mass=CART, inertia=(0.1, 0.0, 0.0, 0.1, 0.0, 0.1))
    pole = Body(
        "pole",
        0,
        Joint("hinge", "revolute", axis=(0.0, 1.0, 0.0)),
        mass=POLE,
        com=(0.0, 0.0, 0.5 * LENGTH),
        inertia=(across, 0.0, 0.0, across, 0.0, 0.01 * across),
    )
    shapes = (
        Geometry("cart", "box", 0, "cart", (0.2, 0.1, 0.05)),
        Geometry("pole", "capsule", 1, "pole", (0.03, 0.5 * LENGTH, 0.0), (0.0, 0.0, 0.5 * LENGTH)),
    )
    motor = Actuator("slide", "slide", gain=FORCE, control_range=(-1.0, 1.0))
    frames = (Frame("world", WORLD), Frame("cart", 0), Frame("pole", 1))
    return Model("cartpole", (cart, pole), frames, shapes, (motor,))


@register_task
class CartPole(Task):
    """A cart swings up a pole that hangs down, and balances it.

    The reward is -θ² - 0.1 θ̇² - 0.05 x² - 0.1 ẋ². The observation has x, ẋ, sin θ, cos θ and θ̇.
    """

    name = "cartpole"
    episode_steps = 240
    decimation = 4

    def __init__(self):
        self.simulator = Simulator(cart_and_pole(), dt=1.0 / 240.0, pairs=[], ground=False, limits=False)

    def start(self, n: int, random: Random) -> Start:
        """Begin with the pole hanging down, somewhat to either side."""
        q = random.uniform(-math.pi / 10.0, math.pi / 10.0, n, 2)
        down = torch.where(q[:, 1] > 0.0, q[:, 1] - math.pi, q[:, 1] + math.pi)
        return Start(torch.stack([q[:, 0], down], -1), random.uniform(-0.1, 0.1, n, 2))

    def observe(self, state: EnvironmentState) -> torch.Tensor:
        """Return x, its rate, sine and cosine of the angle, and its rate."""
        (x, angle), (speed, rate) = state.q.unbind(-1), state.v.unbind(-1)
        return torch.stack([x, speed, angle.sin(), angle.cos(), rate], -1)

    def reward(self, before: EnvironmentState, action: torch.Tensor, after: EnvironmentState) -> torch.Tensor:
        """Return the negative cost of the state that was reached."""
        (x, angle), (speed, rate) = after.q.unbind(-1), after.v.unbind(-1)
        angle = torch.atan2(angle.sin(), angle.cos())
        return -angle.square() - 0.1 * rate.square() - 0.05 * x.square() - 0.1 * speed.square()
