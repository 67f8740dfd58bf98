"""docs/mujoco_agreement.md: files that none of us wrote next to MuJoCo.

`python tests/simulation/mujoco_report.py` writes it from mujoco_tables.json, which `mujoco_tables.py --json` fills; a
test checks that it is up to date.
"""

import json
from pathlib import Path

RESULTS = Path(__file__).with_name("mujoco_tables.json")
PAGE = Path(__file__).parents[2] / "docs" / "mujoco_agreement.md"

HEAD = """# Agreement with MuJoCo

Robot files of other packages, loaded by MuJoCo and by `adjoin.load`, from the same random states. This page is written
by `tests/simulation/mujoco_report.py` from what `tests/simulation/mujoco_tables.py` found in unpacked wheels.

- Quantities agree where sizes are equal, and inertia matrix, bias, passive and actuator forces and sensors differ by
  less than 1e-10, relative to the largest of each.
- Steps agree where positions, velocities and sensors of force after one step with contact (`Newton`, float64) differ
  by less than 1e-6, relative to the change of velocity. States in which a contact is just at its margin do not count:
  there rounding decides whether it acts.
- Heights agree where those of the first floating body stay within 1 mm of each other for a second from the first key
  frame, while it stands.

Steps are those of the reference interpreter, so that nothing has to be compiled; the columns say how many files were
done within 60 to 100 s of processor time each, the others took longer: hands of many meshes, and robots of many degrees
of freedom. MuJoCo's solvers had converged (also those of collision), and `noslip_iterations` were off. Meshes were
loaded with `meshes="exact"`. Since capsules touch boxes at MuJoCo's points, mjlab and dm_control were compared again,
and of gymnasium_robotics the two files that had differed. What differs in steps is where shapes touch:

- Two meshes: MuJoCo takes the normal of a face and clips faces against each other, here the direction of least depth
  is the normal.
- Two capsules that are parallel within half a degree have two points here, and one in MuJoCo unless they are exactly
  parallel.

Of MuJoCo's menagerie nine scenes were compared, as hulls of at most 128 vertices, before meshes rested on planes at
MuJoCo's points. Measured again since, with exact hulls, the heights of H1 and G1 agree.

| collection | files | quantities agree | steps | agree | heights | agree |
|---|---|---|---|---|---|---|
"""


def page() -> str:
    """Return the page."""
    rows, differences = [], []
    for name, counts in json.loads(RESULTS.read_text()).items():
        numbers = [counts["files"], counts["agree"], *counts["step"], *counts["height"]]
        rows.append(f"| {name} | {' | '.join(map(str, numbers))} |\n")
        for path, parts in counts["differs"].items():
            listed = ", ".join(f"{part} {error}" for part, error in parts.items())
            differences.append(f"| {name} | {path} | {listed} |\n")
    told = "\n## What differs\n\n| collection | file | by |\n|---|---|---|\n" + "".join(differences)
    return HEAD + "".join(rows) + (told if differences else "")


if __name__ == "__main__":
    PAGE.write_text(page())
