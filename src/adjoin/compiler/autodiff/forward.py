"""Forward mode, graph to graph, loops included: every value is written again with its tangent beside it."""

from collections.abc import Sequence

from adjoin.compiler.autodiff.implicit import solutions
from adjoin.compiler.ir.control_flow import Body, close, finals, load, output_streams, store, zeros
from adjoin.compiler.ir.control_flow import parameter as parameter_like
from adjoin.compiler.ir.graph import Expr, Graph
from adjoin.compiler.ir.kinds import ARRAY, FLOAT
from adjoin.compiler.ir.op import FLAT, OPS, Branch
from adjoin.compiler.ir.ops import select
from adjoin.compiler.ir.rewrite import active_nodes, copy_node, copy_rule, either, split_scan, substitute
from adjoin.compiler.ir.schedule import reachable


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
        if node.op == "implicit":
            _push_implicit(node, mapping, tangents, graph)
            continue
        args = [mapping[arg] for arg in node.args]
        if node.op != "get":
            mapping[node] = copy_node(node, args, graph)
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
    if all(tangent is None for tangent in moved) or OPS[node.op].derivative is FLAT:
        return None
    partials = OPS[node.op].partials(mapping[node], *[mapping[arg] for arg in node.args])
    if isinstance(partials, Branch):
        zero = mapping[node].graph.const(0.0)
        return select(partials.condition, either(moved[partials.taken], zero), either(moved[partials.other], zero))
    total = None
    for tangent, factors in zip(moved, partials, strict=True):
        if tangent is None:
            continue
        subtracted = total is not None and isinstance(factors[-1], float) and factors[-1] == -1.0
        for factor in factors[:-1] if subtracted else factors:
            tangent = tangent * factor
        total = tangent if total is None else total - tangent if subtracted else total + tangent
    return total


def _push_implicit(node: Expr, mapping: dict[Expr, Expr], tangents: dict[Expr, Expr], graph: Graph) -> None:
    """The tangents are -J⁻¹ of the tangents that the residuals have while the solution stays."""
    made = mapping[node] = copy_rule(node, dict(mapping), graph)  # a copy: what it writes has no tangents
    rule, new = node.data, made.data
    values = solutions(made)
    inside = {**mapping, **dict(zip(rule.solution, values, strict=True))}
    pairs = pushforward(rule.residual, inside, dict(tangents), graph)
    moving = any(tangent is not None for _, tangent in pairs)
    right = [-either(tangent, graph.const(0.0)) for _, tangent in pairs]
    stands = dict(zip([*new.right, *new.solution], [*right, *values], strict=True))
    for i, (value, tangent) in enumerate(zip(values, substitute(new.solved, stands, graph), strict=True)):
        get = node.graph.find("get", (node,), i)
        if get is not None:
            mapping[get] = value
            if moving:
                tangents[get] = tangent


def _push_scan(node: Expr, mapping: dict[Expr, Expr], tangents: dict[Expr, Expr], graph: Graph) -> None:
    """A loop that carries values and tangents side by side."""
    old, initial, captured, streams = split_scan(node)
    sources = {value for value in (*initial, *captured, *streams) if value in tangents}
    active_nodes([node], sources)
    new = Body(inner := Graph(graph), parameter_like(inner, old.counter), [], old.length, old.reverse)
    inside: dict[Expr, Expr] = {old.counter: new.counter}
    moved: dict[Expr, Expr] = {}
    for parameter in old.carry:
        new.carry.append(parameter_like(inner, parameter))
        inside[parameter] = new.carry[-1]
    start = [mapping[value] for value in initial]
    on = [i for i in range(len(old.carry)) if old.active[i]]
    for i in on:
        new.carry.append(parameter_like(inner, old.carry[i]))
        moved[old.carry[i]] = new.carry[-1]
        tangent = tangents.get(initial[i])
        missing = zeros(graph, initial[i].width) if initial[i].kind == ARRAY else graph.const(0.0)
        start.append(either(tangent, missing))
    for parameter, value in zip(old.captures, captured, strict=True):
        inside[parameter] = inner.lift(mapping[value])
        if value in tangents:
            moved[parameter] = inner.lift(tangents[value])
    sources_in: list[Expr] = []
    for step, stream in zip(old.steps, streams, strict=True):
        new.steps.append([parameter_like(inner, parameter) for parameter in step])
        inside.update(zip(step, new.steps[-1], strict=True))
        sources_in.append(mapping[stream])
        if stream in tangents:
            new.steps.append([parameter_like(inner, parameter) for parameter in step])
            moved.update(zip(step, new.steps[-1], strict=True))
            sources_in.append(tangents[stream])
    pairs = pushforward(old.results, inside, moved, inner)
    zero = inner.const(0.0)
    new.results = [value for value, _ in pairs] + [either(pairs[i][1], zero) for i in on]
    for i, output in enumerate(old.outputs):
        pairs = pushforward(output, inside, moved, inner)
        new.outputs.append([value for value, _ in pairs])
        if old.active[len(old.results) + i]:
            new.outputs.append([either(tangent, zero) for _, tangent in pairs])
    new.only_where(inside[old.where] if old.where is not None else None)
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
