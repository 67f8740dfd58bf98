"""The frozen robot: bodies in topological order, and everything that hangs on them."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

import torch

from adjoin.errors import ModelError, unknown_name
from adjoin.model import actuators, additions, compose, digest, manifold, names, parameters, summary, validate
from adjoin.model.equality import EqualityConstraint
from adjoin.model.fluid import VACUUM, Medium
from adjoin.model.joint import Joint, JointCoordinates, Vec3
from adjoin.model.parts import NO_FIXTURE, Actuator, Body, ContactPair, Fixture, Frame, Geometry, HeightGrid, Keyframe
from adjoin.model.sensor import Sensor
from adjoin.model.tendon import Tendon
from adjoin.spatial.rotation import quaternion_along, quaternion_normalize


@dataclass(frozen=True, eq=False)
class Model:
    """A robot, or several, in one world. Immutable; equal and hashed by its digest.

    Attributes:
        name: of the robot.
        bodies: parents first; in the order of the file, depth first.
        frames: every link of the file by name, moving or welded on, and sites.
        geometries: collision shapes.
        actuators: drives, in the order of the control vector.
        keyframes: named states.
        exclusions: pairs of frame names whose shapes never touch.
        pairs: pairs of shapes that touch with constants of their own.
        tendons: combinations of joints, and strings.
        equalities: what is held together.
        sensors: what is measured.
        terrain: heights in the place of a plane; none or one.
        mocap: names of links fixed to the world whose poses are a part of the state that steps do not change, as in
            MuJoCo; what hangs on them moves along.
        medium: what the bodies move in, with forces of it.
        fixture: what is welded to the world.
        gravity: acceleration of free fall in world axes, m/s^2.
        parents_touch: whether shapes of a body and of its parent can touch.
        elliptic: whether friction of MuJoCo's soft contact is bounded by a cone instead of a pyramid.
        impratio: MuJoCo's: how much harder friction is than the normal, in a cone.
        integrator: how the file says that steps are taken, in MuJoCo's words: "Euler", "implicitfast" or "RK4"; ""
            where it says nothing. See `simulation.integrators`.
        timestep: s, of the simulation that the file is written for; 0 where it says nothing.
        magnetic_field: what magnetometers measure, in world axes.
    """

    name: str
    bodies: tuple[Body, ...]
    frames: tuple[Frame, ...] = ()
    geometries: tuple[Geometry, ...] = ()
    actuators: tuple[Actuator, ...] = ()
    keyframes: tuple[Keyframe, ...] = ()
    exclusions: tuple[tuple[str, str], ...] = ()
    pairs: tuple[ContactPair, ...] = ()
    tendons: tuple[Tendon, ...] = ()
    equalities: tuple[EqualityConstraint, ...] = ()
    sensors: tuple[Sensor, ...] = ()
    terrain: tuple[HeightGrid, ...] = ()
    mocap: tuple[str, ...] = ()
    medium: Medium = VACUUM
    fixture: Fixture = NO_FIXTURE
    gravity: Vec3 = (0.0, 0.0, -9.81)
    parents_touch: bool = False
    elliptic: bool = False
    impratio: float = 1.0
    integrator: str = ""
    timestep: float = 0.0
    magnetic_field: Vec3 = (0.0, -0.5, 0.0)

    def __post_init__(self):
        validate.check(self)

    @cached_property
    def mocap_poses(self) -> tuple[float, ...]:
        """Return position and quaternion [w x y z] of each of `mocap` as the model has them, seven numbers each."""
        frames = [self.frames[self.frame_index(name)] for name in self.mocap]
        return tuple(x for f in frames for x in (*f.position, *quaternion_normalize(quaternion_along(f.rotation))))

    # Sizes and coordinates

    @cached_property
    def nq(self) -> int:
        """Return numbers in a configuration q."""
        return sum(body.joint.nq for body in self.bodies)

    @cached_property
    def nv(self) -> int:
        """Return degrees of freedom: numbers in a velocity v."""
        return sum(body.joint.nv for body in self.bodies)

    @property
    def nu(self) -> int:
        """Return numbers in a control: one per actuator."""
        return len(self.actuators)

    @cached_property
    def stateful_actuators(self) -> tuple[int, ...]:
        """Return the indices of the actuators that have an activation, in its order."""
        return tuple(index for index, actuator in enumerate(self.actuators) if actuator.dynamics != "none")

    @property
    def na(self) -> int:
        """Return numbers in an activation."""
        return len(self.stateful_actuators)

    @cached_property
    def joints(self) -> tuple[Joint, ...]:
        """Return the joint of every body."""
        return tuple(body.joint for body in self.bodies)

    @cached_property
    def coordinates(self) -> tuple[JointCoordinates, ...]:
        """Return where the joint of every body finds its coordinates."""
        q = v = 0
        slices: list[tuple[slice, slice]] = []
        for joint in self.joints:
            slices.append((slice(q, q + joint.nq), slice(v, v + joint.nv)))
            q, v = q + joint.nq, v + joint.nv
        coordinates = []
        for index in range(len(self.bodies)):
            leader, multiplier, offset = index, 1.0, 0.0
            while (mimic := self.joints[leader].mimic) is not None:
                offset += multiplier * mimic.offset
                multiplier *= mimic.multiplier
                leader = self._joint_indices[mimic.joint]
            coordinates.append(JointCoordinates(leader, *slices[leader], multiplier, offset))
        return tuple(coordinates)

    @cached_property
    def independent_joints(self) -> tuple[tuple[Joint, JointCoordinates], ...]:
        """Return the joints that have coordinates of their own, which are all but those that mimic others."""
        return tuple(pair for pair in zip(self.joints, self.coordinates, strict=True) if pair[0].nq)

    @cached_property
    def mass(self) -> float:
        """Return mass of everything that moves, kg."""
        return math.fsum(body.mass for body in self.bodies)

    def limits(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return least and greatest q, nq numbers each; a joint's range is narrowed by those that mimic it.

        Raises:
            ModelError: a joint and those that mimic it have no position that all allow.
        """
        lower = [-math.inf] * self.nq
        upper = [math.inf] * self.nq
        for joint, where in zip(self.joints, self.coordinates, strict=True):
            if joint.type.limited == "coordinate" and where.multiplier != 0.0:
                ends = sorted((bound - where.offset) / where.multiplier for bound in (joint.lower, joint.upper))
                lower[where.q] = max(lower[where.q], ends[0])
                upper[where.q] = min(upper[where.q], ends[1])
                if lower[where.q] > upper[where.q]:
                    leader = self.joints[where.leader].name
                    raise ModelError(f"joint {leader!r} and those that mimic it have no position inside all limits")
        return tuple(lower), tuple(upper)

    # Names

    @cached_property
    def _joint_indices(self) -> dict[str, int]:
        return {joint.name: index for index, joint in enumerate(self.joints)}

    @cached_property
    def trees(self) -> dict[str, str]:
        """Return the tree that each frame is part of, by its name; see `Frame`."""
        return {frame.name: frame.tree for frame in self.frames}

    def body_index(self, name: str) -> int:
        """Return index of a body by name."""
        return _find("body", "bodies", name, [body.name for body in self.bodies])

    def joint_index(self, name: str) -> int:
        """Return index of a joint by name, which is the index of the body it moves."""
        return self._joint_indices[name] if name in self._joint_indices else self._no_joint(name)

    def _no_joint(self, name: str) -> NoReturn:
        raise ModelError(unknown_name("joint", "joints", name, self._joint_indices))

    def frame_index(self, name: str) -> int:
        """Return index of a frame (a link of the file, or a site) by name."""
        return _find("link", "links", name, [frame.name for frame in self.frames])

    def geometry_index(self, name: str) -> int:
        """Return index of a collision shape by name."""
        return _find("geometry", "geometries", name, [shape.name for shape in self.geometries])

    def actuator_index(self, name: str) -> int:
        """Return index of an actuator, which is its place in the control, by name."""
        return _find("actuator", "actuators", name, [actuator.name for actuator in self.actuators])

    def tendon_index(self, name: str) -> int:
        """Return index of a tendon by name."""
        return _find("tendon", "tendons", name, [tendon.name for tendon in self.tendons])

    @cached_property
    def sensor_slices(self) -> dict[str, slice]:
        """Return where the readings of each sensor are among those of all, by name."""
        ends = list(itertools.accumulate((sensor.count for sensor in self.sensors), initial=0))
        return {sensor.name: slice(*ends[i : i + 2]) for i, sensor in enumerate(self.sensors)}

    def equality_index(self, name: str) -> int:
        """Return index of an equality constraint by name."""
        return _find("equality", "equalities", name, [equality.name for equality in self.equalities])

    def keyframe(self, name: str) -> Keyframe:
        """Return a named state."""
        return self.keyframes[_find("keyframe", "keyframes", name, [key.name for key in self.keyframes])]

    # Numbers by name

    @cached_property
    def coordinate_names(self) -> tuple[str, ...]:
        """Return the names of the numbers of q: those of joints, and "joint/x" of joints that have several."""
        return names.coordinate_names(self, names.Q_NAMES, lambda kind: kind.nq)

    @cached_property
    def velocity_names(self) -> tuple[str, ...]:
        """Return the names of the numbers of v: those of joints, and "joint/vx" of joints that have several."""
        return names.coordinate_names(self, names.V_NAMES, lambda kind: kind.nv)

    def pack(
        self, values: Mapping[str, object], *, start: torch.Tensor | None = None, like: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return a configuration from numbers by name; it is differentiable.

        Args:
            values: name of a joint or of one of `coordinate_names` to a number, or to a tensor: (...) where it has one
                number, (..., n) where it has n.
            start: what the other coordinates are, (..., nq); by default neutral.
            like: a tensor of the dtype and on the device that are wanted; by default those of `start`, or torch's own.

        Returns:
            q, (..., nq).
        """
        like = like if like is not None else start
        if start is None:
            dtype, device = (like.dtype, like.device) if like is not None else (None, None)
            start = self.neutral(dtype=dtype, device=device)
        places = {joint.name: at.q_slice for joint, at in self.independent_joints}
        return names.pack(self, values, start, places, self.coordinate_names)

    def unpack(self, q: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the numbers of each joint by name: (...) of a joint with one, (..., n) of others.

        Args:
            q: (..., nq).
        """
        manifold.check_tensor(q, "q", self.nq, self.name)
        return names.unpack(q, {joint.name: at.q_slice for joint, at in self.independent_joints})

    def pack_velocity(
        self, values: Mapping[str, object], *, start: torch.Tensor | None = None, like: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return a velocity, acceleration or generalized force from numbers by name; see `pack`.

        Args:
            values: name of a joint or of one of `velocity_names` to a number or tensor.
            start: what the others are, (..., nv); by default 0.
            like: see `pack`.

        Returns:
            v, (..., nv).
        """
        like = like if like is not None else start
        if start is None:
            start = torch.zeros(self.nv) if like is None else like.new_zeros(self.nv)
        places = {joint.name: at.v_slice for joint, at in self.independent_joints}
        return names.pack(self, values, start, places, self.velocity_names)

    def unpack_velocity(self, v: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the velocity of each joint by name: (...) of a joint with one, (..., n) of others.

        Args:
            v: (..., nv).
        """
        manifold.check_tensor(v, "v", self.nv, self.name)
        return names.unpack(v, {joint.name: at.v_slice for joint, at in self.independent_joints})

    def clamp(self, q: torch.Tensor) -> torch.Tensor:
        """Return the nearest configuration inside the limits of all joints.

        Args:
            q: (..., nq).

        Returns:
            (..., nq).
        """
        return names.clamped(self, q)

    # Configurations

    def neutral(
        self, batch: Sequence[int] = (), *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> torch.Tensor:
        """Return the configuration in which every joint is in its placement: zeros and unit quaternions.

        Zero need not be inside a joint's limits.

        Args:
            batch: leading shape.
            dtype: torch's default if not given.
            device: torch's default if not given.

        Returns:
            q, (*batch, nq).
        """
        numbers = [x for joint, _ in self.independent_joints for x in joint.type.neutral]
        return torch.tensor(numbers, dtype=dtype or torch.get_default_dtype(), device=device).expand(*batch, -1).clone()

    def random(
        self,
        batch: Sequence[int] = (),
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> torch.Tensor:
        """Return configurations drawn evenly from inside the limits.

        Without limits, angles are drawn from a full turn, displacements from [-1, 1] m, orientations from all.

        Args:
            batch: leading shape.
            generator: source of randomness.
            dtype: torch's default if not given.
            device: torch's default if not given.

        Returns:
            q, (*batch, nq).
        """
        return manifold.random(self, tuple(batch), generator, dtype or torch.get_default_dtype(), device)

    def integrate(self, q: torch.Tensor, v: torch.Tensor, dt: float | torch.Tensor = 1.0) -> torch.Tensor:
        """Return the configuration reached from q by moving with the constant velocity v for the time dt.

        Quaternions come out normalized; angles of continuous joints are not wrapped (see `normalize`).

        Args:
            q: (..., nq).
            v: (..., nv).
            dt: s; a number, or a tensor that broadcasts with the batch shape.

        Returns:
            (..., nq).
        """
        return manifold.on_tensors(self, manifold.integrate, (q, "q", self.nq), (v, "v", self.nv), dt=dt)

    def difference(self, q0: torch.Tensor, q1: torch.Tensor) -> torch.Tensor:
        """Return the velocity from q0 to q1 in unit time, the short way round: `integrate(q0, difference)` is q1.

        Args:
            q0: (..., nq).
            q1: (..., nq).

        Returns:
            (..., nv).
        """
        return manifold.on_tensors(self, manifold.difference, (q0, "q0", self.nq), (q1, "q1", self.nq))

    def normalize(self, q: torch.Tensor) -> torch.Tensor:
        """Return q with unit quaternions, and with angles of continuous and planar joints in [-pi, pi).

        Args:
            q: (..., nq).

        Returns:
            (..., nq).
        """
        return manifold.on_tensors(self, manifold.normalize, (q, "q", self.nq))

    # Parameters

    def parameters(
        self, batch: Sequence[int] = (), *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> dict[str, torch.Tensor]:
        """Return every physical number that a call takes as `params`, by name.

        `adjoin.model.parameters` lists names, shapes and units.

        Args:
            batch: shape in front of each, for values of each environment.
            dtype: torch's default if not given; float64 is exact.
            device: torch's default if not given.

        Returns:
            New tensors: changing them does not change the model.
        """
        defaults = parameters.defaults(self, dtype or torch.get_default_dtype(), device)
        return (
            {name: value.expand(*batch, *value.shape).clone() for name, value in defaults.items()}
            if batch
            else defaults
        )

    def check_parameters(
        self, params: Mapping[str, object] | None, batch: Sequence[int] = ()
    ) -> dict[str, torch.Tensor]:
        """Validate what a caller passes as `params`: names, shapes, dtypes; not the values.

        Args:
            params: name to tensor; each has the default's shape, or that after leading dimensions that broadcast
                with the batch shape.
            batch: the batch shape of the call.

        Returns:
            name to tensor.

        Raises:
            InputError: what is wrong, and the valid names or shape.
        """
        return parameters.check(self, params, tuple(batch))

    def with_parameters(self, params: Mapping[str, object]) -> "Model":
        """Return the model with these numbers for its own.

        Args:
            params: name to one value each, without batch dimensions.
        """
        return parameters.replaced(self, params)

    def with_motors(self, joints: Iterable[str] | None = None) -> "Model":
        """Return the model with one torque motor on each of the joints, in place of the actuators it had.

        Args:
            joints: names; by default every joint of one degree of freedom that mimics none.
        """
        return actuators.with_motors(self, joints)

    def with_servos(
        self, kp: float | Sequence[float], kd: float | Sequence[float], joints: Iterable[str] | None = None
    ) -> "Model":
        """Return the model with one position servo on each of the joints, in place of the actuators it had.

        The control is where each joint is to be; the force kp (control - q) - kd v is bounded by the joint's effort
        limit. The control of a key frame becomes its own configuration.

        Args:
            kp: N m/rad or N/m; one for all, or one for each joint.
            kd: N m s/rad or N s/m; one for all, or one for each joint.
            joints: names, of joints with one degree of freedom; by default every one that mimics none.
        """
        return actuators.with_servos(self, kp, kd, joints)

    # Changes: a part that has the name of another takes its place

    def with_actuator(self, actuator: Actuator, control: float = 0.0) -> "Model":
        """Return the model with an actuator more; key frames follow.

        Args:
            actuator: what is added, or takes the place of the one of the same name.
            control: of a new one, in the key frames.
        """
        return additions.with_actuator(self, actuator, control)

    def with_equality(self, equality: EqualityConstraint) -> "Model":
        """Return the model with something more held together."""
        return additions.with_part(self, "equalities", equality)

    def with_tendon(self, tendon: Tendon) -> "Model":
        """Return the model with a tendon more."""
        return additions.with_part(self, "tendons", tendon)

    def with_geometry(self, geometry: Geometry) -> "Model":
        """Return the model with a collision shape more; its mass is not added.

        Args:
            geometry: the shape; its `link` is the name of a frame, its `body` the index of the body which that is on.
                With the link "world" and the body -1 it is fixed to the world, which makes it an obstacle. A shape of
                the same name is replaced.

        Raises:
            ModelError: the shape makes no sense, or its link is on another body.
        """
        return additions.with_geometry(self, geometry)

    def with_sensor(self, sensor: Sensor) -> "Model":
        """Return the model with a sensor more."""
        return additions.with_part(self, "sensors", sensor)

    # Composition

    def attach(
        self,
        other: "Model",
        frame: str,
        *,
        position: Sequence[float] = (0.0, 0.0, 0.0),
        rotation: Sequence[float] = (1.0, 0.0, 0.0, 0.0),
        prefix: str = "",
    ) -> "Model":
        """Return the model with another one, a tool or a robot, welded to one of its links.

        Args:
            other: what is attached; its world becomes the link. It must not have a floating base.
            frame: name of the link or site.
            position: of the other's world in the frame, m.
            rotation: its orientation, unit quaternion [w x y z].
            prefix: goes before all names of the other model.
        """
        return compose.attach(self, other, frame, position, rotation, prefix)

    # Digest

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of everything in the model, in hexadecimal digits."""
        return digest.digest(self)

    @property
    def _fingerprint(self) -> tuple[str | type, ...]:
        """What decides what is traced of it: its numbers, and the classes of its joints."""
        return self.digest, *[type(joint.type) for joint in self.joints]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __str__(self) -> str:
        return summary.table(self)

    def __repr__(self) -> str:
        return f"Model({self.name!r}: {len(self.bodies)} bodies, nq {self.nq}, nv {self.nv}, nu {self.nu})"


def _find(what: str, plural: str, name: str, names: list[str]) -> int:
    if name not in names:
        raise ModelError(unknown_name(what, plural, name, names))
    return names.index(name)
