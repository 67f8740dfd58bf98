"""Errors are put together from their parts, and keep them."""

import copy
import pickle

import pytest

import adjoin
from adjoin.cli.robot import flag
from adjoin.errors import InputError, Location, ModelError, Option, Subject, unknown_name_parts
from adjoin.io.mjcf import UnsupportedError

SCALE = Option("repair", ("axis",), "to scale it")
IGNORE = Option("meshes", "ignore", "to leave collision meshes out")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "it is wrong"),
        ({"remedy": "do it right"}, "it is wrong; do it right"),
        ({"where": Location("a.urdf")}, "a.urdf: it is wrong"),
        ({"where": Location("a.urdf", 3), "element": "axis"}, "a.urdf:3: <axis>: it is wrong"),
        ({"subject": Subject("joint", "knee"), "field": "xyz"}, "joint 'knee': xyz: it is wrong"),
        ({"field": "it"}, "it is wrong"),
        ({"subject": Subject("environment", 17)}, "environment 17: it is wrong"),
        ({"subject": Option("floating_base", True)}, "floating_base=True: it is wrong"),
        (
            {"options": [SCALE, IGNORE]},
            "it is wrong; pass repair=('axis',) to scale it, or meshes='ignore' to leave collision meshes out",
        ),
    ],
)
def test_the_message_is_put_together_from_the_parts(parts, message):
    error = ModelError("it is wrong", **parts)
    assert str(error) == message
    assert error.problem == "it is wrong"
    for name in ("element", "subject", "field", "remedy"):
        assert getattr(error, name) == parts.get(name, None if name == "subject" else "")
    assert (error.file, error.line) == parts.get("where", ("", 0))
    assert error.options == tuple(parts.get("options", ()))


def test_options_are_spelled_as_the_reader_writes_them():
    error = ModelError("it is wrong", options=[SCALE, IGNORE], subject=Option("floating_base", True))
    assert error.message(flag) == (
        "--floating-base: it is wrong; pass --repair axis to scale it, or --meshes ignore to leave collision meshes out"
    )
    assert flag(Option("packages", {"arm": "FOLDER"})) == "--package arm=FOLDER"
    assert flag(Option("allow", ["FOLDER"])) == "--allow FOLDER"
    assert flag(Option("accept", ("mass", "inertia"))) == "--accept mass --accept inertia"


@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_errors_can_be_copied_and_sent_to_other_processes(again):
    error = ModelError("it is wrong", where=Location("a.urdf", 3), subject=Subject("link", "arm"), options=[SCALE])
    for one in (error, UnsupportedError("it is missing", ["a", "b"], Location("a.urdf"))):
        other = again(one)
        assert (str(other), type(other), vars(other)) == (str(one), type(one), vars(one))


def test_a_name_that_does_not_exist_is_told_with_those_that_do():
    assert unknown_name_parts("link", "links", "x", []) == ("no link 'x'", "links: none")
    problem, remedy = unknown_name_parts("link", "links", "x", [f"l{k}" for k in range(50)])
    assert problem == "no link 'x'"
    assert remedy.startswith("links: l0, l1, ")
    assert remedy.endswith(", l39, ... (10 more)")


def test_errors_of_loading_say_where_and_what_helps():
    document = """<robot name="r"><link name="a"/><link name="b"/>
      <joint name="j" type="continuous"><parent link="a"/><child link="b"/>
        <axis xyz="1 1 0"/></joint></robot>"""
    with pytest.raises(ModelError) as caught:
        adjoin.load(document, strict=True)
    error = caught.value
    assert (error.file, error.line, error.element, error.field) == ("<text>", 3, "axis", "xyz")
    assert error.subject == Subject("joint", "j")
    assert error.options == (Option("repair", ("axis",), "to scale it"),)
    with pytest.raises(ModelError) as caught:
        adjoin.load(document, strict=True, **{option.name: option.value for option in error.options})
    assert (caught.value.subject, caught.value.line) == (Subject("link", "b"), 1)
    assert [(option.name, option.value) for option in caught.value.options] == [("accept", ("mass",))]
    model = adjoin.load(document, repair=("axis",), accept=("mass",), strict=True)
    assert model.nv == 1


def test_what_mujoco_says_has_a_place():
    pytest.importorskip("mujoco")
    with pytest.raises(ModelError) as caught:
        adjoin.load("<mujoco>\n<worldbody>\n<geom sise='1'/>\n</worldbody>\n</mujoco>")
    assert (caught.value.line, "MuJoCo" in caught.value.problem) == (3, True)
    with pytest.raises(UnsupportedError) as caught:
        adjoin.load("<mujoco><option><flag override='enable'/></option><worldbody/></mujoco>", strict=True)
    assert caught.value.parts == ("contact override (option flag)",)


def test_input_errors_are_value_errors():
    with pytest.raises(ValueError, match="a b c"):
        raise InputError("a b c")
