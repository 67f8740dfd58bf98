"""A plain `load`: what is noticed, what is done about it, and where files may come from."""

import json
import struct
import warnings

import numpy as np
import pytest
from corpus import REFUSED, URDF_FOLDER, URDFS
from fuzz import CORNERS, SIDES, glb, stl
from malformed import INERTIAL, LIMIT, arm, robot, shape

import adjoin
from adjoin.errors import ModelError, ModelWarning
from adjoin.model.regularity import mass_matrix

BODY = '<body name="b"><joint name="j"/><geom size="1"/></body>'


def mjcf(before, world):
    return f"<mujoco>{before}<worldbody>{world}</worldbody></mujoco>"


def loaded(source, **options):
    """The model, and what was noticed: the line, the problem, what was done."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = adjoin.load(source, **options)
    assert len(caught) <= 1
    findings = caught[0].message.findings if caught else ()
    return model, [(finding.error.line, finding.error.problem.split(":")[0], finding.done) for finding in findings]


@pytest.mark.parametrize(
    ("document", "finding"),
    [
        (arm(link=INERTIAL.replace('izz="1"', 'izz="5"')), (3, "inertia violates the triangle inequality", "taken")),
        (arm(link=INERTIAL.replace('value="1"', 'value="0"')), (3, "it has inertia but no mass", "taken as it is")),
        (arm(link=INERTIAL.replace('value="1"', 'value="-1"')), (3, "mass is -1", "taken as it is")),
        (arm(link=INERTIAL.replace('<mass value="1"/>', "")), (3, "<mass> is missing", "the link is taken")),
        (arm(link='<inertial><mass value="1"/></inertial>'), (3, "<inertia> is missing", "taken as zero")),
        (arm(link=""), (4, "what it moves has no inertia, so that", "kept")),
        (arm(limit=""), (4, "<limit> is missing", "it has no limits")),
        (arm(limit='<limit lower="-1" upper="1" velocity="1"/>'), (4, "attribute 'effort' is missing", "unlimited")),
        (arm(limit=LIMIT.replace('r="-1"', 'r="2"')), (4, "lower=2 is above upper=1", "they are swapped")),
        (arm('<axis xyz="0 3 4"/>'), (4, "xyz has length 5, not 1", "scaled")),
        (arm('<axis xyz="1 0 0"/>' * 2), (4, "there are two of these in <joint>", "the first is taken")),
        (arm('<dynamics damping="-2"/>'), (4, "damping is -2", "taken as 0")),
        (arm('<mimic joint="k"/>'), (4, "no moving joint 'k'", "it moves by itself")),
        (arm("<limits/>"), (4, "unknown element in <joint>", "ignored")),
        (arm(kind="continuous"), (4, "a continuous joint has limits -1 and 1", "they are kept")),
        (arm(kind="continuous", limit=LIMIT.replace("1", "4")), None),
        (shape("<cone/>"), (4, "unknown shape", "link 'arm' is without this collision shape")),
        (shape('<mesh filename="package://p/a.stl"/>'), (4, "not found", "link 'arm' is without this collision shape")),
        ("\n" + '<?xml version="1.0"?>' + arm(), (1, "not XML", "what is before it is ignored")),
        (arm().replace(' name="r"', ""), (1, "attribute 'name' is missing", "it is called 'robot'")),
        (arm().replace('"arm"', '" arm"'), (3, "' arm' has spaces around it", "taken without them")),
    ],
)
def test_a_flaw_is_noticed_with_its_line_and_what_is_done(document, finding):
    model, found = loaded(document)
    assert model.nv == 1
    if finding is None:
        assert not found
        return
    line, problem, done = found[0]
    assert line == finding[0]
    assert problem.startswith(finding[1])
    assert done.startswith(finding[2])
    if "continuous" not in problem:
        with pytest.raises(ModelError):
            adjoin.load(document, strict=True)


def test_the_warning_lists_everything_and_points_at_the_call():
    document = arm('<axis xyz="0 3 4"/>', limit="")
    with pytest.warns(ModelWarning) as caught:
        adjoin.load(document)
    (warning,) = caught
    assert warning.filename == __file__
    assert str(warning.message) == (
        "<text>: 2 things were noticed (strict=True makes them errors):\n"
        "  <text>:4: joint 'j': <limit> is missing; it has no limits\n"
        "  <text>:4: joint 'j': xyz has length 5, not 1; scaled"
    )


def test_accepted_and_repaired_flaws_are_not_mentioned():
    flat = arm('<axis xyz="0 3 4"/>', link=INERTIAL.replace('izz="1"', 'izz="5"'))
    assert loaded(flat, accept=("inertia",), repair=("axis",))[1] == []
    assert loaded(arm(link=""), accept=("mass",))[1] == []


def test_limits_that_a_file_states_are_kept():
    joint = loaded(arm(kind="continuous"))[0].joints[0]
    assert (joint.kind, joint.lower, joint.upper) == ("continuous", -1.0, 1.0)
    joint = loaded(arm(kind="continuous", limit='<limit lower="0" upper="0" velocity="1" effort="2"/>'))[0].joints[0]
    assert (joint.lower, joint.upper, joint.effort_limit) == (-np.inf, np.inf, 2.0)


def test_a_package_that_is_not_found_is_noted_once_where_its_files_are_beside_the_robot(tmp_path):
    (tmp_path / "meshes").mkdir()
    for name in "ab":
        (tmp_path / "meshes" / f"{name}.stl").write_bytes(stl(12))
    file = tmp_path / "r.urdf"
    mesh = '<mesh filename="package://gone/meshes/{}.stl"/>'
    both = f"{mesh.format('a')}</geometry></collision><collision><geometry>{mesh.format('b')}"
    file.write_text(shape(both))
    model, found = loaded(file)
    assert len(model.geometries) == 2
    assert [finding[1:] for finding in found] == [("not found", "its files are taken from the robot's own folders")]


def test_links_without_mass_are_fine_where_others_make_the_mass_matrix_regular():
    links = f'<link name="a"/><link name="b"/><link name="c">{INERTIAL}</link>'
    turn = '<joint name="{}" type="continuous"><parent link="{}"/><child link="{}"/><axis xyz="{}"/></joint>'
    joints = turn.format("x", "a", "b", "1 0 0") + turn.format("y", "b", "c", "0 1 0")
    assert loaded(robot(links, joints))[1] == []
    model, found = loaded(robot(links, joints.replace("0 1 0", "1 0 0")))
    assert [(problem[:28], done[:4]) for _, problem, done in found] == [("what it moves has no inertia", "kept")] * 2
    np.testing.assert_allclose(mass_matrix(model), [[1, 1], [1, 1]], atol=1e-15)  # one moment about one axis


def test_files_come_from_the_collection_and_from_nowhere_else(tmp_path, monkeypatch):
    for name in ("home/robot/urdf", "home/robot/meshes", "home/other/meshes", "ros/there_description"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("home/robot/meshes", "home/other/meshes", "home", "ros/there_description"):
        (tmp_path / name / "part.stl").write_bytes(stl(12))
    file = tmp_path / "home/robot/urdf/r.urdf"

    def shapes(address):
        file.write_text(shape(f'<mesh filename="{address}"/>'))
        model, found = loaded(file)
        return len(model.geometries), [problem for _, problem, _ in found]

    assert shapes("../meshes/part.stl") == (1, [])
    assert shapes("file://" + str(tmp_path / "home/robot/meshes/part.stl")) == (1, [])
    assert shapes("package://anything/meshes/part.stl") == (1, ["not found"])
    for outside in ("../../part.stl", "../../other/meshes/part.stl", str(tmp_path / "home/part.stl")):
        assert shapes(outside) == (0, ["it is outside the robot's collection"])
    assert shapes("package://there_description/part.stl") == (0, ["not found"])
    monkeypatch.setenv("ROS_PACKAGE_PATH", str(tmp_path / "ros"))
    assert shapes("package://there_description/part.stl") == (1, [])
    assert shapes("package://there_description/../../home/part.stl") == (0, ["it is outside the robot's collection"])
    (tmp_path / "home" / "LICENSE").write_text("")
    assert shapes("../../other/meshes/part.stl") == (1, [])
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert shapes("../../other/meshes/part.stl") == (0, ["it is outside the robot's collection"])
    assert shapes("http://example.com/a.stl")[0] == 0


def test_gltf_is_read_with_its_nodes(tmp_path):
    pytest.importorskip("trimesh")
    (tmp_path / "part.glb").write_bytes(glb(CORNERS, SIDES, [0, 0, 2]))
    model, found = loaded(shape('<mesh filename="part.glb"/>'), folder=tmp_path)
    assert found == []
    assert set(model.geometries[0].vertices) == {(x, y, z + 2) for x, y, z in CORNERS}


def with_buffer_in(data, name):
    """A binary glTF as text, and its buffer, which it refers to by a name."""
    length = int.from_bytes(data[12:16], "little")
    tree = json.loads(data[20 : 20 + length])
    tree["buffers"][0]["uri"] = name
    return json.dumps(tree).encode(), data[28 + length :]


def test_buffers_of_gltf_are_read_from_its_folder(tmp_path):
    pytest.importorskip("trimesh")
    folder = tmp_path / "robot" / "meshes"
    (folder / "raw").mkdir(parents=True)
    for name in ("raw/the%20buffer.bin", "../buffer.bin", "/etc/hostname", "http://example.com/buffer.bin", "gone.bin"):
        text, buffer = with_buffer_in(glb(CORNERS, SIDES, [0, 0, 2]), name)
        (folder / "part.gltf").write_bytes(text)
        (folder / "raw" / "the buffer.bin").write_bytes(buffer)
        (tmp_path / "robot" / "buffer.bin").write_bytes(buffer)
        model, found = loaded(shape('<mesh filename="meshes/part.gltf"/>'), folder=tmp_path / "robot")
        problems = [problem for _, problem, _ in found]
        if name.startswith("raw"):
            assert problems == []
            assert set(model.geometries[0].vertices) == {(x, y, z + 2) for x, y, z in CORNERS}
        else:
            outside = name.startswith(("..", "/"))
            assert problems == ["it is outside the robot's collection" if outside else "it does not exist"]
            assert model.geometries == ()


def test_meshes_of_an_mjcf_that_mujoco_does_not_read_or_that_are_missing(tmp_path):
    pytest.importorskip("mujoco")
    pytest.importorskip("trimesh")
    (tmp_path / "part.glb").write_bytes(glb(CORNERS, SIDES, [0, 0, 2]))
    (tmp_path / "robot.xml").write_text(
        mjcf(
            '<asset><mesh name="part" file="part.glb"/><mesh file="gone.stl"/></asset>',
            f'{BODY}<geom type="mesh" mesh="part"/><geom type="mesh" mesh="gone"/>',
        )
    )
    model, found = loaded(tmp_path / "robot.xml")
    assert [(problem, done) for _, problem, done in found] == [("it does not exist", "shapes made of it are left out")]
    assert [geometry.kind for geometry in model.geometries].count("hull") == 1


def test_included_files_resolve_from_their_own_folder_and_are_named_by_it(tmp_path):
    pytest.importorskip("mujoco")
    (tmp_path / "parts/more").mkdir(parents=True)
    (tmp_path / "robot.xml").write_text(mjcf('<include file="parts/a.xml"/>', BODY))
    (tmp_path / "parts/a.xml").write_text('<mujoco><include file="more/b.xml"/></mujoco>')
    leaf = tmp_path / "parts/more/b.xml"
    leaf.write_text('<mujoco><asset><mesh file="c.stl"/></asset></mujoco>')
    (tmp_path / "parts/more/c.stl").write_bytes(stl(12))
    assert loaded(tmp_path / "robot.xml")[1] == []
    leaf.write_text("<mujoco>\n<worldbody><geom sise='1'/></worldbody></mujoco>")
    with pytest.raises(ModelError) as error:
        adjoin.load(tmp_path / "robot.xml")
    assert (error.value.file, error.value.line) == (str(leaf), 2)


def test_a_height_field_without_a_name_has_that_of_its_file(tmp_path):
    mujoco = pytest.importorskip("mujoco")
    heights = struct.pack("<ii", 2, 2) + np.arange(4, dtype="<f4").tobytes()
    (tmp_path / "hills.bin").write_bytes(heights)
    field = '<asset><hfield file="hills.bin" size="1 1 1 1"/></asset>'
    (tmp_path / "robot.xml").write_text(mjcf(field, f'{BODY}<geom type="hfield" hfield="hills"/>'))
    assert mujoco.MjModel.from_xml_path(str(tmp_path / "robot.xml")).nhfield == 1
    assert loaded(tmp_path / "robot.xml")[0].nv == 1


def test_xacro_is_expanded_where_the_package_is_there(tmp_path, monkeypatch):
    text = arm(limit="").replace("<robot ", '<robot xmlns:xacro="http://www.ros.org/wiki/xacro" ')
    text = text.replace("</robot>", '<xacro:property name="e" value="${1 + 1}"/></robot>')
    text = text.replace(
        ' type="revolute">', ' type="revolute"><limit lower="-1" upper="1" velocity="1" effort="${e}"/>'
    )
    (tmp_path / "r.urdf.xacro").write_text(text.replace("<link", '<xacro:property name="e" value="2"/><link', 1))
    with monkeypatch.context() as patch:
        patch.setitem(__import__("sys").modules, "xacro", None)
        with pytest.raises(ModelError, match=r"a xacro file needs xacro: pip install 'adjoin\[xacro\]'"):
            adjoin.load(tmp_path / "r.urdf.xacro")
    pytest.importorskip("xacro")
    assert loaded(tmp_path / "r.urdf.xacro")[0].joints[0].effort_limit == 2.0
    with pytest.raises(ModelError, match="this is a xacro file"):
        adjoin.load(tmp_path / "r.urdf.xacro", strict=True)
    far = text.replace("</robot>", '<xacro:include filename="$(find nowhere)/x.xacro"/></robot>')
    (tmp_path / "far.xacro").write_text(far)
    with pytest.raises(ModelError, match=r"far.xacro: xacro: package 'nowhere' not found; pass packages={[^}]*}$"):
        adjoin.load(tmp_path / "far.xacro")


def test_every_urdf_of_example_robot_data_that_pinocchio_loads_loads_plainly():
    refused = []
    for name in URDFS:
        try:
            loaded(URDF_FOLDER / "robots" / name, meshes="ignore")
        except ModelError:
            refused.append(name)
    # Pinocchio refuses these too: a link that does not exist, and no links at all.
    assert refused == [name for name in REFUSED if "alex" not in name]
