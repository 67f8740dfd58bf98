"""Policy enhancement on n-link pendulums: Table 4 of Qiao et al., ICML 2021.

A step is 1/60 s, an episode 100 steps and an epoch one episode with five updates a step, as in the authors' code; 100 n
epochs. The table has the greatest return of an episode without noise in the course of training. At this step of time a
long chain gains energy from the integrator; "RK4" takes four evaluations and four substeps instead, which does not.
"""

import math
from collections.abc import Iterator
from typing import Any

from adjoin import RK4
from adjoin.rl import Learner, evaluate, train

PAPER = {1: 0.49, 2: 1.93, 3: 4.28, 4: 7.81, 5: 12.31, 6: 17.78, 7: 24.34}
MBPO = {1: 0.49, 2: 1.90, 3: 4.28, 4: 7.50, 5: 11.13, 6: 15.02, 7: 19.97}
SETTINGS: dict[str, Any] = {"discount": 1.0, "ends_at_time": True, "entropy": -0.01, "epoch_steps": 100, "updates": 5}
RUNS = {
    "policy_enhancement": ("policy enhancement", {}),
    "mbpo": ("our MBPO", {}),
    "sac": ("our SAC", {"model": False}),
}


def best_return(
    algorithm: str,
    links: int,
    epochs: int,
    honest: bool,
    seed: int = 0,
    device: str = "cpu",
    seconds: float = math.inf,
) -> tuple[float, int]:
    """The greatest return of an episode without noise, and after how many epochs training ended.

    It ends before its time where the greatest possible return is reached, 0.5 links², to a thousandth.
    """
    physics = {"integrator": RK4(), "substeps": 4} if honest else {}
    best, enough = [-math.inf], 0.999 * 0.5 * links**2

    def watch(learner: Learner, row: dict[str, float]) -> bool:
        if learner.iteration % 5 == 0:
            best[0] = max(best[0], evaluate(learner.environment, learner.act, 1).item())
        return best[0] > enough or row["seconds"] > seconds

    options = {**SETTINGS, **RUNS[algorithm][1], "iterations": epochs, "seed": seed}
    name = "mbpo" if algorithm == "sac" else algorithm
    task = {"links": links, **physics}
    run = train("pendulum", name, task_options=task, device=device, progress=False, until=watch, **options)
    return best[0], len(run.rows)


def policy_enhancement(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    del device  # one environment at a time: a CPU is faster
    for links in range(1, 2 if quick else 8):
        for algorithm, (label, _) in RUNS.items():
            for honest in (False, True):
                value, epochs = best_return(algorithm, links, 20 if quick else 100 * links, honest)
                bar = {"at_least": PAPER[links]} if algorithm == "policy_enhancement" and not honest else {}
                peers = {"policy_enhancement": PAPER, "mbpo": MBPO}
                peer = {"peer": ("paper", peers[algorithm][links])} if algorithm in peers and not honest else {}
                name = f"pendulum, {links} links, {label}{', RK4' if honest else ''}"
                yield {"name": name, "value": value, "unit": "", "note": f"{epochs} epochs", **bar, **peer}
