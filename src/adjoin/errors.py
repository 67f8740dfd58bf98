"""Errors that carry their parts: where, what is wrong with what, what would be right, and which options help."""

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_PACKAGE = os.path.join(os.path.dirname(__file__), "")


class Location(NamedTuple):
    """A place in a file.

    Attributes:
        file: as the caller named it, or "<text>".
        line: from 1, or 0 if it is not known.
    """

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class Subject(NamedTuple):
    """What an error is about.

    Attributes:
        kind: such as "link", "joint", "environment" or "parameter".
        name: of that link, joint or parameter; the number of an environment.
    """

    kind: str
    name: str | int

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


class Option(NamedTuple):
    """An argument of the function that was called, with which the problem goes away.

    Attributes:
        name: of the argument.
        value: to pass; "FOLDER" where the caller has to say which.
        effect: what that does, as in "to scale it".
    """

    name: str
    value: Any
    effect: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.value!r}"


class AdjoinError(Exception):
    """Base of every error this library raises on purpose.

    The message is put together from the parts: `file:line: <element>: subject: field: problem; remedy; pass options`,
    without the field where the problem begins with it.

    Args:
        problem: what is wrong.
        where: the place in a file, if it is about a file.
        element: the XML element there.
        subject: what it is about.
        field: the field or attribute of the subject or element that is wrong.
        remedy: what would be right.
        options: arguments that help, the one that changes least first.

    Attributes:
        file: the file it is about, as the caller named it; empty if there is none.
        line: in that file, from 1; 0 if it is not known.
    """

    def __init__(
        self,
        problem: str,
        *,
        where: Location | None = None,
        element: str = "",
        subject: Subject | Option | None = None,
        field: str = "",
        remedy: str = "",
        options: Sequence[Option] = (),
    ):
        super().__init__(problem)
        self.problem, self.remedy, self.options = problem, remedy, tuple(options)
        self.file, self.line = where or ("", 0)
        self.element, self.subject, self.field = element, subject, field

    def message(self, spell: Callable[[Option], str] = str) -> str:
        """Return the message as a whole.

        Args:
            spell: how an option is written; by default as an argument in Python.
        """
        subject = spell(self.subject) if isinstance(self.subject, Option) else str(self.subject or "")
        element = f"<{self.element}>" if self.element else ""
        field = "" if self.problem.startswith(self.field) else self.field
        place = [str(Location(self.file, self.line)), element, subject, field]
        help = ", or ".join(f"{spell(option)} {option.effect}" for option in self.options)
        parts = [self.problem, self.remedy, help and f"pass {help}"]
        return ": ".join([*filter(None, place), "; ".join(filter(None, parts))])

    def __str__(self) -> str:
        return self.message()


class TraceError(AdjoinError, TypeError):
    """A traced function did something a kernel cannot do, such as branching on a traced value."""


class InputError(AdjoinError, ValueError):
    """A call got an argument of the wrong name, shape, dtype or device."""


class ModelError(AdjoinError, ValueError):
    """A robot description is malformed or unphysical."""


class CompileError(AdjoinError, RuntimeError):
    """A kernel could not be compiled or loaded on this machine."""


def unknown_name_parts(what: str, plural: str, name: str, names: Iterable[str]) -> tuple[str, str]:
    """Return the problem and the remedy of an error about a name that does not exist: the names that do."""
    names = list(names)
    listed = ", ".join(names[:40]) + (f", ... ({len(names) - 40} more)" if len(names) > 40 else "")
    return f"no {what} {name!r}", f"{plural}: {listed or 'none'}"


def unknown_name(what: str, plural: str, name: str, names: Iterable[str]) -> str:
    """Return the message for a name that does not exist, with the ones that do."""
    return "; ".join(unknown_name_parts(what, plural, name, names))


class AdjoinWarning(UserWarning):
    """Something was done in another way than asked for.

    Args:
        text: what was done.
        errors: why; the message has the first of them.
    """

    def __init__(self, text: str, errors: Sequence[AdjoinError] = ()):
        super().__init__(text)
        self.text, self.errors = text, tuple(errors)

    def message(self, spell: Callable[[Option], str] = str) -> str:
        """Return the message as a whole; see `AdjoinError.message`."""
        first = [error.message(spell) for error in self.errors[:1]]
        more = f" (and {len(self.errors) - 1} more)" if len(self.errors) > 1 else ""
        return ": ".join([self.text, *first]) + more

    def __str__(self) -> str:
        return self.message()


class Finding(NamedTuple):
    """A flaw of a robot file that was no reason to refuse it.

    Attributes:
        error: what strict reading would have raised.
        done: what was done about it, as in "taken as it is".
    """

    error: ModelError
    done: str

    def message(self, spell: Callable[[Option], str] = str) -> str:
        """Return the flaw, what was done, and the options that say where files are; see `AdjoinError.message`."""
        error = self.error
        where = [option for option in error.options if option.name in ("packages", "allow", "folder")]
        place = [str(Location(error.file, error.line)), str(error.subject or (error.element and f"<{error.element}>"))]
        help = ", or ".join(f"{spell(option)} {option.effect}" for option in where)
        parts = [error.problem, self.done, help and f"pass {help}"]
        return ": ".join([*filter(None, place), "; ".join(filter(None, parts))])


@dataclass
class Findings:
    """Collects the flaws of a robot file, or raises the first of them.

    Attributes:
        strict: whether a flaw is an error.
        found: the flaws so far, in the order in which they were met.
    """

    strict: bool = True
    found: list[Finding] = field(default_factory=list)

    def report(self, error: ModelError, done: str) -> None:
        """Raise an error if reading is strict; otherwise note it, and what is done about it."""
        if self.strict:
            raise error
        self.found.append(Finding(error, done))

    def note(self, error: ModelError, done: str) -> None:
        """Note something odd that is no error even if reading is strict."""
        if not self.strict:
            self.found.append(Finding(error, done))


class ModelWarning(AdjoinWarning):
    """A robot file has flaws, and was loaded all the same.

    Attributes:
        findings: the flaws, each with what was done about it.
    """

    shown = 20

    def __init__(self, file: str, findings: Sequence[Finding]):
        count = f"{len(findings)} things were" if len(findings) > 1 else "something was"
        super().__init__(f"{file}: {count} noticed (strict=True makes them errors)", [f.error for f in findings])
        self.findings = tuple(findings)

    def message(self, spell: Callable[[Option], str] = str) -> str:
        """Return all findings, one a line; of many, the first."""
        lines = [f"{self.text}:", *(finding.message(spell) for finding in self.findings[: self.shown])]
        if len(self.findings) > self.shown:
            lines.append(f"... and {len(self.findings) - self.shown} more; the warning's `findings` has all")
        return "\n  ".join(lines)


def warn_caller(warning: Warning) -> None:
    """Issue a warning that points at the line of the program that called this library, maybe through torch."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(_PACKAGE) or frame.f_globals.get("__name__", "").startswith("torch.")
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)


class InsideGroundWarning(AdjoinWarning):
    """A state begins inside the ground, which will throw it out."""


class LeftGridWarning(AdjoinWarning):
    """A particle left its grid, which ended its variant."""


class UnsettledWarning(AdjoinWarning):
    """A gradient was taken by the implicit adjoint through solves that had not converged."""
