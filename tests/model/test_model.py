"""The frozen model: equality by content, names, tables, composition, locking, subtrees."""

import dataclasses
import pickle
import re

import pytest
import torch

import adjoin
from adjoin.errors import InputError, ModelError
from adjoin.model.joint import Joint, Mimic
from adjoin.model.parts import WORLD, Actuator, Body, ContactPair, Frame, Geometry, Keyframe
from adjoin.model.summary import _HEAD

IDENTITY = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def test_models_are_frozen_and_equal_by_content():
    a, b = adjoin.robots.load("go2"), adjoin.robots.load("go2")
    assert a is not b
    assert a == b
    assert hash(a) == hash(b)
    assert {a: 1}[b] == 1
    assert len(a.digest) == 64
    with pytest.raises(dataclasses.FrozenInstanceError):
        a.name = "other"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        a.bodies[0].mass = 2.0  # type: ignore[misc]
    heavier = a.with_parameters({"mass": a.parameters(dtype=torch.float64)["mass"] * (1 + 1e-15)})
    assert heavier != a
    assert a != "go2"


def test_the_digest_does_not_depend_on_the_process():
    # Written down once: kernels cached on disk under it must be found again by the next process.
    assert adjoin.robots.load("ball").digest == adjoin.load(adjoin.robots.source("ball")).digest
    assert pickle.loads(pickle.dumps(adjoin.robots.load("ball"))) == adjoin.robots.load("ball")


def test_names_and_indices():
    model = adjoin.robots.load("two_link")
    assert [model.body_index(body.name) for body in model.bodies] == [0, 1]
    assert model.joint_index("interArm") == 1
    assert model.frames[model.frame_index("endEffector")].name == "endEffector"
    assert model.actuator_index("baseHinge") == 0
    for call, message in (
        (model.frame_index, r"no link 'foo'; links: base, arm1, arm2, endEffector"),
        (model.body_index, r"no body 'foo'; bodies: arm1, arm2"),
        (model.joint_index, r"no joint 'foo'; joints: baseHinge, interArm"),
        (model.geometry_index, r"no geometry 'foo'; geometries: none"),
        (model.actuator_index, r"no actuator 'foo'; actuators: baseHinge, interArm"),
        (model.keyframe, r"no keyframe 'foo'; keyframes: home"),
    ):
        with pytest.raises(ModelError) as error:
            call("foo")
        assert str(error.value) == message


def test_tables():
    lines = str(adjoin.robots.load("panda")).splitlines()
    assert lines[0].startswith("panda: 9 bodies, nq 8, nv 8, nu 8, 16.822 kg; 13 frames, 39 geometries")
    assert lines[1].split() == list(_HEAD)
    first = ["0", "panda_link1", "world", "panda_joint1", "revolute", "0", "0", "-2.8973", "2.8973", "2.175", "87"]
    assert lines[2].split() == [*first, "4.9707"]
    assert "1 panda_finger_joint1+0" in lines[-1]
    assert repr(adjoin.robots.load("go2")) == "Model('go2': 13 bodies, nq 19, nv 18, nu 12)"


def total_mass(model):
    return model.mass + model.fixture.mass


def test_attach_a_gripper_to_an_arm():
    arm = adjoin.robots.load("ur5")
    hand = adjoin.robots.load("allegro")
    frame = "tool0"
    both = arm.attach(hand, frame, position=(0, 0, 0.1), rotation=(0.5**0.5, 0, 0, 0.5**0.5), prefix="hand/")
    assert (both.nq, both.nv, both.nu) == (22, 22, 22)
    assert total_mass(both) == pytest.approx(total_mass(arm) + total_mass(hand))
    palm = both.frames[both.frame_index("hand/palm_link")]
    assert both.bodies[palm.body].name == arm.bodies[arm.frames[arm.frame_index(frame)].body].name
    assert both.joints[6].name == "hand/" + hand.joints[0].name
    assert all(body.parent < index for index, body in enumerate(both.bodies))
    assert both.name == "ur5"


def test_attach_in_the_middle_keeps_the_order_depth_first():
    arm = adjoin.robots.load("pendulum", links=3)
    tool = adjoin.robots.load("pendulum", links=2)
    both = arm.attach(tool, "link1", prefix="t/")
    assert [body.name for body in both.bodies] == ["link1", "link2", "link3", "t/link1", "t/link2"]
    assert [body.parent for body in both.bodies] == [WORLD, 0, 1, 0, 3]
    with pytest.raises(ModelError, match=r"both models have bodies named 'link1', 'link2'; pass another prefix="):
        arm.attach(tool, "link1")
    with pytest.raises(ModelError, match="has a floating base, joint 'root_joint': it cannot be attached"):
        arm.attach(adjoin.robots.load("ball"), "link1")
    with pytest.raises(InputError, match="unit quaternion"):
        arm.attach(tool, "link1", rotation=(0, 0, 0, 0), prefix="t/")


def test_keyframes_survive_attachment():
    panda = adjoin.robots.load("panda")
    both = panda.attach(adjoin.robots.load("pendulum"), "panda_hand", prefix="p/")
    home = both.keyframe("home")
    at = both.coordinates[both.joint_index("p/joint1")].q
    assert home.q[at] == 0.0
    assert [x for i, x in enumerate(home.q) if i != at] == list(panda.keyframe("home").q)


def test_a_forest_is_several_robots_in_one_world():
    go2, panda = adjoin.robots.load("go2"), adjoin.robots.load("panda")
    world = adjoin.forest({"dog": go2, "arm": panda}, {"arm": ((1, 0, 0), (1, 0, 0, 0))})
    assert (world.nq, world.nv, world.nu) == (go2.nq + panda.nq, go2.nv + panda.nv, go2.nu + panda.nu)
    assert world.mass == pytest.approx(go2.mass + panda.mass)
    roots = [body.name for body in world.bodies if body.parent == WORLD]
    assert roots == ["dog/base", "arm/panda_link1"]
    assert world.bodies[world.body_index("arm/panda_link1")].position[0] == 1.0
    assert world.joints[world.joint_index("arm/panda_finger_joint2")].mimic == Mimic(
        "arm/panda_finger_joint1", 1.0, 0.0
    )
    assert [key.name for key in world.keyframes] == ["dog/home", "arm/home"]
    assert adjoin.forest({"a": go2, "b": go2}).nq == 2 * go2.nq
    with pytest.raises(InputError, match="no models"):
        adjoin.forest({})
    with pytest.raises(InputError, match="a pose for 'x', which is not among the models: a"):
        adjoin.forest({"a": go2}, {"x": ((0, 0, 0), (1, 0, 0, 0))})


def test_with_motors():
    model = adjoin.robots.load("go2").with_motors(["FL_hip_joint"])
    assert [actuator.joint for actuator in model.actuators] == ["FL_hip_joint"]
    assert model.actuators[0].control_range == (-23.7, 23.7)
    with pytest.raises(ModelError, match="no joint 'x'"):
        model.with_motors(["x"])


def test_with_servos():
    go2 = adjoin.robots.load("go2")
    model = go2.with_servos(40.0, range(1, 13))
    assert [actuator.joint for actuator in model.actuators] == [joint.name for joint in go2.joints[1:]]
    first = model.actuators[0]
    assert (first.gain, first.bias, first.gear) == (40.0, (0.0, -40.0, -1.0), (1.0,))
    assert first.force_range == (-23.7, 23.7)
    assert model.actuators[11].bias == (0.0, -40.0, -12.0)
    assert model.keyframe("home").control == go2.keyframe("home").q[7:]
    some = go2.with_servos((1.0, 2.0), 0.0, ["RR_calf_joint", "FL_hip_joint"])
    assert [actuator.gain for actuator in some.actuators] == [1.0, 2.0]
    home = go2.keyframe("home").q
    places = [go2.coordinates[go2.joint_index(name)].q for name in ("RR_calf_joint", "FL_hip_joint")]
    assert some.keyframe("home").control == tuple(home[place] for place in places)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0, 0.0, ["x"]), "no joint 'x'"),
        ((1.0, 0.0, ["root_joint"]), "joint 'root_joint' has 6 degrees of freedom; a servo needs 1"),
        (((1.0, 2.0), 0.0), "kp must be a number from 0 on, or 12, one a joint; got (1.0, 2.0)"),
        ((1.0, -1.0), "kd must be a number from 0 on, or 12, one a joint; got -1.0"),
    ],
)
def test_with_servos_says_what_is_wrong(arguments, message):
    with pytest.raises(ModelError, match=re.escape(message)):
        adjoin.robots.load("go2").with_servos(*arguments)


BODY = Body("a", WORLD, Joint("j", "revolute"), mass=1.0)
GOOD = {"name": "m", "bodies": (BODY,), "frames": (Frame("a", 0),)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bodies": (BODY, BODY)}, "body 'a': there are two of that name"),
        ({"frames": (Frame("", 0),)}, "a frame has an empty name"),
        (
            {"bodies": (dataclasses.replace(BODY, parent=0),)},
            "body 'a': parent is 0; it must be -1 (the world) or a body before",
        ),
        ({"bodies": (dataclasses.replace(BODY, com=(0.0, 0.0)),)}, "body 'a': com has 2 numbers; it needs 3"),
        (
            {"bodies": (dataclasses.replace(BODY, rotation=((2.0, 0, 0), *IDENTITY[1:])),)},
            "body 'a': rotation is not a",
        ),
        (
            {"bodies": (dataclasses.replace(BODY, rotation=((-1.0, 0, 0), *IDENTITY[1:])),)},
            "body 'a': rotation is not a rotation matrix (off by 0.0e+00, determinant -1)",
        ),
        (
            {"bodies": (dataclasses.replace(BODY, joint=Joint("j", "ball", constants=(1.0,))),)},
            "joint 'j': constants () has 1 numbers; it needs 0",
        ),
        (
            {"bodies": (dataclasses.replace(BODY, joint=Joint("j", "revolute", axis=(0.0, 0.0, 2.0))),)},
            "joint 'j': axis has length 2; it must be a unit vector",
        ),
        (
            {"bodies": (dataclasses.replace(BODY, joint=Joint("j", "revolute", lower=1.0, upper=0.0)),)},
            "joint 'j': the lower limit 1 is above the upper limit 0",
        ),
        (
            {"bodies": (dataclasses.replace(BODY, joint=Joint("j", "ball", damping=(1.0,))),)},
            "joint 'j': damping has 1 numbers; it needs 3",
        ),
        (
            {"bodies": (dataclasses.replace(BODY, joint=Joint("j", "revolute", mimic=Mimic("j"))),)},
            "joint 'j': mimic: the joint mimics itself: j -> j",
        ),
        (
            {"bodies": (dataclasses.replace(BODY, joint=Joint("j", "revolute", mimic=Mimic("k"))),)},
            "joint 'j': mimic: no moving joint 'k'; moving joints: j",
        ),
        ({"frames": (Frame("a", 1),)}, "frame 'a': body 1 does not exist; bodies: -1 (the world) to 0"),
        ({"geometries": (Geometry("g", "cone", 0, "a"),)}, "geometry 'g': kind 'cone' is unknown; kinds: sphere, box"),
        ({"geometries": (Geometry("g", "box", 0, "b"),)}, "geometry 'g': link: no frame 'b'; frames: a"),
        ({"geometries": (Geometry("g", "hull", 0, "a"),)}, "geometry 'g': vertices: a hull has 0; a hull needs some"),
        (
            {"geometries": (Geometry("g", "hull", 0, "a", vertices=((0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0))),)},
            "geometry 'g': vertices: a hull of 4 vertices in one plane has no volume; give it at least 4 that are not",
        ),
        (
            {"geometries": (Geometry("g", "box", 0, "a", (-1.0, 1.0, 1.0)),)},
            "geometry 'g': size is -1; it must be at least 0",
        ),
        ({"actuators": (Actuator("m", "x"),)}, "actuator 'm': joint: no joint 'x'; joints: j"),
        ({"actuators": (Actuator("m", "j", gear=(1.0, 2.0)),)}, "actuator 'm': gear has 2 numbers; it needs 1"),
        (
            {"actuators": (Actuator("m", "j", control_range=(1.0, 0.0)),)},
            "actuator 'm': control_range (1, 0) is reversed",
        ),
        ({"keyframes": (Keyframe("k", (0.0, 0.0)),)}, "keyframe 'k': q has 2 numbers; it needs 1"),
        ({"exclusions": (("a", "b"),)}, "contact exclusion: no link 'b'; links: a"),
        ({"pairs": (ContactPair("g", "h"),)}, "contact pair: no geometry 'g'; geometries: none"),
        ({"gravity": (0.0, 0.0, float("nan"))}, "model 'm': gravity is nan; it must be finite"),
    ],
)
def test_models_that_contradict_themselves_cannot_be_made(change, message):
    with pytest.raises(ModelError) as error:
        adjoin.Model(**{**GOOD, **change})
    assert str(error.value).startswith(message)


def test_a_joint_of_an_unknown_kind_cannot_be_made():
    with pytest.raises(ModelError, match="joint 'j': kind 'cardan' is not one of ball, continuous, free, planar"):
        Joint("j", "cardan")


def test_parameters_of_many_environments_are_copies_of_their_own():
    model = adjoin.robots.load("two_link")
    one, many = model.parameters(), model.parameters((3, 2))
    assert all(torch.equal(many[name][2, 1], value) for name, value in one.items())
    many["mass"][0, 0, 0] = 7.0
    assert many["mass"][0, 1, 0] == one["mass"][0]
