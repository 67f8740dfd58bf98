"""The `<adjoin>` element of a URDF: what a model has and URDF has no words for. Other tools pass it over.

    <adjoin version="1" gravity="0 0 -9.81" parents_touch="0" elliptic="0" impratio="1" integrator="Euler"
            timestep="0.002">
      <joint name="knee" armature="0.01" stiffness="5" spring_reference="0.2"/>
      <joint name="rail" no_lower="1" no_upper="1" no_velocity="1" no_effort="1"/>
      <link name="hip" massless="1"/>
      <link name="wheel/joint" hidden="1" body="wheel"/>
      <link name="finger" tree="palm"/>
      <site name="imu" link="trunk" xyz="0 0 0.1" rpy="0 0 0"/>
      <shape name="rock" link="world" kind="ellipsoid" size="1 2 3" xyz="0 0 0" rpy="0 0 0"/>
      <contact shape="foot" friction="0.8 0.005 0.0001" contype="1" conaffinity="0"/>
      <actuator name="knee" joint="knee" gear="9" gain="1" bias="0 0 0" control_range="-1 1"/>
      <keyframe name="home"><joint name="knee" q="0.5" v="0"/><actuator name="knee" control="0"/></keyframe>
      <tendon name="string"><waypoint kind="site" name="imu"/><waypoint kind="site" name="hook"/></tendon>
      <equality name="loop" kind="connect" first="foot" second="ring"/>
      <exclude first="thigh" second="trunk"/>
      <pair first="foot" second="floor" friction="1 1 0.005 0.0001 0.0001"/>
    </adjoin>

Numbers per degree of freedom are given one by one, or once for all.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from adjoin.errors import Subject, unknown_name_parts
from adjoin.io.records import record_of
from adjoin.io.xml import Element
from adjoin.model.description import Description, JointDescription, KeyframeDescription, LinkDescription
from adjoin.model.equality import EqualityConstraint
from adjoin.model.fluid import FluidShape, Medium
from adjoin.model.joint import Joint, Mat3, Vec3
from adjoin.model.parts import GEOMETRY_KINDS, WORLD, Actuator, ContactPair, Geometry, HeightGrid
from adjoin.model.sensor import Sensor
from adjoin.model.tendon import Tendon, Waypoint
from adjoin.spatial.rotation import from_rpy, tidy
from adjoin.spatial.vector import vector3

VERSION = "1"
JOINT_FIELDS = ("damping", "friction", "armature", "stiffness")
CONTACT_NUMBERS: dict[str, int] = {"friction": 3, "margin": 1, "gap": 1, "solmix": 1, "solref": 2, "solimp": 5}
CONTACT_NUMBERS |= {"inverse_weight": 2}
CONTACT_WHOLE = ("contype", "conaffinity", "condim", "priority")
PAIR_NUMBERS: dict[str, int] = {"friction": 5, "margin": 1, "gap": 1, "solref": 2, "solimp": 5}
JOINT_NUMBERS: dict[str, int] = {
    "lopsided_effort": 2,
    "limit_margin": 1,
    "limit_solref": 2,
    "limit_solimp": 5,
    "friction_solref": 2,
    "friction_solimp": 5,
}
UNLIMITED: dict[str, tuple[str, float]] = {
    "no_lower": ("lower", -math.inf),
    "no_upper": ("upper", math.inf),
    "no_velocity": ("velocity_limit", math.inf),
    "no_effort": ("effort_limit", math.inf),
}
_MAX_HULL = 10_000
_MAX_HEIGHTS = 1_000_000

Item = TypeVar("Item")


def read(block: Element, description: Description) -> None:
    """Add what the element says to a description."""
    if block.text("version") != VERSION:
        block.fail(f"version {block.text('version')!r} is unknown", f"only version {VERSION} is read", field="version")
    if "gravity" in block.attributes:
        description.more["gravity"] = block.numbers("gravity", 3)
    if "parents_touch" in block.attributes:
        description.more["parents_touch"] = bool(block.integer("parents_touch", 0))
    if "elliptic" in block.attributes:
        description.more["elliptic"] = bool(block.integer("elliptic", 0))
    if "impratio" in block.attributes:
        description.more["impratio"] = block.number("impratio")
    if "integrator" in block.attributes:
        description.more["integrator"] = block.text("integrator")
    if "timestep" in block.attributes:
        description.more["timestep"] = block.positive("timestep")
    if "magnetic_field" in block.attributes:
        description.more["magnetic_field"] = block.numbers("magnetic_field", 3)
    reader = _Reader(description)
    readers: dict[str, Callable[[Element], None]] = {
        "joint": reader.joint,
        "link": reader.link,
        "site": reader.site,
        "shape": reader.shape,
        "contact": reader.contact,
        "actuator": reader.actuator,
        "keyframe": reader.keyframe,
        "exclude": reader.exclude,
        "tendon": reader.tendon,
        "equality": reader.equality,
        "sensor": reader.sensor,
        "terrain": reader.terrain,
        "mocap": reader.mocap,
        "medium": reader.medium,
        "pair": reader.pair,
    }
    for element in block.children:
        if element.tag not in readers:
            element.fail("unknown element in <adjoin>", f"it may have: {', '.join(readers)}")
        readers[element.tag](element)


@dataclass
class _Reader:
    """Reads the elements, with everything that can be named found by name."""

    description: Description
    links: dict[str, LinkDescription] = field(default_factory=dict)
    edges: dict[str, JointDescription] = field(default_factory=dict)
    shapes: dict[str, tuple[LinkDescription, int]] = field(default_factory=dict)
    actuators: dict[str, Actuator] = field(default_factory=dict)
    sites: set[str] = field(default_factory=set)
    keyframes: set[str] = field(default_factory=set)

    def __post_init__(self):
        self.links = {link.name: link for link in self.description.links}
        self.edges = {edge.name: edge for edge in self.description.joints}
        self.shapes = {
            shape.name: (link, index) for link in self.description.links for index, shape in enumerate(link.geometries)
        }

    def _link(self, element: Element, attribute: str) -> LinkDescription:
        return _known(element, attribute, "link", self.links)

    def _moving(self, element: Element, attribute: str) -> tuple[JointDescription, Joint]:
        edge = _known(element, attribute, "joint", self.edges)
        if edge.joint is None:
            element.fail("it is fixed", "only a moving joint has these", subject=Subject("joint", edge.name))
        return edge, edge.joint

    def joint(self, element: Element) -> None:
        edge, joint = self._moving(element, "name")
        changes: dict[str, Any] = {}
        for name in JOINT_FIELDS:
            if name in element.attributes:
                values = _per_dof(element, name, joint.type.nv)
                if min(values) < 0.0:
                    element.fail(f"{name} is {min(values):g}", "it must be at least 0", field=name)
                changes[name] = values
        changes.update(_constants(element, JOINT_NUMBERS, ()))
        if "spring_reference" in element.attributes:
            changes["spring_reference"] = element.numbers("spring_reference", joint.type.nq)
        if "constants" in element.attributes:
            changes["constants"] = element.numbers("constants", len(joint.type.constants))
        if "upper" in element.attributes and joint.type.limited == "angle":
            changes["upper"], changes["lower"] = element.not_negative("upper"), 0.0
        for attribute, (name, bound) in UNLIMITED.items():
            if element.integer(attribute, 0):
                changes[name] = bound
        if "kind" in element.attributes:
            if (joint.kind, element.text("kind")) != ("continuous", "revolute"):
                remedy = "it can only make a continuous joint a revolute one without limits"
                element.fail(f"kind is {element.text('kind')!r}", remedy, field="kind")
            joint = replace(joint, kind="revolute")
        edge.joint = replace(joint, **changes)  # type: ignore[arg-type]

    def link(self, element: Element) -> None:
        link = self._link(element, "name")
        link.massless = link.massless or bool(element.integer("massless", 0))
        link.compensated_mass = element.number("compensated_mass", link.compensated_mass)
        link.compensated_com = vector3(element.numbers("compensated_com", 3, link.compensated_com))
        link.hidden = link.hidden or bool(element.integer("hidden", 0))
        if link.hidden and (link.geometries or link.sites):
            problem = "it cannot be hidden, as it carries shapes or sites"
            element.fail(problem, subject=Subject("link", link.name))
        if "body" in element.attributes:
            link.body = element.name("body")
        if "tree" in element.attributes:
            link.tree = element.name("tree")

    def site(self, element: Element) -> None:
        link = self._link(element, "link")
        name = element.name()
        if name in self.sites or name in self.links:
            element.fail("there is already a link or site of that name", subject=Subject("site", name))
        self.sites.add(name)
        link.sites.append((name, *_pose(element)))

    def shape(self, element: Element) -> None:
        link = self._link(element, "link")
        name, kind = element.name(), element.text("kind")
        if kind not in GEOMETRY_KINDS:
            element.fail(f"kind {kind!r} is unknown", f"kinds: {', '.join(GEOMETRY_KINDS)}", field="kind")
        if name in self.shapes:
            element.fail("there is already a shape of that name", subject=Subject("shape", name))
        size = vector3(element.numbers("size", 3, (0.0, 0.0, 0.0)))
        if min(size) < 0.0:
            element.fail(f"size is {min(size):g}", "it must be at least 0", field="size")
        vertices = _vertices(element) if kind == "hull" else ()
        self.shapes[name] = (link, len(link.geometries))
        faces: tuple[float, ...] = ()
        if vertices and "faces" in element.attributes:
            faces = element.numbers("faces", len(element.text("faces").split()))
        link.geometries.append(Geometry(name, kind, WORLD, link.name, size, *_pose(element), vertices, faces))  # type: ignore[arg-type]

    def contact(self, element: Element) -> None:
        link, index = _known(element, "shape", "shape", self.shapes)
        constants = _constants(element, CONTACT_NUMBERS, CONTACT_WHOLE)
        link.geometries[index] = replace(link.geometries[index], **constants)  # type: ignore[arg-type]

    def actuator(self, element: Element) -> None:
        size = 6 if "site" in element.attributes and "crank_length" not in element.attributes else 1
        if "joint" in element.attributes or not {"tendon", "site", "body"} & set(element.attributes):
            size = self._moving(element, "joint")[1].type.nv
        name = element.name()
        if name in self.actuators:
            element.fail("there is already an actuator of that name", subject=Subject("actuator", name))
        ranges: list[tuple[float, float]] = []
        for attribute in ("control_range", "force_range"):
            if attribute in element.attributes:
                low, high = element.numbers(attribute, 2, largest=math.inf)
            else:
                kind = attribute.removesuffix("_range")
                low = element.number(f"{kind}_lower", -math.inf, math.inf)
                high = element.number(f"{kind}_upper", math.inf, math.inf)
            if low > high:
                element.fail(f"{low:g} is above {high:g}", field=attribute)
            ranges.append((low, high))
        gear = (1.0,) * size
        if "gear" in element.attributes:
            gear = _per_dof(element, "gear", size)
        given = {"gear": gear, "control_range": ranges[0], "force_range": ranges[1]}
        self.actuators[name] = record_of(element, Actuator, name=name, **given)
        self.description.actuators.append(self.actuators[name])

    def tendon(self, element: Element) -> None:
        for child in element.children:
            if child.tag != "waypoint":
                child.fail("unknown element in <tendon>", "it may have: waypoint")
        path = tuple(record_of(child, Waypoint) for child in element.children)
        self.description.tendons.append(record_of(element, Tendon, name=element.name(), path=path))

    def sensor(self, element: Element) -> None:
        self.description.sensors.append(record_of(element, Sensor, name=element.name()))

    def terrain(self, element: Element) -> None:
        _known(element, "name", "shape", self.shapes)
        count, rows = len(element.text("heights").split()), max(element.integer("rows", 0), 1)
        if count % rows or count > _MAX_HEIGHTS:
            element.fail(
                f"heights has {count} numbers", f"it needs as many in each of {rows} rows, {_MAX_HEIGHTS} at most"
            )
        flat, width = element.numbers("heights", count), count // rows
        heights = tuple(flat[i : i + width] for i in range(0, count, width))
        x, y = element.numbers("spacing", 2)
        origin = vector3(element.numbers("origin", 3))
        base = element.number("base", 0.0)
        self.description.terrain.append(HeightGrid(element.name(), heights, (x, y), origin, base))

    def mocap(self, element: Element) -> None:
        self.description.mocap.append(self._link(element, "name").name)

    def medium(self, element: Element) -> None:
        shapes = tuple(record_of(child, FluidShape) for child in element.children)
        self.description.medium = record_of(element, Medium, shapes=shapes)

    def equality(self, element: Element) -> None:
        self.description.equalities.append(record_of(element, EqualityConstraint, name=element.name()))

    def keyframe(self, element: Element) -> None:
        key = KeyframeDescription(element.name(), {})
        if key.name in self.keyframes:
            element.fail("there is already a keyframe of that name", subject=Subject("keyframe", key.name))
        self.keyframes.add(key.name)
        for child in element.children:
            if child.tag == "joint":
                _, joint = self._moving(child, "name")
                if "q" in child.attributes:
                    key.q[joint.name] = child.numbers("q", joint.type.nq)
                if "v" in child.attributes:
                    key.v[joint.name] = child.numbers("v", joint.type.nv)
            elif child.tag == "actuator":
                actuator = _known(child, "name", "actuator", self.actuators)
                key.control[actuator.name] = child.number("control", 0.0)
                key.activation[actuator.name] = child.number("activation", 0.0)
            elif child.tag == "mocap":
                key.mocap[self._link(child, "name").name] = child.numbers("pose", 7)
            else:
                child.fail("unknown element in <keyframe>", "it may have: joint, actuator, mocap")
        self.description.keyframes.append(key)

    def exclude(self, element: Element) -> None:
        self.description.exclusions.append((self._link(element, "first").name, self._link(element, "second").name))

    def pair(self, element: Element) -> None:
        for attribute in ("first", "second"):
            _known(element, attribute, "shape", self.shapes)
        constants = _constants(element, PAIR_NUMBERS, ("condim",))
        self.description.pairs.append(ContactPair(element.name("first"), element.name("second"), **constants))  # type: ignore[arg-type]


def _known(element: Element, attribute: str, what: str, items: dict[str, Item]) -> Item:
    name = element.name(attribute)
    return items[name] if name in items else element.fail(*unknown_name_parts(what, f"{what}s", name, items))


def _per_dof(element: Element, attribute: str, size: int) -> tuple[float, ...]:
    count = len(element.text(attribute).split())
    return element.numbers(attribute, 1) * size if count == 1 else element.numbers(attribute, size)


def _pose(element: Element) -> tuple[Vec3, Mat3]:
    position = vector3(element.numbers("xyz", 3, (0.0, 0.0, 0.0)))
    return position, tidy(from_rpy(*element.numbers("rpy", 3, (0.0, 0.0, 0.0))))


def _vertices(element: Element) -> tuple[Vec3, ...]:
    count = len(element.text("vertices").split())
    if count % 3 or not 0 < count <= 3 * _MAX_HULL:
        remedy = f"it needs three for each of 1 to {_MAX_HULL} points"
        element.fail(f"vertices has {count} numbers", remedy, field="vertices")
    flat = element.numbers("vertices", count)
    return tuple(vector3(flat[i : i + 3]) for i in range(0, count, 3))


def _constants(element: Element, numbers: dict[str, int], integers: tuple[str, ...]) -> dict[str, object]:
    constants: dict[str, object] = {}
    for name, size in numbers.items():
        if name in element.attributes:
            values = element.numbers(name, size)
            constants[name] = values if size > 1 else values[0]
    for name in integers:
        if name in element.attributes:
            constants[name] = element.integer(name, 0)
    return constants
