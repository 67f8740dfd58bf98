"""Every problem of a robot file.

Loading stops at the first problem. Here each element of a URDF is read by itself, and what an error is about is
repaired or removed, until the rest makes a robot. An MJCF is compiled by MuJoCo, whose errors come one at a time.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from adjoin.errors import AdjoinError, ModelError, Option, Subject
from adjoin.io import mjcf, store, xml
from adjoin.io.load import FORMATS, load, open_source
from adjoin.io.paths import Files
from adjoin.io.xml import Element
from adjoin.model.assemble import assemble
from adjoin.model.consistency import DisconnectedError
from adjoin.model.description import Description, JointDescription, LinkDescription

MAX_PROBLEMS = 200
"""Problems after which the search ends: each costs putting the robot together once more."""
_FREE = ("accept", "repair", "meshes", "unsupported")  # options that need nothing but their name

Result = TypeVar("Result")


@dataclass
class FileProblems:
    """What is wrong with a file.

    Attributes:
        errors: one for each problem, in the order of the file.
        partial: whether something could not be checked.
        remedy: the options of `adjoin.load` with which the file loads as it is, if there are any.
    """

    errors: list[AdjoinError] = field(default_factory=list)
    partial: bool = False
    remedy: dict[str, Any] = field(default_factory=dict)
    _seen: dict[str, AdjoinError] = field(default_factory=dict)

    def add(self, error: AdjoinError) -> bool:
        """Add an error, and return whether it is a new one."""
        before = len(self._seen)
        for part in error.split() if isinstance(error, mjcf.UnsupportedError) else [error]:
            self._seen.setdefault(str(part), part)
        self.errors = sorted(self._seen.values(), key=lambda error: error.line)
        return len(self._seen) > before


def find(path: str, **options: Any) -> FileProblems:
    """Look for every problem of a robot file.

    Args:
        path: of the file.
        options: those of `adjoin.load`.
    """
    problems = FileProblems()
    try:
        _look(problems, path, options)
        if not problems.errors:
            load(path, **options, strict=True)
    except AdjoinError as error:
        problems.add(error)
    problems.remedy = _remedy(problems, path, options)
    return problems


def _look(problems: FileProblems, path: str, options: dict[str, Any]) -> None:
    data, name, _, _ = open_source(path, None)
    if store.is_saved(data):
        return
    root = xml.parse(data, name)
    if root.tag not in FORMATS:
        return
    kind = FORMATS[root.tag]
    reading = {key: options[key] for key in kind.options if key in options}

    def read(element: Element) -> Description | None:
        files = Files(Path(path).parent, options.get("packages", {}), options.get("allow", ()))
        return _tried(problems, lambda **more: kind.read(element, files, **more), reading)

    description = _urdf(problems, root, read) if root.tag == "robot" else read(root)
    keys = ("accept", "repair", *(("floating_base",) if kind.floating_base is None else ()))
    if description is not None:
        _assemble(problems, description, {key: options[key] for key in keys if key in options})


def _tried(problems: FileProblems, read: Callable[..., Result], options: dict[str, Any]) -> Result | None:
    """Return what a reader returns, with the options that its errors name; None where none of them helps."""
    while True:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return read(**options)
        except ModelError as error:
            problems.add(error)
            helpful = [option for option in error.options if option.name in _FREE and option.name != "accept"]
            before, options = options, _with(options, helpful)
            if options == before:
                return None


def _with(options: dict[str, Any], more: list[Option]) -> dict[str, Any]:
    """Return the options of a call, and more of them; those that are collections are joined."""
    joined = dict(options)
    for name, value, _ in more:
        if isinstance(value, tuple):
            value = (*joined.get(name, ()), *(item for item in value if item not in joined.get(name, ())))
        joined[name] = value
    return joined


def _urdf(problems: FileProblems, root: Element, read: Callable[[Element], Description | None]) -> Description | None:
    """Return the robot, as far as it can be read."""
    if read(replace(root, children=[])) is None:
        root = replace(root, attributes={**root.attributes, "name": "robot"})

    def reads(child: Element) -> bool:
        return read(replace(root, children=[child])) is not None

    children: list[Element] = []
    incomplete: set[str | None] = set()
    for child in root.children:
        if child.tag == "adjoin" or reads(child):
            children.append(child)
            continue
        problems.partial = True
        readable = _readable(child, reads)
        if reads(readable):
            children.append(readable)
            incomplete.add(child.attributes.get("name"))
    description = read(replace(root, children=children))
    for link in description.links if description else ():
        if link.name in incomplete and link.inertial is None:
            _make_physical(link)
    return description


def _readable(child: Element, reads: Callable[[Element], bool]) -> Element:
    """Return what can be read of a link, part by part; of a joint, which links it connects."""
    if child.tag == "link":
        parts = [part for part in child.children if reads(replace(child, children=[part]))]
        inertial = [part for part in parts if part.tag == "inertial"]
        return replace(child, children=[part for part in parts if part not in inertial[1:]])
    kind = "fixed" if child.attributes.get("type") == "fixed" else "continuous"  # neither needs anything else
    ends = [part for part in child.children if part.tag in ("parent", "child")]
    return replace(child, attributes={**child.attributes, "type": kind}, children=ends)


def _assemble(problems: FileProblems, description: Description, options: dict[str, Any]) -> None:
    """Put the robot together, and remove what each error is about, until it holds."""
    while True:
        try:
            assemble(description, **options)
            return
        except ModelError as error:
            # Links without a parent may follow from a joint that could not be read.
            follows = isinstance(error, DisconnectedError) and problems.partial
            new = follows or problems.add(error)
            if not new or len(problems.errors) >= MAX_PROBLEMS or not _mend(problems, description, error):
                problems.partial = True
                return


def _mend(problems: FileProblems, description: Description, error: ModelError) -> bool:
    """Repair or remove what an error is about, and return whether that was possible."""
    if isinstance(error, DisconnectedError):
        children = {edge.child for edge in description.joints}
        first, *others = [link for link in description.links if link.name not in children]
        for link in others:
            description.joints.append(JointDescription(None, f"to {link.name}", link.where, first.name, link.name))
        return True
    links = [link for link in description.links if error.subject == Subject("link", link.name)]
    if len(links) == 1:
        _make_physical(links[0])
        return True
    for edge in description.joints:
        if error.subject == Subject("joint", edge.name) and error.field == "mimic" and edge.joint is not None:
            edge.joint = replace(edge.joint, mimic=None)
            return True
    problems.partial = True
    return any(_removed(parts, error.line) for parts in (description.links, description.joints))


def _removed(parts: list[Any], line: int) -> bool:
    """Remove what is on a line, and return whether there was something."""
    left = [part for part in parts if part.where.line != line]
    changed = len(left) < len(parts)
    parts[:] = left
    return changed


def _make_physical(link: LinkDescription) -> None:
    """Give a link a mass and an inertia that nothing is wrong with, so that the rest can be checked."""
    link.mass, link.inertia, link.com = 1.0, (1.0, 0.0, 0.0, 1.0, 0.0, 1.0), (0.0, 0.0, 0.0)


def _remedy(problems: FileProblems, path: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the first option that each error names, if the file loads with all of them."""
    helpful = [option for error in problems.errors for option in error.options[:1] if option.name in _FREE]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load(path, **_with(options, helpful), strict=True)
    except AdjoinError:
        return {}
    return _with({}, helpful)
