"""The zoo: everything loads strictly, says where it comes from, has no meshes, and is what its recipe makes."""

import importlib.metadata
import math
import re

import numpy as np
import pinocchio
import pytest
import recipes
import torch

import adjoin
from adjoin.errors import InputError, ModelError

NAMES = adjoin.robots.names()
DOFS = {
    "a1": 18,
    "allegro": 16,
    "ant": 14,
    "ball": 6,
    "box": 6,
    "fetch_arm": 7,
    "g1": 35,
    "go2": 18,
    "h1": 25,
    "half_cheetah": 9,
    "hopper": 6,
    "humanoid": 23,
    "iiwa7": 7,
    "laikago": 18,
    "panda": 8,
    "pendulum": 1,
    "racecar": 12,
    "spined_quadruped": 17,
    "two_link": 2,
    "ur5": 6,
    "xarm7": 7,
}


def test_the_zoo_has_what_was_asked_for():
    assert set(NAMES) == set(DOFS)
    assert {name: adjoin.robots.load(name).nv for name in NAMES} == DOFS


@pytest.mark.parametrize("name", [name for name in NAMES if name != "pendulum"])
def test_files_are_small_and_say_their_source_and_license(name):
    text = adjoin.robots.source(name).decode()
    assert len(text) < 64 * 1024
    header = re.search(r"<!--(.*?)-->", text, re.S)
    assert header is not None
    assert "Figures: " in header[1]
    assert "License of the figures: " in header[1]
    assert "<mesh" not in text
    assert "hull" not in text


@pytest.mark.parametrize("name", [name for name, recipe in recipes.RECIPES.items() if recipe.needs == "installed"])
def test_files_are_what_their_recipe_makes(name):
    for package, version in re.findall(r"(example-robot-data|gymnasium) ([0-9.]+),", recipes.RECIPES[name].source):
        if importlib.metadata.version(package) != version:
            pytest.skip(f"{package} {version} is not installed")
    number = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?")
    made, kept = recipes.text(name), adjoin.robots.source(name).decode()
    assert number.sub("#", made) == number.sub("#", kept)
    # The last digit of an eigenvalue depends on the processor that LAPACK runs on.
    assert [*map(float, number.findall(made))] == pytest.approx(
        [*map(float, number.findall(kept))], rel=1e-12, abs=1e-18
    )


@pytest.mark.parametrize("name", [name for name in NAMES if name != "pendulum"])
def test_pinocchio_reads_the_same_robot_from_our_files(name):
    model = adjoin.robots.load(name)
    text = adjoin.robots.source(name).decode()
    pin = pinocchio.buildModelFromXML(text, True)
    assert pin.nv == model.nv
    for body in model.bodies:
        i = pin.getJointId(body.joint.name)
        assert pin.inertias[i].mass == pytest.approx(body.mass, rel=1e-12)
        np.testing.assert_allclose(pin.jointPlacements[i].translation, body.position, atol=1e-12)
        np.testing.assert_allclose(pin.jointPlacements[i].rotation, body.rotation, atol=1e-12)


@pytest.mark.parametrize("name", ["go2", "a1", "laikago", "g1", "spined_quadruped"])
def test_home_stands_on_the_ground_inside_the_limits(name):
    model = adjoin.robots.load(name)
    q = model.keyframe("home").q
    assert recipes.lowest(model, list(q)) == pytest.approx(0.0, abs=1e-4)
    lower, upper = model.limits()
    assert all(low <= x <= high for low, x, high in zip(lower, q, upper, strict=True))


@pytest.mark.parametrize("links", [1, 2, 5, 100])
def test_pendulums_of_any_length(links):
    model = adjoin.robots.load("pendulum", links=links)
    assert (model.nq, model.mass) == (links, links)
    tip = model.frames[model.frame_index("tip")]
    assert tip.body == links - 1
    assert adjoin.load(adjoin.to_urdf(model)).nv == links


def test_locking_the_base_fixes_it():
    model = adjoin.robots.load("go2", lock={"root_joint": (0, 0, 0.3, 1, 0, 0, 0)})
    assert (model.nq, model.nv) == (12, 12)
    assert model.fixture.mass == pytest.approx(7.277)
    assert model.keyframe("home").q[1] == 0.9


def test_names_that_do_not_exist():
    with pytest.raises(ModelError, match=r"no robot 'go3'; robots: a1, allegro, ant, ball"):
        adjoin.robots.load("go3")
    with pytest.raises(InputError, match="links is for the pendulum"):
        adjoin.robots.load("go2", links=3)
    with pytest.raises(InputError, match="at least one link"):
        adjoin.robots.load("pendulum", links=0)


def test_random_configurations_are_inside_the_limits():
    for name in NAMES:
        model = adjoin.robots.load(name)
        q = model.random((100,), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        lower, upper = (torch.tensor(x, dtype=torch.float64) for x in model.limits())
        assert ((q >= lower) & (q <= upper)).all()
        assert math.isfinite(float(q.sum()))
