"""Mutants: one small change in one line of the library, against the tests that run this line. On demand only.

    python tests/campaign/mutants.py --count 200 --seed 0 --jobs 2 --out tests/campaign/mutants.json
    python tests/campaign/mutants.py --first 100 --count 50 --jobs 16 --minutes 8 --out slice.json

First the tests of the rooms run once, to see which of them run which lines (`covered.py`); `--covered` keeps that.
Then each mutant is made in a copy of the tree, and the tests that run its line go with -x, as many as fit in a third of
the limit: those about its module first, fast ones before slow ones. A line that runs only while a module is imported
gets the tests that run the module. A mutant is *noticed* if a test fails, *hangs* if its tests take three times as long
as without it, and has *survived* if all pass. Those that no test could notice are *equivalent*: `EQUIVALENT` says
which, and why. The choice depends on the whole source; `--again` goes on with that of an earlier report.
"""

import argparse
import ast
import contextlib
import gzip
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
ROOMS = ("compiler", "spatial", "model", "dynamics", "collision", "constraints", "simulation", "learn", "control")
"""Rooms whose files are mutated."""

TESTS = {"constraints": "simulation"}
"""Where the tests of a room are, if not under its own name."""

MOST = 120  # tests that one mutant meets

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

EQUIVALENT: dict[tuple[str, str], str] = {
    (
        "src/adjoin/compiler/ir/digest.py",
        'size = f"{node.width} {node.kind}" if node.op != "scratch" else ""',
    ): "what writes to an array has its size too, and one that nobody writes to is zeros of any size",
    (
        "src/adjoin/constraints/compliant_contacts.py",
        "force._replace(strength=select(active, force.strength, 0.0), damping=select(active, force.damping, 1.0))",
    ): "the axes of a contact that is not there are zero, and so is every rate that the damping multiplies",
    ("src/adjoin/compiler/codegen/contributions.py", "UNROLLED = 8"): "how many terms are written out: speed only",
    ("src/adjoin/collision/ray.py", "far = -place[2] / select(down, along[2], -2.0)"): "read only where `down` holds",
    (
        "src/adjoin/collision/reach.py",
        "count = min(8, max(1, math.ceil(half[axis] / max(across, 1e-9))))",
    ): "more balls that hold the same shape: a tighter bound, the same contacts",
    (
        "src/adjoin/simulation/contact_sensors.py",
        "place = vector.scale(1.0 / maximum(total, 2e-15), place)",
    ): "below either bound there is no force, and the reading is 0",
    (
        "src/adjoin/control/pareto.py",
        "size = first[0].abs().clamp(min=2e-12)",
    ): "a guard against division by 0",
    (
        "src/adjoin/collision/manifold.py",
        "angle = 2.0 - x / maximum(abs(x) + abs(y), 1e-20)  # grows with the angle, as the angle itself",
    ): "only the order of the angles is read, and both signs move apart",
    (
        "src/adjoin/collision/manifold.py",
        "area = _cross(_minus(places[half], places[1]), _minus(places[j], places[i]))",
    ): "only its sign is read: chords 1 to half and i to j of a convex ring cross the same way",
    (
        "src/adjoin/constraints/minimization.py",
        "return while_loop(proceed, step, first, 40)[0], first[4] < 0.5",
    ): "a bound on iterations that end before",
    ("src/adjoin/control/ilqr/box_qp.py", "STEP_LENGTHS = (1.0, 0.5, 0.25, 0.2)"): "another length of a line search",
    ("src/adjoin/constraints/newton.py", "normal, edges = active / regularization, 1.0"): (
        "`edges` is read only of pyramids, which set it"
    ),
    (
        "src/adjoin/control/objective.py",
        "or any(has != size for has, size in zip(value.shape, shape, strict=True) if size > 0)",
    ): "no size is 0: there is no empty batch of candidates",
}
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


class Test(NamedTuple):
    """A test that passes without a mutant.

    Attributes:
        name: Its node in pytest.
        seconds: How long it takes.
        lines: By file, relative to the package, those that it runs.
    """

    name: str
    seconds: float
    lines: dict[str, set[int]]


def copy_tree(place: Path) -> Path:
    """Copy what the tests need of the tree."""
    for part in ("src", "tests", "examples", "docs", "benchmarks"):
        shutil.copytree(ROOT / part, place / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "mkdocs.yml", "constraints.txt"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, place / name)
    return place


def settings(tree: Path, **more: str) -> dict[str, str]:
    """Return the environment of a run of tests in a tree."""
    paths = [str(tree / "src"), str(tree / "tests/campaign"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    path = os.pathsep.join(part for part in paths if part and not part.startswith(str(ROOT / "src")))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **more}


PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]


def cover(tree: Path, rooms: list[str], jobs: int, kernels: Path, limit: float) -> list[dict[str, Any]]:
    """Return what each test of the rooms runs, each file of them in a process of its own; kernels are kept."""
    folders = sorted({tree / "tests" / TESTS.get(room, room) for room in rooms})
    files = sorted((file for folder in folders for file in folder.glob("test_*.py")), key=lambda f: -f.stat().st_size)

    def run(numbered: tuple[int, Path]) -> None:
        number, file = numbered
        own = kernels.parent / f"kernels_{number}"  # a trace that another process left would hide its lines
        place = {"ADJOIN_COVERED": str(tree / f"covered_{number}.jsonl"), "ADJOIN_TEST_CACHE_DIR": str(own)}
        command = [*PYTEST, "-p", "covered", f"--basetemp={kernels.parent / f'cover_{number}'}", str(file)]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, cwd=tree, env=settings(tree, **place), timeout=limit, capture_output=True)
        for kernel in own.glob("*.kernel"):
            kernel.rename(kernels / kernel.name)
        shutil.rmtree(own, ignore_errors=True)
        print(f"{file.name} is covered", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, enumerate(files)))
    return [json.loads(line) for file in tree.glob("covered_*.jsonl") for line in file.read_text().splitlines()]


def relevant(mutant: Mutant, tests: list[Test], seconds: float) -> tuple[list[Test], int]:
    """Return the tests that a mutant meets, and how many more run its line but do not fit in the time."""
    file, stem = str(Path(mutant.file).relative_to("src/adjoin")), Path(mutant.file).stem
    running = [test for test in tests if mutant.line in test.lines.get(file, ())]
    if not running:
        running = [test for test in tests if test.lines.get(file)]
    again: Counter[str] = Counter()
    places = {}
    for test in sorted(running, key=lambda test: test.seconds):  # the same test with other arguments waits
        function = test.name.split("[")[0]
        places[test.name] = (stem not in Path(function.split("::")[0]).stem, again[function])
        again[function] += 1
    running.sort(key=lambda test: (places[test.name][1] > 3, places[test.name], test.seconds))
    taken, spent = [], 0.0
    for test in running:
        if taken and (spent + test.seconds > seconds or len(taken) == MOST):
            continue
        taken.append(test)
        spent += test.seconds
    return taken, len(running) - len(taken)


def judge(tree: Path, mutant: Mutant, tests: list[Test], limit: float, kernels: Path) -> dict[str, Any]:
    """Return what the tests make of a mutant."""
    reason = EQUIVALENT.get((mutant.file, mutant.after.strip()))
    record: dict[str, Any] = {**mutant._asdict(), "before": mutant.before.strip(), "after": mutant.after.strip()}
    if reason:
        return {**record, "outcome": "equivalent", "reason": reason}
    taken, left = relevant(mutant, tests, limit / 3)
    if not taken:
        return {**record, "outcome": "survived", "tests": 0, "left": 0}
    place = tree / mutant.file
    whole = place.read_text()
    lines = whole.splitlines()
    same = [i for i, line in enumerate(lines) if line.strip() == mutant.before.strip()]
    if not same:
        return {**record, "outcome": "gone"}  # since an earlier report
    at = min(same, key=lambda i: abs(i + 1 - mutant.line))
    lines[at] = lines[at].replace(mutant.before.strip(), mutant.after.strip())
    place.write_text("\n".join(lines) + "\n")
    # Kernels are found by their programs and the source of the compiler: those of before serve all other rooms.
    cache = kernels if "adjoin/compiler" not in mutant.file else tree / "kernels"
    command = [*PYTEST, "-x", f"--basetemp={tree / 'pytest'}", *[test.name for test in taken]]
    began, by = time.perf_counter(), ""
    try:
        run = subprocess.run(
            command,
            cwd=tree,
            env=settings(tree, ADJOIN_TEST_CACHE_DIR=str(cache)),
            timeout=limit,
            capture_output=True,
            text=True,
            check=False,
        )
        outcome = "survived" if run.returncode == 0 else "noticed"
        failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        by = failed[0].split(" - ")[0] if failed else ""
    except subprocess.TimeoutExpired:
        outcome = "hangs"
    finally:
        place.write_text(whole)
        shutil.rmtree(tree / "kernels", ignore_errors=True)
    seconds = round(time.perf_counter() - began)
    return {**record, "outcome": outcome, "by": by, "tests": len(taken), "left": left, "seconds": seconds}


def main() -> int:
    """Judge mutants, and write the report after each of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="how many of the seed's mutants to pass over")
    parser.add_argument("--again", type=Path, help="an earlier report: judge its mutants that were not noticed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=list(ROOMS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for the tests of one mutant")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no further mutant after this long")
    parser.add_argument("--covered", type=Path, help="which tests run which lines: read if it is there, else written")
    parser.add_argument("--out", type=Path, help="write the report as JSON")
    arguments = parser.parse_args()
    records: list[dict[str, Any]] = []
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        kernels = Path(folder) / "kernels"
        kernels.mkdir(mode=0o700)
        trees = [copy_tree(Path(folder) / f"tree_{i}") for i in range(arguments.jobs)]
        if arguments.covered and arguments.covered.exists():
            covered = json.loads(gzip.decompress(arguments.covered.read_bytes()))
        else:
            covered = cover(trees[0], arguments.rooms, arguments.jobs, kernels, arguments.limit * 2)
            if arguments.covered:
                arguments.covered.write_bytes(gzip.compress(json.dumps(covered).encode()))
        tests = [
            Test(test["test"], test["seconds"], {file: set(lines) for file, lines in test["lines"].items()})
            for test in covered
            if test["passed"]
        ]
        print(f"{len(tests)} of {len(covered)} tests passed in {time.perf_counter() - began:.0f} s", flush=True)
        free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for tree in trees:
            free.put(tree)

        def work(mutant: Mutant) -> None:
            if time.perf_counter() - began > 60.0 * arguments.minutes:
                return
            tree = free.get()
            record = judge(tree, mutant, tests, arguments.limit, kernels)
            free.put(tree)
            records.append(record)
            counts = Counter(record["outcome"] for record in list(records))
            print(f"{dict(counts)}  {mutant.file}:{mutant.line}  {record['after']}  {record['outcome']}", flush=True)

        taken = chosen(arguments.first + arguments.count, arguments.seed, arguments.rooms)[arguments.first :]
        if arguments.again:
            known = json.loads(arguments.again.read_text())["mutants"]
            records += [record for record in known if record["outcome"] in ("noticed", "hangs")]
            taken = [Mutant(*[each[field] for field in Mutant._fields]) for each in known if each not in records]
        with ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(work, taken))
    records.sort(key=lambda record: (record["file"], record["line"]))
    counts = Counter(record["outcome"] for record in records)
    report = {"seed": arguments.seed, "first": arguments.first, "asked": arguments.count, "judged": len(records)}
    report |= {"minutes": round((time.perf_counter() - began) / 60, 1), "counts": counts}
    if arguments.out:
        arguments.out.write_text(json.dumps({**report, "mutants": records}, indent=1) + "\n")
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
