"""The command line: its parser, and what happens when a command goes wrong."""

import argparse
from collections.abc import Sequence

from adjoin import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the arguments after the program's name; by default those of this process.

    Returns:
        The exit code: 0 for success, 1 for a problem that was found, 2 for wrong usage, 130 after Ctrl-C.
    """
    parser = argparse.ArgumentParser(
        "adjoin", description="Differentiable simulation of articulated bodies for PyTorch."
    )
    parser.add_argument("--version", action="version", version=f"adjoin {__version__}")
    parser.parse_args(argv)
    parser.print_help()
    return 0
