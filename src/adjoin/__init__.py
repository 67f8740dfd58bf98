"""Differentiable simulation of articulated bodies for PyTorch."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adjoin import robots
    from adjoin.io.load import load
    from adjoin.io.store import save
    from adjoin.io.urdf_write import to_urdf
    from adjoin.model.compose import forest
    from adjoin.model.model import Model
    from adjoin.trace.function import Integer, PerStep, function

__version__ = "0.1.0"

__all__ = ["Integer", "Model", "PerStep", "forest", "function", "load", "robots", "save", "to_urdf"]

# Loaded when first asked for, so that importing the package costs nothing that is not used.
_HOMES = {
    "Integer": "adjoin.trace.function",
    "Model": "adjoin.model.model",
    "PerStep": "adjoin.trace.function",
    "forest": "adjoin.model.compose",
    "function": "adjoin.trace.function",
    "load": "adjoin.io.load",
    "robots": "adjoin.robots",
    "save": "adjoin.io.store",
    "to_urdf": "adjoin.io.urdf_write",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'adjoin' has no attribute {name!r}")
    module = importlib.import_module(_HOMES[name])
    value = module if name == "robots" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
