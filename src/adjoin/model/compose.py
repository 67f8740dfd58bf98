"""Models put together: a tool or another robot on a link, several robots in one world."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from adjoin.errors import InputError, ModelError
from adjoin.model.joint import Joint
from adjoin.model.parts import WORLD, Body, Fixture, Frame, Geometry, Keyframe
from adjoin.spatial import inertia as inertias
from adjoin.spatial.motion import Transform, transform_compose
from adjoin.spatial.rotation import from_quaternion, tidy
from adjoin.spatial.vector import vector3

if TYPE_CHECKING:
    from adjoin.model.model import Model

Placed = TypeVar("Placed", Frame, Geometry)
_TARGETS = ("joint", "tendon", "site", "body", "reference")


def attach(
    model: "Model",
    other: "Model",
    frame: str | None,
    position: Sequence[float],
    rotation: Sequence[float],
    prefix: str,
) -> "Model":
    """Implement `Model.attach`; the world itself if no frame is named."""
    pose = _pose(position, rotation)
    host = WORLD
    if frame is not None:
        place = model.frames[model.frame_index(frame)]
        host = place.body
        pose = transform_compose((place.rotation, place.position), pose)
    if host != WORLD:
        for body in other.bodies:
            if body.parent == WORLD and body.joint.type.floating:
                raise ModelError(
                    f"{other.name!r} has a floating base, joint {body.joint.name!r}: it cannot be attached to a link"
                )
    _check_names(model, other, prefix)
    other = renamed(other, prefix)
    tree = model.trees[frame] if frame is not None else ""
    if tree:
        other = replace(other, frames=tuple(replace(f, tree=tree) for f in other.frames))
    first = _after_subtree(model, host)
    count = len(other.bodies)

    def host_index(index: int) -> int:
        return index if index < first else index + count

    def attached_index(index: int) -> int:
        return host_index(host) if index == WORLD else first + index

    def place_attached(item: Placed) -> Placed:
        if item.body != WORLD:
            return replace(item, body=attached_index(item.body))
        at = transform_compose(pose, (item.rotation, item.position))
        return replace(item, body=host_index(host), position=at[1], rotation=at[0])

    bodies = [replace(body, parent=host_index(body.parent)) for body in model.bodies]
    added = [
        _placed(replace(body, parent=attached_index(body.parent)), body.parent == WORLD, pose) for body in other.bodies
    ]
    bodies[first:first] = added
    fixture = model.fixture
    extra = inertias.transformed(pose, (other.fixture.mass, other.fixture.com, other.fixture.inertia))
    if other.fixture.mass:
        if host == WORLD:
            fixture = Fixture(*inertias.combined((fixture.mass, fixture.com, fixture.inertia), extra))
        else:
            body = bodies[host_index(host)]
            mass, com, inertia = inertias.combined((body.mass, body.com, body.inertia), extra)
            bodies[host_index(host)] = replace(body, mass=mass, com=com, inertia=inertia)
    actuators = model.actuators + other.actuators
    return replace(
        model,
        bodies=tuple(bodies),
        frames=tuple(replace(f, body=host_index(f.body)) for f in model.frames)
        + tuple(map(place_attached, other.frames)),
        geometries=tuple(replace(g, body=host_index(g.body)) for g in model.geometries)
        + tuple(map(place_attached, other.geometries)),
        actuators=actuators,
        keyframes=tuple(
            _extended(key, owner, bodies, actuators) for owner in (model, other) for key in owner.keyframes
        ),
        exclusions=model.exclusions + other.exclusions,
        pairs=model.pairs + other.pairs,
        tendons=model.tendons + other.tendons,
        equalities=model.equalities + other.equalities,
        sensors=model.sensors + other.sensors,
        terrain=model.terrain + other.terrain,
        mocap=model.mocap + other.mocap,
        medium=replace(model.medium, shapes=model.medium.shapes + other.medium.shapes),
        fixture=fixture,
    )


def forest(
    models: Mapping[str, "Model"],
    poses: Mapping[str, tuple[Sequence[float], Sequence[float]]] | None = None,
    *,
    name: str = "world",
) -> "Model":
    """Return several models in one world, as one.

    Args:
        models: the robots; the key with a slash goes before all their names, as in "left/gripper".
        poses: position (m) and quaternion [w x y z] of each, by key; at the origin if not given.
        name: of the whole.

    Returns:
        One model, the robots' coordinates one after the other. Gravity is that of the first.
    """
    if not models:
        raise InputError("forest: no models")
    for key in poses or {}:
        if key not in models:
            raise InputError(f"forest: a pose for {key!r}, which is not among the models: {', '.join(models)}")
    first = next(iter(models.values()))
    world = replace(
        first,
        name=name,
        bodies=(),
        frames=(),
        geometries=(),
        actuators=(),
        keyframes=(),
        exclusions=(),
        pairs=(),
        tendons=(),
        equalities=(),
        sensors=(),
        terrain=(),
        mocap=(),
        medium=replace(first.medium, shapes=()),
        fixture=Fixture(),
    )
    for key, model in models.items():
        position, rotation = (poses or {}).get(key, ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)))
        world = attach(world, model, None, position, rotation, f"{key}/")
    return world


def renamed(model: "Model", prefix: str) -> "Model":
    """Return the model with a prefix before the names of all its parts."""
    if not prefix:
        return model

    def named(item: Any, *fields: str) -> Any:
        return replace(item, **{field: prefix + getattr(item, field) for field in fields if getattr(item, field)})

    def joint(old: Joint) -> Joint:
        mimic = replace(old.mimic, joint=prefix + old.mimic.joint) if old.mimic else None
        return replace(old, name=prefix + old.name, mimic=mimic)

    return replace(
        model,
        bodies=tuple(replace(b, name=prefix + b.name, joint=joint(b.joint)) for b in model.bodies),
        frames=tuple(replace(f, name=prefix + f.name, tree=f.tree and prefix + f.tree) for f in model.frames),
        geometries=tuple(replace(g, name=prefix + g.name, link=prefix + g.link) for g in model.geometries),
        actuators=tuple(named(a, "name", *_TARGETS) for a in model.actuators),
        keyframes=tuple(replace(k, name=prefix + k.name) for k in model.keyframes),
        exclusions=tuple((prefix + first, prefix + second) for first, second in model.exclusions),
        pairs=tuple(named(p, "first", "second") for p in model.pairs),
        tendons=tuple(
            replace(t, name=prefix + t.name, path=tuple(named(part, "name", "side") for part in t.path))
            for t in model.tendons
        ),
        equalities=tuple(named(e, "name", "first", "second") for e in model.equalities),
        sensors=tuple(
            replace(named(s, "name"), **{key: _prefixed(prefix, getattr(s, key)) for key in _LINES})
            for s in model.sensors
        ),
        terrain=tuple(named(grid, "name") for grid in model.terrain),
        mocap=tuple(prefix + name for name in model.mocap),
        medium=replace(model.medium, shapes=tuple(named(shape, "frame") for shape in model.medium.shapes)),
    )


_LINES = ("target", "reference", "carried", "site")
"""Fields of sensors that may hold several names, one a line."""


def _prefixed(prefix: str, names: str) -> str:
    return "\n".join(prefix + name for name in names.splitlines())


def _pose(position: Sequence[float], rotation: Sequence[float]) -> Transform:
    place = [float(x) for x in position]
    turn = [float(x) for x in rotation]
    length = math.hypot(*turn)
    if len(place) != 3 or len(turn) != 4 or not all(map(math.isfinite, place)) or abs(length - 1.0) > 1e-6:
        raise InputError("a pose is a position of 3 finite numbers and a unit quaternion [w x y z]")
    w, x, y, z = (component / length for component in turn)
    return tidy(from_quaternion((w, x, y, z))), vector3(place)


def _check_names(model: "Model", other: "Model", prefix: str) -> None:
    for what in (
        "bodies",
        "joints",
        "frames",
        "geometries",
        "actuators",
        "keyframes",
        "tendons",
        "equalities",
        "sensors",
    ):
        taken = {item.name for item in getattr(model, what)}
        both = sorted(prefix + item.name for item in getattr(other, what) if prefix + item.name in taken)
        if both:
            raise ModelError(f"both models have {what} named {', '.join(map(repr, both[:10]))}; pass another prefix=")


def _after_subtree(model: "Model", host: int) -> int:
    """Return where bodies hung on `host` go, so that the order stays depth first."""
    if host == WORLD:
        return len(model.bodies)
    inside = {host}
    last = host
    for index, body in enumerate(model.bodies):
        if body.parent in inside:
            inside.add(index)
            last = index
    return last + 1


def _placed(body: Body, is_root: bool, pose: Transform) -> Body:
    if not is_root:
        return body
    rotation, position = transform_compose(pose, (body.rotation, body.position))
    return replace(body, position=position, rotation=rotation)


def _extended(key: Keyframe, owner: "Model", bodies: Sequence[Body], actuators: Sequence[Any]) -> Keyframe:
    """Return a key frame of one of the models, the other one neutral."""
    at = {joint.name: where for joint, where in zip(owner.joints, owner.coordinates, strict=True)}
    q: list[float] = []
    v: list[float] = []
    for body in bodies:
        joint, where = body.joint, at.get(body.joint.name)
        if joint.nq and where is not None:
            q += key.q[where.q_slice]
            v += key.v[where.v_slice] or (0.0,) * joint.nv
        elif joint.nq:
            q += joint.type.neutral
            v += (0.0,) * joint.nv
    known = dict(zip([actuator.name for actuator in owner.actuators], key.control, strict=False))
    stateful = [owner.actuators[index].name for index in owner.stateful_actuators]
    active = dict(zip(stateful, key.activation, strict=False))
    return replace(
        key,
        q=tuple(q),
        v=tuple(v),
        control=tuple(known.get(a.name, 0.0) for a in actuators),
        activation=tuple(active.get(a.name, 0.0) for a in actuators if a.dynamics != "none"),
        mocap=(),
    )
