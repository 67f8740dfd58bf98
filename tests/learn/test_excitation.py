"""Excitation stays inside the limits, and its velocities and accelerations are those of its positions."""

import math

import pytest
import torch
from every_joint import every_joint, seeded
from hypothesis import given, settings
from hypothesis import strategies as st

import adjoin
from adjoin.errors import InputError
from adjoin.learn.excitation import fourier_excitation, random_excitation, sine_excitation

EXCITATIONS = (sine_excitation, fourier_excitation, random_excitation)
TIME = torch.arange(0.0, 4.0, 0.01, dtype=torch.float64)
STEP = 1e-5


@pytest.mark.parametrize("excitation", EXCITATIONS)
@pytest.mark.parametrize("still", [None, ()])
def test_velocities_and_accelerations_are_derivatives(excitation, still):
    model = every_joint()
    inside = TIME[1:-1:7] + 0.003

    def motion(time):
        start = torch.cat([torch.zeros(1, dtype=torch.float64), time])  # random moves begin with the first sample
        made = excitation(model, start, (3,), still=still, generator=seeded())
        return made.q[:, 1:], made.v[:, 1:], made.a[:, 1:]

    before, (_, v, a), after = motion(inside - STEP), motion(inside), motion(inside + STEP)
    moved = model.difference(before[0], after[0]) / (2.0 * STEP)
    assert torch.allclose(moved, v, atol=2e-7)
    assert torch.allclose((after[1] - before[1]) / (2.0 * STEP), a, atol=2e-6)
    assert v.abs().max() > 0.1


@pytest.mark.parametrize("excitation", EXCITATIONS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), margin=st.floats(0.1, 1.0))
def test_positions_and_speeds_stay_inside_the_limits(excitation, seed, margin):
    model = every_joint()
    made = excitation(model, TIME, (4,), margin=margin, generator=seeded(seed))
    lower, upper = (torch.tensor(bound, dtype=torch.float64) for bound in model.limits())
    rounding = 1e-12
    assert (made.q >= lower - rounding).all()
    assert (made.q <= upper + rounding).all()
    for joint, at in zip(model.joints, model.coordinates, strict=True):
        own = made.v[..., at.v : at.v + len(joint.damping)] * at.multiplier
        limit = margin * joint.velocity_limit
        speeds = own[..., :2].norm(dim=-1) if joint.kind == "planar" else own.norm(dim=-1)
        assert joint.kind == "free" or speeds.max() <= limit * math.sqrt(1.0 + rounding)
    hip = model.coordinates[4].q
    assert 2.0 * made.q[..., hip].abs().clamp(max=1.0).acos().max() <= margin * 0.8 + 1e-7


@pytest.mark.parametrize("excitation", EXCITATIONS)
def test_the_range_is_used_and_the_base_rests(excitation):
    model = every_joint()
    made = excitation(model, TIME, (16,), generator=seeded())
    hinge = made.q[..., model.coordinates[1].q]
    assert hinge.max() - hinge.min() > 0.6 * 0.9 * 1.0  # the follower narrows the hinge to -0.5 .. 1.0
    assert (made.v[..., :6] == 0.0).all()
    assert (made.q[..., :7] == model.neutral(dtype=torch.float64)[:7]).all()


def test_what_shall_rest_rests_where_it_is_put():
    model = adjoin.robots.load("two_link")
    center = torch.tensor([0.3, -0.2], dtype=torch.float64)
    name = model.joints[1].name
    made = fourier_excitation(model, TIME, center=center, still=[name], generator=seeded())
    assert (made.q[:, 1] == -0.2).all()
    assert made.q[:, 0].std() > 0.1


def test_a_seed_makes_a_motion():
    model = adjoin.robots.load("two_link")
    first, again, other = (random_excitation(model, TIME, generator=seeded(k)).q for k in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_bad_input_is_named():
    model = every_joint()
    with pytest.raises(InputError, match=r"center of joint 'slide' is 0, outside its limits 0.1 to 0.3"):
        sine_excitation(model, TIME, center=model.neutral())
    with pytest.raises(InputError, match="time must be"):
        sine_excitation(model, TIME[None])
    with pytest.raises(InputError, match="margin"):
        fourier_excitation(model, TIME, margin=1.5)
    with pytest.raises(InputError, match="frequency"):
        sine_excitation(model, TIME, frequency=(0.5, 0.1))
    with pytest.raises(adjoin.errors.ModelError, match="no joint 'knee'; joints: base, hinge"):
        sine_excitation(model, TIME, still=["knee"])
