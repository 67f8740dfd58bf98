"""Whether what a user puts in a part of a model has the types that its fields declare."""

import typing
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from adjoin.errors import ModelError, Subject

Part = TypeVar("Part")

_WORDS = {float: "a number", int: "a whole number", str: "text"}
_PLURALS = {float: "numbers", str: "names"}


def checked(part: Part, what: str) -> Part:
    """Return a part whose lists and arrays are tuples.

    Args:
        part: a record with a name.
        what: it is, for messages.

    Raises:
        ModelError: a field is not of its type.
    """
    hints = typing.get_type_hints(type(part))
    values = {field.name: _plain(getattr(part, field.name)) for field in fields(part)}  # type: ignore[arg-type]
    for name, value in values.items():
        if not _fits(value, hints[name]):
            subject, remedy = Subject(what, str(values["name"])), f"it must be {_spelled(hints[name])}"
            raise ModelError(f"{name} is {value!r}", subject=subject, field=name, remedy=remedy)
    return replace(part, **values)  # type: ignore[type-var]


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value is of a type: a number, text, one of several words, a tuple or a record of these."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return value in inner
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        inner = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return len(value) == len(inner) and all(map(_fits, value, inner))
    if is_dataclass(hint):
        own = typing.get_type_hints(hint)
        return type(value) is hint and all(_fits(getattr(value, name), own[name]) for name in own)
    return isinstance(value, (int, float) if hint is float else hint)


def _spelled(hint: Any) -> str:
    """Return a type in words."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return f"one of {', '.join(inner)}"
    if origin is not tuple:
        return _WORDS[hint]
    rows = typing.get_origin(inner[0]) is tuple
    each = f"tuples of {_spelled(inner[0])}" if rows else _PLURALS.get(inner[0]) or f"adjoin.{inner[0].__name__}"
    return f"a tuple of {each}" if inner[-1] is Ellipsis else f"{len(inner)} {each}"
