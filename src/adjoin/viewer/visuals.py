"""Visual meshes of a URDF, where they lie next to it; a model itself keeps collision shapes only."""

import os

from adjoin.model.model import Model
from adjoin.viewer.parts import Part


def read_visuals(model: Model, source: str | os.PathLike[str]) -> dict[str, list[Part]]:
    """Parts by link of what the file has under `<visual>`."""
    return {}
