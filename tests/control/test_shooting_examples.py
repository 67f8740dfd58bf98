"""The examples of shooting run, and their losses fall to what is stated."""

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


def test_swing_up(tmp_path, capsys):
    said = run("14_swing_up.py", tmp_path, capsys)
    losses = {name.strip(): float(loss) for name, loss in re.findall(r"^(.{12}) loss (\S+),", said, re.MULTILINE)}
    assert losses.keys() == {"cart-pole", "acrobot", "three links"}
    assert losses["cart-pole"] < 1.3
    assert losses["acrobot"] < 1.0
    assert losses["three links"] < 10.0
    heights = [float(x) / float(y) for x, y in re.findall(r"the tip at (\S+) m of (\S+) m", said)]
    assert min(heights) > 0.99


def test_co_design(tmp_path, capsys):
    said = run("15_co_design.py", tmp_path, capsys)
    motion, gains, lengths = (float(x) for x in re.findall(r"loss (\S+),", said))
    assert motion < 0.8
    assert gains < 0.95 * motion
    assert lengths < 0.6 * motion
