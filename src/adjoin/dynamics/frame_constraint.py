"""Equality constraints that fix a frame to the world or to another frame, and their rows at one state."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from adjoin.dynamics.jacobian import jacobian_of
from adjoin.dynamics.kinematics import find_frame, transforms_from_frame
from adjoin.dynamics.linear import Rows, dot
from adjoin.dynamics.rnea import BodyMotion, body_motions, spin_matrix
from adjoin.dynamics.state import State
from adjoin.errors import InputError
from adjoin.model.parts import WORLD
from adjoin.spatial import vector
from adjoin.spatial.motion import (
    IDENTITY_TRANSFORM,
    Spatial,
    Transform,
    force_to_child,
    force_to_parent,
    se3_log,
    spatial_add,
    transform_inverse,
    transform_multiply,
)
from adjoin.spatial.rotation import from_quaternion, quaternion_along
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import ZERO, Vector3

CONSTRAINT_KINDS = ("weld", "point")


@dataclass(frozen=True)
class FrameConstraint:
    """An equality constraint: a frame of the robot is fixed to another one, or to the world.

    Attributes:
        frame: name of the constrained frame.
        other: name of the frame it is fixed to; the world's origin if None.
        kind: "weld": the frame cannot move at all against the other; "point": its origin cannot, but it can turn.
        position: where in the other frame the constrained one belongs, m. Like `rotation`, it matters only to
            stabilization: without it, frames are fixed where they are.
        rotation: how the constrained frame is turned there, quaternion [w x y z].
    """

    frame: str
    other: str | None = None
    kind: Literal["weld", "point"] = "weld"
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    rotation: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)

    def __post_init__(self):
        if self.kind not in CONSTRAINT_KINDS:
            raise InputError(f"FrameConstraint: no kind {self.kind!r}; kinds: {', '.join(CONSTRAINT_KINDS)}")
        for name, size in (("position", 3), ("rotation", 4)):
            values = tuple(float(x) for x in getattr(self, name))
            if len(values) != size or not all(map(math.isfinite, values)):
                raise InputError(f"FrameConstraint: {name} needs {size} finite numbers, got {values}")
            object.__setattr__(self, name, values)
        length = math.hypot(*self.rotation)
        if abs(length - 1.0) > 1e-6:
            raise InputError(f"FrameConstraint: rotation has length {length}; it must be a unit quaternion [w x y z]")
        object.__setattr__(self, "rotation", tuple(x / length for x in self.rotation))


class EvaluatedConstraint:
    """A constraint at one state. Its rows are in the axes of the constrained frame, linear ones first.

    Args:
        state: of the robot.
        constraint: on one of its frames.
    """

    def __init__(self, state: State, constraint: FrameConstraint):
        self.state, self.constraint = state, constraint
        robot, model = state.robot, state.robot.model
        frame = find_frame("FrameConstraint", model, constraint.frame)
        self.body, self.placement = model.frames[frame].body, robot.frames[frame]
        self.other_body, other_placement = WORLD, IDENTITY_TRANSFORM
        if constraint.other is not None:
            other = find_frame("FrameConstraint", model, constraint.other)
            self.other_body, other_placement = model.frames[other].body, robot.frames[other]
        if self.body == self.other_body:
            where = repr(constraint.other) if constraint.other else "the world"
            raise InputError(
                f"FrameConstraint: {constraint.frame!r} and {where} are on one body of {model.name!r}; "
                "a constraint fixes frames of two bodies that move against each other"
            )
        self.anchor = transform_multiply(other_placement, (from_quaternion(constraint.rotation), constraint.position))
        self.other_pose: Transform = transforms_from_frame(state, frame)[self.other_body]
        """The body that the frame is fixed to, seen from the frame."""
        self.size = 6 if constraint.kind == "weld" else 3
        self.rows: Rows = jacobian_of(state, constraint.frame, "local", constraint.other)[: self.size]

    def velocity(self) -> list[Scalar]:
        """Return J v: of the constrained frame, as seen from the body it is fixed to."""
        return [dot(row, self.state.v) for row in self.rows]

    def acceleration(self, a: Sequence[Scalar]) -> list[Scalar]:
        """Return J a + Jdot v: of the constrained frame, as seen from the body it is fixed to, if dv/dt is a.

        Of a point this is the classical acceleration, of a weld the rate of the spatial velocity in the frame's axes,
        both as Pinocchio has it. They differ only while the frame moves.
        """
        rotation, position = self.placement
        moving = body_motions(self.state, a)
        omega, alpha, point = (vector.apply_transposed(rotation, x) for x in _at(moving[self.body], position))
        inverse = transform_inverse(self.other_pose)
        world = (ZERO, ZERO, vector.negate(self.state.robot.gravity))
        holder = _at(world if self.other_body == WORLD else moving[self.other_body], inverse[1])
        turning, turning_rate, place = (vector.apply(self.other_pose[0], x) for x in holder)
        linear, angular = vector.subtract(point, place), vector.subtract(alpha, turning_rate)
        velocity = vector.vector3(self.velocity()[:3])
        spin = vector.scale(2.0, turning) if self.size == 3 else vector.add(turning, omega)
        linear = vector.subtract(linear, vector.cross(spin, velocity))
        return [*linear, *vector.add(angular, vector.cross(omega, turning))][: self.size]

    def error(self) -> list[Scalar]:
        """Return the motion that takes the frame from where it belongs to where it is in unit time, in its own axes."""
        rotation, position = transform_multiply(self.other_pose, self.anchor)
        if self.size == 3:
            return list(vector.negate(position))
        angular, linear = se3_log(quaternion_along(rotation), position)
        return [*vector.negate(linear), *vector.negate(angular)]

    def apply(self, wrench: Sequence[Scalar], needed: list[Spatial]) -> None:
        """Apply a force on the frame, and its opposite on the other body, to the forces that the bodies still need."""
        force_on_frame = (vector.vector3(wrench[3:]), vector.vector3(wrench[:3]))
        if self.body != WORLD:
            moment, force = force_to_parent(self.placement, force_on_frame)
            needed[self.body] = spatial_add(needed[self.body], (vector.negate(moment), vector.negate(force)))
        if self.other_body != WORLD:
            needed[self.other_body] = spatial_add(
                needed[self.other_body], force_to_child(self.other_pose, force_on_frame)
            )


def _at(motion: BodyMotion, point: Vector3) -> BodyMotion:
    """Return how a body moves, with the acceleration of a point of it instead of its origin's."""
    omega, alpha, acceleration = motion
    return omega, alpha, vector.add(acceleration, vector.apply(spin_matrix(omega, alpha), point))
