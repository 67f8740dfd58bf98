"""What a compiled MJCF has that Adjoin does not simulate, named in one list."""

from collections.abc import Iterable
from typing import Any

import numpy as np

# Flags that change the physics; the others choose among MuJoCo's solvers.
_DISABLED = {
    "mjDSBL_CONSTRAINT": "constraint",
    "mjDSBL_FRICTIONLOSS": "frictionloss",
    "mjDSBL_LIMIT": "limit",
    "mjDSBL_PASSIVE": "passive",
    "mjDSBL_SPRING": "spring",
    "mjDSBL_DAMPER": "damper",
    "mjDSBL_CLAMPCTRL": "clampctrl",
    "mjDSBL_ACTUATION": "actuation",
}


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

    add("tendons", "TENDON", range(m.ntendon))
    add("equality constraints", "EQUALITY", range(m.neq))
    if getattr(m, "nflex", 0):
        out.append(f"flexes ({m.nflex})")
    if getattr(m, "nplugin", 0):
        out.append(f"plugins ({m.nplugin})")
    add("mocap bodies", "BODY", np.flatnonzero(np.array(m.body_mocapid) >= 0))
    if hasattr(m, "body_gravcomp"):
        add("gravity compensation", "BODY", np.flatnonzero(m.body_gravcomp))
    fields = {int(mujoco.mjtGeom.mjGEOM_HFIELD): "height fields", int(_member(mujoco, "mjGEOM_SDF")): "SDF shapes"}
    for code, what in fields.items():
        add(what, "GEOM", np.flatnonzero(np.array(m.geom_type) == code))
    if m.opt.density or m.opt.viscosity or any(m.opt.wind):
        out.append("fluid forces (option density, viscosity, wind)")
    _joints(mujoco, m, add)
    drives: dict[str, list[int]] = {}
    for i in range(m.nu):
        reason = actuator(mujoco, m, i)
        if reason is not None:
            drives.setdefault(reason, []).append(i)
    for reason, indices in drives.items():
        add(f"actuators with {reason}", "ACTUATOR", indices)
    flags = int(m.opt.disableflags)
    off = [word for key, word in _DISABLED.items() if flags & _flag(mujoco, key)]
    if off:
        out.append(f"disabled flags ({', '.join(off)})")
    if int(m.opt.enableflags) & int(mujoco.mjtEnableBit.mjENBL_OVERRIDE):
        out.append("contact override (option flag)")
    return out


def _member(mujoco: Any, key: str) -> int:
    return int(getattr(mujoco.mjtGeom, key, -1))


def _flag(mujoco: Any, key: str) -> int:
    return int(getattr(mujoco.mjtDisableBit, key, 0))


def _joints(mujoco: Any, m: Any, add: Any) -> None:
    free = int(mujoco.mjtJoint.mjJNT_FREE)
    kinds = np.array(m.jnt_type)
    add("springs on free joints", "JOINT", [j for j in _nonzero_rows(m, "jnt_stiffness") if kinds[j] == free])
    add("nonlinear springs", "JOINT", _nonzero_rows(m, "jnt_stiffnesspoly"))
    add("springs that yield", "JOINT", _nonzero_rows(m, "jnt_springyield"))
    bent = _nonzero_rows(m, "dof_dampingpoly")
    add("nonlinear damping", "JOINT", sorted({int(m.dof_jntid[i]) for i in bent}))
    if getattr(m, "jnt_actfrclimited", None) is not None:
        bounds = np.array(m.jnt_actfrcrange).reshape(-1, 2)
        lopsided = np.array(m.jnt_actfrclimited).astype(bool) & (bounds[:, 0] != -bounds[:, 1])
        add("actuator force ranges that are not symmetric", "JOINT", np.flatnonzero(lopsided))


def _nonzero_rows(m: Any, name: str) -> list[int]:
    """Return indices whose entry is not zero, in a field that older versions of MuJoCo may not have."""
    values = getattr(m, name, ())
    return [index for index, row in enumerate(values) if np.any(row)]


def actuator(mujoco: Any, m: Any, i: int) -> str | None:
    """Return why an actuator is not supported, or None if it is."""
    drive = int(m.actuator_trntype[i])
    on_joint = int(mujoco.mjtTrn.mjTRN_JOINT)
    in_parent = int(mujoco.mjtTrn.mjTRN_JOINTINPARENT)
    if drive not in (on_joint, in_parent):
        return "a transmission other than a joint"
    if getattr(m, "actuator_ctrlnum", None) is not None and int(m.actuator_ctrlnum[i]) != 1:
        return "several controls"
    joint = int(m.actuator_trnid[i][0])
    kind = int(m.jnt_type[joint])
    if drive == in_parent and kind in (int(mujoco.mjtJoint.mjJNT_BALL), int(mujoco.mjtJoint.mjJNT_FREE)):
        return "a force in the parent's frame"
    if kind == int(mujoco.mjtJoint.mjJNT_FREE) and any(m.actuator_gear[i][:3]):
        return "a force in world axes"
    if int(m.actuator_dyntype[i]) != int(mujoco.mjtDyn.mjDYN_NONE):
        return "activation dynamics"
    if int(m.actuator_gaintype[i]) == int(mujoco.mjtGain.mjGAIN_AFFINE):
        if any(m.actuator_gainprm[i][1:3]):
            return "a gain that varies"
    elif int(m.actuator_gaintype[i]) != int(mujoco.mjtGain.mjGAIN_FIXED):
        return "a gain of another type"
    if int(m.actuator_biastype[i]) not in (int(mujoco.mjtBias.mjBIAS_NONE), int(mujoco.mjtBias.mjBIAS_AFFINE)):
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
