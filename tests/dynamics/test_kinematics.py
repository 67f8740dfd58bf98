import functools

import numpy as np
import pinocchio
import pytest
import torch
from kernel_checks import check_kernel
from kinds import ALL, REFERENCES, branched, every_kind, floating, named, names, some
from peers import close, robot, states
from reference import Reference, worst

import adjoin
from adjoin.dynamics.call import compute
from adjoin.dynamics.kinematics import forward_kinematics, frame_acceleration, frame_velocity
from adjoin.errors import InputError
from adjoin.spatial.rotation import from_quaternion, quaternion_multiply


def operations(model, frames, **options):
    """How many a kernel of forward kinematics has."""

    @adjoin.function(q=model.nq)
    def traced(q):
        return forward_kinematics(model, q, frames, **options)

    return traced.kernel.program.operations


def rotations(quaternions):
    rows = from_quaternion(quaternions.unbind(-1))
    return torch.stack([torch.stack(row, -1) for row in rows], -2)


def moved(model, q, v, a, time):
    """The state a little later or earlier: exact to second order in q, and to first in v."""
    return model.integrate(q, v + 0.5 * time * a, time), v + time * a


@pytest.mark.parametrize("name", ALL)
def test_poses_velocities_and_accelerations_agree_with_pinocchio(name):
    model = named(name)
    q, v, a = states(model, 20, spin=10.0)
    asked = {"poses": "forward_kinematics", "turned": ("forward_kinematics", {"output": "quaternion"})}
    for reference in REFERENCES:
        options = {"frame": some(model), "reference": reference}
        asked["velocity", reference] = ("frame_velocity", options)
        asked["acceleration", reference] = ("frame_acceleration", options)
        asked["classical", reference] = ("frame_acceleration", {**options, "classical": True})
    found = compute(model, q, v, a, quantities=asked)
    peer = Reference(model)
    pin, data, full = peer.peer.pin, peer.peer.data, peer.ratios
    calls = {
        "velocity": pinocchio.getFrameVelocity,
        "acceleration": pinocchio.getFrameAcceleration,
        "classical": pinocchio.getFrameClassicalAcceleration,
    }
    for k in range(len(q)):
        pinocchio.forwardKinematics(pin, data, peer.q(q[k]), full @ v[k].numpy(), full @ a[k].numpy())
        pinocchio.updateFramePlacements(pin, data)
        poses = np.stack([data.oMf[peer.peer.frame(frame)].homogeneous for frame in names(model)])
        close(found["poses"][k], poses)
        close(found["turned"][k, :, :3], poses[:, :3, 3])
        close(rotations(found["turned"][k, :, 3:]), poses[:, :3, :3])
        for what, call in calls.items():
            for reference, theirs in REFERENCES.items():
                expected = [call(pin, data, peer.peer.frame(frame), theirs).vector for frame in some(model)]
                close(found[what, reference][k], np.stack(expected))


def test_float32_is_as_good_as_it_can_be():
    model = robot("go2")
    options = {"frame": ("FL_foot", "imu"), "reference": "local_world_aligned"}
    asked = {
        "poses": "forward_kinematics",
        "turned": ("forward_kinematics", {"output": "quaternion"}),
        "velocity": ("frame_velocity", options),
        "acceleration": ("frame_acceleration", {**options, "classical": True}),
    }
    inputs = [x.float() for x in states(model, 500, spin=10.0)]
    single = compute(model, *inputs, quantities=asked)
    double = compute(model, *[x.double() for x in inputs], quantities=asked)
    for what in asked:
        assert worst(single[what], double[what]) < 2e-6, what


def test_the_matrix_output_is_the_upper_part_of_the_homogeneous_one():
    model = every_kind()
    q, _, _ = states(model, 5)
    whole = forward_kinematics(model, q)
    assert whole.shape == (5, len(model.frames), 4, 4)
    assert torch.equal(whole[..., 3, :], torch.tensor([0.0, 0.0, 0.0, 1.0]).double().expand(5, len(model.frames), 4))
    assert torch.equal(forward_kinematics(model, q, output="matrix"), whole[..., :3, :])


def test_frames_come_in_the_order_asked_for_and_one_name_alone_has_no_dimension():
    model = every_kind()
    q, v, a = states(model, 5)
    whole = forward_kinematics(model, q)
    two = forward_kinematics(model, q, ["wheel", "ball"])
    close(two, whole[:, [names(model).index("wheel"), names(model).index("ball")]])
    close(forward_kinematics(model, q, "wheel"), two[:, 0])
    both = frame_velocity(model, q, v, ["wheel", "ball_site"])
    assert both.shape == (5, 2, 6)
    close(frame_velocity(model, q, v, "ball_site"), both[:, 1])
    both = frame_acceleration(model, q, v, a, ["wheel", "ball_site"], "local")
    assert both.shape == (5, 2, 6)
    close(frame_acceleration(model, q, v, a, "ball_site", "local"), both[:, 1])


def test_a_frame_of_the_world_has_its_place_and_rests():
    model = every_kind()
    q, v, a = states(model, 5)
    ground = model.frames[-1]
    pose = forward_kinematics(model, q, "ground", output="matrix")
    close(pose, np.broadcast_to(np.column_stack([ground.rotation, ground.position]), (5, 3, 4)))
    assert torch.equal(frame_velocity(model, q, v, "ground"), torch.zeros(5, 6).double())
    assert torch.equal(
        frame_acceleration(model, q, v, a, "ground", "local", classical=True), torch.zeros(5, 6).double()
    )


@pytest.mark.parametrize("seen_from", ["arm_site", "wheel", "base", "other_site", "ground"])
def test_relative_poses_are_those_seen_from_the_frame(seen_from):
    model = every_kind()
    q, _, _ = states(model, 20)
    asked = {
        "poses": "forward_kinematics",
        "seen": ("forward_kinematics", {"relative_to": seen_from}),
        "turned": ("forward_kinematics", {"relative_to": seen_from, "output": "quaternion"}),
    }
    found = compute(model, q, quantities=asked)
    start = names(model).index(seen_from)
    expected = torch.linalg.inv(found["poses"][:, start : start + 1]) @ found["poses"]
    close(found["seen"], expected)
    close(found["turned"][..., :3], expected[..., :3, 3])
    close(rotations(found["turned"][..., 3:]), expected[..., :3, :3])
    close(found["turned"][:, start], torch.tensor([0.0, 0, 0, 1, 0, 0, 0]).expand(20, 7))


def test_only_what_the_frames_hang_on_is_computed():
    go2 = robot("go2")
    others = {joint.name: 0.3 for joint in go2.joints if joint.nv == 1 and not joint.name.startswith("FL")}
    alone = adjoin.robots.load("go2", lock=others)
    for options in ({}, {"output": "quaternion"}, {"relative_to": "base"}, {"relative_to": "FL_hip"}):
        assert operations(go2, "FL_foot", **options) == operations(alone, "FL_foot", **options)
    assert operations(go2, "base") < 40
    assert operations(go2, "FL_foot") <= 120
    assert operations(go2, "FL_foot", relative_to="base") <= 44
    assert operations(go2, "FL_foot", relative_to="FL_calf") == 0
    assert operations(go2, None) <= 504


def test_frames_of_one_body_share_its_pose():
    go2 = robot("go2")
    assert operations(go2, ("FL_calf", "FL_foot")) == operations(go2, "FL_foot")
    assert operations(go2, ("base", "imu")) <= operations(go2, "base") + 12


def test_quaternions_are_products_of_the_joints_own():
    model = every_kind()
    q, _, _ = states(model, 5)
    ball, arm, slider = forward_kinematics(model, q, ["ball", "arm", "slider"], output="quaternion")[..., 3:].unbind(1)
    placed = model.parameters(dtype=torch.float64)["joint_rotation"][2]
    half, axis = 0.5 * q[:, 11], model.joints[2].axis
    turn = (half.cos(), *[half.sin() * x for x in axis])
    expected = quaternion_multiply(quaternion_multiply(ball.unbind(-1), placed.unbind(-1)), turn)
    close(arm, torch.stack(expected, -1))
    close(slider, arm)
    once_round = q.clone()
    once_round[:, 11] += 2 * torch.pi
    close(forward_kinematics(model, once_round, "arm", output="quaternion")[:, 3:], -arm)


def test_quaternions_change_smoothly_through_half_turns():
    model = robot("two_link")
    q = torch.zeros(2001, 2, dtype=torch.float64)
    q[:, 0] = torch.linspace(-7.0, 7.0, 2001, dtype=torch.float64)
    turns = forward_kinematics(model, q, "arm2", output="quaternion")[:, 3:]
    close(turns.norm(dim=-1), np.ones(2001))
    assert (turns[1:] - turns[:-1]).norm(dim=-1).max() <= 0.5 * 14.0 / 2000 * (1 + 1e-12)


@functools.cache
def around(model, step):
    """What some frames do in a few states, and the rates at which that changes, by differences."""
    q, v, a = states(model, 8, spin=2.0)
    frames = names(model)[2::3]
    asked = {"pose": ("forward_kinematics", {"frames": frames})}
    for reference in REFERENCES:
        options = {"frame": frames, "reference": reference}
        asked["velocity", reference] = ("frame_velocity", options)
        asked["acceleration", reference] = (
            "frame_acceleration",
            {**options, "classical": reference == "local_world_aligned"},
        )
    now, before, after = (
        compute(model, *moved(model, q, v, a, time), a, quantities=asked) for time in (0.0, -step, step)
    )
    return now, {key: (after[key] - before[key]) / (2.0 * step) for key in now}


@pytest.mark.parametrize("model", [every_kind(), robot("panda")], ids=["every_kind", "panda"])
def test_velocities_are_the_rates_of_poses(model):
    now, rate = around(model, 1e-5)
    R, p = now["pose"][..., :3, :3], now["pose"][..., :3, 3]
    turning = _axial(rate["pose"][..., :3, :3] @ R.mT)
    moving = rate["pose"][..., :3, 3]
    aligned = torch.cat([moving, turning], -1)
    close(now["velocity", "local_world_aligned"], aligned, 1e-7)
    close(now["velocity", "world"], torch.cat([moving - turning.cross(p, dim=-1), turning], -1), 1e-7)
    local = [(R.mT @ part[..., None])[..., 0] for part in (moving, turning)]
    close(now["velocity", "local"], torch.cat(local, -1), 1e-7)


@pytest.mark.parametrize("model", [every_kind(), robot("panda")], ids=["every_kind", "panda"])
def test_accelerations_are_the_rates_of_velocities_and_classical_ones_of_points(model):
    now, rate = around(model, 1e-5)
    for reference in REFERENCES:
        close(now["acceleration", reference], rate["velocity", reference], 1e-7)


def _axial(m):
    return 0.5 * torch.stack([m[..., i, k] - m[..., k, i] for i, k in ((2, 1), (0, 2), (1, 0))], -1)


PARAMETERS = ("joint_position", "joint_rotation", "frame_position", "frame_rotation")


@pytest.mark.parametrize("output", ["homogeneous", "quaternion"])
def test_gradients_of_poses_reach_q_and_every_placement(output):
    model = floating()
    q, _, _ = states(model, 2)
    given = {name: value for name, value in model.parameters(dtype=torch.float64).items() if name in PARAMETERS}

    def poses(q, *values):
        params = dict(zip(given, values, strict=True))
        return forward_kinematics(model, q, ("base_site", "slider_site"), params, output=output)

    inputs = [value.requires_grad_() for value in (q, *given.values())]
    assert torch.autograd.gradcheck(poses, inputs, check_forward_ad=True)


def test_gradients_of_relative_quaternions_are_right_at_half_turns():
    model = branched()
    q = model.neutral((1,), dtype=torch.float64)
    q[:, :2] = torch.pi
    q.requires_grad_()

    def turns(q):
        return forward_kinematics(model, q, ("left", "hand_site"), output="quaternion", relative_to="right_site")

    assert torch.autograd.gradcheck(turns, q)


@pytest.mark.parametrize("reference", REFERENCES)
def test_gradients_of_velocities_and_accelerations_reach_every_input(reference):
    model = floating()
    q, v, a = states(model, 2)
    given = {name: value for name, value in model.parameters(dtype=torch.float64).items() if name in PARAMETERS}

    def both(q, v, a, *values):
        options = {"frame": "slider_site", "reference": reference}
        asked = {"v": ("frame_velocity", options), "a": ("frame_acceleration", {**options, "classical": True})}
        found = compute(model, q, v, a, quantities=asked, params=dict(zip(given, values, strict=True)))
        return found["v"], found["a"]

    assert torch.autograd.gradcheck(both, [value.requires_grad_() for value in (q, v, a, *given.values())])


def test_placements_may_differ_between_environments():
    model = floating()
    q, _, _ = states(model, 3)
    position = torch.randn(3, len(model.frames), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = forward_kinematics(model, q, "arm_site", {"frame_position": position})
    for k in range(3):
        changed = model.with_parameters({"frame_position": position[k]})
        close(found[k], forward_kinematics(changed, q[k], "arm_site"))


def test_rotations_given_as_longer_quaternions_are_normalized():
    model = floating()
    q, _, _ = states(model, 3)
    given = ("joint_rotation", "frame_rotation")
    params = {name: 1.7 * value for name, value in model.parameters(dtype=torch.float64).items() if name in given}
    for output in ("matrix", "quaternion"):
        found = forward_kinematics(model, q, "slider_site", params, output=output)
        close(found, forward_kinematics(model, q, "slider_site", output=output))


def test_traced_functions_may_use_them():
    model = floating()
    q, v, _ = states(model, 4)

    @adjoin.function(q=model.nq, v=model.nv)
    def height(q, v):
        pose = forward_kinematics(model, q, "slider_site")
        return [pose[2, 3], frame_velocity(model, q, v, "slider_site", "local_world_aligned")[2]]

    expected = [
        forward_kinematics(model, q, "slider_site")[:, 2, 3],
        frame_velocity(model, q, v, "slider_site", "local_world_aligned")[:, 2],
    ]
    close(height(q, v), torch.stack(expected, -1))


def test_kernels_pass_every_check():
    model = robot("two_link")
    q, v, a = states(model, 5)

    @adjoin.function(q=model.nq, v=model.nv, a=model.nv)
    def everything(q, v, a):
        return {
            "poses": forward_kinematics(model, q, "arm2", output="matrix"),
            "turned": forward_kinematics(model, q, "arm1", output="quaternion", relative_to="arm2"),
            "velocity": frame_velocity(model, q, v, "arm2", "local_world_aligned"),
            "acceleration": frame_acceleration(model, q, v, a, "arm2", "world", classical=True),
        }

    check_kernel(everything.kernel, [q, v, a])


def test_unknown_names_are_refused_with_the_known_ones():
    model = robot("two_link")
    q, v, a = states(model, 2)
    known = ", ".join(names(model))
    with pytest.raises(InputError, match=f"^forward_kinematics: no frame 'hand'; frames: {known}$"):
        forward_kinematics(model, q, "hand")
    with pytest.raises(InputError, match=f"^forward_kinematics: no frame 'hand'; frames: {known}$"):
        forward_kinematics(model, q, relative_to="hand")
    with pytest.raises(InputError, match=f"^frame_velocity: no frame 'hand'; frames: {known}$"):
        frame_velocity(model, q, v, ["arm1", "hand"])
    with pytest.raises(InputError, match=r"^forward_kinematics: no frames were named; name one"):
        forward_kinematics(model, q, [])
    with pytest.raises(InputError, match=r"^forward_kinematics: no output 'se3'; outputs: homogeneous, matrix, quat"):
        forward_kinematics(model, q, output="se3")
    listed = "references: local, world, local_world_aligned$"
    with pytest.raises(InputError, match=f"^frame_velocity: no reference 'body'; {listed}"):
        frame_velocity(model, q, v, "arm1", "body")
    with pytest.raises(InputError, match=f"^frame_acceleration: no reference 'body'; {listed}"):
        frame_acceleration(model, q, v, a, "arm1", "body")
