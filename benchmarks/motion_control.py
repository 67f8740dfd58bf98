"""Motion control: the experiments of the paper that Adjoin grew from, and optimal control beside Crocoddyl.

    python benchmarks/motion_control.py [--sections throw,golf,racecar,ilqr] [--quick] [--json] [--out FILE]

throw     an arm with gripper throws a ball to a target; gradients beside CMA-ES, over ten seeds
golf      an arm of two links hits a ball to a target; the same
racecar   the friction with which a car gets to a target; the same
ilqr      reaching with an arm of seven joints, 256 problems at once, beside Crocoddyl; left out unless the variable
          CROCODDYL names a Python that has it

A section is a function `section(quick: bool)` that yields figures as those of `identification.py` do.
"""

import importlib
import os
from collections.abc import Iterator
from typing import Any

from report import Report, parser

SECTIONS = {
    "throw": ("seed_experiments", "throw"),
    "golf": ("seed_experiments", "golf"),
    "racecar": ("seed_experiments", "racecar"),
    "ilqr": ("crocoddyl_peer", "section"),
}
"""Names, and the modules and functions that have them."""


def figures(name: str, quick: bool) -> Iterator[dict[str, Any]]:
    """Of a section."""
    module, function = SECTIONS[name]
    yield from getattr(importlib.import_module(module), function)(quick)


def main() -> None:
    options = parser(__doc__)
    known = [name for name in SECTIONS if name != "ilqr" or "CROCODDYL" in os.environ]
    options.add_argument("--sections", type=lambda text: text.split(","), default=known, help="some of these, by comma")
    arguments = options.parse_args()
    unknown = [name for name in arguments.sections if name not in SECTIONS]
    if unknown:
        options.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    report = Report("motion_control", arguments)
    report.tables["command"] = f"python benchmarks/motion_control.py --sections {','.join(arguments.sections)}"
    for name in arguments.sections:
        report.section = name
        for figure in figures(name, arguments.quick):
            if "table" in figure:
                report.tables[name] = figure["table"]
            else:
                report.add(**figure)
        report.save()
    report.finish()


if __name__ == "__main__":
    main()
