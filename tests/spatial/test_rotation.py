"""Rotations and rigid motions: the same code on floats, tensors and traced scalars; inverses; matrix exponentials."""

import math
import random

import pytest
import torch

from adjoin.compiler.ir import graph
from adjoin.spatial import inertia, motion, rotation, vector


def random_vector(rng, size=1.0):
    return tuple(rng.uniform(-size, size) for _ in range(3))


def as_tensor(x):
    return torch.tensor(x, dtype=torch.float64)


def hat(w):
    return as_tensor(vector.skew(w))


def hat6(w, v):
    m = torch.zeros(4, 4, dtype=torch.float64)
    m[:3, :3] = hat(w)
    m[:3, 3] = as_tensor(v)
    return m


@pytest.mark.parametrize("size", [0.0, 1e-9, 1e-4, 0.2, 1.0, 1.8])
def test_exponentials_are_the_matrix_exponential_and_logarithms_their_inverse(size):
    rng = random.Random(1)
    for _ in range(20):
        w, v = random_vector(rng, size), random_vector(rng)
        q, p = motion.se3_exp(w, v)
        exact = torch.linalg.matrix_exp(hat6(w, v))
        assert torch.allclose(as_tensor(rotation.from_quaternion(q)), exact[:3, :3], atol=1e-14, rtol=0)
        assert torch.allclose(as_tensor(p), exact[:3, 3], atol=1e-14, rtol=0)
        back = motion.se3_log(q, p)
        assert torch.allclose(as_tensor(back), as_tensor((w, v)), atol=2e-14, rtol=0)
        assert rotation.quaternion_log(tuple(-c for c in q)) == pytest.approx(w, abs=1e-14)


def test_axis_angle_rpy_and_quaternions_agree():
    rng = random.Random(2)
    for _ in range(50):
        w = random_vector(rng, 1.5)
        angle = vector.norm(w)
        m = rotation.from_axis_angle(vector.scale(1 / angle, w), angle)
        assert torch.allclose(as_tensor(m), torch.linalg.matrix_exp(hat(w)), atol=1e-14)
        assert torch.allclose(as_tensor(rotation.from_rpy(*rotation.to_rpy(m))), as_tensor(m), atol=1e-14)
        assert torch.allclose(as_tensor(rotation.from_quaternion(rotation.to_quaternion(m))), as_tensor(m), atol=1e-14)


def test_quaternions_along_matrices_give_the_angle_up_to_half_turns():
    rng = random.Random(6)
    for angle in (0.0, 1e-9, 0.3, 1.6, 2.5, 3.1, math.pi - 1e-9, math.pi):
        for axis in (*vector.IDENTITY, *(random_vector(rng) for _ in range(20))):
            axis = vector.scale(1 / vector.norm(axis), axis)
            q = rotation.quaternion_along(rotation.from_axis_angle(axis, angle))
            found = rotation.quaternion_log(q)
            sign = math.copysign(1.0, vector.dot(found, axis)) if angle > 3.14 else 1.0
            assert found == pytest.approx(vector.scale(sign * angle, axis), abs=1e-8 if angle > 3.14 else 1e-14)
            assert max(map(abs, q)) >= 1.0 - 1e-12


@pytest.mark.parametrize(
    "rpy",
    [
        (0, 0, 0),
        (math.pi, 0, 0),
        (0, math.pi / 2, 0),
        (0.3, -math.pi / 2, 0.2),
        (0.3, 1.57079632679, 0.2),
        (-1.1, -1.570796, 2.0),
        (0, 0, math.pi),
    ],
)
def test_rpy_survives_gimbal_lock_and_half_turns(rpy):
    m = rotation.from_rpy(*rpy)
    assert torch.allclose(as_tensor(rotation.from_rpy(*rotation.to_rpy(m))), as_tensor(m), atol=1e-15)
    assert torch.allclose(as_tensor(rotation.from_quaternion(rotation.to_quaternion(m))), as_tensor(m), atol=1e-15)


def test_tidy_shows_exact_zeros_of_right_angles():
    m = rotation.tidy(rotation.from_rpy(math.pi / 2, 0, -math.pi / 2))
    assert m == ((0.0, 0.0, -1.0), (-1.0, 0.0, 0.0), (0.0, 1.0, 0.0))


def test_coordinate_axes_keep_their_zeros_and_ones_under_tracing():
    x = graph.Graph().fresh("input")
    m = rotation.from_axis_angle((0.0, 0.0, 1.0), x)
    known = [isinstance(entry, float) or entry.op == "const" for row in m for entry in row]
    assert known == [False, False, True, False, False, True, True, True, True]
    assert m[2][2] == 1.0


def test_motions_and_forces_are_dual():
    rng = random.Random(3)
    for _ in range(20):
        pose = (rotation.from_rpy(*random_vector(rng)), random_vector(rng))
        m = (random_vector(rng), random_vector(rng))
        f = (random_vector(rng), random_vector(rng))
        power = motion.spatial_dot(motion.motion_to_child(pose, m), motion.force_to_child(pose, f))
        assert power == pytest.approx(motion.spatial_dot(m, f), abs=1e-13)
        there = motion.motion_to_parent(pose, motion.motion_to_child(pose, m))
        assert torch.allclose(as_tensor(there), as_tensor(m), atol=1e-14)
        there = motion.force_to_parent(pose, motion.force_to_child(pose, f))
        assert torch.allclose(as_tensor(there), as_tensor(f), atol=1e-14)
        n = (random_vector(rng), random_vector(rng))
        crossed = motion.spatial_dot(motion.motion_cross_motion(m, n), f)
        assert crossed == pytest.approx(-motion.spatial_dot(n, motion.motion_cross_force(m, f)), abs=1e-13)


def test_inertia_of_welded_bodies_has_the_momentum_of_both():
    rng = random.Random(4)

    def body():
        a, b, c = (rng.uniform(1, 2) for _ in range(3))
        return rng.uniform(1, 3), random_vector(rng), (a, 0.1, 0.0, b, 0.05, c)

    for _ in range(20):
        a, b = body(), body()
        pose = (rotation.from_rpy(*random_vector(rng)), random_vector(rng))
        m = (random_vector(rng), random_vector(rng))
        both = inertia.times_motion(inertia.combined(a, inertia.transformed(pose, b)), m)
        apart = motion.spatial_add(
            inertia.times_motion(a, m),
            motion.force_to_parent(pose, inertia.times_motion(b, motion.motion_to_child(pose, m))),
        )
        assert torch.allclose(as_tensor(both), as_tensor(apart), atol=1e-13)


def test_tensors_and_floats_give_the_same_numbers():
    rng = random.Random(5)
    rows = [(random_vector(rng), random_vector(rng)) for _ in range(8)] + [((0.0, 0.0, 0.0), (1.0, 0.0, 0.0))]
    w, v = (tuple(as_tensor([row[k] for row in rows]).unbind(-1)) for k in (0, 1))
    q, p = motion.se3_exp(w, v)
    for i, row in enumerate(rows):
        qi, pi = motion.se3_exp(*row)
        assert [c[i].item() for c in (*q, *p)] == pytest.approx([*qi, *pi], abs=1e-15)


def test_gradients_through_exp_and_log_pass_gradcheck_at_and_near_zero():
    def there_and_back(x):
        angular, linear = motion.se3_log(*motion.se3_exp(tuple(x[:, :3].unbind(-1)), tuple(x[:, 3:].unbind(-1))))
        return torch.stack([*angular, *linear], -1)

    x = torch.zeros(4, 6, dtype=torch.float64)
    x[1] = 1e-9
    x[2] = 0.3
    x[3] = torch.tensor([1.0, -1.5, 0.5, 1, 2, 3])
    x.requires_grad_()
    assert torch.autograd.gradcheck(there_and_back, (x,))
    assert torch.autograd.gradgradcheck(there_and_back, (x,))
    jacobian = torch.func.jacrev(lambda y: there_and_back(y[None])[0])(torch.zeros(6, dtype=torch.float64))
    assert torch.allclose(jacobian, torch.eye(6, dtype=torch.float64), atol=1e-15)
