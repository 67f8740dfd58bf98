"""Joints coupled to one another: gears, belts, differentials."""

from dataclasses import dataclass

from adjoin.constraints.blocks import EqualityBlock, Row
from adjoin.dynamics.linear import dot
from adjoin.dynamics.state import State
from adjoin.errors import InputError
from adjoin.spatial.scalar import Scalar


@dataclass(frozen=True)
class JointEquality:
    """q of one joint follows that of another: q = multiplier q_other + offset, by impulses on both.

    A joint that mimics another (`Joint.mimic`) has no coordinate of its own and is exact. A coupling gives way as far
    as the solver lets it, and can close loops of gears.

    Attributes:
        joint: name of the joint that follows.
        other: name of the joint that it follows.
        multiplier: the ratio of the two.
        offset: rad or m.
    """

    joint: str
    other: str
    multiplier: float = 1.0
    offset: float = 0.0

    def block(self, state: State) -> EqualityBlock:
        """Its constraint at a state."""
        model = state.robot.model
        jacobian: list[Scalar] = [0.0] * state.robot.nv
        places, turning = [], False
        for name, share in ((self.joint, 1.0), (self.other, -self.multiplier)):
            body = model.joint_index(name)
            joint, at = model.joints[body], model.coordinates[body]
            if joint.type.nv != 1:
                raise InputError(f"JointEquality: {name!r} is {joint.kind}; only joints with one axis are coupled")
            jacobian[at.v] = jacobian[at.v] + share * at.multiplier
            places.append(share * state.coordinates(body)[0])
            turning = turning or joint.type.units[0] == "rad"
        gap = places[0] + places[1] - self.offset
        return EqualityBlock((Row(jacobian, dot(jacobian, state.v), gap, turning),))
