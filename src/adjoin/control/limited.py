"""The best control of one step to second order, within limits, and its feedback.

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

SWEEPS = 10
"""Steps of Newton's method on controls with limits; as many as there are controls nearly always do."""

SHORTER = (1.0, 0.5, 0.25, 0.1)
"""Parts of such a step of which the best is taken."""

Bounds = list[tuple[float, float]]


def unlimited(bounds: Bounds) -> bool:
    """Whether there are no limits at all."""
    return all(math.isinf(x) for pair in bounds for x in pair)


def clamped(x: Sequence[Scalar], bounds: Bounds, origin: Sequence[Scalar] | None = None) -> list[Scalar]:
    """Numbers within bounds, which are counted from an origin."""
    found = []
    for i, (value, (least, greatest)) in enumerate(zip(x, bounds, strict=True)):
        away = 0.0 if origin is None else origin[i]
        value = maximum(value, least - away) if math.isfinite(least) else value
        found.append(minimum(value, greatest - away) if math.isfinite(greatest) else value)
    return found


def gains(
    hessian: Rows, mixed: Rows, slope: Sequence[Scalar], control: Sequence[Scalar], mu: Scalar, bounds: Bounds
) -> tuple[list[Scalar], Rows, Any]:
    """k, K and whether the system was positive definite.

    Args:
        hessian: Q_uu.
        mixed: Q_ux.
        slope: Q_u.
        control: where du = 0.
        mu: regularization.
        bounds: of the control.
    """
    size = len(slope)
    matrix = [[x + mu if i == j else x for j, x in enumerate(row)] for i, row in enumerate(hessian)]
    factor = Factor(matrix)
    fine = functools.reduce(operator.and_, [x > 0.0 for x in factor.inverse])
    feed = factor.solve([-x for x in slope])
    if unlimited(bounds):
        across = [factor.solve([-row[k] for row in mixed]) for k in range(len(mixed[0]))]
        return feed, [list(row) for row in zip(*across, strict=True)], fine

    def at_limit(k: Sequence[Scalar], sign: Sequence[Scalar]) -> list[Any]:
        found = []
        for x, s, u, (least, greatest) in zip(k, sign, control, bounds, strict=True):
            low = (x <= least - u) & (s > 0.0) if math.isfinite(least) else None
            high = (x >= greatest - u) & (s < 0.0) if math.isfinite(greatest) else None
            found.append(low | high if low is not None and high is not None else low if high is None else high)
        return found

    def freed(held: Sequence[Any]) -> Factor:
        def entry(i: int, j: int) -> Scalar:
            either = [held[n] for n in {i, j} if held[n] is not None]
            mine = float(i == j)
            return select(either[0] | either[-1], mine, matrix[i][j]) if either else matrix[i][j]

        return Factor([[entry(i, j) for j in range(i + 1)] for i in range(size)])

    def free(held: Sequence[Any], values: Sequence[Scalar]) -> list[Scalar]:
        return [x if h is None else select(h, 0.0, x) for h, x in zip(held, values, strict=True)]

    def slopes(k: Sequence[Scalar]) -> list[Scalar]:
        return [dot(row, k) + g for row, g in zip(matrix, slope, strict=True)]

    def newton(_: Any, k: list[Scalar]) -> list[Scalar]:
        here = slopes(k)
        held = at_limit(k, here)
        step = freed(held).solve(free(held, [-x for x in here]))
        best, least = list(k), 0.5 * dot(k, [a + b for a, b in zip(here, slope, strict=True)])
        for part in SHORTER:
            trial = clamped([a + part * b for a, b in zip(k, step, strict=True)], bounds, control)
            loss = 0.5 * dot(trial, [a + b for a, b in zip(slopes(trial), slope, strict=True)])
            better = loss < least
            best = [select(better, a, b) for a, b in zip(trial, best, strict=True)]
            least = select(better, loss, least)
        return best

    inside = clamped(feed, bounds, control)
    outside = functools.reduce(operator.or_, [a != b for a, b in zip(inside, feed, strict=True) if a is not b])
    feed = when(outside & fine, lambda k: loop(SWEEPS, newton, k), inside)
    held = at_limit(feed, slopes(feed))
    last = freed(held)
    across = [last.solve(free(held, [-row[k] for row in mixed])) for k in range(len(mixed[0]))]
    return feed, [list(row) for row in zip(*across, strict=True)], fine
