"""What a learnable robot model computes, over scalars: in the order of coordinates of its caller, see `Links`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adjoin.compat.differentiable_robot_model.links import Key, Links
from adjoin.dynamics.aba import aba_of
from adjoin.dynamics.crba import crba_of
from adjoin.dynamics.jacobian import jacobian_of
from adjoin.dynamics.rnea import inverse_dynamics as torques
from adjoin.dynamics.state import State
from adjoin.model.parts import WORLD
from adjoin.spatial.motion import ZERO_SPATIAL, Transform, motion_to_child
from adjoin.spatial.rotation import Quaternion, quaternion_along, quaternion_normalize
from adjoin.spatial.scalar import Scalar, select


class Instant:
    """The robot at one instant.

    Args:
        links: of the robot.
        learned: what is learned of them.
        gravity: whether there is any.
        inputs: q, and the other inputs of the quantity, in the caller's order.
    """

    def __init__(self, links: Links, learned: Mapping[Key, Sequence[Scalar]], gravity: bool, inputs: Mapping[str, Any]):
        self.links, self.learned = links, learned
        self.inputs = {name: [x[k] for k in links.v_indices] for name, x in inputs.items() if name != "q"}
        q = [inputs["q"][k] for k in links.q_indices]
        self.state = State(links.robot(learned, gravity), q, self.inputs.get("qd", [0.0] * links.model.nv))

    def ordered(self, rows: Sequence[Any]) -> list[Any]:
        """Return rows in the model's order in the caller's order."""
        reordered: list[Any] = [None] * len(rows)
        for row, index in zip(rows, self.links.v_indices, strict=True):
            reordered[index] = row
        return reordered

    def damped(self, sign: float, forces: Sequence[Scalar]) -> list[Scalar]:
        """Forces with damping times velocity added or taken away."""
        damping = self.links.damping(self.learned)
        return [x + sign * (d * v) for x, d, v in zip(forces, damping, self.state.v, strict=True)]

    def pose(self, link: str) -> Transform:
        """Of a link in the world."""
        return self.state.frame_pose(self.links.model.frame_index(link))


def inverse_dynamics(at: Instant, use_damping: bool) -> list[Scalar]:
    """Torques for the accelerations `qdd_des`, 0 if they are not given."""
    tau = torques(at.state, at.inputs.get("qdd_des", [0.0] * at.links.model.nv))
    return at.ordered(at.damped(1.0, tau) if use_damping else tau)


def forward_dynamics(at: Instant, use_damping: bool) -> list[Scalar]:
    """Accelerations under the torques `f`."""
    at.state.tau = at.damped(-1.0, at.inputs["f"]) if use_damping else at.inputs["f"]
    return at.ordered(list(aba_of(at.state)))


def squared_error(at: Instant, quantity: str, use_damping: bool) -> Scalar:
    """The mean over joints of (quantity - target)² / variance."""
    values = {"inverse_dynamics": inverse_dynamics, "forward_dynamics": forward_dynamics}[quantity](at, use_damping)
    errors = [x - y for x, y in zip(values, at.ordered(at.inputs["target"]), strict=True)]
    return sum(x * x / v for x, v in zip(errors, at.ordered(at.inputs["variance"]), strict=True)) / len(errors)


def inertia_matrix(at: Instant) -> list[list[Scalar]]:
    """The joint-space inertia matrix."""
    return at.ordered([at.ordered(row) for row in crba_of(at.state)])


def jacobian(at: Instant, link: str) -> tuple[Any, Any]:
    """Linear and angular Jacobian of a link's origin, in world axes."""
    rows = [at.ordered(row) for row in jacobian_of(at.state, link, "local_world_aligned")]
    return rows[:3], rows[3:]


def pose(at: Instant, link: str) -> tuple[Any, Any]:
    """Position and quaternion of a link."""
    rotation, position = at.pose(link)
    return list(position), list(_xyzw(quaternion_normalize(quaternion_along(rotation))))


def all_poses(at: Instant) -> dict[str, Any]:
    """Position and quaternion of every link."""
    return {link: pose(at, link) for link in at.links.names}


def kinematic_state(at: Instant) -> dict[str, Any]:
    """Position, quaternion and rotation of every link, and its linear and angular velocity in its own frame."""
    robot, states = at.state.robot, {}
    for index, frame in enumerate(at.links.model.frames):
        velocity = ZERO_SPATIAL if frame.body == WORLD else at.state.velocities[frame.body]
        angular, linear = motion_to_child(robot.frames[index], velocity)
        rotation, _ = at.pose(frame.name)
        states[frame.name] = (*pose(at, frame.name), [list(row) for row in rotation], list(linear), list(angular))
    return states


def arrays(value: Any) -> Any:
    """Nested lists of scalars as arrays, inside tuples and dictionaries."""
    if isinstance(value, dict):
        return {name: arrays(part) for name, part in value.items()}
    return tuple(map(arrays, value)) if isinstance(value, tuple) else np.array(value, dtype=object)


def _xyzw(q: Quaternion) -> Quaternion:
    """The one of the two quaternions of a rotation that has w > 0, or its greatest component if |w| is below a half."""
    w, x, y, z = q
    sign = select(w < -0.5, -1.0, 1.0)
    return sign * x, sign * y, sign * z, sign * w
