"""Sums over subtrees: each body and all that it carries, about the origin of its frame, in the axes of the tree's root.

With the same axes everywhere, what a body carries is summed by shifting alone; with an origin of its own for each, the
numbers of small bodies far from the root stay as exact as they are. All is at one instant, in frames at rest.

A body has its mass m, first moment h and second moment Sigma, and what its velocity adds: the momentum p and the matrix
K = integral of u rᵀ dm, where u is the velocity of the particle at r. The matrix B of Coriolis forces (Echeandia and
Wensing 2021, Numerical methods to compute the Coriolis matrix and Christoffel symbols for rigid-body systems) is then

    B (mu, nu) = ((tr K - K) mu, mu x p)

for a motion with the angular part mu: the force mu x u dm on every particle. It does not read nu.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from adjoin.dynamics.linear import Rows
from adjoin.dynamics.state import State, Value
from adjoin.model.parts import WORLD
from adjoin.spatial import inertia, vector
from adjoin.spatial.motion import ZERO_SPATIAL, Spatial, motion_cross_motion, spatial_add, spatial_dot
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import IDENTITY, ZERO, Matrix3, Vector3

Enter = Callable[[int, int, Scalar], None]


class MovingMoments(NamedTuple):
    """Mass moments of a body, or of several, and what their velocity adds: m, h, Sigma, p and K as above."""

    mass: Scalar
    first: Vector3
    second: inertia.Symmetric3
    momentum: Vector3
    velocity_moment: Matrix3


def add_moments(a: MovingMoments, b: MovingMoments) -> MovingMoments:
    """Return the moments of two bodies together."""
    return MovingMoments(
        a.mass + b.mass,
        vector.add(a.first, b.first),
        inertia.symmetric_add(a.second, b.second),
        vector.add(a.momentum, b.momentum),
        matrix_add(a.velocity_moment, b.velocity_moment),
    )


def shift_moments(offset: Vector3, a: MovingMoments) -> MovingMoments:
    """Return the same moments about another origin, from which the old one is at `offset`."""
    moved = vector.scale(a.mass, offset)
    middle = vector.add(a.first, vector.scale(0.5, moved))
    x, y, z = offset
    i, j, k = middle
    cross = (2.0 * (x * i), x * j + y * i, x * k + z * i, 2.0 * (y * j), y * k + z * j, 2.0 * (z * k))
    return MovingMoments(
        a.mass,
        vector.add(a.first, moved),
        inertia.symmetric_add(a.second, cross),
        a.momentum,
        matrix_add(a.velocity_moment, outer(a.momentum, offset)),
    )


def outer(a: Vector3, b: Vector3) -> Matrix3:
    """Return a bᵀ."""
    return (vector.scale(a[0], b), vector.scale(a[1], b), vector.scale(a[2], b))


def matrix_add(a: Matrix3, b: Matrix3) -> Matrix3:
    """Return a + b."""
    return (vector.add(a[0], b[0]), vector.add(a[1], b[1]), vector.add(a[2], b[2]))


def scaled(factor: Scalar, m: Spatial) -> Spatial:
    """Return a multiple of a motion or a force."""
    return vector.scale(factor, m[0]), vector.scale(factor, m[1])


def motion_at(offset: Vector3, m: Spatial) -> Spatial:
    """Return a motion about the origin that is at `offset`."""
    return m[0], vector.add(m[1], vector.cross(m[0], offset))


def force_from(offset: Vector3, f: Spatial) -> Spatial:
    """Return a force that is given about the origin at `offset`."""
    return vector.add(f[0], vector.cross(offset, f[1])), f[1]


class Operators:
    """The inertia I of a body, or of several, and the matrix B of their Coriolis forces."""

    def __init__(self, moments: MovingMoments):
        xx, xy, xz, yy, yz, zz = moments.second
        self.mass, self.first, self.momentum = moments.mass, moments.first, moments.momentum
        self.about: Matrix3 = ((yy + zz, -xy, -xz), (-xy, xx + zz, -yz), (-xz, -yz, xx + yy))
        x, y, z = moments.velocity_moment
        self.turning: Matrix3 = (
            (y[1] + z[2], -x[1], -x[2]),
            (-y[0], x[0] + z[2], -y[2]),
            (-z[0], -z[1], x[0] + y[1]),
        )

    def I(self, m: Spatial) -> Spatial:  # noqa: E743
        """Return the momentum of a motion."""
        angular, linear = m
        moment = vector.add(vector.apply(self.about, angular), vector.cross(self.first, linear))
        return moment, vector.subtract(vector.scale(self.mass, linear), vector.cross(self.first, angular))

    def B(self, angular: Vector3) -> Spatial:
        """Return the Coriolis force of a motion with this angular part."""
        return vector.apply(self.turning, angular), vector.cross(angular, self.momentum)

    def B_transposed(self, m: Spatial) -> Vector3:
        """Return the vector w with w . mu = m . B (mu, nu)."""
        return vector.add(vector.apply_transposed(self.turning, m[0]), vector.cross(self.momentum, m[1]))


class Subtrees:
    """A state's bodies and what they carry; lists have one entry per body.

    Args:
        state: the robot and its configuration.
        v: nv velocities.
    """

    def __init__(self, state: State, v: Sequence[Scalar]):
        self.state, self.robot, self.v = state, state.robot, list(v)
        self.paths = [self.robot.ancestors(body) for body in range(self.robot.count)]

    @cached_property
    def rotations(self) -> list[Matrix3]:
        """Return the rotation of each body relative to the root of its tree."""

        def step(body: int, parent: Matrix3) -> Matrix3:
            root = self.robot.parents[body] == WORLD
            return IDENTITY if root else vector.multiply(parent, self.state.transforms[body][0])

        return self.state.outward(IDENTITY, step)

    @cached_property
    def offsets(self) -> list[Vector3]:
        """Return the offset of each body's origin from its parent's; roots have none."""
        places = zip(self.robot.parents, self.state.transforms, strict=True)
        return [ZERO if p == WORLD else vector.apply(self.rotations[p], x[1]) for p, x in places]

    @cached_property
    def directions(self) -> list[list[tuple[int, Spatial]]]:
        """Return S: a joint's directions of motion, each with its place in v."""
        turned = []
        for turn, directions in zip(self.rotations, self.robot.subspaces, strict=True):
            turned.append([(dof, (vector.apply(turn, s[0]), vector.apply(turn, s[1]))) for dof, s in directions])
        return turned

    def joint_motion(self, body: int, rates: Sequence[Scalar]) -> Spatial:
        """Return the motion of a body against its parent for given rates of the coordinates."""
        motion = ZERO_SPATIAL
        for dof, s in self.directions[body]:
            motion = spatial_add(motion, scaled(rates[dof], s))
        return motion

    def carried(
        self, values: Sequence[Spatial], root: Callable[[int], Spatial] = lambda body: ZERO_SPATIAL
    ) -> list[Spatial]:
        """Return for each body its parent's value of these motions; `root` is the world's."""
        pairs = enumerate(zip(self.robot.parents, self.offsets, strict=True))
        return [root(body) if p == WORLD else motion_at(offset, values[p]) for body, (p, offset) in pairs]

    @cached_property
    def velocities(self) -> list[Spatial]:
        """Return the spatial velocity of each body."""

        def step(body: int, parent: Spatial) -> Spatial:
            return spatial_add(motion_at(self.offsets[body], parent), self.joint_motion(body, self.v))

        return self.state.outward(ZERO_SPATIAL, step)

    @cached_property
    def carried_rates(self) -> list[list[Spatial]]:
        """Return how the directions of each joint change by the motion of the parent: its velocity x S."""
        pairs = zip(self.carried(self.velocities), self.directions, strict=True)
        return [[motion_cross_motion(velocity, s) for _, s in directions] for velocity, directions in pairs]

    def rates(self, share: float) -> list[list[Spatial]]:
        """Return how each joint's directions change by the motion of the parent, and by a share of the joint's own."""
        rates = []
        for body, (directions, carried) in enumerate(zip(self.directions, self.carried_rates, strict=True)):
            if len(directions) > 1:
                velocity = scaled(share, self.joint_motion(body, self.v))
                carried = [
                    spatial_add(r, motion_cross_motion(velocity, s))
                    for r, (_, s) in zip(carried, directions, strict=True)
                ]
            rates.append(list(carried))
        return rates

    @cached_property
    def bodies(self) -> list[MovingMoments]:
        """Return moments of each body alone."""
        robot, bodies = self.robot, []
        for body, (turn, (omega, velocity)) in enumerate(zip(self.rotations, self.velocities, strict=True)):
            mass, first, second = robot.regrouped[body]
            first, second = vector.apply(turn, first), inertia.rotate(turn, second)
            momentum = vector.add(vector.scale(mass, velocity), vector.cross(omega, first))
            turning = vector.multiply(vector.skew(omega), inertia.to_matrix(second))
            bodies.append(MovingMoments(mass, first, second, momentum, matrix_add(outer(velocity, first), turning)))
        return bodies

    @cached_property
    def alone(self) -> list[Operators]:
        """Return the operators of each body alone."""
        return [Operators(moments) for moments in self.bodies]

    @cached_property
    def operators(self) -> list[Operators]:
        """Return the operators of each body and all that it carries."""
        return [Operators(moments) for moments in self.subtree_sums(self.bodies, add_moments, shift_moments)]

    def subtree_sums(
        self,
        values: Sequence[Value],
        add: Callable[[Value, Value], Value],
        shift: Callable[[Vector3, Value], Value],
    ) -> list[Value]:
        """Return sums over each body and all that it carries."""
        totals = list(values)
        for body in reversed(range(self.robot.count)):
            parent = self.robot.parents[body]
            if parent != WORLD:
                totals[parent] = add(totals[parent], shift(self.offsets[body], totals[body]))
        return totals

    def lifted(self, body: int, force: Spatial) -> list[Spatial]:
        """Return a force on a body about the origins of the body and its ancestors, in the order of `paths`."""
        forces = [force]
        for other in self.paths[body][:-1]:
            forces.append(force_from(self.offsets[other], forces[-1]))
        return forces

    @cached_property
    def momenta(self) -> list[list[list[Spatial]]]:
        """Return I S of all that each direction moves, lifted."""
        pairs = enumerate(zip(self.operators, self.directions, strict=True))
        return [[self.lifted(body, operators.I(s)) for _, s in directions] for body, (operators, directions) in pairs]

    @cached_property
    def B_transposed(self) -> list[list[Vector3]]:
        """Return Bᵀ S of all that each direction moves."""
        pairs = zip(self.operators, self.directions, strict=True)
        return [[operators.B_transposed(s) for _, s in directions] for operators, directions in pairs]

    def matrix(self) -> tuple[Rows, Enter]:
        """Return a matrix of zeros, nv by nv, and a function that adds to its entries."""
        rows: Rows = [[0.0] * self.robot.nv for _ in range(self.robot.nv)]

        def enter(row: int, column: int, value: Scalar) -> None:
            rows[row][column] = rows[row][column] + value

        return rows, enter

    def inertia(self) -> Rows:
        """Return the joint-space inertia matrix, without armature."""
        matrix, enter = self.matrix()
        for body, directions in enumerate(self.directions):
            for k, (row, _) in enumerate(directions):
                for other, momentum in zip(self.paths[body], self.momenta[body][k], strict=True):
                    for column, s in self.directions[other] if other != body else directions[: k + 1]:
                        value = spatial_dot(s, momentum)
                        enter(row, column, value)
                        if other != body or column != row:
                            enter(column, row, value)
        return matrix

    def coriolis(self, rates: list[list[Spatial]]) -> Rows:
        """Return the matrix of entries S_i . (B S_j + I S'_j), B and I of what both move, for given rates S'."""
        matrix, enter = self.matrix()
        for body, operators in enumerate(self.operators):
            for k, (dof, s) in enumerate(self.directions[body]):
                forces = self.lifted(body, spatial_add(operators.B(s[0]), operators.I(rates[body][k])))
                for other, force, momentum in zip(self.paths[body], forces, self.momenta[body][k], strict=True):
                    for (place, along), rate in zip(self.directions[other], rates[other], strict=True):
                        if other != body:
                            enter(place, dof, spatial_dot(along, force))
                        turning = vector.dot(self.B_transposed[body][k], along[0])
                        enter(dof, place, turning + spatial_dot(rate, momentum))
        return matrix
