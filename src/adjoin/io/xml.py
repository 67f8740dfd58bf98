"""A small, strict XML reader that remembers lines.

No DOCTYPE, no entities, no processing beyond the text itself: what an untrusted robot file can do here is be refused.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from adjoin.errors import Findings, Location, ModelError, Option, Subject
from adjoin.model.validate import MAX_NUMBER

MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 100
MAX_ELEMENTS = 30_000
MAX_NAME = 1000
EXPAND = "expand the file first: xacro robot.urdf.xacro > robot.urdf"

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(slots=True)
class Element:
    """An element with its attributes, children and line.

    The methods raise `ModelError` with file, line, element and attribute when something is wrong. Where reading can go
    on, `notice` leaves it to `findings` whether to raise.
    """

    tag: str
    where: Location
    attributes: dict[str, str]
    children: list["Element"] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings, repr=False)

    def notice(
        self,
        done: str,
        problem: str,
        remedy: str = "",
        *,
        subject: Subject | Option | None = None,
        field: str = "",
        options: Sequence[Option] = (),
    ) -> None:
        """Report a flaw of this element, and what is done about it if reading is not strict."""
        error = self.error(problem, remedy, subject=subject, field=field, options=options)
        self.findings.report(error, done)

    def fail(
        self,
        problem: str,
        remedy: str = "",
        *,
        subject: Subject | Option | None = None,
        field: str = "",
        options: Sequence[Option] = (),
    ) -> NoReturn:
        """Raise `ModelError` at this element; see `AdjoinError` for the parts."""
        raise self.error(problem, remedy, subject=subject, field=field, options=options)

    def error(
        self,
        problem: str,
        remedy: str = "",
        *,
        subject: Subject | Option | None = None,
        field: str = "",
        options: Sequence[Option] = (),
    ) -> ModelError:
        """Return a `ModelError` about this element; see `AdjoinError` for the parts."""
        return ModelError(
            problem,
            where=self.where,
            element=self.tag,
            subject=subject,
            field=field,
            remedy=remedy,
            options=options,
        )

    def all(self, tag: str) -> list["Element"]:
        """Return children with this tag."""
        return [child for child in self.children if child.tag == tag]

    def one(self, tag: str) -> "Element | None":
        """Return the only child with this tag, or None."""
        elements = self.all(tag)
        if len(elements) > 1:
            first = f"the first is on line {elements[0].where.line}"
            elements[1].notice("the first is taken", f"there are two of these in <{self.tag}>", first)
        return elements[0] if elements else None

    def need(self, tag: str) -> "Element":
        """Return the only child with this tag."""
        element = self.one(tag)
        return element if element is not None else self.fail(f"<{tag}> is missing")

    def text(self, attribute: str) -> str:
        """Return an attribute that must be there and not be empty."""
        value = self.attributes.get(attribute)
        if value is None:
            has = ", ".join(self.attributes)
            self.fail(f"attribute {attribute!r} is missing", f"it has: {has}" if has else "")
        if not value.strip():
            self.fail(f"attribute {attribute!r} is empty")
        if "${" in value or "$(" in value:
            self.fail(f"{value!r} is xacro", EXPAND, field=attribute)
        return value

    def name(self, attribute: str = "name") -> str:
        """Return an attribute that names something: printable text without surrounding space."""
        value = self.text(attribute)
        if len(value) > MAX_NAME:
            self.fail(f"{attribute} has {len(value)} characters", f"the limit is {MAX_NAME}", field=attribute)
        if not value.isprintable():
            self.fail(f"{value!r} has characters that cannot be printed", field=attribute)
        if value != value.strip():
            self.notice("taken without them", f"{value!r} has spaces around it", field=attribute)
        return value.strip()

    def numbers(
        self, attribute: str, count: int, default: tuple[float, ...] | None = None, largest: float = MAX_NUMBER
    ) -> tuple[float, ...]:
        """Return exactly `count` finite decimal numbers, separated by space, of magnitude up to `largest`."""
        if attribute not in self.attributes and default is not None:
            return default
        words = self.text(attribute).split()
        if len(words) != count:
            text = _short(self.attributes[attribute])
            plural = "s" * (len(words) != 1)
            self.fail(f"{text} has {len(words)} number{plural}", f"it needs {count}", field=attribute)
        return tuple(self._number(attribute, word, largest) for word in words)

    def number(self, attribute: str, default: float | None = None, largest: float = MAX_NUMBER) -> float:
        """Return one finite decimal number of magnitude up to `largest`."""
        return self.numbers(attribute, 1, None if default is None else (default,), largest)[0]

    def positive(self, attribute: str) -> float:
        """Return one number above zero."""
        value = self.number(attribute)
        return value if value > 0.0 else self.fail(f"{attribute} is {value:g}", "it must be positive", field=attribute)

    def not_negative(self, attribute: str, default: float | None = None, largest: float = MAX_NUMBER) -> float:
        """Return one number that is zero or above."""
        value = self.number(attribute, default, largest)
        return (
            value if value >= 0.0 else self.fail(f"{attribute} is {value:g}", "it must be at least 0", field=attribute)
        )

    def integer(self, attribute: str, default: int) -> int:
        """Return one whole number from 0 to 2^31 - 1."""
        value = self.number(attribute, float(default))
        if value != int(value) or not 0 <= value < 2**31:
            self.fail(f"{attribute} is {value:g}", "it must be a whole number from 0 to 2147483647", field=attribute)
        return int(value)

    def _number(self, attribute: str, word: str, largest: float) -> float:
        if len(word) > 100 or not _NUMBER.fullmatch(word):
            self.fail(f"{_short(word)} is not a number", "write it like 1, -0.5 or 2e-3", field=attribute)
        value = float(word)
        if abs(value) > largest or abs(value) == float("inf"):
            self.fail(f"{_short(word)} is too large", f"the limit is {min(largest, 1.8e308):g}", field=attribute)
        return value


def _short(text: str) -> str:
    return repr(text) if len(text) <= 60 else repr(text[:57] + "...")


def too_large(where: Location, size: int) -> ModelError:
    """Return the error about a document of so many bytes."""
    return ModelError(f"the file has {size} bytes", where=where, remedy=f"the limit is {MAX_BYTES}")


def parse(data: bytes, source: str, *, encoding: str | None = None, findings: Findings | None = None) -> Element:
    """Read a document.

    Args:
        data: the file.
        source: what to call it in messages.
        encoding: what the bytes are in, whatever the document says of itself.
        findings: where its elements report flaws with which reading can go on; by default they are errors.

    Raises:
        ModelError: not XML, or XML that is refused here.
    """
    if not data.strip():
        raise ModelError("the file is empty", where=Location(source))
    if len(data) > MAX_BYTES:
        raise too_large(Location(source), len(data))
    findings = findings or Findings()
    above = 0
    begin = data.lstrip()
    if len(begin) < len(data) and begin.startswith(b"<?xml"):
        error = ModelError("not XML: a declaration <?xml ...?> must be at the very start", where=Location(source, 1))
        findings.report(error, "what is before it is ignored")
        above, data = data[: -len(begin)].count(b"\n"), begin
    parser = expat.ParserCreate(encoding)
    stack: list[Element] = []
    root: list[Element] = []
    count = 0

    def here() -> Location:
        return Location(source, parser.CurrentLineNumber + above)

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > MAX_ELEMENTS:
            raise ModelError(f"the file has more than {MAX_ELEMENTS} elements", where=here())
        if len(stack) >= MAX_DEPTH:
            raise ModelError(f"elements are nested more than {MAX_DEPTH} deep", where=here())
        element = Element(tag, Location(source, parser.CurrentLineNumber + above), attributes, [], findings)
        (stack[-1].children if stack else root).append(element)
        stack.append(element)

    def end(_tag: str) -> None:
        stack.pop()

    def refuse(*_: object) -> None:
        raise ModelError("DOCTYPE and entity declarations are refused", where=here(), remedy="remove them")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        what = expat.errors.messages.get(error.code, "error")
        if stack and error.code in _CUT_SHORT:
            opened = f"the file ends inside <{stack[-1].tag}>, which begins on line {stack[-1].where.line}"
            raise ModelError(opened, where=Location(source, error.lineno + above)) from None
        text = f"not XML: {what} (column {error.offset + 1})"
        raise ModelError(text, where=Location(source, error.lineno + above)) from None
    except ModelError:
        raise
    except (LookupError, ValueError) as error:
        # expat asks Python's codecs for encodings it does not know; some refuse with a ValueError.
        raise ModelError(f"not XML: {error}", where=Location(source, 1)) from None
    finally:
        # The parser holds the handlers, and they hold it: apart, all of this is freed now and not by the collector.
        parser.StartElementHandler = parser.EndElementHandler = None
        parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = None
    return root[0]


_CUT_SHORT = {
    expat.errors.codes[expat.errors.XML_ERROR_NO_ELEMENTS],
    expat.errors.codes[expat.errors.XML_ERROR_UNCLOSED_TOKEN],
    expat.errors.codes[expat.errors.XML_ERROR_PARTIAL_CHAR],
}
