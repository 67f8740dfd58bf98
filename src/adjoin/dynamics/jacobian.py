"""Jacobians of frames: how their motion follows from v, column by column (Featherstone, chapter 4.5)."""

from collections.abc import Mapping, Sequence
from typing import Any

from adjoin.dynamics.call import Array, Reference
from adjoin.dynamics.kinematics import (
    FrameNames,
    call_for_frames,
    check_reference,
    find_frame,
    linear_first,
    map_frames,
    transforms_from_frame,
)
from adjoin.dynamics.quantity import quantity
from adjoin.dynamics.state import State
from adjoin.model.model import Model
from adjoin.spatial import vector
from adjoin.spatial.motion import (
    ZERO_SPATIAL,
    Spatial,
    motion_cross_motion,
    motion_to_parent,
    spatial_add,
    transform_point,
)
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import ZERO

Columns = list[tuple[int, Spatial]]
"""The motions of one joint, each with its place in v."""


def joint_columns(
    state: State, bodies: Sequence[int], frame: int, reference: Reference, base: int | None
) -> list[Columns]:
    """Return the motions that the joints of some bodies give to all they carry, in the coordinates of the reference.

    Args:
        state: of the robot.
        bodies: whose joints.
        frame: index of the frame that "local" and "local_world_aligned" refer to.
        reference: axes and point.
        base: index of the frame in the world's place; None is the world.
    """
    robot = state.robot
    poses = transforms_from_frame(state, frame if reference == "local" else base)
    point = ZERO
    if reference == "local_world_aligned":
        point = transform_point(poses[robot.model.frames[frame].body], robot.frames[frame][1])
    columns = []
    for body in bodies:
        rotation, position = poses[body]
        pose = (rotation, vector.subtract(position, point))
        columns.append([(dof, motion_to_parent(pose, s)) for dof, s in robot.subspaces[body]])
    return columns


def rows_of(nv: int, columns: Sequence[tuple[int, Spatial]]) -> list[list[Scalar]]:
    """Return the 6 x nv matrix of some columns, those of one place in v added up."""
    matrix: list[list[Scalar]] = [[0.0] * nv for _ in range(6)]
    for dof, motion in columns:
        for row, value in zip(matrix, linear_first(motion), strict=True):
            row[dof] = row[dof] + value
    return matrix


@quantity("jacobian", "q")
def jacobian_of(state: State, frame: FrameNames, reference: Reference = "world", relative_to: str | None = None) -> Any:
    """Compute `jacobian` over scalars. Columns of joints that do not move the frame are the number 0."""
    function, robot = "jacobian", state.robot
    model = robot.model
    check_reference(function, reference)
    base = None if relative_to is None else find_frame(function, model, relative_to)
    below_base = [] if base is None else robot.ancestors(model.frames[base].body)

    def matrix(index: int) -> list[list[Scalar]]:
        path = robot.ancestors(model.frames[index].body)
        forward = [body for body in path if body not in below_base]
        backward = [body for body in below_base if body not in path]
        joints = joint_columns(state, [*forward, *backward], index, reference, base)
        columns = [column for joint in joints[: len(forward)] for column in joint]
        for joint in joints[len(forward) :]:
            columns += [(dof, (vector.negate(angular), vector.negate(linear))) for dof, (angular, linear) in joint]
        return rows_of(model.nv, columns)

    return map_frames(function, model, frame, matrix)


@quantity("jacobian_derivative", "q", "v")
def jacobian_derivative_of(state: State, frame: FrameNames, reference: Reference = "world") -> Any:
    """Compute `jacobian_derivative` over scalars: a column is fixed to its body, and turns as the body moves."""
    function, robot = "jacobian_derivative", state.robot
    model = robot.model
    check_reference(function, reference)

    def matrix(index: int) -> list[list[Scalar]]:
        path = robot.ancestors(model.frames[index].body)
        joints = joint_columns(state, path, index, reference, None)
        steps = [_sum(state.v, joint) for joint in joints]
        columns: Columns = []
        if reference == "world":
            body = ZERO_SPATIAL
            for joint, step in zip(reversed(joints), reversed(steps), strict=True):
                before, body = body, spatial_add(body, step)
                # One direction alone is carried by the parent as well: its own motion does not turn it.
                carrier = before if len(joint) == 1 else body
                columns += [(dof, motion_cross_motion(carrier, motion)) for dof, motion in joint]
            return rows_of(model.nv, columns)
        body = ZERO_SPATIAL
        if reference == "local_world_aligned":
            for step in steps:
                body = (vector.add(body[0], step[0]), ZERO)
        for joint, (angular, linear) in zip(joints, steps, strict=True):
            columns += [(dof, motion_cross_motion(body, motion)) for dof, motion in joint]
            body = (vector.subtract(body[0], angular), vector.subtract(body[1], linear))
        return rows_of(model.nv, columns)

    return map_frames(function, model, frame, matrix)


def _sum(v: Sequence[Scalar], columns: Columns) -> Spatial:
    total = ZERO_SPATIAL
    for dof, (angular, linear) in columns:
        total = spatial_add(total, (vector.scale(v[dof], angular), vector.scale(v[dof], linear)))
    return total


def jacobian(
    model: Model,
    q: Array,
    frame: str | Sequence[str],
    reference: Reference = "world",
    params: Mapping[str, Array] | None = None,
    *,
    relative_to: str | None = None,
) -> Array:
    """Return the geometric Jacobian of a frame: its spatial velocity is J v.

    With `relative_to` it is the Jacobian of the pose (R, p) of the frame seen from that one, which takes the world's
    place: "world" has that frame's axes and origin, "local_world_aligned" its axes and the origin of `frame` (so the
    linear rows give dp/dt), "local" axes and origin of `frame`. Joints that carry both have zero columns.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        frame: name of a link or site, or several.
        reference: axes and point: "world", "local" or "local_world_aligned", see `frame_velocity`.
        params: parameters to take the place of the model's.
        relative_to: name of the frame that the motion is seen from; by default the world.

    Returns:
        J, rows [linear; angular], (..., 6, nv), or (..., n, 6, nv) for several frames.
    """
    return call_for_frames("jacobian", model, (q,), params, frame, reference=reference, relative_to=relative_to)


def jacobian_derivative(
    model: Model,
    q: Array,
    v: Array,
    frame: str | Sequence[str],
    reference: Reference = "world",
    params: Mapping[str, Array] | None = None,
) -> Array:
    """Return the time derivative of `jacobian` as the robot moves with v.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        frame: name of a link or site, or several.
        reference: axes and point, see `frame_velocity`.
        params: parameters to take the place of the model's.

    Returns:
        dJ/dt, (..., 6, nv), or (..., n, 6, nv) for several frames.
    """
    return call_for_frames("jacobian_derivative", model, (q, v), params, frame, reference=reference)
