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
    damping, friction, stiffness = (robot.numbers(name) for name in ("damping", "friction", "stiffness"))
    forces = [-(d * v) - f * sign(v) for d, f, v in zip(damping, friction, state.v, strict=True)]
    if all(is_number(k) and k == 0.0 for k in stiffness):
        return forces
    stretch = difference(robot.model, robot.numbers("spring_reference"), state.q)
    return [f - k * x for f, k, x in zip(forces, stiffness, stretch, strict=True)]


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
