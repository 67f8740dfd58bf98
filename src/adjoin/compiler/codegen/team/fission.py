"""Loops as two: one does what has no order among the steps, the other goes on from there, step by step.

Workers can share the steps of the first, which leaves numbers for the second: what is added up, what is written where
the data says, what is appended to a list. Each value is computed as it was, fused with others or not, so that results
have the same bits.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from adjoin.compiler.codegen.analysis import fused_sums
from adjoin.compiler.codegen.team.division import AT_HAND, can_divide, work_of
from adjoin.compiler.codegen.team.iterations import own_arrays
from adjoin.compiler.ir.control_flow import LoopBody, finals, output_stream
from adjoin.compiler.ir.graph import Expr, Graph, as_number
from adjoin.compiler.ir.kinds import BOOL, FLOAT, INT
from adjoin.compiler.ir.op import OPS
from adjoin.compiler.ir.ops import select
from adjoin.compiler.ir.program import Computation, Program, input_nodes
from adjoin.compiler.ir.rewrite import copy_node
from adjoin.compiler.ir.schedule import ScanSchedule, Schedule
from adjoin.compiler.ir.scratch import ELEMENT, root

Rows = Sequence[Sequence[Expr]]

LEAST = 30
"""Instructions without an order that make it worthwhile to split a loop."""

PASSED = 3
"""Instructions that it takes to pass a number from the first loop to the second."""

CHUNK = 32
"""Steps of a loop that are taken by the first before the second takes them, so that little has to be kept."""


@dataclass
class Cut:
    """Where a schedule is cut.

    Attributes:
        ordered: nodes that depend on the steps before.
        left: numbers and conditions that they read of the others.
        branches: branches of which only a part is ordered.
        parameters: of the schedule, that the ordered part reads.
    """

    ordered: set[Expr]
    left: list[Expr] = field(default_factory=list)
    branches: dict[Expr, "Cut"] = field(default_factory=dict)
    parameters: set[Expr] = field(default_factory=set)

    @property
    def size(self) -> int:
        """Numbers that are passed."""
        return len(self.left) + sum(cut.size for cut in self.branches.values())

    def work(self, schedule: Schedule) -> float:
        """Estimate the instructions that have no order."""
        total = sum(cut.work(schedule.scans[node].schedule) for node, cut in self.branches.items())
        for node in schedule.order:
            if node in self.ordered or node.op in AT_HAND or node.op == "get":
                continue
            total += work_of(schedule.scans[node]) if node.op == "scan" else OPS[node.op].cost
        return total


class _Tied(Exception):
    """A schedule cannot be cut: more than numbers would have to pass."""


def find_cut(scan: ScanSchedule) -> tuple[Cut, set[int]] | None:
    """Where to cut a loop, and the positions of what its ordered part carries; None if it stays whole."""
    body, schedule = scan.body, scan.schedule
    if body.where is not None or body.proceed is not None or not isinstance(body.length, int) or body.length < 2:
        return None
    carried = set(scan.carry) - own_arrays(scan)
    while True:
        ordered = _dependents(schedule, [body.carry[i] for i in carried])
        more = {i for i in scan.carry if body.results[i] in ordered} - carried
        if not more:
            break
        carried |= more
    outputs = [value for i in scan.outputs if not ordered.isdisjoint(body.outputs[i]) for value in body.outputs[i]]
    try:
        cut = _cut(schedule, ordered, [*[body.results[i] for i in carried], *outputs])
    except _Tied:
        return None
    if not carried or any(body.carry[i] in cut.parameters for i in scan.carry if i not in carried):
        return None
    return (cut, carried) if cut.work(schedule) - PASSED * cut.size > LEAST else None


def _dependents(schedule: Schedule, sources: Sequence[Expr]) -> set[Expr]:
    """The nodes that depend on some parameters."""
    found = set(sources)
    for node in schedule.order:
        scan = schedule.scans.get(node)
        if not found.isdisjoint(node.args[:3] if scan is None else chain(*scan.arguments(node)[:3])):
            found.add(node)
    return found


def _cut(schedule: Schedule, ordered: set[Expr], results: Sequence[Expr]) -> Cut:
    """Cut a schedule between nodes that are ordered, and others."""
    cut, fused, written = Cut(ordered), fused_sums(schedule), _written(schedule)
    left: dict[Expr, None] = {}
    known: set[Expr] = set()

    def read(node: Expr) -> None:
        if node in ordered or node in known:
            return
        known.add(node)
        if node.op == "param":
            cut.parameters.add(node)
        elif node.op in AT_HAND:
            return
        elif node.kind == INT and node.op not in ("get", "scan"):  # computed again
            for arg in node.args[:3]:
                read(arg)
        elif node.kind in (FLOAT, BOOL):
            left[node] = None
        else:
            raise _Tied

    for node in schedule.order:
        if node not in ordered or node.op in ("get", "param"):
            continue
        reads: Sequence[Expr] = node.args[:3]
        if node.op == "scan":
            inner = schedule.scans[node]
            initial, captured, streams, _ = inner.arguments(node)
            outside = [value for value in (*initial, *captured) if value.kind in ELEMENT and value not in ordered]
            fixed = all(value.op == "param" and value not in written for value in outside)
            part = _cut_branch(node, inner, ordered) if fixed else None
            if part is not None:
                cut.branches[node] = part
                captured = _captured(inner, captured, part)
            reads = [*initial, *captured, *streams]
        elif node in fused and fused[node].product not in ordered:
            product = fused[node].product
            reads = [*[arg for arg in reads if arg is not product], *product.args]
        for value in reads:
            read(value)
    for value in results:
        read(value)
    cut.left = [*left]
    return cut


def _written(schedule: Schedule) -> set[Expr]:
    """The arrays that a schedule writes."""
    arrays = [node.args[0] for node in schedule.order if node.op in ("store", "accumulate")]
    arrays += [value for node, scan in schedule.scans.items() for value in scan.arguments(node)[0]]
    return {root(array) for array in arrays if array.kind in ELEMENT}


def _cut_branch(node: Expr, scan: ScanSchedule, ordered: set[Expr]) -> Cut | None:
    """Where to cut a branch; None if it stays whole."""
    body = scan.body
    if scan.where is None or scan.arguments(node)[1][scan.where] in ordered:
        return None
    sources = [parameter for parameter, value in scan.parameters(node) if value in ordered]
    inside = _dependents(scan.schedule, sources)
    try:
        cut = _cut(scan.schedule, inside, [body.results[i] for i in scan.carry])
    except _Tied:
        return None
    return cut if cut.work(scan.schedule) - PASSED * cut.size > LEAST else None


def _captured(scan: ScanSchedule, captured: Sequence[Expr], cut: Cut) -> list[Expr]:
    """What the ordered part of a branch captures: its condition too."""
    needed = {*cut.parameters, *cut.ordered, scan.body.where}
    return [value for i, value in zip(scan.captures, captured, strict=True) if scan.body.captures[i] in needed]


def split_loops(program: Program) -> Program:
    """Return a program in which loops are two where that lets workers share steps."""
    graph = Graph()
    sources = tuple(input_nodes(graph, spec, i) for i, spec in enumerate(program.inputs))
    copier = _Copier(program.schedule, dict(zip(chain(*program.sources), chain(*sources), strict=True)), graph)
    targets = tuple(copier.copy(program.targets))
    computation = Computation(sources, targets, (sources, targets))
    return Program(program.name, program.inputs, program.outputs, program.integers, computation)


class _Copier:
    """Writes the nodes of a schedule again, with its loops split.

    Args:
        schedule: what is written.
        mapping: nodes that are written already; it grows.
        graph: where to write.
        splits: whether loops are split at all.
        body: of a loop or branch, that it writes.
    """

    def __init__(
        self,
        schedule: Schedule,
        mapping: dict[Expr, Expr],
        graph: Graph,
        splits: bool = True,
        body: LoopBody | None = None,
    ):
        self.schedule, self.mapping, self.graph, self.splits = schedule, mapping, graph, splits
        self.inside = body
        self.parts: dict[Expr, tuple[Cut, list[Expr]]] = {}
        self.results: dict[Expr, dict[int, Expr]] = {}

    @property
    def body(self) -> LoopBody:
        """Return the body that it writes."""
        assert self.inside is not None
        return self.inside

    def copy(self, rows: Rows) -> list[list[Expr]]:
        """Write what some nodes need; return their copies. All that is needed of a graph is written by one call."""
        found: set[Expr] = set()
        stack = [*chain(*rows)]
        while stack:
            node = stack.pop()
            if node not in found and node not in self.mapping:
                found.add(node)
                stack.extend(self.arguments(node))
        for node in sorted(found, key=lambda node: node.index):
            if node.op == "scan":
                self.results[node] = self.copy_scan(node)
            elif node.op == "get":
                self.mapping[node] = self.results[node.args[0]][node.data]
            else:
                arguments = [self.mapping[arg] for arg in node.args[:3]]
                self.mapping[node] = copied = copy_node(node, arguments, self.graph)
                copied.uniform = node.uniform
        return [[self.mapping[target] for target in row] for row in rows]

    def arguments(self, node: Expr) -> Sequence[Expr]:
        """What a node is computed from."""
        if node in self.results:
            return ()
        if node.op != "scan":
            return node.args[:3]
        scan = self.schedule.scans[node]
        initial, captured, streams, _ = scan.arguments(node)
        if node in self.parts:
            captured = _captured(scan, captured, self.parts[node][0])
        return [*initial, *captured, *streams]

    def copy_scan(self, node: Expr) -> dict[int, Expr]:
        """Write a loop or branch; return its results by position."""
        scan = self.schedule.scans[node]
        if node in self.parts:
            return self.rest_of_branch(node, scan, *self.parts[node])
        found = find_cut(scan) if self.splits else None
        if found is None:
            return self.whole(node, scan)
        first = self.first(node, scan)
        if isinstance(scan.body.length, int) and scan.body.length > CHUNK:
            return self.in_chunks(node, scan, *found, first, scan.body.length)
        return self.split(node, scan, *found, first)

    def first(self, node: Expr, scan: ScanSchedule) -> dict[int, Expr]:
        """What a scan carries at first, by position."""
        return {i: self.mapping[value] for i, value in zip(scan.carry, scan.arguments(node)[0], strict=True)}

    def begin(self, node: Expr, scan: ScanSchedule, first: Mapping[int, Expr], splits: bool) -> "_Copier":
        """Begin a body that carries some values from the first on, by position, and what writes into it."""
        old, body = scan.body, LoopBody.begin(self.graph, scan.body.length, scan.body.reverse)
        inside = {old.counter: body.counter}
        inside.update({old.carry[i]: body.add_carry(value) for i, value in first.items()})
        for i, value in zip(scan.captures, scan.arguments(node)[1], strict=True):
            if value in self.mapping:
                inside[old.captures[i]] = body.graph.lift(self.mapping[value])
        for i in scan.streams:
            inside.update(zip(old.elements[i], body.add_stream(len(old.elements[i])), strict=True))
        return _Copier(scan.schedule, inside, body.graph, splits, body)

    def close(
        self, node: Expr, scan: ScanSchedule, inner: "_Copier", first: Mapping[int, Expr], more: Sequence[Expr] = ()
    ) -> Expr:
        """The finished scan, which may read more streams."""
        if inner.body.count is None:  # unless it has one of its own, of a chunk
            inner.body.copy_options(scan.body, inner.mapping)
        streams = [self.mapping[stream] for stream in scan.arguments(node)[2]]
        return inner.body.close([*first.values()], [*streams, *more])

    def whole(self, node: Expr, scan: ScanSchedule) -> dict[int, Expr]:
        """Write the live part of a loop or branch."""
        old, first = scan.body, self.first(node, scan)
        inner = self.begin(node, scan, first, self.splits and can_divide(scan))
        condition = [] if old.proceed is None else [old.proceed]
        rows = [[old.results[i] for i in scan.carry], *[old.outputs[i] for i in scan.outputs]]
        condition, inner.body.results, *inner.body.outputs = inner.copy([condition, *rows])
        inner.body.proceed = condition[0] if condition else None
        return _by_position(scan, self.close(node, scan, inner, first), scan.carry, scan.outputs)

    def split(
        self,
        node: Expr,
        scan: ScanSchedule,
        cut: Cut,
        carried: set[int],
        first: Mapping[int, Expr],
        chunk: "tuple[Expr, Expr] | None" = None,
    ) -> dict[int, Expr]:
        """Write a loop as two, or some steps of it: those from one on, as many as there are left."""
        old = scan.body

        def begin(part: Mapping[int, Expr]) -> _Copier:
            inner = self.begin(node, scan, part, False)
            if chunk is not None:
                begins, left = (inner.graph.lift(x) for x in chunk)
                inner.body.length = CHUNK
                inner.body.take(left)
                inner.mapping[old.counter] = inner.body.counter + begins
            return inner

        before = {i: value for i, value in first.items() if i not in carried}
        outputs = [i for i in scan.outputs if cut.ordered.isdisjoint(old.outputs[i])]
        inner = begin(before)
        rows = [[old.results[i] for i in before], *[old.outputs[i] for i in outputs]]
        (inner.body.results, *inner.body.outputs), left = inner.leave(cut, rows)
        inner.body.outputs.append(left)
        again = self.close(node, scan, inner, before)
        results = _by_position(scan, again, before, outputs)
        passed = output_stream(again, len(outputs))

        after = {i: value for i, value in first.items() if i in carried}
        outputs = [i for i in scan.outputs if i not in outputs]
        inner = begin(after)
        inner.take(cut, iter(inner.body.add_stream(cut.size)))
        rows = [[old.results[i] for i in after], *[old.outputs[i] for i in outputs]]
        inner.body.results, *inner.body.outputs = inner.copy(rows)
        again = self.close(node, scan, inner, after, [passed])
        return results | _by_position(scan, again, after, outputs)

    def in_chunks(
        self, node: Expr, scan: ScanSchedule, cut: Cut, carried: set[int], first: Mapping[int, Expr], length: int
    ) -> dict[int, Expr]:
        """Write a long loop as one over chunks of steps, and each chunk as two loops."""
        if scan.streams or scan.outputs:
            return self.whole(node, scan)  # elements of streams are found by the number of a step
        body = LoopBody.begin(self.graph, -(-length // CHUNK))
        start = {i: body.add_carry(value) for i, value in first.items()}
        captured = [value for value in scan.arguments(node)[1] if value in self.mapping]
        inside = {value: body.graph.lift(self.mapping[value]) for value in captured}
        done = body.counter * body.graph.integer(CHUNK)
        count = body.graph.integer(length) if scan.count is None else inside[scan.arguments(node)[1][scan.count]]
        left, none = count - done, body.graph.integer(0)
        rest = left - body.graph.integer(CHUNK)
        begins = select(rest > none, rest, none) if scan.body.reverse else done
        chunk = _Copier(self.schedule, inside, body.graph, False)
        results = chunk.split(node, scan, cut, carried, start, (begins, left))
        body.results, body.proceed = [results[i] for i in scan.carry], left > none
        return _by_position(scan, body.close([*first.values()], []), scan.carry, [])

    def leave(self, cut: Cut, rows: Rows = ()) -> tuple[list[list[Expr]], list[Expr]]:
        """Write what has no order; return the copies of some of it, and the numbers that it leaves for the rest."""
        outside = {node: self.outside(node, cut) for node in cut.branches}
        needed = [*chain(*[parameters.values() for parameters in outside.values()])]
        *copied, left, _ = self.copy([*rows, cut.left, needed])
        left = [as_number(value) for value in left]
        for node, part in cut.branches.items():
            scan, body = self.schedule.scans[node], LoopBody.begin(self.graph, 1)
            inside = {p: body.graph.lift(self.mapping[value]) for p, value in outside[node].items()}
            _, body.results = _Copier(scan.schedule, inside, body.graph, False).leave(part)
            zeros = [self.graph.const(0.0) for _ in body.results]
            for zero in zeros:
                body.add_carry(zero)
            assert scan.body.where is not None
            body.only_where(inside[scan.body.where])
            left += finals(body.close(zeros, []))
        return copied, left

    def outside(self, node: Expr, cut: Cut) -> dict[Expr, Expr]:
        """What a branch has of around it that has no order, by its parameters."""
        pairs = self.schedule.scans[node].parameters(node)
        return {parameter: value for parameter, value in pairs if value not in cut.ordered}

    def take(self, cut: Cut, numbers: Iterator[Expr]) -> None:
        """Write what has an order from numbers that `leave` left."""
        for node in cut.left:
            number = next(numbers)
            self.mapping[node] = number > 0.5 if node.kind == BOOL else number
            self.mapping[node].uniform = node.uniform
        for node, part in cut.branches.items():
            self.parts[node] = part, [next(numbers) for _ in range(part.size)]

    def rest_of_branch(self, node: Expr, scan: ScanSchedule, cut: Cut, numbers: list[Expr]) -> dict[int, Expr]:
        """Write the ordered part of a branch."""
        first = self.first(node, scan)
        inner = self.begin(node, scan, first, False)
        inner.take(cut, iter([inner.graph.lift(number) for number in numbers]))
        (inner.body.results,) = inner.copy([[scan.body.results[i] for i in scan.carry]])
        return _by_position(scan, self.close(node, scan, inner, first), scan.carry, [])


def _by_position(scan: ScanSchedule, node: Expr, carry: Iterable[int], outputs: Sequence[int]) -> dict[int, Expr]:
    """Some results of a scan, by where they were."""
    found = dict(zip(carry, finals(node), strict=True))
    count = len(scan.body.results)
    return found | {count + i: output_stream(node, k) for k, i in enumerate(outputs)}
