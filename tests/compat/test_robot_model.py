import copy
import functools
import pickle
import warnings

import numpy as np
import pinocchio
import pytest
import torch
from differentiable_robot_model import data_utils
from differentiable_robot_model import rigid_body_params as theirs_params
from differentiable_robot_model import spatial_vector_algebra as theirs_vectors
from drm import DATA, ROBOTS, TIPS, awkward, ours, theirs, theirs_of

from adjoin.compat.differentiable_robot_model import rigid_body_params, robot_model, spatial_vector_algebra, train_epoch
from adjoin.compat.differentiable_robot_model.robot_model import DifferentiableRobotModel
from adjoin.errors import InputError, ModelError
from adjoin.learn.modules import Covariance, Positive, Triangular, Unconstrained

F64 = torch.float64
IIWA = DATA / ROBOTS["iiwa"]


def state(robot, *batch, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    sizes = (robot._links.model.nq, robot._n_dofs, robot._n_dofs)
    return [torch.randn(*batch, size, generator=generator, dtype=dtype) for size in sizes]


@functools.cache
def written(tmp, **values):
    path = tmp / f"{abs(hash(tuple(values.items())))}.urdf"
    path.write_text(awkward(**values))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("robots")


# Beside differentiable-robot-model, on the robots that it gets right


@pytest.mark.parametrize("name", ROBOTS)
def test_dynamics_are_those_of_the_peer(name):
    robot, peer = ours(name), theirs(name)
    q, qd, third = state(robot, 3)
    for call, inputs in (
        ("compute_inverse_dynamics", (q, qd, third)),
        ("compute_non_linear_effects", (q, qd)),
        ("compute_forward_dynamics", (q, qd, third)),
        ("compute_lagrangian_inertia_matrix", (q,)),
    ):
        found = getattr(robot, call)(*inputs)
        expected = getattr(peer, call)(*[tensor.clone() for tensor in inputs])
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("name", ROBOTS)
def test_kinematics_are_those_of_the_peer(name):
    robot, peer = ours(name), theirs(name)
    q, _, _ = state(robot, 4)
    assert robot.get_link_names() == peer.get_link_names()
    found = robot.compute_forward_kinematics_all_links(q)
    for link in robot.get_link_names():
        position, quaternion = peer.compute_forward_kinematics(q, link)
        torch.testing.assert_close(found[link][0], position.expand(4, 3), rtol=0.0, atol=2e-6)
        torch.testing.assert_close(found[link][1], quaternion.expand(4, 4), rtol=0.0, atol=1e-5)
    alone = robot.compute_forward_kinematics(q[0], TIPS[name], recursive=True)
    torch.testing.assert_close(alone, tuple(part[0] for part in found[TIPS[name]]))
    jacobians = zip(
        robot.compute_endeffector_jacobian(q, TIPS[name]), peer.compute_endeffector_jacobian(q, TIPS[name]), strict=True
    )
    for own, other in jacobians:
        torch.testing.assert_close(own, other, rtol=0.0, atol=5e-6)


def test_options_have_the_meaning_and_the_defaults_of_the_peer():
    robot, peer = ours("iiwa"), theirs("iiwa")
    q, qd, third = state(robot, 2)
    for options in ({"include_gravity": False}, {"use_damping": True}, {"use_damping": False}):
        for call in ("compute_inverse_dynamics", "compute_forward_dynamics"):
            found = getattr(robot, call)(q, qd, third, **options)
            torch.testing.assert_close(
                found, getattr(peer, call)(q, qd, third.clone(), **options), rtol=1e-5, atol=1e-4
            )
    names = {"compute_inverse_dynamics": ("q", "qd", "qdd_des"), "compute_forward_dynamics": ("q", "qd", "f")}
    for call, arguments in names.items():
        by_name = dict(zip(arguments, (q, qd, third), strict=True))
        assert torch.equal(getattr(robot, call)(**by_name), getattr(robot, call)(q, qd, third))


def test_limits_names_and_prints_are_those_of_the_peer(capsys):
    robot, peer = ours("iiwa"), theirs("iiwa")
    assert robot.get_joint_limits() == peer.get_joint_limits()
    robot.print_link_names()
    own = capsys.readouterr().out
    peer.print_link_names()
    assert own == capsys.readouterr().out


def test_the_kinematic_state_is_that_of_the_peer():
    robot, peer = ours("iiwa"), theirs("iiwa")
    q, qd, _ = state(robot, 2)
    robot.update_kinematic_state(q, qd)
    peer.update_kinematic_state(q, qd)
    for link, other in zip(robot._bodies, peer._bodies, strict=True):
        torch.testing.assert_close(link.pose.translation(), other.pose.translation().expand(2, 3), rtol=0.0, atol=2e-6)
        torch.testing.assert_close(link.pose.rotation(), other.pose.rotation().expand(2, 3, 3), rtol=0.0, atol=2e-6)
        torch.testing.assert_close(link.vel.ang, other.vel.ang, rtol=0.0, atol=1e-5)
        torch.testing.assert_close(link.vel.lin, other.vel.lin, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("name", ROBOTS)
def test_dynamics_and_poses_are_those_of_pybullet(name):
    pybullet = pytest.importorskip("pybullet")
    robot = ours(name)
    q, qd, qdd = state(robot, dtype=F64)
    client = pybullet.connect(pybullet.DIRECT)
    try:
        pybullet.setGravity(0.0, 0.0, -9.81)
        shapes = pybullet.URDF_IGNORE_VISUAL_SHAPES | pybullet.URDF_IGNORE_COLLISION_SHAPES
        flags = pybullet.URDF_USE_INERTIA_FROM_FILE | shapes
        body = pybullet.loadURDF(str(DATA / ROBOTS[name]), useFixedBase=True, flags=flags)
        joints = [pybullet.getJointInfo(body, index) for index in range(pybullet.getNumJoints(body))]
        tau = pybullet.calculateInverseDynamics(body, q.tolist(), qd.tolist(), qdd.tolist())
        inertia = pybullet.calculateMassMatrix(body, q.tolist())
        moving = [joint[0] for joint in joints if joint[2] != pybullet.JOINT_FIXED]
        for index, angle in zip(moving, q.tolist(), strict=True):
            pybullet.resetJointState(body, index, angle)
        poses = {joint[12].decode(): pybullet.getLinkState(body, joint[0], 0, True)[4:6] for joint in joints}
    finally:
        pybullet.disconnect(client)
    np.testing.assert_allclose(robot.compute_inverse_dynamics(q, qd, qdd, use_damping=False), tau, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(robot.compute_lagrangian_inertia_matrix(q), inertia, rtol=1e-9, atol=1e-9)
    found = robot.compute_forward_kinematics_all_links(q)
    for link, (position, quaternion) in poses.items():
        np.testing.assert_allclose(found[link][0], position, rtol=0.0, atol=1e-6)
        sign = np.sign(found[link][1].numpy() @ quaternion)
        np.testing.assert_allclose(found[link][1], sign * np.array(quaternion), rtol=0.0, atol=1e-6)


# Beside Pinocchio, where differentiable-robot-model is wrong: slides, skew axes, turned inertias, floating bases


def in_pinocchio(text, links, floating=False):
    pin = pinocchio.buildModelFromXML(text, pinocchio.JointModelFreeFlyer()) if floating else None
    pin = pin or pinocchio.buildModelFromXML(text)
    moving = [links.model.joints[index].name for index in links.joints]
    v_places = [k for name in moving for k in range(pin.joints[pin.getJointId(name)].idx_v, _end_v(pin, name))]
    return pin, pin.createData(), moving, v_places


def _end_v(pin, name):
    joint = pin.joints[pin.getJointId(name)]
    return joint.idx_v + joint.nv


def to_pinocchio(pin, moving, q):
    there, start = np.zeros(pin.nq), 0
    for name in moving:
        joint = pin.joints[pin.getJointId(name)]
        if (joint.nq, joint.nv) == (2, 1):
            there[joint.idx_q : joint.idx_q + 2] = np.cos(q[start]), np.sin(q[start])
            start += 1
        else:
            there[joint.idx_q : joint.idx_q + joint.nq] = q[start : start + joint.nq]
            start += joint.nq
    return there


@pytest.mark.parametrize(
    "which", ["awkward", "awkward floating", "panda_description/urdf/panda.urdf", "kinova_description/urdf/jaco.urdf"]
)
def test_robots_that_the_peer_gets_wrong_are_those_of_pinocchio(which, folder):
    floating = which.endswith("floating")
    path = written(folder) if which.startswith("awkward") else DATA / which
    robot = DifferentiableRobotModel(path, floating_base=floating)
    q, qd, third = state(robot, dtype=F64)
    if floating:
        q[3:7] /= q[3:7].norm()
    pin, data, moving, places = in_pinocchio(path.read_text(), robot._links, floating)
    there = to_pinocchio(pin, moving, q.numpy())
    rates, thirds = np.zeros(pin.nv), np.zeros(pin.nv)
    rates[places], thirds[places] = qd, third
    near = {"rtol": 1e-9, "atol": 1e-9}
    tau = robot.compute_inverse_dynamics(q, qd, third, use_damping=False)
    np.testing.assert_allclose(tau, pinocchio.rnea(pin, data, there, rates, thirds)[places], **near)
    inertia = pinocchio.crba(pin, data, there)
    inertia = np.triu(inertia) + np.triu(inertia, 1).T
    found = robot.compute_lagrangian_inertia_matrix(q)
    np.testing.assert_allclose(found, inertia[np.ix_(places, places)], **near)
    bias = pinocchio.rnea(pin, data, there, rates, 0 * rates)[places]
    solved = np.linalg.solve(inertia[np.ix_(places, places)], third.numpy() - bias)
    np.testing.assert_allclose(robot.compute_forward_dynamics(q, qd, third), solved, rtol=1e-7, atol=1e-7)
    link = robot.get_link_names()[-1] if not which.startswith("awkward") else "hand"
    frame = pin.getFrameId(link)
    pinocchio.framesForwardKinematics(pin, data, there)
    position, quaternion = robot.compute_forward_kinematics(q, link)
    np.testing.assert_allclose(position, data.oMf[frame].translation, **near)
    there_quaternion = pinocchio.Quaternion(data.oMf[frame].rotation).coeffs()
    np.testing.assert_allclose(quaternion, np.sign(there_quaternion @ quaternion.numpy()) * there_quaternion, **near)
    jacobian = pinocchio.computeFrameJacobian(pin, data, there, frame, pinocchio.LOCAL_WORLD_ALIGNED)[:, places]
    np.testing.assert_allclose(torch.cat(robot.compute_endeffector_jacobian(q, link)), jacobian, **near)


def test_the_peer_is_wrong_there(folder):
    robot = DifferentiableRobotModel(DATA / "panda_description/urdf/panda.urdf")
    peer = theirs_of(DATA / "panda_description/urdf/panda.urdf")
    q, qd, third = state(robot, 2)
    off = robot.compute_inverse_dynamics(q, qd, third) - peer.compute_inverse_dynamics(q, qd, third)
    assert off.abs().max() > 0.1
    with pytest.raises(AttributeError, match="effort"):
        theirs_of(written(folder))


# What else is documented as its defects


def test_quaternions_have_right_gradients_everywhere(folder):
    robot = DifferentiableRobotModel(written(folder))
    q = 3.0 * state(robot, 6, dtype=F64)[0]
    torch.autograd.gradcheck(lambda q: robot.compute_forward_kinematics(q, "hand"), q.requires_grad_())


def test_inputs_stay_as_they_are_and_doubles_are_welcome():
    robot = ours("two_link")
    inputs = state(robot, 5, dtype=F64)
    kept = [tensor.clone() for tensor in inputs]
    results = [
        robot.compute_forward_dynamics(*inputs, use_damping=True),
        robot.compute_inverse_dynamics(*inputs),
        robot.compute_forward_kinematics(inputs[0], "arm2")[0],
    ]
    assert all(torch.equal(tensor, before) for tensor, before in zip(inputs, kept, strict=True))
    assert all(result.dtype == F64 for result in results)


@pytest.mark.parametrize("gravity", [True, False])
@pytest.mark.parametrize("damping", [True, False])
def test_forward_dynamics_undoes_inverse_dynamics(gravity, damping):
    robot = ours("two_link")
    q, qd, qdd = state(robot, 5, dtype=F64)
    options = {"include_gravity": gravity, "use_damping": damping}
    tau = robot.compute_inverse_dynamics(q, qd, qdd, **options)
    for _ in range(2):
        torch.testing.assert_close(robot.compute_forward_dynamics(q, qd, tau, **options), qdd)


def test_single_states_and_batches_give_the_same():
    robot = ours("two_link")
    q, qd, f = state(robot, 3, dtype=F64)
    together, alone = robot.compute_forward_dynamics(q, qd, f), robot.compute_forward_dynamics(q[1], qd[1], f[1])
    torch.testing.assert_close(together[1], alone)
    linear, angular = robot.compute_endeffector_jacobian(q[1], "arm2")
    assert linear.shape == angular.shape == (3, 2)


def test_joints_without_limits_have_infinite_ones(folder):
    limits = DifferentiableRobotModel(written(folder)).get_joint_limits()
    wrist, shoulder, slide = limits
    infinite = float("inf")
    assert wrist == {"effort": infinite, "lower": -infinite, "upper": infinite, "velocity": infinite}
    assert shoulder == {"effort": 50.0, "lower": -2.0, "upper": 1.0, "velocity": 3.0}
    assert slide["upper"] == 0.3


# Learning


LEARNED = {
    ("tool", "mass"): ("mass", [1.1], "1.1"),
    ("tool", "com"): ("com", [0.1, -0.03, 0.2], "0.1 -0.03 0.2"),
    ("tool", "trans"): ("tool", [0.3, 0.2, 0.1], "0.3 0.2 0.1"),
    ("tool", "rot_angles"): ("tool_angles", [1.0, -0.4, 2.0], "1.0 -0.4 2.0"),
    ("lower", "trans"): ("elbow", [0.3, 0.2, 0.1], "0.3 0.2 0.1"),
    ("lower", "rot_angles"): ("elbow_angles", [1.0, -0.4, 2.0], "1.0 -0.4 2.0"),
    ("lower", "joint_damping"): ("damping", [0.9], "0.9"),
    ("tool", "inertia_mat"): (
        "inertia",
        [[0.03, 0.001, 0.0], [0.001, 0.04, 0.002], [0.0, 0.002, 0.05]],
        'ixx="0.03" ixy="0.001" ixz="0" iyy="0.04" iyz="0.002" izz="0.05"',
    ),
}


def test_learned_values_act_as_if_the_file_had_them(folder):
    whole = DifferentiableRobotModel(written(folder, **{name: text for name, _, text in LEARNED.values()}))
    robot = DifferentiableRobotModel(written(folder))
    for (link, parameter), (_, value, _) in LEARNED.items():
        robot.make_link_param_learnable(link, parameter, Unconstrained(torch.tensor(value, dtype=F64)))
    q, qd, f = state(robot, 3, dtype=F64)
    near = {"rtol": 1e-9, "atol": 1e-9}
    for call, options in (
        ("compute_forward_dynamics", {"use_damping": True}),
        ("compute_inverse_dynamics", {}),
        ("compute_inverse_dynamics", {"include_gravity": False, "use_damping": False}),
    ):
        found, expected = (getattr(each, call)(q, qd, f, **options) for each in (robot, whole))
        torch.testing.assert_close(found, expected, **near)
    found, expected = (each.compute_lagrangian_inertia_matrix(q) for each in (robot, whole))
    torch.testing.assert_close(found, expected, **near)
    for link in ("tool", "hand"):
        found, expected = (each.compute_forward_kinematics(q, link) for each in (robot, whole))
        torch.testing.assert_close(found, expected, **near)


def test_gradients_of_learned_values_are_right(folder):
    robot = DifferentiableRobotModel(written(folder))
    modules = [Unconstrained(torch.tensor(value, dtype=F64)) for _, value, _ in LEARNED.values()]
    for (link, parameter), module in zip(LEARNED, modules, strict=True):
        robot.make_link_param_learnable(link, parameter, module)
    robot.make_link_param_learnable("hand", "mass", Positive(torch.tensor(0.4, dtype=F64)))
    inertia = torch.diag(torch.tensor([0.05, 0.06, 0.03], dtype=F64))
    robot.make_link_param_learnable("upper", "inertia_mat", Triangular(inertia))
    robot.make_link_param_learnable("lower", "inertia_mat", Covariance(inertia))
    q, qd, f = state(robot, 2, dtype=F64)
    called = Accelerations(robot, q, qd, f)
    raws = dict(called.named_parameters())

    def accelerations(*values):
        return torch.func.functional_call(called, dict(zip(raws, values, strict=True)), ())

    torch.autograd.gradcheck(accelerations, tuple(raw.detach().clone().requires_grad_() for raw in raws.values()))


class Accelerations(torch.nn.Module):
    def __init__(self, robot, *inputs):
        super().__init__()
        self.robot, self.inputs = robot, inputs

    def forward(self):
        return self.robot.compute_forward_dynamics(*self.inputs, use_damping=True)


def learnable(robot, modules):
    torch.manual_seed(0)
    robot.make_link_param_learnable("iiwa_link_1", "mass", modules.PositiveScalar())
    robot.make_link_param_learnable("iiwa_link_1", "com", modules.UnconstrainedTensor(dim1=1, dim2=3))
    robot.make_link_param_learnable("iiwa_link_3", "inertia_mat", modules.SymmPosDef3DInertiaMatrixNet())
    robot.make_link_param_learnable("iiwa_link_4", "inertia_mat", modules.CovParameterized3DInertiaMatrixNet())
    robot.make_link_param_learnable("iiwa_link_5", "inertia_mat", modules.Symm3DInertiaMatrixNet())
    robot.make_link_param_learnable("iiwa_link_5", "joint_damping", modules.UnconstrainedScalar())
    robot.make_link_param_learnable("iiwa_link_6", "trans", modules.UnconstrainedTensor(dim1=1, dim2=3))
    robot.make_link_param_learnable("iiwa_link_ee", "rot_angles", modules.UnconstrainedTensor(dim1=1, dim2=3))
    return robot


@pytest.mark.parametrize("modules", [theirs_params, rigid_body_params])
def test_learning_goes_as_with_the_peer(modules):
    peer = learnable(theirs_of(IIWA), theirs_params)
    robot = learnable(DifferentiableRobotModel(IIWA), modules)
    robot.load_state_dict(peer.state_dict(), strict=True)
    peer.load_state_dict(robot.state_dict(), strict=True)
    assert dict(robot.named_parameters()).keys() == dict(peer.named_parameters()).keys()
    q, qd, third = state(robot, 4)
    goal = torch.tensor([0.4, 0.1, 0.7])
    for each in (robot, peer):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the peer's quaternions lose a part of their gradient
            position, _ = each.compute_forward_kinematics(q, "iiwa_link_ee")
        loss = each.compute_inverse_dynamics(q, qd, third).square().mean() + (position - goal).square().mean()
        loss.backward()
    for (name, own), (_, other) in zip(robot.named_parameters(), peer.named_parameters(), strict=True):
        expected = torch.zeros_like(other) if other.grad is None else other.grad
        near = {"rtol": 1e-4, "atol": 1e-5 * max(1.0, float(expected.abs().max()))}
        torch.testing.assert_close(own.grad, expected, **near, msg=name)


def test_parametrizations_are_those_of_the_peer():
    matrix = torch.tensor([[0.3, 0.01, 0.02], [0.01, 0.4, -0.03], [0.02, -0.03, 0.5]])
    for name in ("Symm3DInertiaMatrixNet", "SymmPosDef3DInertiaMatrixNet", "CovParameterized3DInertiaMatrixNet"):
        own = getattr(rigid_body_params, name)(init_param=matrix[None])
        other = getattr(theirs_params, name)(init_param=matrix[None])
        torch.testing.assert_close(own(), other())
        torch.testing.assert_close(own.state_dict(), other.state_dict())
    with pytest.raises(TypeError):
        theirs_params.TriangParam3DInertiaMatrixNet(bias=1e-7, init_param=matrix)
    torch.testing.assert_close(rigid_body_params.TriangParam3DInertiaMatrixNet(1e-7, init_param=matrix)(), matrix)
    random = torch.linalg.eigvalsh(rigid_body_params.TriangParam3DInertiaMatrixNet(1e-7)())
    assert random[0] + random[1] > random[2] > 0.0
    own, other = rigid_body_params.PositiveScalar(0.1, init_param=torch.tensor([2.0])), theirs_params.PositiveScalar
    torch.testing.assert_close(own(), other(0.1, init_param=torch.tensor([2.0]))())


def test_the_data_utilities_of_the_peer_take_our_robots():
    for generate in (
        data_utils.generate_sine_motion_forward_dynamics_data,
        data_utils.generate_sine_motion_inverse_dynamics_data,
    ):
        own, other = (generate(robot, 20, 0.1, 0.5).data for robot in (ours("iiwa"), theirs("iiwa")))
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-4)
    found = data_utils.generate_random_forward_kinematics_data(ours("iiwa"), 20, "iiwa_link_ee")
    assert found["ee_pos"].shape == (20, 3)


def test_frozen_parameters_stay_until_they_are_unfrozen():
    robot = learnable(DifferentiableRobotModel(IIWA), rigid_body_params)
    robot.freeze_learnable_link_param("iiwa_link_4", "inertia_mat")
    robot.compute_inverse_dynamics(*state(robot, 2)).sum().backward()
    frozen = robot._bodies[robot._name_to_idx_map["iiwa_link_4"]].inertia.inertia_mat
    assert frozen.l.grad is None
    robot.unfreeze_learnable_link_param("iiwa_link_4", "inertia_mat")
    robot.compute_inverse_dynamics(*state(robot, 2)).sum().backward()
    assert frozen.l.grad is not None


def test_learnable_parameters_are_printed(capsys):
    robot = DifferentiableRobotModel(DATA / ROBOTS["two_link"])
    robot.print_learnable_params()
    assert capsys.readouterr().out == ""
    robot.make_link_param_learnable("arm1", "mass", Positive(1.0))
    robot.print_learnable_params()
    assert "_bodies.1.inertia.mass.raw" in capsys.readouterr().out


def test_copies_and_pickles_learn_on_their_own():
    robot = DifferentiableRobotModel(DATA / ROBOTS["two_link"])
    robot.make_link_param_learnable("arm1", "mass", Positive(1.0))
    inputs = state(robot, 2)
    before = robot.compute_inverse_dynamics(*inputs)
    for other in (copy.deepcopy(robot), pickle.loads(pickle.dumps(robot))):
        torch.testing.assert_close(other.compute_inverse_dynamics(*inputs), before)
        with torch.no_grad():
            next(iter(other.parameters())).add_(1.0)
        assert not torch.equal(other.compute_inverse_dynamics(*inputs), before)
    torch.testing.assert_close(robot.compute_inverse_dynamics(*inputs), before)


class Gives(torch.nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self):
        return self.value


@pytest.mark.parametrize(
    ("link", "parameter", "module", "message"),
    [
        ("arm9", "mass", Positive(1.0), "no link 'arm9'; links: base, arm1, arm2, endEffector"),
        ("arm1", "weight", Positive(1.0), "no parameter 'weight' of links; parameters: trans, rot_angles"),
        ("arm1", "mass", 1.0, "'mass' of link 'arm1' needs a torch.nn.Module, got a float"),
        ("arm1", "com", Gives(torch.ones(2)), r"'com' of link 'arm1': Gives returned \(2,\); .* 3 numbers"),
        ("arm1", "inertia_mat", Gives(torch.ones(3)), "must return a tensor of 9 or 6 numbers"),
        ("arm1", "mass", Gives(torch.tensor(float("nan"))), "'mass' of link 'arm1': Gives returned nan"),
    ],
)
def test_bad_parameters_are_named(link, parameter, module, message):
    robot = DifferentiableRobotModel(DATA / ROBOTS["two_link"])
    with pytest.raises(InputError, match=message):
        robot.make_link_param_learnable(link, parameter, module)


def test_a_parameter_that_turns_bad_is_named():
    robot = DifferentiableRobotModel(DATA / ROBOTS["two_link"])
    module = Gives(torch.tensor(1.0))
    robot.make_link_param_learnable("arm1", "mass", module)
    inputs = state(robot, 2)
    robot.compute_inverse_dynamics(*inputs)
    module.value = torch.tensor(float("nan"))
    with pytest.raises(InputError, match="'mass' of link 'arm1': Gives returned nan"):
        robot.compute_inverse_dynamics(*inputs)
    module.value = torch.ones(2)
    with pytest.raises(InputError, match=r"'mass' of link 'arm1': Gives returned \(2,\); .* 1 numbers"):
        robot.compute_inverse_dynamics(*inputs)
    module.value = torch.tensor(1.0)
    assert robot.compute_inverse_dynamics(torch.full((2, 2), torch.nan), *inputs[1:]).isnan().any()


def test_other_bad_input_is_named(tmp_path, monkeypatch):
    robot = ours("two_link")
    q, qd, f = state(robot, 2)
    with pytest.raises(InputError, match="no link 'tip'; links: base"):
        robot.compute_forward_kinematics(q, "tip")
    with pytest.raises(InputError, match=r"'qd' must have the shape \(..., 2\)"):
        robot.compute_forward_dynamics(q, qd[:, :1], f)
    with pytest.raises(InputError, match="'mass' of link 'arm1' is not learnable; learnable: none"):
        robot.freeze_learnable_link_param("arm1", "mass")
    with pytest.raises(ModelError, match="no such file"):
        DifferentiableRobotModel(tmp_path / "missing.urdf")
    monkeypatch.setattr(robot_model.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install differentiable-robot-model"):
        robot_model.DifferentiableKUKAiiwa()


@pytest.mark.parametrize(
    ("named", "dofs"),
    [
        ("DifferentiableKUKAiiwa", 7),
        ("DifferentiableFrankaPanda", 7),
        ("DifferentiableTwoLinkRobot", 2),
        ("DifferentiableTrifingerEdu", 9),
    ],
)
def test_robots_of_the_peer_are_there_by_name(named, dofs):
    assert getattr(robot_model, named)()._n_dofs == dofs


# Epochs


def data(robot, count=37):
    truth = ours("two_link")
    q, qd, f = state(robot, count, dtype=F64)
    return q, qd, f, truth.compute_forward_dynamics(q, qd, f)


def two_link(*modules):
    robot = DifferentiableRobotModel(DATA / ROBOTS["two_link"]).double()
    for (link, parameter), module in zip((("arm1", "mass"), ("arm2", "mass")), modules, strict=False):
        robot.make_link_param_learnable(link, parameter, module)
    return robot


def pairs():
    def masses():
        return [Positive(torch.tensor(value, dtype=F64)) for value in (0.5, 2.0)]

    shared = Positive(torch.tensor(0.5, dtype=F64))
    foreign = [theirs_params.PositiveScalar(init_param=torch.tensor([0.5], dtype=F64))]
    frozen = masses()
    frozen[0].requires_grad_(False)
    return {"two": masses(), "shared": [shared, shared], "foreign": foreign, "frozen": frozen}


@pytest.mark.parametrize("which", list(pairs()))
@pytest.mark.parametrize("quantity", ["forward_dynamics", "inverse_dynamics"])
def test_an_epoch_is_what_the_loop_does(which, quantity):
    robots = [two_link(*pairs()[which]) for _ in range(2)]
    q, qd, f, qdd = data(robots[0])
    given, target = (f, qdd) if quantity == "forward_dynamics" else (qdd, f)
    variance = target.var(0)
    optimizers = [torch.optim.Adam([p for p in robot.parameters() if p.requires_grad], lr=0.05) for robot in robots]
    for _ in range(2):
        losses = []
        for rows in zip(*[tensor.split(10) for tensor in (q, qd, given, target)], strict=True):
            optimizers[0].zero_grad()
            call = getattr(robots[0], f"compute_{quantity}")
            loss = ((call(*rows[:3], use_damping=True) - rows[3]) ** 2 / variance).mean()
            loss.backward()
            optimizers[0].step()
            losses.append(loss.detach())
        found = train_epoch(
            robots[1], optimizers[1], quantity, q, qd, given, target, batch_size=10, variance=variance, use_damping=True
        )
        torch.testing.assert_close(found, torch.stack(losses), rtol=1e-10, atol=0.0)
    for one, other in zip(robots[0].parameters(), robots[1].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=0.0)


def test_epochs_in_random_order_find_the_masses():
    robot = two_link(*pairs()["two"])
    optimizer = torch.optim.Adam(robot.parameters(), lr=0.1)
    slower = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    torch.manual_seed(0)
    for _ in range(100):
        losses = train_epoch(robot, optimizer, "forward_dynamics", *data(robot), batch_size=8, shuffle=True)
        slower.step()
    assert losses.mean() < 1e-3
    assert [raw.exp().item() for raw in robot.parameters()] == pytest.approx([1.0, 1.0], abs=0.02)


def test_bad_epochs_are_named():
    robot = two_link(*pairs()["two"])
    optimizer = torch.optim.SGD(robot.parameters(), lr=0.1)
    q, qd, f, qdd = data(robot)
    with pytest.raises(InputError, match="no quantity 'torque'; quantities: inverse_dynamics, forward_dynamics"):
        train_epoch(robot, optimizer, "torque", q, qd, f, qdd)
    with pytest.raises(InputError, match=r"'target' must be \[N, n\], as q is \(37, 2\); got \(36, 2\)"):
        train_epoch(robot, optimizer, "forward_dynamics", q, qd, f, qdd[1:])
    with pytest.raises(InputError, match="batch_size must be a whole number of at least 1, got 0"):
        train_epoch(robot, optimizer, "forward_dynamics", q, qd, f, qdd, batch_size=0)
    with torch.no_grad():
        next(iter(robot.parameters())).fill_(torch.nan)
    with pytest.raises(InputError, match="'mass' of link 'arm1': Positive returned nan"):
        train_epoch(robot, optimizer, "forward_dynamics", q, qd, f, qdd)


def test_bodies_have_what_the_others_have_before_any_update():
    for name in ROBOTS:
        mine, other = ours(name), theirs(name)
        assert mine._controlled_joints == other._controlled_joints
        for one, two in zip(mine._bodies, other._bodies, strict=True):
            assert (one.name, one.joint_id, one.joint_idx) == (two.name, two.joint_id, two.joint_idx)
            assert (one.get_joint_limits() is None) == (two.get_joint_limits() is None)
            for key, value in (two.get_joint_limits() or {}).items():
                assert one.get_joint_limits()[key] == pytest.approx(value)
            if two.joint_limits is not None:
                assert torch.allclose(one.joint_axis, two.joint_axis)
                assert torch.allclose(one.get_joint_damping_const(), two.get_joint_damping_const())
        fresh = DifferentiableRobotModel(DATA / ROBOTS[name], name)._bodies[1]
        assert torch.equal(fresh.pose.translation(), torch.zeros(1, 3))
        assert torch.equal(fresh.vel.ang, torch.zeros(1, 3))


def test_the_old_forward_dynamics_and_the_data_sets():
    from adjoin.compat.differentiable_robot_model import data_utils as own_utils

    assert robot_model.robot_description_folder == str(DATA)
    robot = ours("iiwa")
    data = own_utils.generate_random_inverse_dynamics_data(robot, 5)
    q, qd, qdd, tau = data[:]
    assert torch.allclose(robot.compute_forward_dynamics_old(q, qd, tau), qdd, atol=1e-2, rtol=1e-3)
    assert (len(data), data.var().shape) == (5, (7,))
    swing = own_utils.generate_sine_motion_forward_dynamics_data(robot, 20, 0.25, 0.1)
    other = data_utils.generate_sine_motion_forward_dynamics_data(theirs("iiwa"), 20, 0.25, 0.1)
    for mine, expected in zip([*swing[:], swing.var()], [*other[:], other.var()], strict=True):
        assert torch.allclose(mine, expected, atol=1e-4)
    drawn = []
    for utils, each in ((own_utils, robot), (data_utils, theirs("iiwa"))):
        np.random.seed(1)
        drawn.append(utils.generate_random_forward_kinematics_data(each, 3, "iiwa_link_ee"))
        drawn[-1]["states"] = utils.generate_random_inverse_dynamics_data(each, 3)[:]
    torch.testing.assert_close(*drawn, atol=1e-4, rtol=1e-5)


def test_links_without_inertia_can_weigh_a_kilogram_as_there():
    text = """<robot name="r"><link name="a"/><link name="b"/><joint name="j" type="revolute"><parent link="a"/>
        <child link="b"/><axis xyz="0 0 1"/><limit lower="-1" upper="1" velocity="1" effort="1"/></joint></robot>"""
    robot = DifferentiableRobotModel(text, unit_inertia=True)
    assert robot.compute_lagrangian_inertia_matrix(torch.zeros(1)).tolist() == [[1.0]]


@pytest.mark.parametrize("name", ["iiwa", "trifinger"])
def test_the_recursion_over_links_is_the_peers(name):
    peer = theirs_of(DATA / ROBOTS[name])
    robot = DifferentiableRobotModel(DATA / ROBOTS[name], unit_inertia=True)  # theirs has 1 kg where a file has none
    q, qd, qdd = state(robot, 3)
    base = torch.zeros(3, 3), torch.tensor([0.0, 0.0, 9.81]).expand(3, 3)
    for each, vector in ((robot, spatial_vector_algebra.SpatialMotionVec), (peer, theirs_vectors.SpatialMotionVec)):
        each.update_kinematic_state(q, qd)
        for k, index in enumerate(each._controlled_joints):
            each._bodies[index].update_joint_acc(qdd[:, k : k + 1])
        each.iterative_newton_euler(vector(base[1], base[0]))
    for own, other in zip(robot._bodies, peer._bodies, strict=True):
        for part in ("acc", "force"):
            found, expected = getattr(own, part).get_vector(), getattr(other, part).get_vector()
            near = {"rtol": 1e-4, "atol": 1e-4 * max(1.0, float(expected.abs().max()))}
            torch.testing.assert_close(found, expected.expand_as(found), **near)


@pytest.mark.parametrize("name", ["iiwa", "trifinger", "allegro"])
def test_joints_of_bodies_are_the_peers(name):
    robot, peer = DifferentiableRobotModel(DATA / ROBOTS[name]), theirs_of(DATA / ROBOTS[name])
    q, qd, _ = state(robot, 3)
    moving = [(k, peer._bodies[index].name) for k, index in enumerate(peer._controlled_joints)]
    poses = [each._bodies[0].forward_kinematics({n: q[:, k : k + 1] for k, n in moving}) for each in (robot, peer)]
    assert set(poses[0]) == set(poses[1])
    for link, pose in poses[0].items():
        expected = poses[1][link]
        torch.testing.assert_close(pose.translation().expand(3, 3), expected.translation().expand(3, 3))
        torch.testing.assert_close(pose.rotation().expand(3, 3, 3), expected.rotation().expand(3, 3, 3))
    for each in (robot, peer):
        each._bodies[peer._controlled_joints[1]].update_joint_state(q[:, :1], qd[:, :1])
    own, other = (each._bodies[peer._controlled_joints[1]] for each in (robot, peer))
    torch.testing.assert_close(own.joint_pose.rotation(), other.joint_pose.rotation())
    torch.testing.assert_close(own.joint_vel.get_vector(), other.joint_vel.get_vector())
    for each in (robot, peer):
        each.update_kinematic_state(q, qd)
    for own, other in zip(robot._bodies, peer._bodies, strict=True):
        assert isinstance(own, robot_model.DifferentiableRigidBody)
        if other.joint_idx is not None:
            torch.testing.assert_close(own.joint_pose.translation(), other.joint_pose.translation())
            torch.testing.assert_close(own.joint_pose.rotation(), other.joint_pose.rotation())
            torch.testing.assert_close(own.joint_vel.get_vector(), other.joint_vel.get_vector())


def test_frames_vectors_and_inertias_are_the_peers():
    own, peer = ours("iiwa"), theirs("iiwa")
    turns = torch.tensor([[0.3, -1.2, 2.0], [1.1, 0.4, -0.7]])
    place, shift, lin, ang, share = torch.randn(5, 2, 3)
    found = []
    for each, robot in ((spatial_vector_algebra, own), (theirs_vectors, peer)):
        rotation = each.z_rot(turns[:, :1]) @ each.y_rot(turns[:, 1:2]) @ each.x_rot(turns[0, 2])
        frame, other = each.CoordinateTransform(rotation, place), each.CoordinateTransform(trans=shift[0])
        motion, force = each.SpatialMotionVec(lin, ang), each.SpatialForceVec(lin, ang)
        inertia = robot._bodies[2].inertia
        moved = [
            motion.transform(frame),
            force.transform(frame),
            motion.multiply(share[:, 0]),
            force.multiply(share[:, 0]),
        ]
        moved += [inertia.multiply_motion_vec(motion), each.SpatialMotionVec(device="cpu")]
        back, further = frame.inverse(), frame.multiply_transform(other)
        parts = [x for at in (frame, back, further) for x in (at.rotation(), at.translation())]
        parts += [vector.get_vector() for vector in moved] + [motion.dot(motion), force.dot(force)]
        parts += [frame.trans_cross_rot(), frame.to_matrix(), frame.to_matrix_transpose(), inertia.get_spatial_mat()]
        found.append([*parts, frame.get_quaternion()])
    for mine, expected in zip(*found, strict=True):
        torch.testing.assert_close(mine, expected)


@pytest.mark.parametrize("net", ["SymmPosDef3DInertiaMatrixNet", "CovParameterized3DInertiaMatrixNet"])
def test_factors_of_inertias_are_the_peers(net):
    mine, peer = getattr(rigid_body_params, net)(), getattr(theirs_params, net)()
    raw = torch.randn(4, 6)
    assert torch.equal(mine.get_l(mine.get_raw_l(raw)), peer.get_l(peer.get_raw_l(raw)))
    assert torch.equal(mine.get_L(raw), peer.get_L(raw))
    for one, two in zip(*(each.get_symm_pos_semi_def_matrix_and_l(raw) for each in (mine, peer)), strict=True):
        torch.testing.assert_close(one, two)


def test_an_inertia_of_six_learned_numbers_multiplies_motions():
    robot = DifferentiableRobotModel(DATA / ROBOTS["iiwa"])
    inertia = robot._bodies[2].inertia
    before = inertia.get_spatial_mat()
    matrix = inertia.inertia_mat()[0]
    six = rigid_body_params.UnconstrainedTensor(1, 6, init_tensor=matrix[[0, 0, 0, 1, 1, 2], [0, 1, 2, 1, 2, 2]][None])
    robot.make_link_param_learnable(robot._bodies[2].name, "inertia_mat", six)
    torch.testing.assert_close(inertia.get_spatial_mat(), before)
