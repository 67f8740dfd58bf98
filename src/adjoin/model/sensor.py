"""Sensors: what is measured of a robot as a step begins."""

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
    "jointlimitpos": 1,
    "jointlimitvel": 1,
    "jointlimitfrc": 1,
    "tendonlimitpos": 1,
    "tendonlimitvel": 1,
    "tendonlimitfrc": 1,
    "e_potential": 1,
    "e_kinetic": 1,
}
"""Kinds of sensors, by MuJoCo's names, and how many numbers each measures."""


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
            link whose shapes touch, or whose shapes its ray passes through.
        reference_position: of what it measures against in that frame, m.
        reference_rotation: of what it measures against in that frame.
        cutoff: readings stay within this bound to either side; 0 for none.
        zone: of a touch sensor, the shape that it feels in, at its pose; see `Geometry.kind`.
        size: of that shape, see `Geometry.size`, m.
        carried: of a force or torque sensor, the links and sites beyond it, one a line; none for all that is on the
            body of its frame. A link that is welded on feels only what it carries itself.
        carried_inertia: with `carried`, what of those links is on the body of its frame: mass, center of mass, and
            inertia about it (xx, xy, xz, yy, yz, zz), in that frame.
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

    @property
    def count(self) -> int:
        """Return how many numbers it measures."""
        return SENSOR_SIZES[self.kind]
