"""How the forces of springs change with the configuration: the slope of the logarithm that measures their stretch.

For a rotation vector phi the slope is the inverse of the right Jacobian of SO(3), 1 + [phi]x / 2 + c [phi]x². On SE(3)
the translation is V⁻¹ p, with p the position and V⁻¹ = 1 - [phi]x / 2 + c [phi]x², and changes with both (Barfoot,
State Estimation for Robotics, chapter 7). A planar joint is a free one that stays in its plane.
"""

from collections.abc import Sequence

from adjoin.dynamics.linear import Rows, is_zero
from adjoin.dynamics.state import State
from adjoin.model.manifold import difference_joint
from adjoin.spatial import vector
from adjoin.spatial.angles import cotc, cotc_slope
from adjoin.spatial.rotation import from_quaternion
from adjoin.spatial.scalar import Scalar, cos, sin
from adjoin.spatial.vector import Vector3

_UNITS: tuple[Vector3, Vector3, Vector3] = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def spring_slopes(state: State) -> Rows:
    """The derivative, on the tangent space, of k (q - q0), nv by nv."""
    robot, nv = state.robot, state.robot.nv
    matrix: Rows = [[0.0] * nv for _ in range(nv)]
    stiffness, reference = robot.numbers("stiffness"), robot.numbers("spring_reference")
    for joint, at in zip(robot.model.joints, robot.model.coordinates, strict=True):
        own = range(at.v, at.v + joint.nv)
        if joint.nv and not all(is_zero(stiffness[dof]) for dof in own):
            part = slice(at.q, at.q + joint.nq)
            slopes = difference_slopes(joint.kind, reference[part], state.q[part])
            for row, entries in zip(own, slopes, strict=True):
                for column, entry in zip(own, entries, strict=True):
                    matrix[row][column] = stiffness[row] * entry
    return matrix


def difference_slopes(kind: str, q0: Sequence[Scalar], q1: Sequence[Scalar]) -> Rows:
    """The derivative of `difference_joint` to q1 on the tangent space."""
    if kind not in ("ball", "free", "planar"):
        return [[1.0]]
    stretch = difference_joint(kind, q0, q1)
    if kind == "ball":
        return _columns([_turned(vector.vector3(stretch), unit) for unit in _UNITS])
    if kind == "free":
        w, x, y, z = q0[3:]
        away = vector.subtract(vector.vector3(q1[:3]), vector.vector3(q0[:3]))
        position = vector.apply_transposed(from_quaternion((w, x, y, z)), away)
        columns = _moved(vector.vector3(stretch[3:]), position)
        return _columns([[*linear, *angular] for linear, angular in columns])
    dx, dy, c, s = q1[0] - q0[0], q1[1] - q0[1], cos(q0[2]), sin(q0[2])
    columns = _moved((0.0, 0.0, stretch[2]), (c * dx + s * dy, c * dy - s * dx, 0.0))
    return _columns([[*linear[:2], angular[2]] for linear, angular in (columns[0], columns[1], columns[5])])


def _turned(phi: Vector3, direction: Vector3) -> Vector3:
    """The change of the rotation vector phi by a small turn about a direction in the body's frame."""
    once = vector.cross(phi, direction)
    c = 0.25 * cotc(0.25 * vector.dot(phi, phi))
    return vector.add(direction, vector.add(vector.scale(0.5, once), vector.scale(c, vector.cross(phi, once))))


def _moved(phi: Vector3, position: Vector3) -> list[tuple[Vector3, Vector3]]:
    """The changes (linear, angular) of the logarithm of a pose by its six small motions in the body's frame."""
    quarter = 0.25 * vector.dot(phi, phi)
    c, slope = 0.25 * cotc(quarter), 0.125 * cotc_slope(quarter)
    once = vector.cross(phi, position)
    twice = vector.cross(phi, once)
    found = [(_turned(phi, unit), vector.ZERO) for unit in _UNITS]
    for unit in _UNITS:
        change = _turned(phi, unit)
        moved = vector.cross(change, position)
        twice_moved = vector.add(vector.cross(change, once), vector.cross(phi, moved))
        along = vector.add(vector.scale(-0.5, moved), vector.scale(c, twice_moved))
        along = vector.add(along, vector.scale(slope * vector.dot(phi, change), twice))
        found.append((along, change))
    return found


def _columns(columns: Sequence[Sequence[Scalar]]) -> Rows:
    return [list(row) for row in zip(*columns, strict=True)]
