"""The examples of learning run, and find what they say."""

import re

import pytest


def test_inverse_dynamics(run_example):
    said = run_example("07_identify.py")
    before, after = (float(x) for x in re.findall(r"normalized error on another motion (\S+)", said))
    assert after < 1e-3 * before


def test_forward_dynamics(run_example):
    said = run_example("13_identify_forward_dynamics.py")
    mass = float(re.findall(r"mass of iiwa_link_7 +(\S+)", said)[0])
    assert mass == pytest.approx(5.129, rel=1e-3)


def test_kinematics(run_example):
    said = run_example("15_learn_kinematics.py")
    first, last = (float(x) for x in re.findall(r"(?:        0|last) +\S+ mm +(\S+) mm", said))
    assert last < 0.01 * first


def test_trajectory_optimization(run_example):
    said = run_example("17_trajectory_optimization.py")
    assert float(re.findall(r"distance to the goal +(\S+) mm", said)[0]) < 10.0
    assert float(re.findall(r"lowest above the wall +(\S+) m", said)[0]) > 0.5
    assert re.search(r"all inside the limits +True", said)


def test_contact(run_example):
    said = run_example("14_identify_contact.py")
    found = re.findall(r"(friction|restitution|mass) +(\S+) \+- \S+ +truth (\S+)", said)
    assert len(found) == 3
    for _, value, truth in found:
        assert float(value) == pytest.approx(float(truth), rel=0.02)
    assert re.search(r"geometry_friction x of ball .* 1$", said, re.MULTILINE)


def test_augmentation(run_example):
    said = run_example("16_augment.py")
    alone, augmented = (float(x) for x in re.findall(r"of new motions (\S+) rad", said))
    assert augmented < 0.2 * alone
    assert "silent: force of joint1" in said
