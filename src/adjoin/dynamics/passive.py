"""Forces of joints and tendons themselves: springs, damping, dry friction, gravity compensation."""

from collections.abc import Mapping

from adjoin.dynamics.call import Array, call
from adjoin.dynamics.fluid import fluid_forces
from adjoin.dynamics.generalized_forces import joint_forces
from adjoin.dynamics.linear import Rows, is_zero
from adjoin.dynamics.point_motion import rate_of
from adjoin.dynamics.quantity import quantity
from adjoin.dynamics.state import State
from adjoin.dynamics.tendon import spring_pull, tendons_of
from adjoin.model.manifold import difference
from adjoin.model.model import Model
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar, is_number
from adjoin.trace import sign


@quantity("passive_forces", "q", "v")
def passive_forces_of(state: State) -> list[Scalar]:
    """Compute `passive_forces` over scalars."""
    robot = state.robot
    numbers = zip(spring_forces(state), robot.numbers("damping"), robot.numbers("friction"), state.v, strict=True)
    forces = [spring - d * v - f * sign(v) for spring, d, f, v in numbers]
    for (_, arms), pull in zip(tendons_of(state), tendon_forces(state), strict=True):
        for dof, arm in arms.items():
            forces[dof] = forces[dof] + arm * pull
    more = zip(forces, compensation_forces(state), fluid_forces(state), strict=True)
    return [f + carried + fluid for f, carried, fluid in more]


def spring_forces(state: State) -> list[Scalar]:
    """Return the forces of the springs alone."""
    robot = state.robot
    stiffness = robot.numbers("stiffness")
    if all(is_number(k) and k == 0.0 for k in stiffness):
        return [0.0] * robot.nv
    stretch = difference(robot.model, robot.numbers("spring_reference"), state.q)
    return [-(k * x) for k, x in zip(stiffness, stretch, strict=True)]


def tendon_forces(state: State) -> list[Scalar]:
    """Return the pull of each tendon's spring and damping."""
    numbers = [state.robot.numbers(f"tendon_{name}") for name in ("stiffness", "damping", "spring_length")]
    forces: list[Scalar] = []
    for (length, arms), stiffness, damping, rest in zip(tendons_of(state), *numbers, strict=True):
        pull = 0.0 if is_zero(stiffness) else spring_pull(length, stiffness, tuple(rest))
        forces.append(pull if is_zero(damping) else pull - damping * rate_of(arms, state.v))
    return forces


def compensation_forces(state: State) -> list[Scalar]:
    """Return the generalized forces that carry the weight of what is compensated."""
    robot = state.robot
    masses = robot.numbers("compensated_mass")
    if all(map(is_zero, masses)):
        return [0.0] * robot.nv
    forces = []
    for body, mass in enumerate(masses):
        lift = vector.apply_transposed(state.poses[body][0], vector.scale(-1.0 * mass, robot.gravity))
        forces.append((vector.cross(robot.model.bodies[body].compensated_com, lift), lift))
    return joint_forces(state, forces)


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
