"""`adjoin info`: what is in a model, and what in it is not simulated. `adjoin robots`: the ones that ship."""

import argparse
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from adjoin.cli.output import show, table
from adjoin.cli.robot import add_robot, flag, load, options, source

INFO_EXAMPLES = """\
examples:
  adjoin info go2
  adjoin info robot.urdf --floating-base
  adjoin info scene.xml --json
"""
READ = ("link", "joint", "material", "adjoin")


def add(commands: Any) -> None:
    """Register the commands."""
    info = commands.add_parser("info", help="show what is in a model", epilog=INFO_EXAMPLES)
    add_robot(info)
    info.add_argument("--json", action="store_true", help="print one JSON object")
    info.set_defaults(run=run_info)
    robots = commands.add_parser("robots", help="list the robots that ship", epilog="examples:\n  adjoin robots\n")
    robots.add_argument("--json", action="store_true", help="print one JSON object")
    robots.set_defaults(run=run_robots)


def run_info(arguments: argparse.Namespace) -> int:
    """Print the tables of a model."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = load(arguments.robot, **_lenient(arguments))
    findings = [finding for warning in caught for finding in getattr(warning.message, "findings", ())]
    parts = [getattr(finding.error, "parts", ()) for finding in findings]
    left_out = [*[part for some in parts for part in some], *passed_over(arguments)]
    noticed = [finding.message(flag) for finding, some in zip(findings, parts, strict=True) if not some]
    names = ("name", "nq", "nv", "nu", "mass", "gravity", "bodies", "frames", "actuators", "keyframes")
    data = {name: getattr(model, name) for name in names}
    data["geometries"] = [{**vars(shape), "vertices": len(shape.vertices)} for shape in model.geometries]
    shapes = [(s.name, s.kind, s.link, _listed(s.size), _listed(s.friction)) for s in model.geometries]
    drives = [
        (a.name, a.joint, _listed(a.gear), a.gain, _listed(a.bias), _listed(a.control_range), _listed(a.force_range))
        for a in model.actuators
    ]
    sections = (
        ("Shapes", ("name", "kind", "link", "size (m)", "friction: slide, torsion, roll"), shapes),
        ("Actuators", ("name", "joint", "gear", "gain", "bias", "control range", "force range"), drives),
        ("Keyframes", ("name", "q"), [(key.name, _listed(key.q)) for key in model.keyframes]),
    )
    itself, left = _self_collision(model)
    data["self_collision"] = {"pairs": itself, "left_out": [pair._asdict() for pair in left]}
    sections += (("Shapes of one robot that self-collision leaves out", ("shape", "shape", "why"), left),)
    tables = [f"\n{title}\n{table(head, rows)}" for title, head, rows in sections if rows]
    last = "\n  ".join(["\nNot simulated", *left_out]) if left_out else "\nAll of it is simulated."
    also = ["\n  ".join(["\nNoticed in the file", *noticed])] if noticed else []
    show(arguments, {**data, "not_simulated": left_out, "noticed": noticed}, str(model), *tables, *also, last)
    return 0


def _self_collision(model: Any) -> tuple[int, list[Any]]:
    """Return how many pairs of shapes of one robot touch with self-collision, and those that it leaves out."""
    from adjoin.collision.pairs import pairs, strangers
    from adjoin.collision.self_collision import prune

    touching, left = pairs(model)[0], []
    if not model.integrator:  # an MJCF file says what touches
        touching, left = prune(model, touching)
    return sum(not strangers(model, pair.shapes) for pair in touching), left


def passed_over(arguments: argparse.Namespace) -> list[str]:
    """Return elements of a URDF that belong to other tools."""
    from adjoin import robots
    from adjoin.io import store, xml
    from adjoin.io.load import open_source

    file = source(arguments.robot)
    if file == robots.PENDULUM:
        return []
    data, name, _, _ = open_source(file, None)
    if store.is_saved(data):
        return []
    root = xml.parse(data, name)
    tags = Counter(child.tag for child in root.children if child.tag not in READ and root.tag == "robot")
    return [f"<{tag}> elements, which are another tool's ({count})" for tag, count in tags.items()]


def run_robots(arguments: argparse.Namespace) -> int:
    """Print the table of robots that ship."""
    from adjoin import robots

    rows = []
    for name in robots.names():
        model = robots.load(name)
        header = "" if name == robots.PENDULUM else robots.source(name).decode()
        comment = header[header.find("<!--") + 4 : header.find("-->")]
        title = comment.split("\n")[0].strip().rstrip(".") or "chain of equal rods; any number of links from Python"
        license = re.search(r"License[^:]*: (.*?)\.?\n", comment)
        rows.append((name, len(model.bodies), model.nv, model.nu, model.mass, title, license[1] if license else ""))
    head = ("name", "bodies", "dofs", "actuators", "mass (kg)", "what", "license of its figures")
    keys = ("name", "bodies", "nv", "nu", "mass", "title", "license")
    show(arguments, {"robots": [dict(zip(keys, row, strict=True)) for row in rows]}, table(head, rows))
    return 0


def _lenient(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options, with what is not supported left out and named: that is what is asked for."""
    return {"unsupported": "warn", **options(arguments)} if Path(arguments.robot).is_file() else options(arguments)


def _listed(numbers: Any) -> str:
    return " ".join(f"{number:.4g}" for number in numbers)
