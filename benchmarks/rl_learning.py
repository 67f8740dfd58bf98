"""Learning curves of SHAC on the tasks of DiffRL."""

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from adjoin.rl import Environment, Run, evaluate, train

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


def ants(chosen: list[tuple[int, int]], seconds: float, device: str) -> list[Run]:
    """Train ants by SHAC; the rows of a run begin with its second iteration, at 0 s.

    On a GPU all learn at once, in threads, each on a stream of its own. Nothing else may run while CUDA records a
    graph, so they do their first iterations in turn and go on together.

    Args:
        chosen: Of each ant, how many environments and the seed.
        seconds: When to end, from the second iteration on.
        device: Where they learn.
    """
    cuda = device == "cuda"
    turn, ready = threading.Lock(), threading.Barrier(len(chosen) if cuda else 1)

    def learn(n: int, seed: int, stream: torch.cuda.Stream | None) -> Run:
        began, alone = 0.0, contextlib.ExitStack()

        def late(learner: Any, row: dict[str, float]) -> bool:
            nonlocal began
            if row["iteration"] > 0:
                row["seconds"] -= began
                return row["seconds"] > seconds
            if stream is not None:
                stream.synchronize()
            start = time.perf_counter()
            alone.close()
            ready.wait()
            began = row["seconds"] + time.perf_counter() - start
            return False

        options = {"environments": n, "seed": seed, "device": device, "progress": False, **SETTINGS["ant"]}
        try:
            with alone, torch.cuda.stream(stream):
                alone.enter_context(turn)
                run = train("ant", until=late, **options)
        except BaseException:
            ready.abort()  # the others need not wait
            raise
        del run.rows[0]
        return run

    if not cuda:
        return [learn(n, seed, None) for n, seed in chosen]
    streams = [torch.cuda.Stream() for _ in chosen]
    with ThreadPoolExecutor(len(chosen)) as pool:
        runs = [pool.submit(learn, *each, stream) for each, stream in zip(chosen, streams, strict=True)]
    for error in [run.exception() for run in runs]:
        if error is not None and not isinstance(error, threading.BrokenBarrierError):  # that one follows from another
            raise error
    return [run.result() for run in runs]


def shac(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    """The ant with 64 and with 512 environments for three minutes, on a CPU with 64 to the end; without compiling."""
    curves: dict[str, Any] = {}
    cuda, seeds = device == "cuda", range(1 if quick else 5)
    seconds = 20.0 if quick else 60.0 * MINUTES["shac"] if cuda else math.inf
    chosen = [(n, seed) for n in ((64, 512) if quick or cuda else (64,)) for seed in seeds]
    beside = f", beside {len(chosen) - 1} other runs" if cuda else ""
    best: dict[int, list[float]] = {}
    for (n, seed), run in zip(chosen, ants(chosen, seconds, device), strict=True):
        curves[f"{n} environments, seed {seed}"] = curve(run.rows)
        reached = [row["seconds"] for row in run.rows if row["return"] >= PUBLISHED["shac"]]
        best.setdefault(n, []).append(run.best)
        yield {
            "name": f"ant, {n} environments, seed {seed}: best return",
            "value": run.best,
            "unit": "",
            "at_least": PUBLISHED["shac"],
            "note": f"{run.rows[-1]['seconds']:.0f} s, {len(run.rows)} iterations{beside}"
            + (f"; 7,588 after {reached[0]:.0f} s" if reached else ""),
        }
    for n, values in best.items():
        yield {
            "name": f"ant, {n} environments: mean of the best returns",
            "value": sum(values) / len(values),
            "unit": "",
            "at_least": PUBLISHED["shac"],
            "note": f"{len(values)} seeds",
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
