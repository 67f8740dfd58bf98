"""Which coordinates are computed with each other: those of a robot's limbs, and those of its trunk."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from adjoin.model.parts import WORLD

if TYPE_CHECKING:
    from adjoin.model.model import Model

TRUNK = 0


class Limbs(NamedTuple):
    """The limb of each coordinate, from 1 on, or the trunk.

    Attributes:
        q: of configurations.
        v: of velocities.
    """

    q: tuple[int, ...]
    v: tuple[int, ...]


def limbs_of(model: "Model") -> Limbs:
    """Return the limbs that the coordinates of a model belong to."""
    q, v = [TRUNK] * model.nq, [TRUNK] * model.nv
    for limb, joint, at in zip(
        find_limbs([b.parent for b in model.bodies]), model.joints, model.coordinates, strict=True
    ):
        if not joint.mimic:
            q[at.q_slice] = [limb] * joint.nq
            v[at.v : at.v + joint.nv] = [limb] * joint.nv
    return Limbs(tuple(q), tuple(v))


def find_limbs(parents: Sequence[int]) -> list[int]:
    """Return of each body its limb: a branch of a tree, or a tree without branches. Others are the trunk.

    A body from which two branches of several bodies hang belongs to the trunk, and with it all that it hangs on.

    Args:
        parents: of the bodies, each before its children.
    """
    sizes = [1] * len(parents)
    for body, parent in reversed(list(enumerate(parents))):
        if parent != WORLD:
            sizes[parent] += sizes[body]
    forks = [0] * len(parents)
    trunk = [False] * len(parents)
    for body, parent in reversed(list(enumerate(parents))):
        trunk[body] |= forks[body] > 1
        if parent != WORLD:
            forks[parent] += trunk[body] or sizes[body] > 1
            trunk[parent] |= trunk[body]
    limbs: list[int] = []
    for body, parent in enumerate(parents):
        within = TRUNK if parent == WORLD else limbs[parent]
        limbs.append(TRUNK if trunk[body] else within or max(limbs, default=0) + 1)
    return limbs
