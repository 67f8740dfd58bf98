"""The parts of a robot other than joints: bodies, frames, collision shapes, actuators, key frames."""

import math
from dataclasses import dataclass
from typing import Literal

from adjoin.model.joint import Joint, Mat3, Vec3
from adjoin.spatial.vector import IDENTITY, ZERO

WORLD = -1
"""The index that stands for the world where a body is asked for."""

WORLD_LINK = "world"
"""A link of this name is the world itself, and no part of a robot."""

GeometryKind = Literal["sphere", "box", "cylinder", "capsule", "ellipsoid", "plane", "hull"]
GEOMETRY_KINDS: tuple[GeometryKind, ...] = ("sphere", "box", "cylinder", "capsule", "ellipsoid", "plane", "hull")


@dataclass(frozen=True)
class Body:
    """A rigid body and the joint that moves it. Everything welded to it is part of it.

    The body's frame is the joint's: it coincides with the joint's placement when the joint is neutral.

    Attributes:
        name: unique among the bodies.
        parent: index of the body it is jointed to, smaller than its own, or `WORLD`.
        joint: how it moves against the parent.
        position: of the joint in the parent's frame, m.
        rotation: of the joint's axes in the parent's frame: x_parent = rotation x_joint + position.
        mass: kg.
        com: center of mass in the body's frame, m.
        inertia: (xx, xy, xz, yy, yz, zz) about the center of mass, in the body's axes, kg m^2.
        compensated_mass: the mass whose weight a force carries, kg: gravity compensation.
        compensated_com: the center of that mass, m.
    """

    name: str
    parent: int
    joint: Joint
    position: Vec3 = ZERO
    rotation: Mat3 = IDENTITY
    mass: float = 0.0
    com: Vec3 = ZERO
    inertia: tuple[float, float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    compensated_mass: float = 0.0
    compensated_com: Vec3 = ZERO


@dataclass(frozen=True)
class Frame:
    """A named place on a body: a link of the file, whether it moves by itself or is welded on, or a site.

    Attributes:
        name: unique among the frames.
        body: index of the body, or `WORLD`.
        position: in the body's frame, m.
        rotation: x_body = rotation x_frame + position.
        kind: "link" or "site".
        tree: name of the topmost link that it hangs on, which tells robots apart that are fixed to the world; "" for
            what belongs to the world itself, or where it is not known.
    """

    name: str
    body: int
    position: Vec3 = ZERO
    rotation: Mat3 = IDENTITY
    kind: Literal["link", "site"] = "link"
    tree: str = ""


SOLREF = (0.02, 1.0)
"""MuJoCo's default (time constant s, damping ratio) of a soft constraint."""

SOLIMP = (0.9, 0.95, 0.001, 0.5, 2.0)
"""MuJoCo's default impedance of one."""


@dataclass(frozen=True)
class Geometry:
    """A collision shape, placed on a body. Its axis of symmetry is its z axis.

    Attributes:
        name: unique among the shapes.
        kind: one of `GEOMETRY_KINDS`.
        body: index of the body that carries it, or `WORLD`.
        link: name of the frame it was given on.
        size: sphere (radius, 0, 0); box (half edges); cylinder and capsule (radius, half length, 0), a capsule's caps
            come on top of its length; ellipsoid (radii); plane (half edges, 0), 0 for infinite; hull (0, 0, 0).
        position: in the body's frame, m.
        rotation: x_body = rotation x_shape + position.
        vertices: of a hull, in the shape's frame, m.
        faces: of a hull of an MJCF, as MuJoCo has them: for each the indices of its vertices as they go round, then -1.
            With contacts as a list, such a hull rests on a plane at MuJoCo's points. Empty for any other hull.
        friction: coefficients (slide, torsion, roll): of sliding, of turning about the normal (m), of rolling (m).
        contype: bits of what it is; two shapes touch when one's `contype` meets the other's `conaffinity`.
        conaffinity: bits of what it collides with.
        condim: dimension of the contact force: 1 frictionless, 3 sliding, 4 torsional, 6 rolling friction.
        priority: the shape with the greater one decides the contact's constants.
        margin: distance below which a contact pushes, m; that of a pair is the sum of both.
        gap: distance beyond the margin below which MuJoCo lists a contact that does not push yet, m. Forces do not
            depend on it, and here the distance of every contact is reported.
        solmix: weight in mixing the constants below.
        solref: MuJoCo's (time constant s, damping ratio) of contact.
        solimp: MuJoCo's contact impedance.
        inverse_weight: MuJoCo's `body_invweight0` of the link it is on, where a file's links were merged into bodies:
            (moving 1/kg, turning 1/(kg m²)); zeros: that of its body.
    """

    name: str
    kind: GeometryKind
    body: int
    link: str
    size: Vec3 = ZERO
    position: Vec3 = ZERO
    rotation: Mat3 = IDENTITY
    vertices: tuple[Vec3, ...] = ()
    faces: tuple[float, ...] = ()
    friction: Vec3 = (1.0, 0.005, 0.0001)
    contype: int = 1
    conaffinity: int = 1
    condim: int = 3
    priority: int = 0
    margin: float = 0.0
    gap: float = 0.0
    solmix: float = 1.0
    solref: tuple[float, float] = SOLREF
    solimp: tuple[float, float, float, float, float] = SOLIMP
    inverse_weight: tuple[float, float] = (0.0, 0.0)

    def placed(self, body: int, link: str, position: Vec3, rotation: Mat3) -> "Geometry":
        """Return the same shape at another place: what `dataclasses.replace` does, in a tenth of its time."""
        shape = object.__new__(Geometry)
        shape.__dict__.update(self.__dict__, body=body, link=link, position=position, rotation=rotation)
        return shape


@dataclass(frozen=True)
class HeightGrid:
    """Heights that take the place of a plane of the model: terrain.

    Between the nodes the ground is straight along the sides of each cell (bilinear), and beyond the border it goes on
    level; for MuJoCo's contact a grid with a base has two prisms in each cell, and ends at the border.

    Attributes:
        name: of the shape, a plane that is fixed to the world and level.
        heights: above that plane, row by row, m; rows lie along y, columns along x.
        spacing: between columns, along x, and between rows, along y, m.
        origin: x, y of the first node in the frame of the plane, and what is added to all heights, m.
        base: how far the ground reaches down below the heights' zero, m; 0 if it has no end.
    """

    name: str
    heights: tuple[tuple[float, ...], ...]
    spacing: tuple[float, float]
    origin: Vec3
    base: float = 0.0


@dataclass(frozen=True)
class ContactPair:
    """Two shapes that touch with constants of their own, whatever their filters say.

    Attributes:
        first: name of a shape.
        second: name of another.
        friction: sliding twice, torsional (m), rolling twice (m).
        condim: see `Geometry`.
        margin: distance below which the contact pushes, m.
        gap: see `Geometry`.
        solref: see `Geometry`.
        solimp: see `Geometry`.
    """

    first: str
    second: str
    friction: tuple[float, float, float, float, float] = (1.0, 1.0, 0.005, 0.0001, 0.0001)
    condim: int = 3
    margin: float = 0.0
    gap: float = 0.0
    solref: tuple[float, float] = SOLREF
    solimp: tuple[float, float, float, float, float] = SOLIMP


@dataclass(frozen=True)
class Actuator:
    """A drive: force = gain * input + bias[0] + bias[1] * length + bias[2] * rate.

    It acts on one joint, tendon, site or body. On a joint, length is gear * q, rate is gear * v, and the joint gets
    gear * force. The input is the control, or an activation that follows it. A motor has bias 0; a position servo has
    gain = kp and bias = (0, -kp, -kd); a velocity servo has gain = kv and bias = (0, 0, -kv).

    Attributes:
        name: unique among the actuators.
        joint: name of the joint, if it acts on one.
        gear: of a joint, one entry per degree of freedom; of a site, force and moment in the axes of the reference, or
            its own; else one number.
        gain: force per input.
        bias: see above.
        control_range: least and greatest control.
        force_range: least and greatest force, before the gear.
        tendon: name of the tendon, if it acts on one.
        site: name of the frame, if it acts on one.
        body: name of the frame whose contacts it makes stick, if it does: adhesion.
        reference: with a site: name of the frame that its motion is measured against, or that a crank slides on.
        crank_length: of the rod between a site and its reference, m; 0 where it is no slider-crank.
        axes: of the gear of a ball or free joint: the body's, those of its parent, or linear in the parent's and
            angular in the body's.
        gain_slope: what the gain has more per length, and per rate.
        dynamics: how the activation follows the control; "none" where there is no activation.
        dynamics_constants: MuJoCo's `dynprm`: the time constant; of muscles up and down, and of smoothing.
        activation_range: least and greatest activation.
        early: 1 if the force takes the activation of the step's end.
        muscle_gain: MuJoCo's nine constants of a muscle, least and greatest length, and `acc0`; else none.
        muscle_bias: the same, of its passive force.
        enabled: 0 if it does nothing.
    """

    name: str
    joint: str = ""
    gear: tuple[float, ...] = (1.0,)
    gain: float = 1.0
    bias: Vec3 = ZERO
    control_range: tuple[float, float] = (-math.inf, math.inf)
    force_range: tuple[float, float] = (-math.inf, math.inf)
    tendon: str = ""
    site: str = ""
    body: str = ""
    reference: str = ""
    crank_length: float = 0.0
    axes: Literal["body", "parent", "mixed"] = "body"
    gain_slope: tuple[float, float] = (0.0, 0.0)
    dynamics: Literal["none", "integrator", "filter", "filterexact", "muscle"] = "none"
    dynamics_constants: tuple[float, float, float] = (1.0, 0.0, 0.0)
    activation_range: tuple[float, float] = (-math.inf, math.inf)
    early: int = 0
    muscle_gain: tuple[float, ...] = ()
    muscle_bias: tuple[float, ...] = ()
    enabled: int = 1


INITIAL = "qpos0"
"""The name of the key frame in which MuJoCo's models begin."""


@dataclass(frozen=True)
class Keyframe:
    """A named state.

    Attributes:
        name: unique among the key frames.
        q: nq numbers.
        v: nv numbers.
        control: one number per actuator.
        activation: one number per actuator that has an activation.
        mocap: position and quaternion [w x y z] of each of `Model.mocap`, seven numbers each; none for those of the
            model.
    """

    name: str
    q: tuple[float, ...]
    v: tuple[float, ...] = ()
    control: tuple[float, ...] = ()
    activation: tuple[float, ...] = ()
    mocap: tuple[float, ...] = ()


@dataclass(frozen=True)
class Fixture:
    """What is welded to the world: it never moves, but it has mass, which export and attachment need.

    Attributes:
        mass: kg.
        com: in world axes, m.
        inertia: (xx, xy, xz, yy, yz, zz) about the center of mass, in world axes, kg m^2.
    """

    mass: float = 0.0
    com: Vec3 = ZERO
    inertia: tuple[float, float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


NO_FIXTURE = Fixture()
