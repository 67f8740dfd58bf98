"""Whether what a file describes makes a robot: one tree, finite numbers, joints that mimic something that moves."""

from collections.abc import Iterable
from dataclasses import replace

from adjoin.errors import Findings, Location, ModelError, Subject, unknown_name_parts
from adjoin.model.description import Description, JointDescription, LinkDescription
from adjoin.model.parts import Body
from adjoin.model.validate import MAX_NUMBER, mimic_flaw

MAX_LINKS = 5_000


class DisconnectedError(ModelError):
    """Several links have no parent."""


def check_numbers(description: Description) -> None:
    """Raise where a number is not finite or is too large to compute with, whatever the reader let through."""

    def check(where: Location, what: str, name: str, numbers: Iterable[float]) -> None:
        if sum(map(abs, numbers)) <= MAX_NUMBER:  # then each is, and none is nan
            return
        for number in numbers:
            if not abs(number) <= MAX_NUMBER:
                limit, subject = f"the limit is {MAX_NUMBER:g}", Subject(what, name)
                raise ModelError(f"{number:g} is too large", where=where, subject=subject, remedy=limit)

    for link in description.links:
        numbers = [link.mass, *link.com, *link.inertia, *link.offset]
        for shape in link.geometries:
            x, y, z = shape.rotation
            numbers += [*shape.position, *shape.size, *x, *y, *z]
        for _, position, (x, y, z) in link.sites:
            numbers += [*position, *x, *y, *z]
        check(link.where, "link", link.name, numbers)
    for edge in description.joints:
        x, y, z = edge.rotation
        numbers = [*edge.position, *x, *y, *z]
        if edge.joint is not None and edge.joint.mimic is not None:
            numbers += [edge.joint.mimic.multiplier, edge.joint.mimic.offset]
        check(edge.where, "joint", edge.name, numbers)


def check_tree(description: Description) -> str:
    """Check that links and joints form one tree, and return the name of its root."""
    links = _unique("link", description.links)
    _unique("joint", description.joints)
    parents: dict[str, JointDescription] = {}
    for edge in description.joints:
        for role, name in (("parent", edge.parent), ("child", edge.child)):
            if name not in links:
                problem, known = unknown_name_parts("link", "links", name, links)
                subject = Subject("joint", edge.name)
                raise ModelError(problem, where=edge.where, subject=subject, field=role, remedy=known)
        if edge.parent == edge.child:
            problem, subject = f"it connects link {edge.child!r} to itself", Subject("joint", edge.name)
            raise ModelError(problem, where=edge.where, subject=subject)
        if edge.child in parents:
            subject = Subject("joint", edge.name)
            other = parents[edge.child]
            problem = f"link {edge.child!r} is the child of joint {other.name!r} already (line {other.where.line})"
            raise ModelError(problem, where=edge.where, subject=subject, remedy="a link has one parent")
        parents[edge.child] = edge
    roots = [name for name in links if name not in parents]
    if not links:
        raise ModelError("the robot has no links", where=description.where, remedy="it needs at least one")
    if len(links) > MAX_LINKS:
        limit = f"the limit is {MAX_LINKS}"
        raise ModelError(f"the robot has {len(links)} links", where=description.where, remedy=limit)
    if len(roots) > 1:
        problem = f"{len(roots)} links have no parent: {', '.join(map(repr, roots[:10]))}"
        raise DisconnectedError(problem, where=links[roots[1]].where, remedy="connect them to one root link")
    # With one root at most, whatever does not lead up to it goes round in a loop.
    grounded = set(roots)
    for name in links:
        path: list[str] = []
        on_path: set[str] = set()
        while name not in grounded:
            if name in on_path:
                loop = " <- ".join([*path[path.index(name) :][:10], name])
                where, subject = parents[name].where, Subject("joint", parents[name].name)
                raise ModelError(f"links form a loop: {loop}", where=where, subject=subject, remedy="a robot is a tree")
            path.append(name)
            on_path.add(name)
            name = parents[name].parent
        grounded |= on_path
    return roots[0]


def _unique(what: str, items: Iterable[LinkDescription | JointDescription]) -> dict[str, LinkDescription]:
    seen: dict = {}
    for item in items:
        if item.name in seen:
            problem, first = f"there are two {what}s of that name", f"the first is on line {seen[item.name].where.line}"
            raise ModelError(problem, where=item.where, subject=Subject(what, item.name), remedy=first)
        seen[item.name] = item
    return seen


def check_mimics(description: Description, bodies: list[Body], findings: Findings) -> list[Body]:
    """Check that mimic joints lead, without a loop, to joints of one degree of freedom.

    Returns:
        The bodies; where reading is not strict, joints that mimic nothing are joints of their own.
    """
    edges = {edge.name: edge for edge in description.joints}
    joints = {body.joint.name: body.joint for body in bodies}
    checked = []
    for body in bodies:
        flaw = mimic_flaw(body.joint, joints, edges)
        if flaw is not None:
            where, subject = edges[body.joint.name].where, Subject("joint", body.joint.name)
            error = ModelError(flaw[0], where=where, subject=subject, field="mimic", remedy=flaw[1])
            findings.report(error, "it moves by itself")
            joint = replace(body.joint, mimic=None)
            body, joints[joint.name] = replace(body, joint=joint), joint
        checked.append(body)
    return checked
