"""What a compiled MJCF has that Adjoin does not simulate, named in one list."""

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np

from adjoin.io.mjcf_compiled import Compiled, member

EQUALITIES = ("CONNECT", "WELD", "JOINT", "TENDON")

FLEXES, PLUGINS, SDFS = ESSENTIAL = ("flexes", "plugins", "SDF shapes")
"""Parts without which what is left is another robot."""


def find(mujoco: Any, m: Compiled, refused: Mapping[int, str]) -> list[str]:
    """Return the unsupported parts, each as a few words with names; empty if there are none.

    Args:
        mujoco: the module.
        m: its model.
        refused: what `actuators` returns.
    """
    out: list[str] = []

    def names(kind: str, indices: Iterable[int]) -> str:
        code = int(getattr(mujoco.mjtObj, f"mjOBJ_{kind}"))
        listed = [mujoco.mj_id2name(m.raw, code, int(i)) or f"#{int(i)}" for i in indices]
        return ", ".join(listed[:10]) + (f", ... ({len(listed) - 10} more)" if len(listed) > 10 else "")

    def add(what: str, kind: str, indices: Iterable[int]) -> None:
        indices = list(indices)
        if indices:
            out.append(f"{what} ({names(kind, indices)})")

    if m.neq:
        known = [member(mujoco, "mjtEq", f"mjEQ_{name}") for name in EQUALITIES]
        add("equality constraints of flexes", "EQUALITY", [i for i in range(m.neq) if m.eq_type[i] not in known])
    if m.ntendon:
        _tendons(mujoco, m, add)
    if getattr(m, "nflex", 0):
        out.append(f"{FLEXES} ({m.nflex})")
    if getattr(m, "nplugin", 0):
        out.append(f"{PLUGINS} ({m.nplugin})")
    add("height fields that move or are not level, or further ones", "GEOM", terrain(mujoco, m)[1])
    add(SDFS, "GEOM", _of_type(m.geom_type, member(mujoco, "mjtGeom", "mjGEOM_SDF")))
    _joints(mujoco, m, add)
    for reason in dict.fromkeys(refused.values()):
        add(f"actuators with {reason}", "ACTUATOR", [i for i, other in refused.items() if other == reason])
    if int(m.opt.enableflags) & int(mujoco.mjtEnableBit.mjENBL_OVERRIDE):
        out.append("contact override (option flag)")
    if int(m.opt.integrator) == member(mujoco, "mjtIntegrator", "mjINT_IMPLICIT"):
        out.append("Coriolis derivatives of the integrator implicit (option)")
    if m.opt.noslip_iterations:
        out.append("iterations against slip (noslip_iterations, option)")
    if m.is_off("REFSAFE"):
        out.append("time constants below two time steps (refsafe, option flag)")
    return out


def _of_type(types: list[int], kind: int) -> list[int]:
    return [i for i, other in enumerate(types) if other == kind] if kind in types else []


def terrain(mujoco: Any, m: Compiled) -> tuple[int | None, list[int]]:
    """Return the shape that is terrain: the first height field that is level and fixed to the world; and the others."""
    fields = _of_type(m.geom_type, member(mujoco, "mjtGeom", "mjGEOM_HFIELD"))
    if not fields:
        return None, []
    data = mujoco.MjData(m.raw)
    mujoco.mj_kinematics(m.raw, data)
    turned = [np.abs(data.geom_xmat[g] - np.eye(3).ravel()).max() > 1e-12 for g in fields]
    moves = [bool(m.body_weldid[m.geom_bodyid[g]] or m.body_mocapid[m.geom_bodyid[g]] >= 0) for g in fields]
    level = [g for g, bad, worse in zip(fields, turned, moves, strict=True) if not (bad or worse)]
    return (level[0] if level else None), [g for g in fields if g not in level[:1]]


def _tendons(mujoco: Any, m: Compiled, add: Any) -> None:
    add("tendons with armature", "TENDON", _nonzero_rows(m, "tendon_armature"))
    add("tendons with nonlinear springs", "TENDON", _nonzero_rows(m, "tendon_stiffnesspoly"))
    add("tendons with nonlinear damping", "TENDON", _nonzero_rows(m, "tendon_dampingpoly"))
    add("tendons with springs that yield", "TENDON", _nonzero_rows(m, "tendon_springyield"))


def _joints(mujoco: Any, m: Compiled, add: Any) -> None:
    free = member(mujoco, "mjtJoint", "mjJNT_FREE")
    add("springs on free joints", "JOINT", [j for j in _nonzero_rows(m, "jnt_stiffness") if m.jnt_type[j] == free])
    add("nonlinear springs", "JOINT", _nonzero_rows(m, "jnt_stiffnesspoly"))
    add("springs that yield", "JOINT", _nonzero_rows(m, "jnt_springyield"))
    bent = _nonzero_rows(m, "dof_dampingpoly")
    add("nonlinear damping", "JOINT", sorted({int(m.dof_jntid[i]) for i in bent}))


def _nonzero_rows(m: Compiled, name: str) -> list[int]:
    """Return indices whose entry is not zero, in a field that older versions of MuJoCo may not have."""
    values = getattr(m, name, ())
    if not any(values):  # rows of tables, even of zeros, count as something
        return []
    return [i for i, row in enumerate(values) if (any(row) if isinstance(row, tuple) else row)]


def actuators(mujoco: Any, m: Compiled) -> dict[int, str]:
    """Return why actuators are not supported, by their numbers; those that are supported are left out."""
    found: dict[int, str] = {}

    def refuse(reason: str, which: Iterable[int]) -> None:
        for i in which:
            found.setdefault(i, reason)

    def other_than(values: list[int], known: Collection[int]) -> list[int]:
        return [] if set(values) <= set(known) else [i for i, value in enumerate(values) if value not in known]

    if not m.nu:
        return found
    refuse("a plugin", other_than(m.actuator_plugin, (-1,)))
    if hasattr(m, "actuator_ctrlnum"):
        refuse("several controls", other_than(m.actuator_ctrlnum, (1,)))
    for field, known, reason in _known_types(mujoco):
        refuse(reason, other_than(getattr(m, field), known))
    for name, what in _OWN.items():
        refuse(f"{what} of their own", _nonzero_rows(m, f"actuator_{name}"))
    return found


@cache
def _known_types(mujoco: Any) -> list[tuple[str, frozenset[int], str]]:
    """Return fields with types of actuators, the numbers of those that are supported, and what is said of others."""
    return [
        (field, frozenset(member(mujoco, enum, f"{prefix}_{name}") for name in names), reason)
        for field, enum, prefix, names, reason in _TYPES
    ]


_OWN = {"armature": "an armature", "damping": "damping", "dampingpoly": "damping", "delay": "a delay"}
_TYPES = (
    (
        "actuator_trntype",
        "mjtTrn",
        "mjTRN",
        ("JOINT", "JOINTINPARENT", "TENDON", "SITE", "SLIDERCRANK", "BODY"),
        "another transmission",
    ),
    (
        "actuator_dyntype",
        "mjtDyn",
        "mjDYN",
        ("NONE", "INTEGRATOR", "FILTER", "FILTEREXACT", "MUSCLE"),
        "activation dynamics of another type",
    ),
    ("actuator_gaintype", "mjtGain", "mjGAIN", ("FIXED", "AFFINE", "MUSCLE"), "a gain of another type"),
    ("actuator_biastype", "mjtBias", "mjBIAS", ("NONE", "AFFINE", "MUSCLE"), "a bias of another type"),
)
"""Fields with types of actuators, their enumeration, the types that are supported, and what is said of others."""
