"""Optimizers without gradients, for the same objectives: CMA-ES and MPPI.

Sources: Hansen and Ostermeier, Completely derandomized self-adaptation in evolution strategies, 2001, by the package
`cma`; Williams et al., Information theoretic MPC for model-based reinforcement learning, 2017.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from adjoin.control.method import FAILURES, Problem, Rows, check
from adjoin.errors import InputError
from adjoin.extras import needed


@dataclass(frozen=True)
class CMAES:
    """Evolution with a covariance matrix that adapts; an iteration is a generation. Needs the package `cma`.

    Attributes:
        sigma: standard deviation to begin with, in units of the spread.
        population: samples a generation; by default 4 + 3 log(size).
        diagonal: whether the covariance is diagonal, which thousands of numbers ask for.
        batched: whether the generations of all starts are one launch; else it is one rollout at a time.
        patience: generations that may gain less than the tolerance before a start stops.
    """

    sigma: float = 0.3
    population: int | None = None
    diagonal: bool = False
    batched: bool = True
    patience: int = 50

    def __post_init__(self):
        least = {"patience": 1} if self.population is None else {"patience": 1, "population": 2}
        check(self, positive=["sigma"], least=least)

    def begin(self, problem: Problem, z: torch.Tensor, seed: int) -> Rows:
        """See `Method`."""
        cma = needed("cma", "control", "CMAES")
        free = problem.lower < problem.upper
        if not bool(free.any()):
            raise InputError("CMAES: the limits leave no number to decide: lower and upper ones are the same")
        bounds = [limit[free].double().cpu().numpy() for limit in (problem.lower, problem.upper)]
        options: dict[str, Any] = {"bounds": bounds, "CMA_diagonal": self.diagonal, "seed": np.nan, "verbose": -9}
        sigma = self.sigma
        if len(bounds[0]) == 1:
            # The package keeps samples from spreading wider than a third of the box, but fails at this for one number.
            sigma, options["maxstd"] = min(sigma, float(bounds[1][0] - bounds[0][0]) / 3.0), np.inf
        if self.population is not None:
            options["popsize"] = self.population
        searches = [
            cma.CMAEvolutionStrategy(
                mean, sigma, {**options, "randn": np.random.RandomState(seed + k).randn, "verb_log": 0}
            )
            for k, mean in enumerate(z[:, free].double().cpu().numpy())
        ]
        loss = self._losses(problem, z)
        return {"z": z, "loss": loss, "best": z, "failures": torch.zeros_like(loss), "search": searches}

    def advance(self, problem: Problem, rows: Rows) -> Rows:
        """See `Method`."""
        asked = [search.ask() for search in rows["search"]]
        tried = self._whole(problem, rows["z"], np.stack([np.stack(samples) for samples in asked]))
        losses = self._losses(problem, tried)
        for search, samples, found in zip(rows["search"], asked, losses.double().cpu().numpy(), strict=True):
            fine = np.isfinite(found)
            worst = found[fine].max() if fine.any() else 0.0
            search.tell(samples, np.where(fine, found, worst + 1.0).tolist())
        ended = [float(FAILURES) if search.stop() else 0.0 for search in rows["search"]]
        best, loss = _best(losses, tried)
        return {
            **rows,
            "z": self._whole(problem, rows["z"], np.stack([search.mean for search in rows["search"]])[:, None])[:, 0],
            "loss": loss,
            "best": best,
            "failures": loss.new_tensor(ended),
        }

    def _whole(self, problem: Problem, z: torch.Tensor, found: np.ndarray) -> torch.Tensor:
        """All numbers (starts, k, size) of those that the limits leave free, as `cma` gives them."""
        whole = z[:, None].repeat(1, found.shape[1], 1)
        whole[..., problem.lower < problem.upper] = torch.from_numpy(found).to(z)
        return whole

    def _losses(self, problem: Problem, z: torch.Tensor) -> torch.Tensor:
        if self.batched:
            return problem.losses(z)
        flat = z.reshape(-1, z.shape[-1])
        return torch.cat([problem.losses(each) for each in flat.split(1)]).reshape(z.shape[:-1])


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
        check(self, positive=["sigma", "temperature"], shares=["decay"], least={"samples": 2, "patience": 1})

    def begin(self, problem: Problem, z: torch.Tensor, seed: int) -> Rows:
        """See `Method`."""
        loss = problem.losses(z)
        seeds = seed + torch.arange(len(z), device=z.device)
        return {"z": z, "loss": loss, "best": z, "seed": seeds, "count": torch.zeros_like(seeds)}

    def advance(self, problem: Problem, rows: Rows) -> Rows:
        """See `Method`."""
        z, count = rows["z"], rows["count"]
        noise = torch.from_numpy(
            np.stack(
                [
                    np.random.default_rng(key).standard_normal((self.samples, z.shape[1]))
                    for key in zip(rows["seed"].tolist(), count.tolist(), strict=True)
                ]
            )
        ).to(z)
        noise[:, 0] = 0.0
        tried = problem.project(z[:, None] + (self.sigma * self.decay**count)[:, None, None] * noise)
        losses = problem.losses(tried)
        fine = losses.isfinite()
        known = torch.where(fine, losses, 0.0)
        number = fine.sum(1, keepdim=True).clamp(min=1)
        away = torch.where(fine, losses - known.sum(1, keepdim=True) / number, 0.0)
        unit = (away.square().sum(1, keepdim=True) / number).sqrt() + torch.finfo(z.dtype).tiny
        best, loss = _best(losses, tried)
        above = torch.where(fine, losses - loss[:, None], torch.inf) / (self.temperature * unit)
        weights = torch.softmax(-above, 1)
        moved = torch.einsum("bk,bkn->bn", weights, tried)
        return {
            **rows,
            "z": torch.where(fine.any(1, keepdim=True), moved, z),
            "loss": loss,
            "best": best,
            "count": count + 1,
        }


def _best(losses: torch.Tensor, tried: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The best sample of each start, and its loss."""
    loss, at = losses.min(1)
    return tried.gather(1, at[:, None, None].expand(-1, 1, tried.shape[-1])).squeeze(1), loss
