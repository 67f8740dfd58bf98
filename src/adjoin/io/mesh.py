"""Vertices of STL and OBJ files, read with every count checked against the bytes that are there."""

import io
import re

import numpy as np

from adjoin.io.xml import Element

MAX_OBJ_BYTES = 16 * 1024 * 1024
MAX_VERTICES = 1_000_000

_NUMBER = rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_THREE = re.compile(rb"[ \t]*%b[ \t]+%b[ \t]+%b(?:[ \t]|$)" % (_NUMBER, _NUMBER, _NUMBER))


def read_vertices(data: bytes, name: str, element: Element) -> np.ndarray:
    """The vertices of a mesh file.

    Args:
        data: the file.
        name: its name; the ending says the format.
        element: what asked for it, for messages.

    Returns:
        (n, 3) float64, finite, n >= 1.
    """
    ending = name.lower().rsplit(".", 1)[-1] if "." in name else ""
    if ending == "stl":
        vertices = _stl(data, name, element)
    elif ending == "obj":
        vertices = _obj(data, name, element)
    else:
        element.fail(
            f"mesh {name!r}: format {'.' + ending if ending else 'without an ending'} is not read; convert it to "
            ".stl or .obj, or pass meshes='ignore' to do without"
        )
    if len(vertices) == 0:
        element.fail(f"mesh {name!r} has no vertices")
    if not np.isfinite(vertices).all() or np.abs(vertices).max() > 1e9:
        element.fail(f"mesh {name!r} has vertices that are not finite or beyond 1e9")
    return vertices


def _stl(data: bytes, name: str, element: Element) -> np.ndarray:
    if len(data) >= 84:
        count = int.from_bytes(data[80:84], "little")
        if len(data) == 84 + 50 * count:
            triangles = np.frombuffer(data, np.uint8, offset=84).reshape(count, 50)
            if count > MAX_VERTICES:
                element.fail(f"mesh {name!r} has {count} triangles; at most {MAX_VERTICES} are read")
            with np.errstate(invalid="ignore"):  # signalling NaNs; they are refused with the others
                return triangles[:, 12:48].copy().view("<f4").reshape(-1, 3).astype(np.float64)
    if data[:80].lstrip()[:5].lower() == b"solid":
        return _rows(re.findall(rb"(?im)^[ \t]*vertex[ \t]+([^\r\n]*)", data), name, element)
    if len(data) < 84:
        element.fail(f"mesh {name!r} has {len(data)} bytes; an STL file has at least 84")
    count = int.from_bytes(data[80:84], "little")
    element.fail(f"mesh {name!r} says {count} triangles, which is {84 + 50 * count} bytes; it has {len(data)}")


def _obj(data: bytes, name: str, element: Element) -> np.ndarray:
    if len(data) > MAX_OBJ_BYTES:
        element.fail(f"mesh {name!r} has {len(data)} bytes; at most {MAX_OBJ_BYTES} of an OBJ file are read")
    return _rows(re.findall(rb"(?m)^[ \t]*v[ \t]+([^\r\n]*)", data), name, element)


def _rows(rows: list[bytes], name: str, element: Element) -> np.ndarray:
    """The first three numbers of every row."""
    if len(rows) > MAX_VERTICES:
        element.fail(f"mesh {name!r} has {len(rows)} vertices; at most {MAX_VERTICES} are read")
    numbers: list[bytes] = []
    for row in rows:
        found = _THREE.match(row)
        if found is None:
            shown = row[:40].decode("latin-1").strip()
            element.fail(f"mesh {name!r}: vertex {len(numbers) + 1}, {shown!r}, is not 3 numbers")
        numbers.append(found[0])
    if not numbers:
        return np.zeros((0, 3))
    return np.loadtxt(io.BytesIO(b"\n".join(numbers)), ndmin=2, comments=None)
