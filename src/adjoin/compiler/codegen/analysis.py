"""Facts about a plan that decide how it is rendered."""

from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.kinds import ARRAY, FLOAT
from adjoin.compiler.ir.schedule import Schedule


def streams_read(schedule: Schedule) -> set[Expr]:
    """The streams that some scan reads."""
    found: set[Expr] = set()
    for node, scan in schedule.scans.items():
        found.update(scan.arguments(node)[2])
        found |= streams_read(scan.schedule)
    return found


def fused(schedule: Schedule) -> dict[Expr, tuple[Expr, Expr, bool, bool]]:
    """Sums that take in a product nobody else reads: node -> (product, other, product negated, other negated)."""
    uses: dict[Expr, int] = {}
    for node in schedule.order:
        if node.op == "scan":
            for part in schedule.scans[node].arguments(node)[:3]:
                for arg in part:
                    uses[arg] = uses.get(arg, 0) + 1
        else:
            for arg in node.args[:3]:
                uses[arg] = uses.get(arg, 0) + 1
    for target in schedule.targets:
        uses[target] = uses.get(target, 0) + 1
    found: dict[Expr, tuple[Expr, Expr, bool, bool]] = {}
    for node in schedule.order:
        if node.op in ("add", "sub") and node.kind == FLOAT:
            a, b = node.args
            subtract = node.op == "sub"
            if b.op == "mul" and uses[b] == 1:
                found[node] = (b, a, subtract, False)
            elif a.op == "mul" and uses[a] == 1:
                found[node] = (a, b, False, subtract)
    return found


def overwritten(schedule: Schedule) -> set[Expr]:
    """Scratch arrays every element of which is stored before anything is loaded: they need not be cleared."""
    following = {node.args[0]: node for node in schedule.order if node.op == "store"}
    loaded = {node.args[0] for node in schedule.order if node.op == "load"}
    for node, scan in schedule.scans.items():
        loaded.update(arg for part in scan.arguments(node)[:2] for arg in part if arg.kind == ARRAY)
    complete = set()
    for node in schedule.order:
        if node.op == "scratch":
            written: set[int] = set()
            version = node
            while version in following and version not in loaded and following[version].args[1].op == "integer":
                version = following[version]
                written.add(version.args[1].data)
            if len(written) == node.width:
                complete.add(node)
    return complete
