"""Which nodes of a graph depend smoothly on some of them: only those have cotangents or tangents."""

from collections.abc import Sequence
from dataclasses import dataclass

from adjoin.compiler.ir.control_flow import LoopBody, split_scan
from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.kinds import BOOL, INDICES, INT, TABLE
from adjoin.compiler.ir.op import FLAT, OPS


@dataclass(frozen=True, eq=False)
class Activity:
    """What depends smoothly on some sources.

    Attributes:
        nodes: the nodes that do, the sources among them.
        results: for each scan among the nodes, whether each of its results does: the final carry, then the streams.
    """

    nodes: set[Expr]
    results: dict[Expr, list[bool]]

    def __contains__(self, node: Expr) -> bool:
        return node in self.nodes


def find_activity(nodes: Sequence[Expr], sources: set[Expr]) -> Activity:
    """Which of the nodes, given in the order in which they were made, depend smoothly on the sources."""
    activity = Activity(set(sources), {})
    active = activity.nodes
    for node in nodes:
        if node in active or node.kind in (BOOL, INDICES, INT, TABLE) or OPS[node.op].derivative is FLAT:
            continue
        if node.op == "scan":
            results = _scan_results(node, active)
            if any(results):
                active.add(node)
                activity.results[node] = results
        elif node.op == "get" and node.args[0].op == "scan":
            if node.args[0] in active and activity.results[node.args[0]][node.data]:
                active.add(node)
        elif any(arg in active for arg in (node.data.residual if node.op == "implicit" else node.args)):
            active.add(node)
    return activity


def _scan_results(node: Expr, active: set[Expr]) -> list[bool]:
    """Whether each result of a scan depends on active values; what one step makes active is so in the next."""
    body: LoopBody = node.data
    if body.detached:
        return [False] * (len(body.results) + len(body.outputs))
    initial, captured, streams = split_scan(node)
    carry = [value in active for value in initial]
    sources = {parameter for parameter, value in zip(body.captures, captured, strict=True) if value in active}
    for element, stream in zip(body.elements, streams, strict=True):
        if stream in active:
            sources.update(element)
    while True:
        carried = {parameter for parameter, is_active in zip(body.carry, carry, strict=True) if is_active}
        inside = find_activity(body.graph.nodes, sources | carried)
        following = [a or b in inside for a, b in zip(carry, body.results, strict=True)]
        if following == carry:
            return carry + [any(value in inside for value in output) for output in body.outputs]
        carry = following
