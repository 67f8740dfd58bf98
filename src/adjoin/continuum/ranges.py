"""Which values of parameters are physical."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from adjoin.errors import InputError


class Range(NamedTuple):
    """The values that a parameter may have.

    Attributes:
        right: what they are, as in "must be positive".
        wrong: says of each value whether it is outside. NaN is not: it ends its own variant, visibly.
        member: what a parameter with a value for each has them for, such as "particle".
    """

    right: str
    wrong: Callable[[torch.Tensor], torch.Tensor]
    member: str = ""


POSITIVE = Range("positive", lambda x: x <= 0)
NOT_NEGATIVE = Range("at least 0", lambda x: x < 0)
FRACTION = Range("from 0 to 1", lambda x: (x < 0) | (x > 1))
INSIDE_UNIT = Range("greater than 0 and less than 1", lambda x: (x <= 0) | (x >= 1))
BELOW_ONE = Range("at least 0 and less than 1", lambda x: (x < 0) | (x >= 1))
ACUTE = Range("between 0 and π/2 rad", lambda x: (x <= 0) | (x >= math.pi / 2))


def check_ranges(
    what: str,
    values: Mapping[str, torch.Tensor],
    ranges: Mapping[str, Range],
    like: torch.Tensor,
    members: int = 0,
) -> None:
    """Raise if a parameter has a value that nothing physical has; reads one boolean from the device.

    Args:
        what: begins the message.
        values: parameters, (*batch) or (*batch, members); those without a range may have any values.
        ranges: of parameters.
        like: of the device of the state; what is elsewhere is named by the rollout.
        members: of the set that the ranges name.
    """
    checked = {name: x.detach() for name, x in values.items() if name in ranges and x.device == like.device}
    if not checked or (like.is_cuda and torch.cuda.is_current_stream_capturing()):
        return
    wrong = {name: ranges[name].wrong(x) for name, x in checked.items()}
    if not bool(torch.stack([each.any() for each in wrong.values()]).any()):
        return
    name = next(name for name, each in wrong.items() if bool(each.any()))
    index = wrong[name].nonzero()[0].tolist()
    value, range_ = checked[name][tuple(index)].item(), ranges[name]
    each = range_.member and index and checked[name].shape[-1] == members
    member = [f"{range_.member} {index.pop()}"] if each else []
    place = ", ".join([*([f"variant {', '.join(map(str, index))}"] if index else []), *member])
    raise InputError(f"{what}: {name}{place and ' of '}{place} must be {range_.right}, got {value:g}")
