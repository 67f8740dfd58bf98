"""Throwing, golf and the racecar of Qiao et al. (ICML 2021), section 6.3: with gradients, and with CMA-ES.

    python benchmarks/motion_control.py --sections throw,golf,racecar [--quick] [--device cuda]

Both methods get the same objective, which one fused launch evaluates for all samples of a generation or all trials of
an iteration; CMA-ES is timed one rollout at a time too. Seeds are random starts, and of the racecar angles of its
front wheels. CMA-ES has a diagonal covariance where there are thousands of numbers, its own population, and the best
standard deviation of a search in steps of three, on the first seed. Seconds are those of the clock, without
compilation, and each ratio is of one seed: medians of these, and their spread.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from adjoin.control import GaussNewton, History, optimize
from adjoin.control.objective import Objective
from adjoin.control.optimizers.method import Method
from adjoin.control.optimizers.sampling import CMAES
from adjoin.control.variables import Spline

sys.path.append(str(Path(__file__).parents[1] / "examples"))
import scenes

SEEDS = 10
LEVELS = (1e-2, 1e-3, 1e-6)  # m, at which times are compared
SINGLY = 10  # generations that are timed one rollout at a time
POINTS = 12  # of a curve for a picture


@dataclass(frozen=True)
class Experiment:
    """What is compared.

    Attributes:
        name: of the experiment.
        make: the objective for a seed.
        gradient: the method with gradients.
        sampling: the one without.
        iterations: of the one with.
        generations: of the one without.
        seeds: how many.
        random: whether each seed starts at random; else at the decision's own start.
    """

    name: str
    make: Callable[[int], Objective]
    gradient: Method
    sampling: CMAES
    iterations: int
    generations: int
    seeds: int
    random: bool = True

    def run(self, method: Method, seed: int, iterations: int) -> History:
        """One run of a method whose kernels are compiled."""
        objective, starts = self.make(seed), 1 if self.random else None
        optimize(objective, method, starts=starts, seed=seed, iterations=1)
        return optimize(objective, method, starts=starts, seed=seed, iterations=iterations, tolerance=0.0).history

    def both(self) -> tuple[list[History], list[History]]:
        """Histories of both methods for each seed."""
        return (
            [self.run(self.gradient, seed, self.iterations) for seed in range(self.seeds)],
            [self.run(self.sampling, seed, self.generations) for seed in range(self.seeds)],
        )


def throw(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    objective = scenes.throw(device=device)
    sampling = CMAES(sigma=0.3, diagonal=True, patience=10**6)
    generations, seeds = (20, 1) if quick else (500, SEEDS)
    gradient = GaussNewton(patience=10**6)
    experiment = Experiment("throw", lambda _: objective, gradient, sampling, 20, generations, seeds)
    yield from compare(experiment, bars=not quick)


def golf(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    objective, few = scenes.golf(device=device), scenes.golf(Spline(10, spread=1.0), device=device)
    sampling = CMAES(sigma=1.0, diagonal=True, patience=10**6)
    generations, seeds = (150, 2) if quick else (1500, SEEDS)
    gradient = GaussNewton(damping=10.0, patience=10**6)
    experiment = Experiment("golf", lambda _: objective, gradient, sampling, 50, generations, seeds)
    yield from compare(experiment, bars=not quick)
    full, generations, seeds = replace(sampling, diagonal=False), *((30, 1) if quick else (500, 3))
    smooth = replace(
        experiment, name="golf, 10 knots", make=lambda _: few, sampling=full, generations=generations, seeds=seeds
    )
    yield from times(smooth, *smooth.both(), LEVELS[2:], bars=False)


def racecar(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    def make(seed: int) -> Objective:
        return scenes.racecar(seed, device=device)

    sampling, seeds = CMAES(patience=10**6), 2 if quick else SEEDS
    gradient = GaussNewton(patience=10**6)
    experiment = Experiment("racecar", make, gradient, sampling, 10, 60, seeds, random=False)
    found, sampled = experiment.both()
    yield from iterations_to(experiment, found, LEVELS[0])
    yield from times(experiment, found, sampled, LEVELS)
    objective = make(0)
    alone = one_rollout(objective)
    note = "the most that any method could have"
    for accuracy in LEVELS:
        ratios = [until(history, history.seconds, accuracy) / alone for history in sampled]
        name = f"racecar: CMA-ES, batched, to {accuracy:g} m, by one rollout"
        yield figure(name, median(ratios), "x", note=f"{note}; {spread(ratios)}")
    frictions = torch.linspace(0.0, 0.3, 16, dtype=torch.float64, device=device)
    landscape = {"friction": short(frictions), "loss": short(objective.losses(frictions[:, None]))}
    yield {"table": {**curves(found, sampled), "landscape": landscape}}


def compare(experiment: Experiment, *, bars: bool) -> Iterator[dict[str, Any]]:
    """Iterations, distances that are reached, and times; few generations say nothing about bars on times."""
    found, sampled = experiment.both()
    yield from iterations_to(experiment, found, LEVELS[-1])
    near, nearer = ([float(distances(history)[-1]) for history in histories] for histories in (found, sampled))
    after = f"{experiment.name}: distance after {experiment.iterations} iterations, median"
    peer = (f"CMA-ES, {experiment.generations} generations", median(nearer))
    yield figure(after, median(near), "m", peer=peer, note=f"{spread(near)}; {spread(nearer)}")
    equal = sum(b <= a for a, b in zip(near, nearer, strict=True))
    yield figure(f"{experiment.name}: seeds in which CMA-ES comes as near", equal, "", at_most=0)
    yield from times(experiment, found, sampled, LEVELS, bars=bars)
    yield {"table": curves(found, sampled)}


def iterations_to(experiment: Experiment, found: list[History], accuracy: float) -> Iterator[dict[str, Any]]:
    needed = [reached(history, accuracy) for history in found]
    name, most = f"{experiment.name}: iterations to {accuracy:g} m", experiment.iterations
    yield figure(f"{name}, median", median(needed), "", at_most=most, note=spread(needed))
    yield figure(f"{name}, most", max(needed), "", at_most=most)


def times(
    experiment: Experiment,
    found: list[History],
    sampled: list[History],
    levels: tuple[float, ...],
    *,
    bars: bool = True,
) -> Iterator[dict[str, Any]]:
    """Seconds to accuracies; where CMA-ES does not reach one, all that it ran for, which is too little."""
    alone = experiment.run(replace(experiment.sampling, batched=False), 0, SINGLY)
    each = float(alone.seconds[-1]) / SINGLY
    bar = {"at_least": 20} if bars else {}
    for accuracy in levels:
        name = f"{experiment.name}: {{}} to {accuracy:g} m"
        ours, theirs = ([until(x, x.seconds, accuracy) for x in histories] for histories in (found, sampled))
        rollouts = [median(until(x, x.rollouts, accuracy) for x in histories) for histories in (found, sampled)]
        note = f"{spread(ours)}; {rollouts[0]:.0f} and {rollouts[1]:.0f} rollouts"
        yield figure(name.format("seconds"), median(ours), "s", peer=("CMA-ES", median(theirs)), note=note)
        missed = sum(reached(history, accuracy) == float("inf") for history in sampled)
        note = f"; {missed} did not get there: a lower bound" if missed else ""
        ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
        yield figure(name.format("CMA-ES, batched,"), median(ratios), "x", **bar, note=spread(ratios) + note)
        generations = [min(reached(history, accuracy), len(history.seconds) - 1) for history in sampled]
        ratios = [each * count / a for a, count in zip(ours, generations, strict=True)]
        yield figure(name.format("CMA-ES, one by one,"), median(ratios), "x", **bar, note=spread(ratios) + note)


def one_rollout(objective: Objective) -> float:
    """Seconds that the loss of one decision takes, the median of some."""
    taken = []
    for _ in range(12):
        begun = time.perf_counter()
        float(objective.losses(objective.box.start[None]))
        taken.append(time.perf_counter() - begun)
    return median(taken[2:])


def distances(history: History) -> torch.Tensor:
    """The least distance so far, m."""
    return (2.0 * history.best[:, 0]).sqrt().cpu()


def reached(history: History, accuracy: float) -> float:
    """The first iteration at which the distance is small enough."""
    there = (distances(history) < accuracy).nonzero()
    return int(there[0]) if len(there) else float("inf")


def until(history: History, counted: torch.Tensor, accuracy: float) -> float:
    """Seconds or rollouts until the distance is small enough, or all."""
    return float(counted[int(min(reached(history, accuracy), len(counted) - 1))])


def spread(values: list[float]) -> str:
    return f"{min(values):.3g} to {max(values):.3g}"


def figure(name: str, value: float, unit: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, **more}


def curves(found: list[History], sampled: list[History]) -> dict[str, Any]:
    """For a picture: the median distance over the seeds, and the seconds to it, at some iterations."""
    made = {}
    for method, histories in (("gradient", found), ("cma", sampled)):
        last = max(len(history.seconds) for history in histories) - 1
        places = sorted({0, *torch.logspace(0.0, torch.tensor(float(last)).log10(), POINTS).round().int().tolist()})
        rows = [
            [(distances(x)[min(k, len(x.seconds) - 1)], x.seconds[min(k, len(x.seconds) - 1)]) for x in histories]
            for k in places
        ]
        medians = torch.tensor(rows).median(1).values
        made[method] = {"iteration": places, "distance": short(medians[:, 0]), "seconds": short(medians[:, 1])}
    return made


def short(values: torch.Tensor) -> list[float]:
    """To three digits."""
    return [float(f"{value:.3g}") for value in values.tolist()]
