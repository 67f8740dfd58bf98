"""Loops with a carry, streams of per-step values, and branches.

All control flow is one construct, `scan`: a body runs `length` times; it takes the carry and one element of each input
stream, and gives the next carry and one element of each output stream. `loop` is a scan without streams. A stream is a
sequence over time: an input of the kernel, an output of it, or what one scan hands to the next (the adjoint of a scan
is a scan that runs the other way over the history of the carry). The code of a body exists once, whatever the length.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from adjoin.compiler.ir import pytree as tree
from adjoin.compiler.ir.graph import Expr, Graph, as_number, current_graph, tracing
from adjoin.compiler.ir.kinds import BOOL, FLOAT, INDICES, INT, STREAM, TUPLE
from adjoin.compiler.ir.ops import select
from adjoin.compiler.ir.scratch import ELEMENT, Scratch, consume, load, readers, root, store, zeros
from adjoin.errors import TraceError

COPIED = 8
"""Elements that a loop copies at once."""


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
        histories: for each large array of a recorded carry, where among the carried values the array is that holds it
            as it was before each step, one after the other.
        where: the capture that says whether the body does anything; where it does not in any environment that a
            processor has in hand, the loop may be left out. The body itself keeps the carry where it does not hold.
        count: the capture that holds how many of the steps are taken, if not all.
        proceed: a condition of the body: the loop ends before a step at which it holds in no environment that a
            processor has in hand. The body itself keeps the carry where it does not hold.
        detached: whether its results are constants to every derivative.
        kept: the histories after a step.
        schedules: for sets of results that are wanted, what to compute; see `schedule`.
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
    histories: dict[int, int] = field(default_factory=dict)
    where: Expr | None = None
    count: Expr | None = None
    proceed: Expr | None = None
    detached: bool = False
    kept: list[Expr] = field(default_factory=list)
    schedules: dict[frozenset[int], Any] = field(default_factory=dict)

    @classmethod
    def begin(cls, outer: Graph, length: int | str, reverse: bool = False) -> "LoopBody":
        """A new body of a loop in a graph."""
        graph = Graph(outer)
        counter = graph.fresh("param", (), "counter", INT)
        counter.uniform = True
        return cls(graph, counter, length, reverse)

    def add_carry(self, like: Expr) -> Expr:
        """A parameter for one more carried value, of the kind of another."""
        parameter = self.graph.fresh("param", (), "carry", like.kind)
        if like.kind in ELEMENT:
            parameter.width, parameter.used = like.width, like.used
        parameter.uniform = like.kind == INT
        self.carry.append(parameter)
        return parameter

    def add_stream(self, width: int) -> list[Expr]:
        """The parameters for one element of one more input stream."""
        self.elements.append([self.graph.fresh("param", (), "element") for _ in range(width)])
        return self.elements[-1]

    def only_where(self, condition: Expr | None) -> None:
        """Set the condition, unless it has become a constant."""
        self.where = condition if condition is not None and condition.op == "param" else None

    def copy_options(self, old: "LoopBody", mapping: dict[Expr, Expr]) -> None:
        """Be left out, end and be differentiated as another body is, whose nodes a mapping leads to this one's."""
        self.only_where(mapping[old.where] if old.where is not None else None)
        self.detached = old.detached
        if old.count is not None:
            self.take(mapping[old.count])

    def take(self, count: Expr) -> None:
        """Set how many of the steps are taken."""
        if count.op == "integer":
            self.length = min(int(self.length), count.data)
        else:
            self.count = count

    def record(self, values: Sequence[Sequence[Expr]]) -> None:
        """Stream out every carried value as it is before each step, as floats: what the adjoint starts a step from.

        Args:
            values: of each carried value the floats, taken before the first write; none if they do not matter.
        """
        for parts in values:
            first = len(self.outputs)
            self.outputs += [[value] for value in parts]
            self.recorded.append([*range(first, len(self.outputs))])

    @cached_property
    def has_rules(self) -> bool:
        """Whether there are `implicit` nodes in the closed body, those of loops in it included."""
        return any(node.op == "implicit" or (node.op == "scan" and node.data.has_rules) for node in self.graph.nodes)

    def keep_history(self, position: int, initial: list[Expr]) -> None:
        """Carry along what an array of the carry is before each step; to be called before the first write to it."""
        array, length = self.carry[position], self.length
        assert isinstance(length, int)
        outer = self.graph.parent
        assert outer is not None
        initial.append(zeros(outer, max(1, length) * array.width, cleared=False))
        self.histories[position] = len(self.carry)
        history = self.add_carry(initial[-1])
        start = self.counter * self.graph.integer(array.width)
        self.kept.append(copy_elements(array, history, target_start=start))

    def close(self, initial: list[Expr], streams: list[Expr]) -> Expr:
        """The scan node of the finished body, in the graph around it."""
        outer = self.graph.parent
        assert outer is not None
        self.captures = list(self.graph.captures.values())
        self.graph.closed = True
        return self.node(outer, initial, list(self.graph.captures), streams)

    def node(self, outer: Graph, initial: list[Expr], captured: list[Expr], streams: list[Expr]) -> Expr:
        """A scan node of the closed body, in any graph."""
        arrays = [value for value in captured if value.kind in ELEMENT]
        before = [reader for value in initial if value.kind in ELEMENT for reader in consume(value)]
        node = outer.fresh("scan", (*initial, *captured, *streams, *before), self, TUPLE)
        for array in arrays:
            readers(array).append(node)
        return node


def copy_elements(
    source: Expr, target: Expr, source_start: Expr | None = None, target_start: Expr | None = None
) -> Expr:
    """Copy the elements that are used, of the smaller of two arrays, by a loop; return the target's next version."""
    graph, smaller = target.graph, source if target_start is not None else target
    count, (records, size) = smaller.width, smaller.used or (None, COPIED)
    body = LoopBody.begin(graph, count // size)
    if records is not None:
        body.take(body.graph.lift(records))
        count = 0
    parameter = body.add_carry(target)
    with tracing(body.graph):
        array, written, first = body.graph.lift(source), parameter, body.counter * body.graph.integer(size)
        places = [first if start is None else body.graph.lift(start) + first for start in (source_start, target_start)]
        for k in range(size):
            read, write = (place + body.graph.integer(k) for place in places)
            written = store(written, write, load(array, read, checked=False), checked=False)
    body.results = [written]
    result = finals(body.close([target], []))[0]
    with tracing(graph):
        for k in range(count // COPIED * COPIED, count):
            at = graph.integer(k)
            read, write = (at if start is None else start + at for start in (source_start, target_start))
            result = store(result, write, load(source, read, checked=False), checked=False)
    return result


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
    at_most: int | None = None,
    detached: bool = False,
) -> tuple[Any, Any]:
    """Run `carry, output = body(step, carry, inputs)` once a step, in one loop of the kernel.

    Args:
        body: takes the step's index, the carry and one element of each input stream; gives the next carry, of the
            same structure, and one element of the output stream, or a dict of elements of several, or None.
        carry: any nesting of lists, tuples, dicts and object arrays of scalars, and scratch arrays.
        inputs: a Stream, or a list or tuple of them, all of one length.
        length: number of steps where there is no input stream: a number, an integer input of the kernel, or a traced
            integer that is the same in all environments that a processor works on together.
        reverse: from the last step to the first; outputs keep the order of the inputs.
        at_most: with a traced `length`, how many steps there can be; output streams have so many elements, of which
            those that were not written mean nothing.
        detached: whether the results are constants to every derivative.

    Returns:
        The last carry, and the Stream of outputs, or a dict of them, or None.
    """
    streams = [inputs] if isinstance(inputs, Stream) else list(inputs)
    leaves = list(tree.leaves(carry))
    outer = current_graph()
    initial = [outer.lift(value.array if isinstance(value, Scratch) else value) for value in leaves]
    count = None
    if isinstance(length, Expr) and length.op not in ("length", "integer"):
        count, length = length, at_most
        if count.kind != INT or not count.uniform or at_most is None:
            raise TraceError("a traced trip count is an integer, the same in all environments, and needs at_most=")
    scanned = LoopBody.begin(outer, _length(length, streams), reverse)
    scanned.detached = detached
    if count is not None:
        scanned.take(scanned.graph.lift(count))
    _add_carries(scanned, initial)
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
    scanned.results = _results(scanned, carry, following)
    outputs = output if isinstance(output, dict) else {None: output} if list(tree.leaves(output)) else {}
    for element in outputs.values():
        scanned.outputs.append([as_number(scanned.graph.lift(value)) for value in tree.leaves(element)])
    node = scanned.close(initial, [stream.source for stream in streams])
    last = tree.rebuild(carry, _as_given(finals(node), leaves))
    written = {
        key: Stream(output_stream(node, i), scanned.length, element) for i, (key, element) in enumerate(outputs.items())
    }
    return last, written if isinstance(output, dict) else written.get(None)


def _add_carries(body: LoopBody, initial: Sequence[Expr]) -> None:
    for value in initial:
        if value.kind not in (FLOAT, BOOL, INT, *ELEMENT):
            raise TraceError(f"a loop carries numbers, conditions and scratch arrays, got a {value.kind} value")
        if value.kind == INT and not value.uniform:
            raise TraceError("an integer that a loop carries must be the same in all environments; carry a float")
        body.add_carry(value)


def _results(body: LoopBody, carry: Any, following: Any) -> list[Expr]:
    """The next carry, if it is like the carry."""
    if tree.structure(following) != tree.structure(carry):
        raise TraceError(
            f"the body changed the structure of the carry from {tree.structure(carry)} to {tree.structure(following)}"
        )
    results = []
    for before, after in zip(body.carry, tree.leaves(following), strict=True):
        if isinstance(after, int) and before.kind == INT:
            after = body.graph.integer(after)
        after = after.array if isinstance(after, Scratch) else body.graph.lift(after)
        if (after.kind, after.width) != (before.kind, before.width):
            raise TraceError(f"the body changed a {before.kind} of the carry to a {after.kind}")
        if after.kind in ELEMENT and root(after) is not before:
            raise TraceError("the body returned another scratch array than the one it was given in its place")
        if after.kind == INT and not after.uniform:
            raise TraceError("an integer that a loop carries must be the same in all environments; carry a float")
        results.append(after)
    return results


def _as_given(values: Sequence[Expr], like: Sequence[Any], mask: Expr | None = None) -> Iterator[Any]:
    """The values, as scratch arrays where those that they stand for are; masks of branches around hold too."""
    for value, one in zip(values, like, strict=True):
        if not isinstance(one, Scratch):
            yield value
        elif mask is None or one.mask is None:
            yield Scratch(value, one.mask if mask is None else mask, one.checked)
        else:
            yield Scratch(value, mask & mask.graph.lift(one.mask), one.checked)


def loop(
    count: int | Expr,
    body: Callable[[Expr, Any], Any],
    carry: Any,
    *,
    at_most: int | None = None,
    detached: bool = False,
) -> Any:
    """Run `carry = body(step, carry)` a number of times, in one loop of the kernel; see `scan` for its options."""
    steps = scan(
        lambda step, carried, _: (body(step, carried), None), carry, length=count, at_most=at_most, detached=detached
    )
    return steps[0]


def while_loop(condition: Callable[[Any], Any], body: Callable[[Expr, Any], Any], carry: Any, at_most: int) -> Any:
    """Run `carry = body(step, carry)` while a condition of the carry holds, in each environment for itself.

    It has no reverse derivative; see `implicit` for values that solve equations.

    Args:
        condition: takes the carry.
        body: takes the step's index and the carry; gives the next carry, of the same structure.
        carry: any nesting of scalars and scratch arrays of floats.
        at_most: how often it runs at most.
    """
    outer = current_graph()
    leaves = list(tree.leaves(carry))
    initial = [outer.lift(value.array if isinstance(value, Scratch) else value) for value in leaves]
    looped = LoopBody.begin(outer, at_most)
    _add_carries(looped, initial)
    with tracing(looped.graph):
        proceed = looped.graph.lift(condition(tree.rebuild(carry, _as_given(looped.carry, leaves))))
        mask = None if proceed.uniform else proceed
        carried = tree.rebuild(carry, _as_given(looped.carry, leaves, mask))
        following = body(looped.counter, carried)
        looped.results = _kept_elsewhere(_results(looped, carry, following), looped.carry, mask)
    looped.proceed = proceed
    return tree.rebuild(carry, _as_given(finals(looped.close(initial, [])), leaves))


def when(condition: Any, function: Callable[[Any], Any], values: Any, *, detached: bool = False) -> Any:
    """`function(values)` where a condition holds, and the values as they are elsewhere.

    It takes no time where the condition holds in none of the environments that a processor works on together: the
    lanes of a vector, the threads of a warp.

    Args:
        condition: of each environment.
        function: gives as many values in the same structure. What it computes without `values` is computed in any case.
        values: any nesting of scalars and scratch arrays.
        detached: whether the results are constants to every derivative.
    """
    outer = current_graph()
    condition = outer.lift(condition)
    if condition.op == "boolean":
        return function(values) if condition.data else values
    leaves = list(tree.leaves(values))
    initial = [outer.lift(value.array if isinstance(value, Scratch) else value) for value in leaves]
    body = LoopBody.begin(outer, 1)
    body.detached = detached
    _add_carries(body, initial)
    holds = body.graph.lift(condition)
    mask = None if holds.uniform and holds.op == "param" else holds
    with tracing(body.graph):
        returned = function(tree.rebuild(values, _as_given(body.carry, leaves, mask)))
    if tree.structure(returned) != tree.structure(values):
        raise TraceError(f"when: the function gave {tree.structure(returned)} for {tree.structure(values)}")
    body.results = _kept_elsewhere(_results(body, values, returned), body.carry, mask)
    body.only_where(holds)
    return tree.rebuild(values, _as_given(finals(body.close(initial, [])), leaves))


def _kept_elsewhere(results: Sequence[Expr], carry: Sequence[Expr], mask: Expr | None) -> list[Expr]:
    """The results where a mask holds, and the carry elsewhere; arrays are masked when they are written."""
    if mask is None:
        return list(results)
    for after, before in zip(results, carry, strict=True):
        if after.kind in (INT, INDICES) and after is not before:
            raise TraceError("integers are the same in all environments; change them where any(condition) holds")
    pairs = zip(results, carry, strict=True)
    return [after if after.kind in ELEMENT else select(mask, after, before) for after, before in pairs]


def any_environment(condition: Any) -> Expr:
    """Whether a condition holds in any of the environments that a processor works on together.

    How many these are depends on the processor, so what is computed with it must not change a result: it decides what
    may be left out, and where something is kept.
    """
    graph = current_graph()
    condition = graph.lift(condition)
    return condition if condition.uniform else graph.node("any", (condition,), None, BOOL)


def inside(value: Any) -> Any:
    """The same value; what is computed from it is computed in the body that is being traced, not before it."""
    return current_graph().lift(value) if isinstance(value, Expr) else value


def finals(node: Expr) -> list[Expr]:
    """The last carry of a scan."""
    gets = [node.graph.node("get", (node,), i, value.kind) for i, value in enumerate(node.data.results)]
    for get, value in zip(gets, node.data.results, strict=True):
        get.width, get.used = value.width, node.args[get.data].used
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
