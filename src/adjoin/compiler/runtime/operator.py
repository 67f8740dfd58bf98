"""Programs as torch functions: batch shapes, autograd of any order, torch.func, torch.compile.

Gradients are kernels again: the backward of a call is a call of the vector-Jacobian program, so that every transform of
torch composes.

Inputs are (*batch, *shape), streams (steps, *batch, *shape). An input without batch dimensions is shared by the batch:
the kernel reads it once, and its gradient is summed inside the kernel, always in the same order.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch._C._functorch import is_legacy_batchedtensor, unwrap_if_dead  # pyright: ignore[reportMissingImports]
from torch.autograd import forward_ad

from adjoin.compiler.ir.program import TensorSpec
from adjoin.compiler.runtime.kernel import BITS, BoundKernel, Kernel, PreparedCall, find_kernel
from adjoin.compiler.runtime.signature import PLAIN
from adjoin.errors import InputError


def call(
    kernel: Kernel,
    tensors: Sequence[torch.Tensor],
    integers: tuple[int, ...] = (),
    batches: Sequence[tuple[int, ...]] | None = None,
) -> Sequence[torch.Tensor]:
    """Run a kernel on tensors of one dtype and device, of the right shapes; see `Function` for a checked way in.

    Args:
        kernel: what to run.
        tensors: one for each input.
        integers: the run-time integers.
        batches: the batch shape of each tensor, if the caller knows them.
    """
    if not torch.compiler.is_compiling() and forward_ad._current_level < 0:
        for matches, prepared in kernel.prepared:
            if prepared.integers == integers and matches(*tensors):
                return call_prepared(kernel, prepared, tensors)
    return call_first(kernel, tensors, integers, batches)


def call_prepared(kernel: Kernel, prepared: PreparedCall, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Run a call on tensors of the signature that it was prepared for, outside of forward mode."""
    if prepared.tracked and torch.is_grad_enabled():
        return _record(prepared.bind(kernel), *tensors)
    return prepared.run(tensors)


def call_first(
    kernel: Kernel,
    tensors: Sequence[torch.Tensor],
    integers: tuple[int, ...],
    batches: Sequence[tuple[int, ...]] | None = None,
) -> Sequence[torch.Tensor]:
    """Run a kernel on tensors of a signature that is not prepared, and prepare it; see `call`."""
    original, given = kernel, tensors
    kernel, batch, tensors = arrange(kernel, tensors, batches)
    bound = BoundKernel(kernel, integers, batch, any([tensor.requires_grad for tensor in tensors]))  # noqa: C419
    same = all([a is b for a, b in zip(given, tensors, strict=True)])  # noqa: C419
    return _apply(original, bound, given if same or not bound.tracked else None, tensors)


def _apply(
    owner: Kernel, bound: BoundKernel, given: Sequence[torch.Tensor] | None, tensors: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor]:
    """Run under whatever transforms are active; if there are none, prepare later calls of the owner like this one."""
    if torch.compiler.is_compiling() or any([type(tensor) not in PLAIN for tensor in tensors]):  # noqa: C419
        return _opaque(bound.kernel, bound.integers, bound.batch, tensors)
    if torch._C._are_functorch_transforms_active():
        return _Transformed.apply(bound, *tensors)
    tensors = [unwrap_if_dead(tensor) for tensor in tensors]  # those that outlived a transform
    forward_mode = forward_ad._current_level >= 0
    if given is not None and not forward_mode:
        owner.prepare(bound, [unwrap_if_dead(tensor) for tensor in given], tensors)
    if (bound.tracked and torch.is_grad_enabled()) or forward_mode:
        return _Call.apply(bound, *tensors)
    return bound.run(tensors)


def arrange(
    kernel: Kernel, tensors: Sequence[torch.Tensor], batches: Sequence[tuple[int, ...]] | None = None
) -> tuple[Kernel, tuple[int, ...], Sequence[torch.Tensor]]:
    """Decide what is shared, and bring everything else to the common batch shape."""
    specs = kernel.program.inputs
    batches = batches or [
        tensor.shape[spec.steps is not None : tensor.dim() - len(spec.shape)]
        for spec, tensor in zip(specs, tensors, strict=True)
    ]
    first = batches[0]
    if all([batch == first for batch in batches]):  # noqa: C419 a generator takes twice as long here
        return kernel.with_shared((False,) * len(specs)), first, tensors
    batched = [shape for shape in batches if len(shape)]
    if all([shape == batched[0] for shape in batched]):  # noqa: C419
        return kernel.with_shared(tuple([len(shape) == 0 for shape in batches])), batched[0], tensors
    try:
        batch = np.broadcast_shapes(*batches)  # torch's imports sympy
    except ValueError:
        got = ", ".join(f"'{spec.name}' {tuple(shape)}" for spec, shape in zip(specs, batches, strict=True))
        raise InputError(f"{kernel.program.name}: batch shapes do not broadcast: {got}") from None
    shared, arranged = [], []
    for spec, tensor, shape in zip(specs, tensors, batches, strict=True):
        steps = () if spec.steps is None else tensor.shape[:1]
        shared.append(math.prod(shape) == 1 != math.prod(batch))
        if shared[-1]:
            tensor = tensor.reshape((*steps, *spec.shape))
        elif shape != batch:
            missing = (1,) * (len(batch) - len(shape))
            tensor = tensor.reshape((*steps, *missing, *shape, *spec.shape)).expand((*steps, *batch, *spec.shape))
        arranged.append(tensor)
    return kernel.with_shared(tuple(shared)), batch, arranged


class _Call(torch.autograd.Function):
    """A call under autograd. The tensors are arranged."""

    @staticmethod
    def forward(ctx: Any, bound: BoundKernel, *tensors: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(*tensors)
        ctx.bound = bound
        return tuple(bound.run(tensors))

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        return None, *_pull(ctx.bound, ctx.saved_tensors, cotangents, ctx.needs_input_grad[1:])

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        bound: BoundKernel = ctx.bound
        moved = tuple(tangent is not None for tangent in tangents[1:])
        kernel, positions = bound.kernel.jvp(moved)
        shapes = bound.kernel.output_shapes(bound.integers, bound.batch)
        results: list[torch.Tensor | None] = [None] * len(shapes)
        if positions:
            inputs = [*ctx.saved_tensors, *[tangent for tangent in tangents[1:] if tangent is not None]]
            for i, result in zip(positions, _call_derived(kernel, bound, inputs), strict=True):
                results[i] = result
        like = ctx.saved_tensors[0]
        return tuple(like.new_zeros(s) if r is None else r for r, s in zip(results, shapes, strict=True))


_record = super(torch.autograd.Function, _Call).apply  # pyright: ignore[reportAttributeAccessIssue]
"""`_Call.apply` where no transforms of torch are active, without asking whether any are."""


class _Transformed(_Call):
    """A call under torch.func's transforms, which need the context set up apart; torch takes far longer over those."""

    @staticmethod
    def forward(bound: BoundKernel, *tensors: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return tuple(bound.run(tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.bound, *tensors = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], bound: BoundKernel, *tensors: Any) -> Any:
        kernel, batch = bound.kernel, bound.batch
        mapped = (info.batch_size, *batch)
        shared, moved = [], []
        for spec, tensor, dim in zip(kernel.program.inputs, tensors, in_dims[1:], strict=True):
            place = 0 if spec.steps is None else 1
            shared.append(dim is None and spec.shared)
            if dim is None and not spec.shared:
                tensor = tensor.unsqueeze(place)
            elif dim is not None:
                tensor = tensor.movedim(dim, place)
                if spec.shared:
                    tensor = tensor.reshape((*tensor.shape[: place + 1], *(1,) * len(batch), *spec.shape))
            steps = tensor.shape[:place]
            moved.append(tensor if shared[-1] else tensor.expand((*steps, *mapped, *spec.shape)))
        wide = kernel.without_sums().with_shared(tuple(shared))
        results = list(_Transformed.apply(BoundKernel(wide, bound.integers, mapped, bound.tracked), *moved))
        for i, spec in enumerate(kernel.program.outputs):
            if spec.shared and batch:
                first = 1 if spec.steps is None else 2
                results[i] = results[i].sum(dim=tuple(range(first, first + len(batch))))
        return tuple(results), tuple(0 if spec.steps is None else 1 for spec in kernel.program.outputs)


def _pull(
    bound: BoundKernel,
    tensors: Sequence[torch.Tensor],
    cotangents: Sequence[torch.Tensor | None],
    wanted: tuple[bool, ...],
) -> list[torch.Tensor | None]:
    """Return the gradients of the wanted inputs, as a call of the vector-Jacobian kernel."""
    seeded = tuple([cotangent is not None for cotangent in cotangents])
    pull = bound.pulls.get((wanted, seeded))
    if pull is None:
        backward, positions, taken = bound.kernel.pull(wanted, seeded)
        flat = [i for i, is_wanted in enumerate(wanted) if is_wanted and i not in positions]
        missing = [is_taken and not is_seeded for is_taken, is_seeded in zip(taken, seeded, strict=True)]
        shapes = bound.kernel.output_shapes(bound.integers, bound.batch) if any(missing) else [()] * len(seeded)
        zeros = [tensors[0].new_zeros(shape) if zero else None for shape, zero in zip(shapes, missing, strict=True)]
        pull = bound.pulls[wanted, seeded] = backward, positions, flat, zeros
    backward, positions, flat, zeros = pull
    if not all(seeded):
        cotangents = [
            zero if cotangent is None else cotangent for cotangent, zero in zip(cotangents, zeros, strict=True)
        ]
    present = [cotangent for cotangent in cotangents if cotangent is not None]
    gradients: list[torch.Tensor | None] = [None] * len(tensors)
    if positions:
        for i, gradient in zip(positions, _call_derived(backward, bound, (*tensors, *present)), strict=True):
            gradients[i] = gradient if wanted[i] else None
    for i in flat:
        gradients[i] = torch.zeros_like(tensors[i])
    return gradients


def _call_derived(kernel: Kernel, source: BoundKernel, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Call a derived kernel, whose inputs are arranged already, under whatever transforms are active.

    Args:
        kernel: what to run.
        source: what it was derived from.
        tensors: one for each input.
    """
    integers, batch = source.integers, source.batch
    if not torch.compiler.is_compiling() and forward_ad._current_level < 0:
        for matches, known in kernel.prepared:
            if known.other is None and known.integers == integers and known.batch == batch and matches(*tensors):
                return call_prepared(kernel, known, tensors)
    if any(is_legacy_batchedtensor(tensor) for tensor in tensors):
        raise InputError("is_grads_batched=True is not supported; use torch.func.vmap over torch.func.vjp instead")
    bound = BoundKernel(kernel, integers, batch, any(tensor.requires_grad for tensor in tensors))
    return _apply(kernel, bound, tensors, tensors)


# torch.compile sees one opaque operator -----------------------------------------------------------------------------


@torch.library.custom_op("adjoin::call", mutates_args=())
def _call(kernel: str, sizes: list[int], tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return find_kernel(kernel).run(tensors, *_unpack(sizes))


@_call.register_fake
def _(kernel: str, sizes: list[int], tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensors[0].new_empty(shape) for shape in find_kernel(kernel).output_shapes(*_unpack(sizes))]


def _opaque(
    kernel: Kernel, integers: tuple[int, ...], batch: tuple[int, ...], tensors: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    return torch.ops.adjoin.call(kernel.key, [len(integers), *integers, *batch], list(tensors))


def _unpack(sizes: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(sizes[1 : 1 + sizes[0]]), tuple(sizes[1 + sizes[0] :])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.kernel, ctx.sizes, tensors = inputs
    ctx.wanted = [tensor.requires_grad for tensor in tensors]
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, cotangents: list[torch.Tensor | None]) -> Any:
    bound = BoundKernel(find_kernel(ctx.kernel), *_unpack(ctx.sizes), True)
    return None, None, _pull(bound, ctx.saved_tensors, cotangents, tuple(ctx.wanted))


_call.register_autograd(_backward, setup_context=_setup)


def check_tensor(spec: TensorSpec, tensor: Any, name: str) -> None:
    """Raise an error that says what would be right, if an input is not of the right kind and shape."""
    if not isinstance(tensor, torch.Tensor):
        raise InputError(f"{name}: '{spec.name}' must be a torch tensor, got {type(tensor).__name__}")
    if tensor.dtype not in BITS:
        raise InputError(f"{name}: '{spec.name}' must be float32 or float64, got {tensor.dtype}; convert it with .to()")
    needed = len(spec.shape) + (spec.steps is not None)
    if tensor.dim() < needed or tuple(tensor.shape[tensor.dim() - len(spec.shape) :]) != spec.shape:
        steps = "" if spec.steps is None else "steps, "
        expected = f"({steps}..., {', '.join(map(str, spec.shape))})" if spec.shape else f"({steps}...)"
        raise InputError(f"{name}: '{spec.name}' must have the shape {expected}, got {tuple(tensor.shape)}")
