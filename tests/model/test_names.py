"""Numbers by name, and the orders of other libraries."""

import math

import pinocchio
import pytest
import torch

import adjoin
from adjoin.compat import joint_order
from adjoin.errors import InputError

ROBOT = """<robot name="r"><link name="base"/>{}
  <joint name="z" type="floating"><parent link="base"/><child link="a"/></joint>
  <joint name="wheel" type="continuous"><parent link="a"/><child link="c"/></joint>
  <joint name="arm" type="revolute"><parent link="a"/><child link="b"/>
    <limit lower="-1" upper="1" velocity="1" effort="1"/></joint>
  <joint name="twin" type="revolute"><parent link="a"/><child link="d"/>
    <limit lower="-9" upper="9" velocity="1" effort="1"/>
    <mimic joint="arm" multiplier="2" offset="0.5"/></joint></robot>"""
INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'


@pytest.fixture(scope="module")
def text():
    return ROBOT.format("".join(f'<link name="{name}">{INERTIAL}</link>' for name in "abcd"))


@pytest.fixture(scope="module")
def model(text):
    return adjoin.load(text)


def test_coordinates_have_names(model):
    assert model.coordinate_names == ("z/x", "z/y", "z/z", "z/qw", "z/qx", "z/qy", "z/qz", "wheel", "arm")
    assert model.velocity_names == ("z/vx", "z/vy", "z/vz", "z/wx", "z/wy", "z/wz", "wheel", "arm")
    assert len(adjoin.robots.load("go2").velocity_names) == 18


def test_packing_and_unpacking(model):
    angle = torch.tensor([0.1, 0.2], requires_grad=True)
    q = model.pack({"arm": angle, "z/z": 0.5, "wheel": torch.tensor([[1.0], [2.0]])})
    assert q.tolist() == [[0, 0, 0.5, 1, 0, 0, 0, w, pytest.approx(a)] for w, a in ((1.0, 0.1), (2.0, 0.2))]
    parts = model.unpack(q)
    assert torch.equal(parts["arm"], angle)
    assert parts["z"].shape == (2, 7)
    assert torch.equal(model.pack(parts, like=q), q)
    assert torch.autograd.grad(q.sum(), angle)[0].tolist() == [1.0, 1.0]
    v = model.pack_velocity({"z": torch.arange(6.0), "arm": 7})
    assert v.tolist() == [0, 1, 2, 3, 4, 5, 0, 7]
    assert model.unpack_velocity(v)["arm"] == 7
    assert model.pack({"arm": 1.0}, start=q.detach())[..., 7].tolist() == [1.0, 2.0]
    with pytest.raises(InputError, match="no joint 'elbow'; joints: z, wheel, arm"):
        model.pack({"elbow": 1.0})
    with pytest.raises(InputError, match="joint 'twin' mimics 'arm' and has no coordinates of its own"):
        model.pack({"twin": 1.0})
    with pytest.raises(InputError, match=r"'z' has 7 numbers, got the shape \(3,\)"):
        model.pack({"z": torch.zeros(3)})


def test_clamping(model):
    q = model.pack({"arm": torch.tensor([-3.0, 0.2, 3.0]), "wheel": 9.0})
    assert model.clamp(q)[..., 8].tolist() == pytest.approx([-1.0, 0.2, 1.0])
    assert model.clamp(q)[..., 7].tolist() == [9.0] * 3


def test_clamping_keeps_batches_types_and_what_has_no_limits(model):
    q = model.random((2, 3), dtype=torch.float64) + 10.0
    clamped = model.clamp(q)
    lower, upper = (torch.tensor(ends, dtype=torch.float64) for ends in model.limits())
    assert clamped.dtype == torch.float64
    assert torch.equal(clamped, q.clamp(lower, upper))
    assert torch.equal(clamped[..., :8], q[..., :8])  # a free joint, and one that turns without end
    assert torch.equal(model.clamp(clamped), clamped)
    assert model.clamp(q[:0]).shape == (0, 3, model.nq)
    inside = torch.zeros(model.nq, requires_grad=True)
    assert torch.autograd.grad(model.clamp(inside).sum(), inside)[0].tolist() == [1.0] * model.nq
    outside = torch.full((model.nq,), 10.0, requires_grad=True)
    assert torch.autograd.grad(model.clamp(outside).sum(), outside)[0].tolist() == [1.0] * 8 + [0.0]


def test_clamping_says_what_is_wrong(model):
    for q, message in (
        (torch.zeros(3), rf"q has shape \(3,\); '{model.name}' needs \(\.\.\., {model.nq}\)"),
        (torch.zeros(model.nq, dtype=torch.int64), "q has dtype torch.int64; it must be a floating-point tensor"),
        ([0.0] * model.nq, "q is a list; it must be a torch tensor"),
    ):
        with pytest.raises(InputError, match=message):
            model.clamp(q)  # type: ignore[arg-type]


@pytest.mark.parametrize("angle", [0.3, 0.6, 2.0, 3.1, 5.0])
def test_clamping_a_ball_joint_keeps_its_axis_and_turns_the_short_way(angle):
    joint = '<joint name="b" type="ball" limited="true" range="0 30"/>'
    model = adjoin.load(f"<mujoco><worldbody><body>{joint}<geom size='.1'/></body></worldbody></mujoco>")
    axis = torch.tensor([0.6, 0.0, 0.8], dtype=torch.float64)
    q = torch.cat([torch.tensor([math.cos(angle / 2)]), math.sin(angle / 2) * axis])
    short = angle if angle <= math.pi else angle - 2 * math.pi
    bound = max(min(short, math.pi / 6), -math.pi / 6)
    expected = torch.cat([torch.tensor([math.cos(bound / 2)]), math.sin(bound / 2) * axis])
    torch.testing.assert_close(model.clamp(q), q if bound == angle else expected)


def test_pinocchio_has_the_same_robot_in_its_own_order(model, text):
    other = pinocchio.buildModelFromXML(text)
    q, v = model.random((3,), dtype=torch.float64), torch.randn(3, model.nv, dtype=torch.float64)
    theirs, rates = joint_order.to_pinocchio(model, other, q, v)
    for k in range(3):
        data = other.createData()
        pinocchio.forwardKinematics(other, data, theirs[k].numpy(), rates[k].numpy())
        aligned = pinocchio.ReferenceFrame.LOCAL_WORLD_ALIGNED
        for frame in ("b", "c", "d"):
            mine = adjoin.frame_velocity(model, q[k], v[k], frame, reference="local_world_aligned")
            expected = pinocchio.getFrameVelocity(other, data, other.getFrameId(frame), aligned)
            assert torch.allclose(mine, torch.tensor(expected.vector), atol=1e-12)
    back, again = joint_order.from_pinocchio(model, other, theirs, rates)
    assert torch.allclose(model.difference(back, q), torch.zeros(3, model.nv, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(again, v)


def test_mujoco_and_ros(model):
    mujoco = pytest.importorskip("mujoco")
    document = """<mujoco><worldbody><body name="a"><freejoint name="z"/><geom size="1"/>
        <body name="b"><joint name="arm"/><geom size="1"/></body></body></worldbody></mujoco>"""
    other, own = mujoco.MjModel.from_xml_string(document), adjoin.load(document)
    q, v = own.random((2,), dtype=torch.float64), torch.randn(2, own.nv, dtype=torch.float64)
    qpos, qvel = joint_order.to_mujoco(own, other, q, v)
    data = mujoco.MjData(other)
    data.qpos, data.qvel = qpos[1].numpy(), qvel[1].numpy()
    mujoco.mj_forward(other, data)
    expected = adjoin.frame_velocity(own, q[1], v[1], "b", reference="local_world_aligned")
    assert torch.allclose(torch.tensor(data.cvel[2][:3]), expected[3:], atol=1e-12)
    back = joint_order.from_mujoco(own, other, qpos, qvel)
    assert torch.allclose(back[0], q)
    assert torch.allclose(back[1], v, atol=1e-12)
    positions = joint_order.to_ros(model, ["twin", "arm"], model.pack({"arm": 0.2}))
    assert positions.tolist() == pytest.approx([0.9, 0.2])
    q = joint_order.from_ros(model, ["wheel", "twin", "arm"], torch.tensor([math.pi, 0.9, 0.2]))
    assert model.unpack(q)["arm"] == pytest.approx(0.2)
    with pytest.raises(InputError, match="no joint 'z'"):
        joint_order.to_ros(model, ["z"], q)


def test_joints_of_mujoco_without_names():
    mujoco = pytest.importorskip("mujoco")
    document = """<mujoco><worldbody><body name="a"><freejoint/><geom size="1"/><body pos="2 0 0"><joint/>
        <geom size="1"/></body></body>
        <body pos="0 5 0"><joint type="ball"/><geom size="1"/></body></worldbody></mujoco>"""
    other, own = mujoco.MjModel.from_xml_string(document), adjoin.load(document)
    q, v = own.random((2,), dtype=torch.float64), torch.randn(2, own.nv, dtype=torch.float64)
    qpos, qvel = joint_order.to_mujoco(own, other, q, v)
    assert torch.equal(qpos, q)
    assert torch.equal(qvel[:, 3:], v[:, 3:])
    back = joint_order.from_mujoco(own, other, qpos, qvel)
    assert torch.equal(back[0], q)
    assert torch.allclose(back[1], v, atol=1e-12)


def test_orders_of_others_say_what_is_wrong(model, text):
    mujoco = pytest.importorskip("mujoco")
    other, empty = pinocchio.buildModelFromXML(text), mujoco.MjModel.from_xml_string("<mujoco/>")
    q, v = model.neutral(), torch.zeros(model.nv)
    theirs, rates = joint_order.to_pinocchio(model, other, q, v)
    for call, message in (
        (lambda: joint_order.to_mujoco(model, q, q), "second argument is a Tensor; it must be a mujoco.MjModel"),
        (lambda: joint_order.from_pinocchio(model, q, q), "second argument is a Tensor; it must be a pinocchio.Model"),
        (lambda: joint_order.to_mujoco(model, empty, q), "no joint 'z'; joints: none"),
        (lambda: joint_order.to_pinocchio(model, other, q[1:]), r"q has shape \(\d+,\)"),
        (lambda: joint_order.to_pinocchio(model, other, q, v[1:]), r"v has shape \(\d+,\)"),
        (lambda: joint_order.from_pinocchio(model, other, theirs[1:]), r"q has shape .*'the other model' needs"),
        (lambda: joint_order.from_pinocchio(model, other, theirs, rates[1:]), r"v has shape .*'the other model' needs"),
        (lambda: model.unpack(q[1:]), r"q has shape \(\d+,\)"),
        (lambda: model.unpack_velocity(torch.zeros(model.nv + 1)), r"v has shape \(\d+,\)"),
        (lambda: model.unpack(q.tolist()), "q is a list; it must be a torch tensor"),
    ):
        with pytest.raises(InputError, match=message):
            call()
