"""Whether what a file describes makes a robot: one tree, finite numbers, joints that mimic something that moves."""

from collections.abc import Iterable

from adjoin.errors import ModelError, unknown_name
from adjoin.model.description import MAX_NUMBER, Description, JointDescription, LinkDescription, Where
from adjoin.model.parts import Body

MAX_LINKS = 5_000
MAX_MIMIC = 50


def check_numbers(description: Description) -> None:
    """What is to be multiplied and added must stay finite; a reader that is not ours may have let anything through."""

    def check(where: Where, what: str, numbers: Iterable[float]) -> None:
        for number in numbers:
            if not abs(number) <= MAX_NUMBER:
                raise ModelError(f"{where}: {what}: {number:g} is too large; numbers go up to {MAX_NUMBER:g}")

    for link in description.links:
        numbers = [link.mass, *link.com, *link.inertia, *link.offset]
        for shape in link.geometries:
            numbers += [*shape.position, *shape.size, *(x for row in shape.rotation for x in row)]
        for _, position, rotation in link.sites:
            numbers += [*position, *(x for row in rotation for x in row)]
        check(link.where, f"link {link.name!r}", numbers)
    for edge in description.joints:
        numbers = [*edge.position, *(x for row in edge.rotation for x in row)]
        if edge.joint is not None and edge.joint.mimic is not None:
            numbers += [edge.joint.mimic.multiplier, edge.joint.mimic.offset]
        check(edge.where, f"joint {edge.name!r}", numbers)


def check_tree(description: Description) -> str:
    """Check that links and joints make one tree; the name of its root."""
    links = _unique("link", description.links)
    _unique("joint", description.joints)
    parents: dict[str, JointDescription] = {}
    for edge in description.joints:
        for role, name in (("parent", edge.parent), ("child", edge.child)):
            if name not in links:
                text = unknown_name("link", "links", name, links)
                raise ModelError(f"{edge.where}: joint {edge.name!r}: {role}: {text}")
        if edge.parent == edge.child:
            raise ModelError(f"{edge.where}: joint {edge.name!r}: connects link {edge.child!r} to itself")
        if edge.child in parents:
            other = parents[edge.child]
            raise ModelError(
                f"{edge.where}: joint {edge.name!r}: link {edge.child!r} already hangs on joint {other.name!r} "
                f"(line {other.where.line}); a link has one parent"
            )
        parents[edge.child] = edge
    roots = [name for name in links if name not in parents]
    if not links:
        raise ModelError(f"{description.where}: no links; a robot has at least one")
    if len(links) > MAX_LINKS:
        raise ModelError(f"{description.where}: {len(links)} links; at most {MAX_LINKS} are allowed")
    if len(roots) > 1:
        listed = ", ".join(repr(name) for name in roots[:10])
        raise ModelError(
            f"{links[roots[1]].where}: {len(roots)} links have no parent: {listed}; connect them to one root link"
        )
    # With one root at most, whatever does not lead up to it goes round in a loop.
    grounded = set(roots)
    for name in links:
        path: list[str] = []
        on_path: set[str] = set()
        while name not in grounded:
            if name in on_path:
                loop = path[path.index(name) :]
                raise ModelError(
                    f"{parents[name].where}: joint {parents[name].name!r}: links form a loop: "
                    f"{' <- '.join([*loop[:10], name])}; a robot is a tree"
                )
            path.append(name)
            on_path.add(name)
            name = parents[name].parent
        grounded |= on_path
    return roots[0]


def _unique(what: str, items: Iterable[LinkDescription | JointDescription]) -> dict[str, LinkDescription]:
    seen: dict = {}
    for item in items:
        if item.name in seen:
            first = seen[item.name].where.line
            raise ModelError(f"{item.where}: two {what}s are named {item.name!r}; the first is on line {first}")
        seen[item.name] = item
    return seen


def check_mimics(description: Description, bodies: list[Body]) -> None:
    """Mimic joints lead, without a loop, to joints of one degree of freedom; said here with the place in the file."""
    edges = {edge.name: edge for edge in description.joints}
    joints = {body.joint.name: body.joint for body in bodies}
    for joint in joints.values():
        seen = [joint.name]
        following = joint
        ratio = 1.0
        while following.mimic is not None:
            where = f"{edges[joint.name].where}: joint {joint.name!r}"
            ratio *= following.mimic.multiplier
            if abs(ratio) > MAX_NUMBER:
                raise ModelError(f"{where}: mimic: the ratio to joint {following.mimic.joint!r} is too large")
            name = following.mimic.joint
            if name not in joints:
                known = " (it is not in the part of the robot that was kept, or it is fixed)" if name in edges else ""
                text = unknown_name("moving joint", "joints", name, joints)
                raise ModelError(f"{where}: mimic: {text}{known}")
            if name in seen:
                raise ModelError(f"{where}: mimics itself: {' -> '.join([*seen, name])}")
            if len(seen) > MAX_MIMIC:
                raise ModelError(f"{where}: mimics through more than {MAX_MIMIC} joints")
            leader = joints[name]
            if leader.type.nv != 1 or joint.type.nv != 1:
                raise ModelError(
                    f"{where}: a {joint.kind} joint cannot mimic a {leader.kind} joint; "
                    "both must have one degree of freedom"
                )
            seen.append(name)
            following = leader
