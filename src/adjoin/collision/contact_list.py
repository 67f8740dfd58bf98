"""The contacts of a step as a list in arrays of the kernel, whose length is what touches.

Code exists once for each pair of kinds. A loop visits the pairs of these kinds: where bounding spheres are apart in
all environments that a processor works on together, nothing else is computed; where the narrow phase is expensive,
boxes around both are compared next; then it looks for points, and each that is near enough takes the next slot of the
list. This search is not differentiated. A second loop visits the slots and computes distance, position and normal of
each point from the feature that was found, and gradients pass through that.

The lanes of a vector share the slots; a slot is active in the environments that have the contact. What an environment
has is in the same order whatever its neighbors have, and adds exact zeros elsewhere, so that its numbers do not depend
on theirs.
"""

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple, Protocol

from adjoin.collision.broad_phase import CHEAP, UNROLLED, Shapes, boxes_near, spheres_near, transform
from adjoin.collision.narrow_phase import NARROW_PHASE, NarrowPhase
from adjoin.collision.pairs import Pair
from adjoin.collision.point import Candidate, Point
from adjoin.collision.prisms import POINTS
from adjoin.collision.records import Records, indices_table
from adjoin.collision.shape import Shape
from adjoin.collision.terrain import Terrain
from adjoin.compiler.ir.graph import Graph, tracing
from adjoin.dynamics.state import State
from adjoin.model.model import Model
from adjoin.spatial import vector
from adjoin.spatial.scalar import Scalar, select
from adjoin.spatial.vector import Matrix3, Vector3
from adjoin.trace import (
    Scratch,
    any_environment,
    indices,
    inside,
    integer,
    loop,
    minimum,
    scratch,
    to_index,
    when,
    while_loop,
)

LANES = 16
"""The most environments that share slots: the lanes of a vector."""

MOST_PARTS = 2**31 - 1
"""How many parts of a shape are visited at most: all of them."""

TOGETHER = 4
"""Pairs whose bounding spheres are looked at together in a loop over tables."""

LISTED = 16
"""Pairs with code of their own that are looked at together, and listed if one is near: a processor that has to wait for
its instructions does so after each jump."""


class Group(NamedTuple):
    """The pairs of one pair of kinds.

    Attributes:
        phase: how they are tested.
        kinds: of the first and the second shape.
        first: the first of its pairs.
        size: how many there are.
    """

    phase: NarrowPhase
    kinds: tuple[str, str]
    first: int
    size: int

    @property
    def points(self) -> int:
        """How many points a pair can have."""
        return _points(self.phase, self.kinds) if self.phase.parts is None else POINTS


@dataclass(frozen=True)
class Candidates:
    """The pairs that can touch, in the order in which they are tested.

    Attributes:
        model: the robots and what is around them.
        pairs: in groups of one pair of kinds each.
        groups: these groups.
        max_contacts: how many contacts an environment may have.
    """

    model: Model
    pairs: tuple[Pair, ...]
    groups: tuple[Group, ...]
    max_contacts: int

    @classmethod
    def of(
        cls,
        model: Model,
        pairs: Sequence[Pair],
        max_contacts: int | None = None,
        terrain: int | None = None,
        phases: Mapping[tuple[str, str], NarrowPhase] = NARROW_PHASE,
    ) -> "Candidates":
        """Order the pairs of a model.

        Args:
            model: the robots and what is around them.
            pairs: the shapes that can touch.
            max_contacts: how many contacts an environment may have; by default what a robot and loose bodies need.
            terrain: the shape that terrain takes the place of.
            phases: how pairs of kinds are tested.
        """
        by_kinds: dict[tuple[str, str], list[Pair]] = {}
        for pair in pairs:
            a, b = ("terrain" if i == terrain else model.geometries[i].kind for i in (pair.first, pair.second))
            kinds = (a, b)
            if kinds not in NARROW_PHASE:
                pair, kinds = pair.swapped(), (kinds[1], kinds[0])
            by_kinds.setdefault(kinds, []).append(pair)
        ordered, groups = [], []
        # Sweeps visit what rests on planes last, as what carries the others.
        for kinds in sorted(NARROW_PHASE, key=lambda kinds: kinds[1] in ("plane", "terrain")):
            if kinds in by_kinds:
                groups.append(Group(phases[kinds], kinds, len(ordered), len(by_kinds[kinds])))
                ordered += by_kinds[kinds]
        loose = sum(joint.type.floating for joint in model.joints)
        room = 32 + 4 * len(model.bodies) + 8 * loose if max_contacts is None else max_contacts
        found = cls(model, tuple(ordered), tuple(groups), room)
        return replace(found, max_contacts=min(found.points, room))

    @cached_property
    def points(self) -> int:
        """How many points can touch."""
        return sum(group.size * group.points for group in self.groups)

    @cached_property
    def slots(self) -> int:
        """How many slots there are: never too few for the lanes of a vector, each of which is within its bounds."""
        return min(self.points, LANES * self.max_contacts)

    @cached_property
    def shapes(self) -> list[int]:
        """The shapes that can touch."""
        return sorted({index for pair in self.pairs for index in (pair.first, pair.second)})


Visit = Callable[[Callable[[Any, Sequence[Scalar], Any], Any], Any], Any]
"""A loop over the slots: takes what it calls for each, with its numbers and the carry; and the first carry."""


class ContactList(NamedTuple):
    """The contacts of a step, by slot.

    Attributes:
        count: how many slots are taken.
        needed: how many contacts the environment has.
        pair: which pair of the candidates, the same in all environments.
        number: which of the points of its pair.
        active: 1 where the environment has this contact, else 0.
        distance: between the surfaces, m.
        position: in the world, three numbers a slot, m.
        normal: from the second shape toward the first, three numbers a slot.
        tangent: a direction across the normal, three numbers a slot; None if nothing chose one.
    """

    count: Any
    needed: Scalar
    pair: Scratch
    number: Scratch
    active: Scratch
    distance: Scratch
    position: Scratch
    normal: Scratch
    tangent: Scratch | None

    def blank(self, width: int) -> Scratch:
        """A new array of so many numbers a slot, of which only the slots that are taken are used."""
        return scratch(width * len(self.active), checked=False, cleared=False, used=(self.count, width))

    def axes(self, slot: Any) -> Matrix3:
        """The normal of a slot and two directions across it."""
        assert self.tangent is not None
        normal, tangent = _vector(self.normal, slot), _vector(self.tangent, slot)
        return normal, tangent, vector.cross(normal, tangent)

    def point(self, slot: Any) -> Point:
        """The point of a slot."""
        return Point(self.distance[slot], _vector(self.position, slot), _vector(self.normal, slot))

    def compacted(self, size: int, visit: Visit, defaults: Sequence[float]) -> list[list[Scalar]]:
        """Numbers of the contacts that an environment has, one row each, in order; after the last come defaults.

        Args:
            size: how many rows there are.
            visit: calls `write(slot, numbers, carry)` in a loop over the slots.
            defaults: a row without a contact.
        """
        width = len(defaults)
        rows = scratch([x for _ in range(size) for x in defaults])

        def write(slot: Any, numbers: Sequence[Scalar], carry: Any) -> Any:
            rows, count = carry
            active, first = self.active[slot] > 0.5, to_index(count) * width
            for k, x in enumerate(numbers):
                rows[first + k] = select(active, x, rows[first + k])
            return rows, count + self.active[slot]

        rows, _ = visit(write, (rows, 0.0))
        return [[rows[i * width + k] for k in range(width)] for i in range(size)]


Tangent = Callable[[Shape, Any, Vector3], Vector3]
"""A direction across the normal of a contact of two shapes."""


class Reach(Protocol):
    """How near two shapes must be for a contact, m."""

    def extent(self, shape: Any) -> Scalar:
        """Return how far from its center a shape and its part of the distance reach, quickly computed."""
        ...

    def margin(self, pair: Any) -> Scalar:
        """Return how near two such spheres must be."""
        ...

    def exact(self, pair: Any, first: Any, second: Any) -> Scalar:
        """Return how near the shapes must be where these spheres meet."""
        ...


class WithinMargin:
    """Contacts of shapes that are nearer than the margin of their pair."""

    def __init__(self, pairs: Sequence[Pair], shapes: Shapes):
        self.margins, self.shapes = Records([(pair.margin,) for pair in pairs]), shapes

    def extent(self, shape: Any) -> Scalar:
        """Return the radius of the sphere around a shape."""
        return self.shapes.radii[shape][0]

    def margin(self, pair: Any) -> Scalar:
        """Return the margin."""
        return self.margins[pair][0]

    def exact(self, pair: Any, first: Any, second: Any) -> Scalar:
        """Return the margin."""
        return self.margin(pair)


def find_contacts(
    state: State, candidates: Candidates, tangent_of: Tangent | None, reach_of: Callable[[Shapes], Reach] | None = None
) -> ContactList:
    """Find the contacts of a state: those of all pairs that are near enough.

    Args:
        state: The robot.
        candidates: The pairs that can touch.
        tangent_of: Chooses a direction across each normal, if the list should have one.
        reach_of: How near is near enough, of the shapes as they are; by default the margin of each pair.
    """
    unrolled = len(candidates.pairs) <= UNROLLED
    shapes, slots = Shapes(state, candidates.shapes, unrolled), candidates.slots
    reach: Reach = WithinMargin(candidates.pairs, shapes) if reach_of is None else reach_of(shapes)
    places = [(shapes.number[pair.first], shapes.number[pair.second]) for pair in candidates.pairs]
    first, second = (indices_table(column) for column in zip(*places, strict=True))
    width = max(group.phase.features for group in candidates.groups)

    pair, number = (indices(slots, checked=False, cleared=False) for _ in range(2))
    active = scratch(slots, checked=False, cleared=False)
    feature = scratch(max(width * slots, 1), checked=False, cleared=False)
    carry: Any = (integer(0), 0.0, pair, number, active, feature)
    ends = [integer(0)]

    def is_near(index: Any, kinds: tuple[str, str]) -> tuple[Any, Any, Any]:
        """Return the places of both shapes of a pair, and whether spheres around them meet."""
        a, b = first[index], second[index]
        return a, b, spheres_near(shapes, kinds, a, b, reach.extent(a) + reach.extent(b) + reach.margin(index))

    listed = {}
    if unrolled:
        groups = [group for group in candidates.groups if group.kinds[1] != "terrain"]
        listed = dict(zip(groups, near_pairs(groups, shapes, reach, places), strict=True))

    for group in candidates.groups:

        def visit(index: Any, carry: Any, group: Group = group) -> Any:
            """Claim slots for the points of a pair, if it is near."""
            a, b, near = is_near(index, group.kinds)

            def margin_inside() -> Scalar:
                # Read and computed inside of the branch, not before it.
                return reach.exact(inside(index), inside(a), inside(b))

            def test(carry: Any, near: Any, margin: Scalar) -> Any:
                one, other = (shapes.shape(kind, inside(i)) for kind, i in zip(group.kinds, (a, b), strict=True))

                def claim_all(found: Sequence[Candidate], carry: Any, near: Any) -> Any:
                    for k, candidate in enumerate(found):
                        touches = near & (candidate.distance < margin)

                        def claim(
                            carry: Any, touches: Any = touches, candidate: Any = candidate, which: int = k
                        ) -> Any:
                            count, needed, pair, number, active, feature = carry
                            mark = select(touches, 1.0, 0.0)
                            pair[count] = index
                            number[count] = which
                            active[count] = mark
                            for k, x in enumerate(candidate.feature):
                                feature[count * width + k] = x
                            return count + 1, needed + mark, pair, number, active, feature

                        room = carry[0] < slots
                        carry = when(any_environment(touches) & room, claim, carry, detached=True)
                    return carry

                if group.phase.parts is None:
                    return claim_all(group.phase.search_within(one, other, margin), carry, near)
                parts, before = group.phase.parts(one, other, margin), carry[1]

                def visit_part(_: Any, carry: Any) -> Any:
                    number, carry = carry
                    left = near & (number < parts.count) & (carry[1] - before < POINTS)
                    found = group.phase.search(one, other, parts, number)
                    return number + 1.0, claim_all(found, carry, left)

                def goes_on(carry: Any) -> Any:
                    return any_environment(near & (carry[0] < parts.count))

                return while_loop(goes_on, visit_part, (0.0, carry), MOST_PARTS)[1]

            if group.kinds in CHEAP or group.kinds[1] == "terrain":
                return when(
                    any_environment(near), lambda carry: test(carry, near, margin_inside()), carry, detached=True
                )

            def test_boxes(carry: Any) -> Any:
                margin = margin_inside()
                boxes = inside(near) & boxes_near(shapes, group.kinds, inside(a), inside(b), margin)
                return when(any_environment(boxes), lambda carry: test(carry, boxes, margin), carry, detached=True)

            return when(any_environment(near), test_boxes, carry, detached=True)

        def visit_several(block: Any, carry: Any, group: Group = group, visit: Any = visit) -> Any:
            """Look at several pairs at once, of which most are far, so that they wait for memory together."""
            start, last = group.first + block * TOGETHER, group.first + group.size - 1
            near: Any = False
            for k in range(TOGETHER):
                near = is_near(minimum(start + k, integer(last)), group.kinds)[2] | near

            def each(carry: Any) -> Any:
                count = minimum(integer(last + 1) - inside(start), integer(TOGETHER))
                return loop(count, lambda k, carry: visit(start + k, carry), carry, at_most=TOGETHER, detached=True)

            return when(any_environment(near), each, carry, detached=True)

        if group in listed:
            count, near = listed[group]
            carry = loop(
                count, lambda i, carry, v=visit, near=near: v(near[i], carry), carry, at_most=group.size, detached=True
            )
        elif group.size >= 2 * TOGETHER:
            carry = loop(-(-group.size // TOGETHER), visit_several, carry, detached=True)
        else:
            carry = loop(group.size, lambda i, carry, g=group, v=visit: v(g.first + i, carry), carry, detached=True)
        ends.append(carry[0])
    count, needed, pair, number, active, feature = carry

    widths = (1, 3, 3) if tangent_of is None else (1, 3, 3, 3)
    found: Any = tuple(scratch(n * slots, checked=False, cleared=False, used=(count, n)) for n in widths)
    for group, begin, end in zip(candidates.groups, ends, ends[1:], strict=False):

        def evaluate(i: Any, arrays: Any, group: Group = group, begin: Any = begin) -> Any:
            distance, *vectors = arrays
            slot = begin + i
            index = pair[slot]
            one, other = shapes.shape(group.kinds[0], first[index]), shapes.shape(group.kinds[1], second[index])
            point = group.phase.evaluate(one, other, [feature[slot * width + k] for k in range(group.phase.features)])
            distance[slot] = point.distance
            parts = [point.position, point.normal]
            if tangent_of is not None:
                parts.append(tangent_of(one, other, point.normal))
            for array, values in zip(vectors, parts, strict=True):
                for k in range(3):
                    array[slot * 3 + k] = values[k]
            return distance, *vectors

        most = min(slots, group.size * group.points)
        found = loop(end - begin, evaluate, found, at_most=most)
    distance, position, normal, *tangent = found
    return ContactList(count, needed, pair, number, active, distance, position, normal, tangent[0] if tangent else None)


class _Inside:
    """Where shapes are, for code in the body that is being traced."""

    def __init__(self, shapes: Shapes):
        self._shapes = shapes

    def center(self, i: int) -> Vector3:
        """See `Shapes`."""
        return vector.vector3([inside(x) for x in self._shapes.center(i)])

    def axis(self, i: int) -> Vector3:
        """See `Shapes`."""
        return vector.vector3([inside(x) for x in self._shapes.axis(i)])


def near_pairs(
    groups: Sequence[Group], shapes: Shapes, reach: Reach, places: Sequence[tuple[int, int]]
) -> list[tuple[Any, Scratch]]:
    """List the pairs of each group that are near, by code for each: what it needs is in registers, not in tables.

    Returns:
        For each group how many pairs there are, and which.
    """
    here: Any = _Inside(shapes)

    def is_near(index: int, kinds: tuple[str, str]) -> Any:
        a, b = places[index]
        within = inside(reach.extent(a)) + inside(reach.extent(b)) + inside(reach.margin(index))
        return spheres_near(here, kinds, a, b, within)

    def test(_: Any, carry: Any) -> Any:
        lists = []
        for group, found in zip(groups, carry, strict=True):
            last = group.first + group.size
            for start in range(group.first, last, LISTED):
                block = range(start, min(start + LISTED, last))
                near = [is_near(index, group.kinds) for index in block]

                def claim(found: Any, block: range = block, near: list[Any] = near) -> Any:
                    count, pairs = found
                    for index, meets in zip(block, near, strict=True):
                        pairs[count] = index  # the next one takes its place unless it is counted
                        count = select(any_environment(inside(meets)), count + 1, count)
                    return count, pairs

                found = when(any_environment(functools.reduce(operator.or_, near)), claim, found, detached=True)
            lists.append(found)
        return lists

    blank = [(integer(0), indices(group.size, checked=False, cleared=False)) for group in groups]
    return loop(1, test, blank, detached=True)


@cache
def _points(phase: NarrowPhase, kinds: tuple[str, str]) -> int:
    """How many points two kinds of shapes can have."""
    with tracing(graph := Graph()):
        numbers = [graph.fresh("input", (), (0, i)) for i in range(15)]
        corners = ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
        a, b = (Shape(kind, vector.vector3(numbers[:3]), transform(numbers[3:]), corners) for kind in kinds)  # type: ignore[arg-type]
        if kinds[1] == "terrain":
            b = Terrain(vector.ZERO, (1.0, 1.0), 2, 2, lambda row, column: numbers[0])
        return len(phase.search_within(a, b, 0.0))


def _vector(array: Scratch, slot: Any) -> Vector3:
    return vector.vector3([array[slot * 3 + k] for k in range(3)])
