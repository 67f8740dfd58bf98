"""`adjoin bench`: how fast a robot's dynamics and simulation run on this machine."""

import argparse
import platform
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from adjoin.cli.output import show, table
from adjoin.cli.setup import add_setup, device, make

if TYPE_CHECKING:
    import torch

    from adjoin.cli.setup import Setup

EXAMPLES = """\
examples:
  adjoin bench --quick
  adjoin bench robot.urdf --floating-base --double
  adjoin bench go2 --touching FL_foot FR_foot RL_foot RR_foot --device cpu --json

Without --touching, everything that can touch is simulated. --quick leaves out the gradient of the simulation, which
takes longest to compile. On a CPU one core works, and only its processor time counts.
"""
BATCH, BENCH_STEPS = 4096, 20


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("bench", help="measure how fast a robot runs on this machine", epilog=EXAMPLES)
    add_setup(parser, robot="go2")
    parser.add_argument("--device", help="cpu or cuda; by default a GPU if there is one")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, and no gradient of the simulation")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    import torch

    from adjoin.progress import Progress

    target = device(arguments.device)
    setup = make(arguments, BATCH, target)
    calls = list(_calls(setup, arguments.quick))
    repetitions = 3 if arguments.quick else 6
    threads, seconds = torch.get_num_threads(), {}
    torch.set_num_threads(1)
    try:
        for index, _ in Progress(len(calls), not arguments.json, "measurements"):
            name, steps, call = calls[index]
            seconds[name] = best_time(call, target, repetitions) / (BATCH * steps)
    finally:
        torch.set_num_threads(threads)
    hardware = cpu_name() if target.type == "cpu" else torch.cuda.get_device_name(target)
    dtype = "float64" if arguments.double else "float32"
    data = {"model": setup.model.name, "dtype": dtype, "batch": BATCH, "contacts": len(setup.sim.contact_names)}
    data |= {"device": target.type, "hardware": hardware, "torch": torch.__version__, "seconds": seconds}
    title = f"{setup.model.name} ({setup.model.nv} degrees of freedom, {dtype}, {BATCH} at once) on "
    title += f"one core of {hardware}" if target.type == "cpu" else hardware
    rows = [[name, 1e9 * taken, 1e-6 / taken] for name, taken in seconds.items()]
    show(arguments, data, f"{title}\n", table(["", "nanoseconds a robot", "million a second"], rows))
    return 0


def _calls(setup: "Setup", quick: bool) -> "Iterator[tuple[str, int, Callable[[], Any]]]":
    """Return what is timed: its name, the steps that one call takes, and the call."""
    import torch

    import adjoin

    model, sim, start = setup.model, setup.sim, setup.start
    generator = torch.Generator().manual_seed(0)
    v, a = (torch.randn(len(start.q), model.nv, generator=generator).to(start.q) for _ in range(2))
    controls = setup.control.expand(BENCH_STEPS, len(start.q), -1)

    def gradient(function: Callable[..., torch.Tensor], argument: torch.Tensor) -> torch.Tensor:
        tracked = argument.clone().requires_grad_()
        return torch.autograd.grad(function(tracked).sum(), tracked)[0]

    yield "inverse dynamics (RNEA)", 1, lambda: adjoin.rnea(model, start.q, v, a)
    yield "mass matrix (CRBA)", 1, lambda: adjoin.crba(model, start.q)
    yield "forward dynamics (ABA)", 1, lambda: adjoin.aba(model, start.q, v, a)
    yield "ABA and its gradient", 1, lambda: gradient(lambda tau: adjoin.aba(model, start.q, v, tau), a)
    contacts = f"{len(sim.contact_names)} {'pairs that can touch' if sim.world.listed else 'possible contacts'}"
    yield f"simulation step, {contacts}", BENCH_STEPS, lambda: sim.rollout(start, controls, setup.params)
    if model.nu and not quick:
        step = "simulation step and its gradient"
        yield step, BENCH_STEPS, lambda: gradient(lambda control: sim.rollout(start, control, setup.params).q, controls)


def best_time(call: Callable[[], Any], target: "torch.device", repetitions: int, least: float = 0.02) -> float:
    """Return the least seconds that a call takes: processor time of this thread on a CPU, wall time on a GPU.

    Args:
        call: what to time; its first call, which compiles, does not count.
        target: the device that it runs on.
        repetitions: how often to measure.
        least: seconds that a measurement lasts at least; it repeats short calls.
    """
    import torch

    on_cpu = target.type == "cpu"
    clock = time.thread_time if on_cpu else time.perf_counter

    def measure(count: int) -> float:
        began = clock()
        for _ in range(count):
            call()
        if not on_cpu:
            torch.cuda.synchronize(target)
        return clock() - began

    measure(1)
    count = 1
    while measure(count) < least:
        count *= 2
    return min(measure(count) for _ in range(repetitions)) / count


def cpu_name() -> str:
    """Return the model of this machine's processor."""
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
