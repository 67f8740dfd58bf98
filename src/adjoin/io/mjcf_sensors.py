"""Sensors of a compiled MJCF."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from adjoin.io.mjcf_mechanism import Names, rotation_of
from adjoin.model.joint import Mat3, Vec3
from adjoin.model.sensor import CONTACT_FIELDS, CONTACT_REDUCTIONS, SENSOR_SIZES, TAXEL, Sensor
from adjoin.spatial.inertia import Inertia, combined, transformed
from adjoin.spatial.motion import transform_inverse, transform_multiply
from adjoin.spatial.vector import IDENTITY, ZERO, vector3

ON_JOINTS = ("jointpos", "jointvel", "jointactuatorfrc", "ballquat", "ballangvel")
ON_JOINTS += ("jointlimitpos", "jointlimitvel", "jointlimitfrc")
ON_TENDONS = ("tendonpos", "tendonvel", "tendonactuatorfrc", "tendonlimitpos", "tendonlimitvel", "tendonlimitfrc")
ON_ACTUATORS = ("actuatorpos", "actuatorvel", "actuatorfrc")
ON_BODIES = ("subtreecom", "subtreelinvel", "subtreeangmom")
ZONES = {"SPHERE": "sphere", "CAPSULE": "capsule", "ELLIPSOID": "ellipsoid", "CYLINDER": "cylinder", "BOX": "box"}
RENAMED = {"jointactfrc": "jointactuatorfrc", "tendonactfrc": "tendonactuatorfrc"}


@dataclass(frozen=True)
class Sensors:
    """Reads the sensors of a compiled model.

    Attributes:
        mujoco: the module.
        m: its model.
        names: of its parts.
        kept: names of the actuators that are supported.
    """

    mujoco: Any
    m: Any
    names: Names
    kept: frozenset[str]

    def read(self, names: list[str]) -> tuple[list[Sensor], list[tuple[int, str]]]:
        """Return the sensors that are supported, and the numbers and kinds of the others."""
        found, others = [], []
        for i, name in enumerate(names):
            kind = self.kind(i)
            sensor = self._sensor(i, name, kind) if kind in SENSOR_SIZES else None
            if sensor is None:
                others.append((i, kind))
            else:
                found.append(sensor)
        return found, others

    def kind(self, i: int) -> str:
        """Return the kind of a sensor, as MJCF names it."""
        name = str(self.mujoco.mjtSensor(int(self.m.sensor_type[i])).name).removeprefix("mjSENS_").lower()
        return RENAMED.get(name, name)

    def _sensor(self, i: int, name: str, kind: str) -> Sensor | None:
        m, number = self.m, int(self.m.sensor_objid[i])
        common: dict[str, Any] = {"cutoff": float(m.sensor_cutoff[i]), "noise": float(m.sensor_noise[i])}
        if hasattr(m, "sensor_delay"):
            common["delay"] = float(m.sensor_delay[i])
            common["interval"], common["phase"] = (float(x) for x in m.sensor_interval[i])
        if kind == "contact":
            return self._contact(i, name, common)
        if kind == "tactile":
            return self._tactile(i, name, common)
        if kind == "user":
            return Sensor(name, kind, slots=int(m.sensor_dim[i]), **common)
        if int(m.sensor_dim[i]) != SENSOR_SIZES[kind]:
            return None
        if kind in ON_JOINTS:
            return Sensor(name, kind, self.names.joints[number].name, **common)
        if kind in ON_TENDONS:
            return Sensor(name, kind, self.names.tendons[number], **common)
        if kind in ON_ACTUATORS:
            target = self.names.actuators[number]
            return Sensor(name, kind, target, **common) if target in self.kept else None
        if kind in ON_BODIES:
            # Links without joints are parts of the body that they are welded to.
            fixed = [mass for mass, weld in zip(m.body_mass, m.body_weldid, strict=True) if not weld]
            alone = m.body_jntnum[number] > 0 if number else not any(fixed)
            return Sensor(name, kind, self.names.bodies[number], **common) if alone else None
        if kind in ("e_kinetic", "e_potential", "clock"):
            return Sensor(name, kind, **common)
        if kind in ("geomdist", "geomnormal", "geomfromto"):
            ends = (
                self._shapes(int(m.sensor_objtype[i]), number),
                self._shapes(int(m.sensor_reftype[i]), m.sensor_refid[i]),
            )
            return Sensor(name, kind, "\n".join(ends[0]), reference="\n".join(ends[1]), **common) if all(ends) else None
        frame = self._frame(int(m.sensor_objtype[i]), number)
        if frame is None:
            return None
        target, position, rotation = frame
        common |= {"position": position, "rotation": rotation}
        if kind in ("touch", "rangefinder"):
            body = self.names.bodies[int(m.site_bodyid[number])]
            zone, size = self._zone(number)
            return Sensor(name, kind, target, reference=body, zone=zone, size=size, **common)
        if kind in ("force", "torque"):
            return Sensor(name, kind, target, **common, **self._carried(number))
        other = int(m.sensor_refid[i])
        if kind == "camprojection":
            common |= {"image": self._image(other)}
        if kind == "insidesite":
            zone, size = self._zone(other)
            return Sensor(name, kind, target, reference=self.names.sites[other], zone=zone, size=size, **common)
        if other >= 0 and kind.startswith(("frame", "cam")):
            reference = self._frame(int(m.sensor_reftype[i]), other)
            if reference is None:
                return None
            common |= {"reference": reference[0], "reference_position": reference[1]}
            common["reference_rotation"] = reference[2]
        return Sensor(name, kind, target, **common)

    def _contact(self, i: int, name: str, common: dict[str, Any]) -> Sensor | None:
        """Return a contact sensor; none where it measures or matches what is not supported."""
        m = self.m
        fields, reduce = (int(x) for x in m.sensor_intprm[i][:2])
        kinds = self.mujoco.mjtConDataField.__members__
        bits = {key.removeprefix("mjCONDATA_").lower(): int(bit) for key, bit in kinds.items()}
        asked = [field for field, bit in bits.items() if fields >> bit & 1]
        ends = [(int(m.sensor_objtype[i]), int(m.sensor_objid[i])), (int(m.sensor_reftype[i]), int(m.sensor_refid[i]))]
        if ends[0][0] == int(self.mujoco.mjtObj.mjOBJ_SITE):
            site = ends[0][1]
            zone, extent = self._zone(site)
            common |= {"site": self.names.sites[site], "zone": zone, "size": extent}
            ends[0] = (int(self.mujoco.mjtObj.mjOBJ_UNKNOWN), -1)
        sides = [self._side(*end) for end in ends]
        if not set(asked) <= set(CONTACT_FIELDS) or sides[0] is None or sides[1] is None:
            return None
        size = sum(CONTACT_FIELDS[field] for field in asked)
        return Sensor(
            name,
            "contact",
            "\n".join(sides[0]),
            reference="\n".join(sides[1]),
            data=" ".join(field for field in CONTACT_FIELDS if field in asked),
            reduce=CONTACT_REDUCTIONS[reduce],
            slots=int(m.sensor_dim[i]) // size,
            **{**common, "cutoff": 0.0},
        )

    def _tactile(self, i: int, name: str, common: dict[str, Any]) -> Sensor | None:
        """Return a tactile sensor, whose points are the vertices of a mesh."""
        m, mesh = self.m, int(self.m.sensor_objid[i])
        frame = self._frame(int(m.sensor_reftype[i]), int(m.sensor_refid[i]))
        first, count = int(m.mesh_vertadr[mesh]), int(m.mesh_vertnum[mesh])
        points = np.zeros((count, TAXEL))
        points[:, :3] = np.array(m.mesh_vert)[first : first + count]
        if int(m.mesh_normalnum[mesh]) == 3 * count:
            begin = int(m.mesh_normaladr[mesh])
            points[:, 3:] = np.array(m.mesh_normal)[begin : begin + 3 * count].reshape(count, 9)[:, 3:]
        if frame is None:
            return None
        target, position, rotation = frame
        common |= {"position": position, "rotation": rotation, "rays": tuple(points.ravel().tolist())}
        return Sensor(name, "tactile", target, slots=int(m.sensor_dim[i]) // count, **common)

    def _image(self, camera: int) -> tuple[float, ...]:
        """Return the focal lengths of a camera and the middle of its image, pixels."""
        m = self.m
        wide, high = (float(x) for x in m.cam_resolution[camera])
        sizes = [float(x) for x in m.cam_sensorsize[camera]]
        focal = [0.5 / math.tan(math.radians(float(m.cam_fovy[camera])) / 2.0) * high] * 2
        if all(sizes):
            lengths = [float(x) for x in m.cam_intrinsic[camera][:2]]
            focal = [lengths[0] / sizes[0] * wide, lengths[1] / sizes[1] * high]
        return (*focal, 0.5 * wide, 0.5 * high)

    def _side(self, kind: int, number: int) -> list[str] | None:
        """Return the shapes of one side of a contact sensor: empty for any; None if some are left out."""
        m, kinds = self.m, self.mujoco.mjtObj
        if kind == int(kinds.mjOBJ_UNKNOWN):
            return []
        bodies = {number}
        if kind == int(kinds.mjOBJ_XBODY):
            for body in range(number + 1, m.nbody):
                if int(m.body_parentid[body]) in bodies:
                    bodies.add(body)
        elif kind == int(kinds.mjOBJ_GEOM):
            return self._shapes(kind, number) or None
        elif kind != int(kinds.mjOBJ_BODY):
            return None
        touching = [g for g in range(m.ngeom) if int(m.geom_bodyid[g]) in bodies and self._touches(g)]
        return [self.names.shapes[g] for g in touching] if all(g in self.names.shapes for g in touching) else None

    def _touches(self, geom: int) -> bool:
        m = self.m
        paired = geom in m.pair_geom1 or geom in m.pair_geom2
        return bool(m.geom_contype[geom] or m.geom_conaffinity[geom] or paired)

    def _zone(self, site: int) -> tuple[str, Vec3]:
        """Return the shape of a site and its size."""
        zones = {int(getattr(self.mujoco.mjtGeom, f"mjGEOM_{key}")): zone for key, zone in ZONES.items()}
        return zones.get(int(self.m.site_type[site]), "box"), vector3([float(x) for x in self.m.site_size[site]])

    def _shapes(self, kind: int, number: int) -> list[str]:
        """Return the shapes that a distance is measured of: one, or those of a body; none if some are left out."""
        if kind == int(self.mujoco.mjtObj.mjOBJ_GEOM):
            numbers = [number]
        else:
            numbers = [g for g in range(self.m.ngeom) if self.m.geom_bodyid[g] == number]
        return [self.names.shapes[g] for g in numbers] if all(g in self.names.shapes for g in numbers) else []

    def _carried(self, site: int) -> dict[str, Any]:
        """Return what the link of a site carries if it is welded on; nothing if it is a body of its own."""
        m, link = self.m, int(self.m.site_bodyid[site])
        if m.body_jntnum[link]:
            return {}
        parents = m.body_parentid
        here = rotation_of(m.site_quat[site]), vector3([float(x) for x in m.site_pos[site]])
        poses = {link: transform_inverse(here)}
        beyond = [link]
        for body in range(link + 1, m.nbody):
            if int(parents[body]) in beyond:
                beyond.append(body)
            if int(parents[body]) in poses and not m.body_jntnum[body]:
                place = rotation_of(m.body_quat[body]), vector3([float(x) for x in m.body_pos[body]])
                poses[body] = transform_multiply(poses[int(parents[body])], place)
        whole: Inertia = (0.0, ZERO, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
        for body, pose in poses.items():
            a, b, c = (float(x) for x in m.body_inertia[body])
            principal = rotation_of(m.body_iquat[body]), vector3([float(x) for x in m.body_ipos[body]])
            part = transformed(
                transform_multiply(pose, principal), (float(m.body_mass[body]), ZERO, (a, 0.0, 0.0, b, 0.0, c))
            )
            whole = combined(whole, part)
        names = [self.names.bodies[body] for body in beyond]
        names += [name for k, name in enumerate(self.names.sites) if int(m.site_bodyid[k]) in beyond]
        return {"carried": "\n".join(names), "carried_inertia": (whole[0], *whole[1], *whole[2])}

    def _frame(self, kind: int, number: int) -> tuple[str, Vec3, Mat3] | None:
        """Return the frame that an object of MuJoCo is on, and where."""
        m, kinds = self.m, self.mujoco.mjtObj
        if kind == int(kinds.mjOBJ_SITE):
            return self.names.sites[number], ZERO, IDENTITY
        if kind == int(kinds.mjOBJ_XBODY):
            return self.names.bodies[number], ZERO, IDENTITY
        places = {int(kinds.mjOBJ_BODY): (number, m.body_ipos, m.body_iquat)}
        if kind == int(kinds.mjOBJ_GEOM):
            places[kind] = (int(m.geom_bodyid[number]), m.geom_pos, m.geom_quat)
        if kind == int(kinds.mjOBJ_CAMERA) and not int(m.cam_mode[number]):
            places[kind] = (int(m.cam_bodyid[number]), m.cam_pos, m.cam_quat)
        if kind not in places:
            return None
        body, positions, turns = places[kind]
        position = vector3([float(x) for x in positions[number]])
        return self.names.bodies[body], position, rotation_of(turns[number])
