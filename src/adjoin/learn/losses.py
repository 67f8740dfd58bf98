"""Losses in units of the data, so that joints that carry much and joints that carry little count alike."""

import torch

from adjoin.errors import InputError


def nmse(predicted: torch.Tensor, measured: torch.Tensor) -> torch.Tensor:
    """The normalized mean squared error: 1 is as good as the mean of the data, 0 is perfect.

    Args:
        predicted: (..., n).
        measured: (..., n).

    Returns:
        Mean squared error over variance, the mean over the channels that change in what was measured.
    """
    return NMSE(measured)(predicted, measured)


def spreads(measured: torch.Tensor) -> torch.Tensor:
    """The standard deviation of each channel, (..., n) to (n,); 0 where it is rounding against the greatest."""
    spread = measured.detach().flatten(0, -2).std(0, correction=0)
    return torch.where(spread > 1e-9 * spread.max(), spread, 0.0)


class NMSE(torch.nn.Module):
    """The normalized mean squared error, by the variance of one set of data, for minibatches of it.

    Args:
        measured: all of the data, (..., n). Channels that do not change in them do not count.
    """

    weight: torch.Tensor

    def __init__(self, measured: torch.Tensor):
        super().__init__()
        if measured.ndim < 2 or measured[..., 0].numel() < 2:
            raise InputError(f"NMSE: the data must be (..., n) with two samples at least, got {tuple(measured.shape)}")
        spread = spreads(measured)
        moving = spread > 0.0
        if not bool(moving.any()):
            raise InputError("NMSE: nothing changes in the data")
        weight = torch.where(moving, 1.0 / torch.where(moving, spread, 1.0).square(), 0.0)
        self.register_buffer("weight", weight * len(moving) / moving.sum())

    def forward(self, predicted: torch.Tensor, measured: torch.Tensor) -> torch.Tensor:
        """The error of a batch, each (..., n)."""
        return ((predicted - measured).square() * self.weight).mean()
