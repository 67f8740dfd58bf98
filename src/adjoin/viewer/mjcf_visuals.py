"""What MuJoCo's own viewer would show of an MJCF: its shapes and meshes in the colors of their materials."""

from collections.abc import Callable
from typing import Any

import numpy as np

from adjoin.errors import Location
from adjoin.io.mesh import Color
from adjoin.io.mjcf_compiled import unique_names
from adjoin.io.mjcf_scan import compile_document, scan
from adjoin.io.paths import Files
from adjoin.io.xml import Element
from adjoin.model.joint import Vec3
from adjoin.model.model import Model
from adjoin.spatial.motion import transform_multiply
from adjoin.spatial.rotation import from_quaternion
from adjoin.spatial.vector import vector3
from adjoin.viewer import mesh
from adjoin.viewer.mesh import Mesh
from adjoin.viewer.parts import LIGHT, Solid

SHOWN_GROUPS = (0, 1, 2)
"""Groups of shapes that MuJoCo shows; by convention the others are for collision only."""
_GRAY = (0.5, 0.5, 0.5, 1.0)  # MuJoCo's color of what has none

Shape = Callable[[Vec3], tuple[Mesh, Vec3]]
_SHAPES: dict[str, Shape] = {
    "SPHERE": lambda size: (mesh.sphere(), (size[0], size[0], size[0])),
    "ELLIPSOID": lambda size: (mesh.sphere(), size),
    "BOX": lambda size: (mesh.box(), size),
    "CYLINDER": lambda size: (mesh.cylinder(), (size[0], size[0], size[1])),
    "CAPSULE": lambda size: (mesh.capsule(round(size[1] / size[0], 6)), (size[0], size[0], size[0])),
}


def mjcf_visuals(model: Model, root: Element, files: Files) -> dict[str, list[Solid]]:
    """Return what is shown of an MJCF, by the name of the link.

    Args:
        model: the robot that was loaded from the document; bodies it does not have are passed over.
        root: the outermost element of the document.
        files: what it may reach.
    """
    mujoco, m = compile_document(scan(root, files, colors=True), Location(root.where.file))
    kinds = {int(getattr(mujoco.mjtGeom, f"mjGEOM_{name}")): shape for name, shape in _SHAPES.items()}
    names = unique_names(mujoco, m, "body", m.nbody, lambda i: f"body{i}")
    frames = {frame.name: frame for frame in model.frames}
    meshes: dict[int, Mesh] = {}
    shown: dict[str, list[Solid]] = {}
    for g in range(m.ngeom):
        frame, kind = frames.get(names[int(m.geom_bodyid[g])]), int(m.geom_type[g])
        color = _color(m, g)
        if frame is None or color is None or int(m.geom_group[g]) not in SHOWN_GROUPS:
            continue
        if kind == int(mujoco.mjtGeom.mjGEOM_MESH):
            number = int(m.geom_dataid[g])
            if number not in meshes:
                meshes[number] = _mesh(m, number)
            surface, scale = meshes[number], (1.0, 1.0, 1.0)
        elif kind in kinds:
            surface, scale = kinds[kind](vector3(m.geom_size[g].tolist()))
        else:
            continue  # planes are the ground, and height fields are not drawn
        w, x, y, z = m.geom_quat[g].tolist()
        place = from_quaternion((w, x, y, z)), vector3(m.geom_pos[g].tolist())
        rotation, position = transform_multiply((frame.rotation, frame.position), place)
        shown.setdefault(frame.name, []).append(Solid(frame.body, surface, scale, color, position, rotation))
    return shown


def _color(m: Any, geom: int) -> Color | None:
    """Return the color of a shape: its own, or that of its material; None if it cannot be seen."""
    rgba = tuple(float(x) for x in m.geom_rgba[geom])
    if np.allclose(rgba, _GRAY) and int(m.geom_matid[geom]) >= 0:
        rgba = tuple(float(x) for x in m.mat_rgba[int(m.geom_matid[geom])])
    elif np.allclose(rgba, _GRAY):
        return LIGHT
    if rgba[3] <= 0.0:
        return None
    red, green, blue = (round(255 * min(max(x, 0.0), 1.0)) for x in rgba[:3])
    return red, green, blue


def _mesh(m: Any, number: int) -> Mesh:
    vertices = m.mesh_vert[m.mesh_vertadr[number] :][: m.mesh_vertnum[number]]
    faces = m.mesh_face[m.mesh_faceadr[number] :][: m.mesh_facenum[number]]
    return mesh.creased(np.array(vertices, dtype=np.float64), np.array(faces))
