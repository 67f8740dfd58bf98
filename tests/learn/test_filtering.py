"""Filters have the gain they say and no delay; derivatives of measured positions are those of the motion."""

import math

import pytest
import torch
from every_joint import every_joint, seeded

import adjoin
from adjoin.errors import InputError
from adjoin.learn import local_coordinates
from adjoin.learn.excitation import fourier_excitation
from adjoin.learn.filtering import differentiate, low_pass, low_pass_positions
from adjoin.learn.losses import NMSE, nmse

DT = 1e-3
TIME = torch.arange(0.0, 4.0, DT, dtype=torch.float64)
MIDDLE = slice(1000, 3000)


@pytest.mark.parametrize("order", [2, 4])
@pytest.mark.parametrize("frequency", [2.0, 8.0, 10.0, 14.0])
def test_sines_keep_their_phase_and_lose_what_the_filter_says(frequency, order):
    sine = (2.0 * math.pi * frequency * TIME).sin()[:, None]
    gain = 1.0 / (1.0 + (frequency / 10.0) ** (2 * order))
    found = low_pass(sine, DT, 10.0, order)
    assert torch.allclose(found[MIDDLE], gain * sine[MIDDLE], atol=2e-3)


def test_lines_pass_unchanged_to_the_ends():
    line = torch.stack([3.0 + 2.0 * TIME, -TIME], -1)
    assert torch.allclose(low_pass(line, DT, 5.0), line, atol=1e-9)


def test_noise_goes_and_the_motion_stays():
    model = every_joint()
    made = fourier_excitation(model, TIME, still=(), generator=seeded())
    noise = 1e-3 * torch.randn(len(TIME), model.nv, generator=seeded(1), dtype=torch.float64)
    noisy, _, _ = local_coordinates.motion(model, made.q, noise, noise, noise)
    flipped = noisy.clone()
    flipped[::3, 3:7] *= -1.0  # the same rotations
    flipped[:, 8] = torch.remainder(flipped[:, 8] + math.pi, 2.0 * math.pi) - math.pi  # the wheel within one turn
    smooth = low_pass_positions(model, flipped, DT, 5.0)
    before = model.difference(made.q, noisy)[MIDDLE].square().mean(0).sqrt()
    after = model.difference(made.q, smooth)[MIDDLE].square().mean(0).sqrt()
    assert (after < 0.25 * before).all()


def test_derivatives_of_positions_are_those_of_the_motion():
    model = every_joint()
    made = fourier_excitation(model, TIME, (2,), still=(), generator=seeded())
    found = differentiate(model, TIME, made.q, window=9, degree=5)
    assert model.difference(made.q, found.q).abs().max() < 1e-9
    assert torch.allclose(found.v, made.v, atol=1e-8)
    assert torch.allclose(found.a[:, 4:-4], made.a[:, 4:-4], atol=1e-5)
    assert torch.allclose(found.a, made.a, atol=2e-3)


def test_polynomials_of_the_degree_are_exact_to_the_ends():
    model = adjoin.robots.load("two_link")
    time = torch.arange(0.0, 1.0, 0.05, dtype=torch.float64)
    q = torch.stack([time**3 - time, 0.5 * time**2], -1)
    found = differentiate(model, time, q, window=7, degree=3)
    assert torch.allclose(found.q, q, atol=1e-12)
    assert torch.allclose(found.v, torch.stack([3.0 * time**2 - 1.0, time], -1), atol=1e-11)
    assert torch.allclose(found.a, torch.stack([6.0 * time, torch.ones_like(time)], -1), atol=1e-9)


def test_bad_input_is_named():
    model = adjoin.robots.load("two_link")
    q = torch.zeros(20, 2, dtype=torch.float64)
    time = 0.1 * torch.arange(20, dtype=torch.float64)
    with pytest.raises(InputError, match="below 500 Hz"):
        low_pass(q, DT, 600.0)
    with pytest.raises(InputError, match="window must be odd"):
        differentiate(model, time, q, window=10)
    with pytest.raises(InputError, match="a window of 31 needs as many samples, got 20"):
        differentiate(model, time, q, window=31)
    time[12:] += 1.0
    with pytest.raises(InputError, match="sample 12: a gap"):
        differentiate(model, time, q)


def test_the_normalized_error_is_one_for_the_mean_and_zero_for_the_truth():
    measured = torch.randn(100, 3, generator=seeded(), dtype=torch.float64) * torch.tensor([1.0, 10.0, 0.1])
    assert nmse(measured, measured) == 0.0
    assert nmse(measured.mean(0).expand_as(measured), measured).item() == pytest.approx(1.0)
    halves = [NMSE(measured)(measured[part] * 1.1, measured[part]) for part in (slice(50), slice(50, 100))]
    assert float(sum(halves) / 2.0) == pytest.approx(float(nmse(1.1 * measured, measured)))
    still = measured * torch.tensor([1.0, 1e-15, 1.0])
    assert nmse(1.1 * still, still).item() == pytest.approx(nmse(1.1 * measured[:, ::2], measured[:, ::2]).item())
    with pytest.raises(InputError, match="nothing changes in the data"):
        NMSE(torch.ones(10, 2))
