"""The examples of identification run, and find what they say."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, folder, capsys):
    pytest.importorskip("matplotlib")
    picture = runpy.run_path(str(EXAMPLES / name))["main"](quick=True, folder=folder)
    assert picture.stat().st_size > 10_000
    return capsys.readouterr().out


def test_inverse_dynamics(tmp_path, capsys):
    said = run("07_identify_inverse_dynamics.py", tmp_path, capsys)
    before, after = (float(x) for x in re.findall(r"normalised error on another motion (\S+)", said))
    assert after < 1e-3 * before


def test_forward_dynamics(tmp_path, capsys):
    said = run("08_identify_forward_dynamics.py", tmp_path, capsys)
    mass = float(re.findall(r"mass of iiwa_link_7 +(\S+)", said)[0])
    assert mass == pytest.approx(5.129, rel=1e-3)
