"""Optimizers without gradients, for the same objectives: CMA-ES and MPPI.

Sources: Hansen and Ostermeier, Completely derandomized self-adaptation in evolution strategies, 2001, by the package
`cma`; Williams et al., Information theoretic MPC for model-based reinforcement learning, 2017.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from adjoin.control.optimizers.method import MAX_FAILURES, MethodState, ScaledObjective, check, row_at
from adjoin.errors import InputError
from adjoin.extras import needed


@dataclass(frozen=True)
class CMAES:
    """Evolution with a covariance matrix that adapts; an iteration is a generation. Needs the package `cma`.

    Attributes:
        sigma: standard deviation to begin with, in units of the spread.
        population: samples a generation; by default 4 + 3 log(size).
        diagonal: whether the covariance is diagonal, which thousands of variables ask for.
        batched: whether the generations of all starts are one launch; else it is one rollout at a time.
        patience: generations that may gain less than the tolerance before a start stops.
    """

    sigma: float = 0.3
    population: int | None = None
    diagonal: bool = False
    batched: bool = True
    patience: int = 50

    def __post_init__(self):
        at_least = {"patience": 1} if self.population is None else {"patience": 1, "population": 2}
        check(self, positive=["sigma"], at_least=at_least)

    def begin(self, problem: ScaledObjective, z: torch.Tensor, seed: int) -> MethodState:
        """See `Method`."""
        cma = needed("cma", "control", "CMAES")
        free = problem.lower < problem.upper
        if not bool(free.any()):
            raise InputError("CMAES: the limits leave no variable to decide: lower and upper ones are the same")
        bounds = [limit[free].double().cpu().numpy() for limit in (problem.lower, problem.upper)]
        options: dict[str, Any] = {"bounds": bounds, "CMA_diagonal": self.diagonal, "seed": np.nan, "verbose": -9}
        sigma = self.sigma
        if len(bounds[0]) == 1:
            # The package keeps samples from spreading wider than a third of the box, but fails at this for one number.
            sigma, options["maxstd"] = min(sigma, float(bounds[1][0] - bounds[0][0]) / 3.0), np.inf
        if self.population is not None:
            options["popsize"] = self.population
        strategies = [
            cma.CMAEvolutionStrategy(
                mean, sigma, {**options, "randn": np.random.RandomState(seed + k).randn, "verb_log": 0}
            )
            for k, mean in enumerate(z[:, free].double().cpu().numpy())
        ]
        loss = self._losses(problem, z)
        return {"z": z, "loss": loss, "best": z, "failures": torch.zeros_like(loss), "strategies": strategies}

    def advance(self, problem: ScaledObjective, state: MethodState) -> MethodState:
        """See `Method`."""
        strategies = state["strategies"]
        generations = [strategy.ask() for strategy in strategies]
        samples = self._with_fixed(problem, state["z"], np.stack([np.stack(generation) for generation in generations]))
        losses = self._losses(problem, samples)
        for strategy, generation, row in zip(strategies, generations, losses.double().cpu().numpy(), strict=True):
            finite = np.isfinite(row)
            worst = row[finite].max() if finite.any() else 0.0
            strategy.tell(generation, np.where(finite, row, worst + 1.0).tolist())
        loss, best = losses.min(1)
        means = np.stack([strategy.mean for strategy in strategies])[:, None]
        return {
            **state,
            "z": self._with_fixed(problem, state["z"], means)[:, 0],
            "loss": loss,
            "best": row_at(samples, best),
            "failures": loss.new_tensor([float(MAX_FAILURES) if strategy.stop() else 0.0 for strategy in strategies]),
        }

    def _with_fixed(self, problem: ScaledObjective, z: torch.Tensor, free_variables: np.ndarray) -> torch.Tensor:
        """All variables (starts, k, size) of those that the limits leave free, as `cma` returns them."""
        variables = z[:, None].repeat(1, free_variables.shape[1], 1)
        variables[..., problem.lower < problem.upper] = torch.from_numpy(free_variables).to(z)
        return variables

    def _losses(self, problem: ScaledObjective, z: torch.Tensor) -> torch.Tensor:
        if self.batched:
            return problem.losses(z)
        return torch.cat([problem.losses(row) for row in z.reshape(-1, z.shape[-1]).split(1)]).reshape(z.shape[:-1])


@dataclass(frozen=True)
class MPPI:
    """Path integrals: the mean of random samples, each with a weight that falls with its loss. One launch an iteration.

    Attributes:
        sigma: standard deviation of the samples, in units of the spread.
        samples: how many for each start.
        temperature: by how many standard deviations of the samples' losses a loss must be above the least for its
            weight to be e times smaller.
        decay: what sigma is multiplied with in each iteration.
        patience: iterations that may gain less than the tolerance before a start stops.
    """

    sigma: float = 0.3
    samples: int = 64
    temperature: float = 0.3
    decay: float = 0.98
    patience: int = 30

    def __post_init__(self):
        check(self, positive=["sigma", "temperature"], fractions=["decay"], at_least={"samples": 2, "patience": 1})

    def begin(self, problem: ScaledObjective, z: torch.Tensor, seed: int) -> MethodState:
        """See `Method`."""
        seeds = seed + torch.arange(len(z), device=z.device)
        return {"z": z, "loss": problem.losses(z), "best": z, "seed": seeds, "count": torch.zeros_like(seeds)}

    def advance(self, problem: ScaledObjective, state: MethodState) -> MethodState:
        """See `Method`."""
        z, count = state["z"], state["count"]
        keys = zip(state["seed"].tolist(), count.tolist(), strict=True)
        noise = np.stack([np.random.default_rng(key).standard_normal((self.samples, z.shape[1])) for key in keys])
        noise[:, 0] = 0.0
        sigma = (self.sigma * self.decay**count)[:, None, None]
        samples = problem.project(z[:, None] + sigma * torch.from_numpy(noise).to(z))
        losses = problem.losses(samples)
        finite = losses.isfinite()
        number = finite.sum(1, keepdim=True).clamp(min=1)
        mean = torch.where(finite, losses, 0.0).sum(1, keepdim=True) / number
        deviations = torch.where(finite, losses - mean, 0.0)
        unit = (deviations.square().sum(1, keepdim=True) / number).sqrt() + torch.finfo(z.dtype).tiny
        loss, best = losses.min(1)
        above = torch.where(finite, losses - loss[:, None], torch.inf) / (self.temperature * unit)
        moved = torch.einsum("bk,bkn->bn", torch.softmax(-above, 1), samples)
        return {
            **state,
            "z": torch.where(finite.any(1, keepdim=True), moved, z),
            "loss": loss,
            "best": row_at(samples, best),
            "count": count + 1,
        }
