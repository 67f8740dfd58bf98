"""A traced function: what it computes, and the tensors it reads and writes, for one environment."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from adjoin.compiler.ir import ops
from adjoin.compiler.ir.control_flow import Stream
from adjoin.compiler.ir.digest import digest_graph, digest_schedule, hash_of
from adjoin.compiler.ir.graph import Expr, Graph, as_number, tracing
from adjoin.compiler.ir.kinds import INT, STREAM, TABLE
from adjoin.compiler.ir.op import OPS
from adjoin.compiler.ir.rewrite import copy, has_rules
from adjoin.compiler.ir.schedule import Schedule, make_schedule
from adjoin.compiler.ir.scratch import Lookup, Scratch
from adjoin.errors import TraceError

Nodes = tuple[list[Expr], ...]
"""For each tensor its nodes; a stream and a table have one."""


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
class Computation:
    """What a program computes, as nodes: all of it that does not depend on how its tensors are called or shared.

    Attributes:
        sources: of the inputs.
        targets: of the outputs.
        smooth: sources and targets of the graph that derivatives are taken of. It has the rules that `implicit` left,
            which the graph that runs is without; where there are none, the two are one.
        guard: where it does not hold, gradients are exactly 0; a node of the graph that derivatives are taken of.
    """

    sources: Nodes
    targets: Nodes
    smooth: tuple[Nodes, Nodes]
    guard: Expr | None = None

    @cached_property
    def schedule(self) -> Schedule:
        """Return what to compute and in which order."""
        return make_schedule([*chain(*self.targets)])

    @cached_property
    def digest(self) -> str:
        """Return a hash of what is computed."""
        return digest_schedule(self.schedule, [*chain(*self.sources)])

    @cached_property
    def key(self) -> str:
        """Return a hash of what is computed and of how it is differentiated."""
        sources, targets = self.smooth
        if targets is self.targets and self.guard is None:
            return self.digest
        guard = [] if self.guard is None else [self.guard]
        return hash_of(self.digest, str(len(guard)), digest_graph([*chain(*targets), *guard], [*chain(*sources)]))

    @cached_property
    def operations(self) -> int:
        """Return the number of live arithmetic nodes; those of a loop's body count once."""
        return _count(self.schedule)

    @cached_property
    def work(self) -> int:
        """Estimate the instructions per environment; loops of run-time length count as a hundred steps."""
        return _work(self.schedule)


@dataclass(frozen=True, eq=False)
class Program:
    """A closed description of one kernel; never changed once made.

    Attributes:
        name: for messages.
        inputs: the tensors it reads.
        outputs: the tensors it writes.
        integers: names of the run-time integers it takes.
        computation: what it computes. Programs that differ in their tensors only have one in common, so that it is
            scheduled and hashed once.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    integers: tuple[str, ...]
    computation: Computation

    @property
    def sources(self) -> Nodes:
        """Return the nodes of each input."""
        return self.computation.sources

    @property
    def targets(self) -> Nodes:
        """Return the nodes of each output."""
        return self.computation.targets

    @property
    def schedule(self) -> Schedule:
        """Return what to compute and in which order."""
        return self.computation.schedule

    @property
    def operations(self) -> int:
        """Return the number of live arithmetic nodes; those of a loop's body count once."""
        return self.computation.operations

    @property
    def work(self) -> int:
        """Return a rough number of instructions an environment takes."""
        return self.computation.work

    @cached_property
    def digest(self) -> str:
        """Return a hash of everything that decides what the kernel computes."""
        return hash_of(self._tensors, self.computation.digest)

    @cached_property
    def key(self) -> str:
        """Return a hash of what it computes and of how it is differentiated."""
        return hash_of(self._tensors, self.computation.key)

    @property
    def _tensors(self) -> str:
        return repr((self.inputs, self.outputs, self.integers))

    def __str__(self) -> str:
        return f"{self.name} ({self.operations:,} operations)"

    def with_shared(self, shared: Sequence[bool]) -> "Program":
        """Return the same program with some inputs read once for the whole batch."""
        if tuple(shared) == tuple(spec.shared for spec in self.inputs):
            return self
        inputs = tuple(replace(spec, shared=is_shared) for spec, is_shared in zip(self.inputs, shared, strict=True))
        return replace(self, inputs=inputs)

    def without_sums(self) -> "Program":
        """Return the same program with every output given for each environment."""
        return replace(self, outputs=tuple(replace(spec, shared=False) for spec in self.outputs))


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
    sources = [input_nodes(graph, spec, i) for i, spec in enumerate(inputs)]
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
        try:
            returned = function(**arguments)
        except TypeError as error:
            raise _explained(name, error) from error
    outputs: list[TensorSpec] = []
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
            outputs.append(TensorSpec(label, tuple(shape), value.length))
            targets.append([value.source])
        else:
            if isinstance(value, Scratch):
                raise TraceError(f"'{name}' returned a scratch array; return its elements")
            array = np.array(value, dtype=object)
            nodes = [as_number(graph.lift(node)) for node in array.ravel().tolist()]
            outputs.append(TensorSpec(label, array.shape))
            targets.append(nodes)
        return len(targets) - 1

    structure = collect(returned, "out")
    lengths = [spec.steps for spec in inputs if isinstance(spec.steps, str)]
    names = tuple(dict.fromkeys([*integers, *lengths]))
    return make_program(name, inputs, outputs, names, sources, targets, graph.guard), structure


def _explained(name: str, error: TypeError) -> TypeError:
    """An error of torch that it got traced values, as one that says what to use instead."""
    message = str(error)
    if isinstance(error, TraceError) or not ("Tensor" in message or "numpy.object_" in message):
        return error
    called = message.split("(")[0]
    instead = f"adjoin.trace.{called}" if called in ops.__all__ else "numpy or adjoin.trace functions"
    return TraceError(
        f"'{name}': a traced function works on numpy arrays of traced scalars, not on tensors ({message}); use "
        f"{instead}, and pass tensors as inputs"
    )


def make_program(
    name: str,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    integers: Sequence[str],
    sources: Sequence[list[Expr]],
    targets: Sequence[list[Expr]],
    guard: Expr | None = None,
) -> Program:
    """Build a program of nodes; what runs is a copy without rules for derivatives, if there are any."""
    smooth = tuple(sources), tuple(targets)
    plain = smooth
    if has_rules([*chain(*targets)]):
        graph = Graph()
        again = tuple(input_nodes(graph, spec, i) for i, spec in enumerate(inputs))
        mapping = dict(zip(chain(*sources), chain(*again), strict=True))
        plain = again, tuple(copy(target, mapping, graph, without_rules=True) for target in targets)
    return Program(name, tuple(inputs), tuple(outputs), tuple(integers), Computation(*plain, smooth, guard))


def input_nodes(graph: Graph, spec: TensorSpec, position: int) -> list[Expr]:
    """Return the nodes of an input tensor of a kernel."""
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


def _work(schedule: Schedule) -> int:
    total = sum(OPS[node.op].cost for node in schedule.order)
    for scan in schedule.scans.values():
        total += _work(scan.schedule) * (scan.body.length if isinstance(scan.body.length, int) else 100)
    return total


def _count(schedule: Schedule) -> int:
    plain = sum(1 for node in schedule.order if node.args and node.op not in ("get", "scan"))
    return plain + sum(_count(scan.schedule) for scan in schedule.scans.values())
