"""Rooms import only what the table on the contributor's page lets them."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "adjoin"
PAGE = ROOT / "docs" / "contributing.md"
ROOT_MODULES = ("__init__", "__main__")
"""These stand for the package: they import every room."""


def table(page):
    """The rooms in order, from the top, each with the rooms that it may import; None if that is everything."""
    rows = page[page.index("| room |") :].split("\n\n")[0].splitlines()[2:]
    rooms = {}
    for row in rows:
        _, room, holds, allowed, _ = row.split("|")
        (name,) = re.findall(r"`([\w/]+?)(?:/|\.py)`", room)
        assert holds.strip(), f"{name} holds nothing"
        rooms[name] = None if allowed.strip() == "everything" else re.findall(r"`([\w/]+)`", allowed)
    (shared,) = re.findall(r"Every room may also import (.*?)\.\s", page, re.DOTALL)
    return rooms, re.findall(r"`(\w+)\.py`", shared)


ROOMS, SHARED = table(PAGE.read_text(encoding="utf-8"))


def room_of(path):
    """The innermost room that a path below the package lies in; None for the package itself."""
    inside = [room for room in ROOMS if path == room or path.startswith(f"{room}/")]
    return max(inside, key=len, default=None)


def imports(source):
    """(line, path below the package) of everything that a file imports from the package; "" for the package itself."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            assert not name.startswith("."), f"line {node.lineno}: {name} is relative"
            first, *path = name.split(".")
            if first == "adjoin" and path != ["__version__"]:
                yield node.lineno, "/".join(path)


def rooms_of(name):
    """The rooms that a name in the table stands for: `compiler` is no room, but has some."""
    return [name] if name in ROOMS else [room for room in ROOMS if room.startswith(f"{name}/")]


def violations(room, source):
    """(line, path) of every import in a file of a room that the table does not allow."""
    if ROOMS[room] is None:
        return
    allowed = {room}.union(*map(rooms_of, (*ROOMS[room], *SHARED)))
    for line, path in imports(source):
        if room_of(path) not in allowed:
            yield line, path


def test_every_file_is_in_a_room_that_exists():
    files = [file.relative_to(PACKAGE).with_suffix("").as_posix() for file in PACKAGE.rglob("*.py")]
    homeless = [file for file in files if room_of(file) is None and file not in ROOT_MODULES]
    empty_parents = {f"{name}/__init__" for room in ROOMS for name in [room.rpartition("/")[0]] if name}
    assert set(homeless) <= empty_parents
    assert {room_of(file) for file in files} - {None} == set(ROOMS)


def test_rows_name_only_rooms_further_down():
    order = list(ROOMS)
    for room, allowed in ROOMS.items():
        for name in allowed or ():
            assert rooms_of(name), f"{room} may import {name}, which is no room"
            assert all(order.index(other) > order.index(room) for other in rooms_of(name)), (room, name)
    assert set(SHARED) == set(order[-len(SHARED) :])


def test_rooms_import_only_what_the_table_allows():
    wrong = []
    for file in sorted(PACKAGE.rglob("*.py")):
        path = file.relative_to(PACKAGE)
        room = room_of(path.with_suffix("").as_posix())
        if room is not None:
            for line, other in violations(room, file.read_text(encoding="utf-8")):
                wrong.append(f"src/adjoin/{path}:{line}: {room} may not import {other}")
    assert wrong == []


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("spatial", "from adjoin.model.model import Model"),
        ("spatial", "def f():\n    import adjoin.compiler.ir.ops"),
        ("model", "import adjoin"),
        ("model", "from adjoin import Simulator"),
        ("io", "from adjoin import robots"),
        ("dynamics", "from adjoin.collision import pairs"),
        ("learn", "from adjoin.control.optimizers.gauss_newton import GaussNewton"),
        ("viewer", "from adjoin.simulation.simulator import Simulator"),
        ("compiler/ir", "from adjoin.compiler.autodiff import reverse"),
        ("compiler/autodiff", "from adjoin.compiler.codegen.writer import Lane"),
        ("compiler/codegen", "from adjoin.compiler.runtime.backend import Target"),
        ("compiler/runtime", "from adjoin.compiler.runtime.cpu import kernel"),
        ("compiler/runtime/cuda", "from adjoin.compiler.runtime.cpu.kernel import CpuTarget"),
        ("compiler/runtime/cpu", "import adjoin.compiler.runtime.cuda.staging"),
        ("compiler/ir", "from adjoin.spatial import vector"),
        ("trace", "from adjoin.dynamics import aba"),
    ],
)
def test_imports_that_are_not_allowed_are_reported(room, line):
    assert len(list(violations(room, line))) == 1


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("cli", "import adjoin"),
        ("control", "from adjoin.learn import gauss_newton"),
        ("compiler/runtime", "from adjoin import __version__"),
        ("compiler/runtime/cuda", "from adjoin.compiler.runtime.backend import Binary"),
        ("simulation", "from adjoin.compiler.runtime.cpu import kernel"),
        ("spatial", "import math, torch\nfrom adjoin.errors import InputError"),
    ],
)
def test_imports_that_are_allowed_are_not(room, line):
    assert list(violations(room, line)) == []
