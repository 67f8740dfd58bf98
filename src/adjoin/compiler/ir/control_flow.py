"""Loops with a carry, streams of per-step values, and branches.

All control flow is one construct, `scan`: a body runs `length` times; it takes the carry and one element of each input
stream, and gives the next carry and one element of each output stream. `loop` is a scan without streams. A stream is a
sequence over time: an input of the kernel, an output of it, or what one scan hands to the next (the adjoint of a scan
is a scan that runs the other way over the history of the carry). The code of a body exists once, whatever the length.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from adjoin.compiler.ir import pytree as tree
from adjoin.compiler.ir.graph import Expr, Graph, as_number, current_graph, tracing
from adjoin.compiler.ir.kinds import ARRAY, BOOL, FLOAT, INT, STREAM, TUPLE
from adjoin.compiler.ir.ops import select
from adjoin.compiler.ir.scratch import Scratch, consume, gather, readers, root
from adjoin.errors import TraceError


@dataclass(eq=False)
class LoopBody:
    """What a scan node runs: a graph with parameters and results, which does not change once it is closed.

    A scan node's arguments are the initial carry, then the captures, then the input streams, then nodes that only have
    to run before; its results (`get` nodes) are the final carry, then the output streams.

    Attributes:
        graph: the body's nodes.
        counter: the parameter that holds the step's index.
        length: trip count, or the name of the kernel's run-time integer that holds it.
        reverse: runs from the last step to the first.
        carry: one parameter for each carried value.
        captures: one parameter for each value taken from around the loop.
        elements: for each input stream, the parameters of one of its elements.
        results: the next carry.
        outputs: for each output stream, the values of one element.
        recorded: for each carried value, the output streams that hold it as it was before each step (several for an
            array); empty unless the carry is recorded.
        where: the capture that says whether the body does anything; where it does not in any environment that a
            processor has in hand, the loop may be left out. The body itself keeps the carry where it does not hold.
    """

    graph: Graph
    counter: Expr
    length: int | str
    reverse: bool
    carry: list[Expr] = field(default_factory=list)
    captures: list[Expr] = field(default_factory=list)
    elements: list[list[Expr]] = field(default_factory=list)
    results: list[Expr] = field(default_factory=list)
    outputs: list[list[Expr]] = field(default_factory=list)
    recorded: list[list[int]] = field(default_factory=list)
    where: Expr | None = None

    @classmethod
    def begin(cls, outer: Graph, length: int | str, reverse: bool = False) -> "LoopBody":
        """A new body of a loop in a graph."""
        graph = Graph(outer)
        return cls(graph, graph.fresh("param", (), "counter", INT), length, reverse)

    def add_carry(self, like: Expr) -> Expr:
        """A parameter for one more carried value, of the kind of another."""
        parameter = self.graph.fresh("param", (), "carry", like.kind)
        if like.kind == ARRAY:
            parameter.width = like.width
            gather(parameter)  # for the adjoint, which needs the elements from before the first store
        self.carry.append(parameter)
        return parameter

    def add_stream(self, width: int) -> list[Expr]:
        """The parameters for one element of one more input stream."""
        self.elements.append([self.graph.fresh("param", (), "element") for _ in range(width)])
        return self.elements[-1]

    def only_where(self, condition: Expr | None) -> None:
        """Set the condition, unless it has become a constant."""
        self.where = condition if condition is not None and condition.op == "param" else None

    def record_carry(self) -> None:
        """Stream out every carried value as it is before each step, as floats: what the adjoint starts a step from."""
        for parameter in self.carry:
            values = gather(parameter) if parameter.kind == ARRAY else [as_number(parameter)]
            first = len(self.outputs)
            self.outputs += [[value] for value in values]
            self.recorded.append([*range(first, len(self.outputs))])

    def close(self, initial: list[Expr], streams: list[Expr]) -> Expr:
        """The scan node of the finished body, in the graph around it."""
        outer = self.graph.parent
        assert outer is not None
        self.captures = list(self.graph.captures.values())
        self.graph.closed = True
        captured = list(self.graph.captures)
        arrays = [value for value in captured if value.kind == ARRAY]
        for array in arrays:
            gather(array)  # for the adjoint, which may run after the array has been overwritten
        before = [reader for value in initial if value.kind == ARRAY for reader in consume(value)]
        node = outer.fresh("scan", (*initial, *captured, *streams, *before), self, TUPLE)
        for array in arrays:
            readers(array).append(node)
        return node


def split_scan(node: Expr, args: Sequence[Expr] | None = None) -> tuple[list[Expr], list[Expr], list[Expr]]:
    """The arguments of a scan, or others in their place: initial carry, captured values and input streams."""
    body: LoopBody = node.data
    args = list(node.args if args is None else args)
    first = len(body.carry)
    second = first + len(body.captures)
    return args[:first], args[first:second], args[second : second + len(body.elements)]


@dataclass(frozen=True)
class Stream:
    """A value a step: the structure of one element, and where the elements come from.

    Attributes:
        source: the node of kind stream.
        length: number of steps, or the name of the run-time integer that holds it.
        element: an example of one element's nesting.
    """

    source: Expr
    length: int | str
    element: Any


def scan(
    body: Callable[..., tuple[Any, Any]],
    carry: Any,
    inputs: Any = (),
    *,
    length: int | Expr | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Run `carry, output = body(step, carry, inputs)` once a step, in one loop of the kernel.

    Args:
        body: takes the step's index, the carry and one element of each input stream; gives the next carry, of the
            same structure, and one element of the output stream, or a dict of elements of several, or None.
        carry: any nesting of lists, tuples, dicts and object arrays of scalars, and scratch arrays.
        inputs: a Stream, or a list or tuple of them, all of one length.
        length: number of steps where there is no input stream: a number, or an integer input of the kernel.
        reverse: from the last step to the first; outputs keep the order of the inputs.

    Returns:
        The last carry, and the Stream of outputs, or a dict of them, or None.
    """
    streams = [inputs] if isinstance(inputs, Stream) else list(inputs)
    leaves = list(tree.leaves(carry))
    outer = current_graph()
    initial = [outer.lift(value.array if isinstance(value, Scratch) else value) for value in leaves]
    scanned = LoopBody.begin(outer, _length(length, streams), reverse)
    for value in initial:
        if value.kind not in (FLOAT, BOOL, ARRAY):
            raise TraceError(f"a loop carries floats, conditions and scratch arrays, got a {value.kind} value")
        scanned.add_carry(value)
    elements = []
    for stream in streams:
        parameters = scanned.add_stream(len(list(tree.leaves(stream.element))))
        elements.append(tree.rebuild(stream.element, iter(parameters)))
    carried = tree.rebuild(carry, _as_given(scanned.carry, leaves))
    with tracing(scanned.graph):
        returned = body(scanned.counter, carried, elements[0] if isinstance(inputs, Stream) else elements)
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise TraceError("a scan's body returns two things: the next carry, and the step's output or None")
    following, output = returned
    if tree.structure(following) != tree.structure(carry):
        raise TraceError(
            f"the body changed the structure of the carry from {tree.structure(carry)} to {tree.structure(following)}"
        )
    for before, after in zip(scanned.carry, tree.leaves(following), strict=True):
        after = after.array if isinstance(after, Scratch) else scanned.graph.lift(after)
        if (after.kind, after.width) != (before.kind, before.width):
            raise TraceError(f"the body changed a {before.kind} of the carry to a {after.kind}")
        if after.kind == ARRAY and root(after) is not before:
            raise TraceError("the body returned another scratch array than the one it was given in its place")
        scanned.results.append(after)
    outputs = output if isinstance(output, dict) else {None: output} if list(tree.leaves(output)) else {}
    for element in outputs.values():
        scanned.outputs.append([as_number(scanned.graph.lift(value)) for value in tree.leaves(element)])
    node = scanned.close(initial, [stream.source for stream in streams])
    last = tree.rebuild(carry, _as_given(finals(node), leaves))
    written = {
        key: Stream(output_stream(node, i), scanned.length, element) for i, (key, element) in enumerate(outputs.items())
    }
    return last, written if isinstance(output, dict) else written.get(None)


def _as_given(values: Sequence[Expr], like: Sequence[Any]) -> Iterator[Any]:
    """The values, as scratch arrays where those that they stand for are."""
    return (Scratch(value) if isinstance(one, Scratch) else value for value, one in zip(values, like, strict=True))


def loop(count: int | Expr, body: Callable[[Expr, Any], Any], carry: Any) -> Any:
    """Run `carry = body(step, carry)` a number of times, fixed or given at run time, in one loop of the kernel."""
    return scan(lambda step, carried, _: (body(step, carried), None), carry, length=count)[0]


def when(condition: Any, function: Callable[[Any], Any], values: Any) -> Any:
    """`function(values)` where a condition holds, and the values as they are elsewhere.

    It takes no time where the condition holds in none of the environments that a processor works on together: the
    lanes of a vector, the threads of a warp.

    Args:
        condition: of each environment.
        function: gives as many values in the same structure. What it computes without `values` is computed in any case.
        values: any nesting of scalars.
    """
    outer = current_graph()
    condition = outer.lift(condition)
    initial = [outer.lift(value) for value in tree.leaves(values)]
    body = LoopBody.begin(outer, 1)
    carry = [body.add_carry(value) for value in initial]
    with tracing(body.graph):
        returned = function(tree.rebuild(values, iter(carry)))
    if tree.structure(returned) != tree.structure(values):
        raise TraceError(f"when: the function gave {tree.structure(returned)} for {tree.structure(values)}")
    holds = body.graph.lift(condition)
    body.results = [
        select(holds, body.graph.lift(after), before)
        for after, before in zip(tree.leaves(returned), carry, strict=True)
    ]
    body.only_where(holds)
    return tree.rebuild(values, iter(finals(body.close(initial, []))))


def inside(value: Any) -> Any:
    """The same value; what is computed from it is computed in the body that is being traced, not before it."""
    return current_graph().lift(value) if isinstance(value, Expr) else value


def finals(node: Expr) -> list[Expr]:
    """The last carry of a scan."""
    gets = [node.graph.node("get", (node,), i, value.kind) for i, value in enumerate(node.data.results)]
    for get, value in zip(gets, node.data.results, strict=True):
        get.width = value.width
    return gets


def output_stream(node: Expr, position: int) -> Expr:
    """One of the output streams of a scan."""
    body: LoopBody = node.data
    expr = node.graph.node("get", (node,), len(body.results) + position, STREAM)
    expr.width = len(body.outputs[position])
    return expr


def output_streams(node: Expr) -> list[Expr]:
    """All output streams of a scan."""
    return [output_stream(node, i) for i in range(len(node.data.outputs))]


def _length(length: int | Expr | None, streams: list[Stream]) -> int | str:
    lengths = {stream.length for stream in streams}
    if length is not None:
        if isinstance(length, Expr):
            if length.op not in ("length", "integer"):
                raise TraceError("a trip count is a number or an integer input of the kernel, the same for the batch")
            length = length.data
        elif not isinstance(length, int) or length < 0:
            raise TraceError(f"a trip count is a whole number of at least 0, got {length!r}")
        lengths.add(length)  # pyright: ignore[reportArgumentType]
    if len(lengths) != 1:
        got = ", ".join(map(str, lengths)) or "none was given"
        raise TraceError(f"scan needs one length, that of its input streams or of `length=`: {got}")
    return lengths.pop()
