"""The reference: runs a program with torch operations, on any device and dtype, without a compiler.

It is the truth that every backend is compared with, and what runs where there is no compiler target.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.kinds import INDICES, INT
from adjoin.compiler.ir.op import OPS
from adjoin.compiler.ir.program import Program
from adjoin.compiler.ir.schedule import ScanSchedule, Schedule


class InterpretedKernel:
    """A program that runs without being compiled."""

    def __init__(self, program: Program):
        self.program = program

    def partial_sums(self, batch: int) -> int:
        """One row, the whole sum."""
        return 1

    def launch(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], batch: int, integers: Sequence[int]
    ) -> None:
        """Run over a batch; see `adjoin.compiler.runtime.backend.Executable`."""
        flat = []
        for spec, tensor in zip(self.program.inputs, inputs, strict=True):
            steps = () if spec.steps is None else tensor.shape[:1]
            flat.append(tensor.reshape((*steps, 1 if spec.shared else batch, spec.size)))
        results = interpret(self.program, flat, dict(zip(self.program.integers, integers, strict=True)))
        for output, result in zip(outputs, results, strict=True):
            output.copy_(result.reshape(output.shape))

    def prepare(self, *_: Any) -> None:
        """Return None: launches take no addresses here."""


def executable(program: Program, bits: int, device: torch.device) -> InterpretedKernel:
    """See `adjoin.compiler.runtime.backend.Backend`."""
    return InterpretedKernel(program)


def target(name: str) -> None:
    """Nothing is compiled here."""


def interpret(
    program: Program, inputs: Sequence[torch.Tensor], integers: Mapping[str, int] | None = None
) -> list[torch.Tensor]:
    """Run a program on a flat batch.

    Args:
        program: what to run.
        inputs: for each input a tensor (batch, size), a stream's (steps, batch, size); a shared one has batch 1.
        integers: the run-time integers.

    Returns:
        For each output a tensor (batch, size), or (steps, batch, size) of a stream; a shared output has been summed
        over the batch to (1, size).
    """
    batch = max(
        [1, *[tensor.shape[-2] for spec, tensor in zip(program.inputs, inputs, strict=True) if not spec.shared]]
    )
    machine = _Machine(inputs[0] if inputs else torch.empty(0), batch, dict(integers or {}))
    for spec, nodes, tensor in zip(program.inputs, program.sources, inputs, strict=True):
        if spec.table:
            machine.values[nodes[0]] = tensor
        elif spec.steps is None:
            machine.values.update(zip(nodes, tensor.unbind(-1), strict=True))
        else:
            machine.values[nodes[0]] = [row.unbind(-1) for row in tensor]
    machine.run(program.schedule)
    return [machine.collect(spec, nodes) for spec, nodes in zip(program.outputs, program.targets, strict=True)]


class _Machine:
    """Values of nodes while a program runs; a loop's body sees its own."""

    def __init__(self, like: torch.Tensor, batch: int, integers: dict[str, int], values: dict[Expr, Any] | None = None):
        self.like = like
        self.batch = batch
        self.integers = integers
        self.values: dict[Expr, Any] = values or {}

    def run(self, schedule: Schedule) -> None:
        for node in schedule.order:
            if node not in self.values:
                self.values[node] = self.evaluate(node, schedule)

    def evaluate(self, node: Expr, schedule: Schedule) -> Any:
        if node.op == "scan":
            return self.scan(node, schedule.scans[node])
        args = [self.values[arg] for arg in node.args[:3]]
        if node.op in CONSTRUCTS:
            return CONSTRUCTS[node.op](self, node, *args)
        op = OPS[node.op]
        if node.kind == INT and not any(isinstance(arg, torch.Tensor) for arg in args):
            return op.fold(*args)
        value = op.reference(*[self.tensor(arg) for arg in args])
        return int(value[0]) if node.kind == INT and node.uniform else value

    def tensor(self, value: Any) -> torch.Tensor:
        """An integer that does not differ between environments, beside values that do."""
        return value if isinstance(value, torch.Tensor) else torch.tensor([value], device=self.like.device)

    def scan(self, node: Expr, scan: ScanSchedule) -> dict[int, Any]:
        body = scan.body
        initial, captured, streams, _ = scan.arguments(node)
        carry = [self.values[value] for value in initial]
        fixed = {body.captures[i]: self.values[value] for i, value in zip(scan.captures, captured, strict=True)}
        length = self.integers[body.length] if isinstance(body.length, str) else body.length
        nothing = self.like.new_full((1,), torch.nan)  # of steps that are not taken
        written = {i: [[nothing] * len(body.outputs[i])] * length for i in scan.outputs}
        if body.count is not None:
            length = min(length, max(0, fixed[body.count]))
        if body.where is not None and not fixed[body.where].any():
            length = 0
        for step in reversed(range(length)) if body.reverse else range(length):
            inside = _Machine(self.like, self.batch, self.integers, dict(fixed))
            inside.values[body.counter] = step
            inside.values.update(zip([body.carry[i] for i in scan.carry], carry, strict=True))
            for i, stream in zip(scan.streams, streams, strict=True):
                inside.values.update(zip(body.elements[i], self.values[stream][step], strict=True))
            inside.run(scan.schedule)
            if body.proceed is not None and not inside.values[body.proceed].any():
                break
            carry = [inside.values[body.results[i]] for i in scan.carry]
            for i in scan.outputs:
                written[i][step] = [inside.values[value] for value in body.outputs[i]]
        results: dict[int, Any] = dict(zip(scan.carry, carry, strict=True))
        results.update({len(body.results) + i: steps for i, steps in written.items()})
        return results

    def collect(self, spec: Any, nodes: list[Expr]) -> torch.Tensor:
        if spec.steps is None:
            result = self.row([self.values[node] for node in nodes])
        else:
            steps = self.values[nodes[0]]
            empty = self.like.new_empty((0, self.batch, spec.size))
            result = torch.stack([self.row(list(values)) for values in steps]) if steps else empty
        return result.sum(-2, keepdim=True) if spec.shared else result

    def row(self, values: list[torch.Tensor]) -> torch.Tensor:
        if not values:
            return self.like.new_empty((self.batch, 0))
        return torch.stack([value.expand(self.batch) for value in values], -1)


def _to_float(machine: _Machine, node: Expr, value: Any) -> torch.Tensor:
    like = machine.like
    return value.to(like.dtype) if isinstance(value, torch.Tensor) else like.new_full((1,), value)


def _to_index(machine: _Machine, node: Expr, value: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(value, nan=0.0).clamp(-(2.0**30), 2.0**30).to(torch.int64)


def _look_up(machine: _Machine, node: Expr, table: torch.Tensor, index: Any) -> Any:
    if node.kind == INT and not isinstance(index, torch.Tensor):
        return int(table[0, index])
    if not isinstance(index, torch.Tensor):
        return table[:, index]
    rows = max(len(table), len(index))
    return table.expand(rows, -1).gather(1, index.expand(rows)[:, None])[:, 0]


def _load(machine: _Machine, node: Expr, array: list[torch.Tensor], index: Any) -> torch.Tensor:
    if not isinstance(index, torch.Tensor):
        return array[min(max(index, 0), len(array) - 1)]
    rows = torch.stack(torch.broadcast_tensors(*array, index.to(array[0].dtype))[:-1])
    return rows.gather(0, index.clamp(0, len(array) - 1).expand(rows.shape[1:])[None])[0]


def _constants(machine: _Machine, node: Expr) -> torch.Tensor:
    numbers = torch.from_numpy(node.data.numbers).to(machine.like.device)
    return (numbers.to(machine.like.dtype) if numbers.is_floating_point() else numbers.long())[None]


def _scratch(machine: _Machine, node: Expr, records: int | None = None) -> list[Any]:
    if node.kind == INDICES:
        return [0] * node.width
    zero, anything = (machine.like.new_full((1,), x) for x in (0.0, torch.nan))
    cleared = 0 if node.data else node.width if node.used is None or records is None else records * node.used[1]
    return [zero] * cleared + [anything] * (node.width - cleared)


def _accumulate(
    machine: _Machine, node: Expr, array: list[torch.Tensor], index: Any, value: torch.Tensor
) -> list[torch.Tensor]:
    return _store(machine, node, array, index, _load(machine, node, array, index) + value)


def _store(
    machine: _Machine, node: Expr, array: list[torch.Tensor], index: Any, value: torch.Tensor
) -> list[torch.Tensor]:
    array = list(array)
    if not isinstance(index, torch.Tensor):
        array[min(max(index, 0), len(array) - 1)] = value
        return array
    index = index.clamp(0, len(array) - 1)
    return [torch.where(index == i, value, element) for i, element in enumerate(array)]


CONSTRUCTS: dict[str, Callable[..., Any]] = {
    "const": lambda machine, node: machine.like.new_full((1,), node.value),
    "boolean": lambda machine, node: torch.full((1,), node.data, dtype=torch.bool, device=machine.like.device),
    "integer": lambda machine, node: node.data,
    "length": lambda machine, node: machine.integers[node.data],
    "constants": _constants,
    "any": lambda machine, node, condition: condition.any()[None],
    "scratch": _scratch,
    "get": lambda machine, node, results: results[node.data],
    "to_float": _to_float,
    "to_index": _to_index,
    "lookup": _look_up,
    "load": _load,
    "store": _store,
    "accumulate": _accumulate,
}
"""What the constructs of a graph mean; inputs and parameters have values from the start, and scans run their body."""
