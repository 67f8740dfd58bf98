"""Which coordinates belong to one limb."""

import pytest

import adjoin
from adjoin.model.limbs import find_limbs


@pytest.mark.parametrize(
    ("parents", "limbs"),
    [
        ([], []),
        ([-1], [1]),
        ([-1, 0, 1], [1, 1, 1]),  # a chain is one limb
        ([-1, -1, 1], [1, 2, 2]),  # and so is each tree
        ([-1, 0, 1, 0, 3], [0, 1, 1, 2, 2]),  # two legs hang from a trunk
        ([-1, 0, 1, 0], [1, 1, 1, 1]),  # a single body, such as a finger of a gripper, is no limb
        ([-1, 0, 1, 2, 1, 4, 0, 6], [0, 0, 1, 1, 2, 2, 3, 3]),  # a trunk of two bodies
    ],
)
def test_trees(parents, limbs):
    assert find_limbs(parents) == limbs


def test_robots():
    go2 = adjoin.robots.load("go2").limbs
    assert go2.q == (*[0] * 7, *[1] * 3, *[2] * 3, *[3] * 3, *[4] * 3)
    assert go2.v == (*[0] * 6, *[1] * 3, *[2] * 3, *[3] * 3, *[4] * 3)
    assert set(adjoin.robots.load("panda").limbs.v) == {1}
    g1 = adjoin.robots.load("g1").limbs
    assert len(g1.v) == adjoin.robots.load("g1").nv
    assert set(g1.v) == {0, 1, 2, 3, 4}
