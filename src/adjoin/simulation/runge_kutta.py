"""MuJoCo's Runge-Kutta method: four evaluations of the dynamics, constraints included.

Linear velocities of all stages are in the axes of the beginning, and rotations are rotation vectors from there, whose
rates may be added (Munthe-Kaas, High order Runge-Kutta methods on manifolds, 1999).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from adjoin.constraints.blocks import Block
from adjoin.model.model import Model
from adjoin.simulation.activation import next_activations
from adjoin.simulation.euler import move, turned
from adjoin.simulation.integrators import SemiImplicit
from adjoin.simulation.step import StepResult
from adjoin.spatial.scalar import Scalar
from adjoin.trace import loop, select

if TYPE_CHECKING:
    from adjoin.simulation.world import Plant

EXPLICIT = SemiImplicit("none")


@dataclass(frozen=True)
class ConstrainedRK4:
    """The Runge-Kutta method of fourth order as MuJoCo has it, for systems with contacts, limits and friction too.

    Where nothing is constrained and no body turns freely it is `RK4`. Contacts are found four times a step; what a step
    reports of them is of its beginning. It starts each stage anew, without impulses of the step before.
    """

    def require(self, name: str, blocks: Sequence[Block]) -> None:
        """Accept any constraints."""

    def advance(
        self, plant: "Plant", q: Sequence[Scalar], v: Sequence[Scalar], start: Sequence[Scalar] | None = None
    ) -> StepResult:
        """Take one step; see `Integrator`."""
        model, dt = plant.model, plant.world.dt
        first = EXPLICIT.advance(plant, q, v, start)
        assert first.effort is not None
        activation = list(plant.activation)

        def stage(index: Any, carry: Any) -> Any:
            (rate, *changes), totals = carry
            far = select(index == 2, dt, 0.5 * dt)
            place, _ = move(model, q, rate, far)
            velocity, active = (added(x, change, far) for x, change in zip((v, activation), changes, strict=True))
            here = turned(model, q, place, velocity)
            step = EXPLICIT.advance(replace(plant, activation=active), place, here)
            assert step.effort is not None
            acceleration = turned(model, place, q, step.acceleration)
            rates = chart_rates(model, [far * x for x in rate], velocity), acceleration, step.effort.activation_rates
            weight = select(index == 2, 1.0, 2.0)
            return rates, tuple(added(total, x, weight) for total, x in zip(totals, rates, strict=True))

        begin = list(v), first.acceleration, first.effort.activation_rates
        _, totals = loop(3, stage, (begin, begin))
        rates, mean, activation_rates = ([x / 6.0 for x in total] for total in totals)
        place, _ = move(model, q, rates, dt)
        velocity = turned(model, q, place, added(v, mean, dt))
        state, _ = plant.at(q, v)
        following = next_activations(state, activation, activation_rates, dt)
        return first._replace(q=place, v=velocity, acceleration=mean, activation=following)


def added(x: Sequence[Scalar], more: Sequence[Scalar], weight: Scalar) -> list[Scalar]:
    """x + weight more."""
    return [a + weight * b for a, b in zip(x, more, strict=True)]


def chart_rates(model: Model, offset: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
    """How fast coordinates about the beginning change; see `JointType.chart_rate`."""
    joints = model.independent_joints
    return [x for joint, at in joints for x in joint.type.chart_rate(offset[at.v_slice], v[at.v_slice])]
