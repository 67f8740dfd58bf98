"""Every MJCF in gymnasium's and mujoco's wheels, against MuJoCo's own compilation and kinematics."""

import functools
import warnings

import numpy as np
import pytest
import torch
from corpus import MJCFS

from adjoin.errors import ModelError, ModelWarning
from adjoin.io.load import load
from adjoin.io.urdf_write import to_urdf
from adjoin.model.assemble import joint_pose
from adjoin.model.parts import WORLD
from adjoin.spatial import inertia as inertias
from adjoin.spatial.motion import transform_multiply

mujoco = pytest.importorskip("mujoco")

TOLERANCE = 1e-12


@functools.cache
def theirs(name):
    try:
        return mujoco.MjModel.from_xml_path(str(MJCFS[name]))
    except ValueError as error:
        pytest.skip(f"MuJoCo {mujoco.__version__} does not read it: {error}")


@functools.cache
def ours(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        return load(MJCFS[name], unsupported="warn")


def named(m, kind, count):
    code = int(getattr(mujoco.mjtObj, f"mjOBJ_{kind}"))
    return [mujoco.mj_id2name(m, code, i) for i in range(count)]


def same(actual, expected, what):
    np.testing.assert_allclose(
        np.array(actual, dtype=float), np.array(expected, dtype=float), rtol=TOLERANCE, atol=TOLERANCE, err_msg=what
    )


def test_the_corpus_is_the_full_one():
    assert len([name for name in MJCFS if name.startswith("gymnasium/")]) == 14
    assert {"mujoco/model.xml", "mujoco/msh.xml"} <= set(MJCFS)


def joint_of(model, m, j):
    """Our joint for MuJoCo's j-th: joints are in the same order."""
    return model.joints[j], model.coordinates[j]


@pytest.mark.parametrize("name", MJCFS)
def test_names_sizes_limits_and_constants(name):
    m, model = theirs(name), ours(name)
    assert (model.nq, model.nv) == (m.nq, m.nv)
    links = [frame.name for frame in model.frames if frame.kind == "link"]
    for body, link in zip(named(m, "BODY", m.nbody), links, strict=True):
        assert body is None or body == link
    assert len(model.joints) == m.njnt
    for j, given in enumerate(named(m, "JOINT", m.njnt)):
        joint, at = joint_of(model, m, j)
        assert given is None or given == joint.name
        assert (at.q, at.v) == (m.jnt_qposadr[j], m.jnt_dofadr[j])
        dofs = at.v_slice
        same(joint.damping, m.dof_damping[dofs], f"{joint.name} damping")
        same(joint.armature, m.dof_armature[dofs], f"{joint.name} armature")
        same(joint.friction, m.dof_frictionloss[dofs], f"{joint.name} frictionloss")
        same(joint.stiffness, [m.jnt_stiffness[j]] * joint.type.nv, f"{joint.name} stiffness")
        same(joint.spring_reference, m.qpos_spring[at.q_slice], f"{joint.name} springref")
        if m.jnt_limited[j]:
            same((joint.lower, joint.upper), m.jnt_range[j], f"{joint.name} range")
        else:
            assert (joint.lower, joint.upper) == (-np.inf, np.inf)
        if joint.type.nv == 1:
            same(joint.axis, m.jnt_axis[j], f"{joint.name} axis")
    same(model.gravity, m.opt.gravity, "gravity")
    if model.nq:
        same(model.keyframe("qpos0").q, m.qpos0, "qpos0")
    # <size nkey> makes MuJoCo add empty key frames after those of the file; we have those of the file.
    for k, key in enumerate(model.keyframes[1:]):
        same(key.q, m.key_qpos[k], "keyframe")
    for k in range(max(len(model.keyframes) - 1, 0), m.nkey):
        same(m.key_qpos[k], m.qpos0, "an empty key frame")


@pytest.mark.parametrize("name", MJCFS)
def test_actuators(name):
    m, model = theirs(name), ours(name)
    assert model.nu == m.nu
    given = named(m, "ACTUATOR", m.nu)
    direct = [a for a in model.actuators if a.joint and a.dynamics == "none" and not a.muscle_gain]
    for actuator in direct:
        i = given.index(actuator.name) if actuator.name in given else int(actuator.name.removeprefix("actuator"))
        assert actuator.joint == model.joints[m.actuator_trnid[i][0]].name
        same(actuator.gear, m.actuator_gear[i][: len(actuator.gear)], "gear")
        same(actuator.gain, m.actuator_gainprm[i][0], "gain")
        if m.actuator_ctrllimited[i]:
            same(actuator.control_range, m.actuator_ctrlrange[i], "ctrlrange")
    # The force MuJoCo computes from state and control, actuator by actuator.
    data = mujoco.MjData(m)
    rng = np.random.default_rng(0)
    data.qpos[:] = m.qpos0
    data.qvel[:] = rng.normal(size=m.nv)
    data.ctrl[:] = rng.uniform(-0.5, 0.5, size=m.nu)
    mujoco.mj_forward(m, data)
    for actuator in direct:
        i = given.index(actuator.name) if actuator.name in given else int(actuator.name.removeprefix("actuator"))
        at = model.coordinates[model.joint_index(actuator.joint)]
        length = actuator.gear[0] * data.qpos[at.q]
        rate = actuator.gear[0] * data.qvel[at.v]
        control = np.clip(data.ctrl[i], *actuator.control_range)
        force = actuator.gain * control + actuator.bias[0] + actuator.bias[1] * length + actuator.bias[2] * rate
        same(np.clip(force, *actuator.force_range), data.actuator_force[i], f"{actuator.name} force")


def poses(model, q):
    out = []
    for body, at in zip(model.bodies, model.coordinates, strict=True):
        part = q[at.q_slice]
        pose = transform_multiply((body.rotation, body.position), joint_pose(body.joint, part))
        out.append(pose if body.parent == WORLD else transform_multiply(out[body.parent], pose))
    return out


def placed(bodies, item):
    place = (item.rotation, item.position)
    return place if item.body == WORLD else transform_multiply(bodies[item.body], place)


@pytest.mark.parametrize("name", MJCFS)
def test_poses_and_inertias_at_random_configurations(name):
    m, model = theirs(name), ours(name)
    data = mujoco.MjData(m)
    generator = torch.Generator().manual_seed(0)
    links = [frame for frame in model.frames if frame.kind == "link"]
    sites = {frame.name: frame for frame in model.frames if frame.kind == "site"}
    geoms = named(m, "GEOM", m.ngeom)
    for q in model.random((3,), generator=generator, dtype=torch.float64).tolist():
        data.qpos[:] = q
        mujoco.mj_kinematics(m, data)
        bodies = poses(model, q)
        for index, frame in enumerate(links):
            rotation, position = placed(bodies, frame)
            same(position, data.xpos[index], f"{frame.name} position")
            same(np.ravel(rotation), data.xmat[index], f"{frame.name} rotation")
        for index, site in enumerate(named(m, "SITE", m.nsite)):
            frame = sites.get(f"{site}/site") or sites[site]
            same(placed(bodies, frame)[1], data.site_xpos[index], f"{site} position")
        for shape in model.geometries:
            index = geoms.index(shape.name) if shape.name in geoms else int(shape.name.rsplit("/geom", 1)[1])
            rotation, position = placed(bodies, shape)
            same(position, data.geom_xpos[index], f"{shape.name} position")
            same(np.ravel(rotation), data.geom_xmat[index], f"{shape.name} rotation")
            sizes = {"plane": 2, "sphere": 1, "capsule": 2, "cylinder": 2, "hull": 0}.get(shape.kind, 3)
            same(shape.size[:sizes], m.geom_size[index][:sizes], f"{shape.name} size")
            same(shape.friction, m.geom_friction[index], f"{shape.name} friction")
            assert (shape.contype, shape.conaffinity) == (m.geom_contype[index], m.geom_conaffinity[index])
        # Everything that moves, welded together where it stands: mass, center of mass and inertia of the whole.
        whole = expected = None
        for body, pose in zip(model.bodies, bodies, strict=True):
            if body.mass:
                one = inertias.transformed(pose, (body.mass, body.com, body.inertia))
                whole = one if whole is None else inertias.combined(whole, one)
        for index in range(1, m.nbody):
            if m.body_mass[index] and m.body_weldid[index] != 0:
                turn = data.ximat[index].reshape(3, 3)
                tensor = turn @ np.diag(m.body_inertia[index]) @ turn.T
                one = (m.body_mass[index], tuple(data.xipos[index]), inertias.from_matrix(tensor))
                expected = one if expected is None else inertias.combined(expected, one)
        if expected is not None:
            same(whole[0], expected[0], "mass")
            same(whole[1], expected[1], "center of mass")
            same(whole[2], expected[2], "inertia")


def test_unsupported_parts_are_named_in_one_list():
    text = """<mujoco><worldbody>
      <body name="b"><joint name="j"/><geom size="0.1"/></body>
      <flexcomp name="jelly" type="grid" count="2 2 2" spacing="0.1 0.1 0.1" dim="3"><edge equality="true"/></flexcomp>
    </worldbody><actuator><general name="own" joint="j" dyntype="user" actdim="1"/></actuator></mujoco>"""
    parts = (
        "equality constraints of flexes (#0)",
        "flexes (1)",
        "actuators with activation dynamics of another type (own)",
    )
    listed = f"not supported: {'; '.join(parts)}"
    for strict in (True, False):
        with pytest.raises(ModelError) as error:
            load(text, strict=strict)
        assert str(error.value) == f"<text>: {listed}; pass unsupported='warn' to load the model without them"
        assert error.value.parts == parts
    with pytest.warns(ModelWarning) as warned:
        load(text, unsupported="warn")
    told = [(finding.error.problem, finding.done) for finding in warned[0].message.findings]
    assert told == [(f"not supported: {part}", "left out") for part in parts]
    assert [warning.filename for warning in warned] == [__file__]


@pytest.mark.parametrize("name", MJCFS)
def test_the_others_load_without_being_asked(name):
    theirs(name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ModelWarning)
        assert load(MJCFS[name]) == ours(name)
    # MuJoCo's own warnings, such as of attributes that it will not read any more, are passed on.
    findings = [finding for warning in caught for finding in warning.message.findings]
    assert all(finding.error.problem.startswith("MuJoCo: ") for finding in findings)


@pytest.mark.parametrize("name", MJCFS)
def test_exported_urdf_is_the_same_robot(name):
    from test_roundtrip import assert_alike, by_name

    theirs(name)
    model = ours(name)
    assert_alike(by_name(load(to_urdf(model))), by_name(model))
