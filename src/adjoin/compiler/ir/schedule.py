"""What to compute, in which order: the live nodes of a graph, loops included.

The interpreter, the renderer and the digest all walk a `Schedule`. Nodes come in depth-first order of the targets: each
is computed shortly before its first use, and a target is complete before the next one is begun, so that a kernel can
write its results as it goes instead of keeping them all.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from adjoin.compiler.ir.control_flow import LoopBody
from adjoin.compiler.ir.graph import Expr


@dataclass(frozen=True, eq=False)
class ScanSchedule:
    """The live part of one scan node.

    Attributes:
        body: what it runs.
        carry: positions of the carried values that matter.
        captures: positions of the captures that the live part of the body reads.
        streams: positions of the input streams that it reads.
        outputs: positions of the output streams that somebody reads.
        schedule: of the body; its targets are the live results, then the live outputs' values.
    """

    body: LoopBody
    carry: list[int]
    captures: list[int]
    streams: list[int]
    outputs: list[int]
    schedule: "Schedule"

    @property
    def where(self) -> int | None:
        """The place of the condition among the live captures, if there is one."""
        return self._place(self.body.where)

    @property
    def count(self) -> int | None:
        """The place of the trip count among the live captures, if it is one."""
        return self._place(self.body.count)

    def _place(self, parameter: Expr | None) -> int | None:
        return next((k for k, i in enumerate(self.captures) if self.body.captures[i] is parameter), None)

    def arguments(self, node: Expr) -> tuple[list[Expr], list[Expr], list[Expr], list[Expr]]:
        """The live arguments of the scan node: initial carry, captures, input streams, and what must run before."""
        first = len(self.body.carry)
        second = first + len(self.body.captures)
        third = second + len(self.body.elements)
        return (
            [node.args[i] for i in self.carry],
            [node.args[first + i] for i in self.captures],
            [node.args[second + i] for i in self.streams],
            list(node.args[third:]),
        )


@dataclass(frozen=True, eq=False)
class Schedule:
    """An order in which to compute the targets of one graph.

    Attributes:
        order: the nodes, each after its arguments.
        scans: the live part of every scan among them.
        targets: what was asked for.
    """

    order: list[Expr]
    scans: dict[Expr, ScanSchedule]
    targets: list[Expr]


def make_schedule(targets: Sequence[Expr]) -> Schedule:
    """Find the live nodes behind the targets and order them."""
    live, scans = _live(targets)
    order: list[Expr] = []
    done: set[Expr] = set()
    for target in targets:
        stack = [] if target in done else [(target, _needs(target, scans, live))]
        while stack:
            node, pending = stack[-1]
            following = next((arg for arg in pending if arg not in done), None)
            if following is not None:
                stack.append((following, _needs(following, scans, live)))
                continue
            stack.pop()
            if node not in done:
                done.add(node)
                order.append(node)
    return Schedule(order, scans, list(targets))


def reachable(targets: Sequence[Expr], known: Container[Expr] = ()) -> list[Expr]:
    """Every node behind the targets, dead results of loops included, in the order in which they were made.

    Args:
        targets: nodes of one graph.
        known: nodes that are left out, and with them what only they are computed from.
    """
    nodes: set[Expr] = set()
    stack = list(targets)
    while stack:
        node = stack.pop()
        if node not in nodes and node not in known:
            nodes.add(node)
            stack.extend(node.args)
    return sorted(nodes, key=lambda node: node.index)


def _live(targets: Sequence[Expr]) -> tuple[set[Expr], dict[Expr, ScanSchedule]]:
    """Every node whose value matters, and for every scan among them its live part.

    What is read of a scan decides what its arguments must give, so scans are decided from the last to the first.
    """
    wanted: dict[Expr, set[int]] = {}
    scheduled: dict[Expr, ScanSchedule] = {}
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
                pending.extend(_needs(node, scheduled))
        if scans:
            scans.sort(key=lambda node: node.index)
            node = scans.pop()
            scheduled[node] = _schedule_scan(node, wanted.get(node, set()))
            pending.extend(_needs(node, scheduled))
    return live, scheduled


def _needs(node: Expr, scans: dict[Expr, ScanSchedule], live: set[Expr] | None = None) -> Iterator[Expr]:
    """The nodes a node is computed from; with `live`, also those of them that only have to run before it."""
    if node.op == "scan":
        carry, captures, streams, before = scans[node].arguments(node)
        needs = carry + captures + streams
    else:
        needs = list(node.args[:3])
        before = node.args[3:]
    if live is not None:
        needs += [other for other in before if other in live]
    return iter(needs)


def _schedule_scan(node: Expr, wanted: set[int]) -> ScanSchedule:
    body: LoopBody = node.data
    known = body.schedules.get(frozenset(wanted))
    if known is not None:
        return known
    outputs = [i for i in range(len(body.outputs)) if len(body.results) + i in wanted]
    carry = sorted(i for i in wanted if i < len(body.results))
    while True:
        first = [] if body.proceed is None else [body.proceed]
        targets = [*first, *[body.results[i] for i in carry], *[value for i in outputs for value in body.outputs[i]]]
        schedule = make_schedule(targets)
        used = set(schedule.order)
        needed = [i for i, parameter in enumerate(body.carry) if i in carry or parameter in used]
        if needed == carry:
            break
        carry = needed
    used.update(parameter for parameter in (body.where, body.count) if parameter is not None)
    captures = [i for i, parameter in enumerate(body.captures) if parameter in used]
    streams = [i for i, element in enumerate(body.elements) if not used.isdisjoint(element)]
    found = body.schedules[frozenset(wanted)] = ScanSchedule(body, carry, captures, streams, outputs, schedule)
    return found
