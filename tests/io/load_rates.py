"""How many of the robot files in folders load by a plain `adjoin.load`, beside Pinocchio and MuJoCo, and how fast.

    python tests/io/load_rates.py FOLDER...

A folder is a collection, such as an unpacked wheel; it is called by its own name. Of a URDF, Pinocchio is the peer; of
an MJCF, MuJoCo. Files that the peer does not load, or that have no joints, do not count. The results go to
load_rates.json beside this file, from which `report.py` writes docs/loading.md.
"""

import contextlib
import json
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import adjoin
from adjoin.errors import ModelError, ModelWarning

RESULTS = Path(__file__).with_name("load_rates.json")
COUNTS = ("files", "loaded", "without_a_word", "same_size")
"""What is counted; of the same size are those with as many degrees of freedom, joints that mimic others included."""
MAX_FILES = 1500
"""Of a collection; larger ones are thinned out evenly."""


def peer(path: Path) -> int:
    """Return the degrees of freedom that Pinocchio or MuJoCo finds; 0 if it refuses the file."""
    with contextlib.suppress(ValueError, RuntimeError, TypeError):
        if path.suffix == ".urdf":
            import pinocchio

            return pinocchio.buildModelFromUrdf(str(path)).nv
        import mujoco

        return mujoco.MjModel.from_xml_path(str(path)).nv
    return 0


def robot_files(folder: Path) -> list[Path]:
    """Return the URDFs and MJCFs of a folder."""
    found = [path for path in sorted(folder.rglob("*")) if path.suffix in (".urdf", ".xml", ".mjcf") and path.is_file()]
    found = [path for path in found if path.suffix == ".urdf" or b"<mujoco" in path.read_bytes()]
    return found[:: 1 + len(found) // MAX_FILES]


def survey(folder: Path) -> dict[str, dict]:
    """Return counts, times and failures of a collection, by format."""
    out: dict[str, dict] = {}
    for path in robot_files(folder):
        begin = time.process_time()
        nv = peer(path)
        theirs = time.process_time() - begin
        if not nv:
            continue
        kind = "URDF" if path.suffix == ".urdf" else "MJCF"
        counts = out.setdefault(kind, {**dict.fromkeys(COUNTS, 0), "seconds": [], "failed": {}})
        counts["files"] += 1
        begin = time.process_time()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ModelWarning)
            try:
                model = adjoin.load(path)
            except ModelError as error:
                counts["failed"][str(path.relative_to(folder))] = error.problem
                continue
        counts["seconds"].append((time.process_time() - begin, theirs))
        counts["loaded"] += 1
        counts["without_a_word"] += not caught
        counts["same_size"] += sum(joint.type.nv for joint in model.joints) == nv
    for counts in out.values():
        ours, theirs = np.array(counts.pop("seconds")).reshape(-1, 2).T
        counts["milliseconds"] = [round(1e3 * float(np.median(x)), 1) for x in (ours, theirs)] if len(ours) else [0, 0]
    return out


if __name__ == "__main__":
    folders = [Path(name).resolve() for name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)  # MuJoCo writes a log where it is
        results = {folder.name: survey(folder) for folder in folders}
    RESULTS.write_text(json.dumps({name: found for name, found in results.items() if found}, indent=1) + "\n")
    for name, found in results.items():
        for kind, counts in found.items():
            print(name, kind, f"{counts['loaded']} of {counts['files']}", counts["milliseconds"], counts["failed"])
