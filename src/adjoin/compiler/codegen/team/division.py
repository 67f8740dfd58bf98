"""Who computes what, and when: the nodes of a schedule divided among workers, in phases with barriers between them.

A worker computes the nodes of some groups (see `affinity`). What needs values of other workers comes in a later phase.
What is cheap and depends on inputs alone is computed by everyone who needs it. A loop or branch is a node like any
other, done by one worker, or its body is divided too. Then all workers run it together, for as long as it has something
to do in any environment of the team; or apart, without waiting for each other until it has ended (see `apart`).

A division changes who computes a value, never how, so that results have the same bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from weakref import WeakKeyDictionary

from adjoin.compiler.codegen.analysis import FusedSum, fused_sums
from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.op import OPS
from adjoin.compiler.ir.schedule import ScanSchedule, Schedule
from adjoin.compiler.ir.scratch import ELEMENT

EVERYONE = -1
"""The worker of what each worker computes that needs it."""

STEPS = 4
"""How often a loop runs whose trip count is not known, at a guess."""

SELDOM = 0.25
"""How often a branch is taken whose condition differs between environments, at a guess."""

AT_HAND = frozenset(("boolean", "const", "constants", "input", "integer", "length", "param", "stream", "table"))
"""What every worker has or reads."""


@dataclass(eq=False)
class Division:
    """How the nodes of a schedule are divided.

    Attributes:
        schedule: what is divided.
        workers: how many there are.
        sums: of the schedule, as `fused_sums`.
        rows: what is written together: pieces of outputs, or elements of the streams that a loop writes.
        scan: whose body it is, if it is one.
        writers: who writes each row.
        worker: who computes a node.
        phase: when.
        phases: how many there are.
        scans: divisions of the bodies of the loops and branches that all workers run.
        cost: instructions from the beginning to the end; of a loop, of one step.
        demands: of each worker.
        apart: whether workers run the loop whose body it is without waiting for each other.
        spread: whether each of them takes some of its steps.
    """

    schedule: Schedule
    workers: int
    sums: dict[Expr, FusedSum]
    rows: Sequence[Sequence[Expr]]
    scan: ScanSchedule | None = None
    writers: list[int] = field(default_factory=list)
    worker: dict[Expr, int] = field(default_factory=dict)
    phase: dict[Expr, int] = field(default_factory=dict)
    phases: int = 1
    scans: dict[Expr, "Division"] = field(default_factory=dict)
    cost: float = 0.0
    demands: "list[Demand]" = field(default_factory=list)
    apart: bool = False
    spread: bool = False

    def has(self, worker: int, node: Expr) -> bool:
        """Whether a worker has a value without being given it."""
        if node.op in AT_HAND:
            return True
        if node.op == "get" and node.args[0] in self.scans:
            inner = self.scans[node.args[0]]
            position = node.data
            if position >= len(node.args[0].data.results):
                return True  # a stream lies where all can read it
            return position in inner.demands[worker].kept
        return self.worker[node] in (EVERYONE, worker)

    def ready(self, row: Sequence[Expr], worker: int) -> int:
        """The first phase in which a worker can have or read all of a row."""
        return max((self.phase[x] + (not self.has(worker, x)) for x in row if x.op not in AT_HAND), default=0)

    def giver(self, node: Expr) -> int:
        """The worker that gives a value to others."""
        if self.worker[node] != EVERYONE:
            return self.worker[node]
        return next(w for w in range(self.workers) if self.has(w, node))


@dataclass
class Demand:
    """What one worker needs of a divided schedule.

    Attributes:
        nodes: that it computes.
        parameters: of the body that it reads.
        kept: positions of the carried values that it carries.
        ends: values of others that it needs when a step of the loop ends.
    """

    nodes: set[Expr] = field(default_factory=set)
    parameters: set[Expr] = field(default_factory=set)
    kept: set[int] = field(default_factory=set)
    ends: list[Expr] = field(default_factory=list)


def work_of(scan: ScanSchedule) -> float:
    """Estimate the instructions of a loop or branch."""
    return steps_of(scan) * sum_of_work(scan.schedule)


def sum_of_work(schedule: Schedule) -> float:
    """Estimate the instructions of a schedule."""
    if schedule not in _works:
        plain = sum(OPS[node.op].cost for node in schedule.order if node.op not in AT_HAND and node.op != "get")
        _works[schedule] = plain - len(fused_sums(schedule)) + sum(map(work_of, schedule.scans.values()))
    return _works[schedule]


_works: "WeakKeyDictionary[Schedule, float]" = WeakKeyDictionary()


def steps_of(scan: ScanSchedule) -> float:
    """Guess how often the body of a loop or branch runs."""
    length = scan.body.length
    if scan.body.where is not None:
        return 1 if scan.body.where.uniform else SELDOM
    if not isinstance(length, int):
        return 1
    return min(length, STEPS) if scan.count is not None or scan.body.proceed is not None else length


def can_divide(scan: ScanSchedule) -> bool:
    """Whether all threads of a team can run a loop or branch together, as often as any of its environments needs."""
    body = scan.body
    if scan.count is not None:
        return False
    if body.where is not None and body.where.uniform:  # what its body writes to arrays is not masked
        return not any(body.carry[i].kind in ELEMENT for i in scan.carry)
    return True


def needs_of(node: Expr, inner: Division) -> list[list[Expr]]:
    """For each worker, the values around a divided loop or branch that it needs for its body."""
    assert inner.scan is not None
    scan, body = inner.scan, inner.scan.body
    initial, captured, streams, _ = scan.arguments(node)
    needed: list[list[Expr]] = []
    for demand in inner.demands:
        values = [v for i, v in zip(scan.captures, captured, strict=True) if body.captures[i] in demand.parameters]
        values += [v for i, v in zip(scan.carry, initial, strict=True) if i in demand.kept]
        values += [
            v for i, v in zip(scan.streams, streams, strict=True) if not demand.parameters.isdisjoint(body.elements[i])
        ]
        needed.append(values)
    return needed


def find_demands(division: Division) -> list[Demand]:
    """What each worker needs of a divided schedule."""
    demands = [_demand(division, w, ()) for w in range(division.workers)]
    if division.scan is not None:
        kept = set().union(*[demand.kept for demand in demands])
        left = [i for i in division.scan.carry if i not in kept]
        if left:
            demands[0] = _demand(division, 0, left)
    return demands


def _demand(division: Division, worker: int, extra: Sequence[int]) -> Demand:
    schedule, scan = division.schedule, division.scan
    demand = Demand()
    places: dict[Expr, int] = {}
    stack: list[Expr] = []

    def keep(position: int) -> None:
        if position in demand.kept:
            return
        assert scan is not None
        demand.kept.add(position)
        result = scan.body.results[position]
        stack.append(result)
        if result.kind not in ELEMENT and not division.has(worker, result):
            demand.ends.append(result)

    if scan is not None:
        body = scan.body
        places = {body.carry[i]: i for i in scan.carry}
        stack += [value for value in (body.where, body.count, body.proceed) if value is not None]
        for i in scan.carry:
            result = body.results[i]
            if i in extra or (result.op not in AT_HAND and division.worker[result] == worker):
                keep(i)
    for row, writer in zip(division.rows, division.writers, strict=True):
        if writer == worker:
            stack += row
            if scan is not None:
                demand.ends += [value for value in row if not division.has(worker, value)]
    stack += [node for node in schedule.order if division.worker[node] == worker or node in division.scans]
    stack += [node for node in schedule.order if node.op == "get" and node.args[0] in division.scans]
    seen: set[Expr] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op == "param":
            demand.parameters.add(node)
            if node in places:
                keep(places[node])
        if node.op == "get":
            stack.append(node.args[0])
            if division.has(worker, node):
                demand.nodes.add(node)
            continue
        if node.op == "scan" and node in division.scans:
            demand.nodes.add(node)
            stack += needs_of(node, division.scans[node])[worker]
            continue
        if not division.has(worker, node):
            continue
        if node.op not in ("stream", "table"):
            demand.nodes.add(node)
        if node.op == "scan":
            stack += chain(*schedule.scans[node].arguments(node)[:3])
        else:
            stack += node.args[:3]
    demand.ends = list(dict.fromkeys(demand.ends))
    return demand


def writer_of(division: Division, row: Sequence[Expr]) -> int:
    """The worker that writes a row: the one that has most of it."""
    return max(range(division.workers), key=lambda w: (sum(division.has(w, value) for value in row), -w))
