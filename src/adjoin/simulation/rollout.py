"""A traced step repeated over time: one launch forward, one launch back.

The forward launch runs all steps and writes the carry after each. These are the checkpoints: the backward launch walks
them from the last to the first, recomputes one step from each and applies its adjoint, so that memory is the trajectory
itself (Qiao et al., ICML 2021, section 5). With `every=k` only every k-th carry is kept; the backward pass then runs k
steps forward again before it walks them back.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from adjoin.compiler.autodiff.derivatives import vjp
from adjoin.compiler.ir.control_flow import scan
from adjoin.compiler.ir.graph import Expr, current_graph, uncollected
from adjoin.compiler.ir.implicit import guard
from adjoin.compiler.ir.ops import select
from adjoin.compiler.ir.program import Program, TensorSpec, trace
from adjoin.compiler.ir.rewrite import copy
from adjoin.compiler.ir.scratch import Lookup
from adjoin.compiler.runtime.bounded import BoundedCache
from adjoin.compiler.runtime.function import Table
from adjoin.compiler.runtime.kernel import Kernel
from adjoin.compiler.runtime.operator import arrange, call, check_tensor
from adjoin.compiler.runtime.trace_cache import stored
from adjoin.errors import InputError
from adjoin.progress import announced
from adjoin.simulation.rolled import Prepared, RolledOut, kept_steps, remember

Values = dict[str, Any]
Shapes = Mapping[str, Any]
Step = Callable[[Values, Values, Values], tuple[Values, Values]]

STEPS = "steps"


class Rollout:
    """A step as a differentiable operator over many steps.

    Args:
        name: for messages.
        step: takes the carry, one element of each stream, and the constants, as arrays of scalars by name; gives the
            next carry, with the same names, and the outputs of the step.
        carry: name -> shape.
        streams: name -> shape of one element.
        constants: name -> shape, or `Table(shape)`; one for the batch or one per environment.
        alive: of the last carry, whether gradients pass: an environment where it does not hold gets exactly 0.
        key: everything that decides what the step computes; with it, a process that finds the kernels in the cache does
            not trace. See `stored`.
        notes: what the step fills as it is traced; it is filled from the cache otherwise.
    """

    def __init__(
        self,
        name: str,
        step: Step,
        carry: Shapes,
        streams: Shapes,
        constants: Shapes,
        alive: Callable[[Values], Any] | None = None,
        key: tuple[Any, ...] | None = None,
        notes: dict[str, Any] | None = None,
    ):
        self.name, self._alive, self.guarded = name, alive, alive is not None
        self.carry = tuple(TensorSpec(key, shape) for key, shape in carry.items())
        self.streams = tuple(TensorSpec(key, shape, STEPS) for key, shape in streams.items())
        self.constants = tuple(
            TensorSpec(key, shape.shape, table=True) if isinstance(shape, Table) else TensorSpec(key, shape)
            for key, shape in constants.items()
        )
        once = [replace(slot, steps=None) for slot in (*self.carry, *self.streams, *self.constants)]
        self._key = None if key is None else ("rollout", name, *self._parts(), alive, *key)
        labels: tuple[str, ...] = ()
        notes = {} if notes is None else notes

        def one(**values: Any) -> tuple[Any, ...]:
            parts = [{slot.name: values[slot.name] for slot in slots} for slots in self._parts()]
            nonlocal labels
            following, outputs = step(*parts)
            labels = tuple(outputs)
            return tuple([following[slot.name] for slot in self.carry] + list(outputs.values()))

        def make() -> tuple[Program, Any]:
            with announced(f"tracing {name}"), uncollected():
                program, _ = trace(f"{name}_step", one, once)
            return program, (labels, notes)

        self.step, (self.outputs, filled) = stored(self._keyed("step"), make, is_launched=False)
        notes.update(filled)
        with uncollected():
            self.kernel = Kernel(stored(self._keyed("forward"), lambda: (self._forward(), None))[0])
        self._backward_kernels: BoundedCache[Kernel] = BoundedCache(64)
        self.prepared: Prepared = ()
        self._arguments = (name, step, carry, streams, constants, alive, key, notes)

    def __repr__(self) -> str:
        parts = {"carry": self.carry, "streams": self.streams, "constants": self.constants}
        said = [f"{part}: {', '.join(f'{x.name} {x.shape}' for x in specs) or 'none'}" for part, specs in parts.items()]
        return f"Rollout({self.name!r}; {'; '.join(said)}; outputs: {', '.join(self.outputs) or 'none'})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments  # a copy is traced again: its kernels come from the cache on disk

    def _keyed(self, *parts: Any) -> tuple[Any, ...] | None:
        """The key of one of its programs."""
        return None if self._key is None else (*self._key, *parts)

    def _given_carry(self, given: Sequence[bool]) -> list[TensorSpec]:
        return [slot for slot, is_given in zip(self.carry, given, strict=False) if is_given]

    def _parts(self) -> tuple[tuple[TensorSpec, ...], ...]:
        return self.carry, self.streams, self.constants

    def __call__(
        self,
        carry: Mapping[str, torch.Tensor],
        streams: Mapping[str, torch.Tensor],
        constants: Mapping[str, torch.Tensor],
        every: int = 1,
        progress: bool = False,
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Run as many steps as the streams are long.

        Args:
            carry: the first.
            streams: (steps, ..., *shape).
            constants: (..., *shape).
            every: which carries are kept and returned: the first, then every k-th, and the last.
            progress: whether to show a progress bar.

        Returns:
            The carries, and the outputs of all steps, by name; time is their first dimension.
        """
        named = {**carry, **streams, **constants}
        tensors = [named[slot.name] for part in self._parts() for slot in part]
        compiling = torch.compiler.is_compiling()
        results = None if compiling or every > 1 or progress else self.call_prepared(tensors)
        if results is None:
            results = self._call(tensors, every, progress)
        return self.by_name(results)

    def by_name(self, results: Sequence[torch.Tensor]) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Return the carries and the outputs by name."""
        states = dict(zip([slot.name for slot in self.carry], results, strict=False))
        return states, dict(zip(self.outputs, results[len(states) :], strict=True))

    def call_prepared(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor] | None:
        """Return the results if a call of the tensors' signature was made before; None otherwise.

        Args:
            tensors: the first carry, the streams and the constants, in the order that they were declared in.
        """
        if forward_ad._current_level < 0:
            for matches, rolled in self.prepared:
                if matches(*tensors):
                    return rolled.call_prepared(tensors)
        return None

    def _call(self, tensors: Sequence[torch.Tensor], every: int, progress: bool) -> Sequence[torch.Tensor]:
        given = tensors
        self._check([slot for part in self._parts() for slot in part], tensors)
        _, batch, tensors = arrange(self.kernel, tensors)
        count = len(self.carry)
        shapes = [(*batch, *slot.shape) for slot in self.carry]
        first = [t if t.shape == shape else t.expand(shape) for t, shape in zip(tensors[:count], shapes, strict=True)]
        tensors = [*first, *tensors[count:]]
        if torch._C._are_functorch_transforms_active() or torch.compiler.is_compiling():
            return self._transformed(tensors, every)
        kernel, batch, tensors = arrange(self.kernel, tensors)
        rolled = RolledOut(self, kernel, batch, every, progress, tensors)
        if every == 1 and not progress and forward_ad._current_level < 0 and rolled.is_one_launch:
            self.prepared = remember(self.prepared, rolled, given, tensors)
        return rolled(tensors)

    def _transformed(self, tensors: Sequence[torch.Tensor], every: int) -> list[torch.Tensor]:
        """Run under transforms of torch, as one kernel like any other, whose gradient runs the steps again."""
        first, streams, _ = self.split(tensors)
        steps = streams[0].shape[0]
        results = call(self.kernel, tensors, (steps,))
        after, outputs = results[: len(first)], results[len(first) : len(first) + len(self.outputs)]
        last = [x[-1] for x in after]
        first = [torch.where(self._alive_like(x, last), x, x.detach()) for x in first] if self.guarded else first
        if every > 1:
            after = [x[kept_steps(steps, every)] for x in after]
        return [*[torch.cat([x[None], rest]) for x, rest in zip(first, after, strict=True)], *outputs]

    def split(self, tensors: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Return the tensors of the carry, of the streams, and the constants."""
        count, end = len(self.carry), len(self.carry) + len(self.streams)
        return tensors[:count], tensors[count:end], tensors[end:]

    def _check(self, slots: Sequence[TensorSpec], tensors: Sequence[Any]) -> None:
        """Raise at the first input that is not of the right kind, or not like the others."""
        like, stream = tensors[0], tensors[len(self.carry)]
        for slot, tensor in zip(slots, tensors, strict=True):
            check_tensor(slot, tensor, self.name)
            if tensor.dtype != like.dtype or tensor.device != like.device:
                raise InputError(
                    f"{self.name}: all inputs must have one dtype and device; '{slots[0].name}' is {like.dtype} on "
                    f"{like.device}, '{slot.name}' is {tensor.dtype} on {tensor.device}"
                )
            if slot.steps and len(tensor) != len(stream):
                raise InputError(f"{self.name}: '{slot.name}' has {len(tensor)} steps where others have {len(stream)}")

    def passed(self, gradient: torch.Tensor, last: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return a gradient that does not go through any step, 0 where the last carry says so."""
        return torch.where(self._alive_like(gradient, last), gradient, 0.0) if self.guarded else gradient

    def _alive_like(self, tensor: torch.Tensor, last: Sequence[torch.Tensor]) -> torch.Tensor:
        """Whether the last carry of each environment is fine, in the shape of a tensor of the batch."""
        assert self._alive is not None
        alive = self._alive({slot.name: value for slot, value in zip(self.carry, last, strict=True)})
        return alive.reshape(alive.shape + (1,) * (tensor.dim() - alive.dim()))

    # Programs

    def _forward(self) -> Program:
        """The program of the forward launch: the carry after each step, the outputs of each, and the first carry."""
        count = len(self.carry)

        def traced(**values: Any) -> dict[str, Any]:
            constants = [flat(values[slot.name]) for slot in self.constants]

            def body(_: Expr, carry: list[Any], elements: list[Any]) -> tuple[Any, Any]:
                results = inline(self.step, [*carry, *map(flat, elements), *constants])
                return results[:count], dict(zip(names, shaped(results, self.step.outputs), strict=True))

            names = [*[slot.name for slot in self.carry], *self.outputs]
            start = [flat(values[slot.name]) for slot in self.carry]
            last, outputs = scan(body, start, [values[slot.name] for slot in self.streams])
            if self._alive is not None:
                ends = shaped(last, self.carry)
                guard(self._alive({slot.name: _scalar(end) for slot, end in zip(self.carry, ends, strict=True)}))
            return {**outputs, **{f"first_{slot.name}": values[slot.name] for slot in self.carry}}

        return trace(self.name, traced, [*self.carry, *self.streams, *self.constants])[0]

    def backward(
        self, wanted: tuple[bool, ...], given: tuple[bool, ...], shared: tuple[bool, ...], whole: bool
    ) -> Kernel:
        """Return the kernel of the backward launch: see `_backward`, made when first asked for."""
        key = (wanted, given, shared, whole)

        def make() -> tuple[Program, None]:
            with announced(f"differentiating {self.name}"), uncollected():
                return self._backward(*key), None

        def compute() -> Kernel:
            with uncollected():
                return Kernel(stored(self._keyed("backward", *key), make)[0])

        return self._backward_kernels.get(key, compute)

    def _backward(
        self, wanted: tuple[bool, ...], given: tuple[bool, ...], shared: tuple[bool, ...], whole: bool
    ) -> Program:
        """The program of the backward launch.

        Its inputs are the carry before each step, the streams, the cotangents that are given for each step, the
        constants, the last carry if it decides what is alive, and the cotangent of the last carry, or of the first
        if the launch is for all steps; its outputs the cotangent of the first carry, and the gradients that are wanted.

        Args:
            wanted: for each stream and constant, whether its gradient is.
            given: for each carry and output, whether there is a cotangent for it after each step.
            shared: for each stream and constant, whether it is one for the batch.
            whole: whether the launch is for all steps: it begins with adjoints of 0, and adds the cotangents of the
                first carry where those of the carry are given.
        """
        count, behind = len(self.carry), len(self.carry) + len(self.streams)
        slots = [TensorSpec(f"before_{slot.name}", slot.shape, STEPS) for slot in self.carry]
        slots += [replace(slot, shared=one) for slot, one in zip(self.streams, shared, strict=False)]
        for i, slot in enumerate(self.step.outputs):
            slots += [TensorSpec(f"grad_{i}", slot.shape, STEPS)] if given[i] else []
        streamed = len(slots)
        alone = shared[len(self.streams) :]
        slots += [replace(slot, shared=one) for slot, one in zip(self.constants, alone, strict=True)]
        slots += [TensorSpec(f"last_{slot.name}", slot.shape) for slot in self.carry] if self._alive else []
        if whole:
            slots += [TensorSpec(f"first_{slot.name}", slot.shape) for slot in self._given_carry(given)]
        else:
            slots += [TensorSpec(f"adjoint_{slot.name}", slot.shape) for slot in self.carry]
        pull, present = vjp(self.step, (True,) * count + wanted, (True,) * count + given[count:])
        asked = [i for i, is_wanted in enumerate(wanted, count) if is_wanted and not self.step.inputs[i].table]

        def traced(**values: Any) -> dict[str, Any]:
            constants = [flat(values[slot.name]) for slot in self.constants]
            alive = self._alive and self._alive({slot.name: values[f"last_{slot.name}"] for slot in self.carry})
            if alive is not None:
                guard(alive)

            def passed(gradient: list[Any]) -> list[Any]:
                return gradient if alive is None else [select(alive, x, 0.0) for x in gradient]

            def body(_: Expr, carry: Any, elements: list[Any]) -> tuple[Any, Any]:
                adjoint, sums = carry
                parts = [flat(element) for element in elements]
                direct = iter(parts[behind:])
                seeds = []
                for i, is_given in enumerate(given):
                    seed = next(direct) if is_given else None
                    if i < count:
                        seed = adjoint[i] if seed is None else [a + b for a, b in zip(adjoint[i], seed, strict=True)]
                    if seed is not None:
                        seeds.append(seed)
                found = dict(zip(present, inline(pull, [*parts[:behind], *constants, *seeds]), strict=True))
                gradients = [found.get(i, [0.0] * slot.size) for i, slot in enumerate(self.step.inputs)]
                sums = {i: [a + b for a, b in zip(sums[i], gradients[i], strict=True)] for i in sums}
                streams = [i for i in asked if i < behind]
                rows = shaped([passed(gradients[i]) for i in streams], [self.step.inputs[i] for i in streams])
                return (gradients[:count], sums), dict(zip(streams, rows, strict=True))

            start = [[0.0] * slot.size if whole else flat(values[f"adjoint_{slot.name}"]) for slot in self.carry]
            zeros = {i: [0.0] * self.step.inputs[i].size for i in asked if i >= behind}
            inputs = [values[slot.name] for slot in slots[:streamed]]
            (first, sums), gradients = scan(body, (start, zeros), inputs, reverse=True)
            ends = {**dict(enumerate(first)), **gradients, **sums}
            plain = [i for i in ends if not count <= i < behind]
            ends.update({i: passed(ends[i]) for i in plain})
            if whole:
                for i, slot in enumerate(self.carry):
                    if given[i]:
                        seed = passed(flat(values[f"first_{slot.name}"]))
                        ends[i] = [a + b for a, b in zip(ends[i], seed, strict=True)]
            ends.update(zip(plain, shaped([ends[i] for i in plain], [self.step.inputs[i] for i in plain]), strict=True))
            return {str(i): ends[i] for i in sorted(ends)}

        program, _ = trace(f"{self.name}_back", traced, slots)
        summed = [i for i, one in enumerate(shared, count) if one]
        outputs = [replace(slot, shared=int(slot.name) in summed) for slot in program.outputs]
        return replace(program, outputs=tuple(outputs))


def inline(program: Program, values: Sequence[Sequence[Any]]) -> list[list[Expr]]:
    """The outputs of a program, written into the graph that is being traced."""
    graph = current_graph()
    sources, targets = program.computation.smooth
    mapping: dict[Expr, Expr] = {}
    for nodes, given in zip(sources, values, strict=True):
        mapping.update(zip(nodes, [graph.lift(value) for value in given], strict=True))
    return [copy(target, mapping, graph) for target in targets]


def _scalar(value: Any) -> Any:
    """An array without dimensions as the scalar that it holds."""
    return value.item() if value.shape == () else value


def flat(value: Any) -> list[Any]:
    """The scalars of an array of any shape; of a table, the table."""
    if isinstance(value, Lookup):
        return [value.table]
    return np.array(value, dtype=object).ravel().tolist()


def shaped(values: Sequence[Sequence[Any]], slots: Sequence[TensorSpec]) -> list[Any]:
    """Flat lists of scalars as arrays of the slots' shapes."""
    return [np.array(value, dtype=object).reshape(slot.shape) for value, slot in zip(values, slots, strict=True)]
