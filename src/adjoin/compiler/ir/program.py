"""A traced function: a graph, its named inputs and its outputs, for one environment."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from adjoin.compiler.autodiff.forward import pushforward
from adjoin.compiler.autodiff.reverse import pullback
from adjoin.compiler.ir.control_flow import Lookup, Scratch, Stream
from adjoin.compiler.ir.graph import Expr, Graph, tracing
from adjoin.compiler.ir.kinds import BOOL, INT, STREAM, TABLE
from adjoin.compiler.ir.op import OPS
from adjoin.compiler.ir.ops import select
from adjoin.compiler.ir.rewrite import copy, has_rules
from adjoin.compiler.ir.schedule import Loop, Plan, make_plan, reachable
from adjoin.errors import TraceError


@dataclass(frozen=True)
class TensorSpec:
    """One tensor that a kernel reads or writes.

    Attributes:
        name: how the caller knows it.
        shape: shape for one environment, and of a stream one step.
        steps: None, or of a stream the number of steps, or the name of the run-time integer that holds it.
        shared: of an input: one value for the whole batch. Of an output: summed over the batch.
        table: of an input: read element by element where the data says.
        size: scalars an environment (and step).
    """

    name: str
    shape: tuple[int, ...]
    steps: int | str | None = None
    shared: bool = False
    table: bool = False
    size: int = field(init=False, compare=False)

    def __post_init__(self):
        object.__setattr__(self, "size", math.prod(self.shape))


@dataclass(frozen=True, eq=False)
class Program:
    """A closed description of one kernel; never changed once made.

    Attributes:
        name: for messages and symbol names.
        inputs: the tensors it reads.
        integers: names of the run-time integers it takes.
        sources: for each input its nodes, or of a stream its one node.
        outputs: the tensors it writes.
        targets: for each output its nodes, or of a stream its one node.
        ruled: sources and targets of the same program with the rules that `implicit` left, if it did.
        guard: where it does not hold, gradients are exactly 0; of the graph that derivatives see.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    integers: tuple[str, ...]
    sources: tuple[list[Expr], ...]
    outputs: tuple[TensorSpec, ...]
    targets: tuple[list[Expr], ...]
    ruled: tuple[tuple[list[Expr], ...], tuple[list[Expr], ...]] | None = None
    guard: Expr | None = None

    @property
    def smooth(self) -> tuple[tuple[list[Expr], ...], tuple[list[Expr], ...]]:
        """Sources and targets, as derivatives are to see them."""
        return self.ruled or (self.sources, self.targets)

    @cached_property
    def plan(self) -> Plan:
        """What to compute and in which order."""
        return make_plan([node for target in self.targets for node in target])

    @cached_property
    def digest(self) -> str:
        """A hash of everything that decides what the kernel computes."""
        text = [repr((self.inputs, self.outputs, self.integers))]
        numbers: dict[Expr, int] = {node: -1 - i for i, node in enumerate([*chain(*self.sources)])}
        _describe(self.plan, numbers, text)
        return hashlib.sha256("\n".join(text).encode()).hexdigest()

    @cached_property
    def key(self) -> str:
        """A hash of what it computes and of how it is differentiated."""
        if self.ruled is None and self.guard is None:
            return self.digest
        sources, targets = self.smooth
        numbers: dict[Expr, int] = {node: -1 - i for i, node in enumerate([*chain(*sources)])}
        text = [self.digest, str(self.guard is not None)]
        _describe_ruled([*chain(*targets), *([] if self.guard is None else [self.guard])], numbers, text)
        return hashlib.sha256("\n".join(text).encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.name} ({self.operations:,} operations)"

    @cached_property
    def operations(self) -> int:
        """Live arithmetic nodes; those of a loop's body count once."""
        return _count(self.plan)

    @cached_property
    def work(self) -> int:
        """A rough number of instructions an environment takes; loops of run-time length count as a hundred steps."""
        return _work(self.plan)

    def vjp(self, wanted: Sequence[bool], given: Sequence[bool] | None = None) -> tuple["Program", list[int]]:
        """The program of the vector-Jacobian product.

        Args:
            wanted: for each input, whether its gradient is wanted.
            given: for each output, whether there is a cotangent for it; by default for all.

        Returns:
            A program of the inputs and one cotangent for each such output, and the positions of the inputs whose
            gradients it gives; a wanted input that is missing there has no influence on any output.
        """
        graph, mapping, sources = self._again()
        targets = [copy(target, mapping, graph) for target in self.smooth[1]]
        specs, cotangents = [], []
        seeds = []
        for i, (spec, target) in enumerate(zip(self.outputs, targets, strict=True)):
            if given is None or given[i]:
                specs.append(TensorSpec(f"grad_{spec.name}", spec.shape, spec.steps, spec.shared))
                cotangents.append(_nodes(graph, specs[-1], len(self.inputs) + len(cotangents)))
                seeds += zip(target, cotangents[-1], strict=True)
        guard = None if self.guard is None else copy([self.guard], mapping, graph)[0]
        on = [i for i, is_wanted in enumerate(wanted) if is_wanted and not self.inputs[i].table]
        found = iter(pullback(graph, seeds, [node for i in on for node in sources[i]]))
        present, outputs, gradients = [], [], []
        for i in on:
            gradient = [next(found) for _ in sources[i]]
            if any(node is not None for node in gradient):
                present.append(i)
                spec = self.inputs[i]
                outputs.append(TensorSpec(f"grad_{spec.name}", spec.shape, spec.steps, spec.shared))
                gradient = [graph.const(0.0) if node is None else node for node in gradient]
                if guard is not None and spec.steps is None:
                    gradient = [select(guard, node, 0.0) for node in gradient]
                gradients.append(gradient)
        program = _program(
            f"{self.name}_vjp",
            (*self.inputs, *specs),
            self.integers,
            (*sources, *cotangents),
            tuple(outputs),
            tuple(gradients),
            guard,
        )
        return program, present

    def jvp(self, moved: Sequence[bool]) -> tuple["Program", list[int]]:
        """The program of the Jacobian-vector product.

        Args:
            moved: for each input, whether it has a tangent.

        Returns:
            A program of the inputs and one tangent for each moved input, and the positions of the outputs whose
            tangents it gives; the others' are zero.
        """
        graph, mapping, sources = self._again()
        tangents: dict[Expr, Expr] = {}
        specs, nodes = [], []
        for i, spec in enumerate(self.inputs):
            if moved[i] and not spec.table:
                specs.append(TensorSpec(f"tangent_{spec.name}", spec.shape, spec.steps, spec.shared))
                nodes.append(_nodes(graph, specs[-1], len(self.inputs) + len(nodes)))
                tangents.update(zip(self.smooth[0][i], nodes[-1], strict=True))
        given, outputs, targets = [], [], []
        for i, (spec, target) in enumerate(zip(self.outputs, self.smooth[1], strict=True)):
            moving = [tangent for _, tangent in pushforward(target, mapping, tangents, graph)]
            if any(tangent is not None for tangent in moving):
                given.append(i)
                outputs.append(TensorSpec(f"tangent_{spec.name}", spec.shape, spec.steps, spec.shared))
                targets.append([graph.const(0.0) if tangent is None else tangent for tangent in moving])
        program = _program(
            f"{self.name}_jvp",
            (*self.inputs, *specs),
            self.integers,
            (*sources, *nodes),
            tuple(outputs),
            tuple(targets),
        )
        return program, given

    def with_shared(self, shared: Sequence[bool]) -> "Program":
        """The same program with some inputs read once for the whole batch."""
        if tuple(shared) == tuple(spec.shared for spec in self.inputs):
            return self
        inputs = tuple(replace(spec, shared=is_shared) for spec, is_shared in zip(self.inputs, shared, strict=True))
        return replace(self, inputs=inputs)

    def without_sums(self) -> "Program":
        """The same program with every output given for each environment."""
        outputs = tuple(TensorSpec(spec.name, spec.shape, spec.steps) for spec in self.outputs)
        return replace(self, outputs=outputs)

    def _again(self) -> tuple[Graph, dict[Expr, Expr], list[list[Expr]]]:
        """A new graph with the same inputs, and where each input went."""
        graph = Graph()
        sources = [_nodes(graph, spec, i) for i, spec in enumerate(self.inputs)]
        return graph, dict(zip(chain(*self.smooth[0]), chain(*sources), strict=True)), sources


def trace(
    name: str, function: Callable[..., Any], inputs: Sequence[TensorSpec], integers: Sequence[str] = ()
) -> tuple[Program, Any]:
    """Run a function on symbolic scalars.

    Args:
        name: for messages.
        function: called with one keyword argument an input: an object array of its shape, a bare scalar for the shape
            (), a Stream of such for a stream; and an integer for each name in `integers`.
        inputs: what it takes.
        integers: run-time integers it takes: trip counts.

    Returns:
        The program, and an example of the structure that the function returned, made of output numbers.
    """
    graph = Graph()
    sources = [_nodes(graph, spec, i) for i, spec in enumerate(inputs)]
    arguments: dict[str, Any] = {}
    for spec, nodes in zip(inputs, sources, strict=True):
        if spec.table:
            arguments[spec.name] = Lookup(nodes[0], spec.shape)
        elif spec.steps is None:
            arguments[spec.name] = _shaped(nodes, spec.shape)
        else:
            element = _shaped([graph.const(0.0)] * spec.size, spec.shape)
            arguments[spec.name] = Stream(nodes[0], spec.steps, element)
    for integer in integers:
        arguments[integer] = graph.node("length", (), integer, INT)
    with tracing(graph):
        returned = function(**arguments)
    graph_outputs: list[TensorSpec] = []
    targets: list[list[Expr]] = []

    def collect(value: Any, label: str) -> Any:
        if isinstance(value, dict):
            return {key: collect(part, str(key)) for key, part in value.items()}
        if isinstance(value, tuple):
            parts = [collect(part, f"{label}{i}") for i, part in enumerate(value)]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        if value is None:
            raise TraceError(f"'{name}' returned None; return the traced values it computes")
        if isinstance(value, Stream):
            shape = np.shape(value.element)
            graph_outputs.append(TensorSpec(label, tuple(shape), value.length))
            targets.append([value.source])
        else:
            if isinstance(value, Scratch):
                raise TraceError(f"'{name}' returned a scratch array; return its elements")
            array = np.array(value, dtype=object)
            nodes = [_number(graph.lift(node)) for node in array.ravel().tolist()]
            graph_outputs.append(TensorSpec(label, array.shape))
            targets.append(nodes)
        return len(targets) - 1

    structure = collect(returned, "out")
    lengths = [spec.steps for spec in inputs if isinstance(spec.steps, str)]
    names = tuple(dict.fromkeys([*integers, *lengths]))
    program = _program(name, tuple(inputs), names, tuple(sources), tuple(graph_outputs), tuple(targets), graph.guard)
    return program, structure


def _program(
    name: str,
    inputs: tuple[TensorSpec, ...],
    integers: tuple[str, ...],
    sources: tuple[list[Expr], ...],
    outputs: tuple[TensorSpec, ...],
    targets: tuple[list[Expr], ...],
    guard: Expr | None = None,
) -> Program:
    """A program; if there are rules for derivatives in its graph, they are kept beside what runs."""
    if not has_rules([*chain(*targets)]):
        return Program(name, inputs, integers, sources, outputs, targets, None, guard)
    graph = Graph()
    again = tuple(_nodes(graph, spec, i) for i, spec in enumerate(inputs))
    mapping = dict(zip(chain(*sources), chain(*again), strict=True))
    plain = tuple(copy(target, mapping, graph, without_rules=True) for target in targets)
    return Program(name, inputs, integers, again, outputs, plain, (sources, targets), guard)


def _number(node: Expr) -> Expr:
    """What leaves a kernel is a float: conditions become 0 or 1."""
    if node.kind == BOOL:
        return select(node, 1.0, 0.0)
    if node.kind == INT:
        return node.graph.node("to_float", (node,))
    return node


def _nodes(graph: Graph, spec: TensorSpec, position: int) -> list[Expr]:
    if spec.table:
        table = graph.fresh("table", (), position, TABLE)
        table.width = spec.size
        return [table]
    if spec.steps is None:
        return [graph.fresh("input", (), (position, i)) for i in range(spec.size)]
    stream = graph.fresh("stream", (), (position, spec.steps), STREAM)
    stream.width = spec.size
    return [stream]


def _shaped(nodes: list[Expr], shape: tuple[int, ...]) -> Any:
    if shape == ():
        return nodes[0]
    array = np.empty(len(nodes), dtype=object)
    array[:] = nodes
    return array.reshape(shape)


def _describe(plan: Plan, numbers: dict[Expr, int], text: list[str]) -> None:
    """Append a canonical description: nodes by their place in the order, loops with their bodies inside."""
    for node in plan.order:
        if node in numbers:
            continue
        number = numbers[node] = len(numbers)
        if node.op == "scan":
            loop = plan.loops[node]
            arguments = [numbers[arg] for part in loop.arguments(node)[:3] for arg in part]
            kind = f"{loop.body.length} {loop.body.reverse} {loop.where}"
            text.append(f"scan {number} {arguments} {kind} {loop.carry} {loop.outputs}")
            _describe_body(loop, numbers, text)
        elif node.op == "get":
            text.append(f"get {numbers[node.args[0]]} {node.data}")
        else:
            args = " ".join([str(numbers[arg]) for arg in node.args[:3]])
            data = "" if node.data is None else repr(node.data)
            text.append(f"{node.op} {node.width if node.op == 'scratch' else ''} {args} {data}")
    text.append(str([numbers[target] for target in plan.targets]))


def _describe_body(loop: Loop, outer: dict[Expr, int], text: list[str]) -> None:
    body = loop.body
    parameters = [body.counter, *[body.carry[i] for i in loop.carry], *[body.captures[i] for i in loop.captures]]
    parameters += [parameter for i in loop.streams for parameter in body.steps[i]]
    _describe(loop.plan, {parameter: -1 - i for i, parameter in enumerate(parameters)}, text)
    text.append("end")


def _describe_ruled(targets: Sequence[Expr], numbers: dict[Expr, int], text: list[str]) -> None:
    """Append a description of everything behind the targets, dead results of loops and rules included."""
    for node in reachable(targets):
        if node in numbers:
            continue
        data = node.data
        if node.op == "scan":
            text.append(f"{data.length} {data.reverse} {[x is data.where for x in data.captures]}")
            _describe_ruled([*data.results, *chain(*data.outputs)], numbers, text)
            data = None
        elif node.op == "implicit":
            _describe_ruled([*data.residual, *data.solved, *data.transposed], numbers, text)
            data = [numbers[value] for value in (*data.residual, *data.solved, *data.transposed)]
        numbers[node] = len(numbers)
        place = node.index if node.op == "param" else ""
        text.append(f"{node.op} {node.width} {[numbers[arg] for arg in node.args]} {data} {place}")
    text.append(str([numbers[target] for target in targets]))


def _work(plan: Plan) -> int:
    total = sum(OPS[node.op].cost for node in plan.order)
    for loop in plan.loops.values():
        total += _work(loop.plan) * (loop.body.length if isinstance(loop.body.length, int) else 100)
    return total


def _count(plan: Plan) -> int:
    plain = sum(1 for node in plan.order if node.args and node.op not in ("get", "scan"))
    return plain + sum(_count(loop.plan) for loop in plan.loops.values())
