"""The matrix of a step in which contacts act: that of joints and other constraints, and Jᵀ S J of every contact.

Contacts with what does not move leave it as sparse as the tree is; see `BodyStiffness`. Where an environment has
contacts between bodies that both move, it is solved as a dense matrix.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from adjoin.collision.records import indices_table
from adjoin.compiler.ir import pytree
from adjoin.constraints.body_stiffness import BodyStiffness
from adjoin.constraints.contact_rows import TILE, ContactFrame, ContactRows
from adjoin.constraints.packed import Envelope, Packed
from adjoin.dynamics.linear import Factor, Rows, dot
from adjoin.model.parts import WORLD
from adjoin.spatial.scalar import Scalar
from adjoin.trace import Scratch, inside, loop, minimum, scratch, select, when

Respond = Callable[[ContactFrame], tuple[Sequence[Scalar], Sequence[Sequence[Scalar]]]]
"""Force and stiffness of a contact: one scalar a row, and the lower half of a symmetric matrix."""

Solve = Callable[[Sequence[Scalar]], list[Scalar]]


class ContactMatrix:
    """What contacts add to the equations of a step.

    Args:
        contacts: of the step.
        filled: places (row, column) of the lower half of the matrix that have numbers without contacts.
    """

    def __init__(self, contacts: ContactRows, filled: Collection[tuple[int, int]]):
        self.contacts, self.table = contacts, contacts.chains
        bodies = sorted({body for body in self.table.body if body != WORLD})
        self.stiffness = BodyStiffness(contacts.motions, bodies)
        self.place = indices_table([bodies.index(body) if body != WORLD else -1 for body in self.table.body])
        self.envelope = None
        if WORLD in self.table.body:
            self.tiles = indices_table([-(-length // TILE) for length in self.table.length])
            self.most_tiles = -(-self.table.longest // TILE)
            self.line = indices_table([dof * (dof + 1) // 2 for dof in self.table.dof])
            self.envelope = self._envelope(filled)

    def assemble(self, rows: Rows, respond: Respond, detached: bool = False) -> tuple[list[Scalar], Solve]:
        """Return the generalized forces of all contacts, and what solves with the matrix that they add to.

        Args:
            rows: the lower half of the matrix without contacts.
            respond: what a contact does.
            detached: whether the results are constants to every derivative.
        """
        contacts, bodies = self.contacts, self.stiffness

        def act(contact: ContactFrame, carry: Any) -> Any:
            wrenches, array, coupled = carry
            force, stiffness = respond(contact)
            contacts.add_wrench(wrenches, contact, force)
            place = self.place[contact.pair]

            def add(array: Scratch) -> Scratch:
                bodies.add(array, *pytree.transform(inside, (place, contact, stiffness)))
                return array

            array = when(place >= 0 if self.envelope is not None else True, add, array)
            return wrenches, array, coupled + select(place < 0, contacts.contacts.active[contact.slot], 0.0)

        def add_all(_: Any) -> Any:
            carry = contacts.motions.wrench_array(), bodies.array(), 0.0
            wrenches, array, coupled = contacts.each(act, carry, detached)
            return contacts.motions.generalized(wrenches), bodies.entries(array), coupled

        nothing = [0.0] * len(rows), [0.0] * len(bodies.places), 0.0
        forces, added, coupled = when(contacts.contacts.count > 0, add_all, nothing, detached=detached)
        rows = [list(row) for row in rows]
        for (i, j), x in zip(bodies.places, added, strict=True):
            rows[i][j] = rows[i][j] + x

        def solve(right: Sequence[Scalar]) -> list[Scalar]:
            if self.envelope is None:
                return Factor(rows).solve(right)
            system = rows, right

            def sparse(_: Any) -> list[Scalar]:
                rows, right = pytree.transform(inside, system)
                return Factor(rows).solve(right)

            def dense(_: Any) -> list[Scalar]:
                rows, right = pytree.transform(inside, system)
                return self._packed(rows, respond).solve(right)

            return when(coupled > 0.5, dense, when(coupled < 0.5, sparse, [0.0] * len(rows)))

        return forces, solve

    def _packed(self, rows: Rows, respond: Respond) -> Packed:
        """Return the matrix with the contacts between bodies that both move."""
        assert self.envelope is not None
        packed = Packed(rows, self.envelope)

        def act(slot: Any, entries: Scratch) -> Scratch:
            def add(entries: Scratch) -> Scratch:
                contact = self.contacts.contact(inside(slot))
                _, stiffness = respond(contact)
                return self._add_stiffness(entries, contact, stiffness)

            return when(self.place[self.contacts.contacts.pair[slot]] < 0, add, entries)

        packed.entries = self._each_slot(act, packed.entries)
        return packed

    def _each_slot(self, act: Callable[[Any, Any], Any], carry: Any, detached: bool = False) -> Any:
        contacts = self.contacts
        return loop(contacts.contacts.count, act, carry, at_most=contacts.candidates.slots, detached=detached)

    def _envelope(self, filled: Collection[tuple[int, int]]) -> Envelope:
        """Return where the matrix may have numbers."""
        contacts, own = self.contacts, {(i, j) for line in self._grounded() for i in line for j in line}
        envelope = Envelope(contacts.state.robot.nv, {*filled, *own})

        def widen(slot: Any, begin: Scratch) -> Scratch:
            pair = contacts.contacts.pair[slot]

            def entries(begin: Scratch) -> Scratch:
                start = contacts.start[inside(pair)]
                first = envelope.tile[contacts.dof[start]]

                def entry(step: Any, begin: Scratch) -> Scratch:
                    row = envelope.tile[contacts.dof[start + step]]
                    begin[row] = minimum(begin[row], first)
                    return begin

                return loop(contacts.length[inside(pair)], entry, begin, at_most=self.table.longest, detached=True)

            return when(self.place[pair] < 0, entries, begin, detached=True)

        envelope.begin = self._each_slot(widen, envelope.begin, detached=True)
        return envelope

    def _grounded(self) -> list[list[int]]:
        """Return the coordinates of each pair of which one body does not move."""
        table = self.table
        return [
            table.dof[start : start + length]  # pyright: ignore[reportReturnType]
            for start, length, body in zip(table.start, table.length, table.body, strict=True)
            if body != WORLD
        ]

    def _add_stiffness(self, entries: Scratch, contact: ContactFrame, stiffness: Sequence[Sequence[Scalar]]) -> Scratch:
        """Add Jᵀ S J to the lower half of a matrix, where S is the lower half of a symmetric one."""
        contacts, rows = self.contacts, self.contacts.rows
        begin, tiles = contacts.start[contact.pair], self.tiles[contact.pair]
        columns = scratch(2 * rows * TILE * self.most_tiles, checked=False, cleared=False)

        def tile_columns(tile: Any, columns: Scratch) -> Scratch:
            first = tile * TILE
            jacobians = [contacts.column(contact, begin + first + k) for k in range(TILE)]
            for k, jacobian in enumerate(jacobians):
                for r in range(rows):
                    line = [stiffness[max(r, s)][min(r, s)] for s in range(rows)]
                    columns[(first * (2 * rows)) + (k * 2 * rows + r)] = jacobian[r]
                    columns[(first * (2 * rows)) + (k * 2 * rows + rows + r)] = dot(line, jacobian)
            return columns

        columns = loop(tiles, tile_columns, columns, at_most=self.most_tiles)

        def read(tile: Any, side: int) -> list[list[Scalar]]:
            first = tile * (TILE * 2 * rows)
            return [[columns[first + (k * 2 * rows + side + r)] for r in range(rows)] for k in range(TILE)]

        def add_tile(entries: Scratch, upper: Any, lower: Any, same: bool) -> None:
            """Add the products of two tiles of columns; of one tile with itself only the lower half."""
            pulled, pushed = read(upper, rows), read(lower, 0)
            lines = [self.line[begin + upper * TILE + i] for i in range(TILE)]
            dofs = [contacts.dof[begin + lower * TILE + j] for j in range(TILE)]
            own = [contacts.dof[begin + upper * TILE + i] for i in range(TILE)]
            for i in range(TILE):
                for j in range(i + 1 if same else TILE):
                    value = dot(pulled[i], pushed[j])
                    if contacts.state.robot.coupled and not (same and i == j):  # a coordinate may be in a chain twice
                        value = select(own[i] == dofs[j], 2.0 * value, value)
                    entries.add(lines[i] + dofs[j], value)

        def line(upper: Any, entries: Scratch) -> Scratch:
            def tile(lower: Any, entries: Scratch) -> Scratch:
                add_tile(entries, upper, lower, same=False)
                return entries

            entries = loop(upper, tile, entries, at_most=self.most_tiles)
            add_tile(entries, upper, upper, same=True)
            return entries

        return loop(tiles, line, entries, at_most=self.most_tiles)
