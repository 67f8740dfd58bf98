"""Signatures of calls: everything about tensors apart from their numbers, recognized in one step."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

try:
    from torch._C._dynamo import guards  # pyright: ignore[reportMissingImports]

    _TensorGuards: Any = guards.TensorGuards
except (ImportError, AttributeError):  # nothing is recognized then, and every call is checked and arranged anew
    _TensorGuards = None

PLAIN = (torch.Tensor, torch.nn.Parameter)


def signature(tensors: Sequence[torch.Tensor]) -> Callable[..., bool] | None:
    """Return a function that tells whether as many tensors have the signature of these.

    It compares types, shapes, strides, dtypes, devices and requires_grad, which of them are one tensor passed twice,
    and whether transforms or modes of torch are active: all that torch.compile guards. It does not see whether
    gradients are recorded or forward mode is active.

    Returns:
        The function; None if these tensors have no signature.
    """
    if _TensorGuards is None:
        return None
    positions = {id(tensor): i for i, tensor in reversed(list(enumerate(tensors)))}  # where each is passed first
    if len(positions) < len(tensors):
        firsts = [positions[id(tensor)] for tensor in tensors]
        once = sorted(positions.values())
        check = signature([tensors[i] for i in once])

        def matches_repeated(*given: torch.Tensor) -> bool:
            same = all([given[i] is given[first] for i, first in enumerate(firsts)])  # noqa: C419 on the fast path
            return same and check(*[given[i] for i in once])  # pyright: ignore[reportOptionalCall]

        return matches_repeated if check else None
    sizes, strides = [list(tensor.shape) for tensor in tensors], [list(tensor.stride()) for tensor in tensors]
    matches = _TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return matches if matches(*tensors) else None
