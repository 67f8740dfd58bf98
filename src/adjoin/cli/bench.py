"""`adjoin bench`: this machine beside the peers that are installed."""

import argparse
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adjoin.cli.output import number, plain, show, table, writable
from adjoin.extras import needed

if TYPE_CHECKING:
    from adjoin.peers.compare import Figure

EXAMPLES = """\
examples:
  adjoin bench --quick
  adjoin bench --plot bench.png
  adjoin bench --json > bench.json

Compares with Pinocchio, MuJoCo and plain torch, those of them that are installed, within a minute. Ours and theirs run
in turn on one core, and the best turn counts, by processor time.
"""
NOTES = (
    "Times of one robot, the best of several turns. Peers compute in float64, so that is what is compared.",
    "Pinocchio: its batched C++ on one thread; CRBA is a loop less the cost of its calls.",
    "MuJoCo: mujoco.rollout, its own contact model and solver, robots one after the other.",
)


def add(commands: Any) -> None:
    """Registers the command."""
    parser = commands.add_parser("bench", help="measure this machine beside the peers installed", epilog=EXAMPLES)
    parser.add_argument("--quick", action="store_true", help="fewer turns, for a first look")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the table")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measures, prints and draws."""
    writable(arguments.plot)
    if arguments.plot:
        needed("matplotlib", "plot", "--plot")
    import torch

    from adjoin.peers.compare import dynamics, gradient, simulation
    from adjoin.peers.timing import cpu_name
    from adjoin.progress import Progress

    works = [*[functools.partial(dynamics, name) for name in ("RNEA", "CRBA", "ABA")], simulation, gradient]
    threads, figures = torch.get_num_threads(), []
    torch.set_num_threads(1)
    try:
        for index, _ in Progress(len(works), not arguments.json, "measurements"):
            figures.append(works[index](arguments.quick))
    finally:
        torch.set_num_threads(threads)
    machine = {"cpu": cpu_name(), "cores": os.cpu_count(), "torch": torch.__version__}
    machine["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    if arguments.plot:
        _plot(figures, machine["cpu"], arguments.plot)
    data = [{**plain(figure), "times": _times(figure)} for figure in figures]
    head = ["nanoseconds", "Adjoin f32", "Adjoin f64", "GPU f32", "peer f64", "times", "peer"]
    rows = [
        [f.what, *[None if x is None else x * 1e9 for x in (f.f32, f.f64, f.gpu, f.theirs)], _times(f), f.peer]
        for f in figures
    ]
    kept = [i for i in range(len(head)) if any(row[i] is not None for row in rows)]
    cells = [["" if row[i] is None else row[i] for i in kept] for row in rows]
    lines = [f"One core of {machine['cpu']}", "", table([head[i] for i in kept], cells), "", *NOTES]
    lines += [f"wrote {arguments.plot}"] if arguments.plot else []
    show(arguments, {"machine": machine, "unit": "s", "figures": data, "notes": NOTES}, *lines)
    return 0


def _times(figure: "Figure") -> float | None:
    """How many times faster than the peer, in its float."""
    return None if figure.theirs is None else figure.theirs / figure.f64


def _plot(figures: "list[Figure]", machine: str, path: Path) -> None:
    """Bars of the time each takes, on a logarithmic axis."""
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(8.0, 5.0), layout="constrained")
    axis = picture.subplots()
    series = {"peer f64": "theirs", "Adjoin f64": "f64", "Adjoin f32": "f32", "Adjoin f32, GPU": "gpu"}
    shown = {label: name for label, name in series.items() if any(getattr(figure, name) for figure in figures)}
    height = 0.8 / len(shown)
    for i, (label, name) in enumerate(shown.items()):
        places = [k - 0.4 + (i + 0.5) * height for k in range(len(figures))]
        times = [(getattr(figure, name) or float("nan")) * 1e9 for figure in figures]
        bars = axis.barh(places, times, height, label=label)
        axis.bar_label(bars, [number(x) if x == x else "" for x in times], padding=3, fontsize=8)
    axis.set_yticks(range(len(figures)), [f"{f.what}\n(peer: {f.peer or 'none'})" for f in figures])
    axis.invert_yaxis()
    axis.margins(x=0.15)
    axis.set(xscale="log", xlabel="nanoseconds a robot; less is faster", title=f"One core of {machine}")
    axis.legend()
    picture.savefig(path, dpi=120)
