"""Analytic policy gradients: the gradient of the return itself, through the simulator, without a critic."""

from dataclasses import dataclass

import torch

from adjoin.rl.learner import register_learner
from adjoin.rl.learners.shac import SHAC, SHACOptions
from adjoin.rl.ranges import Count, Positive


@dataclass(frozen=True)
class APGOptions(SHACOptions):
    """Options of analytic policy gradients: those of short-horizon actor-critic, with a longer horizon.

    Attributes:
        horizon: Over how many actions a gradient goes back; what comes after does not count.
        step_clip: See `SHACOptions`; long horizons need it.
    """

    horizon: Count = 64
    step_clip: Positive | None = 100.0


@register_learner
class APG(SHAC):
    """Analytic policy gradients."""

    name = "apg"
    Options = APGOptions

    def _value(self, observation: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(observation[..., 0])

    def _improve_critic(self, observations: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        return {}
