"""One call of a rollout under autograd: its launches forward and back."""

import functools
import math
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

from adjoin.compiler.runtime.kernel import PREPARED, Kernel, Run, sum_partial
from adjoin.compiler.runtime.operator import call
from adjoin.compiler.runtime.signature import signature
from adjoin.compiler.runtime.views import Part, prepare_views
from adjoin.progress import Progress

if TYPE_CHECKING:
    from adjoin.simulation.rollout import Rollout

FIRST_LAUNCH = 4_096
"""Steps times environments of a rollout's first launch on a CPU; those of small rollouts are fewer."""
MAX_LAUNCH_TIME = 0.2
"""Seconds that a launch on a CPU should take at most, so that Ctrl-C is answered."""

Prepared = tuple[tuple[Callable[..., bool], "RolledOut"], ...]
"""For the signatures of the latest calls, what recognizes one, and the call made ready for it."""


class RolledOut:
    """A rollout over one batch and so many steps: what a call needs besides tensors.

    Args:
        rollout: what runs.
        kernel: its kernel, which knows what is shared.
        batch: the batch shape.
        every: which carries are kept.
        progress: whether to show a progress bar.
        tensors: the first carry, the streams and the constants, arranged.

    Attributes:
        steps: how many there are.
        is_one_launch: whether all steps are one launch: on a CPU, long rollouts are several, to answer an interrupt.
        pulls: for the gradients that were wanted and the cotangents that were given, prepared backward launches.
    """

    def __init__(
        self,
        rollout: "Rollout",
        kernel: Kernel,
        batch: tuple[int, ...],
        every: int,
        progress: bool,
        tensors: Sequence[torch.Tensor],
    ):
        self._rollout = weakref.ref(rollout)
        self.kernel, self.batch, self.every, self.progress = kernel, batch, every, progress
        self.steps = tensors[len(rollout.carry)].shape[0]
        self.tracked = any(tensor.requires_grad for tensor in tensors)
        self.is_one_launch = tensors[0].device.type != "cpu" or self.steps * math.prod(batch) <= FIRST_LAUNCH
        self._prepared: Run | None = None
        self.pulls: dict[Any, list[tuple[Callable[..., bool], Run]]] = {}

    @property
    def rollout(self) -> "Rollout":
        """Return what runs; somebody has to hold it."""
        rollout = self._rollout()
        assert rollout is not None
        return rollout

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Return the carries that are kept, and the outputs."""
        if (self.tracked and torch.is_grad_enabled()) or forward_ad._current_level >= 0:
            return _Rolled.apply(self.rollout, self, *tensors)
        return self.run(tensors)

    def call_prepared(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Return the same for tensors of the signature that this was prepared for, outside of forward mode."""
        tracked = self.tracked and torch.is_grad_enabled()
        return _record(self.rollout, self, *tensors) if tracked else self.run(tensors)

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run on tensors of the shapes that the kernel takes; no autograd."""
        return self._run(tensors) if self._prepared is None else self._prepared(tensors)

    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the results."""
        count, kept = len(self.rollout.carry), -(-self.steps // self.every) + 1
        shapes = self.kernel.output_shapes((self.steps,), self.batch)
        return [(kept, *shape[1:]) for shape in shapes[:count]] + shapes[count:-count]

    def prepare(self, tensors: Sequence[torch.Tensor], arranged: Sequence[torch.Tensor]) -> bool:
        """Make `run` fast for tensors of the layout of these, and for no others; False if it stays as it is."""
        places = functools.partial(_places, len(self.rollout.carry))
        if any(a.data_ptr() != b.data_ptr() for a, b in zip(tensors, arranged, strict=True)):
            return False
        inputs = list(enumerate(arranged))
        run = prepare_views(self.kernel, (self.steps,), self.batch, tensors, inputs, self.shapes(), places)
        self._prepared = run
        return run is not None

    def _run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        rollout, every = self.rollout, self.every
        first, streams, constants = rollout.split(tensors)
        count = len(first)
        results = [first[0].new_empty(shape) for shape in self.shapes()]
        states, outputs = results[:count], results[count:]
        if not self.steps:
            for state, tensor in zip(states, first, strict=True):
                state[0] = tensor
        whole = every == 1 and not self.progress and first[0].device.type == "cpu"
        some = Progress(pieces(self.steps, every, self.progress), self.progress)
        for start, end in _timed_pieces(self.steps, self.batch) if whole else some:
            here = [state[start // every] for state in states]
            before = here if start else first
            after = [state[start + 1 : end + 1] if every == 1 else None for state in states]
            into = [*after, *[output[start:end] for output in outputs], *here]
            inputs = [*before, *[stream[start:end] for stream in streams], *constants]
            written = self.kernel.run(inputs, (end - start,), self.batch, into)
            if every > 1:
                for state, result in zip(states, written, strict=False):
                    state[start // every + 1] = result[-1]
        return results

    def pull(
        self, saved: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor | None], wanted: tuple[bool, ...]
    ) -> list[torch.Tensor | None]:
        """Return the gradients of the first carry and of the wanted streams and constants, by one launch.

        Args:
            saved: the first carry, the streams, the constants, and all carries.
            cotangents: of all carries and the outputs.
            wanted: for each stream and constant, whether its gradient is.
        """
        rollout, count, total = self.rollout, len(self.rollout.carry), len(self.rollout.step.inputs)
        given = tuple([cotangent is not None for cotangent in cotangents])
        tensors = (*saved, *[cotangent for cotangent in cotangents if cotangent is not None])
        back = rollout.backward(wanted, given, self.kernel.shared[count:], True)
        fast = not torch.is_grad_enabled() and forward_ad._current_level < 0
        results = None
        known = self.pulls.setdefault((wanted, given), [])
        for matches, run in known if fast else ():
            if matches(*tensors):
                results = sum_partial(back.program, run(tensors))
        if results is None:
            parts = self._pulled_parts(tensors, given)
            results = call(back, [view for _, view in parts], (self.steps,))
            if fast and len(known) < PREPARED and (matches := signature(tensors)):
                executable = back.executable(tensors[0].device, tensors[0].dtype)
                shapes = back.allocated_shapes(executable, (self.steps,), self.batch)
                run = prepare_views(back, (self.steps,), self.batch, tensors, parts, shapes, lambda x: [*enumerate(x)])
                if run is not None:
                    known.append((matches, run))
        gradients: list[torch.Tensor | None] = [None] * total
        for spec, result in zip(back.program.outputs, results, strict=True):
            gradients[int(spec.name)] = result
        return gradients

    def _pulled_parts(self, tensors: Sequence[torch.Tensor], given: Sequence[bool]) -> list[Part]:
        """The inputs of the backward launch of all steps, as parts of the tensors that `pull` has."""
        count, total, streams = len(self.rollout.carry), len(self.rollout.step.inputs), len(self.rollout.streams)
        behind = total + count
        states = range(total, behind)
        parts = [(i, tensors[i][:-1]) for i in states]
        parts += [(i, tensors[i]) for i in range(count, count + streams)]
        carried = [i for i, _ in zip(range(behind, len(tensors)), [x for x in given[:count] if x], strict=False)]
        parts += [(i, tensors[i][1:] if i in carried else tensors[i]) for i in range(behind, len(tensors))]
        parts += [(i, tensors[i]) for i in range(count + streams, total)]
        parts += [(i, tensors[i][-1]) for i in states] if self.rollout.guarded else []
        return parts + [(i, tensors[i][0]) for i in carried]

    def pull_in_pieces(
        self, saved: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor | None], wanted: tuple[bool, ...]
    ) -> list[torch.Tensor | None]:
        """Return `pull` where only every k-th carry was kept: the steps between run again."""
        rollout, every = self.rollout, self.every
        count, total = len(rollout.carry), len(rollout.step.inputs)
        _, streams, constants = rollout.split(saved[:total])
        states = saved[total:]
        last = [state[-1] for state in states]
        of_states, of_outputs = cotangents[:count], cotangents[count:]
        given = (*[False] * count, *[g is not None for g in of_outputs])
        back = rollout.backward(wanted, given, self.kernel.shared[count:], False)
        adjoint = [state.new_zeros(state.shape[1:]) for state in states]
        gradients: dict[int, list[torch.Tensor]] = {}
        for start, end in reversed(pieces(self.steps, every, False)):
            here = [state[start // every] for state in states]
            inputs = [stream[start:end] for stream in streams]
            again = [*here, *inputs, *constants]
            before = [s[:-1] for s in RolledOut(rollout, self.kernel, self.batch, 1, False, again)(again)[:count]]
            ends = [g if g is None else g[start // every + 1] for g in of_states]
            adjoint = [a if g is None else a + g for a, g in zip(adjoint, ends, strict=True)]
            grads = [g[start:end] for g in of_outputs if g is not None]
            tensors = [*before, *inputs, *grads, *constants, *(last if rollout.guarded else ()), *adjoint]
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
        return [*first, *rest]


def _places(count: int, results: Sequence[torch.Tensor]) -> list[Part]:
    """Where one launch of all steps writes: so many carries after each step, the outputs, the first carries."""
    parts = [(i, result[1:] if i < count else result) for i, result in enumerate(results)]
    return parts + [(i, results[i][0]) for i in range(count)]


def remember(
    prepared: Prepared, rolled: RolledOut, tensors: Sequence[torch.Tensor], arranged: Sequence[torch.Tensor]
) -> Prepared:
    """Return the prepared calls with one more, if it can be prepared.

    Args:
        prepared: those there are.
        rolled: the call.
        tensors: its tensors.
        arranged: the same as `rolled` takes them.
    """
    same = all(a is b for a, b in zip(tensors, arranged, strict=True))
    if rolled.tracked and not same:
        return prepared
    matches = signature(tensors)
    if matches is None or not rolled.prepare(tensors, arranged):
        return prepared
    return ((matches, rolled), *prepared[: PREPARED - 1])


class _Rolled(torch.autograd.Function):
    """A rollout under autograd. The tensors are the first carry, the streams and the constants, arranged."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, rollout: "Rollout", rolled: RolledOut, *tensors: Any
    ) -> Any:
        results = rolled.run(tensors)
        saved = (*tensors, *results[: len(rollout.carry)])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*saved)
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(*saved)
        ctx.rollout, ctx.rolled = rollout, rolled  # `rolled` does not hold the rollout
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        rolled: RolledOut = ctx.rolled
        pull = rolled.pull if rolled.every == 1 and rolled.steps else rolled.pull_in_pieces
        return None, None, *pull(ctx.saved_tensors, cotangents, ctx.needs_input_grad[2 + len(ctx.rollout.carry) :])

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor | None) -> Any:
        rolled: RolledOut = ctx.rolled
        rollout, kernel, steps = ctx.rollout, rolled.kernel, rolled.steps
        total = len(rollout.step.inputs)
        tensors, states = ctx.saved_tensors[:total], ctx.saved_tensors[total:]
        moving = tangents[2:]
        pushed, positions = kernel.jvp(tuple(x is not None for x in moving))
        inputs = [*tensors, *[x for x in moving if x is not None]]
        pushed_results = pushed.run(inputs, (steps,), rolled.batch) if positions else []
        along = dict(zip(positions, pushed_results, strict=True))
        results: list[torch.Tensor] = []
        for i, (state, first) in enumerate(zip(states, moving, strict=False)):
            start = torch.zeros_like(state[0]) if first is None else first
            rest = along[i][kept_steps(steps, rolled.every)] if i in along else torch.zeros_like(state[1:])
            results.append(torch.cat([start[None], rest]))
        shapes = rolled.shapes()
        places = range(len(states), len(shapes))
        return (*results, *[along[i] if i in along else states[0].new_zeros(shapes[i]) for i in places])


_record = super(torch.autograd.Function, _Rolled).apply  # pyright: ignore[reportAttributeAccessIssue]
"""`_Rolled.apply` where no transforms of torch are active, without asking whether any are."""


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
