"""Which files a robot file may have read, and where package:// addresses lead.

A robot file is data from somewhere; that it names /etc/passwd, ../../secrets or http://... must not be enough to have
them opened. Files are read from these folders only, after links in the file system are followed:

- the folder of the robot file, the package that an address names, and the folders that the caller allows;
- unless reading is strict, the robot's collection: every folder above the robot file, up to six levels, that looks like
  the root of a collection. It holds one of `MARKERS` (package.xml, .git, __init__.py, a license, ...), or it is just
  above the robot's folder and that is called urdf, robots, mjcf or the like (`BESIDE_MESHES`), as robot/meshes lies
  beside robot/urdf. The root of the file system, a user's home and what is above it are never such a folder.

A package is what `packages` says; else a folder of that name with a package.xml above the robot file. Unless reading is
strict it is also searched for in ROS_PACKAGE_PATH and AMENT_PREFIX_PATH, and beside the robot file and the folders
above it; if there is none, the rest of the address is tried in the robot's folder and collection, which is noted.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote

from adjoin.errors import Option, Subject
from adjoin.io.xml import Element

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_TOTAL_BYTES = 256 * 1024 * 1024
LEVELS = 6
"""How many folders up from the robot file a package or the root of a collection may be."""
MARKERS = ("package.xml", ".git", "__init__.py", "pyproject.toml", "setup.py", "LICENSE", "LICENSE.txt", "LICENSE.md")
MARKERS += ("README.md", "README.txt", "CMakeLists.txt", "model.config")
"""Any of these says that a folder is the root of a collection."""
BESIDE_MESHES = (
    "urdf",
    "urdfs",
    "xacro",
    "xml",
    "mjcf",
    "mjmodel",
    "robot",
    "robots",
    "model",
    "models",
    "description",
)
"""Folders of robot files that lie beside those of meshes."""


@dataclass
class Files:
    """The files one robot file may reach.

    Attributes:
        folder: of the robot file, or None if it was given as text without one.
        packages: package name to folder, for package:// addresses.
        allowed: further folders that files may be read from.
        strict: whether files are read from the robot's folder and package only.
    """

    folder: Path | None
    packages: Mapping[str, Path] = field(default_factory=dict)
    allowed: Sequence[Path] = ()
    strict: bool = True
    _read: int = 0
    _found: dict[str, Path | None] = field(default_factory=dict)
    _followed: dict[str, str] = field(default_factory=dict)
    _guessed: set[str] = field(default_factory=set)

    def resolve(
        self, address: str, element: Element, folders: Sequence[Path] = (), options: Sequence[Option] = ()
    ) -> Path:
        """Return the existing file that an address in the robot file means.

        Args:
            address: a relative path, or package://name/path.
            element: where it stands, for messages.
            folders: what it may be relative to, in this order, before the robot file's folder.
            options: what else the caller could do, for messages.

        Raises:
            ModelError: if it is missing, of a kind that is refused, or outside the folders that are allowed.
        """
        if "\0" in address or len(address) > 4000:
            element.fail("the file name has null characters or more than 4000 characters")
        package = re.match(r"(?:package|model):/{2,}([^/]+)/(.+)", address)
        if package:
            return self._packaged(package[1], unquote(package[2]), address, element, options)
        if address.startswith("file:///") and not self.strict:
            address = unquote(address.removeprefix("file://"))
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", address):
            scheme = address.split(":", 1)[0]
            remedy = "use a relative path or package://"
            element.fail(f"{scheme}: addresses are refused", remedy, subject=Subject("file", address))
        bases = [*folders, *([self.folder] if self.folder else [])]
        if not bases:
            here = Option("folder", "FOLDER", "to say where its files are")
            problem = "the robot was given as text, without a folder"
            element.fail(problem, subject=Subject("file", address), options=[here, *options])
        candidates = [os.path.join(base, address.replace("\\", "/")) for base in bases]
        return self._first(candidates, [self.folder or bases[0], *self._collection], address, element, options)

    def read(self, path: Path, element: Element, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the bytes of a file that `resolve` gave."""
        try:
            size = path.stat().st_size
            if size > limit:
                element.fail(f"it has {size} bytes", f"the limit is {limit}", subject=Subject("file", path.name))
            self._read += size
            if self._read > MAX_TOTAL_BYTES:
                element.fail(f"the files of the robot have more than {MAX_TOTAL_BYTES} bytes together")
            return path.read_bytes()
        except OSError as error:
            element.fail(f"it cannot be read: {error.strerror}", subject=Subject("file", path.name))

    def read_beside(self, path: Path, element: Element, address: str) -> bytes:
        """Return the bytes of a file that another, which `resolve` gave, refers to: in its folder or below it."""
        return self.read(self._first([path.parent / address], [path.parent], address, element, ()), element)

    @cached_property
    def _above(self) -> list[Path]:
        """Return the folder of the robot file and those above it that may belong to it."""
        home = Path(os.path.realpath(self.folder or Path()))
        user = Path(os.path.realpath(Path.home())) if "HOME" in os.environ else Path("/")
        folders = [home, *list(home.parents)[:LEVELS]]
        return [folder for folder in folders if len(folder.parts) > 1 and not user.is_relative_to(folder)]

    @cached_property
    def _collection(self) -> list[Path]:
        """Return the roots of collections that the robot file lies in."""
        if self.strict or self.folder is None:
            return []
        roots = []
        beside = self._above[0].name.lower() in BESIDE_MESHES if self._above else False
        for folder in self._above[1:]:
            if beside or any(os.path.exists(os.path.join(folder, marker)) for marker in MARKERS):
                roots.append(folder)
            beside = False
        return roots

    def _packaged(self, name: str, rest: str, address: str, element: Element, options: Sequence[Option]) -> Path:
        root = self.package(name)
        if root is not None:
            return self._first([root / rest], [root, *self._collection], address, element, options)
        roots = [] if self.strict else [*self._above[:1], *self._collection]
        tries = [folder / rest for folder in roots]
        subject = Subject("package", name)
        here = Option("packages", {name: "FOLDER"}, "to say where it is")
        if any(path.is_file() for path in tries):
            if name not in self._guessed:
                self._guessed.add(name)
                error = element.error("not found", subject=subject, options=[here])
                element.findings.note(error, "its files are taken from the robot's own folders")
            return self._first(tries, roots, address, element, options)
        element.fail("not found", subject=subject, options=[here, *options])

    def package(self, name: str) -> Path | None:
        """Return the folder of a package, or None if it is not found."""
        if name not in self._found:
            self._found[name] = self._package(name)
        return self._found[name]

    def _package(self, name: str) -> Path | None:
        if name in self.packages:
            return Path(self.packages[name])
        if "\0" in name or name in (".", ".."):
            return None
        # A ROS package is a folder of that name with a package.xml in it; the robot file usually lies inside.
        home = (self.folder or Path()).resolve()
        for ancestor in [home, *home.parents][:LEVELS]:
            if ancestor.name == name and (ancestor / "package.xml").is_file():
                return ancestor
        if self.strict:
            return None
        return next((folder for folder in self._package_candidates(name) if folder.is_dir()), None)

    def _package_candidates(self, name: str) -> Iterator[Path]:
        for entry in filter(None, os.environ.get("ROS_PACKAGE_PATH", "").split(os.pathsep)):
            # An entry is a package or a folder of packages, which may themselves be in folders.
            yield from (Path(entry) for _ in range(Path(entry).name == name))
            yield from (Path(entry) / name, *sorted(Path(entry).glob(f"*/{_literal(name)}")))
        for entry in filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)):
            yield Path(entry) / "share" / name
        if self.folder is not None:
            yield from (folder for folder in self._above if folder.name == name)
            trusted = [*self._above[:1], *self._collection]
            yield from (
                folder / name
                for folder in self._above
                if folder in trusted or (folder / name / "package.xml").is_file()
            )

    def _real(self, folder: str | Path) -> str:
        """Return a folder with links followed."""
        key = str(folder)
        if key not in self._followed:
            self._followed[key] = os.path.realpath(folder)
        return self._followed[key]

    def _followed_to(self, path: str | Path) -> str:
        """Return a path with links followed; those of its folder once for all the files in it."""
        folder, name = os.path.split(path)
        if name in ("", ".", ".."):
            return os.path.realpath(path)
        real = os.path.join(self._real(folder), name)
        return os.path.realpath(real) if os.path.islink(real) else real

    def _first(
        self,
        candidates: Sequence[str | Path],
        roots: Sequence[Path],
        address: str,
        element: Element,
        options: Sequence[Option],
    ) -> Path:
        """Return the first candidate that is a file inside one of the roots or allowed folders."""
        subject = Subject("file", address)
        outside = False
        for path in candidates:
            try:
                real = self._followed_to(path)
                inside = any(_is_within(real, self._real(root)) for root in [*roots, *self.allowed])
                exists = inside and (os.path.isfile(real) or Path(real).is_file())  # which raises if it is no path
            except (OSError, ValueError):
                element.fail("this is not a usable path", subject=subject)
            if exists:
                return Path(real)
            outside = outside or not inside
        if outside:
            permit = Option("allow", ["FOLDER"], "to read from there")
            what = "folder" if self.strict else "collection"
            element.fail(f"it is outside the robot's {what}", subject=subject, options=[permit, *options])
        element.fail("it does not exist", subject=subject, options=options)


def _is_within(path: str, folder: str) -> bool:
    """Return whether a path is a folder or in it, both with links followed."""
    path, folder = os.path.normcase(path), os.path.normcase(folder)
    return path == folder or path.startswith(os.path.join(folder, ""))


def _literal(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)
