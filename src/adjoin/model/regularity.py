"""Whether a mechanism's mass matrix is positive definite, which forward dynamics needs; checked at one pose."""

from typing import TYPE_CHECKING

import numpy as np

from adjoin.model.parts import WORLD
from adjoin.spatial.inertia import to_matrix
from adjoin.spatial.motion import Transform, motion_to_parent, transform_multiply

if TYPE_CHECKING:
    from adjoin.model.model import Model

LARGEST = 300
"""Degrees of freedom up to which the check is made; its time grows with their cube."""
SMALLEST = 1e-12
"""Eigenvalues below this, where the diagonal is 1, are rounding."""


def singular_joints(model: "Model") -> tuple[str, ...]:
    """Return the joints that can accelerate without any force; none if M is positive definite or too large to say."""
    if not 0 < model.nv <= LARGEST:
        return ()
    matrix = mass_matrix(model)
    scale = np.sqrt(np.abs(np.diag(matrix)))
    scale[scale == 0.0] = 1.0
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    motions = np.abs(vectors[:, values <= SMALLEST])
    moving = (motions > 0.3 * motions.max(0, initial=0.0)).any(1)
    return tuple(joint.name for joint, where in model.independent_joints if moving[where.v_slice].any())


def mass_matrix(model: "Model") -> np.ndarray:
    """Return M, (nv, nv), at a pose without symmetry: sums of Jᵀ I J over the bodies, in float64."""
    total = np.diag([x for joint, _ in model.independent_joints for x in joint.armature]).astype(float)
    poses: list[Transform] = []
    jacobians: list[np.ndarray] = []
    for body, where in zip(model.bodies, model.coordinates, strict=True):
        joint = body.joint
        position = joint.type.integrate(joint.type.neutral, [0.4 + 0.1 * k for k in range(joint.type.nv)])
        pose = transform_multiply((body.rotation, body.position), joint.type.transform(joint, position))
        jacobian = np.zeros((6, model.nv))
        if body.parent != WORLD:
            pose = transform_multiply(poses[body.parent], pose)
            jacobian += jacobians[body.parent]
        for k, direction in enumerate(joint.type.directions(joint)):
            angular, linear = motion_to_parent(pose, direction)
            jacobian[:, where.v + k] += where.multiplier * np.array([*angular, *linear])
        poses.append(pose)
        jacobians.append(jacobian)
        rotation = np.array(pose[0], dtype=float)
        x, y, z = rotation @ np.array(body.com) + np.array(pose[1])
        cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
        about = rotation @ np.array(to_matrix(body.inertia)) @ rotation.T - body.mass * cross @ cross
        inertia = np.block([[about, body.mass * cross], [-body.mass * cross, body.mass * np.eye(3)]])
        total += jacobian.T @ inertia @ jacobian
    return total
