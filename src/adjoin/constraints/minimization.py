"""Newton's method with a line search, for the convex problem of one step with soft constraints."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from adjoin.constraints.contact_matrix import ContactMatrix, Solve
from adjoin.constraints.packed import structure
from adjoin.constraints.soft_rows import SoftRow
from adjoin.dynamics.linear import Factor, Rows, dot
from adjoin.spatial.scalar import Scalar
from adjoin.trace import Scratch, detach, implicit, maximum, minimum, select, while_loop

if TYPE_CHECKING:
    from adjoin.constraints.newton import SoftContacts

SEARCH = 0.01
"""A line search ends where the slope is less than this share of the one that it began with."""

ROUNDING = 1e5
"""Steps are noise that gain less than this, times the square of the precision, of the energy."""


class Problem:
    """The minimization of one step.

    Args:
        inertia: M.
        force: M a0: forces without constraints, nv scalars.
        rows: joint limits, joint friction and equalities.
        contacts: the contacts, if there can be any.
    """

    def __init__(
        self, inertia: Rows, force: Sequence[Scalar], rows: Sequence[SoftRow], contacts: "SoftContacts | None"
    ):
        self.inertia, self.force, self.rows, self.contacts = inertia, list(force), rows, contacts
        self.size, self.matrix = len(inertia), None
        if contacts is not None:
            places = {(i, j) for row in rows for i in row.jacobian for j in row.jacobian if j <= i}
            self.matrix = ContactMatrix(contacts, structure(inertia) | places)

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

    def at(self, a: Sequence[Scalar]) -> "Iterate":
        """Some accelerations."""
        unbalanced = [m - f for m, f in zip(self.times_inertia(a), self.force, strict=True)]
        return Iterate(list(a), unbalanced, (self.contacts.residuals(a),) if self.contacts else ())

    def expand(self, at: "Iterate") -> tuple[list[Scalar], Solve]:
        """The gradient at some accelerations, and what solves with the Hessian."""
        rows = [list(row) for row in self.inertia]
        gradient = list(at.unbalanced)
        for row in self.rows:
            force, stiffness = row.respond(row.residual(at.a))
            for i, arm in row.jacobian.items():
                gradient[i] = gradient[i] - arm * force
                for j, other in row.jacobian.items():
                    if j <= i:
                        rows[i][j] = rows[i][j] + arm * stiffness * other
        if self.contacts is None or self.matrix is None:
            return gradient, Factor(rows).solve
        touching, solve = self.matrix.assemble(rows, self.contacts.respond_at(at.residuals[0]))
        return [x - y for x, y in zip(gradient, touching, strict=True)], solve

    def line(self, at: "Iterate", along: Sequence[Scalar]) -> "Line":
        """The cost along a direction."""
        inertial = self.times_inertia(along)
        rows = [(row, row.residual(at.a), row.along(along)) for row in self.rows]
        total, curve = dot(at.unbalanced, along), dot(inertial, along)
        line, slope = Line(self, at, along, inertial, rows, (), total, curve, (0.0, 0.0, 0.0)), None
        slope, rates = line.of_rows(1.0), ()
        if self.contacts:
            rates, slope = self.contacts.slope_at_end(at.residuals[0], along, slope)
            rates = (rates,)
        return line._replace(rates=rates, end=slope)


class Iterate(NamedTuple):
    """Accelerations, and what is kept about them.

    Attributes:
        a: the accelerations.
        unbalanced: M a - M a0.
        residuals: of the rows of contacts, if there can be any.
    """

    a: list[Scalar]
    unbalanced: list[Scalar]
    residuals: tuple[Scratch, ...]


class Line(NamedTuple):
    """The cost along a direction; the direction itself is its end.

    Attributes:
        problem: what is minimized.
        start: where it begins.
        along: the direction.
        inertial: M times the direction.
        rows: of the other constraints, with residual and its change along the direction.
        rates: the change of the residuals of contacts.
        total: the slope at the beginning, without constraints.
        curve: its slope.
        end: slope, its slope, and how many constraints are no longer the linear function that they began as.
    """

    problem: Problem
    start: Iterate
    along: Sequence[Scalar]
    inertial: Sequence[Scalar]
    rows: Sequence[tuple[SoftRow, Scalar, Scalar]]
    rates: tuple[Scratch, ...]
    total: Scalar
    curve: Scalar
    end: tuple[Scalar, Scalar, Scalar]

    def of_rows(self, far: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        """Slope, its slope and changes at some point, without contacts."""
        total, curve, changes = self.total + far * self.curve, self.curve, 0.0
        for row, start, rate in self.rows:
            force, stiffness = row.respond(start + far * rate)
            total, curve = total - force * rate, curve + stiffness * rate * rate
            if row.kind != "hold":
                changes = changes + select(row.linear_between(start, start + far * rate), 0.0, 1.0)
        return total, curve, changes

    def slope(self, far: Scalar) -> tuple[Scalar, Scalar]:
        """Slope and its slope at some point."""
        slope = self.of_rows(far)
        if self.rates:
            slope = self.problem.contacts.slope(self.start.residuals[0], self.rates[0], far, slope)  # type: ignore[union-attr]
        return slope[0], slope[1]

    def point(self, far: Scalar) -> Iterate:
        """The accelerations there."""
        a = [x + far * y for x, y in zip(self.start.a, self.along, strict=True)]
        unbalanced = [x + far * y for x, y in zip(self.start.unbalanced, self.inertial, strict=True)]
        residuals = ()
        if self.rates:
            residuals = (self.problem.contacts.advance(self.start.residuals[0], self.rates[0], far),)  # type: ignore[union-attr]
        return Iterate(a, unbalanced, residuals)


def minimize(problem: Problem, start: Sequence[Scalar], iterations: int, tolerance: float) -> list[Scalar]:
    """The accelerations that minimize the cost, found without derivatives of how."""
    diagonal = [row[i] for i, row in enumerate(problem.inertia)]
    energy = sum((f * f / m for f, m in zip(problem.force, diagonal, strict=True)), 0.0)
    precision = _precision(energy)
    noise = ROUNDING * precision * precision
    enough = maximum(noise, tolerance)

    def proceed(carry: Any) -> Any:
        return carry[1] > 0.5

    def step(_: Any, carry: Any) -> Any:
        at, _, scale = carry
        gradient, solve = problem.expand(at)
        along = [-x for x in solve(gradient)]
        gained = -dot(gradient, along)
        scale = maximum(scale, gained)
        line = problem.line(at, along)
        far, at_end = search(line, gained, noise * scale)
        # A quadratic function has its minimum at the end.
        exact = at_end & (line.end[2] < 0.5)
        going = select(exact | (gained <= enough * scale), 0.0, 1.0)
        return line.point(far), going, scale

    carry = problem.at(start), 1.0 + 0.0 * energy, energy
    return detach(while_loop(proceed, step, carry, iterations)[0].a)


def _precision(positive: Scalar) -> Scalar:
    """The spacing of numbers next to 1, in the precision in which the kernel runs, which is not known before."""
    return abs(3.0 * ((4.0 / 3.0 + minimum(positive, 0.0)) - 1.0) - 1.0)


def search(line: Line, begin: Scalar, noise: Scalar) -> tuple[Scalar, Any]:
    """How far to go along a direction: to where the slope of a convex function is zero, or nearly.

    Args:
        line: the function.
        begin: minus the slope at the beginning.
        noise: what a slope may be wrong by.

    Returns:
        The distance, and whether it is 1.
    """
    enough = maximum(SEARCH * begin, noise)

    def follow(far: Scalar, low: Scalar, high: Scalar, closed: Scalar, slope: Scalar, curve: Scalar) -> Any:
        down = slope < 0.0
        low, high = select(down, far, low), select(down, high, far)
        closed = select(down, closed, 1.0)
        newton = far - slope / maximum(curve, 1e-30)
        inside = (newton > low) & (newton < high)
        following = select(closed > 0.5, select(inside, newton, 0.5 * (low + high)), minimum(newton, 10.0 * far))
        done = abs(slope) <= enough
        return select(done, far, following), low, high, closed, select(done, 0.0, 1.0)

    def proceed(carry: Any) -> Any:
        return carry[4] > 0.5

    def step(_: Any, carry: Any) -> Any:
        far, low, high, closed, _ = carry
        return follow(far, low, high, closed, *line.slope(far))

    zero = 0.0 * begin
    first = follow(1.0 + zero, zero, zero, zero, line.end[0], line.end[1])
    return while_loop(proceed, step, first, 20)[0], first[4] < 0.5


def solve_accelerations(
    problem: Problem,
    iterations: int,
    tolerance: float,
    start: Sequence[Scalar],
    unbalanced: Callable[[Sequence[Scalar]], list[Scalar]],
) -> list[Scalar]:
    """The accelerations of a step, with the derivatives of the minimum.

    Args:
        problem: what is minimized.
        iterations: the most that there may be.
        tolerance: the improvement, over the first one, at which they end.
        start: accelerations to begin with.
        unbalanced: computes M a - M a0, in the way that is cheapest to differentiate.
    """
    found = minimize(problem, start, iterations, tolerance)

    def residual(a: Sequence[Scalar]) -> list[Scalar]:
        return [x - f for x, f in zip(unbalanced(a), problem.constraint_forces(a), strict=True)]

    def solve(right: Sequence[Scalar]) -> list[Scalar]:
        return problem.expand(problem.at(found))[1](right)

    return implicit(found, residual, solve)
