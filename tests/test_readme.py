"""What the README and the pages about its parts show runs as it stands there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


PAGES = ["README.md", *[f"docs/{name}.md" for name in ("compiler", "dynamics", "simulation", "learning", "control")]]


@pytest.mark.parametrize("page", PAGES)
def test_code_blocks_run(page, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert len(blocks) >= 2
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), scope)
    assert capsys.readouterr().out


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_demo_runs(capsys):
    from adjoin.demo import main

    main()
    assert "times faster" in capsys.readouterr().out
