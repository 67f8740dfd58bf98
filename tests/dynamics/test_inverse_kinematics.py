import math

import pytest
import torch
from kernel_checks import DEVICES, check_invariance, check_kernel
from kinds import every_kind
from peers import robot

from adjoin.dynamics import inverse_kinematics as room
from adjoin.dynamics.inverse_kinematics import inverse_kinematics
from adjoin.dynamics.jacobian import jacobian
from adjoin.dynamics.kinematics import forward_kinematics
from adjoin.errors import InputError
from adjoin.model.joint import Joint
from adjoin.model.model import Model
from adjoin.model.parts import WORLD, Body, Frame

ARMS = {
    "iiwa7": "iiwa_link_7",
    "panda": "panda_hand",
    "xarm7": "link7",
    "ur5": "wrist_3_link",
    "fetch_arm": "wrist_roll_link",
}
LEG = ("FL_hip_joint", "FL_thigh_joint", "FL_calf_joint")
G1_ARM = tuple(f"left_{name}_joint" for name in ("shoulder_pitch", "shoulder_roll", "shoulder_yaw", "elbow")) + tuple(
    f"left_wrist_{axis}_joint" for axis in ("roll", "pitch", "yaw")
)


def source(seed=0, device="cpu"):
    return torch.Generator(device).manual_seed(seed)


def inside(model, q):
    lower, upper = (torch.tensor(ends, dtype=q.dtype) for ends in model.limits())
    return q.clamp(lower, upper)


def posed(model, count, joints=None, dtype=torch.float32, seed=0):
    """Random configurations, of which only the named joints differ from the neutral one."""
    q = model.random((count,), generator=source(seed), dtype=dtype)
    if joints is None:
        return q
    mixed = inside(model, model.neutral((count,), dtype=dtype))
    places = [model.coordinates[model.joint_index(name)].q for name in joints]
    mixed[:, places] = q[:, places]
    return mixed


def pose(model, q, frame, kind="homogeneous"):
    if kind == "position":
        return forward_kinematics(model, q, frame)[..., :3, 3].contiguous()
    return forward_kinematics(model, q, frame, output=kind)


def missed(model, q, frame, target):
    """Distance and angle, from 4x4 matrices in float64."""
    here, there = forward_kinematics(model, q, frame).double(), target.double()
    turned = here[..., :3, :3] @ there[..., :3, :3].mT
    axis = torch.stack([turned[..., i, j] - turned[..., j, i] for i, j in ((2, 1), (0, 2), (1, 0))], -1) / 2
    cosine = (turned.diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2
    return (here - there)[..., :3, 3].norm(dim=-1), torch.atan2(axis.norm(dim=-1), cosine)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ARMS)
def test_random_poses_of_arms_are_reached_within_the_limits(name, device):
    model, frame = robot(name), ARMS[name]
    target = pose(model, posed(model, 1000), frame)
    found = inverse_kinematics(model, {frame: target.to(device)}, generator=source(1, device))
    found = type(found)(*[x.cpu() for x in found])
    assert found.success.double().mean() >= 0.99
    distance, angle = missed(model, found.q, frame, target)
    assert torch.equal(found.q, inside(model, found.q))
    assert float(distance[found.success].max()) < 1.02e-4
    assert float(angle[found.success].max()) < 1.02e-3
    assert float((distance - found.position_error[:, 0]).abs().max()) < 2e-6
    assert float((angle - found.rotation_error[:, 0]).abs().max()) < 2e-5
    assert int(found.iterations.max()) <= 30


@pytest.mark.parametrize(
    ("name", "frames", "joints", "kind"),
    [
        ("go2", ("FL_foot",), LEG, "position"),
        ("go2", ("FL_foot",), LEG, "quaternion"),
        ("go2", ("FL_foot", "FR_foot", "RL_foot", "RR_foot"), None, "position"),
        ("g1", ("left_rubber_hand",), G1_ARM, "quaternion"),
        ("g1", ("left_rubber_hand", "right_rubber_hand", "left_ankle_roll_link"), None, "quaternion"),
    ],
    ids=["leg", "leg with fewer joints than rows", "floating base", "arm of a humanoid", "whole body"],
)
def test_legs_and_floating_robots(name, frames, joints, kind):
    model = robot(name)
    q = posed(model, 500, joints)
    targets = {frame: pose(model, q, frame, kind) for frame in frames}
    start = inside(model, model.neutral(dtype=torch.float32))
    found = inverse_kinematics(model, targets, start, joints=joints, generator=source(1))
    assert found.success.double().mean() >= 0.99
    for k, frame in enumerate(frames):
        distance, angle = missed(model, found.q, frame, pose(model, q, frame))
        assert float(distance[found.success].max()) < 1.05e-4
        assert kind == "position" or float(angle[found.success].max()) < 1.02e-3
        assert found.rotation_error[found.success, k].max() <= (0.0 if kind == "position" else 1e-3)
    moving = {model.coordinates[model.joint_index(j)].q for j in joints or ()}
    still = [k for k in range(model.nq) if joints and k not in moving]
    assert torch.equal(found.q[:, still], start[still].expand(500, -1))


def test_every_kind_of_joint_moves_on_its_manifold():
    model = every_kind()
    q = posed(model, 300, dtype=torch.float64)
    kinds = {"slider_site": "homogeneous", "wheel_site": "quaternion", "pusher_site": "position"}
    targets = {frame: pose(model, q, frame, kind) for frame, kind in kinds.items()}
    found = inverse_kinematics(model, targets, generator=source(2))
    assert found.success.double().mean() >= 0.99
    assert torch.allclose(found.q, model.normalize(found.q), atol=1e-14)
    for frame, kind in kinds.items():
        distance, angle = missed(model, found.q, frame, pose(model, q, frame))
        assert float(distance[found.success].max()) < 1e-4
        assert kind == "position" or float(angle[found.success].max()) < 1e-3


def test_the_nearest_solution_to_the_start_is_taken():
    model, frame = robot("iiwa7"), ARMS["iiwa7"]
    q = 0.7 * posed(model, 200, dtype=torch.float64)
    near = q + 1e-3 * torch.randn(200, 7, generator=source(), dtype=torch.float64)
    found = inverse_kinematics(model, {frame: pose(model, q, frame)}, near, generator=source(1))
    assert found.success.all()
    assert float((found.q - near).norm(dim=-1).max()) < 0.02
    again = inverse_kinematics(model, {frame: pose(model, q, frame)}, q, generator=source(1))
    assert torch.equal(again.q, q)
    assert int(again.iterations.max()) == 0


def test_solutions_stay_put_while_others_go_on():
    model, frame = robot("panda"), ARMS["panda"]
    target = pose(model, posed(model, 300), frame)
    few, more = (
        inverse_kinematics(model, {frame: target}, seeds=1, iterations=n, generator=source(3)) for n in (12, 40)
    )
    assert 50 < int(few.success.sum()) < int(more.success.sum())
    for a, b in zip(few, more, strict=True):
        assert torch.equal(a[few.success], b[few.success])


def test_more_steps_are_never_worse_and_unreachable_targets_settle():
    model, frame = robot("ur5"), ARMS["ur5"]
    target = pose(model, posed(model, 200, dtype=torch.float64), frame)
    target[:, :3, 3] *= 2.0
    options = {"seeds": 4, "weights": (1.0, 0.0)}
    sizes = [
        inverse_kinematics(model, {frame: target}, iterations=n, generator=source(), **options).position_error[:, 0]
        for n in (5, 20, 60)
    ]
    assert (sizes[1] <= sizes[0]).all()
    assert (sizes[2] <= sizes[1]).all()
    found = inverse_kinematics(model, {frame: target}, iterations=200, generator=source(), **options)
    out_of_reach = found.position_error[:, 0] > 0.1
    rows = jacobian(model, found.q, frame, "local_world_aligned")[:, :3]
    away = forward_kinematics(model, found.q, frame)[:, :3, 3] - target[:, :3, 3]
    push = (rows.mT @ away[..., None])[..., 0]
    lower, upper = (torch.tensor(ends, dtype=torch.float64) for ends in model.limits())
    push[((found.q <= lower) & (push > 0)) | ((found.q >= upper) & (push < 0))] = 0.0
    assert int(out_of_reach.sum()) > 50
    assert float(push[out_of_reach].norm(dim=-1).median()) < 1e-3


def test_limits_hold_from_the_first_step_on_and_can_be_let_go_or_given():
    model, frame = robot("panda"), ARMS["panda"]
    target = pose(model, 3.0 * torch.randn(200, model.nq, generator=source()), frame)
    outside = torch.full((model.nq,), 100.0)
    for steps in (1, 2, 30):
        found = inverse_kinematics(model, {frame: target}, outside, iterations=steps, seeds=2, generator=source())
        arm = found.q[:, :7]
        assert torch.equal(arm, inside(model, found.q)[:, :7])
    assert float(found.success.double().mean()) < 0.9
    free = inverse_kinematics(model, {frame: target}, limits=False, generator=source())
    assert float(free.success.double().mean()) > 0.99
    assert not torch.equal(free.q, inside(model, free.q))
    lower = model.parameters()["lower"].expand(200, -1) * torch.linspace(0.3, 0.5, 200)[:, None]
    narrow = {"lower": lower, "upper": 0.5 * model.parameters()["upper"]}
    found = inverse_kinematics(model, {frame: target}, params=narrow, generator=source())
    assert (found.q[:, :7] >= lower[:, :7]).all()
    assert (found.q[:, :7] <= narrow["upper"][:7]).all()


def test_a_ball_joint_stays_inside_its_cone():
    ball = Body("upper", WORLD, Joint("shoulder", "ball", upper=0.5), mass=1.0, inertia=(1.0, 0.0, 0.0, 1.0, 0.0, 1.0))
    model = Model("shoulder", (ball,), (Frame("hand", 0, (0.0, 0.0, 1.0)),))
    target = torch.tensor([[1.0, 0.0, 0.0], [0.3, 0.2, 0.9]], dtype=torch.float64)
    target = target / target.norm(dim=-1, keepdim=True)
    found = inverse_kinematics(model, {"hand": target}, generator=source())
    angle = 2 * torch.atan2(found.q[:, 1:].norm(dim=-1), found.q[:, 0].abs())
    assert found.success.tolist() == [False, True]
    assert abs(float(angle[0]) - 0.5) < 1e-12
    assert float(angle[1]) < 0.5


def test_angles_of_continuous_joints_come_out_within_one_turn():
    model, frame = robot("fetch_arm"), ARMS["fetch_arm"]
    q = posed(model, 100)
    turned = q + 4 * math.pi * torch.tensor([joint.kind == "continuous" for joint in model.joints])
    found = inverse_kinematics(model, {frame: pose(model, q, frame)}, turned, seeds=1)
    assert found.success.all()
    assert float(found.q.abs().max()) <= math.pi


def test_a_bad_target_leaves_the_others_alone():
    model, frame = robot("ur5"), ARMS["ur5"]
    target = pose(model, posed(model, 8), frame, "quaternion")
    bad = target.clone()
    bad[3, 1] = math.nan
    good, mixed = (inverse_kinematics(model, {frame: x}, generator=source()) for x in (target, bad))
    others = [0, 1, 2, 4, 5, 6, 7]
    for a, b in zip(good, mixed, strict=True):
        assert torch.equal(a[others], b[others])
    assert not mixed.success[3]
    assert torch.isinf(mixed.position_error[3]).all()
    assert torch.isfinite(mixed.q).all()


def test_gradients_follow_the_target():
    model, frame = robot("iiwa7"), ARMS["iiwa7"]
    q = 0.6 * posed(model, 100, dtype=torch.float64)
    target = pose(model, q, frame, "quaternion").requires_grad_()
    found = inverse_kinematics(model, {frame: target}, q, tolerance=(1e-9, 1e-9), generator=source())
    assert torch.equal(found.q.detach(), q)
    again = pose(model, found.q, frame, "quaternion")
    weights = torch.randn(100, 7, generator=source(), dtype=torch.float64)
    (gradient,) = torch.autograd.grad((again * weights).sum(), target)
    quaternion, turning = again[:, 3:].detach(), weights[:, 3:]
    across = turning - (turning * quaternion).sum(-1, keepdim=True) * quaternion
    expected = torch.cat([weights[:, :3], across], -1)
    regular = torch.linalg.svdvals(jacobian(model, q, frame))[:, -1] > 0.1
    assert int(regular.sum()) >= 10
    assert float((gradient - expected)[regular].abs().max()) < 1e-8


def test_gradients_agree_with_solving_again_and_limits_hold_in_them():
    model, frame = robot("ur5"), ARMS["ur5"]
    q = torch.tensor([0.3, -1.2, 1.4, -0.9, 1.1, 0.2], dtype=torch.float64)
    q = q + 0.1 * torch.randn(6, 6, generator=source(), dtype=torch.float64)
    options = {"tolerance": (1e-13, 1e-13), "seeds": 1}
    target = pose(model, q, frame).requires_grad_()
    length = model.parameters(dtype=torch.float64)["joint_position"].requires_grad_()
    weights = torch.randn(6, 6, generator=source(), dtype=torch.float64)

    def solved(target, length):
        return inverse_kinematics(model, {frame: target}, q, params={"joint_position": length}, **options).q

    gradients = torch.autograd.grad((solved(target, length) * weights).sum(), (target, length))
    shift = torch.zeros(4, 4, dtype=torch.float64)
    shift[:3, 3] = torch.tensor([1.0, -2.0, 0.5])
    longer = torch.randn(length.shape, generator=source(), dtype=torch.float64)
    with torch.no_grad():
        for gradient, change in ((gradients[0], (shift, 0.0 * longer)), (gradients[1], (0.0 * shift, longer))):
            ahead, behind = (solved(target + s * change[0], length + s * change[1]) for s in (1e-6, -1e-6))
            expected = ((ahead - behind) * weights).sum() / 2e-6
            found = (gradient * (change[0] if gradient.shape[-1] == 4 else change[1])).sum()
            assert abs(float(found - expected)) < 1e-5 * abs(float(expected))
    held = robot("two_link")
    at_limit = torch.tensor([[0.3, held.limits()[1][1]]], dtype=torch.float64)
    place = pose(held, at_limit, held.frames[-1].name, "position").requires_grad_()
    found = inverse_kinematics(held, {held.frames[-1].name: place}, at_limit, seeds=1)
    (gradient,) = torch.autograd.grad(found.q[0, 1], place, retain_graph=True)
    assert float(gradient.abs().max()) == 0.0
    (gradient,) = torch.autograd.grad(found.q[0, 0], place)
    assert float(gradient.abs().max()) > 0.1


def test_weights_leave_position_or_rotation_free():
    model, frame = robot("ur5"), ARMS["ur5"]
    target = pose(model, posed(model, 100), frame)
    for weights, free in (((1.0, 0.0), 1), ({frame: (0.0, 1.0)}, 0)):
        found = inverse_kinematics(model, {frame: target}, weights=weights, generator=source(1))
        errors = missed(model, found.q, frame, target)
        assert found.success.all()
        assert float(errors[1 - free].max()) < 1.02e-3
        assert float(errors[free].median()) > 0.05


def test_batches_broadcast():
    model, frame = robot("ur5"), ARMS["ur5"]
    target = pose(model, posed(model, 3), frame)
    start = 0.3 * torch.randn(4, 1, 6, generator=source())
    params = {"gravity": torch.zeros(3)}
    found = inverse_kinematics(model, {frame: target}, start, params=params, generator=source())
    assert found.q.shape == (4, 3, 6)
    assert found.success.shape == found.iterations.shape == (4, 3)
    assert found.position_error.shape == (4, 3, 1)
    alone = inverse_kinematics(model, {frame: target[0]}, generator=source())
    assert alone.q.shape == (6,)
    assert alone.success


def test_the_kernels_are_sound():
    model, frame = robot("ur5"), ARMS["ur5"]
    q = 0.5 * posed(model, 9, dtype=torch.float64)
    target = pose(model, 0.5 * posed(model, 9, dtype=torch.float64, seed=1), frame, "quaternion")
    tracked = target[:2].clone().requires_grad_()
    inverse_kinematics(model, {frame: tracked}, q[:2], tolerance=(1e-5, 1e-5))
    functions = room._functions.of(model).items()
    kernels = {purpose: function for (problem, purpose), function in functions if problem.tolerance[0] == 1e-5}
    for device in DEVICES:
        check_invariance(kernels["solve"].kernel, [q.to(device), target.to(device)], (8,))
    check_kernel(kernels["improve"].kernel, [q, pose(model, q, frame, "quaternion")], second=False)


def test_errors_say_what_would_be_right():
    model, frame = robot("ur5"), ARMS["ur5"]
    target = torch.zeros(2, 3)
    for arguments, message in [
        (({},), "it is empty"),
        (({"hand": target},), r"no frame 'hand'.*wrist_3_link"),
        (({frame: torch.zeros(2, 5)},), r"\(\.\.\., 4, 4\), .* got \(2, 5\) torch.float32"),
        (({frame: torch.zeros(2, 3, dtype=torch.int64)},), "floating-point"),
        (({frame: target}, torch.zeros(2, 5)), r"'q0' must be a tensor \(\.\.\., 6\)"),
        (({frame: target}, torch.zeros(3, 6)), r"do not broadcast: .* \(2,\), q0 \(3,\)"),
        (({"world": target},), "no joint moves world"),
    ]:
        with pytest.raises(InputError, match=message):
            inverse_kinematics(model, *arguments)
    for options, message in [
        ({"joints": ["elbow"]}, r"no joint 'elbow'.*elbow_joint"),
        ({"seeds": 0}, "'seeds' must be a whole number of at least 1"),
        ({"iterations": 1.5}, "'iterations' must be"),
        ({"weights": (0.0, 1.0)}, "positive for something"),
        ({"weights": {"other": (1.0, 1.0)}}, "got None"),
        ({"params": {"masses": torch.zeros(6)}}, "no parameter 'masses'"),
    ]:
        with pytest.raises(InputError, match=message):
            inverse_kinematics(model, {frame: target}, **options)
