"""MuJoCo's soft constraints, solved by Newton's method on the accelerations.

A step minimizes ½ (a - a0)ᵀ M (a - a0) + Σ s(J a - a_ref) over the accelerations a, where a0 are those without
constraints and each s is convex: a spring that pushes, holds or slips (Todorov, Convex and analytically-invertible
dynamics with contacts and constraints, ICRA 2014). The Hessian M + Jᵀ D J has a fixed size, however many contacts there
are. They add to it in a loop, and nothing of them is kept but their points. The derivative of the solution is one more
solve with that matrix.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from adjoin.collision.branchless import choose
from adjoin.collision.contact_list import Candidates, Tangent
from adjoin.collision.records import Records
from adjoin.collision.shape import Shape
from adjoin.constraints.contact_rows import ContactFrame, ContactRows
from adjoin.constraints.impedance import softness
from adjoin.constraints.packed import Packed
from adjoin.constraints.soft_contact import Response, Weights, cone, pyramid
from adjoin.constraints.soft_rows import SoftRow, soft_rows
from adjoin.constraints.solver import FreeMotion, ListedSolution, Scene
from adjoin.dynamics.linear import Factor, Rows, dot, is_zero
from adjoin.dynamics.state import State
from adjoin.errors import InputError
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Vector3
from adjoin.trace import (
    Scratch,
    detach,
    implicit,
    loop,
    maximum,
    minimum,
    scratch,
    select,
    sqrt,
    while_loop,
)


@dataclass(frozen=True, kw_only=True)
class Newton:
    """Newton's method for MuJoCo's model of contact.

    Attributes:
        iterations: the most steps of Newton's method; it ends when it has converged.
        tolerance: the improvement of a step, over the first one's, at which it has.
        elliptic: whether friction is bounded by a cone instead of a pyramid; None for what the model says.
        impratio: MuJoCo's: how much harder friction is than the normal, in a cone; None for what the model says.
    """

    iterations: int = 30
    tolerance: float = 1e-16
    elliptic: bool | None = None
    impratio: float | None = None

    def __post_init__(self):
        if not isinstance(self.iterations, int) or self.iterations < 1:
            raise InputError(f"Newton: iterations must be a whole number of at least 1, got {self.iterations!r}")
        for name in ("tolerance", "impratio"):
            if getattr(self, name) is not None and not getattr(self, name) > 0.0:
                raise InputError(f"Newton: {name} must be positive, got {getattr(self, name)!r}")

    @property
    def warm(self) -> bool:
        """Nothing of a step is kept for the next."""
        return False

    @property
    def parameters(self) -> tuple[str, ...]:
        """It has no numbers that calls may pass."""
        return ()

    @property
    def tangent(self) -> Tangent:
        """The directions of friction are MuJoCo's."""
        return tangent

    def reach(self, free: FreeMotion, state: State, candidates: Candidates) -> None:
        """Contacts begin at the margin of their pair."""

    def solve_listed(self, free: FreeMotion, scene: Scene) -> ListedSolution:
        """The step with its constraints; see `Solver`.

        As in MuJoCo, constraints see the accelerations without implicit damping, which then acts on their forces.
        """
        state, dt = scene.state, free.dt
        rows = soft_rows(state, scene.constraints, scene.limits, scene.weights, dt)
        contacts = SoftContacts(self, scene, dt) if scene.contacts is not None else None
        undamped = [
            [h if is_zero(d) else h - d for h, d in zip(*rows, strict=True)]
            for rows in zip(free.inertia, free.damping, strict=True)
        ]
        problem = Problem(undamped, [x / dt for x in free.rhs], rows, contacts)

        def unbalanced(a: Sequence[Scalar]) -> list[Scalar]:
            parts = zip(free.residual([dt * x for x in a]), free.damping, strict=True)
            return [r / dt - dot(d, a) for r, d in parts]

        a = solve_accelerations(problem, self, Factor(undamped).solve(problem.force), unbalanced)
        change = [dt * x for x in a]
        if not all(is_zero(x) for row in free.damping for x in row):
            acting = problem.constraint_forces(a)
            factor = Factor(free.inertia)
            solution = factor.solve([r + dt * f for r, f in zip(free.rhs, acting, strict=True)])

            def residual(dv: Sequence[Scalar]) -> list[Scalar]:
                return [r - dt * f for r, f in zip(free.residual(dv), acting, strict=True)]

            change = implicit(solution, residual, factor.solve)
        modes = [row.mode(row.residual(a)) for row in rows]
        return ListedSolution(
            change, lambda write, carry: contacts.report(a, write, carry) if contacts else carry, modes, a
        )


class SoftContacts(ContactRows):
    """The contacts of a step: what they add to gradient and Hessian.

    Args:
        solver: its constants.
        scene: the robot and what touches.
        dt: s.
    """

    def __init__(self, solver: Newton, scene: Scene, dt: float):
        super().__init__(scene)
        model, pairs = self.state.robot.model, self.candidates.pairs
        self.dt = dt
        self.elliptic = model.elliptic if solver.elliptic is None else solver.elliptic
        self.impratio = model.impratio if solver.impratio is None else solver.impratio
        self.solref, self.solimp = Records([pair.solref for pair in pairs]), Records([pair.solimp for pair in pairs])
        light = [[scene.weights.of_shape(model.geometries[i]) for i in (pair.first, pair.second)] for pair in pairs]
        self.inverse = Records([(a[0] + b[0],) for a, b in light])
        sizes = [n * self.candidates.slots for n in (self.rows, 2)]
        blank = tuple(scratch(size, checked=False, cleared=False) for size in sizes)
        self.references, self.hardness = self.each(self._prepare, blank)

    def _prepare(self, contact: ContactFrame, arrays: Any) -> Any:
        """Note of a contact the accelerations at which it rests, of the other sign, and how hard it is."""
        references, hardness = arrays
        slot, pair = contact.slot, contact.pair
        distance, margin = self.contacts.distance[slot], self.margin[pair][0]
        soft = softness(self.solref[pair], self.solimp[pair], distance - margin, self.dt)
        reference = [soft.damping * speed for speed in self.rates(contact, self.velocities)]
        reference[0] = reference[0] + soft.stiffness * (distance - margin)
        for k, x in enumerate(reference):
            references[slot * self.rows + k] = x
        active = self.contacts.active[slot] * select(distance < margin, 1.0, 0.0)
        regularization = maximum(soft.regularization * self.inverse[pair][0], 1e-15)
        normal, edges = active / regularization, 0.0
        if self.rows > 1 and not self.elliptic:
            # All edges are as hard as the first one, whose regularization MuJoCo takes as that of the pyramid.
            square = self._coefficients(pair)[0] * self._coefficients(pair)[0]
            edges = active / maximum(2.0 * square / self.impratio * (1.0 + square) * regularization, 1e-15)
            normal = normal * (1.0 - self.present[pair][0])
        hardness[slot * 2], hardness[slot * 2 + 1] = normal, edges
        return references, hardness

    def _coefficients(self, pair: Any) -> list[Scalar]:
        """Of friction; MuJoCo's least is 1e-5."""
        return [maximum(x, 1e-5) for x in self.friction[pair][: self.rows - 1]]

    def weights(self, slot: Any, pair: Any) -> Weights:
        """How hard a contact is."""
        friction = self._coefficients(pair)
        slope = friction[0] / self.impratio**0.5 if self.elliptic and friction else 0.0
        return Weights(self.hardness[slot * 2], self.hardness[slot * 2 + 1], friction, slope)

    def respond(self, u: Sequence[Scalar], weights: Weights, pair: Any) -> Response:
        """Force and stiffness at given accelerations."""
        present = self.present[pair][: self.rows - 1]
        if self.rows == 1:
            return pyramid(u, weights, present)
        return cone(u, weights, present) if self.elliptic else pyramid(u, weights, present)

    def visit(self, twists: Scratch, act: Callable[..., Any], carry: Any) -> Any:
        """Run `carry = act(contact, u, weights, carry)` for all contacts, at some accelerations."""

        def body(contact: ContactFrame, carry: Any) -> Any:
            rates = self.rates(contact, twists)
            u = [rate + self.references[contact.slot * self.rows + k] for k, rate in enumerate(rates)]
            return act(contact, u, self.weights(contact.slot, contact.pair), carry)

        return self.each(body, carry)

    def forces(self, accelerations: Sequence[Scalar]) -> list[Scalar]:
        """The generalized forces of all contacts, at some accelerations."""

        def act(contact: ContactFrame, u: Any, weights: Weights, wrenches: Scratch) -> Scratch:
            self.add_wrench(wrenches, contact, self.respond(u, weights, contact.pair).force)
            return wrenches

        wrenches = self.visit(self.motions.twist_array(accelerations), act, self.motions.wrench_array())
        return self.motions.generalized(wrenches)

    def report(self, accelerations: Sequence[Scalar], write: Callable[..., Any], carry: Any) -> Any:
        """Call `write(slot, [mode, force in world axes], carry)` for each contact, at some accelerations."""

        def act(contact: ContactFrame, u: Any, weights: Weights, carry: Any) -> Any:
            force, stiffness = self.respond(u, weights, contact.pair)
            # It sticks where normal and friction do not depend on one another: inside of the cone or pyramid.
            slips = sum((abs(row[0]) for row in stiffness[1:]), 0.0) > 0.0 if self.rows > 1 else False
            mode = select(force[0] > 0.0, select(slips, 2.0, 1.0) if self.rows > 1 else 1.0, 0.0)
            return write(contact.slot, [mode, *contact.in_world(force)], carry)

        return self.visit(self.motions.twist_array(accelerations), act, carry)

    def gradient(self, accelerations: Sequence[Scalar], matrix: Packed) -> tuple[list[Scalar], Any]:
        """The generalized forces, and what is added to the Hessian; and how many contacts couple branches."""

        def act(contact: ContactFrame, u: Any, weights: Weights, carry: Any) -> Any:
            wrenches, entries, coupled = carry
            response = self.respond(u, weights, contact.pair)
            self.add_wrench(wrenches, contact, response.force)
            entries = self.add_stiffness(entries, contact, response.stiffness)
            couples = self.couples[contact.pair][0] * self.contacts.active[contact.slot]
            return wrenches, entries, coupled + couples

        twists = self.motions.twist_array(accelerations)
        carry = self.motions.wrench_array(), matrix.entries, 0.0
        wrenches, matrix.entries, coupled = self.visit(twists, act, carry)
        return self.motions.generalized(wrenches), coupled

    def slope(
        self, a: Sequence[Scalar], along: Sequence[Scalar]
    ) -> Callable[[Scalar, Scalar, Scalar], tuple[Scalar, Scalar]]:
        """What contacts add to first and second derivative of the cost along a direction, as a function of how far."""
        size, moved = self.rows, self.motions.twist_array(along)

        def note(contact: ContactFrame, u: Any, weights: Weights, array: Scratch) -> Scratch:
            for k, (x, y) in enumerate(zip(u, self.rates(contact, moved), strict=True)):
                array[contact.slot * (2 * size) + k] = x
                array[contact.slot * (2 * size) + size + k] = y
            return array

        blank = scratch(2 * size * self.candidates.slots, checked=False, cleared=False)
        lines = self.visit(self.motions.twist_array(a), note, blank)

        def derivative(far: Scalar, total: Scalar, curve: Scalar) -> tuple[Scalar, Scalar]:
            def body(slot: Any, carry: Any) -> Any:
                total, curve = carry
                pair = self.contacts.pair[slot]
                start, rate = ([lines[slot * (2 * size) + side + k] for k in range(size)] for side in (0, size))
                weights = self.weights(slot, pair)
                force, stiffness = self.respond([x + far * y for x, y in zip(start, rate, strict=True)], weights, pair)
                bent = [dot([stiffness[max(i, j)][min(i, j)] for j in range(size)], rate) for i in range(size)]
                return total - dot(force, rate), curve + dot(bent, rate)

            return loop(self.contacts.count, body, (total, curve), at_most=self.candidates.slots)

        return derivative


class Problem:
    """The minimization of one step.

    Args:
        inertia: M.
        force: M a0: forces without constraints, nv scalars.
        rows: joint limits, joint friction and equalities.
        contacts: the contacts, if there can be any.
    """

    def __init__(self, inertia: Rows, force: Sequence[Scalar], rows: Sequence[SoftRow], contacts: SoftContacts | None):
        self.inertia, self.force, self.rows, self.contacts = inertia, list(force), rows, contacts
        self.size = len(inertia)

    def times_inertia(self, x: Sequence[Scalar]) -> list[Scalar]:
        """M x."""
        line = self.inertia
        return [dot([line[max(i, j)][min(i, j)] for j in range(self.size)], x) for i in range(self.size)]

    def constraint_forces(self, a: Sequence[Scalar]) -> list[Scalar]:
        """Jᵀ f of all constraints, at some accelerations."""
        total = self.contacts.forces(a) if self.contacts else [0.0] * self.size
        return self._with_rows(a, total)

    def _with_rows(self, a: Sequence[Scalar], total: list[Scalar]) -> list[Scalar]:
        total = list(total)
        for row in self.rows:
            force, _ = row.respond(row.residual(a))
            for dof, arm in row.jacobian.items():
                total[dof] = total[dof] + arm * force
        return total

    def expand(self, a: Sequence[Scalar]) -> tuple[list[Scalar], Packed, Any]:
        """The gradient and the Hessian at some accelerations, and how many contacts couple branches."""
        rows = [list(row) for row in self.inertia]
        total: list[Scalar] = [0.0] * self.size
        for row in self.rows:
            force, stiffness = row.respond(row.residual(a))
            for i, arm in row.jacobian.items():
                total[i] = total[i] + arm * force
                for j, other in row.jacobian.items():
                    if j <= i:
                        rows[i][j] = rows[i][j] + arm * stiffness * other
        matrix, coupled = Packed(rows, self.contacts.filled if self.contacts else ()), None
        if self.contacts:
            touching, coupled = self.contacts.gradient(a, matrix)
            total = [x + y for x, y in zip(total, touching, strict=True)]
        inertial = self.times_inertia(a)
        return [m - f - c for m, f, c in zip(inertial, self.force, total, strict=True)], matrix, coupled

    def solve(self, matrix: Packed, coupled: Any, right: Sequence[Scalar]) -> list[Scalar]:
        """The Hessian's solution."""
        couples = self.contacts is not None and any(self.contacts.chains.couples)
        return matrix.solve(right, coupled if couples else None)

    def slope(self, a: Sequence[Scalar], along: Sequence[Scalar]) -> Callable[[Scalar], tuple[Scalar, Scalar]]:
        """First and second derivative of the cost along a direction, as a function of how far."""
        inertial = self.times_inertia(along)
        first, second = dot(inertial, a) - dot(self.force, along), dot(inertial, along)
        rows = [(row, row.residual(a), row.along(along)) for row in self.rows]
        touching = self.contacts.slope(a, along) if self.contacts else None

        def derivative(far: Scalar) -> tuple[Scalar, Scalar]:
            total, curve = first + far * second, second
            for row, start, rate in rows:
                force, stiffness = row.respond(start + far * rate)
                total, curve = total - force * rate, curve + stiffness * rate * rate
            return touching(far, total, curve) if touching else (total, curve)

        return derivative


def tangent(a: Shape, b: Shape, normal: Vector3) -> Vector3:
    """The direction across a normal that MuJoCo chooses: along a capsule on a plane, else near y or z."""
    upright = abs(normal[1]) < 0.5
    hint = (0.0, select(upright, 1.0, 0.0), select(upright, 0.0, 1.0))
    if (a.kind, b.kind) == ("capsule", "plane"):
        along = vector.subtract(a.axis, vector.scale(vector.dot(a.axis, normal), normal))
        hint = choose(vector.dot(along, along) > 1e-20, along, hint)
    across = vector.subtract(hint, vector.scale(vector.dot(hint, normal), normal))
    return vector.scale(1.0 / sqrt(vector.dot(across, across)), across)


SEARCH = 0.01
"""A line search ends where the slope is less than this share of the one that it began with."""

ROUNDING = 1e5
"""Steps are noise that gain less than this, times the square of the precision, of the energy."""


def minimize(problem: Problem, start: Sequence[Scalar], iterations: int, tolerance: float) -> list[Scalar]:
    """The accelerations that minimize the cost, found without derivatives of how."""
    energy = abs(dot(problem.force, start))
    precision = _precision(energy)
    noise = ROUNDING * precision * precision
    enough = maximum(noise, tolerance)

    def proceed(carry: Any) -> Any:
        return carry[1] > enough * carry[2]

    def step(_: Any, carry: Any) -> Any:
        a, _, scale = carry
        gradient, matrix, coupled = problem.expand(a)
        along = [-x for x in problem.solve(matrix, coupled, gradient)]
        gained = -dot(gradient, along)
        scale = maximum(scale, gained)
        far = search(problem.slope(a, along), gained, noise * scale)
        return [x + far * y for x, y in zip(a, along, strict=True)], gained, scale

    # What the first step gains is not known before it is taken.
    carry = list(start), energy + 1.0, energy
    return detach(while_loop(proceed, step, carry, iterations)[0])


def _precision(positive: Scalar) -> Scalar:
    """The spacing of numbers next to 1, in the precision in which the kernel runs, which is not known before."""
    return abs(3.0 * ((4.0 / 3.0 + minimum(positive, 0.0)) - 1.0) - 1.0)


def search(derivative: Callable[[Scalar], tuple[Scalar, Scalar]], begin: Scalar, noise: Scalar) -> Scalar:
    """How far to go along a direction: to where the slope of a convex function is zero, or nearly.

    Args:
        derivative: the slope and its slope.
        begin: minus the slope at the beginning.
        noise: what a slope may be wrong by.
    """
    enough = maximum(SEARCH * begin, noise)

    def proceed(carry: Any) -> Any:
        return carry[4] > 0.5

    def step(_: Any, carry: Any) -> Any:
        far, low, high, closed, _ = carry
        slope, curve = derivative(far)
        down = slope < 0.0
        low, high = select(down, far, low), select(down, high, far)
        closed = select(down, closed, 1.0)
        newton = far - slope / maximum(curve, 1e-30)
        inside = (newton > low) & (newton < high)
        following = select(closed > 0.5, select(inside, newton, 0.5 * (low + high)), minimum(newton, 10.0 * far))
        done = abs(slope) <= enough
        return select(done, far, following), low, high, closed, select(done, 0.0, 1.0)

    zero = 0.0 * begin
    return while_loop(proceed, step, (1.0 + zero, zero, zero, zero, 1.0 + zero), 20)[0]


def solve_accelerations(
    problem: Problem,
    solver: Newton,
    start: Sequence[Scalar],
    unbalanced: Callable[[Sequence[Scalar]], list[Scalar]],
) -> list[Scalar]:
    """The accelerations of a step, with the derivatives of the minimum.

    Args:
        problem: what is minimized.
        solver: how.
        start: accelerations to begin with.
        unbalanced: computes M a - M a0, in the way that is cheapest to differentiate.
    """
    found = minimize(problem, start, solver.iterations, solver.tolerance)

    def residual(a: Sequence[Scalar]) -> list[Scalar]:
        return [x - f for x, f in zip(unbalanced(a), problem.constraint_forces(a), strict=True)]

    def solve(right: Sequence[Scalar]) -> list[Scalar]:
        _, matrix, coupled = problem.expand(found)
        return problem.solve(matrix, coupled, right)

    return implicit(found, residual, solve)
