"""Rigid transforms, spatial motions and forces, over any scalar.

A transform is a pair (R, p): `x_parent = R x_child + p`. Spatial vectors are pairs (angular, linear) of 3-vectors, as
in Featherstone, Rigid Body Dynamics Algorithms, chapter 2: a motion is (angular velocity, velocity of the origin), a
force is (moment about the origin, force).
"""

from adjoin.spatial import vector
from adjoin.spatial.angles import cosc, cotc, cotc_slope, sincc
from adjoin.spatial.rotation import (
    Quaternion,
    compose,
    from_quaternion,
    quaternion_conjugate,
    quaternion_exp,
    quaternion_log,
    quaternion_multiply,
)
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import AXES, IDENTITY, ZERO, Matrix3, Vector3

Transform = tuple[Matrix3, Vector3]
Spatial = tuple[Vector3, Vector3]

IDENTITY_TRANSFORM: Transform = (IDENTITY, ZERO)
ZERO_SPATIAL: Spatial = (ZERO, ZERO)


def transform_multiply(a: Transform, b: Transform) -> Transform:
    """Return a b: b's frame seen from the parent of a."""
    return vector.multiply(a[0], b[0]), transform_point(a, b[1])


def transform_compose(a: Transform, b: Transform) -> Transform:
    """Return a b in floats, with the rotation tidied (see `rotation.tidy`)."""
    return compose(a[0], b[0]), transform_point(a, b[1])


def transform_inverse(a: Transform) -> Transform:
    """Return the transform that undoes a."""
    r = vector.transpose(a[0])
    return r, vector.negate(vector.apply(r, a[1]))


def transform_point(a: Transform, x: Vector3) -> Vector3:
    """Return where the point x of the child frame is in the parent frame."""
    return vector.add(vector.apply(a[0], x), a[1])


def motion_to_child(a: Transform, m: Spatial) -> Spatial:
    """Return a motion in parent coordinates, expressed in the child frame of the transform."""
    angular, linear = m
    return (
        vector.apply_transposed(a[0], angular),
        vector.apply_transposed(a[0], vector.subtract(linear, vector.cross(a[1], angular))),
    )


def motion_to_parent(a: Transform, m: Spatial) -> Spatial:
    """Return a motion in child coordinates, expressed in the parent frame of the transform."""
    angular = vector.apply(a[0], m[0])
    return angular, vector.add(vector.apply(a[0], m[1]), vector.cross(a[1], angular))


def force_to_child(a: Transform, f: Spatial) -> Spatial:
    """Return a force in parent coordinates, expressed in the child frame of the transform."""
    moment, force = f
    return (
        vector.apply_transposed(a[0], vector.subtract(moment, vector.cross(a[1], force))),
        vector.apply_transposed(a[0], force),
    )


def force_to_parent(a: Transform, f: Spatial) -> Spatial:
    """Return a force in child coordinates, expressed in the parent frame of the transform."""
    force = vector.apply(a[0], f[1])
    return vector.add(vector.apply(a[0], f[0]), vector.cross(a[1], force)), force


def motion_cross_motion(m: Spatial, n: Spatial) -> Spatial:
    """Return m x n: how the motion n changes when carried along by m."""
    return (
        vector.cross(m[0], n[0]),
        vector.add(vector.cross(m[0], n[1]), vector.cross(m[1], n[0])),
    )


def motion_cross_force(m: Spatial, f: Spatial) -> Spatial:
    """Return m x* f: how the force f changes when carried along by m."""
    return (
        vector.add(vector.cross(m[0], f[0]), vector.cross(m[1], f[1])),
        vector.cross(m[0], f[1]),
    )


def spatial_add(a: Spatial, b: Spatial) -> Spatial:
    """Return a + b, for motions or for forces."""
    return vector.add(a[0], b[0]), vector.add(a[1], b[1])


def spatial_dot(m: Spatial, f: Spatial) -> Scalar:
    """Return power of the force f on the motion m."""
    return vector.dot(m[0], f[0]) + vector.dot(m[1], f[1])


def se3_exp(angular: Vector3, linear: Vector3) -> tuple[Quaternion, Vector3]:
    """Return pose reached after unit time by moving with a constant body-frame velocity: (quaternion, position)."""
    square = vector.dot(angular, angular)
    once = vector.cross(angular, linear)
    twice = vector.cross(angular, once)
    traveled = vector.add(linear, vector.add(vector.scale(cosc(square), once), vector.scale(sincc(square), twice)))
    return quaternion_exp(angular), traveled


def se3_log(q: Quaternion, position: Vector3) -> Spatial:
    """Return the body-frame velocity (angular, linear) that reaches the pose in unit time, the short way round."""
    angular = quaternion_log(q)
    quarter = 0.25 * vector.dot(angular, angular)
    once = vector.cross(angular, position)
    twice = vector.cross(angular, once)
    linear = vector.add(vector.subtract(position, vector.scale(0.5, once)), vector.scale(0.25 * cotc(quarter), twice))
    return angular, linear


def se3_between(q0: Quaternion, p0: Vector3, q1: Quaternion, p1: Vector3) -> Spatial:
    """Return the body-frame velocity (angular, linear) that leads from pose 0 to pose 1 in unit time."""
    step = vector.apply_transposed(from_quaternion(q0), vector.subtract(p1, p0))
    return se3_log(quaternion_multiply(quaternion_conjugate(q0), q1), step)


def so3_log_slope(phi: Vector3, direction: Vector3) -> Vector3:
    """Return the change of the rotation vector phi by a small turn about a direction in the body's frame.

    The inverse of the right Jacobian of SO(3), 1 + [phi]x / 2 + c [phi]x², times the direction (Barfoot, State
    Estimation for Robotics, chapter 7).
    """
    once = vector.cross(phi, direction)
    c = 0.25 * cotc(0.25 * vector.dot(phi, phi))
    return vector.add(direction, vector.add(vector.scale(0.5, once), vector.scale(c, vector.cross(phi, once))))


def se3_log_slopes(phi: Vector3, position: Vector3) -> list[tuple[Vector3, Vector3]]:
    """Return the changes (linear, angular) of the logarithm of a pose by its six small motions in the body's frame.

    The translation of the logarithm is V⁻¹ p with V⁻¹ = 1 - [phi]x / 2 + c [phi]x²; it changes with p and with phi.

    Args:
        phi: rotation vector of the pose.
        position: p, of the pose.
    """
    quarter = 0.25 * vector.dot(phi, phi)
    c, slope = 0.25 * cotc(quarter), 0.125 * cotc_slope(quarter)
    once = vector.cross(phi, position)
    twice = vector.cross(phi, once)
    columns = [(so3_log_slope(phi, axis), ZERO) for axis in AXES]
    for axis in AXES:
        change = so3_log_slope(phi, axis)
        moved = vector.cross(change, position)
        twice_moved = vector.add(vector.cross(change, once), vector.cross(phi, moved))
        along = vector.add(vector.scale(-0.5, moved), vector.scale(c, twice_moved))
        along = vector.add(along, vector.scale(slope * vector.dot(phi, change), twice))
        columns.append((along, change))
    return columns
