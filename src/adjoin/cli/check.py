"""`adjoin check`: every problem of a robot file, and what would make it load."""

import argparse
from pathlib import Path
from typing import Any

from adjoin.cli.output import show
from adjoin.cli.robot import add_robot, flag, load, options, parts, source
from adjoin.errors import AdjoinError, Option

EXAMPLES = """\
examples:
  adjoin check robot.urdf
  adjoin check *.urdf --json
  adjoin check robot.urdf --accept mass --package my_robot=folder

Every element is read by itself, so that one problem does not hide the next.
"""


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("check", help="validate robot files and explain every problem", epilog=EXAMPLES)
    add_robot(parser, many=True)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check every file, and return 1 if one has a problem."""
    checked = [_check(name, options(arguments)) for name in arguments.robots]
    ok = all(file["ok"] for file in checked)
    show(arguments, {"ok": ok, "files": checked}, *map(_report, checked))
    return 0 if ok else 1


def _check(name: str, load_options: dict[str, Any]) -> dict[str, Any]:
    from adjoin.io.problems import FileProblems, find

    load_options = {key: value for key, value in load_options.items() if key != "strict"}  # as all checks are
    try:
        path = source(name)
        if isinstance(path, str) and Path(path).is_file():
            result = find(path, **load_options)
        else:
            load(name, **load_options)
            result = FileProblems()
    except AdjoinError as error:
        result = FileProblems([error])
    problems = [{"message": error.message(flag), **parts(error)} for error in result.errors]
    remedy = " ".join(flag(Option(name, value)) for name, value in result.remedy.items())
    return {"file": name, "ok": not problems, "problems": problems, "loads_with": remedy, "partial": result.partial}


def _report(checked: dict[str, Any]) -> str:
    problems = checked["problems"]
    if not problems:
        return f"{checked['file']}: no problem found"
    lines = [f"{checked['file']}: {len(problems)} problem{'s' if len(problems) > 1 else ''}"]
    lines += [f"  {problem['message']}" for problem in problems]
    if checked["loads_with"]:
        lines.append(f"  It loads as it is with: {checked['loads_with']}")
    elif checked["partial"]:
        lines.append("  What depends on these could not be checked; check again when they are fixed.")
    return "\n".join(lines)
