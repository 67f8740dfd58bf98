"""The `<adjoin>` element of a URDF: what a model has and URDF has no words for. Other tools pass it over.

    <adjoin version="1" gravity="0 0 -9.81" parents_touch="0">
      <joint name="knee" armature="0.01" stiffness="5" spring_reference="0.2"/>
      <joint name="rail" no_lower="1" no_upper="1" no_velocity="1" no_effort="1"/>
      <link name="hip" massless="1"/>
      <link name="wheel/joint" hidden="1" body="wheel"/>
      <site name="imu" link="trunk" xyz="0 0 0.1" rpy="0 0 0"/>
      <shape name="rock" link="world" kind="ellipsoid" size="1 2 3" xyz="0 0 0" rpy="0 0 0"/>
      <contact shape="foot" friction="0.8 0.005 0.0001" contype="1" conaffinity="0"/>
      <actuator name="knee" joint="knee" gear="9" gain="1" bias="0 0 0" control_range="-1 1"/>
      <keyframe name="home"><joint name="knee" q="0.5" v="0"/><actuator name="knee" control="0"/></keyframe>
      <exclude first="thigh" second="trunk"/>
      <pair first="foot" second="floor" friction="1 1 0.005 0.0001 0.0001"/>
    </adjoin>

Numbers per degree of freedom are given one by one, or once for all.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from adjoin.io.xml import Element
from adjoin.model.description import Description, KeyframeDescription
from adjoin.model.joint import NQ, NV, Joint
from adjoin.model.model import missing
from adjoin.model.parts import GEOMETRY_KINDS, WORLD, Actuator, ContactPair, Geometry
from adjoin.spatial.rotation import from_rpy, tidy
from adjoin.spatial.vector import vector3

VERSION = "1"
JOINT_FIELDS = ("damping", "friction", "armature", "stiffness")
CONTACT_NUMBERS: dict[str, int] = {"friction": 3, "margin": 1, "gap": 1, "solmix": 1, "solref": 2, "solimp": 5}
CONTACT_WHOLE = ("contype", "conaffinity", "condim", "priority")
PAIR_NUMBERS: dict[str, int] = {"friction": 5, "margin": 1, "gap": 1, "solref": 2, "solimp": 5}
UNLIMITED: dict[str, tuple[str, float]] = {
    "no_lower": ("lower", -math.inf),
    "no_upper": ("upper", math.inf),
    "no_velocity": ("velocity_limit", math.inf),
    "no_effort": ("effort_limit", math.inf),
}
_MAX_HULL = 100_000


def read(block: Element, description: Description) -> None:
    """Add what the element says to a description."""
    if block.text("version") != VERSION:
        block.fail(f"version={block.text('version')!r} is not known; this reads version {VERSION}")
    if "gravity" in block.attributes:
        description.more["gravity"] = block.numbers("gravity", 3)
    if "parents_touch" in block.attributes:
        description.more["parents_touch"] = bool(block.whole("parents_touch", 0))
    readers: dict[str, Callable[[Element, Description], None]] = {
        "joint": _joint,
        "link": _link,
        "site": _site,
        "shape": _shape,
        "contact": _contact,
        "actuator": _actuator,
        "keyframe": _keyframe,
        "exclude": _exclude,
        "pair": _pair,
    }
    for element in block.children:
        if element.tag not in readers:
            element.fail(f"not known in <adjoin>; known: {', '.join(readers)}")
        readers[element.tag](element, description)


def _named(element: Element, attribute: str, what: str, items: list, plural: str):
    name = element.name(attribute)
    for index, item in enumerate(items):
        if item.name == name:
            return index, item
    element.fail(missing(what, plural, name, [item.name for item in items]))


def _moving(element: Element, attribute: str, description: Description) -> tuple[int, Joint]:
    index, edge = _named(element, attribute, "joint", description.joints, "joints")
    return (index, edge.joint) if edge.joint is not None else element.fail(f"joint {edge.name!r} is fixed")


def _per_dof(element: Element, attribute: str, size: int) -> tuple[float, ...]:
    count = len(element.text(attribute).split())
    return element.numbers(attribute, 1) * size if count == 1 else element.numbers(attribute, size)


def _joint(element: Element, description: Description) -> None:
    index, joint = _moving(element, "name", description)
    changes: dict[str, tuple[float, ...] | float] = {}
    for field in JOINT_FIELDS:
        if field in element.attributes:
            changes[field] = _per_dof(element, field, NV[joint.kind])
            if min(_per_dof(element, field, NV[joint.kind])) < 0.0:
                element.fail(f"{field} must not be negative")
    if "spring_reference" in element.attributes:
        changes["spring_reference"] = element.numbers("spring_reference", NQ[joint.kind])
    if "upper" in element.attributes and joint.kind == "ball":
        changes["upper"], changes["lower"] = element.not_negative("upper"), 0.0
    for attribute, (field, bound) in UNLIMITED.items():
        if element.whole(attribute, 0):
            changes[field] = bound
    if "kind" in element.attributes and (joint.kind, element.text("kind")) == ("continuous", "revolute"):
        description.joints[index].joint = joint = replace(joint, kind="revolute")
    description.joints[index].joint = replace(joint, **changes)  # type: ignore[arg-type]


def _link(element: Element, description: Description) -> None:
    _, link = _named(element, "name", "link", description.links, "links")
    link.massless = bool(element.whole("massless", 0))
    link.hidden = bool(element.whole("hidden", 0))
    if link.hidden and (link.geometries or link.sites):
        element.fail(f"link {link.name!r} cannot be hidden: it carries shapes or sites")
    if "body" in element.attributes:
        link.body = element.name("body")


def _pose(element: Element):
    position = vector3(element.numbers("xyz", 3, (0.0, 0.0, 0.0)))
    return position, tidy(from_rpy(*element.numbers("rpy", 3, (0.0, 0.0, 0.0))))


def _site(element: Element, description: Description) -> None:
    _, link = _named(element, "link", "link", description.links, "links")
    name = element.name()
    taken = {frame for item in description.links for frame in (item.name, *(site[0] for site in item.sites))}
    if name in taken:
        element.fail(f"there is a link or site {name!r} already")
    link.sites.append((name, *_pose(element)))


def _shapes(description: Description) -> list[Geometry]:
    return [shape for link in description.links for shape in link.geometries]


def _shape(element: Element, description: Description) -> None:
    _, link = _named(element, "link", "link", description.links, "links")
    name, kind = element.name(), element.text("kind")
    if kind not in GEOMETRY_KINDS:
        element.fail(f"no shape {kind!r}; shapes: {', '.join(GEOMETRY_KINDS)}")
    if name in {shape.name for shape in _shapes(description)}:
        element.fail(f"there is a shape {name!r} already")
    size = vector3(element.numbers("size", 3, (0.0, 0.0, 0.0)))
    if min(size) < 0.0:
        element.fail(f"size={min(size):g} must not be negative")
    vertices = ()
    if kind == "hull":
        count = len(element.text("vertices").split())
        if count % 3 or not 0 < count <= 3 * _MAX_HULL:
            element.fail(f"vertices has {count} numbers; it needs three for each of 1 to {_MAX_HULL} points")
        flat = element.numbers("vertices", count)
        vertices = tuple(vector3(flat[i : i + 3]) for i in range(0, count, 3))
    link.geometries.append(Geometry(name, kind, WORLD, link.name, size, *_pose(element), vertices))  # type: ignore[arg-type]


def _constants(element: Element, numbers: dict[str, int]) -> dict[str, object]:
    found: dict[str, object] = {}
    for field, size in numbers.items():
        if field in element.attributes:
            values = element.numbers(field, size)
            found[field] = values if size > 1 else values[0]
    for field in CONTACT_WHOLE:
        if field in element.attributes:
            found[field] = element.whole(field, 0)
    return found


def _contact(element: Element, description: Description) -> None:
    name = element.name("shape")
    for link in description.links:
        for index, shape in enumerate(link.geometries):
            if shape.name == name:
                link.geometries[index] = replace(shape, **_constants(element, CONTACT_NUMBERS))  # type: ignore[arg-type]
                return
    element.fail(missing("shape", "shapes", name, [shape.name for shape in _shapes(description)]))


def _actuator(element: Element, description: Description) -> None:
    _, joint = _moving(element, "joint", description)
    name = element.name()
    if name in {actuator.name for actuator in description.actuators}:
        element.fail(f"there is an actuator {name!r} already")
    ranges: list[tuple[float, float]] = []
    for field in ("control_range", "force_range"):
        low, high = element.numbers(field, 2, (-math.inf, math.inf))
        if low > high:
            element.fail(f"{field}: {low:g} is above {high:g}")
        ranges.append((low, high))
    gear = _per_dof(element, "gear", NV[joint.kind]) if "gear" in element.attributes else (1.0,) * NV[joint.kind]
    bias = vector3(element.numbers("bias", 3, (0.0, 0.0, 0.0)))
    description.actuators.append(Actuator(name, joint.name, gear, element.number("gain", 1.0), bias, *ranges))


def _keyframe(element: Element, description: Description) -> None:
    key = KeyframeDescription(element.name(), {})
    if key.name in {other.name for other in description.keyframes}:
        element.fail(f"there is a keyframe {key.name!r} already")
    for child in element.children:
        if child.tag == "joint":
            _, joint = _moving(child, "name", description)
            if "q" in child.attributes:
                key.q[joint.name] = child.numbers("q", NQ[joint.kind])
            if "v" in child.attributes:
                key.v[joint.name] = child.numbers("v", NV[joint.kind])
        elif child.tag == "actuator":
            _, actuator = _named(child, "name", "actuator", description.actuators, "actuators")
            key.control[actuator.name] = child.number("control")
        else:
            child.fail("not known in <keyframe>; known: joint, actuator")
    description.keyframes.append(key)


def _exclude(element: Element, description: Description) -> None:
    _, first = _named(element, "first", "link", description.links, "links")
    _, second = _named(element, "second", "link", description.links, "links")
    description.exclusions.append((first.name, second.name))


def _pair(element: Element, description: Description) -> None:
    names = []
    for attribute in ("first", "second"):
        _, shape = _named(element, attribute, "shape", _shapes(description), "shapes")
        names.append(shape.name)
    constants = _constants(element, PAIR_NUMBERS)
    for field in ("contype", "conaffinity", "priority"):
        constants.pop(field, None)
    description.pairs.append(ContactPair(*names, **constants))  # type: ignore[arg-type]
