"""Problems whose optimum is known."""

import math
from dataclasses import replace

import torch

import adjoin
from adjoin.control.objective import Objective
from adjoin.control.variables import Controls
from adjoin.model.joint import Joint
from adjoin.model.parts import WORLD, Actuator, Body, Frame

STEPS, DT, EFFORT = 20, 0.1, 1.0
LIMIT = 0.4


def cart_model(limit: float = math.inf) -> adjoin.Model:
    body = Body("cart", WORLD, Joint("slide", "prismatic", (1.0, 0.0, 0.0)), mass=1.0, inertia=(1, 0, 0, 1, 0, 1))
    motor = Actuator("motor", "slide", control_range=(-limit, limit))
    return adjoin.Model("cart", (body,), (Frame("world", WORLD), Frame("cart", 0)), actuators=(motor,))


SIM = adjoin.Simulator(cart_model(), dt=DT)
TIGHT = adjoin.Simulator(cart_model(LIMIT), dt=DT)


def start(sim: adjoin.Simulator, dtype: torch.dtype = torch.float64):
    return sim.state(torch.zeros(sim.model.nq, dtype=dtype))


def effort(control):
    return EFFORT * (control @ control)


def arrive(q, v):
    return 100.0 * ((q[0] - 1.0) ** 2 + v[0] ** 2)


def rests(path, inputs):
    return torch.cat([10.0 * (path.q[-1] - 1.0), 10.0 * path.v[-1], EFFORT**0.5 * inputs.controls[..., 0].mT], -1)


def cart(sim: adjoin.Simulator = SIM, variables=None, dtype: torch.dtype = torch.float64) -> Objective:
    return Objective(sim, start(sim, dtype), STEPS, cost=effort, terminal=arrive, variables=variables or Controls())


def cart_squares(sim: adjoin.Simulator = SIM) -> Objective:
    return Objective(sim, start(sim), STEPS, residuals=rests)


def system() -> tuple[torch.Tensor, torch.Tensor]:
    """The rows and the right side of the same problem as least squares in the controls."""
    later = torch.arange(STEPS, 0, -1).double()
    reach = torch.stack([10.0 * DT * DT * later, 10.0 * DT * torch.ones(STEPS).double()])
    return torch.cat([reach, EFFORT**0.5 * torch.eye(STEPS).double()]), torch.tensor(
        [10.0] + [0.0] * (STEPS + 1)
    ).double()


def optimum() -> tuple[torch.Tensor, float]:
    rows, right = system()
    found = torch.linalg.lstsq(rows, right[:, None]).solution[:, 0]
    return found, float((rows @ found - right).square().sum())


def bounded_optimum(limit: float) -> tuple[torch.Tensor, float]:
    rows, right = system()
    rate = 1.0 / float(torch.linalg.matrix_norm(rows, 2) ** 2)
    found = torch.zeros(STEPS).double()
    ahead, weight = found, 1.0
    for _ in range(5000):
        moved = (ahead - rate * rows.mT @ (rows @ ahead - right)).clamp(-limit, limit)
        grown = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * weight * weight))
        ahead, found, weight = moved + (weight - 1.0) / grown * (moved - found), moved, grown
    return found, float((rows @ found - right).square().sum())


def two_links() -> adjoin.Simulator:
    model = adjoin.robots.load("pendulum", links=2).with_motors()
    return adjoin.Simulator(replace(model, name="two_links"), dt=0.02, pairs=[], limits=False)
