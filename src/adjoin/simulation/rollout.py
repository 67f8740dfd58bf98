"""A traced step repeated over time: one launch forward, one launch back.

The forward launch runs all steps and writes the carry after each. These are the checkpoints: the backward launch walks
them from the last to the first, recomputes one step from each and applies its adjoint, so that memory is the trajectory
itself (Qiao et al., ICML 2021, section 5). With `every=k` only every k-th carry is kept; the backward pass then runs k
steps forward again before it walks them back.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

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
from adjoin.errors import InputError
from adjoin.progress import Progress, announced

Values = dict[str, Any]
Shapes = Mapping[str, Any]
Step = Callable[[Values, Values, Values], tuple[Values, Values]]

STEPS = "steps"

FIRST_LAUNCH = 4_096
"""Steps times environments of a rollout's first launch on a CPU; those of small rollouts are fewer."""
MAX_LAUNCH_TIME = 0.2
"""Seconds that a launch on a CPU should take at most, so that Ctrl-C is answered."""


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
    """

    def __init__(
        self,
        name: str,
        step: Step,
        carry: Shapes,
        streams: Shapes,
        constants: Shapes,
        alive: Callable[[Values], Any] | None = None,
    ):
        self.name, self._alive, self.guarded = name, alive, alive is not None
        self.carry = tuple(TensorSpec(key, shape) for key, shape in carry.items())
        self.streams = tuple(TensorSpec(key, shape, STEPS) for key, shape in streams.items())
        self.constants = tuple(
            TensorSpec(key, shape.shape, table=True) if isinstance(shape, Table) else TensorSpec(key, shape)
            for key, shape in constants.items()
        )
        once = [replace(slot, steps=None) for slot in (*self.carry, *self.streams, *self.constants)]
        self.outputs: tuple[str, ...] = ()

        def one(**values: Any) -> tuple[Any, ...]:
            parts = [{slot.name: values[slot.name] for slot in slots} for slots in self._parts()]
            following, outputs = step(*parts)
            self.outputs = tuple(outputs)
            return tuple([following[slot.name] for slot in self.carry] + list(outputs.values()))

        with announced(f"tracing {name}"), uncollected():
            self.step, _ = trace(f"{name}_step", one, once)
            self.kernel = Kernel(self._forward())
        self._backward_kernels: BoundedCache[Kernel] = BoundedCache(64)
        self._arguments = (name, step, carry, streams, constants, alive)

    def __repr__(self) -> str:
        parts = {"carry": self.carry, "streams": self.streams, "constants": self.constants}
        said = [f"{part}: {', '.join(f'{x.name} {x.shape}' for x in specs) or 'none'}" for part, specs in parts.items()]
        return f"Rollout({self.name!r}; {'; '.join(said)}; outputs: {', '.join(self.outputs) or 'none'})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments  # a copy is traced again: its kernels come from the cache on disk

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
        slots = [slot for part in self._parts() for slot in part]
        tensors = [named[slot.name] for slot in slots]
        self._check(slots, tensors)
        _, batch, tensors = arrange(self.kernel, tensors)
        count = len(self.carry)
        first = [t.expand((*batch, *slot.shape)) for t, slot in zip(tensors[:count], self.carry, strict=True)]
        tensors = [*first, *tensors[count:]]
        if torch._C._are_functorch_transforms_active() or torch.compiler.is_compiling():
            results = self._transformed(tensors, every)
        else:
            kernel, batch, tensors = arrange(self.kernel, tensors)
            results = _Rolled.apply(self, kernel, batch, every, progress, *tensors)
        states = dict(zip([slot.name for slot in self.carry], results, strict=False))
        return states, dict(zip(self.outputs, results[count:], strict=True))

    def _transformed(self, tensors: Sequence[torch.Tensor], every: int) -> list[torch.Tensor]:
        """Run under transforms of torch, as one kernel like any other, whose gradient runs the steps again."""
        first, streams, _ = self.split(tensors)
        steps = streams[0].shape[0]
        results = call(self.kernel, tensors, (steps,))
        after = results[: len(first)]
        last = [x[-1] for x in after]
        first = [torch.where(self._alive_like(x, last), x, x.detach()) for x in first] if self.guarded else first
        if every > 1:
            after = [x[kept_steps(steps, every)] for x in after]
        return [*[torch.cat([x[None], rest]) for x, rest in zip(first, after, strict=True)], *results[len(first) :]]

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
        """A gradient that does not go through any step, 0 where the last carry says so."""
        return torch.where(self._alive_like(gradient, last), gradient, 0.0) if self.guarded else gradient

    def _alive_like(self, tensor: torch.Tensor, last: Sequence[torch.Tensor]) -> torch.Tensor:
        """Whether the last carry of each environment is fine, in the shape of a tensor of the batch."""
        assert self._alive is not None
        alive = self._alive({slot.name: value for slot, value in zip(self.carry, last, strict=True)})
        return alive.reshape(alive.shape + (1,) * (tensor.dim() - alive.dim()))

    # Programs

    def _forward(self) -> Program:
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
            return outputs

        return trace(self.name, traced, [*self.carry, *self.streams, *self.constants])[0]

    def backward(self, wanted: tuple[bool, ...], given: tuple[bool, ...], shared: tuple[bool, ...]) -> Kernel:
        """The kernel of the backward launch: see `_backward`, made when first asked for."""
        key = (wanted, given, shared)

        def compute() -> Kernel:
            with announced(f"differentiating {self.name}"), uncollected():
                return Kernel(self._backward(*key))

        return self._backward_kernels.get(key, compute)

    def _backward(self, wanted: tuple[bool, ...], given: tuple[bool, ...], shared: tuple[bool, ...]) -> Program:
        """The program of the backward launch.

        Its inputs are the carry before each step, the streams, the cotangents that are given for each step, the
        constants, the last carry if it decides what is alive, and the cotangent of the last carry; its outputs the
        cotangent of the first carry, and the gradients that are wanted.

        Args:
            wanted: for each stream and constant, whether its gradient is.
            given: for each carry and output, whether there is a cotangent for it after each step.
            shared: for each stream and constant, whether it is one for the batch.
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

            start = [flat(values[f"adjoint_{slot.name}"]) for slot in self.carry]
            zeros = {i: [0.0] * self.step.inputs[i].size for i in asked if i >= behind}
            inputs = [values[slot.name] for slot in slots[:streamed]]
            (first, sums), gradients = scan(body, (start, zeros), inputs, reverse=True)
            ends = {**dict(enumerate(first)), **gradients, **sums}
            plain = [i for i in ends if not count <= i < behind]
            arrays = shaped([passed(ends[i]) for i in plain], [self.step.inputs[i] for i in plain])
            ends.update(zip(plain, arrays, strict=True))
            return {str(i): ends[i] for i in sorted(ends)}

        program, _ = trace(f"{self.name}_back", traced, slots)
        summed = [i for i, one in enumerate(shared, count) if one]
        outputs = [replace(slot, shared=int(slot.name) in summed) for slot in program.outputs]
        return replace(program, outputs=tuple(outputs))


class _Rolled(torch.autograd.Function):
    """A rollout under autograd. The tensors are the first carry, the streams and the constants, arranged."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, rollout: Rollout, kernel: Kernel, batch: tuple[int, ...], every: int, progress: bool, *tensors: Any
    ) -> Any:
        first, streams, constants = rollout.split(tensors)
        steps = streams[0].shape[0]
        states = [tensor.new_empty((-(-steps // every) + 1, *tensor.shape)) for tensor in first]
        for state, tensor in zip(states, first, strict=True):
            state[0] = tensor
        outputs = [first[0].new_empty(shape) for shape in kernel.output_shapes((steps,), batch)[len(first) :]]
        whole = every == 1 and not progress and first[0].device.type == "cpu"
        launches = _timed_pieces(steps, batch) if whole else Progress(pieces(steps, every, progress), progress)
        for start, end in launches:
            after = [state[start + 1 : end + 1] if every == 1 else None for state in states]
            inputs = [*[state[start // every] for state in states], *[s[start:end] for s in streams], *constants]
            into = [*after, *[output[start:end] for output in outputs]]
            results = kernel.run(inputs, (end - start,), batch, into)
            if every > 1:
                for state, result in zip(states, results, strict=False):
                    state[start // every + 1] = result[-1]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *states)
        ctx.save_for_forward(*tensors, *states)
        ctx.call = rollout, kernel, batch, every, steps
        return (*states, *outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        rollout, kernel, batch, every, steps = ctx.call
        count, total = len(rollout.carry), len(rollout.step.inputs)
        _, streams, constants = rollout.split(ctx.saved_tensors[:total])
        states = ctx.saved_tensors[total:]
        last = [state[-1] for state in states]
        wanted = tuple(ctx.needs_input_grad[5 + count :])
        of_states, of_outputs = cotangents[:count], cotangents[count:]
        given = (*[every == 1 and g is not None for g in of_states], *[g is not None for g in of_outputs])
        shared = tuple(slot.shared for slot in kernel.program.inputs[count:])
        back = rollout.backward(wanted, given, shared)
        adjoint = [state.new_zeros(state.shape[1:]) for state in states]
        gradients: dict[int, list[torch.Tensor]] = {}
        for start, end in reversed(pieces(steps, every, False)):
            here = [state[start // every] for state in states]
            inputs = [stream[start:end] for stream in streams]
            before = [state[:-1] for state in states]
            if every > 1:
                before = [s[:-1] for s in _Rolled.apply(rollout, kernel, batch, 1, False, *here, *inputs, *constants)]
                ends = [g if g is None else g[start // every + 1] for g in of_states]
                adjoint = [a if g is None else a + g for a, g in zip(adjoint, ends, strict=True)]
            grads = [g[1:] for g in of_states if g is not None] if every == 1 else []
            grads += [g[start:end] for g in of_outputs if g is not None]
            tensors = [*before[:count], *inputs, *grads, *constants, *(last if rollout.guarded else ()), *adjoint]
            results = zip(back.program.outputs, call(back, tensors, (end - start,)), strict=True)
            by_position = {int(slot.name): result for slot, result in results}
            adjoint = [by_position[i] for i in range(count)]
            for i in by_position.keys() - range(count):
                gradients.setdefault(i, []).append(by_position[i])
        first = [a if g is None else a + rollout.passed(g[0], last) for a, g in zip(adjoint, of_states, strict=True)]
        rest: list[Any] = [None] * (total - count)
        for i, parts in gradients.items():
            streamed = i < count + len(streams)
            rest[i - count] = torch.cat(parts[::-1]) if streamed else sum(parts)
        return (None,) * 5 + (*first, *rest)

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor | None) -> Any:
        rollout, kernel, batch, every, steps = ctx.call
        total = len(rollout.step.inputs)
        tensors, states = ctx.saved_tensors[:total], ctx.saved_tensors[total:]
        moving = tangents[5:]
        pushed, positions = kernel.jvp(tuple(x is not None for x in moving))
        inputs = [*tensors, *[x for x in moving if x is not None]]
        pushed_results = pushed.run(inputs, (steps,), batch) if positions else []
        along = dict(zip(positions, pushed_results, strict=True))
        results: list[torch.Tensor] = []
        for i, (state, first) in enumerate(zip(states, moving, strict=False)):
            start = torch.zeros_like(state[0]) if first is None else first
            rest = along[i][kept_steps(steps, every)] if i in along else torch.zeros_like(state[1:])
            results.append(torch.cat([start[None], rest]))
        shapes = kernel.output_shapes((steps,), batch)
        places = range(len(states), len(shapes))
        return (*results, *[along[i] if i in along else states[0].new_zeros(shapes[i]) for i in places])


def kept_steps(steps: int, every: int) -> list[int]:
    """Return which of the carries after each step are kept: every k-th, and the last."""
    return [*range(every - 1, steps - 1, every), *([steps - 1] if steps else [])]


def pieces(steps: int, every: int, progress: bool) -> list[tuple[int, int]]:
    """The launches of a rollout: first step and end of each."""
    size = every if every > 1 else -(-steps // 100) if progress else steps
    return [(start, min(start + size, steps)) for start in range(0, steps, max(1, size))]


def _timed_pieces(steps: int, batch: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Launches on a CPU that return often enough for an interrupt: short rollouts are one, long ones begin with a short
    one, and those that follow take about `MAX_LAUNCH_TIME`."""
    start, size = 0, max(1, FIRST_LAUNCH // max(1, math.prod(batch)))
    while start < steps:
        end, before = min(start + size, steps), time.perf_counter()
        yield start, end
        elapsed = time.perf_counter() - before
        size = max(1, min(4 * size, int((end - start) * MAX_LAUNCH_TIME / max(elapsed, 1e-9))))
        start = end


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
