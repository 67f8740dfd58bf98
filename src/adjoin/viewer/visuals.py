"""Visual shapes and meshes of a robot's file; a model itself keeps collision shapes only."""

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from adjoin import robots
from adjoin.errors import AdjoinWarning, Findings, ModelError, Subject, warn_caller
from adjoin.io import xml
from adjoin.io.load import open_source
from adjoin.io.mesh import Color, read_mesh
from adjoin.io.paths import Files
from adjoin.io.urdf import SHAPE_TAGS
from adjoin.io.xml import Element
from adjoin.model.joint import Mat3, Vec3
from adjoin.model.model import Model
from adjoin.model.parts import Frame
from adjoin.spatial import motion
from adjoin.spatial.rotation import from_rpy
from adjoin.spatial.vector import IDENTITY, ZERO, vector3
from adjoin.viewer import mesh
from adjoin.viewer.mesh import Mesh
from adjoin.viewer.mjcf_visuals import mjcf_visuals
from adjoin.viewer.parts import LIGHT, Solid

Visuals = Mapping[str, list[Solid]]
"""What is drawn for links in the place of their shapes, by name."""
Source = str | os.PathLike[str] | Visuals
"""A robot's URDF or MJCF file, or what was read from it."""
Surfaces = list[tuple[Mesh, Vec3, Color | None]]
"""Meshes with their scale and color."""
ONE = (1.0, 1.0, 1.0)


def visuals_of(model: Model, source: Source | None) -> Visuals:
    """Return the visuals of a robot from its file, or as they were read before; without either, of one that ships."""
    if source is None:
        look = robots.look(model)
        return {} if look is None else _joined(read_visuals(model, look))
    return source if isinstance(source, Mapping) else read_visuals(model, source)


def read_visuals(
    model: Model,
    source: str | os.PathLike[str] | bytes,
    *,
    packages: Mapping[str, str | os.PathLike[str]] | None = None,
    allow: Sequence[str | os.PathLike[str]] = (),
) -> dict[str, list[Solid]]:
    """Return what a URDF has under `<visual>`, or what MuJoCo would show of an MJCF, by link.

    A link whose visual shapes cannot all be read is left out, with a warning, and so is drawn as its collision shapes.

    Args:
        model: the robot that was loaded from the file; links it does not have are passed over.
        source: the file, or its bytes. Meshes are in STL, OBJ, Collada or glTF, and read from its collection, see
            `adjoin.load`.
        packages: folders of package:// addresses, by package name.
        allow: folders beyond the robot's own that files may be read from.
    """
    data, name, folder, encoding = open_source(source, None)
    root = xml.parse(data, name, encoding=encoding, findings=Findings(strict=False))
    folders = {key: Path(value) for key, value in (packages or {}).items()}
    files = Files(folder, folders, [Path(one) for one in allow], strict=False)
    if root.tag != "robot":
        return mjcf_visuals(model, root, files) if root.tag == "mujoco" else {}
    colors = {one.name(): _color(one) for one in root.all("material") if one.one("color") is not None}
    reader = _Reader(files, colors)
    frames = {frame.name: frame for frame in model.frames}
    parts: dict[str, list[Solid]] = {}
    errors: list[ModelError] = []
    for link in root.all("link"):
        visuals = link.all("visual")
        if visuals and (frame := frames.get(link.name())) is not None:
            try:
                parts[frame.name] = [part for visual in visuals for part in reader.parts(visual, frame)]
            except ModelError as error:
                errors.append(error)
    if errors:
        warn_caller(AdjoinWarning("links are drawn as their collision shapes", errors))
    return parts


def _joined(visuals: Visuals) -> Visuals:
    """Return visuals with one surface for all parts of a body that have one color, so that less moves in a replay."""
    found: dict[str, list[Solid]] = {link: [] for link in visuals}
    groups: dict[tuple[int, Color], tuple[str, list[Solid]]] = {}
    for link, parts in visuals.items():
        for part in parts:
            groups.setdefault((part.body, part.color), (link, []))[1].append(part)
    for (body, color), (link, parts) in groups.items():
        places = [(part.mesh.vertices * part.scale) @ np.array(part.rotation).T + part.position for part in parts]
        starts = np.cumsum([0, *map(len, places)])
        faces = [part.mesh.faces + start for part, start in zip(parts, starts[:-1], strict=True)]
        found[link].append(Solid(body, Mesh(np.concatenate(places), np.concatenate(faces)), ONE, color))
    return found


class _Reader:
    def __init__(self, files: Files, colors: dict[str, Color]):
        self._files, self._colors = files, colors
        self._read: dict[str, Surfaces] = {}

    def parts(self, visual: Element, frame: Frame) -> list[Solid]:
        geometry = visual.need("geometry")
        if len(geometry.children) != 1:
            geometry.fail(f"it has {len(geometry.children)} shapes", "it needs exactly one")
        rotation, position = motion.transform_multiply((frame.rotation, frame.position), _origin(visual))
        material = self._material(visual)
        return [
            Solid(frame.body, surface, scale, material or color or LIGHT, position, rotation)
            for surface, scale, color in self._surfaces(geometry.children[0])
        ]

    def _material(self, visual: Element) -> Color | None:
        material = visual.one("material")
        if material is None:
            return None
        return _color(material) if material.one("color") is not None else self._colors.get(material.name())

    def _surfaces(self, shape: Element) -> Surfaces:
        if shape.tag == "sphere":
            radius = shape.positive("radius")
            return [(mesh.sphere(), (radius, radius, radius), None)]
        if shape.tag == "box":
            x, y, z = shape.numbers("size", 3)
            return [(mesh.box(), (x / 2, y / 2, z / 2), None)]
        if shape.tag in ("cylinder", "capsule"):
            radius, half = shape.positive("radius"), shape.not_negative("length") / 2
            if shape.tag == "capsule":
                return [(mesh.capsule(round(half / radius, 6)), (radius, radius, radius), None)]
            return [(mesh.cylinder(), (radius, radius, half), None)]
        if shape.tag != "mesh":
            shape.fail("unknown shape", f"shapes: {SHAPE_TAGS}")
        scale = vector3(shape.numbers("scale", 3, (1.0, 1.0, 1.0)))
        return [(surface, scale, color) for surface, _, color in self._file(shape)]

    def _file(self, shape: Element) -> Surfaces:
        path = self._files.resolve(shape.text("filename"), shape)
        if str(path) not in self._read:
            beside = functools.partial(self._files.read_beside, path, shape)
            found = read_mesh(self._files.read(path, shape), path.name, shape, beside=beside)
            surfaces = [surface for surface in found if len(surface.faces)]
            if not surfaces:
                shape.fail("it has no triangles", subject=Subject("mesh", path.name))
            self._read[str(path)] = [(mesh.creased(s.vertices, s.faces), ONE, s.color) for s in surfaces]
        return self._read[str(path)]


def _origin(element: Element) -> tuple[Mat3, Vec3]:
    origin = element.one("origin")
    if origin is None:
        return IDENTITY, ZERO
    roll, pitch, yaw = origin.numbers("rpy", 3, (0.0, 0.0, 0.0))
    return from_rpy(roll, pitch, yaw), vector3(origin.numbers("xyz", 3, (0.0, 0.0, 0.0)))


def _color(material: Element) -> Color:
    red, green, blue = (
        round(255 * min(max(value, 0.0), 1.0)) for value in material.need("color").numbers("rgba", 4)[:3]
    )
    return red, green, blue
