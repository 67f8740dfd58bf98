"""What every benchmark shares: its options, timing, a table and one JSON object, each figure beside its bar."""

import argparse
import json
import platform
import time
from collections.abc import Callable
from typing import Any

import torch


def options(description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="under a minute: smaller batches, fewer repetitions")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


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


class Report:
    """Figures as they are measured, each with the bar it is held to."""

    def __init__(self, name: str, arguments: argparse.Namespace):
        self.name = name
        self.arguments = arguments
        self.figures: dict[str, dict[str, Any]] = {}
        self.machine = {"cpu": cpu_name(), "torch": torch.__version__, "threads": torch.get_num_threads()}
        if torch.cuda.is_available():
            self.machine["gpu"] = torch.cuda.get_device_name()
        print(f"{name} on {self.machine['cpu']}" + (f", {self.machine['gpu']}" if "gpu" in self.machine else ""))

    def add(
        self, name: str, value: float, unit: str, at_most: float | None = None, at_least: float | None = None
    ) -> None:
        """Record a figure, and print it beside its bar."""
        bar = f"<= {at_most:g}" if at_most is not None else f">= {at_least:g}" if at_least is not None else ""
        met = None
        if bar:
            met = value <= at_most if at_most is not None else value >= at_least  # pyright: ignore[reportOperatorIssue]
        self.figures[name] = {"value": value, "unit": unit, "bar": bar, "met": met}
        mark = "" if met is None else "met" if met else "MISSED"
        print(f"  {name:<58} {value:>10.4g} {unit:<8} {bar:<9} {mark}", flush=True)

    def finish(self) -> None:
        """Print the JSON object if it was asked for."""
        if self.arguments.json:
            print(json.dumps({"benchmark": self.name, "machine": self.machine, "figures": self.figures}))


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
