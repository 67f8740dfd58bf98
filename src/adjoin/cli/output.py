"""What commands print: tables for people, one JSON object for programs."""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from adjoin.errors import InputError


def show(arguments: argparse.Namespace, data: dict[str, Any], *lines: str) -> None:
    """Print what a command found: one object with --json, else the lines."""
    if arguments.json:
        print_json(data)
    else:
        print("\n".join(lines))


def print_json(value: Any) -> None:
    """Print one object; what is not finite is null, as JSON has no word for it."""
    print(json.dumps(plain(value), ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """Return dataclasses, sequences and numbers as JSON has them; many vertices of a hull are only counted."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return columns under their names; those of numbers stand to the right."""
    cells = [[number(cell) if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    right = [
        bool(rows) and all(isinstance(row[i], (int, float)) or not row[i] for row in rows) for i in range(len(head))
    ]
    widths = [max(len(row[i]) for row in [list(head), *cells]) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in [list(head), *cells]
    )


def number(value: float) -> str:
    """Return a number in four digits, with commas in large ones."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value + 0.0:.4g}"  # 0, not -0


def size(count: int) -> str:
    """Return bytes in a unit that suits."""
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB" if count >= 1000 else f"{count} bytes"


def writable(path: Path | None) -> Path | None:
    """Return a path that a file can be written to, asked before long work."""
    if path is None:
        return None
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file to write")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist")
    existed = path.exists()
    with path.open("ab"):
        pass
    if not existed:
        path.unlink()
    return path
