"""Which files a robot file may have read: those in its own folder, in its package, and where the caller allows.

A robot file is data from somewhere; that it names /etc/passwd, ../../secrets or http://... must not be enough to have
them opened. Links in the file system are followed before the check.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from adjoin.errors import Option, Subject
from adjoin.io.xml import Element

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_TOTAL_BYTES = 256 * 1024 * 1024


@dataclass
class Files:
    """The files one robot file may reach.

    Attributes:
        folder: of the robot file, or None if it was given as text without one.
        packages: package name to folder, for package:// addresses.
        allowed: further folders that files may be read from.
    """

    folder: Path | None
    packages: Mapping[str, Path] = field(default_factory=dict)
    allowed: Sequence[Path] = ()
    _read: int = 0

    def resolve(
        self, address: str, element: Element, folder: Path | None = None, options: Sequence[Option] = ()
    ) -> Path:
        """Return the existing file that an address in the robot file means.

        Args:
            address: a relative path, or package://name/path.
            element: where it stands, for messages.
            folder: what it is relative to, if not the robot file's folder.
            options: what else the caller could do, for messages.

        Raises:
            ModelError: if it is missing, of a kind that is refused, or outside the folders that are allowed.
        """
        if "\0" in address or len(address) > 4000:
            element.fail("the file name has null characters or more than 4000 characters")
        package = re.match(r"package:/{2,}([^/]+)/(.+)", address)
        if package:
            root = self._package(package[1], element, options)
            return self._inside(root / unquote(package[2]), [root, *self.allowed], address, element, options)
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", address):
            scheme = address.split(":", 1)[0]
            remedy = "use a relative path or package://"
            element.fail(f"{scheme}: addresses are refused", remedy, subject=Subject("file", address))
        base = folder or self.folder
        if base is None:
            here = Option("folder", "FOLDER", "to say where its files are")
            problem = "the robot was given as text, without a folder"
            element.fail(problem, subject=Subject("file", address), options=[here, *options])
        roots = [self.folder or base, *self.allowed]
        return self._inside(base / address.replace("\\", "/"), roots, address, element, options)

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

    def _package(self, name: str, element: Element, options: Sequence[Option]) -> Path:
        if name in self.packages:
            return Path(self.packages[name])
        # A ROS package is a folder of that name with a package.xml in it; the robot file usually lies inside.
        home = (self.folder or Path()).resolve()
        for ancestor in [home, *home.parents][:6]:
            if ancestor.name == name and (ancestor / "package.xml").is_file():
                return ancestor
        here = Option("packages", {name: "FOLDER"}, "to say where it is")
        element.fail("not found", subject=Subject("package", name), options=[here, *options])

    def _inside(
        self, path: Path, roots: Sequence[Path], address: str, element: Element, options: Sequence[Option]
    ) -> Path:
        subject = Subject("file", address)
        try:
            real = Path(os.path.realpath(path, strict=False))
            inside = any(real.is_relative_to(os.path.realpath(root)) for root in roots)
            exists = real.is_file()
        except (OSError, ValueError):
            element.fail("this is not a usable path", subject=subject)
        if not inside:
            permit = Option("allow", ["FOLDER"], "to read from there")
            element.fail("it is outside the robot's folder", subject=subject, options=[permit, *options])
        if not exists:
            element.fail("it does not exist", subject=subject, options=options)
        return real
