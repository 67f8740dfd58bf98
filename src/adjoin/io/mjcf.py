"""MJCF, compiled by MuJoCo itself, so that defaults, classes, inertias from shapes and actuators are MuJoCo's own.

Differences that a reader of both should know:
- A body with several joints becomes a chain: one massless body for each joint but the last, named "body/joint".
- A body's frame in the model is its last joint's anchor; the MJCF body's own frame is the frame of the same name.
- `ref` goes into the placement, so q are MuJoCo's qpos, number by number. The initial qpos is the keyframe "qpos0".
- A free joint's linear velocity is in the body's frame here, in world axes in MuJoCo.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from adjoin.errors import Finding, Location, ModelError, Option, Subject
from adjoin.io import mjcf_unsupported
from adjoin.io.hull import MAX_VERTICES, convex_hull
from adjoin.io.mjcf_compiled import Compiled, body_names, joint_names, member, unique_names
from adjoin.io.mjcf_mechanism import FREE, Mechanism, Names, first_of
from adjoin.io.mjcf_scan import compile_document, scan
from adjoin.io.mjcf_sensors import Sensors
from adjoin.io.paths import Files
from adjoin.io.xml import Element
from adjoin.model.description import Description, JointDescription, KeyframeDescription, LinkDescription
from adjoin.model.joint import Joint, Mat3, Vec3
from adjoin.model.joint_types import JOINT_TYPES, JointType
from adjoin.model.parts import INITIAL, WORLD, Actuator, ContactPair, Geometry, HeightGrid
from adjoin.model.sensor import Sensor
from adjoin.spatial.inertia import from_principal
from adjoin.spatial.motion import IDENTITY_TRANSFORM, Transform, transform_compose
from adjoin.spatial.rotation import matrix_of, tidy
from adjoin.spatial.vector import IDENTITY, ZERO, apply_transposed, negate, subtract, vector3

_SHAPES = {
    "mjGEOM_PLANE": "plane",
    "mjGEOM_SPHERE": "sphere",
    "mjGEOM_CAPSULE": "capsule",
    "mjGEOM_ELLIPSOID": "ellipsoid",
    "mjGEOM_CYLINDER": "cylinder",
    "mjGEOM_BOX": "box",
    "mjGEOM_MESH": "hull",
}
_SIZES = {"plane": 2, "sphere": 1, "capsule": 2, "ellipsoid": 3, "cylinder": 2, "box": 3, "hull": 0}


class UnsupportedError(ModelError):
    """An MJCF has parts that Adjoin does not simulate.

    Attributes:
        parts: those, each as a few words with names.
    """

    def __init__(self, problem: str, parts: Sequence[str] = (), where: Location | None = None):
        without = Option("unsupported", "warn", "to load the model without them")
        super().__init__(problem, where=where, options=[without])
        self.parts = tuple(parts)

    def split(self) -> "list[UnsupportedError]":
        """Return one error for each part."""
        where = Location(self.file, self.line)
        return [UnsupportedError(f"not supported: {part}", [part], where) for part in self.parts]


def read(root: Element, files: Files, *, meshes: str = "hull", unsupported: str | None = None) -> Description:
    """Read a parsed MJCF document.

    Args:
        root: its `<mujoco>` element.
        files: what includes and meshes it may reach.
        meshes: "hull" reads meshes as convex hulls, "exact" with all their vertices, "ignore" leaves them out as shapes
            (they still give inertia).
        unsupported: "error" to refuse parts that are not simulated, "warn" to leave them out; by default flexes,
            plugins and SDFs are refused and the others left out.
    """
    where = Location(root.where.file)
    mujoco, compiled = compile_document(scan(root, files), where, root.findings)
    reader = _Reader(mujoco, Compiled(compiled, mujoco), where, meshes)
    try:
        description = reader.description(root.attributes.get("model", "MuJoCo Model"))
    except ModelError as error:
        error.file = where.file
        raise
    parts = [*mjcf_unsupported.find(mujoco, reader.m, reader.refused), *reader.dropped_sensors]
    if unsupported is None and any(part.startswith(mjcf_unsupported.ESSENTIAL) for part in parts):
        unsupported = "error"
    refusal = UnsupportedError(f"not supported: {'; '.join(parts)}", parts, where)
    if parts and unsupported == "error":
        raise refusal
    root.findings.found.extend(Finding(error, "left out") for error in refusal.split())
    return description


@dataclass
class _Reader:
    mujoco: Any
    m: Compiled
    where: Location
    meshes: str
    body_names: list[str] = field(default_factory=list)
    joint_names: list[str] = field(default_factory=list)
    geom_names: dict[int, str] = field(default_factory=dict)
    actuators: dict[int, Actuator] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    joints: dict[int, Joint] = field(default_factory=dict)
    terrain_geom: int | None = None
    dropped_sensors: list[str] = field(default_factory=list)

    def description(self, name: str) -> Description:
        m = self.m
        self.body_names = body_names(self.mujoco, m.raw)
        self.joint_names = joint_names(self.mujoco, m.raw, self.body_names)
        named = {kind.mjcf: kind for kind in JOINT_TYPES.values() if kind.mjcf}
        kinds = {member(self.mujoco, "mjtJoint", f"mjJNT_{key.upper()}"): kind for key, kind in named.items()}
        for j in range(m.njnt):
            self.joints[j] = self._joint(j, kinds[m.jnt_type[j]])
        links = [LinkDescription("world", self.where)]
        edges: list[JointDescription] = []
        for body in range(1, m.nbody):
            self._body(body, links, edges)
        named = {link.name: link for link in links}
        self.terrain_geom = mjcf_unsupported.terrain(self.mujoco, m)[0]
        self._geoms(named)
        sites = self._sites(named)
        names = Names(
            self.joints,
            self.body_names,
            sites,
            self._names("tendon", m.ntendon, lambda i: f"tendon{i}"),
            self._names("actuator", self.actuator_count, lambda i: f"actuator{i}"),
            self._names("equality", m.neq, lambda i: f"equality{i}"),
            self.geom_names,
        )
        mechanism = Mechanism(self.mujoco, m, names)
        self.refused = mjcf_unsupported.actuators(self.mujoco, m)
        self.actuators = {i: mechanism.actuator(i) for i in range(self.actuator_count) if i not in self.refused}
        return Description(
            name or "MuJoCo Model",
            self.where,
            links,
            edges,
            actuators=list(self.actuators.values()),
            keyframes=self._keyframes(),
            exclusions=self._exclusions(),
            pairs=self._pairs(),
            tendons=[mechanism.tendon(i) for i in range(m.ntendon)],
            equalities=mechanism.equalities(),
            sensors=self.sensors(names),
            terrain=self._terrain(),
            mocap=[self.body_names[b] for b in self._mocap_bodies],
            medium=mechanism.medium(),
            more={
                "gravity": (0.0, 0.0, 0.0) if self.m.is_off("GRAVITY") else _vector(m.opt.gravity),
                "parents_touch": self.m.is_off("FILTERPARENT"),
                "elliptic": int(m.opt.cone) == int(self.mujoco.mjtCone.mjCONE_ELLIPTIC),
                "impratio": float(m.opt.impratio),
                "integrator": self._integrator(),
                "timestep": float(m.opt.timestep),
                "magnetic_field": _vector(m.opt.magnetic),
            },
        )

    def _integrator(self) -> str:
        """Return how steps are taken; implicit is taken as implicitfast, which leaves Coriolis forces explicit."""
        kinds = self.mujoco.mjtIntegrator
        number = int(self.m.opt.integrator)
        if number == int(kinds.mjINT_RK4):
            return "RK4"
        if number != int(kinds.mjINT_EULER):
            return "implicitfast"
        return "Euler, explicit" if self.m.is_off("EULERDAMP") else "Euler"

    def _names(self, kind: str, count: int, fallback: Callable[[int], str]) -> list[str]:
        return unique_names(self.mujoco, self.m.raw, kind, count, fallback)

    def _joint(self, j: int, kind: JointType) -> Joint:
        m = self.m
        nv, first, start = kind.nv, m.jnt_dofadr[j], m.jnt_qposadr[j]
        end = first + nv
        lower, upper = m.jnt_range[j] if m.jnt_limited[j] and not m.is_off("LIMIT") else FREE
        loose = kind.floating or m.is_off("SPRING")
        effort, lopsided = math.inf, ()
        if getattr(m, "jnt_actfrclimited", None) is not None and m.jnt_actfrclimited[j]:
            ends = m.jnt_actfrcrange[j]
            effort, lopsided = max(map(abs, ends)), ends if ends[0] != -ends[1] else ()
        return Joint(
            self.joint_names[j],
            kind.name,
            axis=self._axis(j) if kind.has_axis else (0.0, 0.0, 1.0),
            lower=lower,
            upper=upper,
            effort_limit=effort,
            lopsided_effort=lopsided,
            motor_carries_weight=int(m.jnt_actgravcomp[j]),
            damping=(0.0,) * nv if m.is_off("DAMPER") else tuple(m.dof_damping[first:end]),
            friction=(0.0,) * nv if m.is_off("FRICTIONLOSS") else tuple(m.dof_frictionloss[first:end]),
            armature=tuple(m.dof_armature[first:end]),
            stiffness=(0.0 if loose else first_of(m.jnt_stiffness[j]),) * nv,
            spring_reference=tuple(m.qpos_spring[start : start + kind.nq]),
            limit_margin=m.jnt_margin[j],
            limit_solref=m.jnt_solref[j],
            limit_solimp=m.jnt_solimp[j],
            friction_solref=m.dof_solref[first],
            friction_solimp=m.dof_solimp[first],
        )

    def _axis(self, j: int) -> Vec3:
        x, y, z = self.m.jnt_axis[j]
        length = math.hypot(x, y, z)
        if not 0.5 < length < 2.0:
            # MuJoCo normalizes axes, but numbers beyond all bounds overflow on the way.
            subject = Subject("joint", self.joint_names[j])
            raise ModelError(f"axis is ({x:g} {y:g} {z:g})", subject=subject, remedy="it must be a unit vector")
        return (x, y, z) if length == 1.0 else (x / length, y / length, z / length)

    def _body(self, body: int, links: list[LinkDescription], edges: list[JointDescription]) -> None:
        m = self.m
        name, parent = self.body_names[body], self.body_names[m.body_parentid[body]]
        mass, com, lifted = m.body_mass[body], m.body_ipos[body], m.body_gravcomp[body]
        link = LinkDescription(
            name,
            self.where,
            inertial=self.where,
            mass=mass,
            com=com,
            inertia=from_principal(_rotation(m.body_iquat[body]), m.body_inertia[body]),
            compensated_mass=lifted * mass,
            compensated_com=com if lifted else ZERO,
        )
        pose: Transform = (_rotation(m.body_quat[body]), m.body_pos[body])
        first, count = m.body_jntadr[body], m.body_jntnum[body]
        anchor = ZERO
        for j in range(first, first + count):
            joint = self.joints[j]
            kind = joint.type
            if kind.floating:
                pose, here = IDENTITY_TRANSFORM, ZERO  # its qpos is the pose itself
            else:
                here = m.jnt_pos[j] if joint.kind != "prismatic" else anchor
            at = transform_compose(pose, (IDENTITY, subtract(here, anchor)))
            reference = m.qpos0[m.jnt_qposadr[j]]
            if kind.nq == 1 and reference:
                at = transform_compose(at, _back(joint, reference))
            last = j == first + count - 1
            child = link if last else LinkDescription(f"{name}/{joint.name}", self.where, massless=True, hidden=True)
            edges.append(JointDescription(joint, joint.name, self.where, parent, child.name, at[1], at[0]))
            if not last:
                links.append(child)
            parent, pose, anchor = child.name, IDENTITY_TRANSFORM, here
        link.offset = negate(anchor) if anchor != ZERO else ZERO
        if not count:
            edges.append(JointDescription(None, f"{name}/weld", self.where, parent, name, pose[1], pose[0]))
        links.append(link)

    def _geoms(self, links: dict[str, LinkDescription]) -> None:
        m = self.m
        kinds = {member(self.mujoco, "mjtGeom", key): kind for key, kind in _SHAPES.items()}
        names = self._names("geom", m.ngeom, lambda i: f"{self.body_names[m.geom_bodyid[i]]}/geom{i}")
        paired = {*m.pair_geom1, *m.pair_geom2} if m.npair else ()
        mask = 0 if m.is_off("CONTACT") else 0x7FFFFFFF
        for g in range(m.ngeom):
            kind = "plane" if g == self.terrain_geom else kinds.get(m.geom_type[g])
            contype, conaffinity, body = m.geom_contype[g], m.geom_conaffinity[g], m.geom_bodyid[g]
            touches = contype or conaffinity or g in paired
            if kind is None or (kind == "hull" and (self.meshes == "ignore" or not touches)):
                continue
            size, used = m.geom_size[g], _SIZES[kind]
            self.geom_names[g] = names[g]
            links[self.body_names[body]].geometries.append(
                Geometry(
                    names[g],
                    kind,  # type: ignore[arg-type]
                    WORLD,
                    self.body_names[body],
                    size if used == 3 else vector3((*size[:used], *ZERO[used:])),
                    m.geom_pos[g],
                    _rotation(m.geom_quat[g]),
                    **(self._hull(m.geom_dataid[g]) if kind == "hull" else {}),
                    friction=m.geom_friction[g],
                    contype=contype & mask,
                    conaffinity=conaffinity & mask,
                    condim=m.geom_condim[g],
                    priority=m.geom_priority[g],
                    margin=m.geom_margin[g],
                    gap=m.geom_gap[g],
                    solmix=m.geom_solmix[g],
                    solref=m.geom_solref[g],
                    solimp=m.geom_solimp[g],
                    inverse_weight=m.body_invweight0[body],
                )
            )

    @property
    def _mocap_bodies(self) -> list[int]:
        """Return the bodies whose poses are given, in MuJoCo's order."""
        found = [b for b in range(self.m.nbody) if self.m.body_mocapid[b] >= 0]
        return sorted(found, key=lambda b: self.m.body_mocapid[b])

    def _terrain(self) -> list[HeightGrid]:
        """Return the height field."""
        if self.terrain_geom is None:
            return []
        m, field = self.m, int(self.m.geom_dataid[self.terrain_geom])
        x, y, top, base = m.hfield_size[field]
        rows, columns = int(m.hfield_nrow[field]), int(m.hfield_ncol[field])
        start = int(m.hfield_adr[field])
        heights = np.array(m.raw.hfield_data[start : start + rows * columns], dtype=float).reshape(rows, columns)
        spacing = (2.0 * x / (columns - 1), 2.0 * y / (rows - 1))
        table = tuple(map(tuple, (top * heights).tolist()))
        return [HeightGrid(self.geom_names[self.terrain_geom], table, spacing, (-x, -y, 0.0), base)]

    def _hull(self, mesh: int) -> dict[str, Any]:
        """Return the vertices of a mesh's hull, and its faces where it is MuJoCo's own."""
        m = self.m
        start, count = int(m.mesh_vertadr[mesh]), int(m.mesh_vertnum[mesh])
        points = np.array(m.raw.mesh_vert[start : start + count], dtype=np.float64)
        at = int(m.mesh_graphadr[mesh])
        if at < 0:
            hull = np.unique(points, axis=0) if self.meshes == "exact" else convex_hull(points)
            return {"vertices": tuple(map(tuple, hull.tolist()))}
        # MuJoCo's hull: how many vertices and faces, where the edges of each vertex are, and its number.
        size = int(m.raw.mesh_graph[at])
        own = m.raw.mesh_graph[at + 2 + size : at + 2 + 2 * size]
        if self.meshes != "exact" and size > MAX_VERTICES:
            return {"vertices": tuple(map(tuple, convex_hull(points[own]).tolist()))}
        return {"vertices": tuple(map(tuple, points[own].tolist())), "faces": self._faces(mesh, own, count)}

    def _faces(self, mesh: int, own: np.ndarray, count: int) -> tuple[float, ...]:
        """Return the polygons of a hull; none from versions of MuJoCo that have no polygons."""
        m = self.m
        if not hasattr(m, "mesh_polyadr"):
            return ()
        first, polygons = int(m.mesh_polyadr[mesh]), int(m.mesh_polynum[mesh])
        sizes = m.raw.mesh_polyvertnum[first : first + polygons]
        start = int(m.mesh_polyvertadr[first]) if polygons else 0
        places = np.full(count, -1)
        places[own] = np.arange(len(own))
        corners = places[m.raw.mesh_polyvert[start : start + int(sizes.sum())]]
        if corners.min(initial=0) < 0:
            return ()
        return tuple(np.insert(corners, np.cumsum(sizes), -1).astype(float).tolist())

    def _sites(self, links: dict[str, LinkDescription]) -> list[str]:
        """Add the sites to their links, and return the names of their frames."""
        m = self.m
        names = self._names("site", m.nsite, lambda i: f"{self.body_names[m.site_bodyid[i]]}/site{i}")
        # A body and a site may share a name in MJCF; frames may not.
        names = [name if name not in links else f"{name}/site" for name in names]
        for s, name in enumerate(names):
            body = links[self.body_names[m.site_bodyid[s]]]
            body.sites.append((name, m.site_pos[s], _rotation(m.site_quat[s])))
        return names

    def sensors(self, names: Names) -> list[Sensor]:
        """Return the sensors that are supported, and note the others."""
        kept = frozenset(actuator.name for actuator in self.actuators.values())
        own = self._names("sensor", self.m.nsensor, lambda i: f"sensor{i}")
        found, others = Sensors(self.mujoco, self.m, names, kept).read(own)
        for kind in dict.fromkeys(kind for _, kind in others):
            listed = [own[i] for i, other in others if other == kind]
            more = f", ... ({len(listed) - 10} more)" if len(listed) > 10 else ""
            self.dropped_sensors.append(f"sensors of kind {kind} ({', '.join(listed[:10])}{more})")
        return found

    @property
    def actuator_count(self) -> int:
        """Return how many actuators there are; some have several controls."""
        return int(getattr(self.m, "nactuator", self.m.nu))

    def _keyframes(self) -> list[KeyframeDescription]:
        m = self.m
        keys = []
        if m.nq:
            keys.append(self._state(INITIAL, m.qpos0, [0.0] * m.nv))
        names = self._names("key", m.nkey, lambda i: f"key{i}")
        places = m.actuator_ctrladr if hasattr(m, "actuator_ctrladr") else range(m.nu)
        for k in range(m.nkey):
            name = names[k] if names[k] != INITIAL else f"{INITIAL}/key{k}"
            key = self._state(name, m.key_qpos[k], m.key_qvel[k])
            for i, actuator in self.actuators.items():
                key.control[actuator.name] = float(m.key_ctrl[k][int(places[i])])
                if actuator.dynamics != "none":
                    key.activation[actuator.name] = float(m.key_act[k][int(m.actuator_actadr[i])])
            for i, body in enumerate(self._mocap_bodies):
                poses = [m.raw.key_mpos[k].reshape(-1, 3)[i], m.raw.key_mquat[k].reshape(-1, 4)[i]]
                key.mocap[self.body_names[body]] = (*poses[0].tolist(), *poses[1].tolist())
            keys.append(key)
        return keys

    def _state(self, name: str, qpos: Sequence[float], qvel: Sequence[float]) -> KeyframeDescription:
        key = KeyframeDescription(name, {})
        for j, joint in self.joints.items():
            q, v, kind = self.m.jnt_qposadr[j], self.m.jnt_dofadr[j], joint.type
            key.q[joint.name] = tuple(qpos[q : q + kind.nq])
            rate = tuple(qvel[v : v + kind.nv])
            if kind.floating:
                # MuJoCo's linear velocity is in world axes; ours is in the body's.
                turn = _rotation(qpos[q + 3 : q + 7])
                rate = (*apply_transposed(turn, vector3(rate[:3])), *rate[3:])
            key.v[joint.name] = rate
        return key

    def _exclusions(self) -> list[tuple[str, str]]:
        if not self.m.nexclude:
            return []
        first = _first_body(self.mujoco)
        ends = [(int(s) >> 16, int(s) & 0xFFFF) for s in self.m.exclude_signature]
        return [(self.body_names[a - first], self.body_names[b - first]) for a, b in ends]

    def _pairs(self) -> list[ContactPair]:
        m = self.m
        if self.m.is_off("CONTACT"):
            return []
        pairs = []
        for p in range(m.npair):
            first, second = m.pair_geom1[p], m.pair_geom2[p]
            if first in self.geom_names and second in self.geom_names:
                pairs.append(
                    ContactPair(
                        self.geom_names[first],
                        self.geom_names[second],
                        friction=m.pair_friction[p],
                        condim=m.pair_dim[p],
                        margin=m.pair_margin[p],
                        gap=m.pair_gap[p],
                        solref=m.pair_solref[p],
                        solimp=m.pair_solimp[p],
                    )
                )
        return pairs


@cache
def _first_body(mujoco: Any) -> int:
    """Return what signatures of excluded pairs count bodies from: before MuJoCo 3 from one. A known pair tells."""
    known = '<body name="a"/><body name="b"/>', '<exclude body1="a" body2="b"/>'
    text = f"<mujoco><worldbody>{known[0]}</worldbody><contact>{known[1]}</contact></mujoco>"
    return (int(mujoco.MjModel.from_xml_string(text).exclude_signature[0]) >> 16) - 1


def _back(joint: Joint, reference: float) -> Transform:
    """Return the motion that undoes MuJoCo's reference position: the joint turns or slides by qpos - ref."""
    rotation, position = joint.type.transform(joint, [-reference])
    return tidy(rotation), position


def _vector(values: Any) -> Vec3:
    x, y, z = values
    return (float(x), float(y), float(z))


def _rotation(quaternion: Sequence[float]) -> Mat3:
    w, x, y, z = quaternion
    if not 0.5 < math.hypot(w, x, y, z) < 2.0:
        # MuJoCo normalizes quaternions, but numbers beyond all bounds overflow on the way.
        problem = f"an orientation is ({w:g} {x:g} {y:g} {z:g})"
        raise ModelError(problem, remedy="it must be a unit quaternion")
    return matrix_of(w, x, y, z)
