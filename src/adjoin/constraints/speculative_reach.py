"""Which shapes may touch within a step: those that are nearer than they could come by then."""

from collections.abc import Callable, Sequence
from typing import Any

from adjoin.collision.broad_phase import Shapes
from adjoin.collision.contact_list import Candidates
from adjoin.collision.records import Records, indices_table
from adjoin.constraints.motions import Motions, read, relative
from adjoin.constraints.solver import FreeMotion
from adjoin.dynamics.linear import Factor
from adjoin.dynamics.state import State
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar, sqrt
from adjoin.spatial.vector import Vector3
from adjoin.trace import Scratch, loop, maximum, scratch


class SpeculativeReach:
    """A distance, and what two shapes can come nearer by at the speeds before the step and after it without contact.

    Args:
        state: The robot.
        candidates: The pairs that can touch.
        free: The step without constraints.
        shapes: The shapes where they are.
        distance: Within which contacts count whatever the speeds, m.
        share: How much more than these speeds is allowed for.
    """

    def __init__(
        self, state: State, candidates: Candidates, free: FreeMotion, shapes: Shapes, distance: Scalar, share: float
    ):
        self.shapes, self.distance, self.share = shapes, distance, share * free.dt
        bodies = [state.robot.model.geometries[index].body for index in candidates.shapes]
        carriers = sorted(set(bodies))
        motions = Motions(state, carriers)
        change = Factor(free.inertia).solve(free.rhs)
        after = [v + dv for v, dv in zip(state.v, change, strict=True)]
        self.twists = [motions.twist_array(rates) for rates in (state.v, after)]
        self.carrier = indices_table([carriers.index(body) for body in bodies])
        self.margins = Records([(pair.margin,) for pair in candidates.pairs])

        def turn(i: Any, rates: Scratch) -> Scratch:
            rates[i] = greatest([read(twists, i)[0] for twists in self.twists])
            return rates

        def note(i: Any, extents: Scratch) -> Scratch:
            center, radius, body = shapes.center(i), shapes.radii[i][0], self.carrier[i]
            moving = greatest([relative(twists, body, None, center)[1] for twists in self.twists])
            extents[i] = radius + self.share * (moving + radius * turning[body])
            return extents

        def array(length: int, write: Callable[[Any, Scratch], Scratch]) -> Scratch:
            return loop(length, write, scratch(length, checked=False, cleared=False), detached=True)

        turning = array(len(carriers), turn)
        self.extents = array(len(bodies), note)

    def extent(self, shape: Any) -> Scalar:
        """Return how far a shape reaches, as though it went straight at every other."""
        return self.extents[shape]

    def margin(self, pair: Any) -> Scalar:
        """Return the distance within which contacts count."""
        return self.margins[pair][0] + self.distance

    def exact(self, pair: Any, first: Any, second: Any) -> Scalar:
        """Return how near the shapes must be, at the greatest speed of the first's points against the second."""
        center, radius = self.shapes.center(first), self.shapes.radii[first][0]
        speeds = []
        for twists in self.twists:
            angular, linear = relative(twists, self.carrier[first], self.carrier[second], center)
            speeds.append(vector.norm(linear) + radius * vector.norm(angular))
        return self.margin(pair) + self.share * maximum(*speeds)


def greatest(vectors: Sequence[Vector3]) -> Scalar:
    """The greater length of two vectors."""
    return sqrt(maximum(*[vector.dot(x, x) for x in vectors]))
