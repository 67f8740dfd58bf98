"""The schedules of the workers of a team: each one's nodes, barriers, and values that they give each other.

A value passes from one worker to others through a slot of memory that they share: its worker sends it, and the others
read it after the next barrier. A slot is used again once the phase of its last reader is over.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from adjoin.compiler.codegen.analysis import FusedSum, overwritten
from adjoin.compiler.codegen.spill import Given
from adjoin.compiler.codegen.team.division import EVERYONE, Division, needs_of
from adjoin.compiler.ir.graph import Expr, Graph
from adjoin.compiler.ir.kinds import FLOAT, STREAM
from adjoin.compiler.ir.schedule import ScanSchedule, Schedule
from adjoin.compiler.ir.scratch import ELEMENT, root


@dataclass(frozen=True, eq=False)
class Part(Schedule):
    """What one worker does of a divided schedule.

    Besides nodes of the schedule its order has some of its own: `barrier`; `send` of a value, whose data is a slot; and
    `receive` of a value from its slot.

    Attributes:
        sums: of the divided schedule, see `fused_sums`.
        complete: of the divided schedule, see `overwritten`.
        given: numbers of other workers that may be read whenever they are needed.
        arrays: arrays and streams that the worker uses: what names their memory where several do, the parameter that
            stands for it, or None; and all nodes that stand for it.
        due: after which place in the order which rows of the division can be written.
    """

    sums: dict[Expr, FusedSum] = field(default_factory=dict)
    complete: set[Expr] = field(default_factory=set)
    given: dict[Expr, Given] = field(default_factory=dict)
    arrays: list[tuple[object, list[Expr]]] = field(default_factory=list)
    due: dict[int, list[int]] = field(default_factory=dict)


def make_parts(division: Division) -> tuple[list[Part], int]:
    """Return the schedule of each worker, and how many slots they need."""
    maker = _Maker(division)
    return [maker.part(w, 0) for w in range(division.workers)], maker.size


class _Maker:
    """Makes the parts of one divided schedule.

    Attributes:
        size: slots that it needs.
        users: of arrays, by their first versions, the workers that read or write them.
    """

    def __init__(self, division: Division):
        self.division = division
        self.schedule, self.workers = division.schedule, division.workers
        self.place = {node: i for i, node in enumerate(self.schedule.order)}
        self.inner = {node: _Maker(inner) for node, inner in division.scans.items()}
        self.phases = [self._phases_of(w) for w in range(self.workers)]
        self.uses: dict[Expr, dict[int, set[int]]] = {}
        for w in range(self.workers):
            self._find_uses(w)
        self._allocate()
        self.users = self._find_users()

    @property
    def is_loop(self) -> bool:
        """Whether it runs again and again."""
        return self.division.scan is not None and self.division.scan.body.where is None

    @property
    def closes(self) -> bool:
        """Whether there is a barrier at the end."""
        division = self.division
        if division.apart:
            return False
        writes = division.scan is not None and any(
            division.scan.body.carry[i].kind in ELEMENT for i in division.scan.carry
        )
        return self.is_loop or writes or any(demand.ends for demand in division.demands)

    def _phases_of(self, worker: int) -> dict[Expr, int]:
        """When a worker computes its nodes; what everyone computes, shortly before the worker needs it."""
        division = self.division
        nodes = division.demands[worker].nodes & self.place.keys()  # not a condition that only the branch itself reads
        first: dict[Expr, int] = {}
        scan = division.scan
        for node in [] if scan is None or scan.body.proceed is None else [scan.body.proceed]:
            first[node] = 0  # whether a loop goes on is known before anything else
        for row, writer in zip(division.rows, division.writers, strict=True):
            for node in row if writer == worker and scan is None else ():
                first[node] = min(first.get(node, division.phases), division.ready(row, worker))
        for node in sorted(nodes, key=self.place.__getitem__, reverse=True):
            fixed = division.worker[node] != EVERYONE or node in division.scans or node.op == "get"
            first[node] = division.phase[node] if fixed else first.get(node, division.phases - 1)
            for arg in self._arguments(worker, node):
                first[arg] = min(first.get(arg, first[node]), first[node])
        return {node: first[node] for node in nodes}

    def _arguments(self, worker: int, node: Expr) -> list[Expr]:
        """The values that a worker needs for a node."""
        if node in self.division.scans:
            return needs_of(node, self.division.scans[node])[worker]
        if node.op == "scan":
            return [*chain(*self.schedule.scans[node].arguments(node)[:3])]
        return [] if node.op == "get" else list(node.args[:3])

    def _find_uses(self, worker: int) -> None:
        """Note when a worker reads what others have."""
        division = self.division

        def use(value: Expr, phase: int) -> None:
            if value.kind not in (*ELEMENT, STREAM) and not division.has(worker, value):
                self.uses.setdefault(value, {}).setdefault(worker, set()).add(phase)

        for node, phase in self.phases[worker].items():
            for value in self._arguments(worker, node):
                use(value, phase)
        for value in division.demands[worker].ends:
            use(value, division.phases)
        for row, writer in zip(division.rows, division.writers, strict=True):
            for value in row if writer == worker and division.scan is None else ():
                use(value, division.ready(row, worker))

    def _allocate(self) -> None:
        """Give each value that is sent a slot, and each divided loop or branch a row of them."""
        division, last = self.division, self.division.phases
        busy: list[int] = []  # of each slot, a bit for each phase in which it is in use

        def span(begin: int, end: int) -> int:
            return (2 << end) - (1 << begin)

        def take(size: int, phases: int) -> int:
            first, k = 0, 0
            while k < size and first + k < len(busy):
                first, k = (first + k + 1, 0) if busy[first + k] & phases else (first, k + 1)
            busy.extend([0] * (first + size - len(busy)))
            for k in range(size):
                busy[first + k] |= phases
            return first

        self.slots: dict[Expr, int] = {}
        self.rows: dict[Expr, int] = {}
        for node, inner in self.inner.items():
            self.rows[node] = take(inner.size, span(division.phase[node], division.phase[node]))
        for value in sorted(self.uses, key=lambda value: (division.phase[value], self.place[value])):
            end = max(chain(*self.uses[value].values()))
            # What is read at the end of a step of a loop may be read while the next one begins.
            again = span(0, 0) if end == last and self.is_loop else 0
            self.slots[value] = take(1, span(division.phase[value], end) | again)
        self.size = len(busy)

    def _find_users(self) -> dict[Expr, set[int]]:
        users: dict[Expr, set[int]] = {}

        def use(array: Expr, workers: Iterable[int]) -> None:
            if array.kind in ELEMENT:
                users.setdefault(root(array), set()).update(workers)

        for node in self.schedule.order:
            worker = self.division.worker[node]
            own = range(self.workers) if worker == EVERYONE else [worker]
            if node.op == "scan":
                for parameter, value in self.schedule.scans[node].parameters(node):
                    use(value, self.inner[node].users.get(parameter, ()) if node in self.inner else own)
            elif node.op in ("load", "store", "accumulate"):
                use(node.args[0], own)
            elif node.op == "scratch" and node not in self.complete:
                use(node, own)
        scan = self.division.scan
        if scan is not None and self.division.spread:  # all of it is written for every worker
            carried, captured = [scan.body.carry[i] for i in scan.carry], [scan.body.captures[i] for i in scan.captures]
            for parameter in [*carried, *captured]:
                use(parameter, range(self.workers))
        return users

    @cached_property
    def complete(self) -> set[Expr]:
        """Arrays that need not be cleared."""
        return overwritten(self.schedule)

    @cached_property
    def versions(self) -> dict[Expr, list[Expr]]:
        """Of arrays and streams, by the first, the nodes that stand for their memory."""
        versions: dict[Expr, list[Expr]] = {}
        for node in self.schedule.order:
            if node.kind in ELEMENT:
                versions.setdefault(root(node), []).append(node)
            elif node.kind == STREAM and node.op == "get":
                versions[node] = [node]
        return versions

    def arrays(self, worker: int) -> list[tuple[object, list[Expr]]]:
        """The arrays of a worker; see `Part`."""
        found: list[tuple[object, list[Expr]]] = []
        for first, nodes in self.versions.items():
            users = self.users.get(first, ())
            if first.op == "param":
                found.append((first, nodes))
            elif first.kind == STREAM or (len(users) > 1 and worker in users):
                found.append(((self.division, first), nodes))
            elif worker in users:
                found.append((None, nodes))
        return found

    def part(self, worker: int, base: int) -> Part:
        """The schedule of a worker.

        Args:
            worker: which.
            base: the first slot of this schedule.
        """
        division, schedule, phases = self.division, self.schedule, self.phases[worker]
        own = Graph()
        order: list[Expr] = []
        numbers: list[Expr] = []
        begins: list[int] = []
        scans: dict[Expr, ScanSchedule] = {}
        waiting = {value for value in self.uses if division.giver(value) == worker}
        by_phase: list[list[Expr]] = [[] for _ in range(division.phases)]
        for node in sorted(phases, key=self.place.__getitem__):
            by_phase[phases[node]].append(node)
        received: set[Expr] = set()
        for phase, nodes in enumerate(by_phase):
            begins.append(len(order))
            if phase:
                order.append(own.fresh("barrier"))
            for value, readers in self.uses.items():
                if phase not in readers.get(worker, ()) or value in received:
                    continue
                received.add(value)
                if value.kind == FLOAT:
                    numbers.append(value)
                else:
                    order.append(own.fresh("receive", (value,), base + self.slots[value], value.kind))
            for node in nodes:
                order.append(node)
                if node.op == "scan":
                    scans[node] = self._scan(node, worker, base)
                if node in waiting:
                    waiting.discard(node)
                    order.append(own.fresh("send", (node,), base + self.slots[node]))
        if waiting:
            raise AssertionError(f"values that others wait for are not computed: {waiting}")
        if self.closes:
            order.append(own.fresh("barrier"))
            for value in division.demands[worker].ends:
                order.append(own.fresh("receive", (value,), base + self.slots[value], value.kind))
            if self.is_loop and any(division.phase[value] == 0 for demand in division.demands for value in demand.ends):
                order.append(own.fresh("barrier"))  # the next step begins with sending these again
        at = {node: i for i, node in enumerate(order)}
        due: dict[int, list[int]] = {}
        for k, (row, writer) in enumerate(zip(division.rows, division.writers, strict=True)):
            if writer == worker and division.scan is None:
                first = begins[division.ready(row, worker)]
                if order[first].op == "barrier":
                    first += 1
                if first == len(order):
                    order.append(own.integer(0))  # what is read after a barrier is read before another node
                due.setdefault(max([first, *[at[node] for node in row if node in at]]), []).append(k)
        targets = [node for node in schedule.targets if division.has(worker, node)]
        given: dict[Expr, Given] = {}
        for value in numbers:
            last = max(chain(*self.uses[value].values())) + 1
            given[value] = Given(base + self.slots[value], begins[last] + 1 if last < len(begins) else len(order))
        return Part(order, scans, targets, division.sums, self.complete, given, self.arrays(worker), due)

    def _scan(self, node: Expr, worker: int, base: int) -> ScanSchedule:
        """A loop or branch as a worker runs it."""
        scan = self.schedule.scans[node]
        if node not in self.inner:
            return scan
        inner, demand = self.division.scans[node], self.division.scans[node].demands[worker]
        if inner.spread:
            return replace(scan, workers=self.workers)
        body = scan.body
        arrays = [
            i
            for i in scan.carry
            if body.carry[i].kind in ELEMENT and worker in self.inner[node].users.get(body.carry[i], ())
        ]
        captures = [
            i
            for i in scan.captures
            if body.captures[i] in demand.parameters or worker in self.inner[node].users.get(body.captures[i], ())
        ]
        return ScanSchedule(
            body,
            sorted({*demand.kept, *arrays}),
            captures,
            [i for i in scan.streams if not demand.parameters.isdisjoint(body.elements[i])],
            [i for i, writer in zip(scan.outputs, inner.writers, strict=True) if writer == worker],
            self.inner[node].part(worker, base + self.rows[node]),
            together=not inner.apart,
        )
