"""Parts of a kernel as functions of their own, each in a module of its own.

LLVM's time grows faster than a function's length, and the same search for contacts is in the kernel of a step and in
that of its gradient. So parts are cut out of the text of a kernel: what they read becomes arguments, what is read of
them is returned through pointers, and names are made anew in the order in which they appear, so that equal parts have
equal texts and are compiled once. Instructions and their order stay as they are, and so do all bits.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

BEGIN, END = "; part {", "; part }"
"""Lines around a part: within a basic block, and at its end."""

_MARK = re.compile(f"^({re.escape(BEGIN)}|{re.escape(END)})$", re.MULTILINE)
_NAME = re.compile(r"%[A-Za-z_][\w.]*")
_DEFINITION = re.compile(r"^  (%[\w.]+) = (.*)$", re.MULTILINE)
_LABEL = re.compile(r"^([A-Za-z_][\w.]*):$", re.MULTILINE)
_SYMBOL = re.compile(r"@[\w.]+")
_TYPE = re.compile(r"<\d+ x [^>]+>|\[\d+ x [^\]]+\]|ptr|double|float|i\d+")


@dataclass
class _Open:
    """A function whose text is being read.

    Attributes:
        label: of its first basic block.
        text: the rest of it.
        memory: of what the parts in it return.
        used: how often names are used in it, its parts included.
        defined: the names of its instructions, in order.
    """

    label: str
    text: list[str] = field(default_factory=list)
    memory: list[str] = field(default_factory=list)
    used: Counter[str] = field(default_factory=Counter)
    defined: list[str] = field(default_factory=list)


def outline(
    text: str, arguments: Mapping[str, str], globals_: Mapping[str, str], attributes: str
) -> tuple[str, list[str], dict[str, str]]:
    """Cut the marked parts out of a function.

    Args:
        text: its body, the first line of which is a label.
        arguments: its names -> their types.
        globals_: names of constants and functions that it may use -> their definitions and declarations.
        attributes: the definition of the attributes `#0` of functions.

    Returns:
        The text that is left, declarations of what it calls, and by the name of each part the text of its module.
    """
    definitions = dict(_DEFINITION.findall(text))
    total = Counter(_NAME.findall(text))
    first, _, text = text.partition(":\n")
    stack, label = [_Open(first)], first
    declarations: dict[str, str] = {}
    parts: dict[str, str] = {}

    def type_of(name: str) -> str:
        return arguments[name] if name in arguments else result_type(definitions[name])

    def known(symbol: str) -> list[str]:
        return [table[symbol] for table in (globals_, declarations) if symbol in table]

    for piece in _MARK.split(text):
        if piece == BEGIN:
            stack.append(_Open(label))
        elif piece != END:
            stack[-1].text.append(piece.strip("\n"))
            stack[-1].used.update(_NAME.findall(piece))
            stack[-1].defined += [name for name, _ in _DEFINITION.findall(piece)]
            label = [label, *_LABEL.findall(piece)][-1]
        else:
            part, outer = stack.pop(), stack[-1]
            label = part.label
            outer.used.update(part.used)
            inner = "\n".join([*part.memory, *part.text])
            results = [name for name in part.defined if total[name] > part.used[name]]
            within = {*part.defined, *(name for name, _ in _DEFINITION.findall("\n".join(part.memory)))}
            within.update(f"%{name}" for name in [part.label, "done", *_LABEL.findall(inner)])
            captured = [(type_of(name), name) for name in dict.fromkeys(_NAME.findall(inner)) if name not in within]
            returned = [(type_of(name), name, f"{name}.p{len(stack)}") for name in results]
            parameters = ", ".join([f"{kind} {name}" for kind, name in captured] + [f"ptr {p}" for *_, p in returned])
            stores = [f"  store {kind} {name}, ptr {place}" for kind, name, place in returned]
            exits = ["  ret void", "done:", "  ret void"] if "%done" in part.used else ["  ret void"]
            head = f"define void @part({parameters}) #0 {{\n{part.label}:"
            body = _renamed("\n".join([head, inner, *stores, *exits, "}"]))
            symbol = "part_" + hashlib.sha256(body.encode()).hexdigest()[:32]
            types = ", ".join([kind for kind, _ in captured] + ["ptr"] * len(returned))
            if symbol not in parts:
                used = [line for name in dict.fromkeys(_SYMBOL.findall(body)) for line in known(name)]
                parts[symbol] = "\n".join([*used, body.replace("@part(", f"@{symbol}(", 1), attributes])
                declarations[f"@{symbol}"] = f"declare void @{symbol}({types})"
            outer.memory += [f"  {place} = alloca {kind}" for kind, _, place in returned]
            outer.text.append(f"  call void @{symbol}({parameters})")
            outer.text += [f"  {name} = load {kind}, ptr {place}" for kind, name, place in returned]
            outer.defined += results
    (whole,) = stack
    left = "\n".join([f"{whole.label}:", *whole.memory, *whole.text])
    return left, [declarations[name] for name in dict.fromkeys(_SYMBOL.findall(left)) if name in declarations], parts


def _renamed(text: str) -> str:
    """The text of a function with names by the order in which they appear."""
    names: dict[str, str] = {}

    def new(match: re.Match[str]) -> str:
        return names.setdefault(match[0], f"%v{len(names)}")

    def new_label(match: re.Match[str]) -> str:
        return names.setdefault(f"%{match[1]}", f"%v{len(names)}")[1:] + ":"

    return _LABEL.sub(new_label, _NAME.sub(new, text))


def result_type(instruction: str) -> str:
    """The type of what an instruction gives."""
    operation, _, rest = instruction.partition(" ")
    if operation in ("getelementptr", "alloca"):
        vector = re.search(r", <(\d+) x i\d+>", rest)
        return f"<{vector[1]} x ptr>" if vector else "ptr"
    if " to " in rest and operation not in ("call", "phi", "load"):
        return rest.rpartition(" to ")[2]
    types = _TYPE.findall(rest)
    if operation in ("icmp", "fcmp"):
        vector = re.match(r"<(\d+) x", types[0])
        return f"<{vector[1]} x i1>" if vector else "i1"
    if operation == "select":
        return types[1]
    if operation == "extractelement":
        return types[0].partition(" x ")[2][:-1]
    if operation == "shufflevector":
        return types[2].partition(" x ")[0] + " x " + types[0].partition(" x ")[2]
    return types[0]
