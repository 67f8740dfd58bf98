"""A model that MuJoCo compiled, as Python lists: reading numbers one by one from its arrays takes much longer."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np

_COUNTS = (
    "nq",
    "nv",
    "nu",
    "nbody",
    "njnt",
    "ngeom",
    "nsite",
    "ntendon",
    "neq",
    "nsensor",
    "nkey",
    "nexclude",
    "npair",
)
_BODIES = (
    *("body_parentid", "body_jntadr", "body_jntnum", "body_mocapid", "body_mass", "body_gravcomp", "body_pos"),
    *("body_quat", "body_ipos", "body_iquat", "body_inertia", "body_invweight0", "jnt_type", "jnt_bodyid"),
    *("jnt_qposadr", "jnt_dofadr", "jnt_limited", "jnt_actfrclimited", "jnt_actgravcomp", "jnt_pos", "jnt_axis"),
    *("jnt_range", "jnt_stiffness", "jnt_stiffnesspoly", "jnt_springyield", "jnt_margin", "jnt_solref", "jnt_solimp"),
    *("dof_damping", "dof_dampingpoly", "dof_frictionloss", "dof_armature", "dof_solref", "dof_solimp", "qpos0"),
    *("qpos_spring", "geom_type", "geom_bodyid", "geom_contype", "geom_conaffinity", "geom_condim", "geom_priority"),
    *("geom_sameframe", "geom_size", "geom_pos", "geom_quat", "geom_friction", "geom_margin", "geom_gap"),
    *("geom_solmix", "geom_solref", "geom_solimp", "site_sameframe"),
)
_ACTUATORS = (
    *("actuator_plugin", "actuator_ctrlnum", "actuator_trntype", "actuator_dyntype", "actuator_gaintype"),
    *("actuator_biastype", "actuator_trnid", "actuator_group", "actuator_ctrllimited", "actuator_forcelimited"),
    *("actuator_actlimited", "actuator_actearly", "actuator_gear", "actuator_gainprm", "actuator_biasprm"),
    *("actuator_dynprm", "actuator_ctrlrange", "actuator_forcerange", "actuator_actrange", "actuator_lengthrange"),
    *("actuator_acc0", "actuator_cranklength", "actuator_outadr", "actuator_ctrladr", "actuator_armature"),
    *("actuator_damping", "actuator_dampingpoly", "actuator_delay"),
)


class Compiled:
    """A compiled model whose arrays are lists of numbers, and whose tables are lists of tuples.

    What is read of every robot is converted at once, since asking for fields one by one takes longer than to convert
    them; the rest when it is first used.

    Attributes:
        raw: the compiled model, with arrays.
    """

    def __init__(self, raw: Any, mujoco: Any):
        self.raw = raw
        self.__dict__.update(zip(_COUNTS, attrgetter(*_COUNTS)(raw), strict=True))
        self._take(_BODIES)
        if self.nu:
            self._take(_ACTUATORS)
        flags = int(raw.opt.disableflags)
        self._off = {name for name, bit in disable_flags(mujoco) if flags & bit}
        if "CONSTRAINT" in self._off:
            self._off.update(_CONSTRAINTS)
        for kind in ("geom", "site"):
            self._take_same_frames(mujoco, kind)

    def _take(self, fields: tuple[str, ...]) -> None:
        """Convert those of several fields that this version of MuJoCo has."""
        names, values = _present(type(self.raw), fields)
        self.__dict__.update(zip(names, map(_listed, values(self.raw)), strict=True))

    def _take_same_frames(self, mujoco: Any, kind: str) -> None:
        """Place shapes or sites that are within rounding of a frame of their body where MuJoCo has them: just there."""
        same = getattr(self, f"{kind}_sameframe")
        inertia = member(mujoco, "mjtSameFrame", "mjSAMEFRAME_INERTIA")
        rotation = member(mujoco, "mjtSameFrame", "mjSAMEFRAME_INERTIAROT")
        turned = [i for i, flag in enumerate(same) if flag in (inertia, rotation)]
        if not turned:
            return
        bodies = getattr(self, f"{kind}_bodyid")
        for name, where in (("pos", [i for i in turned if same[i] == inertia]), ("quat", turned)):
            own, frames = getattr(self, f"{kind}_{name}"), getattr(self, f"body_i{name}")
            for i in where:
                frame = frames[bodies[i]]
                if own[i] != frame and any(abs(a - b) > ROUNDED for a, b in zip(own[i], frame, strict=True)):
                    own[i] = frame

    def is_off(self, flag: str) -> bool:
        """Return whether the file disables a part of the physics; without constraints, all of them."""
        return flag in self._off

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.raw, name)
        value = _listed(value) if isinstance(value, np.ndarray) else value
        self.__dict__[name] = value
        return value


def _listed(array: np.ndarray) -> list[Any]:
    rows = array.tolist()
    return list(map(tuple, rows)) if array.ndim == 2 else rows


@cache
def _present(model: type, fields: tuple[str, ...]) -> tuple[tuple[str, ...], Callable[[Any], Iterable[np.ndarray]]]:
    """Return those of the fields that a compiled model has in this version of MuJoCo, and what gets them all."""
    names = tuple(name for name in fields if hasattr(model, name))
    return names, attrgetter(*names)


ROUNDED = 1e-12
"""How far apart frames are that are the same, m or as numbers of a quaternion."""

_CONSTRAINTS = ("CONTACT", "LIMIT", "FRICTIONLOSS", "EQUALITY")


@cache
def member(mujoco: Any, enum: str, key: str) -> int:
    """Return the number of a member of an enumeration of MuJoCo; -1 if this version has none of that name."""
    return int(getattr(getattr(mujoco, enum), key, -1))


@cache
def disable_flags(mujoco: Any) -> tuple[tuple[str, int], ...]:
    """Return the names and bits of what a file can disable."""
    bits = mujoco.mjtDisableBit.__members__
    return tuple((name.removeprefix("mjDSBL_"), int(bit)) for name, bit in bits.items() if name.startswith("mjDSBL_"))


def unique_names(mujoco: Any, m: Any, kind: str, count: int, fallback: Callable[[int], str]) -> list[str]:
    """Return the names of things of a compiled MJCF; those without one get what `fallback` says, made unique."""
    if not count:
        return []
    code = member(mujoco, "mjtObj", f"mjOBJ_{kind.upper()}")
    names = [mujoco.mj_id2name(m, code, index) or "" for index in range(count)]
    if all(names):
        return names
    used = {name for name in names if name}
    found = []
    for index, name in enumerate(names):
        if not name:
            name = fallback(index)
            while name in used:
                name += "'"
            used.add(name)
        found.append(name)
    return found


def body_names(mujoco: Any, m: Any) -> list[str]:
    """Return what the bodies of a compiled MJCF are called here."""
    return unique_names(mujoco, m, "body", m.nbody, lambda i: f"body{i}")


def joint_names(mujoco: Any, m: Any, bodies: Sequence[str]) -> list[str]:
    """Return what the joints of a compiled MJCF are called here, given the names of its bodies."""
    return unique_names(mujoco, m, "joint", m.njnt, lambda i: f"{bodies[int(m.jnt_bodyid[i])]}/joint{i}")
