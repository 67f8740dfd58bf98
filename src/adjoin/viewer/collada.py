"""Triangles and plain colors of a Collada file (.dae); textures, lights and its up axis are passed over, as in ROS."""

import math
from collections.abc import Iterator
from xml.etree import ElementTree

import numpy as np

from adjoin.io.xml import Element
from adjoin.viewer.parts import Color

Triangles = tuple[np.ndarray, np.ndarray, Color | None]
"""Vertices (n, 3) in meters, faces (m, 3), and their color if they have one."""


def read_collada(data: bytes, element: Element) -> list[Triangles]:
    """The meshes of a file, placed as its scene has them.

    Args:
        data: the file.
        element: what asked for it, for messages.
    """
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        element.fail("the mesh has DOCTYPE or entity declarations, which are refused")
    try:
        document = _Document(ElementTree.fromstring(data))
        found = list(document.triangles())
    except (ElementTree.ParseError, ValueError, KeyError, IndexError, AttributeError) as error:
        element.fail(f"the mesh is not Collada that can be read: {error!r}")
    if not found:
        element.fail("the mesh has no triangles")
    return found


class _Document:
    def __init__(self, root: ElementTree.Element):
        self._root = root
        self._by_id = {node.attrib["id"]: node for node in root.iter() if "id" in node.attrib}

    def triangles(self) -> Iterator[Triangles]:
        unit = self._root.find("{*}asset/{*}unit")
        scale = np.diag([*[float(unit.get("meter", "1")) if unit is not None else 1.0] * 3, 1.0])
        for scene in self._root.iterfind("{*}library_visual_scenes/{*}visual_scene"):
            for node in scene.iterfind("{*}node"):
                yield from self._node(node, scale)

    def _node(self, node: ElementTree.Element, outer: np.ndarray) -> Iterator[Triangles]:
        place = outer @ _placement(node)
        for instance in node.iterfind("{*}instance_geometry"):
            bound = {one.attrib["symbol"]: one.attrib["target"] for one in instance.iter() if "symbol" in one.attrib}
            for vertices, faces, material in self._mesh(self._target(instance.attrib["url"])):
                color = self._color(bound.get(material, ""))
                yield vertices @ place[:3, :3].T + place[:3, 3], faces, color
        for child in node.iterfind("{*}node"):
            yield from self._node(child, place)

    def _target(self, address: str) -> ElementTree.Element:
        return self._by_id[address.removeprefix("#")]

    def _mesh(self, geometry: ElementTree.Element) -> Iterator[tuple[np.ndarray, np.ndarray, str]]:
        """Vertices, faces and the symbol of the material of each group of triangles."""
        for group in geometry.iterfind("{*}mesh/*"):
            kind = group.tag.rsplit("}", 1)[-1]
            if kind not in ("triangles", "polylist") or group.find("{*}p") is None:
                continue
            inputs = group.findall("{*}input")
            stride = 1 + max(int(one.attrib["offset"]) for one in inputs)
            corner = next(one for one in inputs if one.attrib["semantic"] == "VERTEX")
            indices = _numbers(group.find("{*}p"), int).reshape(-1, stride)[:, int(corner.attrib["offset"])]
            if kind == "polylist":
                faces = _fans(_numbers(group.find("{*}vcount"), int), indices)
            else:
                faces = indices.reshape(-1, 3)
            used, faces = np.unique(faces, return_inverse=True)
            yield self._positions(corner)[used], faces.reshape(-1, 3), group.get("material", "")

    def _positions(self, corner: ElementTree.Element) -> np.ndarray:
        vertices = self._target(corner.attrib["source"])
        named = next(one for one in vertices.iterfind("{*}input") if one.attrib["semantic"] == "POSITION")
        source = self._target(named.attrib["source"])
        return _numbers(source.find("{*}float_array"), float).reshape(-1, 3)

    def _color(self, material: str) -> Color | None:
        effect = self._target(material).find("{*}instance_effect") if material else None
        diffuse = None if effect is None else self._target(effect.attrib["url"]).find(".//{*}diffuse/{*}color")
        if diffuse is None:
            return None
        red, green, blue = np.clip(_numbers(diffuse, float)[:3] * 255.0, 0.0, 255.0).astype(int).tolist()
        return red, green, blue


def _numbers(element: ElementTree.Element | None, kind: type) -> np.ndarray:
    text = element.text if element is not None else None
    return np.array((text or "").split(), dtype=kind)


def _fans(counts: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Polygons, given one after another, as triangles."""
    first = np.cumsum(counts) - counts
    rows = np.repeat(first, counts - 2)
    step = np.arange(len(rows)) - np.repeat(np.cumsum(counts - 2) - (counts - 2), counts - 2)
    return np.stack([indices[rows], indices[rows + step + 1], indices[rows + step + 2]], 1)


def _placement(node: ElementTree.Element) -> np.ndarray:
    """The product of a node's own transforms, (4, 4)."""
    place = np.eye(4)
    for one in node:
        kind = one.tag.rsplit("}", 1)[-1]
        here = np.eye(4)
        if kind == "matrix":
            here = _numbers(one, float).reshape(4, 4)
        elif kind == "translate":
            here[:3, 3] = _numbers(one, float)
        elif kind == "scale":
            here[:3, :3] = np.diag(_numbers(one, float))
        elif kind == "rotate":
            x, y, z, degrees = _numbers(one, float)
            cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
            angle = math.radians(degrees)
            here[:3, :3] += math.sin(angle) * cross + (1.0 - math.cos(angle)) * cross @ cross
        place = place @ here
    return place
