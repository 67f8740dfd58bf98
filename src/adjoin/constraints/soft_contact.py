"""The force of a soft contact as MuJoCo defines it: minus the gradient of a convex function of its accelerations.

The arguments are u: the acceleration along the normal, across it and about it, less that at which the contact rests.
With the friction coefficients mu_j, a pyramid has an edge of force along u_0 + mu_j u_j and one along u_0 - mu_j u_j
for each j, and a cone is one smooth surface.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from adjoin.spatial.scalar import Scalar
from adjoin.trace import maximum, minimum, select, sqrt

TINY = 1e-15


class Response(NamedTuple):
    """What a contact does at given accelerations.

    Attributes:
        force: one scalar a row.
        stiffness: minus its derivative: the lower half of a symmetric matrix, row by row.
    """

    force: list[Scalar]
    stiffness: list[list[Scalar]]


class Weights(NamedTuple):
    """How hard a contact is.

    Attributes:
        normal: 1 / R of the normal row; of a contact without friction the only one.
        edges: 1 / R of the edges of a pyramid, 0 where there are none.
        friction: the coefficients of the other rows.
        slope: MuJoCo's regularized coefficient of a cone.
    """

    normal: Scalar
    edges: Scalar
    friction: Sequence[Scalar]
    slope: Scalar


def pyramid(u: Sequence[Scalar], weights: Weights, rows: Sequence[Scalar]) -> Response:
    """Of a pyramid, in which each edge only pushes.

    Args:
        u: accelerations.
        weights: of the contact.
        rows: for each of the others 1 if the contact has it, else 0.
    """
    size = len(u)
    force, stiffness = [0.0] * size, [[0.0] * (i + 1) for i in range(size)]
    push = minimum(u[0], 0.0)
    force[0] = -weights.normal * push
    stiffness[0][0] = select(u[0] < 0.0, weights.normal, 0.0)
    for j, (mu, present) in enumerate(zip(weights.friction, rows, strict=True), 1):
        weight = weights.edges * present
        up, down = u[0] + mu * u[j], u[0] - mu * u[j]
        high, low = (weight * minimum(x, 0.0) for x in (up, down))
        force[0] = force[0] - (high + low)
        force[j] = -mu * (high - low)
        a, b = (select(x < 0.0, weight, 0.0) for x in (up, down))
        stiffness[0][0] = stiffness[0][0] + (a + b)
        stiffness[j][0] = mu * (a - b)
        stiffness[j][j] = mu * mu * (a + b)
    return Response(force, stiffness)


def pyramid_is_linear_between(
    u: Sequence[Scalar], v: Sequence[Scalar], weights: Weights, rows: Sequence[Scalar]
) -> Any:
    """Whether the same edges push at both of two accelerations."""
    same = same_sign(u[0], v[0])
    for j, (mu, present) in enumerate(zip(weights.friction, rows, strict=True), 1):
        for edge in (mu * present, -(mu * present)):
            same = same & same_sign(u[0] + edge * u[j], v[0] + edge * v[j])
    return same


def same_sign(a: Scalar, b: Scalar) -> Any:
    """Whether both numbers are negative or none of them is."""
    return (maximum(a, b) < 0.0) | (minimum(a, b) >= 0.0)


def cone_is_linear_between(u: Sequence[Scalar], v: Sequence[Scalar], weights: Weights, rows: Sequence[Scalar]) -> Any:
    """Whether the contact parts at both of two accelerations, or sticks at both."""
    (parts, sticks), (parts_then, sticks_then) = (_Cone(x, weights, rows).zones() for x in (u, v))
    return (parts & parts_then) | (sticks & sticks_then)


class _Cone:
    """Accelerations scaled such that the cone is round."""

    def __init__(self, u: Sequence[Scalar], weights: Weights, rows: Sequence[Scalar]):
        self.slope = weights.slope
        self.scale = [self.slope, *[c * present for c, present in zip(weights.friction, rows, strict=True)]]
        self.scaled = [x * s for x, s in zip(u, self.scale, strict=True)]
        self.square = sum((x * x for x in self.scaled[1:]), 0.0)
        self.across = sqrt(maximum(self.square, TINY * TINY))

    def zones(self) -> tuple[Any, Any]:
        """Whether the contact parts, and whether it sticks."""
        normal, straight = self.scaled[0], self.square < TINY * TINY
        parts = (normal >= self.slope * self.across) | (straight & (normal >= 0.0))
        sticks = (self.slope * normal + self.across <= 0.0) | (straight & (normal < 0.0))
        return parts, sticks


def cone(u: Sequence[Scalar], weights: Weights, rows: Sequence[Scalar]) -> Response:
    """Of a cone: nothing where it parts, all rows where it sticks, and the nearest force on the cone where it slips."""
    size, mu, round_cone = len(u), weights.slope, _Cone(u, weights, rows)
    scale, scaled, across = round_cone.scale, round_cone.scaled, round_cone.across
    normal = scaled[0]
    parts, sticks = round_cone.zones()
    # 1 / R of the others: MuJoCo keeps R_j mu_j² the same for all of them.
    stuck = [weights.normal, *[weights.normal * s * s / maximum(mu * mu, TINY) for s in scale[1:]]]
    middle = weights.normal / maximum(mu * mu * (1.0 + mu * mu), TINY)
    excess = normal - mu * across
    slip = [
        -(middle * excess * mu),
        *[middle * excess * mu * x * s / across for x, s in zip(scaled[1:], scale[1:], strict=True)],
    ]
    force = [select(parts, 0.0, select(sticks, -(d * x), f)) for d, x, f in zip(stuck, u, slip, strict=True)]
    stiffness: list[list[Scalar]] = []
    for i in range(size):
        row: list[Scalar] = []
        for j in range(i + 1):
            if i == 0:
                value: Scalar = 1.0
            elif j == 0:
                value = -mu * scaled[i] / across
            else:
                value = mu * normal / (across * across * across) * scaled[i] * scaled[j]
                value = value + (mu * mu - mu * normal / across) if i == j else value
            slipping = middle * scale[i] * scale[j] * value
            row.append(select(parts, 0.0, select(sticks, stuck[i] if i == j else 0.0, slipping)))
        stiffness.append(row)
    return Response(force, stiffness)
