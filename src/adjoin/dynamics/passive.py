"""Forces of the joints themselves: springs, damping and dry friction."""

from collections.abc import Mapping

from adjoin.dynamics.call import Array, call
from adjoin.dynamics.linear import Rows, is_zero
from adjoin.dynamics.quantity import quantity
from adjoin.dynamics.state import State
from adjoin.model.manifold import difference
from adjoin.model.model import Model
from adjoin.spatial.scalar import Scalar, is_number
from adjoin.trace import sign


@quantity("passive_forces", "q", "v")
def passive_forces_of(state: State) -> list[Scalar]:
    """Compute `passive_forces` over scalars."""
    robot = state.robot
    numbers = zip(spring_forces(state), robot.numbers("damping"), robot.numbers("friction"), state.v, strict=True)
    return [spring - d * v - f * sign(v) for spring, d, f, v in numbers]


def spring_forces(state: State) -> list[Scalar]:
    """Return the forces of the springs alone."""
    robot = state.robot
    stiffness = robot.numbers("stiffness")
    if all(is_number(k) and k == 0.0 for k in stiffness):
        return [0.0] * robot.nv
    stretch = difference(robot.model, robot.numbers("spring_reference"), state.q)
    return [-(k * x) for k, x in zip(stiffness, stretch, strict=True)]


def spring_slopes(state: State) -> Rows:
    """Return the derivative, on the tangent space, of k (q - q0), nv by nv."""
    robot = state.robot
    matrix: Rows = [[0.0] * robot.nv for _ in range(robot.nv)]
    stiffness, reference = robot.numbers("stiffness"), robot.numbers("spring_reference")
    for joint, at in robot.model.independent_joints:
        dofs = range(at.v, at.v + joint.nv)
        if not all(is_zero(stiffness[dof]) for dof in dofs):
            slopes = joint.type.difference_slopes(reference[at.q_slice], state.q[at.q_slice])
            for row, entries in zip(dofs, slopes, strict=True):
                matrix[row][at.v_slice] = [stiffness[row] * entry for entry in entries]
    return matrix


def passive_forces(model: Model, q: Array, v: Array, params: Mapping[str, Array] | None = None) -> Array:
    """Return what the joints' springs, damping and dry friction do: -k (q - q0) - d v - f sign(v).

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        params: parameters to take the place of the model's.

    Returns:
        (..., nv).
    """
    return call("passive_forces", model, q, v, params=params)
