"""A learned model of steps: an ensemble of networks, each of which predicts a normal distribution."""

import itertools
import math
from collections.abc import Mapping, Sequence

import torch
from torch import nn


class DynamicsModel(nn.Module):
    """Predicts the change of the observation and the reward of a step (Chua et al., 2018).

    Args:
        size: Numbers of an observation.
        nu: Numbers of an action.
        hidden: Neurons of the layers.
        count: How many networks.
    """

    mean: torch.Tensor
    deviation: torch.Tensor

    def __init__(self, size: int, nu: int, hidden: Sequence[int], count: int):
        super().__init__()
        self.count = count
        sizes = [size + nu, *hidden, 2 * (size + 1)]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for before, after in itertools.pairwise(sizes):
            self.weights.append(nn.Parameter(torch.randn(count, before, after) / (2.0 * math.sqrt(before))))
            self.biases.append(nn.Parameter(torch.zeros(count, 1, after)))
        self.highest = nn.Parameter(torch.full((size + 1,), 0.5))  # bounds of the logarithms of variances, learned
        self.lowest = nn.Parameter(torch.full((size + 1,), -10.0))
        self.register_buffer("mean", torch.zeros(size + nu))
        self.register_buffer("deviation", torch.ones(size + nu))

    @torch.no_grad()
    def normalize(self, observation: torch.Tensor, action: torch.Tensor) -> None:
        """Scale what goes in by the spread of these samples."""
        x = torch.cat([observation, action], -1)
        self.mean.copy_(x.mean(0))
        self.deviation.copy_(x.std(0).clamp(min=1e-4))

    def forward(self, observation: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and logarithm of the variance of each network, (networks, n, size + 1) each."""
        x = (torch.cat([observation, action], -1) - self.mean) / self.deviation
        x = x.expand(self.count, *x.shape[-2:]) if x.dim() == 2 else x
        for k, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x @ weight + bias
            x = x if k == len(self.weights) - 1 else nn.functional.silu(x)
        mean, raw = x.chunk(2, -1)
        raw = self.highest - nn.functional.softplus(self.highest - raw)
        return mean, self.lowest + nn.functional.softplus(raw - self.lowest)

    def loss(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the negative log-likelihood of samples, of which each network gets its own share."""
        parts = {name: x.unflatten(0, (self.count, -1)) for name, x in batch.items()}
        mean, log_variance = self(parts["observation"], parts["action"])
        wanted = torch.cat([parts["next"] - parts["observation"], parts["reward"][..., None]], -1)
        likelihood = ((mean - wanted).square() * (-log_variance).exp() + log_variance).mean()
        return likelihood + 0.01 * (self.highest.sum() - self.lowest.sum())

    def sample(
        self, observation: torch.Tensor, action: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw the next observations, (n, size), and rewards, (n,), each from a network that is drawn too."""
        mean, log_variance = self(observation, action)
        n = len(observation)
        chosen = torch.randint(self.count, (n,), generator=generator, device=observation.device)
        index = torch.arange(n, device=observation.device)
        noise = torch.randn(mean.shape[1:], generator=generator, device=mean.device, dtype=mean.dtype)
        row = mean[chosen, index] + (0.5 * log_variance[chosen, index]).exp() * noise
        return observation + row[:, :-1], row[:, -1]
