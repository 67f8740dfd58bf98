"""Forces of the joints themselves: springs, damping and dry friction."""

from collections.abc import Mapping
from typing import Any

from adjoin.dynamics.call import call, quantity
from adjoin.dynamics.state import State
from adjoin.model.manifold import difference
from adjoin.model.model import Model
from adjoin.spatial.scalar import Scalar, is_number
from adjoin.trace import sign


@quantity("passive_forces", "q", "v")
def passive_forces_of(state: State) -> list[Scalar]:
    """`passive_forces` over scalars."""
    robot = state.robot
    numbers = zip(spring_forces(state), robot.numbers("damping"), robot.numbers("friction"), state.v, strict=True)
    return [spring - d * v - f * sign(v) for spring, d, f, v in numbers]


def spring_forces(state: State) -> list[Scalar]:
    """Of the springs alone."""
    robot = state.robot
    stiffness = robot.numbers("stiffness")
    if all(is_number(k) and k == 0.0 for k in stiffness):
        return [0.0] * robot.nv
    stretch = difference(robot.model, robot.numbers("spring_reference"), state.q)
    return [-(k * x) for k, x in zip(stiffness, stretch, strict=True)]


def passive_forces(model: Model, q: Any, v: Any, params: Mapping[str, Any] | None = None) -> Any:
    """What the joints' springs, damping and dry friction do: -k (q - q0) - d v - f sign(v).

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        params: parameters to take the place of the model's.

    Returns:
        (..., nv).
    """
    return call("passive_forces", model, q, v, params=params)
