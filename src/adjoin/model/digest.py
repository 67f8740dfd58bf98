"""A model as plain data: the canonical content that is hashed, and that files are written from."""

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adjoin.model.model import Model


def plain(value: Any) -> Any:
    """Return dataclasses as dictionaries, tuples as lists, floats without a negative zero."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value + 0.0
    return value


def digest(model: "Model") -> str:
    """Return the SHA-256 over the canonical JSON of the model; floats are written with all their digits."""
    text = json.dumps(plain(model), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
