"""Forward mode, graph to graph, loops included: every value is written again with its tangent beside it."""

from collections.abc import Callable, Sequence

from adjoin.compiler.autodiff.activity import find_activity
from adjoin.compiler.ir.control_flow import LoopBody, finals, output_streams, split_scan
from adjoin.compiler.ir.graph import Expr, Graph
from adjoin.compiler.ir.implicit import solutions
from adjoin.compiler.ir.kinds import ARRAY, FLOAT
from adjoin.compiler.ir.op import FLAT, OPS, Branch
from adjoin.compiler.ir.ops import select
from adjoin.compiler.ir.rewrite import copy_node, copy_rule, either, substitute
from adjoin.compiler.ir.schedule import reachable
from adjoin.compiler.ir.scratch import accumulate, load, store, zeros, zeros_like


class _Pushforward:
    """Nodes written again in another graph, each with its tangent.

    Attributes:
        graph: where they are written.
        mapping: node -> its copy.
        tangents: node -> the tangent of its copy, for those that have one.
    """

    def __init__(self, graph: Graph, mapping: dict[Expr, Expr], tangents: dict[Expr, Expr]):
        self.graph, self.mapping, self.tangents = graph, mapping, tangents

    def run(self, targets: Sequence[Expr]) -> list[tuple[Expr, Expr | None]]:
        """Write what is behind the targets; for each, its copy and its tangent, or None where that is zero."""
        for node in reachable(targets, self.mapping):
            if node not in self.mapping:  # a construct brings its results along
                RULES.get(node.op, _Pushforward.push_operation)(self, node)
        return [(self.mapping[target], self.tangents.get(target)) for target in targets]

    def push_operation(self, node: Expr) -> None:
        """An operation gets its tangent from those of its arguments by its partial derivatives."""
        args = [self.mapping[arg] for arg in node.args]
        result = self.mapping[node] = copy_node(node, args, self.graph)
        tangents = [self.tangents.get(arg) for arg in node.args]
        op = OPS[node.op]
        if node.kind != FLOAT or op.derivative is FLAT or all(tangent is None for tangent in tangents):
            return
        partials = op.partials(result, *args)
        total = None
        if isinstance(partials, Branch):
            zero = self.graph.const(0.0)
            taken, other = (either(tangents[i], zero) for i in (partials.taken, partials.other))
            total = select(partials.condition, taken, other)
        else:
            for tangent, factors in zip(tangents, partials, strict=True):
                if tangent is None:
                    continue
                subtracted = total is not None and isinstance(factors[-1], float) and factors[-1] == -1.0
                for factor in factors[:-1] if subtracted else factors:
                    tangent = tangent * factor
                total = tangent if total is None else total - tangent if subtracted else total + tangent
        if total is not None and not (total.op == "const" and total.value == 0.0):
            self.tangents[node] = total

    def push_get(self, node: Expr) -> None:
        """The results of a construct are written with it."""
        raise AssertionError(f"{node} was reached before {node.args[0]}")

    def push_scratch(self, node: Expr) -> None:
        """A new array has a tangent of zeros, which stores may change."""
        used = (self.mapping[node.used[0]], node.used[1]) if node.used else None
        self.mapping[node] = zeros(self.graph, node.width, node.kind, node.data is None, used)
        if node.kind == ARRAY:
            self.tangents[node] = zeros_like(self.graph, self.mapping[node])

    def push_load(self, node: Expr) -> None:
        """A load of the array of tangents."""
        array, index = node.args[:2]
        checked = node.data is None
        self.mapping[node] = load(self.mapping[array], self.mapping[index], checked)
        if array in self.tangents:
            self.tangents[node] = load(self.tangents[array], self.mapping[index], checked)

    def push_write(self, node: Expr) -> None:
        """A store or an addition to the array of tangents."""
        (array, index, value), checked = node.args[:3], node.data is None
        write = store if node.op == "store" else accumulate
        self.mapping[node] = write(self.mapping[array], self.mapping[index], self.mapping[value], checked)
        if array in self.tangents:
            tangent = self.tangents.get(value, self.graph.const(0.0))
            self.tangents[node] = write(self.tangents[array], self.mapping[index], tangent, checked)

    def push_implicit(self, node: Expr) -> None:
        """The tangents are -J⁻¹ of the tangents that the residuals have while the solution stays."""
        graph = self.graph
        again = self.mapping[node] = copy_rule(node, dict(self.mapping), graph)  # what it writes has no tangents
        old, new = node.data, again.data
        values = solutions(again)
        mapping = {**self.mapping, **dict(zip(old.solution, values, strict=True))}
        residuals = [tangent for _, tangent in _Pushforward(graph, mapping, dict(self.tangents)).run(old.residual)]
        right = [-either(tangent, graph.const(0.0)) for tangent in residuals]
        stands = dict(zip([*new.right, *new.solution], [*right, *values], strict=True))
        tangents: list[Expr | None] = [*substitute(new.solved, stands, graph)]
        if all(tangent is None for tangent in residuals):
            tangents = [None] * len(values)
        self.results(node, list(zip(values, tangents, strict=True)))

    def push_scan(self, node: Expr) -> None:
        """A loop that carries values and tangents side by side."""
        graph, mapping, tangents = self.graph, self.mapping, self.tangents
        old: LoopBody = node.data
        initial, captured, streams = split_scan(node)
        sources = {value for value in (*initial, *captured, *streams) if value in tangents}
        count = len(old.results)
        active = find_activity([node], sources).results.get(node, [False] * (count + len(old.outputs)))
        new = LoopBody.begin(graph, old.length, old.reverse)
        inside = _Pushforward(new.graph, {old.counter: new.counter}, {})
        start = [mapping[value] for value in initial]
        for parameter, value in zip(old.carry, start, strict=True):
            inside.mapping[parameter] = new.add_carry(value)
        moving = [i for i in range(count) if active[i]]
        for i in moving:
            inside.tangents[old.carry[i]] = new.add_carry(start[i])
            missing = zeros_like(graph, start[i]) if initial[i].kind == ARRAY else graph.const(0.0)
            start.append(either(tangents.get(initial[i]), missing))
        for parameter, value in zip(old.captures, captured, strict=True):
            inside.mapping[parameter] = new.graph.lift(mapping[value])
            if value in tangents:
                inside.tangents[parameter] = new.graph.lift(tangents[value])
        read: list[Expr] = []
        for element, stream in zip(old.elements, streams, strict=True):
            inside.mapping.update(zip(element, new.add_stream(len(element)), strict=True))
            read.append(mapping[stream])
            if stream in tangents:
                inside.tangents.update(zip(element, new.add_stream(len(element)), strict=True))
                read.append(tangents[stream])
        pairs = inside.run(old.results)
        zero = new.graph.const(0.0)
        new.results = [value for value, _ in pairs] + [either(pairs[i][1], zero) for i in moving]
        for i, output in enumerate(old.outputs):
            pairs = inside.run(output)
            new.outputs.append([value for value, _ in pairs])
            if active[count + i]:
                new.outputs.append([either(tangent, zero) for _, tangent in pairs])
        new.copy_options(old, inside.mapping)
        if old.proceed is not None:
            new.proceed = inside.run([old.proceed])[0][0]
        again = mapping[node] = new.close(start, read)
        last, outputs = finals(again), iter(output_streams(again))
        results = [(last[i], last[count + moving.index(i)] if active[i] else None) for i in range(count)]
        results += [(next(outputs), next(outputs) if is_active else None) for is_active in active[count:]]
        self.results(node, results)

    def results(self, node: Expr, pairs: Sequence[tuple[Expr, Expr | None]]) -> None:
        """What a construct gives, and its tangents."""
        for i, (value, tangent) in enumerate(pairs):
            get = node.graph.find("get", (node,), i)
            if get is not None:
                self.mapping[get] = value
                if tangent is not None:
                    self.tangents[get] = tangent


RULES: dict[str, Callable[[_Pushforward, Expr], None]] = {
    "get": _Pushforward.push_get,
    "implicit": _Pushforward.push_implicit,
    "load": _Pushforward.push_load,
    "scan": _Pushforward.push_scan,
    "scratch": _Pushforward.push_scratch,
    "accumulate": _Pushforward.push_write,
    "store": _Pushforward.push_write,
}
"""The tangents of the constructs of a graph; those of operations follow from the table of operations."""


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
    return _Pushforward(graph, mapping, tangents).run(targets)
