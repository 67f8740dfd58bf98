"""Mutants: one small change in one line of the library, against the tests of its room. On demand only.

    python tests/campaign/mutants.py --count 200 --seed 0 --out tests/campaign/mutants.json

Each mutant is made in a copy of the tree, and the tests of its room run with -x, those files first that speak of the
module. A mutant is *noticed* if a test fails, and has *survived* if all pass. Those that no test could notice are
*equivalent*: `EQUIVALENT` says which, and why. One whose tests took longer than the limit is *out of time*: unknown.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
ROOMS = ("compiler", "spatial", "model", "dynamics", "collision", "constraints", "simulation", "learn", "control")
"""Rooms whose files are mutated."""

TESTS = {"constraints": "simulation"}
"""Where the tests of a room are, if not under its own name."""

OPERATORS = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.Lt: ("<", ">="),
    ast.Gt: (">", "<="),
    ast.LtE: ("<=", "<"),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
NAMES = {"maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max", "any": "all", "all": "any"}

EQUIVALENT: dict[tuple[str, str], str] = {}
"""(file, changed line without indentation) -> why no test can notice it."""


class Mutant(NamedTuple):
    """A change.

    Attributes:
        file: Relative to the root.
        line: Counted from 1.
        before: The line as it is.
        after: The line as it becomes.
    """

    file: str
    line: int
    before: str
    after: str


def mutants(file: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file; docstrings, annotations and messages of errors stay as they are."""
    text = file.read_text()
    lines, tree = text.splitlines(), ast.parse(text)
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Assert, ast.AnnAssign)) or hasattr(node, "returns"):
            parts = [node.returns, node.args] if hasattr(node, "returns") else [node]  # pyright: ignore[reportAttributeAccessIssue]
            skipped |= {id(child) for part in parts if part is not None for child in ast.walk(part)}

    def change(line: int, begin: int, end: int, old: str, new: str) -> Iterator[Mutant]:
        before = lines[line - 1]
        at = before.encode()[begin:end].decode().find(old)
        if at < 0:
            return
        at += len(before.encode()[:begin].decode())
        after = before[:at] + new + before[at + len(old) :]
        yield Mutant(str(file.relative_to(ROOT)), line, before, after)

    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        pairs = []
        if isinstance(node, ast.BinOp):
            pairs = [(node.left, node.op, node.right)]
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            pairs = [(node.left, node.ops[0], node.comparators[0])]
        elif isinstance(node, ast.BoolOp):
            pairs = [(node.values[0], node.op, node.values[1])]
        for left, op, right in pairs:
            if type(op) in OPERATORS and left.end_lineno == right.lineno:
                old, new = OPERATORS[type(op)]
                yield from change(right.lineno, left.end_col_offset or 0, right.col_offset, old, new)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.lineno == node.end_lineno:
            old = lines[node.lineno - 1].encode()[node.col_offset : node.end_col_offset].decode()
            new = repr(node.value + 1) if node.value in (0, 1) else repr(type(node.value)(node.value * 2))
            yield from change(node.lineno, node.col_offset, node.end_col_offset or 0, old, new)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMES:
            name = node.func
            yield from change(name.lineno, name.col_offset, name.end_col_offset or 0, name.id, NAMES[name.id])


def chosen(count: int, seed: int, rooms: list[str]) -> list[Mutant]:
    """Return mutants at random, each from another line."""
    sources = sorted(file for room in rooms for file in (ROOT / "src/adjoin" / room).rglob("*.py"))
    everything = [mutant for file in sources for mutant in mutants(file)]
    random.Random(seed).shuffle(everything)
    found = {(mutant.file, mutant.line): mutant for mutant in reversed(everything)}
    kept = [mutant for mutant in everything if found[mutant.file, mutant.line] is mutant]
    return kept[:count]


def test_files(tree: Path, mutant: Mutant) -> list[str]:
    """Return the test files of the mutant's room, those first that speak of its module."""
    room, name = Path(mutant.file).parts[2], Path(mutant.file).stem
    files = sorted((tree / "tests" / TESTS.get(room, room)).glob("test_*.py"))
    about = {file: (name in file.stem) * 1000 + file.read_text().count(name) for file in files}
    return [str(file.relative_to(tree)) for file in sorted(files, key=lambda file: -about[file])]


def judge(tree: Path, mutant: Mutant, limit: float) -> dict[str, object]:
    """Return what the tests make of a mutant."""
    reason = EQUIVALENT.get((mutant.file, mutant.after.strip()))
    record: dict[str, object] = {**mutant._asdict(), "before": mutant.before.strip(), "after": mutant.after.strip()}
    if reason:
        return {**record, "outcome": "equivalent", "reason": reason}
    place = tree / mutant.file
    whole = place.read_text()
    lines = whole.splitlines(keepends=True)
    lines[mutant.line - 1] = mutant.after + "\n"
    place.write_text("".join(lines))
    settings = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", *test_files(tree, mutant)]
    began = time.perf_counter()
    try:
        run = subprocess.run(
            command, cwd=tree, env=settings, timeout=limit, capture_output=True, text=True, check=False
        )
        outcome = "survived" if run.returncode == 0 else "noticed"
        failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        by = failed[0].split(" - ")[0] if failed else ""
    except subprocess.TimeoutExpired:
        outcome, by = "out of time", ""
    finally:
        place.write_text(whole)
    return {**record, "outcome": outcome, "by": by, "seconds": round(time.perf_counter() - began)}


def main() -> int:
    """Judge mutants, and write the report after each of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=list(ROOMS))
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for the tests of one mutant")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no further mutant after this long")
    parser.add_argument("--out", type=Path, help="write the report as JSON")
    arguments = parser.parse_args()
    records: list[dict[str, object]] = []
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        for part in ("src", "tests", "examples", "docs", "benchmarks"):
            shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "mkdocs.yml"):
            if (ROOT / name).exists():
                shutil.copy(ROOT / name, tree / name)
        for mutant in chosen(arguments.count, arguments.seed, arguments.rooms):
            if time.perf_counter() - began > 60.0 * arguments.minutes:
                break
            record = judge(tree, mutant, arguments.limit)
            records.append(record)
            counts = Counter(str(record["outcome"]) for record in records)
            print(f"{dict(counts)}  {mutant.file}:{mutant.line}  {record['after']}  {record['outcome']}", flush=True)
            report = {"seed": arguments.seed, "asked": arguments.count, "counts": counts, "mutants": records}
            if arguments.out:
                arguments.out.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
