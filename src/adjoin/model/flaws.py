"""Flaws of a description: masses and inertias that no body has, and what may be done about them.

Nothing is changed silently: a flaw is a finding, which is an error if reading is strict, unless the caller names it, in
`accept` (taken as written) or in `repair` (made right as described here).

| name | accept | repair |
|---|---|---|
| mass | moving bodies without mass, negative masses | |
| inertia | inertias that no distribution of mass has | the nearest that one has (see `repaired`) |
| axis | | an axis that is not of unit length is scaled |
| limits | | reversed limits are swapped |
| right_angles | | angles written within 1e-4 rad of a multiple of 90 degrees are made exact |
"""

import math
from collections.abc import Collection, Iterable
from functools import lru_cache

import numpy as np

from adjoin.errors import Findings, InputError, ModelError, Option, Subject
from adjoin.model.description import LinkDescription
from adjoin.spatial.inertia import Symmetric3, to_matrix

ACCEPTABLE = ("mass", "inertia")
REPAIRABLE = ("inertia", "axis", "limits", "right_angles")
ACCEPT_MASS = Option("accept", ("mass",), "to load it as it is")
ACCEPT_INERTIA = Option("accept", ("inertia",), "to load it as it is")
REPAIR_INERTIA = Option("repair", ("inertia",), "to use the nearest physical one")

ROUNDING = 1e-6
"""Inertias are written with six digits or so; flaws below this share of the greatest moment are rounding."""


def check_names(accept: Collection[str], repair: Collection[str]) -> None:
    """Raise `InputError` for a flaw that cannot be accepted or repaired."""
    for argument, flaws, valid in (("accept", accept, ACCEPTABLE), ("repair", repair, REPAIRABLE)):
        if isinstance(flaws, str):
            raise InputError(f"{argument}={flaws!r} is a string; pass a collection of names such as ({flaws!r},)")
        for name in flaws:
            if name not in valid:
                raise InputError(f"{argument}: no flaw {name!r}; {argument} takes: {', '.join(valid)}")


@lru_cache(maxsize=4096)
def moments(inertia: Symmetric3) -> tuple[float, float, float]:
    """Return principal moments of inertia, ascending."""
    values = np.linalg.eigvalsh(np.array(to_matrix(inertia)))
    values[np.abs(values) < 1e-14 * np.abs(values).max()] = 0.0  # rounding, different on every machine
    a, b, c = values.tolist()
    return a, b, c


def is_clearly_physical(inertia: Symmetric3) -> bool:
    """Return whether an inertia is physical and positive definite by far more than rounding; False if it is close.

    Sylvester's criterion for the second moments of mass, see `repaired`: where their determinant is above 1e-9 of the
    cube of their trace, their least eigenvalue is above 1e-9 of it. Most inertias are such, and their `moments`, which
    take ten times as long, need not be computed.
    """
    xx, xy, xz, yy, yz, zz = inertia
    trace = 0.5 * (xx + yy + zz)
    if not 1e-90 < trace < 1e90:  # beyond these its cube is not a normal number
        return False
    a, b, c, least = trace - xx, trace - yy, trace - zz, 1e-9 * trace
    if a < least or b < least or c < least:
        return False
    if a * b <= xy * xy or a * c <= xz * xz or b * c <= yz * yz:
        return False
    return a * b * c - a * yz * yz - b * xz * xz - c * xy * xy - 2.0 * xy * xz * yz > least * trace * trace


TAKEN = "taken as it is"


def check_link(link: LinkDescription, accept: Collection[str], repair: Collection[str], findings: Findings) -> None:
    """Check one link as the file has it, and repair its inertia in place if asked to."""
    where, subject = link.inertial or link.where, Subject("link", link.name)
    if link.mass < 0.0 and "mass" not in accept:
        problem, remedy = f"mass is {link.mass:g}", "it cannot be negative"
        findings.report(ModelError(problem, where=where, subject=subject, field="mass", remedy=remedy), TAKEN)
    flaw = _flaw(link)
    if flaw is None:
        return
    if "inertia" in repair:
        link.inertia = repaired(link.inertia) if link.mass > 0.0 else (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    elif "inertia" not in accept:
        options = [ACCEPT_INERTIA, REPAIR_INERTIA]
        findings.report(ModelError(flaw, where=where, subject=subject, options=options), TAKEN)


def _flaw(link: LinkDescription) -> str | None:
    if not any(link.inertia):
        return None  # a point mass, or nothing; whether that can move is the body's question
    if link.mass == 0.0:
        return "it has inertia but no mass"
    if is_clearly_physical(link.inertia):
        return None
    a, b, c = moments(link.inertia)
    spelled = f"principal moments {a:.6g}, {b:.6g}, {c:.6g}"
    if a < -ROUNDING * abs(c) or c <= 0.0:
        return f"inertia is not positive definite: {spelled}"
    if a + b < c * (1.0 - ROUNDING):
        return f"inertia violates the triangle inequality: {spelled}, and {a:.6g} + {b:.6g} < {c:.6g}"
    return None


def check_body(
    name: str,
    mass: float,
    inertia: Symmetric3,
    links: Iterable[LinkDescription],
    accept: Collection[str],
    repair: Collection[str],
    findings: Findings,
) -> Symmetric3:
    """Check a moving body, with all its links welded together, and return its inertia.

    Where reading is not strict, a body without mass or inertia is one that others may make up for: whether they do is
    a question about the whole mechanism, see `regularity`.
    """
    links = list(links)
    where, subject = links[0].inertial or links[0].where, Subject("link", name)
    if mass <= 0.0:
        if "mass" in accept or not findings.strict or all(link.massless for link in links):
            return inertia
        problem = "mass is 0" if any(link.inertial for link in links) else "it has no mass"
        remedy = "a moving link needs a positive mass"
        raise ModelError(problem, where=where, subject=subject, remedy=remedy, options=[ACCEPT_MASS])
    if is_clearly_physical(inertia):
        return inertia
    a, b, c = moments(inertia)
    # A body welded from valid parts is valid; only the strict sense of "positive definite" is left to check here.
    if a > 1e-12 * c > 0.0 or "inertia" in accept:
        return inertia
    if "inertia" in repair:
        return repaired(inertia) if c > 0.0 else _ball(mass)
    if not findings.strict:
        return inertia
    problem = f"inertia is not positive definite: principal moments {a:.6g}, {b:.6g}, {c:.6g}"
    raise ModelError(problem, where=where, subject=subject, options=[ACCEPT_INERTIA, REPAIR_INERTIA])


def repaired(inertia: Symmetric3) -> Symmetric3:
    """Return the nearest inertia that some distribution of mass has.

    An inertia I is physical if and only if the second moments of mass, trace(I)/2 - I, are positive (Wensing, Kim,
    Slotine 2018, Linear matrix inequalities for physically-consistent inertial parameter identification). Negative ones
    are raised to a millionth of the greatest; directions stay.
    """
    matrix = np.array(to_matrix(inertia), dtype=float)
    values, vectors = np.linalg.eigh(np.trace(matrix) / 2 * np.eye(3) - matrix)
    values = np.maximum(values, 1e-6 * max(float(values.max()), float(np.abs(values).max())))
    second = (vectors * values) @ vectors.T
    fixed = np.trace(second) * np.eye(3) - second
    return tuple(float(fixed[i, j]) for i, j in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)))  # type: ignore[return-value]


def _ball(mass: float) -> Symmetric3:
    # A point mass on a joint has no inertia to scale; a solid ball of water of the same mass is a modest guess.
    radius = (3.0 * mass / (4.0 * math.pi * 1000.0)) ** (1.0 / 3.0)
    moment = 0.4 * mass * radius**2
    return (moment, 0.0, 0.0, moment, 0.0, moment)
