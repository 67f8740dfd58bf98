"""Models with one part more: its place, and key frames that follow."""

from dataclasses import replace

import pytest

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
        ({"size": (0.1,)}, "geometry 'more': size has 1 numbers; it needs 3"),
        ({"kind": "ball"}, "geometry 'more': kind 'ball' is unknown; kinds: sphere, box, "),
        ({"name": ""}, "a geometry has an empty name"),
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
