"""Returns and lengths of the episodes that environments finish."""

from collections.abc import Callable, Mapping

import torch

from adjoin.errors import InputError
from adjoin.rl import distributed
from adjoin.rl.environment import Environment
from adjoin.rl.vector import Transition, Vector


class Episodes:
    """Adds up the rewards of n environments, in place, so that it may be part of a CUDA graph.

    Args:
        n: How many environments.
        device: Where they are.
        window: Over how many finished episodes the mean return is taken, at least.
    """

    def __init__(self, n: int, device: torch.device, window: int = 64):
        self.window = window
        # NaN until the first reset: what began in the middle of an episode does not count.
        self.running, self.steps = torch.full((2, n), torch.nan, dtype=torch.float64, device=device)
        self.sums = torch.zeros(3, dtype=torch.float64, device=device)  # returns, lengths, episodes
        self.recent = torch.zeros(0, 3, dtype=torch.float64)
        self.finite = torch.ones(2, n, dtype=torch.bool, device=device)  # rewards and observations so far

    @torch.no_grad()
    def add(self, step: Transition) -> None:
        """Take a step into account."""
        seen, done = step.observation + step.final_observation, step.done
        self.finite &= torch.stack([step.reward.isfinite(), seen.isfinite().all(-1)])
        self.running += step.reward
        self.steps += 1.0
        ended = done & ~self.running.isnan()
        self.sums += torch.stack([torch.where(ended, x, 0.0).sum() for x in (self.running, self.steps, ended.double())])
        self.running.masked_fill_(done, 0.0)
        self.steps.masked_fill_(done, 0.0)

    def check(self, task: str) -> None:
        """Raise where a reward or an observation was not finite."""
        for what, finite in zip(("reward", "observation"), self.finite.cpu(), strict=True):
            if not finite.all():
                raise InputError(f"task {task!r}: the {what} of environment {int(finite.int().argmin())} is not finite")

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return everything that it remembers, by name."""
        return {name: getattr(self, name) for name in ("running", "steps", "sums", "recent")}

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Continue from what `tensors` returned."""
        for name in ("running", "steps", "sums"):
            getattr(self, name).copy_(tensors[name])
        self.recent = tensors["recent"].cpu()

    def summary(self) -> dict[str, float]:
        """Return mean return and length of the latest episodes in all processes, and how many ended lately.

        Both means are NaN before the first episode has ended.
        """
        sums = distributed.total(self.sums).cpu().clone()
        self.sums.zero_()
        if sums[2] > 0:
            self.recent = torch.cat([self.recent, sums[None]])
            later = self.recent[:, 2].flip(0).cumsum(0).flip(0) - self.recent[:, 2]
            self.recent = self.recent[later < self.window]  # what is older is not needed to fill the window
        total = self.recent.sum(0)
        mean_return, length = (total[:2] / total[2]).tolist() if total[2] > 0 else (float("nan"), float("nan"))
        return {"return": mean_return, "length": length, "episodes": int(sums[2])}


@torch.no_grad()
def evaluate(
    environment: Environment,
    policy: Callable[[torch.Tensor], torch.Tensor],
    n: int = 64,
    seed: int = 0,
    watch: Callable[[Vector, Transition], None] | None = None,
) -> torch.Tensor:
    """Return the returns of n episodes from fresh starts, (n,).

    Args:
        environment: The environment.
        policy: From observations (n, size) to actions (n, nu).
        n: How many episodes.
        seed: Where the starts come from.
        watch: Called after each step.
    """
    generator = torch.Generator(environment.device).manual_seed(seed)
    vector = Vector(environment, n, generator, graph=watch is None)
    observation, alive = vector.observe(), torch.ones(n, dtype=torch.bool, device=environment.device)
    total = torch.zeros(n, dtype=torch.float64, device=environment.device)
    for _ in range(environment.task.episode_steps):
        step = vector.step(policy(observation))
        total += torch.where(alive, step.reward, 0.0)
        alive &= ~step.done
        observation = step.observation
        if watch is not None:
            watch(vector, step)
        if not alive.any():
            break
    return total
