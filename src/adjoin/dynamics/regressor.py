"""Regressors: torques and energies as linear functions of the inertial parameters.

The ten parameters of a body, in the order of Pinocchio, are

    m, hx, hy, hz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz

with the first moment h = m c and the rotational inertia I about the origin of the body's frame (Atkeson, An and
Hollerbach 1986, Estimation of inertial parameters of manipulator loads and links).
"""

from collections.abc import Mapping

import torch

from adjoin.dynamics.call import Array, call
from adjoin.dynamics.linear import Rows
from adjoin.dynamics.quantity import quantity
from adjoin.dynamics.rnea import BodyMotion, body_motions, spin_matrix
from adjoin.dynamics.state import State
from adjoin.errors import InputError
from adjoin.model import parameters
from adjoin.model.model import Model
from adjoin.spatial import inertia, vector
from adjoin.spatial.motion import Spatial, motion_to_child
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import ZERO, Vector3

_ORDER = (0, 1, 3, 2, 4, 5)
"""Where Pinocchio's xx, xy, yy, xz, yz, zz are in our xx, xy, xz, yy, yz, zz; and the other way round."""


def _bilinear(a: Vector3, b: Vector3) -> list[Scalar]:
    """Return the coefficients of xx, xy, yy, xz, yz, zz in aᵀ I b."""
    return [
        a[0] * b[0],
        a[0] * b[1] + a[1] * b[0],
        a[1] * b[1],
        a[0] * b[2] + a[2] * b[0],
        a[1] * b[2] + a[2] * b[1],
        a[2] * b[2],
    ]


def _power(moving: BodyMotion, s: Spatial) -> list[Scalar]:
    """Return the coefficients of a body's parameters in the power of its force on the motion s, in its own frame."""
    omega, alpha, acceleration = moving
    turning, sliding = s
    moments = vector.apply_transposed(spin_matrix(omega, alpha), sliding)
    moments = vector.add(moments, vector.cross(acceleration, turning))
    gyroscopic = _bilinear(vector.cross(turning, omega), omega)
    inertias = [x + y for x, y in zip(_bilinear(turning, alpha), gyroscopic, strict=True)]
    return [vector.dot(sliding, acceleration), *moments, *inertias]


@quantity("torque_regressor", "q", "v", "a")
def torque_regressor_of(state: State) -> Rows:
    """Compute `torque_regressor` over scalars."""
    robot = state.robot
    rows: Rows = [[0.0] * (10 * robot.count) for _ in range(robot.nv)]

    def step(body: int, above: list[tuple[int, Spatial]]) -> list[tuple[int, Spatial]]:
        return [*((dof, motion_to_child(state.transforms[body], s)) for dof, s in above), *robot.subspaces[body]]

    for body, (moving, directions) in enumerate(
        zip(body_motions(state, state.a), state.outward([], step), strict=True)
    ):
        for dof, s in directions:
            for k, value in enumerate(_power(moving, s), 10 * body):
                rows[dof][k] = rows[dof][k] + value
    return rows


@quantity("kinetic_energy_regressor", "q", "v")
def kinetic_energy_regressor_of(state: State) -> list[Scalar]:
    """Compute `kinetic_energy_regressor` over scalars."""
    coefficients: list[Scalar] = []
    for omega, velocity in state.velocities:
        half = vector.scale(0.5, omega)
        coefficients += [0.5 * vector.dot(velocity, velocity), *vector.cross(velocity, omega), *_bilinear(half, omega)]
    return coefficients


@quantity("potential_energy_regressor", "q")
def potential_energy_regressor_of(state: State) -> list[Scalar]:
    """Compute `potential_energy_regressor` over scalars."""
    up = vector.negate(state.robot.gravity)
    coefficients: list[Scalar] = []
    for rotation, position in state.poses:
        coefficients += [vector.dot(up, position), *vector.apply_transposed(rotation, up), *ZERO, *ZERO]
    return coefficients


def torque_regressor(model: Model, q: Array, v: Array, a: Array, params: Mapping[str, Array] | None = None) -> Array:
    """Return the matrix Y with `rnea` = Y pi + armature * a, for the inertial parameters pi of all bodies.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        a: acceleration dv/dt, (..., nv).
        params: parameters to take the place of the model's; masses, centers of mass and inertias do not matter.

    Returns:
        Y, (..., nv, 10 bodies); pi is `inertial_parameters(model).flatten(-2)`.
    """
    return call("torque_regressor", model, q, v, a, params=params)


def kinetic_energy_regressor(model: Model, q: Array, v: Array, params: Mapping[str, Array] | None = None) -> Array:
    """Return the vector y with kinetic energy = y . pi, and ½ armature v² more for the drives.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        params: see `torque_regressor`.

    Returns:
        y, (..., 10 bodies).
    """
    return call("kinetic_energy_regressor", model, q, v, params=params)


def potential_energy_regressor(model: Model, q: Array, params: Mapping[str, Array] | None = None) -> Array:
    """Return the vector y with potential energy = y . pi, 0 for a center of mass in the world's origin.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        params: see `torque_regressor`.

    Returns:
        y, (..., 10 bodies).
    """
    return call("potential_energy_regressor", model, q, params=params)


def inertial_parameters(model: Model, params: Mapping[str, Array] | None = None) -> torch.Tensor:
    """Return ten inertial parameters of each body: m, m c, and Ixx, Ixy, Iyy, Ixz, Iyz, Izz about its frame's origin.

    Args:
        model: the robot.
        params: "mass", "com" and "inertia" to take the place of the model's, with batch dimensions or without.

    Returns:
        (..., bodies, 10), of the dtype and on the device of what is given; gradients pass.
    """
    for name in set(params or {}) - set(parameters.FIXED):
        parameters.named(name)
    inertial = {name: value for name, value in (params or {}).items() if name in ("mass", "com", "inertia")}
    tensors = {name: value for name, value in inertial.items() if isinstance(value, torch.Tensor)}
    lead = {"mass": 1, "com": 2, "inertia": 2}
    try:
        batch = torch.broadcast_shapes(*[value.shape[: value.ndim - lead[name]] for name, value in tensors.items()])
    except RuntimeError:
        batch = torch.Size()
    first = next(iter(tensors.values()), None)
    defaults = model.parameters(dtype=getattr(first, "dtype", None), device=getattr(first, "device", None))
    checked = {**defaults, **model.check_parameters(inertial, batch)}
    mass, com = checked["mass"], vector.vector3(checked["com"].unbind(-1))
    xx, xy, xz, yy, yz, zz = checked["inertia"].unbind(-1)
    about = inertia.about_origin((mass, com, (xx, xy, xz, yy, yz, zz)))
    columns = [mass, *vector.scale(mass, com), *[about[k] for k in _ORDER]]
    return torch.stack([column.expand((*batch, len(model.bodies))) for column in columns], -1)


def from_inertial_parameters(model: Model, pi: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the parameters "mass", "com" and "inertia" of given inertial parameters, to be passed as `params`.

    Args:
        model: the robot.
        pi: (..., bodies, 10), as `inertial_parameters` gives them. A body without mass must not have a first moment.

    Returns:
        mass (..., bodies), com (..., bodies, 3) and inertia (..., bodies, 6); gradients pass.
    """
    count = len(model.bodies)
    if not isinstance(pi, torch.Tensor) or pi.shape[-2:] != (count, 10):
        got = tuple(pi.shape) if isinstance(pi, torch.Tensor) else type(pi).__name__
        raise InputError(f"from_inertial_parameters: {model.name!r} needs a tensor (..., {count}, 10), got {got}")
    mass, *moments = pi.unbind(-1)
    com = vector.scale(1.0 / torch.where(mass == 0.0, 1.0, mass), vector.vector3(moments[:3]))
    shift = inertia.point_mass(mass, com)
    central = [moments[3 + k] - less for k, less in zip(_ORDER, shift, strict=True)]
    return {"mass": mass, "com": torch.stack(com, -1), "inertia": torch.stack(central, -1)}
