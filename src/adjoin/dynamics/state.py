"""One robot at one instant, over scalars: what several algorithms read is computed once, when first asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from adjoin.dynamics.robot import Robot
from adjoin.errors import InputError
from adjoin.model.parts import WORLD
from adjoin.spatial import vector
from adjoin.spatial.motion import (
    IDENTITY_TRANSFORM,
    ZERO_SPATIAL,
    Spatial,
    Transform,
    force_to_child,
    force_to_parent,
    motion_cross_motion,
    motion_to_child,
    spatial_add,
    transform_multiply,
)
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Matrix3

Value = TypeVar("Value")


@dataclass(frozen=True)
class ExternalForce:
    """An external force.

    Attributes:
        body: index of the body it acts on.
        placement: of the frame on the body that "local" refers to.
        wrench: six scalars, [force; moment].
        reference: "local", "world" or "local_world_aligned": the axes, and the point that the moment is about.
    """

    body: int
    placement: Transform
    wrench: Sequence[Scalar]
    reference: str


class MissingInput(InputError):
    """An algorithm read an input that its state was made without.

    Attributes:
        name: of the input.
    """

    def __init__(self, name: str):
        super().__init__(f"a state without {name!r} was asked for it")
        self.name = name


class State:
    """Values of a robot; lists have one entry per body. An input that is left out cannot be read.

    Args:
        robot: the model's numbers.
        q: nq scalars.
        v: nv scalars.
        a: nv scalars: dv/dt.
        tau: nv scalars.
        external: external forces.
    """

    def __init__(
        self,
        robot: Robot,
        q: Sequence[Scalar],
        v: Sequence[Scalar] | None = None,
        a: Sequence[Scalar] | None = None,
        tau: Sequence[Scalar] | None = None,
        external: Sequence[ExternalForce] = (),
    ):
        self.robot = robot
        self.q = list(q)
        self._inputs = {"v": v, "a": a, "tau": tau}
        self.external = list(external)
        self.computed: dict[str, Any] = {}  # by algorithms that others use too

    @cached_property
    def v(self) -> list[Scalar]:
        """Velocities, nv scalars."""
        return self._input("v")

    @cached_property
    def a(self) -> list[Scalar]:
        """Return accelerations dv/dt, nv scalars."""
        return self._input("a")

    @cached_property
    def tau(self) -> list[Scalar]:
        """Return generalized forces, nv scalars."""
        return self._input("tau")

    def _input(self, name: str) -> list[Scalar]:
        values = self._inputs[name]
        if values is None:
            raise MissingInput(name)
        return list(values)

    @cached_property
    def transforms(self) -> list[Transform]:
        """Return the pose of each body in its parent."""
        transforms = []
        for body, placement in enumerate(self.robot.placements):
            joint = self.robot.joint(body)
            moved = joint.type.transform(joint, self.coordinates(body))
            transforms.append(transform_multiply(placement, moved))
        return transforms

    @cached_property
    def poses(self) -> list[Transform]:
        """Return the pose of each body in the world."""
        return self.outward(IDENTITY_TRANSFORM, lambda body, parent: transform_multiply(parent, self.transforms[body]))

    @cached_property
    def joint_velocities(self) -> list[Spatial]:
        """Return the velocity of each body relative to its parent, in the body's frame."""
        return [self.joint_motion(body, self.v) for body in range(self.robot.count)]

    @cached_property
    def velocities(self) -> list[Spatial]:
        """Return spatial velocity of each body, in its own frame."""

        def step(body: int, parent: Spatial) -> Spatial:
            return spatial_add(motion_to_child(self.transforms[body], parent), self.joint_velocities[body])

        return self.outward(ZERO_SPATIAL, step)

    @cached_property
    def accelerations(self) -> list[Spatial]:
        """Return spatial acceleration of each body, in its own frame; without gravity."""

        def step(body: int, parent: Spatial) -> Spatial:
            moved = spatial_add(motion_to_child(self.transforms[body], parent), self.joint_motion(body, self.a))
            return spatial_add(moved, motion_cross_motion(self.velocities[body], self.joint_velocities[body]))

        return self.outward(ZERO_SPATIAL, step)

    @cached_property
    def external_forces(self) -> list[Spatial]:
        """Return the external force on each body, in its own frame."""
        forces: list[Spatial] = [ZERO_SPATIAL] * self.robot.count
        for force in self.external:
            body, placement = force.body, force.placement
            if body == WORLD:
                continue
            wrench = (vector.vector3(force.wrench[3:]), vector.vector3(force.wrench[:3]))
            if force.reference == "world":
                wrench = force_to_child(self.poses[body], wrench)
            elif force.reference == "local":
                wrench = force_to_parent(placement, wrench)
            else:
                turn: Matrix3 = self.poses[body][0]
                wrench = (vector.apply_transposed(turn, wrench[0]), vector.apply_transposed(turn, wrench[1]))
                wrench = (vector.add(wrench[0], vector.cross(placement[1], wrench[1])), wrench[1])
            forces[body] = spatial_add(forces[body], wrench)
        return forces

    def coordinates(self, body: int) -> list[Scalar]:
        """Return the part of q that a body's joint has or follows, as the joint itself counts it."""
        at = self.robot.model.coordinates[body]
        q = self.q[at.q_slice]
        return [at.multiplier * x + at.offset for x in q] if self.robot.joint(body).mimic else q

    def joint_motion(self, body: int, rates: Sequence[Scalar]) -> Spatial:
        """Return the motion of a body against its parent for given rates of the coordinates, in the body's frame."""
        total = ZERO_SPATIAL
        for dof, (angular, linear) in self.robot.subspaces[body]:
            rate = rates[dof]
            total = spatial_add(total, (vector.scale(rate, angular), vector.scale(rate, linear)))
        return total

    def frame_pose(self, frame: int) -> Transform:
        """Return the pose of a frame in the world."""
        body = self.robot.model.frames[frame].body
        return transform_multiply(self.pose(body), self.robot.frames[frame])

    def pose(self, body: int) -> Transform:
        """Return the pose of a body in the world, or of the world itself."""
        return IDENTITY_TRANSFORM if body == WORLD else self.poses[body]

    def outward(self, root: Value, step: Callable[[int, Value], Value]) -> list[Value]:
        """Return values from the root to the tips: `step(body, value of its parent)`."""
        values: list[Value] = []
        for body, parent in enumerate(self.robot.parents):
            values.append(step(body, root if parent == WORLD else values[parent]))
        return values
