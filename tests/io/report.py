"""docs/loading.md: which of the robot files that none of us wrote load, and why the others do not.

python tests/io/report.py writes it; a test checks that it is up to date.
"""

import re
import warnings
from pathlib import Path

from corpus import ACCEPT, MJCFS, REFUSED, UNSUPPORTED, URDF_FOLDER, URDFS

from adjoin.errors import ModelError
from adjoin.io.load import load

PAGE = Path(__file__).parents[2] / "docs" / "loading.md"

HEAD = """# What loads

Written by `tests/io/report.py` from every URDF in example-robot-data and every MJCF in gymnasium's and mujoco's wheels.
All that load are compared with Pinocchio and MuJoCo in the tests, to 1e-12.
"""


def told(path: Path, **options) -> str:
    """The message for a file, without the folder it is in; empty if it loads."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load(path, packages={"example-robot-data": URDF_FOLDER}, **options)
    except ModelError as error:
        message = str(error).replace(str(path), path.name)
        return re.sub(r"; pass .*$| \(or pass .*$|, or pass .*$", "", message).replace("|", "\\|")
    return ""


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def page() -> str:
    folder = URDF_FOLDER / "robots"
    plain = [name for name in URDFS if not told(folder / name, meshes="ignore")]
    flawed, refused, meshes = [], [], []
    for name in URDFS:
        path = folder / name
        if name in REFUSED:
            refused.append((name, told(path, meshes="ignore", accept=("mass", "inertia"))))
        elif name not in plain:
            needs = ACCEPT[name]
            flawed.append((name, f"`accept={needs!r}`", told(path, meshes="ignore")))
        if name not in REFUSED and (message := told(path, accept=ACCEPT.get(name, ()))):
            meshes.append((name, message))
    lines = [HEAD]
    lines.append(
        f"## URDF: {len(plain)} of {len(URDFS)} load as they are, {len(flawed)} more when their flaw is accepted"
    )
    lines.append("")
    lines += ["### Not loaded", "", *table(("file", "why"), refused)]
    lines += ["### Loaded only with a flaw accepted by name", "", *table(("file", "needs", "the first flaw"), flawed)]
    lines += ["### Loaded only with `meshes='ignore'`", "", *table(("file", "why"), meshes)]
    whole = [name for name, path in MJCFS.items() if not told(path)]
    lines.append(f"## MJCF: {len(whole)} of {len(MJCFS)} load whole, {len(UNSUPPORTED)} with parts left out")
    lines.append("")
    rows = [(name, told(MJCFS[name]).split(": not supported: ", 1)[1]) for name in UNSUPPORTED]
    lines += ["### Loaded only with `unsupported='warn'`", "", *table(("file", "left out"), rows)]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
