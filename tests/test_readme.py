"""What the README and the pages about its parts show runs as it stands there."""

import re
import warnings
from pathlib import Path

import pytest

import adjoin
from adjoin.dynamics.quantity import QUANTITIES
from adjoin.errors import UnsettledWarning
from adjoin.model.joint_types import JOINT_TYPES
from adjoin.simulation.step import STEP_VALUES

ROOT = Path(__file__).parent.parent


GUIDES = ("models", "compiler", "dynamics", "simulation", "continuum", "learning", "control", "reinforcement_learning")
CONCEPTS = ("index", "quick_start", "tracing", "conventions", "contact", "adjoints", "contributing")
PAGES = ["README.md", *[f"docs/{name}.md" for name in (*GUIDES, *CONCEPTS)]]


@pytest.fixture
def _registries():
    """What a page registers is forgotten after it; what the library registers is there before."""
    assert all(hasattr(adjoin, name) for name in adjoin.__all__)  # imports all of it
    before = [(registry, dict(registry)) for registry in (JOINT_TYPES, QUANTITIES, STEP_VALUES)]
    yield
    for registry, entries in before:
        registry.clear()
        registry.update(entries)


def code_blocks(page):
    """The Python of a page that is meant to run."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.usefixtures("_registries")
@pytest.mark.parametrize("page", PAGES)
def test_code_blocks_run(page, capsys):
    blocks = code_blocks(page)
    assert blocks
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), scope)
    assert capsys.readouterr().out


def test_every_page_with_code_runs_and_asserts_what_it_shows():
    pages = ["README.md", *[f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md")]]
    assert {page for page in pages if code_blocks(page)} == {*PAGES, "docs/viewer.md"}  # that one: tests/viewer
    silent = [block for page in pages for block in code_blocks(page) if "print(" in block and "assert " not in block]
    assert silent == []


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_demo_runs(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("viser")
    from adjoin.demo import main

    with warnings.catch_warnings():
        warnings.simplefilter("error", UnsettledWarning)  # the first gradient that a newcomer sees is right
        files = main(tmp_path, quick=True)
    said = capsys.readouterr().out
    assert "64,000 steps with contact" in said
    before, after = map(float, re.findall(r"loss from (.*) to (.*) in", said)[0])
    assert after < 0.5 * before
    assert [file.name for file in files] == ["jump.html", "jump.png"]
    assert all(str(file) in said and file.stat().st_size > 20_000 for file in files)
