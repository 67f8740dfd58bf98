"""What every benchmark shares: its options, timing, a table and one JSON object, each figure beside its bar."""

import argparse
import importlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from adjoin.cli.bench import cpu_name
from adjoin.compiler.runtime.cuda.assembler import find_ptxas
from adjoin.compiler.runtime.cuda.kernel import CudaTarget


def parser(description: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="under a minute: smaller batches, fewer repetitions")
    made.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    made.add_argument("--out", type=Path, help="write the JSON object to this file too")
    return made


def options(description: str | None) -> argparse.Namespace:
    return parser(description).parse_args()


def best_of(function: Callable[[], Any], repetitions: int, calls: int = 1) -> float:
    """Seconds a call takes, the best of several repetitions: what disturbs a measurement only adds to it."""
    function()
    best = float("inf")
    for _ in range(repetitions):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def in_turn(
    *functions: Callable[[], Any],
    rounds: int,
    least: float = 0.02,
    clock: Callable[[], float] = time.thread_time,
) -> list[list[float]]:
    """Seconds that a call of each function takes, one list a function, measured in turn so that a disturbance hits all.

    Args:
        functions: what to call.
        rounds: turns of each.
        least: seconds that a turn lasts.
        clock: by default the processor time of this thread, for work that runs on one core: what else runs on a shared
            machine does not count.
    """

    def seconds(function: Callable[[], Any], calls: int) -> float:
        start = clock()
        for _ in range(calls):
            function()
        return clock() - start

    counts = []
    for function in functions:
        function()  # compiles
        count = 1
        while (taken := seconds(function, count)) < least:
            count = max(2 * count, int(count * least / max(taken, 1e-9)))
        counts.append(count)
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, count, turns in zip(functions, counts, times, strict=True):
            turns.append(seconds(function, count) / count)
    return times


def gpu_time(function: Callable[[], Any], calls: int = 20, repetitions: int = 5) -> float:
    """Seconds a call takes on the GPU alone: captured in a graph and replayed, so that launching costs nothing."""
    function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            function()
    graph.replay()
    best = float("inf")
    for _ in range(repetitions):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) / calls / 1e3)
    return best


def gpu_target() -> tuple[CudaTarget | None, str]:
    """The GPU to compile for and who assembles: the one here, or an H200 if `ptxas` can; else None."""
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        return CudaTarget(10 * major + minor), "driver"
    return (CudaTarget(90), "ptxas, no GPU") if find_ptxas() else (None, "")


class Report:
    """Figures as they are measured, each with the bar it is held to."""

    def __init__(self, name: str, arguments: argparse.Namespace):
        self.name = name
        self.arguments = arguments
        self.figures: dict[str, dict[str, Any]] = {}
        self.tables: dict[str, Any] = {}
        self.section = ""
        self.machine: dict[str, Any] = {"cpu": cpu_name(), "torch": torch.__version__}
        self.machine |= {"threads": torch.get_num_threads(), "load": round(os.getloadavg()[0], 1)}
        if torch.cuda.is_available():
            self.machine["gpu"] = torch.cuda.get_device_name()
        print(f"{name} on {self.machine['cpu']}" + (f", {self.machine['gpu']}" if "gpu" in self.machine else ""))

    def add(
        self,
        name: str,
        value: float,
        unit: str,
        at_most: float | None = None,
        at_least: float | None = None,
        *,
        peer: tuple[str, float | str] | None = None,
        note: str = "",
    ) -> None:
        """Record a figure, and print it beside its bar; `peer` is whose figure it is compared with, and that figure."""
        bar = f"<= {at_most:g}" if at_most is not None else f">= {at_least:g}" if at_least is not None else ""
        met = None
        if bar:
            met = value <= at_most if at_most is not None else value >= at_least  # pyright: ignore[reportOperatorIssue]
        figure: dict[str, Any] = {"value": value, "unit": unit}
        if bar:
            figure |= {"bar": bar, "met": met}
        if self.section:
            figure["section"] = self.section
        mark = "" if met is None else "met" if met else "MISSED"
        line = f"  {name:<58} {value:>10.4g} {unit:<8} {bar:<9} {mark:<6}"
        if peer is not None:
            figure["peer"] = {"name": peer[0], "value": peer[1]}
            line += f" {peer[1] if isinstance(peer[1], str) else f'{peer[1]:.4g} {unit}'} {peer[0]}"
        if note:
            figure["note"] = note
            line += f" {note}"
        self.figures[name] = figure
        print(line.rstrip(), flush=True)

    def save(self) -> dict[str, Any]:
        """What there is so far, written to the file that was asked for."""
        found = {"benchmark": self.name, "machine": self.machine, "figures": self.figures, **self.tables}
        if self.arguments.out:
            self.arguments.out.write_text(written(found))
        return found

    def finish(self) -> None:
        """Print the JSON object if it was asked for."""
        found = self.save()
        if self.arguments.json:
            print(json.dumps(found))


def written(found: dict[str, Any]) -> str:
    """The text of a file of results: a line for each figure and each part of a table, numbers to six digits."""
    lines = []
    for name, value in rounded(found).items():
        text = json.dumps(value)
        if isinstance(value, dict) and len(text) > 200:
            text = "{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + "\n }"
        lines.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def rounded(value: Any) -> Any:
    """Measurements have no more than six digits."""
    if isinstance(value, dict):
        return {key: rounded(x) for key, x in value.items()}
    if isinstance(value, list):
        return [rounded(x) for x in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def panel(title: str, x: str, y: str, **lines: tuple[Any, Any]) -> dict[str, Any]:
    """A part of a picture for {"table": {"panels": [...]}}: the labels of its axes, and x and y of each line."""

    def thin(values: Any) -> list[float]:
        return [float(value) for value in values[:: max(1, len(values) // 100)]]

    return {"title": title, "x": x, "y": y, "lines": {name: [thin(a), thin(b)] for name, (a, b) in lines.items()}}


def run_sections(
    name: str,
    description: str | None,
    sections: Mapping[str, str],
    default: Sequence[str] | None = None,
    on_device: Sequence[str] = (),
) -> None:
    """A benchmark in sections, of which the command line may choose.

    A section takes whether to be quick, and yields each figure as soon as it is known: a mapping with the arguments of
    `Report.add`. Single runs and curves are yielded as {"table": {...}}, and kept if asked for.

    Args:
        name: of the benchmark and of its file.
        description: for `--help`.
        sections: by name, "module.function"; what a section needs is imported when it runs.
        default: those that run if none is chosen; all.
        on_device: those that take a device as well, which `--device` chooses.
    """
    options = parser(description)
    if on_device:
        options.add_argument("--device", default="cpu", help=f"of the sections {', '.join(on_device)}: cpu or cuda")
    options.add_argument(
        "--sections",
        type=lambda text: text.split(","),
        default=list(sections if default is None else default),
        help="some of these, by comma",
    )
    options.add_argument("--details", action="store_true", help="single runs and curves in the JSON object too")
    arguments = options.parse_args()
    unknown = [section for section in arguments.sections if section not in sections]
    if unknown:
        options.error(f"no section {', '.join(unknown)}; there are {', '.join(sections)}")
    report = Report(name, arguments)
    device = [arguments.device] if on_device else []
    said = f" --device {device[0]}" if device and device[0] != "cpu" else ""
    report.tables["command"] = f"python benchmarks/{name}.py --sections {','.join(arguments.sections)}{said}"
    for section in arguments.sections:
        report.section = section
        module, function = sections[section].split(".")
        more = device if section in on_device else []
        for figure in getattr(importlib.import_module(module), function)(arguments.quick, *more):
            if "table" not in figure:
                report.add(**figure)
            elif arguments.details:
                report.tables[section] = figure["table"]
        report.save()
    report.finish()
