"""Which shapes may touch within a step: those that are nearer than they could come by then."""

from typing import Any

from adjoin.collision.broad_phase import Shapes
from adjoin.collision.contact_list import Candidates
from adjoin.collision.records import Records, indices_table
from adjoin.constraints.motions import Motions, relative
from adjoin.constraints.solver import FreeMotion
from adjoin.dynamics.linear import Factor
from adjoin.dynamics.state import State
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar, sqrt
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

        def note(i: Any, speeds: Scratch) -> Scratch:
            speeds[i] = self._speed(i, None)
            return speeds

        self.speeds = loop(len(bodies), note, scratch(len(bodies), checked=False, cleared=False), detached=True)

    def bound(self, pair: Any, first: Any, second: Any) -> Scalar:
        """Return a bound that is quickly computed: as though the shapes went straight at each other."""
        return self._reach(pair, self.speeds[first] + self.speeds[second])

    def exact(self, pair: Any, first: Any, second: Any) -> Scalar:
        """Return how near the shapes must be, at the speed of the first against the second."""
        return self._reach(pair, self._speed(first, second))

    def _reach(self, pair: Any, speed: Scalar) -> Scalar:
        return self.margins[pair][0] + self.distance + self.share * speed

    def _speed(self, first: Any, second: Any) -> Scalar:
        """The greatest speed of a shape's points, against another shape or the world."""
        center, radius = self.shapes.center(first), self.shapes.radii[first][0]
        speeds = []
        for twists in self.twists:
            angular, linear = relative(
                twists, self.carrier[first], None if second is None else self.carrier[second], center
            )
            speeds.append(sqrt(vector.dot(linear, linear)) + radius * sqrt(vector.dot(angular, angular)))
        return maximum(*speeds)
