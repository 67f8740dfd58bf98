"""A small, strict XML reader that remembers lines.

No DOCTYPE, no entities, no processing beyond the text itself: what an untrusted robot file can do here is be refused.
"""

import re
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from adjoin.errors import ModelError
from adjoin.model.description import MAX_NUMBER, Where

MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 100
MAX_ELEMENTS = 30_000

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SPACE = " \t\r\n"


@dataclass
class Element:
    """An element with its attributes, children and line.

    Reading goes through the methods, which say file, line, element and attribute when something is wrong.
    """

    tag: str
    where: Where
    attributes: dict[str, str]
    children: list["Element"] = field(default_factory=list)

    def fail(self, message: str) -> NoReturn:
        """Raise `ModelError` at this element."""
        raise ModelError(f"{self.where}: <{self.tag}>: {message}")

    def all(self, tag: str) -> list["Element"]:
        """Children with this tag."""
        return [child for child in self.children if child.tag == tag]

    def one(self, tag: str) -> "Element | None":
        """The only child with this tag, or None."""
        found = self.all(tag)
        if len(found) > 1:
            found[1].fail(f"a second <{tag}> in <{self.tag}>; the first is on line {found[0].where.line}")
        return found[0] if found else None

    def need(self, tag: str) -> "Element":
        """The only child with this tag."""
        found = self.one(tag)
        return found if found is not None else self.fail(f"no <{tag}> in it")

    def text(self, attribute: str) -> str:
        """An attribute that must be there and not be empty."""
        value = self.attributes.get(attribute)
        if value is None:
            has = ", ".join(self.attributes)
            self.fail(f"no attribute {attribute!r}" + (f"; it has: {has}" if has else ""))
        if not value.strip():
            self.fail(f"attribute {attribute!r} is empty")
        if "${" in value or "$(" in value:
            self.fail(f"{attribute}={value!r} is xacro; expand the file first: xacro robot.urdf.xacro > robot.urdf")
        return value

    def name(self, attribute: str = "name") -> str:
        """An attribute that names something: printable text without surrounding space."""
        value = self.text(attribute)
        if len(value) > 1000:
            self.fail(f"{attribute} has {len(value)} characters; at most 1000 are allowed")
        if value != value.strip() or not value.isprintable():
            self.fail(f"{attribute}={value!r} has surrounding space or characters that do not print")
        return value

    def numbers(
        self, attribute: str, count: int, default: tuple[float, ...] | None = None, largest: float = MAX_NUMBER
    ) -> tuple[float, ...]:
        """Exactly `count` finite decimal numbers, separated by space, of magnitude up to `largest`."""
        if attribute not in self.attributes and default is not None:
            return default
        words = self.text(attribute).split()
        if len(words) != count:
            plural = "numbers" if count != 1 else "number"
            self.fail(f"{attribute}={_short(self.attributes[attribute])} must be {count} {plural}; it has {len(words)}")
        return tuple(self._number(attribute, word, largest) for word in words)

    def number(self, attribute: str, default: float | None = None, largest: float = MAX_NUMBER) -> float:
        """One finite decimal number of magnitude up to `largest`."""
        return self.numbers(attribute, 1, None if default is None else (default,), largest)[0]

    def positive(self, attribute: str) -> float:
        """One number above zero."""
        value = self.number(attribute)
        return value if value > 0.0 else self.fail(f"{attribute}={value:g} must be positive")

    def not_negative(self, attribute: str, default: float | None = None, largest: float = MAX_NUMBER) -> float:
        """One number that is zero or above."""
        value = self.number(attribute, default, largest)
        return value if value >= 0.0 else self.fail(f"{attribute}={value:g} must not be negative")

    def whole(self, attribute: str, default: int) -> int:
        """One whole number from 0 to 2^31 - 1."""
        value = self.number(attribute, float(default))
        if value != int(value) or not 0 <= value < 2**31:
            self.fail(f"{attribute}={value:g} must be a whole number from 0 to 2147483647")
        return int(value)

    def _number(self, attribute: str, word: str, largest: float) -> float:
        if len(word) > 100 or not _NUMBER.fullmatch(word):
            self.fail(f"{attribute}: {_short(word)} is not a number; write it like 1, -0.5 or 2e-3")
        value = float(word)
        if abs(value) > largest or abs(value) == float("inf"):
            self.fail(f"{attribute}: {_short(word)} is too large; numbers go up to {min(largest, 1.8e308):g}")
        return value


def _short(text: str) -> str:
    return repr(text) if len(text) <= 60 else repr(text[:57] + "...")


def parse(data: bytes, source: str, *, encoding: str | None = None) -> Element:
    """Read a document.

    Args:
        data: the file.
        source: what to call it in messages.
        encoding: what the bytes are in, whatever the document says of itself.

    Raises:
        ModelError: not XML, or XML that is refused here.
    """
    whole = Where(source)
    if not data.strip():
        raise ModelError(f"{whole}: the file is empty")
    if len(data) > MAX_BYTES:
        raise ModelError(f"{whole}: {len(data)} bytes; at most {MAX_BYTES} are read")
    parser = expat.ParserCreate(encoding)
    stack: list[Element] = []
    root: list[Element] = []
    count = 0

    def here() -> Where:
        return Where(source, parser.CurrentLineNumber)

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > MAX_ELEMENTS:
            raise ModelError(f"{here()}: more than {MAX_ELEMENTS} elements")
        if len(stack) >= MAX_DEPTH:
            raise ModelError(f"{here()}: elements are nested more than {MAX_DEPTH} deep")
        element = Element(tag, here(), attributes)
        (stack[-1].children if stack else root).append(element)
        stack.append(element)

    def end(_tag: str) -> None:
        stack.pop()

    def refuse(*_: object) -> None:
        raise ModelError(f"{here()}: DOCTYPE and entity declarations are refused; remove them")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        what = expat.errors.messages.get(error.code, "error")
        if stack and error.code in _CUT_SHORT:
            opened = stack[-1]
            raise ModelError(
                f"{source}:{error.lineno}: the file ends inside <{opened.tag}>, opened on line {opened.where.line}"
            ) from None
        raise ModelError(f"{source}:{error.lineno}: not XML: {what} (column {error.offset + 1})") from None
    except ModelError:
        raise
    except (LookupError, ValueError) as error:
        # expat asks Python's codecs for encodings it does not know; some refuse with a ValueError.
        raise ModelError(f"{source}:1: not XML: {error}") from None
    return root[0]


_CUT_SHORT = {
    expat.errors.codes[expat.errors.XML_ERROR_NO_ELEMENTS],
    expat.errors.codes[expat.errors.XML_ERROR_UNCLOSED_TOKEN],
    expat.errors.codes[expat.errors.XML_ERROR_PARTIAL_CHAR],
}
