"""Damped least squares over scalars: the steps of inverse kinematics, in one loop.

Each step minimizes |J dq + e|² + damping |dq|², with the Jacobian J of the frames and their errors e: positions in
meters, rotations as rotation vectors. The damping is a multiple of the remaining error, so that steps are careful far
away and those of Newton's method close by (Levenberg and Marquardt, with the damping of Chan and Lawrence, "General
inverse kinematics with the error damped pseudoinverse", 1988). The multiple grows whenever a step made the error
larger, so that the search converges for targets out of reach. A joint at a limit that the error pushes against stays
out of the step (Bertsekas, "Projected Newton methods for optimization problems with simple constraints", 1982).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from adjoin.dynamics.jacobian import jacobian_of
from adjoin.dynamics.kinematics import transforms_from
from adjoin.dynamics.linear import Factor, Rows, dot
from adjoin.dynamics.robot import Robot
from adjoin.dynamics.state import State
from adjoin.model.joint_types.base import is_bound
from adjoin.model.model import Model
from adjoin.spatial import vector
from adjoin.spatial.motion import Transform, transform_multiply
from adjoin.spatial.rotation import (
    from_quaternion,
    quaternion_along,
    quaternion_log,
    quaternion_normalize,
)
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import IDENTITY
from adjoin.trace import loop, maximum, minimum, select, sqrt

MIN_DAMPING = 1e-6  # damping as a fraction of the trace of J Jᵀ: what float32 needs for a matrix to be invertible
GROWTH, DECAY, MAX_MULTIPLE = 4.0, 0.5, 100.0  # of the damping, after a bad step or a good one; its bound
LARGE_ERROR = 1e30  # larger than any error
REFINEMENTS = 2


@dataclass(frozen=True)
class LeastSquaresProblem:
    """What is solved, apart from the numbers.

    Attributes:
        targets: frame name, and kind of its target: "homogeneous", "quaternion" or "position".
        weights: of position and rotation, for each target.
        bodies: those whose joints may move.
        tolerance: m, rad.
        damping: the least multiple of the error.
        limits: whether joints stay inside them.
        params: names of the parameters that are given.
    """

    targets: tuple[tuple[str, str], ...]
    weights: tuple[tuple[float, float], ...]
    bodies: tuple[int, ...]
    tolerance: tuple[float, float]
    damping: float
    limits: bool
    params: tuple[str, ...]


class Errors(NamedTuple):
    """In one configuration: the weighted errors of all targets, their Jacobian, and squares of distances and angles."""

    weighted: list[Scalar]
    rows: Rows
    squares: list[Scalar]


class LeastSquaresSolution(NamedTuple):
    """The best configuration found, by how much it misses each target, 1 if not by too much, and how many steps."""

    q: list[Scalar]
    distances: list[Scalar]
    angles: list[Scalar]
    success: Scalar
    steps: Scalar


class LeastSquares:
    """A problem with its numbers.

    Args:
        model: the robot.
        problem: what is solved.
        q: where to start; joints that do not move stay there.
        targets: scalars of each target.
        params: scalars of the parameters that are given.
    """

    def __init__(
        self,
        model: Model,
        problem: LeastSquaresProblem,
        q: Sequence[Scalar],
        targets: Sequence[Any],
        params: Mapping[str, Any],
    ):
        self.model, self.problem, self.q = model, problem, list(q)
        self.robot = Robot(model, params)
        self.goals = [_goal(kind, value) for (_, kind), value in zip(problem.targets, targets, strict=True)]
        self.joints = [(model.joints[body], model.coordinates[body]) for body in problem.bodies]
        self.dofs = [at.v + k for joint, at in self.joints for k in range(joint.nv)]
        self.lower: list[Scalar] = [-math.inf] * model.nq
        self.upper: list[Scalar] = [math.inf] * model.nq
        if problem.limits:
            self._find_limits()

    def _find_limits(self) -> None:
        """Find the limits of q as `Model.limits` does, from parameters; for a ball joint, the greatest angle."""
        limits = zip(self.robot.numbers("lower"), self.robot.numbers("upper"), strict=True)
        for joint, at, ends in zip(self.model.joints, self.model.coordinates, limits, strict=True):
            if joint.type.limited == "angle" and joint.nq:
                self.upper[at.q] = ends[1]
            elif joint.type.limited == "coordinate" and at.multiplier != 0.0:
                low, high = ((end - at.offset) / at.multiplier for end in ends[:: -1 if at.multiplier < 0.0 else 1])
                self.lower[at.q], self.upper[at.q] = maximum(self.lower[at.q], low), minimum(self.upper[at.q], high)

    def errors(self, q: Sequence[Scalar]) -> Errors:
        """Return the errors at a configuration, in world axes."""
        state, model = State(self.robot, q), self.model
        poses = transforms_from(state)
        errors = Errors([], [], [])
        for (name, kind), weights, (turn, place) in zip(
            self.problem.targets, self.problem.weights, self.goals, strict=True
        ):
            frame = model.frame_index(name)
            rotation, position = transform_multiply(poses[model.frames[frame].body], self.robot.frames[frame])
            away = [vector.subtract(position, place)]
            if kind != "position":
                away.append(quaternion_log(quaternion_along(vector.multiply(rotation, vector.transpose(turn)))))
            rows = jacobian_of(state, name, "local_world_aligned")
            for k, (error, weight) in enumerate(zip(away, weights, strict=False)):
                if weight:
                    errors.weighted.extend(weight * x for x in error)
                    errors.rows.extend([weight * row[dof] for dof in self.dofs] for row in rows[3 * k : 3 * k + 3])
            squares = [vector.dot(error, error) for error in away]
            errors.squares.extend(squares if len(squares) == 2 else [squares[0], 0.0])
        return errors

    def step(self, q: Sequence[Scalar], errors: Errors, damping: Scalar) -> list[Scalar]:
        """Return the configuration after one step from q."""
        columns = [list(column) for column in zip(*errors.rows, strict=True)]
        stay = self._at_limits(q, [dot(column, errors.weighted) for column in columns])
        return self.moved(q, _least_change(errors, stay, damping, 0))

    def improved(self) -> list[Scalar]:
        """Return Newton's next configuration, if joints that are at a limit stay there."""
        errors = self.errors(self.q)
        return self.moved(self.q, _least_change(errors, self._at_limits(self.q), 0.0, REFINEMENTS))

    def _at_limits(self, q: Sequence[Scalar], push: Sequence[Scalar] | None = None) -> list[Scalar | None]:
        """Return for each degree of freedom whether it is at a limit, and pushed against it if pushes are passed."""
        at_limits: list[Scalar | None] = []
        for joint, at in self.joints:
            stay = None
            for bound, sign in (
                ((self.lower[at.q], 1.0), (self.upper[at.q], -1.0)) if joint.type.limited == "coordinate" else ()
            ):
                if is_bound(bound):
                    here = sign * q[at.q] <= sign * bound
                    here = here if push is None else here & (sign * push[len(at_limits)] > 0.0)
                    stay = here if stay is None else stay | here
            at_limits += [stay] * joint.nv
        return at_limits

    def moved(self, q: Sequence[Scalar], change: Sequence[Scalar]) -> list[Scalar]:
        """Return the configuration after a change, inside the limits."""
        full, first = list(q), 0
        for joint, at in self.joints:
            full[at.q_slice] = joint.type.integrate(full[at.q_slice], change[first : first + joint.nv])
            first += joint.nv
        return self.inside(full)

    def inside(self, q: Sequence[Scalar]) -> list[Scalar]:
        """Return the nearest configuration inside the limits."""
        full = list(q)
        for joint, at in self.joints:
            full[at.q_slice] = joint.type.clamp(full[at.q_slice], self.lower[at.q], self.upper[at.q])
        return full

    def solve(self, turns: Any) -> LeastSquaresSolution:
        """Run the loop.

        Args:
            turns: one more than the number of steps: the last turn only looks where the last step led.
        """
        places = [at.q + k for joint, at in self.joints for k in range(joint.nq)]
        least = self.problem.damping

        def full(numbers: Sequence[Scalar]) -> list[Scalar]:
            q = list(self.q)
            for place, x in zip(places, numbers, strict=True):
                q[place] = x
            return q

        def turn(_: Any, carry: Any) -> Any:
            numbers, before, multiple, best, lowest, squares, steps = carry
            q = full(numbers)
            errors = self.errors(q)
            size = dot(errors.weighted, errors.weighted)
            done = self._within(errors.squares)
            multiple = select(size < before, maximum(DECAY * multiple, least), minimum(GROWTH * multiple, MAX_MULTIPLE))
            after = self.step(q, errors, multiple * size)
            better = done | (size < lowest)
            return (
                _chosen(done, numbers, [after[place] for place in places]),
                size,
                multiple,
                _chosen(better, numbers, best),
                select(better, size, lowest),
                _chosen(better, errors.squares, squares),
                select(done, steps, steps + 1.0),
            )

        start = self.inside(self.q)
        numbers = [start[place] for place in places]
        unknown = [x for _, kind in self.problem.targets for x in (math.inf, 0.0 if kind == "position" else math.inf)]
        _, _, _, best, _, squares, steps = loop(
            turns, turn, (numbers, LARGE_ERROR, least, numbers, LARGE_ERROR, unknown, 0.0)
        )
        q = full(best)
        for joint, at in self.joints:
            q[at.q_slice] = joint.type.normalize(q[at.q_slice])
        success = select(self._within(squares), 1.0, 0.0)
        return LeastSquaresSolution(
            q, [sqrt(x) for x in squares[::2]], [sqrt(x) for x in squares[1::2]], success, steps
        )

    def _within(self, squares: Sequence[Scalar]) -> Scalar:
        """Return whether every error that has a weight is within its tolerance."""
        weights = [weight for pair in self.problem.weights for weight in pair]
        bounds = [tolerance**2 for tolerance in self.problem.tolerance] * len(self.problem.targets)
        within: Scalar = True
        for square, weight, bound in zip(squares, weights, bounds, strict=True):
            if weight:
                within = (square <= bound) & within
        return within


def _least_change(errors: Errors, stay: Sequence[Scalar | None], damping: Scalar, refinements: int) -> list[Scalar]:
    """Return what minimizes |J x + e|² + damping |x|² where some x stay 0, from the smaller of J Jᵀ and Jᵀ J.

    Each refinement solves again from the solution before, as the proximal method does: less of the damping is felt.
    """
    rows = [[x if s is None else select(s, 0.0, x) for x, s in zip(row, stay, strict=True)] for row in errors.rows]
    columns = [list(column) for column in zip(*rows, strict=True)]
    wide = len(rows) <= len(columns)
    vectors = rows if wide else columns
    matrix = [[dot(a, b) for b in vectors[: i + 1]] for i, a in enumerate(vectors)]
    damping = damping + MIN_DAMPING * sum((matrix[i][i] for i in range(len(matrix))), 0.0)
    for i in range(len(matrix)):
        matrix[i][i] = matrix[i][i] + damping
    factor = Factor(matrix)
    right = [-x for x in errors.weighted] if wide else [-dot(column, errors.weighted) for column in columns]
    solved = factor.solve(right)
    for _ in range(refinements):
        solved = factor.solve([x + damping * y for x, y in zip(right, solved, strict=True)])
    return [dot(column, solved) for column in columns] if wide else solved


def _goal(kind: str, value: Any) -> Transform:
    if kind == "position":
        return IDENTITY, vector.vector3(value)
    if kind == "quaternion":
        return from_quaternion(quaternion_normalize(tuple(value[3:]))), vector.vector3(value[:3])
    return vector.matrix3([row[:3] for row in value[:3]]), vector.vector3([row[3] for row in value[:3]])


def _chosen(condition: Scalar, a: Sequence[Scalar], b: Sequence[Scalar]) -> list[Scalar]:
    return [select(condition, x, y) for x, y in zip(a, b, strict=True)]
