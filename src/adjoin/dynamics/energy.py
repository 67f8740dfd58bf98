"""Kinetic and potential energy."""

from collections.abc import Mapping

from adjoin.dynamics.call import Array, call
from adjoin.dynamics.centroidal import carried_moments
from adjoin.dynamics.quantity import quantity
from adjoin.dynamics.state import State
from adjoin.dynamics.tendon import spring_pull, tendons_of
from adjoin.model.manifold import difference
from adjoin.model.model import Model
from adjoin.model.parts import WORLD
from adjoin.spatial import inertia, vector
from adjoin.spatial.scalar import Scalar


@quantity("kinetic_energy", "q", "v")
def kinetic_energy_of(state: State) -> Scalar:
    """Compute `kinetic_energy` over scalars."""
    robot = state.robot
    double: Scalar = 0.0
    for armature, rate in zip(robot.numbers("armature"), state.v, strict=True):
        double = double + armature * (rate * rate)
    for body, (omega, velocity) in enumerate(state.velocities):
        mass, first_moment, rotational = robot.regrouped_inertias[body]
        spin = vector.apply(inertia.to_matrix(rotational), omega)
        around = vector.cross(omega, vector.scale(2.0, first_moment))
        push = vector.add(vector.scale(mass, velocity), around)
        double = double + vector.dot(omega, spin) + vector.dot(velocity, push)
    return 0.5 * double


@quantity("potential_energy", "q")
def potential_energy_of(state: State, springs: bool = False) -> Scalar:
    """Compute `potential_energy` over scalars."""
    robot = state.robot
    energy = -vector.dot(robot.gravity, carried_moments(state)[WORLD][0])
    if springs:
        stretches = difference(robot.model, robot.numbers("spring_reference"), state.q)
        for stiffness, stretch in zip(robot.numbers("stiffness"), stretches, strict=True):
            energy = energy + 0.5 * stiffness * (stretch * stretch)
        numbers = [robot.numbers(f"tendon_{name}") for name in ("stiffness", "spring_length")]
        for (length, _), stiffness, rest in zip(tendons_of(state), *numbers, strict=True):
            stretch = spring_pull(length, 1.0, rest)
            energy = energy + 0.5 * stiffness * (stretch * stretch)
    return energy


@quantity("mechanical_energy", "q", "v")
def mechanical_energy_of(state: State, springs: bool = False) -> Scalar:
    """Compute `mechanical_energy` over scalars."""
    return kinetic_energy_of(state) + potential_energy_of(state, springs)


def kinetic_energy(model: Model, q: Array, v: Array, params: Mapping[str, Array] | None = None) -> Array:
    """Return the kinetic energy of bodies and drives: ½ vᵀ M v with the M of `crba`, armature included.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        params: parameters to take the place of the model's.

    Returns:
        J, (...).
    """
    return call("kinetic_energy", model, q, v, params=params)


def potential_energy(
    model: Model, q: Array, params: Mapping[str, Array] | None = None, *, springs: bool = False
) -> Array:
    """Return the energy of weight: 0 if the center of mass is in the world's origin, more above it.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        params: parameters to take the place of the model's.
        springs: whether ½ k (q - q0)² of the joints' springs, and that of tendons, is added. Its slope is the spring's
            force for joints of one degree of freedom, and for ball joints with one stiffness for all three.

    Returns:
        J, (...).
    """
    return call("potential_energy", model, q, params=params, springs=springs)


def mechanical_energy(
    model: Model, q: Array, v: Array, params: Mapping[str, Array] | None = None, *, springs: bool = False
) -> Array:
    """Return kinetic and potential energy together: constant in motion without friction and drive.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        params: parameters to take the place of the model's.
        springs: see `potential_energy`.

    Returns:
        J, (...).
    """
    return call("mechanical_energy", model, q, v, params=params, springs=springs)
