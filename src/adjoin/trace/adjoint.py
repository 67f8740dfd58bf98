"""Reverse and forward mode, graph to graph, loops included.

Reverse mode walks a graph backwards and appends the nodes of the cotangents; the rules are one table. A scan becomes
a scan that runs the other way: the first one also streams out the carry at the start of each step, the second reads it
back, recomputes the step and applies its adjoint. Only the carry is kept, never what a body computes on the way. Both
modes give ordinary graphs, so either can be applied to the result of either.

Where a derivative does not exist, this is what is taken:
    sqrt at 0 (and so a norm at 0)      0
    asin, acos at -1 and 1              0
    atan2 at the origin                 0
    abs at 0                            0
    min, max at a tie                   all of it goes to the first argument
    sign, floor, comparisons            0 everywhere
    select                              to the branch taken; what is not taken gets exactly 0
The last one has to survive the chain rule, where 0 times the infinite slope of an untaken branch would be NaN. So for
each cotangent that a select may have switched off, the condition under which it was not is remembered (`mask`), and a
product with something that may be infinite is switched off again by the same condition. That condition, unlike a
comparison of the cotangent with 0, leaves the result linear in the cotangent, as second derivatives need.
"""

from collections.abc import Callable, Sequence
from typing import Any

from adjoin.trace.control import Body, close, finals, gather, load, output_stream, output_streams, restore, store, zeros
from adjoin.trace.control import parameter as new_parameter
from adjoin.trace.graph import ARRAY, BOOL, FLOAT, INT, Expr, Graph, select
from adjoin.trace.plan import reachable

_BARRIERS = frozenset(("sign", "floor", "to_index", "to_float"))


# Copying ------------------------------------------------------------------------------------------------------------


def copy(targets: Sequence[Expr], mapping: dict[Expr, Expr], graph: Graph) -> list[Expr]:
    """Write the nodes behind the targets again in another graph.

    Args:
        targets: nodes of one graph.
        mapping: nodes already written; inputs and parameters must be among them. It grows.
        graph: where to write.

    Returns:
        The copies of the targets.
    """
    for node in reachable(targets):
        if node not in mapping:
            mapping[node] = _copy_node(node, [mapping[arg] for arg in node.args], graph)
    return [mapping[target] for target in targets]


def _copy_node(node: Expr, args: list[Expr], graph: Graph) -> Expr:
    if node.op == "scan":
        return _copy_scan(node, args, graph)
    if node.op == "load":
        return load(args[0], args[1])
    if node.op == "store":
        return store(args[0], args[1], args[2])
    if node.op == "scratch":
        return zeros(graph, node.width)
    made = graph.node(node.op, tuple(args), node.data, node.kind)
    made.width = node.width
    return made


def _copy_scan(node: Expr, args: list[Expr], graph: Graph) -> Expr:
    old: Body = node.data
    new = Body(inner := Graph(graph), new_parameter(inner, old.counter), [], old.length, old.reverse)
    mapping = {old.counter: new.counter}
    count = len(old.carry)
    for parameter in old.carry:
        new.carry.append(new_parameter(inner, parameter))
    mapping.update(zip(old.carry, new.carry, strict=True))
    for parameter, value in zip(old.captures, args[count:], strict=False):
        mapping[parameter] = inner.lift(value)
    for step in old.steps:
        new.steps.append([new_parameter(inner, parameter) for parameter in step])
        mapping.update(zip(step, new.steps[-1], strict=True))
    new.results = copy(old.results, mapping, inner)
    new.outputs = [copy(output, mapping, inner) for output in old.outputs]
    first_stream = count + len(old.captures)
    return close(new, graph, args[:count], args[first_stream : first_stream + len(old.steps)])


def _either(value: Expr | None, default: Expr) -> Expr:
    return default if value is None else value


def _split(node: Expr) -> tuple[Body, list[Expr], list[Expr], list[Expr]]:
    """A scan's body, initial carry, captured values and input streams."""
    body: Body = node.data
    first = len(body.carry)
    second = first + len(body.captures)
    args = list(node.args)
    return body, args[:first], args[first:second], args[second : second + len(body.steps)]


# Activity: what depends on the wanted inputs ------------------------------------------------------------------------


def _active(nodes: Sequence[Expr], sources: set[Expr]) -> set[Expr]:
    active = set(sources)
    for node in nodes:
        if node in active or node.kind in (BOOL, INT) or node.op in _BARRIERS:
            continue
        if node.op == "get":
            body = node.args[0].data
            if node.args[0] in active and body.active[node.data]:
                active.add(node)
        elif node.op == "scan":
            body, initial, captured, streams = _split(node)
            carry = [value in active for value in initial]
            inner = {p for p, v in zip(body.captures, captured, strict=True) if v in active}
            for step, stream in zip(body.steps, streams, strict=True):
                if stream in active:
                    inner.update(step)
            while True:
                found = _active(
                    body.graph.nodes, inner | {p for p, is_on in zip(body.carry, carry, strict=True) if is_on}
                )
                grown = [a or b in found for a, b in zip(carry, body.results, strict=True)]
                if grown == carry:
                    break
                carry = grown
            body.active = carry + [any(value in found for value in output) for output in body.outputs]
            if any(body.active):
                active.add(node)
        elif any(arg in active for arg in node.args):
            active.add(node)
    return active


# Reverse mode -------------------------------------------------------------------------------------------------------


class _Pullback:
    """The cotangents of one graph, while they are being built."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.zero = graph.const(0.0)
        self.cotangents: dict[Expr, Expr] = {}
        self.masks: dict[Expr, Expr] = {}
        self.results: dict[Expr, dict[int, Expr]] = {}

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
            if isinstance(slope, Expr) and slope.risky:
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
        active = _active(nodes, sources)
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
            if node.op in ("load", "store"):
                self.memory(node)
                continue
            cotangent = self.cotangents.get(node)
            if cotangent is None:
                continue
            if node.op == "get":
                self.results.setdefault(node.args[0], {})[node.data] = cotangent
            elif node.op in RULES:
                RULES[node.op](self, node, cotangent, *node.args)

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
        body, initial, captured, streams = _split(node)
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
            back.carry.append(new_parameter(inner, first))
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
                sums[parameter] = carry(_either(self.cotangents.pop(value, None), zeros(self.graph, value.width)))
            else:
                sums[parameter] = carry(self.zero)

        mapping: dict[Expr, Expr] = {body.counter: back.counter}
        sources: list[Expr] = []
        for parameter in body.carry:
            mapping[parameter] = _recall(node, parameter, back, sources)
        for parameter, value in zip(body.captures, captured, strict=True):
            mapping[parameter] = inner.lift(restore(value) if value.kind == ARRAY else value)
        for step, stream in zip(body.steps, streams, strict=True):
            back.steps.append([new_parameter(inner, parameter) for parameter in step])
            sources.append(stream)
            mapping.update(zip(step, back.steps[-1], strict=True))
        results = copy(body.results, mapping, inner)
        pairs = [(results[i], cotangent) for i, cotangent in seeds]
        for i, output in enumerate(body.outputs):
            cotangent = given.get(len(body.results) + i)
            if cotangent is not None:
                back.steps.append([new_parameter(inner, value) for value in output])
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
            back.results.append(_either(found, cotangent if body.carry[i].kind == ARRAY else pull.zero))
        for parameter, value in wanted_captures:
            found = pull.cotangents.get(mapping[parameter])
            if value.kind != ARRAY:
                found = sums[parameter] + found if found is not None else sums[parameter]
            back.results.append(_either(found, sums[parameter]))
        for step in steps:
            back.outputs.append([_either(pull.cotangents.get(mapping[p]), pull.zero) for p in step])
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
    back.steps.append([new_parameter(back.graph, value)])
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


def _select_rule(p: _Pullback, node: Expr, g: Expr, condition: Expr, a: Expr, b: Expr) -> None:
    p.add(a, p.gate(condition, g))
    p.add(b, p.gate(~condition, g))


def _extremum_rule(p: _Pullback, node: Expr, g: Expr, a: Expr, b: Expr) -> None:
    first = (a <= b) if node.op == "min" else (b <= a)
    p.add(a, p.gate(first, g))
    p.add(b, p.gate(~first, g))


def _div_rule(p: _Pullback, node: Expr, g: Expr, a: Expr, b: Expr) -> None:
    share = p.times(g, 1.0 / b)
    p.add(a, share)
    p.add(b, p.minus(p.times(share, node)))


def _mul_rule(p: _Pullback, node: Expr, g: Expr, a: Expr, b: Expr) -> None:
    p.add(a, p.times(g, b))
    p.add(b, p.times(g, a))


def _add_rule(p: _Pullback, node: Expr, g: Expr, a: Expr, b: Expr) -> None:
    p.add(a, g)
    p.add(b, g)


def _sub_rule(p: _Pullback, node: Expr, g: Expr, a: Expr, b: Expr) -> None:
    p.add(a, g)
    p.add(b, p.minus(g))


def _atan2_rule(p: _Pullback, node: Expr, g: Expr, y: Expr, x: Expr) -> None:
    slope_y, slope_x = _atan2_slopes(y, x)
    p.add(y, p.times(g, slope_y))
    p.add(x, p.times(g, slope_x))


def _atan2_slopes(y: Expr, x: Expr) -> tuple[Expr, Expr]:
    square = x * x + y * y
    inverse = select(square > 0.0, 1.0 / square, 0.0)
    return x * inverse, -(y * inverse)


def _inverse_sine_slope(node: Expr, a: Expr) -> Expr:
    return select(abs(a) < 1.0, 1.0 / (1.0 - a * a).sqrt(), 0.0)


# d op / d argument of the operations of one argument, given the result and the argument.
SLOPES: dict[str, Callable[[Expr, Expr], Any]] = {
    "neg": lambda node, a: -1.0,
    "abs": lambda node, a: _sign(a),
    "sqrt": lambda node, a: select(node > 0.0, 0.5 / node, 0.0),
    "sin": lambda node, a: a.cos(),
    "cos": lambda node, a: -a.sin(),
    "tan": lambda node, a: 1.0 + node * node,
    "asin": _inverse_sine_slope,
    "acos": lambda node, a: -_inverse_sine_slope(node, a),
    "exp": lambda node, a: node,
    "log": lambda node, a: 1.0 / a,
    "tanh": lambda node, a: 1.0 - node * node,
}


def _sign(a: Expr) -> Expr:
    return a.graph.node("sign", (a,))


def _slope_rule(p: _Pullback, node: Expr, g: Expr, a: Expr) -> None:
    p.add(a, p.times(g, SLOPES[node.op](node, a)))


RULES: dict[str, Callable[..., None]] = {
    "add": _add_rule,
    "sub": _sub_rule,
    "mul": _mul_rule,
    "div": _div_rule,
    "min": _extremum_rule,
    "max": _extremum_rule,
    "atan2": _atan2_rule,
    "select": _select_rule,
    **dict.fromkeys(SLOPES, _slope_rule),
}


# Forward mode -------------------------------------------------------------------------------------------------------


def pushforward(
    targets: Sequence[Expr], mapping: dict[Expr, Expr], tangents: dict[Expr, Expr], graph: Graph
) -> list[tuple[Expr, Expr | None]]:
    """Forward mode: write the nodes behind the targets again in another graph, each with its tangent.

    Args:
        targets: nodes of one graph.
        mapping: nodes already written; inputs and parameters must be among them. It grows.
        tangents: for those of them that have one, the tangent, in the new graph. It grows.
        graph: where to write.

    Returns:
        For each target its copy, and its tangent or None where that is zero.
    """
    for node in reachable(targets):
        if node in mapping:
            continue
        if node.op == "scan":
            _push_scan(node, mapping, tangents, graph)
            continue
        args = [mapping[arg] for arg in node.args]
        if node.op != "get":
            mapping[node] = _copy_node(node, args, graph)
        if node.op == "scratch":
            tangents[node] = zeros(graph, node.width)
        elif node.op == "store":
            if node.args[0] in tangents:
                tangent = tangents.get(node.args[2], graph.const(0.0))
                tangents[node] = store(tangents[node.args[0]], args[1], tangent)
        elif node.op == "load":
            if node.args[0] in tangents:
                tangents[node] = load(tangents[node.args[0]], args[1])
        else:
            tangent = _tangent(node, mapping, tangents)
            if tangent is not None and not (tangent.op == "const" and tangent.value == 0.0):
                tangents[node] = tangent
    return [(mapping[target], tangents.get(target)) for target in targets]


def _tangent(node: Expr, mapping: dict[Expr, Expr], tangents: dict[Expr, Expr]) -> Expr | None:
    if node.kind != FLOAT or node.op == "get":
        return tangents.get(node)
    moved = [tangents.get(arg) for arg in node.args]
    if all(tangent is None for tangent in moved) or node.op in _BARRIERS:
        return None
    result = mapping[node]
    args = [mapping[arg] for arg in node.args]
    if node.op in SLOPES:
        return moved[0] * SLOPES[node.op](result, args[0])  # pyright: ignore[reportOperatorIssue]
    zero = result.graph.const(0.0)
    if node.op == "select":
        return select(args[0], _either(moved[1], zero), _either(moved[2], zero))
    a, b = args
    da, db = _either(moved[0], zero), _either(moved[1], zero)
    if node.op in ("add", "sub"):
        return da + db if node.op == "add" else da - db
    if node.op == "mul":
        return da * b + a * db
    if node.op == "div":
        return (da - result * db) / b
    if node.op in ("min", "max"):
        return select((a <= b) if node.op == "min" else (b <= a), da, db)
    slope_y, slope_x = _atan2_slopes(a, b)
    return da * slope_y + db * slope_x


def _push_scan(node: Expr, mapping: dict[Expr, Expr], tangents: dict[Expr, Expr], graph: Graph) -> None:
    """A loop that carries values and tangents side by side."""
    old, initial, captured, streams = _split(node)
    sources = {value for value in (*initial, *captured, *streams) if value in tangents}
    _active([node], sources)
    new = Body(inner := Graph(graph), new_parameter(inner, old.counter), [], old.length, old.reverse)
    inside: dict[Expr, Expr] = {old.counter: new.counter}
    moved: dict[Expr, Expr] = {}
    for parameter in old.carry:
        new.carry.append(new_parameter(inner, parameter))
        inside[parameter] = new.carry[-1]
    start = [mapping[value] for value in initial]
    on = [i for i in range(len(old.carry)) if old.active[i]]
    for i in on:
        new.carry.append(new_parameter(inner, old.carry[i]))
        moved[old.carry[i]] = new.carry[-1]
        tangent = tangents.get(initial[i])
        missing = zeros(graph, initial[i].width) if initial[i].kind == ARRAY else graph.const(0.0)
        start.append(_either(tangent, missing))
    for parameter, value in zip(old.captures, captured, strict=True):
        inside[parameter] = inner.lift(mapping[value])
        if value in tangents:
            moved[parameter] = inner.lift(tangents[value])
    sources_in: list[Expr] = []
    for step, stream in zip(old.steps, streams, strict=True):
        new.steps.append([new_parameter(inner, parameter) for parameter in step])
        inside.update(zip(step, new.steps[-1], strict=True))
        sources_in.append(mapping[stream])
        if stream in tangents:
            new.steps.append([new_parameter(inner, parameter) for parameter in step])
            moved.update(zip(step, new.steps[-1], strict=True))
            sources_in.append(tangents[stream])
    pairs = pushforward(old.results, inside, moved, inner)
    zero = inner.const(0.0)
    new.results = [value for value, _ in pairs] + [_either(pairs[i][1], zero) for i in on]
    for i, output in enumerate(old.outputs):
        pairs = pushforward(output, inside, moved, inner)
        new.outputs.append([value for value, _ in pairs])
        if old.active[len(old.results) + i]:
            new.outputs.append([_either(tangent, zero) for _, tangent in pairs])
    made = mapping[node] = close(new, graph, start, sources_in)
    last, outputs = finals(made), iter(output_streams(made))
    for i in range(len(old.results)):
        get = node.graph.find("get", (node,), i)
        if get is not None:
            mapping[get] = last[i]
            if old.active[i]:
                tangents[get] = last[len(old.results) + on.index(i)]
    for i in range(len(old.results), len(old.results) + len(old.outputs)):
        get = node.graph.find("get", (node,), i)
        value, tangent = next(outputs), next(outputs) if old.active[i] else None
        if get is not None:
            mapping[get] = value
            if tangent is not None:
                tangents[get] = tangent
