"""Loops with a carry, streams of per-step values, and small scratch arrays.

All control flow is one construct, `scan`: a body runs `length` times; it takes the carry and one element of each input
stream, and gives the next carry and one element of each output stream. `loop` is a scan without streams. A stream is a
sequence over time: an input of the kernel, an output of it, or what one scan hands to the next (the adjoint of a scan
is a scan that runs the other way over the history of the carry). The code of a body exists once, whatever the length.

Scratch arrays are values too: `scratch[i] = x` makes a new version that takes the place of the old one, so that a body
can carry an array, and only the newest version may be read or written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from adjoin.compiler.ir import pytree as tree
from adjoin.compiler.ir.graph import Expr, Graph, apply, current_graph, to_index, tracing
from adjoin.compiler.ir.kinds import ARRAY, BOOL, FLOAT, INT, STREAM, TUPLE
from adjoin.compiler.ir.ops import select
from adjoin.errors import TraceError

LARGEST = 4096  # elements of a scratch array: it lies on the stack of a CPU thread, or in the local memory of a GPU's


@dataclass(eq=False)
class Body:
    """What a scan node runs: a closed graph, its parameters and its results.

    A scan node's arguments are the initial carry, then the captures, then the input streams, then nodes that only have
    to run before; its results (`get` nodes) are the final carry, then the output streams.

    Attributes:
        graph: the body's nodes.
        counter: the parameter that holds the step's index.
        carry: one parameter for each carried value.
        captures: one parameter for each value taken from around the loop.
        steps: for each input stream, the parameters of one of its elements.
        results: the next carry.
        outputs: for each output stream, the values of one element. The adjoint may append to it.
        length: trip count, or the name of the kernel's run-time integer that holds it.
        reverse: runs from the last step to the first.
        histories: value of the body -> the output stream that the adjoint made of it.
        where: the capture that says whether the body does anything; where it does not in any environment that a
            processor has in hand, the loop may be left out. The body itself keeps the carry where it does not hold.
        active: which results depend on what is being differentiated for; written and read by the adjoint.
    """

    graph: Graph
    counter: Expr
    carry: list[Expr]
    length: int | str
    reverse: bool
    captures: list[Expr] = field(default_factory=list)
    steps: list[list[Expr]] = field(default_factory=list)
    results: list[Expr] = field(default_factory=list)
    outputs: list[list[Expr]] = field(default_factory=list)
    histories: dict[Expr, int] = field(default_factory=dict)
    where: Expr | None = None
    active: list[bool] = field(default_factory=list)

    def only_where(self, condition: Expr | None) -> None:
        """Set the condition, unless it has become a constant."""
        self.where = condition if condition is not None and condition.op == "param" else None


class Scratch:
    """A small array in fast memory, indexed by numbers or by traced integers; an index outside is clamped.

    Made by `scratch(size)` or `scratch(values)`. It may be carried by a loop. Every index of an access that depends on
    the data (`to_index(x)`) may differ between environments.
    """

    def __init__(self, array: Expr):
        self.array = array

    def __len__(self) -> int:
        return self.array.width

    def __getitem__(self, index: Any) -> Expr:
        graph = self._graph(index)
        return load(graph.lift(self.array), self._index(graph, index))

    def __setitem__(self, index: Any, value: Any) -> None:
        graph = self._graph(index, value)
        if graph is not self.array.graph:
            raise TraceError("a loop body writes a scratch array that it does not carry; make it part of the carry")
        value = graph.lift(value)
        if value.kind != FLOAT:
            raise TraceError(f"a scratch array holds floats, got a {value.kind} value")
        self.array = store(self.array, self._index(graph, index), value)

    def _graph(self, *values: Any) -> Graph:
        exprs = [self.array, *[value for value in values if isinstance(value, Expr)]]
        return max((expr.graph for expr in exprs), key=lambda graph: graph.depth)

    def _index(self, graph: Graph, index: Any) -> Expr:
        if isinstance(index, int):
            if not 0 <= index < len(self):
                raise TraceError(f"index {index} is outside a scratch array of {len(self)}")
            return graph.integer(index)
        if not isinstance(index, Expr) or index.kind not in (INT, FLOAT):
            raise TraceError(f"a scratch array is indexed by an integer, got {index!r}")
        return to_index(graph.lift(index))


class Lookup:
    """A table that is read where the data says: an input of the kernel. Indices outside are clamped.

    No gradient passes to its numbers.
    """

    def __init__(self, table: Expr, shape: tuple[int, ...]):
        self.table, self.shape = table, shape

    def __getitem__(self, index: Any) -> Expr:
        """One number: `table[i]`, or `table[i, j]` of a table with two dimensions."""
        indices = index if isinstance(index, tuple) else (index,)
        if len(indices) != len(self.shape):
            raise TraceError(f"a table of shape {self.shape} takes {len(self.shape)} indices, got {len(indices)}")
        exprs = [self.table, *[value for value in indices if isinstance(value, Expr)]]
        graph = max((expr.graph for expr in exprs), key=lambda graph: graph.depth)
        place = graph.integer(0)
        for size, value in zip(self.shape, indices, strict=True):
            lifted = graph.integer(value) if isinstance(value, int) else to_index(graph.lift(value))
            inside = apply("min", apply("max", lifted, graph.integer(0)), graph.integer(size - 1))
            place = place * graph.integer(size) + inside
        return graph.node("lookup", (graph.lift(self.table), place))


def load(array: Expr, index: Expr) -> Expr:
    """One element of an array."""
    value = array.graph.find("load", (array, index))
    if value is None:
        readers = _readers(array)
        value = array.graph.node("load", (array, index))
        readers.append(value)
    return value


def store(array: Expr, index: Expr, value: Expr) -> Expr:
    """The next version of an array. It runs after everything that reads the version it replaces."""
    result = array.graph.fresh("store", (array, index, value, *_consume(array)), None, ARRAY)
    result.width = array.width
    return result


def _readers(array: Expr) -> list[Expr]:
    """Who reads this version; an error if another version has taken its place."""
    readers = array.graph.readers.setdefault(array, [])
    if readers is None:
        raise TraceError("an old version of a scratch array was used; the body of a loop reads the one it carries")
    return readers


def _consume(array: Expr) -> list[Expr]:
    """Retire a version: those who read it must run before what follows."""
    readers = _readers(array)
    array.graph.readers[array] = None
    return readers


def zeros(graph: Graph, size: int) -> Expr:
    """A new array of zeros in a graph."""
    array = graph.fresh("scratch", (), None, ARRAY)
    array.width = size
    return array


def scratch(values: int | Sequence[Any]) -> Scratch:
    """A scratch array of so many zeros, or of the given values; of up to 4096 elements."""
    graph = current_graph()
    size = values if isinstance(values, int) else len(values)
    if not 0 < size <= LARGEST:
        raise TraceError(f"a scratch array has 1 to {LARGEST} elements, got {size}")
    if isinstance(values, int):
        return Scratch(zeros(graph, values))
    result = Scratch(zeros(graph, len(values)))
    for i, value in enumerate(values):
        result[i] = graph.lift(value)
    return result


def gather(array: Expr) -> list[Expr]:
    """Every element of an array, as scalars."""
    graph = array.graph
    return [load(array, graph.integer(i)) for i in range(array.width)]


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
    initial = list(tree.leaves(carry))
    steps = _length(length, streams)
    outer = current_graph()
    graph = Graph(outer)
    first = [outer.lift(value.array if isinstance(value, Scratch) else value) for value in initial]
    spec = Body(graph, graph.fresh("param", (), "counter", INT), [], steps, reverse)
    for value in first:
        if value.kind not in (FLOAT, BOOL, ARRAY):
            raise TraceError(f"a loop carries floats, conditions and scratch arrays, got a {value.kind} value")
        spec.carry.append(parameter(graph, value))
    arguments = []
    for stream in streams:
        flat = list(tree.leaves(stream.element))
        parameters = [parameter(graph, None) for _ in flat]
        spec.steps.append(parameters)
        arguments.append(tree.rebuild(stream.element, iter(parameters)))
    carried = tree.rebuild(
        carry,
        (Scratch(p) if isinstance(v, Scratch) else p for p, v in zip(spec.carry, initial, strict=True)),
    )
    element = arguments[0] if isinstance(inputs, Stream) else arguments
    with tracing(graph):
        returned = body(spec.counter, carried, element)
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise TraceError("a scan's body returns two things: the next carry, and the step's output or None")
    following, output = returned
    if tree.structure(following) != tree.structure(carry):
        raise TraceError(
            f"the body changed the structure of the carry from {tree.structure(carry)} to {tree.structure(following)}"
        )
    for before, after in zip(spec.carry, tree.leaves(following), strict=True):
        after = after.array if isinstance(after, Scratch) else graph.lift(after)
        if (after.kind, after.width) != (before.kind, before.width):
            raise TraceError(f"the body changed a {before.kind} of the carry to a {after.kind}")
        if after.kind == ARRAY and root(after) is not before:
            raise TraceError("the body returned another scratch array than the one it was given in its place")
        spec.results.append(after)
    several = output if isinstance(output, dict) else {None: output} if list(tree.leaves(output)) else {}
    spec.outputs += [[graph.lift(value) for value in tree.leaves(element)] for element in several.values()]
    node = close(spec, outer, first, [stream.source for stream in streams])
    last = tree.rebuild(
        carry, (Scratch(r) if isinstance(v, Scratch) else r for r, v in zip(finals(node), initial, strict=True))
    )
    made = {key: Stream(output_stream(node, i), steps, element) for i, (key, element) in enumerate(several.items())}
    return last, made if isinstance(output, dict) else made.get(None)


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
    graph = Graph(outer)
    spec = Body(graph, graph.fresh("param", (), "counter", INT), [parameter(graph, x) for x in initial], 1, False)
    with tracing(graph):
        found = function(tree.rebuild(values, iter(spec.carry)))
    if tree.structure(found) != tree.structure(values):
        raise TraceError(f"when: the function gave {tree.structure(found)} for {tree.structure(values)}")
    holds = graph.lift(condition)
    spec.results = [select(holds, graph.lift(a), b) for a, b in zip(tree.leaves(found), spec.carry, strict=True)]
    spec.only_where(holds)
    return tree.rebuild(values, iter(finals(close(spec, outer, initial, []))))


def inside(value: Any) -> Any:
    """The same value; what is computed from it is computed in the body that is being traced, not before it."""
    return current_graph().lift(value) if isinstance(value, Expr) else value


def close(body: Body, outer: Graph, initial: list[Expr], streams: list[Expr]) -> Expr:
    """Make the scan node of a finished body."""
    body.captures = list(body.graph.captures.values())
    body.graph.closed = True
    captured = list(body.graph.captures)
    for value in captured:
        if value.kind == ARRAY:
            gather(value)  # for the adjoint, which may run after the array has been overwritten
    before = [reader for value in initial if value.kind == ARRAY for reader in _consume(value)]
    node = outer.fresh("scan", (*initial, *captured, *streams, *before), body, TUPLE)
    for value in captured:
        if value.kind == ARRAY:
            _readers(value).append(node)
    return node


def finals(node: Expr) -> list[Expr]:
    """The last carry of a scan."""
    made = [node.graph.node("get", (node,), i, value.kind) for i, value in enumerate(node.data.results)]
    for expr, value in zip(made, node.data.results, strict=True):
        expr.width = value.width
    return made


def output_stream(node: Expr, position: int) -> Expr:
    """One of the output streams of a scan."""
    body: Body = node.data
    expr = node.graph.node("get", (node,), len(body.results) + position, STREAM)
    expr.width = len(body.outputs[position])
    return expr


def output_streams(node: Expr) -> list[Expr]:
    """All output streams of a scan."""
    return [output_stream(node, i) for i in range(len(node.data.outputs))]


def restore(array: Expr) -> Expr:
    """An array with the contents this version has or had."""
    if array.graph.readers.get(array, []) is not None:
        return array
    elements = gather(array)
    again = zeros(array.graph, array.width)
    for i, element in enumerate(elements):
        again = store(again, array.graph.integer(i), element)
    return again


def root(array: Expr) -> Expr:
    """The first version of an array in its graph: a parameter or a fresh scratch."""
    while True:
        if array.op == "store":
            array = array.args[0]
        elif array.op == "get" and array.kind == ARRAY:
            array = array.args[0].args[array.data]
        else:
            return array


def parameter(graph: Graph, like: Expr | None) -> Expr:
    """A new parameter of a body, of the same kind as another value, or a float."""
    made = graph.fresh("param", (), "carry", FLOAT if like is None else like.kind)
    if like is not None and like.kind == ARRAY:
        made.width = like.width
        gather(made)  # for the adjoint, which needs the elements from before the first store
    return made


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
        found = ", ".join(map(str, lengths)) or "none was given"
        raise TraceError(f"scan needs one length, that of its input streams or of `length=`: {found}")
    return lengths.pop()
