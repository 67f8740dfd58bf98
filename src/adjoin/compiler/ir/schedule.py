"""What to compute, in which order: the live nodes of a graph, loops included.

The interpreter, the renderer and the digest all walk a `Plan`. Nodes come in depth-first order of the targets: each
is computed shortly before its first use, and a target is complete before the next one is begun, so that a kernel can
write its results as it goes instead of keeping them all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from adjoin.compiler.ir.control_flow import Body
from adjoin.compiler.ir.graph import Expr


@dataclass(eq=False)
class Loop:
    """The live part of one scan node.

    Attributes:
        carry: positions of the carried values that matter.
        captures: positions of the captures that the live part of the body reads.
        streams: positions of the input streams that it reads.
        outputs: positions of the output streams that somebody reads.
        plan: the body's own plan; its targets are the live results, then the live outputs' values.
    """

    body: Body
    carry: list[int]
    captures: list[int]
    streams: list[int]
    outputs: list[int]
    plan: "Plan"

    @property
    def where(self) -> int | None:
        """The place of the condition among the live captures, if there is one."""
        return next((k for k, i in enumerate(self.captures) if self.body.captures[i] is self.body.where), None)

    def arguments(self, node: Expr) -> tuple[list[Expr], list[Expr], list[Expr], list[Expr]]:
        """The live arguments of the scan node: initial carry, captures, input streams, and what must run before."""
        first = len(self.body.carry)
        second = first + len(self.body.captures)
        third = second + len(self.body.steps)
        return (
            [node.args[i] for i in self.carry],
            [node.args[first + i] for i in self.captures],
            [node.args[second + i] for i in self.streams],
            list(node.args[third:]),
        )


@dataclass(eq=False)
class Plan:
    """An order in which to compute the targets of one graph.

    Attributes:
        order: the nodes, each after its arguments.
        loops: the live part of every scan among them.
        targets: what was asked for.
    """

    order: list[Expr]
    loops: dict[Expr, Loop]
    targets: list[Expr]


def make_plan(targets: Sequence[Expr]) -> Plan:
    """Find the live nodes behind the targets and order them."""
    live, loops = _live(targets)
    order: list[Expr] = []
    done: set[Expr] = set()
    for target in targets:
        stack = [] if target in done else [(target, _needs(target, loops, live))]
        while stack:
            node, pending = stack[-1]
            following = next((arg for arg in pending if arg not in done), None)
            if following is not None:
                stack.append((following, _needs(following, loops, live)))
                continue
            stack.pop()
            if node not in done:
                done.add(node)
                order.append(node)
    return Plan(order, loops, list(targets))


def reachable(targets: Sequence[Expr]) -> list[Expr]:
    """Every node behind the targets, dead results of loops included, in the order in which they were made."""
    found: set[Expr] = set()
    stack = list(targets)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.args)
    return sorted(found, key=lambda node: node.index)


def _live(targets: Sequence[Expr]) -> tuple[set[Expr], dict[Expr, Loop]]:
    """Every node whose value matters, and for every scan among them its live part.

    What is read of a scan decides what its arguments must give, so scans are settled from the last to the first.
    """
    wanted: dict[Expr, set[int]] = {}
    loops: dict[Expr, Loop] = {}
    live: set[Expr] = set()
    scans: list[Expr] = []
    pending = list(targets)
    while pending or scans:
        while pending:
            node = pending.pop()
            if node in live:
                continue
            live.add(node)
            if node.op == "get":
                wanted.setdefault(node.args[0], set()).add(node.data)
            if node.op == "scan":
                scans.append(node)
            else:
                pending.extend(_needs(node, loops))
        if scans:
            scans.sort(key=lambda node: node.index)
            node = scans.pop()
            loops[node] = _loop(node, wanted.get(node, set()))
            pending.extend(_needs(node, loops))
    return live, loops


def _needs(node: Expr, loops: dict[Expr, Loop], live: set[Expr] | None = None) -> Iterator[Expr]:
    """The nodes a node is computed from; with `live`, also those of them that only have to run before it."""
    if node.op == "scan":
        carry, captures, streams, before = loops[node].arguments(node)
        needs = carry + captures + streams
    else:
        needs = list(node.args[:3])
        before = node.args[3:]
    if live is not None:
        needs += [other for other in before if other in live]
    return iter(needs)


def _loop(node: Expr, wanted: set[int]) -> Loop:
    body: Body = node.data
    outputs = [i for i in range(len(body.outputs)) if len(body.results) + i in wanted]
    carry = sorted(i for i in wanted if i < len(body.results))
    while True:
        targets = [body.results[i] for i in carry] + [value for i in outputs for value in body.outputs[i]]
        plan = make_plan(targets)
        used = set(plan.order)
        grown = [i for i, parameter in enumerate(body.carry) if i in carry or parameter in used]
        if grown == carry:
            break
        carry = grown
    captures = [i for i, parameter in enumerate(body.captures) if parameter in used or parameter is body.where]
    streams = [i for i, step in enumerate(body.steps) if not used.isdisjoint(step)]
    return Loop(body, carry, captures, streams, outputs, plan)
