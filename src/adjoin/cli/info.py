"""`adjoin info`: what is in a model, and what in it is not simulated. `adjoin robots`: the ones that ship."""

import argparse
import re
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

from adjoin.cli.output import print_json, table
from adjoin.cli.robot import add_robot, load, options, source

if TYPE_CHECKING:
    from adjoin.model.model import Model

INFO_EXAMPLES = """\
examples:
  adjoin info go2
  adjoin info robot.urdf --floating-base
  adjoin info scene.xml --json
"""
UNREAD = ("link", "joint", "material", "adjoin")


def add(commands: Any) -> None:
    """Registers the commands."""
    info = commands.add_parser("info", help="show what is in a model", epilog=INFO_EXAMPLES)
    add_robot(info)
    info.add_argument("--json", action="store_true", help="print one JSON object")
    info.set_defaults(run=run_info)
    robots = commands.add_parser("robots", help="list the robots that ship", epilog="examples:\n  adjoin robots\n")
    robots.add_argument("--json", action="store_true", help="print one JSON object")
    robots.set_defaults(run=run_robots)


def run_info(arguments: argparse.Namespace) -> int:
    """Prints the tables of a model."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = load(arguments.robot, **_lenient(arguments))
    left_out = [*_left_out([str(warning.message) for warning in caught]), *untested(model), *passed_over(arguments)]
    if arguments.json:
        counts = {"nq": model.nq, "nv": model.nv, "nu": model.nu, "mass": model.mass}
        parts = {name: getattr(model, name) for name in ("bodies", "frames", "geometries", "actuators", "keyframes")}
        shapes = [{**vars(shape), "vertices": len(shape.vertices)} for shape in model.geometries]
        print_json({"name": model.name, **counts, "gravity": model.gravity, **parts, "geometries": shapes,
                    "not_simulated": left_out})  # fmt: skip
        return 0
    sections = [str(model)]
    if model.geometries:
        rows = [(s.name, s.kind, s.link, _listed(s.size), s.friction[0]) for s in model.geometries]
        sections.append("Shapes\n" + table(("name", "kind", "link", "size (m)", "friction"), rows))
    if model.actuators:
        rows = [(a.name, a.joint, a.gain, _listed(a.bias), _listed(a.control_range), _listed(a.force_range))
                for a in model.actuators]  # fmt: skip
        sections.append("Actuators\n" + table(("name", "joint", "gain", "bias", "control", "force"), rows))
    if model.keyframes:
        rows = [(key.name, _listed(key.q)) for key in model.keyframes]
        sections.append("Keyframes\n" + table(("name", "q"), rows))
    sections.append(
        "Not simulated\n" + "\n".join(f"  {part}" for part in left_out) if left_out else "All of it is simulated."
    )
    print("\n\n".join(sections))
    return 0


def untested(model: "Model") -> list[str]:
    """Kinds of shapes that would touch and for which there is no test of contact."""
    from adjoin.contact.pairs import pairs

    shapes = model.geometries
    kinds = Counter(
        tuple(sorted((shapes[pair.first].kind, shapes[pair.second].kind))) for pair in pairs(model, within=False)[1]
    )
    return [f"contact between {a} and {b} ({count} pairs)" for (a, b), count in kinds.items()]


def passed_over(arguments: argparse.Namespace) -> list[str]:
    """Elements of a URDF that belong to other tools."""
    from adjoin import robots
    from adjoin.io import safetensors, xml
    from adjoin.io.load import open_source

    found = source(arguments.robot)
    if found == robots.PENDULUM:
        return []
    data, name, _, _ = open_source(found, None)
    if safetensors.looks_like(data):
        return []
    root = xml.parse(data, name)
    tags = Counter(child.tag for child in root.children if child.tag not in UNREAD and root.tag == "robot")
    return [f"<{tag}> elements, which are another tool's ({count})" for tag, count in tags.items()]


def run_robots(arguments: argparse.Namespace) -> int:
    """Prints the table of robots that ship."""
    from adjoin import robots

    rows = []
    for name in robots.names():
        model = robots.load(name)
        header = "" if name == robots.PENDULUM else robots.source(name).decode()
        comment = header[header.find("<!--") + 4 : header.find("-->")]
        title = comment.split("\n")[0].strip().rstrip(".") or "chain of equal rods; any number of links from Python"
        licence = re.search(r"Licence[^:]*: (.*?)\.?\n", comment)
        rows.append((name, len(model.bodies), model.nv, model.nu, model.mass, title, licence[1] if licence else ""))
    head = ("name", "bodies", "dofs", "actuators", "mass (kg)", "what", "licence of its figures")
    if arguments.json:
        keys = ("name", "bodies", "nv", "nu", "mass", "title", "licence")
        print_json({"robots": [dict(zip(keys, row, strict=True)) for row in rows]})
    else:
        print(table(head, rows))
    return 0


def _lenient(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options, with what is not supported left out and named: that is what is asked for."""
    from pathlib import Path

    return {"unsupported": "warn", **options(arguments)} if Path(arguments.robot).is_file() else options(arguments)


def _left_out(messages: list[str]) -> list[str]:
    parts = []
    for message in messages:
        _, found, listed = message.partition("not supported: ")
        parts += listed.removesuffix("; left out").split("; ") if found else [message]
    return parts


def _listed(numbers: Any) -> str:
    return " ".join(f"{number:.4g}" for number in numbers)
