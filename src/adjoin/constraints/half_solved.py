"""The rows of listed contacts for Gauss-Seidel: half-solved by the factor of H, so that a product of two is an entry of
J H⁻¹ Jᵀ.

With H = Lᵀ D L, the half-solved row is L⁻ᵀ Jᵀ over the roots of D. It has numbers only for the coordinates on the ways
of the two bodies to the root, common ancestors included. These are its chain, which has a fixed length: the shorter
ones end in entries for a coordinate that does not exist, which are zero.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from adjoin.collision.records import Records, indices_table
from adjoin.constraints.blocks import ContactBlock, Row, UnilateralBlock, gains
from adjoin.constraints.contact_model import ContactModel
from adjoin.constraints.contact_rows import ContactFrame, ContactRows
from adjoin.constraints.solver import FreeMotion, Scene
from adjoin.dynamics.linear import Factor, dot, is_zero
from adjoin.dynamics.robot import Robot
from adjoin.spatial.scalar import Scalar
from adjoin.trace import Scratch, scratch, select

APART = 1.0
"""How far from touching a contact is in environments that do not have it, m: too far for an impulse."""

HELD = 1e-10
"""The least inverse mass along its normal, over that of the whole robot, with which a contact has an impulse: with
less, as that of a slider and a wall along its rail, only rounding moves it along the normal."""


class UnionChains(NamedTuple):
    """For each pair of candidates, the coordinates whose velocities its half-solved rows read, from the last on.

    Attributes:
        chain: Of each pair, which of the chains.
        dofs: Of each chain its coordinates; nv where it has ended.
        directions: Of each of these the directions of `Motions` that move the shapes against each other, and their
            signs; 0 for those that do not.
    """

    chain: list[int]
    dofs: list[list[int]]
    directions: list[list[list[tuple[int, float]]]]

    @property
    def length(self) -> int:
        """Return the length of every chain."""
        return len(self.dofs[0])


def union_chains(robot: Robot, bodies: Sequence[tuple[int, int]], lower: Sequence[Sequence[Scalar]]) -> UnionChains:
    """Find the chains of pairs of bodies; pairs of the same bodies share one.

    Args:
        robot: The robot.
        bodies: Of each pair.
        lower: L, whose structural zeros are the number 0.
    """
    places: list[list[tuple[int, int]]] = []
    count = 0
    for subspace in robot.subspaces:
        places.append([(dof, count + k) for k, (dof, _) in enumerate(subspace)])
        count += len(subspace)
    distinct = list(dict.fromkeys(bodies))
    chains: list[dict[int, list[tuple[int, float]]]] = []
    for pair in distinct:
        ways = [robot.ancestors(body) for body in pair]
        moving: dict[int, list[tuple[int, float]]] = {}
        for way, other, sign in ((ways[0], ways[1], 1.0), (ways[1], ways[0], -1.0)):
            for dof, direction in [place for body in way if body not in other for place in places[body]]:
                moving.setdefault(dof, []).append((direction, sign))
        for dof in reversed(range(robot.nv)):
            if dof in moving:
                for ancestor, entry in enumerate(lower[dof]):
                    if not is_zero(entry):
                        moving.setdefault(ancestor, [])
        chains.append(moving)
    longest = max(map(len, chains))
    most = max((len(directions) for chain in chains for directions in chain.values()), default=1)
    dofs, directions = [], []
    for chain in chains:
        own = sorted(chain, reverse=True)
        padding = longest - len(own)
        dofs.append([*own, *[robot.nv] * padding])
        padded = [[*chain[dof], *[(0, 0.0)] * (most - len(chain[dof]))] for dof in own]
        directions.append([*padded, *[[(0, 0.0)] * most] * padding])
    return UnionChains([distinct.index(pair) for pair in bodies], dofs, directions)


class HalfSolvedContact(NamedTuple):
    """What sweeps read of a contact.

    Attributes:
        rows: Its half-solved rows, each as long as a chain.
        dofs: The coordinates of the chain.
        offsets: u of each row, if the velocity did not change.
        gains: By how much the impulse of each row changes for a unit of u.
        own: Its part of J H⁻¹ Jᵀ.
        block: How its impulses are bounded.
    """

    rows: list[list[Scalar]]
    dofs: list[Any]
    offsets: list[Scalar]
    gains: list[Scalar]
    own: list[list[Scalar]]
    block: ContactBlock | UnilateralBlock

    def speeds(self, velocity: Scratch) -> list[Scalar]:
        """Return u of each row at a half-solved velocity, without softness."""
        along = [velocity[dof] for dof in self.dofs]
        return [offset + dot(row, along) for offset, row in zip(self.offsets, self.rows, strict=True)]

    def push(self, velocity: Scratch, impulses: Sequence[Scalar]) -> None:
        """Add impulses to a half-solved velocity."""
        for dof, *column in zip(self.dofs, *self.rows, strict=True):
            velocity.add(dof, dot(column, impulses))


class HalfSolvedContacts(ContactRows):
    """Listed contacts with half-solved rows, in one array.

    Args:
        solver: The constants of contact.
        scene: The robot and what touches.
        free: The step without constraints.
        factor: Of H.
        detached: Whether no derivative passes through the rows.
    """

    def __init__(self, solver: ContactModel, scene: Scene, free: FreeMotion, factor: Factor, detached: bool):
        super().__init__(scene)
        self.solver, self.free = solver, free
        robot, pairs = self.state.robot, self.candidates.pairs
        shapes = robot.model.geometries
        bodies = [(shapes[pair.first].body, shapes[pair.second].body) for pair in pairs]
        chains = union_chains(robot, bodies, factor.lower)
        self.chain_length, self.nv = chains.length, robot.nv
        self.chain = indices_table(chains.chain)
        self.chain_dofs = indices_table([dof for dofs in chains.dofs for dof in dofs])
        parts = [part for chain in chains.directions for entry in chain for part in entry]
        self.parts_an_entry = len(chains.directions[0][0]) if chains.length else 0
        self.chain_directions = indices_table([direction for direction, _ in parts])
        self.chain_signs = Records([(sign,) for _, sign in parts])
        filled = [(i, j) for i, row in enumerate(factor.lower) for j, entry in enumerate(row) if not is_zero(entry)]
        places, size = {place: k for k, place in enumerate(filled, 1)}, range(robot.nv + 1)
        self.lower_places = indices_table([places.get((i, j), 0) for i in size for j in size])
        self.lower, self.roots = self.entries_of(factor)
        self.softness = solver.softness / free.mass
        self.width = self.rows * (self.chain_length + 2) + self.rows * (self.rows + 1) // 2
        self.may_be_held = any(not _floats(robot, *pair) for pair in bodies)
        blank = (self.contacts.blank(self.width),)
        if self.may_be_held:
            blank = (*blank, self.contacts.blank(1))
        self.data, *self.held = self.each(self._prepare, blank, detached)

    def entries_of(self, factor: Factor) -> tuple[Scratch, Scratch]:
        """Return the entries of L, after a zero, and the roots of D⁻¹, in arrays."""
        entries = [entry for row in factor.lower for entry in row if not is_zero(entry)]
        return scratch([0.0, *entries], checked=False), scratch([*factor.roots, 0.0], checked=False)

    def gains(self, slot: Any) -> list[Scalar]:
        """Return by how much the impulse of each row of a contact changes for a unit of u."""
        first = slot * self.width + self.rows * (self.chain_length + 1)
        return [self.data[first + k] for k in range(self.rows)]

    def away(self, slot: Any) -> Scalar:
        """Return what keeps a contact apart that nothing moves along its normal; 0 for others."""
        return self.held[0][slot] if self.may_be_held else 0.0

    def offsets(self, contact: ContactFrame, active: Any, away: Scalar) -> list[Scalar]:
        """Return u of each row of a contact, if the velocity did not change."""
        present = self.present_rows(contact.pair)
        speeds = [x * p for x, p in zip(self.rates(contact, self.velocities), present, strict=True)]
        gap = select(active, self.contacts.distance[contact.slot] - self.margin[contact.pair][0], APART)
        return [speeds[0] + self.solver.approach(gap, speeds[0], self.free.dt) + away, *speeds[1:]]

    def block(self, pair: Any) -> ContactBlock | UnilateralBlock:
        """Return how the impulses of a pair are bounded."""
        rows = (Row((), 0.0),) * self.rows
        if self.rows == 1:
            return UnilateralBlock(rows)
        return ContactBlock(rows, tuple(self.coefficients(pair)), bool(self.solver.elliptic))

    def dofs(self, pair: Any) -> list[Any]:
        """Return the coordinates of the chain of a pair."""
        first = self.chain[pair] * self.chain_length
        return [self.chain_dofs[first + k] for k in range(self.chain_length)]

    def jacobian(self, contact: ContactFrame) -> list[list[Scalar]]:
        """Return the columns of J of a contact, along its chain."""
        first = self.chain[contact.pair] * (self.chain_length * self.parts_an_entry)
        present, columns = self.present_rows(contact.pair), []
        for k in range(self.chain_length):
            column: list[Scalar] = [0.0] * self.rows
            for m in range(self.parts_an_entry):
                place = first + (k * self.parts_an_entry + m)
                moved = self.along(contact, self.chain_directions[place])
                sign = self.chain_signs[place][0]
                column = [x + sign * y for x, y in zip(column, moved, strict=True)]
            columns.append([x * p for x, p in zip(column, present, strict=True)])
        return columns

    def half_solve(
        self, columns: list[list[Scalar]], dofs: Sequence[Any], lower: Scratch, roots: Scratch
    ) -> list[list[Scalar]]:
        """Return the half-solved rows of columns of J along a chain."""
        columns = [list(column) for column in columns]
        for a, dof in enumerate(dofs):
            line = dof * (self.nv + 1)
            for b in range(a + 1, len(dofs)):
                entry = lower[self.lower_places[line + dofs[b]]]
                columns[b] = [x - entry * y for x, y in zip(columns[b], columns[a], strict=True)]
        scales = [roots[dof] for dof in dofs]
        scaled = [[x * scale for x in column] for column, scale in zip(columns, scales, strict=True)]
        return [list(row) for row in zip(*scaled, strict=True)] if scaled else [[] for _ in range(self.rows)]

    def _prepare(self, original: ContactFrame, arrays: tuple[Scratch, ...]) -> tuple[Scratch, ...]:
        data, *held = arrays
        slot, pair = original.slot, original.pair
        contact, active = self.masked(slot)
        rows = self.half_solve(self.jacobian(contact), self.dofs(pair), self.lower, self.roots)
        own = [[dot(a, b) for b in rows[: i + 1]] for i, a in enumerate(rows)]
        away: Scalar = 0.0
        if self.may_be_held:  # it is not read again from the array, which the adjoint of this loop would have to keep
            held[0][slot] = away = select(own[0][0] * self.free.mass > HELD, 0.0, APART / self.free.dt)
        present, offsets = self.present_rows(pair), self.offsets(contact, active, away)
        # A row that is not there has a zero on the diagonal, and an impulse of 0 whatever its gain.
        full = [[own[max(i, k)][min(i, k)] for k in range(self.rows)] for i in range(self.rows)]
        for i in range(self.rows):
            full[i][i] = full[i][i] + self.softness + select(active, 1.0 - present[i], 1.0)
        gain = gains(self.block(pair), full)
        numbers = [x for row in rows for x in row] + offsets + gain + [x for row in own for x in row]
        for k, x in enumerate(numbers):
            data[slot * self.width + k] = x
        return data, *held

    def half_solved(self, slot: Any) -> HalfSolvedContact:
        """Return a contact for a sweep."""
        pair, first, length = self.contacts.pair[slot], slot * self.width, self.chain_length
        numbers = iter(range(self.width))

        def take(count: int) -> list[Scalar]:
            return [self.data[first + next(numbers)] for _ in range(count)]

        rows = [take(length) for _ in range(self.rows)]
        offsets, gain = take(self.rows), take(self.rows)
        lower = [take(i + 1) for i in range(self.rows)]
        own = [[lower[max(i, k)][min(i, k)] for k in range(self.rows)] for i in range(self.rows)]
        return HalfSolvedContact(rows, self.dofs(pair), offsets, gain, own, self.block(pair))


def _floats(robot: Robot, first: int, second: int) -> bool:
    """Whether one of two bodies moves freely against the other, so that no direction is closed to them."""
    ways = [robot.ancestors(body) for body in (first, second)]
    apart = set(ways[0]) ^ set(ways[1])
    return any(robot.joint(body).type.floating for body in apart)
