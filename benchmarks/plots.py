"""docs/dynamics_figures.md and its pictures, from the results that lie in benchmarks/results.

python benchmarks/plots.py
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "dynamics_figures.md"
IMAGES = ROOT / "docs" / "images"

SECTIONS = {
    "cpu": "Go2 on one core, batch 4096",
    "gpu": "Go2 on the GPU",
    "compile": "Compile times",
}
HEAD = """\
# Dynamics: figures

Made by `python benchmarks/plots.py` from [benchmarks/results](../benchmarks/results); not to be edited. What the
functions are is in [dynamics.md](dynamics.md). Times of a batch are given for one robot of it. Peers are named with
their versions; Pinocchio ran in the same process, in turn with ours, and BARD's figures were measured before, on a GPU
of the same kind. Minima over repetitions: what disturbs a measurement only adds to it. On one core it is processor time
that is measured, ours and the peer's.
"""
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9")  # Okabe and Ito: told apart by everybody
GREY = "#808080"  # reads on white and on black


def results() -> dict[str, Any]:
    """The results by the stem of their file."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("dynamics_*.json"))}


def tables(found: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The tables over batch sizes: name of the picture, device, table."""
    for stem, result in found.items():
        for device in ("cpu", "cuda"):
            if f"table_{device}" in result:
                yield stem if stem.endswith(device) else f"{stem}_{device}", device, result[f"table_{device}"]


def page(found: dict[str, Any]) -> str:
    """The text of docs/dynamics_figures.md."""
    parts = [HEAD]
    for stem, result in found.items():
        machine = result["machine"]
        parts.append(f"## {machine.get('gpu', machine['cpu'])}\n")
        parts.append(
            f"CPU {machine['cpu']}, torch {machine['torch']}, load before the run {machine['load']} on "
            f"{machine['threads']} cores. As printed by\n\n    {result['command']}\n"
        )
        for section, title in SECTIONS.items():
            figures = {name: f for name, f in result["figures"].items() if f["section"] == section}
            if figures:
                parts.append(f"### {title}\n\n{figure_table(figures)}")
        for picture, device, table in tables({stem: result}):
            parts.append(batch_tables(picture, device, table))
    return "\n".join(parts)


def figure_table(figures: dict[str, Any]) -> str:
    """Figures, each beside its bar and its peer."""
    lines = ["| figure | value | bar | | peer | remark |", "|---|---:|---:|---|---|---|"]
    for name, figure in figures.items():
        unit, met = figure["unit"], figure["met"]
        peer = figure.get("peer")
        beside = ""
        if peer:
            value = peer["value"]
            beside = f"{value if isinstance(value, str) else f'{digits(value)} {unit}'}: {peer['name']}"
        mark = "" if met is None else "met" if met else "**missed**"
        shown = f"{digits(figure['value'])} {unit}".strip()
        lines.append(f"| {name} | {shown} | {figure['bar']} | {mark} | {beside} | {figure.get('note', '')} |")
    return "\n".join(lines) + "\n"


def batch_tables(picture: str, device: str, table: dict[str, Any]) -> str:
    """A picture, and for each robot the times over batch sizes."""
    where = "one core, results into memory that is there already" if device == "cpu" else "the GPU"
    peer = "; crosses and the last column: Pinocchio on one thread, float64" if device == "cpu" else ""
    parts = [
        f"### Kernel times over batch sizes, {where}\n",
        f"Nanoseconds a robot, float32 / float64{peer}.\nA dash is a batch that did not fit into memory.\n",
        f"![Kernel times over batch sizes](images/{picture}.svg)\n",
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


def digits(value: float | None) -> str:
    """Three significant digits, without exponents; a dash for none."""
    if value is None:
        return "–"
    rounded = float(f"{value:.3g}")
    if rounded == 0.0 or abs(rounded) < 1e-3:
        return f"{value:.1e}"
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"


def draw(table: dict[str, Any], path: Path) -> None:
    """One panel a quantity, one line a robot; float64 dashed."""
    import matplotlib.pyplot as plt

    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "adjoin",
        "font.family": "sans-serif",
        "font.size": 9,
    }
    style |= dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GREY)
    names = [name for name in next(iter(table["robots"].values())) if name not in ("nv", "Pinocchio")]
    with plt.rc_context(style):
        figure, grid = plt.subplots(2, -(-(len(names) + 1) // 2), figsize=(10, 5.2), sharex=True, sharey=True)
        panels = list(grid.flat)
        for panel, name in zip(panels, names, strict=False):
            for colour, rows in zip(COLOURS, table["robots"].values(), strict=False):
                for label, line in (("f32", "-"), ("f64", "--")):
                    panel.loglog(table["batches"], rows[name][label], line, color=colour, lw=1.2, clip_on=False)
                if name in rows.get("Pinocchio", {}):
                    panel.plot([4096], [rows["Pinocchio"][name]], "x", color=colour, ms=5)
            panel.set_title(name, fontsize=9)
            panel.grid(color=GREY, alpha=0.25, lw=0.5)
            panel.minorticks_off()
            panel.tick_params(length=0)
            panel.spines[["top", "right"]].set_visible(False)
        for panel in panels[len(names) :]:
            panel.axis("off")
        for colour, (robot, rows) in zip(COLOURS, table["robots"].items(), strict=False):
            panels[-1].plot([], [], color=colour, label=f"{robot} ({rows['nv']})")
        panels[-1].plot([], [], "--", color=GREY, label="float64")
        if any("Pinocchio" in rows for rows in table["robots"].values()):
            panels[-1].plot([], [], "x", color=GREY, label="Pinocchio, f64")
        panels[-1].legend(frameon=False, loc="center", labelcolor=GREY)
        figure.supxlabel("batch", fontsize=9, color=GREY)
        figure.supylabel("ns a robot", fontsize=9, color=GREY)
        figure.tight_layout(pad=0.6)
        figure.savefig(path, transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
        plt.close(figure)
    # Tenths of a point are enough, and the indentation of a thousand lines is half of a file.
    path.write_text(re.sub(r"\n\s+", "\n", re.sub(r"(\.\d)\d+", r"\1", path.read_text())))


def main() -> None:
    found = results()
    IMAGES.mkdir(exist_ok=True)
    for picture, _, table in tables(found):
        draw(table, IMAGES / f"{picture}.svg")
        print(f"docs/images/{picture}.svg: {(IMAGES / f'{picture}.svg').stat().st_size} bytes")
    PAGE.write_text(page(found))
    print(f"docs/{PAGE.name}")


if __name__ == "__main__":
    main()
