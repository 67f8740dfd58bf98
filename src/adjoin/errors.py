"""What goes wrong, said so that the reader can act: what was wrong, where, and what would be right."""

from collections.abc import Iterable


class AdjoinError(Exception):
    """Base of every error this library raises on purpose."""


class TraceError(AdjoinError, TypeError):
    """A traced function did something a kernel cannot do, such as branching on a traced value."""


class InputError(AdjoinError, ValueError):
    """A call got an argument of the wrong name, shape, dtype or device."""


class ModelError(AdjoinError, ValueError):
    """A robot description is malformed or unphysical."""


class CompileError(AdjoinError, RuntimeError):
    """A kernel could not be compiled or loaded on this machine."""


def unknown_name(what: str, plural: str, name: str, names: Iterable[str]) -> str:
    """The message for a name that does not exist, with the ones that do."""
    names = list(names)
    listed = ", ".join(names[:40]) + (f", ... ({len(names) - 40} more)" if len(names) > 40 else "")
    return f"no {what} {name!r}; {plural}: {listed or 'none'}"
