"""Semi-implicit Euler on the configuration manifold: a body that nothing acts on moves on a straight line, however it
turns.

The velocities of free and planar joints are written in the body's own axes, which turn during the step. So a step finds
the velocity at its end in the axes of its beginning, the configuration moves with that, and only then is the velocity
written in the axes of the end. Taken in the body's axes throughout, a spinning body would gain speed with every step.
"""

from collections.abc import Sequence

from adjoin.model.manifold import integrate_joint
from adjoin.model.model import Model
from adjoin.spatial import vector
from adjoin.spatial.rotation import from_quaternion, quaternion_exp, quaternion_multiply, quaternion_normalize
from adjoin.spatial.scalar import Scalar, cos, sin
from adjoin.spatial.vector import Matrix3, Vector3


def straight(model: Model, v: Sequence[Scalar]) -> list[Scalar]:
    """dv/dt of a robot whose free and planar joints go on straight while they turn: -omega x v."""
    found: list[Scalar] = [0.0] * model.nv
    for joint, at in zip(model.joints, model.coordinates, strict=True):
        if joint.nv and joint.kind in ("free", "planar"):
            linear, angular = _velocity(joint.kind, v[at.v : at.v + joint.nv])
            size = 3 if joint.kind == "free" else 2
            found[at.v : at.v + size] = vector.cross(linear, angular)[:size]
    return found


def move(model: Model, q: Sequence[Scalar], v: Sequence[Scalar], dt: float) -> tuple[list[Scalar], list[Scalar]]:
    """The configuration after a step, and the velocity in the axes of its end.

    Args:
        model: the robot.
        q: nq scalars.
        v: at the end of the step, in the axes of its beginning, nv scalars.
        dt: s.
    """
    place: list[Scalar] = []
    velocity = list(v)
    for joint, at in zip(model.joints, model.coordinates, strict=True):
        if not joint.nq:
            continue
        here, own = q[at.q : at.q + joint.nq], v[at.v : at.v + joint.nv]
        if joint.kind == "free":
            quaternion = (here[3], here[4], here[5], here[6])
            turn = quaternion_exp(vector.scale(dt, vector.vector3(own[3:])))
            path = vector.apply(from_quaternion(quaternion), vector.scale(dt, vector.vector3(own[:3])))
            place += vector.add(vector.vector3(here[:3]), path)
            place += quaternion_normalize(quaternion_multiply(quaternion, turn))
            velocity[at.v : at.v + 3] = vector.apply_transposed(from_quaternion(turn), vector.vector3(own[:3]))
        elif joint.kind == "planar":
            path = vector.apply(_about(here[2]), (dt * own[0], dt * own[1], 0.0))
            place += [here[0] + path[0], here[1] + path[1], here[2] + dt * own[2]]
            velocity[at.v : at.v + 2] = vector.apply_transposed(_about(dt * own[2]), (own[0], own[1], 0.0))[:2]
        else:
            place += integrate_joint(joint.kind, here, [dt * x for x in own])
    return place, velocity


def _velocity(kind: str, v: Sequence[Scalar]) -> tuple[Vector3, Vector3]:
    """Linear and angular."""
    if kind == "planar":
        return (v[0], v[1], 0.0), (0.0, 0.0, v[2])
    return vector.vector3(v[:3]), vector.vector3(v[3:])


def _about(angle: Scalar) -> Matrix3:
    """The rotation about z."""
    c, s = cos(angle), sin(angle)
    return ((c, -s, 0.0), (s, c, 0.0), (0.0, 0.0, 1.0))
