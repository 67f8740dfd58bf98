"""Learning curves of SHAC on the tasks of DiffRL."""

import math
import time
from collections.abc import Iterator
from typing import Any

import torch

from adjoin.rl import Environment, evaluate, train

PUBLISHED = {"shac": 7588.0, "ahac": 9352.0}  # returns of DiffRL's ant, each after 40 minutes
MINUTES = {"shac": 3.0, "ahac": 10.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "ant": {"iterations": 2000},
    "humanoid": {
        "iterations": 2000,
        "environments": 2048,
        "actor": (256, 128),
        "critic": (128, 128),
        "horizon": 16,
    },
    "hopper": {"iterations": 500},
    "half_cheetah": {"iterations": 500},
    "panda_reach": {"iterations": 500},
    "panda_push": {"iterations": 500},
    "cartpole": {"iterations": 200, "actor_rate": 1e-2, "critic_rate": 1e-2},
}


def curve(rows: list[dict[str, float]], points: int = 40) -> dict[str, list[float]]:
    """Some of the rows of a run, for a picture."""
    chosen = rows[:: max(1, len(rows) // points)]
    return {name: [round(row[name], 2) for row in chosen] for name in ("steps", "seconds", "return", "length")}


def shac(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    """The ant with 64 and with 512 environments for three minutes, on a CPU with 64 to the end; without compiling."""
    curves: dict[str, Any] = {}
    limit = 20.0 if quick else 180.0
    for n, seconds in ((64, limit), (512, limit)) if quick or device == "cuda" else ((64, math.inf),):
        for seed in range(1 if quick else 5):
            began = [0.0]

            def late(learner: Any, row: dict[str, float], limit: float = seconds, began: list[float] = began) -> bool:
                began[0] = began[0] or row["seconds"]
                return row["seconds"] - began[0] > limit

            run = train("ant", environments=n, seed=seed, device=device, progress=False, until=late, **SETTINGS["ant"])
            curves[f"{n} environments, seed {seed}"] = curve(run.rows)
            reached = [row["seconds"] - began[0] for row in run.rows if row["return"] >= PUBLISHED["shac"]]
            yield {
                "name": f"ant, {n} environments, seed {seed}: best return",
                "value": run.best,
                "unit": "",
                "at_least": PUBLISHED["shac"],
                "note": f"{run.rows[-1]['seconds'] - began[0]:.0f} s, {len(run.rows)} iterations; "
                f"7,588 after {reached[0]:.0f} s"
                if reached
                else f"{len(run.rows)} iterations",
            }
    yield {"table": curves}


def tasks(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    """Returns of the policy without noise, before and after."""
    for name, settings in SETTINGS.items():
        if name == "ant":
            continue
        chosen = {**settings, "iterations": 20} if quick else settings
        start = time.perf_counter()
        first = train(name, device=device, progress=False, until=lambda learner, row: True, **chosen)
        environment: Environment = first.learner.environment
        before = evaluate(environment, first.policy, 64).mean().item()
        run = train(name, device=device, progress=False, **chosen)
        after = evaluate(environment, run.policy, 64).mean().item()
        took = time.perf_counter() - start
        yield {
            "name": f"{name}: return after",
            "value": after,
            "unit": "",
            "note": f"{before:.4g} before; {took:.0f} s",
        }
    if device == "cuda":
        torch.cuda.synchronize()
