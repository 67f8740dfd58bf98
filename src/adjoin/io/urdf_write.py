"""Models written as URDF. What URDF cannot say goes into an `<adjoin>` element (see `extension`), so nothing is lost.

Links that were welded together stay welded: the body's link carries all the mass, the others are frames.
"""

import math
from dataclasses import dataclass, field, fields, replace
from xml.sax.saxutils import quoteattr

from adjoin.errors import ModelError
from adjoin.io.extension import (
    CONTACT_NUMBERS,
    CONTACT_WHOLE,
    JOINT_FIELDS,
    JOINT_NUMBERS,
    PAIR_NUMBERS,
    UNLIMITED,
    VERSION,
)
from adjoin.io.records import attributes_of
from adjoin.model.joint import Joint
from adjoin.model.model import Model
from adjoin.model.parts import WORLD, Body, ContactPair, Frame, Geometry
from adjoin.spatial.motion import IDENTITY_TRANSFORM, Transform, transform_compose, transform_inverse
from adjoin.spatial.rotation import to_rpy
from adjoin.spatial.vector import IDENTITY, ZERO

_BEYOND = 1e9  # what URDF is told where there is no limit


def to_urdf(model: Model, *, header: str = "", shapes: bool = True) -> str:
    """Return a model as URDF text.

    Args:
        model: any model.
        header: a comment to stand at the top, such as source and license.
        shapes: whether what can touch is written; without, also parsers that know no capsules read it.

    Returns:
        The document. `adjoin.load` reads it back as the same model, up to the order of frames and to rounding in the
        conversion of rotations.
    """
    return _Writer(model if shapes else replace(model, geometries=(), pairs=())).document(header)


def number(x: float) -> str:
    """Return the shortest decimal that reads back as the same float."""
    return repr(x + 0.0).removesuffix(".0")


def numbers(values: tuple[float, ...]) -> str:
    """Return several numbers as text."""
    return " ".join(number(x) for x in values)


def _tag(name: str, attributes: dict[str, str], children: list[str] | None = None) -> list[str]:
    text = "".join(f" {key}={quoteattr(value)}" for key, value in attributes.items())
    if not children:
        return [f"<{name}{text}/>"]
    if len(children) == 1:
        return [f"<{name}{text}>{children[0]}</{name}>"]
    return [f"<{name}{text}>", *(f" {line}" for line in children), f"</{name}>"]


def _origin(pose: Transform) -> list[str]:
    rotation, position = pose
    attributes = {}
    if position != ZERO:
        attributes["xyz"] = numbers(position)
    if rotation != IDENTITY:
        attributes["rpy"] = numbers(to_rpy(rotation))
    return _tag("origin", attributes) if attributes else []


@dataclass
class _Writer:
    model: Model
    taken: set[str] = field(default_factory=set)
    carriers: dict[int, str] = field(default_factory=dict)
    extra: list[str] = field(default_factory=list)

    def document(self, header: str) -> str:
        model = self.model
        self.taken = {frame.name for frame in model.frames} | {body.name for body in model.bodies}
        self._choose_carriers()
        self._trees()
        lines: list[str] = []
        lines += self._link(WORLD)
        for index in range(len(model.bodies)):
            lines += self._link(index)
        for frame in model.frames:
            if frame.kind == "link" and frame.name != self.carriers[frame.body]:
                lines += _tag("link", {"name": frame.name}, self._collisions(frame.name))
        for index, body in enumerate(model.bodies):
            lines += self._joint(index, body)
        names = {joint.name for joint in model.joints}
        for frame in model.frames:
            if frame.kind == "link" and frame.name != self.carriers[frame.body]:
                name = _fresh(f"{frame.name}_fixed", names)
                names.add(name)
                ends = _tag("parent", {"link": self.carriers[frame.body]}) + _tag("child", {"link": frame.name})
                origin = _origin((frame.rotation, frame.position))
                lines += _tag("joint", {"name": name, "type": "fixed"}, [*origin, *ends])
        lines += self._extension()
        comment = [f"<!-- {header.strip().replace('--', '- -')} -->"] if header.strip() else []
        body = _tag("robot", {"name": model.name}, lines)
        return "\n".join(['<?xml version="1.0" encoding="utf-8"?>', *comment, *body]) + "\n"

    def _choose_carriers(self) -> None:
        """Name the link that carries each body's joint: its own frame if that lies in the joint, else a hidden link."""
        frames = {(frame.body, frame.name): frame for frame in self.model.frames}
        for index, body in enumerate(self.model.bodies):
            link = frames.get((index, body.name))
            if link is not None and link.kind == "link" and (link.rotation, link.position) == IDENTITY_TRANSFORM:
                self.carriers[index] = body.name
                if notes := _notes(body):
                    self.extra += _tag("link", {"name": body.name, **notes})
            else:
                self._hide(index, body.name, _notes(body))
        for frame in self.model.frames:
            if frame.body == WORLD and frame.kind == "link" and (frame.rotation, frame.position) == IDENTITY_TRANSFORM:
                self.carriers[WORLD] = frame.name
                break
        else:
            self._hide(WORLD, "world", {})

    def _trees(self) -> None:
        """Say which tree a link is part of, where a reader would not find that out from the joints."""
        root = self.carriers[WORLD]
        trees = {frame.name: frame.tree for frame in self.model.frames}
        for frame in self.model.frames:
            top = frame.body
            while top != WORLD and self.model.bodies[top].parent != WORLD:
                top = self.model.bodies[top].parent
            carrier = self.carriers[top] if top != WORLD else frame.name
            derived = root if trees.get(root) else carrier if carrier in trees else None
            if frame.kind == "link" and frame.tree and frame.tree != derived:
                self.extra += _tag("link", {"name": frame.name, "tree": frame.tree})

    def _hide(self, index: int, name: str, notes: dict[str, str]) -> None:
        used = {frame.name for frame in self.model.frames} | set(self.carriers.values())
        link = name if name not in used else _fresh(f"{name}/joint", used | self.taken)
        self.carriers[index] = link
        attributes = {"name": link, "hidden": "1"}
        if index != WORLD:
            attributes["body"] = name
        self.extra += _tag("link", {**attributes, **notes})

    def _link(self, index: int) -> list[str]:
        part = self.model.fixture if index == WORLD else self.model.bodies[index]
        children: list[str] = []
        if part.mass or any(part.inertia):
            keys = ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
            inertia = {key: number(value) for key, value in zip(keys, part.inertia, strict=True)}
            children = _tag(
                "inertial",
                {},
                [
                    *_origin((IDENTITY, part.com)),
                    *_tag("mass", {"value": number(part.mass)}),
                    *_tag("inertia", inertia),
                ],
            )
        name = self.carriers[index]
        return _tag("link", {"name": name}, children + self._collisions(name))

    def _collisions(self, link: str) -> list[str]:
        lines: list[str] = []
        for shape in self.model.geometries:
            if shape.link != link:
                continue
            frame = self.model.frames[self.model.frame_index(link)]
            pose = _relative(frame, shape)
            self._contact(shape)
            if shape.kind in ("sphere", "box", "cylinder", "capsule"):
                lines += _tag(
                    "collision", {"name": shape.name}, [*_origin(pose), *_tag("geometry", {}, _primitive(shape))]
                )
            else:
                attributes = {"name": shape.name, "link": link, "kind": shape.kind, "size": numbers(shape.size)}
                attributes |= {"xyz": numbers(pose[1]), "rpy": numbers(to_rpy(pose[0]))}
                if shape.vertices:
                    attributes["vertices"] = "  ".join(numbers(vertex) for vertex in shape.vertices)
                if shape.faces:
                    attributes["faces"] = " ".join(str(int(index)) for index in shape.faces)
                self.extra.insert(0, *_tag("shape", attributes))
        return lines

    def _contact(self, shape: Geometry) -> None:
        defaults = {f.name: f.default for f in fields(Geometry)}
        attributes = _changed(shape, CONTACT_NUMBERS, CONTACT_WHOLE, defaults)
        if attributes:
            self.extra += _tag("contact", {"shape": shape.name, **attributes})

    def _joint(self, index: int, body: Body) -> list[str]:
        joint = body.joint
        extra: dict[str, str] = {}
        kind = joint.type.urdf
        if kind is None:
            raise ModelError(f"to_urdf: joint {joint.name!r} is {joint.kind}, for which URDF has no type")
        if joint.kind == "revolute" and joint.lower == -math.inf and joint.upper == math.inf:
            kind, extra["kind"] = "continuous", "revolute"
        if joint.constants:
            extra["constants"] = numbers(joint.constants)
        extra |= _changed(joint, JOINT_NUMBERS, (), {f.name: f.default for f in fields(Joint)})
        children = _origin((body.rotation, body.position))
        children += _tag("parent", {"link": self.carriers[body.parent]})
        children += _tag("child", {"link": self.carriers[index]})
        if joint.type.has_axis:
            children += _tag("axis", {"xyz": numbers(joint.axis)})
        children += _limit(joint, kind, extra)
        children += self._dynamics(joint, extra)
        if joint.mimic:
            mimic = {"joint": joint.mimic.joint, "multiplier": number(joint.mimic.multiplier)}
            children += _tag("mimic", {**mimic, "offset": number(joint.mimic.offset)})
        if extra:
            self.extra += _tag("joint", {"name": joint.name, **extra})
        return _tag("joint", {"name": joint.name, "type": kind}, children)

    def _dynamics(self, joint: Joint, extra: dict[str, str]) -> list[str]:
        plain: dict[str, str] = {}
        for name in JOINT_FIELDS:
            values = getattr(joint, name)
            same = len(set(values)) == 1
            if name in ("damping", "friction") and same:
                if values[0]:
                    plain[name] = number(values[0])
            elif any(values):
                extra[name] = number(values[0]) if same else numbers(values)
        if joint.spring_reference != joint.type.neutral:
            extra["spring_reference"] = numbers(joint.spring_reference)
        return _tag("dynamics", plain) if plain else []

    def _extension(self) -> list[str]:
        model = self.model
        lines = list(self.extra)
        for frame in model.frames:
            if frame.kind == "site":
                carrier = self.carriers[frame.body]
                if any(carrier == f.name for f in model.frames):
                    place = {"link": carrier, "xyz": numbers(frame.position), "rpy": numbers(to_rpy(frame.rotation))}
                else:
                    place = self._site_on_frame(frame)
                lines += _tag("site", {"name": frame.name, **place})
        for actuator in model.actuators:
            attributes = attributes_of(actuator, ("gear", "control_range", "force_range"))
            if any(gear != 1.0 for gear in actuator.gear):
                attributes["gear"] = numbers(actuator.gear)
            for name in ("control_range", "force_range"):
                low, high = getattr(actuator, name)
                kind = name.removesuffix("_range")
                if math.isfinite(low) and math.isfinite(high):
                    attributes[name] = numbers((low, high))
                elif math.isfinite(low):
                    attributes[f"{kind}_lower"] = number(low)
                elif math.isfinite(high):
                    attributes[f"{kind}_upper"] = number(high)
            lines += _tag("actuator", attributes)
        for tendon in model.tendons:
            path = [line for part in tendon.path for line in _tag("waypoint", attributes_of(part))]
            lines += _tag("tendon", attributes_of(tendon, ("path",)), path)
        for equality in model.equalities:
            lines += _tag("equality", attributes_of(equality))
        if model.medium.shapes:
            shapes = [line for shape in model.medium.shapes for line in _tag("shape", attributes_of(shape))]
            lines += _tag("medium", attributes_of(model.medium, ("shapes",)), shapes)
        for sensor in model.sensors:
            lines += _tag("sensor", attributes_of(sensor))
        for grid in model.terrain:
            heights = numbers(tuple(x for row in grid.heights for x in row))
            places = {"spacing": numbers(grid.spacing), "origin": numbers(grid.origin)}
            places |= {"base": number(grid.base)} if grid.base else {}
            lines += _tag("terrain", {"name": grid.name, "rows": str(len(grid.heights)), **places, "heights": heights})
        for name in model.mocap:
            lines += _tag("mocap", {"name": name})
        lines += self._keyframes()
        for first, second in model.exclusions:
            lines += _tag("exclude", {"first": first, "second": second})
        defaults = {f.name: f.default for f in fields(ContactPair)}
        for pair in model.pairs:
            constants = _changed(pair, PAIR_NUMBERS, ("condim",), defaults)
            lines += _tag("pair", {"first": pair.first, "second": pair.second, **constants})
        attributes = {"version": VERSION}
        if model.gravity != (0.0, 0.0, -9.81):
            attributes["gravity"] = numbers(model.gravity)
        if model.parents_touch:
            attributes["parents_touch"] = "1"
        if model.elliptic:
            attributes["elliptic"] = "1"
        if model.impratio != 1.0:
            attributes["impratio"] = number(model.impratio)
        if model.integrator:
            attributes["integrator"] = model.integrator
        if model.timestep:
            attributes["timestep"] = number(model.timestep)
        if model.magnetic_field != (0.0, -0.5, 0.0):
            attributes["magnetic_field"] = numbers(model.magnetic_field)
        return _tag("adjoin", attributes, lines) if lines or len(attributes) > 1 else []

    def _site_on_frame(self, site: Frame) -> dict[str, str]:
        # The body's own link is hidden and may carry no sites; any visible frame of the body will do.
        frame = next((f for f in self.model.frames if f.body == site.body and f.kind == "link"), None)
        if frame is None:
            return {
                "link": self.carriers[site.body],
                "xyz": numbers(site.position),
                "rpy": numbers(to_rpy(site.rotation)),
            }
        rotation, position = _relative(frame, site)
        return {"link": frame.name, "xyz": numbers(position), "rpy": numbers(to_rpy(rotation))}

    def _keyframes(self) -> list[str]:
        lines: list[str] = []
        for key in self.model.keyframes:
            children: list[str] = []
            for joint, at in self.model.independent_joints:
                q, v = key.q[at.q_slice], key.v[at.v_slice]
                if any(v) or q != joint.type.neutral:
                    moving = {"v": numbers(v)} if any(v) else {}
                    children += _tag("joint", {"name": joint.name, "q": numbers(q), **moving})
            stateful = [self.model.actuators[index].name for index in self.model.stateful_actuators]
            active = dict(zip(stateful, key.activation, strict=False))
            for actuator, control in zip(self.model.actuators, key.control, strict=False):
                state = {"activation": number(active[actuator.name])} if active.get(actuator.name) else {}
                if control or state:
                    children += _tag("actuator", {"name": actuator.name, "control": number(control), **state})
            for k, name in enumerate(self.model.mocap if key.mocap else ()):
                children += _tag("mocap", {"name": name, "pose": numbers(key.mocap[7 * k : 7 * k + 7])})
            lines += _tag("keyframe", {"name": key.name}, children)
        return lines


def _notes(body: Body) -> dict[str, str]:
    """Return what the extension says of a body: that it has no mass, and what of its weight is carried."""
    notes = {"massless": "1"} if body.mass == 0.0 else {}
    if body.compensated_mass:
        notes["compensated_mass"] = number(body.compensated_mass)
        notes["compensated_com"] = numbers(body.compensated_com)
    return notes


def _relative(frame: Frame, part: Geometry | Frame) -> Transform:
    inverse = transform_inverse((frame.rotation, frame.position))
    return transform_compose(inverse, (part.rotation, part.position))


def _fresh(name: str, used: set[str]) -> str:
    count, candidate = 1, name
    while candidate in used:
        count += 1
        candidate = f"{name}{count}"
    return candidate


def _changed(item: object, sizes: dict[str, int], integers: tuple[str, ...], defaults: dict) -> dict[str, str]:
    out: dict[str, str] = {}
    for name in (*sizes, *integers):
        value = getattr(item, name)
        if value != defaults[name]:
            out[name] = (
                numbers(value) if isinstance(value, tuple) else str(value) if name in integers else number(value)
            )
    return out


def _primitive(shape: Geometry) -> list[str]:
    if shape.kind == "sphere":
        return _tag("sphere", {"radius": number(shape.size[0])})
    if shape.kind == "box":
        return _tag("box", {"size": numbers((2 * shape.size[0], 2 * shape.size[1], 2 * shape.size[2]))})
    return _tag(shape.kind, {"radius": number(shape.size[0]), "length": number(2 * shape.size[1])})


def _limit(joint: Joint, kind: str, extra: dict[str, str]) -> list[str]:
    """Return the <limit> element; what has no limit is told to URDF as a very large one, and to us in the extension."""
    if joint.type.limited == "angle" and joint.upper != math.inf:
        extra["upper"] = number(joint.upper)
    bounded = joint.type.urdf_needs_limit and kind == joint.type.urdf
    attributes: dict[str, str] = {}
    for flag, (name, bound) in UNLIMITED.items():
        if name in ("lower", "upper") and joint.type.limited != "coordinate":
            continue
        value = getattr(joint, name)
        if value == bound:
            if bounded:
                attributes[name.removesuffix("_limit")] = number(math.copysign(_BEYOND, bound))
                extra[flag] = "1"
        else:
            attributes[name.removesuffix("_limit")] = number(value)
    return _tag("limit", attributes) if attributes else []
