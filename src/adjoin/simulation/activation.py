"""Activations of actuators: inputs of theirs that follow the control and are carried from step to step."""

import math
from collections.abc import Sequence

from adjoin.dynamics.muscle import LEAST, activation_rate
from adjoin.dynamics.state import State
from adjoin.model.parts import Actuator
from adjoin.spatial.scalar import Scalar
from adjoin.trace import exp, maximum, minimum


def between(x: Scalar, bounds: tuple[float, float]) -> Scalar:
    """x, but not outside the bounds."""
    x = maximum(x, bounds[0]) if math.isfinite(bounds[0]) else x
    return minimum(x, bounds[1]) if math.isfinite(bounds[1]) else x


def activation_rates(state: State, control: Sequence[Scalar], activation: Sequence[Scalar]) -> list[Scalar]:
    """How fast activations change under a control.

    Args:
        state: the robot.
        control: nu scalars.
        activation: na scalars.
    """
    model = state.robot.model
    constants = state.robot.numbers("actuator_dynamics")
    rates: list[Scalar] = []
    for index, now in zip(model.stateful_actuators, activation, strict=True):
        actuator, numbers = model.actuators[index], constants[index]
        u = between(control[index], actuator.control_range)
        if actuator.dynamics == "integrator":
            rate = u
        elif actuator.dynamics == "muscle":
            rate = activation_rate(u, now, numbers)
        else:
            rate = (u - now) / maximum(numbers[0], LEAST)
        rates.append(rate if actuator.enabled else 0.0)
    return rates


def next_activations(state: State, activation: Sequence[Scalar], rates: Sequence[Scalar], dt: Scalar) -> list[Scalar]:
    """Activations after a step, from how fast they change."""
    model = state.robot.model
    constants = state.robot.numbers("actuator_dynamics")
    pairs = zip(model.stateful_actuators, activation, rates, strict=True)
    return [_next(model.actuators[index], constants[index], now, rate, dt) for index, now, rate in pairs]


def _next(actuator: Actuator, constants: Sequence[Scalar], now: Scalar, rate: Scalar, dt: Scalar) -> Scalar:
    step = dt
    if actuator.dynamics == "filterexact":
        constant = maximum(constants[0], LEAST)
        step = constant * (1.0 - exp(-dt / constant))
    return between(now + step * rate, actuator.activation_range)
