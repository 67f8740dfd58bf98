"""What a compiled MJCF has that Adjoin does not simulate, named in one list."""

from collections.abc import Iterable
from typing import Any

import numpy as np

EQUALITIES = ("CONNECT", "WELD", "JOINT", "TENDON")


def find(mujoco: Any, m: Any) -> list[str]:
    """Return the unsupported parts, each as a few words with names; empty if there are none."""
    out: list[str] = []

    def names(kind: str, indices: Iterable[int]) -> str:
        code = int(getattr(mujoco.mjtObj, f"mjOBJ_{kind}"))
        listed = [mujoco.mj_id2name(m, code, int(i)) or f"#{int(i)}" for i in indices]
        return ", ".join(listed[:10]) + (f", ... ({len(listed) - 10} more)" if len(listed) > 10 else "")

    def add(what: str, kind: str, indices: Iterable[int]) -> None:
        indices = list(indices)
        if indices:
            out.append(f"{what} ({names(kind, indices)})")

    known = [int(getattr(mujoco.mjtEq, f"mjEQ_{name}")) for name in EQUALITIES]
    add("equality constraints of flexes", "EQUALITY", [i for i in range(m.neq) if int(m.eq_type[i]) not in known])
    _tendons(mujoco, m, add)
    if getattr(m, "nflex", 0):
        out.append(f"flexes ({m.nflex})")
    if getattr(m, "nplugin", 0):
        out.append(f"plugins ({m.nplugin})")
    fields = {int(mujoco.mjtGeom.mjGEOM_HFIELD): "height fields", int(_member(mujoco, "mjGEOM_SDF")): "SDF shapes"}
    for code, what in fields.items():
        add(what, "GEOM", np.flatnonzero(np.array(m.geom_type) == code))
    _joints(mujoco, m, add)
    drives: dict[str, list[int]] = {}
    for i in range(int(getattr(m, "nactuator", m.nu))):
        reason = actuator(mujoco, m, i)
        if reason is not None:
            drives.setdefault(reason, []).append(i)
    for reason, indices in drives.items():
        add(f"actuators with {reason}", "ACTUATOR", indices)
    if int(m.opt.enableflags) & int(mujoco.mjtEnableBit.mjENBL_OVERRIDE):
        out.append("contact override (option flag)")
    if int(m.opt.disableflags) & int(mujoco.mjtDisableBit.mjDSBL_REFSAFE):
        out.append("time constants below two time steps (refsafe, option flag)")
    return out


def _member(mujoco: Any, key: str) -> int:
    return int(getattr(mujoco.mjtGeom, key, -1))


def _tendons(mujoco: Any, m: Any, add: Any) -> None:
    add("tendons with armature", "TENDON", _nonzero_rows(m, "tendon_armature"))
    add("tendons with nonlinear springs", "TENDON", _nonzero_rows(m, "tendon_stiffnesspoly"))
    add("tendons with nonlinear damping", "TENDON", _nonzero_rows(m, "tendon_dampingpoly"))
    add("tendons with springs that yield", "TENDON", _nonzero_rows(m, "tendon_springyield"))
    add("tendons that run inside of a shape", "TENDON", [i for i in range(m.ntendon) if _runs_inside(mujoco, m, i)])


def _runs_inside(mujoco: Any, m: Any, tendon: int) -> bool:
    """Return whether a side site is in the sphere or cylinder that it is for."""
    first, count = int(m.tendon_adr[tendon]), int(m.tendon_num[tendon])
    shapes = [int(mujoco.mjtWrap.mjWRAP_SPHERE), int(mujoco.mjtWrap.mjWRAP_CYLINDER)]
    for w in range(first, first + count):
        side, shape = round(float(m.wrap_prm[w])), int(m.wrap_objid[w])
        if int(m.wrap_type[w]) in shapes and side >= 0 and m.site_bodyid[side] == m.geom_bodyid[shape]:
            turn = np.zeros(9)
            mujoco.mju_quat2Mat(turn, m.geom_quat[shape])
            away = turn.reshape(3, 3).T @ (m.site_pos[side] - m.geom_pos[shape])
            if np.linalg.norm(away) < m.geom_size[shape][0]:
                return True
    return False


def _joints(mujoco: Any, m: Any, add: Any) -> None:
    free = int(mujoco.mjtJoint.mjJNT_FREE)
    kinds = np.array(m.jnt_type)
    add("springs on free joints", "JOINT", [j for j in _nonzero_rows(m, "jnt_stiffness") if kinds[j] == free])
    add("nonlinear springs", "JOINT", _nonzero_rows(m, "jnt_stiffnesspoly"))
    add("springs that yield", "JOINT", _nonzero_rows(m, "jnt_springyield"))
    bent = _nonzero_rows(m, "dof_dampingpoly")
    add("nonlinear damping", "JOINT", sorted({int(m.dof_jntid[i]) for i in bent}))


def _nonzero_rows(m: Any, name: str) -> list[int]:
    """Return indices whose entry is not zero, in a field that older versions of MuJoCo may not have."""
    values = getattr(m, name, ())
    return [index for index, row in enumerate(values) if np.any(row)]


def actuator(mujoco: Any, m: Any, i: int) -> str | None:
    """Return why an actuator is not supported, or None if it is."""
    known = [int(getattr(mujoco.mjtTrn, f"mjTRN_{name}")) for name in _TRANSMISSIONS]
    if int(m.actuator_trntype[i]) not in known:
        return "adhesion" if int(m.actuator_trntype[i]) == int(mujoco.mjtTrn.mjTRN_BODY) else "another transmission"
    if int(m.actuator_plugin[i]) >= 0:
        return "a plugin"
    if getattr(m, "actuator_ctrlnum", None) is not None and int(m.actuator_ctrlnum[i]) != 1:
        return "several controls"
    if int(m.actuator_dyntype[i]) not in [int(getattr(mujoco.mjtDyn, f"mjDYN_{name}")) for name in _DYNAMICS]:
        return "activation dynamics of another type"
    if int(m.actuator_gaintype[i]) not in [int(getattr(mujoco.mjtGain, f"mjGAIN_{name}")) for name in _GAINS]:
        return "a gain of another type"
    if int(m.actuator_biastype[i]) not in [int(getattr(mujoco.mjtBias, f"mjBIAS_{name}")) for name in _BIASES]:
        return "a bias of another type"
    for name, what in (
        ("armature", "an armature"),
        ("damping", "damping"),
        ("dampingpoly", "damping"),
        ("delay", "a delay"),
    ):
        values = getattr(m, f"actuator_{name}", None)
        if values is not None and np.any(values[i]):
            return f"{what} of their own"
    return None


_TRANSMISSIONS = ("JOINT", "JOINTINPARENT", "TENDON", "SITE", "SLIDERCRANK")
_DYNAMICS = ("NONE", "INTEGRATOR", "FILTER", "FILTEREXACT", "MUSCLE")
_GAINS = ("FIXED", "AFFINE", "MUSCLE")
_BIASES = ("NONE", "AFFINE", "MUSCLE")
