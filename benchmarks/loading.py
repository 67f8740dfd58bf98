"""How long `adjoin.load` takes beside MuJoCo's own loader: processor time of a first load, file by file.

    python benchmarks/loading.py [FOLDER ...] [--quick] [--json] [--out FILE]

Without folders the MJCF files of the packages gymnasium, dm_control and mujoco that are installed are loaded. Files
that MuJoCo does not load, without joints, or with flexes do not count. MuJoCo keeps meshes and textures that it has
read before; so each file is loaded once by either.
"""

import importlib.util
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from report import Report, parser

import adjoin

PACKAGES = ("gymnasium", "dm_control", "mujoco")


def folders() -> list[Path]:
    """Those of the packages that are installed."""
    found = [importlib.util.find_spec(name) for name in PACKAGES]
    return [Path(spec.origin).parent for spec in found if spec is not None and spec.origin is not None]


def seconds(load: Callable[[str], Any], path: Path) -> tuple[float, Any]:
    """Processor time of a call, and its result."""
    start = time.process_time()
    result = load(str(path))
    return time.process_time() - start, result


def measure(report: Report, files: Iterable[Path]) -> None:
    """Load each file by both."""
    warnings.simplefilter("ignore")
    adjoin.load("<mujoco><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>")
    rows = []
    for path in files:
        try:
            theirs, m = seconds(mujoco.MjModel.from_xml_path, path)  # pyright: ignore[reportAttributeAccessIssue]
        except ValueError:
            continue
        if m.nq and not m.nflex:
            ours, _ = seconds(adjoin.load, path)
            rows.append((ours / theirs, theirs, ours, m.nbody, m.nmesh))
            print(f"{rows[-1][0]:6.2f} {1e3 * theirs:9.2f} ms {1e3 * ours:9.2f} ms {m.nbody:4d} bodies  {path.name}")
    ratios, theirs, ours, bodies, meshes = np.array(rows).T
    report.add("files", len(rows), "")
    report.add("time of MuJoCo's, median", float(np.median(ratios)), "times", at_most=1.5)
    report.add("time of MuJoCo's, 90 % below", float(np.percentile(ratios, 90)), "times")
    report.add("time of MuJoCo's, all files together", float(ours.sum() / theirs.sum()), "times")
    slowest = float(ours[(bodies <= 51) & (meshes == 0)].max())
    report.add("slowest of up to 50 bodies without meshes", 1e3 * slowest, "ms", at_most=100.0)


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("folders", nargs="*", type=Path, help="with MJCF files")
    arguments = options.parse_args()
    found = sorted(path for folder in arguments.folders or folders() for path in folder.rglob("*.xml"))
    report = Report("loading", arguments)
    measure(report, found[:: 4 if arguments.quick else 1])
    report.finish()
