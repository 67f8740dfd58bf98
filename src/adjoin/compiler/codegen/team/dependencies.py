"""What has to come before what in a schedule, as loosely as possible: accesses to different elements have no order."""

from dataclasses import dataclass, field
from itertools import chain

from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.schedule import Schedule
from adjoin.compiler.ir.scratch import ELEMENT, root


@dataclass
class _Array:
    """What has happened to an array so far.

    Attributes:
        all: what wrote all of it, or somewhere.
        written: by the place of an element, what wrote it since.
        read: by the place of an element, what has read it since.
        reads: what has read somewhere since.
    """

    all: list[Expr] = field(default_factory=list)
    written: dict[int, Expr] = field(default_factory=dict)
    read: dict[int, list[Expr]] = field(default_factory=dict)
    reads: list[Expr] = field(default_factory=list)

    def before_access(self, place: int | None, writes: bool) -> list[Expr]:
        """What has to come before an access to an element, or, without a place, to any."""
        if place is None:
            before = [*self.all, *self.written.values()]
            return [*before, *self.reads, *chain(*self.read.values())] if writes else before
        before = [self.written[place]] if place in self.written else list(self.all)
        return [*before, *self.reads, *self.read.get(place, ())] if writes else before

    def access(self, node: Expr, place: int | None, writes: bool) -> None:
        """Remember an access."""
        if place is None and writes:
            self.all, self.written, self.read, self.reads = [node], {}, {}, []
        elif place is None:
            self.reads.append(node)
        elif writes:
            self.written[place] = node
            self.read.pop(place, None)
        else:
            self.read.setdefault(place, []).append(node)


def find_dependencies(schedule: Schedule) -> dict[Expr, list[Expr]]:
    """Return for each node of a schedule, in order, those that have to come before it."""
    arrays: dict[Expr, _Array] = {}
    found: dict[Expr, list[Expr]] = {}
    for node in schedule.order:
        before: list[Expr] = []
        accesses: list[tuple[Expr, int | None, bool]] = []
        if node.op == "scan":
            scan = schedule.scans[node]
            initial, captured, streams, _ = scan.arguments(node)
            for value in chain(initial, captured, streams):
                if value.kind not in ELEMENT:
                    before.append(value)
            for i, value in zip(scan.carry, initial, strict=True):
                if value.kind in ELEMENT:
                    accesses.append((root(value), None, scan.body.results[i] is not scan.body.carry[i]))
            accesses += [(root(value), None, False) for value in captured if value.kind in ELEMENT]
        elif node.op in ("load", "store", "accumulate"):
            array, index = node.args[:2]
            before += node.args[1:3] if node.op != "load" else [index]
            accesses.append((root(array), index.data if index.op == "integer" else None, node.op != "load"))
        elif node.op == "scratch":
            before += node.args[:1]
            arrays[node] = _Array(all=[node])
        elif node.op == "get":
            before.append(node.args[0])
        else:
            before += node.args[:3]
        for array, place, writes in accesses:
            known = arrays.setdefault(array, _Array())
            before += known.before_access(place, writes)
        for array, place, writes in accesses:
            arrays[array].access(node, place, writes)
        found[node] = list(dict.fromkeys(before))
    return found
