"""The command line: its parser, and what happens when a command goes wrong."""

import argparse
import importlib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from adjoin import __version__
from adjoin.cli import completion
from adjoin.cli.output import print_json
from adjoin.cli.robot import flag, parts
from adjoin.errors import AdjoinError, AdjoinWarning, ModelError

MODULES = (
    *("info", "check", "view", "simulate", "soft", "heat", "particles", "cloth"),
    *("train", "bench", "cache", "demo", "completion"),
)
EXAMPLES = """\
examples:
  adjoin robots                                 what ships
  adjoin check robot.urdf                       every problem in a file
  adjoin simulate go2 --seconds 2 --out run.npz
  adjoin COMMAND --help                         options and examples of a command

exit codes: 0 fine, 1 a problem was found, 2 wrong usage, 130 interrupted
"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help whose columns leave room for long options."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=32, width=100)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of every command; imports nothing that takes time."""
    parser = argparse.ArgumentParser(
        "adjoin",
        description="Differentiable simulation of articulated bodies for PyTorch.",
        epilog=EXAMPLES,
        formatter_class=_Help,
    )
    parser.add_argument("--version", action="version", version=f"adjoin {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for name in MODULES:
        importlib.import_module(f"adjoin.cli.{name}").add(_Commands(commands))
    return parser


class _Commands:
    """Adds commands whose help keeps the lines of its examples, and takes its first line for a description."""

    def __init__(self, commands: Any):
        self._commands = commands

    def add_parser(self, name: str, help: str, **options: Any) -> argparse.ArgumentParser:
        text = f"{help[0].upper()}{help[1:]}."
        return self._commands.add_parser(name, help=help, **{"description": text, "formatter_class": _Help, **options})


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the arguments after the program's name; by default those of this process.

    Returns:
        The exit code: 0 for success, 1 for a problem that was found, 2 for wrong usage, 130 after Ctrl-C, 141 when
        nobody reads the output any more.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that a terminal cannot show is no reason to fail
    parser = make_parser()
    if completion.VARIABLE in os.environ:
        completion.answer(parser)
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as end:  # argparse has said what is wrong, or printed its help
        return end.code if isinstance(end.code, int) else 2
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that nothing is said at exit either
        return 141
    except KeyboardInterrupt:
        print("\nadjoin: interrupted", file=sys.stderr)
        return 130
    except (AdjoinError, OSError) as error:
        text = error.message(flag) if isinstance(error, AdjoinError) else _reason(error)
        if getattr(arguments, "json", False):
            print_json({"error": text, **(parts(error) if isinstance(error, AdjoinError) else {})})
        print(f"adjoin {arguments.command}: {text}", file=sys.stderr)
        if isinstance(error, ModelError) and os.path.isfile(error.file):
            print(f"`adjoin check {error.file}` looks for every problem", file=sys.stderr)
        return 1


def _show_warning(message: Warning | str, *_: Any) -> None:
    text = message.message(flag) if isinstance(message, AdjoinWarning) else str(message)
    print(f"adjoin: warning: {text}", file=sys.stderr)


def _reason(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)
