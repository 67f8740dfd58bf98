"""Impulses that a step hands to the next, by the identity of their contacts.

A contact is the same as in the step before if it is the same point of the same pair. Both lists are in the order of
these identities, so that one pass over both finds what they share.
"""

from collections.abc import Callable, Sequence
from typing import Any

from adjoin.collision.contact_list import Candidates, ContactList
from adjoin.spatial.scalar import Scalar
from adjoin.trace import loop, scratch, select, to_float, to_index, while_loop

POINTS = 8
"""No pair has more points."""


def warm_size(candidates: Candidates) -> int:
    """Return how many numbers a step hands on: of each contact its identity and its impulses."""
    return candidates.max_contacts * (1 + max(pair.condim for pair in candidates.pairs))


def _identity(contacts: ContactList, slot: Any) -> Scalar:
    """A positive number for each point that can touch."""
    return to_float(contacts.pair[slot] * POINTS + contacts.number[slot]) + 1.0


def handed_on(
    contacts: ContactList, size: int, rows: int, visit: Callable[..., Any], impulses: Callable[[Any], Sequence[Scalar]]
) -> list[Scalar]:
    """Return what a step hands on: rows of an identity and impulses, then zeros.

    Args:
        contacts: The contacts.
        size: How many there may be.
        rows: Of a contact.
        visit: Calls `write(slot, carry)` in a loop over the slots.
        impulses: Of a slot.
    """

    def write_all(write: Callable[..., Any], carry: Any) -> Any:
        return visit(lambda slot, carry: write(slot, [_identity(contacts, slot), *impulses(slot)], carry), carry)

    return [x for row in contacts.compacted(size, write_all, [0.0] * (1 + rows)) for x in row]


def impulses_before(
    contacts: ContactList, slots: int, rows: int, before: Sequence[Scalar], share: Scalar
) -> Callable[[Any], list[Scalar]]:
    """Return the impulses to begin with, as a function of the slot: 0 for a contact that was not there.

    Args:
        contacts: The contacts.
        slots: How many slots there are.
        rows: Of a contact.
        before: What the step before handed on.
        share: Of these impulses that is taken.
    """
    width = 1 + rows
    count, handed = len(before) // width, scratch(list(before))

    def known(place: Scalar) -> Scalar:
        return handed[to_index(place) * width]

    def find(slot: Any, carry: Any) -> Any:
        places, place = carry
        identity = _identity(contacts, slot)

        def earlier(place: Scalar) -> Any:
            return (place < float(count)) & (known(place) > 0.0) & (known(place) < identity)

        place = while_loop(earlier, lambda _, place: place + 1.0, place, count)
        same = (place < float(count)) & (known(place) == identity)
        places[slot] = select(same, place, -1.0)
        return places, place

    places, _ = loop(contacts.count, find, (contacts.blank(1), 0.0 * before[0]), at_most=slots, detached=True)

    def start(slot: Any) -> list[Scalar]:
        there, first = places[slot] >= 0.0, to_index(places[slot]) * width
        return [select(there, share * handed[first + 1 + k], 0.0) for k in range(rows)]

    return start
