"""Two processes against one, on two cores, with the same total batch: time and learning curve."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adjoin.rl.log import read_log

TASK, ENVIRONMENTS = "ant", 128
WANTED = 1.8  # times as fast


def rows(processes: int, iterations: int, environments: int, folder: Path) -> list[dict[str, float]]:
    """The log of a run under torchrun, each process on one core."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command += ["-m", "adjoin.rl.train", TASK, "--folder", str(folder), "--quiet", "--device", "cpu"]
    command += ["--iterations", str(iterations), "--environments", str(environments // processes)]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)
    return read_log(folder / "log.csv")


def two_processes(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    del device  # cores
    iterations, environments = (4, 8) if quick else (40, ENVIRONMENTS)
    curves: dict[str, list[float]] = {}
    took: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for processes in (1, 2):
            log = rows(processes, iterations, environments, Path(folder, str(processes)))
            took.append(log[-1]["seconds"] - log[0]["seconds"])  # the first iteration compiles
            curves[f"{processes} processes"] = [round(row["return"], 1) for row in log]
    bar = {} if quick else {"at_least": WANTED}
    note = (
        f"{TASK}, {environments} environments in all: {took[0]:.1f} s and {took[1]:.1f} s for {iterations} iterations"
    )
    yield {
        "name": "two processes on two cores: times faster",
        "value": took[0] / took[1],
        "unit": "",
        "note": note,
        **bar,
    }
    yield {"table": curves}
