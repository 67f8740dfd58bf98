"""docs/performance.md and docs/gpu_kernels.md: the headlines of what lies in benchmarks/results.

python benchmarks/performance.py
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from plots import ROOT, digits, results

PAGE = ROOT / "docs" / "performance.md"
GPU_PAGE = ROOT / "docs" / "gpu_kernels.md"
STEPS = 500  # of the rollout in the paper's tables that is shown
SCALES = {"forward": 1e3, "backward": 1e3, "memory": 1.0}  # ms as µs, and MB

ROBOTS = {  # name in the results: robot, batch, millions of steps a second of MuJoCo Warp
    "ant": ("Ant", 4096, "8.5"),
    "humanoid": ("Humanoid", 8192, "6.9"),
    "g1mjx": ("G1", 8192, "3.9"),
    "anymal": ("ANYmal C", 8192, "4.4"),
    "h1": ("H1", 8192, "7.5"),
    "panda": ("Panda", 8192, "13.1"),
}

CPU_ROBOTS = {
    "anymal": "ANYmal C",
    "g1": "G1",
    "h1": "H1",
    "panda": "Panda",
    "shadow_hand": "Shadow hand",
    "aloha": "Aloha",
    "clutter": "Aloha and ten things",
    "three_robots": "Three humanoids",
}

HEAD = """\
# Performance

Made by `python benchmarks/performance.py` from `benchmarks/results`; not to be edited. The site that `make docs` builds
has every figure, with pictures; `make bench` measures the machine at hand. CPU figures are of one
core of an AMD EPYC, GPU figures of an NVIDIA H200. Peers ran on the same machine unless the table says otherwise. Times
are minima; on one core, processor time, ours and theirs.
"""


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown; the first column is text, the others are numbers."""
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    return "\n".join([*lines, *[f"| {' | '.join(row)} |" for row in rows]]) + "\n"


def dynamics_on_a_core(figures: dict[str, Any]) -> str:
    rows = []
    for name in ("RNEA", "CRBA", "ABA", "ABA derivatives"):
        single, double = (figures[f"{name}, {precision}, a call, one core"] for precision in ("f32", "f64"))
        peer = single["peer"]["value"]
        times = f"{digits(peer / single['value'])} / {digits(peer / double['value'])}"
        rows.append([name, digits(single["value"]), digits(double["value"]), digits(peer), times])
    peer = figures["RNEA, f32, a call, one core"]["peer"]["name"].split(" rnea")[0]
    heads = ["Go2, batch 4096, ns a robot", "float32", "float64", f"{peer}, float64", "times as fast"]
    return f"## Dynamics on one core\n\n{table(heads, rows)}"


def dynamics_on_a_gpu(figures: dict[str, Any]) -> str:
    rows = []
    for name in ("FK", "FK of one frame", "Jacobian", "RNEA", "CRBA", "ABA", "RNEA VJP", "ABA VJP"):
        figure = figures[f"{name}, f32, batch 4096, kernel"]
        peer = figure.get("peer", {"value": ""})["value"]
        rows.append([name, digits(figure["value"]), peer if isinstance(peer, str) else digits(peer)])
    heads = ["Go2, float32, µs a batch of 4096", "Adjoin, kernel", "BARD 0.4.3, eager, measured before"]
    calls = [f["value"] for key, f in figures.items() if key.endswith("an eager call, one after the other")]
    note = (
        f"An eager call of ours takes {digits(min(calls))} to {digits(max(calls))} µs, most of it before the launch.\n"
    )
    return f"## Dynamics on a GPU\n\n{table(heads, rows)}\n{note}[Kernels on a GPU](gpu_kernels.md): where time goes.\n"


GPU_KERNELS = """\
# Kernels on a GPU

How far kernels of dynamics are from what an NVIDIA H200 can do, and where the rest goes. Made by `python
benchmarks/performance.py` from `benchmarks/results`; not to be edited. The roofline of a kernel is the longer of two
times: that of its bytes at the bandwidth of a copy, and that of its operations at the peak of the data sheet.

"""

WHERE = """\
A batch of 4,096 is one warp for each of 132 multiprocessors: three of four schedulers have nothing to do, and a kernel
takes as long as one thread. That is about three cycles an instruction, since code that runs straight through is fetched
for one warp only. Here a kernel gets faster only by having fewer instructions, so rows are moved at addresses that are
constants of the code: of the 2,560 instructions of RNEA, 900 computed addresses before. Four legs that are alike would
be four times as many threads with a quarter of the code each; that is not done.

A batch of 2^20 fills the GPU, and memory or registers decide. What is read and written bounds FK, RNEA and their
gradients. Forward dynamics keeps about 190 values alive, which leaves two warps to a scheduler; with 160 registers it
is a tenth faster here, and slower at 4,096. Its gradient computes values again, from others that are at hand, where
this takes up to 16 operations, rather than spilling them: four fifths of what was spilled is not. The order in which
outputs are computed is the one, of two, that needs fewer registers. A fraction above 1 is possible: part of a result is
still in the GPU's cache when the next launch writes over it.

A step of a robot with contact is a longer program: 73,000 instructions for the G1 of the MJX scene at rest. With 8,192
environments each took a warp 21 cycles, of which it waited 17 for memory, since a thread has 50 kB of values that no
register holds. Three things help against that, and made it 13.7 million steps a second instead of 9.5. What blocks of a
multiprocessor do not share of its memory caches such values; the driver would keep two thirds of it for blocks that are
not there. They are loaded about a hundred operations before their use. And in gradients, those that were not touched
for long are fetched into the cache earlier still. An ANYmal waits as long for instructions as for memory: its step is
400 kB of code that runs straight through, three times what a multiprocessor keeps. Tried and dropped: four warps that
share the work on 32 environments (1.2 times faster for a G1 at rest, 0.5 to 0.9 times for smaller robots, four times
as long to compile), shared memory for spilled values (slower than as much cache), and fewer registers.
"""


def distance_to_the_hardware(figures: dict[str, Any]) -> str:
    """The same kernels where they fill the GPU, and what is in their way."""
    rows = []
    for name in ("FK", "Jacobian", "RNEA", "CRBA", "ABA", "RNEA VJP", "ABA VJP"):
        time, fraction = figures[f"{name}, f32, batch 2^20, kernel"], figures[f"{name}, fraction of the roofline"]
        rows.append([name, digits(time["value"]), digits(fraction["value"])])
    heads = ["Go2, float32, µs a batch of 2^20", "Adjoin, kernel", "fraction of the roofline"]
    used = figures["ABA VJP, energy of a million"]
    energy = f"A million gradients of ABA take {shown(used)} ({used['note'].replace(' us ', ' µs ')}).\n"
    return f"{GPU_KERNELS}{table(heads, rows)}\n{WHERE}\n{energy}"


def robots_on_a_gpu(figures: dict[str, Any]) -> str:
    rows = []
    for name, (robot, batch, peer) in ROBOTS.items():
        what = [f"{name}, batch {batch}{kind}" for kind in ("", ", with gradient")]
        moving = f"{name}, moving, batch {batch}"
        rows.append([f"{robot}, {batch}", *[digits(figures[key]["value"]) for key in (*what, moving)], peer])
    heads = ["Million steps a second, float32", "forward", "with gradient", "forward, moving", "MuJoCo Warp, forward"]
    note = "MuJoCo Warp on the same kind of GPU, measured before. Moving: velocities and controls differ.\n"
    return f"## Robots with all their shapes on a GPU, no options\n\n{table(heads, rows)}\n{note}"


def robots_on_a_core(figures: dict[str, Any]) -> str:
    rows = []
    for name, robot in CPU_ROBOTS.items():
        kinds = [f"a step {how}, f64, {way}" for how in ("alone", "batch 256") for way in ("forward", "backward")]
        what = [*kinds, "a step of MuJoCo", "cold compile"]
        rows.append([robot, *[digits(figures[f"{name}: {key}"]["value"]) for key in what]])
    ways = [f"{way}{how}" for how in (", alone", ", 256") for way in ("forward", "backward")]
    heads = ["µs a step, float64", *ways, "MuJoCo 4.0.0", "compile, s"]
    note = (
        "Files of MuJoCo's Menagerie, in contact, by Newton's method, one or 256 at once; step and gradient compile.\n"
    )
    return f"## Robots with all their shapes on one core, no options\n\n{table(heads, rows)}\n{note}"


def simulation_on_a_core(paper: dict[str, Any]) -> str:
    place, rows = paper["steps"].index(STEPS), paper["rows"]

    def cell(kind: str, name: str, scale: float) -> str:
        value = rows[kind].get(name, [None] * (place + 1))[place]
        return digits(None if value is None else scale * value)

    cells = [
        [name.replace("adjoin,", "Adjoin,"), *[cell(kind, name, scale) for kind, scale in SCALES.items()]]
        for name, times in rows["forward"].items()
        if len(times) > place and times[place] is not None
    ]
    heads = [f"One Laikago on four feet, float64, {STEPS} steps", "forward, µs a step", "backward, µs a step", "MB"]
    note = (
        "Rows from ADF to Qiao et al. are as printed in *Efficient Differentiable Simulation of Articulated Bodies*\n"
        "(ICML 2021), on an Intel Xeon W-2123. MB: the most that a gradient holds. A dash: not printed, or none.\n"
    )
    return f"## Simulation of chosen points of contact on one core\n\n{table(heads, cells)}\n{note}"


def simulation_on_a_gpu(result: dict[str, Any]) -> str:
    figures, rows = result["figures"], []
    for robot, batch in (("Go2", "batch 4096"), ("Go2", "best batch"), ("Ant, 8 points", "batch 4096")):
        for adjoint in ("Implicit", "Unrolled"):
            name = f"{robot}, f32, {adjoint}, joint limits, {batch}"
            both = [figures[f"{name}, {what}"]["value"] for what in ("forward", "forward + backward")]
            rows.append([f"Adjoin, {robot}, {adjoint}, {batch}", *map(digits, both)])
    for name, values in result["ant_peers"].items():
        rows.append([f"{name}, Ant, measured before", *[x if isinstance(x, str) else digits(x) for x in values]])
    heads = ["Million steps a second, float32, joint limits", "forward", "forward + backward"]
    return f"## Simulation of chosen points of contact on a GPU\n\n{table(heads, rows)}"


def held_to_bars(title: str, found: dict[str, Any]) -> str:
    """Figures that have a bar."""
    rows = []
    for result in found.values():
        for name, figure in result["figures"].items():
            if "bar" in figure:
                rows.append([name, shown(figure), figure["bar"], beside(figure)])
    columns = 4 if any(row[3] for row in rows) else 3
    return f"## {title}\n\n{table(['figure', 'value', 'bar', 'peer'][:columns], [row[:columns] for row in rows])}"


def missed(found: dict[str, Any]) -> str:
    groups: dict[str, dict[tuple[str, str], list[dict[str, Any]]]] = {}
    for result in found.values():
        title = (
            f"{result['benchmark']}, {'GPU' if 'gpu' in result['machine'] else 'CPU'}" if "figures" in result else ""
        )
        for name, figure in result.get("figures", {}).items():
            if figure.get("met") is False:
                of_all_seeds = re.sub(r", seed \d+", "", name.replace(", f32", ""))
                groups.setdefault(title, {}).setdefault((of_all_seeds, figure["bar"]), []).append(figure)
    rows = []
    for title, figures in groups.items():
        rows.append([f"**{title}**", "", ""])
        for (name, bar), seeds in figures.items():
            low, high = (shown(end(seeds, key=lambda figure: figure["value"])) for end in (min, max))
            rows.append([name, low if low == high else f"{low} to {high}", bar])
    return f"## Missed\n\n{table(['What misses the bar it is held to', 'value', 'bar'], rows)}"


def shown(figure: dict[str, Any]) -> str:
    return f"{digits(figure['value'])} {figure['unit'].replace('us', 'µs')}".strip()


def beside(figure: dict[str, Any]) -> str:
    peer = figure.get("peer")
    return f"{digits(peer['value'])}, {peer['name']}" if peer and not isinstance(peer["value"], str) else ""


def parts() -> Iterator[str]:
    """The page, section by section."""
    dynamics, simulation = results("dynamics"), results("simulation")
    yield HEAD
    yield robots_on_a_gpu(results("robots")["robots_h200"]["figures"])
    yield robots_on_a_core(results("robots")["robots_cpu"]["figures"])
    yield dynamics_on_a_core(dynamics["dynamics_cpu"]["figures"])
    yield dynamics_on_a_gpu(dynamics["dynamics_h200"]["figures"])
    yield simulation_on_a_core(simulation["simulation_cpu"]["paper"])
    yield simulation_on_a_gpu(simulation["simulation_h200"])
    yield held_to_bars("Identification on one core", results("identification"))
    control = results("motion_control")["motion_control_cpu"]["figures"]
    told = ("d, to 1e-06 m", "median", "optimum", "converged", "Crocoddyl")
    last = {name: figure for name, figure in control.items() if name.endswith(told)}
    yield held_to_bars("Motion control on one core", {"motion_control_cpu": {"figures": last}})
    yield held_to_bars("Continua on an H200", {"continuum_h200": results("continuum")["continuum_h200"]})
    yield missed(results(""))


def page() -> str:
    """The text of the page."""
    return "\n".join(parts())


def gpu_kernels() -> str:
    """The text of the page on the distance to the hardware."""
    return distance_to_the_hardware(results("dynamics")["dynamics_h200"]["figures"])


if __name__ == "__main__":
    for path, text in ((PAGE, page()), (GPU_PAGE, gpu_kernels())):
        path.write_text(text)
        print(f"{path}: {path.stat().st_size} bytes")
