"""Every URDF of example-robot-data, against Pinocchio: names, dofs, masses, inertias, placements, limits, poses."""

import functools
import math

import numpy as np
import pinocchio
import pytest
import torch
from corpus import ACCEPT, LOADED, REFUSED, URDF_FOLDER, URDFS

from adjoin.errors import ModelError
from adjoin.io.load import load
from adjoin.model.assemble import joint_pose
from adjoin.model.parts import WORLD
from adjoin.spatial.motion import transform_multiply

TOLERANCE = 1e-12
# Pinocchio's mimic reader wants the joint that leads before the one that follows; without mimic it reads the file.
NO_MIMIC = {
    "romeo_description/urdf/romeo.urdf",
    "talos_data/robots/talos_full_v2.urdf",
    "talos_data/robots/talos_full_v2_box.urdf",
}
FLOATING = [
    "go2_description/urdf/go2.urdf",
    "talos_data/robots/talos_reduced.urdf",
    "ur_description/urdf/ur5_robot.urdf",
]


@functools.cache
def ours(name, floating_base=False):
    path = URDF_FOLDER / "robots" / name
    return load(path, floating_base=floating_base, meshes="ignore", accept=ACCEPT.get(name, ()), strict=True)


@functools.cache
def theirs(name, floating_base=False):
    path = str(URDF_FOLDER / "robots" / name)
    if floating_base:
        return pinocchio.buildModelFromUrdf(path, pinocchio.JointModelFreeFlyer(), True)
    return pinocchio.buildModelFromUrdf(path, name not in NO_MIMIC)


def same(actual, expected, what):
    np.testing.assert_allclose(np.array(actual), np.array(expected), rtol=TOLERANCE, atol=TOLERANCE, err_msg=what)


def symmetric(six):
    xx, xy, xz, yy, yz, zz = six
    return [[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]


def owner(model, pin, joint_id):
    return WORLD if joint_id == 0 else model.joint_index(pin.names[joint_id])


def test_the_corpus_is_the_full_one():
    assert len(URDFS) == 77
    assert len(LOADED) == 74


@pytest.mark.parametrize("name", LOADED)
def test_joints_bodies_and_limits(name):
    model, pin = ours(name), theirs(name)
    assert {joint.name for joint in model.joints} == set(pin.names) - {"universe"}
    followers = sum(joint.mimic is not None for joint in model.joints) if name in NO_MIMIC else 0
    assert model.nv + followers == pin.nv
    continuous = sum(joint.kind == "continuous" and not joint.mimic for joint in model.joints)
    assert model.nq + followers + continuous == pin.nq
    for body, at in zip(model.bodies, model.coordinates, strict=True):
        joint = body.joint
        i = pin.getJointId(joint.name)
        assert body.parent == owner(model, pin, pin.parents[i])
        same(body.rotation, pin.jointPlacements[i].rotation, f"{joint.name} rotation")
        same(body.position, pin.jointPlacements[i].translation, f"{joint.name} position")
        same(body.mass, pin.inertias[i].mass, f"{body.name} mass")
        if body.mass:
            same(body.com, pin.inertias[i].lever, f"{body.name} com")
        same(symmetric(body.inertia), pin.inertias[i].inertia, f"{body.name} inertia")
        if joint.mimic:
            continue
        q, v = pin.joints[i].idx_q, pin.joints[i].idx_v
        if joint.kind != "continuous":
            same(joint.lower, pin.lowerPositionLimit[q], f"{joint.name} lower")
            same(joint.upper, pin.upperPositionLimit[q], f"{joint.name} upper")
        same(joint.velocity_limit, pin.upperVelocityLimit[v], f"{joint.name} velocity")
        same(joint.effort_limit, pin.upperEffortLimit[v], f"{joint.name} effort")
        same(joint.damping[0], pin.damping[v], f"{joint.name} damping")
        same(joint.friction[0], pin.friction[v], f"{joint.name} friction")
        assert model.coordinates[at.leader] is at
    same(model.mass, pinocchio.computeTotalMass(pin), "total mass")
    if model.fixture.mass:
        same(model.fixture.mass, pin.inertias[0].mass, "mass of the root")
        same(model.fixture.com, pin.inertias[0].lever, "center of mass of the root")
        same(symmetric(model.fixture.inertia), pin.inertias[0].inertia, "inertia of the root")


@pytest.mark.parametrize("name", LOADED)
def test_links_are_frames(name):
    model, pin = ours(name), theirs(name)
    links = [frame for frame in pin.frames if frame.type == pinocchio.FrameType.BODY and frame.name != "universe"]
    assert {frame.name for frame in model.frames} == {frame.name for frame in links}
    for frame in links:
        mine = model.frames[model.frame_index(frame.name)]
        assert mine.body == owner(model, pin, frame.parentJoint)
        same(mine.rotation, frame.placement.rotation, f"{frame.name} rotation")
        same(mine.position, frame.placement.translation, f"{frame.name} position")


def to_pinocchio_q(model, pin, q):
    out = np.zeros(pin.nq)
    for joint, at in zip(model.joints, model.coordinates, strict=True):
        if joint.mimic and not pin.joints[pin.getJointId(joint.name)].nq:
            continue
        start = pin.joints[pin.getJointId(joint.name)].idx_q
        part = [at.multiplier * x + at.offset for x in q[at.q : at.q + model.joints[at.leader].nq]]
        if joint.kind == "continuous":
            out[start : start + 2] = math.cos(part[0]), math.sin(part[0])
        elif joint.kind == "free":
            out[start : start + 7] = [*part[:3], *part[4:], part[3]]
        else:
            out[start : start + len(part)] = part
    return out


def to_pinocchio_v(model, pin, v):
    out = np.zeros(pin.nv)
    for joint, at in zip(model.joints, model.coordinates, strict=True):
        if not joint.mimic:
            start = pin.joints[pin.getJointId(joint.name)].idx_v
            out[start : start + joint.nv] = v[at.v : at.v + joint.nv]
    return out


def poses(model, q):
    """Forward kinematics, as plainly as it can be said."""
    out = []
    for body, at in zip(model.bodies, model.coordinates, strict=True):
        size = {"free": 7}.get(body.joint.kind, 1)
        part = [at.multiplier * x + at.offset for x in q[at.q : at.q + size]]
        pose = transform_multiply((body.rotation, body.position), joint_pose(body.joint, part))
        out.append(pose if body.parent == WORLD else transform_multiply(out[body.parent], pose))
    return out


@pytest.mark.parametrize(
    ("name", "floating_base"), [(name, False) for name in LOADED] + [(name, True) for name in FLOATING]
)
def test_poses_of_all_links_at_random_configurations(name, floating_base):
    model, pin = ours(name, floating_base), theirs(name, floating_base)
    data = pin.createData()
    generator = torch.Generator().manual_seed(0)
    for q in model.random((3,), generator=generator, dtype=torch.float64).tolist():
        pinocchio.framesForwardKinematics(pin, data, to_pinocchio_q(model, pin, q))
        mine = poses(model, q)
        for frame in model.frames:
            place = (frame.rotation, frame.position)
            pose = place if frame.body == WORLD else transform_multiply(mine[frame.body], place)
            expected = data.oMf[pin.getFrameId(frame.name, pinocchio.FrameType.BODY)]
            same(pose[0], expected.rotation, f"{frame.name} rotation")
            same(pose[1], expected.translation, f"{frame.name} position")


@pytest.mark.parametrize(
    ("name", "floating_base"), [(n, True) for n in FLOATING] + [("kinova_description/robots/kinova.urdf", False)]
)
def test_integrate_and_difference(name, floating_base):
    model, pin = ours(name, floating_base), theirs(name, floating_base)
    generator = torch.Generator().manual_seed(1)
    q0, q1 = model.random((2, 20), generator=generator, dtype=torch.float64)
    v = torch.randn(20, model.nv, generator=generator, dtype=torch.float64)
    moved = model.integrate(q0, v, 0.7)
    apart = model.difference(q0, q1)
    for i in range(20):
        start = to_pinocchio_q(model, pin, q0[i].tolist())
        expected = pinocchio.integrate(pin, start, 0.7 * to_pinocchio_v(model, pin, v[i].tolist()))
        got = to_pinocchio_q(model, pin, moved[i].tolist())
        assert pinocchio.distance(pin, expected, got) < TOLERANCE
        expected = pinocchio.difference(pin, start, to_pinocchio_q(model, pin, q1[i].tolist()))
        same(to_pinocchio_v(model, pin, apart[i].tolist()), expected, "difference")
    assert torch.allclose(
        model.difference(model.integrate(q0, apart), q1), torch.zeros(20, model.nv, dtype=torch.float64), atol=1e-12
    )


@pytest.mark.parametrize("name", REFUSED)
def test_the_ones_that_do_not_load_say_why(name):
    with pytest.raises(ModelError, match=REFUSED[name]):
        load(URDF_FOLDER / "robots" / name, strict=True, meshes="ignore", accept=("mass", "inertia"))


@pytest.mark.parametrize("name", [name for name in LOADED if name not in ACCEPT])
def test_accepted_flaws_are_named_only_where_they_are(name):
    assert ours(name) is not None


@pytest.mark.parametrize("name", ACCEPT)
def test_flawed_files_are_refused_unless_their_flaw_is_accepted(name):
    with pytest.raises(ModelError, match=r"\.urdf:\d+: link "):
        load(URDF_FOLDER / "robots" / name, strict=True, meshes="ignore")
