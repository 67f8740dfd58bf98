"""Soft analytic policy optimization (Xing et al., Stabilizing reinforcement learning in differentiable multiphysics
simulation, 2025): short-horizon actor-critic that also maximizes the entropy of its policy."""

from dataclasses import dataclass

import torch
from torch import nn

from adjoin.rl import distributed
from adjoin.rl.learner import register_learner
from adjoin.rl.learners.shac import SHAC, SHACOptions
from adjoin.rl.networks import Moments, SquashedActor, perceptron
from adjoin.rl.optimizer import adam
from adjoin.rl.ranges import NotNegative, Number, Positive, Share


@dataclass(frozen=True)
class SAPOOptions(SHACOptions):
    """Options of soft analytic policy optimization, besides those of short-horizon actor-critic.

    Attributes:
        temperature: What a unit of entropy is worth to begin with; it is adapted to the wanted entropy.
        temperature_rate: The learning rate of its logarithm.
        entropy: The wanted entropy per number of an action.
    """

    target_mixing: Share = 0.0
    temperature: Positive = 1.0
    temperature_rate: NotNegative = 5e-3
    entropy: Number = -0.5


class Pair(nn.Module):
    """Two networks side by side, as two numbers.

    Args:
        first: A network of one number.
        second: Another.
    """

    def __init__(self, first: nn.Module, second: nn.Module):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return both numbers, (..., 2)."""
        return torch.cat([self.first(x), self.second(x)], -1)


class Temperature(nn.Module):
    """A positive number that is learned by its logarithm.

    Args:
        value: The number to begin with.
    """

    def __init__(self, value: float):
        super().__init__()
        self.logarithm = nn.Parameter(torch.tensor(value).log())

    def forward(self) -> torch.Tensor:
        """Return the number."""
        return self.logarithm.exp()


@register_learner
class SAPO(SHAC):
    """Soft analytic policy optimization."""

    name = "sapo"
    Options = SAPOOptions
    options: SAPOOptions

    def build(self) -> None:
        """Make an actor whose noise depends on the observation, two critics, and the temperature."""
        environment, options = self.environment, self.options
        inputs, outputs = environment.observation_size, environment.action_size
        self.actor = SquashedActor(inputs, options.actor, outputs)
        critics = [Pair(*[perceptron(inputs, options.critic, 1, nn.SiLU) for _ in range(2)]) for _ in range(2)]
        self.critic, self.target = critics
        self.target.load_state_dict(self.critic.state_dict())
        self.moments, self.temperature = Moments(inputs), Temperature(options.temperature)
        self.modules = {"actor": self.actor, "critic": self.critic, "target": self.target, "moments": self.moments}
        self.modules["temperature"] = self.temperature

    def build_optimizers(self) -> None:
        """Make one Adam each for the actor, the critics and the temperature."""
        super().build_optimizers()
        self.optimizers["temperature"] = adam(self.temperature, self.options.temperature_rate)

    def improve(self) -> dict[str, torch.Tensor]:
        """Improve actor and critics, then the temperature."""
        numbers = super().improve()
        excess = distributed.mean(self._entropy / self.environment.action_size - self.options.entropy)
        self.temperature.logarithm.grad = excess.reshape(())
        self.optimizers["temperature"].step()
        return {**numbers, "entropy": self._entropy, "temperature": self.temperature()}

    def _sample(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        action, log_density = self.actor.sample(self._normalized(observation), self.generator)
        self._entropy = -log_density.detach().mean()
        return action, -self.temperature().detach() * log_density
