"""Transforms across joints, and their derivatives against the motion subspace."""

import pytest
import torch
from test_manifold import KINDS

from adjoin.compiler.ir import graph
from adjoin.model.joint import Joint
from adjoin.model.joint_types import JOINT_TYPES
from adjoin.spatial.vector import IDENTITY, ZERO

AXES = [(0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.0, 0.6, -0.8), (0.0, 0.0, -1.0)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_neutral_joint_is_in_its_placement(kind):
    rotation, position = JOINT_TYPES[kind].transform(Joint("j", kind), JOINT_TYPES[kind].neutral)
    assert rotation == IDENTITY
    assert position == ZERO


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_body_moves_along_the_motion_subspace(kind, axis):
    joint, of_kind = Joint("j", kind, axis=axis), JOINT_TYPES[kind]
    generator = torch.Generator().manual_seed(0)
    start = of_kind.integrate(
        [torch.tensor(x, dtype=torch.float64) for x in of_kind.neutral],
        list(torch.randn(of_kind.nv, generator=generator)),
    )
    v = torch.randn(of_kind.nv, generator=generator, dtype=torch.float64)

    def pose(t):
        rotation, position = of_kind.transform(joint, of_kind.integrate(start, list(v * t)))
        flat = [x for row in rotation for x in row]
        return torch.stack([torch.as_tensor(x, dtype=torch.float64) + 0 * t for x in (*flat, *position)])

    now = torch.zeros((), dtype=torch.float64)
    value, rate = torch.func.jvp(pose, (now,), (torch.ones_like(now),))
    rotation, spin, velocity = value[:9].view(3, 3), rate[:9].view(3, 3), rate[9:]
    # Body-frame velocity: R^T dR is the cross-product matrix of the angular one, R^T dp the linear one.
    skew = rotation.T @ spin
    angular = torch.stack([skew[2, 1], skew[0, 2], skew[1, 0]])
    directions = of_kind.directions(joint)
    assert len(directions) == of_kind.nv
    expected = torch.tensor(directions, dtype=torch.float64).view(of_kind.nv, 6)
    assert torch.allclose(torch.cat([angular, rotation.T @ velocity]), v @ expected, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_transforms_can_be_traced(kind):
    g = graph.Graph()
    rotation, position = JOINT_TYPES[kind].transform(
        Joint("j", kind), [g.fresh("input") for _ in JOINT_TYPES[kind].neutral]
    )
    assert len(rotation) == len(position) == 3
