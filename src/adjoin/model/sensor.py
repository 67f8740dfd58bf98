"""Sensors: what is measured of a robot as a step begins."""

from collections.abc import Sequence
from dataclasses import dataclass

from adjoin.model.joint import Mat3, Vec3
from adjoin.spatial.vector import IDENTITY, ZERO

SENSOR_SIZES: dict[str, int] = {
    "jointpos": 1,
    "jointvel": 1,
    "jointactuatorfrc": 1,
    "ballquat": 4,
    "ballangvel": 3,
    "tendonpos": 1,
    "tendonvel": 1,
    "tendonactuatorfrc": 1,
    "actuatorpos": 1,
    "actuatorvel": 1,
    "actuatorfrc": 1,
    "framepos": 3,
    "framequat": 4,
    "framexaxis": 3,
    "frameyaxis": 3,
    "framezaxis": 3,
    "framelinvel": 3,
    "frameangvel": 3,
    "framelinacc": 3,
    "frameangacc": 3,
    "accelerometer": 3,
    "gyro": 3,
    "velocimeter": 3,
    "magnetometer": 3,
    "subtreecom": 3,
    "subtreelinvel": 3,
    "subtreeangmom": 3,
    "touch": 1,
    "force": 3,
    "torque": 3,
    "rangefinder": 1,
    "rays": 0,
    "contact": 0,
    "tactile": 0,
    "user": 0,
    "camprojection": 2,
    "jointlimitpos": 1,
    "jointlimitvel": 1,
    "jointlimitfrc": 1,
    "tendonlimitpos": 1,
    "tendonlimitvel": 1,
    "tendonlimitfrc": 1,
    "e_potential": 1,
    "e_kinetic": 1,
    "clock": 1,
    "insidesite": 1,
    "geomdist": 1,
    "geomnormal": 3,
    "geomfromto": 6,
}
"""Kinds of sensors, by MuJoCo's names, and how many numbers each measures; "rays" has one a ray, "contact" has slots
with the fields of its `data`, "tactile" channels with one a point, "user" its slots."""

CONTACT_FIELDS = {"found": 1, "force": 3, "torque": 3, "dist": 1, "pos": 3, "normal": 3, "tangent": 3}
CONTACT_FIELDS |= {"linvel": 3, "angvel": 3}
"""What a contact sensor can measure, in this order, and how many numbers each is."""
TAXEL = 9
"""Numbers of a point of a tactile sensor: where it is, and two directions along the surface."""
CONTACT_REDUCTIONS = ("none", "mindist", "maxforce", "netforce")
"""Which contacts a contact sensor measures: any, the deepest, those of the greatest force, or all as one."""


@dataclass(frozen=True)
class Sensor:
    """A sensor.

    Attributes:
        name: unique among the sensors.
        kind: one of `SENSOR_SIZES`, MuJoCo's name for it.
        target: name of the joint, tendon or actuator, of the body whose subtree it is about, or of the frame that it is
            fixed to.
        position: of the sensor in that frame, m.
        rotation: x_frame = rotation x_sensor + position.
        reference: name of the frame that it measures against; "" for the world. Of touch sensors and rangefinders, the
            link whose shapes touch, or whose shapes its ray passes through. Of "insidesite" the site. Of distances
            between shapes, target and reference are names of shapes, one a line; it measures the nearest two.
        reference_position: of what it measures against in that frame, m.
        reference_rotation: of what it measures against in that frame.
        cutoff: readings stay within this bound to either side; 0 for none. Distances between shapes beyond it are not
            measured.
        zone: of a touch sensor, the shape that it feels in, at its pose; of "insidesite" that of the site; see
            `Geometry.kind`.
        size: of that shape, see `Geometry.size`, m.
        carried: of a force or torque sensor, the links and sites beyond it, one a line; none for all that is on the
            body of its frame. A link that is welded on feels only what it carries itself.
        carried_inertia: with `carried`, what of those links is on the body of its frame: mass, center of mass, and
            inertia about it (xx, xy, xz, yy, yz, zz), in that frame.
        rays: of a sensor of rays, where each begins and its unit direction, six numbers a ray, in the sensor's frame.
            They pass through the robot that carries the sensor. One that meets nothing measures -1. Of a tactile
            sensor, its points, nine numbers each: where it is, and two directions along the surface.
        upright: 1 if rays turn with the sensor about the vertical only, as those of a height scan do.
        data: of a contact sensor, what of `CONTACT_FIELDS` it measures, one after the other: how many contacts match,
            force and torque on the second side, distance, position, normal from the first side to the second, a
            direction across it, and velocities of the second side against the first. Position, normal and tangent are
            in world axes; the others along normal, tangent and what is across both, or in world axes with "netforce".
            Target and reference are names of shapes, one a line; none stands for any shape.
        reduce: of a contact sensor, one of `CONTACT_REDUCTIONS`. Velocities are not measured as one.
        slots: of a contact sensor, how many contacts it measures; zeros follow where there are fewer. Of a tactile
            sensor, how many channels it has: depth, and sliding along each direction. Of "user", how many numbers.
        site: of a contact sensor, a frame with `zone` and `size`, in which contacts must be; none for anywhere.
        image: of "camprojection", two focal lengths and where the middle of the image is, pixels.
        noise: standard deviation of what `adjoin.measure` adds to readings, in their unit.
        delay: how much later than they are true readings of `adjoin.measure` arrive, s.
        interval: how often `adjoin.measure` takes a reading, which it holds until the next, s; 0 for every step.
        phase: how much later than at multiples of the interval, s; not positive.
    """

    name: str
    kind: str
    target: str = ""
    position: Vec3 = ZERO
    rotation: Mat3 = IDENTITY
    reference: str = ""
    reference_position: Vec3 = ZERO
    reference_rotation: Mat3 = IDENTITY
    cutoff: float = 0.0
    zone: str = "box"
    size: Vec3 = ZERO
    carried: str = ""
    carried_inertia: tuple[float, ...] = ()
    rays: tuple[float, ...] = ()
    upright: int = 0
    data: str = ""
    reduce: str = "none"
    slots: int = 0
    site: str = ""
    image: tuple[float, ...] = ()
    noise: float = 0.0
    delay: float = 0.0
    interval: float = 0.0
    phase: float = 0.0

    @property
    def count(self) -> int:
        """Return how many numbers it measures."""
        if self.kind == "contact":
            return self.slots * sum(CONTACT_FIELDS[field] for field in self.data.split())
        if self.kind == "tactile":
            return self.slots * (len(self.rays) // TAXEL)
        return SENSOR_SIZES[self.kind] or (self.slots if self.kind == "user" else len(self.rays) // 6)

    @classmethod
    def height_scan(
        cls, name: str, target: str, x: Sequence[float], y: Sequence[float], above: float = 1.0
    ) -> "Sensor":
        """Return a sensor of vertical rays over a grid about a frame: how far the ground is below where they begin.

        Args:
            name: unique among the sensors.
            target: the frame, with which the grid turns about the vertical.
            x: places along its x axis, m.
            y: places along its y axis, m. The readings are (x, y), flattened.
            above: how far above the frame the rays begin, m.
        """
        rays = [number for a in x for b in y for number in (float(a), float(b), float(above), 0.0, 0.0, -1.0)]
        return cls(name, "rays", target, rays=tuple(rays), upright=1)
