"""Two processes against one, on two cores, with the same total batch: time and learning curve.

The time is that of iterations on the ant, the first of which compiles and does not count. The curve is of the
cart-pole, for several seeds: two processes draw other starts and noise than one, so runs differ as two seeds do.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from rl_learning import SETTINGS

from adjoin.rl.log import read_log

TIMED, ENVIRONMENTS, TURNS = "ant", 2048, 5
LEARNED, SEEDS = "cartpole", 64  # half an hour on two cores
WANTED = 1.8  # times as fast


def rows(
    task: str, processes: int, environments: int, folder: Path, seed: int = 0, **options: Any
) -> list[dict[str, float]]:
    """The log of a run under torchrun, each process on one core."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command += ["-m", "adjoin.rl.train", task, "--folder", str(folder), "--quiet", "--device", "cpu"]
    command += ["--environments", str(environments // processes), "--seed", str(seed)]
    command += [part for name, value in options.items() for part in ("--option", f"{name}={value}")]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)
    return read_log(folder / "log.csv")


def two_processes(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    del device  # cores
    iterations, environments = (4, 8) if quick else (20, ENVIRONMENTS)
    with tempfile.TemporaryDirectory() as folder:
        took = []
        for turn in range(1 if quick else TURNS):
            took.append([])
            for processes in (1, 2):
                place = Path(folder, f"time{turn}-{processes}")
                log = rows(TIMED, processes, environments, place, iterations=iterations)
                took[-1].append(log[-1]["seconds"] - log[0]["seconds"])
        times = ", ".join(f"{one:.1f} and {two:.1f}" for one, two in took)
        note = f"{TIMED}, {environments} environments in all, in turn: {times} s"
        bar = {} if quick else {"at_least": WANTED}
        name = "two processes on two cores: times faster, median"
        yield {"name": name, "value": median(one / two for one, two in took), "unit": "", "note": note, **bar}
        curves: dict[str, list[float]] = {}
        settings = {**SETTINGS[LEARNED], "iterations": 10 if quick else 100}
        for processes in (1, 2):
            last = []
            for seed in range(2 if quick else SEEDS):
                log = rows(LEARNED, processes, 64, Path(folder, f"{processes}-{seed}"), seed, **settings)
                curves[f"{processes} processes, seed {seed}"] = [round(row["return"], 1) for row in log]
                last.append(log[-1]["return"])
            name = f"{LEARNED}, {processes} process{'es' if processes > 1 else ''}: return, median"
            low, middle, high = quantiles(last, n=4)
            note = f"{settings['iterations']} iterations, 64 environments in all, {len(last)} seeds"
            note = f"{note}, half of them from {low:.0f} to {high:.0f}"
            yield {"name": name, "value": middle, "unit": "", "note": note}
    yield {"table": curves}
