"""Which contact solver a world has if nothing says so."""

import math
from collections.abc import Sequence

from adjoin.collision.pairs import Pair
from adjoin.constraints.newton import Newton
from adjoin.constraints.pgs import PGS
from adjoin.model.model import Model
from adjoin.model.parts import WORLD

SIMILAR = 3.0
"""Bodies that touch are similar up to this ratio of their masses: the plain `PGS()` serves them."""

MOST_SWEEPS = 200
"""Enough for a ratio of 100; what needs more has to ask for it."""


def default_solver(model: Model, pairs: Sequence[Pair]) -> PGS | Newton:
    """Return MuJoCo's solver for a model from an MJCF file, else `PGS`.

    A sweep of `PGS` hands a heavy body's weight on through a light one in portions of the light one's mass. So where
    loose things of different masses can touch, it has two sweeps for each unit of their ratio, and starts warm.

    Args:
        model: The robots and what is around them.
        pairs: The shapes that can touch.
    """
    if model.integrator:
        return Newton()
    ratio = mass_ratio(model, pairs)
    return PGS() if ratio <= SIMILAR else PGS(iterations=min(max(20, math.ceil(2.0 * ratio)), MOST_SWEEPS), warm=True)


def mass_ratio(model: Model, pairs: Sequence[Pair]) -> float:
    """Return the greatest ratio of the masses of two loose things that can touch; 1 if none can."""
    roots: list[int] = []
    masses: dict[int, float] = {}
    for index, body in enumerate(model.bodies):
        roots.append(index if body.parent == WORLD else roots[body.parent])
        masses[roots[index]] = masses.get(roots[index], 0.0) + body.mass
    loose = {root for root in masses if model.bodies[root].joint.type.floating and masses[root] > 0.0}
    greatest = 1.0
    for pair in pairs:
        bodies = [model.geometries[shape].body for shape in (pair.first, pair.second)]
        own = {roots[body] for body in bodies if body != WORLD} & loose
        if len(own) == 2:
            light, heavy = sorted(masses[root] for root in own)
            greatest = max(greatest, heavy / light)
    return greatest
