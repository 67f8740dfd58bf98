"""One rollout of a sequence of maps: its memory, its launches, the loop over steps and its reverse.

The forward pass keeps the states of every step, or checkpoints, from which the backward pass computes a segment of
states again. Each pass is one loop on a CPU and replays of one graph on a GPU.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from adjoin.compiler.maps.checkpoints import Checkpoints
from adjoin.compiler.maps.sequence import Adjoint, Buffer, Connection, Field, Place, Task, after
from adjoin.compiler.runtime.map_plan import PADDING, Binding, Cells, Launch, make_launch, padded
from adjoin.errors import InputError

if TYPE_CHECKING:
    from adjoin.compiler.maps.rollout import StepRunner

BITS = {torch.float32: 32, torch.float64: 64}


def backend(device: torch.device) -> Any:
    """Return the module that compiles and runs maps on a device."""
    if device.type == "cuda":
        from adjoin.compiler.runtime.cuda import maps

        return maps
    if device.type == "cpu":
        from adjoin.compiler.runtime.cpu import maps

        return maps
    raise InputError(f"maps over meshes run on 'cpu' and 'cuda', not on {device.type!r}")


class Call:
    """The memory and the launches of one rollout."""

    def __init__(
        self,
        runner: "StepRunner",
        batch: tuple[int, ...],
        steps: int,
        keep: int | None,
        checkpoints: Checkpoints,
        dtype: torch.dtype,
        device: torch.device,
    ):
        self.runner, self.sequence = runner, runner.sequence
        self.batch, self.variants = batch, math.prod(batch)
        self.steps, self.keep, self.checkpoints = steps, keep, checkpoints
        self.dtype, self.device = dtype, device
        self.backend = backend(device)
        self.fixed: dict[str, Binding] = {}
        self.saved: list[dict[str, torch.Tensor]] = []
        self.cells: dict[str, Cells] = {}

    def zeros(self, *shape: int) -> torch.Tensor:
        """Return memory of zeros."""
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def rows(self, one: Field, steps: int) -> torch.Tensor:
        """Return memory for a field of a set in so many steps."""
        over, columns = self.sequence.rows(one)
        assert over is not None
        return self.zeros(steps, self.variants, columns, padded(self.runner.sizes[over]))

    # Bindings ---------------------------------------------------------------------------------------------------------

    def bind_inputs(self, fields: list[Field], tensors: list[torch.Tensor], lead: int) -> None:
        """Bind what the caller gives; with `lead` 1 it has a value for every step."""
        for one, tensor in zip(fields, tensors, strict=True):
            self.fixed[one.name] = self.bound(self.runner.inside(one, tensor, lead), step=bool(lead))

    def bound(self, tensor: torch.Tensor, step: bool = False, shift: int = 0, mask: int = -1) -> Binding:
        """Return the binding of (steps, variants, columns, members), or of (steps, variants, columns)."""
        variants = tensor.shape[1]
        size = math.prod(tensor.shape[2:])
        column = tensor.shape[3] if tensor.dim() == 4 else 1
        variant = size if variants > 1 else 0
        return Binding(tensor, size * variants if step else 0, shift, mask, variant, column)

    def bind_temporaries(self, steps: int = 1) -> None:
        """Bind memory for what lives within a step, of as many steps as run at once: a power of two."""
        for name, one in self.sequence.fields.items():
            if one.role == "temporary":
                self.fixed[name] = self.bound(self.rows(one, steps), True, mask=steps - 1)
        for connection in self.sequence.connections.values():
            if connection.cell is not None:
                self.cells[connection.name] = self._make_cells(connection, steps)

    def _make_cells(self, connection: Connection, steps: int) -> Cells:
        runner, name = self.runner, str(connection.cell)
        offsets = np.asarray(runner.arrays[connection.name]).astype(np.int32)
        particles, cells = runner.sizes[connection.source], runner.sizes[connection.target]
        margin = int(offsets.max()) + PADDING
        if offsets.min() < 0 or offsets.max() >= cells:
            raise InputError(f"{connection.name}: offsets must be from 0 to {cells - 1}")

        def integers(*shape: int) -> torch.Tensor:
            return torch.zeros((steps, self.variants, *shape), dtype=torch.int32, device=self.device)

        cell = self.bound(integers(1, padded(particles)), True, mask=steps - 1)
        self.fixed[name] = replace(cell, column=cells - 1 - int(offsets.max()))
        length = 0 if connection.atomic else padded(cells) + 2 * margin  # what needs no order needs no sort
        capacity = runner.capacity
        return Cells(
            cell,
            torch.as_tensor(offsets, device=self.device),
            integers(length),
            integers(length * capacity),
            integers(),
            capacity,
            particles,
            padded(cells),
        )

    def check_cells(self) -> None:
        """Raise if a cell had more particles than slots."""
        for name, cells in self.cells.items():
            full = cells.overflow.nonzero()
            if len(full):
                raise InputError(
                    f"{name}: a cell of variant {int(full[0, 1])} holds more than {cells.capacity} particles; "
                    "give a larger capacity"
                )

    def launches(self, tasks: list[Task], lookup: Any, steps: int = 1) -> list[Launch]:
        """Return the launches of tasks, for so many steps at once; `lookup` gives the binding of a place."""
        launches: list[Launch] = []
        for task in tasks:
            if task.sort is not None:
                launches += self.backend.sort_launches(self.cells[task.sort])
            else:
                launches.append(self.launch(task, lookup))
        return [replace(launch, steps=steps) for launch in launches]

    def launch(self, task: Task, lookup: Any) -> Launch:
        """Return the launch of a map."""
        assert task.map is not None
        compiled = self.runner.compiled(task.map, self.dtype, self.device)
        lanes = self.runner.sizes[task.over]
        bindings = [lookup(place) for place in task.places]
        for table in task.map.tables:
            name, _, part = table.rpartition(".")
            tables = self.cells[name].bindings() if name in self.cells else self.runner.tables(self.device)[name]
            bindings.append(tables[part])
        return make_launch(compiled, task.map, lanes, bindings)

    def run(self, launches: list[Launch], first: int, count: int, sign: int) -> None:
        """Run launches for so many steps, forwards or backwards from the first."""
        self.backend.run(launches, first, count, sign, self.variants)

    # Forwards ---------------------------------------------------------------------------------------------------------

    def forward_launches(
        self, histories: dict[str, torch.Tensor], start: int, ring: bool, tasks: list[Task]
    ) -> list[Launch]:
        """Return the launches of a step whose states lie in histories that begin at a step."""
        places = dict(self.fixed)
        for name, history in histories.items():
            mask = 1 if ring else -1
            places[name] = self.bound(history, True, -start, mask)
            places[after(name)] = self.bound(history, True, 1 - start, mask)
        return self.launches(tasks, lambda place: places[place.buffer])

    def forward(self, tensors: list[torch.Tensor], needs: list[bool]) -> tuple[torch.Tensor, ...]:
        """Run all steps; returns the states and the outputs."""
        runner, steps = self.runner, self.steps
        states = tensors[: len(runner.states)]
        second = len(runner.states) + len(runner.parameters)
        self.bind_inputs(runner.parameters, tensors[len(runner.states) : second], 0)
        self.bind_inputs(runner.controls, tensors[second:], 1)
        self.bind_temporaries()
        self.written = {one.name: self._output_memory(one) for one in runner.outputs}
        self.fixed.update({name: self.bound(memory, True) for name, memory in self.written.items()})
        grad = any(needs)
        size = sum(self.rows(one, 1).nbytes for one in runner.states)
        interval = self.checkpoints.interval(steps, size) if grad else steps
        ring = (not grad and self.keep != 1) or (grad and interval < steps)
        length = 2 if ring else steps + 1
        histories = {one.name: self.rows(one, length) for one in runner.states}
        for one, tensor in zip(runner.states, states, strict=True):
            histories[one.name][0] = runner.inside(one, tensor, 0)[0]
        launches = self.forward_launches(histories, 0, ring, self.sequence.forward)
        kept: dict[str, list[torch.Tensor]] = {one.name: [] for one in runner.states}
        self.interval, self.saved, step = interval, [], 0
        while True:
            slot = step & 1 if ring else step
            if grad and interval < steps and step % interval == 0 and step < steps:
                self.saved.append({name: self._put_away(history[slot]) for name, history in histories.items()})
            if self.keep is not None and step % self.keep == 0 and (ring or self.keep > 1):
                for name, history in histories.items():
                    kept[name].append(history[slot].clone())
            if step == steps:
                break
            stops = [steps, *([step + self.keep - step % self.keep] if self.keep and (ring or self.keep > 1) else [])]
            if grad and interval < steps:
                stops.append(step + interval - step % interval)
            following = min(stops)
            self.run(launches, step, following - step, 1)
            step = following
        self.check_cells()
        self.histories = histories if grad and interval == steps else {}
        results = []
        for one in runner.states:
            if self.keep is None:
                last = histories[one.name][steps & 1 if ring else steps]
                results.append(runner.outside(one, last, self.batch, 0).clone())
            else:
                rows = torch.stack(kept[one.name]) if kept[one.name] else histories[one.name]
                results.append(runner.outside(one, rows, self.batch, 1))
        for one in runner.outputs:
            memory = self.written[one.name]
            if one.over is None:
                results.append(self._finish_sums(one, memory))
            else:
                results.append(runner.outside(one, memory, self.batch, 1))
        return tuple(results)

    def _output_memory(self, one: Field) -> torch.Tensor:
        if one.over is not None:
            return self.rows(one, self.steps)
        over = next(
            task.over
            for task in self.sequence.forward
            if task.map is not None and any(spec.name == one.name for spec in task.map.program.outputs)
        )
        slots, width = self.backend.sums(self.runner.sizes[over], BITS[self.dtype])
        return self.zeros(self.steps, self.variants, slots * math.prod(one.shape) * width)

    def _finish_sums(self, one: Field, memory: torch.Tensor) -> torch.Tensor:
        columns = math.prod(one.shape)
        _, width = self.backend.sums(1, BITS[self.dtype])
        sums = memory.reshape(self.steps, self.variants, -1, columns, width).sum((2, 4))
        return sums.reshape((self.steps, *self.batch, *one.shape))

    def _put_away(self, state: torch.Tensor) -> torch.Tensor:
        return state.to("cpu", copy=True) if self.checkpoints.on_host else state.clone()

    # Backwards --------------------------------------------------------------------------------------------------------

    def backward(self, cotangents: tuple[torch.Tensor | None, ...], wanted: list[bool]) -> list[torch.Tensor | None]:
        """Return the gradients that are wanted of states, parameters and controls."""
        runner = self.runner
        named = [*runner.states, *runner.parameters, *runner.controls]
        asked = frozenset(
            one.name for one, want in zip(named, wanted, strict=True) if want and one.role in ("parameter", "control")
        )
        adjoint = runner.adjoint(asked)
        seeds: dict[str, torch.Tensor] = {}
        for one, cotangent in zip([*runner.states, *runner.outputs], cotangents, strict=True):
            lead = int(one.role == "output" or self.keep is not None)
            if cotangent is not None:
                seeds[one.name] = runner.inside(one, cotangent, lead)
        at_once = self._steps_at_once(adjoint)
        if at_once > 1:
            self.bind_temporaries(at_once)
        places = dict(self.fixed)
        every = self.keep == 1
        external: dict[str, torch.Tensor] = {}
        for one in runner.states:
            if every and one.name in seeds:
                places[f"seed.{one.name}"] = self.bound(seeds[one.name], True, 1)
            else:
                external[one.name] = self.rows(one, 1)
                places[f"seed.{one.name}"] = self.bound(external[one.name])
        for one in runner.outputs:
            columns = math.prod(one.shape)
            zero = self.zeros(1, 1, columns) if one.over is None else self.rows(one, 1)
            given = one.name in seeds
            places[f"seed.{one.name}"] = self.bound(seeds[one.name] if given else zero, given)
        kept = {"carry": 2, "step": self.steps, "replay": at_once}
        memory = {name: self._adjoint_memory(buffer, kept) for name, buffer in adjoint.buffers.items()}
        masks = {"carry": 1, "step": -1, "replay": at_once - 1}

        def lookup(place: Place) -> Binding:
            if place.buffer in places:
                return places[place.buffer]
            keep = adjoint.buffers[place.buffer].keep
            return self.bound(memory[place.buffer], keep in masks, int(place.carried), masks.get(keep, -1))

        steps, interval = self.steps, self.interval
        for start in reversed(range(0, steps, interval)):
            end = min(start + interval, steps)
            histories = self.histories or self._again(start, end)
            origin = 0 if self.histories else start
            for name, history in histories.items():
                places[name] = self.bound(history, True, -origin)
                places[after(name)] = self.bound(history, True, 1 - origin)
            launches = self.launches(adjoint.replay, lookup, at_once) + self.launches(adjoint.tasks, lookup)
            step = end
            while step > start:
                index = self._seed_index(step)
                if external and index is not None and any(name in seeds for name in external):
                    for name, buffer in external.items():
                        if name in seeds:
                            buffer.copy_(seeds[name][index][None])
                    self.run(launches, step - 1, 1, -1)
                    for buffer in external.values():
                        buffer.zero_()
                    step -= 1
                    continue
                stop = (
                    start if self.keep in (None, 1) else max(start, (step - 1) // (self.keep or 1) * (self.keep or 1))
                )
                self.run(launches, step - 1, step - stop, -1)
                step = stop
        for name, buffer in external.items():
            if name in seeds and self.keep is not None:
                buffer.copy_(seeds[name][0][None])
        if not steps:
            for name, buffer in external.items():
                if name in seeds and self.keep is None:
                    buffer.copy_(seeds[name])
        return [
            self._gradient(one, adjoint, memory, lookup) if want else None
            for one, want in zip(named, wanted, strict=True)
        ]

    def _steps_at_once(self, adjoint: Adjoint) -> int:
        """Return how many steps are computed again at once."""
        maps = [self.runner.compiled(task.map, self.dtype, self.device) for task in adjoint.replay if task.map]
        if not maps or any(map_.workspace for map_ in maps):  # workspaces are large
            return 1
        if any(access.cells for reads in adjoint.gradients.values() for access, _ in reads):
            return 1  # gradients are read through the cells of the first step
        return self.backend.steps_at_once(max(self.runner.sizes[task.over] for task in adjoint.replay) * self.variants)

    def _seed_index(self, step: int) -> int | None:
        """Return which of the returned states is the one before a step's adjoint, if one is."""
        if self.keep is None:
            return 0 if step == self.steps else None
        return step // self.keep if step % self.keep == 0 else None

    def _again(self, start: int, end: int) -> dict[str, torch.Tensor]:
        """Compute the states of a segment again."""
        histories = {one.name: self.rows(one, end - start + 1) for one in self.runner.states}
        for name, history in histories.items():
            history[0] = self.saved[start // self.interval][name].to(self.device)
        launches = self.forward_launches(histories, start, False, self.sequence.replay)
        self.run(launches, start, end - start, 1)
        return histories

    def _adjoint_memory(self, buffer: Buffer, kept: Mapping[str, int]) -> torch.Tensor:
        steps = kept.get(buffer.keep, 1)
        if buffer.over is None:
            slots, width = self.backend.sums(self.runner.sizes[buffer.lanes], BITS[self.dtype])
            return self.zeros(steps, self.variants, slots * buffer.columns * width)
        return self.zeros(steps, self.variants, buffer.columns, padded(self.runner.sizes[buffer.over]))

    def _gradient(
        self, one: Field, adjoint: Adjoint, memory: dict[str, torch.Tensor], lookup: Any
    ) -> torch.Tensor | None:
        reads = adjoint.gradients.get(one.name, [])
        columns = math.prod(one.shape)
        lead = int(one.role == "control")
        steps = self.steps if lead else 1
        if not reads:
            own = (*((self.runner.sizes[one.over],) if one.over is not None else ()), *one.shape)
            return self.zeros(*((steps,) if lead else ()), *self.batch, *own)
        if one.over is None:
            _, width = self.backend.sums(1, BITS[self.dtype])
            parts = [memory[place.buffer] for _, place in reads]
            total = sum(part.reshape(steps, self.variants, -1, columns, width).sum((2, 4)) for part in parts)
            assert isinstance(total, torch.Tensor)
            return self.runner.outside(one, total if lead else total[0], self.batch, lead)
        result = self.rows(one, steps)
        collector = self.runner.collector(tuple(access for access, _ in reads), columns)
        places = (*[place for _, place in reads], Place("result"))
        task = Task(one.over, collector, places)
        found = self.bound(result, bool(lead))
        launch = self.launch(task, lambda place: found if place.buffer == "result" else lookup(place))
        first = 0 if lead else -1
        self.run([launch], first, steps, 1)
        return self.runner.outside(one, result if lead else result[0], self.batch, lead)


class Rollout(torch.autograd.Function):
    """The rollout as a function of its states, parameters and controls."""

    @staticmethod
    def forward(ctx: Any, call: Call, *tensors: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Run all steps."""
        needs = [bool(need) for need in ctx.needs_input_grad[1:]]
        ctx.call = call
        ctx.shapes = [tensor.shape for tensor in tensors]
        ctx.set_materialize_grads(False)
        return call.forward(list(tensors), needs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        """Return the gradients."""
        gradients = ctx.call.backward(cotangents, list(ctx.needs_input_grad[1:]))
        runner = ctx.call.runner
        fields = [*runner.states, *runner.parameters, *runner.controls]
        for i, (one, shape, gradient) in enumerate(zip(fields, ctx.shapes, gradients, strict=True)):
            if gradient is not None and gradient.shape != shape:  # one value that all variants share
                lead = int(one.role == "control")
                gradients[i] = gradient.sum(tuple(range(lead, lead + gradient.dim() - len(shape))))
        return None, *gradients
