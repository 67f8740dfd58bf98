"""Dynamics of a robot with constrained frames: fixed to the world, or to one another, which closes loops.

A constraint says that a frame does not move against what it is fixed to: J v = 0, with one row for each direction in
which it is fixed. The constraint forces are Lagrange multipliers,

    [ M   Jᵀ ] [  a ]   [ tau - bias ]
    [ J  -eI ] [ -f ] = [ -Jdot v    ],

found from the small system (J M⁻¹ Jᵀ + eI) f = -(J a_free + Jdot v), where a_free is the acceleration without the
constraints (Featherstone, Rigid Body Dynamics Algorithms, chapter 8). The small e keeps the system solvable where
constraints say the same thing twice. It is felt only in second and higher order, because the system is solved again
for what is left over: the proximal method of Carpentier, Budhiraja and Mansard, "Proximal and sparse resolution of
constrained dynamic equations", 2021. Derivatives are those of the solution of the system, by the implicit function
theorem: they take one more solve, and the derivatives of inverse dynamics at constant a and f.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from adjoin.dynamics.aba import inertia_factor
from adjoin.dynamics.call import Array, Reference, call
from adjoin.dynamics.frame_constraint import EvaluatedConstraint, FrameConstraint
from adjoin.dynamics.generalized_forces import joint_forces
from adjoin.dynamics.linear import Factor, Rows, dot, is_zero
from adjoin.dynamics.passive import passive_forces_of
from adjoin.dynamics.quantity import quantity
from adjoin.dynamics.rnea import bias_forces_of, body_forces
from adjoin.dynamics.state import State
from adjoin.errors import InputError
from adjoin.model.model import Model
from adjoin.spatial.scalar import Scalar
from adjoin.trace import implicit

REGULARIZATION = 1e-6
REFINEMENTS = 2


class ConstrainedDynamics(NamedTuple):
    """What `constrained_dynamics` returns.

    Attributes:
        acceleration: dv/dt, (..., nv).
        forces: on the constrained frames, (..., constraints, 6) [force; moment], each about its frame's origin and in
            its axes; the opposite acts on what the frame is fixed to. The moment of a "point" is 0.
    """

    acceleration: torch.Tensor
    forces: torch.Tensor


class ImpulseDynamics(NamedTuple):
    """What `impulse_dynamics` returns.

    Attributes:
        velocity: after the impact, (..., nv).
        impulses: on the constrained frames, (..., constraints, 6) [N s; N m s], in the manner of the forces of
            `ConstrainedDynamics`.
    """

    velocity: torch.Tensor
    impulses: torch.Tensor


class Multipliers:
    """The forces of several constraints at one state.

    Args:
        state: of the robot.
        constraints: on its frames.
        regularization: see `constrained_dynamics`.
    """

    def __init__(self, state: State, constraints: Sequence[FrameConstraint], regularization: float):
        self.constraints = [EvaluatedConstraint(state, constraint) for constraint in constraints]
        self.inertia = inertia_factor(state)
        self.halves: Rows = []
        self.places: list[tuple[int, int]] = []
        softness: list[Scalar] = []
        for index, constraint in enumerate(self.constraints):
            rows = constraint.rows
            for first in range(0, len(rows), 3):
                acting = [k for k in range(first, first + 3) if not all(map(is_zero, rows[k]))]
                halves = [self.inertia.solve_upper(rows[k]) for k in acting]
                size = sum((self._product(half, half) for half in halves), 0.0)
                self.places += [(index, k) for k in acting]
                self.halves += halves
                softness += [regularization / len(acting) * size for _ in acting]
        self.softness = softness
        scaled = [self.inertia.solve_diagonal(half) for half in self.halves]
        matrix = [[dot(a, b) for b in scaled[: i + 1]] for i, a in enumerate(self.halves)]
        for k, soft in enumerate(softness):
            matrix[k][k] = matrix[k][k] + soft
        self.matrix = Factor(matrix)

    def solve(self, right: Sequence[Scalar], residual: Sequence[Scalar]) -> tuple[list[Scalar], list[Scalar]]:
        """Return M⁻¹ (right + Jᵀ f) and f, such that J M⁻¹ (right + Jᵀ f) + residual = 0."""
        half = self.inertia.solve_upper(right)
        target = [-(self._product(h, half) + x) for h, x in zip(self.halves, residual, strict=True)]
        forces = self.matrix.solve(target)
        for _ in range(REFINEMENTS):
            forces = self.matrix.solve([t + s * f for t, s, f in zip(target, self.softness, forces, strict=True)])
        for force, row in zip(forces, self.halves, strict=True):
            half = [x if is_zero(h) else x + force * h for x, h in zip(half, row, strict=True)]
        return self.inertia.solve_lower(self.inertia.solve_diagonal(half)), forces

    def rows(self, values: Sequence[Sequence[Scalar]]) -> list[Scalar]:
        """Select from values for every row of every constraint those of the rows that a force acts along."""
        return [values[i][k] for i, k in self.places]

    def wrenches(self, forces: Sequence[Scalar]) -> Rows:
        """Return the forces by constraint, [force; moment]."""
        wrenches: Rows = [[0.0] * 6 for _ in self.constraints]
        for force, (i, k) in zip(forces, self.places, strict=True):
            wrenches[i][k] = force
        return wrenches

    def _product(self, a: Sequence[Scalar], b: Sequence[Scalar]) -> Scalar:
        return dot(self.inertia.solve_diagonal(a), b)


@quantity("constrained_dynamics", "q", "v", "tau")
def constrained_dynamics_of(
    state: State,
    constraints: tuple[FrameConstraint, ...],
    passive: bool = False,
    regularization: float = REGULARIZATION,
    stabilization: tuple[float, float] = (0.0, 0.0),
) -> ConstrainedDynamics:
    """Compute `constrained_dynamics` over scalars."""
    robot, (stiffness, damping) = state.robot, stabilization
    solver = Multipliers(state, constraints, regularization)
    tau = state.tau
    if passive:
        tau = [t + p for t, p in zip(tau, passive_forces_of(state), strict=True)]

    def violation(a: Sequence[Scalar]) -> list[Scalar]:
        rows = []
        for constraint in solver.constraints:
            rates = constraint.acceleration(a)
            if damping:
                rates = [x + damping * y for x, y in zip(rates, constraint.velocity(), strict=True)]
            if stiffness:
                rates = [x + stiffness * y for x, y in zip(rates, constraint.error(), strict=True)]
            rows.append(rates)
        return solver.rows(rows)

    right = [t - b for t, b in zip(tau, bias_forces_of(state), strict=True)]
    acceleration, forces = solver.solve(right, violation([0.0] * robot.nv))

    def residual(x: Sequence[Scalar]) -> list[Scalar]:
        a = x[: robot.nv]
        needed = body_forces(state, a)
        for constraint, wrench in zip(solver.constraints, solver.wrenches(x[robot.nv :]), strict=True):
            constraint.apply(wrench, needed)
        joints = zip(joint_forces(state, needed), robot.numbers("armature"), a, tau, strict=True)
        return [force + m * y - t for force, m, y, t in joints] + [-y for y in violation(a)]

    def solve(b: Sequence[Scalar]) -> list[Scalar]:
        a, f = solver.solve(b[: robot.nv], b[robot.nv :])
        return a + f

    solved = implicit(acceleration + forces, residual, solve)
    results: Any = (solved[: robot.nv], solver.wrenches(solved[robot.nv :]))
    return ConstrainedDynamics(*results)


@quantity("impulse_dynamics", "q", "v")
def impulse_dynamics_of(
    state: State,
    constraints: tuple[FrameConstraint, ...],
    restitution: float = 0.0,
    regularization: float = REGULARIZATION,
) -> ImpulseDynamics:
    """Compute `impulse_dynamics` over scalars."""
    solver = Multipliers(state, constraints, regularization)
    speeds = [[(1.0 + restitution) * x for x in constraint.velocity()] for constraint in solver.constraints]
    change, impulses = solver.solve([0.0] * state.robot.nv, solver.rows(speeds))
    results: Any = ([v + x for v, x in zip(state.v, change, strict=True)], solver.wrenches(impulses))
    return ImpulseDynamics(*results)


def constrained_dynamics(
    model: Model,
    q: Array,
    v: Array,
    tau: Array,
    constraints: FrameConstraint | Sequence[FrameConstraint],
    external: Mapping[str, Array] | Array | None = None,
    params: Mapping[str, Array] | None = None,
    *,
    reference: Reference = "local",
    passive: bool = False,
    regularization: float = REGULARIZATION,
    stabilization: tuple[float, float] = (0.0, 0.0),
) -> ConstrainedDynamics:
    """Compute forward dynamics with frames fixed to the world or to one another, and the constraint forces.

    Constrained frames keep the velocity they have, which should be 0: only accelerations are constrained, unless
    `stabilization` pulls positions and velocities back to where they belong.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        tau: generalized forces, (..., nv).
        constraints: on frames: constants of the kernel.
        external: further external forces: frame name -> (..., 6) [force; moment], or one tensor (..., bodies, 6).
        params: parameters to take the place of the model's, each for the batch or one per environment.
        reference: axes of `external`, and the point its moments are about: "local", "world", or
            "local_world_aligned" (the frame's origin, world axes).
        passive: whether springs, damping and dry friction of the joints act too.
        regularization: e above, as a fraction of what it is added to: of the mean of the diagonal of J M⁻¹ Jᵀ over the
            three linear, or the three angular, rows of a constraint. Of constraints that say the same thing twice,
            each does its share. In float32 it should not be less than 1e-6.
        stabilization: (kp, kd) of Baumgarte's method, 1/s² and 1/s: the error x of each constraint follows
            x'' + kd x' + kp x = 0. Critical damping has kd² = 4 kp.

    Returns:
        The acceleration, (..., nv), and the forces on the constrained frames, (..., constraints, 6).
    """
    return call(
        "constrained_dynamics",
        model,
        q,
        v,
        tau,
        external=external,
        params=params,
        reference=reference,
        constraints=_as_tuple("constrained_dynamics", constraints),
        passive=passive,
        regularization=regularization,
        stabilization=tuple(stabilization),
    )


def impulse_dynamics(
    model: Model,
    q: Array,
    v: Array,
    constraints: FrameConstraint | Sequence[FrameConstraint],
    restitution: float = 0.0,
    params: Mapping[str, Array] | None = None,
    *,
    regularization: float = REGULARIZATION,
) -> ImpulseDynamics:
    """Return the velocity after an impact that fixes frames which moved: a foot that lands, a loop that closes.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity before the impact, (..., nv).
        constraints: that hold from now on: constants of the kernel.
        restitution: how much of the speed comes back: after the impact a constrained frame moves with -restitution
            times its velocity before.
        params: parameters to take the place of the model's.
        regularization: see `constrained_dynamics`.

    Returns:
        The velocity after, (..., nv), and the impulses on the constrained frames, (..., constraints, 6).
    """
    return call(
        "impulse_dynamics",
        model,
        q,
        v,
        params=params,
        constraints=_as_tuple("impulse_dynamics", constraints),
        restitution=restitution,
        regularization=regularization,
    )


def _as_tuple(label: str, constraints: FrameConstraint | Sequence[FrameConstraint]) -> tuple[FrameConstraint, ...]:
    items = (constraints,) if isinstance(constraints, FrameConstraint) else tuple(constraints)
    if not items or not all(isinstance(constraint, FrameConstraint) for constraint in items):
        raise InputError(f"{label}: 'constraints' must be one FrameConstraint or several, got {constraints!r}")
    return items
