"""The robot that a command is about: a file, or the name of one that ships, and how to load it."""

import argparse
import difflib
from collections.abc import Collection
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adjoin.errors import AdjoinError, InputError, Location, ModelError, Option

if TYPE_CHECKING:
    from adjoin.model.model import Model


def add_robot(parser: argparse.ArgumentParser, many: bool = False, default: str | None = None) -> None:
    """Add the file or robot, and the options of `adjoin.load`.

    Args:
        parser: of a command.
        many: whether the command takes several robots.
        default: the robot that is used if none is named; without it one must be.
    """
    what = "URDF, MJCF or saved model, or the name of a robot that ships"
    if many:
        action = parser.add_argument("robots", metavar="FILE|ROBOT", nargs="+", help=what)
    elif default:
        what = f"{what} (default {default})"
        action = parser.add_argument("robot", metavar="FILE|ROBOT", nargs="?", default=default, help=what)
    else:
        action = parser.add_argument("robot", metavar="FILE|ROBOT", help=what)
    action.completer = completions  # type: ignore[attr-defined]
    group = parser.add_argument_group("loading, for files")
    group.add_argument("--floating-base", action="store_true", help="put a free joint under the root link of a URDF")
    group.add_argument("--meshes", choices=("hull", "exact", "ignore"), help="collision meshes as hulls, or left out")
    group.add_argument(
        "--accept", action="append", default=[], choices=("mass", "inertia"), help="take a flaw as it is; repeatable"
    )
    group.add_argument(
        "--repair",
        action="append",
        default=[],
        choices=("inertia", "axis", "limits", "right_angles"),
        help="repair a flaw; repeatable",
    )
    group.add_argument("--unsupported", choices=("error", "warn"), help="what to do about parts that are not simulated")
    group.add_argument("--strict", action="store_true", help="refuse a file with flaws, which is said otherwise")
    group.add_argument(
        "--package", action="append", default=[], metavar="NAME=FOLDER", help="where package://NAME is; repeatable"
    )
    group.add_argument(
        "--allow", action="append", default=[], type=Path, metavar="FOLDER", help="a folder to read from; repeatable"
    )


def completions(prefix: str, **_: Any) -> list[str]:
    """Return the robots and files that a shell can complete a word to; asks no module that imports torch."""
    from argcomplete.completers import FilesCompleter

    files = [entry.name for entry in (resources.files("adjoin") / "robots").iterdir()]
    names = ["pendulum", *[name.removesuffix(".urdf") for name in files if name.endswith(".urdf")]]
    return [name for name in sorted(names) if name.startswith(prefix)] + list(FilesCompleter()(prefix))


def options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options for `adjoin.load` that were given."""
    packages = {}
    for text in arguments.package:
        name, equals, folder = text.partition("=")
        if not (name and equals and folder):
            raise InputError(f"--package {text!r} must be NAME=FOLDER")
        packages[name] = Path(folder)
    chosen = {"packages": packages}
    chosen.update({name: getattr(arguments, name) for name in ("floating_base", "meshes", "accept", "repair")})
    chosen.update({name: getattr(arguments, name) for name in ("unsupported", "allow", "strict")})
    return {name: value for name, value in chosen.items() if value}


def source(name: str) -> str | bytes:
    """Return what to load: a path that exists, or the file of a robot that ships."""
    from adjoin import robots

    path = Path(name)
    if path.is_file():
        return name
    known = robots.names()
    if name in known:
        return name if name == robots.PENDULUM else robots.source(name)
    raise _absent(name, path, known)


def load(name: str, **load_options: Any) -> "Model":
    """Return the model of a file or of a robot that ships."""
    from adjoin import robots
    from adjoin.io.load import load as load_file

    file = source(name)
    if isinstance(file, str) and file != robots.PENDULUM:
        return load_file(file, **load_options)
    if load_options:
        listed = ", ".join(flag(Option(name, True)) for name in load_options)
        raise InputError(f"{name!r} ships and loads as it is, without {listed}")
    return robots.load(name)


def visuals(model: "Model", arguments: argparse.Namespace) -> Any:
    """Return the visual shapes that a viewer may draw: those of a URDF or MJCF."""
    from adjoin.viewer import read_visuals

    path, load_options = Path(arguments.robot), options(arguments)
    if path.suffix not in (".urdf", ".xml", ".mjcf") or not path.is_file():
        return None
    return read_visuals(model, path, packages=load_options.get("packages"), allow=load_options.get("allow", ()))


def parts(error: AdjoinError) -> dict[str, Any]:
    """Return the parts of an error, for JSON."""
    fields = {name: getattr(error, name) for name in ("file", "line", "element", "field", "problem", "remedy")}
    subject = str(error.subject) if error.subject else ""
    return {**fields, "subject": subject, "options": [flag(option) for option in error.options]}


def flag(option: Option) -> str:
    """Return an option of `adjoin.load` as it is written on the command line."""
    name = "--package" if option.name == "packages" else "--" + option.name.replace("_", "-")
    if option.value is True:
        return name
    values = [option.value] if isinstance(option.value, str) else option.value
    words = [f"{key}={folder}" for key, folder in values.items()] if isinstance(values, dict) else values
    return " ".join(f"{name} {word}" for word in words)


def _absent(name: str, path: Path, known: Collection[str]) -> ModelError:
    if path.is_dir():
        return ModelError("this is a folder", where=Location(name), remedy="name a robot file in it")
    close = difflib.get_close_matches(name.lower(), known, 1, 0.5)
    hint = f"did you mean the robot {close[0]!r}?" if close else ""
    if path.suffix or path.name != name:
        return ModelError("no such file", where=Location(name), remedy=hint)
    problem = f"no file and no robot that ships is called {name!r}"
    return ModelError(problem, remedy=hint or "`adjoin robots` lists them")
