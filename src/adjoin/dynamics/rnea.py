"""Inverse dynamics: the torques of a given motion, by the recursive Newton-Euler algorithm.

Featherstone, Rigid Body Dynamics Algorithms, chapter 5, in a form that needs no linear velocity: bodies carry the
classical acceleration of their origins, and the centripetal and Euler terms of one body are one matrix
K = [alpha]x + omega omegaᵀ - |omega|² 1, so that the point r of the body accelerates by a + K r. With the body's first
moment h and second moment Sigma, the force on it is m a + K h, and the moment h x a + axial(K Sigma).
"""

from collections.abc import Mapping, Sequence

from adjoin.dynamics.call import Array, Reference, call
from adjoin.dynamics.generalized_forces import joint_forces
from adjoin.dynamics.passive import passive_forces_of
from adjoin.dynamics.quantity import quantity
from adjoin.dynamics.state import State
from adjoin.model.model import Model
from adjoin.spatial import inertia, vector
from adjoin.spatial.motion import Spatial
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import ZERO, Matrix3, Vector3

BodyMotion = tuple[Vector3, Vector3, Vector3]
"""Angular velocity, angular acceleration, and classical acceleration of the origin, in the body's frame."""


def body_motions(state: State, a: Sequence[Scalar]) -> list[BodyMotion]:
    """Return how each body moves if the coordinates accelerate by `a`, as seen by someone in free fall."""

    def step(body: int, parent: BodyMotion) -> BodyMotion:
        omega_parent, alpha_parent, acceleration = parent
        rotation, position = state.transforms[body]
        turning, sliding = state.joint_velocities[body]
        turning_rate, sliding_rate = state.joint_motion(body, a)
        carried = vector.apply_transposed(rotation, omega_parent)
        omega = vector.add(carried, turning)
        alpha = vector.add(vector.apply_transposed(rotation, alpha_parent), turning_rate)
        alpha = vector.add(alpha, vector.cross(carried, turning))
        point = vector.add(acceleration, vector.apply(spin_matrix(omega_parent, alpha_parent), position))
        sliding_acceleration = vector.add(
            sliding_rate, vector.cross(vector.add(vector.scale(2.0, carried), turning), sliding)
        )
        return omega, alpha, vector.add(vector.apply_transposed(rotation, point), sliding_acceleration)

    return state.outward((ZERO, ZERO, vector.negate(state.robot.gravity)), step)


def spin_matrix(omega: Vector3, alpha: Vector3) -> Matrix3:
    """Return K = [alpha]x + omega omegaᵀ - |omega|² 1: the point r accelerates by K r more than the origin."""
    x, y, z = omega
    xx, yy, zz, xy, xz, yz = x * x, y * y, z * z, x * y, x * z, y * z
    return (
        (-(yy + zz), xy - alpha[2], xz + alpha[1]),
        (xy + alpha[2], -(xx + zz), yz - alpha[0]),
        (xz - alpha[1], yz + alpha[0], -(xx + yy)),
    )


def axial(k: Matrix3, s: inertia.Symmetric3) -> Vector3:
    """Return the integral of r x (K r) dm for a body with the second moment s."""
    xx, xy, xz, yy, yz, zz = s
    x, y, z = k
    return (
        z[0] * xy + z[1] * yy + z[2] * yz - (y[0] * xz + y[1] * yz + y[2] * zz),
        x[0] * xz + x[1] * yz + x[2] * zz - (z[0] * xx + z[1] * xy + z[2] * xz),
        y[0] * xx + y[1] * xy + y[2] * xz - (x[0] * xy + x[1] * yy + x[2] * yz),
    )


def body_forces(state: State, a: Sequence[Scalar]) -> list[Spatial]:
    """Return the force each body needs to move as the coordinates say, less external forces, in its own frame."""
    robot, forces = state.robot, []
    for body, (omega, alpha, acceleration) in enumerate(body_motions(state, a)):
        k = spin_matrix(omega, alpha)
        mass, first, second = robot.regrouped[body]
        force = vector.add(vector.scale(mass, acceleration), vector.apply(k, first))
        moment = vector.add(vector.cross(first, acceleration), axial(k, second))
        external = state.external_forces[body]
        forces.append((vector.subtract(moment, external[0]), vector.subtract(force, external[1])))
    return forces


def inverse_dynamics(state: State, a: Sequence[Scalar]) -> list[Scalar]:
    """Return the generalized forces for the accelerations `a`."""
    tau = joint_forces(state, body_forces(state, a))
    return [t + m * x for t, m, x in zip(tau, state.robot.numbers("armature"), a, strict=True)]


def less_passive(state: State, tau: Sequence[Scalar]) -> list[Scalar]:
    """Return what is left to be done of `tau` when the joints' own springs, damping and friction do their part."""
    return [t - p for t, p in zip(tau, passive_forces_of(state), strict=True)]


@quantity("rnea", "q", "v", "a")
def rnea_of(state: State, passive: bool = False) -> list[Scalar]:
    """Compute `rnea` over scalars."""
    tau = inverse_dynamics(state, state.a)
    return less_passive(state, tau) if passive else tau


@quantity("bias_forces", "q", "v")
def bias_forces_of(state: State, passive: bool = False) -> list[Scalar]:
    """Compute `bias_forces` over scalars."""
    tau = inverse_dynamics(state, [0.0] * state.robot.nv)
    return less_passive(state, tau) if passive else tau


@quantity("gravity_forces", "q")
def gravity_forces_of(state: State) -> list[Scalar]:
    """Compute `gravity_forces` over scalars."""
    zeros = [0.0] * state.robot.nv
    return inverse_dynamics(State(state.robot, state.q, zeros), zeros)


def rnea(
    model: Model,
    q: Array,
    v: Array,
    a: Array,
    external: Mapping[str, Array] | Array | None = None,
    params: Mapping[str, Array] | None = None,
    *,
    reference: Reference = "local",
    passive: bool = False,
    out: Array | None = None,
) -> Array:
    """Compute inverse dynamics: the generalized forces that give the accelerations `a`.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        a: acceleration dv/dt, (..., nv).
        external: external forces: frame name -> (..., 6) [force; moment], or one tensor (..., bodies, 6).
        params: parameters to take the place of the model's, each for the batch or one per environment.
        reference: axes of `external`, and the point its moments are about: "local", "world", or
            "local_world_aligned" (the frame's origin, world axes).
        passive: whether springs, damping and dry friction of the joints act too.
        out: a tensor that the result is written into; no gradients pass.

    Returns:
        tau, (..., nv).
    """
    return call("rnea", model, q, v, a, external=external, params=params, reference=reference, passive=passive, out=out)


def bias_forces(
    model: Model,
    q: Array,
    v: Array,
    external: Mapping[str, Array] | Array | None = None,
    params: Mapping[str, Array] | None = None,
    *,
    reference: Reference = "local",
    passive: bool = False,
) -> Array:
    """Return Coriolis, centrifugal and gravity forces: `rnea` with a = 0.

    Returns:
        (..., nv); the arguments are those of `rnea`.
    """
    return call("bias_forces", model, q, v, external=external, params=params, reference=reference, passive=passive)


def gravity_forces(model: Model, q: Array, params: Mapping[str, Array] | None = None) -> Array:
    """Return the generalized forces that hold the robot still against gravity.

    Returns:
        (..., nv); the arguments are those of `rnea`.
    """
    return call("gravity_forces", model, q, params=params)
