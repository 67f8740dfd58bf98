"""The examples of continua run, and reach what they state."""

import re

import pytest


def test_laser(run_example):
    first, last = (float(x) for x in re.findall(r"(\S+) K", run_example("25_laser.py")))
    assert last < 0.3 * first


def test_soft_walker(run_example):
    first, best = (float(x) for x in re.findall(r"(\S+) m at", run_example("26_soft_walker.py")))
    assert best > first + 0.01


def test_soft_lift(run_example):
    pytest.importorskip("viser")
    first, last = (float(x) for x in re.findall(r"at (\S+) m at", run_example("27_soft_lift.py")))
    assert abs(last - 0.2) < 0.02 < 0.05 < abs(first - 0.2)


def test_soft_gripper(run_example):
    pytest.importorskip("viser")
    first, last = (float(x) for x in re.findall(r"at (\S+) m at", run_example("28_soft_gripper.py")))
    assert abs(last - 0.08) < 0.01 < 0.05 < abs(first - 0.08)


def test_cloth(run_example):
    pytest.importorskip("viser")
    first, last = (float(x) for x in re.findall(r"by (\S+) mm at", run_example("29_cloth.py")))
    assert last < 1.0 < 40.0 < first
