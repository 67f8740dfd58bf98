"""`adjoin.function`: your own kernel from a Python function."""

import functools
import inspect
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad

from adjoin.compiler.autodiff.derivatives import vjp
from adjoin.compiler.ir import pytree as tree
from adjoin.compiler.ir.graph import uncollected
from adjoin.compiler.ir.program import Program, TensorSpec, trace
from adjoin.compiler.runtime.backend import find_target, prebuild
from adjoin.compiler.runtime.cache import Cache
from adjoin.compiler.runtime.kernel import BITS, Kernel
from adjoin.compiler.runtime.operator import arrange, call_first, call_prepared, check_tensor
from adjoin.compiler.runtime.trace_cache import stored
from adjoin.errors import InputError, TraceError
from adjoin.progress import announced

UNIT = 16  # bytes that a thread of a GPU writes at once


@dataclass(frozen=True)
class PerStep:
    """Marks what there is one of for each step.

    Where inputs of `function` are declared, it marks a shape: the input is a stream, (steps, ..., *shape), for `scan`.
    Where tensors are passed by name, it marks a tensor whose first dimension is time.
    """

    value: Any


@dataclass(frozen=True)
class Table:
    """Marks an input of `function` as a table: `table[i, j]` reads one number of it where the data says.

    A height map, a map of costs, a policy on a grid. Its numbers have no gradient.
    """

    shape: tuple[int, ...]


class Integer:
    """Marks an input of `function` as a whole number given at run time, such as a trip count."""


class Function:
    """A traced function as a torch operator. Made by `function`; call it with tensors.

    Args:
        traced: the function.
        inputs: see `function`.
        key: everything that decides what the function computes; with it, a process that finds the kernel in the cache
            does not trace. See `stored`.
        together: names of inputs whose gradients are wanted in many mixes, which one kernel serves. See `Kernel.pull`.

    Attributes:
        kernel: the compiled program and its derivatives.
    """

    def __init__(
        self,
        traced: Callable[..., Any],
        inputs: dict[str, Any],
        key: tuple[Any, ...] | None = None,
        together: Collection[str] = (),
    ):
        self.name = getattr(traced, "__name__", "function")
        self._integers = [name for name, shape in inputs.items() if shape is Integer or isinstance(shape, Integer)]
        self._specs = [_spec(self.name, name, shape) for name, shape in inputs.items() if name not in self._integers]
        self._names = list(inputs)
        if not self._specs:
            raise TraceError(f"{self.name}: name at least one input and its shape, as in @adjoin.function(q=7)")
        name, specs, integers = self.name, self._specs, self._integers

        def make() -> tuple[Program, Any]:
            with announced(f"tracing {name}"), uncollected():
                return trace(name, traced, specs, integers)

        program, self._structure = stored(None if key is None else ("function", name, specs, integers, *key), make)
        with uncollected():
            self.kernel = Kernel(program, tuple([spec.name in together for spec in specs]) if together else None)
        self._plain = [(len(spec.shape), spec.shape) for spec in self._specs]
        self._arity = -1 if self._integers else len(self._specs)
        self._streams = any(spec.steps is not None for spec in self._specs)
        self._build = _builder(self._structure)
        functools.update_wrapper(self, traced, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on tensors (*batch, *shape), in the declared order or by name.

        With `out=`, tensors of the structure of the results, these are written in their place; without gradients.
        """
        if "out" in kwargs and "out" not in self._names:
            return self.call_into(kwargs.pop("out"), *args, **kwargs)
        if len(args) == self._arity and not kwargs and not torch.compiler.is_compiling():
            results = self.call_prepared(args)
            if results is not None:
                return results
        return self._call(args, kwargs)

    def call_prepared(self, tensors: Sequence[Any]) -> Any:
        """Run on one tensor for each input if a call of their signature was made before; None otherwise.

        What was checked then holds now, so that a caller which finds the function by other means than the tensors need
        not check them first. Not for functions with integers, nor while torch compiles.
        """
        if forward_ad._current_level < 0:
            for matches, prepared in self.kernel.prepared:
                if matches(*tensors):
                    return self._build(call_prepared(self.kernel, prepared, tensors))
        return None

    def call_into(self, out: Any, *args: Any, **kwargs: Any) -> Any:
        """Write the results into memory that the caller holds, and return it; no gradients pass.

        Args:
            out: contiguous tensors in the structure of the results, which share no memory with the inputs.
            args: see `__call__`.
            kwargs: see `__call__`.
        """
        tensors, lengths, batches = self._checked(args, kwargs)
        if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
            raise InputError(f"{self.name}: out= is not for torch.compile or torch.func, which need new results")
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            raise InputError(f"{self.name}: out= takes no gradients; detach the inputs, or call under torch.no_grad()")
        kernel, batch, tensors = arrange(self.kernel, tensors, batches)
        shapes = kernel.output_shapes(lengths, batch)
        if isinstance(self._structure, dict) and isinstance(out, dict) and out.keys() == self._structure.keys():
            out = {name: out[name] for name in self._structure}
        if tree.structure(out) != tree.structure(self._structure):
            raise InputError(f"{self.name}: out must have the structure of the results, {len(shapes)} tensors")
        places: list[Any] = [None] * len(shapes)
        for place, tensor in zip(tree.leaves(self._structure), tree.leaves(out), strict=True):
            places[place] = tensor
        taken = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        first = tensors[0]
        for place, shape in zip(places, shapes, strict=True):
            fits = isinstance(place, torch.Tensor) and tuple(place.shape) == tuple(shape) and place.is_contiguous()
            if not fits or place.dtype != first.dtype or place.device != first.device or place.requires_grad:
                wanted = f"contiguous {first.dtype} {tuple(shape)} on {first.device} without gradient"
                got = f"{place.dtype} {tuple(place.shape)}" if isinstance(place, torch.Tensor) else repr(place)
                raise InputError(f"{self.name}: out must be {wanted}, got {got}")
            if place.is_cuda and place.data_ptr() % UNIT:
                raise InputError(f"{self.name}: out must begin at a multiple of {UNIT} bytes of the GPU's memory")
            if place.numel() and place.untyped_storage().data_ptr() in taken:
                raise InputError(f"{self.name}: out shares its memory with an input")
        kernel.run(tensors, lengths, batch, places)
        return out

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Check the tensors of a call whose signature is new, and run."""
        return self._build(call_first(self.kernel, *self._checked(args, kwargs)))

    def _checked(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], tuple[int, ...], list[tuple[int, ...]] | None]:
        """Return the tensors of a call, the run-time integers, and batch shapes where they were plain to see."""
        if len(args) == len(self._specs) == len(self._names) and not kwargs:
            arguments, tensors = {}, list(args)
        else:
            arguments = self._bind(args, kwargs)
            tensors = [arguments[spec.name] for spec in self._specs]
        batches = None if self._streams else self._batches(tensors)
        if batches is None:
            self._check(tensors)
        return tensors, self._lengths(arguments, tensors) if self.kernel.program.integers else (), batches

    def _batches(self, tensors: list[Any]) -> list[tuple[int, ...]] | None:
        """Return the batch shape of each input; None if one is not plainly right. It is on the fast path of calls."""
        first = tensors[0]
        if type(first) is not torch.Tensor:
            return None
        dtype, device = first.dtype, first.device
        if dtype not in BITS:
            return None
        batches = []
        for tensor, (rank, shape) in zip(tensors, self._plain, strict=True):
            if type(tensor) is not torch.Tensor or tensor.dtype is not dtype or tensor.device != device:
                return None
            full = tensor.shape
            size = len(full) - rank
            if full[size:] != shape:
                return None
            batches.append(full[:size])
        return batches

    def prebuild(self, gpu: str, dtype: torch.dtype = torch.float32, shared: Sequence[str] = ()) -> None:
        """Compile for a named GPU into the cache, on a machine that need not have one.

        Args:
            gpu: architecture, such as "sm_90".
            dtype: float32 or float64.
            shared: names of the inputs that will be given without batch dimensions.

        Builds the function and the gradient of all its outputs to all its inputs.
        """
        if not re.fullmatch(r"sm_\d+", gpu) or dtype not in BITS:
            raise InputError(
                f"{self.name}: prebuild takes a GPU such as 'sm_90' and float32 or float64, got {gpu}, {dtype}"
            )
        unknown = [name for name in shared if name not in self._names]
        if unknown:
            raise InputError(f"{self.name}: no input '{unknown[0]}'; inputs: {', '.join(self._names)}")
        program = self.kernel.program.with_shared([spec.name in shared for spec in self._specs])
        for built in (program, vjp(program, [True] * len(self._specs))[0]):
            prebuild(built, BITS[dtype], find_target(gpu), Cache())

    def _check(self, tensors: list[Any]) -> None:
        """Turn numbers into tensors, and raise at the first input that is not right."""
        first = next((tensor for tensor in tensors if isinstance(tensor, torch.Tensor)), None)
        for i, (spec, tensor) in enumerate(zip(self._specs, tensors, strict=True)):
            if isinstance(tensor, (int, float)) and first is not None and spec.shape == () and spec.steps is None:
                tensors[i] = tensor = torch.tensor(float(tensor), dtype=first.dtype, device=first.device)
            check_tensor(spec, tensor, self.name)
        first = tensors[0]
        for spec, tensor in zip(self._specs, tensors, strict=True):
            if tensor.dtype != first.dtype or tensor.device != first.device:
                raise InputError(
                    f"{self.name}: all inputs must have one dtype and device; '{self._specs[0].name}' is {first.dtype} "
                    f"on {first.device}, '{spec.name}' is {tensor.dtype} on {tensor.device}"
                )

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        names = self._names
        if len(args) > len(names):
            raise InputError(f"{self.name}: takes {len(names)} inputs ({', '.join(names)}), got {len(args)}")
        arguments = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names:
                raise InputError(f"{self.name}: no input '{name}'; inputs: {', '.join(names)}")
            if name in arguments:
                raise InputError(f"{self.name}: '{name}' was given twice")
            arguments[name] = value
        missing = [name for name in names if name not in arguments]
        if missing:
            raise InputError(f"{self.name}: missing {', '.join(missing)}; inputs: {', '.join(names)}")
        return arguments

    def _lengths(self, arguments: dict[str, Any], tensors: list[torch.Tensor]) -> tuple[int, ...]:
        """Return the run-time integers: those among the arguments, and the number of steps of the streams."""
        values: dict[str, int] = {}
        for name in self._integers:
            value = arguments[name]
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise InputError(f"{self.name}: '{name}' must be a whole number of at least 0, got {value!r}")
            values[name] = value
        for spec, tensor in zip(self._specs, tensors, strict=True):
            if isinstance(spec.steps, str):
                steps = values.setdefault(spec.steps, tensor.shape[0])
                if steps != tensor.shape[0]:
                    raise InputError(
                        f"{self.name}: '{spec.name}' has {tensor.shape[0]} steps where other streams have {steps}"
                    )
        return tuple(values[name] for name in self.kernel.program.integers)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{spec.name}: {spec.shape}" for spec in self._specs)
        return f"<adjoin.function {self.name}({inputs}), {self.kernel.program.operations} operations>"


def function(**inputs: Any) -> Callable[[Callable[..., Any]], Function]:
    """Turn a Python function of named inputs into one fused kernel with gradients.

    The function is run once, on symbolic scalars: an input of shape (7,) arrives as a numpy array of seven of them, an
    input of shape () as one. It may use ordinary arithmetic, numpy indexing and `@`, and the functions of
    `adjoin.trace` (`sin`, `select`, `loop`, ...); numbers it closes over become constants of the kernel. What it
    returns, arrays of scalars in a tuple or dict, is what a call returns as tensors.

    Args:
        inputs: the shape of each input for one environment: a number, a tuple, () for a scalar, `PerStep(shape)` for
            a stream over time, `Table(shape)` to read where the data says, `Integer` for a run-time trip count.

    Returns:
        A decorator. The decorated function takes tensors with any leading batch shape, broadcast like torch.

    Example:
        @adjoin.function(q=7, target=7, weight=())
        def cost(q, target, weight):
            error = q - target
            return weight * (error @ error)

        cost(torch.randn(4096, 7), torch.zeros(7), 0.5)  # (4096,)
    """

    def decorate(traced: Callable[..., Any]) -> Function:
        accepted = inspect.signature(traced).parameters
        unknown = [name for name in inputs if name not in accepted]
        undeclared = [
            name
            for name, parameter in accepted.items()
            if name not in inputs and parameter.default is parameter.empty and parameter.kind != parameter.VAR_KEYWORD
        ]
        if (unknown and not any(p.kind == p.VAR_KEYWORD for p in accepted.values())) or undeclared:
            raise TraceError(
                f"{traced.__name__}: the declared inputs ({', '.join(inputs)}) do not match its parameters "
                f"({', '.join(accepted)})"
            )
        return Function(traced, inputs)

    return decorate


def _builder(structure: Any) -> Callable[[Sequence[torch.Tensor]], Any]:
    """Put results into the structure that the traced function returned."""
    if structure == 0:
        return lambda results: results[0]
    if isinstance(structure, dict) and all(isinstance(place, int) for place in structure.values()):
        places = list(structure.items())
        return lambda results: {name: results[place] for name, place in places}
    return lambda results: tree.transform(results.__getitem__, structure)


def _spec(owner: str, name: str, shape: Any) -> TensorSpec:
    steps, table = None, isinstance(shape, Table)
    if isinstance(shape, PerStep):
        shape, steps = shape.value, "steps"
    elif isinstance(shape, Table):
        shape = shape.shape
    if isinstance(shape, int) and not isinstance(shape, bool):
        shape = (shape,)
    if not isinstance(shape, tuple) or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise TraceError(
            f"{owner}: the shape of '{name}' must be a number, a tuple, PerStep(...), Table(...) or Integer, "
            f"got {shape!r}"
        )
    return TensorSpec(name, shape, steps, table=table)
