"""Losses in units of the data, so that joints that carry much and joints that carry little count alike."""

import torch

from adjoin.errors import InputError


def nmse(predicted: torch.Tensor, measured: torch.Tensor) -> torch.Tensor:
    """The normalised mean squared error: 1 is as good as the mean of the data, 0 is perfect.

    Args:
        predicted: (..., n).
        measured: (..., n).

    Returns:
        The mean over the n channels of mean squared error over variance.
    """
    return NMSE(measured)(predicted, measured)


class NMSE(torch.nn.Module):
    """The normalised mean squared error, by the variance of one set of data, for minibatches of it.

    Args:
        measured: all of the data, (..., n).
    """

    variance: torch.Tensor

    def __init__(self, measured: torch.Tensor):
        super().__init__()
        if measured.ndim < 2 or measured[..., 0].numel() < 2:
            raise InputError(f"NMSE: the data must be (..., n) with two samples at least, got {tuple(measured.shape)}")
        variance = measured.detach().flatten(0, -2).var(0, correction=0)
        flat = (variance <= torch.finfo(variance.dtype).tiny).nonzero().flatten().tolist()
        if flat:
            raise InputError(f"NMSE: channel {', '.join(map(str, flat))} of the data does not change; leave it out")
        self.register_buffer("variance", variance)

    def forward(self, predicted: torch.Tensor, measured: torch.Tensor) -> torch.Tensor:
        """The error of a batch, each (..., n)."""
        return ((predicted - measured).square() / self.variance).mean()
