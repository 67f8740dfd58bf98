"""A model that MuJoCo compiled, as Python lists: reading numbers one by one from its arrays takes much longer."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np


class Compiled:
    """A compiled model whose arrays are lists, converted when they are first used.

    Attributes:
        raw: the compiled model, with arrays.
    """

    def __init__(self, raw: Any, mujoco: Any):
        self.raw = raw
        flags = int(raw.opt.disableflags)
        self._off = frozenset(name for name, bit in disable_flags(mujoco) if flags & bit)
        for kind in ("geom", "site"):
            self._take_same_frames(mujoco, kind)

    def _take_same_frames(self, mujoco: Any, kind: str) -> None:
        """Place shapes or sites that are within rounding of a frame of their body where MuJoCo has them: just there."""
        raw, same = self.raw, getattr(self.raw, f"{kind}_sameframe")
        inertia, rotation = (member(mujoco, "mjtSameFrame", f"mjSAMEFRAME_{x}") for x in ("INERTIA", "INERTIAROT"))
        principal = same == inertia
        turned = principal | (same == rotation)
        if not turned.any():
            return
        bodies = getattr(raw, f"{kind}_bodyid")
        for name, where in (("pos", principal), ("quat", turned)):
            own, frames = getattr(raw, f"{kind}_{name}"), getattr(raw, f"body_i{name}")[bodies]
            off = where & (np.abs(own - frames).max(1, initial=0.0) > ROUNDED)
            if off.any():
                setattr(self, f"{kind}_{name}", np.where(off[:, None], frames, own).tolist())

    def is_off(self, flag: str) -> bool:
        """Return whether the file disables a part of the physics; without constraints, all of them."""
        return bool(self._off) and (flag in self._off or (flag in _CONSTRAINTS and "CONSTRAINT" in self._off))

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.raw, name)
        value = value.tolist() if isinstance(value, np.ndarray) else value
        setattr(self, name, value)
        return value


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
