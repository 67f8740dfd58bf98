"""Graphs from graphs: copying nodes, and finding those that depend on some inputs; both modes of derivatives use it."""

from collections.abc import Sequence

from adjoin.compiler.autodiff.implicit import Rule
from adjoin.compiler.ir.control_flow import Body, close, load, store, zeros
from adjoin.compiler.ir.control_flow import parameter as parameter_like
from adjoin.compiler.ir.graph import Expr, Graph, apply
from adjoin.compiler.ir.kinds import BOOL, INT, TABLE, TUPLE
from adjoin.compiler.ir.op import FLAT, OPS
from adjoin.compiler.ir.schedule import reachable


def copy(
    targets: Sequence[Expr], mapping: dict[Expr, Expr], graph: Graph, *, without_rules: bool = False
) -> list[Expr]:
    """Write the nodes behind the targets again in another graph.

    Args:
        targets: nodes of one graph.
        mapping: nodes already written; inputs and parameters must be among them. It grows.
        graph: where to write.
        without_rules: what `implicit` gives becomes the values it was given.

    Returns:
        The copies of the targets.
    """
    for node in reachable(targets):
        if node in mapping or (node.op == "implicit" and without_rules):
            continue
        if node.op == "implicit":
            mapping[node] = copy_rule(node, mapping, graph)
        elif without_rules and node.op == "get" and node.args[0].op == "implicit":
            mapping[node] = mapping[node.args[0].args[node.data]]
        else:
            mapping[node] = copy_node(node, [mapping[arg] for arg in node.args], graph, without_rules)
    return [mapping[target] for target in targets]


def copy_rule(node: Expr, mapping: dict[Expr, Expr], graph: Graph) -> Expr:
    """Write an `implicit` node again, with its rule."""
    old: Rule = node.data
    stands = [[graph.fresh("param", (), hole.data) for hole in holes] for holes in (old.solution, old.right)]
    mapping.update(zip([*old.solution, *old.right], [*stands[0], *stands[1]], strict=True))
    parts = [copy(part, mapping, graph) for part in (old.residual, old.solved, old.transposed)]
    return graph.fresh("implicit", tuple(mapping[arg] for arg in node.args), Rule(*stands, *parts), TUPLE)


def substitute(targets: Sequence[Expr], mapping: dict[Expr, Expr], graph: Graph) -> list[Expr]:
    """The targets with some nodes of their graph replaced by others of it; what does not depend on them stays."""
    mapping = dict(mapping)
    for node in reachable(targets):
        if node in mapping:
            continue
        args = [mapping.get(arg, arg) for arg in node.args]
        if all(new is old for new, old in zip(args, node.args, strict=True)):
            continue
        mapping[node] = rebuild_node(node, args, graph)
    return [mapping.get(target, target) for target in targets]


def rebuild_node(node: Expr, args: list[Expr], graph: Graph) -> Expr:
    """Write one node again with these arguments, folding and simplifying what they decide."""
    return copy_node(node, args, graph) if OPS[node.op].is_construct else apply(node.op, *args)


def has_rules(targets: Sequence[Expr]) -> bool:
    """Whether there are `implicit` nodes behind the targets, those inside of loops included."""
    for node in reachable(targets):
        if node.op == "implicit":
            return True
        if node.op == "scan" and has_rules([*node.data.results, *[x for output in node.data.outputs for x in output]]):
            return True
    return False


def copy_node(node: Expr, args: list[Expr], graph: Graph, without_rules: bool = False) -> Expr:
    """Write one node again, with these arguments."""
    if node.op == "scan":
        return _copy_scan(node, args, graph, without_rules)
    if node.op == "load":
        return load(args[0], args[1])
    if node.op == "store":
        return store(args[0], args[1], args[2])
    if node.op == "scratch":
        return zeros(graph, node.width)
    made = graph.node(node.op, tuple(args), node.data, node.kind)
    made.width = node.width
    return made


def _copy_scan(node: Expr, args: list[Expr], graph: Graph, without_rules: bool) -> Expr:
    old: Body = node.data
    new = Body(inner := Graph(graph), parameter_like(inner, old.counter), [], old.length, old.reverse)
    mapping = {old.counter: new.counter}
    count = len(old.carry)
    for parameter in old.carry:
        new.carry.append(parameter_like(inner, parameter))
    mapping.update(zip(old.carry, new.carry, strict=True))
    for parameter, value in zip(old.captures, args[count:], strict=False):
        mapping[parameter] = inner.lift(value)
    for step in old.steps:
        new.steps.append([parameter_like(inner, parameter) for parameter in step])
        mapping.update(zip(step, new.steps[-1], strict=True))
    new.results = copy(old.results, mapping, inner, without_rules=without_rules)
    new.outputs = [copy(output, mapping, inner, without_rules=without_rules) for output in old.outputs]
    new.only_where(mapping[old.where] if old.where is not None else None)
    first_stream = count + len(old.captures)
    return close(new, graph, args[:count], args[first_stream : first_stream + len(old.steps)])


def either(value: Expr | None, default: Expr) -> Expr:
    """The value if there is one; `or` would ask a traced value for its truth."""
    return default if value is None else value


def split_scan(node: Expr) -> tuple[Body, list[Expr], list[Expr], list[Expr]]:
    """A scan's body, initial carry, captured values and input streams."""
    body: Body = node.data
    first = len(body.carry)
    second = first + len(body.captures)
    args = list(node.args)
    return body, args[:first], args[first:second], args[second : second + len(body.steps)]


def active_nodes(nodes: Sequence[Expr], sources: set[Expr]) -> set[Expr]:
    """Those of the nodes, in the order in which they were made, that depend smoothly on the sources."""
    active = set(sources)
    for node in nodes:
        if node in active or node.kind in (BOOL, INT, TABLE) or OPS[node.op].derivative is FLAT:
            continue
        if node.op == "get":
            body = node.args[0].data
            if node.args[0] in active and body.active[node.data]:
                active.add(node)
        elif node.op == "implicit":
            if any(value in active for value in node.data.residual):
                active.add(node)
        elif node.op == "scan":
            body, initial, captured, streams = split_scan(node)
            carry = [value in active for value in initial]
            inner = {p for p, v in zip(body.captures, captured, strict=True) if v in active}
            for step, stream in zip(body.steps, streams, strict=True):
                if stream in active:
                    inner.update(step)
            while True:
                found = active_nodes(
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
