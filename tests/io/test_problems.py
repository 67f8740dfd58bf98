from pathlib import Path

import pytest
from malformed import CASES, INERTIAL, LIMIT, robot

import adjoin
from adjoin.errors import InputError, ModelError, Subject
from adjoin.io.mjcf import UnsupportedError
from adjoin.io.problems import find

JOINT = '<joint name="{}" type="{}"><parent link="{}"/><child link="{}"/>{}</joint>'
FALSE_INERTIA = INERTIAL.replace('izz="1"', 'izz="5"')


def written(text, folder):
    path = folder / "robot.xml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def texts(text, folder, **options):
    path = written(text, folder)
    return [str(error).replace(f"{path}:", "").replace(path, "FILE") for error in find(path, **options).errors]


@pytest.mark.parametrize("name", [name for name in CASES if name != "a name with a null"])
def test_the_problem_that_loading_ends_with_is_among_those_found(name, tmp_path):
    source, options = CASES[name]
    options = dict(options)
    if name.startswith("mjcf"):
        pytest.importorskip("mujoco")
    if {"root", "lock", "folder"} & set(options) or name == "lone surrogate":
        pytest.skip("a matter of the call, not of the file")
    if "packages" in options:
        options["packages"] = {key: tmp_path / value for key, value in options["packages"].items()}
    source = source(tmp_path) if callable(source) else source
    is_path = isinstance(source, Path) or (isinstance(source, str) and source.strip() and "<" not in source)
    path = str(source) if is_path else written(source, tmp_path)
    with pytest.raises((ModelError, InputError)) as first:
        adjoin.load(path, **options, strict=True)
    found = find(path, **options).errors
    if isinstance(first.value, UnsupportedError):
        assert {error.parts for error in found} >= {(part,) for part in first.value.parts}
    else:
        assert str(first.value) in map(str, found)
    assert [error.line for error in found] == sorted(error.line for error in found)


def test_a_file_without_problems_has_none(tmp_path):
    for name in ("go2", "panda", "g1"):
        assert texts(adjoin.robots.source(name), tmp_path) == []


def test_every_problem_of_a_file_is_found_and_none_that_follows_from_another(tmp_path):
    document = robot(
        '<link name="base"/>',
        f'<link name="one">{INERTIAL.replace("1", "-1", 1)}',
        '<collision><geometry><mesh filename="none.stl"/></geometry></collision>',
        '<collision><geometry><box size="1 2"/></geometry></collision></link>',
        f'<link name="two">{FALSE_INERTIA}</link>',
        '<link name="three"/>',
        f'<link name="four">{INERTIAL.replace("1", "zwei", 1)}<colision/></link>',
        '<link name="five"/>',
        '<link name="five"/>',
        JOINT.format("a", "revolute", "base", "one", '<axis xyz="1 1 0"/>' + LIMIT.replace("-1", "2")),
        JOINT.format("b", "revolute", "one", "two", '<limit lower="-1" upper="1" velocity="1"/>'),
        JOINT.format("c", "continuous", "two", "three", '<mimic joint="none"/>'),
        JOINT.format("d", "hinge", "two", "four", ""),
        JOINT.format("e", "fixed", "six", "five", ""),
    )
    found = texts(document, tmp_path)
    expected = (
        "3: link 'one': mass is -1",
        "4: <mesh>: file 'none.stl': it does not exist",
        "5: <box>: size: '1 2' has 2 numbers",
        "6: link 'two': inertia violates the triangle inequality",
        "7: link 'three': it has no mass",
        "8: <colision>: unknown element in <link>",
        "8: <mass>: value: 'zwei' is not a number",
        "10: link 'five': there are two links of that name",
        "11: <limit>: joint 'a': lower=2 is above upper=1",
        "11: <axis>: joint 'a': xyz has length 1.41421",
        "12: <limit>: attribute 'effort' is missing",
        "13: joint 'c': mimic: no moving joint 'none'",
        "14: <joint>: joint 'd': unknown joint type 'hinge'",
        "15: joint 'e': parent: no link 'six'",
    )
    assert [problem[: len(start)] for problem, start in zip(found, expected, strict=True)] == list(expected)


def test_several_roots_are_one_problem_and_hide_no_other(tmp_path):
    document = robot('<link name="a"/>', f'<link name="b">{FALSE_INERTIA}</link>', '<link name="c"/>')
    assert [problem.split(";")[0][:42] for problem in texts(document, tmp_path)] == [
        "3: 3 links have no parent: 'a', 'b', 'c'",
        "3: link 'b': inertia violates the triangle",
    ]


def test_the_options_that_make_a_file_load_are_found(tmp_path):
    joints = [JOINT.format("a", "continuous", "base", "one", '<axis xyz="1 1 0"/>')]
    joints += [JOINT.format("b", "continuous", "one", "two", "")]
    links = ['<link name="base"/>', f'<link name="one">{FALSE_INERTIA}</link>', '<link name="two"/>']
    path = written(robot(*links, *joints), tmp_path)
    found = find(path)
    assert found.remedy == {"repair": ("axis",), "accept": ("inertia", "mass")}
    assert adjoin.load(path, **found.remedy).nv == 2
    assert find(path, **found.remedy).errors == []
    (left,) = find(path, repair=["axis"], accept=["mass"]).errors
    assert left.subject == Subject("link", "one")
    assert find(written(robot('<link name="base"/>', '<link name="base"/>'), tmp_path)).remedy == {}


def test_each_unsupported_part_of_an_mjcf_is_a_problem(tmp_path):
    pytest.importorskip("mujoco")
    document = """<mujoco><option><flag override="enable"/></option>
        <worldbody><body name="a"><joint name="j"/><geom size="1"/><site name="s"/></body></worldbody>
        <tendon><fixed name="t" armature="1"><joint joint="j" coef="1"/></fixed></tendon></mujoco>"""
    path = written(document, tmp_path)
    found = find(path)
    assert [error.parts for error in found.errors] == [
        ("tendons with armature (t)",),
        ("contact override (option flag)",),
    ]
    assert found.remedy == {"unsupported": "warn"}
