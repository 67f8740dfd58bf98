"""Throwing, golf and the racecar of Qiao et al. (ICML 2021), section 6.3: with gradients, and with CMA-ES.

    python benchmarks/motion_control.py --sections throw,golf,racecar [--quick]

Both methods get the same objective, which one fused launch evaluates for all samples of a generation or all lengths of
a line search; CMA-ES is timed one rollout at a time too. Seeds are random starts, and of the racecar angles of its
front wheels. CMA-ES has a diagonal covariance where there are thousands of numbers, and the best standard deviation of
a search in steps of three, on the first seed. Seconds are without compilation.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch

from adjoin.control import scenes
from adjoin.control.decision import Spline
from adjoin.control.objective import Objective
from adjoin.control.optimise import LBFGS, GaussNewton, History, Method, optimise
from adjoin.control.sampling import CMAES

SEEDS = 10
ACCURACY = 1e-6  # m, at which times are compared
SINGLY = 10  # generations that are timed one rollout at a time


@dataclass(frozen=True)
class Experiment:
    """What is compared.

    Attributes:
        make: the objective for a seed.
        gradient: the method with gradients.
        sampling: the one without.
        iterations: of the one with.
        generations: of the one without.
        random: whether each seed starts at random; else at the decision's own start.
    """

    make: Callable[[int], Objective]
    gradient: Method
    sampling: CMAES
    iterations: int
    generations: int
    random: bool = True

    def run(self, method: Method, seed: int, iterations: int) -> History:
        """One run of a method whose kernels are compiled."""
        objective, starts = self.make(seed), 1 if self.random else None
        optimise(objective, method, starts=starts, seed=seed, iterations=1)
        return optimise(objective, method, starts=starts, seed=seed, iterations=iterations, tolerance=0.0).history


def throw(quick: bool) -> Iterator[dict[str, Any]]:
    objective = scenes.throw()
    sampling = CMAES(sigma=0.3, diagonal=True, patience=10**6)
    experiment = Experiment(lambda _: objective, LBFGS(patience=10**6), sampling, 20, 30 if quick else 500)
    yield from compare("throw", experiment, 2 if quick else SEEDS, bars=not quick)


def golf(quick: bool) -> Iterator[dict[str, Any]]:
    objective, few = scenes.golf(), scenes.golf(Spline(10, spread=1.0))
    sampling = CMAES(sigma=3.0, diagonal=True, patience=10**6)
    experiment = Experiment(lambda _: objective, LBFGS(patience=10**6), sampling, 50, 60 if quick else 1500)
    yield from compare("golf", experiment, 2 if quick else SEEDS, bars=not quick)
    full = replace(sampling, sigma=1.0, diagonal=False)
    smooth = replace(experiment, make=lambda _: few, sampling=full, generations=30 if quick else 500)
    yield from times("golf, 10 knots", *both(smooth, 1 if quick else 3), smooth, bars=False)


def racecar(quick: bool) -> Iterator[dict[str, Any]]:
    sampling = CMAES(patience=10**6)
    experiment = Experiment(scenes.racecar, GaussNewton(patience=10**6), sampling, 10, 40, random=False)
    count = 2 if quick else SEEDS
    found, sampled = both(experiment, count)
    needed = [reached(history, 0.01) for history in found]
    yield figure("racecar: iterations to 0.01 m, median", median(needed), "", at_most=10, note=spread(needed))
    yield figure("racecar: iterations to 0.01 m, most", max(needed), "", at_most=10)
    yield from times("racecar", found, sampled, experiment)
    yield from times("racecar", found, sampled, experiment, 0.01, bars=False)
    frictions = torch.linspace(0.0, 0.3, 31, dtype=torch.float64)
    losses = scenes.racecar().losses(frictions[:, None])
    landscape = {"friction": frictions.tolist(), "loss": losses.tolist()}
    yield {"table": {**curves(found, sampled), "landscape": landscape}}


def compare(name: str, experiment: Experiment, seeds: int, *, bars: bool) -> Iterator[dict[str, Any]]:
    """Iterations, distances that are reached, and times; few generations say nothing about bars on times."""
    found, sampled = both(experiment, seeds)
    needed = [reached(history, ACCURACY) for history in found]
    most = experiment.iterations
    what = f"{name}: iterations to 1 um"
    yield figure(f"{what}, median", median(needed), "", at_most=most, note=spread(needed))
    yield figure(f"{what}, most", max(needed), "", at_most=most)
    near, nearer = ([float(distances(history)[-1]) for history in histories] for histories in (found, sampled))
    generations = experiment.generations
    yield figure(f"{name}: distance after {most} iterations, median", median(near), "m", note=spread(near))
    yield figure(f"{name}: after {generations} of CMA-ES, median", median(nearer), "m", note=spread(nearer))
    equal = sum(b <= a for a, b in zip(near, nearer, strict=True))
    yield figure(f"{name}: seeds in which CMA-ES comes as near", equal, "", at_most=0)
    yield from times(name, found, sampled, experiment, bars=bars)
    yield from times(name, found, sampled, experiment, 1e-3, bars=False)
    yield {"table": curves(found, sampled)}


def times(
    name: str,
    found: list[History],
    sampled: list[History],
    experiment: Experiment,
    accuracy: float = ACCURACY,
    *,
    bars: bool = True,
) -> Iterator[dict[str, Any]]:
    """Seconds to an accuracy; where CMA-ES does not reach it, all that it ran for, which is too little."""
    bar = {"at_least": 20} if bars else {}
    ours = [until(history, history.seconds, accuracy) for history in found]
    yield figure(f"{name}: seconds to {accuracy:g} m, median", median(ours), "s", note=spread(ours))
    counts = [median(until(x, x.rollouts, accuracy) for x in histories) for histories in (found, sampled)]
    yield figure(f"{name}: rollouts to {accuracy:g} m, median", counts[0], "", peer=("CMA-ES", counts[1]))
    missed = sum(reached(history, accuracy) == float("inf") for history in sampled)
    note = f"; {missed} of {len(sampled)} did not get there: a lower bound" if missed else ""
    ratios = [until(b, b.seconds, accuracy) / a for a, b in zip(ours, sampled, strict=True)]
    yield figure(f"{name}: CMA-ES, batched, to {accuracy:g} m", median(ratios), "x", **bar, note=spread(ratios) + note)
    alone = experiment.run(replace(experiment.sampling, batched=False), 0, SINGLY)
    each = float(alone.seconds[-1]) / SINGLY
    generations = [min(reached(history, accuracy), len(history.seconds) - 1) for history in sampled]
    ratios = [each * count / a for a, count in zip(ours, generations, strict=True)]
    yield figure(
        f"{name}: CMA-ES, one by one, to {accuracy:g} m", median(ratios), "x", **bar, note=spread(ratios) + note
    )


def both(experiment: Experiment, seeds: int) -> tuple[list[History], list[History]]:
    """Histories of both methods for each seed."""
    return (
        [experiment.run(experiment.gradient, seed, experiment.iterations) for seed in range(seeds)],
        [experiment.run(experiment.sampling, seed, experiment.generations) for seed in range(seeds)],
    )


def distances(history: History) -> torch.Tensor:
    """The least distance so far, m."""
    return history.best[:, 0].sqrt()


def reached(history: History, accuracy: float) -> float:
    """The first iteration at which the distance is small enough."""
    there = (distances(history) < accuracy).nonzero()
    return int(there[0]) if len(there) else float("inf")


def until(history: History, counted: torch.Tensor, accuracy: float) -> float:
    """Seconds or rollouts until the distance is small enough, or all."""
    return float(counted[int(min(reached(history, accuracy), len(counted) - 1))])


def spread(values: list[float]) -> str:
    return f"{min(values):.3g} to {max(values):.3g} over {len(values)} seeds"


def figure(name: str, value: float, unit: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, **more}


def curves(found: list[History], sampled: list[History]) -> dict[str, Any]:
    """For a picture: distances and seconds of each seed."""
    return {
        method: [{"distance": distances(x).tolist(), "seconds": x.seconds.tolist()} for x in histories]
        for method, histories in (("gradient", found), ("cma", sampled))
    }
