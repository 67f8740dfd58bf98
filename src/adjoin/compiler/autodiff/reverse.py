"""Reverse mode, graph to graph, loops included.

It walks a graph backwards and appends the nodes of the cotangents. A scan becomes a scan that
runs the other way: the first one also streams out the carry at the start of each step, the second reads it back,
recomputes the step and applies its adjoint. Only the carry is kept, never what a body computes on the way. The result
is an ordinary graph, so that it can be differentiated again, in either mode.

What is taken where a derivative does not exist stands in `ops.py`. One convention, that a branch which a select does
not take gets exactly 0, has to survive the chain rule, where 0 times the infinite slope of that branch would be NaN. So
for each cotangent that a select may have switched off, the condition under which it was not is kept (`masks`), and
a product with something that may be infinite is switched off again by the same condition. That condition, unlike a
comparison of the cotangent with 0, leaves the result linear in the cotangent, as second derivatives need.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from adjoin.compiler.autodiff.activity import Activity, find_activity
from adjoin.compiler.ir.control_flow import LoopBody, copy_elements, finals, output_stream, output_streams, split_scan
from adjoin.compiler.ir.graph import Expr, Graph
from adjoin.compiler.ir.implicit import solutions
from adjoin.compiler.ir.kinds import ARRAY, BOOL, FLOAT, INDICES, INT
from adjoin.compiler.ir.op import OPS, Branch
from adjoin.compiler.ir.ops import select
from adjoin.compiler.ir.rewrite import copy, either, reads_array, substitute
from adjoin.compiler.ir.scratch import ELEMENT, accumulate, load, restore, store, zeros, zeros_like
from adjoin.errors import TraceError


class _Pullback:
    """The cotangents of one graph, while they are being built."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.zero = graph.const(0.0)
        self.cotangents: dict[Expr, Expr] = {}
        self.masks: dict[Expr, Expr] = {}
        self.results: dict[Expr, dict[int, Expr]] = {}
        self.activity = Activity(set(), {})
        self.stands: dict[Expr, Expr] = {}

    def add(self, node: Expr, value: Expr) -> None:
        """Add a contribution to a node's cotangent."""
        if node.kind != FLOAT or (value.op == "const" and value.value == 0.0):
            return
        previous = self.cotangents.get(node)
        if previous is None:
            self.cotangents[node] = value
            return
        total = self.cotangents[node] = previous + value
        if previous in self.masks and value in self.masks:
            self.masks[total] = self.masks[previous] | self.masks[value]

    def times(self, cotangent: Expr, slope: Any) -> Expr:
        """A cotangent times a local derivative; exactly 0 where the cotangent was switched off."""
        product = cotangent * slope
        mask = self.masks.get(cotangent)
        if mask is not None and product.op != "const":
            if isinstance(slope, Expr) and slope.may_be_infinite:
                product = select(mask, product, self.zero)
            self.masks[product] = mask
        return product

    def gate(self, condition: Expr, cotangent: Expr) -> Expr:
        """The cotangent where a condition holds, else exactly 0."""
        gated = select(condition, cotangent, self.zero)
        mask = self.masks.get(cotangent)
        self.masks[gated] = condition if mask is None else condition & mask
        return gated

    def run(self, seeds: Sequence[tuple[Expr, Expr]], wanted: Sequence[Expr]) -> None:
        """Propagate the seeds, pairs of a node and its cotangent, back to the wanted nodes."""
        nodes = list(self.graph.nodes)
        sources = set(wanted)
        self.activity = find_activity(nodes, sources)
        active = self.activity.nodes
        for node, cotangent in seeds:
            if node not in active:
                continue
            if node.kind == FLOAT:
                self.add(node, cotangent)
            elif node.kind == ARRAY:
                self.cotangents[node] = cotangent
            else:
                self.add_stream(node, cotangent)
        for node in reversed(nodes):
            if node in active and node not in sources:
                RULES.get(node.op, _Pullback.pull_operation)(self, node)
        if self.stands:
            reached = [node for node in wanted if node in self.cotangents]
            values = substitute([self.cotangents[node] for node in reached], self.stands, self.graph)
            self.cotangents.update(zip(reached, values, strict=True))

    def pull_operation(self, node: Expr) -> None:
        """An operation passes its cotangent to its arguments by its partial derivatives."""
        cotangent = self.cotangents.get(node)
        if cotangent is None:
            return
        partials = OPS[node.op].partials(node, *node.args)
        if isinstance(partials, Branch):
            self.add(node.args[partials.taken], self.gate(partials.condition, cotangent))
            self.add(node.args[partials.other], self.gate(~partials.condition, cotangent))
            return
        for arg, factors in zip(node.args, partials, strict=True):
            share = cotangent
            for factor in factors:
                share = self.times(share, factor)
            self.add(arg, share)

    def pull_get(self, node: Expr) -> None:
        """A result of a construct waits until the construct itself is reached."""
        cotangent = self.cotangents.get(node)
        if cotangent is not None:
            self.results.setdefault(node.args[0], {})[node.data] = cotangent

    def pull_implicit(self, node: Expr) -> None:
        """The residuals get -J⁻ᵀ of the cotangents; what stands for the solution is put in at the end."""
        cotangents = self.results.get(node)
        if cotangents is None:
            return
        rule = node.data
        right = {stand: cotangents.get(i, self.zero) for i, stand in enumerate(rule.right)}
        for residual, value in zip(rule.residual, substitute(rule.transposed, right, self.graph), strict=True):
            self.add(residual, self.times(value, -1.0))
        self.stands.update(zip(rule.solution, solutions(node), strict=True))

    def pull_load(self, node: Expr) -> None:
        """A load adds to the array's cotangent."""
        array, index = node.args[:2]
        cotangent = self.cotangents.get(node)
        if cotangent is not None:
            adjoint = self.cotangents.get(array)
            adjoint = zeros_like(self.graph, array) if adjoint is None else adjoint
            self.cotangents[array] = accumulate(adjoint, index, cotangent, node.data is None)

    def pull_store(self, node: Expr) -> None:
        """A store takes its element out of the array's cotangent."""
        array, index, value = node.args[:3]
        if node in self.cotangents:
            adjoint = self.cotangents[node]
            self.add(value, load(adjoint, index, node.data is None))
            self.cotangents[array] = store(adjoint, index, self.zero, node.data is None)

    def pull_accumulate(self, node: Expr) -> None:
        """What is added to an element has that element's cotangent, and so has the element before."""
        array, index, value = node.args[:3]
        if node in self.cotangents:
            self.add(value, load(self.cotangents[node], index, node.data is None))
            self.cotangents[array] = self.cotangents[node]

    def pull_scratch(self, node: Expr) -> None:
        """A new array depends on nothing."""

    def add_stream(self, stream: Expr, cotangent: Expr) -> None:
        """Add a stream of contributions to a stream's cotangent."""
        previous = self.cotangents.get(stream)
        self.cotangents[stream] = cotangent if previous is None else _sum_streams(self.graph, previous, cotangent)

    def pull_scan(self, node: Expr) -> None:
        """The adjoint of a loop: a loop the other way over the record of the carry."""
        cotangents = self.results.get(node)
        if cotangents is None:
            return
        body: LoopBody = node.data
        if body.proceed is not None:
            raise TraceError("while_loop has no reverse derivative; see implicit, or use loop with a number of steps")
        active = self.activity.results[node]
        initial, captured, streams = split_scan(node)
        back = LoopBody.begin(self.graph, body.length, not body.reverse)
        pull = _Pullback(back.graph)
        mask = self.common_mask(list(cotangents.values()))
        start: list[Expr] = []

        def carry(first: Expr) -> Expr:
            start.append(first)
            return back.add_carry(first)

        seeds: list[tuple[int, Expr]] = []
        for i, parameter in enumerate(body.carry):
            if not active[i]:
                continue
            if parameter.kind == ARRAY and i not in cotangents and not reads_array(body.graph.nodes, parameter):
                continue  # a history, or another array that is only written: nothing depends on it
            if parameter.kind == ARRAY:
                seeds.append((i, carry(cotangents[i] if i in cotangents else zeros_like(self.graph, initial[i]))))
            else:
                seeds.append((i, carry(cotangents.get(i, self.zero))))
                if mask is not None:
                    pull.masks[seeds[-1][1]] = back.graph.lift(mask)
        wanted_captures = [(p, v) for p, v in zip(body.captures, captured, strict=True) if v in self.activity]
        sums: dict[Expr, Expr] = {}
        for parameter, value in wanted_captures:
            if value.kind == ARRAY:
                sums[parameter] = carry(either(self.cotangents.pop(value, None), zeros_like(self.graph, value)))
            else:
                sums[parameter] = carry(self.zero)

        mapping: dict[Expr, Expr] = {body.counter: back.counter}
        sources: list[Expr] = []
        for i, (parameter, record) in enumerate(zip(body.carry, body.recorded, strict=False)):
            sources += [output_stream(node, position) for position in record]
            if i in body.histories:
                history = back.graph.lift(finals(node)[body.histories[i]])
                place = back.counter * back.graph.integer(parameter.width)
                blank = zeros_like(back.graph, initial[i], cleared=False)
                mapping[parameter] = copy_elements(history, blank, source_start=place)
            else:
                mapping[parameter] = _recall(back, parameter, [back.add_stream(1)[0] for _ in record])
        for parameter in body.carry[len(body.recorded) :]:
            mapping[parameter] = zeros(back.graph, parameter.width, cleared=False)
        for parameter, value in zip(body.captures, captured, strict=True):
            mapping[parameter] = back.graph.lift(restore(value) if value.kind in ELEMENT else value)
        for element, stream in zip(body.elements, streams, strict=True):
            sources.append(stream)
            mapping.update(zip(element, back.add_stream(len(element)), strict=True))
        results = copy(body.results, mapping, back.graph, record_carry=True)
        pairs = [(results[i], cotangent) for i, cotangent in seeds]
        for i, output in enumerate(body.outputs):
            cotangent = cotangents.get(len(body.results) + i)
            if cotangent is not None:
                sources.append(cotangent)
                element = back.add_stream(len(output))
                pairs += zip(copy(output, mapping, back.graph, record_carry=True), element, strict=True)
        elements = [e for e, stream in zip(body.elements, streams, strict=True) if stream in self.activity]
        wanted = [mapping[body.carry[i]] for i, _ in seeds]
        wanted += [mapping[p] for p, _ in wanted_captures] + [mapping[p] for element in elements for p in element]
        for parameter, _ in wanted_captures:
            if parameter.kind == ARRAY:
                pull.cotangents[mapping[parameter]] = sums[parameter]
        pull.run(pairs, wanted)

        for i, cotangent in seeds:
            following = pull.cotangents.get(mapping[body.carry[i]])
            back.results.append(either(following, cotangent if body.carry[i].kind == ARRAY else pull.zero))
        for parameter, value in wanted_captures:
            share = pull.cotangents.get(mapping[parameter])
            if value.kind != ARRAY and share is not None:
                share = sums[parameter] + share
            back.results.append(either(share, sums[parameter]))
        for element in elements:
            back.outputs.append([either(pull.cotangents.get(mapping[p]), pull.zero) for p in element])
        back.copy_options(body, mapping)
        closed = back.close(start, sources)
        reached = [initial[i] for i, _ in seeds] + [value for _, value in wanted_captures]
        for value, final in zip(reached, finals(closed), strict=True):
            if value.kind == ARRAY:
                self.cotangents[value] = final
            else:
                if mask is not None:
                    self.masks[final] = mask
                self.add(value, final)
        active_streams = [stream for stream in streams if stream in self.activity]
        for stream, cotangent in zip(active_streams, output_streams(closed), strict=True):
            self.add_stream(stream, cotangent)

    def common_mask(self, cotangents: Sequence[Expr]) -> Expr | None:
        """Where at least one of some cotangents was not switched off; None if one never is."""
        masks = [self.masks[cotangent] for cotangent in cotangents if cotangent in self.masks]
        return functools.reduce(operator.or_, masks) if len(masks) == len(cotangents) else None


RULES: dict[str, Callable[[_Pullback, Expr], None]] = {
    "accumulate": _Pullback.pull_accumulate,
    "get": _Pullback.pull_get,
    "implicit": _Pullback.pull_implicit,
    "load": _Pullback.pull_load,
    "scan": _Pullback.pull_scan,
    "scratch": _Pullback.pull_scratch,
    "store": _Pullback.pull_store,
}
"""The adjoints of the constructs of a graph; those of operations follow from the table of operations."""


def _recall(back: LoopBody, parameter: Expr, elements: list[Expr]) -> Expr:
    """A carried value, from the floats that record it; an array that nobody reads has no record."""
    if parameter.kind in (INT, INDICES):
        raise TraceError("a loop that carries integers has no reverse derivative; pass detached=True if it needs none")
    if parameter.kind == ARRAY:
        array = zeros(back.graph, parameter.width)
        for i, element in enumerate(elements):
            array = store(array, back.graph.integer(i), element)
        return array
    return elements[0] != 0.0 if parameter.kind == BOOL else elements[0]


def _sum_streams(graph: Graph, a: Expr, b: Expr) -> Expr:
    body = LoopBody.begin(graph, stream_length(a))
    body.outputs = [[x + y for x, y in zip(body.add_stream(a.width), body.add_stream(b.width), strict=True)]]
    return output_stream(body.close([], [a, b]), 0)


def stream_length(stream: Expr) -> int | str:
    """The number of steps of a stream, or the name of the run-time integer that holds it."""
    return stream.args[0].data.length if stream.op == "get" else stream.data[1]


def pullback(graph: Graph, seeds: Sequence[tuple[Expr, Expr]], wanted: Sequence[Expr]) -> list[Expr | None]:
    """Reverse mode: append to a graph the cotangents of some of its nodes.

    Args:
        graph: an open graph, whose loops record what they carry.
        seeds: pairs of a node and its cotangent; of a stream, the cotangent is a stream.
        wanted: nodes without a common path, usually inputs.

    Returns:
        For each wanted node its cotangent, or None where the seeds do not depend on it.
    """
    pull = _Pullback(graph)
    pull.run(seeds, wanted)
    return [pull.cotangents.get(node) for node in wanted]
