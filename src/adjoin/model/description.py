"""What a reader makes of a robot file: links and joints as written, before anything is merged or checked for sense.

`assemble` turns a description into a `Model`.
"""

from dataclasses import dataclass, field
from typing import Any

from adjoin.errors import Location
from adjoin.model.equality import EqualityConstraint
from adjoin.model.fluid import VACUUM, Medium
from adjoin.model.joint import Joint, Mat3, Vec3
from adjoin.model.parts import Actuator, ContactPair, Geometry, HeightGrid
from adjoin.model.sensor import Sensor
from adjoin.model.tendon import Tendon
from adjoin.spatial.vector import IDENTITY, ZERO


@dataclass
class LinkDescription:
    """A rigid part as the file has it.

    Attributes:
        name: unique.
        where: in the file.
        inertial: where its inertia was said, or None if it was not.
        mass: kg.
        com: in the link's frame, m.
        inertia: (xx, xy, xz, yy, yz, zz) about the center of mass in the link's axes, kg m^2.
        offset: position of the link's frame in the frame of the joint that moves it, m. MJCF joints turn about an
            anchor anywhere on the body; the body's frame of the model is then at the anchor.
        geometries: shapes placed in the link's frame; their `body` is not yet known.
        sites: names and placements of further frames on the link.
        massless: whether the file says that having no mass is meant.
        body: what to call the body that this link moves with, if not by the link's own name.
        hidden: whether the link is only there to carry a joint, and gets no frame.
        compensated_mass: the mass whose weight a force carries, kg.
        compensated_com: its center in the link's frame, m.
        tree: see `Frame`; None if the joints above the link say it.
    """

    name: str
    where: Location
    inertial: Location | None = None
    mass: float = 0.0
    com: Vec3 = ZERO
    inertia: tuple[float, float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    offset: Vec3 = ZERO
    geometries: list[Geometry] = field(default_factory=list)
    sites: list[tuple[str, Vec3, Mat3]] = field(default_factory=list)
    massless: bool = False
    body: str | None = None
    hidden: bool = False
    compensated_mass: float = 0.0
    compensated_com: Vec3 = ZERO
    tree: str | None = None


@dataclass
class JointDescription:
    """A connection of two links as the file has it.

    Attributes:
        joint: the moving joint, or None for a weld.
        name: unique.
        where: in the file.
        parent: name of a link.
        child: name of a link.
        position: of the joint in the parent link's frame, m.
        rotation: x_parent = rotation x_joint + position.
    """

    joint: Joint | None
    name: str
    where: Location
    parent: str
    child: str
    position: Vec3 = ZERO
    rotation: Mat3 = IDENTITY


@dataclass
class KeyframeDescription:
    """A named state, by joint and actuator.

    Attributes:
        name: unique.
        q: joint name to its coordinates.
        v: joint name to its velocity.
        control: actuator name to its control.
        activation: actuator name to its activation.
        mocap: name of a mocap link to its pose.
    """

    name: str
    q: dict[str, tuple[float, ...]]
    v: dict[str, tuple[float, ...]] = field(default_factory=dict)
    control: dict[str, float] = field(default_factory=dict)
    activation: dict[str, float] = field(default_factory=dict)
    mocap: dict[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass
class Description:
    """A whole robot file.

    Attributes:
        name: of the robot.
        where: the file.
        links: in the file's order.
        joints: in the file's order.
        actuators: see `Model`.
        keyframes: named states.
        exclusions: see `Model`.
        pairs: see `Model`.
        tendons: see `Model`.
        equalities: see `Model`.
        sensors: see `Model`.
        medium: see `Model`.
        terrain: see `Model`.
        mocap: see `Model`.
        more: further fields of `Model`: gravity, parents_touch.
    """

    name: str
    where: Location
    links: list[LinkDescription]
    joints: list[JointDescription]
    actuators: list[Actuator] = field(default_factory=list)
    keyframes: list[KeyframeDescription] = field(default_factory=list)
    exclusions: list[tuple[str, str]] = field(default_factory=list)
    pairs: list[ContactPair] = field(default_factory=list)
    tendons: list[Tendon] = field(default_factory=list)
    equalities: list[EqualityConstraint] = field(default_factory=list)
    sensors: list[Sensor] = field(default_factory=list)
    medium: Medium = VACUUM
    terrain: list[HeightGrid] = field(default_factory=list)
    mocap: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
