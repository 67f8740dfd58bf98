"""Reverse mode, graph to graph, loops included.

It walks a graph backwards and appends the nodes of the cotangents; the rules are one table. A scan becomes a scan that
runs the other way: the first one also streams out the carry at the start of each step, the second reads it back,
recomputes the step and applies its adjoint. Only the carry is kept, never what a body computes on the way. The result
is an ordinary graph, so that it can be differentiated again, in either mode.

What is taken where a derivative does not exist stands in `ops.py`. One convention, that a branch which a select does
not take gets exactly 0, has to survive the chain rule, where 0 times the infinite slope of that branch would be NaN. So
for each cotangent that a select may have switched off, the condition under which it was not is kept (`masks`), and
a product with something that may be infinite is switched off again by the same condition. That condition, unlike a
comparison of the cotangent with 0, leaves the result linear in the cotangent, as second derivatives need.
"""

from collections.abc import Sequence
from typing import Any

from adjoin.compiler.autodiff.implicit import solutions
from adjoin.compiler.ir.control_flow import (
    Body,
    close,
    finals,
    gather,
    load,
    output_stream,
    output_streams,
    restore,
    store,
    zeros,
)
from adjoin.compiler.ir.control_flow import parameter as parameter_like
from adjoin.compiler.ir.graph import Expr, Graph
from adjoin.compiler.ir.kinds import ARRAY, BOOL, FLOAT, INT
from adjoin.compiler.ir.op import OPS, Branch
from adjoin.compiler.ir.ops import select
from adjoin.compiler.ir.rewrite import active_nodes, copy, either, split_scan, substitute


class _Pullback:
    """The cotangents of one graph, while they are being built."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.zero = graph.const(0.0)
        self.cotangents: dict[Expr, Expr] = {}
        self.masks: dict[Expr, Expr] = {}
        self.results: dict[Expr, dict[int, Expr]] = {}
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

    def minus(self, cotangent: Expr) -> Expr:
        """The cotangent with its sign changed."""
        return self.times(cotangent, -1.0)

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
        active = active_nodes(nodes, sources)
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
            if node not in active or node in sources:
                continue
            if node.op == "scan":
                if node in self.results:
                    self.scan(node, active)
                continue
            if node.op == "implicit":
                if node in self.results:
                    self.implicit(node)
                continue
            if node.op in ("load", "store"):
                self.memory(node)
                continue
            cotangent = self.cotangents.get(node)
            if cotangent is None:
                continue
            if node.op == "get":
                self.results.setdefault(node.args[0], {})[node.data] = cotangent
            else:
                self.pointwise(node, cotangent)
        if self.stands:
            found = [node for node in wanted if node in self.cotangents]
            values = substitute([self.cotangents[node] for node in found], self.stands, self.graph)
            self.cotangents.update(zip(found, values, strict=True))

    def pointwise(self, node: Expr, cotangent: Expr) -> None:
        """An operation passes its cotangent to its arguments by its partial derivatives."""
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

    def implicit(self, node: Expr) -> None:
        """The residuals get -J⁻ᵀ of the cotangents; what stands for the solution is put in at the end."""
        rule, given = node.data, self.results[node]
        right = {stand: given.get(i, self.zero) for i, stand in enumerate(rule.right)}
        for residual, value in zip(rule.residual, substitute(rule.transposed, right, self.graph), strict=True):
            self.add(residual, self.minus(value))
        self.stands.update(zip(rule.solution, solutions(node), strict=True))

    def memory(self, node: Expr) -> None:
        """A load adds to the array's cotangent; a store takes its element out of it."""
        array, index = node.args[:2]
        if node.op == "load":
            cotangent = self.cotangents.get(node)
            if cotangent is not None:
                adjoint = self.cotangents.get(array)
                adjoint = zeros(self.graph, array.width) if adjoint is None else adjoint
                self.cotangents[array] = store(adjoint, index, load(adjoint, index) + cotangent)
        elif node in self.cotangents:
            adjoint = self.cotangents[node]
            self.add(node.args[2], load(adjoint, index))
            self.cotangents[array] = store(adjoint, index, self.zero)

    def add_stream(self, stream: Expr, cotangent: Expr) -> None:
        """Add a stream of contributions to a stream's cotangent."""
        previous = self.cotangents.get(stream)
        self.cotangents[stream] = cotangent if previous is None else _sum_streams(self.graph, previous, cotangent)

    def scan(self, node: Expr, active: set[Expr]) -> None:
        """The adjoint of a loop: a loop the other way over the history of the carry."""
        body, initial, captured, streams = split_scan(node)
        given = self.results[node]
        inner = Graph(self.graph)
        back = Body(inner, inner.fresh("param", (), "counter", INT), [], body.length, not body.reverse)
        pull = _Pullback(inner)
        masks = [self.masks.get(value) for value in given.values()]
        if all(mask is not None for mask in masks):
            mask = masks[0]
            for other in masks[1:]:
                mask = mask | other  # pyright: ignore[reportOptionalOperand]
        else:
            mask = None

        def carry(first: Expr) -> Expr:
            back.carry.append(parameter_like(inner, first))
            start.append(first)
            return back.carry[-1]

        start: list[Expr] = []
        seeds: list[tuple[int, Expr]] = []
        for i, parameter in enumerate(body.carry):
            if body.active[i]:
                if parameter.kind == ARRAY:
                    seeds.append((i, carry(given[i] if i in given else zeros(self.graph, parameter.width))))
                else:
                    seeds.append((i, carry(given.get(i, self.zero))))
                    if mask is not None:
                        pull.masks[back.carry[-1]] = inner.lift(mask)
        wanted_captures = [(p, v) for p, v in zip(body.captures, captured, strict=True) if v in active]
        sums = {}
        for parameter, value in wanted_captures:
            if value.kind == ARRAY:
                sums[parameter] = carry(either(self.cotangents.pop(value, None), zeros(self.graph, value.width)))
            else:
                sums[parameter] = carry(self.zero)

        mapping: dict[Expr, Expr] = {body.counter: back.counter}
        sources: list[Expr] = []
        for parameter in body.carry:
            mapping[parameter] = _recall(node, parameter, back, sources)
        for parameter, value in zip(body.captures, captured, strict=True):
            mapping[parameter] = inner.lift(restore(value) if value.kind == ARRAY else value)
        for step, stream in zip(body.steps, streams, strict=True):
            back.steps.append([parameter_like(inner, parameter) for parameter in step])
            sources.append(stream)
            mapping.update(zip(step, back.steps[-1], strict=True))
        results = copy(body.results, mapping, inner)
        pairs = [(results[i], cotangent) for i, cotangent in seeds]
        for i, output in enumerate(body.outputs):
            cotangent = given.get(len(body.results) + i)
            if cotangent is not None:
                back.steps.append([parameter_like(inner, value) for value in output])
                sources.append(cotangent)
                values = copy(output, mapping, inner)
                pairs += [(v, c) for v, c in zip(values, back.steps[-1], strict=True) if v.kind == FLOAT]
        steps = [step for step, stream in zip(body.steps, streams, strict=True) if stream in active]
        wanted = [mapping[p] for i, p in enumerate(body.carry) if body.active[i]]
        wanted += [mapping[p] for p, _ in wanted_captures] + [mapping[p] for step in steps for p in step]
        for parameter, _ in wanted_captures:
            if parameter.kind == ARRAY:
                pull.cotangents[mapping[parameter]] = sums[parameter]
        pull.run(pairs, wanted)

        for i, cotangent in seeds:
            found = pull.cotangents.get(mapping[body.carry[i]])
            back.results.append(either(found, cotangent if body.carry[i].kind == ARRAY else pull.zero))
        for parameter, value in wanted_captures:
            found = pull.cotangents.get(mapping[parameter])
            if value.kind != ARRAY:
                found = sums[parameter] + found if found is not None else sums[parameter]
            back.results.append(either(found, sums[parameter]))
        for step in steps:
            back.outputs.append([either(pull.cotangents.get(mapping[p]), pull.zero) for p in step])
        back.only_where(mapping[body.where] if body.where is not None else None)
        made = close(back, self.graph, start, sources)
        last = finals(made)
        for (i, _), final in zip(seeds, last, strict=False):
            if initial[i].kind == ARRAY:
                self.cotangents[initial[i]] = final
            else:
                if mask is not None:
                    self.masks[final] = mask
                self.add(initial[i], final)
        for (_, value), final in zip(wanted_captures, last[len(seeds) :], strict=True):
            if value.kind == ARRAY:
                self.cotangents[value] = final
            else:
                if mask is not None:
                    self.masks[final] = mask
                self.add(value, final)
        active_streams = [stream for stream in streams if stream in active]
        for stream, cotangent in zip(active_streams, output_streams(made), strict=True):
            self.add_stream(stream, cotangent)


def _recall(node: Expr, parameter: Expr, back: Body, sources: list[Expr]) -> Expr:
    """Stream out a carried value at the start of each step of a scan, and read it in the body that walks back."""
    body: Body = node.data
    graph, inner = body.graph, back.graph
    if parameter.kind == ARRAY:
        graph.closed = False
        elements = gather(parameter)
        graph.closed = True
        array = zeros(inner, parameter.width)
        for i, element in enumerate(elements):
            array = store(array, inner.integer(i), _history(node, element, back, sources))
        return array
    if parameter.kind == BOOL:
        graph.closed = False
        number = select(parameter, 1.0, 0.0)
        graph.closed = True
        return _history(node, number, back, sources) != 0.0
    return _history(node, parameter, back, sources)


def _history(node: Expr, value: Expr, back: Body, sources: list[Expr]) -> Expr:
    body: Body = node.data
    if value not in body.histories:
        body.histories[value] = len(body.outputs)
        body.outputs.append([value])
    sources.append(output_stream(node, body.histories[value]))
    back.steps.append([parameter_like(back.graph, value)])
    return back.steps[-1][0]


def _sum_streams(graph: Graph, a: Expr, b: Expr) -> Expr:
    inner = Graph(graph)
    body = Body(inner, inner.fresh("param", (), "counter", INT), [], stream_length(a), False)
    body.steps = [[inner.fresh("param", (), "carry") for _ in range(a.width)] for _ in range(2)]
    body.outputs = [[x + y for x, y in zip(*body.steps, strict=True)]]
    return output_stream(close(body, graph, [], [a, b]), 0)


def stream_length(stream: Expr) -> int | str:
    """The number of steps of a stream, or the name of the run-time integer that holds it."""
    return stream.args[0].data.length if stream.op == "get" else stream.data[1]


def pullback(graph: Graph, seeds: Sequence[tuple[Expr, Expr]], wanted: Sequence[Expr]) -> list[Expr | None]:
    """Reverse mode: append to a graph the cotangents of some of its nodes.

    Args:
        graph: an open graph.
        seeds: pairs of a node and its cotangent; of a stream, the cotangent is a stream.
        wanted: nodes without a common path, usually inputs.

    Returns:
        For each wanted node its cotangent, or None where the seeds do not depend on it.
    """
    pull = _Pullback(graph)
    pull.run(seeds, wanted)
    return [pull.cotangents.get(node) for node in wanted]
