"""What a compiled MJCF has that Adjoin does not simulate, named in one list."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from adjoin.io.mjcf_mechanism import member

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
    add("height fields that move or are not level, or further ones", "GEOM", terrain(mujoco, m)[1])
    add("SDF shapes", "GEOM", np.flatnonzero(np.array(m.geom_type) == member(mujoco, "mjtGeom", "mjGEOM_SDF")))
    _joints(mujoco, m, add)
    refused = actuators(mujoco, m)
    for reason in dict.fromkeys(refused.values()):
        add(f"actuators with {reason}", "ACTUATOR", [i for i, other in refused.items() if other == reason])
    if int(m.opt.enableflags) & int(mujoco.mjtEnableBit.mjENBL_OVERRIDE):
        out.append("contact override (option flag)")
    if int(m.opt.disableflags) & int(mujoco.mjtDisableBit.mjDSBL_REFSAFE):
        out.append("time constants below two time steps (refsafe, option flag)")
    return out


def terrain(mujoco: Any, m: Any) -> tuple[int | None, list[int]]:
    """Return the shape that is terrain: the first height field that is level and fixed to the world; and the others."""
    fields = np.flatnonzero(np.array(m.geom_type) == member(mujoco, "mjtGeom", "mjGEOM_HFIELD")).tolist()
    if not fields:
        return None, []
    data = mujoco.MjData(m)
    mujoco.mj_kinematics(m, data)
    turned = [np.abs(data.geom_xmat[g] - np.eye(3).ravel()).max() > 1e-12 for g in fields]
    moves = [bool(m.body_weldid[m.geom_bodyid[g]] or m.body_mocapid[m.geom_bodyid[g]] >= 0) for g in fields]
    level = [g for g, bad, worse in zip(fields, turned, moves, strict=True) if not (bad or worse)]
    return (level[0] if level else None), [g for g in fields if g not in level[:1]]


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
    if not len(values):
        return []
    return np.flatnonzero(np.asarray(values).reshape(len(values), -1).any(1)).tolist()


def actuators(mujoco: Any, m: Any) -> dict[int, str]:
    """Return why actuators are not supported, by their numbers; those that are supported are left out."""
    found: dict[int, str] = {}

    def refuse(reason: str, which: Any) -> None:
        for i in np.flatnonzero(which).tolist():
            found.setdefault(i, reason)

    if not m.nu:
        return found

    def other_than(field: str, enum: str, prefix: str, names: tuple[str, ...]) -> Any:
        known = [member(mujoco, enum, f"{prefix}_{name}") for name in names]
        return ~np.isin(getattr(m, field), known)

    refuse("another transmission", other_than("actuator_trntype", "mjtTrn", "mjTRN", _TRANSMISSIONS))
    refuse("a plugin", m.actuator_plugin >= 0)
    if hasattr(m, "actuator_ctrlnum"):
        refuse("several controls", m.actuator_ctrlnum != 1)
    refuse("activation dynamics of another type", other_than("actuator_dyntype", "mjtDyn", "mjDYN", _DYNAMICS))
    refuse("a gain of another type", other_than("actuator_gaintype", "mjtGain", "mjGAIN", _GAINS))
    refuse("a bias of another type", other_than("actuator_biastype", "mjtBias", "mjBIAS", _BIASES))
    for name, what in _OWN.items():
        for i in _nonzero_rows(m, f"actuator_{name}"):
            found.setdefault(i, f"{what} of their own")
    return found


_OWN = {"armature": "an armature", "damping": "damping", "dampingpoly": "damping", "delay": "a delay"}
_TRANSMISSIONS = ("JOINT", "JOINTINPARENT", "TENDON", "SITE", "SLIDERCRANK", "BODY")
_DYNAMICS = ("NONE", "INTEGRATOR", "FILTER", "FILTEREXACT", "MUSCLE")
_GAINS = ("FIXED", "AFFINE", "MUSCLE")
_BIASES = ("NONE", "AFFINE", "MUSCLE")
