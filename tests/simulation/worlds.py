"""Small worlds for tests of the simulator, and what they share."""

import functools
from dataclasses import replace

import torch

import adjoin
from adjoin.constraints.pgs import PGS
from adjoin.model.joint import Joint
from adjoin.model.parts import WORLD, Actuator, Body, Frame, Geometry
from adjoin.simulation.simulator import Simulator

G = 9.81
UPRIGHT = (1.0, 0.0, 0.0, 0.0)
QUADRUPEDS = ("go2", "laikago")
FEET = {
    name: tuple((f"{foot}_foot", "ground") for foot in ("FL", "FR", "RL", "RR")) for name in ("go2", "laikago", "a1")
}


def tensor(*values):
    """Of float64 numbers."""
    return torch.tensor(values, dtype=torch.float64)


def nothing(steps):
    """The controls of a model without actuators."""
    return torch.zeros(steps, 0, dtype=torch.float64)


def servos(model, kp, kd):
    """The model with a position servo on each of its motors."""
    drives = [replace(drive, gain=kp, bias=(0.0, -kp, -kd)) for drive in model.actuators]
    return replace(model, actuators=tuple(drives))


def simulator(model, dt, pairs=None, ground=None, constraints=(), **contact):
    """With projected Gauss-Seidel of these constants; links of one robot do not touch."""
    solver = PGS(**contact)
    return Simulator(model, dt, solver, pairs=pairs, self_collision=False, ground=ground, constraints=constraints)


def traced_step(sim):
    """A step of the simulator without controls, as a traced function of q and v."""
    return lambda q, v: sim.world.step(sim.world.plant(), {"q": q, "v": v, "status": 0.0})[0]


def frictions(sim, *coefficients):
    """The parameters with which every shape has the same sliding friction: one entry of the batch per coefficient."""
    values = sim.model.parameters(dtype=torch.float64)["geometry_friction"].expand(len(coefficients), -1, -1).clone()
    values[..., 0] = tensor(*coefficients)[:, None]
    return {"geometry_friction": values}


def weight(model):
    """N."""
    return model.mass * G


@functools.cache
def servant(name, kp, kd):
    """A robot that ships, with servos."""
    return servos(adjoin.robots.load(name), kp, kd)


def slider(name, parent=WORLD, mass=1.0, radius=0.05, **joint):
    """A ball that slides along x, and its shape."""
    moment = 0.4 * mass * radius**2
    body = Body(name, parent, Joint(name, "prismatic", (1.0, 0.0, 0.0), **joint), mass=mass)
    return replace(body, inertia=(moment, 0.0, 0.0, moment, 0.0, moment))


def row_of_balls(count, gap, radius=0.05):
    """Balls on one rail, a gap between each and the next."""
    names = [f"ball{i}" for i in range(count)]
    bodies = [
        replace(slider(name, radius=radius), position=((2.0 * radius + gap) * i, 0.0, 0.0))
        for i, name in enumerate(names)
    ]
    shapes = [Geometry(name, "sphere", i, name, (radius, 0.0, 0.0)) for i, name in enumerate(names)]
    return adjoin.Model("row", tuple(bodies), tuple(Frame(n, i) for i, n in enumerate(names)), tuple(shapes))


def hinge(moment=0.5, force_range=None, **joint):
    """A wheel on a vertical axle with a motor."""
    body = Body("wheel", WORLD, Joint("axle", "revolute", **joint), mass=1.0, inertia=(moment, 0, 0, moment, 0, moment))
    motor = Actuator("motor", "axle", **({} if force_range is None else {"force_range": force_range}))
    return adjoin.Model("wheel", (body,), (Frame("wheel", 0),), (), (motor,))


def brick(inertia=(0.02, 0.0, 0.0, 0.05, 0.0, 0.06)):
    """A free body of three different moments of inertia, without a shape."""
    return adjoin.Model("brick", (Body("brick", WORLD, Joint("root", "free"), mass=1.0, inertia=inertia),))


def four_bar():
    """Two links from the ground and one across, 0.5, 1.0 and 0.5 long, whose end belongs 1 m beside the first."""

    def rod(name, parent, length, at):
        moment = length**2 / 12.0
        joint = Joint(name, "revolute", (0.0, 1.0, 0.0))
        return Body(name, parent, joint, at, mass=1.0, com=(0, 0, length / 2), inertia=(moment, 0, 0, moment, 0, 1e-4))

    bodies = (
        rod("crank", WORLD, 0.5, (0.0, 0.0, 0.0)),
        rod("coupler", 0, 1.0, (0.0, 0.0, 0.5)),
        rod("rocker", WORLD, 0.6, (1.0, 0.0, 0.0)),
    )
    frames = (Frame("end", 1, (0.0, 0.0, 1.0)), Frame("pin", 2, (0.0, 0.0, 0.6)))
    return adjoin.Model("four_bar", bodies, frames)


def hopper():
    """A free trunk with a leg that turns and a foot that slides in it, driven, sprung, damped, rubbing and limited."""
    moment = (0.01, 0.0, 0.0, 0.012, 0.0, 0.015)
    rubbing = {"damping": (0.1,), "friction": (0.05,), "armature": (0.01,), "stiffness": (2.0,)}
    bodies = (
        Body("trunk", WORLD, Joint("trunk", "free"), mass=1.0, inertia=moment),
        Body("leg", 0, Joint("hip", "revolute", (0.0, 1.0, 0.0), -1.0, 1.0, **rubbing), mass=0.3, inertia=moment),
        Body("foot", 1, Joint("shank", "prismatic", lower=-0.1, **rubbing), (0, 0, -0.2), mass=0.2, inertia=moment),
    )
    shapes = (
        Geometry("foot", "sphere", 2, "foot", (0.05, 0.0, 0.0), friction=(0.7, 0.01, 0.001)),
        Geometry("trunk", "box", 0, "trunk", (0.1, 0.05, 0.05)),
    )
    drives = (
        Actuator("hip", "hip", gain=5.0, bias=(0.1, -5.0, -0.2), control_range=(-2.0, 2.0), force_range=(-9.0, 9.0)),
        Actuator("shank", "shank", gear=(2.0,)),
    )
    frames = tuple(Frame(body.name, i) for i, body in enumerate(bodies))
    return adjoin.Model("hopper", bodies, frames, shapes, drives)
