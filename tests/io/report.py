"""docs/loading.md: how many of the robot files that none of us wrote load, and what is noticed about some of them.

python tests/io/report.py writes it from load_rates.json and from the files of installed packages; a test checks that it
is up to date.
"""

import json
import warnings
from pathlib import Path

from corpus import URDF_FOLDER, URDFS
from load_rates import COUNTS, RESULTS

from adjoin.errors import ModelError, ModelWarning
from adjoin.io.load import load

PAGE = Path(__file__).parents[2] / "docs" / "loading.md"

HEAD = """# What loads

`adjoin.load(path)` loads what Pinocchio or MuJoCo loads. What is wrong with a file all the same is listed in one
`ModelWarning`, with the place, the flaw, and what was done about it; `strict=True` makes every flaw an error, and
`adjoin check` lists them all. This page is written by `tests/io/report.py`.

## Files that Pinocchio (URDF) or MuJoCo (MJCF) loads

`tests/io/load_rates.py` counts them in folders that it is given, such as unpacked wheels. Times are medians of the
processor time of one load. Files are of the same size where both find as many degrees of freedom. Joints that mimic
others count for that: they have no coordinates of their own here, and in Pinocchio only with `mimic=True`.
"""

FLAWS = """
## What is noticed in the URDFs of example-robot-data

Files that are not listed load without a word. For each file, the first finding:
"""


def rates() -> list[tuple[str, ...]]:
    """Return rows of the table of collections."""
    rows = []
    total = {kind: [0] * len(COUNTS) for kind in ("URDF", "MJCF")}
    for name, found in json.loads(RESULTS.read_text()).items():
        for kind, counts in found.items():
            ours, theirs = counts["milliseconds"]
            numbers = [counts[name] for name in COUNTS]
            total[kind] = [a + b for a, b in zip(total[kind], numbers, strict=True)]
            rows.append((name, kind, *map(str, numbers), f"{ours:g}", f"{theirs:g}"))
    rows += [("**all**", kind, *map(str, numbers), "", "") for kind, numbers in total.items()]
    return rows


def noticed(path: Path) -> tuple[str, str]:
    """Return how much is noticed in a file, and the first of it; empty if nothing is."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ModelWarning)
        try:
            load(path)
        except ModelError as error:
            return "refused", str(error).replace(str(path), path.name)
    findings = [finding for warning in caught for finding in getattr(warning.message, "findings", ())]
    return (str(len(findings)), findings[0].message().replace(str(path), path.name)) if findings else ("", "")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return ["", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in cells), ""]


def page() -> str:
    head = ("collection", "format", "files", "load", "without a word", "same size", "ms", "ms, peer")
    flaws = [(name, *noticed(URDF_FOLDER / "robots" / name)) for name in URDFS]
    listed = [(name, count, text.split("; links: ")[0]) for name, count, text in flaws if count]
    return "\n".join(
        [HEAD, *table(head, rates())[1:], FLAWS.strip(), *table(("file", "findings", "the first"), listed)]
    )


if __name__ == "__main__":
    PAGE.write_text(page())
