"""`adjoin.load`: a path, XML text or bytes in, a frozen model out."""

import os
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from adjoin.errors import Findings, InputError, Location, ModelError, ModelWarning, Option, warn_caller
from adjoin.io import mjcf, store, urdf, xacro_files, xml
from adjoin.io.budget import Budget, load_within
from adjoin.io.paths import Files
from adjoin.model.assemble import Lock, assemble
from adjoin.model.description import Description
from adjoin.model.flaws import check_names
from adjoin.model.model import Model

TEXT = "<text>"
"""What messages call a robot that was given as text or bytes."""

Unsupported = Literal["error", "warn"]


class Format(NamedTuple):
    """A kind of robot file.

    Attributes:
        read: Reads a document; it takes the outermost element, the files within reach, and options.
        options: The options of `load` that `read` takes.
        floating_base: How a file of this format says that its base floats; None if `load` has to be told.
    """

    read: Callable[..., Description]
    options: tuple[str, ...]
    floating_base: str | None = None


FORMATS = {
    "robot": Format(urdf.read, ("meshes", "repair")),
    "mujoco": Format(mjcf.read, ("meshes", "unsupported"), "in MJCF a floating base has a <freejoint/>"),
}
"""The formats by the tag of the outermost element."""


def load(
    source: str | os.PathLike[str] | bytes,
    *,
    floating_base: bool = False,
    root: str | None = None,
    lock: Lock | None = None,
    meshes: urdf.Meshes = "hull",
    folder: str | os.PathLike[str] | None = None,
    packages: Mapping[str, str | os.PathLike[str]] | None = None,
    allow: Sequence[str | os.PathLike[str]] = (),
    accept: Collection[str] = (),
    repair: Collection[str] = (),
    unsupported: Unsupported | None = None,
    strict: bool = False,
    budget: Budget | None = None,
) -> Model:
    """Load a robot.

    What Pinocchio or MuJoCo loads is loaded. What is wrong with the file all the same is listed in one `ModelWarning`:
    the place, the flaw, and what was done about it.

    Args:
        source: path of a URDF, an MJCF or a file that `adjoin.save` wrote; or the text or bytes of one. Which format it
            is is told by its content. A xacro file is expanded by the package `xacro`; give only ones that you trust.
        floating_base: put a free joint named "root_joint" under the root link. Only for URDF: MJCF says it itself.
        root: keep only this link and what hangs on it; the link becomes the base.
        lock: joints to weld, by name, each at a value (rad, m; as many numbers as the joint has in q).
        meshes: "hull" reads collision meshes (STL, OBJ, Collada, glTF) as convex hulls of at most 128 vertices; "exact"
            as hulls with all their vertices, which touch as MuJoCo's do and take longer; "ignore" leaves them out.
        folder: where relative file names start, for a robot given as text or bytes.
        packages: folders of package:// addresses, by package name; others are searched for, see `adjoin.io.paths`.
        allow: folders beyond the robot's own collection that files may be read from.
        accept: flaws to take as they are without a word: "mass" (moving links without mass), "inertia" (that no body
            can have).
        repair: flaws to repair: "inertia", "axis" (not of unit length), "limits" (reversed), "right_angles" (rounded).
        unsupported: what to do about parts of an MJCF that Adjoin does not simulate: "error", or "warn" and leave
            them out. By default flexes, plugins and SDFs are an error, and the others only if strict.
        strict: whether every flaw that is neither accepted nor repaired is an error, and files are read only from the
            robot's own folder and package. `adjoin check` lists all flaws of a file.
        budget: time and memory that a file you do not trust may take. It is then read in a process of its own, which
            takes seconds to start, so that even a file at which MuJoCo's compiler hangs ends in a `ModelError`.

    Returns:
        The model.

    Raises:
        ModelError: what is wrong with the file, where, and what would be right.
        InputError: an argument makes no sense.
    """
    check_names(accept, repair)
    for argument, value, valid in (
        ("meshes", meshes, ("hull", "exact", "ignore")),
        ("unsupported", unsupported or "error", ("error", "warn")),
    ):
        if value not in valid:
            raise InputError(f"{argument}={value!r} is not one of {', '.join(map(repr, valid))}")
    if budget is not None:
        given = {"floating_base": floating_base, "root": root, "lock": lock, "meshes": meshes, "folder": folder}
        given |= {"packages": packages, "allow": allow, "accept": accept, "repair": repair}
        given |= {"unsupported": unsupported, "strict": strict}
        model, flaws = load_within(budget, source, _named(source), given)
        if flaws:
            warn_caller(ModelWarning(_named(source), flaws))
        return model
    data, name, home, encoding = open_source(source, folder)
    findings = Findings(strict)
    folders = {key: Path(value) for key, value in (packages or {}).items()}
    files = Files(home, folders, [Path(a) for a in allow], strict)
    if encoding is None and store.is_saved(data):
        if floating_base or root is not None or lock:
            problem = "a saved model loads as it is, without floating_base, root or lock"
            raise ModelError(problem, where=Location(name))
        return store.from_bytes(data, name)
    document = xml.parse(data, name, encoding=encoding, findings=findings)
    if not strict and isinstance(source, (str, os.PathLike)) and name != TEXT and xacro_files.is_xacro(document):
        document = xml.parse(xacro_files.expand(Path(source), files, document), name, findings=findings)
    if document.tag not in FORMATS:
        document.fail("this is not a robot", "the outermost element must be <robot> (URDF) or <mujoco> (MJCF)")
    kind = FORMATS[document.tag]
    if floating_base and kind.floating_base is not None:
        document.fail("this is for URDF", kind.floating_base, subject=Option("floating_base", True))
    unsupported = unsupported or ("error" if strict else None)
    options = {"meshes": meshes, "repair": repair, "unsupported": unsupported}
    description = kind.read(document, files, **{name: options[name] for name in kind.options})
    model = assemble(
        description,
        floating_base=floating_base,
        root=root,
        lock=lock,
        accept=accept,
        repair=repair,
        findings=findings,
    )
    if findings.found:
        warn_caller(ModelWarning(name, findings.found))
    return model


def open_source(
    source: str | os.PathLike[str] | bytes, folder: str | os.PathLike[str] | None
) -> tuple[bytes, str, Path | None, str | None]:
    """Return the bytes, what to call them, the folder they are in, and their encoding where it is known."""
    home = None if folder is None else Path(folder)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source), TEXT, home, None
    if isinstance(source, str) and (not source.strip() or source.lstrip().startswith("<")):
        try:
            return source.encode(), TEXT, home, "utf-8"
        except UnicodeEncodeError:
            raise ModelError("the text is not valid Unicode: it has lone surrogates", where=Location(TEXT)) from None
    path = Path(source)
    where = Location(_shown(path))
    try:
        exists = path.exists()
        status = path.stat() if exists else None
    except (OSError, ValueError):
        raise ModelError("this is neither a path nor XML", where=where) from None
    if status is None:
        raise ModelError("no such file", where=where)
    if not stat.S_ISREG(status.st_mode):
        raise ModelError("this is not a file", where=where)
    if status.st_size > xml.MAX_BYTES:
        raise xml.too_large(where, status.st_size)
    try:
        return path.read_bytes(), str(path), home or path.parent, None
    except OSError as error:
        raise ModelError(f"it cannot be read: {error.strerror}", where=where) from None


def _named(source: str | os.PathLike[str] | bytes) -> str:
    """Return what messages call a source."""
    if isinstance(source, (bytes, bytearray, memoryview)) or str(source).lstrip().startswith("<"):
        return TEXT
    return _shown(Path(source))


def _shown(path: Path) -> str:
    text = str(path)
    return text if text.isprintable() and len(text) <= 1000 else repr(text[:200])
