"""The page about models names what there is, and its example runs."""

import runpy
from pathlib import Path

import pytest

import adjoin
from adjoin.model.parameters import PARAMETERS
from adjoin.model.physical import ACCEPTABLE, REPAIRABLE

ROOT = Path(__file__).parents[2]


def test_the_page_names_every_parameter_robot_and_flaw():
    page = (ROOT / "docs" / "models.md").read_text()
    for name in [parameter.name for parameter in PARAMETERS] + list(adjoin.robots.names()):
        assert f"`{name}`" in page, name
    for name in (*ACCEPTABLE, *REPAIRABLE):
        assert f'"{name}"' in page, name
    for name in adjoin.robots.names():
        if name != "pendulum":
            assert f"| `{name}` | {adjoin.robots.load(name).nv} |" in page


def test_the_example_runs(capsys: pytest.CaptureFixture[str]):
    example = ROOT / "examples" / "01_load.py"
    assert len(example.read_text().splitlines()) < 120
    runpy.run_path(str(example), run_name="__main__")
    out = capsys.readouterr().out
    assert "refused: <text>:16: <limit>: joint 'shoulder': lower=-1.5 is above upper=-2" in out
    assert "Model('world': 15 bodies" in out
