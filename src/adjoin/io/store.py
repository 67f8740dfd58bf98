"""Models as safetensors files: numbers as tensors, one per field of each kind of part; names and structure as metadata.

No code is stored and none is run on loading. The fields are those of the dataclasses: `bodies.mass` is (n,),
`bodies.rotation` is (n, 3, 3); `bodies.joint.damping`, whose length differs from joint to joint, is one flat tensor,
with the lengths in `bodies.joint.damping#`. The metadata is one JSON text, `adjoin_model`, with a checksum of
everything: one entry alone, since safetensors writes several in any order.
"""

import dataclasses
import hashlib
import json
import typing
from pathlib import Path
from typing import Any

import numpy as np

from adjoin.errors import ModelError, Subject
from adjoin.extras import needed
from adjoin.model.digest import plain
from adjoin.model.equality import EqualityConstraint
from adjoin.model.fluid import Medium
from adjoin.model.joint import Joint, Mimic
from adjoin.model.model import Model
from adjoin.model.parts import Actuator, Body, ContactPair, Fixture, Frame, Geometry, HeightGrid, Keyframe
from adjoin.model.sensor import Sensor
from adjoin.model.tendon import Tendon

FORMAT = 1
METADATA = "adjoin_model"
CHECKSUM = "checksum"
_DTYPES = {"F64": "<f8", "I64": "<i8"}

_PARTS: dict[str, type] = {
    "bodies": Body,
    "frames": Frame,
    "geometries": Geometry,
    "actuators": Actuator,
    "keyframes": Keyframe,
    "pairs": ContactPair,
    "fixture": Fixture,
}
_LISTS: dict[str, type] = {
    "tendons": Tendon,
    "equalities": EqualityConstraint,
    "sensors": Sensor,
    "terrain": HeightGrid,
}
"""Parts that are few: they are in the metadata, with all digits of their numbers."""
_SHAPES: dict[str, tuple[int, ...]] = {
    "position": (3,),
    "rotation": (3, 3),
    "com": (3,),
    "inertia": (6,),
    "axis": (3,),
    "size": (3,),
    "bias": (3,),
    "solref": (2,),
    "solimp": (5,),
    "control_range": (2,),
    "force_range": (2,),
}


def save(model: Model, path: str | Path) -> None:
    """Write a model to a file; `adjoin.load` reads it back, equal to the last bit.

    Args:
        model: any model.
        path: of the file, conventionally ending in .safetensors.

    Raises:
        InputError: the package safetensors is not installed.
    """
    Path(path).write_bytes(to_bytes(model))


def to_bytes(model: Model) -> bytes:
    """Return the file that `save` writes."""
    tensors: dict[str, np.ndarray] = {"gravity": np.array(model.gravity, dtype=np.float64)}
    structure: dict[str, Any] = {
        "format": FORMAT,
        "name": model.name,
        "parents_touch": model.parents_touch,
        "elliptic": model.elliptic,
        "impratio": model.impratio,
        "integrator": model.integrator,
        "timestep": model.timestep,
        "magnetic_field": list(model.magnetic_field),
        "exclusions": [list(pair) for pair in model.exclusions],
    }
    structure["mocap"] = list(model.mocap)
    structure["medium"] = plain(model.medium)
    for part in _LISTS:
        structure[part] = plain(getattr(model, part))
    for part, record in _PARTS.items():
        items = getattr(model, part)
        items = [items] if isinstance(items, Fixture) else list(items)
        structure[part] = len(items)
        _write_columns(part, record, items, tensors, structure)
    return needed("safetensors.numpy", "save", "saving a model").save(tensors, {METADATA: _text(tensors, structure)})


def _text(tensors: dict[str, np.ndarray], structure: dict[str, Any]) -> str:
    """The metadata: the structure as JSON, with the checksum of everything."""
    return _json({**structure, CHECKSUM: _checksum(tensors, structure)})


def _json(structure: dict[str, Any]) -> str:
    return json.dumps(structure, sort_keys=True, separators=(",", ":"))


def _checksum(tensors: dict[str, np.ndarray], structure: dict[str, Any]) -> str:
    """The SHA-256 of what a file holds, whatever order its tensors are in."""
    text = _json({name: value for name, value in structure.items() if name != CHECKSUM})
    found = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    for name, tensor in sorted(tensors.items()):
        found.update(f"\0{name}\0{tensor.dtype.str}{tensor.shape}\0".encode("utf-8", "surrogatepass"))
        found.update(tensor.tobytes())
    return found.hexdigest()


def is_saved(data: bytes) -> bool:
    """Return whether bytes begin like a safetensors file, with the length of a JSON header; XML never does."""
    return len(data) >= 9 and data[8:9] == b"{" and 2 <= int.from_bytes(data[:8], "little") <= max(len(data), 1 << 32)


def from_bytes(data: bytes, source: str) -> Model:
    """Return the model in a file that `save` wrote.

    Raises:
        ModelError: the file is not one, or what it holds is no model.
    """
    try:
        return _model(*_open(data))
    except ModelError as error:
        error.file = source
        raise


def _model(tensors: dict[str, np.ndarray], structure: dict[str, Any]) -> Model:
    reader = _Columns(tensors, structure)
    exclusions = reader.value("exclusions", list)
    if not all(isinstance(p, list) and len(p) == 2 and all(isinstance(n, str) for n in p) for p in exclusions):
        reader.fail("exclusions", "exclusions are not pairs of names")
    parts = {part: tuple(reader.records(part, record)) for part, record in _PARTS.items()}
    lists = {part: tuple(reader.listed(part, record)) for part, record in _LISTS.items()}
    fixture = parts.pop("fixture")
    if len(fixture) != 1:
        reader.fail("fixture", f"fixture has {len(fixture)} parts", "it must have one")
    return Model(
        name=reader.value("name", str),
        gravity=tuple(reader.column("gravity", (3,)).tolist()),  # type: ignore[arg-type]
        parents_touch=reader.value("parents_touch", bool),
        elliptic=reader.value("elliptic", bool),
        impratio=float(reader.value("impratio", float)),
        integrator=reader.value("integrator", str),
        timestep=reader.value("timestep", float),
        magnetic_field=reader.plain("magnetic_field", tuple[float, float, float]),
        mocap=reader.plain("mocap", tuple[str, ...]),
        medium=reader.plain("medium", Medium),
        exclusions=tuple((first, second) for first, second in exclusions),
        fixture=fixture[0],
        **parts,  # type: ignore[arg-type]
        **lists,  # type: ignore[arg-type]
    )


def _open(data: bytes) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the tensors and the structure in a safetensors file."""
    library = needed("safetensors", "save", "loading a saved model")
    try:
        entries = dict(library.deserialize(data))
    except library.SafetensorError as error:
        raise ModelError(f"not a valid safetensors file: {error}") from None
    tensors: dict[str, np.ndarray] = {}
    for name, entry in entries.items():
        subject = Subject("tensor", name)
        if entry["dtype"] not in _DTYPES:
            raise ModelError(f"its dtype is {entry['dtype']}", subject=subject, remedy="models have F64 and I64")
        try:
            tensors[name] = np.frombuffer(entry["data"], _DTYPES[entry["dtype"]]).reshape(entry["shape"])
        except ValueError:
            raise ModelError("it has a shape that no array can have", subject=subject) from None
    metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__") or {}
    if METADATA not in metadata:
        problem = f"the safetensors file has no metadata {METADATA!r}"
        raise ModelError(problem, remedy="only files that adjoin.save wrote are models")
    try:
        structure = json.loads(metadata[METADATA])
    except (ValueError, RecursionError):
        raise ModelError(f"the metadata {METADATA!r} is not JSON") from None
    if not isinstance(structure, dict) or structure.get("format") != FORMAT:
        raise ModelError(f"the metadata {METADATA!r} is not a model of format {FORMAT}")
    if structure.get(CHECKSUM) != _checksum(tensors, structure):
        raise ModelError(
            "its checksum is not that of what it holds", remedy="it was damaged or edited; save the model again"
        )
    return tensors, structure


def _fields(record: type) -> list[tuple[str, Any]]:
    hints = typing.get_type_hints(record)
    return [(field.name, hints[field.name]) for field in dataclasses.fields(record)]


def _is_ragged(name: str, hint: Any) -> bool:
    return typing.get_origin(hint) is tuple and name not in _SHAPES and typing.get_args(hint)[-1] is Ellipsis


def _write_columns(
    path: str, record: type, items: list[Any], tensors: dict[str, np.ndarray], structure: dict[str, Any]
) -> None:
    for name, hint in _fields(record):
        key = f"{path}.{name}"
        values = [getattr(item, name) for item in items]
        if hint is Joint:
            _write_columns(key, Joint, values, tensors, structure)
        elif hint == Mimic | None:
            present = [index for index, value in enumerate(values) if value is not None]
            structure[key] = present
            _write_columns(key, Mimic, [values[index] for index in present], tensors, structure)
        elif hint is float or name in _SHAPES:
            tensors[key] = np.array(values, dtype=np.float64).reshape(len(items), *_SHAPES.get(name, ()))
        elif hint is int:
            tensors[key] = np.array(values, dtype=np.int64)
        elif _is_ragged(name, hint):
            tensors[key + "#"] = np.array([len(value) for value in values], dtype=np.int64)
            tail = (3,) if name == "vertices" else ()
            tensors[key] = np.array([x for value in values for x in value], dtype=np.float64).reshape(-1, *tail)
        elif typing.get_origin(hint) is tuple:
            tensors[key] = np.array(values, dtype=np.float64).reshape(len(items), len(typing.get_args(hint)))
        else:
            structure[key] = values


@dataclasses.dataclass
class _Columns:
    """Reads columns back, each checked for its kind and length."""

    tensors: dict[str, np.ndarray]
    structure: dict[str, Any]

    def fail(self, key: str, problem: str, remedy: str = "") -> typing.NoReturn:
        raise ModelError(problem, field=key, remedy=remedy)

    def value(self, key: str, kind: type) -> Any:
        value = self.structure.get(key)
        if type(value) is not kind:
            self.fail(key, f"{key} is not a {kind.__name__}")
        return value

    def column(self, key: str, shape: tuple[int, ...], kind: str = "f") -> np.ndarray:
        tensor = self.tensors.get(key)
        if tensor is None or tensor.dtype.kind != kind:
            self.fail(key, f"{key} is not a tensor of {'F64' if kind == 'f' else 'I64'}")
        if tensor.shape != shape:
            self.fail(key, f"{key} has shape {tensor.shape}", f"it must have {shape}")
        return tensor

    def plain(self, key: str, hint: Any) -> Any:
        """Return a value of the metadata."""
        return self._plain(key, hint, self.structure.get(key))

    def listed(self, part: str, record: type) -> list[Any]:
        """Return records of the metadata."""
        return [self._plain(f"{part}[{i}]", record, item) for i, item in enumerate(self.value(part, list))]

    def _plain(self, key: str, hint: Any, value: Any) -> Any:
        """Return a value of the metadata as its type has it."""
        inner = typing.get_args(hint)
        if dataclasses.is_dataclass(hint) and isinstance(value, dict):
            hints = dict(_fields(hint))  # type: ignore[arg-type]
            if set(value) != set(hints):
                self.fail(key, f"{key} has the fields {', '.join(map(str, value))}", f"it needs {', '.join(hints)}")
            return hint(**{name: self._plain(f"{key}.{name}", hints[name], item) for name, item in value.items()})  # type: ignore[operator]
        if typing.get_origin(hint) is tuple and isinstance(value, list):
            kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else list(inner)
            if len(kinds) == len(value):
                return tuple(self._plain(key, kind, item) for kind, item in zip(kinds, value, strict=True))
        if typing.get_origin(hint) is typing.Literal and value in inner:
            return value
        if hint in (str, float, int) and type(value) is hint:
            return value
        self.fail(key, f"{key} is {value!r:.80}, which it cannot be")

    def records(self, part: str, record: type) -> list[Any]:
        count = self.value(part, int)
        if not 0 <= count <= 1_000_000:
            self.fail(part, f"{part} is {count}, which is not a possible count")
        return self._records(part, record, count)

    def _records(self, path: str, record: type, count: int) -> list[Any]:
        columns = {name: self._read(f"{path}.{name}", name, hint, count) for name, hint in _fields(record)}
        return [record(**{name: values[i] for name, values in columns.items()}) for i in range(count)]

    def _read(self, key: str, name: str, hint: Any, count: int) -> list[Any]:
        if hint is Joint:
            return self._records(key, Joint, count)
        if hint == Mimic | None:
            return self._optional(key, count)
        if hint is float or name in _SHAPES:
            return _frozen(self.column(key, (count, *_SHAPES.get(name, ()))).tolist())
        if hint is int:
            return self.column(key, (count,), "i").tolist()
        if _is_ragged(name, hint):
            return self._ragged(key, name, count)
        if typing.get_origin(hint) is tuple:
            return _frozen(self.column(key, (count, len(typing.get_args(hint)))).tolist())
        values = self.value(key, list)
        if len(values) != count or not all(isinstance(value, str) for value in values):
            self.fail(key, f"{key} is not {count} names")
        if typing.get_origin(hint) is typing.Literal and not set(values) <= set(typing.get_args(hint)):
            self.fail(key, "some of these are unknown", f"known: {', '.join(typing.get_args(hint))}")
        return values

    def _ragged(self, key: str, name: str, count: int) -> list[Any]:
        lengths = self.column(key + "#", (count,), "i").tolist()
        tail = (3,) if name == "vertices" else ()
        if any(length < 0 for length in lengths):
            self.fail(key + "#", f"{key}# has a negative length")
        flat = _frozen(self.column(key, (sum(lengths), *tail)).tolist())
        out, at = [], 0
        for length in lengths:
            out.append(tuple(flat[at : at + length]))
            at += length
        return out

    def _optional(self, key: str, count: int) -> list[Mimic | None]:
        present = self.value(key, list)
        if not all(type(i) is int and 0 <= i < count for i in present) or len(set(present)) != len(present):
            self.fail(key, f"{key} is not different indices of joints")
        out: list[Mimic | None] = [None] * count
        for index, mimic in zip(present, self._records(key, Mimic, len(present)), strict=True):
            out[index] = mimic
        return out


def _frozen(value: list[Any]) -> list[Any]:
    return [_tuple(item) for item in value]


def _tuple(value: Any) -> Any:
    return tuple(_tuple(item) for item in value) if isinstance(value, list) else value
