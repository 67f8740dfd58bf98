"""`load` and its options: sources, subtrees, locked joints, mimic, repairs, files, speed."""

import math
import os
import time

import numpy as np
import pytest
import torch
from corpus import URDF_FOLDER
from fuzz import FILES
from malformed import INERTIAL, LIMIT, arm, robot, shape

import adjoin
from adjoin.errors import InputError, ModelError
from adjoin.model.assemble import joint_pose
from adjoin.model.parts import WORLD
from adjoin.spatial.motion import transform_multiply

GO2 = URDF_FOLDER / "robots/go2_description/urdf/go2.urdf"
PANDA = URDF_FOLDER / "robots/panda_description/urdf/panda_collision.urdf"


def poses(model, q):
    out = []
    for body, at in zip(model.bodies, model.coordinates, strict=True):
        size = {"free": 7, "ball": 4, "planar": 3}.get(body.joint.kind, 1)
        part = [at.multiplier * x + at.offset for x in q[at.q : at.q + size]]
        pose = transform_multiply((body.rotation, body.position), joint_pose(body.joint, part))
        out.append(pose if body.parent == WORLD else transform_multiply(out[body.parent], pose))
    return out


def place(model, q, name):
    frame = model.frames[model.frame_index(name)]
    pose = (frame.rotation, frame.position)
    return pose if frame.body == WORLD else transform_multiply(poses(model, q)[frame.body], pose)


def test_a_path_a_text_and_bytes_are_the_same_robot(tmp_path):
    text = arm()
    (tmp_path / "robot.urdf").write_text(text)
    models = [
        adjoin.load(text),
        adjoin.load("\n  " + text),
        adjoin.load(text.encode()),
        adjoin.load(bytearray(text.encode())),
        adjoin.load(text.encode("utf-16")),
        adjoin.load(b"\xef\xbb\xbf" + text.encode()),
        adjoin.load(tmp_path / "robot.urdf"),
        adjoin.load(str(tmp_path / "robot.urdf")),
    ]
    assert len({model.digest for model in models}) == 1


def test_declared_encodings_are_honored_in_bytes_and_not_in_text():
    document = '<?xml version="1.0" encoding="iso-8859-1"?><robot name="café"><link name="é"/></robot>'
    assert adjoin.load(document.encode("iso-8859-1")).name == "café"
    assert adjoin.load(document).frames[0].name == "é"


def test_floating_base():
    model = adjoin.load(GO2, floating_base=True, meshes="ignore")
    assert (model.nq, model.nv) == (19, 18)
    assert (model.joints[0].name, model.joints[0].kind) == ("root_joint", "free")
    fixed = adjoin.load(GO2, meshes="ignore")
    assert fixed.fixture.mass == pytest.approx(model.bodies[0].mass)
    assert fixed.mass + fixed.fixture.mass == pytest.approx(model.mass)


def test_a_subtree_is_the_part_that_hangs_on_a_link():
    whole = adjoin.load(GO2, meshes="ignore")
    leg = adjoin.load(GO2, root="FL_hip", meshes="ignore")
    assert [joint.name for joint in leg.joints] == ["FL_thigh_joint", "FL_calf_joint"]
    hip = whole.bodies[whole.body_index("FL_hip")]
    assert leg.fixture.mass == pytest.approx(hip.mass)
    assert leg.fixture.inertia == pytest.approx(hip.inertia)
    free = adjoin.load(GO2, root="FL_hip", floating_base=True, meshes="ignore")
    assert (free.nv, free.bodies[0].name) == (8, "FL_hip")
    # A link that is welded on can be the root too: inertias are not merged before the choice.
    foot = adjoin.load(GO2, root="FL_foot", meshes="ignore")
    assert (foot.nv, foot.fixture.mass) == (0, pytest.approx(0.04))


@pytest.mark.parametrize("value", [0.0, 0.7])
def test_a_locked_joint_is_a_weld_at_its_value(value):
    whole = adjoin.load(GO2, floating_base=True, meshes="ignore")
    locked = adjoin.load(GO2, floating_base=True, lock={"FL_thigh_joint": value}, meshes="ignore")
    assert locked.nv == whole.nv - 1
    assert locked.mass == pytest.approx(whole.mass)
    assert {frame.name for frame in locked.frames} == {frame.name for frame in whole.frames}
    q = locked.random(dtype=torch.float64, generator=torch.Generator().manual_seed(0)).tolist()
    at = whole.coordinates[whole.joint_index("FL_thigh_joint")].q
    for name in ("FL_calf", "FL_foot", "RR_foot"):
        mine, full = place(locked, q, name), place(whole, [*q[:at], value, *q[at:]], name)
        np.testing.assert_allclose(mine[0], full[0], atol=1e-14)
        np.testing.assert_allclose(mine[1], full[1], atol=1e-14)


def test_locking_every_kind_of_joint():
    joints = {"continuous": 0.3, "prismatic": 0.2, "floating": (1, 2, 3, 0, 1, 0, 0), "planar": (1.0, 2.0, 0.5)}
    joints["spherical"] = (math.cos(0.2), 0.0, math.sin(0.2), 0.0)
    for kind, value in joints.items():
        text = arm(kind=kind, limit=LIMIT if kind == "prismatic" else "", joint='<axis xyz="0 0.6 0.8"/>')
        free, locked = adjoin.load(text), adjoin.load(text, lock={"j": value})
        assert locked.nv == 0
        q = [value] if isinstance(value, float) else list(value)
        mine, full = place(locked, [], "arm"), place(free, q, "arm")
        np.testing.assert_allclose(mine[0], full[0], atol=1e-15)
        np.testing.assert_allclose(mine[1], full[1], atol=1e-15)


def test_joints_that_mimic_a_locked_one_are_locked_with_it():
    model = adjoin.load(PANDA, lock={"panda_finger_joint1": 0.03})
    assert model.nv == 7
    finger = model.frames[model.frame_index("panda_rightfinger")]
    open_hand = adjoin.load(PANDA, lock={"panda_finger_joint1": 0.0})
    closed = open_hand.frames[open_hand.frame_index("panda_rightfinger")]
    assert math.dist(finger.position, closed.position) == pytest.approx(0.03)


def test_mimic_chains_multiply_and_add():
    links = "".join(f'<link name="{name}">{INERTIAL}</link>' for name in "bcd")
    joint = '<joint name="{}" type="continuous"><parent link="{}"/><child link="{}"/>{}</joint>'
    text = robot(
        '<link name="a"/>',
        links,
        joint.format("x", "a", "b", '<mimic joint="y" multiplier="2" offset="1"/>'),
        joint.format("y", "b", "c", '<mimic joint="z" multiplier="-3" offset="0.5"/>'),
        joint.format("z", "c", "d", ""),
    )
    model = adjoin.load(text)
    assert (model.nq, model.nv) == (1, 1)
    assert [(c.leader, c.multiplier, c.offset) for c in model.coordinates] == [
        (2, -6.0, 2.0),
        (2, -3.0, 0.5),
        (2, 1.0, 0.0),
    ]


def test_axes_need_not_be_coordinate_axes():
    model = adjoin.load(arm('<axis xyz="0.26726124 0.53452248 0.80178373"/>'))
    assert math.hypot(*model.joints[0].axis) == pytest.approx(1.0, abs=1e-15)
    assert adjoin.load(arm('<axis xyz="1 2 3"/>'), repair=("axis",)).joints[0].axis == pytest.approx(
        (1 / math.sqrt(14), 2 / math.sqrt(14), 3 / math.sqrt(14))
    )
    assert adjoin.load(arm()).joints[0].axis == (1.0, 0.0, 0.0)


def test_the_plane_of_a_planar_joint_is_across_its_axis():
    for axis in ((0, 0, 1), (0, 0, -1), (1, 0, 0), (0, 0.6, 0.8)):
        text = arm(kind="planar", limit="", joint=f'<axis xyz="{axis[0]} {axis[1]} {axis[2]}"/>')
        model = adjoin.load(text)
        assert (model.nq, model.nv) == (3, 3)
        rotation, position = place(model, [1.0, 2.0, 0.3], "arm")
        assert np.dot(position, axis) == pytest.approx(0.0, abs=1e-15)
        assert np.linalg.norm(position) == pytest.approx(math.sqrt(5))
        np.testing.assert_allclose(np.array(rotation) @ axis, axis, atol=1e-15)


def test_repairs_are_made_only_when_asked_for():
    reversed_limits = arm(limit='<limit lower="1" upper="-1" velocity="1" effort="1"/>')
    joint = adjoin.load(reversed_limits, repair=("limits",)).joints[0]
    assert (joint.lower, joint.upper) == (-1.0, 1.0)
    rounded = arm('<origin rpy="1.5708 0 -3.14159" xyz="0 0 0"/>')
    assert adjoin.load(rounded, repair=("right_angles",)).bodies[0].rotation == ((-1, 0, 0), (0, 0, 1), (0, 1, 0))
    assert adjoin.load(rounded).bodies[0].rotation[0][0] != -1.0
    flat = arm(link=INERTIAL.replace('izz="1"', 'izz="5"'))
    xx, _, _, yy, _, zz = adjoin.load(flat, repair=("inertia",)).bodies[0].inertia
    assert xx + yy >= zz > 0
    assert adjoin.load(flat, accept=("inertia",)).bodies[0].inertia == (1, 0, 0, 1, 0, 5)
    point = arm(link=INERTIAL.replace('ixx="1"', 'ixx="0"').replace('iyy="1"', 'iyy="0"').replace('izz="1"', 'izz="0"'))
    repaired = adjoin.load(point, repair=("inertia",)).bodies[0].inertia
    assert repaired[0] == repaired[3] == repaired[5] > 0
    assert adjoin.load(arm(link=""), accept=("mass",)).bodies[0].mass == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"repair": ("everything",)},
            "repair: no flaw 'everything'; repair takes: inertia, axis, limits, right_angles",
        ),
        ({"accept": ("axis",)}, "accept: no flaw 'axis'; accept takes: mass, inertia"),
        ({"accept": "mass"}, "accept='mass' is a string; pass a collection of names such as ('mass',)"),
        ({"meshes": "all"}, "meshes='all' is not one of 'hull', 'exact', 'ignore'"),
        ({"unsupported": "ignore"}, "unsupported='ignore' is not one of 'error', 'warn'"),
    ],
)
def test_options_that_do_not_exist(options, message):
    with pytest.raises(InputError) as error:
        adjoin.load(arm(), **options)
    assert str(error.value) == message


def test_collision_shapes():
    text = robot(
        '<link name="a">',
        '<collision name="s"><geometry><sphere radius="2"/></geometry></collision>',
        '<collision name="s"><origin xyz="1 2 3" rpy="0 0 1.5707963267948966"/>'
        '<geometry><box size="2 4 6"/></geometry></collision>',
        '<collision><geometry><cylinder radius="1" length="3"/></geometry></collision>',
        '<collision><geometry><capsule radius="1" length="3"/></geometry></collision>',
        "</link>",
    )
    shapes = adjoin.load(text).geometries
    assert [(g.name, g.kind, g.size) for g in shapes] == [
        ("s", "sphere", (2.0, 0.0, 0.0)),
        ("s/1", "box", (1.0, 2.0, 3.0)),
        ("a/0", "cylinder", (1.0, 1.5, 0.0)),
        ("a/1", "capsule", (1.0, 1.5, 0.0)),
    ]
    assert shapes[1].position == (1.0, 2.0, 3.0)
    assert shapes[1].rotation == ((0, -1, 0), (1, 0, 0), (0, 0, 1))


def mesh_folder(folder):
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    return folder


def test_meshes_are_found_beside_the_file_and_in_packages(tmp_path):
    (tmp_path / "robots" / "urdf").mkdir(parents=True)
    (tmp_path / "robots" / "meshes").mkdir()
    mesh_folder(tmp_path / "robots" / "urdf")
    mesh_folder(tmp_path / "robots" / "meshes")
    file = tmp_path / "robots" / "urdf" / "r.urdf"

    def load(address, **options):
        file.write_text(shape(f'<mesh filename="{address}"/>'))
        return adjoin.load(file, **options).geometries[0]

    assert load("part.stl").kind == "hull"
    assert load("part.obj").vertices == ((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0))
    assert load("./ascii.stl").vertices == ((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0))
    with pytest.raises(ModelError, match="outside the robot's folder"):
        load("../meshes/part.stl", strict=True)
    assert load("../meshes/part.stl", allow=[tmp_path / "robots"], strict=True).kind == "hull"
    with pytest.raises(ModelError, match="package 'robots': not found"):
        load("package://robots/meshes/part.stl", strict=True)
    folders = {"robots": tmp_path / "robots"}
    assert load("package://robots/meshes/part.stl", packages=folders, strict=True).kind == "hull"
    (tmp_path / "robots" / "package.xml").write_text("<package/>")
    assert load("package://robots/meshes/part.stl", strict=True).kind == "hull"
    os.symlink(tmp_path / "robots" / "urdf" / "part.stl", tmp_path / "robots" / "urdf" / "link.stl")
    assert load("link.stl").kind == "hull"
    assert adjoin.load(file, meshes="ignore").geometries == ()


def test_scaled_meshes(tmp_path):
    text = shape('<mesh filename="part.obj" scale="2 3 -4"/>')
    vertices = adjoin.load(text, folder=mesh_folder(tmp_path)).geometries[0].vertices
    assert set(vertices) == {(0, 0, 0), (2, 0, 0), (0, 3, 0), (0, 0, -4)}


def chain(links):
    parts = ['<link name="l0"/>']
    for i in range(1, links + 1):
        shape_text = '<collision><geometry><box size="1 1 1"/></geometry></collision>'
        parts.append(f'<link name="l{i}">{INERTIAL}{shape_text}</link>')
        parts.append(
            f'<joint name="j{i}" type="revolute"><origin xyz="0 0 1" rpy="0.1 0.2 0.3"/><parent link="l{i - 1}"/>'
            f'<child link="l{i}"/><axis xyz="0 0 1"/>{LIMIT}</joint>'
        )
    return robot(*parts)


def test_a_robot_of_50_bodies_loads_in_100_ms():
    text = chain(50)
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        model = adjoin.load(text, floating_base=False)
        best = min(best, time.perf_counter() - start)
    assert model.nv == 50
    assert best < 0.1


def test_a_chain_longer_than_the_recursion_limit_loads():
    assert adjoin.load(chain(2000)).nv == 2000


def test_extensions_of_other_tools_are_passed_over():
    text = arm(
        after='<transmission name="t"><joint name="j"/></transmission><gazebo><x/></gazebo><ros2_control/><sensor/>'
    )
    assert adjoin.load(text) == adjoin.load(arm())
