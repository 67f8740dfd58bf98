"""Projected Gauss-Seidel: impulses one after the other, each as if the others were right, for a fixed number of sweeps.

As in Qiao et al., Efficient Differentiable Simulation of Articulated Bodies (ICML 2021), section 4. The sweeps are one
loop of the kernel, so that their number costs no code.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from adjoin.contact.blocks import Block
from adjoin.dynamics.linear import Factor, is_zero
from adjoin.errors import InputError
from adjoin.spatial.scalar import Scalar
from adjoin.trace import loop


@dataclass(frozen=True)
class PGS:
    """Projected Gauss-Seidel.

    Attributes:
        iterations: sweeps over all constraints.
        warm: whether a step begins with the impulses of the last one.
    """

    iterations: int = 20
    warm: bool = False

    def __post_init__(self):
        if not isinstance(self.iterations, int) or self.iterations < 1:
            raise InputError(f"PGS: iterations must be a whole number of at least 1, got {self.iterations!r}")

    def solve(
        self, inertia: Factor, right: Sequence[Scalar], blocks: Sequence[Block], start: Sequence[Scalar] | None = None
    ) -> tuple[list[Scalar], list[Scalar]]:
        """The change of velocity H⁻¹ (right + Jᵀ impulses), and the impulses.

        Args:
            inertia: the factor of H.
            right: impulses of everything but the constraints.
            blocks: the constraints. Their biases hold J v with the velocity before the change.
            start: impulses to begin with.
        """
        rows = [row for block in blocks for row in block.rows]
        half = inertia.half(right)
        halves = [inertia.half(row.jacobian) for row in rows]
        scaled = [
            [0.0 if is_zero(x) else x * inverse for x, inverse in zip(each, inertia.inverse, strict=True)]
            for each in halves
        ]
        matrix = [[product(scaled[max(i, j)], halves[min(i, j)]) for j in range(len(rows))] for i in range(len(rows))]
        bias = [row.bias + product(own, half) for row, own in zip(rows, scaled, strict=True)]
        inverse = [1.0 / (matrix[i][i] + row.softness) for i, row in enumerate(rows)]

        def sweep(_: object, impulses: list[Scalar]) -> list[Scalar]:
            impulses = list(impulses)

            def relax(i: int) -> Scalar:
                pull = bias[i] + product(matrix[i], impulses, but=i)
                return -pull * inverse[i]

            first = 0
            for block in blocks:
                block.sweep(impulses, first, relax)
                first += len(block.rows)
            return impulses

        impulses = list(loop(self.iterations, sweep, list(start or [0.0] * len(rows))))
        for impulse, own in zip(impulses, halves, strict=True):
            half = [x if is_zero(h) else x + impulse * h for x, h in zip(half, own, strict=True)]
        return inertia.rest([x * y for x, y in zip(half, inertia.inverse, strict=True)]), impulses


def product(a: Sequence[Scalar], b: Sequence[Scalar], but: int | None = None) -> Scalar:
    """The sum of a_i b_i, without one i."""
    total: Scalar = 0.0
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if i != but and not is_zero(x) and not is_zero(y):
            total = total + x * y
    return total
