"""The examples of learning run, and find what they say."""

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


def test_kinematics(tmp_path, capsys):
    said = run("05_learn_kinematics.py", tmp_path, capsys)
    first, last = (float(x) for x in re.findall(r"(?:        0|last) +\S+ mm +(\S+) mm", said))
    assert last < 0.01 * first


def test_trajectory_optimisation(tmp_path, capsys):
    said = run("06_trajectory_optimisation.py", tmp_path, capsys)
    assert float(re.findall(r"distance to the goal +(\S+) mm", said)[0]) < 10.0
    assert float(re.findall(r"lowest above the wall +(\S+) m", said)[0]) > 0.5
    assert re.search(r"all inside the limits +True", said)


def test_contact(tmp_path, capsys):
    said = run("09_identify_contact.py", tmp_path, capsys)
    found = re.findall(r"(friction|restitution|mass) +(\S+) \+- \S+ +truth (\S+)", said)
    assert len(found) == 3
    for _, value, truth in found:
        assert float(value) == pytest.approx(float(truth), rel=0.02)
    assert re.search(r"geometry_friction x of ball .* 1$", said, re.MULTILINE)


def test_augmentation(tmp_path, capsys):
    said = run("10_augment.py", tmp_path, capsys)
    alone, augmented = (float(x) for x in re.findall(r"of new motions (\S+) rad", said))
    assert augmented < 0.2 * alone
    assert "silent: force of joint1" in said
