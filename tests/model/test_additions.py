"""Models with one part more: its place, and key frames that follow."""

from dataclasses import replace

import adjoin


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
