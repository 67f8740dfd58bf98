"""docs/papers.md: every table and figure of the documents that Adjoin grew from, beside what we measured.

    python benchmarks/papers.py

writes it from benchmarks/results.
"""

from collections.abc import Iterator
from typing import Any

from plots import ROOT, digits, results

PAGE = ROOT / "docs" / "papers.md"
HEAD = """\
# The papers, reproduced

Made by `python benchmarks/papers.py` from `benchmarks/results`; not to be edited. Every table and figure with a number
in the documents that Adjoin grew from: the script that reproduces it, their figure and ours, and where set-ups differ.
A dash says that it has not been run at the paper's size yet.
"""
QIAO = "Qiao, Liang, Koltun and Lin, Efficient differentiable simulation of articulated bodies, ICML 2021"
DRM = "Meier, Wang, Sutanto, Lin and Shah, Differentiable and learnable robot models, 2022"
ESSAY = "Differentiable simulation for robotics and computational physics, 2023, an essay"
BARD = "Qiu et al., BARD: batched differentiable rigid-body dynamics in PyTorch, 2026"
SIMULATION = "`benchmarks/simulation.py`"
LEARNING = "`benchmarks/rl.py`"
MARKS = ("30,000", "60,000", "100,000")


def figure(file: str, name: str) -> str:
    """One of our figures with its unit, from the results."""
    found = results("")[file]["figures"][name]
    return f"{digits(found['value'])} {found['unit'].replace('us', 'µs')}".strip()


def known(file: str, name: str, places: int | None = None) -> str:
    """The same, or a dash where it has not been measured; with so many decimal places, if they are given."""
    found = results("")[file]["figures"].get(name)
    if found is None:
        return "-"
    return figure(file, name) if places is None else f"{found['value']:.{places}f}"


def at(file: str, kind: str, who: str, steps: int = 1000) -> str:
    """An entry of the tables of memory and time."""
    paper = results("")[file]["paper"]
    return digits(paper["rows"][kind][who][paper["steps"].index(steps)])


def qiao() -> Iterator[list[str]]:
    cpu, name = "simulation_cpu", "adjoin, Unrolled"
    same = "A Laikago on its feet, 1,000 steps; another CPU"
    for title, kind, unit in (
        ("Table 1, memory", "memory", "MB"),
        ("Table 2, forward step", "forward", "ms"),
        ("Table 3, backward step", "backward", "ms"),
    ):
        yield [title, SIMULATION, f"{at(cpu, kind, 'Qiao et al.')} {unit}", f"{at(cpu, kind, name)} {unit}", same]
    yield [
        "Figure 3, ten robots",
        SIMULATION,
        "5 KB a step",
        "see the full page",
        "Memory and times over steps are drawn",
    ]
    links = "0.49 1.93 4.28 7.81 12.31 17.78 24.34"
    for label, more, note in (
        ("Table 4 and Figure 4, 1 to 7 links", "", "At most 0.5 n²; with 3 and 7 links the better of two seeds"),
        (
            "The same with RK4, which makes up no energy",
            ", RK4",
            "The paper has no such runs; cut off by time from 6 links on",
        ),
    ):
        ours = [known("rl_h200", f"pendulum, {n} links, policy enhancement{more}", 2) for n in range(1, 8)]
        yield [label, f"{LEARNING} `--sections pendulum`", "-" if more else links, " ".join(ours), note]
    for label, theirs in (("MBPO", "0.49 1.90 4.28 7.50 11.13 15.02 19.97"), ("SAC", "-")):
        for more in ("", ", RK4"):
            ours = [known("rl_h200", f"pendulum, {n} links, our {label}{more}", 2) for n in range(1, 8)]
            whole = {"MBPO": 5, "MBPO, RK4": 4, "SAC": 4, "SAC, RK4": 3}[f"{label}{more}"]
            note = f"One seed; cut off by time from {whole} links on, the runs of 6 links after 50 of 600 epochs"
            yield [
                f"Table 4, {label}{more}",
                f"{LEARNING} `--sections pendulum`",
                "-" if more else theirs,
                " ".join(ours),
                note,
            ]
    for label in ("sample enhancement", "MBPO", "SAC", "PPO"):
        ours = [known("rl_h200", f"ant2021, {label}, return after {steps} steps") for steps in MARKS]
        note = "After 30,000, 60,000 and 100,000 environment steps, mean of four seeds"
        yield [f"Figure 5, ant, {label}", f"{LEARNING} `--sections samples`", "curve", " ".join(ours), note]
    for contact in ("soft contact", "hard contact"):
        ours = known("rl_h200", f"ant2021, PPO, {contact}: return in MuJoCo")
        chosen = "; chosen of 12 policies by other episodes in MuJoCo" if contact == "hard contact" else ""
        note = f"Trained here with {contact}, by PPO with 4,096 environments; theirs by sample enhancement{chosen}"
        yield ["Table 5, transfer to MuJoCo", f"{LEARNING} `--sections transfer`", "1,735", ours, note]
    control = "`benchmarks/motion_control.py`"
    for label, task, theirs in (("6(a), throw", "throw", "20"), ("6(b), golf", "golf", "50")):
        ours = figure("motion_control_cpu", f"{task}: iterations to 1e-06 m, median")
        yield [
            f"Figure {label}",
            control,
            f"{theirs} iterations",
            f"{ours} iterations",
            "To 1e-6 m; our default method in the place of SGD",
        ]
    ours = figure("motion_control_cpu", "racecar: iterations to 0.01 m, median")
    yield ["Figure 7, friction of a car", control, "curve", f"{ours} iteration", "To 0.01 m of the target"]
    yield ["Figure 8, checkpoints", SIMULATION, "curve", "see the full page", "`rollout(every=k)`"]


def drm() -> Iterator[list[str]]:
    script = "`benchmarks/identification.py`"
    ours = figure("identification_cpu", "epoch of 10000 samples, by train_epoch")
    theirs = results("")["identification_cpu"]["figures"]["epoch of 10000 samples, by train_epoch"]["peer"]["value"]
    same = "Its library ran beside ours on the same machine"
    yield ["An epoch of identification, its tutorial", script, f"{digits(theirs)} ms", ours, same]


def bard() -> Iterator[list[str]]:
    script, same = "`benchmarks/dynamics.py`", "Go2, batch 4,096, f32; its wheel on the same kind of GPU, eager"
    found: dict[str, Any] = results("")["dynamics_h200"]["figures"]
    for label in ("FK of one frame", "Jacobian", "RNEA", "CRBA", "ABA"):
        name = f"{label}, f32, batch 4096, kernel"
        theirs = f"{digits(found[name]['peer']['value'])} µs"
        yield [f"Figures 2 and 3, {label}", script, theirs, figure("dynamics_h200", name), same]
    yield ["Figures 4 to 7, other GPUs", script, "curves", "-", "We have no H100, A100, L40S or L4"]
    name = "additive noise, 16384 samples, 6 of 7 masses, Gauss-Newton: mean error"
    ours = figure("identification_cpu", name)
    yield [
        "Mass identification",
        "`benchmarks/mass_identification.py`",
        "1.24 %",
        ours,
        "16,384 samples, additive noise",
    ]
    collection = figure("rl_h200", "4096 ants, collection with policy")
    note = "Ours simulates ants with contact beside"
    yield ["4,096 environments in the loop", f"{LEARNING} `--sections throughput`", "-", collection, note]
    label = "G1, 4096 environments, rnea, crba, operational inertia"
    pool = results("")["rl_h200"]["figures"][label]["peer"]["value"]
    note = "BARD has no such figure: theirs is Pinocchio's, in 2 processes on 2 cores of another machine"
    script = f"{LEARNING} `--sections dynamics`"
    yield ["Dynamics of 4,096 G1 in the loop", script, f"{digits(pool)} µs", figure("rl_h200", label), note]


def table(rows: list[list[str]]) -> str:
    heads = ["what", "script", "theirs", "ours", "remark"]
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page() -> str:
    """The text of the page."""
    parts = [HEAD]
    for title, rows in ((QIAO, qiao()), (DRM, drm()), (BARD, bard())):
        parts.append(f"## {title}\n\n{table(list(rows))}\n")
    parts.append(f"## {ESSAY}\n\nIt has no numbers. What it asks of continua is in `adjoin.continuum`.\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"{PAGE}: {PAGE.stat().st_size} bytes")
