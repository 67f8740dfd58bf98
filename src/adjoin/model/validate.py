"""What holds for every model, however it was made: structure, names, sizes, finite numbers."""

import math
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from adjoin.errors import ModelError, Subject, unknown_name_parts
from adjoin.model.joint import Joint, Mat3
from adjoin.model.parts import GEOMETRY_KINDS, WORLD, Actuator, Body, Geometry
from adjoin.model.sensor import CONTACT_FIELDS, CONTACT_REDUCTIONS, SENSOR_SIZES, TAXEL, Sensor
from adjoin.spatial.vector import IDENTITY

if TYPE_CHECKING:
    from adjoin.model.model import Model

MAX_NUMBER = 1e18
"""No length, mass or angle of a robot is larger than this; products of a few such numbers stay finite."""
MAX_MIMIC = 50
"""Joints of a chain in which each mimics the next."""

CONDIMS = (1, 3, 4, 6)
"""What `Geometry.condim` may be."""

INTEGRATORS = ("", "Euler", "Euler, explicit", "implicitfast", "RK4")
"""What `Model.integrator` may be."""


def check(model: "Model") -> None:
    """Raise `ModelError` where the model contradicts itself.

    Parts that `_is_sound_body` and the like find sound in one pass are not looked at field by field.
    """
    for what, items in (
        ("body", model.bodies),
        ("joint", [body.joint for body in model.bodies]),
        ("frame", model.frames),
        ("geometry", model.geometries),
        ("actuator", model.actuators),
        ("keyframe", model.keyframes),
        ("tendon", model.tendons),
        ("equality", model.equalities),
        ("sensor", model.sensors),
    ):
        _unique(what, [item.name for item in items])
    for index, body in enumerate(model.bodies):
        if _is_sound_body(body, index) and _is_sound_joint(body.joint):
            continue
        subject = Subject("body", body.name)
        if not WORLD <= body.parent < index:
            remedy = "it must be -1 (the world) or a body before this one"
            raise ModelError(f"parent is {body.parent}", subject=subject, field="parent", remedy=remedy)
        _finite(subject, "mass", [body.mass])
        _finite(subject, "com", body.com, 3)
        _finite(subject, "inertia", body.inertia, 6)
        _pose(subject, body.position, body.rotation)
        _joint(body.joint)
    _mimics(model)
    count = len(model.bodies)
    for what, items in (("frame", model.frames), ("geometry", model.geometries)):
        for item in items:
            if WORLD <= item.body < count and _is_pose(item.position, item.rotation):
                continue
            subject = Subject(what, item.name)
            if not WORLD <= item.body < count:
                remedy = f"bodies: -1 (the world) to {count - 1}"
                raise ModelError(f"body {item.body} does not exist", subject=subject, field="body", remedy=remedy)
            _pose(subject, item.position, item.rotation)
    _shapes(model)
    for name in model.mocap:
        subject = Subject("frame", name)
        _known(subject, "mocap", "frame", name, [frame.name for frame in model.frames])
        if model.frames[model.frame_index(name)].body != WORLD:
            raise ModelError(
                "it moves by joints", subject=subject, field="mocap", remedy="it must be fixed to the world"
            )
    _terrain(model)
    _tendons(model)
    _equalities(model)
    _actuators(model)
    _sensors(model)
    medium = Subject("model", model.name)
    _finite(medium, "medium", (model.medium.density, model.medium.viscosity, *model.medium.wind))
    for shape in model.medium.shapes:
        _known(medium, "medium", "frame", shape.frame, [frame.name for frame in model.frames])
        _pose(medium, shape.position, shape.rotation)
        _finite(medium, "medium", (*shape.size, *shape.coefficients))
    for key in model.keyframes:
        sizes = {"q": model.nq, "v": model.nv, "control": model.nu, "activation": model.na}
        sizes["mocap"] = 7 * len(model.mocap)
        for field, size in sizes.items():
            numbers = getattr(key, field)
            if numbers or field == "q":
                _finite(Subject("keyframe", key.name), field, numbers, size)
    _finite(Subject("model", model.name), "timestep", [model.timestep])
    if model.timestep < 0.0:
        raise _negative(Subject("model", model.name), "timestep", model.timestep)
    if model.integrator not in INTEGRATORS:
        known = f"integrators: {', '.join(filter(None, INTEGRATORS))}"
        problem, subject = f"integrator {model.integrator!r} is unknown", Subject("model", model.name)
        raise ModelError(problem, subject=subject, field="integrator", remedy=known)
    _finite(Subject("model", model.name), "gravity", model.gravity, 3)
    fixture = Subject("model", model.name)
    _finite(fixture, "fixture.mass", [model.fixture.mass])
    _finite(fixture, "fixture.com", model.fixture.com, 3)
    _finite(fixture, "fixture.inertia", model.fixture.inertia, 6)


def _is_sound_body(body: Body, index: int) -> bool:
    com, inertia = body.com, body.inertia
    return (
        WORLD <= body.parent < index
        and len(com) == 3
        and len(inertia) == 6
        and math.isfinite(sum(com, body.mass) + sum(inertia))  # a sum is finite only if all its terms are
        and _is_pose(body.position, body.rotation)
    )


def _is_sound_joint(joint: Joint) -> bool:
    kind = joint.type
    rest = joint.spring_reference
    if joint.constants or kind.constants or joint.lopsided_effort or len(rest) != kind.nq or len(joint.axis) != 3:
        return False
    total = sum(rest)
    for coefficients in (joint.damping, joint.friction, joint.armature, joint.stiffness):
        if len(coefficients) != kind.nv or min(coefficients) < 0.0:
            return False
        total += sum(coefficients)
    return (
        math.isfinite(total)
        and abs(math.hypot(*joint.axis) - 1.0) <= 1e-9
        and joint.lower <= joint.upper
        and joint.velocity_limit >= 0.0
        and joint.effort_limit >= 0.0
    )


def _is_pose(position: Sequence[float], rotation: Mat3) -> bool:
    if len(position) != 3 or not math.isfinite(sum(position)):
        return False
    return rotation == IDENTITY or (list(map(len, rotation)) == [3, 3, 3] and _is_rotation(*_off(rotation)))


def _is_sound_shape(shape: Geometry) -> bool:
    """Return whether the numbers of a shape without vertices are in order."""
    size = shape.size
    if shape.vertices or shape.faces or shape.kind == "hull" or len(size) != 3 or min(size) < 0.0:
        return False
    if shape.condim not in CONDIMS or (len(shape.friction), len(shape.solref), len(shape.solimp)) != (3, 2, 5):
        return False
    numbers = sum(shape.friction) + sum(shape.solref) + sum(shape.solimp)
    return math.isfinite(sum(size) + numbers + shape.margin + shape.gap + shape.solmix)


def _is_sound_drive(actuator: Actuator, size: int) -> bool:
    gear, bias, constants = actuator.gear, actuator.bias, actuator.dynamics_constants
    if len(gear) != size or len(bias) != 3 or len(constants) != 3 or actuator.muscle_gain or actuator.muscle_bias:
        return False
    return math.isfinite(sum(gear) + sum(bias) + sum(constants) + sum(actuator.gain_slope, actuator.gain))


def _unique(what: str, names: Sequence[str]) -> None:
    seen = set(names)
    if len(seen) == len(names) and all(seen):
        return
    seen.clear()
    for name in names:
        if not name:
            raise ModelError(f"a {what} has an empty name")
        if name in seen:
            raise ModelError("there are two of that name", subject=Subject(what, name))
        seen.add(name)


def _finite(subject: Subject, field: str, numbers: Iterable[float], size: int | None = None) -> None:
    numbers = tuple(numbers)
    if size is not None and len(numbers) != size:
        problem = f"{field} has {len(numbers)} numbers"
        raise ModelError(problem, subject=subject, field=field, remedy=f"it needs {size}")
    if not all(map(math.isfinite, numbers)):
        odd = next(number for number in numbers if not math.isfinite(number))
        raise ModelError(f"{field} is {odd}", subject=subject, field=field, remedy="it must be finite")


def is_flat(vertices: np.ndarray | Sequence[Sequence[float]]) -> bool:
    """Return whether points are in one plane, so that their hull has no volume."""
    points = np.array(vertices)
    points = points - points.mean(0)
    (xx, xy, xz), (_, yy, yz), (_, _, zz) = (points.T @ points).tolist()
    trace = xx + yy + zz
    determinant = xx * yy * zz + 2.0 * xy * xz * yz - xx * yz * yz - yy * xz * xz - zz * xy * xy
    if 1e-90 < trace < 1e90 and determinant > 1e-9 * trace * trace * trace:
        return False  # far from flat: the squares of their extents have this determinant
    extents = np.linalg.svd(points, compute_uv=False)
    return len(points) < 4 or bool(extents[2] <= 1e-9 * extents[0])


def _solid(subject: Subject, vertices: Sequence[Sequence[float]]) -> None:
    """Raise if the vertices of a hull are in one plane."""
    if is_flat(vertices):
        raise ModelError(
            f"a hull of {len(vertices)} vertices in one plane has no volume",
            subject=subject,
            field="vertices",
            remedy="give it at least 4 that are not in one plane, or a box for a plate",
        )


def _negative(subject: Subject, field: str, value: float) -> ModelError:
    return ModelError(f"{field} is {value:g}", subject=subject, field=field, remedy="it must be at least 0")


def _pose(subject: Subject, position: Sequence[float], rotation: Mat3) -> None:
    _finite(subject, "position", position, 3)
    if rotation == IDENTITY:
        return
    for row in rotation:
        _finite(subject, "rotation", row, 3)
    error, determinant = _off(rotation)
    if not _is_rotation(error, determinant):
        problem = f"rotation is not a rotation matrix (off by {error:.1e}, determinant {determinant:.3g})"
        raise ModelError(problem, subject=subject, field="rotation")


def _off(rotation: Mat3) -> tuple[float, float]:
    """Return how far rows are from orthonormal, and their determinant."""
    (a, b, c), (d, e, f), (g, h, i) = rotation
    lengths = abs(a * a + b * b + c * c - 1.0), abs(d * d + e * e + f * f - 1.0), abs(g * g + h * h + i * i - 1.0)
    products = abs(a * d + b * e + c * f), abs(d * g + e * h + f * i), abs(a * g + b * h + c * i)
    determinant = a * (e * i - f * h) + b * (f * g - d * i) + c * (d * h - e * g)
    return max(*lengths, *products), determinant


def _is_rotation(error: float, determinant: float) -> bool:
    """Return whether rows are orthonormal and right-handed; anything else would scale or mirror the robot."""
    return error <= 1e-9 and determinant >= 0.0


def _joint(joint: Joint) -> None:
    subject = Subject("joint", joint.name)
    _finite(subject, "axis", joint.axis, 3)
    length = math.hypot(*joint.axis)
    if abs(length - 1.0) > 1e-9:
        problem = f"axis has length {length:.6g}"
        raise ModelError(problem, subject=subject, field="axis", remedy="it must be a unit vector")
    for field in ("damping", "friction", "armature", "stiffness"):
        _finite(subject, field, getattr(joint, field), joint.type.nv)
        if min(getattr(joint, field)) < 0.0:
            raise _negative(subject, field, min(getattr(joint, field)))
    _finite(subject, "spring_reference", joint.spring_reference, joint.type.nq)
    _finite(subject, f"constants ({', '.join(joint.type.constants)})", joint.constants, len(joint.type.constants))
    for field in ("lower", "upper", "velocity_limit", "effort_limit"):
        if math.isnan(getattr(joint, field)):
            raise ModelError(f"{field} is nan", subject=subject, field=field, remedy="it must be a number or infinite")
    if joint.lopsided_effort:
        _finite(subject, "lopsided_effort", joint.lopsided_effort, 2)
    if joint.lower > joint.upper:
        problem = f"the lower limit {joint.lower:g} is above the upper limit {joint.upper:g}"
        raise ModelError(problem, subject=subject)
    for field in ("velocity_limit", "effort_limit"):
        if getattr(joint, field) < 0.0:
            raise _negative(subject, field, getattr(joint, field))


def _terrain(model: "Model") -> None:
    if len(model.terrain) > 1:
        subject = Subject("model", model.name)
        problem = f"terrain has {len(model.terrain)} grids of heights"
        raise ModelError(problem, subject=subject, field="terrain", remedy="it takes one")
    shapes = {shape.name: shape for shape in model.geometries}
    for grid in model.terrain:
        subject = Subject("geometry", grid.name)
        _known(subject, "terrain", "geometry", grid.name, shapes)
        shape = shapes[grid.name]
        if shape.kind != "plane" or shape.body != WORLD or shape.rotation != IDENTITY:
            problem = "terrain takes the place of a level plane that is fixed to the world"
            raise ModelError(problem, subject=subject, field="terrain", remedy="this shape is none")
        columns = len(grid.heights[0]) if grid.heights else 0
        if len(grid.heights) < 2 or columns < 2:
            problem = f"terrain has {len(grid.heights)} rows and {columns} columns"
            raise ModelError(problem, subject=subject, field="terrain", remedy="it needs at least 2 of each")
        for row in grid.heights:
            _finite(subject, "terrain", row, columns)
        _finite(subject, "terrain", (*grid.spacing, *grid.origin), 5)
        if not min(grid.spacing) > 0.0:
            problem = f"the spacing of terrain is {min(grid.spacing):g}"
            raise ModelError(problem, subject=subject, field="terrain", remedy="it must be positive")
        if grid.base != 0.0 and not -min(map(min, grid.heights)) < grid.base < math.inf:
            problem = f"the base of terrain is {grid.base:g}"
            raise ModelError(problem, subject=subject, field="terrain", remedy="it must be below all heights")


def _mimics(model: "Model") -> None:
    joints = {body.joint.name: body.joint for body in model.bodies}
    for joint in joints.values():
        subject = Subject("joint", joint.name)
        if joint.mimic is not None:
            _finite(subject, "mimic", [joint.mimic.multiplier, joint.mimic.offset])
            flaw = mimic_flaw(joint, joints)
            if flaw is not None:
                raise ModelError(flaw[0], subject=subject, field="mimic", remedy=flaw[1])


def mimic_flaw(joint: Joint, joints: Mapping[str, Joint], described: Container[str] = ()) -> tuple[str, str] | None:
    """Return what is wrong with whom a joint mimics.

    Args:
        joint: any joint.
        joints: the moving joints by name.
        described: names of all joints of the file, fixed ones too.

    Returns:
        The problem and its remedy, or None if there is none.
    """
    seen = [joint.name]
    follower = joint
    ratio = 1.0
    while follower.mimic is not None:
        name = follower.mimic.joint
        ratio *= follower.mimic.multiplier
        if abs(ratio) > MAX_NUMBER:
            return f"the ratio to joint {name!r} is too large", f"the limit is {MAX_NUMBER:g}"
        if name not in joints:
            problem, known = unknown_name_parts("moving joint", "moving joints", name, joints)
            return problem + " (it is fixed, or not in the part that was kept)" * (name in described), known
        if name in seen:
            return f"the joint mimics itself: {' -> '.join([*seen, name])}", ""
        if len(seen) > MAX_MIMIC:
            return f"the chain has more than {MAX_MIMIC} joints", ""
        leader = joints[name]
        if leader.type.nv != 1 or joint.type.nv != 1:
            problem = f"a {joint.kind} joint cannot mimic a {leader.kind} joint"
            return problem, "both must have one degree of freedom"
        seen.append(name)
        follower = leader
    return None


def _shapes(model: "Model") -> None:
    frames = dict.fromkeys(frame.name for frame in model.frames)
    shapes = dict.fromkeys(shape.name for shape in model.geometries)
    for shape in model.geometries:
        if shape.kind in GEOMETRY_KINDS and shape.link in frames and _is_sound_shape(shape):
            continue
        subject = Subject("geometry", shape.name)
        if shape.kind not in GEOMETRY_KINDS:
            kinds = f"kinds: {', '.join(GEOMETRY_KINDS)}"
            raise ModelError(f"kind {shape.kind!r} is unknown", subject=subject, field="kind", remedy=kinds)
        if shape.link not in frames:
            problem, known = unknown_name_parts("frame", "frames", shape.link, frames)
            raise ModelError(problem, subject=subject, field="link", remedy=known)
        _finite(subject, "size", shape.size, 3)
        if min(shape.size) < 0.0:
            raise _negative(subject, "size", min(shape.size))
        if not (set(map(len, shape.vertices)) <= {3} and math.isfinite(sum(map(sum, shape.vertices)))):
            for vertex in shape.vertices:
                _finite(subject, "vertices", vertex, 3)
        if (shape.kind == "hull") != bool(shape.vertices):
            problem = f"a {shape.kind} has {len(shape.vertices)}"
            raise ModelError(
                problem, subject=subject, field="vertices", remedy="a hull needs some, and nothing else has any"
            )
        if shape.kind == "hull":
            _solid(subject, shape.vertices)
        if shape.faces:
            _faces(subject, shape)
        for field, size in (("friction", 3), ("solref", 2), ("solimp", 5)):
            _finite(subject, field, getattr(shape, field), size)
        if shape.condim not in CONDIMS:
            valid = f"it must be one of {', '.join(map(str, CONDIMS))}"
            raise ModelError(f"condim is {shape.condim}", subject=subject, field="condim", remedy=valid)
        _finite(subject, "margin, gap, solmix", (shape.margin, shape.gap, shape.solmix))
    for pair in model.pairs:
        for name in (pair.first, pair.second):
            if name not in shapes:
                problem, known = unknown_name_parts("geometry", "geometries", name, shapes)
                raise ModelError(problem, field="contact pair", remedy=known)
        _finite(
            Subject("contact pair", f"{pair.first}, {pair.second}"),
            "constants",
            (*pair.friction, *pair.solref, *pair.solimp, pair.margin, pair.gap),
        )
    for excluded in model.exclusions:
        for name in excluded:
            if name not in frames:
                problem, known = unknown_name_parts("link", "links", name, frames)
                raise ModelError(problem, field="contact exclusion", remedy=known)


def _faces(subject: Subject, shape: Geometry) -> None:
    """Raise if the faces of a hull are not rings of its vertices; those on an edge or inside a face may be of none."""
    faces, count = np.array(shape.faces), len(shape.vertices)
    ends = np.flatnonzero(faces == -1.0)
    are_indices = np.all((faces == np.floor(faces)) & (faces >= -1.0) & (faces < count)) and faces[-1] == -1.0
    if are_indices and (np.diff(ends, prepend=-1) > 3).all():
        return
    remedy = f"each has at least three indices from 0 to {count - 1}, then -1"
    raise ModelError("faces are not those of its vertices", subject=subject, field="faces", remedy=remedy)


def _known(subject: Subject, field: str, what: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        problem, known = unknown_name_parts(what, f"{what}s", name, names)
        raise ModelError(problem, subject=subject, field=field, remedy=known)


def _one_axis(subject: Subject, field: str, model: "Model", name: str) -> None:
    joints = {body.joint.name: body.joint for body in model.bodies}
    _known(subject, field, "joint", name, joints)
    if joints[name].type.nv != 1:
        problem = f"joint {name!r} is {joints[name].kind}"
        raise ModelError(problem, subject=subject, field=field, remedy="only joints with one axis can be named here")


def _tendons(model: "Model") -> None:
    frames = dict.fromkeys(frame.name for frame in model.frames)
    for tendon in model.tendons:
        subject = Subject("tendon", tendon.name)
        kinds = [part.kind for part in tendon.path]
        if not kinds or ("joint" in kinds and set(kinds) != {"joint"}):
            problem = "its path is empty, or has joints and points"
            raise ModelError(problem, subject=subject, field="path", remedy="it must be of joints, or of points")
        for before, part, after in zip(["", *kinds], tendon.path, [*kinds[1:], ""], strict=False):
            _finite(subject, "path", (part.factor, part.radius, *part.position))
            if part.kind == "joint":
                _one_axis(subject, "path", model, part.name)
            elif part.kind != "pulley":
                _known(subject, "path", "frame", part.name, frames)
            elif part.factor <= 0.0:
                raise ModelError(f"a pulley divides by {part.factor:g}", subject=subject, field="path")
            if part.side:
                _known(subject, "path", "frame", part.side, frames)
            if part.kind in ("sphere", "cylinder") and (before, after) != ("site", "site"):
                remedy = "it needs a point before and one after it"
                raise ModelError(f"a {part.kind} ends the path", subject=subject, field="path", remedy=remedy)
        if set(kinds) == {"site"} and len(kinds) < 2:
            remedy = "it needs at least two"
            raise ModelError("it runs through one point", subject=subject, field="path", remedy=remedy)
        _finite(subject, "stiffness, damping, friction", (tendon.stiffness, tendon.damping, tendon.friction))
        _finite(subject, "spring_length", tendon.spring_length, 2)


def _equalities(model: "Model") -> None:
    frames = dict.fromkeys(frame.name for frame in model.frames)
    names = {
        "connect": frames,
        "weld": frames,
        "joint": dict.fromkeys(joint.name for joint in model.joints),
        "tendon": dict.fromkeys(tendon.name for tendon in model.tendons),
    }
    for equality in model.equalities:
        subject = Subject("equality", equality.name)
        if equality.kind not in names:
            known = f"kinds: {', '.join(names)}"
            raise ModelError(f"kind {equality.kind!r} is unknown", subject=subject, field="kind", remedy=known)
        what = "frame" if equality.kind in ("connect", "weld") else equality.kind
        for field in ("first", "second") if equality.second else ("first",):
            _known(subject, field, what, getattr(equality, field), names[equality.kind])
            if equality.kind == "joint":
                _one_axis(subject, field, model, getattr(equality, field))
        if equality.first == equality.second:
            problem = f"it holds {what} {equality.first!r} to itself"
            raise ModelError(problem, subject=subject, field="second", remedy="name another, or none")
        _pose(subject, equality.position, equality.rotation)
        _finite(subject, "other_position", equality.other_position, 3)
        _finite(subject, "coefficients", equality.coefficients, 5)


def _contact_sensor(subject: Subject, sensor: Sensor) -> None:
    """Raise if a contact sensor measures what it cannot."""
    fields = sensor.data.split()
    if not fields or fields != [field for field in CONTACT_FIELDS if field in fields]:
        remedy = f"some of these, in this order: {' '.join(CONTACT_FIELDS)}"
        raise ModelError(f"data is {sensor.data!r}", subject=subject, field="data", remedy=remedy)
    if sensor.reduce not in CONTACT_REDUCTIONS:
        remedy = f"it may be: {', '.join(CONTACT_REDUCTIONS)}"
        raise ModelError(f"reduce is {sensor.reduce!r}", subject=subject, field="reduce", remedy=remedy)
    if {"linvel", "angvel"} & set(fields) and sensor.reduce == "netforce":
        remedy = "reduce must not be 'netforce'"
        raise ModelError("it measures velocities", subject=subject, field="data", remedy=remedy)


def _sensors(model: "Model") -> None:
    if not model.sensors:
        return
    frames = dict.fromkeys(frame.name for frame in model.frames)
    joints = dict.fromkeys(joint.name for joint in model.joints)
    owners: dict[str, Collection[str]] = {"joint": joints, "ball": joints}
    owners["tendon"] = [tendon.name for tendon in model.tendons]
    owners["actuator"] = [actuator.name for actuator in model.actuators]
    shapes = dict.fromkeys(shape.name for shape in model.geometries)
    for sensor in model.sensors:
        subject = Subject("sensor", sensor.name)
        if sensor.kind not in SENSOR_SIZES:
            known = f"kinds: {', '.join(SENSOR_SIZES)}"
            raise ModelError(f"kind {sensor.kind!r} is unknown", subject=subject, field="kind", remedy=known)
        what = next((owner for owner in owners if sensor.kind.startswith(owner)), "frame")
        names = owners.get(what, frames)
        if sensor.kind == "contact":
            _contact_sensor(subject, sensor)
        if sensor.kind in ("contact", "tactile", "user") and sensor.slots < 1:
            raise ModelError(f"slots is {sensor.slots}", subject=subject, field="slots", remedy="it must be at least 1")
        if sensor.kind == "tactile" and sensor.slots > 3:
            raise ModelError(f"slots is {sensor.slots}", subject=subject, field="slots", remedy="it must be at most 3")
        if sensor.kind.startswith("geom") or sensor.kind == "contact":
            what, names = "geometry", shapes
        if not sensor.kind.startswith("e_") and sensor.kind not in ("clock", "user"):
            for target in sensor.target.splitlines() or [""] * (sensor.kind != "contact"):
                _known(subject, "target", "joint" if what == "ball" else what, target, names)
        for reference in sensor.reference.splitlines():
            _known(
                subject,
                "reference",
                what if what == "geometry" else "frame",
                reference,
                names if what == "geometry" else frames,
            )
        for field in ("carried", "site"):
            for name in getattr(sensor, field).splitlines():
                _known(subject, field, "frame", name, frames)
        _finite(subject, "image", sensor.image, 4 if sensor.kind == "camprojection" else 0)
        if not -math.inf < sensor.phase <= 0.0:
            problem, remedy = f"phase is {sensor.phase}", "it must be finite and not positive"
            raise ModelError(problem, subject=subject, field="phase", remedy=remedy)
        _finite(subject, "carried_inertia", sensor.carried_inertia, 10 if sensor.carried else 0)
        _finite(subject, "rays", sensor.rays)
        for field in ("noise", "delay", "interval"):
            if not 0.0 <= getattr(sensor, field) < math.inf:
                problem = f"{field} is {getattr(sensor, field)}"
                raise ModelError(problem, subject=subject, field=field, remedy="it must be finite and not negative")
        each = {"rays": 6, "tactile": TAXEL}.get(sensor.kind, 0)
        if bool(sensor.rays) != bool(each) or (each and len(sensor.rays) % each):
            problem = f"rays has {len(sensor.rays)} numbers"
            remedy = f"a sensor of rays has six for each, a tactile one {TAXEL} for each point, others none"
            raise ModelError(problem, subject=subject, field="rays", remedy=remedy)
        _pose(subject, sensor.position, sensor.rotation)
        _pose(subject, sensor.reference_position, sensor.reference_rotation)


def _actuators(model: "Model") -> None:
    if not model.actuators:
        return
    joints = {body.joint.name: body.joint for body in model.bodies}
    frames = dict.fromkeys(frame.name for frame in model.frames)
    tendons = dict.fromkeys(tendon.name for tendon in model.tendons)
    for actuator in model.actuators:
        subject = Subject("actuator", actuator.name)
        targets = [field for field in ("joint", "tendon", "site", "body") if getattr(actuator, field)]
        if len(targets) != 1:
            problem = f"it acts on {', '.join(targets) or 'nothing'}"
            remedy = "name one joint, tendon, site or body"
            raise ModelError(problem, subject=subject, field="joint", remedy=remedy)
        size = 1
        if actuator.joint:
            _known(subject, "joint", "joint", actuator.joint, joints)
            size = joints[actuator.joint].type.nv
        elif actuator.tendon:
            _known(subject, "tendon", "tendon", actuator.tendon, tendons)
        else:
            _known(subject, targets[0], "frame", actuator.site or actuator.body, frames)
            size = 6 if actuator.site and not actuator.crank_length else 1
        if actuator.reference:
            _known(subject, "reference", "frame", actuator.reference, frames)
        if not _is_sound_drive(actuator, size):
            _finite(subject, "gear", actuator.gear, size)
            _finite(subject, "gain", [actuator.gain, *actuator.gain_slope])
            _finite(subject, "bias", actuator.bias, 3)
            _finite(subject, "dynamics_constants", actuator.dynamics_constants, 3)
            for field in ("muscle_gain", "muscle_bias"):
                if getattr(actuator, field):
                    _finite(subject, field, getattr(actuator, field), 12)
        for field in ("control_range", "force_range", "activation_range"):
            low, high = getattr(actuator, field)
            if not low <= high:
                raise ModelError(f"{field} ({low:g}, {high:g}) is reversed", subject=subject, field=field)
