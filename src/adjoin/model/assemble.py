"""From the description of a file to a frozen model: pick a subtree, lock joints, order, weld."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from adjoin.errors import ModelError
from adjoin.model import physical
from adjoin.model.description import MAX_NUMBER, Description, JointDescription, LinkDescription, Where
from adjoin.model.joint import NEUTRAL, NQ, NV, Joint, Vec3
from adjoin.model.model import Model, missing
from adjoin.model.parts import WORLD, Body, Fixture, Frame, Geometry, Keyframe
from adjoin.spatial import inertia as inertias
from adjoin.spatial.motion import STILL, Transform, transform_compose
from adjoin.spatial.rotation import from_axis_angle, from_quaternion, quaternion_normalize, tidy
from adjoin.spatial.vector import IDENTITY, ZERO, scale, vector3

FLOATING_BASE = "root_joint"
"""Name of the free joint that `floating_base=True` adds; Pinocchio's name for it."""

MAX_LINKS = 5_000
MAX_MIMIC = 50

Lock = Mapping[str, float | Sequence[float]]


@dataclass
class _Part:
    """A body, or the world, while links are being welded to it."""

    name: str
    parent: int
    joint: Joint | None
    placement: Transform
    inertia: inertias.Inertia = inertias.NOTHING
    links: list[LinkDescription] = field(default_factory=list)


def assemble(
    description: Description,
    *,
    floating_base: bool = False,
    root: str | None = None,
    lock: Lock | None = None,
    accept: Collection[str] = (),
    repair: Collection[str] = (),
) -> Model:
    """Build the model.

    Args:
        description: what the file says.
        floating_base: put a free joint under the root link.
        root: keep only this link and what hangs on it.
        lock: joint name to the value it is frozen at: a number, or `NQ[kind]` numbers.
        accept: names of physical flaws to take as they are; see `physical`.
        repair: names of physical flaws to repair; see `physical`.

    Raises:
        ModelError: where the description makes no robot.
    """
    links = {link.name: link for link in description.links}
    base = _check_tree(description)
    if root is not None and root not in links:
        raise ModelError(f"{description.where}: {missing('link', 'links', root, links)}")
    _check_numbers(description)
    children: dict[str, list[JointDescription]] = {name: [] for name in links}
    for edge in _locked(description, dict(lock or {})):
        children[edge.parent].append(edge)
    if floating_base:
        for edge in description.joints:
            if edge.name == FLOATING_BASE:
                raise ModelError(
                    f"{edge.where}: joint {edge.name!r}: floating_base=True adds a joint of that name; rename this one"
                )
    for link in description.links:
        physical.check_link(link, accept, repair)

    world = _Part("world", WORLD, None, STILL)
    parts: list[_Part] = []
    frames: list[Frame] = []
    shapes: list[Geometry] = []
    start = root if root is not None else base
    floating = Joint(FLOATING_BASE, "free") if floating_base else None
    # Depth first, with a stack of our own: a chain may be longer than Python's recursion limit.
    stack: list[tuple[str, int, Transform, Joint | None]] = [(start, WORLD, STILL, floating)]
    while stack:
        name, index, pose, joint = stack.pop()
        link = links[name]
        if joint is not None:
            parts.append(_Part(link.body or name, index, joint, pose))
            index, pose = len(parts) - 1, STILL
        pose = transform_compose(pose, (IDENTITY, link.offset))
        part = world if index == WORLD else parts[index]
        part.links.append(link)
        part.inertia = _welded(part.inertia, inertias.transformed(pose, (link.mass, link.com, link.inertia)))
        if not link.hidden:
            frames.append(Frame(name, index, pose[1], pose[0]))
        for site, position, rotation in link.sites:
            at = transform_compose(pose, (rotation, position))
            frames.append(Frame(site, index, at[1], at[0], kind="site"))
        for shape in link.geometries:
            at = transform_compose(pose, (shape.rotation, shape.position))
            shapes.append(replace(shape, body=index, link=name, position=at[1], rotation=at[0]))
        for edge in reversed(children[name]):
            stack.append((edge.child, index, transform_compose(pose, (edge.rotation, edge.position)), edge.joint))

    bodies = []
    for part in parts:
        assert part.joint is not None
        mass, com, inertia = part.inertia
        inertia = physical.check_body(part.name, mass, inertia, part.links, accept, repair)
        rotation, position = part.placement
        bodies.append(Body(part.name, part.parent, part.joint, position, rotation, mass, com, inertia))
    _check_mimics(description, bodies)
    return _finished(description, bodies, frames, shapes, Fixture(*world.inertia))


def _welded(a: inertias.Inertia, b: inertias.Inertia) -> inertias.Inertia:
    if a[0] + b[0] == 0.0:
        return a[0], a[1], inertias.symmetric_add(a[2], b[2])
    if not a[0] and not any(a[2]):
        return b  # exactly: so that a link alone keeps the file's own digits
    if not b[0] and not any(b[2]):
        return a
    return inertias.combined(a, b)


def _check_numbers(description: Description) -> None:
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


def _check_tree(description: Description) -> str:
    """Check that links and joints make one tree; the name of its root."""
    links = _unique("link", description.links)
    _unique("joint", description.joints)
    parents: dict[str, JointDescription] = {}
    for edge in description.joints:
        for role, name in (("parent", edge.parent), ("child", edge.child)):
            if name not in links:
                text = missing("link", "links", name, links)
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


def _locked(description: Description, lock: dict[str, float | Sequence[float]]) -> list[JointDescription]:
    """The joints, those to lock made welds at their value, and those that mimic them too."""
    moving = {edge.name: edge.joint for edge in description.joints if edge.joint is not None}
    for name in lock:
        if name not in moving:
            raise ModelError(f"{description.where}: lock: {missing('joint', 'joints', name, moving)}")
    values: dict[str, tuple[float, ...]] = {}
    for name, given in lock.items():
        values[name] = _lock_value(description.where, moving[name], given)
    waiting = [joint for joint in moving.values() if joint.mimic and joint.name not in values]
    while True:
        ready = [joint for joint in waiting if joint.mimic and joint.mimic.joint in values]
        if not ready:
            break
        for joint in ready:
            assert joint.mimic is not None
            leader = values[joint.mimic.joint]
            if len(leader) != 1:
                break  # such a mimic is refused later, with its place in the file
            values[joint.name] = (joint.mimic.multiplier * leader[0] + joint.mimic.offset,)
        if any(joint.name not in values for joint in ready):
            break
        waiting = [joint for joint in waiting if joint.name not in values]
    edges = []
    for edge in description.joints:
        if edge.joint is not None and edge.name in values:
            rotation, position = transform_compose(
                (edge.rotation, edge.position), joint_motion(edge.joint, values[edge.name])
            )
            edge = replace(edge, joint=None, position=position, rotation=rotation)
        edges.append(edge)
    return edges


def _lock_value(where: Where, joint: Joint, given: float | Sequence[float]) -> tuple[float, ...]:
    value = (float(given),) if isinstance(given, (int, float)) else tuple(float(x) for x in given)
    size = NQ[joint.kind]
    if len(value) != size or not all(map(math.isfinite, value)):
        raise ModelError(f"{where}: lock: joint {joint.name!r} is {joint.kind}: it takes {size} finite number(s)")
    if joint.kind in ("ball", "free") and math.hypot(*value[-4:]) < 1e-9:
        raise ModelError(f"{where}: lock: joint {joint.name!r}: its quaternion is zero; it must have length 1")
    return value


def joint_motion(joint: Joint, q: Sequence[float]) -> Transform:
    """Where the joint's frame is in its placement, at the joint's own coordinates q, in floats."""
    if joint.kind in ("revolute", "continuous"):
        return tidy(from_axis_angle(joint.axis, q[0])), ZERO
    if joint.kind == "prismatic":
        return IDENTITY, scale(q[0], joint.axis)
    if joint.kind == "planar":
        across = plane_axes(joint.axis)
        position = tuple(q[0] * a + q[1] * b for a, b in zip(*across, strict=True))
        return tidy(from_axis_angle(joint.axis, q[2])), vector3(position)
    w, x, y, z = quaternion_normalize((q[-4], q[-3], q[-2], q[-1]))
    return tidy(from_quaternion((w, x, y, z))), vector3(q[:3]) if joint.kind == "free" else ZERO


def plane_axes(normal: Vec3) -> tuple[Vec3, Vec3]:
    """The directions of a planar joint's x and y: the joint's own x and y axes if the normal is its z axis.

    For another normal they come from the shortest turn that takes z to it; (0, 0, -1) turns about x.
    """
    x, y, z = normal
    if z < -1.0 + 1e-12:
        return (1.0, 0.0, 0.0), (0.0, -1.0, 0.0)
    k = 1.0 / (1.0 + z)
    return (1.0 - k * x * x, -k * x * y, -x), (-k * x * y, 1.0 - k * y * y, -y)


def _check_mimics(description: Description, bodies: list[Body]) -> None:
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
                text = missing("moving joint", "joints", name, joints)
                raise ModelError(f"{where}: mimic: {text}{known}")
            if name in seen:
                raise ModelError(f"{where}: mimics itself: {' -> '.join([*seen, name])}")
            if len(seen) > MAX_MIMIC:
                raise ModelError(f"{where}: mimics through more than {MAX_MIMIC} joints")
            leader = joints[name]
            if NV[leader.kind] != 1 or NV[joint.kind] != 1:
                raise ModelError(
                    f"{where}: a {joint.kind} joint cannot mimic a {leader.kind} joint; "
                    "both must have one degree of freedom"
                )
            seen.append(name)
            following = leader


def _finished(
    description: Description, bodies: list[Body], frames: list[Frame], shapes: list[Geometry], fixture: Fixture
) -> Model:
    """The model, with what refers to links, joints and shapes that were not kept left out."""
    joints = {body.joint.name for body in bodies}
    names = {frame.name for frame in frames}
    kept = {shape.name for shape in shapes}
    actuators = tuple(actuator for actuator in description.actuators if actuator.joint in joints)
    independent = [body.joint for body in bodies if body.joint.nq]
    keyframes = [
        Keyframe(
            key.name,
            q=tuple(x for joint in independent for x in key.q.get(joint.name, NEUTRAL[joint.kind])),
            v=tuple(x for joint in independent for x in key.v.get(joint.name, (0.0,) * NV[joint.kind])),
            control=tuple(key.control.get(actuator.name, 0.0) for actuator in actuators),
        )
        for key in description.keyframes
    ]
    return Model(
        name=description.name,
        bodies=tuple(bodies),
        frames=tuple(frames),
        geometries=tuple(shapes),
        actuators=actuators,
        keyframes=tuple(keyframes),
        exclusions=tuple(pair for pair in description.exclusions if names.issuperset(pair)),
        pairs=tuple(pair for pair in description.pairs if kept.issuperset((pair.first, pair.second))),
        fixture=fixture,
        **description.more,
    )
