"""Who computes which node, and when: the longest way through all phases should be short."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from adjoin.compiler.codegen.analysis import fused_sums
from adjoin.compiler.codegen.team.affinity import SHARED, Affinity
from adjoin.compiler.codegen.team.apart import share_steps, share_sums
from adjoin.compiler.codegen.team.dependencies import find_dependencies
from adjoin.compiler.codegen.team.division import (
    AT_HAND,
    EVERYONE,
    Division,
    can_divide,
    find_demands,
    needs_of,
    steps_of,
    work_of,
    writer_of,
)
from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.kinds import BOOL, INT, STREAM
from adjoin.compiler.ir.op import OPS
from adjoin.compiler.ir.schedule import ScanSchedule, Schedule
from adjoin.compiler.ir.scratch import ELEMENT

BARRIER = 40.0
"""Instructions that a worker could have run while it waits for others."""

REPEATED = 150
"""Instructions of a schedule that everyone may compute."""

GAIN = 100.0
"""Instructions that dividing the body of a loop or branch has to save."""


def choose_homes(schedule: Schedule, affinity: Affinity, workers: int) -> dict[int, int]:
    """Give each group a worker, so that they have about the same to do."""
    loads: defaultdict[int, float] = defaultdict(float)

    def add(schedule: Schedule, affinity: Affinity, weight: float) -> None:
        for node in schedule.order:
            if node.op == "scan":
                scan = schedule.scans[node]
                add(scan.schedule, affinity.scans[node], weight * steps_of(scan))
            else:
                loads[affinity.groups.get(node) or SHARED] += weight * OPS[node.op].cost

    add(schedule, affinity, 1.0)
    busy = [0.0] * workers
    homes: dict[int, int] = {}
    for group in sorted(loads.keys() - {SHARED}, key=lambda group: (-loads[group], group)):
        homes[group] = busy.index(min(busy))
        busy[homes[group]] += loads[group]
    homes[SHARED] = busy.index(min(busy))
    return homes


def divide(
    schedule: Schedule,
    affinity: Affinity,
    homes: Mapping[int, int],
    workers: int,
    rows: Sequence[Sequence[Expr]],
    scan: ScanSchedule | None = None,
) -> Division:
    """Divide a schedule, and those of its loops and branches where that makes them faster.

    Args:
        schedule: of a program, or of the body of a loop or branch.
        affinity: of its nodes.
        homes: the worker of each group.
        workers: how many there are.
        rows: what is written together.
        scan: whose body it is, if it is one.
    """
    sums, scans = fused_sums(schedule), dict[Expr, Division]()
    for node, inner in schedule.scans.items():
        ways = [share_steps(inner, workers), share_sums(inner, workers)]
        if can_divide(inner):
            outputs = [inner.body.outputs[i] for i in inner.outputs]
            together = divide(inner.schedule, affinity.scans[node], homes, workers, outputs, inner)
            ways.append(together if is_closed(together) else None)
        best = min([way for way in ways if way is not None], key=lambda way: way.cost, default=None)
        if best is not None and steps_of(inner) * best.cost + GAIN < work_of(inner):
            scans[node] = best
    plans = [Division(schedule, workers, sums, rows, scan, scans=scans) for _ in range(2)]
    for plan, spread in zip(plans, (False, True), strict=True):
        _Placement(plan, affinity, homes, spread).run()
    best = min(plans, key=lambda plan: plan.cost)
    best.writers = [writer_of(best, row) for row in rows]
    if scan is None:
        ready = [best.ready(row, writer) for row, writer in zip(rows, best.writers, strict=True)]
        best.phases = max([best.phases, *[phase + 1 for phase in ready]])
    best.demands = find_demands(best)
    return best


def is_closed(division: Division) -> bool:
    """Whether every worker finds out by itself whether a loop goes on."""
    assert division.scan is not None
    proceed = division.scan.body.proceed
    return proceed is None or proceed.op in AT_HAND or division.worker[proceed] == EVERYONE


class _Placement:
    """Chooses workers and phases."""

    def __init__(self, division: Division, affinity: Affinity, homes: Mapping[int, int], spread: bool):
        self.division, self.groups, self.homes, self.spread = division, affinity.groups, homes, spread
        self.schedule, self.workers = division.schedule, division.workers
        self.before = find_dependencies(self.schedule)
        self.after: dict[Expr, list[Expr]] = {}
        for node, before in self.before.items():
            for other in before:
                self.after.setdefault(other, []).append(node)
        self.products = {fused.product: node for node, fused in division.sums.items()}
        self.load: defaultdict[tuple[int, int], float] = defaultdict(float)

    def run(self) -> None:
        """Choose workers, then move what can wait to phases in which its worker has less to do than others."""
        preferred = self.prefer()
        self.place(preferred)
        self.delay()
        self.count()

    def own(self, node: Expr) -> int | None:
        """The worker of a node's group."""
        group = self.groups.get(node)
        return self.homes.get(group) if group else None

    def prefer(self) -> dict[Expr, int]:
        """The workers of nodes with a group, and of what only they read."""
        preferred: dict[Expr, int] = {}
        for node in reversed(self.schedule.order):
            own = self.own(node)
            if own is None and self.groups.get(node) is None and node.op != "scan":
                readers = {preferred.get(reader) for reader in self.after.get(node, ())}
                own = readers.pop() if len(readers) == 1 else None
            if own is not None:
                preferred[node] = own
        return preferred

    def place(self, preferred: Mapping[Expr, int]) -> None:
        """Give every node a worker and the first phase in which it can be computed."""
        division, worker, phase = self.division, self.division.worker, self.division.phase
        repeated = 0.0
        for node in self.schedule.order:
            cost = self.cost(node)
            if node.op in AT_HAND or node in division.scans:
                worker[node] = EVERYONE
            elif node.op == "get":
                worker[node] = worker[node.args[0]]
            elif self.is_repeatable(node) and (node.kind in (BOOL, INT) or repeated + cost <= REPEATED):
                repeated += cost if node.kind not in (BOOL, INT) else 0.0
                worker[node] = EVERYONE
            elif node in preferred:
                worker[node] = preferred[node]
            else:
                worker[node] = self.greedy(node)
            phase[node] = self.earliest(node)
            if worker[node] != EVERYONE:
                self.load[phase[node], worker[node]] += cost
        for product, total in self.products.items():  # they are one instruction
            if worker[product] != worker[total]:
                self.load[phase[product], worker[product]] -= self.cost(product)
            worker[product] = worker[total]
        self.settle()

    def settle(self) -> None:
        """Compute all phases again, for workers that have changed."""
        division = self.division
        self.load.clear()
        for node in self.schedule.order:
            division.phase[node] = self.earliest(node)
            if division.worker[node] != EVERYONE:
                self.load[division.phase[node], division.worker[node]] += self.cost(node)
        for product, total in self.products.items():
            division.phase[product] = division.phase[total]

    def cost(self, node: Expr) -> float:
        """Instructions of a node."""
        if node in self.division.scans or node in self.products:
            return 0.0
        if node.op == "scan":
            return work_of(self.schedule.scans[node])
        return OPS[node.op].cost if node.op not in AT_HAND and node.op != "get" else 0.0

    def is_repeatable(self, node: Expr) -> bool:
        """Whether a node depends on nothing but what everyone has or computes."""
        division = self.division
        if node.kind in ELEMENT or node.op in ("load", "scan", "get"):
            return False
        if self.groups.get(node) and node.kind not in (BOOL, INT):
            return False
        return all(division.worker[other] == EVERYONE and other.op != "get" for other in self.before[node])

    def greedy(self, node: Expr) -> int:
        """The worker that can compute a node first, or of several the one with least to do."""
        options = range(self.workers)
        if node.op != "scan" and not self.spread:
            own = {self.division.worker[other] for other in self.before[node]} - {EVERYONE}
            options = own if len(own) == 1 else [self.homes[SHARED]]
        if len(options) == 1:
            return next(iter(options))

        def rank(worker: int) -> tuple[float, ...]:
            first = self.earliest(node, worker)
            given = sum(not self.division.has(worker, other) for other in self.before[node])
            return first, self.load[first, worker] + 3 * given, worker

        return min(options, key=rank)

    def earliest(self, node: Expr, worker: int | None = None) -> int:
        """The first phase in which a worker can compute a node."""
        division = self.division
        worker = division.worker[node] if worker is None else worker
        if node.op == "get" and node.args[0] in division.scans:
            # What was the last to be written to memory can be read after the next barrier.
            in_memory = node.kind == STREAM or (node.kind in ELEMENT and self.is_apart(node.args[0]))
            return division.phase[node.args[0]] + in_memory
        if node in division.scans:
            return max((self.since(other, w) for other, w in self.needed_inside(node)), default=0)
        if worker == EVERYONE and node.op != "get":
            return 0
        return max((self.since(other, worker) for other in self.before[node]), default=0)

    def since(self, node: Expr, worker: int) -> int:
        """The first phase in which a worker can read a value."""
        division = self.division
        if node.op in AT_HAND:
            return 0
        if self.is_apart(node):
            return division.phase[node] + 1
        if worker == EVERYONE or division.has(worker, node):
            return division.phase[node]
        return division.phase[node] + 1

    def is_apart(self, node: Expr) -> bool:
        """Whether a node is a loop that workers run apart."""
        return node in self.division.scans and self.division.scans[node].apart

    def needed_inside(self, node: Expr) -> list[tuple[Expr, int]]:
        """What workers need for the body of a divided loop or branch: pairs of a node before it and a worker."""
        inner = self.division.scans[node]
        values = needs_of(node, inner)
        pairs = [(value, w) for w in range(self.workers) for value in values[w] if value.kind not in ELEMENT]
        arrays = {other for other in self.before[node] if other.kind in ELEMENT or other.op in ("load", "scan")}
        return pairs + [(other, w) for other in arrays for w in range(self.workers)]

    def delay(self) -> None:
        """Move nodes to later phases where that shortens a phase without making another longer."""
        division, phase = self.division, self.division.phase
        phases = 1 + max(phase.values(), default=0)
        longest = [max(self.load[p, w] for w in range(self.workers)) for p in range(phases)]
        for node in reversed(self.schedule.order):
            worker, cost = division.worker[node], self.cost(node)
            if worker == EVERYONE or cost == 0.0 or node.op == "scan":
                continue
            now, last = phase[node], phases - 1
            for reader in self.after.get(node, ()):
                reader = self.products.get(reader, reader)
                last = min(last, self.latest_for(node, reader))
            if self.load[now, worker] < longest[now]:
                continue
            room = {p: longest[p] - self.load[p, worker] - cost for p in range(now + 1, last + 1)}
            best = max(room, key=lambda p: (room[p], p), default=now)
            if best != now and room[best] >= 0.0:
                phase[node] = best
                self.load[now, worker] -= cost
                self.load[best, worker] += cost
                longest[now] = max(self.load[now, w] for w in range(self.workers))
        for product, total in self.products.items():
            phase[product] = phase[total]

    def latest_for(self, node: Expr, reader: Expr) -> int:
        """The last phase in which a node can be computed for one that needs it."""
        division = self.division
        if reader in division.scans:
            return division.phase[reader] - 1
        if reader.op == "get" or division.worker[reader] == EVERYONE:
            return division.phase[reader]
        return division.phase[reader] - (not division.has(division.worker[reader], node))

    def count(self) -> None:
        """Sum up what the longest way takes."""
        division = self.division
        division.phases = 1 + max(division.phase.values(), default=0)
        everyone = sum(self.cost(node) for node in self.schedule.order if division.worker[node] == EVERYONE)
        exchanged = Counter[tuple[int, int]]()
        for node in self.schedule.order:
            if division.worker[node] != EVERYONE:
                others = {
                    division.worker[reader]
                    for reader in self.after.get(node, ())
                    if division.worker[reader] not in (EVERYONE, division.worker[node])
                }
                if others and node.kind not in ELEMENT:
                    exchanged[division.phase[node], division.worker[node]] += 1
                    for other in others:
                        exchanged[division.phase[node] + 1, other] += 1
        total = everyone + sum(division.scans[n].cost * steps_of(self.schedule.scans[n]) for n in division.scans)
        for p in range(division.phases):
            total += max(self.load[p, w] + exchanged[p, w] for w in range(self.workers))
        division.cost = total + BARRIER * (division.phases - (division.scan is None))
