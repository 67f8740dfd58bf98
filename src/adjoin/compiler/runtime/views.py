"""Launches whose kernel reads parts of tensors and writes parts of results, without making views each time."""

import math
from collections.abc import Callable, Sequence

import torch

from adjoin.compiler.runtime.kernel import Kernel

Part = tuple[int, torch.Tensor]
"""Which tensor, and a view of it."""


def prepare_views(
    kernel: Kernel,
    integers: tuple[int, ...],
    batch: tuple[int, ...],
    tensors: Sequence[torch.Tensor],
    inputs: Sequence[Part],
    shapes: Sequence[tuple[int, ...]],
    outputs: Callable[[Sequence[torch.Tensor]], list[Part]],
) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]] | None:
    """Do what a launch does apart from the data; no autograd.

    Args:
        kernel: what to launch.
        integers: its run-time integers.
        batch: the batch shape.
        tensors: what it reads parts of.
        inputs: the part that is each input of the kernel.
        shapes: of the results that are allocated.
        outputs: from the results, the part that is each output of the kernel.

    Returns:
        A function from tensors of the same layout to new results; None if there is nothing to gain.
    """
    element = tensors[0].new_empty(())
    likes = [element.expand(shape) for shape in shapes]
    empty_like, data_ptr = torch.empty_like, torch.Tensor.data_ptr
    results = [empty_like(like) for like in likes]
    written = outputs(results)
    views = [view for _, view in (*inputs, *written)]
    if not all(view.numel() for view in views) or not all(result.is_contiguous() for result in results):
        return None
    executable = kernel.executable(element.device, element.dtype)
    launch = executable.prepare(views[: len(inputs)], views[len(inputs) :], math.prod(batch), integers)
    if launch is None:
        return None
    reads = [(i, view.data_ptr() - tensors[i].data_ptr()) for i, view in inputs]
    writes = [(i, view.data_ptr() - results[i].data_ptr()) for i, view in written]

    def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        results = [empty_like(like) for like in likes]
        sources, targets = [*map(data_ptr, tensors)], [*map(data_ptr, results)]
        launch([*[sources[i] + offset for i, offset in reads], *[targets[i] + offset for i, offset in writes]])
        return results

    return run
