"""How long `adjoin.load` takes beside MuJoCo's own loader: processor time of a first load, file by file.

    python benchmarks/loading.py FOLDER ...

Files that MuJoCo does not load, without joints, or with flexes do not count. MuJoCo keeps meshes and textures that it
has read before; so each file is loaded once by either.
"""

import sys
import time
import warnings
from pathlib import Path

import mujoco
import numpy as np

import adjoin


def seconds(load, path):
    """Processor time of a call."""
    start = time.process_time()
    result = load(str(path))
    return time.process_time() - start, result


def main(folders):
    warnings.simplefilter("ignore")
    adjoin.load("<mujoco><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>")
    rows = []
    for path in sorted(path for folder in folders for path in Path(folder).rglob("*.xml")):
        try:
            theirs, m = seconds(mujoco.MjModel.from_xml_path, path)  # pyright: ignore[reportAttributeAccessIssue]
        except ValueError:
            continue
        if m.nq and not m.nflex:
            ours, _ = seconds(adjoin.load, path)
            rows.append((ours / theirs, theirs, ours, m.nbody, path))
    for ratio, theirs, ours, bodies, path in sorted(rows):
        print(f"{ratio:6.2f} {1e3 * theirs:9.2f} ms {1e3 * ours:9.2f} ms {bodies:4d} bodies  {path}")
    ratios, ours = [row[0] for row in rows], [row[2] for row in rows]
    small = [row[2] for row in rows if row[3] <= 51]
    print(
        f"{len(rows)} files: {np.median(ratios):.2f} times MuJoCo's time, 90 % below {np.percentile(ratios, 90):.2f};"
    )
    print(f"all of them {sum(ours) / sum(row[1] for row in rows):.2f} times; up to 50 bodies {1e3 * max(small):.0f} ms")


if __name__ == "__main__":
    main(sys.argv[1:])
