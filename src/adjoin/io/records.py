"""Frozen records as attributes of XML elements: each field that is not its default, numbers one after the other."""

import dataclasses
import math
import typing
from typing import Any, TypeVar

from adjoin.io.xml import Element

Record = TypeVar("Record")


def attributes_of(record: Any, skip: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the fields of a record that are not their defaults, as text."""
    found: dict[str, str] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.name not in skip and value != field.default:
            found[field.name] = value if isinstance(value, str) else " ".join(map(repr, _flat(value)))
    return found


def record_of(element: Element, kind: type[Record], **given: Any) -> Record:
    """Return the record that an element's attributes say.

    Args:
        element: the element; attributes that it lacks are defaults.
        kind: the record's class.
        given: fields that are not attributes.

    Raises:
        ModelError: an attribute that has to be there is missing, or is not what it should be.
    """
    hints = typing.get_type_hints(kind)
    values = dict(given)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        needed = field.default is dataclasses.MISSING
        if field.name in given or not (needed or field.name in element.attributes):
            continue
        values[field.name] = _value(element, field.name, hints[field.name])
    return kind(**values)


def _value(element: Element, name: str, hint: Any) -> Any:
    if hint is str:
        return element.text(name)
    if typing.get_origin(hint) is typing.Literal:
        known = typing.get_args(hint)
        text = element.text(name)
        return (
            text if text in known else element.fail(f"{name} is {text!r}", f"it may be: {', '.join(known)}", field=name)
        )
    if hint is int:
        return element.integer(name, 0)
    if hint is float:
        return element.number(name, 0.0, math.inf)
    inner = typing.get_args(hint)
    if inner[-1] is Ellipsis:
        return element.numbers(name, len(element.text(name).split()), largest=math.inf)
    if inner[0] is float:
        return element.numbers(name, len(inner), largest=math.inf)
    flat = element.numbers(name, 9)
    return flat[:3], flat[3:6], flat[6:]


def _flat(value: Any) -> list[Any]:
    return [x for item in value for x in _flat(item)] if isinstance(value, tuple) else [value]
