"""Graphs from graphs: nodes are written again elsewhere, or with others in their place."""

from collections.abc import Collection, Sequence

from adjoin.compiler.ir.control_flow import LoopBody, split_scan
from adjoin.compiler.ir.graph import RECREATED, Expr, Graph, apply, as_number
from adjoin.compiler.ir.implicit import Rule
from adjoin.compiler.ir.kinds import ARRAY, TUPLE
from adjoin.compiler.ir.op import OPS
from adjoin.compiler.ir.schedule import reachable
from adjoin.compiler.ir.scratch import ELEMENT, LARGE, accumulate, gather, load, root, store, zeros


def copy(
    targets: Sequence[Expr],
    mapping: dict[Expr, Expr],
    graph: Graph,
    *,
    without_rules: bool = False,
    record_carry: bool = False,
) -> list[Expr]:
    """Write the nodes behind the targets again in another graph.

    Args:
        targets: nodes of one graph.
        mapping: nodes already written; inputs and parameters must be among them. It grows.
        graph: where to write.
        without_rules: what `implicit` gives becomes the values it was given.
        record_carry: loops also stream out what they carry, see `LoopBody.record_carry`; those inside of loops do not.

    Returns:
        The copies of the targets.
    """
    for node in reachable(targets, mapping):
        if node in mapping or (node.op == "implicit" and without_rules):  # a rule brings along what it shares
            continue
        if node.op == "implicit":
            mapping[node] = copy_rule(node, mapping, graph, record_carry)
        elif without_rules and node.op == "get" and node.args[0].op == "implicit":
            mapping[node] = mapping[node.args[0].args[node.data]]
        else:
            args = [mapping[arg] for arg in node.args]
            mapping[node] = copy_node(node, args, graph, without_rules, record_carry)
    return [mapping[target] for target in targets]


def copy_rule(node: Expr, mapping: dict[Expr, Expr], graph: Graph, record_carry: bool = False) -> Expr:
    """Write an `implicit` node again, with its rule."""
    old: Rule = node.data
    stands = [[graph.fresh("param", (), hole.data) for hole in holes] for holes in (old.solution, old.right)]
    mapping.update(zip([*old.solution, *old.right], [*stands[0], *stands[1]], strict=True))
    rows = (old.residual, old.solved, old.transposed)
    parts = [copy(part, mapping, graph, record_carry=record_carry) for part in rows]
    return graph.fresh("implicit", tuple(mapping[arg] for arg in node.args), Rule(*stands, *parts), TUPLE)


def substitute(targets: Sequence[Expr], mapping: dict[Expr, Expr], graph: Graph) -> list[Expr]:
    """The targets with some nodes of their graph replaced by others of it; what does not depend on them stays."""
    nodes, mapping = reachable(targets, mapping), dict(mapping)
    changed = _dependents(nodes, mapping)
    for array in {first for node in changed for first in map(root, _overwritten(node)) if first not in changed}:
        # A parameter: what wrote into it is dead, and is written again.
        graph.readers[array] = [
            node for node in nodes if node not in changed and any(arg is array for arg in node.args)
        ]
    for node in nodes:
        if node in changed:
            mapping[node] = rebuild_node(node, [mapping.get(arg, arg) for arg in node.args], graph)
    return [mapping.get(target, target) for target in targets]


def _dependents(nodes: Sequence[Expr], sources: Collection[Expr]) -> set[Expr]:
    """The nodes that depend on some others; of an array into which one of them writes, every version does."""
    changed: set[Expr] = set()
    size = -1
    while len(changed) > size:
        size = len(changed)
        for node in nodes:
            if node not in changed and any(arg in sources or arg in changed for arg in node.args):
                changed.add(node)
        written = {root(array) for node in changed for array in _overwritten(node)}
        changed.update(first for first in written if first.op == "scratch")
        changed.update(node for node in nodes if any(array in written for array in _overwritten(node)))
    return changed


def _overwritten(node: Expr) -> Sequence[Expr]:
    """The versions of arrays that a node takes the place of."""
    if node.op in ("store", "accumulate"):
        return node.args[:1]
    return [value for value in split_scan(node)[0] if value.kind in ELEMENT] if node.op == "scan" else ()


def rebuild_node(node: Expr, args: list[Expr], graph: Graph) -> Expr:
    """Write one node again with these arguments, folding and simplifying what they decide."""
    return copy_node(node, args, graph) if OPS[node.op].is_construct else apply(node.op, *args)


def has_rules(targets: Sequence[Expr]) -> bool:
    """Whether there are `implicit` nodes behind the targets, those inside of loops included."""
    nodes = reachable(targets)
    return any(node.op == "implicit" or (node.op == "scan" and node.data.has_rules) for node in nodes)


def copy_node(
    node: Expr, args: list[Expr], graph: Graph, without_rules: bool = False, record_carry: bool = False
) -> Expr:
    """Write one node again, with these arguments; the options are those of `copy`."""
    if node.op == "scan":
        return _copy_scan(node, args, graph, without_rules, record_carry)
    if node.op == "load":
        return load(args[0], args[1], node.data is None)
    if node.op in ("store", "accumulate"):
        return (store if node.op == "store" else accumulate)(args[0], args[1], args[2], node.data is None)
    if node.op == "scratch":
        used = (args[0], node.used[1]) if node.used else None
        return zeros(graph, node.width, node.kind, node.data is None, used)
    data = node.data
    if node.op == "get" and args[0].op == "scan":
        before, now = len(node.args[0].data.results), len(args[0].data.results)
        data += now - before if data >= before else 0  # histories are carried besides
    again = graph.node(node.op, tuple(args), data, node.kind)
    again.width = node.width
    if node.op == "get" and node.kind in ELEMENT:
        again.used = args[0].args[data].used
    return again


def _copy_scan(node: Expr, args: list[Expr], graph: Graph, without_rules: bool, record_carry: bool) -> Expr:
    old: LoopBody = node.data
    initial, captured, streams = split_scan(node, args)
    same = not (record_carry and keeps_record(old)) and not (without_rules and old.has_rules)
    if same and not any(value.op in RECREATED for value in captured):
        return old.node(graph, initial, captured, streams)
    new = LoopBody.begin(graph, old.length, old.reverse)
    mapping = {old.counter: new.counter}
    for parameter, value in zip(old.carry, initial, strict=True):
        mapping[parameter] = new.add_carry(value)
    record = []
    for k, parameter in enumerate(old.carry if record_carry else ()):
        large = parameter.kind == ARRAY and parameter.width >= LARGE and isinstance(old.length, int)
        record.append([] if large else before_step(old, k, mapping[parameter]))
        if large and keeps_record(old) and reads_array(old.graph.nodes, parameter):
            new.keep_history(k, initial)
    for parameter, value in zip(old.captures, captured, strict=True):
        mapping[parameter] = new.graph.lift(value)
    for element in old.elements:
        mapping.update(zip(element, new.add_stream(len(element)), strict=True))
    new.results = copy(old.results, mapping, new.graph, without_rules=without_rules) + new.kept
    new.outputs = [copy(output, mapping, new.graph, without_rules=without_rules) for output in old.outputs]
    new.copy_options(old, mapping)
    if old.proceed is not None:
        (new.proceed,) = copy([old.proceed], mapping, new.graph, without_rules=without_rules)
    new.record(record)
    return new.close(initial, streams)


def keeps_record(body: LoopBody) -> bool:
    """Whether a loop can have a reverse derivative."""
    return not body.detached and body.proceed is None


def before_step(body: LoopBody, position: int, parameter: Expr) -> list[Expr]:
    """The floats that tell what a carried value is before a step; none if the body does not read them."""
    if not keeps_record(body):
        return []
    if parameter.kind == ARRAY:
        return gather(parameter) if reads_array(body.graph.nodes, body.carry[position]) else []
    return [] if parameter.kind in ELEMENT else [as_number(parameter)]


def reads_array(nodes: Sequence[Expr], array: Expr) -> bool:
    """Whether an array, or what it becomes, is read by some nodes, those of loops included; adding does not count."""
    for node in nodes:
        if node.op == "load" and root(node.args[0]) is array:
            return True
        if node.op == "scan":
            initial, captured, _ = split_scan(node)
            inner = zip([*node.data.carry, *node.data.captures], [*initial, *captured], strict=True)
            for parameter, value in inner:
                if value.kind in ELEMENT and root(value) is array and reads_array(node.data.graph.nodes, parameter):
                    return True
    return False


def either(value: Expr | None, default: Expr) -> Expr:
    """The value if there is one; `or` would ask a traced value for its truth."""
    return default if value is None else value
