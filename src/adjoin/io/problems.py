"""Every problem of a robot file.

Loading ends with the first problem. Here each element of a URDF is read by itself, and what an error is about is mended
or taken away, until the rest makes a robot. An MJCF is compiled by MuJoCo, whose own errors come one at a time.
"""

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from adjoin.errors import AdjoinError, ModelError
from adjoin.io import mjcf, store, urdf, xml
from adjoin.io.load import load, open_source
from adjoin.io.paths import Files
from adjoin.io.xml import Element
from adjoin.model.assemble import assemble
from adjoin.model.description import Description, JointDescription, LinkDescription

OPTION = re.compile(r"(accept|repair|meshes|unsupported)=\(?'(\w+)'")
ORPHANS = "links have no parent"
MOST = 200  # problems after which looking ends: each costs a robot put together


@dataclass
class Problems:
    """What is wrong with a file.

    Attributes:
        texts: the problems, each once, in the order of the file.
        partial: whether something could not be looked at.
        remedy: the options of `adjoin.load` with which it loads as it is, if there are some.
    """

    texts: list[str] = field(default_factory=list)
    partial: bool = False
    remedy: dict[str, Any] = field(default_factory=dict)
    named: dict[tuple[str, str], None] = field(default_factory=dict)

    def add(self, error: AdjoinError) -> list[tuple[str, str]]:
        """Notes an error; gives the options that it names."""
        head, several, rest = str(error).partition("not supported: ")
        parts = [f"{several}{part}" for part in rest.split("; ")[:-1]] if several else [""]
        self.texts += [head + part for part in parts if head + part not in self.texts]
        named = OPTION.findall(str(error))
        self.named.update(dict.fromkeys(named[:1]))  # the first takes the file as it is, a second one repairs it
        return named


def find(path: str, **given: Any) -> Problems:
    """Look for every problem of a robot file.

    Args:
        path: of the file.
        given: options of `adjoin.load`.
    """
    found = Problems()
    try:
        _look(found, path, given)
        if not found.texts:
            load(path, **given)
    except AdjoinError as error:
        found.add(error)
    found.remedy = _remedy(found, path, given)
    found.texts.sort(key=_line)
    return found


def _line(text: str) -> int:
    place = re.search(r":(\d+): ", text)
    return int(place[1]) if place else 0


def _look(found: Problems, path: str, given: dict[str, Any]) -> None:
    data, name, _, _ = open_source(path, None)
    if store.is_saved(data):
        return
    root = xml.parse(data, name)
    keys = {"robot": ("meshes", "repair"), "mujoco": ("meshes", "unsupported")}.get(root.tag)
    if keys is None:
        return
    reader = urdf.read if root.tag == "robot" else mjcf.read
    reading = {key: given[key] for key in keys if key in given}

    def read(element: Element) -> Description | None:
        files = Files(Path(path).parent, given.get("packages", {}), given.get("allow", ()))
        return _tried(found, lambda **options: reader(element, files, **options), reading)

    description = _urdf(found, root, read) if root.tag == "robot" else read(root)
    more = ("accept", "repair", *(("floating_base",) if root.tag == "robot" else ()))
    if description is not None:
        _assemble(found, description, {key: given[key] for key in more if key in given})


def _tried(found: Problems, read: Callable[..., Any], given: dict[str, Any]) -> Any:
    """What a reader gives with the options that its errors name; None where none of them helps."""
    given = dict(given)
    while True:
        before = dict(given)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return read(**given)
        except ModelError as error:
            for option, value in found.add(error):
                if option == "repair":
                    given["repair"] = {*given.get("repair", ()), value}
                elif option != "accept":
                    given[option] = value
        if given == before:
            return None


def _urdf(found: Problems, root: Element, read: Callable[[Element], Description | None]) -> Description | None:
    """The robot, as far as it can be read."""
    if read(replace(root, children=[])) is None:
        root = replace(root, attributes={**root.attributes, "name": "robot"})

    def reads(child: Element) -> bool:
        return read(replace(root, children=[child])) is not None

    kept: list[Element] = []
    unsaid: set[str | None] = set()
    for child in root.children:
        if child.tag == "adjoin" or reads(child):
            kept.append(child)
            continue
        found.partial = True
        readable = _readable(child, reads)
        if reads(readable):
            kept.append(readable)
            unsaid.add(child.attributes.get("name"))
    description = read(replace(root, children=kept))
    for link in description.links if description else ():
        if link.name in unsaid and link.inertial is None:
            _make_sound(link)
    return description


def _readable(child: Element, reads: Callable[[Element], bool]) -> Element:
    """What can be read of a link, part by part; of a joint, which links it connects."""
    if child.tag == "link":
        fine = [part for part in child.children if reads(replace(child, children=[part]))]
        inertial = [part for part in fine if part.tag == "inertial"]
        return replace(child, children=[part for part in fine if part not in inertial[1:]])
    kind = "fixed" if child.attributes.get("type") == "fixed" else "continuous"  # neither needs anything else
    ends = [part for part in child.children if part.tag in ("parent", "child")]
    return replace(child, attributes={**child.attributes, "type": kind}, children=ends)


def _assemble(found: Problems, description: Description, given: dict[str, Any]) -> None:
    """Puts the robot together, and takes away what each error is about, until it holds."""
    while True:
        try:
            assemble(description, **given)
            return
        except ModelError as error:
            text = str(error)
            known = text in found.texts
            if not (ORPHANS in text and found.partial):  # else it follows from what was taken away
                found.add(error)
            if known or len(found.texts) >= MOST or not _mend(found, description, text):
                found.partial = True
                return


def _mend(found: Problems, description: Description, error: str) -> bool:
    """Mends or takes away what an error is about; whether that was possible."""
    named = re.search(r": (link|joint) '(.*?)': ", error)
    if ORPHANS in error:
        below = {edge.child for edge in description.joints}
        first, *others = [link for link in description.links if link.name not in below]
        for link in others:
            description.joints.append(JointDescription(None, f"to {link.name}", link.where, first.name, link.name))
        return True
    if named and named[1] == "link":
        for link in description.links:
            if link.name == named[2]:
                _make_sound(link)
        return True
    for edge in description.joints:
        if named and edge.name == named[2] and edge.joint is not None and "mimic" in error:
            edge.joint = replace(edge.joint, mimic=None)
            return True
    found.partial = True
    return any(_drop(parts, _line(error)) for parts in (description.links, description.joints))


def _drop(parts: Any, line: int) -> bool:
    """Takes away what stands on a line."""
    kept = [part for part in parts if part.where.line != line]
    changed = len(kept) < len(parts)
    parts[:] = kept
    return changed


def _make_sound(link: LinkDescription) -> None:
    """Gives a link a mass and inertia that nothing is wrong with, so that the rest can be looked at."""
    link.mass, link.inertia, link.com = 1.0, (1.0, 0.0, 0.0, 1.0, 0.0, 1.0), (0.0, 0.0, 0.0)


def _remedy(found: Problems, path: str, given: dict[str, Any]) -> dict[str, Any]:
    """The options that the errors name, if the file loads with them."""
    named: dict[str, Any] = {}
    for option, value in found.named:
        named[option] = value if option in ("meshes", "unsupported") else (*named.get(option, ()), value)
    both = {name: (*given[name], *named[name]) for name in ("accept", "repair") if name in given and name in named}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load(path, **{**given, **named, **both})
    except AdjoinError:
        return {}
    return named
