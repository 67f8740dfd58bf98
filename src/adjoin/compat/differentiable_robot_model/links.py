"""A URDF with every link kept apart, and its numbers over scalars: what welded links add up to is traced.

`adjoin.load` merges links on fixed joints once and for all. Here their mass, inertia and placement can be learned too,
one by one, so the merging is part of the kernel; with nothing learned it is the merged model's.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from adjoin.dynamics.robot import Robot, regroup
from adjoin.errors import Findings, InputError, unknown_name
from adjoin.io import urdf, xml
from adjoin.io.load import open_source
from adjoin.io.paths import Files
from adjoin.io.xml import Element
from adjoin.model.assemble import FLOATING_BASE, assemble
from adjoin.model.description import JointDescription, LinkDescription
from adjoin.model.model import Model
from adjoin.model.parts import WORLD
from adjoin.spatial import mass_moments, vector
from adjoin.spatial.mass_moments import MassMoments
from adjoin.spatial.motion import IDENTITY_TRANSFORM, Transform, transform_multiply
from adjoin.spatial.rotation import from_rpy, to_rpy
from adjoin.spatial.scalar import Scalar

SIZES = {"trans": 3, "rot_angles": 3, "joint_damping": 1, "mass": 1, "com": 3, "inertia_mat": 9}
"""What of a link can be learned, and its numbers."""

Key = tuple[str, str]
"""Names of a link and of a parameter."""


class Links:
    """The links of a URDF, and the model they make.

    Moving joints are counted in the order of their child links in the file, and one that mimics another moves freely.
    Quaternions in q are [x y z w].

    Args:
        path: of the URDF, or its text or bytes.
        floating_base: put a free joint under the root link; its coordinates come first.
        unit_inertia: give links without `<inertial>` a mass of 1 kg and moments of 1 kg m², as the original does.

    Attributes:
        limits: what each joint's `<limit>` states, by the joint's name: effort, lower, upper and velocity.
    """

    def __init__(self, path: str | os.PathLike[str] | bytes, floating_base: bool = False, unit_inertia: bool = False):
        data, name, home, encoding = open_source(path, None)
        document = xml.parse(data, name, encoding=encoding, findings=Findings(strict=False))
        if document.tag != "robot":
            document.fail("not a URDF: the outermost element must be <robot>")
        description = urdf.read(document, Files(home, {}, []), meshes="ignore", repair=("axis", "limits"))
        for link in description.links:
            if unit_inertia and link.inertial is None:
                link.mass, link.inertia = 1.0, (1.0, 0.0, 0.0, 1.0, 0.0, 1.0)
        self.limits = {joint.name(): _stated_limits(joint) for joint in document.all("joint")}
        for edge in description.joints:
            edge.joint = edge.joint and replace(edge.joint, mimic=None)
        self.model: Model = assemble(
            description, floating_base=floating_base, accept=("mass", "inertia"), repair=("axis", "limits")
        )
        self.names = [link.name for link in description.links]
        self._links: dict[str, LinkDescription] = {link.name: link for link in description.links}
        self._edges: dict[str, JointDescription] = {edge.child: edge for edge in description.joints}
        self.joints = self._in_order(floating_base)
        self.q_indices, self.v_indices = self._indices()

    def _in_order(self, floating_base: bool) -> list[int]:
        """Indices of the model's joints in the order of their child links, a floating base first."""
        names = [FLOATING_BASE] if floating_base else []
        edges = [self._edges[name] for name in self.names if name in self._edges]
        names += [edge.name for edge in edges if edge.joint is not None]
        return [self.model.joint_index(name) for name in names]

    def _indices(self) -> tuple[list[int], list[int]]:
        """Where the numbers of the model's q and v are in those of the caller."""
        q_indices, v_indices = [0] * self.model.nq, [0] * self.model.nv
        q = v = 0
        for index in self.joints:
            joint, at = self.model.joints[index], self.model.coordinates[index]
            indices = list(range(q, q + joint.nq))
            if joint.type.has_quaternion:
                indices = [*indices[:-4], indices[-1], *indices[-4:-1]]
            q_indices[at.q_slice] = indices
            v_indices[at.v_slice] = range(v, v + joint.nv)
            q, v = q + joint.nq, v + joint.nv
        return q_indices, v_indices

    def joint_of(self, link: str) -> JointDescription | None:
        """Return the joint that a link hangs on, or None for the root."""
        return self._edges.get(link)

    def require(self, link: str, function: str) -> None:
        """Raise if there is no such link."""
        if link not in self._links:
            raise InputError(f"{function}: {unknown_name('link', 'links', link, self.names)}")

    def values(self, link: str, parameter: str) -> list[float]:
        """Return a parameter of a link as the file has it."""
        edge, part = self._edges.get(link), self._links[link]
        if parameter == "trans":
            return list(edge.position if edge else (0.0, 0.0, 0.0))
        if parameter == "rot_angles":
            return list(to_rpy(edge.rotation) if edge else (0.0, 0.0, 0.0))
        if parameter == "joint_damping":
            return [edge.joint.damping[0] if edge and edge.joint else 0.0]
        if parameter == "mass":
            return [part.mass]
        if parameter == "com":
            return list(part.com)
        xx, xy, xz, yy, yz, zz = part.inertia
        return [xx, xy, xz, xy, yy, yz, xz, yz, zz]

    def robot(self, learned: Mapping[Key, Sequence[Scalar]], gravity: bool = True) -> Robot:
        """The model's numbers, with those of some links replaced."""
        params: dict[str, Any] = {} if gravity else {"gravity": [0.0, 0.0, 0.0]}
        robot = Robot(self.model, params)
        if any(parameter != "joint_damping" for _, parameter in learned):
            vars(robot).update(self._welded(learned))
        return robot

    def damping(self, learned: Mapping[Key, Sequence[Scalar]]) -> list[Scalar]:
        """Of the joints, one number for each of v in the model's order."""
        damping: list[Scalar] = []
        for body in self.model.bodies:
            value, count = learned.get((body.name, "joint_damping")), len(body.joint.damping)
            damping += body.joint.damping if value is None else [value[0]] * count
        return damping

    def _welded(self, learned: Mapping[Key, Sequence[Scalar]]) -> dict[str, Any]:
        """Placements, frames and mass moments of the bodies, summed up over their links."""
        poses: dict[str, Transform] = {}
        placements: list[Transform] = [IDENTITY_TRANSFORM] * len(self.model.bodies)
        moments = [MassMoments()] * len(self.model.bodies)
        for frame in self.model.frames:
            name = frame.name
            edge = self._edges.get(name)
            rotation, position = (edge.rotation, edge.position) if edge else IDENTITY_TRANSFORM
            if (angles := learned.get((name, "rot_angles"))) is not None:
                rotation = from_rpy(*angles)
            if (place := learned.get((name, "trans"))) is not None:
                position = vector.vector3(place)
            pose = transform_multiply(poses[edge.parent] if edge else IDENTITY_TRANSFORM, (rotation, position))
            if frame.body != WORLD and self.model.bodies[frame.body].name == name:
                placements[frame.body], pose = pose, IDENTITY_TRANSFORM
            poses[name] = pose
            if frame.body != WORLD:
                moved = mass_moments.to_parent(pose, self._mass_moments(name, learned))
                moments[frame.body] = mass_moments.add(moments[frame.body], moved)
        return {
            "placements": placements,
            "frames": [poses[frame.name] for frame in self.model.frames],
            "regrouped": regroup(self.model, moments, placements),
        }

    def _mass_moments(self, link: str, learned: Mapping[Key, Sequence[Scalar]]) -> MassMoments:
        """Of a link about its own frame's origin; of an inertia matrix that is not symmetric, the symmetric part."""
        (mass,), com, i = (
            learned.get((link, name), self.values(link, name)) for name in ("mass", "com", "inertia_mat")
        )
        if len(i) == 9:
            i = (i[0], 0.5 * (i[1] + i[3]), 0.5 * (i[2] + i[6]), i[4], 0.5 * (i[5] + i[7]), i[8])
        xx, xy, xz, yy, yz, zz = i
        return mass_moments.from_inertia(mass, vector.vector3(com), (xx, xy, xz, yy, yz, zz))


def _stated_limits(joint: Element) -> dict[str, float]:
    """Return the limits of a joint as the file states them; 0 where it leaves out a bound, as URDF has it."""
    limit = joint.one("limit")
    if limit is None:
        return {"effort": math.inf, "lower": -math.inf, "upper": math.inf, "velocity": math.inf}
    defaults = {"effort": math.inf, "lower": 0.0, "upper": 0.0, "velocity": math.inf}
    return {name: limit.number(name, value, math.inf) for name, value in defaults.items()}
