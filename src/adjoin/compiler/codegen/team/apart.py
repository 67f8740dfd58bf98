"""Loops that all workers run without waiting for each other: each takes some of the steps, or some of the sums.

Where the steps of a loop keep to elements of their own, each worker takes every so many-th one. Where they add to
elements that others add to as well, each worker takes all steps, adds to some of the elements only, and computes what
it needs for these.
"""

from collections.abc import Sequence
from itertools import chain

from adjoin.compiler.codegen.analysis import fused_sums
from adjoin.compiler.codegen.team.division import (
    AT_HAND,
    EVERYONE,
    Demand,
    Division,
    find_demands,
    steps_of,
    sum_of_work,
    work_of,
)
from adjoin.compiler.codegen.team.iterations import is_spreadable, sums_of
from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.op import OPS
from adjoin.compiler.ir.schedule import ScanSchedule
from adjoin.compiler.ir.scratch import ELEMENT, root


def share_steps(scan: ScanSchedule, workers: int) -> Division | None:
    """Divide the steps of a loop, if they have no order."""
    if not is_spreadable(scan):
        return None
    body, schedule = scan.body, scan.schedule
    division = _apart(scan, workers, [body.outputs[i] for i in scan.outputs])
    division.spread, division.writers = True, [EVERYONE] * len(scan.outputs)
    steps = max(1.0, steps_of(scan))
    division.cost = sum_of_work(schedule) * -(-steps // workers) / steps
    everything = {*[body.captures[i] for i in scan.captures], *[x for i in scan.streams for x in body.elements[i]]}
    division.demands = [Demand(set(schedule.order), everything) for _ in range(workers)]
    return division


def share_sums(scan: ScanSchedule, workers: int) -> Division | None:
    """Divide what the steps of a loop add to, if they only add."""
    body = scan.body
    if body.where is not None or body.proceed is not None or not isinstance(body.length, int) or scan.outputs:
        return None
    sums = sums_of(scan)
    arrays = [body.carry[i] for i in scan.carry if body.carry[i].kind in ELEMENT]
    if len(sums) + len(arrays) < len(scan.carry):
        return None
    shares = [[body.results[i]] for i in sums]
    for array in arrays:
        added = _shares(scan, array)
        if added is None:
            return None
        shares += added
    if len({node for share in shares for node in share}) < sum(map(len, shares)):
        return None  # a branch that writes into several
    division = _apart(scan, workers, [])
    _assign(division, shares)
    division.demands = find_demands(division)
    return division


def _apart(scan: ScanSchedule, workers: int, rows: Sequence[Sequence[Expr]]) -> Division:
    """The division of a loop that is run apart, in which everyone computes everything."""
    nodes, sums = scan.schedule.order, fused_sums(scan.schedule)
    everyone, first = dict.fromkeys(nodes, EVERYONE), dict.fromkeys(nodes, 0)
    return Division(scan.schedule, workers, sums, rows, scan, worker=everyone, phase=first, apart=True)


def _shares(scan: ScanSchedule, array: Expr) -> list[list[Expr]] | None:
    """The additions to an array, those together that may be to the same element; None if it is used otherwise.

    A branch that writes into it belongs to all of them, with what it gives.
    """
    found: list[tuple[int, int, Expr]] = []
    whole: list[Expr] = []
    for node in scan.schedule.order:
        if node.op == "scan":
            inner = scan.schedule.scans[node]
            initial, captured, _, _ = inner.arguments(node)
            if any(value.kind in ELEMENT and root(value) is array for value in captured):
                return None
            if any(value.kind in ELEMENT and root(value) is array for value in initial):
                if any(value.kind not in ELEMENT for value in initial):
                    return None
                whole += [node, *[get for get in scan.schedule.order if get.op == "get" and get.args[0] is node]]
        elif node.op in ("load", "store", "accumulate") and root(node.args[0]) is array:
            if node.op != "accumulate":
                return None
            stride, offset = _part(node.args[1]) if node.data is not None else (0, 0)  # beyond the end is the last one
            found.append((stride, offset, node))
    strides = {stride for stride, _, _ in found}
    shares: dict[int, list[Expr]] = {}
    for stride, offset, node in found:
        apart = not whole and len(strides) == 1 and 0 <= offset < stride
        shares.setdefault(offset if apart else -1, []).append(node)
    if whole:
        shares.setdefault(-1, []).extend(whole)
    return list(shares.values())


def _part(index: Expr) -> tuple[int, int]:
    """Of an index that is a multiple of a number plus another one, these numbers; or 0."""
    offset = 0
    if index.op == "add" and index.args[1].op == "integer":
        index, offset = index.args[0], index.args[1].data
    if index.op == "mul" and index.args[1].op == "integer":
        return index.args[1].data, offset
    return 0, offset


def _assign(division: Division, shares: Sequence[Sequence[Expr]]) -> None:
    """Give each share to a worker, so that the one with most to do has little."""
    schedule, products = division.schedule, {fused.product for fused in division.sums.values()}
    bits = {node: 1 << k for k, node in enumerate(schedule.order)}
    needs: dict[Expr, int] = {}
    costs: list[float] = []
    for node in schedule.order:
        scan = schedule.scans.get(node)
        arguments = node.args[:3] if scan is None else [*chain(*scan.arguments(node)[:3])]
        needs[node] = bits[node]
        for arg in arguments:
            if arg.kind not in ELEMENT:
                needs[node] |= needs.get(arg, 0)
        free = node.op in AT_HAND or node.op == "get" or node in products
        costs.append(0.0 if free else OPS[node.op].cost if scan is None else work_of(scan))

    def cost(needed: int) -> float:
        return sum(costs[k] for k in range(needed.bit_length()) if needed >> k & 1)

    def union(nodes: Sequence[Expr]) -> int:
        needed = 0
        for node in nodes:
            needed |= needs[node]
        return needed

    busy = [0] * division.workers
    wholes = sorted(((union(share), share) for share in shares), key=lambda pair: -cost(pair[0]))
    for needed, share in wholes:
        chosen = min(range(division.workers), key=lambda w: (cost(busy[w] | needed), w))
        busy[chosen] |= needed
        division.worker.update(dict.fromkeys(share, chosen))
    division.cost = max(map(cost, busy))
