"""What holds for every model, however it was made: structure, names, sizes, finite numbers."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from adjoin.errors import ModelError
from adjoin.model.joint import Joint, Mat3
from adjoin.model.parts import GEOMETRY_KINDS, WORLD
from adjoin.spatial.vector import IDENTITY

if TYPE_CHECKING:
    from adjoin.model.model import Model


def check(model: "Model") -> None:
    """Raise `ModelError` where the model contradicts itself."""
    for what, items in (
        ("body", model.bodies),
        ("joint", [body.joint for body in model.bodies]),
        ("frame", model.frames),
        ("geometry", model.geometries),
        ("actuator", model.actuators),
        ("keyframe", model.keyframes),
    ):
        _unique(what, [item.name for item in items])
    for index, body in enumerate(model.bodies):
        where = f"body {body.name!r}"
        if not WORLD <= body.parent < index:
            raise ModelError(f"{where}: parent {body.parent} is not the world (-1) or a body before it")
        _finite(where, "mass", [body.mass])
        _finite(where, "com", body.com, 3)
        _finite(where, "inertia", body.inertia, 6)
        _pose(where, body.position, body.rotation)
        _joint(body.joint)
    _mimics(model)
    count = len(model.bodies)
    for what, items in (("frame", model.frames), ("geometry", model.geometries)):
        for item in items:
            where = f"{what} {item.name!r}"
            if not WORLD <= item.body < count:
                raise ModelError(f"{where}: body {item.body} does not exist; bodies: -1 (the world) to {count - 1}")
            _pose(where, item.position, item.rotation)
    _shapes(model)
    _actuators(model)
    for key in model.keyframes:
        for field, size in (("q", model.nq), ("v", model.nv), ("control", model.nu)):
            numbers = getattr(key, field)
            if numbers or field == "q":
                _finite(f"keyframe {key.name!r}", field, numbers, size)
    _finite("model", "gravity", model.gravity, 3)
    _finite("fixture", "mass", [model.fixture.mass])
    _finite("fixture", "com", model.fixture.com, 3)
    _finite("fixture", "inertia", model.fixture.inertia, 6)


def _unique(what: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if not name:
            raise ModelError(f"a {what} has an empty name")
        if name in seen:
            raise ModelError(f"two {'bodies' if what == 'body' else what + 's'} are named {name!r}")
        seen.add(name)


def _finite(where: str, field: str, numbers: Iterable[float], size: int | None = None) -> None:
    numbers = tuple(numbers)
    if size is not None and len(numbers) != size:
        raise ModelError(f"{where}: {field} has {len(numbers)} numbers; it needs {size}")
    for number in numbers:
        if not math.isfinite(number):
            raise ModelError(f"{where}: {field} is {number}; it must be finite")


def _pose(where: str, position: Sequence[float], rotation: Mat3) -> None:
    _finite(where, "position", position, 3)
    if rotation == IDENTITY:
        return
    for row in rotation:
        _finite(where, "rotation", row, 3)
    # Rows of a rotation are orthonormal and right-handed; anything else would scale or mirror the robot.
    a, b, c = rotation
    gram = [sum(x * y for x, y in zip(r, s, strict=True)) for r, s in ((a, a), (b, b), (c, c), (a, b), (b, c), (a, c))]
    error = max(abs(g - e) for g, e in zip(gram, (1, 1, 1, 0, 0, 0), strict=True))
    determinant = sum(a[i] * (b[(i + 1) % 3] * c[(i + 2) % 3] - b[(i + 2) % 3] * c[(i + 1) % 3]) for i in range(3))
    if error > 1e-9 or determinant < 0:
        raise ModelError(
            f"{where}: rotation is not a rotation matrix (off by {error:.1e}, determinant {determinant:.3g})"
        )


def _joint(joint: Joint) -> None:
    where = f"joint {joint.name!r}"
    _finite(where, "axis", joint.axis, 3)
    length = math.hypot(*joint.axis)
    if abs(length - 1.0) > 1e-9:
        raise ModelError(f"{where}: axis has length {length:.6g}; it must be a unit vector")
    for field in ("damping", "friction", "armature", "stiffness"):
        _finite(where, field, getattr(joint, field), joint.type.nv)
        if min(getattr(joint, field)) < 0.0:
            raise ModelError(f"{where}: {field} is negative ({min(getattr(joint, field)):g})")
    _finite(where, "spring_reference", joint.spring_reference, joint.type.nq)
    _finite(where, f"constants ({', '.join(joint.type.constants)})", joint.constants, len(joint.type.constants))
    for field in ("lower", "upper", "velocity_limit", "effort_limit"):
        if math.isnan(getattr(joint, field)):
            raise ModelError(f"{where}: {field} is nan")
    if joint.lower > joint.upper:
        raise ModelError(f"{where}: lower limit {joint.lower:g} is above the upper limit {joint.upper:g}")
    for field in ("velocity_limit", "effort_limit"):
        if getattr(joint, field) < 0.0:
            raise ModelError(f"{where}: {field} is negative ({getattr(joint, field):g})")


def _mimics(model: "Model") -> None:
    joints = {body.joint.name: body.joint for body in model.bodies}
    for joint in joints.values():
        seen = [joint.name]
        following = joint
        while following.mimic is not None:
            where = f"joint {joint.name!r}"
            _finite(where, "mimic", [following.mimic.multiplier, following.mimic.offset])
            leader = joints.get(following.mimic.joint)
            if leader is None:
                raise ModelError(f"{where}: mimics joint {following.mimic.joint!r}, which does not exist")
            if leader.name in seen:
                raise ModelError(f"{where}: mimics itself through {' -> '.join([*seen, leader.name])}")
            if leader.type.nv != 1 or joint.type.nv != 1:
                raise ModelError(f"{where}: a {joint.kind} joint cannot mimic a {leader.kind} joint; both need one dof")
            seen.append(leader.name)
            following = leader


def _shapes(model: "Model") -> None:
    frames = {frame.name for frame in model.frames}
    shapes = {shape.name for shape in model.geometries}
    for shape in model.geometries:
        where = f"geometry {shape.name!r}"
        if shape.kind not in GEOMETRY_KINDS:
            raise ModelError(f"{where}: kind {shape.kind!r} is not one of {', '.join(GEOMETRY_KINDS)}")
        if shape.link not in frames:
            raise ModelError(f"{where}: its link {shape.link!r} is not among the frames")
        _finite(where, "size", shape.size, 3)
        if min(shape.size) < 0.0:
            raise ModelError(f"{where}: size is negative ({min(shape.size):g})")
        for vertex in shape.vertices:
            _finite(where, "vertices", vertex, 3)
        if (shape.kind == "hull") != bool(shape.vertices):
            raise ModelError(f"{where}: vertices belong to a hull, and a hull needs them")
        for field in ("friction", "solref", "solimp"):
            _finite(where, field, getattr(shape, field))
        _finite(where, "margin, gap, solmix", (shape.margin, shape.gap, shape.solmix))
    for pair in model.pairs:
        for name in (pair.first, pair.second):
            if name not in shapes:
                raise ModelError(f"contact pair: geometry {name!r} does not exist")
        _finite("contact pair", "constants", (*pair.friction, *pair.solref, *pair.solimp, pair.margin, pair.gap))
    for excluded in model.exclusions:
        for name in excluded:
            if name not in frames:
                raise ModelError(f"contact exclusion: link {name!r} does not exist")


def _actuators(model: "Model") -> None:
    joints = {body.joint.name: body.joint for body in model.bodies}
    for actuator in model.actuators:
        where = f"actuator {actuator.name!r}"
        joint = joints.get(actuator.joint)
        if joint is None:
            raise ModelError(f"{where}: joint {actuator.joint!r} does not exist")
        _finite(where, "gear", actuator.gear, joint.type.nv)
        _finite(where, "gain", [actuator.gain])
        _finite(where, "bias", actuator.bias, 3)
        for field in ("control_range", "force_range"):
            low, high = getattr(actuator, field)
            if not low <= high:
                raise ModelError(f"{where}: {field} ({low:g}, {high:g}) is reversed")
