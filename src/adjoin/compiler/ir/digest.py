"""Hashes of graphs: equal for graphs that compute the same in the same order, in any process."""

import hashlib
from collections.abc import Sequence
from itertools import chain

from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.schedule import ScanSchedule, Schedule, reachable


def hash_of(*parts: str) -> str:
    """The SHA-256 of some lines of text, as hexadecimal digits."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def digest_schedule(schedule: Schedule, sources: Sequence[Expr]) -> str:
    """Of what is computed from the sources, dead code aside."""
    text: list[str] = []
    _describe(schedule, {node: -1 - i for i, node in enumerate(sources)}, text)
    return hash_of(*text)


def digest_graph(targets: Sequence[Expr], sources: Sequence[Expr]) -> str:
    """Of everything behind the targets, dead results of loops and the rules of implicit values included."""
    text: list[str] = []
    _describe_all(targets, {node: -1 - i for i, node in enumerate(sources)}, text)
    return hash_of(*text)


def _describe(schedule: Schedule, numbers: dict[Expr, int], text: list[str]) -> None:
    """Append a canonical description: nodes by their place in the order, loops with their bodies inside."""
    for node in schedule.order:
        if node in numbers:
            continue
        number = numbers[node] = len(numbers)
        if node.op == "scan":
            scan = schedule.scans[node]
            arguments = [numbers[arg] for part in scan.arguments(node)[:3] for arg in part]
            kind = f"{scan.body.length} {scan.body.reverse} {scan.where} {scan.count} {scan.body.proceed is not None}"
            text.append(f"scan {number} {arguments} {kind} {scan.carry} {scan.outputs}")
            _describe_body(scan, text)
        elif node.op == "get":
            text.append(f"get {numbers[node.args[0]]} {node.data}")
        else:
            args = " ".join([str(numbers[arg]) for arg in node.args[:3]])
            data = "" if node.data is None else repr(node.data)
            size = f"{node.width} {node.kind}{_record(node)}" if node.op == "scratch" else ""
            text.append(f"{node.op} {size} {args} {data}")
    text.append(str([numbers[target] for target in schedule.targets]))


def _record(node: Expr) -> str:
    """The elements of a record of a new array that is not used to its end."""
    return f" {node.used[1]}" if node.op == "scratch" and node.used else ""


def _describe_body(scan: ScanSchedule, text: list[str]) -> None:
    body = scan.body
    parameters = [body.counter, *[body.carry[i] for i in scan.carry], *[body.captures[i] for i in scan.captures]]
    parameters += [parameter for i in scan.streams for parameter in body.elements[i]]
    _describe(scan.schedule, {parameter: -1 - i for i, parameter in enumerate(parameters)}, text)
    text.append("end")


def _describe_all(targets: Sequence[Expr], numbers: dict[Expr, int], text: list[str]) -> None:
    for node in reachable(targets):
        if node in numbers:
            continue
        data = node.data
        if node.op == "scan":
            special = [(x is data.where, x is data.count) for x in data.captures]
            text.append(f"{data.length} {data.reverse} {data.detached} {special}")
            first = [] if data.proceed is None else [data.proceed]
            _describe_all([*first, *data.results, *chain(*data.outputs)], numbers, text)
            data = None
        elif node.op == "implicit":
            rows = [*data.residual, *data.solved, *data.transposed]
            _describe_all(rows, numbers, text)
            data = [numbers[value] for value in rows]
        numbers[node] = len(numbers)
        place = node.index if node.op == "param" else ""
        size = f"{node.width}{_record(node)}"
        text.append(f"{node.op} {node.kind} {size} {[numbers[arg] for arg in node.args]} {data} {place}")
    text.append(str([numbers[target] for target in targets]))
