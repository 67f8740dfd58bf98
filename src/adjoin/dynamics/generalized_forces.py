"""Generalized forces of forces on bodies."""

from adjoin.dynamics.state import State
from adjoin.model.parts import WORLD
from adjoin.spatial.motion import Spatial, force_to_parent, spatial_add, spatial_dot
from adjoin.spatial.scalar import Scalar


def joint_forces(state: State, forces: list[Spatial]) -> list[Scalar]:
    """Return the generalized forces that hold up given forces on the bodies: Jᵀ f."""
    robot = state.robot
    tau: list[Scalar] = [0.0] * robot.nv
    total = list(forces)
    for body in reversed(range(robot.count)):
        for dof, direction in robot.subspaces[body]:
            tau[dof] = tau[dof] + spatial_dot(direction, total[body])
        parent = robot.parents[body]
        if parent != WORLD:
            total[parent] = spatial_add(total[parent], force_to_parent(state.transforms[body], total[body]))
    return tau
