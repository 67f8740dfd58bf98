"""MJCF features one by one, against MuJoCo's kinematics; files and includes handed over in memory."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from fuzz import FILES, MJCF
from test_mjcf_mujoco import placed, poses, same

import adjoin
from adjoin.errors import ModelError, ModelWarning
from adjoin.simulation.actuation import effort_of

mujoco = pytest.importorskip("mujoco")


def compare(text, model):
    m = mujoco.MjModel.from_xml_string(text, dict(FILES))
    data = mujoco.MjData(m)
    assert (model.nq, model.nv) == (m.nq, m.nv)
    links = [frame for frame in model.frames if frame.kind == "link"]
    q0 = model.keyframe("qpos0").q if model.nq else ()
    for q in [list(q0), *model.random((4,), generator=torch.Generator().manual_seed(0), dtype=torch.float64).tolist()]:
        data.qpos[:] = q
        mujoco.mj_kinematics(m, data)
        bodies = poses(model, q)
        for index, frame in enumerate(links):
            rotation, position = placed(bodies, frame)
            same(position, data.xpos[index], f"{frame.name} position")
            same(np.ravel(rotation), data.xmat[index], f"{frame.name} rotation")
    return m


def wrap(world, *parts):
    return f"<mujoco><compiler angle='radian'/><worldbody>{world}</worldbody>{''.join(parts)}</mujoco>"


GEOM = '<geom size="0.1"/>'


@pytest.mark.parametrize(
    "world",
    [
        f'<body pos="1 2 3" euler="0.1 0.2 0.3"><joint axis="0 1 1" pos="0.1 0.2 0.3"/>{GEOM}</body>',
        f'<body><joint axis="0 1 1" pos="0.1 0.2 0.3" ref="0.7"/>{GEOM}</body>',
        f'<body pos="1 0 0"><joint type="slide" axis="1 2 3" ref="-0.4"/>{GEOM}</body>',
        f'<body euler="1 0 0"><joint type="ball" pos="0.3 0 0"/>{GEOM}</body>',
        f'<body pos="0 0 2"><freejoint/>{GEOM}<body pos="1 0 0"><joint/>{GEOM}</body></body>',
        f'<body><joint axis="1 0 0" pos="0 1 0"/><joint axis="0 1 0" pos="0 0 1"/><joint type="slide"/>{GEOM}</body>',
        f'<body><joint type="slide" pos="1 0 0"/><joint pos="0 2 0" ref="0.3"/><joint type="ball" pos="0 0 3"/>{GEOM}'
        f'<body pos="0 0 1"><joint axis="1 0 0"/><joint axis="0 1 0"/>{GEOM}</body></body>',
        f'<body name="a"><freejoint/>{GEOM}</body><body name="b" pos="3 0 0"><joint/>{GEOM}</body>',
        f'<body pos="1 0 0" euler="0 0 1"><body euler="1 0 0" pos="0 1 0"><joint/>{GEOM}<body pos="0 0 1">{GEOM}</body>'
        "</body></body>",
        f'<frame pos="1 0 0" euler="0 0 1"><body><joint/>{GEOM}</body></frame>',
        f'<replicate count="3" offset="0 1 0" euler="0.3 0 0"><body pos="1 0 0"><joint/>{GEOM}</body></replicate>',
    ],
)
def test_kinematics_of_odd_joints(world):
    text = wrap(world)
    if "<frame" in world and mujoco.__version__ < "3.1":
        pytest.skip("this version has no frames")
    compare(text, adjoin.load(text))


def test_several_joints_become_a_chain_of_massless_bodies():
    model = adjoin.load(wrap(f'<body name="hip"><joint name="x"/><joint name="y" axis="0 1 0"/>{GEOM}</body>'))
    assert [(body.name, body.parent, body.joint.name) for body in model.bodies] == [("hip/x", -1, "x"), ("hip", 0, "y")]
    assert model.bodies[0].mass == 0.0
    assert [frame.name for frame in model.frames] == ["world", "hip"]


def test_lock_and_subtree():
    text = wrap(
        f'<body name="a"><joint name="x"/>{GEOM}'
        f'<body name="b" pos="1 0 0"><joint name="y" ref="0.2"/>{GEOM}</body></body>',
        '<actuator><motor name="mx" joint="x"/><motor name="my" joint="y"/></actuator>',
        '<keyframe><key name="k" qpos="1 2" ctrl="3 4"/></keyframe>',
    )
    locked = adjoin.load(text, lock={"x": 0.5})
    assert [joint.name for joint in locked.joints] == ["y"]
    assert (locked.keyframe("k").q, locked.keyframe("k").control) == ((2.0,), (4.0,))
    part = adjoin.load(text, root="b")
    assert (part.nv, part.fixture.mass > 0) == (0, True)


def test_contact_filters_pairs_and_margins():
    text = wrap(
        '<geom name="floor" type="plane" size="0 0 1" friction="0.5 0.1 0.2" condim="6"/>'
        '<body name="a"><freejoint/><geom name="ga" size="0.1" contype="2" conaffinity="4" margin="0.01"/></body>'
        '<body name="b"><freejoint/><geom name="gb" size="0.1"/></body>',
        '<contact><exclude body1="a" body2="b"/>'
        '<pair geom1="floor" geom2="ga" friction="1 2 3 4 5" condim="4"/></contact>',
    )
    model = adjoin.load(text)
    floor, a = (model.geometries[model.geometry_index(name)] for name in ("floor", "ga"))
    assert (floor.friction, floor.condim, floor.size) == ((0.5, 0.1, 0.2), 6, (0.0, 0.0, 0.0))
    assert (a.contype, a.conaffinity, a.margin) == (2, 4, 0.01)
    assert model.exclusions == (("a", "b"),)
    assert (model.pairs[0].first, model.pairs[0].second) == ("floor", "ga")
    assert (model.pairs[0].friction, model.pairs[0].condim) == ((1, 2, 3, 4, 5), 4)


def test_flags_that_switch_gravity_and_contact_off():
    contact = (
        '<contact><pair geom1="a" geom2="b"/></contact><option><flag contact="disable" gravity="disable"/></option>'
    )
    world = "".join(f'<body><freejoint/><geom name="{name}" size="0.1"/></body>' for name in "ab")
    model = adjoin.load(wrap(world, contact))
    assert model.gravity == (0.0, 0.0, 0.0)
    assert model.pairs == ()
    assert {shape.contype for shape in model.geometries} == {0}


def test_flags_that_switch_constraints_off():
    sites = '<site name="w"/>', f'<body><joint range="-1 1" frictionloss="1"/>{GEOM}<site name="s" pos="1 0 0"/></body>'
    ends = '<site site="w"/><site site="s"/>'
    string = f'<tendon><spatial limited="true" range="0 1" frictionloss="1">{ends}</spatial></tendon>'
    flag = '<option><flag {}="disable"/></option>'
    model = adjoin.load(wrap("".join(sites), string, flag.format("constraint")))
    (tendon,), (joint,) = model.tendons, model.joints
    assert (tendon.upper, tendon.friction, joint.upper, joint.friction) == (np.inf, 0.0, np.inf, (0.0,))
    with pytest.warns(ModelWarning, match=r"time constants below two time steps \(refsafe, option flag\); left out"):
        adjoin.load(wrap("".join(sites), string, flag.format("refsafe")))


def test_actuators_with_gear_and_ranges():
    text = wrap(
        f'<body><joint name="j"/>{GEOM}</body>',
        '<actuator><motor name="m" joint="j" gear="3" ctrlrange="-1 2" ctrllimited="true"/>'
        '<position name="p" joint="j" kp="5" forcerange="-7 7" forcelimited="true"/>'
        '<velocity name="v" joint="j" kv="2"/></actuator>',
    )
    motor, position, velocity = adjoin.load(text).actuators
    assert (motor.gear, motor.gain, motor.bias, motor.control_range) == ((3.0,), 1.0, (0, 0, 0), (-1.0, 2.0))
    assert (position.gain, position.bias, position.force_range) == (5.0, (0, -5, 0), (-7.0, 7.0))
    assert (velocity.gain, velocity.bias) == (2.0, (0, 0, -2))


def test_keyframe_velocities_are_turned_into_the_bodys_frame():
    half = 0.5**0.5
    text = wrap(
        f'<body name="b"><freejoint/>{GEOM}</body>',
        f'<keyframe><key name="k" qpos="0 0 1 {half} 0 0 {half}" qvel="1 0 0 0 0 2"/></keyframe>',
    )
    assert adjoin.load(text).keyframe("k").v == pytest.approx((0, -1, 0, 0, 0, 2))


def test_meshes_and_includes_come_from_the_folder(tmp_path):
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    model = adjoin.load(MJCF, folder=tmp_path)
    m = mujoco.MjModel.from_xml_string(MJCF.decode(), dict(FILES))
    same(sum(body.mass for body in model.bodies), m.body_mass[m.body_mocapid < 0].sum(), "mass")  # of what moves
    assert any(shape.kind == "hull" for shape in model.geometries)
    (tmp_path / "body.xml").write_text(f"<mujocoinclude><body name='b'><joint/>{GEOM}</body></mujocoinclude>")
    (tmp_path / "main.xml").write_text(wrap("<include file='body.xml'/>"))
    assert adjoin.load(tmp_path / "main.xml").bodies[0].name == "b"
    assert not any(shape.kind == "hull" for shape in adjoin.load(MJCF, folder=tmp_path, meshes="ignore").geometries)


@pytest.mark.parametrize("archive", ["MJCF_Root", "MJCF_NoRoot"])
def test_the_archives_in_mujocos_wheel_load_unpacked(archive, tmp_path):
    path = Path(mujoco.__file__).parent / "testdata" / f"{archive}.zip"
    if not path.exists():
        pytest.skip("this wheel has no archives")
    zipfile.ZipFile(path).extractall(tmp_path)
    (file,) = tmp_path.rglob("*.xml")
    model = adjoin.load(file, strict=True)
    m = mujoco.MjModel.from_xml_path(str(file))
    assert len(model.terrain) == 1
    for shape, position in zip(model.geometries, m.geom_pos, strict=True):
        same(shape.position, position, shape.name)
        assert len(shape.vertices) == (8 if shape.name != model.terrain[0].name else 0)


def test_looks_are_not_read():
    text = wrap(
        '<light pos="0 0 1"/><body><joint/><geom size="0.1" material="m"/></body>',
        '<asset><texture name="t" type="2d" file="missing.png"/><material name="m" texture="t"/></asset>',
    )
    assert adjoin.load(text).nv == 1


def test_without_mujoco_the_message_says_what_to_install(monkeypatch):
    import importlib

    real = importlib.import_module

    def missing(name, *rest):
        if name == "mujoco":
            raise ImportError("No module named 'mujoco'")
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ModelError, match=r"reading MJCF needs MuJoCo's compiler .*; pip install 'adjoin\[mjcf"):
        adjoin.load(wrap(""))


def test_the_root_of_a_subtree_is_at_the_origin_wherever_its_joint_had_its_anchor():
    model = adjoin.load(wrap(f'<body name="a"><joint pos="1 2 3"/>{GEOM}</body>'), root="a")
    assert model.frames[0].position == (0.0, 0.0, 0.0)
    assert model.fixture.com == pytest.approx((0.0, 0.0, 0.0))


def test_models_in_other_files_are_attached(tmp_path):
    (tmp_path / "parts" / "meshes").mkdir(parents=True)
    (tmp_path / "parts" / "meshes" / "part.stl").write_bytes(FILES["part.stl"])
    (tmp_path / "parts" / "shank.xml").write_text(
        '<mujocoinclude><body name="shank" pos="0 0 -0.3"><joint name="knee" axis="0 1 0"/>'
        '<geom type="mesh" mesh="part"/></body></mujocoinclude>'
    )
    (tmp_path / "parts" / "leg.xml").write_text(
        '<mujoco model="leg"><compiler meshdir="meshes"/><asset><mesh file="part.stl"/></asset><worldbody>'
        f'<body name="thigh"><joint name="hip" axis="1 0 0"/>{GEOM}<include file="shank.xml"/></body></worldbody>'
        '<actuator><motor name="hip" joint="hip"/></actuator></mujoco>'
    )
    robot = tmp_path / "robot.xml"
    robot.write_text(
        '<mujoco><compiler angle="radian"/><asset><model name="leg" file="parts/leg.xml"/></asset><worldbody>'
        f'<body name="base" pos="0 0 1"><freejoint/>{GEOM}'
        '<frame pos="0.2 0 0"><attach model="leg" body="thigh" prefix="left/"/></frame>'
        '<frame pos="-0.2 0 0" euler="0 0 1"><attach model="leg" body="thigh" prefix="right/"/></frame>'
        "</body></worldbody></mujoco>"
    )
    m, model = mujoco.MjModel.from_xml_path(str(robot)), adjoin.load(robot)
    assert [joint.name for joint in model.joints][1:] == ["left/hip", "left/knee", "right/hip", "right/knee"]
    assert (model.nq, [drive.name for drive in model.actuators]) == (m.nq, ["left/hip", "right/hip"])
    data = mujoco.MjData(m)
    data.qpos[7:] = [0.3, -0.2, 0.5, 0.7]
    mujoco.mj_kinematics(m, data)
    place = poses(model, data.qpos.tolist())
    for frame in model.frames:
        if frame.kind == "link":
            rotation, position = placed(place, frame)
            same(position, data.body(frame.name).xpos, frame.name)
            same(np.ravel(rotation), data.body(frame.name).xmat, frame.name)


def test_models_in_other_files_are_bounded(tmp_path):
    (tmp_path / "a.xml").write_text('<mujoco><asset><model name="b" file="b.xml"/></asset></mujoco>')
    (tmp_path / "b.xml").write_text('<mujoco><asset><model name="a" file="a.xml"/></asset></mujoco>')
    text = '<mujoco><asset><model name="m" file="{}"/></asset><worldbody>{}</worldbody></mujoco>'
    with pytest.raises(ModelError, match=r"files attach each other in a cycle: a.xml -> b.xml -> a.xml"):
        adjoin.load(text.format("a.xml", ""), folder=tmp_path)
    many = f'<replicate count="50"><body name="x"><joint/>{GEOM}</body></replicate>'
    (tmp_path / "many.xml").write_text(f'<mujoco><worldbody><body name="all">{many}</body></worldbody></mujoco>')
    attach = '<replicate count="50"><frame><attach model="m" body="all" prefix="p"/></frame></replicate>'
    with pytest.raises(ModelError, match="more than 2000 bodies with all copies"):
        adjoin.load(text.format("many.xml", attach), folder=tmp_path)
    with pytest.raises(ModelError, match=r"'../far.xml'"):
        adjoin.load(text.format("../far.xml", ""), folder=tmp_path)
    inner = '<mujoco><worldbody><model name="m" file="a.xml"/></worldbody></mujoco>'
    with pytest.raises(ModelError, match="a model in another file belongs into <asset>"):
        adjoin.load(inner, folder=tmp_path)


def test_pixels_of_a_camera_that_no_sensor_reads_ask_for_nothing():
    camera = '<camera name="c" resolution="3840 2160"/>'
    assert adjoin.load(wrap(f"<body><joint/>{GEOM}{camera}</body>")).nv == 1


def test_groups_of_actuators_that_are_disabled_do_not_act_as_in_mujoco():
    text = wrap(
        f'<body><joint name="j"/>{GEOM}</body>',
        '<option actuatorgroupdisable="2"/>',
        '<actuator><motor joint="j" group="2" gear="5"/><motor joint="j" group="1"/></actuator>',
    )
    model = adjoin.load(text)
    assert [actuator.enabled for actuator in model.actuators] == [0, 1]
    m = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(m)
    data.ctrl[:] = 1.0
    mujoco.mj_forward(m, data)
    state, _ = adjoin.World.of(model, 1e-3, pairs=[], contact=adjoin.Newton()).plant([1.0, 1.0]).at([0.0], [0.0])
    assert effort_of(state, [1.0, 1.0], [], 1e-3).actuated == data.qfrc_actuator.tolist() == [1.0]


def test_iterations_against_slip_are_named():
    text = wrap(f"<body><joint/>{GEOM}</body>", '<option noslip_iterations="3"/>')
    with pytest.warns(ModelWarning, match=r"iterations against slip \(noslip_iterations, option\); left out"):
        adjoin.load(text)


def test_an_integrator_that_is_taken_as_another_is_named():
    text = wrap(f"<body><joint/>{GEOM}</body>", '<option integrator="implicit"/>')
    with pytest.warns(ModelWarning, match=r"Coriolis derivatives of the integrator implicit \(option\); left out"):
        model = adjoin.load(text)
    assert model.integrator == "implicitfast"
