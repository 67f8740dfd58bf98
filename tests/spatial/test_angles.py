"""The functions that are 0/0 at zero, against 50-digit arithmetic, and their gradients."""

import mpmath
import pytest
import torch

from adjoin.spatial import angles

EXACT = {
    angles.cosine: lambda x: mpmath.cos(x),
    angles.sinc: lambda x: mpmath.sin(x) / x,
    angles.cosc: lambda x: (1 - mpmath.cos(x)) / x**2,
    angles.sincc: lambda x: (x - mpmath.sin(x)) / x**3,
    angles.cotc: lambda x: (1 - x * mpmath.cot(x)) / x**2,
}


@pytest.mark.parametrize("function", EXACT, ids=lambda f: f.__name__)
def test_values_and_first_two_derivatives_match_50_digits(function):
    with mpmath.workdps(50):
        for x in [1e-9, 1e-5, 1e-3, 0.1, 0.3, 0.49999, 0.50001, 0.9, 1.5]:
            square = torch.tensor(x * x, dtype=torch.float64, requires_grad=True)
            value = function(square)
            (first,) = torch.autograd.grad(value, square, create_graph=True)
            (second,) = torch.autograd.grad(first, square)
            exact = [mpmath.diff(lambda s: EXACT[function](mpmath.sqrt(s)), mpmath.mpf(x * x), n) for n in (0, 1, 2)]
            for ours, theirs, tolerance in zip((value, first, second), exact, (4e-16, 4e-14, 4e-13), strict=True):
                assert abs(ours.item() - theirs) <= tolerance * max(1, abs(theirs))
            assert function(x * x) == pytest.approx(value.item(), rel=1e-15)


@pytest.mark.parametrize("function", EXACT, ids=lambda f: f.__name__)
def test_gradients_at_zero_are_finite(function):
    square = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(function(square).sum(), square)
    assert torch.isfinite(gradient).all()


def test_the_slope_of_cotc_matches_50_digits():
    with mpmath.workdps(50):
        for x in [1e-9, 1e-5, 1e-3, 0.1, 0.3, 0.49999, 0.50001, 0.9, 1.5]:
            square = torch.tensor(x * x, dtype=torch.float64, requires_grad=True)
            value = angles.cotc_slope(square)
            (slope,) = torch.autograd.grad(value, square)
            for ours, n, tolerance in ((value, 1, 4e-15), (slope, 2, 4e-13)):
                exact = mpmath.diff(lambda s: EXACT[angles.cotc](mpmath.sqrt(s)), mpmath.mpf(x * x), n)
                assert abs(ours.item() - exact) <= tolerance


def test_angle_over_sine_for_any_norm():
    with mpmath.workdps(50):
        for x in [0.0, 1e-8, 1e-3, 0.2, 0.3, 0.31, 1.0, 1.5, 1.5707963]:
            for r in (0.3, 1.0, 7.0):
                exact = (x / mpmath.sin(x) if x else 1) / r
                ours = angles.angle_over_sine(float((r * mpmath.sin(x)) ** 2), float(r * mpmath.cos(x)))
                assert abs(ours - exact) < 1e-15 * max(1, exact) * 4


def test_wrap_puts_angles_into_one_turn_and_keeps_the_gradient():
    angle = torch.tensor([0.0, 3.0, 4.0, -4.0, 100.0, 3.141592653589793], dtype=torch.float64, requires_grad=True)
    wrapped = angles.wrap(angle)
    assert ((wrapped >= -angles.PI) & (wrapped < angles.PI)).all()
    assert torch.allclose(torch.cos(wrapped), torch.cos(angle), atol=1e-13)
    (gradient,) = torch.autograd.grad(wrapped.sum(), angle)
    assert (gradient == 1).all()
