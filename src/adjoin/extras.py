"""Packages that only some parts need."""

import importlib
from typing import Any

from adjoin.errors import InputError


def needed(module: str, extra: str, what: str) -> Any:
    """Return a module of another package, or an error that names the command which installs it.

    Args:
        module: to import.
        extra: of Adjoin, that has the package.
        what: needs it, for the message.
    """
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        raise InputError(f"{what} needs {module.split('.')[0]}: pip install 'adjoin[{extra}]' ({problem})") from None
