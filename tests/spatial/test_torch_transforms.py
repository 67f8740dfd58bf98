"""Quaternions and poses of tensors: against scipy's conventions by hand, inverses, gradients."""

import math

import pinocchio
import pytest
import torch
from torch.autograd import gradcheck

from adjoin import transforms as T
from adjoin.errors import InputError


@pytest.fixture
def unit():
    q = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return q / q.norm(dim=-1, keepdim=True)


def test_matrices_and_logarithms_are_those_of_pinocchio(unit):
    matrices, logs, rpy = T.quaternion_to_matrix(unit), T.quaternion_log(unit), T.quaternion_to_euler(unit)
    for q, matrix, log, angles in zip(unit, matrices, logs, rpy, strict=True):
        theirs = pinocchio.Quaternion(*q.tolist()).matrix()
        assert torch.allclose(matrix, torch.tensor(theirs), atol=1e-14)
        assert torch.allclose(log, torch.tensor(pinocchio.log3(theirs)), atol=1e-12)
        assert torch.allclose(torch.tensor(pinocchio.rpy.rpyToMatrix(*angles.tolist())), matrix, atol=1e-14)
    assert torch.allclose(T.quaternion_to_matrix(T.matrix_to_quaternion(matrices)), matrices, atol=1e-14)
    assert torch.allclose(T.quaternion_to_matrix(T.euler_to_quaternion(rpy)), matrices, atol=1e-14)
    assert torch.allclose(T.quaternion_to_matrix(T.quaternion_exp(logs)), matrices, atol=1e-14)


def test_poses_compose_and_invert(unit):
    a, b = (torch.randn(7, 3, dtype=torch.float64), unit), (torch.randn(3, dtype=torch.float64), unit[0])
    points = torch.randn(7, 3, dtype=torch.float64)
    there = T.transform_points(T.pose_compose(a, b), points)
    assert torch.allclose(there, T.transform_points(a, T.transform_points(b, points)), atol=1e-13)
    assert torch.allclose(T.transform_points(T.pose_inverse(a), T.transform_points(a, points)), points, atol=1e-13)
    again = T.pose_compose(a, T.pose_between(a, b))
    assert torch.allclose(again[0], b[0].expand(7, 3), atol=1e-13)
    matrix = T.pose_to_matrix(a)
    homogeneous = torch.cat([points, torch.ones(7, 1, dtype=torch.float64)], -1)
    assert torch.allclose((matrix @ homogeneous[..., None])[..., :3, 0], T.transform_points(a, points), atol=1e-13)
    velocity = 0.5 * torch.randn(7, 6, dtype=torch.float64)
    assert torch.allclose(T.pose_log(T.pose_exp(velocity)), velocity, atol=1e-12)
    theirs = pinocchio.exp6(pinocchio.Motion(velocity[0].numpy()))
    assert torch.allclose(T.pose_exp(velocity)[0][0], torch.tensor(theirs.translation), atol=1e-13)


def test_small_things(unit):
    x = torch.randn(7, 3, dtype=torch.float64)
    assert torch.allclose(T.quaternion_rotate_inverse(unit, T.quaternion_rotate(unit, x)), x, atol=1e-14)
    assert torch.equal(T.xyzw_to_wxyz(T.wxyz_to_xyzw(unit)), unit)
    quarter = T.axis_angle_to_quaternion(torch.tensor([0.0, 0.0, 1.0]), torch.tensor(math.pi / 2))
    assert T.quaternion_yaw(quarter) == pytest.approx(math.pi / 2)
    half = T.quaternion_slerp(torch.tensor([1.0, 0.0, 0.0, 0.0]), quarter, 0.5)
    assert T.quaternion_yaw(half) == pytest.approx(math.pi / 4)
    assert T.wrap_angle(torch.tensor(3 * math.pi / 2)) == pytest.approx(-math.pi / 2)
    with pytest.raises(InputError, match=r"q must be a torch tensor \(\.\.\., 4\), got \(3,\)"):
        T.quaternion_log(torch.zeros(3))


def test_gradients_are_right_also_at_no_rotation():
    zero = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda r: T.quaternion_log(T.quaternion_exp(r)), (zero,))
    assert gradcheck(lambda r: T.matrix_to_quaternion(T.quaternion_to_matrix(T.quaternion_exp(r))), (zero,))
    v = torch.tensor([0.3, -0.2, 0.1, 0.5, 0.4, -0.1], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda v: T.pose_log(T.pose_compose(T.pose_exp(v), T.pose_exp(2 * v))), (v,))
