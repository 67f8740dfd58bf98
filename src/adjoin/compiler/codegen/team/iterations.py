"""Which elements of arrays the steps of a loop reach: steps that keep to elements of their own have no order."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from adjoin.compiler.ir.control_flow import LoopBody
from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.schedule import ScanSchedule, Schedule
from adjoin.compiler.ir.scratch import ELEMENT, root


@dataclass(frozen=True)
class Place:
    """An index: a factor times the step of the loop, plus something between two numbers, plus what never changes.

    Attributes:
        factor: of the step.
        low: the least number.
        high: the greatest.
        fixed: factors of integers from around the loop, by their places in its graph.
    """

    factor: int
    low: int
    high: int
    fixed: frozenset[tuple[int, int]] = frozenset()

    def __add__(self, other: "Place") -> "Place":
        total = Counter(dict(self.fixed))
        for index, factor in other.fixed:
            total[index] += factor
        fixed = frozenset((index, factor) for index, factor in total.items() if factor)
        return Place(self.factor + other.factor, self.low + other.low, self.high + other.high, fixed)

    def __mul__(self, number: int) -> "Place":
        low, high = sorted((number * self.low, number * self.high))
        fixed = frozenset((index, number * factor) for index, factor in self.fixed)
        return Place(number * self.factor, low, high, fixed)


Places = dict[Expr, Place | None]


class Access(NamedTuple):
    """What is done to an element of an array.

    Attributes:
        op: load, store or accumulate.
        place: which element, if it can be told.
        width: elements of the array, if an index beyond them means the last one.
    """

    op: str
    place: Place | None
    width: int | None


def sums_of(scan: ScanSchedule) -> list[int]:
    """The positions of the carried numbers to which each step adds something that does not depend on them."""
    body, nodes = scan.body, scan.schedule.order
    return [
        i
        for i in scan.carry
        if body.results[i].op in ("add", "sub")
        and body.results[i].args[0] is body.carry[i]
        and sum(arg is body.carry[i] for node in nodes for arg in node.args) == 1
        and sum(arg is body.results[i] for node in nodes for arg in node.args) == 0
    ]


def own_arrays(scan: ScanSchedule) -> set[int]:
    """The positions of the carried arrays of a loop of which no step writes an element that another one uses."""
    body = scan.body
    arrays = {body.carry[i]: i for i in scan.carry if body.carry[i].kind in ELEMENT}
    found: dict[Expr, list[Access]] = {}
    known: Places = {body.counter: Place(1, 0, 0), **dict.fromkeys(body.carry)}
    known.update({body.captures[i]: Place(0, 0, 0, frozenset({(body.captures[i].index, 1)})) for i in scan.captures})
    _find_accesses(scan.schedule, known, {array: array for array in arrays}, found)
    length = body.length if isinstance(body.length, int) else 0
    return {i for array, i in arrays.items() if _own(found.get(array, []), length)}


def is_spreadable(scan: ScanSchedule) -> bool:
    """Whether the steps of a loop can be taken in any order."""
    body = scan.body
    if body.where is not None or body.proceed is not None or not isinstance(body.length, int) or body.length < 2:
        return False
    return set(scan.carry) == own_arrays(scan)


def _own(accesses: list[Access], length: int) -> bool:
    """Whether none of so many steps writes an element that another one reads or writes."""
    if all(access.op == "load" for access in accesses):
        return True
    places = [access.place for access in accesses if access.place is not None]
    alike = len({(place.factor, place.fixed) for place in places}) == 1
    inside = all(0 <= place.low <= place.high < place.factor for place in places)
    ends = all(
        width is None or (place is not None and not place.fixed and place.factor * (length - 1) + place.high < width)
        for _, place, width in accesses
    )
    return len(places) == len(accesses) and alike and inside and ends


def _find_accesses(
    schedule: Schedule, known: Places, arrays: Mapping[Expr, Expr], found: dict[Expr, list[Access]]
) -> None:
    """Collect what a schedule does to some arrays, given the places that integers around it stand for."""
    for node in schedule.order:
        if node.op in ("load", "store", "accumulate"):
            array = arrays.get(root(node.args[0]))
            if array is not None:
                width = array.width if node.data is None else None
                found.setdefault(array, []).append(Access(node.op, _place(node.args[1], known), width))
        elif node.op == "scan":
            scan = schedule.scans[node]
            body: LoopBody = scan.body
            pairs = scan.parameters(node)
            inside: Places = {parameter: _place(value, known) for parameter, value in pairs}
            inside.update(dict.fromkeys(body.carry))
            own = {parameter: arrays[root(value)] for parameter, value in pairs if root(value) in arrays}
            last = body.length - 1 if isinstance(body.length, int) else None
            inside[body.counter] = None if last is None else Place(0, 0, max(0, last))
            _find_accesses(scan.schedule, inside, own, found)


def _place(node: Expr, known: Places) -> Place | None:
    """What an index is, as far as it can be told."""
    if node in known:
        return known[node]
    place = None
    if node.op == "integer":
        place = Place(0, node.data, node.data)
    elif node.op in ("add", "sub", "mul"):
        a, b = (_place(arg, known) for arg in node.args)
        if a is not None and b is not None:
            if node.op != "mul":
                place = a + (b if node.op == "add" else b * -1)
            elif node.args[0].op == "integer":
                place = b * a.low
            elif node.args[1].op == "integer":
                place = a * b.low
    known[node] = place
    return place
