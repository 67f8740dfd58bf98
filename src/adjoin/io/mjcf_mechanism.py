"""Actuators, tendons and equalities of a compiled MJCF."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from adjoin.io.mjcf_compiled import Compiled, member
from adjoin.model.equality import EqualityConstraint
from adjoin.model.fluid import VACUUM, FluidShape, Medium
from adjoin.model.joint import Joint, Mat3
from adjoin.model.parts import Actuator
from adjoin.model.tendon import Tendon, Waypoint
from adjoin.spatial.rotation import matrix_of
from adjoin.spatial.vector import IDENTITY, ZERO, vector3

FREE = (-math.inf, math.inf)


@dataclass(frozen=True)
class Names:
    """What the parts of a compiled model are called, by their numbers.

    Attributes:
        joints: the joints.
        bodies: names of bodies.
        sites: names of the frames that sites became.
        tendons: names.
        actuators: names.
        equalities: names.
        shapes: names of the shapes that are kept.
    """

    joints: Mapping[int, Joint]
    bodies: Sequence[str]
    sites: Sequence[str]
    tendons: Sequence[str]
    actuators: Sequence[str]
    equalities: Sequence[str]
    shapes: Mapping[int, str]


@dataclass(frozen=True)
class Mechanism:
    """Reads what drives and couples the joints of a compiled model.

    Attributes:
        mujoco: the module.
        m: its model.
        names: of its parts.
    """

    mujoco: Any
    m: Compiled
    names: Names

    def _member(self, enum: str, key: str) -> int:
        return member(self.mujoco, enum, key)

    # Actuators

    def actuator(self, i: int) -> Actuator:
        """Return an actuator that is supported."""
        m, codes = self.m, _drive_codes(self.mujoco)
        out = m.actuator_outadr[i] if hasattr(m, "actuator_outadr") else i
        gain_kind, bias_kind = m.actuator_gaintype[i], m.actuator_biastype[i]
        gain, bias = m.actuator_gainprm[i], m.actuator_biasprm[i]
        is_muscle, is_stretched = gain_kind == codes.muscle_gain, bias_kind == codes.muscle_bias
        muscle = (*m.actuator_lengthrange[out], m.actuator_acc0[out]) if is_muscle or is_stretched else ()
        clamped = m.actuator_ctrllimited[i] and not m.is_off("CLAMPCTRL")
        group = m.actuator_group[i]
        group_off = m.opt.disableactuator >> group & 1 if group >= 0 else 0
        return Actuator(
            self.names.actuators[i],
            gain=1.0 if is_muscle else gain[0],
            bias=bias[:3] if bias_kind == codes.affine_bias else ZERO,
            control_range=m.actuator_ctrlrange[i] if clamped else FREE,
            force_range=m.actuator_forcerange[i] if m.actuator_forcelimited[i] else FREE,
            gain_slope=gain[1:3] if gain_kind == codes.affine_gain else (0.0, 0.0),
            dynamics=codes.dynamics[m.actuator_dyntype[i]],  # type: ignore[arg-type]
            dynamics_constants=m.actuator_dynprm[i][:3],
            activation_range=m.actuator_actrange[i] if m.actuator_actlimited[i] else FREE,
            early=int(m.actuator_actearly[i]),
            muscle_gain=(*gain[:9], *muscle) if is_muscle else (),
            muscle_bias=(*bias[:9], *muscle) if is_stretched else (),
            enabled=0 if group_off or m.is_off("ACTUATION") else 1,
            **self._transmission(codes, i, m.actuator_gear[out], m.actuator_cranklength[out]),
        )

    def _transmission(self, codes: "_DriveCodes", i: int, gear: tuple[float, ...], crank: float) -> dict[str, Any]:
        kind, (first, second) = self.m.actuator_trntype[i], self.m.actuator_trnid[i]
        sites = self.names.sites
        if kind == codes.tendon:
            return {"tendon": self.names.tendons[first], "gear": gear[:1]}
        if kind == codes.site:
            return {"site": sites[first], "gear": gear[:6], "reference": sites[second] if second >= 0 else ""}
        if kind == codes.slider_crank:
            parts = {"site": sites[first], "reference": sites[second]}
            return {**parts, "gear": gear[:1], "crank_length": crank}
        if kind == codes.body:
            return {"body": self.names.bodies[first], "gear": gear[:1]}
        joint = self.names.joints[first]
        type_ = joint.type
        axes = "mixed" if type_.floating else "body"
        if kind == codes.joint_in_parent and type_.nv > 1:
            axes = "parent"
        return {"joint": joint.name, "gear": gear[: type_.nv], "axes": axes}

    # Tendons

    def tendon(self, i: int) -> Tendon:
        """Return a tendon."""
        m = self.m
        first, count = int(m.tendon_adr[i]), int(m.tendon_num[i])
        limited, bounded = bool(m.tendon_limited[i]), bool(m.tendon_actfrclimited[i])
        passive = not self.m.is_off("SPRING"), not self.m.is_off("DAMPER")
        rest = _pair(m.tendon_lengthspring[i])
        return Tendon(
            self.names.tendons[i],
            tuple(self._waypoint(first + k) for k in range(count)),
            stiffness=first_of(m.tendon_stiffness[i]) if passive[0] else 0.0,
            damping=first_of(m.tendon_damping[i]) if passive[1] else 0.0,
            friction=0.0 if self.m.is_off("FRICTIONLOSS") else float(m.tendon_frictionloss[i]),
            spring_length=rest,
            lower=float(m.tendon_range[i][0]) if limited and not self.m.is_off("LIMIT") else -math.inf,
            upper=float(m.tendon_range[i][1]) if limited and not self.m.is_off("LIMIT") else math.inf,
            effort_range=_pair(m.tendon_actfrcrange[i]) if bounded else FREE,
            margin=float(m.tendon_margin[i]),
            limit_solref=_pair(m.tendon_solref_lim[i]),
            limit_solimp=_floats(m.tendon_solimp_lim[i][:5]),  # type: ignore[arg-type]
            friction_solref=_pair(m.tendon_solref_fri[i]),
            friction_solimp=_floats(m.tendon_solimp_fri[i][:5]),  # type: ignore[arg-type]
            inverse_weight=float(m.tendon_invweight0[i]),
        )

    def _waypoint(self, w: int) -> Waypoint:
        m, number = self.m, int(self.m.wrap_objid[w])
        kind, constant = int(m.wrap_type[w]), float(m.wrap_prm[w])
        if kind == self._member("mjtWrap", "mjWRAP_JOINT"):
            return Waypoint("joint", self.names.joints[number].name, constant)
        if kind == self._member("mjtWrap", "mjWRAP_PULLEY"):
            return Waypoint("pulley", factor=constant)
        if kind == self._member("mjtWrap", "mjWRAP_SITE"):
            return Waypoint("site", self.names.sites[number])
        shape = "sphere" if kind == self._member("mjtWrap", "mjWRAP_SPHERE") else "cylinder"
        return Waypoint(
            shape,
            self.names.bodies[int(m.geom_bodyid[number])],
            position=vector3(_floats(m.geom_pos[number])),
            rotation=rotation_of(m.geom_quat[number]),
            radius=float(m.geom_size[number][0]),
            side=self.names.sites[round(constant)] if constant >= 0.0 else "",
            inside=int(constant >= 0.0 and self._is_inside(round(constant), number)),
        )

    def _is_inside(self, side: int, shape: int) -> bool:
        """Return whether a side site is in the sphere or cylinder that it is for, so that the tendon runs inside."""
        m = self.m
        if m.site_bodyid[side] != m.geom_bodyid[shape]:
            return False
        return math.dist(m.site_pos[side], m.geom_pos[shape]) < m.geom_size[shape][0]

    # The medium

    def medium(self) -> Medium:
        """Return what the bodies move in: each body is a box, or its shapes are ellipsoids."""
        m = self.m
        density, viscosity = float(m.opt.density), float(m.opt.viscosity)
        if not (density or viscosity) or (self.m.is_off("SPRING") and self.m.is_off("DAMPER")):
            return VACUUM
        shapes: list[FluidShape] = []
        for body in range(1, m.nbody):
            if m.body_mass[body] < 1e-15:
                continue
            first, count = int(m.body_geomadr[body]), int(m.body_geomnum[body])
            round_ones = [g for g in range(first, first + count) if m.geom_fluid[g][0] > 0.0]
            shapes += [self._ellipsoid(g) for g in round_ones] or [self._box(body)]
        return Medium(density, viscosity, vector3(_floats(m.opt.wind)), tuple(shapes))

    def _box(self, body: int) -> FluidShape:
        m = self.m
        a, b, c = _floats(m.body_inertia[body])
        squares = [6.0 * max(1e-15, x) / float(m.body_mass[body]) for x in (b + c - a, a + c - b, a + b - c)]
        return FluidShape(
            self.names.bodies[body],
            vector3(_floats(m.body_ipos[body])),
            rotation_of(m.body_iquat[body]),
            vector3([math.sqrt(x) for x in squares]),
        )

    def _ellipsoid(self, g: int) -> FluidShape:
        m, size = self.m, _floats(self.m.geom_size[g])
        kind = int(m.geom_type[g])
        if kind == self._member("mjtGeom", "mjGEOM_SPHERE"):
            size = (size[0], size[0], size[0])
        elif kind == self._member("mjtGeom", "mjGEOM_CAPSULE"):
            size = (size[0], size[0], size[1] + size[0])
        elif kind == self._member("mjtGeom", "mjGEOM_CYLINDER"):
            size = (size[0], size[0], size[1])
        return FluidShape(
            self.names.bodies[int(m.geom_bodyid[g])],
            vector3(_floats(m.geom_pos[g])),
            rotation_of(m.geom_quat[g]),
            vector3(size),
            _floats(m.geom_fluid[g]),
        )

    # Equalities

    def equalities(self) -> list[EqualityConstraint]:
        """Return what is held together, without what is not supported."""
        if not self.m.neq or self.m.is_off("EQUALITY"):
            return []
        kinds = {self._member("mjtEq", f"mjEQ_{key.upper()}"): key for key in EQUALITIES}
        found = []
        for i in range(self.m.neq):
            kind = kinds.get(int(self.m.eq_type[i]))
            if kind is not None:
                found.append(self._equality(i, kind))
        return found

    def _equality(self, i: int, kind: str) -> EqualityConstraint:
        m = self.m
        first, second, data = int(m.eq_obj1id[i]), int(m.eq_obj2id[i]), _floats(m.eq_data[i])
        common: dict[str, Any] = {
            "active": float(m.eq_active0[i]),
            "solref": _pair(m.eq_solref[i]),
            "solimp": _floats(m.eq_solimp[i][:5]),
        }
        name = self.names.equalities[i]
        if kind in ("joint", "tendon"):
            ends = [number for number in (first, second) if number >= 0]
            if kind == "joint":
                names = [self.names.joints[number].name for number in ends]
                zeros = [float(m.qpos0[m.jnt_qposadr[number]]) for number in ends]
                light = sum(float(m.dof_invweight0[m.jnt_dofadr[number]]) for number in ends)
            else:
                names = [self.names.tendons[number] for number in ends]
                zeros = [float(m.tendon_length0[number]) for number in ends]
                light = sum(float(m.tendon_invweight0[number]) for number in ends)
            names, zeros = [*names, ""][:2], [*zeros, 0.0][:2]
            return EqualityConstraint(
                name,
                kind,  # type: ignore[arg-type]
                names[0],
                names[1],
                coefficients=data[:5],  # type: ignore[arg-type]
                reference=zeros[0],
                other_reference=zeros[1],
                inverse_weight=(light, light),
                **common,
            )
        on_sites = int(m.eq_objtype[i]) == self._member("mjtObj", "mjOBJ_SITE")
        names = [(self.names.sites if on_sites else self.names.bodies)[number] for number in (first, second)]
        bodies = [int(m.site_bodyid[number]) if on_sites else number for number in (first, second)]
        near, far = (ZERO, ZERO) if on_sites else (vector3(data[:3]), vector3(data[3:6]))
        if kind == "weld":
            near, far = far, near
        weights = [sum(float(m.body_invweight0[body][k]) for body in bodies) for k in (0, 1)]
        return EqualityConstraint(
            name,
            kind,  # type: ignore[arg-type]
            names[0],
            names[1],
            position=near,
            other_position=far,
            rotation=rotation_of(data[6:10]) if kind == "weld" and not on_sites else IDENTITY,
            torque_scale=data[10] if kind == "weld" else 1.0,
            inverse_weight=(weights[0], weights[1]),
            **common,
        )


class _DriveCodes(NamedTuple):
    """Numbers that MuJoCo has for types of actuators."""

    muscle_gain: int
    affine_gain: int
    muscle_bias: int
    affine_bias: int
    tendon: int
    site: int
    slider_crank: int
    body: int
    joint_in_parent: int
    dynamics: dict[int, str]


@cache
def _drive_codes(mujoco: Any) -> _DriveCodes:
    """Return the numbers of types of actuators in this version of MuJoCo."""
    return _DriveCodes(
        member(mujoco, "mjtGain", "mjGAIN_MUSCLE"),
        member(mujoco, "mjtGain", "mjGAIN_AFFINE"),
        member(mujoco, "mjtBias", "mjBIAS_MUSCLE"),
        member(mujoco, "mjtBias", "mjBIAS_AFFINE"),
        member(mujoco, "mjtTrn", "mjTRN_TENDON"),
        member(mujoco, "mjtTrn", "mjTRN_SITE"),
        member(mujoco, "mjtTrn", "mjTRN_SLIDERCRANK"),
        member(mujoco, "mjtTrn", "mjTRN_BODY"),
        member(mujoco, "mjtTrn", "mjTRN_JOINTINPARENT"),
        {member(mujoco, "mjtDyn", f"mjDYN_{key.upper()}"): key for key in _DYNAMICS},
    )


_DYNAMICS = ("none", "integrator", "filter", "filterexact", "muscle")
EQUALITIES = ("connect", "weld", "joint", "tendon")
"""Kinds of equalities that are supported."""


def rotation_of(quaternion: Sequence[float]) -> Mat3:
    """Return the rotation matrix of a quaternion of any length but zero."""
    w, x, y, z = quaternion
    return matrix_of(w, x, y, z)


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(map(float, values))


def _pair(values: Any) -> tuple[float, float]:
    return float(values[0]), float(values[1])


def first_of(values: Any) -> float:
    """Return the first of several coefficients, or the only one."""
    return float(values[0] if hasattr(values, "__len__") else values)
