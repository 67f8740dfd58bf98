import pytest
import torch
from kernel_checks import DEVICES, check_invariance, close

import adjoin
from adjoin import trace as at
from adjoin.compiler.runtime.interpreter import interpret
from adjoin.compiler.runtime.operator import call
from adjoin.errors import TraceError


@adjoin.function(x=2, heights=adjoin.Table((3, 4)))
def interpolated(x, heights):
    """The height between the nodes of a grid, and the sum along a row, in a loop."""
    column, row = at.floor(x[0]), at.floor(x[1])
    s, t = x[0] - column, x[1] - row
    i, j = at.to_index(row), at.to_index(column)
    low = heights[i, j] * (1.0 - s) + heights[i, j + 1] * s
    high = heights[i + 1, j] * (1.0 - s) + heights[i + 1, j + 1] * s
    total = at.loop(4, lambda k, total: total + heights[i, k] * x[0], 0.0)
    return {"height": low * (1.0 - t) + high * t, "corner": heights[2, 3], "total": total}


def inputs(batch=21, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(batch, 2, generator=generator, dtype=torch.float64) * torch.tensor([2.9, 1.9]) + 0.05
    return x, torch.randn(batch, 3, 4, generator=generator, dtype=torch.float64)


def expected(x, heights):
    column, row = x[:, 0].floor().long(), x[:, 1].floor().long()
    s, t = x[:, 0] - column, x[:, 1] - row
    rows = torch.arange(len(x))
    heights = heights.expand(len(x), 3, 4)
    corners = [heights[rows, row + a, column + b] for a in (0, 1) for b in (0, 1)]
    low, high = corners[0] * (1 - s) + corners[1] * s, corners[2] * (1 - s) + corners[3] * s
    return low * (1 - t) + high * t, heights[:, 2, 3], heights[rows, row].sum(-1) * x[:, 0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shared", [False, True])
def test_reads_where_the_data_says(device, shared):
    x, heights = inputs()
    heights = heights[0] if shared else heights
    for value, wanted in zip(
        interpolated(x.to(device), heights.to(device)).values(), expected(x, heights), strict=True
    ):
        torch.testing.assert_close(value.cpu(), wanted)


@pytest.mark.parametrize("device", DEVICES)
def test_an_index_outside_is_clamped(device):
    heights = inputs()[1][:2].to(device)
    far = torch.tensor([[1e9, -1e9], [-1e9, 1e9]], dtype=torch.float64, device=device)
    found = interpolated(far, heights)["height"]
    assert torch.equal(found, torch.stack([heights[0, 0, 3], heights[1, 2, 0]]))


@pytest.mark.parametrize("device", DEVICES)
def test_as_interpreted_and_the_same_bits_in_every_batch(device):
    kernel = interpolated.kernel
    for dtype in (torch.float64, torch.float32):
        x, heights = (tensor.to(device, dtype) for tensor in inputs())
        flat = [x.cpu(), heights.cpu().flatten(1)]
        for a, b in zip(interpret(kernel.program, flat), call(kernel, [x, heights]), strict=True):
            assert close(a[:, 0], b.cpu(), 64).all()
        check_invariance(kernel, [x, heights], ())


def test_gradients_to_the_place():
    x, heights = inputs(5)
    x.requires_grad_()
    for of in (lambda x: interpolated(x, heights)["height"], lambda x: interpolated(x, heights[0])["total"]):
        assert torch.autograd.gradcheck(of, x, check_forward_ad=True)


def test_gradient_to_places_is_the_slope_and_to_the_table_zero():
    x, heights = inputs(5)
    x.requires_grad_()
    heights.requires_grad_()
    slope, none = torch.autograd.grad(interpolated(x, heights)["height"].sum(), (x, heights))
    reference = torch.autograd.grad(expected(x, heights)[0].sum(), x)[0]
    torch.testing.assert_close(slope, reference)
    assert not none.any()


def test_the_number_of_indices_is_checked():
    with pytest.raises(TraceError, match="takes 2 indices, got 1"):
        adjoin.function(t=adjoin.Table((3, 4)), x=1)(lambda t, x: t[0] * x[0])
