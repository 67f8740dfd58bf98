"""Plots of losses."""

from collections.abc import Mapping
from typing import Any

from adjoin.control.optimize import History
from adjoin.errors import InputError
from adjoin.extras import needed


def plot_losses(histories: Mapping[str, History], panels: int = 2, loss: str = "loss") -> tuple[Any, list[Any]]:
    """Plot the best loss of each method so far, against iterations and against seconds; lines are starts.

    Args:
        histories: method -> how its losses fell.
        panels: how many there are; what comes after the first two is left to the caller.
        loss: what it is, with its unit.

    Returns:
        A matplotlib figure and its axes.
    """
    if (
        not isinstance(histories, Mapping)
        or not histories
        or not all(isinstance(history, History) for history in histories.values())
    ):
        raise InputError("plot_losses: histories must be method -> history, such as {'Adam': result.history}")
    if not isinstance(panels, int) or panels < 2:
        raise InputError(f"plot_losses: panels must be at least 2, got {panels!r}")
    figure = needed("matplotlib.figure", "plot", "plot_losses").Figure(
        figsize=(5.0 * panels, 4.0), layout="constrained"
    )
    axes: list[Any] = list(figure.subplots(1, panels))
    for k, (name, history) in enumerate(histories.items()):
        for start, best in enumerate(history.best.T.cpu()):
            look = {"color": f"C{k}", "label": name if start == 0 else None}
            axes[0].plot(best, **look)
            axes[1].plot(history.seconds, best, **look)
    axes[0].set(title="by iterations", xlabel="iteration", xscale="symlog")
    axes[1].set(title="by time", xlabel="time, s", xscale="log")
    for axis in axes[:2]:
        axis.set(ylabel=loss, yscale="log")
        axis.legend()
    for axis in axes:
        axis.grid(alpha=0.3)
    return figure, axes
