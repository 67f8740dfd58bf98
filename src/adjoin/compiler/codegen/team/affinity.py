"""Which part of what is simulated the nodes of a schedule belong to, as far as the inputs tell.

The columns of an input have a group: those of one limb of a robot are mostly computed with each other. What is computed
from the columns of one group is of that group, also together with what several groups share, such as the pose of a
trunk; what comes from several groups is shared by them. So the way out to the tips of a tree, the way back to its root,
and the adjoints of both fall into limbs.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from adjoin.compiler.ir.graph import Expr
from adjoin.compiler.ir.program import Program
from adjoin.compiler.ir.schedule import ScanSchedule, Schedule
from adjoin.compiler.ir.scratch import ELEMENT, root

Group = int | None
"""From 1 on a group of columns, 0 for what several share, None for what depends on neither."""

SHARED = 0


@dataclass(frozen=True)
class Affinity:
    """The groups of the nodes of a schedule.

    Attributes:
        groups: of nodes; those that are missing have none.
        scans: of what is in its loops and branches.
        streams: of the elements of a stream.
    """

    groups: dict[Expr, Group]
    scans: dict[Expr, "Affinity"] = field(default_factory=dict)
    streams: dict[Expr, list[Group]] = field(default_factory=dict)


def affinity_of(program: Program) -> Affinity:
    """Find the groups of all nodes of a program."""
    groups: dict[Expr, Group] = {}
    streams: dict[Expr, list[Group]] = {}
    for spec, nodes in zip(program.inputs, program.sources, strict=True):
        if spec.groups and spec.steps is not None:
            streams[nodes[0]] = list(spec.groups)
        elif spec.groups:
            groups.update(zip(nodes, spec.groups, strict=True))
    return _find(program.schedule, groups, streams)


def _find(schedule: Schedule, known: Mapping[Expr, Group], streams: Mapping[Expr, list[Group]]) -> Affinity:
    """The groups of the nodes of a schedule, from those of its inputs or parameters."""
    found = Affinity(dict(known), {}, dict(streams))
    groups = found.groups
    elements: dict[tuple[Expr, int], Group] = {}
    uses = Counter(arg for node in schedule.order for arg in node.args[:3])
    for node in schedule.order:
        if node.op == "scan":
            found.scans[node] = _find_scan(node, schedule.scans[node], found)
        elif node in groups or node.op == "get" or not node.args:
            continue
        elif node.kind in ELEMENT:
            if node.op != "scratch" and node.args[1].op == "integer":
                place = root(node.args[0]), node.args[1].data
                before = elements.get(place) if node.op == "accumulate" else None
                elements[place] = _join((before, groups.get(node.args[2])))
        elif node.op == "load":
            array, index = node.args[:2]
            if index.op == "integer":
                groups[node] = elements.get((root(array), index.data))
        elif node.op in ("add", "sub") and any(groups.get(arg) == SHARED and uses[arg] == 1 for arg in node.args):
            groups[node] = SHARED  # a sum over groups, unlike what one of them makes of what is shared
        else:
            groups[node] = _join([groups.get(arg) for arg in node.args[:3]])
    return found


def _find_scan(node: Expr, scan: ScanSchedule, outer: Affinity) -> Affinity:
    body = scan.body
    initial, captured, streams, _ = scan.arguments(node)
    known: dict[Expr, Group] = {}
    for i, value in zip(scan.captures, captured, strict=True):
        known[body.captures[i]] = outer.groups.get(value)
    for i, stream in zip(scan.streams, streams, strict=True):
        known.update(zip(body.elements[i], outer.streams.get(stream, ()), strict=False))
    for i, value in zip(scan.carry, initial, strict=True):
        known[body.carry[i]] = outer.groups.get(value)
    found = _find(scan.schedule, known, {})
    unknown = [i for i in scan.carry if known[body.carry[i]] is None and found.groups.get(body.results[i]) is not None]
    if unknown:
        known.update({body.carry[i]: found.groups.get(body.results[i]) for i in unknown})
        found = _find(scan.schedule, known, {})
    for i in scan.carry:
        get = node.graph.find("get", (node,), i)
        if get is not None:
            outer.groups[get] = _join((found.groups.get(body.results[i]), known[body.carry[i]]))
    for i in scan.outputs:
        stream = node.graph.find("get", (node,), len(body.results) + i)
        if stream is not None:
            outer.streams[stream] = [found.groups.get(value) for value in body.outputs[i]]
    return found


def _join(groups: "list[Group] | tuple[Group, ...]") -> Group:
    """The group of what is computed from these."""
    own = {group for group in groups if group}
    if len(own) == 1:
        return own.pop()
    return SHARED if own or SHARED in groups else None
