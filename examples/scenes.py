"""Objectives of Qiao et al., Efficient Differentiable Simulation of Articulated Bodies (ICML 2021), section 6.3.

Steps, sizes, masses, friction, restitution and the golf's target are those of the paper and of the code that was
published with it. What they leave open, or what is changed, is said at each function.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from adjoin import robots
from adjoin.constraints.adjoints import ImplicitAdjoint
from adjoin.constraints.pgs import PGS
from adjoin.constraints.solver import Solver
from adjoin.control.objective import Inputs, Objective
from adjoin.control.variables import Controls, DecisionVariables, Variables
from adjoin.dynamics.kinematics import forward_kinematics
from adjoin.dynamics.rnea import gravity_forces
from adjoin.model.compose import forest
from adjoin.model.joint import Joint
from adjoin.model.model import Model
from adjoin.model.parts import WORLD, Actuator, Body, Fixture, Frame, Geometry
from adjoin.simulation.simulator import Simulator
from adjoin.simulation.state import Trajectory

STEPS = 1000

THROW_TARGET = (0.9, 0.4, 0.01)
RELEASE = 100  # the step at which the fingers open
HELD, OPEN = 0.015, 0.04  # m, where the fingers' servos pull: 5 mm into the ball, and apart

GOLF_TARGET = (0.0, -3.0, -1.0)

CAR_TARGET = 0.8
CAR_START = 0.002

_SLIDING = (2.0, 0.0, 0.0)


def throw(
    contact: Solver | None = None, *, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
) -> Objective:
    """A Panda with nine degrees of freedom throws a ball to a place on the floor, where it comes to rest.

    Decided are the torques of the seven joints of the arm in 1,000 steps of 0.01 s; random starts are as strong as the
    published ones. The residuals are the way from the target to the ball at the end, m.

    Ours: there is gravity (the published code has 0.001 m/s²) and a floor, with a rolling friction of 3 mm. As in a
    real Panda, the torques come on top of what carries the arm and its load. It starts in its home position, since the
    joint limits exclude zero, its joints are damped by 1 N m s/rad, and the fingers have servos, which let the ball go
    after 1 s; torques after that do nothing to it. The target is out of the arm's reach.

    Args:
        contact: by default `PGS(adjoint=ImplicitAdjoint())`: its gradient differs from that of `PGS()` by 1 %, as
            20 sweeps have not converged on the grip, and takes a fifth of the time.
        dtype: of the start and of all that follows from it.
        device: the same.
    """
    panda = robots.load("panda")
    turning = [joint.name for joint in panda.joints if joint.kind == "revolute"]
    sliding = [joint.name for joint in panda.joints if joint.kind == "prismatic"]

    def freed(body: Body) -> Body:
        joint = replace(body.joint, mimic=None)
        return replace(body, joint=replace(joint, damping=(1.0,)) if joint.name in turning else joint)

    pads = [
        Geometry(f"pad{k}", "box", panda.body_index(name), name, (0.01, 0.01, 0.05), friction=_SLIDING)
        for k, name in enumerate(("panda_leftfinger", "panda_rightfinger"))
    ]
    arm = replace(panda, bodies=tuple(map(freed, panda.bodies)), geometries=tuple(pads), keyframes=())
    drives = arm.with_motors(turning).actuators + arm.with_servos(1000.0, 20.0, sliding).actuators
    arm = replace(arm, actuators=drives)
    load = Model("load", (), fixture=Fixture(mass=0.05, inertia=_solid(0.05, 0.01)))
    loaded = arm.attach(load, "panda_hand_tcp")
    world = forest({"arm": arm, "ball": _ball(0.01, 0.05, rolling=0.003)}, name="throw")

    def carried(q: Any, v: Any, control: Any) -> dict[str, Any]:
        """What holds the arm and its load."""
        return {"force": [*gravity_forces(loaded, q[:9]), *[0.0] * 6]}

    pairs = [("arm/pad0", "ball/ball"), ("arm/pad1", "ball/ball"), ("ball/ball", "ground")]
    sim = Simulator(world, 0.01, contact or PGS(adjoint=ImplicitAdjoint()), pairs=pairs, ground=True, residual=carried)
    home = torch.tensor([*panda.keyframe("home").q[:7], 0.02, 0.02], dtype=torch.float64)
    hand = forward_kinematics(arm, home, "panda_hand_tcp")[:3, 3]
    q = torch.cat([home, hand, torch.tensor([1.0, 0.0, 0.0, 0.0])]).to(device, dtype)
    fingers = torch.full((STEPS, 1, 2), HELD, dtype=dtype, device=device)
    fingers[RELEASE:] = OPEN

    def controls(values: torch.Tensor) -> dict[str, Any]:
        torques = values.unflatten(-1, (STEPS, len(turning))).transpose(0, 1)
        return {"controls": torch.cat([torques, fingers.expand(-1, len(values), -1)], -1)}

    strongest = torch.tensor([limit for _, limit in (drive.control_range for drive in drives[:7])]).repeat(STEPS)
    torques = Variables(torch.zeros(len(strongest)), controls, (-strongest, strongest), _uniform(0.03))
    return Objective(sim, sim.state(q), STEPS, residuals=_away(THROW_TARGET, 9), variables=torques)


def golf(
    torques: DecisionVariables | None = None,
    contact: Solver | None = None,
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> Objective:
    """An arm of two links of 0.5 m hits a ball from a tee, which is to be at the target at the end.

    Decided are the two torques in 1,000 steps of 0.001 s; random starts are as strong as the published ones. The arm
    starts level and falls. The residuals are the way from the target to the ball at the end, m. As published, nothing
    is there to settle on: the ball passes the target in flight.

    The impact happens within a step, so the loss jumps where it moves to another one, and no derivative tells. What
    differences between steps tell does: `GaussNewton(damping=10.0)` gets there, gradient descent often does not.

    Ours: the ball is solid (published: 1 kg m²).

    Args:
        torques: what is decided, if not every torque of every step.
        contact: by default `PGS(restitution=0.5)`.
        dtype: of the start and of all that follows from it.
        device: the same.
    """

    def link(name: str, parent: int, at: float, mass: float, inertia: tuple[float, ...]) -> Body:
        xx, yy, zz = inertia
        joint = Joint(name, "continuous", (1.0, 0.0, 0.0), damping=(1.0,))
        moments = (xx, 0.0, 0.0, yy, 0.0, zz)
        return Body(name, parent, joint, (0.0, at, 0.0), mass=mass, com=(0.0, 0.5, 0.0), inertia=moments)

    bodies = (
        link("upper", WORLD, 0.0, 1.0, (0.00494875, 0.00494174, 0.002219)),
        link("club", 0, 0.5, 2.16, (0.00539427, 0.0048979, 0.00311573)),
    )
    tee = (0.0, -0.1, -0.925)
    shapes = (
        Geometry("club", "box", 1, "club", (0.025, 0.25, 0.025), (0.0, 0.25, 0.0), friction=_SLIDING),
        Geometry("tee", "box", WORLD, "tee", (0.025, 0.025, 0.025), tee, friction=_SLIDING),
    )
    frames = (Frame("upper", 0), Frame("club", 1), Frame("tee", WORLD))
    arm = Model("arm", bodies, frames, shapes, tuple(Actuator(body.name, body.name) for body in bodies))
    world = forest({"arm": arm, "ball": _ball(0.025, 0.5)}, name="golf")
    pairs = [("arm/club", "ball/ball"), ("arm/tee", "ball/ball")]
    sim = Simulator(world, 0.001, contact or PGS(restitution=0.5), pairs=pairs)
    q = torch.tensor([0.0, 0.0, 0.0, -0.1, -0.85, 1.0, 0.0, 0.0, 0.0], dtype=dtype, device=device)
    variables = Controls(spread=_uniform(1.0)) if torques is None else torques
    return Objective(sim, sim.state(q), STEPS, residuals=_away(GOLF_TARGET, 2), variables=variables)


def racecar(seed: int = 0, *, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu") -> Objective:
    """A car that slides at 1 m/s, its wheels at rest, is to be at x = 0.8 m after 1,000 steps of 0.001 s.

    Decided is the sliding friction between wheels and ground; it starts at 0.002. Wheels and steering turn freely, and
    wheels touch the ground as spheres, as published. The residual is the way from the target, m.

    Ours: the car starts on the ground, not above it, and its front wheels are turned by an angle that depends on the
    seed, up to 0.1 rad to either side.

    Args:
        seed: of that angle.
        dtype: of the start and of all that follows from it.
        device: the same.
    """
    sim = _car()
    car = sim.model
    angle = 0.1 * (2.0 * float(torch.rand((), generator=torch.Generator().manual_seed(seed), device="cpu")) - 1.0)
    q, v = sim.model.neutral(dtype=dtype, device=device), torch.zeros(car.nv, dtype=dtype, device=device)
    for body, at in zip(car.bodies, car.coordinates, strict=True):
        if body.joint.name.endswith("steering_hinge_joint"):
            q[at.q] = angle
    v[0] = 1.0

    def friction(numbers: torch.Tensor) -> dict[str, Any]:
        others = numbers.new_zeros(len(numbers), 2)
        of_each = torch.cat([numbers, others], 1)[:, None].expand(-1, len(sim.model.geometries), -1)
        return {"params": {"geometry_friction": of_each}}

    def away(path: Trajectory, inputs: Inputs) -> torch.Tensor:
        return path.last.q[:, :1] - CAR_TARGET

    sliding = Variables([CAR_START], friction, (0.0, 1.0), 0.1)
    return Objective(sim, sim.state(q, v), STEPS, residuals=away, variables=sliding)


@cache
def _car() -> Simulator:
    car = robots.load("racecar")
    wheels = [replace(shape, kind="sphere", size=(0.05, 0.0, 0.0)) for shape in car.geometries]
    return Simulator(replace(car, geometries=tuple(wheels)), 0.001)


def _ball(radius: float, mass: float, rolling: float = 0.0) -> Model:
    body = Body("ball", WORLD, Joint("ball", "free"), mass=mass, inertia=_solid(mass, radius))
    condim = 6 if rolling else 3
    shape = Geometry("ball", "sphere", 0, "ball", (radius, 0.0, 0.0), friction=(2.0, 0.0, rolling), condim=condim)
    return Model("ball", (body,), (Frame("ball", 0),), (shape,))


def _solid(mass: float, radius: float) -> tuple[float, float, float, float, float, float]:
    moment = 0.4 * mass * radius**2
    return moment, 0.0, 0.0, moment, 0.0, moment


def _away(target: Sequence[float], place: int) -> Any:
    """Residuals: from the target to the ball at the end, whose position begins at this place of q."""

    def residuals(path: Trajectory, inputs: Inputs) -> torch.Tensor:
        last = path.last.q
        return last[:, place : place + 3] - torch.tensor(target, dtype=last.dtype, device=last.device)

    return residuals


def _uniform(deviation: float) -> float:
    """Half of the width of a uniform distribution with this standard deviation."""
    return math.sqrt(3.0) * deviation
