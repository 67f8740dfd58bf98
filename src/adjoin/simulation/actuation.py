"""What actuators, springs and damping do, and how it changes with velocity, so that stiff gains can be implicit."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from adjoin.dynamics.fluid import fluid_forces
from adjoin.dynamics.linear import Rows, is_zero
from adjoin.dynamics.muscle import muscle_bias, muscle_gain
from adjoin.dynamics.passive import compensation_forces, spring_forces, tendon_forces
from adjoin.dynamics.point_motion import Arms, rate_of
from adjoin.dynamics.state import State
from adjoin.dynamics.tendon import tendons_of
from adjoin.dynamics.transmission import transmissions_of
from adjoin.model.joint import Joint
from adjoin.model.model import Model
from adjoin.model.parts import Actuator
from adjoin.simulation.activation import activation_rates, between, next_activations
from adjoin.spatial.scalar import Scalar
from adjoin.trace import maximum, minimum, select


class Effort(NamedTuple):
    """Generalized forces.

    Attributes:
        force: all of them, nv scalars.
        actuator_forces: of each actuator, before its gear.
        actuated: nv scalars: of all actuators together.
        joint_damping: by how much each of `force` falls, by the damping of its joint, when its own velocity rises by 1.
        coupled_damping: nv rows: by how much each falls, by actuators and tendons, when any velocity rises by 1.
        activation_rates: how fast activations change, na scalars.
    """

    force: list[Scalar]
    actuator_forces: list[Scalar]
    actuated: list[Scalar]
    joint_damping: list[Scalar]
    coupled_damping: Rows
    activation_rates: list[Scalar]


def effort_of(state: State, control: Sequence[Scalar], activation: Sequence[Scalar] = (), dt: float = 0.0) -> Effort:
    """Of the actuators under a control, of springs and damping, and those of the state; not of dry friction."""
    robot, model = state.robot, state.robot.model
    damping = list(robot.numbers("damping"))
    force = [s - d * v for s, d, v in zip(spring_forces(state), damping, state.v, strict=True)]
    slopes: Rows = [[0.0] * robot.nv for _ in range(robot.nv)]
    for (_, arms), pull, slope in zip(
        tendons_of(state), tendon_forces(state), robot.numbers("tendon_damping"), strict=True
    ):
        for dof, arm in arms.items():
            force[dof] = force[dof] + arm * pull
        _add_slopes(slopes, arms, slope)
    force = [f + more for f, more in zip(force, fluid_forces(state), strict=True)]
    rates = activation_rates(state, control, activation)
    forces, drags = actuator_forces(state, control, activation, rates, dt)
    actuated: list[Scalar] = [0.0] * robot.nv
    reaches = transmissions_of(state)
    for (_, arms), pull in zip(reaches, forces, strict=True):
        for dof, arm in arms.items():
            actuated[dof] = actuated[dof] + arm * pull
    carried = compensation_forces(state)
    for joint, at in model.independent_joints:
        for dof in range(at.v, at.v + joint.nv):
            total = actuated if joint.motor_carries_weight else force
            if model.actuators or not joint.motor_carries_weight:  # without actuators none of them carries weight
                total[dof] = total[dof] + carried[dof]
        given = "actuator_gain" in robot.params or "actuator_gear" in robot.params
        if joint.nv == 1 and may_exceed(model, joint, given):
            least, greatest = joint.effort_range
            inside = (actuated[at.v] > least) & (actuated[at.v] < greatest)
            actuated[at.v] = between(actuated[at.v], joint.effort_range)
            for k, actuator in enumerate(model.actuators):
                # A saturated actuator does not get weaker with speed.
                if actuator.joint == joint.name and not is_zero(drags[k]):
                    drags[k] = select(inside, drags[k], 0.0)
    for (_, arms), slope in zip(reaches, drags, strict=True):
        _add_slopes(slopes, arms, slope)
    force = [f + p + more for f, p, more in zip(force, actuated, state.tau, strict=True)]
    return Effort(force, forces, actuated, damping, slopes, rates)


def actuator_forces(
    state: State, control: Sequence[Scalar], activation: Sequence[Scalar], rates: Sequence[Scalar], dt: float
) -> tuple[list[Scalar], list[Scalar]]:
    """The force of each actuator, and by how much it falls when its own rate rises by 1.

    Args:
        state: the robot.
        control: nu scalars.
        activation: na scalars.
        rates: how fast activations change.
        dt: s, for actuators that take the activation of the step's end.
    """
    robot, model = state.robot, state.robot.model
    inputs = [between(u, a.control_range) for u, a in zip(control, model.actuators, strict=True)]
    late = next_activations(state, activation, rates, dt) if activation else []
    for k, index in enumerate(model.stateful_actuators):
        inputs[index] = late[k] if model.actuators[index].early else activation[k]
    numbers = [robot.numbers(f"actuator_{name}") for name in ("gain", "gain_slope", "bias")]
    forces, slopes = [], []
    for actuator, (length, arms), u, gain, more, bias in zip(
        model.actuators, transmissions_of(state), inputs, *numbers, strict=True
    ):
        rate = rate_of(arms, state.v)
        slope = -bias[2]
        if actuator.muscle_gain:
            gain, by_rate = muscle_gain(length, rate, actuator.muscle_gain)
            slope = slope - by_rate * u
        elif not all(map(is_zero, more)):
            gain = gain + more[0] * length + more[1] * rate
            slope = slope - more[1] * u
        force = gain * u + bias[0] + bias[1] * length + bias[2] * rate
        if actuator.muscle_bias:
            force = force + muscle_bias(length, actuator.muscle_bias)
        forces.append(force if actuator.enabled else 0.0)
        slopes.append(slope if actuator.enabled else 0.0)
    _bound_tendons(model, forces, slopes)
    for k, actuator in enumerate(model.actuators):
        if any(map(math.isfinite, actuator.force_range)):
            least, greatest = actuator.force_range
            slopes[k] = select((forces[k] > least) & (forces[k] < greatest), slopes[k], 0.0)
            forces[k] = between(forces[k], actuator.force_range)
    return forces, slopes


def _bound_tendons(model: Model, forces: list[Scalar], slopes: list[Scalar]) -> None:
    """Scale the forces on a tendon whose sum is out of its bounds."""
    for tendon in model.tendons:
        pulling = [k for k, actuator in enumerate(model.actuators) if actuator.tendon == tendon.name]
        least, greatest = tendon.effort_range
        if pulling and any(map(math.isfinite, tendon.effort_range)):
            total = sum((forces[k] for k in pulling), 0.0)
            inside = (total >= least) & (total <= greatest)
            share = select(inside, 1.0, maximum(minimum(total, greatest), least) / select(inside, 1.0, total))
            for k in pulling:
                forces[k] = forces[k] * share
                slopes[k] = select(inside, slopes[k], 0.0)


def _add_slopes(slopes: Rows, arms: Arms, slope: Scalar) -> None:
    """Add how a force along arms falls with the rate along them."""
    if is_zero(slope):
        return
    for dof, arm in arms.items():
        for other, other_arm in arms.items():
            slopes[dof][other] = slopes[dof][other] + arm * other_arm * slope


def may_exceed(model: Model, joint: Joint, given: bool) -> bool:
    """Whether actuators can do more on a joint than it takes; where they cannot, it needs no bound.

    Args:
        model: the robot.
        joint: one of its joints.
        given: whether gains or gears are given by a call.
    """
    bound = min(map(abs, joint.effort_range))
    if math.isinf(bound):
        return False
    indirect = any(not actuator.joint for actuator in model.actuators)
    total = math.fsum(_greatest(actuator) for actuator in model.actuators if actuator.joint == joint.name)
    return indirect or bool(joint.motor_carries_weight) or (total > 0.0 and (given or total > bound))


def _greatest(actuator: Actuator) -> float:
    """The greatest force that an actuator can have on its joint."""
    force = max(map(abs, actuator.force_range))
    if not any((*actuator.bias, *actuator.gain_slope, *actuator.muscle_gain)) and actuator.dynamics == "none":
        force = min(force, abs(actuator.gain) * max(map(abs, actuator.control_range)))
    return abs(actuator.gear[0]) * force
