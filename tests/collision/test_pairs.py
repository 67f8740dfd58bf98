import dataclasses
import functools
import itertools
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "io"))

from corpus import MJCFS

import adjoin
from adjoin.collision.narrow_phase import supported
from adjoin.collision.pairs import Pair, pairs
from adjoin.errors import InputError, ModelWarning
from adjoin.io.load import load

mujoco = pytest.importorskip("mujoco")


@functools.cache
def both(name):
    try:
        theirs = mujoco.MjModel.from_xml_path(str(MJCFS[name]))
    except ValueError as error:
        pytest.skip(f"MuJoCo {mujoco.__version__} does not read it: {error}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        return theirs, load(MJCFS[name], unsupported="warn")


def numbers(theirs, ours):
    """MuJoCo's number of each of our shapes."""
    found = []
    for shape in ours.geometries:
        index = mujoco.mj_name2id(theirs, mujoco.mjtObj.mjOBJ_GEOM, shape.name)
        found.append(index if index >= 0 else int(shape.name.rsplit("/geom", 1)[1]))
    return found


def allowed(m, g, h):
    """MuJoCo's rules, on its own arrays."""
    b, c = m.geom_bodyid[g], m.geom_bodyid[h]
    u, v = m.body_weldid[b], m.body_weldid[c]
    if u == v:
        return False
    up, down = (m.body_weldid[m.body_parentid[w]] for w in (u, v))
    if u and v and (up == v or down == u) and not m.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_FILTERPARENT:
        return False
    if any({int(s) >> 16, int(s) & 0xFFFF} == {b, c} for s in m.exclude_signature):
        return False
    return bool(m.geom_contype[g] & m.geom_conaffinity[h] or m.geom_contype[h] & m.geom_conaffinity[g])


@pytest.mark.parametrize("name", MJCFS)
def test_the_pairs_are_those_of_mujocos_rules(name):
    m, model = both(name)
    numbered = numbers(m, model)
    expected = {frozenset((g, h)) for g, h in itertools.combinations(numbered, 2) if allowed(m, g, h)} | {
        frozenset((int(g), int(h))) for g, h in zip(m.pair_geom1, m.pair_geom2, strict=True)
    }
    found, left = pairs(model)
    assert {frozenset((numbered[p.first], numbered[p.second])) for p in found + left} == expected
    assert all(supported(*kinds(model, p)) for p in found)
    assert not any(supported(*kinds(model, p)) for p in left)


def kinds(model, pair):
    return model.geometries[pair.first].kind, model.geometries[pair.second].kind


@pytest.mark.parametrize("name", ["gymnasium/ant.xml", "gymnasium/humanoid.xml", "gymnasium/half_cheetah.xml"])
def test_what_touches_in_mujoco_is_among_the_pairs(name):
    m, model = both(name)
    numbered = numbers(m, model)
    found, left = pairs(model)
    candidates = {frozenset((numbered[p.first], numbered[p.second])) for p in found + left}
    data = mujoco.MjData(m)
    touched = set()
    for q in model.random((100,), generator=torch.Generator().manual_seed(0), dtype=torch.float64).tolist():
        data.qpos[:] = q
        mujoco.mj_forward(m, data)
        touched |= {frozenset(map(int, contact.geom)) for contact in data.contact}
    assert touched
    assert touched <= candidates


SCENE = """<mujoco>
<worldbody>
  <geom name="ground" type="plane" size="1 1 1" friction="0.5 0.01 0.002" margin="0.01" gap="0.002"/>
  <body name="a"><freejoint/>
    <geom name="ball" size="0.1" friction="0.8 0.005 0.003" condim="4" margin="0.003" gap="0.001" solmix="3"
          solref="0.03 0.8" solimp="0.8 0.9 0.002 0.4 3"/>
    <geom name="stick" type="capsule" size="0.05 0.2" priority="1" friction="0.1 0.002 0.003" condim="1"/>
    <body name="b"><joint/>
      <geom name="block" type="box" size="0.1 0.1 0.1" solref="-100 -1"/>
      <body name="c"><joint name="j"/><joint name="k" axis="0 1 0"/>
        <geom name="drum" type="cylinder" size="0.1 0.1"/>
        <body name="d"><joint/><geom name="bead" size="0.05"/></body>
      </body>
    </body>
  </body>
  <body name="e"><freejoint/><geom name="cube" type="box" size="0.1 0.1 0.1" contype="2" conaffinity="4"/>
    <geom name="rod" type="cylinder" size="0.1 0.1" contype="0" conaffinity="0"/></body>
  <body name="f" pos="0 0 3"><geom name="fixed" type="box" size="0.1 0.1 0.1"/></body>
</worldbody>
<contact>
  <pair geom1="cube" geom2="ground" condim="6" friction="0.3 0.4 0.01 0.001 0.002" margin="0.02" gap="0.01"/>
  <exclude body1="a" body2="d"/>
</contact>
</mujoco>"""


@functools.cache
def scene():
    return load(SCENE)


def named(model, found):
    return {frozenset((model.geometries[p.first].name, model.geometries[p.second].name)) for p in found}


def named_pair(*names, **more):
    model = scene()
    wanted = {model.geometry_index(name) for name in names}
    found, left = pairs(model, **more)
    (pair,) = (p for p in found + left if {p.first, p.second} == wanted)
    return pair


def test_filters():
    model = scene()
    found, left = pairs(model)
    ground = {frozenset(("ground", name)) for name in ("ball", "stick", "block", "drum", "bead", "cube")}
    fixed = {frozenset(("fixed", name)) for name in ("ball", "stick", "block", "bead")}
    # c is between two joints of its own, and still the parent of d and the child of b.
    others = {frozenset(names) for names in (("block", "bead"), ("ball", "drum"), ("stick", "drum"), ("drum", "fixed"))}
    assert named(model, found) == ground | fixed | others
    assert left == []
    touching = dataclasses.replace(model, parents_touch=True)
    assert named(touching, pairs(touching)[0]) - named(model, found) == {
        frozenset(names) for names in (("ball", "block"), ("stick", "block"), ("block", "drum"), ("bead", "drum"))
    }


@pytest.mark.parametrize("names", [("ground", "ball"), ("ground", "stick"), ("ground", "block"), ("ground", "cube")])
def test_constants_are_combined_as_mujoco_does(names):
    model = scene()
    m = mujoco.MjModel.from_xml_string(SCENE)
    data = mujoco.MjData(m)
    data.qpos[0:7] = [0, 0, 0, 1, 0, 0, 0]
    data.qpos[-7:] = [5, 0, 0, 1, 0, 0, 0]
    mujoco.mj_forward(m, data)
    wanted = {mujoco.mj_name2id(m, mujoco.mjtObj.mjOBJ_GEOM, name) for name in names}
    contact = next(c for c in data.contact if set(map(int, c.geom)) == wanted)
    pair = named_pair(*names)
    coefficients = pair.coefficients([shape.friction for shape in model.geometries])
    assert coefficients == pytest.approx(tuple(contact.friction))
    assert (pair.condim, pair.margin) == (contact.dim, pytest.approx(contact.includemargin))
    assert pair.solref == pytest.approx(tuple(contact.solref))
    assert pair.solimp == pytest.approx(tuple(contact.solimp))


@pytest.mark.parametrize("distance", [0.05, 0.09, 0.11, 0.13])
def test_a_contact_pushes_below_its_margin_whatever_the_gap(distance):
    document = f"""<mujoco><worldbody><geom type="plane" size="1 1 1" margin="0.1" gap="0.04"/>
      <body pos="0 0 {0.1 + distance}"><freejoint/><geom size="0.1"/></body></worldbody></mujoco>"""
    m = mujoco.MjModel.from_xml_string(document)
    data = mujoco.MjData(m)
    mujoco.mj_forward(m, data)
    sim = adjoin.Simulator(adjoin.load(document), dt=1e-3)
    pushed = float(sim.step(sim.state("qpos0")).v[2]) > -9.81e-3 * 0.99
    assert data.ncon == 1
    assert pushed == (data.qacc[2] > -9.8) == (distance < 0.1)


def test_gaps_add_up_and_pairs_have_their_own():
    assert named_pair("ground", "ball").gap == pytest.approx(0.003)
    assert named_pair("ground", "cube").gap == pytest.approx(0.01)


def test_friction_comes_from_parameters():
    model = scene()
    pair = named_pair("ground", "ball")

    @adjoin.function(friction=(len(model.geometries), 3))
    def coefficients(friction):
        return list(pair.coefficients(friction))

    friction = model.parameters(dtype=torch.float64)["geometry_friction"].requires_grad_()
    result = coefficients(friction)
    np.testing.assert_allclose(result.detach(), [0.8, 0.8, 0.01, 0.003, 0.003])
    gradient = torch.autograd.grad(result[0], friction)[0]
    assert gradient[model.geometry_index("ball"), 0] == 1.0
    assert gradient.sum() == 1.0


def test_pairs_are_chosen_by_the_names_of_shapes_and_links():
    model = scene()
    found, left = pairs(model, [("a", "ground"), ("bead", "ground"), ("ground", "cube")])
    assert named(model, found) == {frozenset((name, "ground")) for name in ("ball", "stick", "bead", "cube")}
    assert left == []
    assert [(p.first, p.second) for p in found] == sorted((p.first, p.second) for p in found)
    assert found == [p for p in pairs(model)[0] if p in found]
    filtered, _ = pairs(model, [("ball", "block"), ("cube", "bead")])
    assert named(model, filtered) == {frozenset(("ball", "block")), frozenset(("cube", "bead"))}
    found, left = pairs(model, [("a", "e"), ("c", "world")])
    expected = (("ball", "cube"), ("stick", "cube"), ("ball", "rod"), ("stick", "rod"), ("drum", "ground"))
    assert named(model, found) == {frozenset(names) for names in expected}
    assert left == []


def test_pairs_are_ignored_by_name():
    model = scene()
    whole = named(model, pairs(model)[0])
    some = named(model, pairs(model, ignored=[("a", "world"), ("bead", "block")])[0])
    assert whole - some == {frozenset(n) for n in (("ball", "ground"), ("stick", "ground"), ("bead", "block"))}
    assert named(model, pairs(model, [("a", "ground")], [("stick", "ground")])[0]) == {frozenset(("ball", "ground"))}


def test_what_cannot_be_chosen_says_why():
    model = scene()
    with pytest.raises(InputError, match="'ball' and 'stick' do not move against each other"):
        pairs(model, [("ball", "stick")])
    with pytest.raises(InputError, match=r"no shape 'foot'; shapes: ground, ball, .*; links with shapes: world,"):
        pairs(model, [("foot", "ground")])
    with pytest.raises(InputError, match=r"ignored must be pairs of names, .* got 'ball'"):
        pairs(model, ignored=["ball"])


def test_a_pair_of_kinds_that_cannot_be_tested_is_named_with_those_that_can():
    body = adjoin.Body("tray", -1, adjoin.Joint("free", "free"), mass=1.0, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, 1.0))
    frames = (adjoin.Frame("floor", -1), adjoin.Frame("tray", 0))
    planes = (adjoin.Geometry("floor", "plane", -1, "floor"), adjoin.Geometry("tray", "plane", 0, "tray"))
    model = adjoin.Model("planes", (body,), frames, planes)
    expected = r"'floor' is a plane and 'tray' a plane, which cannot be tested for contact; these can: sphere"
    with pytest.raises(InputError, match=expected):
        adjoin.Simulator(model, pairs=[("tray", "floor")])


@pytest.mark.parametrize("contact", [adjoin.PGS(), adjoin.Newton(), adjoin.Compliant()])
@pytest.mark.parametrize("capacity", [0, -1, 2.5, True])
def test_a_capacity_that_holds_nothing_is_refused(contact, capacity):
    with pytest.raises(InputError, match=rf"max_contacts must be a whole number of at least 1, got {capacity}"):
        adjoin.Simulator(adjoin.robots.load("box"), 1e-3, contact, max_contacts=capacity)


def test_a_pair_can_be_hashed():
    assert len({Pair(0, 1), Pair(0, 1), Pair(0, 2)}) == 2


HAND = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
  <body name="palm" pos="0 0 1"><geom name="palm" size="0.1"/>
    <body name="f1"><joint name="a"/><geom name="f1" size="0.1"/></body>
    <body name="f2"><joint name="b"/><geom name="f2" size="0.1"/></body></body>
  <body name="cube"><freejoint/><geom name="cube" size="0.1"/></body></worldbody></mujoco>"""


def test_shapes_of_a_robot_on_a_fixed_base_do_not_touch_each_other():
    pytest.importorskip("mujoco")
    model = adjoin.load(HAND)

    def names(model, **options):
        shapes = model.geometries
        return {tuple(sorted((shapes[p.first].name, shapes[p.second].name))) for p in pairs(model, **options)[0]}

    strangers = {("cube", "f1"), ("cube", "f2"), ("cube", "palm"), ("cube", "floor"), ("f1", "floor"), ("f2", "floor")}
    assert names(model, within=False) == strangers
    assert names(model, within=True) == strangers | {("f1", "palm"), ("f2", "palm"), ("f1", "f2")}
    assert names(adjoin.load(adjoin.to_urdf(model)), within=False) == strangers
    two = adjoin.forest({"l": model, "r": model}, {"r": ((1.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))})
    assert ("l/f1", "r/f1") in names(two, within=False)
    assert ("l/f1", "l/palm") not in names(two, within=False)
    ball = "<collision><geometry><sphere radius='1'/></geometry></collision>"
    tool = adjoin.load(f'<robot name="t"><link name="t">{ball}</link></robot>')
    assert ("f1", "t/0") not in names(model.attach(tool, "f2"), within=False)
