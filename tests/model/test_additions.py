"""Models with one part more: its place, and key frames that follow."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import adjoin
from adjoin.errors import InputError, ModelError


def test_parts_are_added_or_take_the_place_of_others():
    model = adjoin.robots.load("two_link").with_motors()
    q = (0.1, 0.2)
    model = replace(model, keyframes=(adjoin.Keyframe("home", q, (0.0, 0.0), control=(1.0, 2.0)),))
    first = model.actuators[0]
    slow = adjoin.Actuator("slow", first.joint, dynamics="filter")
    more = model.with_actuator(slow, control=3.0)
    assert [a.name for a in more.actuators] == [*[a.name for a in model.actuators], "slow"]
    assert (more.keyframe("home").control, more.keyframe("home").activation) == ((1.0, 2.0, 3.0), (0.0,))
    stronger = more.with_actuator(replace(first, gain=2.0))
    assert stronger.actuators[0].gain == 2.0
    assert stronger.nu == 3
    assert stronger.keyframe("home").control == (1.0, 2.0, 3.0)
    string = adjoin.Tendon("string", (adjoin.Waypoint("joint", first.joint, 2.0),))
    tied = stronger.with_tendon(string).with_equality(adjoin.EqualityConstraint("tie", "tendon", "string"))
    frame = model.frames[-1]
    ball = adjoin.Geometry("ball", "sphere", frame.body, frame.name, size=(0.1, 0.0, 0.0))
    whole = tied.with_geometry(ball).with_sensor(adjoin.Sensor("length", "tendonpos", "string"))
    assert whole.tendons[0] == string
    assert whole.equalities[0].first == "string"
    assert whole.geometries[-1] == ball
    assert whole.sensor_slices == {"length": slice(0, 1)}
    read = adjoin.load(adjoin.to_urdf(whole))
    assert (read.tendons, read.equalities, read.sensors) == (whole.tendons, whole.equalities, whole.sensors)
    assert read.actuators == whole.actuators
    assert read.keyframe("home") == whole.keyframe("home")


SHAPES = {
    "sphere": {"size": (0.1, 0.0, 0.0)},
    "box": {"size": (0.1, 0.2, 0.3)},
    "cylinder": {"size": (0.1, 0.2, 0.0)},
    "capsule": {"size": (0.1, 0.2, 0.0)},
    "ellipsoid": {"size": (0.1, 0.2, 0.3)},
    "plane": {},
    "hull": {"vertices": ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))},
}


@pytest.mark.parametrize("kind", SHAPES)
def test_shapes_of_every_kind_can_be_added(kind):
    model = adjoin.robots.load("two_link")
    frame = model.frames[-1]
    shape = adjoin.Geometry("more", kind, frame.body, frame.name, **SHAPES[kind])
    more = model.with_geometry(shape)
    assert more.geometries == (*model.geometries, shape)
    assert more.geometry_index("more") == len(model.geometries)
    assert (more.mass, more.frames, more.nq) == (model.mass, model.frames, model.nq)
    assert more != model
    moved = replace(shape, position=(0.0, 0.0, 1.0))
    assert more.with_geometry(moved).geometries == (*model.geometries, moved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"body": 0}, "geometry 'more': body is 0, but link '{link}' is on body 1; -1 is the world"),
        ({"body": 9}, "geometry 'more': body 9 does not exist; bodies: -1 (the world) to 1"),
        ({"link": "tail"}, "geometry 'more': link: no frame 'tail'; frames: "),
        ({"size": (0.1,)}, "geometry 'more': size is (0.1,); it must be 3 numbers"),
        ({"size": 0.1}, "geometry 'more': size is 0.1; it must be 3 numbers"),
        ({"position": None}, "geometry 'more': position is None; it must be 3 numbers"),
        ({"position": torch.zeros(3)}, "geometry 'more': position is tensor([0., 0., 0.]); it must be 3 numbers"),
        ({"rotation": (1.0, 0.0, 0.0, 0.0)}, "geometry 'more': rotation is (1.0, 0.0, 0.0, 0.0); it must be 3 tuples"),
        ({"friction": (1.0, 0.0)}, "geometry 'more': friction is (1.0, 0.0); it must be 3 numbers"),
        ({"solimp": (0.9, 0.95)}, "geometry 'more': solimp is (0.9, 0.95); it must be 5 numbers"),
        ({"contype": 1.5}, "geometry 'more': contype is 1.5; it must be a whole number"),
        ({"condim": 2}, "geometry 'more': condim is 2; it must be one of 1, 3, 4, 6"),
        ({"kind": "ball"}, "geometry 'more': kind is 'ball'; it must be one of sphere, box, "),
        ({"name": ""}, "a geometry has an empty name"),
        ({"name": 7}, "geometry '7': name is 7; it must be text"),
    ],
)
def test_a_shape_that_makes_no_sense_is_not_added(change, message):
    model = adjoin.robots.load("two_link")
    frame = model.frames[-1]
    shape = adjoin.Geometry("more", "sphere", frame.body, frame.name, (0.1, 0.0, 0.0))
    with pytest.raises(ModelError) as error:
        model.with_geometry(replace(shape, **change))
    assert str(error.value).startswith(message.format(link=frame.name))


def test_a_part_of_another_kind_is_not_added():
    model = adjoin.robots.load("two_link")
    with pytest.raises(InputError, match=r"got a str; it must be an adjoin\.Geometry"):
        model.with_geometry("ball")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"got a Frame; it must be an adjoin\.Sensor"):
        model.with_sensor(model.frames[0])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "part", "message"),
    [
        ("with_actuator", adjoin.Actuator("m", "baseHinge", dynamics="slow"), "dynamics is 'slow'; it must be one of"),  # type: ignore[arg-type]
        (
            "with_equality",
            adjoin.EqualityConstraint("e", "joint", "baseHinge", "baseHinge"),
            "joint 'baseHinge' to itself",
        ),
        ("with_tendon", adjoin.Tendon("t", (adjoin.Waypoint("site", "arm1"),)), "it runs through one point"),
        (
            "with_tendon",
            adjoin.Tendon("t", ("baseHinge",)),
            "path is ('baseHinge',); it must be a tuple of adjoin.Waypoint",
        ),  # type: ignore[arg-type]
        ("with_sensor", adjoin.Sensor("s", "framepos", "arm1", position=(0.0, 1.0)), "position is (0.0, 1.0)"),  # type: ignore[arg-type]
    ],
)
def test_other_parts_that_make_no_sense_are_not_added(method, part, message):
    with pytest.raises(ModelError) as error:
        getattr(adjoin.robots.load("two_link"), method)(part)
    assert message in str(error.value)


def test_lists_and_arrays_become_tuples():
    model = adjoin.robots.load("two_link")
    frame = model.frames[-1]
    shape = adjoin.Geometry("more", "box", frame.body, frame.name, (0.1, 0.2, 0.3), (0.0, 0.0, 1.0))
    loose = replace(shape, size=np.array(shape.size), position=[0, 0, 1], rotation=np.eye(3))
    assert model.with_geometry(loose).geometries[-1] == shape


def test_an_obstacle_is_fixed_to_the_world():
    model = adjoin.robots.load("ball")
    wall = adjoin.Geometry("wall", "box", -1, "world", (0.1, 1.0, 1.0), (0.5, 0.0, 1.0))
    other = replace(wall, name="other", position=(-5.0, 0.0, 0.0))
    walled = model.with_geometry(wall).with_geometry(other)
    assert [frame.name for frame in walled.frames if frame.body == -1] == ["world"]
    sim = adjoin.Simulator(walled, dt=1e-3, ground=True)
    radius = model.geometries[0].size[0]
    state = sim.state(torch.tensor([0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]), torch.tensor([2.0, 0.0, 0.0, 0.0, 0.0, 0.0]))
    path = sim.rollout(state, steps=300)
    assert path.q[:, 0].max() == pytest.approx(0.4 - radius, abs=1e-3)  # it flies against the wall


MECHANISM = """<mujoco><option timestep="0.002"/>
    <asset><mesh name="pyramid" vertex="-.1 -.1 -.1 .1 -.1 -.1 .1 .1 -.1 -.1 .1 -.1 0 0 .12"/></asset>
    <worldbody><geom name="floor" type="plane" size="5 5 1" pos="0 0 .6"/>
    <site name="post" pos="0 0 1.2"/>
    <body name="a" pos="0 0 1"><joint name="first" axis="0 1 0"/>
      <geom name="upper" type="capsule" size=".03" fromto="0 0 0 .3 0 0"/>
      <body name="b" pos=".3 0 0"><joint name="second" axis="0 1 0" armature=".01"/>
        <geom name="lower" type="capsule" size=".03" fromto="0 0 0 .3 0 0"/><site name="tip" pos=".3 0 0"/>{shape}
      </body></body>
    <body name="c" pos="1.2 0 1"><joint name="third" axis="0 1 0"/>
      <geom name="other" type="capsule" size=".03" fromto="0 0 0 -.3 0 0"/><site name="end" pos="-.3 0 0"/></body>
    </worldbody>{more}
    <keyframe><key name="home" qpos=".1 .2 -.1" ctrl="{control}"/></keyframe></mujoco>"""
COMBINED = (adjoin.Waypoint("joint", "first"), adjoin.Waypoint("joint", "second", -0.5))
STRING = (adjoin.Waypoint("site", "post"), adjoin.Waypoint("site", "tip"))
FIXED = '<tendon><fixed name="t" {}><joint joint="first" coef="1"/><joint joint="second" coef="-.5"/></fixed></tendon>'
SPATIAL = '<tendon><spatial name="t" {}><site site="post"/><site site="tip"/></spatial></tendon>'
SAME = {
    "limit of joints": (FIXED.format('range="-.2 .3"'), adjoin.Tendon("t", COMBINED, lower=-0.2, upper=0.3)),
    "dry friction": (FIXED.format('frictionloss=".5"'), adjoin.Tendon("t", COMBINED, friction=0.5)),
    "taut string": (SPATIAL.format('range="0 .7"'), adjoin.Tendon("t", STRING, lower=0.0, upper=0.7)),
    "elastic string": (
        SPATIAL.format('stiffness="100" damping="1" springlength="0 .3"'),
        adjoin.Tendon("t", STRING, stiffness=100.0, damping=1.0, spring_length=(0.0, 0.3)),
    ),
    "gear": (
        '<equality><joint name="e" joint1="second" joint2="first" polycoef=".1 -2 .3 0 0"/></equality>',
        adjoin.EqualityConstraint("e", "joint", "second", "first", coefficients=(0.1, -2.0, 0.3, 0.0, 0.0)),
    ),
    "tendon held": (
        FIXED.format("") + '<equality><tendon name="e" tendon1="t" polycoef=".1 0 0 0 0"/></equality>',
        adjoin.EqualityConstraint("e", "tendon", "t", coefficients=(0.1, 0.0, 0.0, 0.0, 0.0)),
    ),
    "connect": (
        '<equality><connect name="e" site1="tip" site2="end"/></equality>',
        adjoin.EqualityConstraint("e", "connect", "tip", "end"),
    ),
    "weld": (
        '<equality><weld name="e" site1="tip" site2="end"/></equality>',
        adjoin.EqualityConstraint("e", "weld", "tip", "end"),
    ),
    "motor": ('<actuator><motor name="m" joint="first" gear="3"/></actuator>', adjoin.Actuator("m", "first", (3.0,))),
    "filter": (
        '<actuator><general name="m" joint="first" dyntype="filter" dynprm=".1 0 0" gainprm="4"/></actuator>',
        adjoin.Actuator("m", "first", gain=4.0, dynamics="filter", dynamics_constants=(0.1, 0.0, 0.0)),
    ),
    "motor of a tendon": (
        FIXED.format("") + '<actuator><motor name="m" tendon="t"/></actuator>',
        adjoin.Actuator("m", tendon="t"),
    ),
    "thruster": (
        '<actuator><general name="m" site="tip" gear="0 0 9 0 0 0"/></actuator>',
        adjoin.Actuator("m", site="tip", gear=(0.0, 0.0, 9.0, 0.0, 0.0, 0.0)),
    ),
}


def moved(model):
    sim = adjoin.Simulator(model)
    return sim.rollout(sim.state("home", dtype=torch.float64), steps=150).last


@pytest.mark.parametrize("name", SAME)
def test_an_added_part_acts_as_one_in_the_file(name):
    pytest.importorskip("mujoco")
    section, part = SAME[name]
    control = 0.7 if isinstance(part, adjoin.Actuator) else ""
    written = adjoin.load(MECHANISM.format(shape="", more=section, control=control))
    base = adjoin.load(MECHANISM.format(shape="", more="", control=""))
    if "t" in (getattr(part, "tendon", ""), getattr(part, "first", "")):
        base = base.with_tendon(adjoin.Tendon("t", COMBINED))
    if isinstance(part, adjoin.Actuator):
        added = base.with_actuator(part, control=0.7)
    else:
        added = base.with_tendon(part) if isinstance(part, adjoin.Tendon) else base.with_equality(part)
    assert added.keyframe("home") == written.keyframe("home")
    assert (moved(base).q - moved(written).q).abs().max() > 1e-3
    assert torch.allclose(moved(added).q, moved(written).q, rtol=0.0, atol=1e-12)


FOOT = {
    "sphere": ('type="sphere" size=".08"', (0.08, 0.0, 0.0)),
    "capsule": ('type="capsule" size=".06 .1"', (0.06, 0.1, 0.0)),
    "box": ('type="box" size=".1 .08 .06"', (0.1, 0.08, 0.06)),
    "hull": ('type="mesh" mesh="pyramid"', (0.0, 0.0, 0.0)),
}


@pytest.mark.parametrize("kind", FOOT)
def test_an_added_shape_touches_as_one_in_the_file(kind):
    pytest.importorskip("mujoco")
    text, size = FOOT[kind]
    shape = f'<geom name="foot" {text} pos=".3 0 0" mass="0"/>'
    written = adjoin.load(MECHANISM.format(shape=shape, more="", control=""))
    base = adjoin.load(MECHANISM.format(shape="", more="", control=""))
    foot = written.geometries[written.geometry_index("foot")]
    vertices = {"vertices": foot.vertices, "faces": foot.faces} if kind == "hull" else {}
    position, rotation = foot.position, foot.rotation
    added = base.with_geometry(adjoin.Geometry("foot", kind, 1, "b", size, position, rotation, **vertices))
    assert added.keyframe("home") == base.keyframe("home")
    assert any("foot" in pair for pair in adjoin.Simulator(added).contact_names)
    assert (moved(base).q - moved(written).q).abs().max() > 1e-2
    assert torch.allclose(moved(added).q, moved(written).q, rtol=0.0, atol=1e-10)
