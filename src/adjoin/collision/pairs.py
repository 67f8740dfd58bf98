"""Which shapes of a model can touch each other, and with which constants: MuJoCo's rules."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

from adjoin.collision.narrow_phase import listed, supported
from adjoin.errors import InputError, unknown_name
from adjoin.model.model import Model
from adjoin.model.parts import WORLD, ContactPair, Geometry
from adjoin.spatial.scalar import Scalar
from adjoin.trace import maximum, minimum, select

Coefficients = tuple[Scalar, Scalar, Scalar, Scalar, Scalar]
"""Of friction: sliding in two directions, torsional (m), rolling about two axes (m)."""

Names = Iterable[tuple[str, str]]

_TINY = 1e-15


@dataclass(frozen=True)
class Pair:
    """Two shapes that can touch.

    Attributes:
        first: index of a shape.
        second: index of another, on another body.
        friction: whose coefficients hold: those of the first or second shape, the greater of both, or these numbers.
        condim: dimension of the contact force, see `Geometry`.
        margin: distance below which they push each other, m.
        gap: see `Geometry`.
        solref: MuJoCo's (time constant s, damping ratio).
        solimp: MuJoCo's contact impedance.
        share: of the first shape in what is mixed of both.
        points: which of their points of contact count; if None, those that can move along their normals.
    """

    first: int
    second: int
    friction: Literal["first", "second", "greater"] | tuple[float, float, float, float, float] = "greater"
    condim: int = 3
    margin: float = 0.0
    gap: float = 0.0
    solref: tuple[float, float] = (0.02, 1.0)
    solimp: tuple[float, float, float, float, float] = (0.9, 0.95, 0.001, 0.5, 2.0)
    share: float = 0.5
    points: tuple[int, ...] | None = None

    @property
    def shapes(self) -> tuple[int, int]:
        """Return the indices of both shapes."""
        return self.first, self.second

    def swapped(self) -> "Pair":
        """The same pair with its shapes in the other order."""
        decides = {"first": "second", "second": "first"}.get(self.friction, self.friction)  # type: ignore[arg-type]
        return replace(self, first=self.second, second=self.first, friction=decides, share=1.0 - self.share)

    def coefficients(self, friction: Sequence[Sequence[Scalar]]) -> Coefficients:
        """The pair's coefficients of friction.

        Args:
            friction: sliding, torsional and rolling coefficient of every shape of the model.
        """
        if isinstance(self.friction, tuple):
            return self.friction
        first, second = friction[self.first], friction[self.second]
        if self.friction == "greater":
            sliding, torsional, rolling = (maximum(a, b) for a, b in zip(first, second, strict=True))
        else:
            sliding, torsional, rolling = first if self.friction == "first" else second
        return (sliding, sliding, torsional, rolling, rolling)

    def softness(
        self, solref: Sequence[Sequence[Scalar]], solimp: Sequence[Sequence[Scalar]]
    ) -> tuple[tuple[Scalar, ...], tuple[Scalar, ...]]:
        """The pair's solref and solimp.

        Args:
            solref: of every shape of the model.
            solimp: of every shape of the model.
        """
        if isinstance(self.friction, tuple):
            return self.solref, self.solimp
        if self.friction != "greater":
            index = getattr(self, self.friction)
            return tuple(solref[index]), tuple(solimp[index])
        return mixed(self.share, solref[self.first], solref[self.second], solimp[self.first], solimp[self.second])


def mixed(
    share: float,
    solref: Sequence[Scalar],
    other_solref: Sequence[Scalar],
    solimp: Sequence[Scalar],
    other_solimp: Sequence[Scalar],
) -> tuple[tuple[Scalar, ...], tuple[Scalar, ...]]:
    """The solref and solimp of two shapes together; stiffness and damping, which are negative, are not mixed."""

    def mean(a: Sequence[Scalar], b: Sequence[Scalar]) -> list[Scalar]:
        return [share * x + (1.0 - share) * y for x, y in zip(a, b, strict=True)]

    timed = (solref[0] > 0.0) & (other_solref[0] > 0.0)
    choices = zip(mean(solref, other_solref), solref, other_solref, strict=True)
    return tuple(select(timed, m, minimum(x, y)) for m, x, y in choices), tuple(mean(solimp, other_solimp))


def pairs(
    model: Model, chosen: Names | None = None, ignored: Names = (), within: bool = True
) -> tuple[list[Pair], list[Pair]]:
    """The pairs of shapes that can touch.

    By default those that the model's filters let touch: the bits of `contype` and `conaffinity`; shapes of one body
    never, nor those of a body and its parent unless `model.parents_touch`, nor excluded links; and the model's own
    `pairs`, whatever the filters say.

    Args:
        model: the robot and what is around it.
        chosen: instead, pairs of names of shapes, or of links for all shapes on them; filters do not hold for them.
        ignored: names of pairs to leave out.
        within: whether shapes of one robot touch each other, if none are chosen; the model's own `pairs` always do.

    Returns:
        The pairs in the order of the shapes, and those that would be among them if their kinds could be tested against
        each other.

    Raises:
        InputError: a name does not exist, or chosen shapes cannot touch.
    """
    own: dict[tuple[int, int], ContactPair] = {}
    for pair in model.pairs:
        own.setdefault(_ordered(model.geometry_index(pair.first), model.geometry_index(pair.second)), pair)
    if chosen is None:
        let = _unfiltered(model)
        places = {place for place in own if _apart(model, place)} | {p for p in let if within or strangers(model, p)}
    else:
        places = {place for names in chosen for place in _chosen(model, names)}
    places -= {place for names in ignored for place in _named(model, "ignored", names)}
    found = [_combined(model, place, own.get(place)) for place in sorted(places)]
    known = [_testable(model, (pair.first, pair.second)) for pair in found]
    return (
        [pair for pair, yes in zip(found, known, strict=True) if yes],
        [pair for pair, yes in zip(found, known, strict=True) if not yes],
    )


def _ordered(i: int, j: int) -> tuple[int, int]:
    return (min(i, j), max(i, j))


def _apart(model: Model, place: tuple[int, int]) -> bool:
    """Whether the shapes are on different bodies."""
    return model.geometries[place[0]].body != model.geometries[place[1]].body


def strangers(model: Model, place: tuple[int, int]) -> bool:
    """Return whether shapes are not parts of one robot; where the model does not say so, not on one tree of bodies."""
    trees = model.trees
    first, second = (trees.get(model.geometries[index].link, "") for index in place)
    if first and second:
        return first != second
    roots = []
    for index in place:
        body = model.geometries[index].body
        while body != WORLD and model.bodies[body].parent != WORLD:
            body = model.bodies[body].parent
        roots.append(body)
    return roots[0] != roots[1]


def _testable(model: Model, place: tuple[int, int]) -> bool:
    return supported(model.geometries[place[0]].kind, model.geometries[place[1]].kind)


def _unfiltered(model: Model) -> list[tuple[int, int]]:
    """What the filters let touch."""
    above = parents(model)
    excluded = {frozenset(links) for links in model.exclusions}
    found = []
    for (i, a), (j, b) in combinations(enumerate(model.geometries), 2):
        jointed = WORLD not in (a.body, b.body) and (above[a.body] == b.body or above[b.body] == a.body)
        if (
            a.body != b.body
            and (model.parents_touch or not jointed)
            and frozenset((a.link, b.link)) not in excluded
            and (a.contype & b.conaffinity or b.contype & a.conaffinity)
        ):
            found.append((i, j))
    return found


def parents(model: Model) -> list[int]:
    """Return the parent of every body, without those that only stand between the joints of one link."""
    carriers = {frame.body for frame in model.frames if frame.kind == "link"}
    carriers |= {shape.body for shape in model.geometries}
    found = []
    for body in model.bodies:
        parent = body.parent
        while parent != WORLD and parent not in carriers and model.bodies[parent].mass == 0.0:
            parent = model.bodies[parent].parent
        found.append(parent)
    return found


def _chosen(model: Model, names: tuple[str, str]) -> list[tuple[int, int]]:
    """The pairs of shapes that two names stand for."""
    found = [place for place in _named(model, "chosen", names) if _apart(model, place)]
    if not found:
        raise InputError(f"pairs: {names[0]!r} and {names[1]!r} do not move against each other")
    if not any(_testable(model, place) for place in found):
        a, b = (model.geometries[k] for k in found[0])
        raise InputError(
            f"pairs: {a.name!r} is a {a.kind} and {b.name!r} a {b.kind}, which cannot be tested for contact; "
            f"these can: {listed()}"
        )
    return found


def _named(model: Model, what: str, names: tuple[str, str]) -> list[tuple[int, int]]:
    if isinstance(names, str) or len(names) != 2:
        raise InputError(f"pairs: {what} must be pairs of names, such as [('foot', 'ground')]; got {names!r}")
    first, second = (_shapes(model, name) for name in names)
    return [_ordered(i, j) for i in first for j in second if i != j]


def _shapes(model: Model, name: str) -> list[int]:
    """The shape of this name, or the shapes on the link of this name."""
    geometries = [shape.name for shape in model.geometries]
    if name in geometries:
        return [geometries.index(name)]
    found = [k for k, shape in enumerate(model.geometries) if shape.link == name]
    if not found:
        links = dict.fromkeys(shape.link for shape in model.geometries)
        raise InputError(
            f"pairs: {unknown_name('shape', 'shapes', name, geometries)}; links with shapes: {', '.join(links)}"
        )
    return found


def _combined(model: Model, place: tuple[int, int], own: ContactPair | None) -> Pair:
    """The constants of a pair: its own, those of the shape with priority, or both shapes' together."""
    if own is not None:
        return Pair(*place, own.friction, own.condim, own.margin, own.gap, own.solref, own.solimp)
    a, b = (model.geometries[k] for k in place)
    margin, gap = a.margin + b.margin, a.gap + b.gap
    if a.priority != b.priority:
        decides = "first" if a.priority > b.priority else "second"
        shape = a if a.priority > b.priority else b
        return Pair(*place, decides, shape.condim, margin, gap, shape.solref, shape.solimp)
    share = _share(a, b)
    solref, solimp = mixed(share, a.solref, b.solref, a.solimp, b.solimp)
    return Pair(*place, "greater", max(a.condim, b.condim), margin, gap, solref, solimp, share)  # type: ignore[arg-type]


def _share(a: Geometry, b: Geometry) -> float:
    """Of the first shape in mixing."""
    if a.solmix >= _TINY and b.solmix >= _TINY:
        return a.solmix / (a.solmix + b.solmix)
    return 0.5 if a.solmix < _TINY and b.solmix < _TINY else float(a.solmix >= _TINY)
