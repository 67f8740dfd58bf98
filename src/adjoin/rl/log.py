"""Logs of a training run: a CSV file, TensorBoard, and a picture at the end."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adjoin.extras import needed

CSV, PLOT = "log.csv", "returns.png"


class Log:
    """Writes a row for each iteration.

    Args:
        folder: Where the files go.
        tensorboard: Whether to write for TensorBoard too.
        rows: How many rows of an earlier run are kept; the rows after them are dropped.
    """

    def __init__(self, folder: Path, tensorboard: bool = False, rows: int = 0):
        self.path, self._tensorboard = folder / CSV, None
        self.rows: list[dict[str, float]] = read_log(self.path)[:rows] if self.path.is_file() else []
        self.path.unlink(missing_ok=True)
        for row in self.rows:
            self._write(row)
        if tensorboard:
            needed("tensorboard", "rl", "a log for TensorBoard")
            from torch.utils.tensorboard import SummaryWriter

            self._tensorboard = SummaryWriter(str(folder), purge_step=len(self.rows) or None)

    def add(self, row: Mapping[str, float]) -> None:
        """Write a row; it has "iteration" and "steps"."""
        self.rows.append(dict(row))
        self._write(row)
        if self._tensorboard is not None:
            for name, value in row.items():
                if name not in ("iteration", "steps") and math.isfinite(value):
                    self._tensorboard.add_scalar(name, value, int(row["iteration"]))

    def close(self) -> None:
        """Write what is left."""
        if self._tensorboard is not None:
            self._tensorboard.close()

    def _write(self, row: Mapping[str, float]) -> None:
        new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            if new:
                writer.writeheader()
            writer.writerow(row)


def read_log(path: Path) -> list[dict[str, float]]:
    """Return the rows of a log."""
    with path.open(newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def plot_returns(runs: Mapping[str, Sequence[Mapping[str, float]]], path: Path) -> Path:
    """Draw returns over steps and over time, one line a run, and return the path of the picture."""
    figure: Any = needed("matplotlib.figure", "plot", "a plot of returns").Figure(figsize=(10, 4), layout="constrained")
    labels = {"steps": "actions, of all environments", "seconds": "time, s"}
    for axes, (name, label) in zip(figure.subplots(1, 2, sharey=True), labels.items(), strict=True):
        for run, rows in runs.items():
            axes.plot([row[name] for row in rows], [row["return"] for row in rows], label=run)
        axes.set(xlabel=label, ylabel="mean return of the latest episodes" if name == "steps" else "")
        axes.grid(alpha=0.3)
        if len(runs) > 1:
            axes.legend()
    figure.savefig(path, dpi=100)
    return path
