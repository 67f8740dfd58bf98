"""What a model holds together: frames, joints and tendons that are kept to one another."""

from dataclasses import dataclass
from typing import Literal

from adjoin.model.joint import Mat3, Vec3
from adjoin.spatial.vector import IDENTITY, ZERO


@dataclass(frozen=True)
class EqualityConstraint:
    """A constraint that holds two parts to one another, as MuJoCo's `<equality>` has it.

    Attributes:
        name: unique among the constraints.
        kind: "connect": a point of one frame is kept to a point of another; "weld": so is the orientation; "joint" and
            "tendon": a coordinate or length is kept to a polynomial of another.
        first: name of a frame, a joint or a tendon.
        second: name of another; "" for the world, or for none.
        position: of the point in the first frame, m.
        other_position: of the point in the second frame, m.
        rotation: of a weld: the second frame's in the first.
        torque_scale: of a weld: how many meters of error a radian counts as.
        coefficients: of the polynomial, from the constant on.
        reference: where the first coordinate or length counts as 0.
        other_reference: where the second one does.
        active: 1, or 0 to leave it out.
        solref: MuJoCo's (time constant s, damping ratio).
        solimp: MuJoCo's impedance.
        inverse_weight: MuJoCo's `invweight0` of both together: (moving, turning); zeros: that of the bodies.
    """

    name: str
    kind: Literal["connect", "weld", "joint", "tendon"]
    first: str
    second: str = ""
    position: Vec3 = ZERO
    other_position: Vec3 = ZERO
    rotation: Mat3 = IDENTITY
    torque_scale: float = 1.0
    coefficients: tuple[float, float, float, float, float] = (0.0, 1.0, 0.0, 0.0, 0.0)
    reference: float = 0.0
    other_reference: float = 0.0
    active: float = 1.0
    solref: tuple[float, float] = (0.02, 1.0)
    solimp: tuple[float, float, float, float, float] = (0.9, 0.95, 0.001, 0.5, 2.0)
    inverse_weight: tuple[float, float] = (0.0, 0.0)
