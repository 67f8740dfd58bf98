"""Identification: what is recovered from noisy data, how fast, and beside whom.

    python benchmarks/identification.py [--sections masses,drm,contact,augmentation] [--quick] [--json] [--out FILE]

masses        link masses of an arm of seven joints from torques with 5 % noise, over ten seeds, beside BARD
drm           an epoch of differentiable-robot-model's forward-dynamics example, beside that library
contact       friction and base mass of a Laikago that is pushed and dropped, from noisy states
augmentation  a double pendulum with friction and a coupling that its model lacks, beside that model and a pure network

A section is a function `section(quick: bool)` that yields each figure as soon as it is known: a mapping with the
arguments of `Report.add` (name, value, unit, and where they apply at_most or at_least, peer, note). What a picture is
made of is yielded as {"table": {...}}, and is kept under the section's name.
"""

import importlib
from collections.abc import Iterator
from typing import Any

from report import Report, parser

SECTIONS = {
    "masses": "mass_identification",
    "drm": "drm_peer",
    "contact": "contact_identification",
    "augmentation": "augmentation",
}
"""Names, and the modules that have them."""


def figures(name: str, quick: bool) -> Iterator[dict[str, Any]]:
    """Of a section."""
    yield from importlib.import_module(SECTIONS[name]).section(quick)


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "--sections", type=lambda text: text.split(","), default=list(SECTIONS), help="some of these, by comma"
    )
    arguments = options.parse_args()
    unknown = [name for name in arguments.sections if name not in SECTIONS]
    if unknown:
        options.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    report = Report("identification", arguments)
    report.tables["command"] = f"python benchmarks/identification.py --sections {','.join(arguments.sections)}"
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
