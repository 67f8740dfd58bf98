"""An MJCF document made safe for MuJoCo's compiler: files read by our rules, looks left out, sizes bounded.

MuJoCo opens whatever files a document names. Here they are resolved and read first, under the rules of `paths`, and
handed over in memory under names of our own; the compiler itself sees no path that exists. What only concerns looks
(textures, materials, skins, lights, the `<visual>` section) is left out, and so is `<size>`, which asks for memory.
"""

import functools
import importlib
import math
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any
from xml.sax.saxutils import quoteattr

from adjoin.errors import Findings, Location, ModelError
from adjoin.io import xml
from adjoin.io.mesh import read_mesh, to_stl
from adjoin.io.paths import Files
from adjoin.io.xml import Element

COMPILED = (".stl", ".obj", ".msh")
"""Formats of meshes that MuJoCo reads; others are converted."""
MAX_COPIES = 1_000
MAX_NUMBERS = 1_000_000
"""Numbers that a few letters of a document ask for: points of grids, vertices of built-in meshes, data of sensors."""
MAX_BODIES = 2_000
MAX_INCLUDES = 200
MAX_MODELS = 50
_TOTALS = ("includes", "elements", "bodies", "copies", "numbers", "models")
_LOOKS = {"texture", "material", "skin", "light", "visual", "size"}
_FILE_ATTRIBUTES = {f"file{side}" for side in ("", "right", "left", "up", "down", "front", "back")}
_NOT_FINITE = re.compile(r"(?i)(?<!\S)[+-]?(nan|inf|infinity)(?!\S)")
_TEXTS = {"name", "class", "childclass", "model", "prefix", "data", "mesh", "hfield", "tendon", "actuator", "objname"}
_TEXTS |= {f"{kind}{number}" for kind in ("joint", "body", "site", "geom") for number in ("", "1", "2")}
# Elements that multiply others.
_COUNTED = {"replicate": "count", "composite": "count", "flexcomp": "count"}
# Attributes whose product is how many numbers an element asks for; any element can ask for a history of `nsample`.
_ASKING = {
    "hfield": "nrow ncol",
    "flexcomp": "cellcount",
    "flex": "cellcount",
    "user": "dim",
    "contact": "num",
    "numeric": "size",
}
# What is bounded: only these elements, and those with these attributes, can ask for more than they list.
_CHECKED_TAGS = {*_COUNTED, *_ASKING, "material", "camera", "model", "body", "attach"}
_CHECKED_ATTRIBUTES = {"nsample", "builtin"}
_VERTEX_NUMBERS = 20
"""What a vertex of a built-in mesh counts for: its share of faces, hull and inertia."""
_SPECIAL = re.compile(r"""[&<>"'\n\r\t]""")
_compiling = threading.Lock()


@dataclass
class Scanned:
    """A document ready to be compiled.

    Attributes:
        text: XML without includes, one element a line.
        assets: the files it refers to, by the names it uses for them.
        lines: where each line of the text comes from.
        names: what the document itself calls each of those files.
    """

    text: str
    assets: dict[str, bytes]
    lines: list[Location]
    names: dict[str, str] = field(default_factory=dict)

    def error(self, message: str, where: Location) -> ModelError:
        """Return the error that MuJoCo's compiler reports, at its place in the original files.

        Args:
            message: of the compiler, with numbers of lines in `text`.
            where: the place if it names none.
        """
        for name, shown in self.names.items():
            message = re.sub(rf"\b{re.escape(name)}\b", lambda _, shown=shown: shown, message)
        match = re.search(r",? line (?:= )?(\d+)(?:, column (?:= )?-?\d+)?", message)
        if match is not None and 0 < int(match[1]) <= len(self.lines):
            where = self.lines[int(match[1]) - 1]
            message = message[: match.start()] + message[match.end() :]
        return ModelError(f"MuJoCo: {' '.join(message.split())}", where=where)


@dataclass
class _Scan:
    files: Files
    assets: dict[str, bytes] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    homes: dict[str, Path] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    includes: int = 0
    elements: int = 0
    bodies: int = 0
    copies: int = 0
    numbers: int = 0
    folders: dict[str, str] = field(default_factory=dict)
    strip: bool = False
    top: str = ""
    colors: bool = False
    models: int = 0
    open_models: list[str] = field(default_factory=list)
    attached: dict[str, tuple[int, int]] = field(default_factory=dict)
    camera_sensors: int = 0
    looks: set[str] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)
    places: list[Location] = field(default_factory=list)

    def beside(self, element: Element) -> list[Path]:
        """Return the folder of the file that an element is in, if it was included from another."""
        home = self.homes.get(element.where.file)
        return [] if home is None else [home]

    def shown(self, path: Path) -> str:
        """Return what to call an included file: as seen from where the caller named the document."""
        folder = self.files.folder
        if folder is None or self.top.startswith("<"):
            return path.name
        return os.path.join(os.path.dirname(self.top), os.path.relpath(path, os.path.realpath(folder)))


def scan(root: Element, files: Files, *, colors: bool = False) -> Scanned:
    """Prepare a parsed MJCF document.

    Args:
        root: its `<mujoco>` element.
        files: what it may reach.
        colors: whether materials are kept, without their textures.

    Raises:
        ModelError: files that are missing or refused, include cycles, sizes beyond reason.
    """
    looks = _LOOKS - {"material"} if colors else _LOOKS
    state = _Scan(files, top=root.where.file, colors=colors, looks=looks)
    _prepare(root, state)
    return Scanned("\n".join(state.lines), state.assets, state.places, state.addresses)


def _prepare(root: Element, state: _Scan) -> None:
    """Make a document one that the compiler can be given, and write it."""
    _expand(root, state, [])
    sensors = [sensor for group in root.all("sensor") for sensor in group.all("rangefinder")]
    state.camera_sensors += sum("camera" in sensor.attributes for sensor in sensors)
    for compiler in root.all("compiler"):
        for key in ("meshdir", "texturedir", "assetdir"):
            if key in compiler.attributes:
                state.folders[key] = compiler.attributes.pop(key)
        state.strip = state.strip or compiler.attributes.pop("strippath", "false") == "true"
    for assets in root.all("asset"):
        for mesh in assets.all("mesh"):
            _try_mesh(mesh, assets, state)
        for model in assets.all("model"):
            if "file" in model.attributes:
                model.attributes["file"] = _model(model, state)
    _clean(root, state, 1)


def _expand(element: Element, state: _Scan, open_files: list[str]) -> None:
    """Put the contents of included files in place of the includes."""
    children: list[Element] = []
    for child in element.children:
        state.elements += 1
        if state.elements > xml.MAX_ELEMENTS:
            child.fail(f"the file has more than {xml.MAX_ELEMENTS} elements with all that it includes")
        if child.tag != "include":
            if child.children:
                _expand(child, state, open_files)
            children.append(child)
            continue
        state.includes += 1
        if state.includes > MAX_INCLUDES:
            child.fail(f"the file has more than {MAX_INCLUDES} includes")
        path = state.files.resolve(child.text("file"), child, state.beside(child))
        if str(path) in open_files:
            chain = " -> ".join(Path(name).name for name in [*open_files, str(path)])
            child.fail(f"files include each other in a cycle: {chain}")
        data = state.files.read(path, child, xml.MAX_BYTES)
        name = state.shown(path)
        state.homes[name] = path.parent
        included = xml.parse(data, name, findings=child.findings)
        if included.tag not in ("mujoco", "mujocoinclude"):
            included.fail("this cannot be included", "the outermost element must be <mujocoinclude> or <mujoco>")
        _expand(included, state, [*open_files, str(path)])
        children += included.children
    element.children = children


def _clean(element: Element, state: _Scan, copies: int, default: bool = False) -> None:
    """Check an element and those in it, leave looks out, and write what is left."""
    tag, attributes = element.tag, element.attributes
    if element.children:
        element.children = [child for child in element.children if child.tag not in state.looks]
    if not state.colors and "material" in attributes:
        del attributes["material"]
    default = default or tag == "default"
    if tag in _CHECKED_TAGS or not _CHECKED_ATTRIBUTES.isdisjoint(attributes):
        copies = _check(element, state, copies, default)
    else:
        state.copies += copies
        if state.copies > xml.MAX_ELEMENTS:
            raise _too_many_copies(element)
    children = element.children
    if state.missing:
        children = [child for child in children if child.attributes.get("mesh") not in state.missing]
        element.children = children
    if not _FILE_ATTRIBUTES.isdisjoint(attributes):
        _read_files(element, state)
    values = "".join(attributes.values())
    folded = values.lower()
    if "nan" in folded or "nf" in folded:
        _check_finite(element)
    if _SPECIAL.search(values):
        written = "".join([f" {key}={quoteattr(value)}" for key, value in attributes.items()])
    else:
        written = "".join([f' {key}="{value}"' for key, value in attributes.items()])
    state.places.append(element.where)
    if not children:
        state.lines.append(f"<{tag}{written}/>")
        return
    state.lines.append(f"<{tag}{written}>")
    for child in children:
        _clean(child, state, copies, default)
    state.places.append(element.where)
    state.lines.append(f"</{tag}>")


def _check(element: Element, state: _Scan, copies: int, default: bool) -> int:
    """Bound what an element asks for, and return how many copies of it there are."""
    if element.tag == "material":
        element.attributes.pop("texture", None)
        element.children = []
    for attribute in _COUNTED.get(element.tag, "").split():
        if attribute in element.attributes:
            copies *= math.prod(_counts(element, attribute))
    if copies > MAX_COPIES:
        element.fail(f"it makes {copies} copies", f"the limit is {MAX_COPIES}")
    state.copies += copies
    if state.copies > xml.MAX_ELEMENTS:
        raise _too_many_copies(element)
    asked = _asked(element)
    if element.tag == "camera" and state.camera_sensors:  # a range for each of its pixels
        asked += state.camera_sensors * math.prod(_counts(element, "resolution"))
    numbers = asked * (state.elements if default else copies)
    state.numbers += numbers
    if state.numbers > MAX_NUMBERS:
        element.fail(f"it asks for {numbers} numbers", f"the limit for the file as a whole is {MAX_NUMBERS}")
    if element.tag == "model" and element.attributes.get("file", "") not in ("", *state.assets):
        element.fail("a model in another file belongs into <asset>")
    if element.tag in ("body", "attach"):
        parts, bodies = state.attached.get(element.attributes.get("model", ""), (0, 1))
        state.copies += copies * parts
        state.bodies += copies * bodies
        if state.bodies > MAX_BODIES:
            element.fail(f"the file has more than {MAX_BODIES} bodies with all copies")
    return copies


def _read_files(element: Element, state: _Scan) -> None:
    for attribute in [key for key in element.attributes if key in _FILE_ATTRIBUTES]:
        if element.tag in ("mesh", "model") and element.attributes[attribute] in state.assets:
            continue
        element.attributes[attribute] = _asset(element, attribute, state)


def _too_many_copies(element: Element) -> ModelError:
    return element.error(f"the file has more than {xml.MAX_ELEMENTS} elements with all copies")


def _check_finite(element: Element) -> None:
    for attribute, value in element.attributes.items():
        if attribute not in _TEXTS and (odd := _NOT_FINITE.search(value)):
            problem = f"{odd[0].strip()!r} is not a number"
            element.fail(problem, "MuJoCo would treat it as missing", field=attribute)


def _model(element: Element, state: _Scan) -> str:
    """Prepare a model in another file, whose parts this one attaches, and return its name in memory."""
    state.models += 1
    if state.models > MAX_MODELS:
        element.fail(f"the file has more than {MAX_MODELS} models in other files")
    path = state.files.resolve(element.text("file"), element, state.beside(element))
    if str(path) in state.open_models:
        chain = " -> ".join(Path(name).name for name in [*state.open_models, str(path)])
        element.fail(f"files attach each other in a cycle: {chain}")
    shown = state.shown(path)
    root = xml.parse(state.files.read(path, element, xml.MAX_BYTES), shown, findings=element.findings)
    if root.tag != "mujoco":
        root.fail("this cannot be attached", "the outermost element must be <mujoco>")
    inner = replace(
        state,
        homes={**state.homes, shown: path.parent},
        missing=set(),
        folders={},
        attached={},
        strip=False,
        open_models=[*state.open_models, str(path)],
        lines=[],
        places=[],
    )
    before = inner.copies, inner.bodies
    _prepare(root, inner)
    for counted in _TOTALS:
        setattr(state, counted, getattr(inner, counted))
    label = element.attributes.setdefault("name", root.attributes.get("model", path.stem))
    state.attached[label] = inner.copies - before[0], inner.bodies - before[1]
    name = f"model{len(state.assets)}.xml"
    state.addresses[name] = element.text("file")
    state.assets[name] = "\n".join(inner.lines).encode()
    return name


def _try_mesh(mesh: Element, assets: Element, state: _Scan) -> None:
    """Leave a mesh out, with the shapes made of it, if its file cannot be read."""
    if "file" not in mesh.attributes:
        return
    address = mesh.attributes["file"]
    try:
        mesh.attributes["file"] = _asset(mesh, "file", state)
    except ModelError as error:
        mesh.findings.report(error, "shapes made of it are left out")
        assets.children.remove(mesh)
        state.missing.add(mesh.attributes.get("name", Path(address.replace("\\", "/")).stem))


def _asked(element: Element) -> int:
    """Return how many numbers an element asks for beyond those that it lists."""
    shape = [count for attribute in _ASKING.get(element.tag, "").split() for count in _counts(element, attribute)]
    asked = math.prod(shape) if shape else 0
    asked += sum(_counts(element, "nsample"))
    if "builtin" in element.attributes:  # the first two parameters of a mesh are its resolution along one or two ways
        asked += _VERTEX_NUMBERS * max(_counts(element, "params")[:2], default=1) ** 2
    return asked


def _counts(element: Element, attribute: str) -> list[int]:
    """Return the numbers of an attribute as counts of at least 1; none if it is missing."""
    counts = []
    for word in element.attributes.get(attribute, "").split():
        try:
            value = abs(float(word))
        except ValueError:
            return []  # not a number: the compiler says so
        counts.append(int(max(1.0, min(value, 1e18))) if math.isfinite(value) else 10**18)
    return counts


def _asset(element: Element, attribute: str, state: _Scan) -> str:
    """Read a file and give it a name of our own, which the compiler finds in memory."""
    address = element.text(attribute)
    if state.strip:
        address = re.split(r"[/\\]", address)[-1]
    folder = state.folders.get("assetdir", "")
    folder = state.folders.get("meshdir" if element.tag != "texture" else "texturedir", folder)
    within = str(PurePosixPath(folder.replace("\\", "/")) / address) if folder else address
    path = state.files.resolve(within, element, state.beside(element))
    key = str(path)
    if key not in state.names:
        name = f"file{len(state.names)}{path.suffix.lower()}"
        data = state.files.read(path, element)
        if element.tag == "mesh" and path.suffix.lower() not in COMPILED:
            beside = functools.partial(state.files.read_beside, path, element)
            name, data = f"{name}.stl", to_stl(read_mesh(data, path.name, element, beside=beside))
        state.names[key] = name
        state.addresses[name] = address
        state.assets[name] = data
    if element.tag in ("mesh", "hfield") and "name" not in element.attributes:
        element.attributes["name"] = Path(address.replace("\\", "/")).stem  # MuJoCo's rule for nameless ones
    return state.names[key]


def compile_document(scanned: Scanned, where: Location, findings: Findings | None = None) -> tuple[Any, Any]:
    """Run MuJoCo's compiler.

    Args:
        scanned: the document.
        where: the place of errors that name none.
        findings: takes what the compiler warns of.

    Returns:
        The module and its compiled model.

    Raises:
        ModelError: MuJoCo is not installed, or it refuses the document.
    """
    try:
        mujoco: Any = importlib.import_module("mujoco")
    except ImportError as error:
        problem = f"reading MJCF needs MuJoCo's compiler ({error})"
        raise ModelError(problem, where=where, remedy="pip install 'adjoin[mjcf]'") from None
    try:
        with _warnings(mujoco) as said:
            compiled = mujoco.MjModel.from_xml_string(scanned.text, scanned.assets)
    except (ValueError, RuntimeError, MemoryError, mujoco.FatalError) as error:
        raise scanned.error(str(error), where) from None
    if findings is not None:
        for message in said:
            findings.note(scanned.error(message, where), "taken as it is")
    return mujoco, compiled


@contextmanager
def _warnings(mujoco: Any) -> Iterator[list[str]]:
    """Collect MuJoCo's warnings, which it would append to MUJOCO_LOG.TXT in the working folder."""
    said: list[str] = []
    with _compiling:
        before = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(said.append)
        try:
            yield said
        finally:
            mujoco.set_mju_user_warning(before)
