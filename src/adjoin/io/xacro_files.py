"""Xacro files, expanded by the package `xacro`.

Xacro evaluates expressions and includes whatever files it names, past the rules of `paths`: expand only files that you
trust. Reading is strict about it: `adjoin.load(strict=True)` refuses them.
"""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adjoin.errors import InputError, Location, ModelError
from adjoin.extras import needed
from adjoin.io.paths import Files
from adjoin.io.xml import EXPAND, Element

_LOCK = threading.Lock()


def is_xacro(root: Element) -> bool:
    """Return whether a document has macros to expand."""
    return root.tag == "robot" and any(child.tag.startswith("xacro:") for child in root.children)


def expand(path: Path, files: Files, root: Element) -> bytes:
    """Return the document that a xacro file describes.

    Args:
        path: of the file.
        files: where the packages of `$(find package)` are.
        root: its outermost element, for messages.

    Raises:
        ModelError: the package `xacro` is missing, or it refuses the file.
    """
    try:
        xacro = needed("xacro", "xacro", "a xacro file")
    except InputError as error:
        root.fail(error.problem, f"or {EXPAND}")
    try:
        with _LOCK, _packages_found_by(files):
            return xacro.process_file(str(path)).toxml().encode()
    except Exception as error:  # xacro raises errors of its own, of XML, and of whatever an expression does
        cause = getattr(error, "exc", None) or error  # what it wraps, it says twice
        problem = f"xacro: {' '.join(str(cause).split()) or type(cause).__name__}"
        raise ModelError(problem, where=Location(str(path))) from None


@contextlib.contextmanager
def _packages_found_by(files: Files) -> Iterator[None]:
    """Have `$(find package)` search as package:// addresses do, and ROS's own index after that."""
    module: Any = needed("xacro.substitution_args", "xacro", "a xacro file")
    original = module._eval_find

    def find(package: str) -> str:
        folder = files.package(package)
        try:
            return original(package) if folder is None else str(folder)
        except ImportError:
            raise LookupError(f"package {package!r} not found; pass packages={{{package!r}: 'FOLDER'}}") from None

    module._eval_find = find
    try:
        yield
    finally:
        module._eval_find = original
