"""The examples of continua run, and reach what they state."""

import re


def test_laser(run_example):
    first, last = (float(x) for x in re.findall(r"(\S+) K", run_example("25_laser.py")))
    assert last < 0.3 * first


def test_soft_walker(run_example):
    first, best = (float(x) for x in re.findall(r"(\S+) m at", run_example("26_soft_walker.py")))
    assert best > first + 0.01
