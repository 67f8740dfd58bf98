"""A program with its derivatives and its executables, each made when first needed."""

import math
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from adjoin.compiler.autodiff.derivatives import jvp, vjp
from adjoin.compiler.ir.graph import uncollected
from adjoin.compiler.ir.program import Program, TensorSpec
from adjoin.compiler.runtime.backend import Executable, backend_for
from adjoin.compiler.runtime.bounded import BoundedCache
from adjoin.errors import CompileError
from adjoin.progress import announced

BITS = {torch.float32: 32, torch.float64: 64}
VARIANTS = 256  # derivatives, shared forms and executables of one kernel that are kept; far more than any use has had


class Kernel:
    """A program, its compiled forms and its derivatives. Safe to use from any thread.

    Attributes:
        program: what it computes.
        key: a hash of that and of how it is differentiated.
        shared: for each input, whether it is one for the whole batch.
    """

    def __init__(self, program: Program):
        self.program = program
        self.key = program.key
        self.shared = tuple(spec.shared for spec in program.inputs)
        self._variants: BoundedCache[Any] = BoundedCache(VARIANTS)
        self._executables: dict[tuple[torch.device, torch.dtype], Executable] = {}
        with _registry_lock:
            original = _registry.setdefault(self.key, self)
        if original is not self:
            # Kernels that compute the same share their variants, and keep alive the one that is found by its key.
            self._original, self._variants = original, original._variants

    def with_shared(self, shared: tuple[bool, ...]) -> "Kernel":
        """Return the kernel that reads these inputs once for the batch."""
        if shared == self.shared:
            return self
        return self._variants.get(("shared", shared), lambda: Kernel(self.program.with_shared(shared)))

    def without_sums(self) -> "Kernel":
        """Return the kernel that gives the gradients of shared inputs for each environment."""
        if not any(spec.shared for spec in self.program.outputs):
            return self
        return self._variants.get("without sums", lambda: Kernel(self.program.without_sums()))

    def vjp(self, wanted: tuple[bool, ...], seeded: tuple[bool, ...]) -> tuple["Kernel", list[int]]:
        """Return the kernel of the vector-Jacobian product, see `adjoin.compiler.autodiff.derivatives.vjp`."""
        return self._derivative(("vjp", wanted, seeded), lambda: vjp(self.program, wanted, seeded))

    def jvp(self, moved: tuple[bool, ...]) -> tuple["Kernel", list[int]]:
        """Return the kernel of the Jacobian-vector product, see `adjoin.compiler.autodiff.derivatives.jvp`."""
        return self._derivative(("jvp", moved), lambda: jvp(self.program, moved))

    def _derivative(
        self, key: tuple[Any, ...], differentiate: Callable[[], tuple[Program, list[int]]]
    ) -> tuple["Kernel", list[int]]:
        def compute() -> tuple[Kernel, list[int]]:
            with announced(f"differentiating {self.program.name}"), uncollected():
                program, positions = differentiate()
                return Kernel(program), positions

        return self._variants.get(key, compute)

    def executable(self, device: torch.device, dtype: torch.dtype) -> Executable:
        """Return what runs on a device."""
        executable = self._executables.get((device, dtype))
        if executable is None:
            executable = self._executables[device, dtype] = self._variants.get(
                (device, dtype), lambda: backend_for(device.type).executable(self.program, BITS[dtype], device)
            )
        return executable

    def run(
        self,
        tensors: Sequence[torch.Tensor],
        integers: tuple[int, ...],
        batch: tuple[int, ...],
        into: Sequence[torch.Tensor | None] | None = None,
    ) -> list[torch.Tensor]:
        """Allocate the results, where `into` has no contiguous tensor for one, and launch; no autograd."""
        outputs = self.program.outputs
        dtype, device = tensors[0].dtype, tensors[0].device
        count = math.prod(batch)
        executable = self.executable(device, dtype)
        results: list[torch.Tensor] = []
        for i, spec in enumerate(outputs):
            place = None if into is None else into[i]
            if place is None:
                steps = () if spec.steps is None else (self._steps(spec, integers),)
                rows = (executable.partial_sums(count), spec.size) if spec.shared else (*batch, *spec.shape)
                place = torch.empty((*steps, *rows), dtype=dtype, device=device)
            results.append(place)
        if count:
            executable.launch(tensors, results, count, integers)
        for i, spec in enumerate(outputs):
            if spec.shared:
                steps = () if spec.steps is None else results[i].shape[:1]
                results[i] = results[i].sum(-2).reshape((*steps, *spec.shape))
        return results

    def _steps(self, spec: TensorSpec, integers: tuple[int, ...]) -> int:
        return spec.steps if isinstance(spec.steps, int) else integers[self.program.integers.index(str(spec.steps))]

    def output_shapes(self, integers: tuple[int, ...], batch: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the shapes of the results."""
        shapes = []
        for spec in self.program.outputs:
            steps = () if spec.steps is None else (self._steps(spec, integers),)
            shapes.append((*steps, *(() if spec.shared else batch), *spec.shape))
        return shapes


_registry: "weakref.WeakValueDictionary[str, Kernel]" = weakref.WeakValueDictionary()
_registry_lock = threading.Lock()


def find_kernel(key: str) -> Kernel:
    """Return the kernel with a key, which somebody has to hold."""
    try:
        return _registry[key]
    except KeyError:
        raise CompileError("a compiled graph outlived the traced function it calls; keep the function alive") from None


def launched(device: torch.device, dtype: torch.dtype) -> list[Program]:
    """Return programs of the kernels that were launched on a device and are still held by somebody."""
    return [kernel.program for kernel in list(_registry.values()) if (device, dtype) in kernel._variants]
