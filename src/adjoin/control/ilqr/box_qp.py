"""The quadratic program of one step of the backward pass, with limits of the control, and its feedback gain.

Projected Newton's method: Tassa, Mansard and Todorov 2014, Control-limited differential dynamic programming.
"""

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

from adjoin.dynamics.linear import Factor, Rows, dot
from adjoin.spatial.scalar import Scalar
from adjoin.trace import loop, maximum, minimum, select, when

NEWTON_STEPS = 10
"""Steps of Newton's method on controls with limits; as many as there are controls nearly always do."""

STEP_LENGTHS = (1.0, 0.5, 0.25, 0.1)
"""Shares of such a step of which the best is taken."""

Bounds = list[tuple[float, float]]


def is_unlimited(bounds: Bounds) -> bool:
    """Return whether there are no limits at all."""
    return all(math.isinf(x) for pair in bounds for x in pair)


def clamp(x: Sequence[Scalar], bounds: Bounds, origin: Sequence[Scalar] | None = None) -> list[Scalar]:
    """Return values within bounds, which are counted from an origin."""
    inside = []
    for i, (value, (lower, upper)) in enumerate(zip(x, bounds, strict=True)):
        offset = 0.0 if origin is None else origin[i]
        value = maximum(value, lower - offset) if math.isfinite(lower) else value
        inside.append(minimum(value, upper - offset) if math.isfinite(upper) else value)
    return inside


def solve_box_qp(
    hessian: Rows, mixed: Rows, gradient: Sequence[Scalar], control: Sequence[Scalar], mu: Scalar, bounds: Bounds
) -> tuple[list[Scalar], Rows, Any]:
    """Return the feedforward k, the feedback gain K, and whether the Hessian was positive definite.

    Args:
        hessian: Q_uu.
        mixed: Q_ux.
        gradient: Q_u.
        control: where du = 0.
        mu: regularization.
        bounds: of the control.
    """
    size = len(gradient)
    matrix = [[x + mu if i == j else x for j, x in enumerate(row)] for i, row in enumerate(hessian)]
    factor = Factor(matrix)
    positive = functools.reduce(operator.and_, [x > 0.0 for x in factor.inverse])
    feedforward = factor.solve([-x for x in gradient])
    if is_unlimited(bounds):
        columns = [factor.solve([-row[k] for row in mixed]) for k in range(len(mixed[0]))]
        return feedforward, [list(row) for row in zip(*columns, strict=True)], positive

    def at_limit(k: Sequence[Scalar], sign: Sequence[Scalar]) -> list[Any]:
        at_limits = []
        for x, s, u, (lower, upper) in zip(k, sign, control, bounds, strict=True):
            low = (x <= lower - u) & (s > 0.0) if math.isfinite(lower) else None
            high = (x >= upper - u) & (s < 0.0) if math.isfinite(upper) else None
            at_limits.append(low | high if low is not None and high is not None else low if high is None else high)
        return at_limits

    def free_factor(held: Sequence[Any]) -> Factor:
        def entry(i: int, j: int) -> Scalar:
            either = [held[n] for n in {i, j} if held[n] is not None]
            return select(either[0] | either[-1], float(i == j), matrix[i][j]) if either else matrix[i][j]

        return Factor([[entry(i, j) for j in range(i + 1)] for i in range(size)])

    def zero_held(held: Sequence[Any], values: Sequence[Scalar]) -> list[Scalar]:
        return [x if h is None else select(h, 0.0, x) for h, x in zip(held, values, strict=True)]

    def gradients(k: Sequence[Scalar]) -> list[Scalar]:
        return [dot(row, k) + g for row, g in zip(matrix, gradient, strict=True)]

    def newton(_: Any, k: list[Scalar]) -> list[Scalar]:
        slope = gradients(k)
        held = at_limit(k, slope)
        step = free_factor(held).solve(zero_held(held, [-x for x in slope]))
        best, lowest = list(k), 0.5 * dot(k, [a + b for a, b in zip(slope, gradient, strict=True)])
        for length in STEP_LENGTHS:
            trial = clamp([a + length * b for a, b in zip(k, step, strict=True)], bounds, control)
            loss = 0.5 * dot(trial, [a + b for a, b in zip(gradients(trial), gradient, strict=True)])
            better = loss < lowest
            best = [select(better, a, b) for a, b in zip(trial, best, strict=True)]
            lowest = select(better, loss, lowest)
        return best

    inside = clamp(feedforward, bounds, control)
    outside = functools.reduce(operator.or_, [a != b for a, b in zip(inside, feedforward, strict=True) if a is not b])
    feedforward = when(outside & positive, lambda k: loop(NEWTON_STEPS, newton, k), inside)
    held = at_limit(feedforward, gradients(feedforward))
    last = free_factor(held)
    columns = [last.solve(zero_held(held, [-row[k] for row in mixed])) for k in range(len(mixed[0]))]
    return feedforward, [list(row) for row in zip(*columns, strict=True)], positive
