"""The rows of contacts that are a list: motions at a contact, and forces of it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from adjoin.collision.contact_list import Candidates
from adjoin.collision.records import Records, indices_table
from adjoin.constraints import motions as world
from adjoin.constraints.motions import Motions
from adjoin.constraints.rows import basis
from adjoin.constraints.solver import Scene
from adjoin.dynamics.robot import Robot
from adjoin.model.parts import WORLD
from adjoin.spatial import vector
from adjoin.spatial.motion import Spatial
from adjoin.spatial.scalar import Scalar
from adjoin.spatial.vector import Matrix3, Vector3
from adjoin.trace import Scratch, loop, select

TILE = 4
"""Entries of a chain that are worked on at once: what one needs from memory is under way while others wait."""


class Chains(NamedTuple):
    """For each pair of candidates, the directions of motion that move its shapes against each other.

    Attributes:
        start: of each pair, its first entry.
        length: how many it has.
        direction: of each entry, which direction of `Motions`.
        dof: its coordinate, ascending within a chain.
        sign: 1 if it moves the first shape, -1 for the second.
        longest: the most that a pair has.
        body: of each pair, the shape's body that moves if the other does not; else the world.

    After the entries of a pair come others of sign 0, up to a multiple of `TILE`.
    """

    start: Sequence[int]
    length: Sequence[int]
    direction: Sequence[int]
    dof: Sequence[int]
    sign: Sequence[float]
    longest: int
    body: Sequence[int]


def chains(robot: Robot, candidates: Candidates) -> Chains:
    """The chains of all pairs; pairs of the same two bodies share one."""
    places: dict[int, list[tuple[int, int]]] = {}
    count = 0
    for body, subspace in enumerate(robot.subspaces):
        places[body] = [(count + k, dof) for k, (dof, _) in enumerate(subspace)]
        count += len(subspace)
    known: dict[tuple[int, int], tuple[int, int, int]] = {}
    entries: list[tuple[int, int, float]] = []
    shapes = robot.model.geometries
    both = [(shapes[pair.first].body, shapes[pair.second].body) for pair in candidates.pairs]
    for bodies in both:
        if bodies not in known:
            ways = [robot.ancestors(body) for body in bodies]
            own = []
            for way, other, sign in ((ways[0], ways[1], 1.0), (ways[1], ways[0], -1.0)):
                own += [(dof, direction, sign) for body in way if body not in other for direction, dof in places[body]]
            own.sort()
            moving = [body for body, way in zip(bodies, ways, strict=True) if any(places[other] for other in way)]
            known[bodies] = (len(entries), len(own), moving[0] if len(moving) == 1 else WORLD)
            filling = -len(own) % TILE
            entries += [(direction, dof, sign) for dof, direction, sign in own]
            entries += [(direction, dof, 0.0) for dof, direction, _ in own[-1:] * filling]
    rows = [known[bodies] for bodies in both]
    entries = entries or [(0, 0, 0.0)]
    direction, dof, sign = (list(column) for column in zip(*entries, strict=True))
    starts, lengths, body = (list(column) for column in zip(*rows, strict=True))
    return Chains(starts, lengths, direction, dof, sign, max(lengths), body)


class ContactFrame(NamedTuple):
    """A contact of the list.

    Attributes:
        slot: its place in the list.
        pair: which pair of the candidates.
        axes: its normal, then two directions across.
        position: in the world, m.
    """

    slot: Any
    pair: Any
    axes: Matrix3
    position: Vector3

    def in_world(self, force: Sequence[Scalar]) -> tuple[Vector3, Vector3]:
        """The force of its rows and the moment about its point, in world axes."""
        parts = []
        for own in (force[:3], force[3:]):
            total = vector.ZERO
            for strength, axis in zip(own, self.axes, strict=False):
                total = vector.add(total, vector.scale(strength, axis))
            parts.append(total)
        return parts[0], parts[1]


class ContactRows:
    """The contacts of a step: along the normal, across it, about it and about the directions across.

    Args:
        scene: the robot and what touches.

    Attributes:
        rows: the most that a contact has.
    """

    def __init__(self, scene: Scene):
        assert scene.contacts is not None
        self.state, self.candidates, self.contacts = scene.state, scene.candidates, scene.contacts
        robot, pairs = scene.state.robot, scene.candidates.pairs
        bodies = [tuple(robot.model.geometries[i].body for i in (pair.first, pair.second)) for pair in pairs]
        carriers = sorted({body for both in bodies for body in both})
        self.motions = Motions(scene.state, carriers)
        self.velocities = self.motions.twist_array(scene.state.v)
        self.first, self.second = (indices_table([carriers.index(both[k]) for both in bodies]) for k in (0, 1))
        self.rows = max(pair.condim for pair in pairs)
        self.present = Records([[1.0 if j < pair.condim else 0.0 for j in range(1, 6)] for pair in pairs])
        self.margin = Records([(pair.margin,) for pair in pairs])
        friction = robot.numbers("geometry_friction")
        self.friction = Records([pair.coefficients(friction) for pair in pairs])
        self.chains = table = chains(robot, scene.candidates)
        self.start, self.length, self.direction, self.dof = map(indices_table, table[:4])
        self.sign = Records([(x,) for x in table.sign])

    def each(self, act: Callable[[ContactFrame, Any], Any], carry: Any, detached: bool = False) -> Any:
        """Run `carry = act(contact, carry)` for all contacts."""

        def body(slot: Any, carry: Any) -> Any:
            return act(self.contact(slot), carry)

        return loop(self.contacts.count, body, carry, at_most=self.candidates.slots, detached=detached)

    def contact(self, slot: Any) -> ContactFrame:
        """Return a contact of the list, with directions across its normal that the list or `basis` chose."""
        point = self.contacts.point(slot)
        axes = basis(point.normal) if self.contacts.tangent is None else self.contacts.axes(slot)
        return ContactFrame(slot, self.contacts.pair[slot], axes, point.position)

    def masked(self, slot: Any) -> tuple[ContactFrame, Any]:
        """Return a contact whose axes are zero in environments that do not have it, and where they do."""
        contact, active = self.contact(slot), self.contacts.active[slot] > 0.5

        def only(values: Vector3) -> Vector3:
            return vector.vector3([select(active, x, 0.0) for x in values])

        first, second, third = (only(axis) for axis in contact.axes)
        return contact._replace(axes=(first, second, third), position=only(contact.position)), active

    def present_rows(self, pair: Any) -> list[Scalar]:
        """Return 1 for each row that a pair has, else 0."""
        return [1.0, *self.present[pair]][: self.rows]

    def coefficients(self, pair: Any) -> list[Scalar]:
        """Return the friction coefficients of a pair; 0 for rows that it does not have."""
        return [c * p for c, p in zip(self.friction[pair], self.present[pair], strict=True)][: self.rows - 1]

    def project(self, axes: Matrix3, motion: Spatial) -> list[Scalar]:
        """Along the rows of a contact: (angular, linear) motion at its point."""
        angular, linear = motion
        parts = [linear, linear, linear, angular, angular, angular][: self.rows]
        return [vector.dot(axes[k % 3], part) for k, part in enumerate(parts)]

    def rates(self, contact: ContactFrame, twists: Scratch) -> list[Scalar]:
        """The motion of the first body against the second, along the rows."""
        first, second = self.first[contact.pair], self.second[contact.pair]
        return self.project(contact.axes, world.relative(twists, first, second, contact.position))

    def add_wrench(self, wrenches: Scratch, contact: ContactFrame, force: Sequence[Scalar]) -> None:
        """Add the force of a contact to the wrenches on its bodies."""
        push, moment = contact.in_world(force)
        wrench = (vector.add(moment, vector.cross(contact.position, push)), push)
        world.add(wrenches, self.first[contact.pair], wrench)
        world.add(wrenches, self.second[contact.pair], wrench, -1.0)

    def column(self, contact: ContactFrame, place: Any) -> list[Scalar]:
        """The rows of J in the coordinate of one entry of the chains."""
        sign = self.sign[place][0]
        return [sign * x for x in self.along(contact, self.direction[place])]

    def along(self, contact: ContactFrame, direction: Any) -> list[Scalar]:
        """How a direction of `Motions` moves a contact along its rows."""
        angular, linear = world.read(self.motions.direction_array, direction)
        moving = vector.add(linear, vector.cross(angular, contact.position))
        return self.project(contact.axes, (angular, moving))
