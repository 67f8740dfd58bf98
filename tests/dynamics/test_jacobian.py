import functools

import pinocchio
import pytest
import torch
from kernel_checks import check_kernel
from kinds import ALL, REFERENCES, every_kind, floating, named, names, some
from peers import close, robot, states
from reference import Reference, worst

import adjoin
from adjoin.dynamics.call import compute
from adjoin.dynamics.jacobian import jacobian, jacobian_derivative
from adjoin.errors import InputError


def operations(model, **options):
    @adjoin.function(q=model.nq)
    def traced(q):
        return jacobian(model, q, **options)

    return traced.kernel.program.operations


@pytest.mark.parametrize("name", ALL)
def test_jacobians_and_their_derivatives_agree_with_pinocchio(name):
    model = named(name)
    q, v, _ = states(model, 20, spin=10.0)
    asked = {}
    for reference in REFERENCES:
        options = {"frame": some(model), "reference": reference}
        asked["jacobian", reference] = ("jacobian", options)
        asked["derivative", reference] = ("jacobian_derivative", options)
    found = compute(model, q, v, quantities=asked)
    peer = Reference(model)
    pin, data, full = peer.peer.pin, peer.peer.data, peer.ratios
    calls = {"jacobian": pinocchio.getFrameJacobian, "derivative": pinocchio.getFrameJacobianTimeVariation}
    for k in range(len(q)):
        pinocchio.computeJointJacobiansTimeVariation(pin, data, peer.q(q[k]), full @ v[k].numpy())
        pinocchio.updateFramePlacements(pin, data)
        for (what, reference), ours in found.items():
            for i, frame in enumerate(some(model)):
                theirs = calls[what](pin, data, peer.peer.frame(frame), REFERENCES[reference]).reshape(6, -1)
                close(ours[k, i], theirs @ full)


def test_float32_is_as_good_as_it_can_be():
    model = robot("go2")
    options = {"frame": "FL_foot", "reference": "local_world_aligned"}
    asked = {"jacobian": ("jacobian", options), "derivative": ("jacobian_derivative", options)}
    q, v, _ = (x.float() for x in states(model, 500, spin=10.0))
    single = compute(model, q, v, quantities=asked)
    double = compute(model, q.double(), v.double(), quantities=asked)
    for what in asked:
        assert worst(single[what], double[what]) < 2e-6, what


@functools.cache
def everything(model):
    """States, and how two frames move in them."""
    q, v, a = states(model, 8, spin=3.0)
    asked = {}
    for reference in REFERENCES:
        options = {"frame": some(model), "reference": reference}
        asked["jacobian", reference] = ("jacobian", options)
        asked["derivative", reference] = ("jacobian_derivative", options)
        asked["velocity", reference] = ("frame_velocity", options)
        classical = reference == "local_world_aligned"
        asked["acceleration", reference] = ("frame_acceleration", {**options, "classical": classical})
    return q, v, a, functools.partial(compute, model, quantities=asked)


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("name", ["every_kind", "panda"])
def test_jacobians_give_velocities_and_accelerations(name, reference):
    q, v, a, at = everything(named(name))
    found = at(q, v, a)
    J, rate = found["jacobian", reference], found["derivative", reference]
    moving, accelerating = v[:, None, :, None], a[:, None, :, None]
    close(found["velocity", reference], (J @ moving)[..., 0])
    close(found["acceleration", reference], (J @ accelerating + rate @ moving)[..., 0])


@pytest.mark.parametrize("reference", REFERENCES)
def test_derivatives_are_differences_of_jacobians(reference):
    model = every_kind()
    q, v, a, at = everything(model)
    step = 1e-6
    before, now, after = (at(model.integrate(q, v, time), v, a) for time in (-step, 0.0, step))
    J = "jacobian", reference
    close(now["derivative", reference], (after[J] - before[J]) / (2 * step), 1e-8)


def test_several_frames_have_a_dimension_and_one_has_none():
    model = every_kind()
    q, v, _ = states(model, 3)
    both = jacobian(model, q, ["wheel_site", "slider"], "local")
    assert both.shape == (3, 2, 6, model.nv)
    close(jacobian(model, q, "slider", "local"), both[:, 1])
    both = jacobian_derivative(model, q, v, ["wheel_site", "slider"], "local")
    assert both.shape == (3, 2, 6, model.nv)
    close(jacobian_derivative(model, q, v, "slider", "local"), both[:, 1])


def test_joints_that_do_not_carry_the_frame_have_zero_columns():
    model = robot("go2")
    q, v, _ = states(model, 3)
    others = [k for k, joint in enumerate(model.joints) if joint.nv == 1 and not joint.name.startswith("FL")]
    dofs = [model.coordinates[k].v for k in others]
    for matrix in (jacobian(model, q, "FL_foot"), jacobian_derivative(model, q, v, "FL_foot")):
        assert (matrix[..., dofs] == 0.0).all()
        assert (matrix[..., [d for d in range(model.nv) if d not in dofs]].abs().amax(-2) > 0.0).all()


def test_frames_of_the_world_have_zero_jacobians():
    model = every_kind()
    q, v, _ = states(model, 3)
    nothing = torch.zeros(3, 6, model.nv, dtype=torch.float64)
    assert torch.equal(jacobian(model, q, "ground"), nothing)
    assert torch.equal(jacobian_derivative(model, q, v, "ground"), nothing)


PAIRS = [("wheel_site", "slider_site"), ("slider_site", "ball_site"), ("base_site", "pusher"), ("other", "arm_site")]
PAIRS += [("arm_site", "ground"), ("ground", "plate"), ("base_site", "base")]


@functools.cache
def seen(frame, base):
    """States of the robot with every kind of joint, and the motion of one of its frames seen from another."""
    model = every_kind()
    q, v, _ = states(model, 8, spin=3.0)
    asked = {"pose": ("forward_kinematics", {"frames": frame, "relative_to": base})}
    for reference in REFERENCES:
        asked[reference] = ("jacobian", {"frame": frame, "reference": reference, "relative_to": base})
    return q, v, functools.partial(compute, model, quantities=asked)


@pytest.mark.parametrize(("frame", "base"), PAIRS)
def test_relative_jacobians_are_differences_of_the_relative_pose(frame, base):
    q, v, at = seen(frame, base)
    step = 1e-6
    before, now, after = (at(every_kind().integrate(q, v, time)) for time in (-step, 0.0, step))
    rate = (after["pose"] - before["pose"]) / (2 * step)
    R, p, dp = now["pose"][..., :3, :3], now["pose"][..., :3, 3], rate[..., :3, 3]
    skew = rate[..., :3, :3] @ R.mT
    turning = 0.5 * torch.stack([skew[..., i, k] - skew[..., k, i] for i, k in ((2, 1), (0, 2), (1, 0))], -1)
    expected = {
        "local_world_aligned": torch.cat([dp, turning], -1),
        "world": torch.cat([dp - turning.cross(p, dim=-1), turning], -1),
        "local": torch.cat([(R.mT @ part[..., None])[..., 0] for part in (dp, turning)], -1),
    }
    for reference, motion in expected.items():
        close((now[reference] @ v[..., None])[..., 0], motion, 1e-8)


def test_motion_seen_from_a_frame_of_the_world_turns_with_that_frame():
    model = every_kind()
    q, _, at = seen("arm_site", "ground")
    found, ground = at(q), model.frames[-1]
    R = torch.tensor(ground.rotation, dtype=torch.float64)
    plain = jacobian(model, q, "arm_site", "local_world_aligned")
    close(found["local_world_aligned"], torch.block_diag(R.mT, R.mT) @ plain)
    close(found["local"], jacobian(model, q, "arm_site", "local"))


def test_joints_that_carry_both_frames_have_zero_columns():
    model = robot("go2")
    q, _, _ = states(model, 3)
    J = jacobian(model, q, "FL_foot", relative_to="FR_foot")
    legs = [
        [model.coordinates[model.joint_index(f"{leg}_{part}_joint")].v for part in ("hip", "thigh", "calf")]
        for leg in ("FL", "FR")
    ]
    moving = sorted([*legs[0], *legs[1]])
    assert (J[..., [d for d in range(model.nv) if d not in moving]] == 0.0).all()
    assert (J[..., moving].abs().amax(-2) > 0.0).all()
    assert not jacobian(model, q, "FL_foot", relative_to="FL_calf").any()


def test_few_operations_are_needed():
    model = robot("go2")
    assert operations(model, frame="FL_foot") <= 139
    assert operations(model, frame="FL_foot", reference="local") <= 65
    assert operations(model, frame="FL_foot", reference="local_world_aligned") <= 177
    assert operations(model, frame="FL_foot", relative_to="base") <= 27


@pytest.mark.parametrize("reference", REFERENCES)
def test_gradients_reach_q_and_v_and_every_placement(reference):
    model = floating()
    q, v, _ = states(model, 1)
    parameters = model.parameters(dtype=torch.float64)
    given = ("joint_position", "joint_rotation", "frame_position", "frame_rotation")

    def both(q, v, *values):
        options = {"frame": "slider_site", "reference": reference}
        asked = {
            "J": ("jacobian", options),
            "seen": ("jacobian", {**options, "relative_to": "base_site"}),
            "rate": ("jacobian_derivative", options),
        }
        found = compute(model, q, v, quantities=asked, params=dict(zip(given, values, strict=True)))
        return tuple(found.values())

    inputs = [q, v, *[parameters[name] for name in given]]
    assert torch.autograd.gradcheck(both, [value.requires_grad_() for value in inputs])


def test_kernels_pass_every_check():
    model = robot("two_link")
    q, v, _ = states(model, 5)

    @adjoin.function(q=model.nq, v=model.nv)
    def everything(q, v):
        return {
            "jacobian": jacobian(model, q, "arm2", "local"),
            "seen": jacobian(model, q, "arm1", relative_to="arm2"),
            "derivative": jacobian_derivative(model, q, v, "arm2", "local_world_aligned"),
        }

    check_kernel(everything.kernel, [q, v])


def test_unknown_names_are_refused_with_the_known_ones():
    model = robot("two_link")
    q, v, _ = states(model, 2)
    known = ", ".join(names(model))
    with pytest.raises(InputError, match=f"^jacobian: no frame 'hand'; frames: {known}$"):
        jacobian(model, q, "hand")
    with pytest.raises(InputError, match=f"^jacobian: no frame 'hand'; frames: {known}$"):
        jacobian(model, q, "arm1", relative_to="hand")
    with pytest.raises(InputError, match=r"^jacobian: no frames were named"):
        jacobian(model, q, ())
    listed = "references: local, world, local_world_aligned$"
    with pytest.raises(InputError, match=f"^jacobian: no reference 'body'; {listed}"):
        jacobian(model, q, "arm1", "body")
    with pytest.raises(InputError, match=f"^jacobian_derivative: no reference 'body'; {listed}"):
        jacobian_derivative(model, q, v, "arm1", "body")
    with pytest.raises(InputError, match=f"^jacobian_derivative: no frame 'hand'; frames: {known}$"):
        jacobian_derivative(model, q, v, "hand")
