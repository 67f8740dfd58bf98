"""Triangle meshes of STL, OBJ, Collada and glTF files, parsed by trimesh and pycollada.

Both trust their input. A robot file can come from anywhere, so the checks are made here: sizes before anything is
allocated, three numbers for each vertex, no DOCTYPE or entities, no other file opened but buffers of glTF that the
caller reads. Of Collada, plain colors are read; textures, lights and the up axis are ignored, as ROS does.
"""

import base64
import functools
import io
import json
import logging
import re
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote
from xml.parsers import expat

import numpy as np

from adjoin.errors import InputError, ModelError, Option, Subject
from adjoin.extras import needed
from adjoin.io.xml import MAX_DEPTH, MAX_ELEMENTS, Element

MAX_OBJ_BYTES = 16 * 1024 * 1024
MAX_VERTICES = 1_000_000
MAX_NODES = 10_000
MESH_FORMATS = (".stl", ".obj", ".dae", ".glb", ".gltf")

_QUIET = logging.NullHandler()

Color = tuple[int, int, int]
"""Red, green and blue from 0 to 255."""

_NUMBER = rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_THREE = rb"%b[ \t]+%b[ \t]+%b" % (_NUMBER, _NUMBER, _NUMBER)


@dataclass(frozen=True, eq=False)
class Surface:
    """Triangles of one color.

    Attributes:
        vertices: (n, 3), m; float64, finite.
        faces: (m, 3), indices of vertices, counterclockwise seen from outside.
        color: of all of them, if the file has one.
    """

    vertices: np.ndarray
    faces: np.ndarray
    color: Color | None = None


def read_mesh(
    data: bytes,
    name: str,
    element: Element,
    options: Sequence[Option] = (),
    beside: Callable[[str], bytes] | None = None,
) -> list[Surface]:
    """Return the surfaces of a mesh file, with at least one vertex among them.

    Args:
        data: the file.
        name: its name; the ending says the format.
        element: what refers to it, for messages.
        options: what the caller could do without the mesh, for messages.
        beside: returns the bytes of a file that the mesh names; None if it may name none.

    Raises:
        ModelError: the format is not read, the file is malformed or too large, or a package is missing.
    """
    subject = Subject("mesh", name)
    ending = name[name.rfind(".") :].lower() if "." in name else ""
    if ending not in MESH_FORMATS:
        problem = f"files of format {ending} are not read" if ending else "its name has no ending that says the format"
        element.fail(problem, f"convert it to {' or '.join(MESH_FORMATS)}", subject=subject, options=options)
    gltf = functools.partial(_gltf, beside=beside)
    read = {".stl": _stl, ".obj": _obj, ".dae": _collada, ".glb": gltf, ".gltf": gltf}[ending]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", DeprecationWarning)  # how numpy says that a text is not all numbers
            surfaces = _checked(read(data))
    except (_Refused, InputError) as error:
        element.fail(error.problem, error.remedy, subject=subject, options=options)
    except ModelError:  # of a file that it refers to
        raise
    except Exception as error:  # whatever a broken file makes of a parser
        problem = f"it cannot be read ({str(error) or type(error).__name__})"
        element.fail(problem, subject=subject, options=options)
    return surfaces


class _Refused(ModelError):
    """A mesh that a check here refuses, and why."""


def _checked(surfaces: Iterable[Surface]) -> list[Surface]:
    """Return surfaces whose vertices are finite and not too many."""
    checked: list[Surface] = []
    count = 0
    for surface in surfaces:
        count += len(surface.vertices)
        if count > 3 * MAX_VERTICES:
            raise _Refused(f"it has more than {3 * MAX_VERTICES} vertices")
        if surface.vertices.ndim != 2 or surface.vertices.shape[1] != 3 or surface.faces.shape[1:] != (3,):
            raise _Refused("it has vertices that are not 3 numbers, or faces that are not triangles")
        if not np.isfinite(surface.vertices).all() or np.abs(surface.vertices).max(initial=0.0) > 1e9:
            raise _Refused("it has vertices that are not finite or larger than 1e9")
        if surface.faces.min(initial=0) < 0 or surface.faces.max(initial=-1) >= len(surface.vertices):
            raise _Refused("it has faces with vertices that do not exist")
        checked += [surface] if len(surface.vertices) else []
    if not checked:
        raise _Refused("it has no vertices")
    return checked


def _stl(data: bytes) -> Iterator[Surface]:
    count = int.from_bytes(data[80:84], "little")
    if len(data) == 84 + 50 * count:
        if count > MAX_VERTICES:
            raise _Refused(f"it has {count} triangles", remedy=f"the limit is {MAX_VERTICES}")
    elif data[:80].lstrip()[:5].lower() == b"solid":
        data = data.lower()
        if data.count(b"vertex") > MAX_VERTICES:
            raise _Refused(f"it has {data.count(b'vertex')} vertices", remedy=f"the limit is {MAX_VERTICES}")
        data = _three_numbers(data, b"vertex")
        data += b"" if data.rfind(b"endsolid") > data.rfind(b"vertex") else b"\nendsolid"
    elif len(data) < 84:
        raise _Refused(f"it has {len(data)} bytes", remedy="an STL file has at least 84")
    else:
        raise _Refused(f"it claims {count} triangles, which is {84 + 50 * count} bytes, but it has {len(data)}")
    return _trimesh(data, "stl")


def _obj(data: bytes) -> Iterator[Surface]:
    if len(data) > MAX_OBJ_BYTES:
        raise _Refused(f"it has {len(data)} bytes", remedy=f"the limit for an OBJ file is {MAX_OBJ_BYTES}")
    return _trimesh(_three_numbers(data, b"v"), "obj", maintain_order=True, skip_materials=True)


def _trimesh(data: bytes, kind: str, **options: bool) -> Iterator[Surface]:
    logging.getLogger("trimesh").addHandler(_QUIET)  # without any handler its remarks would go to standard error
    scene = needed("trimesh", "meshes", "reading it").load_scene(
        io.BytesIO(data), file_type=kind, process=False, **options
    )
    for node in scene.graph.nodes_geometry:
        place, name = scene.graph[node]
        mesh = scene.geometry[name]
        vertices = np.asarray(mesh.vertices, dtype=np.float64)
        if not np.array_equal(place, np.eye(4)):
            vertices = vertices @ place[:3, :3].T + place[:3, 3]
        faces = getattr(mesh, "faces", np.zeros((0, 3), dtype=np.int64))  # vertices alone are a cloud of points
        factor = getattr(getattr(getattr(mesh, "visual", None), "material", None), "baseColorFactor", None)
        yield Surface(vertices, np.asarray(faces), None if factor is None else _rgb(factor[:3]))


def _gltf(data: bytes, beside: Callable[[str], bytes] | None) -> Iterator[Surface]:
    """Read glTF, binary or as text; textures are dropped, since they are never drawn."""
    binary = data[:4] == b"glTF"
    length = int.from_bytes(data[12:16], "little") if binary else len(data)
    tree = json.loads(data[20 : 20 + length] if binary else data)
    for name in ("images", "textures", "samplers", "animations", "skins", "cameras"):
        tree.pop(name, None)
    for material in tree.get("materials", ()):
        color = material.get("pbrMetallicRoughness", {}).get("baseColorFactor")
        material.clear()
        material["pbrMetallicRoughness"] = {} if color is None else {"baseColorFactor": color}
    for buffer in tree.get("buffers", ()):
        address = str(buffer.get("uri", "data:"))
        if not address.startswith("data:"):
            if beside is None:
                raise _Refused("its buffers are in other files", remedy="write it as .glb")
            inside = base64.b64encode(beside(unquote(address))).decode()
            buffer["uri"] = f"data:application/octet-stream;base64,{inside}"
    sizes = {"SCALAR": 1, "VEC2": 2, "VEC3": 3}
    accessors = tree.get("accessors", ())
    if sum(abs(int(one.get("count", 0))) * sizes.get(one.get("type"), 16) for one in accessors) > 12 * MAX_VERTICES:
        raise _Refused(f"it has more than {12 * MAX_VERTICES} numbers")
    if len(tree.get("nodes", ())) > MAX_NODES:
        raise _Refused(f"its scene has more than {MAX_NODES} nodes")
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    if binary:
        rest = data[20 + length :]
        head = b"glTF" + struct.pack("<III", 2, 20 + len(text) + len(rest), len(text)) + b"JSON"
        text = head + text + rest
    return _trimesh(text, "glb" if binary else "gltf")


def _three_numbers(data: bytes, key: bytes) -> bytes:
    """Return a text in which every vertex begins its line, and has three numbers and no more."""
    bad = re.search(rb"(?m)^[ \t]*%b[ \t](?![ \t]*%b(?:[ \t\r]|$))([^\r\n]*)" % (key, _THREE), data)
    if bad is not None:
        number, text = data.count(b"\n", 0, bad.start()) + 1, bad[1][:40].decode("latin-1").strip()
        raise _Refused(f"line {number}: the vertex {text!r} is not 3 numbers")
    if re.search(rb"(?m)^(?:[ \t]+%b[ \t]|%b\t|%b[ \t]+%b[ \t]+[^\s])" % (key, key, key, _THREE), data):
        return re.sub(rb"(?m)^[ \t]*%b[ \t]+(%b)[^\r\n]*" % (key, _THREE), rb"%b \1" % key, data)
    return data


def _collada(data: bytes) -> Iterator[Surface]:
    collada = needed("collada", "meshes", "reading it")
    _check_elements(data)
    if re.search(rb"(?i)[\s>]-?nan[\s<]", data):  # pycollada would make them zeros
        raise _Refused("some of its numbers are nan")
    ignored = [collada.DaeBrokenRefError, collada.common.DaeUnsupportedError]
    document = collada.Collada(io.BytesIO(data), ignore=ignored)
    if document.errors:  # a texture that is missing would take the geometry with it: read it again without materials
        data = re.sub(rb"(?s)<bind_material>.*?</bind_material>", b"", data)
        document = collada.Collada(io.BytesIO(data), ignore=ignored)
    unit = np.diag([*[document.assetInfo.unitmeter or 1.0] * 3, 1.0])
    scenes = [document.scene] if document.scene else document.scenes
    for node, place in _placed(collada, [node for scene in scenes for node in scene.nodes], unit, [0]):
        colors = {material.symbol: _color(material.target.effect) for material in node.materials}
        for group in node.geometry.primitives:
            if isinstance(group, (collada.polylist.Polylist, collada.triangleset.TriangleSet)):
                triangles = _triangles(group) if isinstance(group, collada.polylist.Polylist) else group
                if triangles.vertex_index.min(initial=0) < 0:
                    raise _Refused("it has faces with vertices that do not exist")
                used, faces = np.unique(triangles.vertex_index, return_inverse=True)
                vertices = triangles.vertex[used] @ place[:3, :3].T + place[:3, 3]
                yield Surface(vertices, faces.reshape(-1, 3), colors.get(group.material))


def _check_elements(data: bytes) -> None:
    """Raise an error if a Collada file has declarations, or too many elements for a parser that keeps them all."""
    count = depth = 0

    def declare(*_: Any) -> None:
        raise _Refused("it has DOCTYPE or entity declarations, which are refused")

    def start(*_: Any) -> None:
        nonlocal count, depth
        count, depth = count + 1, depth + 1
        if count > MAX_ELEMENTS:
            raise _Refused(f"it has more than {MAX_ELEMENTS} elements")
        if depth > MAX_DEPTH:
            raise _Refused(f"its elements are nested more than {MAX_DEPTH} deep")

    def end(*_: Any) -> None:
        nonlocal depth
        depth -= 1

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler, parser.StartElementHandler, parser.EndElementHandler = declare, start, end
    parser.Parse(data, True)


def _triangles(polygons: Any) -> Any:
    """Return polygons of Collada as triangles, if their counts of corners are those of the corners that it lists."""
    counts = np.asarray(polygons.vcounts)
    if counts.min(initial=3) < 3 or int(counts.sum()) != len(polygons.vertex_index):
        listed = f"but it lists {len(polygons.vertex_index)}"
        raise _Refused(f"its polygons claim {int(counts.sum())} corners, each at least 3, {listed}")
    return polygons.triangleset()


def _placed(
    collada: Any, nodes: Iterable[Any], place: np.ndarray, visited: list[int]
) -> Iterator[tuple[Any, np.ndarray]]:
    """Return the geometries of a scene, and where they are, (4, 4); nodes may stand in it many times over."""
    for node in nodes:
        visited[0] += 1
        if visited[0] > MAX_NODES:
            raise _Refused(f"its scene has more than {MAX_NODES} nodes")
        if isinstance(node, collada.scene.GeometryNode):
            yield node, place
        elif isinstance(node, collada.scene.Node):
            yield from _placed(collada, node.children, place @ node.matrix, visited)


def _color(effect: Any) -> Color | None:
    """Return the plain color of an effect; pycollada makes black of a texture that is missing."""
    if effect.xmlnode.find(".//{*}diffuse/{*}color") is None:
        return None
    return _rgb([255.0 * x for x in effect.diffuse[:3]])


def _rgb(channels: Iterable[float]) -> Color:
    red, green, blue = (int(min(max(x, 0.0), 255.0)) for x in channels)
    return red, green, blue


def to_stl(surfaces: Iterable[Surface]) -> bytes:
    """Return surfaces as one binary STL file, for MuJoCo, which reads no Collada and no glTF."""
    corners = np.concatenate([surface.vertices[surface.faces] for surface in surfaces]).astype("<f4")
    rows = np.zeros(len(corners), dtype=[("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("color", "<u2")])
    rows["corners"] = corners
    return bytes(80) + struct.pack("<I", len(rows)) + rows.tobytes()
