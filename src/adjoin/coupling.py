"""Robots and soft bodies in one world: both move in one rollout, push each other, and gradients pass through both.

A step begins with the links where they are. Nodes or particles feel the shapes that links carry; what they feel, the
links feel the other way round, as an external force of the robot's own step: with its actuators, joint limits and
contacts. Both bodies take the step from the same beginning, so momentum is exchanged and never made. All of it is one
sequence of maps: one loop on a CPU, one graph on a GPU.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from adjoin.compiler.maps.checkpoints import Checkpoints
from adjoin.compiler.maps.sequence import Connection, Field, Read, Stage, after
from adjoin.continuum.attachments import Attachment
from adjoin.continuum.bodies import BodyState
from adjoin.continuum.cloth import Cloth
from adjoin.continuum.colliders import GROUP, GROUPS, MOTION, SIZES, Collider
from adjoin.continuum.mesh import connected_parts
from adjoin.continuum.particles import Particles, ParticleState
from adjoin.continuum.solids import Solid
from adjoin.continuum.step_parts import Runner, StepParts
from adjoin.dynamics.kinematics import forward_kinematics, frame_velocity, frame_velocity_of
from adjoin.dynamics.state import State
from adjoin.errors import InputError
from adjoin.model.model import Model
from adjoin.simulation.simulator import Simulator
from adjoin.simulation.state import SimulatorState

ROBOT = "robot"
UNTURNED = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


@dataclass(frozen=True)
class Link:
    """Where a collider is: on a frame of the robot, or in the world.

    Attributes:
        frame: name of the link or frame that carries it; None for the world.
        position: of the collider in the frame, m.
        rotation: from the collider's axes to the frame's, rows of a matrix.
    """

    frame: str | None = None
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    rotation: tuple[tuple[float, ...], ...] = UNTURNED


@dataclass(frozen=True)
class CoupledPath:
    """A robot and a soft body.

    Attributes:
        robot: the robot after the last step, or at every kept one: (kept, *batch, ...).
        body: the soft body, the same way.
        wrench: force and torque of the body on every collider about its origin, in each step, in the world's axes,
            (steps, *batch, colliders, 6).
    """

    robot: SimulatorState
    body: BodyState | ParticleState
    wrench: torch.Tensor


@dataclass(frozen=True, eq=False)
class CoupledWorld:
    """A robot and a soft body.

    Attributes:
        simulator: of the robot; its dt is that of the body.
        body: a `Solid`, a `Cloth` or `Particles` with colliders or attachments.
        links: where each collider of the body is, and then for each attachment where the axes of the rest shape are.
    """

    simulator: Simulator
    body: Solid | Cloth | Particles
    links: Sequence[Link]
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self):
        shapes, held = len(self.body.colliders), len(self.attachments)
        if not shapes + held or len(self.links) != shapes + held:
            wanted = f"{shapes} colliders" + (f" and {held} attachments" if held else "")
            raise InputError(f"coupled world: a link for each of the body's {wanted}, got {len(self.links)}")
        if not math.isclose(self.simulator.world.dt, self.body.dt):
            raise InputError(
                f"coupled world: robot and body must have one dt, got {self.simulator.world.dt:g} and {self.body.dt:g}"
            )
        for link in self.links:
            if link.frame is not None:
                self.simulator.model.frame_index(link.frame)

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """Return what holds nodes of the body."""
        return () if isinstance(self.body, Particles) else self.body.attachments

    def attached(self, robot: SimulatorState) -> BodyState:
        """Return the body with the rest shape of every part that an attachment holds where its link is, moving with it.

        Parts are what elements connect. A part that nothing holds stays where the mesh has it, at rest.

        Args:
            robot: (*batch, ...).
        """
        body = self.body
        if isinstance(body, Particles):
            raise InputError("coupled world: particles have no attachments")
        solid = isinstance(body, Solid)
        nodes, elements = (body.mesh.nodes, body.mesh.elements) if solid else (body.nodes, body.triangles)
        part = connected_parts(np.asarray(elements), len(nodes))
        rest = torch.tensor(np.asarray(nodes, float), dtype=robot.q.dtype, device=robot.q.device)
        x = rest.expand(*robot.q.shape[:-1], *rest.shape).clone()
        v = torch.zeros_like(x)
        for link, attachment in zip(self.links[len(body.colliders) :], self.attachments, strict=True):
            own = torch.as_tensor(np.isin(part, part[list(attachment.nodes)]), device=x.device)
            turn, place = rest.new_tensor(link.rotation), rest.new_tensor(link.position)
            local = rest[own] @ turn.T + place
            if link.frame is None:
                x[..., own, :] = local
                continue
            pose = forward_kinematics(self.simulator.model, robot.q, link.frame)
            six = frame_velocity(self.simulator.model, robot.q, robot.v, link.frame, "local_world_aligned")
            arm = local @ pose[..., :3, :3].mT
            x[..., own, :] = pose[..., None, :3, 3] + arm
            v[..., own, :] = six[..., None, :3] + torch.linalg.cross(six[..., None, 3:].expand_as(arm), arm)
        return BodyState(x, v)

    def rollout(
        self,
        robot: SimulatorState,
        body: BodyState | ParticleState,
        controls: torch.Tensor | None = None,
        *,
        steps: int | None = None,
        robot_params: Mapping[str, torch.Tensor] | None = None,
        keep: int | None = None,
        checkpoints: Checkpoints | None = None,
        **options: Any,
    ) -> CoupledPath:
        """Run steps.

        Args:
            robot: at the start.
            body: at the start, with the same batch.
            controls: of the robot's actuators, (steps, *batch, nu) or (steps, nu); 0 by default.
            steps: how many, if there are no controls.
            robot_params: parameters of the robot, see `Simulator.rollout`; with gradients.
            keep: return states at the start and after every so many steps; by default only the last.
            checkpoints: what to keep for the gradient.
            options: what else a rollout of the body takes: `params`, `fixed`, `volume`, `activation`, ...
        """
        world, x = self.simulator.world, body.x
        batch = tuple(x.shape[:-2])
        if tuple(robot.q.shape[:-1]) != batch:
            raise InputError(
                f"coupled world: robot and body must have one batch, got {tuple(robot.q.shape[:-1])} and {batch}"
            )
        passed = world.check_params(robot_params, x, batch)
        inputs = self.body.inputs(body, **options)  # pyright: ignore[reportArgumentType]
        if controls is None:
            if steps is None:
                raise InputError("coupled world: a rollout needs controls or steps")
            controls = x.new_zeros((steps, world.model.nu))
        states = dict(inputs.states)
        for name, tensor in ({"q": robot.q, "v": robot.v} | robot.memory).items():
            states[f"robot_{name}"] = tensor.to(x.dtype).unsqueeze(-1 - len(world.carry[name]))
        parameters = inputs.parameters | {f"robot_{name}": value for name, value in passed.items()}
        streams = inputs.controls | ({"robot_control": controls} if world.model.nu else {})
        runner = self._runner(x.shape[-2], tuple(passed))
        found, outputs = runner.rollout(
            states, parameters, streams, steps=len(controls), keep=keep, checkpoints=checkpoints
        )
        lead = len(batch) + (keep is not None)
        carried = {name: found.pop(f"robot_{name}").squeeze(lead) for name in world.carry}
        state = SimulatorState(carried.pop("q"), carried.pop("v"), carried, robot.start)
        return CoupledPath(state, self.body.result(found), outputs["link_wrench"].squeeze(1 + len(batch)))

    # One step ---------------------------------------------------------------------------------------------------------

    def _runner(self, count: int, passed: tuple[str, ...]) -> Runner:
        key = (count, passed)
        if key not in self._cache:
            self._cache[key] = self._parts(count, passed).runner()
        return self._cache[key]

    def _parts(self, count: int, passed: tuple[str, ...]) -> StepParts:
        parts = self.body.parts(linked=True, count=count)
        world, colliders = self.simulator.world, len(self.links)
        points = parts.sizes[parts.points]
        size = math.isqrt(max(points - 1, 0)) + 1  # points of a group: sums over all points have two short levels
        groups = -(-points // size)
        moved = {f"link_{name}": (colliders, *shape) for name, shape in MOTION.items()}
        fields = [
            *parts.fields,
            *[Field(f"robot_{name}", ROBOT, shape, "state") for name, shape in world.carry.items()],
            *[Field(f"robot_{name}", None, world.parameters[name], "parameter") for name in passed],
            *[Field(name, ROBOT, shape) for name, shape in moved.items()],
            Field("reaction", GROUPS, (colliders, 6), "temporary", ROBOT),
            Field("link_wrench", ROBOT, (colliders, 6), "output"),
        ]
        connections = [
            *parts.connections,
            Connection(GROUP, parts.points, GROUPS, 1),
            Connection(ROBOT, GROUPS, ROBOT, 1),
        ]
        given = {name: Read(f"robot_{name}") for name in passed}
        carried = {f"robot_{name}": Read(f"robot_{name}") for name in world.carry}
        if world.model.nu:
            fields.append(Field("robot_control", None, (world.model.nu,), "control"))
            carried["robot_control"] = Read("robot_control")
        stages = [
            Stage("kinematics", ROBOT, self._kinematics, {"q": Read("robot_q"), "v": Read("robot_v"), **given}),
            Stage("share", GROUPS, _share, {name: Read(f"link_{name}", ROBOT) for name in MOTION}),
            *parts.stages,
            Stage("collect", GROUPS, _collect, {"wrench": Read("wrench", GROUP)}),
            Stage("robot", ROBOT, self._robot, {**carried, "reaction": Read("reaction", ROBOT), **given}),
        ]
        sizes = dict(parts.sizes) | {GROUPS: groups, ROBOT: 1}
        tables = dict(parts.tables)
        tables[GROUP] = (np.arange(points) // size)[:, None]
        tables[ROBOT] = np.zeros((groups, 1), np.int64)
        return replace(parts, fields=fields, connections=connections, stages=stages, sizes=sizes, tables=tables)

    def _kinematics(self, q: Any, v: Any, **params: Any) -> dict[str, Any]:
        """Return where the colliders are and how they move."""
        state, _ = self.simulator.world.plant(params=params).at(list(q), list(v))
        motion: dict[str, list[Any]] = {f"link_{name}": [] for name in MOTION}
        for link in self.links:
            turn, place = np.array(link.rotation, dtype=object), np.array(link.position, dtype=object)
            velocity = spin = np.zeros(3, dtype=object)
            if link.frame is not None:
                rotation, origin, arm = _placed(state, link)
                six = np.array(frame_velocity_of(state, link.frame, "local_world_aligned"), dtype=object)
                spin = six[3:]
                velocity = six[:3] + np.cross(spin, arm)
                turn, place = rotation @ turn, origin + arm
            for name, value in zip(motion, (place, turn, velocity, spin), strict=True):
                motion[name].append(value)
        return {name: np.array(values, dtype=object) for name, values in motion.items()}

    def _robot(self, reaction: Any, **rest: Any) -> dict[str, Any]:
        """Return the robot after its step under the forces of the body."""
        world = self.simulator.world
        carry = {name: rest.pop(f"robot_{name}") for name in world.carry}
        control = rest.pop("robot_control", ())
        external: dict[str, Any] = {}
        state, _ = world.plant(params=rest).at(list(carry["q"]), list(carry["v"]))
        for link, wrench in zip(self.links, reaction, strict=True):
            if link.frame is None:
                continue
            _, _, arm = _placed(state, link)
            six = np.array([*wrench[:3], *(wrench[3:] + np.cross(arm, wrench[:3]))], dtype=object)
            external[link.frame] = external[link.frame] + six if link.frame in external else six
        plant = world.plant(list(control), rest, {name: list(six) for name, six in external.items()})
        following, _ = world.step(plant, carry)
        result = {after(f"robot_{name}"): np.array(value, dtype=object) for name, value in following.items()}
        return result | {"link_wrench": reaction}


def link_shapes(model: Model, links: Sequence[str], **contact: float) -> tuple[tuple[Collider, ...], list[Link]]:
    """Return the collision shapes of links as colliders of a soft body, and where each is.

    Args:
        model: the robot.
        links: names; all of their shapes are taken: meshes are their convex hulls.
        contact: `stiffness`, `damping`, `friction` and `thickness` of all of them, see `Collider`.
    """
    colliders, places = [], []
    for name in links:
        frame = model.frames[model.frame_index(name)]
        shapes = [shape for shape in model.geometries if shape.link == name]
        if not shapes:
            owners = ", ".join(sorted({shape.link for shape in model.geometries}))
            raise InputError(f"link_shapes: {name!r} has no shapes; links that have some: {owners or 'none'}")
        back = np.array(frame.rotation).T
        for shape in shapes:
            size = tuple(shape.size[: SIZES[shape.kind]])
            colliders.append(Collider(shape.kind, size, vertices=shape.vertices, **contact))
            position = back @ (np.array(shape.position) - np.array(frame.position))
            rotation = back @ np.array(shape.rotation)
            x, y, z = position.tolist()
            places.append(Link(name, (x, y, z), tuple(tuple(row) for row in rotation.tolist())))
    return tuple(colliders), places


def _placed(state: State, link: Link) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rotation and origin of a link's frame, and from there to the collider, in world axes."""
    assert link.frame is not None
    pose = state.frame_pose(state.robot.model.frame_index(link.frame))
    rotation, origin = (np.array(part, dtype=object) for part in pose)
    return rotation, origin, rotation @ np.array(link.position, dtype=object)


def _share(**motion: Any) -> dict[str, Any]:
    """Return the motion of the colliders for a group of points."""
    return {name: value[0] for name, value in motion.items()}


def _collect(wrench: Any) -> dict[str, Any]:
    """Return what a group of points contributes to the robot."""
    return {"reaction": wrench[None]}
