"""From the description of a file to a frozen model: pick a subtree, lock joints, order, weld."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from adjoin.errors import Findings, Location, ModelError, Subject, unknown_name_parts
from adjoin.model import consistency, flaws, regularity
from adjoin.model.description import Description, JointDescription, LinkDescription
from adjoin.model.fluid import Medium
from adjoin.model.joint import Joint
from adjoin.model.model import Model
from adjoin.model.parts import WORLD, WORLD_LINK, Body, Fixture, Frame, Geometry, Keyframe
from adjoin.model.tendon import Waypoint
from adjoin.spatial import inertia as inertias
from adjoin.spatial.motion import IDENTITY_TRANSFORM, Transform, transform_compose
from adjoin.spatial.rotation import quaternion_normalize, tidy
from adjoin.spatial.vector import IDENTITY, ZERO

FLOATING_BASE = "root_joint"
"""Name of the free joint that `floating_base=True` adds; Pinocchio's name for it."""

Lock = Mapping[str, float | Sequence[float]]


@dataclass
class _Part:
    """A body, or the world, while links are being welded to it."""

    name: str
    parent: int
    joint: Joint | None
    placement: Transform
    inertia: inertias.Inertia = inertias.ZERO_INERTIA
    compensated: inertias.Inertia = inertias.ZERO_INERTIA
    links: list[LinkDescription] = field(default_factory=list)


def assemble(
    description: Description,
    *,
    floating_base: bool = False,
    root: str | None = None,
    lock: Lock | None = None,
    accept: Collection[str] = (),
    repair: Collection[str] = (),
    findings: Findings | None = None,
) -> Model:
    """Build the model.

    Args:
        description: what the file says.
        floating_base: put a free joint under the root link.
        root: keep only this link and what hangs on it.
        lock: joint name to the value it is frozen at: a number, or as many as it has in q.
        accept: names of physical flaws to take as they are; see `flaws`.
        repair: names of physical flaws to repair; see `flaws`.
        findings: where flaws are reported with which the robot can be built; by default they are errors.

    Raises:
        ModelError: where the description makes no robot.
    """
    findings = findings or Findings()
    links = {link.name: link for link in description.links}
    base = consistency.check_tree(description)
    if root is not None and root not in links:
        problem, known = unknown_name_parts("link", "links", root, links)
        raise ModelError(problem, where=description.where, field="root", remedy=known)
    consistency.check_numbers(description)
    children: dict[str, list[JointDescription]] = {name: [] for name in links}
    for edge in _locked(description, dict(lock or {})):
        children[edge.parent].append(edge)
    if floating_base:
        for edge in description.joints:
            if edge.name == FLOATING_BASE:
                problem, subject = "the floating base adds a joint of that name", Subject("joint", edge.name)
                raise ModelError(problem, where=edge.where, subject=subject, remedy="rename this one")
    for link in description.links:
        flaws.check_link(link, accept, repair, findings)

    world = _Part(WORLD_LINK, WORLD, None, IDENTITY_TRANSFORM)
    parts: list[_Part] = []
    frames: list[Frame] = []
    shapes: list[Geometry] = []
    start = root if root is not None else base
    floating = Joint(FLOATING_BASE, "free") if floating_base else None
    # Depth first, with a stack of our own: a chain may be longer than Python's recursion limit.
    stack: list[tuple[str, int, Transform, Joint | None, str]] = [(start, WORLD, IDENTITY_TRANSFORM, floating, "")]
    while stack:
        name, index, pose, joint, tree = stack.pop()
        link = links[name]
        if link.tree is not None:
            tree = link.tree
        elif not link.hidden and name != WORLD_LINK:
            tree = tree or name
        if joint is not None:
            parts.append(_Part(link.body or name, index, joint, pose))
            index, pose = len(parts) - 1, IDENTITY_TRANSFORM
        # The root's own frame is the base, wherever the joint it hung on had its anchor.
        if link.offset != ZERO and name != start:
            pose = transform_compose(pose, (IDENTITY, link.offset))
        part = world if index == WORLD else parts[index]
        part.links.append(link)
        if link.mass or any(link.inertia):
            own = inertias.transformed(pose, (link.mass, link.com, link.inertia))
            part.inertia = inertias.combined(part.inertia, own)
        if link.compensated_mass:
            carried = (link.compensated_mass, link.compensated_com, inertias.ZERO_INERTIA[2])
            part.compensated = inertias.combined(part.compensated, inertias.transformed(pose, carried))
        if not link.hidden:
            frames.append(Frame(name, index, pose[1], pose[0], tree=tree))
        for site, position, rotation in link.sites:
            at = transform_compose(pose, (rotation, position))
            frames.append(Frame(site, index, at[1], at[0], kind="site", tree=tree))
        for shape in link.geometries:
            at = transform_compose(pose, (shape.rotation, shape.position))
            shapes.append(shape.placed(index, name, at[1], at[0]))
        for edge in reversed(children[name]):
            at = transform_compose(pose, (edge.rotation, edge.position))
            stack.append((edge.child, index, at, edge.joint, tree))

    bodies = []
    for part in parts:
        assert part.joint is not None
        mass, com, inertia = part.inertia
        inertia = flaws.check_body(part.name, mass, inertia, part.links, accept, repair, findings)
        rotation, position = part.placement
        carried, center, _ = part.compensated
        bodies.append(Body(part.name, part.parent, part.joint, position, rotation, mass, com, inertia, carried, center))
    bodies = consistency.check_mimics(description, bodies, findings)
    model = _build(description, bodies, frames, shapes, Fixture(*world.inertia))
    doubtful = [part for part in parts if not all(link.massless for link in part.links) and _may_be_singular(part)]
    if doubtful and not findings.strict and "mass" not in accept:
        _report_singular(model, description, findings)
    return model


def _may_be_singular(part: _Part) -> bool:
    mass, _, inertia = part.inertia
    return mass <= 0.0 or (not flaws.is_clearly_physical(inertia) and min(flaws.moments(inertia)) <= 0.0)


def _report_singular(model: Model, description: Description, findings: Findings) -> None:
    """Report joints for which bodies that lack mass or inertia leave no equation of motion."""
    places = {edge.name: edge.where for edge in description.joints}
    for name in regularity.singular_joints(model):
        findings.report(
            ModelError(
                "what it moves has no inertia, so that the mass matrix is singular",
                where=places.get(name, description.where),
                subject=Subject("joint", name),
                remedy="give the link mass, the joint armature, or lock it",
            ),
            "kept: kinematics and inverse dynamics work, forward dynamics does not until it has mass or armature",
        )


def _locked(description: Description, lock: dict[str, float | Sequence[float]]) -> list[JointDescription]:
    """Return the joints, those to lock made welds at their value, and those that mimic them too."""
    moving = {edge.name: edge.joint for edge in description.joints if edge.joint is not None}
    for name in lock:
        if name not in moving:
            problem, known = unknown_name_parts("moving joint", "moving joints", name, moving)
            raise ModelError(problem, where=description.where, field="lock", remedy=known)
    values = {name: _lock_value(description.where, moving[name], value) for name, value in lock.items()}
    followers: dict[str, list[Joint]] = {}
    for joint in moving.values():
        if joint.mimic is not None and joint.name not in values and joint.type.nq == 1:
            followers.setdefault(joint.mimic.joint, []).append(joint)
    waiting = [name for name, value in values.items() if len(value) == 1]
    while waiting:
        leader = waiting.pop()
        for joint in followers.pop(leader, []):
            assert joint.mimic is not None
            values[joint.name] = (joint.mimic.multiplier * values[leader][0] + joint.mimic.offset,)
            waiting.append(joint.name)
    edges = []
    for edge in description.joints:
        if edge.joint is not None and edge.name in values:
            rotation, position = transform_compose(
                (edge.rotation, edge.position), joint_pose(edge.joint, values[edge.name])
            )
            edge = replace(edge, joint=None, position=position, rotation=rotation)
        edges.append(edge)
    return edges


def _lock_value(where: Location, joint: Joint, lock: float | Sequence[float]) -> tuple[float, ...]:
    value = (float(lock),) if isinstance(lock, (int, float)) else tuple(float(x) for x in lock)
    subject = Subject("joint", joint.name)
    size = joint.type.nq
    if len(value) != size or not all(map(math.isfinite, value)):
        problem, remedy = (
            f"{lock} is not a position of a {joint.kind} joint",
            f"it needs {size} finite number{'s' * (size > 1)}",
        )
        raise ModelError(problem, where=where, subject=subject, field="lock", remedy=remedy)
    if joint.type.has_quaternion and math.hypot(*value[-4:]) < 1e-9:
        problem = "the quaternion is zero"
        raise ModelError(problem, where=where, subject=subject, field="lock", remedy="it must have length 1")
    return value


def joint_pose(joint: Joint, q: Sequence[float]) -> Transform:
    """Return the pose of the body's frame in the joint's placement, with unit quaternions and exact right angles."""
    if joint.type.has_quaternion:
        q = [*q[:-4], *quaternion_normalize((q[-4], q[-3], q[-2], q[-1]))]
    rotation, position = joint.type.transform(joint, q)
    return tidy(rotation), position


def _build(
    description: Description, bodies: list[Body], frames: list[Frame], shapes: list[Geometry], fixture: Fixture
) -> Model:
    """Return the model, without what refers to links, joints and shapes that were left out."""
    joints = {body.joint.name for body in bodies}
    names = {frame.name for frame in frames}
    shape_names = {shape.name for shape in shapes}
    tendons = tuple(t for t in description.tendons if all(_is_kept(part, joints, names) for part in t.path))
    tendon_names = {tendon.name for tendon in tendons}
    actuators = tuple(
        a
        for a in description.actuators
        if ({a.joint} - {""} <= joints and {a.tendon} - {""} <= tendon_names)
        and {a.site, a.body, a.reference} - {""} <= names
    )
    ends = {"joint": joints, "tendon": tendon_names}
    equalities = tuple(e for e in description.equalities if {e.first, e.second} - {""} <= ends.get(e.kind, names))
    everything = joints | names | tendon_names | shape_names | {actuator.name for actuator in actuators}
    mocap = tuple(name for name in description.mocap if name in names)
    independent = [body.joint for body in bodies if body.joint.nq]
    keyframes = [
        Keyframe(
            key.name,
            q=tuple(x for joint in independent for x in key.q.get(joint.name, joint.type.neutral)),
            v=tuple(x for joint in independent for x in key.v.get(joint.name, (0.0,) * joint.type.nv)),
            control=tuple(key.control.get(actuator.name, 0.0) for actuator in actuators),
            activation=tuple(key.activation.get(a.name, 0.0) for a in actuators if a.dynamics != "none"),
            mocap=tuple(x for name in mocap for x in key.mocap[name]) if mocap and set(mocap) <= set(key.mocap) else (),
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
        pairs=tuple(pair for pair in description.pairs if shape_names.issuperset((pair.first, pair.second))),
        tendons=tendons,
        equalities=equalities,
        medium=_medium(description.medium, names),
        sensors=tuple(
            s
            for s in description.sensors
            if {*f"{s.target}\n{s.reference}\n{s.carried}\n{s.site}".splitlines()} - {""} <= everything
        ),
        mocap=mocap,
        terrain=tuple(grid for grid in description.terrain if grid.name in shape_names),
        fixture=fixture,
        **description.more,
    )


def _medium(medium: Medium, frames: Collection[str]) -> Medium:
    """Return a medium without the shapes of links that were left out."""
    kept = tuple(shape for shape in medium.shapes if shape.frame in frames)
    return medium if kept == medium.shapes else replace(medium, shapes=kept)


def _is_kept(part: Waypoint, joints: Collection[str], frames: Collection[str]) -> bool:
    """Return whether what a tendon runs over is in the model."""
    if part.kind == "joint":
        return part.name in joints
    return part.kind == "pulley" or (part.name in frames and (not part.side or part.side in frames))
