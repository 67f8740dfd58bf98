"""Robots that ship look like themselves: shells, feet and hands in the place of collision shapes."""

from dataclasses import replace

import pytest

import adjoin
from adjoin.viewer.parts import parts_of
from adjoin.viewer.visuals import visuals_of


@pytest.mark.parametrize(
    ("name", "seen"), [("go2", "FL_foot"), ("g1", "left_rubber_hand"), ("panda", "panda_leftfinger")]
)
def test_robots_that_ship_are_drawn_with_their_looks(name, seen):
    model = adjoin.robots.load(name)
    visuals = visuals_of(model, None)
    assert seen in visuals
    assert {shape.link for shape in model.geometries} <= set(visuals)
    assert len(parts_of(model, visuals)) == sum(map(len, visuals.values()))
    assert len({part.color for parts in visuals.values() for part in parts}) > 3
    others = [replace(shape, size=(0.5, 0.5, 0.5)) for shape in model.geometries]
    assert not visuals_of(replace(model, geometries=tuple(others)), None)


def test_others_are_drawn_as_their_shapes():
    assert not visuals_of(adjoin.robots.load("laikago"), None)
    assert not visuals_of(adjoin.robots.load("pendulum", links=2), None)
