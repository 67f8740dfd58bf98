"""Full derivatives of inverse and forward dynamics on the tangent space, by an analytical recursion.

Singh, Russell and Wensing 2022, Efficient analytical derivatives of rigid-body dynamics using spatial vector algebra,
over the sums of `subtrees`. With S the directions of the joints, S' = v x S and S'' = a x S + v x S' how the motion
(v, a) of the parent carries them, and I, B, f the inertia, Coriolis matrix and force of all that a direction i moves,

    dtau_j/dq_i = S_j . (2 B S'_i + I S''_i + S_i x* f)    for j that carries i,
    dtau_i/dq_j = S_i . (2 B S'_j + I S''_j)               for the same, and for j = i.

Of our own are the external forces that do not move with their bodies (`external_forces`), and how free roots are
treated: gravity and the linear velocity of such a root enter only through the acceleration of its origin. With

    a = a'' + drift,    drift = g - omega x v for the root's linear directions, 0 for all others,

the forces do not depend on them at constant a''. So forward dynamics is solved for a'', and of the twelve columns that
belong to the root only the three of its angular velocity are left to solve for. Derivatives to velocities are kept as
halves: those of joints with one direction are the Coriolis matrix.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from adjoin.dynamics.call import Array, Reference, call
from adjoin.dynamics.external_forces import subtree_forces
from adjoin.dynamics.factor import FactoredInverse, InertiaFactor
from adjoin.dynamics.linear import Rows, is_zero
from adjoin.dynamics.passive import passive_forces_of, spring_slopes
from adjoin.dynamics.quantity import quantity
from adjoin.dynamics.state import State
from adjoin.dynamics.subtrees import Subtrees, force_from, motion_at, scaled
from adjoin.errors import InputError
from adjoin.model.model import Model
from adjoin.model.parts import WORLD
from adjoin.spatial import vector
from adjoin.spatial.motion import (
    ZERO_SPATIAL,
    Spatial,
    motion_cross_force,
    motion_cross_motion,
    spatial_add,
    spatial_dot,
)
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import ZERO, Vector3


class RneaDerivatives(NamedTuple):
    """Derivatives of inverse dynamics, (..., nv, nv) each; a column for each direction of change."""

    dtau_dq: torch.Tensor
    dtau_dv: torch.Tensor
    dtau_da: torch.Tensor


class AbaDerivatives(NamedTuple):
    """Derivatives of forward dynamics, (..., nv, nv) each; a column for each direction of change."""

    da_dq: torch.Tensor
    da_dv: torch.Tensor
    da_dtau: torch.Tensor


class FreeRootDrift:
    """How free roots accelerate without forces, by gravity and by turning axes, and the derivatives of that.

    Attributes:
        a: nv accelerations.
        dq: their derivatives to q.
        dv: their derivatives to v.
        velocity: v without the part that matters here only.
    """

    def __init__(self, state: State):
        nv = state.robot.nv
        self.a: list[Scalar] = [0.0] * nv
        self.dq: Rows = [[0.0] * nv for _ in range(nv)]
        self.dv: Rows = [[0.0] * nv for _ in range(nv)]
        self.velocity = list(state.v)
        for body in range(state.robot.count):
            if is_free_root(state, body):
                self._enter(state.robot.subspaces[body][0][0], state.v, gravity_at(state, body))

    def _enter(self, at: int, v: Sequence[Scalar], gravity: Vector3) -> None:
        linear, omega = vector.vector3(v[at : at + 3]), vector.vector3(v[at + 3 : at + 6])
        self.a[at : at + 3] = vector.subtract(gravity, vector.cross(omega, linear))
        self.velocity[at : at + 3] = ZERO
        by_turn, by_sliding, by_spin = vector.skew(gravity), vector.skew(vector.negate(omega)), vector.skew(linear)
        for row in range(3):
            self.dq[at + row][at + 3 : at + 6] = by_turn[row]
            self.dv[at + row][at : at + 6] = [*by_sliding[row], *by_spin[row]]


def is_free_root(state: State, body: int) -> bool:
    """Return whether a body moves freely against the world."""
    return state.robot.parents[body] == WORLD and state.robot.joint(body).type.floating


def gravity_at(state: State, root: int) -> Vector3:
    """Return the acceleration of free fall in the frame of a root."""
    return vector.apply_transposed(state.transforms[root][0], state.robot.gravity)


class GeneralizedForces:
    """The generalized forces of bodies and external forces, without armature, and their derivatives at constant a''."""

    def __init__(self, state: State, drift: FreeRootDrift):
        self.state = state
        self.subtrees = Subtrees(state, drift.velocity)
        self.external = subtree_forces(self.subtrees)
        rates = self.subtrees.rates(0.5)
        for body, joint_rates in enumerate(rates):
            if is_free_root(state, body):
                joint_rates[:3] = [ZERO_SPATIAL] * 3
        self.half_dv = self.subtrees.coriolis(rates)

    def start(self, body: int) -> Spatial:
        """Return the acceleration that a root starts from: minus gravity, unless it is in a'' already."""
        return ZERO_SPATIAL if is_free_root(self.state, body) else (ZERO, vector.negate(gravity_at(self.state, body)))

    def bias(self) -> list[Scalar]:
        """Return the forces at a'' = 0; those of the velocity are half their derivative to it times the velocity."""
        subtrees = self.subtrees
        forces: list[Scalar] = [sum((c * v for c, v in zip(row, subtrees.v, strict=True)), 0.0) for row in self.half_dv]
        for body, directions in enumerate(subtrees.directions):
            start = self.start(subtrees.paths[body][-1])
            for (dof, s), momentum in zip(directions, subtrees.momenta[body], strict=True):
                external = spatial_dot(s, self.external[body].wrench)
                forces[dof] = forces[dof] + vector.dot(start[1], momentum[0][1]) - external
        return forces

    def dq(self, a: Sequence[Scalar]) -> Rows:
        """Return the derivatives to q at a'' = a."""
        subtrees, directions = self.subtrees, self.subtrees.directions
        accelerations = self._accelerations(a)
        forces = self._forces(accelerations)
        doubled, second = self._carried_twice(accelerations)
        matrix, enter = subtrees.matrix()
        for body, operators in enumerate(subtrees.operators):
            for k, (dof, s) in enumerate(directions[body]):
                force = spatial_add(operators.B(doubled[body][k]), operators.I(second[body][k]))
                force = spatial_add(force, motion_cross_force(s, forces[body]))
                lifted = subtrees.lifted(body, spatial_add(force, scaled(-1.0, self.external[body].change(s))))
                turned = subtrees.lifted(body, self.external[body].change_transposed(s))
                for step, other in enumerate(subtrees.paths[body]):
                    for number, (place, along) in enumerate(directions[other]):
                        if other != body:
                            enter(place, dof, spatial_dot(along, lifted[step]))
                        turning = vector.dot(subtrees.B_transposed[body][k], doubled[other][number])
                        value = turning + spatial_dot(second[other][number], subtrees.momenta[body][k][step])
                        enter(dof, place, value - spatial_dot(along, turned[step]))
        return matrix

    def _accelerations(self, a: Sequence[Scalar]) -> list[Spatial]:
        subtrees = self.subtrees

        def step(body: int, parent: Spatial) -> Spatial:
            root = self.state.robot.parents[body] == WORLD
            moved = self.start(body) if root else motion_at(subtrees.offsets[body], parent)
            moved = spatial_add(moved, subtrees.joint_motion(body, a))
            for (dof, _), rate in zip(subtrees.directions[body], subtrees.carried_rates[body], strict=True):
                moved = spatial_add(moved, scaled(subtrees.v[dof], rate))
            return moved

        return self.state.outward(ZERO_SPATIAL, step)

    def _forces(self, accelerations: list[Spatial]) -> list[Spatial]:
        """Return the force that each body and all that it carries need, less external forces."""
        forces = []
        for operators, a, v in zip(self.subtrees.alone, accelerations, self.subtrees.velocities, strict=True):
            forces.append(spatial_add(operators.I(a), operators.B(v[0])))
        needed = self.subtrees.subtree_sums(forces, spatial_add, force_from)
        return [spatial_add(f, scaled(-1.0, o.wrench)) for f, o in zip(needed, self.external, strict=True)]

    def _carried_twice(self, accelerations: list[Spatial]) -> tuple[list[list[Vector3]], list[list[Spatial]]]:
        """Return 2 S', its angular part, and S'' of each direction."""
        subtrees = self.subtrees
        moving = zip(subtrees.carried(subtrees.velocities), subtrees.carried(accelerations, self.start), strict=True)
        doubled = [[vector.scale(2.0, rate[0]) for rate in directions] for directions in subtrees.carried_rates]
        second = []
        for (v, a), directions, rates in zip(moving, subtrees.directions, subtrees.carried_rates, strict=True):
            pairs = zip(directions, rates, strict=True)
            second.append([spatial_add(motion_cross_motion(a, s), motion_cross_motion(v, r)) for (_, s), r in pairs])
        return doubled, second


def _sum(*matrices: Rows) -> Rows:
    rows = zip(*matrices, strict=True)
    return [[sum(entries[1:], entries[0]) for entries in zip(*row, strict=True)] for row in rows]


def _scaled_rows(scales: Sequence[Scalar], matrix: Rows) -> Rows:
    return [[0.0 if is_zero(x) else s * x for x in row] for s, row in zip(scales, matrix, strict=True)]


def _diagonal(values: Sequence[Scalar]) -> Rows:
    return [[x if i == k else 0.0 for k in range(len(values))] for i, x in enumerate(values)]


def _product(left: Rows, right: Rows) -> Rows:
    """Return left right, where the second has few entries that are not zero."""
    product: Rows = [[0.0] * len(right) for _ in left]
    entries = [(k, i, x) for k, row in enumerate(right) for i, x in enumerate(row) if not is_zero(x)]
    for out, row in zip(product, left, strict=True):
        for k, i, x in entries:
            out[i] = out[i] + row[k] * x
    return product


def _passive(state: State) -> tuple[Rows, Rows]:
    """Return the derivatives of what springs and damping take, to q and to v; those of dry friction are zero."""
    if state.robot.model.tendons or not all(map(is_zero, state.robot.numbers("compensated_mass"))):
        raise InputError(
            f"derivatives of {state.robot.model.name!r}: with passive=True there are none for tendons and gravity "
            "compensation; differentiate rnea or aba with torch instead"
        )
    return spring_slopes(state), _diagonal(state.robot.numbers("damping"))


@quantity("rnea_derivatives", "q", "v", "a", square=True)
def rnea_derivatives_of(state: State, passive: bool = False) -> RneaDerivatives:
    """Compute `rnea_derivatives` over scalars."""
    drift = FreeRootDrift(state)
    forces = GeneralizedForces(state, drift)
    inertia = forces.subtrees.inertia()
    less = [[-x for x in row] for row in inertia]
    dq = [forces.dq([x - d for x, d in zip(state.a, drift.a, strict=True)]), _product(less, drift.dq)]
    dv = [forces.half_dv, forces.half_dv, _product(less, drift.dv)]
    if passive:
        springs, damping = _passive(state)
        dq, dv = [*dq, springs], [*dv, damping]
    results: Any = (_sum(*dq), _sum(*dv), _sum(inertia, _diagonal(state.robot.numbers("armature"))))
    return RneaDerivatives(*results)


@quantity("aba_derivatives", "q", "v", "tau", square=True)
def aba_derivatives_of(state: State, passive: bool = False) -> AbaDerivatives:
    """Compute `aba_derivatives` over scalars: those of inverse dynamics, times -M⁻¹."""
    drift = FreeRootDrift(state)
    forces, armature = GeneralizedForces(state, drift), state.robot.numbers("armature")
    half = [0.5 * m for m in armature]
    tau = [t - m * d for t, m, d in zip(state.tau, armature, drift.a, strict=True)]
    dq, half_dv = [_scaled_rows(armature, drift.dq)], [forces.half_dv, _scaled_rows(half, drift.dv)]
    if passive:
        tau = [t + p for t, p in zip(tau, passive_forces_of(state), strict=True)]
        springs, damping = _passive(state)
        dq, half_dv = [*dq, springs], [*half_dv, [[0.5 * x for x in row] for row in damping]]
    inverse = FactoredInverse(factor := InertiaFactor(forces.subtrees))
    a = factor.solve([t - b for t, b in zip(tau, forces.bias(), strict=True)])
    da_dq = _sum(inverse.times(_sum(forces.dq(a), *dq), -1.0), drift.dq)
    da_dv = _sum(inverse.times(_sum(*half_dv), -2.0), drift.dv)
    results: Any = (da_dq, da_dv, inverse.matrix())
    return AbaDerivatives(*results)


def rnea_derivatives(
    model: Model,
    q: Array,
    v: Array,
    a: Array,
    external: Mapping[str, Array] | Array | None = None,
    params: Mapping[str, Array] | None = None,
    *,
    reference: Reference = "local",
    passive: bool = False,
) -> RneaDerivatives:
    """Return the derivatives of `rnea`, for small changes of q as `Model.integrate` makes them.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        a: acceleration dv/dt, (..., nv).
        external: external forces, see `rnea`. They stay what they are while q changes.
        params: parameters to take the place of the model's.
        reference: of the external forces.
        passive: whether springs and damping of the joints act too; dry friction has no slope.

    Returns:
        dtau_dq, dtau_dv and dtau_da = M, each (..., nv, nv): entry (i, k) is the derivative of tau_i in direction k.
    """
    return call(
        "rnea_derivatives", model, q, v, a, external=external, params=params, reference=reference, passive=passive
    )


def aba_derivatives(
    model: Model,
    q: Array,
    v: Array,
    tau: Array,
    external: Mapping[str, Array] | Array | None = None,
    params: Mapping[str, Array] | None = None,
    *,
    reference: Reference = "local",
    passive: bool = False,
) -> AbaDerivatives:
    """Return the derivatives of `aba`, for small changes of q as `Model.integrate` makes them.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        tau: generalized forces, (..., nv).
        external: external forces, see `rnea`. They stay what they are while q changes.
        params: parameters to take the place of the model's.
        reference: of the external forces.
        passive: whether springs and damping of the joints act too; dry friction has no slope.

    Returns:
        da_dq, da_dv and da_dtau = M⁻¹, each (..., nv, nv): entry (i, k) is the derivative of a_i in direction k.
    """
    return call(
        "aba_derivatives", model, q, v, tau, external=external, params=params, reference=reference, passive=passive
    )
