"""Coordinates around a center: there and back, and what they are as q, v and a."""

import torch
from every_joint import every_joint, seeded
from hypothesis import given, settings
from hypothesis import strategies as st

import adjoin
from adjoin.learn import local_coordinates


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), size=st.floats(1e-6, 1.0))
def test_coordinates_come_back_and_rates_are_derivatives(seed, size):
    model = every_joint()
    center = model.random((4,), generator=seeded(seed), dtype=torch.float64)
    value, rate, second = size * torch.randn(3, 4, model.nv, generator=seeded(seed + 1), dtype=torch.float64)
    step = 1e-5

    def at(time):
        return local_coordinates.motion(
            model, center, value + time * rate + 0.5 * time**2 * second, rate + time * second, second
        )

    (before, slower, _), (q, v, a), (after, faster, _) = at(-step), at(0.0), at(step)
    assert torch.allclose(model.difference(before, after) / (2.0 * step), v, atol=1e-8)
    assert torch.allclose((faster - slower) / (2.0 * step), a, atol=1e-8)
    if value.abs().max() < 1.5:  # within half a turn
        assert torch.allclose(local_coordinates.local_coordinates(model, center, q), value, atol=1e-12)


def test_a_robot_without_coordinates_has_none_around_a_center():
    model = adjoin.load('<robot name="post"><link name="post"/></robot>')
    q = torch.zeros(4, 0)
    assert local_coordinates.local_coordinates(model, q, q).shape == (4, 0)
