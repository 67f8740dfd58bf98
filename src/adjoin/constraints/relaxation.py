"""One block of Gauss-Seidel: its impulses, as if all others were right."""

from collections.abc import Callable, Sequence

from adjoin.constraints.blocks import Block
from adjoin.constraints.system import System
from adjoin.dynamics.linear import dot
from adjoin.spatial.scalar import Scalar

Push = Callable[[Scalar, Scalar], Scalar]
"""A trial impulse and its gain -> the impulse if it is positive, else 0."""


def relax_block(
    block: Block,
    before: Sequence[Scalar],
    speeds: Sequence[Scalar],
    gains: Sequence[Scalar],
    own: Sequence[Sequence[Scalar]],
    push: Push,
) -> tuple[list[Scalar], list[Scalar]]:
    """Relax the impulses of a block.

    Args:
        block: How its impulses are bounded.
        before: The impulses.
        speeds: u of its rows at these.
        gains: By how much each impulse changes for a unit of u.
        own: Its part of J H⁻¹ Jᵀ.
        push: What makes an impulse push only.

    Returns:
        The impulses after, and by how much each has changed.
    """
    impulses = list(before)

    def changes() -> list[Scalar]:
        return [0.0 if new is old else new - old for new, old in zip(impulses, before, strict=True)]

    def relax(i: int) -> Scalar:
        return impulses[i] - gains[i] * (speeds[i] + dot(own[i], changes()))

    block.sweep(impulses, 0, relax, lambda i, trial: push(trial, gains[i]))
    return impulses, changes()


def relax_rows(
    system: System, block: Block, place: int, impulses: list[Scalar], velocity: Sequence[Scalar], push: Push
) -> list[Scalar]:
    """Relax a block of a system in place.

    Args:
        system: The equations.
        block: One of its constraints.
        place: Of its first row.
        impulses: Of all rows.
        velocity: Half-solved, before.
        push: What makes an impulse push only.

    Returns:
        By how much each impulse of the block has changed.
    """
    rows = range(place, place + len(block.rows))
    before = [impulses[i] for i in rows]
    speeds = [system.speed(i, velocity) + system.softness[i] * impulses[i] for i in rows]
    own = [[system.delassus_entry(i, k) for k in rows] for i in rows]
    after, changes = relax_block(block, before, speeds, [system.gain[i] for i in rows], own, push)
    impulses[place : rows.stop] = after
    return changes
