"""Pages that are made when the site is built: measurements, examples, replays, the reference and the changelog."""

import ast
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "adjoin"

REFERENCE = {
    "models": ("Models and files", ("adjoin.io.", "adjoin.model.", "adjoin.robots")),
    "dynamics": ("Kinematics and dynamics", ("adjoin.dynamics.",)),
    "simulation": (
        "Simulation and contact",
        ("adjoin.simulation.simulator", "adjoin.simulation.", "adjoin.collision.", "adjoin.constraints."),
    ),
    "learning": ("Learning", ("adjoin.learn",)),
    "control": ("Control", ("adjoin.control",)),
    "rl": ("Reinforcement learning", ("adjoin.rl",)),
    "compiler": ("The compiler", ("adjoin.compiler.", "adjoin.trace.")),
    "viewer": ("Viewer", ("adjoin.viewer",)),
    "errors": ("Errors", ("adjoin.errors",)),
}
"""Pages of the reference: title, and the modules whose public names they have."""

ALSO = {
    "models": [f"adjoin.robots.{name}" for name in ("load", "names", "source", "pendulum")],
    "simulation": [
        *[f"adjoin.simulation.state.{name}" for name in ("SimulatorState", "Trajectory", "Contacts")],
        "adjoin.simulation.diagnostics.Diagnostics",
        *[f"adjoin.simulation.step.{name}" for name in ("Step", "step_value", "STEP_VALUES")],
        "adjoin.constraints.contact_model.ContactModel",
    ],
    "learning": [
        f"adjoin.compat.differentiable_robot_model.{name}" for name in ("DifferentiableRobotModel", "train_epoch")
    ],
    "errors": [f"adjoin.errors.{name}" for name in ("AdjoinError", "InputError", "ModelError", "TraceError")],
}
"""Names that public functions take or give, and that are not exported themselves."""


BARE = ("adjoin.collision.", "adjoin.constraints.", "adjoin.simulation.integrators", "adjoin.trace.Expr")
"""Objects that are only made and passed on: their methods are for the simulator."""

UNSEARCHED = "---\nsearch: {exclude: true}\n---\n\n"
BEHIND = "---\nsearch: {boost: 0.4}\n---\n\n"
"""Heads of pages that the search leaves out, or finds after the guides."""

CONSTANTS = "\n    options:\n      inherited_members: false\n      members: false"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is made."""
    made = [*measured(), *examples(), *reference(), *replays(), ("changelog.md", (ROOT / "CHANGELOG.md").read_text())]
    for path, content in made:
        files.append(File.generated(config, path, content=content))
    config.nav = [entry for part in config.nav or [] if (entry := filled(part, [path for path, _ in made]))]
    return files


def filled(part: Any, made: list[str]) -> Any:
    """A part of the navigation, in which `folder/` stands for all pages that were made in it."""
    if isinstance(part, dict):
        return {title: filled(below, made) for title, below in part.items()}
    if isinstance(part, list):
        return [page for below in part for page in (filled(below, made) if is_folder(below) else [filled(below, made)])]
    return [path for path in made if path.startswith(part) and path.endswith(".md")] if is_folder(part) else part


def is_folder(part: Any) -> bool:
    """Whether a part of the navigation stands for pages that are made."""
    return isinstance(part, str) and part.endswith("/")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead to the pages that were made."""
    markdown = re.sub(r"\]\(\.\./examples/(\w+)\.py\)", r"](examples/\1.md)", markdown)
    if page.file.src_uri == "performance.md":
        links = [path for path in files.src_uris if path.startswith("measured/") and path.endswith(".md")]
        names = ", ".join(f"[{Path(path).stem.replace('_', ' ')}]({path})" for path in links)
        markdown = markdown.replace("\n## ", f"\nEverything, with pictures: {names}.\n\n## ", 1)
    if page.file.src_uri == "tasks.md":
        markdown = re.sub(r"(Replay[^:`]*:\s)`(\w+)`", r"\1[`\2`](replays/\2.html)", markdown)
    return markdown


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put drawings that take the colors of a page into the page itself."""

    def drawn(match: re.Match[str]) -> str:
        text = (Path(config.docs_dir) / match[1]).read_text()
        return text.replace("<svg ", '<svg class="figure" ', 1) if "currentColor" in text else match[0]

    return re.sub(r'<img [^>]*src="(images/\w+\.svg)"[^>]*>', drawn, html)


def measured() -> Iterator[tuple[str, str]]:
    """All figures and their pictures."""
    sys.path.append(str(ROOT / "benchmarks"))
    from plots import everything

    for name, content in everything():
        if callable(content):
            with tempfile.TemporaryDirectory() as folder:
                content(Path(folder, name))
                content = Path(folder, name).read_text()
        yield f"measured/{name}", UNSEARCHED + content if name.endswith(".md") else content


def examples() -> Iterator[tuple[str, str]]:
    """The list of examples, and a page for each."""
    folder = ROOT / "examples"
    yield "examples/index.md", re.sub(r"\]\((\w+)\.py\)", r"](\1.md)", (folder / "README.md").read_text())
    for path in sorted(folder.glob("[0-9]*.py")):
        code = path.read_text()
        said = (ast.get_docstring(ast.parse(code)) or "").split("\n\n")[0]
        title = path.stem.replace("_", " ")
        yield f"examples/{path.stem}.md", f"{BEHIND}# {title}\n\n{said}\n\n```python\n{code}```\n"


def replays() -> Iterator[tuple[str, str]]:
    """What was learned of each task, as a page that plays it."""
    sys.path.append(str(ROOT / "docs" / "images"))
    from tasks import MOTIONS, replay

    with tempfile.TemporaryDirectory() as folder:
        for file in sorted(MOTIONS.glob("*.npz")):
            yield f"replays/{file.stem}.html", replay(file.stem, Path(folder)).read_text()


def reference() -> Iterator[tuple[str, str]]:
    """Pages of all public names, from their docstrings."""
    modules = constant(SOURCE / "__init__.py", "_MODULES")
    rooms = {name: constant(SOURCE / name / "__init__.py", "__all__") for name in ("learn", "control", "rl", "viewer")}
    rooms["trace"] = [*constant(SOURCE / "trace.py", "__all__"), *constant(SOURCE / "compiler/ir/ops.py", "__all__")]
    public = {f"adjoin.{name}": home for home, names in modules.items() if home != "adjoin" for name in names}
    for room, names in rooms.items():
        unlisted = [name for name in names if f"adjoin.{name}" not in public]
        public |= {f"adjoin.{room}.{unlike_its_file(SOURCE / room, name)}": f"adjoin.{room}." for name in unlisted}
    rows = []
    for stem, (title, prefixes) in REFERENCE.items():
        found = {name: home for prefix in prefixes for name, home in public.items() if home.startswith(prefix)}
        found |= {name: name for name in ALSO.get(stem, [])}
        if found:
            links = ", ".join(f"[`{name.removeprefix('adjoin.')}`][{name}]" for name in found)
            rows.append(f"## [{title}]({stem}.md)\n\n{links}\n")
            entries = [
                f"::: {name}" + (CONSTANTS if home.startswith(BARE) or name.startswith(BARE) else "")
                for name, home in found.items()
            ]
            yield f"reference/{stem}.md", f"{BEHIND}# {title}\n\n" + "\n\n".join(entries) + "\n"
    yield "reference/index.md", "\n".join(["# Reference\n\nEvery public name, from its docstring.\n", *rows])


def unlike_its_file(room: Path, name: str) -> str:
    """The path of a name in a room; a function in a file of its own name would be taken for that file."""
    file = room / f"{name}.py"
    return f"{name}.{name}" if file.exists() and re.search(rf"^def {name}\b", file.read_text(), re.MULTILINE) else name


def constant(path: Path, name: str) -> Any:
    """The value of a literal in a module, which is not imported for it."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return ast.literal_eval(node.value)
    raise LookupError(f"{path} has no {name}")
