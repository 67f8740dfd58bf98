"""Networks of actors and critics, and the running moments that observations are normalized by."""

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from adjoin.rl import distributed

Activation = Callable[[], nn.Module]


def perceptron(
    inputs: int, hidden: Sequence[int], outputs: int, activation: Activation = nn.ELU, layer_norm: bool = True
) -> nn.Sequential:
    """Build a network of fully connected layers, initialized by orthogonal matrices.

    Args:
        inputs: Numbers that go in.
        hidden: Neurons of the layers between.
        outputs: Numbers that come out.
        activation: What follows each hidden layer.
        layer_norm: Whether each hidden layer ends in a layer normalization.
    """
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise([inputs, *hidden]):
        layers += [nn.Linear(before, after), activation(), *([nn.LayerNorm(after)] if layer_norm else [])]
    layers.append(nn.Linear([inputs, *hidden][-1], outputs))
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, math.sqrt(2.0))
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


class Moments(nn.Module):
    """The running mean and variance of observations; calling it normalizes.

    Args:
        size: Numbers of an observation.
        limit: The greatest magnitude of a normalized number.
    """

    mean: torch.Tensor
    variance: torch.Tensor
    count: torch.Tensor

    def __init__(self, size: int, limit: float = math.inf):
        super().__init__()
        self.limit = limit
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))
        self.register_buffer("count", torch.tensor(1e-4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return numbers of about unit size, (..., size)."""
        return ((x - self.mean) / (self.variance + 1e-5).sqrt()).clamp(-self.limit, self.limit)

    @torch.no_grad()
    def update(self, x: torch.Tensor) -> None:
        """Take observations (..., size) into account, those of all processes together (Chan et al., 1979)."""
        x = x.reshape(-1, x.shape[-1])
        count, mean = distributed.total(self.count.new_tensor(float(len(x)))), distributed.mean(x.mean(0))
        variance = distributed.mean((x - mean).square().mean(0))
        total, change = self.count + count, mean - self.mean
        spread = self.variance * self.count + variance * count + change.square() * self.count * count / total
        self.mean.add_(change * count / total)
        self.variance.copy_(spread / total)
        self.count.copy_(total)


class GaussianActor(nn.Module):
    """A policy whose actions are normal around the output of a network, squashed by tanh.

    Args:
        inputs: Numbers of an observation.
        hidden: Neurons of its layers.
        outputs: Numbers of an action.
        log_deviation: The logarithm of the standard deviation before the squashing, to begin with.
        activation: See `perceptron`.
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        log_deviation: float = -1.0,
        activation: Activation = nn.ELU,
    ):
        super().__init__()
        self.mean = perceptron(inputs, hidden, outputs, activation)
        self.log_deviation = nn.Parameter(torch.full((outputs,), log_deviation))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the most probable actions, (..., outputs), in (-1, 1)."""
        return self.mean(x).tanh()

    def sample(self, x: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
        """Draw actions by the reparametrization trick, (..., outputs), in (-1, 1)."""
        mean = self.mean(x)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
        return (mean + self.log_deviation.exp() * noise).tanh()


class SquashedActor(nn.Module):
    """A policy with a standard deviation that depends on the observation, as in soft actor-critic.

    Args:
        inputs: Numbers of an observation.
        hidden: Neurons of its layers.
        outputs: Numbers of an action.
        activation: See `perceptron`.
        layer_norm: See `perceptron`.
    """

    LOG_DEVIATION = (-5.0, 2.0)  # the least and the greatest

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        activation: Activation = nn.SiLU,
        layer_norm: bool = True,
    ):
        super().__init__()
        self.network = perceptron(inputs, hidden, 2 * outputs, activation, layer_norm)
        with torch.no_grad():
            self.network[-1].weight.mul_(0.1)  # type: ignore[operator]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the most probable actions, (..., outputs), in (-1, 1)."""
        return self.network(x).chunk(2, -1)[0].tanh()

    def sample(self, x: torch.Tensor, generator: torch.Generator | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw actions, (..., outputs), and return the logarithm of their probability density too, (...)."""
        mean, raw = self.network(x).chunk(2, -1)
        low, high = self.LOG_DEVIATION
        log_deviation = low + 0.5 * (high - low) * (raw.tanh() + 1.0)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
        unbounded = mean + log_deviation.exp() * noise
        log_density = -0.5 * noise.square() - log_deviation - 0.5 * math.log(2.0 * math.pi)
        # log(1 - tanh(u)^2), without cancellation
        squash = 2.0 * (math.log(2.0) - unbounded - nn.functional.softplus(-2.0 * unbounded))
        return unbounded.tanh(), (log_density - squash).sum(-1)
