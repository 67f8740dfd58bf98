"""`adjoin demo`: the tour in a minute."""

import argparse
from pathlib import Path
from typing import Any

EXAMPLES = """\
examples:
  adjoin demo
  adjoin demo --out tour --quick
"""


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "demo", help="drop thousands of robots, optimize a motion through contact, write a replay", epilog=EXAMPLES
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the replay and the plot go")
    parser.add_argument("--quick", action="store_true", help="a smaller one, for a first look")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the demo."""
    from adjoin import demo

    demo.main(folder=arguments.out, quick=arguments.quick)
    return 0
