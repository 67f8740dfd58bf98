"""Programs as torch functions: batch shapes, autograd of any order, torch.func, torch.compile.

A `Kernel` is a program with its derivatives and its compiled forms, each made when first needed. Gradients are kernels
again: the backward of a call is a call of the vector-Jacobian program, so that every transform of torch composes.

Inputs are (*batch, *shape), streams (steps, *batch, *shape). An input without batch dimensions is shared by the batch:
the kernel reads it once, and its gradient is summed inside the kernel, always in the same order.
"""

import math
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch._C._functorch import is_legacy_batchedtensor  # pyright: ignore[reportMissingImports]

from adjoin.compiler.autodiff.derivatives import jvp, vjp
from adjoin.compiler.ir.graph import uncollected
from adjoin.compiler.ir.program import Program, TensorSpec
from adjoin.compiler.runtime.cpu.kernel import CpuKernel, ask_for_huge_pages
from adjoin.compiler.runtime.cuda.kernel import CudaKernel
from adjoin.compiler.runtime.interpreter import interpret
from adjoin.errors import CompileError, InputError
from adjoin.progress import announced

_PLAIN = (torch.Tensor, torch.nn.Parameter)
BITS = {torch.float32: 32, torch.float64: 64}


class Kernel:
    """A program, its compiled forms and its derivatives. Safe to use from any thread."""

    def __init__(self, program: Program):
        self.program = program
        self.key = program.key
        self.shares = any(spec.shared for spec in program.inputs)
        # Kernels that compute the same share what is made of them, and keep alive the one that is found by its key.
        self._twin = _registry.get(self.key)
        self._lock = threading.RLock() if self._twin is None else self._twin._lock
        self._made: dict[Any, Any] = {} if self._twin is None else self._twin._made
        if self._twin is None:
            _registry[self.key] = self

    def _once(self, key: Any, make: Any) -> Any:
        found = self._made.get(key)
        if found is None:
            with self._lock:
                found = self._made.get(key)
                if found is None:
                    with announced(f"differentiating {self.program.name}"), uncollected():
                        found = self._made[key] = make()
        return found

    def with_shared(self, shared: tuple[bool, ...]) -> "Kernel":
        """The kernel that reads these inputs once for the batch."""
        return self._once(("shared", shared), lambda: self._derive(self.program.with_shared(shared)))

    def without_sums(self) -> "Kernel":
        """The kernel that gives the gradients of shared inputs for each environment."""
        return self._once("apart", lambda: self._derive(self.program.without_sums()))

    def vjp(self, wanted: tuple[bool, ...], given: tuple[bool, ...]) -> tuple["Kernel", list[int]]:
        """See `adjoin.compiler.autodiff.derivatives.vjp`."""

        def make() -> tuple[Kernel, list[int]]:
            program, positions = vjp(self.program, wanted, given)
            return Kernel(program), positions

        return self._once(("vjp", wanted, given), make)

    def jvp(self, moved: tuple[bool, ...]) -> tuple["Kernel", list[int]]:
        """See `adjoin.compiler.autodiff.derivatives.jvp`."""

        def make() -> tuple[Kernel, list[int]]:
            program, positions = jvp(self.program, moved)
            return Kernel(program), positions

        return self._once(("jvp", moved), make)

    def code(self, device: torch.device, dtype: torch.dtype) -> "CpuKernel | CudaKernel | _Nothing | None":
        """The compiled form for a device; None where only the interpreter runs."""
        found = self._made.get((device, dtype))
        if found is None and device.type == "cpu":
            return self._once((device, dtype), lambda: CpuKernel(self.program, BITS[dtype]))
        if found is None and device.type == "cuda":
            return self._once((device, dtype), lambda: CudaKernel(self.program, BITS[dtype], device))
        if found is None and device.type == "meta":
            return self._once((device, dtype), _Nothing)
        return found

    def _derive(self, program: Program) -> "Kernel":
        return self if program is self.program else Kernel(program)

    def __call__(
        self,
        tensors: Sequence[torch.Tensor],
        integers: tuple[int, ...] = (),
        batches: Sequence[tuple[int, ...]] | None = None,
    ) -> list[torch.Tensor]:
        """Run on tensors of one dtype and device, of the right shapes; see `Function` for a checked way in.

        Args:
            tensors: one for each input.
            integers: the run-time integers.
            batches: the batch shape of each tensor, if the caller knows them.
        """
        kernel, batch, tensors = arrange(self, tensors, batches)
        tracked = False
        for tensor in tensors:
            if tensor.requires_grad:
                tracked = True
            if type(tensor) not in _PLAIN:
                return _opaque(kernel, integers, batch, tensors)
        if torch.compiler.is_compiling():
            return _opaque(kernel, integers, batch, tensors)
        if torch._C._are_functorch_transforms_active():
            return list(_Transformed.apply(kernel, integers, batch, *tensors))
        if (tracked and torch.is_grad_enabled()) or _forward_mode():
            return list(_Call.apply(kernel, integers, batch, *tensors))
        return kernel.run(tensors, integers, batch)

    def run(
        self,
        tensors: Sequence[torch.Tensor],
        integers: tuple[int, ...],
        batch: tuple[int, ...],
        into: Sequence[torch.Tensor | None] | None = None,
    ) -> list[torch.Tensor]:
        """Allocate the results, where `into` has no contiguous tensor for one, and launch; no autograd."""
        program = self.program
        dtype, device = tensors[0].dtype, tensors[0].device
        count = math.prod(batch)
        code = self.code(device, dtype)
        places = into or [None] * len(program.outputs)
        if code is None:
            results = self._interpret(tensors, integers, batch, count)
            return [r if place is None else place.copy_(r) for r, place in zip(results, places, strict=True)]
        words: list[int] = []
        kept = []
        for spec, tensor in zip(program.inputs, tensors, strict=True):
            size = spec.size
            if tensor.is_contiguous():
                words += (tensor.data_ptr(), 0, size) if spec.shared else (tensor.data_ptr(), size, size * count)
                continue
            rows = 1 if spec.shared else count
            flat = tensor.reshape((rows, size) if spec.steps is None else (tensor.shape[0], rows, size))
            if size > 1 and flat.stride(-1) != 1:
                flat = flat.contiguous()
            kept.append(flat)
            words += (flat.data_ptr(), 0 if spec.shared else flat.stride(-2), flat.stride(0))
        results: list[torch.Tensor] = []
        for spec, place in zip(program.outputs, places, strict=True):
            steps = () if spec.steps is None else (self._steps(spec, integers),)
            rows = -(-count // code.lanes(count)) if spec.shared else count
            shape = (*steps, rows, spec.size) if spec.shared else (*steps, *batch, *spec.shape)
            if place is None:
                place = torch.empty(shape, dtype=dtype, device=device)
                if device.type == "cpu":
                    ask_for_huge_pages(place)
            results.append(place)
            words += (results[-1].data_ptr(), spec.size, rows * spec.size)
        if count:
            code.launch(words, count, integers)
        for i, spec in enumerate(program.outputs):
            if spec.shared:
                steps = () if spec.steps is None else results[i].shape[:1]
                results[i] = results[i].sum(-2).reshape((*steps, *spec.shape))
        return results

    def _steps(self, spec: TensorSpec, integers: tuple[int, ...]) -> int:
        return spec.steps if isinstance(spec.steps, int) else integers[self.program.integers.index(str(spec.steps))]

    def _interpret(
        self, tensors: Sequence[torch.Tensor], integers: tuple[int, ...], batch: tuple[int, ...], count: int
    ) -> list[torch.Tensor]:
        flat = []
        for spec, tensor in zip(self.program.inputs, tensors, strict=True):
            steps = () if spec.steps is None else tensor.shape[:1]
            flat.append(tensor.reshape((*steps, 1 if spec.shared else count, spec.size)))
        results = []
        for spec, result in zip(
            self.program.outputs,
            interpret(self.program, flat, dict(zip(self.program.integers, integers, strict=True))),
            strict=True,
        ):
            steps = () if spec.steps is None else result.shape[:1]
            results.append(result.reshape((*steps, *(() if spec.shared else batch), *spec.shape)))
        return results

    def output_shapes(self, integers: tuple[int, ...], batch: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The shapes of the results."""
        shapes = []
        for spec in self.program.outputs:
            steps = () if spec.steps is None else (self._steps(spec, integers),)
            shapes.append((*steps, *(() if spec.shared else batch), *spec.shape))
        return shapes


_registry: "weakref.WeakValueDictionary[str, Kernel]" = weakref.WeakValueDictionary()


class _Nothing:
    """What runs on torch's meta device: results there have shapes and no numbers."""

    def lanes(self, batch: int) -> int:
        return 1

    def launch(self, words: Sequence[int], batch: int, integers: Sequence[int]) -> None:
        pass


def launched(device: torch.device, dtype: torch.dtype) -> list[Program]:
    """Programs of the kernels that were launched on a device and are still held by somebody."""
    return [kernel.program for kernel in list(_registry.values()) if (device, dtype) in kernel._made]


def _forward_mode() -> bool:
    return torch.autograd.forward_ad._current_level >= 0


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
        if kernel.shares:
            kernel = kernel.with_shared((False,) * len(specs))
        return kernel, first, tensors
    batched = [own for own in batches if len(own)]
    if all([own == batched[0] for own in batched]):  # noqa: C419
        return kernel.with_shared(tuple([len(own) == 0 for own in batches])), batched[0], tensors
    try:
        batch = torch.broadcast_shapes(*batches)
    except RuntimeError:
        given = ", ".join(f"'{spec.name}' {tuple(own)}" for spec, own in zip(specs, batches, strict=True))
        raise InputError(f"{kernel.program.name}: batch shapes do not broadcast: {given}") from None
    shared, arranged = [], []
    for spec, tensor, own in zip(specs, tensors, batches, strict=True):
        steps = () if spec.steps is None else tensor.shape[:1]
        shared.append(math.prod(own) == 1 != math.prod(batch))
        if shared[-1]:
            tensor = tensor.reshape((*steps, *spec.shape))
        elif own != batch:
            missing = (1,) * (len(batch) - len(own))
            tensor = tensor.reshape((*steps, *missing, *own, *spec.shape)).expand((*steps, *batch, *spec.shape))
        arranged.append(tensor)
    return kernel.with_shared(tuple(shared)), batch, arranged


class _Call(torch.autograd.Function):
    """A call under autograd. `kernel` already knows what is shared; every other tensor has the full batch shape."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, kernel: Kernel, integers: tuple[int, ...], batch: tuple[int, ...], *tensors: torch.Tensor
    ) -> Any:
        results = tuple(kernel.run(tensors, integers, batch))
        _remember(ctx, (kernel, integers, batch, *tensors), results)
        return results

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        wanted = ctx.needs_input_grad[3:]
        gradients = _pull(ctx.kernel, ctx.integers, ctx.batch, ctx.saved_tensors, cotangents, wanted)
        return None, None, None, *gradients

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        tensors = ctx.saved_tensors
        moved = tuple(tangent is not None for tangent in tangents[3:])
        kernel, positions = ctx.kernel.jvp(moved)
        results: list[torch.Tensor | None] = [None] * len(ctx.shapes)
        if positions:
            given = [tangent for tangent in tangents[3:] if tangent is not None]
            for i, result in zip(positions, _again(kernel, ctx.integers, ctx.batch, [*tensors, *given]), strict=True):
                results[i] = result
        like = tensors[0]
        return tuple(like.new_zeros(s) if r is None else r for r, s in zip(results, ctx.shapes, strict=True))


class _Transformed(_Call):
    """A call under torch.func's transforms, which need the context set up apart; torch takes far longer over those."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        kernel: Kernel, integers: tuple[int, ...], batch: tuple[int, ...], *tensors: torch.Tensor
    ) -> Any:
        return tuple(kernel.run(tensors, integers, batch))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _remember(ctx, inputs, output)

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        kernel: Kernel,
        integers: tuple[int, ...],
        batch: tuple[int, ...],
        *tensors: Any,
    ) -> Any:
        specs = kernel.program.inputs
        whole = (info.batch_size, *batch)
        shared, moved = [], []
        for spec, tensor, dim in zip(specs, tensors, in_dims[3:], strict=True):
            place = 0 if spec.steps is None else 1
            shared.append(dim is None and spec.shared)
            if dim is None and not spec.shared:
                tensor = tensor.unsqueeze(place)
            elif dim is not None:
                tensor = tensor.movedim(dim, place)
                if spec.shared:
                    tensor = tensor.reshape((*tensor.shape[: place + 1], *(1,) * len(batch), *spec.shape))
            steps = tensor.shape[:place]
            moved.append(tensor if shared[-1] else tensor.expand((*steps, *whole, *spec.shape)))
        results = list(_Transformed.apply(kernel.without_sums().with_shared(tuple(shared)), integers, whole, *moved))
        for i, spec in enumerate(kernel.program.outputs):
            if spec.shared and batch:
                first = 1 if spec.steps is None else 2
                results[i] = results[i].sum(dim=tuple(range(first, first + len(batch))))
        return tuple(results), tuple(0 if spec.steps is None else 1 for spec in kernel.program.outputs)


def _remember(ctx: Any, inputs: tuple[Any, ...], results: tuple[torch.Tensor, ...]) -> None:
    ctx.kernel, ctx.integers, ctx.batch, *tensors = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)
    ctx.shapes = [result.shape for result in results]


def _pull(
    kernel: Kernel,
    integers: tuple[int, ...],
    batch: tuple[int, ...],
    tensors: Sequence[torch.Tensor],
    cotangents: Sequence[torch.Tensor | None],
    wanted: Sequence[bool],
) -> list[torch.Tensor | None]:
    """The gradients of the wanted inputs, as a call of the vector-Jacobian kernel."""
    gradients: list[torch.Tensor | None] = [None] * len(tensors)
    given = tuple(cotangent is not None for cotangent in cotangents)
    backward, positions = kernel.vjp(tuple(wanted), given)
    if positions:
        present = [cotangent for cotangent in cotangents if cotangent is not None]
        for i, gradient in zip(positions, _again(backward, integers, batch, [*tensors, *present]), strict=True):
            gradients[i] = gradient
    for i, is_wanted in enumerate(wanted):
        if is_wanted and gradients[i] is None:
            gradients[i] = torch.zeros_like(tensors[i])
    return gradients


def _again(
    kernel: Kernel, integers: tuple[int, ...], batch: tuple[int, ...], tensors: list[torch.Tensor]
) -> Sequence[torch.Tensor]:
    """Call a derived kernel, whose inputs are arranged already, under whatever transforms are active."""
    if any(is_legacy_batchedtensor(tensor) for tensor in tensors):
        raise InputError("is_grads_batched=True is not supported; use torch.func.vmap over torch.func.vjp instead")
    if torch.compiler.is_compiling() or any(type(tensor) not in _PLAIN for tensor in tensors):
        return _opaque(kernel, integers, batch, tensors)
    function = _Transformed if torch._C._are_functorch_transforms_active() else _Call
    return function.apply(kernel, integers, batch, *tensors)


# torch.compile sees one opaque operator -----------------------------------------------------------------------------


@torch.library.custom_op("adjoin::call", mutates_args=())
def _call(kernel: str, sizes: list[int], tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return _lookup(kernel).run(tensors, *_unpack(sizes))


@_call.register_fake
def _(kernel: str, sizes: list[int], tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensors[0].new_empty(shape) for shape in _lookup(kernel).output_shapes(*_unpack(sizes))]


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
    integers, batch = _unpack(ctx.sizes)
    return None, None, _pull(_lookup(ctx.kernel), integers, batch, ctx.saved_tensors, cotangents, ctx.wanted)


_call.register_autograd(_backward, setup_context=_setup)


def _lookup(key: str) -> Kernel:
    try:
        return _registry[key]
    except KeyError:
        raise CompileError("a compiled graph outlived the traced function it calls; keep the function alive") from None


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
