"""The robot as a whole: its center of mass, and its momentum about it.

The sums run from the tips to the roots and stay in the bodies' own frames: of what a body carries, the first moment
and its rates as someone on the body sees them. Neither velocities nor poses of bodies are needed for that. The
momentum matrix and its derivative are those of Orin, Goswami and Lee, Centroidal dynamics of a humanoid robot,
Autonomous Robots 35 (2013), with rates of composite inertias in the same way.
"""

from collections.abc import Mapping, Sequence

from adjoin.dynamics.call import Array, call
from adjoin.dynamics.crba import Composite, composite_add, composite_inertias, composite_to_parent, momentum
from adjoin.dynamics.jacobian import rows_of
from adjoin.dynamics.kinematics import linear_first, transforms_from
from adjoin.dynamics.linear import is_zero
from adjoin.dynamics.quantity import quantity
from adjoin.dynamics.rnea import body_forces
from adjoin.dynamics.robot import Robot
from adjoin.dynamics.state import State
from adjoin.errors import InputError
from adjoin.model.model import Model
from adjoin.model.parts import WORLD
from adjoin.spatial import inertia, vector
from adjoin.spatial.motion import Spatial, Transform, force_to_parent, spatial_add
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import IDENTITY, ZERO, Vector3

NONE: inertia.Symmetric3 = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def carried_masses(robot: Robot) -> dict[int, Scalar]:
    """Return the mass of each body and all that it carries; the world carries the robot."""
    masses = {**dict(enumerate(moments.mass for moments in robot.regrouped)), WORLD: 0.0}
    for body in reversed(range(robot.count)):
        masses[robot.parents[body]] = masses[robot.parents[body]] + masses[body]
    return masses


def carried_moments(state: State, rates: int = 0) -> dict[int, list[Vector3]]:
    """Return the first moment of each body and all that it carries, and its time derivatives, seen from that body.

    Args:
        state: of the robot.
        rates: how many derivatives, up to two; the second needs `state.a`.
    """
    robot, masses = state.robot, carried_masses(state.robot)
    moments = {body: [h, ZERO, ZERO] for body, (_, h, _) in enumerate(robot.regrouped)}
    moments[WORLD] = [ZERO, ZERO, ZERO]
    for body in reversed(range(robot.count)):
        (rotation, position), (h, h1, h2), mass = state.transforms[body], moments[body], masses[body]
        steps = [vector.add(vector.apply(rotation, h), vector.scale(mass, position))]
        if rates:
            turning, sliding = state.joint_velocities[body]
            flow = vector.add(vector.add(vector.cross(turning, h), h1), vector.scale(mass, sliding))
            steps.append(vector.apply(rotation, flow))
        if rates > 1:
            turning_rate, sliding_rate = state.joint_motion(body, state.a)
            inner = vector.add(vector.add(h2, vector.cross(turning_rate, h)), vector.scale(mass, sliding_rate))
            steps.append(vector.apply(rotation, vector.add(inner, vector.cross(turning, vector.add(flow, h1)))))
        above = moments[robot.parents[body]]
        for k, step in enumerate(steps):
            above[k] = vector.add(above[k], step)
    return moments


def share_of(mass: Scalar, robot: Robot) -> Scalar:
    """Return one over a mass that a center is taken of."""
    if is_zero(mass):
        raise InputError(f"{robot.model.name!r} has no center of mass: the masses of its bodies are 0")
    return 1.0 / mass


def _mean(state: State, rate: int) -> list[Scalar]:
    share = share_of(carried_masses(state.robot)[WORLD], state.robot)
    return list(vector.scale(share, carried_moments(state, rate)[WORLD][rate]))


@quantity("center_of_mass", "q")
def center_of_mass_of(state: State) -> list[Scalar]:
    """Compute `center_of_mass` over scalars."""
    return _mean(state, 0)


@quantity("center_of_mass_velocity", "q", "v")
def center_of_mass_velocity_of(state: State) -> list[Scalar]:
    """Compute `center_of_mass_velocity` over scalars."""
    return _mean(state, 1)


@quantity("center_of_mass_acceleration", "q", "v", "a")
def center_of_mass_acceleration_of(state: State) -> list[Scalar]:
    """Compute `center_of_mass_acceleration` over scalars."""
    return _mean(state, 2)


@quantity("center_of_mass_jacobian", "q")
def center_of_mass_jacobian_of(state: State) -> list[list[Scalar]]:
    """Compute `center_of_mass_jacobian` over scalars."""
    robot, masses, moments = state.robot, carried_masses(state.robot), carried_moments(state)
    share = share_of(masses[WORLD], robot)
    matrix: list[list[Scalar]] = [[0.0] * robot.nv for _ in range(3)]
    for body, (rotation, _) in enumerate(state.poses):
        mass, arm = share * masses[body], vector.scale(share, moments[body][0])
        for dof, (angular, linear) in robot.subspaces[body]:
            column = vector.add(vector.cross(angular, arm), vector.scale(mass, linear))
            for row, value in zip(matrix, vector.apply(rotation, column), strict=True):
                row[dof] = row[dof] + value
    return matrix


def trunk_of(state: State) -> tuple[int, Transform]:
    """Return where to add up momentum about the center of mass: the body that carries all, or else the world.

    Its pose is given without its place: no distance from the world's origin enters, nor its rounding.
    """
    roots = [body for body, parent in enumerate(state.robot.parents) if parent == WORLD]
    return (roots[0], (state.transforms[roots[0]][0], ZERO)) if len(roots) == 1 else (WORLD, (IDENTITY, ZERO))


def center_in(state: State, body: int) -> Vector3:
    """Return the center of mass of what a body carries, in the body's frame."""
    mass = carried_masses(state.robot)[body]
    return vector.scale(share_of(mass, state.robot), carried_moments(state)[body][0])


def total_about_center(state: State, forces: Sequence[Spatial]) -> Spatial:
    """Sum forces, or momenta, of all bodies (each in its own frame) about the center of mass, in world axes."""
    trunk, (rotation, _) = trunk_of(state)
    total: dict[int, Spatial] = {**dict(enumerate(forces)), WORLD: (ZERO, ZERO)}
    for body in reversed(range(state.robot.count)):
        if body != trunk:
            parent = state.robot.parents[body]
            total[parent] = spatial_add(total[parent], force_to_parent(state.transforms[body], total[body]))
    moment, force = total[trunk]
    about = vector.subtract(moment, vector.cross(center_in(state, trunk), force))
    return vector.apply(rotation, about), vector.apply(rotation, force)


@quantity("centroidal_momentum", "q", "v")
def centroidal_momentum_of(state: State) -> list[Scalar]:
    """Compute `centroidal_momentum` over scalars."""
    bodies = zip(state.robot.regrouped_inertias, state.velocities, strict=True)
    momenta = [momentum(rigid, velocity) for rigid, velocity in bodies]
    return linear_first(total_about_center(state, momenta))


@quantity("centroidal_momentum_rate", "q", "v", "a")
def centroidal_momentum_rate_of(state: State) -> list[Scalar]:
    """Compute `centroidal_momentum_rate` over scalars: the forces that the motion needs, were there no gravity."""
    weightless = Robot(state.robot.model, {**state.robot.params, "gravity": ZERO})
    forces = body_forces(State(weightless, state.q, state.v), state.a)
    return linear_first(total_about_center(state, forces))


def _arms(state: State) -> list[Transform]:
    """Return the pose of each body in world axes, as seen from the center of mass."""
    trunk, first = trunk_of(state)
    center = vector.apply(first[0], center_in(state, trunk))
    poses = transforms_from(state, trunk, first)
    return [(poses[body][0], vector.subtract(poses[body][1], center)) for body in range(state.robot.count)]


@quantity("centroidal_momentum_matrix", "q")
def centroidal_momentum_matrix_of(state: State) -> list[list[Scalar]]:
    """Compute `centroidal_momentum_matrix` over scalars."""
    columns = []
    for composite, arm, joint in zip(composite_inertias(state), _arms(state), state.robot.subspaces, strict=True):
        columns += [(dof, force_to_parent(arm, momentum(composite, s))) for dof, s in joint]
    return rows_of(state.robot.nv, columns)


def composite_rates(state: State, composites: Sequence[Composite]) -> list[Composite]:
    """Return the time derivatives of composite inertias, each as seen from its body; the rate of mass is 0."""
    robot = state.robot
    rates: list[Composite] = [(0.0, ZERO, NONE)] * robot.count
    for body in reversed(range(robot.count)):
        parent = robot.parents[body]
        if parent != WORLD:
            (mass, h, about), (turning, sliding) = composites[body], state.joint_velocities[body]
            half = vector.multiply(vector.skew(turning), inertia.to_matrix(about))
            turned = inertia.symmetric_add(inertia.from_matrix(half), inertia.from_matrix(vector.transpose(half)))
            flow = vector.add(vector.cross(turning, h), vector.scale(mass, sliding))
            rate = composite_add(rates[body], (0.0, flow, composite_to_parent(IDENTITY, sliding, 0.0, h, turned)[2]))
            rates[parent] = composite_add(rates[parent], composite_to_parent(*state.transforms[body], *rate))
    return rates


@quantity("centroidal_momentum_matrix_derivative", "q", "v")
def centroidal_momentum_matrix_derivative_of(state: State) -> list[list[Scalar]]:
    """Compute `centroidal_momentum_matrix_derivative` over scalars."""
    composites, arms, columns = composite_inertias(state), _arms(state), []
    drift = vector.vector3(_mean(state, 1))
    for body, (composite, rate) in enumerate(zip(composites, composite_rates(state, composites), strict=True)):
        (rotation, arm), (omega, velocity) = arms[body], state.velocities[body]
        moving = vector.subtract(vector.apply(rotation, velocity), drift)
        for dof, s in state.robot.subspaces[body]:
            (moment, force), (moment_rate, force_rate) = momentum(composite, s), momentum(rate, s)
            turned = (
                vector.add(moment_rate, vector.cross(omega, moment)),
                vector.add(force_rate, vector.cross(omega, force)),
            )
            angular, linear = force_to_parent((rotation, arm), turned)
            carried = vector.cross(moving, vector.apply(rotation, force))
            columns.append((dof, (vector.add(angular, carried), linear)))
    return rows_of(state.robot.nv, columns)


def center_of_mass(model: Model, q: Array, params: Mapping[str, Array] | None = None) -> Array:
    """Return the center of mass of all that moves, in the world.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        params: parameters to take the place of the model's.

    Returns:
        (..., 3).
    """
    return call("center_of_mass", model, q, params=params)


def center_of_mass_jacobian(model: Model, q: Array, params: Mapping[str, Array] | None = None) -> Array:
    """Return the Jacobian of the center of mass: its velocity is J v.

    Returns:
        J, (..., 3, nv), world axes; the arguments are those of `center_of_mass`.
    """
    return call("center_of_mass_jacobian", model, q, params=params)


def center_of_mass_velocity(model: Model, q: Array, v: Array, params: Mapping[str, Array] | None = None) -> Array:
    """Return the velocity of the center of mass.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        params: parameters to take the place of the model's.

    Returns:
        (..., 3), world axes.
    """
    return call("center_of_mass_velocity", model, q, v, params=params)


def center_of_mass_acceleration(
    model: Model, q: Array, v: Array, a: Array, params: Mapping[str, Array] | None = None
) -> Array:
    """Return the acceleration of the center of mass.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        a: acceleration dv/dt, (..., nv).
        params: parameters to take the place of the model's.

    Returns:
        (..., 3), world axes.
    """
    return call("center_of_mass_acceleration", model, q, v, a, params=params)


def centroidal_momentum(model: Model, q: Array, v: Array, params: Mapping[str, Array] | None = None) -> Array:
    """Return the momentum of all bodies about their center of mass; drives' armature has none.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        params: parameters to take the place of the model's.

    Returns:
        h, [linear; angular], (..., 6), world axes.
    """
    return call("centroidal_momentum", model, q, v, params=params)


def centroidal_momentum_matrix(model: Model, q: Array, params: Mapping[str, Array] | None = None) -> Array:
    """Return the matrix A of the centroidal momentum h = A v.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        params: parameters to take the place of the model's.

    Returns:
        A, rows [linear; angular], (..., 6, nv), world axes.
    """
    return call("centroidal_momentum_matrix", model, q, params=params)


def centroidal_momentum_matrix_derivative(
    model: Model, q: Array, v: Array, params: Mapping[str, Array] | None = None
) -> Array:
    """Return the time derivative of `centroidal_momentum_matrix` as the robot moves with v.

    Returns:
        dA/dt, (..., 6, nv); the arguments are those of `centroidal_momentum`.
    """
    return call("centroidal_momentum_matrix_derivative", model, q, v, params=params)


def centroidal_momentum_rate(
    model: Model, q: Array, v: Array, a: Array, params: Mapping[str, Array] | None = None
) -> Array:
    """Return the rate of change of the centroidal momentum, dA/dt v + A a: what external forces, gravity included, do.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        a: acceleration dv/dt, (..., nv).
        params: parameters to take the place of the model's.

    Returns:
        dh/dt, [linear; angular], (..., 6), world axes.
    """
    return call("centroidal_momentum_rate", model, q, v, a, params=params)
