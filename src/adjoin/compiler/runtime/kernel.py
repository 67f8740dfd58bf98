"""A program with its derivatives and its executables, each made when first needed."""

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from adjoin.compiler.autodiff.derivatives import jvp, vjp
from adjoin.compiler.ir.graph import uncollected
from adjoin.compiler.ir.program import Program, TensorSpec
from adjoin.compiler.runtime.backend import Executable, backend_for
from adjoin.compiler.runtime.bounded import BoundedCache
from adjoin.compiler.runtime.fork import ForkSafeLock
from adjoin.compiler.runtime.signature import signature
from adjoin.compiler.runtime.torch_compile import called_while_tracing
from adjoin.compiler.runtime.trace_cache import stored
from adjoin.errors import CompileError
from adjoin.progress import announced

BITS = {torch.float32: 32, torch.float64: 64}
VARIANTS = 256  # derivatives, shared forms and executables of one kernel that are kept; far more than any use has had
PREPARED = 8  # signatures of calls of one kernel that are kept prepared
PATIENCE = 32  # calls of other signatures after which one of them takes the place of the oldest


Run = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
Pulls = dict[Any, tuple["Kernel", list[int], list[int], list[torch.Tensor | None]]]


class Kernel:
    """A program, its compiled forms and its derivatives. Safe to use from any thread.

    Attributes:
        program: what it computes.
        key: a hash of that and of how it is differentiated.
        shared: for each input, whether it is one for the whole batch.
        together: for each input, whether its gradient comes with those of the others of which this holds, see `pull`.
        prepared: for the signatures of the latest calls, what recognizes one, and the call made ready for it.
    """

    def __init__(self, program: Program, together: tuple[bool, ...] | None = None):
        self.program = program
        self.together = together
        self.key = program.key
        self.shared = tuple(spec.shared for spec in program.inputs)
        self._variants: BoundedCache[Any] = BoundedCache(VARIANTS)
        self._executables: dict[tuple[torch.device, torch.dtype], Executable] = {}
        self.prepared: tuple[tuple[Callable[..., bool], PreparedCall], ...] = ()
        self._unprepared = 0
        with _registry_lock:
            original = _registry.setdefault(self.key, self)
        if original is not self:
            # Kernels that compute the same share their variants, and keep alive the one that is found by its key.
            self._original, self._variants = original, original._variants

    @property
    def is_compiled(self) -> bool:
        """Return whether it, or a form of it that shares inputs, has run."""
        forms = [value for _, value in self._variants.items() if isinstance(value, Kernel)]
        return bool(self._executables) or any(form is not self and form.is_compiled for form in forms)

    def with_shared(self, shared: tuple[bool, ...]) -> "Kernel":
        """Return the kernel that reads these inputs once for the batch."""
        if shared == self.shared:
            return self
        if torch.compiler.is_compiling():
            _share_beside(self.key, shared)
        return self._with_shared(shared)

    def _with_shared(self, shared: tuple[bool, ...]) -> "Kernel":
        return self._variants.get(("shared", shared), lambda: Kernel(self.program.with_shared(shared), self.together))

    def without_sums(self) -> "Kernel":
        """Return the kernel that gives the gradients of shared inputs for each environment."""
        if not any(spec.shared for spec in self.program.outputs):
            return self
        return self._variants.get("without sums", lambda: Kernel(self.program.without_sums()))

    def vjp(self, wanted: tuple[bool, ...], seeded: tuple[bool, ...]) -> tuple["Kernel", list[int]]:
        """Return the kernel of the vector-Jacobian product, see `adjoin.compiler.autodiff.derivatives.vjp`."""
        program = self.program  # the derivative may hold it, but not this kernel
        return self._derivative(("vjp", wanted, seeded), lambda: vjp(program, wanted, seeded))

    def pull(self, wanted: tuple[bool, ...], seeded: tuple[bool, ...]) -> tuple["Kernel", list[int], tuple[bool, ...]]:
        """Return a kernel of at least a vector-Jacobian product, the inputs it has gradients of, and its cotangents.

        The steps of a loop differ in which states and controls take gradients, those at its ends from those between.
        Of inputs that come `together` one kernel serves all mixes: the first mix gets a kernel of its own, with
        cotangents of all outputs; what this does not cover gets the kernel of all these inputs. So a caller that asks
        for one mix only does not pay for more. Gradients of the two kernels are equal up to rounding.
        """
        if self.together is None:
            return *self.vjp(wanted, seeded), seeded
        others = [asked for asked, is_together in zip(wanted, self.together, strict=True) if not is_together]
        seeded, known = (True,) * len(seeded), False
        for key, value in self._variants.items():
            if not isinstance(key, tuple) or key[0] != "vjp" or key[2] != seeded:
                continue
            if others == [asked for asked, is_together in zip(key[1], self.together, strict=True) if not is_together]:
                known = True
                if all(has or not asked for has, asked in zip(key[1], wanted, strict=True)):
                    return *value, seeded
        if known:
            wanted = tuple(a or b for a, b in zip(wanted, self.together, strict=True))
        return *self.vjp(wanted, seeded), seeded

    def jvp(self, moved: tuple[bool, ...]) -> tuple["Kernel", list[int]]:
        """Return the kernel of the Jacobian-vector product, see `adjoin.compiler.autodiff.derivatives.jvp`."""
        program = self.program
        return self._derivative(("jvp", moved), lambda: jvp(program, moved))

    def _derivative(
        self, key: tuple[Any, ...], differentiate: Callable[[], tuple[Program, list[int]]]
    ) -> tuple["Kernel", list[int]]:
        name = self.program.name

        def make() -> tuple[Program, list[int]]:
            with announced(f"differentiating {name}"), uncollected():
                return differentiate()

        def compute() -> tuple[Kernel, list[int]]:
            program, positions = stored((name, self.key, *key), make)
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
        dtype, device = tensors[0].dtype, tensors[0].device
        count = math.prod(batch)
        executable = self.executable(device, dtype)
        results: list[torch.Tensor] = []
        for i, shape in enumerate(self.allocated_shapes(executable, integers, batch)):
            place = None if into is None else into[i]
            results.append(torch.empty(shape, dtype=dtype, device=device) if place is None else place)
        if count:
            executable.launch(tensors, results, count, integers)
        return sum_partial(self.program, results)

    def allocated_shapes(
        self, executable: Executable, integers: tuple[int, ...], batch: tuple[int, ...]
    ) -> list[tuple[int, ...]]:
        """Return the shapes of what a launch writes."""
        shapes = []
        for spec in self.program.outputs:
            steps = () if spec.steps is None else (self._steps(spec, integers),)
            rows = (executable.partial_sums(math.prod(batch)), spec.size) if spec.shared else (*batch, *spec.shape)
            shapes.append((*steps, *rows))
        return shapes

    def prepare(self, bound: "BoundKernel", tensors: Sequence[torch.Tensor], arranged: Sequence[torch.Tensor]) -> None:
        """Do what a call does apart from the data, for all later calls of this kernel with the same signature.

        Args:
            bound: what runs.
            tensors: those of the call.
            arranged: the same as `bound` takes them.
        """
        self._unprepared += 1
        if len(self.prepared) == PREPARED and self._unprepared < PATIENCE:
            return
        self._unprepared = 0
        viewed = all(a.data_ptr() == b.data_ptr() for a, b in zip(tensors, arranged, strict=True))
        if viewed and (matches := signature(tensors)) and (run := prepare_run(bound, arranged)):
            other = None if bound.kernel is self else bound.kernel
            call = PreparedCall(other, bound.integers, bound.batch, bound.tracked, run, {})
            self.prepared = ((matches, call), *self.prepared[: PREPARED - 1])

    def _steps(self, spec: TensorSpec, integers: tuple[int, ...]) -> int:
        return spec.steps if isinstance(spec.steps, int) else integers[self.program.integers.index(str(spec.steps))]

    def output_shapes(self, integers: tuple[int, ...], batch: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the shapes of the results."""
        shapes = []
        for spec in self.program.outputs:
            steps = () if spec.steps is None else (self._steps(spec, integers),)
            shapes.append((*steps, *(() if spec.shared else batch), *spec.shape))
        return shapes


class PreparedCall(NamedTuple):
    """A call of a kernel made ready for one signature. It does not hold the kernel, which holds it.

    Attributes:
        other: the kernel that runs, if it is not the one that was called: one that knows what is shared.
        integers: the run-time integers.
        batch: the batch shape.
        tracked: whether one of the tensors wants a gradient.
        run: runs on the tensors of the call; no autograd.
        pulls: see `BoundKernel`.
    """

    other: Kernel | None
    integers: tuple[int, ...]
    batch: tuple[int, ...]
    tracked: bool
    run: Run
    pulls: Pulls

    def bind(self, kernel: Kernel) -> "BoundKernel":
        """Return the same with the kernel that was called."""
        return BoundKernel(self.other or kernel, self.integers, self.batch, self.tracked, self.run, self.pulls)


class BoundKernel:
    """A kernel with its integers and its batch: what a call needs besides tensors.

    Attributes:
        kernel: which knows what is shared.
        integers: the run-time integers.
        batch: the batch shape.
        tracked: whether one of the tensors wants a gradient.
        run: runs on tensors of the shapes that the kernel takes; no autograd.
        pulls: for the gradients that were wanted and the cotangents that were given, the kernel of the vector-Jacobian
            product, which inputs its results belong to, the inputs whose gradient is 0, and what the kernel takes for
            outputs without a cotangent: zeros, or None if it does not take them.
    """

    __slots__ = ("batch", "integers", "kernel", "pulls", "run", "tracked")

    def __init__(
        self,
        kernel: Kernel,
        integers: tuple[int, ...],
        batch: tuple[int, ...],
        tracked: bool,
        run: Run | None = None,
        pulls: Pulls | None = None,
    ):
        self.kernel, self.integers, self.batch, self.tracked = kernel, integers, batch, tracked
        self.run: Run = run or (lambda tensors: kernel.run(tensors, integers, batch))
        self.pulls: Pulls = {} if pulls is None else pulls


def prepare_run(bound: BoundKernel, tensors: Sequence[torch.Tensor]) -> Run | None:
    """Return a fast `run` for tensors of the layout of these, which does not hold the kernel; None if there is none."""
    kernel, count = bound.kernel, math.prod(bound.batch)
    element = tensors[0].new_empty(())
    executable, program = kernel.executable(element.device, element.dtype), kernel.program
    shapes = kernel.allocated_shapes(executable, bound.integers, bound.batch)
    likes = [element.expand(shape) for shape in shapes]  # `empty_like` is the fastest of torch's ways to allocate
    places = [torch.empty_like(like) for like in likes]
    launch = executable.prepare(tensors, places, count, bound.integers) if count else None
    if launch is None or not all(place.is_contiguous() for place in places):
        return None
    empty_like, data_ptr = torch.empty_like, torch.Tensor.data_ptr
    single, summed = likes[0], any(spec.shared for spec in program.outputs)

    def run_single(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        result = empty_like(single)
        launch((*map(data_ptr, tensors), result.data_ptr()))
        return [result]

    def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        results = [empty_like(like) for like in likes]
        launch((*map(data_ptr, tensors), *map(data_ptr, results)))
        return sum_partial(program, results) if summed else results

    return run if summed or len(likes) > 1 else run_single


def sum_partial(program: Program, results: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the results of a launch, those that are sums over the batch added up."""
    for i, spec in enumerate(program.outputs):
        if spec.shared:
            steps = () if spec.steps is None else results[i].shape[:1]
            results[i] = results[i].sum(-2).reshape((*steps, *spec.shape))
    return results


_registry: "weakref.WeakValueDictionary[str, Kernel]" = weakref.WeakValueDictionary()
_registry_lock = ForkSafeLock()


def find_kernel(key: str) -> Kernel:
    """Return the kernel with a key, which somebody has to hold."""
    try:
        return _registry[key]
    except KeyError:
        raise CompileError("a compiled graph outlived the traced function it calls; keep the function alive") from None


@called_while_tracing
def _share_beside(key: str, shared: tuple[bool, ...]) -> bool:
    """Make the form of a kernel that shares inputs while torch compiles a call of it, which torch cannot follow."""
    _registry[key]._with_shared(shared)
    return True


def launched(device: torch.device, dtype: torch.dtype) -> list[Program]:
    """Return programs of the kernels that were launched on a device and are still held by somebody."""
    return [kernel.program for kernel in list(_registry.values()) if (device, dtype) in kernel._variants]
