"""How gradients pass through contact: small frozen objects that a solver takes.

| adjoint | gradient of | use it |
|---|---|---|
| `Unrolled()` | exactly what was computed, sweep by sweep | by default: right however far the solver got |
| `Implicit()` | the solution that the sweeps approach, modes held | for speed, with sweeps enough to converge |
| `Anticipating(reach)` | the same, as if contacts began softly within reach | to find contacts that are not made yet |

`Unrolled` runs the sweeps again from the last to the first. `Implicit` solves one linear system instead, and needs far
less memory for it. What `Anticipating` gives is not the derivative of the motion: a foot that hangs above the ground
feels the ground as though it were there already, in proportion to how near it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adjoin.contact.blocks import Rows
from adjoin.dynamics.linear import dot, eliminate, is_zero
from adjoin.errors import InputError
from adjoin.spatial.scalar import Scalar
from adjoin.trace import detach, exp, implicit, loop, maximum

if TYPE_CHECKING:
    from adjoin.contact.system import System

MOST = 80  # rows that `Implicit` takes: its linear system has as many entries as their square
DIRECT = 24  # rows up to which a linear system is solved by elimination, whose code grows with their cube


@dataclass(frozen=True)
class Unrolled:
    """The exact reverse of the sweeps that ran."""

    def push(self, trial: Scalar, gain: Scalar, dt: float) -> Scalar:
        """The impulse if it is positive, else 0."""
        return maximum(trial, 0.0)

    def attach(
        self, system: "System", change: list[Scalar], impulses: list[Scalar], missing: Callable[..., list[Scalar]]
    ) -> tuple[list[Scalar], list[Scalar]]:
        """The change of velocity and the impulses, with the derivatives that they should have.

        Given the impulses, the change solves a linear system, and is differentiated as its solution.
        """

        def residual(dv: Sequence[Scalar]) -> list[Scalar]:
            return unbalanced(system, missing(dv), impulses)

        return implicit(change, residual, lambda b: system.inertia.solve(b)), impulses


@dataclass(frozen=True)
class Anticipating(Unrolled):
    """The reverse of the sweeps, in which contacts begin softly.

    Attributes:
        reach: the distance over which they do, m.
    """

    reach: float = 0.01

    def __post_init__(self):
        if not self.reach > 0.0:
            raise InputError(f"Anticipating: reach must be positive, got {self.reach!r}")

    def push(self, trial: Scalar, gain: Scalar, dt: float) -> Scalar:
        """The impulse if it is positive, else 0; with the derivative of a soft beginning.

        Its slope rises from 0 to 1 as 1 / (1 + exp(-trial / width)), where `width` is the impulse that changes a
        velocity by reach / dt.
        """
        (slope,) = detach([1.0 / (1.0 + exp(-trial / (gain * (self.reach / dt))))])
        return implicit([maximum(trial, 0.0)], lambda x: [x[0] - slope * trial], lambda b: b)[0]


@dataclass(frozen=True)
class Implicit(Unrolled):
    """The derivative of the solution, by the implicit function theorem at the contact modes that were found.

    Attributes:
        sweeps: over the linear system, where it has too many rows to be solved directly.
    """

    sweeps: int = 50

    def attach(
        self, system: "System", change: list[Scalar], impulses: list[Scalar], missing: Callable[..., list[Scalar]]
    ) -> tuple[list[Scalar], list[Scalar]]:
        """The change of velocity and the impulses, with the derivatives that they should have.

        With the trial impulses t = p - g u, where u = J dv + offset + softness p, they solve
        missing(dv) - Jᵀ p = 0 and p - project(t) = 0. By elimination of dv, (G + P g A) y = ... is left, where A is
        J H⁻¹ Jᵀ, P the slopes of `project`, and G = 1 - P (1 - g softness).
        """
        rows, nv = system.rows, len(change)
        if len(rows) > MOST:
            raise InputError(
                f"Implicit: {len(rows)} rows of constraints are too many for it, at most {MOST}; "
                "choose fewer pairs of shapes, or Unrolled()"
            )
        gains = detach(system.gain)

        def project(dv: Sequence[Scalar], p: Sequence[Scalar], slopes: bool = False) -> list[list[Scalar]]:
            trials = [
                x - gain * (dot(row.jacobian, dv) + offset + soft * x)
                for x, gain, row, offset, soft in zip(p, gains, rows, system.offsets, system.softness, strict=True)
            ]
            found, first = [], 0
            for block in system.blocks:
                own = trials[first : first + len(block.rows)]
                found += block.slopes(own) if slopes else [block.project(own)]
                first += len(block.rows)
            return found

        def residual(x: Sequence[Scalar]) -> list[Scalar]:
            dv, p = x[:nv], x[nv:]
            allowed = [value for block in project(dv, p) for value in block]
            return [*unbalanced(system, missing(dv), p), *[a - b for a, b in zip(p, allowed, strict=True)]]

        own: list[list[tuple[int, Scalar]]] = []  # P by rows, of each the entries in its block
        slopes = iter(project(change, impulses, slopes=True))
        first = 0
        for block in system.blocks:
            own += [[(first + k, x) for k, x in enumerate(next(slopes)) if not is_zero(x)] for _ in block.rows]
            first += len(block.rows)

        def reduced(transposed: bool) -> Rows:
            """G + P g A, or its transpose."""
            count = len(rows)
            matrix: Rows = [[0.0] * count for _ in rows]
            for i in range(count):
                matrix[i][i] = 1.0
            for i in range(count):
                for k, slope in own[i]:
                    matrix[i][k] = matrix[i][k] - slope * (1.0 - gains[k] * system.softness[k])
                    for j in range(count):
                        if not is_zero(system.matrix[k][j]):
                            matrix[i][j] = matrix[i][j] + slope * gains[k] * system.matrix[k][j]
            return [list(column) for column in zip(*matrix, strict=True)] if transposed else matrix

        def solve_rows(matrix: Rows, right: list[Scalar]) -> list[Scalar]:
            if len(rows) <= DIRECT:
                return eliminate(matrix, right)
            inverse = [1.0 / matrix[i][i] for i in range(len(rows))]

            def sweep(_: object, y: list[Scalar]) -> list[Scalar]:
                y = list(y)
                for i, row in enumerate(matrix):
                    y[i] = (right[i] - dot(row[:i], y[:i]) - dot(row[i + 1 :], y[i + 1 :])) * inverse[i]
                return y

            return list(loop(self.sweeps, sweep, list(right)))

        def solve(b: Sequence[Scalar]) -> list[Scalar]:
            f, g = list(b[:nv]), b[nv:]
            free = system.inertia.scaled(system.inertia.half(f))
            speeds = [dot(half, free) for half in system.halves]
            right = []
            for i, value in enumerate(g):
                for k, slope in own[i]:
                    value = value - slope * gains[k] * speeds[k]
                right.append(value)
            y = solve_rows(reduced(False), right)
            return [*system.solve(f, y), *y]

        def solve_transposed(b: Sequence[Scalar]) -> list[Scalar]:
            f, g = list(b[:nv]), b[nv:]
            free = system.inertia.scaled(system.inertia.half(f))
            right = [value + dot(half, free) for value, half in zip(g, system.halves, strict=True)]
            y = solve_rows(reduced(True), right)
            z: list[Scalar] = [0.0] * len(rows)
            for i, value in enumerate(y):
                for k, slope in own[i]:
                    z[k] = z[k] - slope * gains[k] * value
            return [*system.solve(f, z), *y]

        found = implicit([*change, *impulses], residual, solve, solve_transposed)
        return found[:nv], found[nv:]


def unbalanced(system: "System", missing: list[Scalar], impulses: Sequence[Scalar]) -> list[Scalar]:
    """missing - Jᵀ impulses: what is left of H dv = right + Jᵀ impulses."""
    for row, impulse in zip(system.rows, impulses, strict=True):
        missing = [x if is_zero(j) else x - j * impulse for x, j in zip(missing, row.jacobian, strict=True)]
    return missing


Adjoint = Unrolled | Anticipating | Implicit
