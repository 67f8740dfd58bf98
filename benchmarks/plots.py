"""Pages with everything that lies in benchmarks/results, and their pictures: `make docs` adds them to the site.

    python benchmarks/plots.py FOLDER

The headlines alone are docs/performance.md, by performance.py.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"

TITLES = {
    ("dynamics", "cpu"): "Go2 on one core, batch 4096",
    ("dynamics", "gpu"): "Go2 on the GPU",
    ("simulation", "cpu"): "Laikago on one core",
    ("simulation", "memory"): "Memory of a gradient",
    ("simulation", "gpu"): "Go2 and Ant on the GPU",
    ("identification", "drm"): "Learning beside differentiable-robot-model",
    ("identification", "masses"): "Masses of an xArm7 from torques",
    ("identification", "contact"): "Friction and mass of a Laikago through contact",
    ("identification", "augmentation"): "A pendulum whose model lacks something",
    ("motion_control", "ilqr"): "iLQR beside Crocoddyl",
    ("motion_control", "ilqr_gpu"): "iLQR on a GPU",
}
MADE = "Made from `benchmarks/results` when the site is built."
HEADS = {
    "contact_search": f"""\
# Measured: finding contacts

{MADE} The tasks and the methods are in [Control](../control.md#finding-contacts).
""",
    "rl": f"""\
# Measured: reinforcement learning

{MADE} Tasks and learners are in [Reinforcement learning](../reinforcement_learning.md). Simulation steps count each
step of the simulator, eight of them an action of the ant; a rate includes policy, rewards and resets.
""",
    "robots": f"""\
# Measured: robots with all their shapes

{MADE} Models are those of their makers, with self-collision; contact is [soft](../contact.md), by Newton's method.
Environments stand and differ little, or, "moving", in velocities and controls. A cold compile is of step and gradient.
""",
    "compiler": f"""\
# Measured: the compiler

{MADE} What is measured is in [the kernel compiler](../compiler.md).
""",
    "dynamics": f"""\
# Measured: dynamics

{MADE} What the functions are is in [Kinematics and dynamics](../dynamics.md). Times of a batch are given for one
robot of it. Peers are named with their versions; Pinocchio ran in the same process, in turn with ours, and BARD's
figures were measured before, on a GPU of the same kind. Minima over repetitions: what disturbs a measurement only adds
to it. On one core it is processor time that is measured, ours and the peer's.
""",
    "simulation": f"""\
# Measured: simulation

{MADE} What is simulated is in [Simulation](../simulation.md): robots with servos, on the ground with their feet (the
Ant with its ankles), 20 sweeps of projected Gauss-Seidel, steps of 1 ms. Times are given for a step of one robot, or as
steps of all robots of a batch a second, and those of a backward pass include running the steps again. Minima over
repetitions: what disturbs a measurement only adds to it. On one core it is processor time that is measured, ours and
the peers'. Memory is the most that a process holds during a gradient above what it held before; medians over processes.
""",
    "identification": f"""\
# Measured: identification

{MADE} What is learned is in [Learning and identification](../learning.md).
""",
    "continuum": f"""\
# Measured: continua

{MADE} What is simulated is in [Heat, solids and particles](../continuum.md). On a CPU it is processor time that is
measured, of all threads together. Peers' figures are those of their papers or were measured before.
""",
    "motion_control": f"""\
# Measured: motion control

{MADE} The problems are in [Control](../control.md).
""",
}
KINDS = {
    "memory": "Peak memory of a gradient, MB (table 1)",
    "forward": "Forward, ms a step (table 2)",
    "backward": "Backward, ms a step (table 3)",
}
COLORS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9")  # Okabe and Ito: told apart by everybody
GRAY = "#808080"  # reads on white and on black


def results(name: str) -> dict[str, Any]:
    """The results of a benchmark by the stem of their file."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{name}*_*.json"))}


def tables(found: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The tables over batch sizes: name of the picture, device, table."""
    for stem, result in found.items():
        for device in ("cpu", "cuda"):
            if f"table_{device}" in result:
                yield stem if stem.endswith(device) else f"{stem}_{device}", device, result[f"table_{device}"]


def curves(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels of curves of all sections; see `report.panel`."""
    parts = [part for part in result.values() if isinstance(part, dict)]
    return [panel for part in parts for panel in part.get("panels", [])]


def pictures(found: dict[str, Any]) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Every picture: its name, and what draws it into a file."""
    for name, _, table in tables(found):
        yield name, partial(draw, table)
    for stem, result in found.items():
        if "paper" in result:
            yield f"{stem}_paper", partial(draw_paper, result["paper"])
        if panels := curves(result):
            yield f"{stem}_curves", partial(draw_curves, panels)
        if rates := solved_starts(result["figures"]):
            yield f"{stem}_rates", partial(draw_rates, rates)


def page(name: str, found: dict[str, Any]) -> str:
    """The text of a page."""
    parts = [HEADS[name]]
    for stem, result in found.items():
        machine = result["machine"]
        parts.append(f"## {machine.get('gpu') or machine['cpu']}\n")
        words = {"cpu": "CPU {}", "torch": "torch {}", "load": "load before the run {}", "threads": "{} thread(s)"}
        facts = ", ".join(word.format(machine[key]) for key, word in words.items() if key in machine)
        parts.append(
            f"{facts and facts + '. '}As printed by\n\n    {result.get('command', f'python benchmarks/{name}.py')}\n"
        )
        for section in dict.fromkeys(f.get("section", "") for f in result["figures"].values()):
            title = TITLES.get((name, section)) or ("Compile times" if section == "compile" else section.capitalize())
            figures = {key: f for key, f in result["figures"].items() if f.get("section", "") == section}
            parts.append((f"### {title}\n\n" if title else "") + figure_table(figures))
        for picture, device, table in tables({stem: result}):
            parts.append(batch_tables(picture, device, table))
        if "ant_peers" in result:
            parts.append(peer_table(result["ant_peers"]))
        if "paper" in result:
            parts.append(paper_tables(f"{stem}_paper", result["paper"]))
        if curves(result):
            parts.append(f"![Curves of the experiments]({stem}_curves.svg)\n")
        if solved_starts(result["figures"]):
            parts.append(f"![Starts that are solved, by task and method]({stem}_rates.svg)\n")
    return "\n".join(parts)


def figure_table(figures: dict[str, Any]) -> str:
    """Figures, each beside its bar and its peer."""
    lines = ["| figure | value | bar | | peer | remark |", "|---|---:|---:|---|---|---|"]
    for name, figure in figures.items():
        unit, met = figure["unit"], figure.get("met")
        peer = figure.get("peer")
        beside = ""
        if peer:
            value = peer["value"]
            beside = f"{value if isinstance(value, str) else f'{digits(value)} {unit}'}: {peer['name']}"
        mark = "" if met is None else "met" if met else "**missed**"
        shown = f"{digits(figure['value'])} {unit}".strip()
        lines.append(f"| {name} | {shown} | {figure.get('bar', '')} | {mark} | {beside} | {figure.get('note', '')} |")
    return "\n".join(lines) + "\n"


def batch_tables(picture: str, device: str, table: dict[str, Any]) -> str:
    """A picture, and for each robot the times over batch sizes."""
    where = "one core, results into memory that is there already" if device == "cpu" else "the GPU"
    peer = "; crosses and the last column: Pinocchio on one thread, float64" if device == "cpu" else ""
    parts = [
        f"### Kernel times over batch sizes, {where}\n",
        f"Nanoseconds a robot, float32 / float64{peer}.\nA dash is a batch that did not fit into memory.\n",
        f"![Kernel times over batch sizes]({picture}.svg)\n",
    ]
    names = [str(batch) if batch < 1 << 20 else "2^20" for batch in table["batches"]]
    for robot, rows in table["robots"].items():
        peers = rows.get("Pinocchio", {})
        head = [f"{robot}, {rows['nv']} dofs", *names, *(["Pinocchio"] if peers else [])]
        lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
        for name, formats in rows.items():
            if name not in ("nv", "Pinocchio"):
                cells = [" / ".join(digits(ns) for ns in pair) for pair in zip(*formats.values(), strict=True)]
                own = [digits(peers[name]) if name in peers else ""] if peers else []
                lines.append(f"| {' | '.join([name, *cells, *own])} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def peer_table(peers: dict[str, Any]) -> str:
    """What others were measured to do with the Ant."""
    lines = ["| Ant, batch 4096, M steps/s, measured before | forward | forward + backward |", "|---|---:|---:|"]
    for name, values in peers.items():
        lines.append(f"| {name} | {' | '.join(x if isinstance(x, str) else digits(x) for x in values)} |")
    return "\n".join(lines) + "\n"


def paper_tables(picture: str, paper: dict[str, Any]) -> str:
    """One Laikago beside the paper's tables, then ten robots."""
    parts = [
        "### Beside Qiao et al. 2021\n",
        "One Laikago on the ground, float64, as in *Efficient Differentiable Simulation of Articulated Bodies* (ICML\n"
        "2021). The rows from ADF to Qiao et al. are as printed there, on an Intel Xeon W-2123; all others were\n"
        "measured here, on one core. Of the paper's figures 3 and 8 the numbers are not printed.\n",
        f"![Memory and time over steps and intervals]({picture}.svg)\n",
    ]
    for kind, title in KINDS.items():
        lines = [f"| {title} | {' | '.join(map(str, paper['steps']))} |", f"|---|{'---:|' * len(paper['steps'])}"]
        lines += [f"| {name} | {' | '.join(map(digits, row))} |" for name, row in paper["rows"][kind].items()]
        parts.append("\n".join(lines) + "\n")
    for key, title in (("ten", "Ten Laikagos, steps (figure 3)"), ("intervals", "Ten, most steps, every (figure 8)")):
        heads = [f"{adjoint}: {what}" for adjoint in paper[key] for what in ("MB", "forward, ms", "backward, ms")]
        lines = [f"| {title} | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
        for count in next(iter(paper[key].values())):
            cells = [digits(x) for rows in paper[key].values() for x in rows[count]]
            lines.append(f"| {count} | {' | '.join(cells)} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def digits(value: float | None) -> str:
    """Three significant digits, without exponents; a dash for none."""
    if value is None:
        return "–"
    rounded = float(f"{value:.3g}")
    if 0.0 < abs(rounded) < 1e-3:
        return f"{value:.1e}"
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"


@contextmanager
def sheet(path: Path, panels: int) -> Iterator[tuple[Any, list[Any]]]:
    """A figure of two rows of panels, written to a file."""
    import matplotlib.pyplot as plt

    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "adjoin",
        "font.family": "sans-serif",
        "font.size": 9,
    }
    style |= dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GRAY)
    with plt.rc_context(style):
        figure, grid = plt.subplots(2, -(-panels // 2), figsize=(10, 5.2))
        yield figure, list(grid.flat)
        for panel in figure.axes:
            panel.grid(color=GRAY, alpha=0.25, lw=0.5)
            panel.minorticks_off()
            panel.tick_params(length=0)
            panel.spines[["top", "right"]].set_visible(False)
        figure.tight_layout(pad=0.6)
        figure.savefig(path, transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
        plt.close(figure)
    # Tenths of a point are enough, and the indentation of a thousand lines is half of a file.
    path.write_text(re.sub(r"\n\s+", "\n", re.sub(r"(\.\d)\d+", r"\1", path.read_text())))


def draw(table: dict[str, Any], path: Path) -> None:
    """One panel a quantity, one line a robot; float64 dashed."""
    names = [name for name in next(iter(table["robots"].values())) if name not in ("nv", "Pinocchio")]
    with sheet(path, len(names) + 1) as (figure, panels):
        for panel, name in zip(panels, names, strict=False):
            panel.sharex(panels[0])
            panel.sharey(panels[0])
            for color, rows in zip(COLORS, table["robots"].values(), strict=False):
                for label, line in (("f32", "-"), ("f64", "--")):
                    panel.loglog(table["batches"], rows[name][label], line, color=color, lw=1.2, clip_on=False)
                if name in rows.get("Pinocchio", {}):
                    panel.plot([4096], [rows["Pinocchio"][name]], "x", color=color, ms=5)
            panel.set_title(name, fontsize=9)
            panel.label_outer()
        for panel in panels[len(names) :]:
            panel.axis("off")
        for color, (robot, rows) in zip(COLORS, table["robots"].items(), strict=False):
            panels[-1].plot([], [], color=color, label=f"{robot} ({rows['nv']})")
        panels[-1].plot([], [], "--", color=GRAY, label="float64")
        if any("Pinocchio" in rows for rows in table["robots"].values()):
            panels[-1].plot([], [], "x", color=GRAY, label="Pinocchio, f64")
        panels[-1].legend(frameon=False, loc="center", labelcolor=GRAY)
        figure.supxlabel("batch", fontsize=9, color=GRAY)
        figure.supylabel("ns a robot", fontsize=9, color=GRAY)


def draw_curves(curves: list[dict[str, Any]], path: Path) -> None:
    """One panel an experiment; a single point is a mark."""
    with sheet(path, max(len(curves), 2)) as (_, panels):
        for panel, curve in zip(panels, curves, strict=False):
            for color, (name, (x, y)) in zip(COLORS, curve["lines"].items(), strict=False):
                panel.plot(x, y, "-" if len(x) > 1 else "o", color=color, lw=1.2, ms=5, label=name)
            panel.set_title(curve["title"], fontsize=9)
            panel.set_xlabel(curve["x"], fontsize=8)
            panel.set_ylabel(curve["y"], fontsize=8)
            if len(curve["lines"]) > 1:
                panel.legend(frameon=False, labelcolor=GRAY, fontsize=7)
        for panel in panels[len(curves) :]:
            panel.axis("off")


def draw_paper(paper: dict[str, Any], path: Path) -> None:
    """The paper's tables over steps; ten robots over steps and over the interval between checkpoints."""
    with sheet(path, 6) as (_, panels):
        names = list(dict.fromkeys(name for rows in paper["rows"].values() for name in rows))
        for panel, (kind, title) in zip(panels, KINDS.items(), strict=False):
            for i, name in enumerate(names):
                row = paper["rows"][kind].get(name, [])
                line = {"color": COLORS[i % len(COLORS)], "ls": "-" if i < len(COLORS) else "--", "lw": 1.2}
                panel.loglog(paper["steps"][: len(row)], [float("nan") if x is None else x for x in row], **line)
                panels[-1].plot([], [], label=name, **line)
            panel.set_title(title, fontsize=9)
        titles = ("Ten robots over steps (figure 3)", "Ten robots over intervals (figure 8)")
        for panel, key, title in zip(panels[3:5], ("ten", "intervals"), titles, strict=True):
            for color, (adjoint, rows) in zip(COLORS, paper[key].items(), strict=False):
                x, values = [int(n) for n in rows], list(zip(*rows.values(), strict=True))
                panel.loglog(x, values[0], "-", color=color, lw=1.2, label=f"{adjoint}, MB")
                panel.loglog(x, values[2], "--", color=color, lw=1.2, label=f"{adjoint}, backward, ms a step")
            panel.set_title(title, fontsize=9)
        panels[4].legend(frameon=False, labelcolor=GRAY, fontsize=7)
        panels[5].axis("off")
        handles, labels = panels[5].get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        panels[5].legend(unique.values(), unique.keys(), frameon=False, loc="center", labelcolor=GRAY, fontsize=8)


def solved_starts(figures: dict[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """Of the contact tasks, the share of starts that are solved, %: kind of starts -> task -> method -> share."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, figure in figures.items():
        if match := re.fullmatch(r"(.+), (random starts|zero): solved by (.+)", name):
            task, starts, method = match.groups()
            found.setdefault(starts, {}).setdefault(task, {})[method] = figure["value"]
    return found


def draw_rates(rates: dict[str, dict[str, dict[str, float]]], path: Path) -> None:
    """One panel a kind of starts, a group of bars a task, a bar a method."""
    with sheet(path, 2) as (figure, panels):
        for panel, (starts, tasks) in zip(panels, rates.items(), strict=True):
            methods = list(next(iter(tasks.values())))
            for i, (color, method) in enumerate(zip(COLORS, methods, strict=False)):
                places = [k + (i - (len(methods) - 1) / 2) / (len(methods) + 1) for k in range(len(tasks))]
                heights = [task[method] for task in tasks.values()]
                panel.bar(places, heights, 0.9 / (len(methods) + 1), color=color, label=method)
            panel.set_title(f"from {starts}: % solved", fontsize=9)
            panel.set_xticks(range(len(tasks)), list(tasks))
        figure.legend(*panels[0].get_legend_handles_labels(), ncols=4, frameon=False, labelcolor=GRAY, loc="center")


def everything() -> Iterator[tuple[str, str | Callable[[Path], None]]]:
    """Name of each file, and its text or what draws it."""
    for name in HEADS:
        found = results(name)
        if found:
            yield f"{name}.md", page(name, found)
            for picture, drawn in pictures(found):
                yield f"{picture}.svg", drawn


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, made in everything():
        if isinstance(made, str):
            (folder / name).write_text(made)
        else:
            made(folder / name)
        print(folder / name)


if __name__ == "__main__":
    main()
