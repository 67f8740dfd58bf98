"""The physics of tasks with contact, in one place."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from adjoin.constraints.compliant import Compliant
from adjoin.constraints.newton import Newton
from adjoin.errors import InputError, unknown_name
from adjoin.model.model import Model
from adjoin.simulation.simulator import Simulator

SOFT_GROUND = Compliant(stiffness=500.0, depth=5e-3, transition=0.1)
"""Contact whose gradients show a learner farther than those of hard ground, with steps of about 2 ms."""


def contact_simulator(model: Model, dt: float, **options: Any) -> Simulator:
    """Return a simulator for a robot that touches the ground: MuJoCo's soft contact, whose gradients are smooth.

    Links of the robot do not touch each other, as in the tasks of DiffRL.
    """
    known = inspect.signature(Simulator).parameters
    for name in options:
        if name not in known:
            raise InputError(unknown_name("option", "options", name, known))
    chosen = {"contact": Newton(), "ground": True, "self_collision": False, **options}
    return Simulator(model, dt=dt, **chosen)


def rescaled(model: Model, density: float = 1.0, **numbers: float | Sequence[float]) -> Model:
    """Return the model with masses and inertias multiplied, and other parameters of its driven joints set.

    Args:
        model: The robot.
        density: What masses and inertias are multiplied by.
        numbers: Parameters by name: one number for all driven joints or actuators, or one each.
    """
    own = model.parameters(dtype=torch.float64)
    changes = {name: density * own[name] for name in ("mass", "inertia")}
    driven = [model.coordinates[model.joint_index(actuator.joint)].v for actuator in model.actuators]
    for name, value in numbers.items():
        values = own[name].clone()
        if name.startswith("actuator"):
            values[:] = torch.as_tensor(value, dtype=torch.float64)
        else:
            values[driven] = torch.as_tensor(value, dtype=torch.float64)
        changes[name] = values
    return model.with_parameters(changes)
