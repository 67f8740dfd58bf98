"""MuJoCo's soft constraints, solved by Newton's method on the accelerations.

A step minimizes ½ (a - a0)ᵀ M (a - a0) + Σ s(J a - a_ref) over the accelerations a, where a0 are those without
constraints and each s is convex: a spring that pushes, holds or slips (Todorov, Convex and analytically-invertible
dynamics with contacts and constraints, ICRA 2014). The Hessian M + Jᵀ D J has a fixed size, however many contacts there
are. They add to it in a loop, and nothing of them is kept but their points. The derivative of the solution is one more
solve with that matrix.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from adjoin.collision.branchless import choose
from adjoin.collision.contact_list import Candidates, Tangent
from adjoin.collision.records import Records
from adjoin.collision.shape import Shape
from adjoin.collision.terrain import Terrain
from adjoin.constraints.contact_matrix import Respond
from adjoin.constraints.contact_rows import ContactFrame, ContactRows
from adjoin.constraints.impedance import softness
from adjoin.constraints.minimization import Problem, solve_accelerations
from adjoin.constraints.soft_contact import (
    Response,
    Weights,
    cone,
    cone_is_linear_between,
    pyramid,
    pyramid_is_linear_between,
)
from adjoin.constraints.soft_rows import soft_rows
from adjoin.constraints.solver import FreeMotion, ListedSolution, Scene
from adjoin.dynamics.linear import Factor, dot, is_zero
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
    select,
    sqrt,
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
        """A step starts from the accelerations of the one before."""
        return True

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

    def memory(self, candidates: Candidates) -> dict[str, tuple[int, ...]]:
        """A step keeps its accelerations."""
        return {"acceleration": (candidates.model.nv,)}

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

        start = scene.start or Factor(undamped).solve(problem.force)
        a = solve_accelerations(problem, self.iterations, self.tolerance, start, unbalanced)
        change = [dt * x for x in a]
        if not all(is_zero(x) for row in free.damping for x in row):
            acting = problem.constraint_forces(a)
            factor = Factor(free.inertia)
            solution = factor.solve([r + dt * f for r, f in zip(free.rhs, acting, strict=True)])

            def residual(dv: Sequence[Scalar]) -> list[Scalar]:
                return [r - dt * f for r, f in zip(free.residual(dv), acting, strict=True)]

            change = implicit(solution, residual, factor.solve)
        modes = [row.mode(row.residual(a)) for row in rows]

        def unsettled_speed() -> Scalar:
            left = zip(unbalanced(a), problem.constraint_forces(a), undamped, strict=True)
            speeds = [dt * abs(r - f) / row[i] for i, (r, f, row) in enumerate(left)]
            return functools.reduce(maximum, speeds, 0.0)

        return ListedSolution(
            change,
            lambda write, carry: contacts.report(a, write, carry) if contacts else carry,
            modes,
            acceleration=a,
            kept=detach(a),
            residual=unsettled_speed,
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
        solref, solimp = map(self.state.robot.numbers, ("geometry_solref", "geometry_solimp"))
        soft = [pair.softness(solref, solimp) for pair in pairs]
        self.solref, self.solimp = (Records(column) for column in zip(*soft, strict=True))
        light = [[scene.weights.of_shape(model.geometries[i]) for i in (pair.first, pair.second)] for pair in pairs]
        self.inverse = Records([(a[0] + b[0],) for a, b in light])
        blank = self.contacts.blank(self.rows), self.contacts.blank(2)
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
        """Call `write(slot, [mode, force, moment], carry)` for each contact, at some accelerations."""

        def act(contact: ContactFrame, u: Any, weights: Weights, carry: Any) -> Any:
            force, stiffness = self.respond(u, weights, contact.pair)
            # It sticks where normal and friction do not depend on one another: inside of the cone or pyramid.
            slips = sum((abs(row[0]) for row in stiffness[1:]), 0.0) > 0.0 if self.rows > 1 else False
            mode = select(force[0] > 0.0, select(slips, 2.0, 1.0) if self.rows > 1 else 1.0, 0.0)
            push, moment = contact.in_world(force)
            return write(contact.slot, [mode, *push, *moment], carry)

        return self.visit(self.motions.twist_array(accelerations), act, carry)

    def residuals(self, accelerations: Sequence[Scalar]) -> Scratch:
        """The accelerations of all rows, less those at which they rest."""

        def note(contact: ContactFrame, u: Any, weights: Weights, array: Scratch) -> Scratch:
            for k, x in enumerate(u):
                array[contact.slot * self.rows + k] = x
            return array

        return self.visit(self.motions.twist_array(accelerations), note, self.contacts.blank(self.rows))

    def row_values(self, array: Scratch, slot: Any) -> list[Scalar]:
        """The numbers of a contact's rows, in an array of those of all."""
        return [array[slot * self.rows + k] for k in range(self.rows)]

    def respond_at(self, residuals: Scratch) -> Respond:
        """What contacts do at the accelerations of their rows."""

        def respond(contact: ContactFrame) -> Response:
            weights = self.weights(contact.slot, contact.pair)
            return self.respond(self.row_values(residuals, contact.slot), weights, contact.pair)

        return respond

    def slope_at_end(self, residuals: Scratch, along: Sequence[Scalar], carry: Any) -> tuple[Scratch, Any]:
        """How fast the rows of contacts change along a direction, and what they add to a `Slope` at its end."""
        moved = self.motions.twist_array(along)

        def act(contact: ContactFrame, carry: Any) -> Any:
            rates, slope = carry
            start, rate = self.row_values(residuals, contact.slot), self.rates(contact, moved)
            for k, x in enumerate(rate):
                rates[contact.slot * self.rows + k] = x
            return rates, self._add_slope(contact.slot, contact.pair, start, rate, 1.0, slope)

        return self.each(act, (self.contacts.blank(self.rows), carry))

    def slope(self, residuals: Scratch, rates: Scratch, far: Scalar, carry: Any) -> Any:
        """What contacts add to a `Slope`."""

        def body(slot: Any, carry: Any) -> Any:
            start, rate = self.row_values(residuals, slot), self.row_values(rates, slot)
            return self._add_slope(slot, self.contacts.pair[slot], start, rate, far, carry)

        return loop(self.contacts.count, body, carry, at_most=self.candidates.slots)

    def _add_slope(self, slot: Any, pair: Any, start: Any, rate: Any, far: Scalar, carry: Any) -> Any:
        total, curve, changes = carry
        weights, moved = self.weights(slot, pair), [x + far * y for x, y in zip(start, rate, strict=True)]
        force, stiffness = self.respond(moved, weights, pair)
        bent = [dot([stiffness[max(i, j)][min(i, j)] for j in range(self.rows)], rate) for i in range(self.rows)]
        same = self.linear_between(start, moved, weights, pair)
        changed = select(same, 0.0, self.contacts.active[slot])
        return total - dot(force, rate), curve + dot(bent, rate), changes + changed

    def linear_between(self, u: Sequence[Scalar], v: Sequence[Scalar], weights: Weights, pair: Any) -> Any:
        """Whether the force is one linear function at both of two accelerations."""
        present = self.present[pair][: self.rows - 1]
        if self.rows > 1 and self.elliptic:
            return cone_is_linear_between(u, v, weights, present)
        return pyramid_is_linear_between(u, v, weights, present)

    def advance(self, residuals: Scratch, rates: Scratch, far: Scalar) -> Scratch:
        """The residuals, farther along a direction."""

        def body(slot: Any, residuals: Scratch) -> Scratch:
            for k, x in enumerate(self.row_values(rates, slot)):
                residuals.add(slot * self.rows + k, far * x)
            return residuals

        return loop(self.contacts.count, body, residuals, at_most=self.candidates.slots)


def tangent(a: Shape, b: Shape | Terrain, normal: Vector3) -> Vector3:
    """The direction across a normal that MuJoCo chooses: along a capsule on a plane, else near y or z."""
    hint = None
    if isinstance(b, Shape) and (a.kind, b.kind) == ("capsule", "plane"):
        along = vector.subtract(a.axis, vector.scale(vector.dot(a.axis, normal), normal))
        hint = choose(vector.dot(along, along) > 1e-20, along, _aside(normal))
    return across(normal, hint)


def across(normal: Vector3, hint: Vector3 | None = None) -> Vector3:
    """The unit vector across a normal that is nearest to another vector, by default to y, or to z near y."""
    hint = _aside(normal) if hint is None else hint
    rest = vector.subtract(hint, vector.scale(vector.dot(hint, normal), normal))
    return vector.scale(1.0 / sqrt(vector.dot(rest, rest)), rest)


def _aside(normal: Vector3) -> Vector3:
    upright = abs(normal[1]) < 0.5
    return (0.0, select(upright, 1.0, 0.0), select(upright, 0.0, 1.0))
