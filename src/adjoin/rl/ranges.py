"""What an option may be: annotations of attributes, which are checked."""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, get_args

from adjoin.errors import InputError


class Range(NamedTuple):
    """The values that an attribute may have.

    Attributes:
        right: What they are, as in "must be a positive number".
        holds: Says whether a value is one of them.
    """

    right: str
    holds: Callable[[Any], bool]


def check_attributes(what: str, owner: object, annotations: Mapping[str, Any]) -> None:
    """Raise where an attribute is not what its annotation says.

    Args:
        what: Begins the message.
        owner: What has the attributes.
        annotations: By name; those without a `Range` are not checked. What may be None has it as an alternative.
    """
    for name, annotation in annotations.items():
        value, kinds = getattr(owner, name, None), (annotation, *get_args(annotation))
        for right, holds in (x for kind in kinds for x in getattr(kind, "__metadata__", ())):
            if not holds(value) and not (value is None and type(None) in kinds):
                raise InputError(f"{what}{name} must be {right}{' or None' * (type(None) in kinds)}, got {value!r}")


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _number(value: Any, least: float = -math.inf, most: float = math.inf) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value) and least <= value <= most


def _all(value: Any, holds: Callable[[Any], bool]) -> bool:
    return isinstance(value, (tuple, list)) and all(map(holds, value))


Switch = Annotated[bool, Range("True or False", lambda x: isinstance(x, bool))]
Whole = Annotated[int, Range("a whole number of at least 0", lambda x: _whole(x, 0))]
Count = Annotated[int, Range("a whole number of at least 1", lambda x: _whole(x, 1))]
Counts = Annotated[
    tuple[int, ...], Range("a tuple of whole numbers of at least 1", lambda x: _all(x, lambda each: _whole(each, 1)))
]
Number = Annotated[float, Range("a finite number", _number)]
Positive = Annotated[float, Range("a positive number", lambda x: _number(x, 0.0) and x > 0.0)]
NotNegative = Annotated[float, Range("a number of at least 0", lambda x: _number(x, 0.0))]
Share = Annotated[float, Range("a number from 0 to 1", lambda x: _number(x, 0.0, 1.0))]
Betas = Annotated[
    tuple[float, float],
    Range(
        "two numbers of at least 0 and less than 1",
        lambda x: _all(x, lambda each: _number(each, 0.0) and each < 1.0) and len(x) == 2,
    ),
]
Delay = Annotated[
    tuple[int, int],
    Range(
        "the least and the greatest delay, whole numbers of at least 0",
        lambda x: _all(x, lambda each: _whole(each, 0)) and len(x) == 2 and x[0] <= x[1],
    ),
]
