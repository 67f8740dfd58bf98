"""Facts about a schedule that decide how it is rendered."""

from itertools import chain
from typing import NamedTuple

from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.kinds import FLOAT
from adjoin.compiler.ir.schedule import Schedule
from adjoin.compiler.ir.scratch import ELEMENT


def streams_read(schedule: Schedule) -> set[Expr]:
    """The streams that some scan reads."""
    streams: set[Expr] = set()
    for node, scan in schedule.scans.items():
        streams.update(scan.arguments(node)[2])
        streams |= streams_read(scan.schedule)
    return streams


class FusedSum(NamedTuple):
    """A sum that takes in a product nobody else reads: one fused multiply-add.

    Attributes:
        product: the product.
        other: the other summand; of an addition to an array, the node of that addition.
        negate_product: it is subtracted.
        negate_other: the other summand is subtracted.
    """

    product: Expr
    other: Expr
    negate_product: bool
    negate_other: bool


def fused_sums(schedule: Schedule) -> dict[Expr, FusedSum]:
    """The sums that take in a product, by node."""
    uses: dict[Expr, int] = {}
    for node in schedule.order:
        scan = schedule.scans.get(node)
        for arg in node.args[:3] if scan is None else chain(*scan.arguments(node)[:3]):
            uses[arg] = uses.get(arg, 0) + 1
    for target in schedule.targets:
        uses[target] = uses.get(target, 0) + 1
    sums: dict[Expr, FusedSum] = {}
    for node in schedule.order:
        if node.op in ("add", "sub") and node.kind == FLOAT:
            a, b = node.args
            subtract = node.op == "sub"
            if b.op == "mul" and uses[b] == 1:
                sums[node] = FusedSum(b, a, subtract, False)
            elif a.op == "mul" and uses[a] == 1:
                sums[node] = FusedSum(a, b, False, subtract)
        elif node.op == "accumulate" and node.args[2].op == "mul" and uses[node.args[2]] == 1:
            sums[node] = FusedSum(node.args[2], node, False, False)
    return sums


def overwritten(schedule: Schedule) -> set[Expr]:
    """Scratch arrays every element of which is stored before anything is loaded: they need not be cleared."""
    following = {node.args[0]: node for node in schedule.order if node.op == "store"}
    loaded = {node.args[0] for node in schedule.order if node.op in ("load", "accumulate")}
    for node, scan in schedule.scans.items():
        loaded.update(arg for part in scan.arguments(node)[:2] for arg in part if arg.kind in ELEMENT)
    complete = set()
    for node in schedule.order:
        if node.op == "scratch" and node.data is not None:
            complete.add(node)
        elif node.op == "scratch":
            written: set[int] = set()
            version = node
            while version in following and version not in loaded and following[version].args[1].op == "integer":
                version = following[version]
                written.add(version.args[1].data)
            if len(written) == node.width:
                complete.add(node)
    return complete
