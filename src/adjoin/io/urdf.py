"""URDF: links and joints as the specification has them, errors and other findings with file and line.

Elements of other tools (gazebo, transmission, ros2_control, sensor, ...) are ignored. One extension is read: the
`<adjoin>` element, in which `urdf_write` puts what URDF cannot express. Two elements beyond the specification are read
as other tools write them: `<capsule radius length>` and joints of type "spherical".
"""

import difflib
import functools
import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from adjoin.errors import ModelError, Option, Subject
from adjoin.io import extension
from adjoin.io.hull import convex_hull
from adjoin.io.mesh import read_mesh
from adjoin.io.paths import Files
from adjoin.io.xml import EXPAND, Element
from adjoin.model.description import Description, JointDescription, LinkDescription
from adjoin.model.joint import Joint, Mat3, Mimic, Vec3
from adjoin.model.joint_types import JOINT_TYPES, JointType
from adjoin.model.parts import WORLD, Geometry
from adjoin.model.validate import is_flat
from adjoin.spatial.inertia import rotate
from adjoin.spatial.rotation import from_rpy, tidy
from adjoin.spatial.vector import IDENTITY, ZERO, vector3

Meshes = Literal["hull", "exact", "ignore"]
SHAPE_TAGS = "box, sphere, cylinder, capsule, mesh"
WITHOUT_MESHES = Option("meshes", "ignore", "to leave collision meshes out")

_UNIT_AXIS = 1e-5  # what rounding to five digits does to a unit vector
_RIGHT_ANGLE = 1e-4

_CHILDREN = {
    "robot": ("link", "joint"),
    "link": ("inertial", "visual", "collision"),
    "joint": ("origin", "parent", "child", "axis", "limit", "dynamics", "mimic"),
    "inertial": ("origin", "mass", "inertia"),
    "collision": ("origin", "geometry"),
}


@dataclass
class _Reader:
    files: Files
    meshes: Meshes
    repair: Collection[str]
    shape_names: dict[str, int] = field(default_factory=dict)
    hulls: dict[tuple[str, tuple[float, ...]], tuple[Vec3, ...]] = field(default_factory=dict)


def read(root: Element, files: Files, *, meshes: Meshes = "hull", repair: Collection[str] = ()) -> Description:
    """Read a parsed URDF document.

    Args:
        root: its `<robot>` element.
        files: what mesh files it may reach.
        meshes: "hull" reads collision meshes as convex hulls, "exact" with all their vertices, "ignore" leaves them
            out.
        repair: names of flaws to repair; see `adjoin.model.flaws`.
    """
    reader = _Reader(files, meshes, repair)
    _refuse_xacro(root)
    _refuse_misspelled(root)
    if not root.attributes.get("name", "").strip() and not root.findings.strict:
        root.notice("it is called 'robot'", "attribute 'name' is missing")
        root.attributes["name"] = "robot"
    name = root.name()
    links = [_link(reader, element) for element in root.all("link")]
    joints = [_joint(reader, element) for element in root.all("joint")]
    description = Description(name, root.where, links, joints)
    block = root.one("adjoin")
    if block is not None:
        extension.read(block, description)
    return description


def _refuse_xacro(root: Element) -> None:
    for element in root.children:
        if element.tag.startswith("xacro:"):
            element.fail("this is a xacro file", EXPAND)


def _refuse_misspelled(element: Element) -> None:
    """Refuse children that look like a known one misspelled; other unknown ones are some tool's extension."""
    known = _CHILDREN[element.tag]
    others = list(dict.fromkeys(child.tag for child in element.children if child.tag not in known))
    for tag in others[:1000]:
        if len(tag) < 20 and (close := difflib.get_close_matches(tag, known, 1, 0.75)):
            child = next(child for child in element.children if child.tag == tag)
            child.notice("ignored", f"unknown element in <{element.tag}>", f"did you mean <{close[0]}>?")


def _has(element: Element) -> str:
    names = ", ".join(element.attributes)
    return f"it has: {names}" if names else ""


def _origin(reader: _Reader, element: Element) -> tuple[Vec3, Mat3]:
    origin = element.one("origin")
    if origin is None:
        return ZERO, IDENTITY
    rpy = origin.numbers("rpy", 3, (0.0, 0.0, 0.0))
    if "right_angles" in reader.repair:
        quarters = [round(angle / (math.pi / 2)) * (math.pi / 2) for angle in rpy]
        rpy = tuple(q if abs(q - a) <= _RIGHT_ANGLE else a for q, a in zip(quarters, rpy, strict=True))
    return vector3(origin.numbers("xyz", 3, (0.0, 0.0, 0.0))), tidy(from_rpy(*rpy))


def _link(reader: _Reader, element: Element) -> LinkDescription:
    _refuse_misspelled(element)
    link = LinkDescription(element.name(), element.where)
    inertial = element.one("inertial")
    if inertial is not None:
        try:
            _inertial(reader, inertial, link)
        except ModelError as error:
            element.findings.report(error, "the link is taken without inertia")
    for collision in element.all("collision"):
        try:
            shape = _collision(reader, collision, link.name)
        except ModelError as error:
            element.findings.report(error, f"link {link.name!r} is without this collision shape")
            continue
        if shape is not None:
            link.geometries.append(shape)
    return link


def _inertial(reader: _Reader, inertial: Element, link: LinkDescription) -> None:
    _refuse_misspelled(inertial)
    mass = inertial.need("mass").number("value")
    moments = inertial.one("inertia")
    com, rotation = _origin(reader, inertial)
    inertia = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    if moments is None:
        inertial.notice("taken as zero", "<inertia> is missing")
    else:
        xx, xy, xz, yy, yz, zz = (moments.number(key) for key in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"))
        inertia = (xx, xy, xz, yy, yz, zz)
    link.inertial, link.mass, link.com = inertial.where, mass, com
    link.inertia = inertia if rotation == IDENTITY else rotate(rotation, inertia)


def _collision(reader: _Reader, element: Element, link: str) -> Geometry | None:
    _refuse_misspelled(element)
    position, rotation = _origin(reader, element)
    geometry = element.need("geometry")
    if len(geometry.children) != 1:
        geometry.fail(f"it has {len(geometry.children)} shapes", f"it needs exactly one of: {SHAPE_TAGS}")
    shape = geometry.children[0]
    vertices: tuple[Vec3, ...] = ()
    size: Vec3 = ZERO
    if shape.tag == "sphere":
        kind, size = "sphere", (shape.positive("radius"), 0.0, 0.0)
    elif shape.tag == "box":
        x, y, z = shape.numbers("size", 3)
        if min(x, y, z) < 0.0:
            shape.fail(f"size is {min(x, y, z):g}", "it must be at least 0", field="size")
        kind, size = "box", (x / 2, y / 2, z / 2)
    elif shape.tag in ("cylinder", "capsule"):
        kind, size = shape.tag, (shape.positive("radius"), shape.not_negative("length") / 2, 0.0)
    elif shape.tag == "mesh":
        if reader.meshes == "ignore":
            return None
        kind, vertices = "hull", _hull(reader, shape)
    else:
        shape.fail("unknown shape", f"shapes: {SHAPE_TAGS}")
    name = element.name() if element.attributes.get("name", "").strip() else f"{link}/0"
    return Geometry(_distinct(reader, name), kind, WORLD, link, size, position, rotation, vertices)


def _distinct(reader: _Reader, name: str) -> str:
    """Return the name, or with a number if it is taken: URDF lets collisions share names."""
    base, candidate = name.removesuffix("/0"), name
    while candidate in reader.shape_names:
        reader.shape_names[name] += 1
        candidate = f"{base}/{reader.shape_names[name]}"
    reader.shape_names[candidate] = 0
    return candidate


def _hull(reader: _Reader, shape: Element) -> tuple[Vec3, ...]:
    scale = shape.numbers("scale", 3, (1.0, 1.0, 1.0))
    if 0.0 in scale:
        shape.fail("scale has a zero", "a mesh needs some size", field="scale")
    path = reader.files.resolve(shape.text("filename"), shape, options=[WITHOUT_MESHES])
    key = (str(path), scale)
    if key not in reader.hulls:
        surfaces = read_mesh(
            reader.files.read(path, shape),
            path.name,
            shape,
            [WITHOUT_MESHES],
            functools.partial(reader.files.read_beside, path, shape),
        )
        points = np.concatenate([surface.vertices for surface in surfaces])
        hull = np.unique(points, axis=0) if reader.meshes == "exact" else convex_hull(points)
        hull = hull * np.array(scale)
        if not np.isfinite(hull).all():
            shape.fail("scale makes the mesh too large for numbers", field="scale")
        if not shape.findings.strict and is_flat(hull):
            shape.fail("its vertices are in one plane, so that it has no volume", subject=Subject("mesh", path.name))
        reader.hulls[key] = tuple(vector3(vertex) for vertex in hull.tolist())
    return reader.hulls[key]


def _joint(reader: _Reader, element: Element) -> JointDescription:
    _refuse_misspelled(element)
    name, type_name = element.name(), element.text("type")
    types: dict[str, JointType | None] = {kind.urdf: kind for kind in JOINT_TYPES.values() if kind.urdf}
    types["fixed"] = None
    if type_name not in types:
        problem, known = f"unknown joint type {type_name!r}", f"types: {', '.join(sorted(types))}"
        element.fail(problem, known, subject=Subject("joint", name))
    kind = types[type_name]
    position, rotation = _origin(reader, element)
    description = JointDescription(
        None,
        name,
        element.where,
        element.need("parent").name("link"),
        element.need("child").name("link"),
        position,
        rotation,
    )
    if kind is None:
        return description
    damping, friction = (_dissipation(element, key) for key in ("damping", "friction"))
    lower, upper, velocity, effort = _limits(reader, element, name, kind)
    description.joint = Joint(
        name,
        kind.name,
        axis=_axis(reader, element, name) if kind.has_axis else (0.0, 0.0, 1.0),
        lower=lower,
        upper=upper,
        velocity_limit=velocity,
        effort_limit=effort,
        damping=(damping,) * kind.nv,
        friction=(friction,) * kind.nv,
        mimic=_mimic(element),
    )
    return description


def _axis(reader: _Reader, element: Element, name: str) -> Vec3:
    axis = element.one("axis")
    if axis is None:
        return (1.0, 0.0, 0.0)  # what the specification says
    x, y, z = axis.numbers("xyz", 3)
    length = math.hypot(x, y, z)
    if length < 1e-9:
        axis.fail("xyz is zero", "an axis is a unit vector", subject=Subject("joint", name), field="xyz")
    if abs(length - 1.0) > _UNIT_AXIS and "axis" not in reader.repair:
        scale = Option("repair", ("axis",), "to scale it")
        problem = f"xyz has length {length:.6g}, not 1"
        axis.notice("scaled", problem, subject=Subject("joint", name), field="xyz", options=[scale])
    return (x, y, z) if length == 1.0 else (x / length + 0.0, y / length + 0.0, z / length + 0.0)


def _dissipation(element: Element, key: str) -> float:
    """Return the damping or the dry friction of a joint."""
    dynamics = element.one("dynamics")
    value = dynamics.number(key, 0.0) if dynamics else 0.0
    if dynamics and value < 0.0:
        dynamics.notice("taken as 0", f"{key} is {value:g}", "it must be at least 0", field=key)
    return max(value, 0.0)


def _limits(reader: _Reader, element: Element, name: str, kind: JointType) -> tuple[float, float, float, float]:
    limit, subject = element.one("limit"), Subject("joint", name)
    bounded = kind.urdf_needs_limit
    if limit is None:
        if bounded:
            remedy = f"a {kind.name} joint needs lower, upper, velocity and effort"
            element.notice("it has no limits", "<limit> is missing", remedy, subject=subject)
        return -math.inf, math.inf, math.inf, math.inf
    # The specification wants effort and velocity; where they do not apply they are often left out.
    # Exporters write the largest double for "no limit".
    velocity, effort = (_greatest(limit, key, bounded) for key in ("velocity", "effort"))
    if kind.limited != "coordinate" or not (bounded or {"lower", "upper"} & limit.attributes.keys()):
        return -math.inf, math.inf, velocity, effort
    none = 0.0 if bounded else math.inf  # 0 is what the specification says
    lower, upper = limit.number("lower", -none, math.inf), limit.number("upper", none, math.inf)
    if not bounded and lower >= upper:
        return -math.inf, math.inf, velocity, effort
    if not bounded and upper - lower < 2.0 * math.pi:
        remedy = "the specification has none for them"
        odd = limit.error(f"a {kind.name} joint has limits {lower:g} and {upper:g}", remedy, subject=subject)
        element.findings.note(odd, "they are kept")
    if lower > upper:
        if "limits" not in reader.repair:
            swap = Option("repair", ("limits",), "to swap them")
            problem = f"lower={lower:g} is above upper={upper:g}"
            limit.notice("they are swapped", problem, subject=subject, options=[swap])
        lower, upper = upper, lower
    return lower, upper, velocity, effort


def _greatest(limit: Element, key: str, required: bool) -> float:
    """Return the greatest velocity or effort; infinite if there is none."""
    if key not in limit.attributes and required:
        limit.notice("unlimited", f"attribute {key!r} is missing", _has(limit))
    value = limit.number(key, math.inf, math.inf)
    if value < 0.0:
        limit.notice("its magnitude is taken", f"{key} is {value:g}", "it must be at least 0", field=key)
    return abs(value)


def _mimic(element: Element) -> Mimic | None:
    mimic = element.one("mimic")
    if mimic is None:
        return None
    return Mimic(mimic.name("joint"), mimic.number("multiplier", 1.0), mimic.number("offset", 0.0))
