"""A model that MuJoCo compiled, as Python lists: reading numbers one by one from its arrays takes much longer."""

from collections.abc import Callable
from typing import Any

import numpy as np


class Compiled:
    """A compiled model whose arrays are lists, converted when they are first used.

    Attributes:
        raw: the compiled model, with arrays.
    """

    def __init__(self, raw: Any):
        self.raw = raw

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.raw, name)
        value = value.tolist() if isinstance(value, np.ndarray) else value
        setattr(self, name, value)
        return value


def unique_names(mujoco: Any, m: Any, kind: str, count: int, fallback: Callable[[int], str]) -> list[str]:
    """Return the names of things of a compiled MJCF; those without one get what `fallback` says, made unique."""
    code = int(getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}"))
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
