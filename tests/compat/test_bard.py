"""BARD's calls, against Pinocchio."""

import sys
from pathlib import Path

import pinocchio
import pytest
import torch

import adjoin
from adjoin.compat import bard, joint_order
from adjoin.errors import InputError

sys.path.insert(0, str(Path(__file__).parents[1] / "io"))

from corpus import URDF_FOLDER

GO2 = URDF_FOLDER / "robots/go2_description/urdf/go2.urdf"


def test_the_calls_of_its_quick_start():
    model = bard.build_model_from_urdf(GO2, floating_base=True).to(dtype=torch.float64)
    assert (model.nq, model.nv, model.n_joints, model.has_floating_base) == (19, 18, 12, True)
    data = bard.create_data(model, max_batch_size=4)
    foot = model.get_frame_id("FL_foot")
    with pytest.raises(InputError, match="rnea: call update_kinematics"):
        bard.rnea(model, data, torch.zeros(2, 18))
    q = model.robot.random((2,), dtype=torch.float64)
    qd, qdd = torch.randn(2, 2, 18, dtype=torch.float64)
    assert bard.update_kinematics(model, data, q, qd) is data
    tau, matrix = bard.rnea(model, data, qdd), bard.crba(model, data)
    assert torch.allclose(bard.aba(model, data, tau), qdd, atol=1e-8)
    still = bard.rnea(model, data, qdd, gravity=torch.zeros(3))
    pose, jacobian = bard.forward_kinematics(model, data, foot), bard.jacobian(model, data, foot)
    local, again = bard.jacobian(model, data, foot, reference_frame="local", return_pose=True)
    assert torch.equal(again, pose)
    assert torch.equal(bard.jacobian(model, bard.create_data(model), foot, q=q), jacobian)
    with pytest.raises(ValueError, match="velocity"):
        bard.aba(model, bard.update_kinematics(model, bard.create_data(model), q), tau)
    acceleration = bard.spatial_acceleration(model, data, qdd, foot, reference_frame="local")
    other = pinocchio.buildModelFromUrdf(str(GO2), pinocchio.JointModelFreeFlyer())
    theirs, rates = joint_order.to_pinocchio(model.robot, other, q, qd)
    _, changes = joint_order.to_pinocchio(model.robot, other, q, qdd)
    for k in range(2):
        state = other.createData()
        expected = pinocchio.rnea(other, state, theirs[k].numpy(), rates[k].numpy(), changes[k].numpy())
        forces = joint_order.from_pinocchio(model.robot, other, theirs[k], torch.tensor(expected))[1]
        assert torch.allclose(tau[k], forces, atol=1e-9)
        pinocchio.forwardKinematics(other, state, theirs[k].numpy(), rates[k].numpy(), changes[k].numpy())
        frame = other.getFrameId("FL_foot")
        placement = pinocchio.updateFramePlacement(other, state, frame)
        assert torch.allclose(pose[k], torch.tensor(placement.homogeneous), atol=1e-12)
        moved = pinocchio.getFrameAcceleration(other, state, frame, pinocchio.ReferenceFrame.LOCAL)
        assert torch.allclose(acceleration[k], torch.tensor(moved.vector), atol=1e-9)
    down = adjoin.gravity_forces(model.robot, q)
    assert torch.allclose(tau - still, down, atol=1e-9)
    assert (matrix.shape, jacobian.shape, local.shape) == ((2, 18, 18), (2, 6, 18), (2, 6, 18))
    base, joints = model.unpack_q(q)
    assert torch.equal(model.pack_q(base, joints), q)
    assert model.joint_limits[0].shape == (12,)
    with pytest.raises(InputError, match='reference_frame must be "world" or "local"'):
        bard.jacobian(model, data, foot, reference_frame="body")
