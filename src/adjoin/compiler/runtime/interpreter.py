"""The reference: runs a program with torch operations, on any device and dtype, without a compiler.

It is the truth that every backend is compared with, and what runs where there is no compiler target.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from adjoin.compiler.ir.graph import INT, Expr
from adjoin.compiler.ir.program import Program
from adjoin.compiler.ir.schedule import Loop, Plan

_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "min": torch.minimum,
    "max": torch.maximum,
    "atan2": torch.atan2,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "not": lambda a: ~a,
    "neg": lambda a: -a,
    "abs": torch.abs,
    "sign": lambda a: torch.where(a.isnan(), a, torch.sign(a)),
    "sqrt": torch.sqrt,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "exp": torch.exp,
    "log": torch.log,
    "tanh": torch.tanh,
    "floor": torch.floor,
    "select": torch.where,
}


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
    machine.run(program.plan)
    return [machine.collect(spec, nodes) for spec, nodes in zip(program.outputs, program.targets, strict=True)]


class _Machine:
    """Values of nodes while a program runs; a loop's body sees its own."""

    def __init__(self, like: torch.Tensor, batch: int, integers: dict[str, int], values: dict[Expr, Any] | None = None):
        self.like = like
        self.batch = batch
        self.integers = integers
        self.values: dict[Expr, Any] = values or {}

    def run(self, plan: Plan) -> None:
        for node in plan.order:
            if node not in self.values:
                self.values[node] = self.evaluate(node, plan)

    def evaluate(self, node: Expr, plan: Plan) -> Any:
        if node.op == "const":
            return self.like.new_full((1,), node.value)
        if node.op == "boolean":
            return torch.full((1,), node.data, dtype=torch.bool, device=self.like.device)
        if node.op == "integer":
            return node.data
        if node.op == "length":
            return self.integers[node.data]
        if node.op == "scan":
            return self.scan(node, plan.loops[node])
        if node.op == "scratch":
            return [self.like.new_zeros((1,))] * node.width
        args = [self.values[arg] for arg in node.args[:3]]
        if node.op == "get":
            return args[0][node.data]
        if node.op == "to_float":
            return (
                args[0].to(self.like.dtype) if isinstance(args[0], torch.Tensor) else self.like.new_full((1,), args[0])
            )
        if node.op == "to_index":
            return torch.nan_to_num(args[0], nan=0.0).clamp(-(2.0**30), 2.0**30).to(torch.int64)
        if node.op == "load":
            return _load(args[0], args[1])
        if node.op == "lookup":
            return _look_up(args[0], args[1])
        if node.op == "store":
            return _store(args[0], args[1], args[2])
        if node.kind == INT and not any(isinstance(arg, torch.Tensor) for arg in args):
            return {"min": min, "max": max}.get(node.op, _OPERATIONS[node.op])(*args)
        if node.args[0].kind == INT:
            args = [
                arg if isinstance(arg, torch.Tensor) else torch.tensor([arg], device=self.like.device) for arg in args
            ]
        return _OPERATIONS[node.op](*args)

    def scan(self, node: Expr, loop: Loop) -> dict[int, Any]:
        body = loop.body
        initial, captured, streams, _ = loop.arguments(node)
        carry = [self.values[value] for value in initial]
        fixed = {body.captures[i]: self.values[value] for i, value in zip(loop.captures, captured, strict=True)}
        length = self.integers[body.length] if isinstance(body.length, str) else body.length
        written: dict[int, list[Any]] = {i: [None] * length for i in loop.outputs}
        for step in reversed(range(length)) if body.reverse else range(length):
            inside = _Machine(self.like, self.batch, self.integers, dict(fixed))
            inside.values[body.counter] = step
            inside.values.update(zip([body.carry[i] for i in loop.carry], carry, strict=True))
            for i, stream in zip(loop.streams, streams, strict=True):
                inside.values.update(zip(body.steps[i], self.values[stream][step], strict=True))
            inside.run(loop.plan)
            carry = [inside.values[body.results[i]] for i in loop.carry]
            for i in loop.outputs:
                written[i][step] = [inside.values[value] for value in body.outputs[i]]
        results: dict[int, Any] = dict(zip(loop.carry, carry, strict=True))
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


def _look_up(table: torch.Tensor, index: Any) -> torch.Tensor:
    if not isinstance(index, torch.Tensor):
        return table[:, index]
    rows = max(len(table), len(index))
    return table.expand(rows, -1).gather(1, index.expand(rows)[:, None])[:, 0]


def _load(array: list[torch.Tensor], index: Any) -> torch.Tensor:
    if not isinstance(index, torch.Tensor):
        return array[min(max(index, 0), len(array) - 1)]
    rows = torch.stack(torch.broadcast_tensors(*array, index.to(array[0].dtype))[:-1])
    return rows.gather(0, index.clamp(0, len(array) - 1).expand(rows.shape[1:])[None])[0]


def _store(array: list[torch.Tensor], index: Any, value: torch.Tensor) -> list[torch.Tensor]:
    array = list(array)
    if not isinstance(index, torch.Tensor):
        array[min(max(index, 0), len(array) - 1)] = value
        return array
    index = index.clamp(0, len(array) - 1)
    return [torch.where(index == i, value, element) for i, element in enumerate(array)]
