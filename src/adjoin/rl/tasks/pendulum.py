"""The n-link pendulum of Qiao et al., Efficient differentiable simulation of articulated bodies, ICML 2021."""

import math

import torch

from adjoin.dynamics.kinematics import forward_kinematics
from adjoin.errors import InputError
from adjoin.model.joint import Joint
from adjoin.model.model import Model
from adjoin.model.parts import WORLD, Actuator, Body, Frame, Geometry
from adjoin.rl.environment import EnvironmentState
from adjoin.rl.random import Random, constant
from adjoin.rl.task import Start, Task, register_task
from adjoin.simulation.simulator import Simulator
from adjoin.simulation.step import Integrator

LENGTH, TORQUE = 0.5, 10.0  # m, N m
FIRST, OTHER = (1.0, 0.0049), (2.16, 0.0049)  # mass and moment of inertia of the bobs, kg and kg m^2


def chain(links: int) -> Model:
    """Build massless rods with a bob at the end of each, driven at every joint; they hang down at q = 0."""
    if not isinstance(links, int) or links < 1:
        raise InputError(f"pendulum: links must be a whole number of at least 1, got {links!r}")
    end = (0.0, 0.0, -LENGTH)
    bodies, frames, shapes, motors = [], [Frame("world", WORLD)], [], []
    for k in range(links):
        mass, moment = OTHER if k else FIRST
        joint = Joint(f"joint{k + 1}", "revolute", axis=(0.0, 1.0, 0.0))
        inertia = (moment, 0.0, 0.0, moment, 0.0, moment)
        place = end if k else (0.0, 0.0, 0.0)
        bodies.append(Body(f"link{k + 1}", k - 1 if k else WORLD, joint, place, mass=mass, com=end, inertia=inertia))
        frames += [Frame(f"link{k + 1}", k), Frame(f"bob{k + 1}", k, end)]
        shapes.append(Geometry(f"bob{k + 1}", "sphere", k, f"link{k + 1}", (0.05, 0.0, 0.0), end))
        motors.append(Actuator(f"joint{k + 1}", f"joint{k + 1}", gain=TORQUE, control_range=(-1.0, 1.0)))
    return Model(f"pendulum{links}", tuple(bodies), tuple(frames), tuple(shapes), tuple(motors))


@register_task
class Pendulum(Task):
    """A chain of links is to bring its tip from the side to the highest point that it can reach.

    The reward is how much closer the tip came, by squared distance, so that a return is at most 0.5 links². The
    observation has the joint velocities, the places of the bobs and the time.

    Args:
        links: How many.
        integrator: How steps are taken; the paper's `SemiImplicit()` by default, which gains energy in long chains.
        substeps: How many steps of the simulator an action lasts; 1 in the paper.
    """

    name = "pendulum"
    episode_steps = 100

    def __init__(self, links: int = 1, integrator: Integrator | None = None, substeps: int = 1):
        if not isinstance(substeps, int) or substeps < 1:
            raise InputError(f"pendulum: substeps must be a whole number of at least 1, got {substeps!r}")
        self.links, self.decimation = links, substeps
        self.simulator = Simulator(
            chain(links), dt=1.0 / 60.0 / substeps, pairs=[], ground=False, limits=False, integrator=integrator
        )
        self._bobs = [f"bob{k + 1}" for k in range(links)]

    def start(self, n: int, random: Random) -> Start:
        """Hold the chain out to the side, at rest."""
        q = torch.zeros(n, self.links, dtype=random.dtype, device=random.device)
        q[:, 0] = -0.5 * math.pi
        return Start(q, torch.zeros_like(q))

    def observe(self, state: EnvironmentState) -> torch.Tensor:
        """Return the joint velocities, x and z of the bobs, and the share of the episode that is over."""
        places = forward_kinematics(self.simulator.model, state.q, self._bobs)[..., :3, 3]
        time = (state.steps / self.episode_steps).to(state.q)[:, None]
        return torch.cat([state.v, places[..., 0], places[..., 2], time], -1)

    def reward(self, before: EnvironmentState, action: torch.Tensor, after: EnvironmentState) -> torch.Tensor:
        """Return how much the squared distance to the target fell."""
        return self._distance(before) - self._distance(after)

    def _distance(self, state: EnvironmentState) -> torch.Tensor:
        tip = forward_kinematics(self.simulator.model, state.q, self._bobs[-1])[..., :3, 3]
        target = constant((0.0, 0.0, LENGTH * self.links), tip.dtype, tip.device)
        return (tip - target).square().sum(-1)
