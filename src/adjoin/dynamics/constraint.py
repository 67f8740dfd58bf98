"""Dynamics of a robot some of whose frames are held: to the world, or to one another, which closes loops.

A constraint says that a frame does not move against what it is held to: J v = 0, with one row for each direction in
which it is held. The forces that see to it are Lagrange multipliers,

    [ M   Jᵀ ] [  a ]   [ tau - bias ]
    [ J  -eI ] [ -f ] = [ -Jdot v    ],

found from the small system (J M⁻¹ Jᵀ + eI) f = -(J a_free + Jdot v), where a_free is the acceleration without the
constraints (Featherstone, Rigid Body Dynamics Algorithms, chapter 8). The small e keeps the system solvable where
constraints say the same thing twice. It is felt only in second and higher order, because the system is solved again
for what is left over: the proximal method of Carpentier, Budhiraja and Mansard, "Proximal and sparse resolution of
constrained dynamic equations", 2021. Derivatives are those of the solution of the system, by the implicit function
theorem: they take one more solve, and the derivatives of inverse dynamics with a and f held.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from adjoin.dynamics.aba import inertia_factor
from adjoin.dynamics.call import call, quantity
from adjoin.dynamics.jacobian import jacobian_of
from adjoin.dynamics.kinematics import frame_index, transforms_from_frame
from adjoin.dynamics.linear import Factor, Rows, dot, is_zero
from adjoin.dynamics.passive import passive_forces_of
from adjoin.dynamics.rnea import Moving, bias_forces_of, body_forces, joint_forces, motions, spin_matrix
from adjoin.dynamics.state import State
from adjoin.errors import InputError
from adjoin.model.model import Model
from adjoin.model.parts import WORLD
from adjoin.spatial import vector
from adjoin.spatial.motion import (
    STILL,
    Spatial,
    Transform,
    force_to_child,
    force_to_parent,
    se3_log,
    spatial_add,
    transform_inverse,
    transform_multiply,
)
from adjoin.spatial.rotation import from_quaternion, quaternion_along
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import ZERO, Vector3
from adjoin.trace import implicit

KINDS = ("weld", "point")
REGULARIZATION = 1e-6
REFINEMENTS = 2


@dataclass(frozen=True)
class FrameConstraint:
    """A frame of the robot held to another one, or to the world.

    Attributes:
        frame: name of the frame that is held.
        other: name of the frame that holds it; the world's origin if None.
        kind: "weld": the frame cannot move at all against the other; "point": its origin cannot, but it can turn.
        position: where in the other frame the held one belongs, m. Like `rotation`, it matters only to stabilization:
            without it, frames are held where they are.
        rotation: how the held frame is turned there, quaternion [w x y z].
    """

    frame: str
    other: str | None = None
    kind: Literal["weld", "point"] = "weld"
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    rotation: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)

    def __post_init__(self):
        if self.kind not in KINDS:
            raise InputError(f"FrameConstraint: no kind {self.kind!r}; kinds: {', '.join(KINDS)}")
        for name, size in (("position", 3), ("rotation", 4)):
            values = tuple(float(x) for x in getattr(self, name))
            if len(values) != size or not all(map(math.isfinite, values)):
                raise InputError(f"FrameConstraint: {name} needs {size} finite numbers, got {values}")
            object.__setattr__(self, name, values)
        length = math.hypot(*self.rotation)
        if abs(length - 1.0) > 1e-6:
            raise InputError(f"FrameConstraint: rotation has length {length}; it must be a unit quaternion [w x y z]")
        object.__setattr__(self, "rotation", tuple(x / length for x in self.rotation))


class ConstrainedDynamics(NamedTuple):
    """What `constrained_dynamics` returns.

    Attributes:
        acceleration: dv/dt, (..., nv).
        forces: on the held frames, (..., constraints, 6) [force; moment], each about the held frame's origin and in
            its axes; the opposite acts on what holds it. The moment of a "point" is 0.
    """

    acceleration: Any
    forces: Any


class ImpulseDynamics(NamedTuple):
    """What `impulse_dynamics` returns.

    Attributes:
        velocity: after the impact, (..., nv).
        impulses: on the held frames, (..., constraints, 6) [N s; N m s], in the manner of the forces of
            `ConstrainedDynamics`.
    """

    velocity: Any
    impulses: Any


class Held:
    """A constraint at one state. Its rows are in the axes of the held frame, linear ones first.

    Args:
        state: of the robot.
        constraint: what is held.
    """

    def __init__(self, state: State, constraint: FrameConstraint):
        self.state, self.constraint = state, constraint
        robot, model = state.robot, state.robot.model
        frame = frame_index("FrameConstraint", model, constraint.frame)
        self.body, self.placement = model.frames[frame].body, robot.frames[frame]
        self.holder, own = WORLD, STILL
        if constraint.other is not None:
            other = frame_index("FrameConstraint", model, constraint.other)
            self.holder, own = model.frames[other].body, robot.frames[other]
        if self.body == self.holder:
            where = repr(constraint.other) if constraint.other else "the world"
            raise InputError(
                f"FrameConstraint: {constraint.frame!r} and {where} are on one body of {model.name!r}; "
                "a constraint holds frames of two bodies that move against each other"
            )
        self.anchor = transform_multiply(own, (from_quaternion(constraint.rotation), constraint.position))
        self.seen: Transform = transforms_from_frame(state, frame)[self.holder]
        """The body that holds the frame, seen from the frame."""
        self.size = 6 if constraint.kind == "weld" else 3
        self.rows: Rows = jacobian_of(state, constraint.frame, "local", constraint.other)[: self.size]

    def velocity(self) -> list[Scalar]:
        """J v: of the held frame, as seen from the body that holds it."""
        return [dot(row, self.state.v) for row in self.rows]

    def acceleration(self, a: Sequence[Scalar]) -> list[Scalar]:
        """J a + Jdot v: of the held frame, as seen from the body that holds it, if dv/dt is a.

        Of a point this is the classical acceleration, of a weld the rate of the spatial velocity in the frame's axes,
        both as Pinocchio has it. They differ only while the frame moves.
        """
        rotation, position = self.placement
        moving = motions(self.state, a)
        omega, alpha, point = (vector.apply_transposed(rotation, x) for x in _at(moving[self.body], position))
        inverse = transform_inverse(self.seen)
        world = (ZERO, ZERO, vector.negate(self.state.robot.gravity))
        holder = _at(world if self.holder == WORLD else moving[self.holder], inverse[1])
        turning, turning_rate, place = (vector.apply(self.seen[0], x) for x in holder)
        linear, angular = vector.subtract(point, place), vector.subtract(alpha, turning_rate)
        velocity = vector.vector3(self.velocity()[:3])
        spin = vector.scale(2.0, turning) if self.size == 3 else vector.add(turning, omega)
        linear = vector.subtract(linear, vector.cross(spin, velocity))
        return [*linear, *vector.add(angular, vector.cross(omega, turning))][: self.size]

    def error(self) -> list[Scalar]:
        """The motion that takes the held frame from where it belongs to where it is in unit time, in its own axes."""
        rotation, position = transform_multiply(self.seen, self.anchor)
        if self.size == 3:
            return list(vector.negate(position))
        angular, linear = se3_log(quaternion_along(rotation), position)
        return [*vector.negate(linear), *vector.negate(angular)]

    def pull(self, forces: list[Spatial], wrench: Sequence[Scalar]) -> None:
        """Take a force on the held frame from what the body needs, and add it to what the one that holds it needs."""
        held = (vector.vector3(wrench[3:]), vector.vector3(wrench[:3]))
        if self.body != WORLD:
            moment, force = force_to_parent(self.placement, held)
            forces[self.body] = spatial_add(forces[self.body], (vector.negate(moment), vector.negate(force)))
        if self.holder != WORLD:
            forces[self.holder] = spatial_add(forces[self.holder], force_to_child(self.seen, held))


def _at(moving: Moving, point: Vector3) -> Moving:
    """How a body moves, with the acceleration of a point of it instead of its origin's."""
    omega, alpha, acceleration = moving
    return omega, alpha, vector.add(acceleration, vector.apply(spin_matrix(omega, alpha), point))


class Multipliers:
    """The forces of several constraints at one state.

    Args:
        state: of the robot.
        constraints: what is held.
        regularization: see `constrained_dynamics`.
    """

    def __init__(self, state: State, constraints: Sequence[FrameConstraint], regularization: float):
        self.held = [Held(state, constraint) for constraint in constraints]
        self.inertia = inertia_factor(state)
        self.halves: Rows = []
        self.places: list[tuple[int, int]] = []
        softness: list[Scalar] = []
        for index, held in enumerate(self.held):
            for first in range(0, len(held.rows), 3):
                kept = [k for k in range(first, first + 3) if not all(map(is_zero, held.rows[k]))]
                halves = [self.inertia.half(held.rows[k]) for k in kept]
                size = sum((self._product(half, half) for half in halves), 0.0)
                self.places += [(index, k) for k in kept]
                self.halves += halves
                softness += [regularization / len(kept) * size for _ in kept]
        self.softness = softness
        scaled = [self.inertia.scaled(half) for half in self.halves]
        matrix = [[dot(a, b) for b in scaled[: i + 1]] for i, a in enumerate(self.halves)]
        for k, soft in enumerate(softness):
            matrix[k][k] = matrix[k][k] + soft
        self.matrix = Factor(matrix)

    def solve(self, right: Sequence[Scalar], missing: Sequence[Scalar]) -> tuple[list[Scalar], list[Scalar]]:
        """M⁻¹ (right + Jᵀ f) and f, such that J M⁻¹ (right + Jᵀ f) + missing = 0."""
        half = self.inertia.half(right)
        wanted = [-(self._product(h, half) + x) for h, x in zip(self.halves, missing, strict=True)]
        forces = self.matrix.solve(wanted)
        for _ in range(REFINEMENTS):
            again = [w + s * f for w, s, f in zip(wanted, self.softness, forces, strict=True)]
            forces = self.matrix.solve(again)
        for force, own in zip(forces, self.halves, strict=True):
            half = [x if is_zero(h) else x + force * h for x, h in zip(half, own, strict=True)]
        return self.inertia.rest(self.inertia.scaled(half)), forces

    def rows(self, values: Sequence[Sequence[Scalar]]) -> list[Scalar]:
        """Of values for every row of every constraint, those of the rows that are held by a force."""
        return [values[i][k] for i, k in self.places]

    def wrenches(self, forces: Sequence[Scalar]) -> Rows:
        """The forces by constraint, [force; moment]."""
        found: Rows = [[0.0] * 6 for _ in self.held]
        for force, (i, k) in zip(forces, self.places, strict=True):
            found[i][k] = force
        return found

    def _product(self, a: Sequence[Scalar], b: Sequence[Scalar]) -> Scalar:
        return dot(self.inertia.scaled(a), b)


@quantity("constrained_dynamics", "q", "v", "tau")
def constrained_dynamics_of(
    state: State,
    constraints: tuple[FrameConstraint, ...],
    passive: bool = False,
    regularization: float = REGULARIZATION,
    stabilization: tuple[float, float] = (0.0, 0.0),
) -> ConstrainedDynamics:
    """`constrained_dynamics` over scalars."""
    robot, (stiffness, damping) = state.robot, stabilization
    solver = Multipliers(state, constraints, regularization)
    tau = state.tau
    if passive:
        tau = [t + p for t, p in zip(tau, passive_forces_of(state), strict=True)]

    def departing(a: Sequence[Scalar]) -> list[Scalar]:
        rows = []
        for held in solver.held:
            rates = held.acceleration(a)
            if damping:
                rates = [x + damping * y for x, y in zip(rates, held.velocity(), strict=True)]
            if stiffness:
                rates = [x + stiffness * y for x, y in zip(rates, held.error(), strict=True)]
            rows.append(rates)
        return solver.rows(rows)

    right = [t - b for t, b in zip(tau, bias_forces_of(state), strict=True)]
    acceleration, forces = solver.solve(right, departing([0.0] * robot.nv))

    def residual(x: Sequence[Scalar]) -> list[Scalar]:
        a = x[: robot.nv]
        needed = body_forces(state, a)
        for held, wrench in zip(solver.held, solver.wrenches(x[robot.nv :]), strict=True):
            held.pull(needed, wrench)
        moving = zip(joint_forces(state, needed), robot.numbers("armature"), a, tau, strict=True)
        return [t + m * y - given for t, m, y, given in moving] + [-y for y in departing(a)]

    def solve(b: Sequence[Scalar]) -> list[Scalar]:
        a, f = solver.solve(b[: robot.nv], b[robot.nv :])
        return a + f

    solved = implicit(acceleration + forces, residual, solve)
    return ConstrainedDynamics(solved[: robot.nv], solver.wrenches(solved[robot.nv :]))


@quantity("impulse_dynamics", "q", "v")
def impulse_dynamics_of(
    state: State,
    constraints: tuple[FrameConstraint, ...],
    restitution: float = 0.0,
    regularization: float = REGULARIZATION,
) -> ImpulseDynamics:
    """`impulse_dynamics` over scalars."""
    solver = Multipliers(state, constraints, regularization)
    missing = [[(1.0 + restitution) * x for x in held.velocity()] for held in solver.held]
    change, impulses = solver.solve([0.0] * state.robot.nv, solver.rows(missing))
    return ImpulseDynamics([v + x for v, x in zip(state.v, change, strict=True)], solver.wrenches(impulses))


def constrained_dynamics(
    model: Model,
    q: Any,
    v: Any,
    tau: Any,
    constraints: FrameConstraint | Sequence[FrameConstraint],
    external: Mapping[str, Any] | Any = None,
    params: Mapping[str, Any] | None = None,
    *,
    reference: str = "local",
    passive: bool = False,
    regularization: float = REGULARIZATION,
    stabilization: tuple[float, float] = (0.0, 0.0),
) -> ConstrainedDynamics:
    """Forward dynamics with frames held to the world or to one another, and the forces that hold them.

    Held frames keep the velocity they have, which should be 0: only accelerations are constrained, unless
    `stabilization` pulls positions and velocities back to where they belong.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity, (..., nv).
        tau: generalized forces, (..., nv).
        constraints: what is held: constants of the kernel.
        external: further forces from outside: frame name -> (..., 6) [force; moment], or one tensor (..., bodies, 6).
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
        The acceleration, (..., nv), and the forces on the held frames, (..., constraints, 6).
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
        constraints=_several("constrained_dynamics", constraints),
        passive=passive,
        regularization=regularization,
        stabilization=tuple(stabilization),
    )


def impulse_dynamics(
    model: Model,
    q: Any,
    v: Any,
    constraints: FrameConstraint | Sequence[FrameConstraint],
    restitution: float = 0.0,
    params: Mapping[str, Any] | None = None,
    *,
    regularization: float = REGULARIZATION,
) -> ImpulseDynamics:
    """The velocity after frames that moved are caught: a foot that lands, a loop that closes.

    Args:
        model: the robot.
        q: configuration, (..., nq).
        v: velocity before the impact, (..., nv).
        constraints: what is held from now on: constants of the kernel.
        restitution: how much of the speed comes back: after the impact a held frame moves with -restitution times
            its velocity before.
        params: parameters to take the place of the model's.
        regularization: see `constrained_dynamics`.

    Returns:
        The velocity after, (..., nv), and the impulses on the held frames, (..., constraints, 6).
    """
    return call(
        "impulse_dynamics",
        model,
        q,
        v,
        params=params,
        constraints=_several("impulse_dynamics", constraints),
        restitution=restitution,
        regularization=regularization,
    )


def _several(label: str, constraints: FrameConstraint | Sequence[FrameConstraint]) -> tuple[FrameConstraint, ...]:
    found = (constraints,) if isinstance(constraints, FrameConstraint) else tuple(constraints)
    if not found or not all(isinstance(constraint, FrameConstraint) for constraint in found):
        raise InputError(f"{label}: 'constraints' must be one FrameConstraint or several, got {constraints!r}")
    return found
