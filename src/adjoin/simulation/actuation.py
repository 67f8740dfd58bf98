"""What actuators, springs and damping do, and how it changes with velocity, so that stiff gains can be implicit."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from adjoin.dynamics.passive import spring_forces
from adjoin.dynamics.state import State
from adjoin.spatial.scalar import Scalar
from adjoin.trace import maximum, minimum, select


class Effort(NamedTuple):
    """Generalized forces.

    Attributes:
        force: nv scalars.
        damping: by how much each falls when its own velocity rises by 1.
    """

    force: list[Scalar]
    damping: list[Scalar]


def effort_of(state: State, control: Sequence[Scalar]) -> Effort:
    """Of the actuators under a control, of springs and damping, and those of the state; not of dry friction."""
    robot, model = state.robot, state.robot.model
    damping = list(robot.numbers("damping"))
    force = [s - d * v for s, d, v in zip(spring_forces(state), damping, state.v, strict=True)]
    gains, biases, gears = (robot.numbers(f"actuator_{name}") for name in ("gain", "bias", "gear"))
    gears = iter(gears)
    for actuator, u, gain, bias in zip(model.actuators, control, gains, biases, strict=True):
        body = model.joint_index(actuator.joint)
        gear = [next(gears) * model.coordinates[body].multiplier for _ in actuator.gear]
        first = model.coordinates[body].v
        rate = sum((g * state.v[first + k] for k, g in enumerate(gear)), 0.0)
        length = 0.0
        if len(gear) == 1:
            length = gear[0] / model.coordinates[body].multiplier * state.coordinates(body)[0]
        raw = gain * between(u, actuator.control_range) + bias[0] + bias[1] * length + bias[2] * rate
        pull = between(raw, actuator.force_range)
        slope = -bias[2]
        if any(map(math.isfinite, actuator.force_range)):
            least, greatest = actuator.force_range
            slope = select((raw > least) & (raw < greatest), slope, 0.0)
        for k, g in enumerate(gear):
            force[first + k] = force[first + k] + g * pull
            damping[first + k] = damping[first + k] + g * g * slope
    return Effort([f + more for f, more in zip(force, state.tau, strict=True)], damping)


def between(x: Scalar, bounds: tuple[float, float]) -> Scalar:
    """x, but not outside the bounds."""
    x = maximum(x, bounds[0]) if math.isfinite(bounds[0]) else x
    return minimum(x, bounds[1]) if math.isfinite(bounds[1]) else x
