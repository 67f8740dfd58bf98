"""Semi-implicit Euler on the configuration manifold: a body that nothing acts on moves on a straight line, however it
turns.

The velocities of free and planar joints are written in the body's own axes, which turn during the step. So a step finds
the velocity at its end in the axes of its beginning, the configuration moves with that, and only then is the velocity
written in the axes of the end. Taken in the body's axes throughout, a spinning body would gain speed with every step.
"""

from collections.abc import Sequence

from adjoin.model.model import Model
from adjoin.spatial.scalar import Scalar


def straight(model: Model, v: Sequence[Scalar]) -> list[Scalar]:
    """dv/dt of a robot whose free and planar joints go on straight while they turn: -omega x v."""
    return [x for joint, at in model.independent_joints for x in joint.type.drift(v[at.v_slice])]


def move(model: Model, q: Sequence[Scalar], v: Sequence[Scalar], dt: float) -> tuple[list[Scalar], list[Scalar]]:
    """The configuration after a step, and the velocity in the axes of its end.

    Args:
        model: the robot.
        q: nq scalars.
        v: at the end of the step, in the axes of its beginning, nv scalars.
        dt: s.
    """
    steps = [joint.type.advance(q[at.q_slice], v[at.v_slice], dt) for joint, at in model.independent_joints]
    return [x for place, _ in steps for x in place], [x for _, velocity in steps for x in velocity]


def turned(model: Model, before: Sequence[Scalar], after: Sequence[Scalar], v: Sequence[Scalar]) -> list[Scalar]:
    """A velocity or acceleration in the axes of one configuration, written in those of another."""
    joints = model.independent_joints
    return [x for joint, at in joints for x in joint.type.turned(before[at.q_slice], after[at.q_slice], v[at.v_slice])]
