"""The safetensors format, written and read here: the header's length, a JSON header, raw little-endian numbers.

The format is small enough that a strict reader is shorter than a dependency. Only what models need is read: float64 and
int64 tensors, in order and without holes, and string metadata.
"""

import json
from collections.abc import Mapping

import numpy as np

from adjoin.errors import ModelError

MAX_HEADER = 16 * 1024 * 1024
_KINDS = {"F64": "<f8", "I64": "<i8"}


def looks_like(data: bytes) -> bool:
    """Whether bytes begin like a safetensors file; XML never does."""
    return len(data) >= 9 and data[8:9] == b"{" and 2 <= int.from_bytes(data[:8], "little") <= max(len(data), 1 << 32)


def write(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> bytes:
    """A file with these tensors, in alphabetical order, and this metadata."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    chunks: list[bytes] = []
    at = 0
    for name in sorted(tensors):
        array = np.asarray(tensors[name])
        kind = "I64" if array.dtype.kind == "i" else "F64"
        chunk = np.ascontiguousarray(array, dtype=_KINDS[kind]).tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + len(chunk)]}
        chunks.append(chunk)
        at += len(chunk)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned
    return len(text).to_bytes(8, "little") + text + b"".join(chunks)


def read(data: bytes, source: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Tensors and metadata of a file.

    Args:
        data: the file.
        source: what to call it in messages.

    Raises:
        ModelError: any departure from the format.
    """

    def fail(message: str) -> ModelError:
        return ModelError(f"{source}: not a valid safetensors file: {message}")

    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise fail(f"the header of {length} bytes is cut off")
    if length > MAX_HEADER:
        raise fail(f"the header has {length} bytes; at most {MAX_HEADER} are read")
    try:
        header = json.loads(data[8 : 8 + length], object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise fail(f"the header is not JSON ({str(error)[:80]})") from None
    if not isinstance(header, dict):
        raise fail("the header is not an object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise fail("the metadata is not text by name")
    body = data[8 + length :]
    tensors: dict[str, np.ndarray] = {}
    spans: list[tuple[int, int]] = []
    for name, entry in header.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise fail(f"tensor {name!r} needs dtype, shape and data_offsets")
        kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if kind not in _KINDS:
            raise fail(f"tensor {name!r} has dtype {kind!r}; models have {' and '.join(_KINDS)}")
        if not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2 or len(shape) > 8:
            raise fail(f"tensor {name!r} has a shape or offsets that are not whole numbers")
        start, end = offsets
        size = 8
        for extent in shape:
            size *= extent
        if end > len(body) or end - start != size:
            raise fail(f"tensor {name!r} of shape {shape} needs {size} bytes; its offsets {offsets} do not hold them")
        spans.append((start, end))
        tensors[name] = np.frombuffer(body[start:end], dtype=_KINDS[kind]).reshape(shape)
    at = 0
    for start, end in sorted(spans):
        if start != at:
            raise fail(f"tensors overlap or leave a hole at byte {at}")
        at = end
    if at != len(body):
        raise fail(f"{len(body) - at} bytes follow the last tensor")
    return tensors, metadata


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a name occurs twice")
    return dict(pairs)


def _naturals(value: object) -> bool:
    return isinstance(value, list) and all(type(x) is int and 0 <= x < 2**48 for x in value)
