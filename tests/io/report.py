"""docs/loading.md: which of the robot files that none of us wrote load, and why the others do not.

python tests/io/report.py writes it; a test checks that it is up to date.
"""

import warnings
from pathlib import Path

from corpus import ACCEPT, MJCFS, REFUSED, UNSUPPORTED, URDF_FOLDER, URDFS

from adjoin.errors import ModelError
from adjoin.io.load import load
from adjoin.io.mjcf import UnsupportedError

PAGE = Path(__file__).parents[2] / "docs" / "loading.md"

HEAD = """# What loads

This page is written by `tests/io/report.py`. It covers every URDF in example-robot-data and every MJCF in the wheels of
gymnasium and mujoco. The tests compare all models that load with Pinocchio and MuJoCo, to 1e-12.
"""


def told(path: Path, **options) -> str:
    """What is wrong with a file, without the folder it is in and the options that help; empty if it loads."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load(path, packages={"example-robot-data": URDF_FOLDER}, **options)
    except UnsupportedError as error:
        return "; ".join(error.parts)
    except ModelError as error:
        error.file, error.options = error.file.replace(str(path), path.name), ()
        return str(error).replace("|", "\\|")
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
        f"## URDF: {len(plain)} of {len(URDFS)} load as they are, {len(flawed)} more if their flaws are accepted"
    )
    lines.append("")
    lines += ["### Not loaded", "", *table(("file", "why"), refused)]
    lines += ["### Loaded if flaws are accepted", "", *table(("file", "needs", "first flaw"), flawed)]
    lines += ["### Loaded if meshes are ignored: `meshes='ignore'`", "", *table(("file", "why"), meshes)]
    whole = [name for name, path in MJCFS.items() if not told(path)]
    lines.append(f"## MJCF: {len(whole)} of {len(MJCFS)} load completely, {len(UNSUPPORTED)} with parts left out")
    lines.append("")
    rows = [(name, told(MJCFS[name])) for name in UNSUPPORTED]
    lines += ["### Loaded if parts may be left out: `unsupported='warn'`", "", *table(("file", "left out"), rows)]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
