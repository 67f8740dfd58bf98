"""Rigid-body dynamics: kernels of the Go2 beside Pinocchio and BARD, every robot over batch sizes, compile times.

    python benchmarks/dynamics.py [--sections cpu,gpu,table,compile] [--quick] [--json] [--out FILE]

cpu      one core, batch 4096: Pinocchio's own batched C++ on one thread, in turn with ours
gpu      kernel times at batch 4096, and how close they come to what the GPU can do at batch 2^20
table    kernel times of six robots, batches from 1 to 2^20, float32 and float64; on one core of a CPU, into memory that
         is there already; `--devices` and `--robots` choose a part of it
compile  seconds to trace and compile, cold, for the largest robot

By default all that this machine can run. Without Pinocchio the cpu section gives our times alone. Times on one core are
processor time of the thread, ours and the peer's, so that other work on the machine does not count.
"""

import functools
import importlib.util
import multiprocessing
import os
import statistics
import subprocess
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from report import Report, best_of, gpu_target, gpu_time, in_turn, parser

import adjoin
from adjoin import trace as at
from adjoin.compiler.autodiff.derivatives import vjp
from adjoin.compiler.ir.op import OPS
from adjoin.compiler.ir.program import Program
from adjoin.compiler.runtime.backend import prebuild
from adjoin.compiler.runtime.cache import Cache
from adjoin.compiler.runtime.cpu.kernel import CpuKernel, host
from adjoin.compiler.runtime.kernel import BITS, Kernel
from adjoin.dynamics.aba import aba
from adjoin.dynamics.crba import crba
from adjoin.dynamics.derivatives import aba_derivatives
from adjoin.dynamics.jacobian import jacobian
from adjoin.dynamics.kinematics import forward_kinematics
from adjoin.dynamics.rnea import rnea

os.environ["CUDA_CACHE_DISABLE"] = "1"  # the driver's own cache would make a cold compile warm

BATCH = 4096
MILLION = 1 << 20
BATCHES = (1, 16, 256, 4096, 65536, MILLION)
DTYPES = {"f32": torch.float32, "f64": torch.float64}
SECTIONS = ("cpu", "gpu", "table", "compile")

ROBOTS: dict[str, Callable[[], adjoin.Model]] = {
    "Panda": lambda: adjoin.robots.load("panda", lock={"panda_finger_joint1": 0.0}),
    "xArm7": lambda: adjoin.robots.load("xarm7"),
    "spined quadruped": lambda: adjoin.robots.load("spined_quadruped"),
    "Go2": lambda: adjoin.robots.load("go2"),
    "H1": lambda: adjoin.robots.load("h1"),
    "G1": lambda: adjoin.robots.load("g1"),
}

INPUTS = {"RNEA": ("q", "v", "a"), "ABA": ("q", "v", "tau"), "ABA derivatives": ("q", "v", "tau")}  # the others: q
QUANTITIES: dict[str, Callable[..., Any]] = {
    "FK": forward_kinematics,
    "FK of one frame": lambda model, q: forward_kinematics(model, q, tip(model)),
    "Jacobian": lambda model, q: jacobian(model, q, tip(model)),
    "RNEA": rnea,
    "CRBA": crba,
    "ABA": aba,
    "ABA derivatives": aba_derivatives,
}
TABLE = ("FK", "Jacobian", "RNEA", "CRBA", "ABA", "RNEA VJP", "ABA VJP")

CPU_BARS = {"RNEA": (50.0, 25.0), "CRBA": (45.0, 22.0), "ABA": (50.0, 25.0), "ABA derivatives": (10.0, 10.0)}
GPU_BARS = {
    "FK": 7.0,
    "FK of one frame": None,
    "Jacobian": 6.0,
    "RNEA": 3.5,
    "CRBA": 8.0,
    "ABA": 4.5,
    "RNEA VJP": 6.0,
    "ABA VJP": 9.0,
}
MILLION_BARS = {"ABA": 140.0, "ABA VJP": 500.0}
G1_BARS = {"RNEA": None, "ABA": 12.0, "ABA VJP": 30.0}

# BARD 0.4.3 with the Go2 in float32 at batch 4096 on an NVIDIA H200, driver 580, torch 2.11+cu130, measured 2026-11-15:
# microseconds of a call, the median of 20 by CUDA events; eager, and under torch.compile.
BARD = "BARD 0.4.3 on an H200, measured before"
BARD_EAGER = {
    "FK of one frame": 828.0,
    "Jacobian": 1275.2,
    "RNEA": 4107.6,
    "CRBA": 4740.3,
    "ABA": 9919.1,
    "ABA VJP": "raises",
}
BARD_COMPILED = {"FK of one frame": 543.2, "Jacobian": 886.2, "RNEA": 3787.8, "CRBA": 5934.5, "ABA": 9594.5}

# Floating-point operations a second in float32, a fused multiply-add counted as two: NVIDIA's data sheets, boost clock.
PEAKS = {"NVIDIA H200": 67e12, "NVIDIA H100": 67e12, "NVIDIA A100": 19.5e12}
FLOPS = {"add": 1, "sub": 1, "mul": 1, "div": 1, "sqrt": 1, "sin": 15, "cos": 15}  # a sine and its cosine take 30


@functools.cache
def load(robot: str) -> adjoin.Model:
    return ROBOTS[robot]()


@functools.cache
def tip(model: adjoin.Model) -> str:
    """The first of the frames that the most joints move."""

    def depth(body: int) -> int:
        return 0 if body < 0 else 1 + depth(model.bodies[body].parent)

    return max(model.frames, key=lambda frame: depth(frame.body)).name


def program(robot: str, name: str) -> Program:
    """A quantity of a robot, or the gradient of one to all its inputs, traced anew."""
    if name.endswith(" VJP"):
        forward = program(robot, name.removesuffix(" VJP"))
        return vjp(forward, [True] * len(forward.inputs))[0]
    model = load(robot)

    def traced(**values: Any) -> Any:
        return QUANTITIES[name](model, *values.values())

    sizes = {key: model.nq if key == "q" else model.nv for key in INPUTS.get(name, ("q",))}
    return at.function(**sizes)(traced).kernel.program


@functools.lru_cache(maxsize=16)
def kernel(robot: str, name: str) -> Kernel:
    return Kernel(program(robot, name))


def inputs_of(robot: str, slots: Any, batch: int, dtype: torch.dtype, device: str = "cpu") -> list[torch.Tensor]:
    """Random states, and random cotangents."""
    torch.manual_seed(0)
    model, found = load(robot), []
    for slot in slots:
        if slot.name == "q":
            found.append(model.random((batch,), dtype=dtype, device=device))
        else:
            found.append(torch.randn(batch, *slot.shape, dtype=dtype, device=device))
    return found


def numbers(traced: Program) -> int:
    """How many an environment reads and writes."""
    return sum(slot.size for slot in (*traced.inputs, *traced.outputs))


def flops(traced: Program) -> int:
    """Floating-point operations an environment takes; choices, comparisons and signs cost nothing."""
    assert not traced.schedule.scans
    assert not any(OPS[node.op].cost > 1 and node.op not in FLOPS for node in traced.schedule.order)
    return sum(FLOPS.get(node.op, 0) for node in traced.schedule.order)


def cpu(report: Report, arguments: Namespace) -> None:
    """One core beside Pinocchio on one thread; two cores beside one; single calls."""
    rounds, model = 5 if arguments.quick else 25, load("Go2")
    peer = None
    if importlib.util.find_spec("pinocchio"):
        from peers.pinocchio import Pinocchio

        peer = Pinocchio(model)
    torch.set_num_threads(1)
    for name, bars in CPU_BARS.items():
        beside(report, name, bars, rounds, peer)
    for label, dtype in DTYPES.items():
        shape = (BATCH, model.nv, model.nv)
        seconds = min(in_turn(lambda s=shape, d=dtype: torch.full(s, 1.0, dtype=d), rounds=rounds)[0]) / BATCH
        report.add(f"torch.full of the shape of M, {label}, one core", seconds * 1e9, "ns", note="for scale: see CRBA")
    two_cores(report, rounds, arguments.quick)
    for name in ("RNEA", "CRBA", "ABA"):
        single = inputs_of("Go2", kernel("Go2", name).program.inputs, 1, torch.float32)
        call = functools.partial(QUANTITIES[name], model, *single)
        times = in_turn(call, rounds=20 if arguments.quick else 200, least=0.005)[0]
        report.add(f"{name}, batch 1, a call, median", statistics.median(times) * 1e6, "us", 6.0)
        report.add(f"{name}, batch 1, a call, minimum", min(times) * 1e6, "us", 6.0)
        tracked = functools.partial(QUANTITIES[name], model, *[x.clone().requires_grad_() for x in single])
        times = in_turn(tracked, rounds=20 if arguments.quick else 200, least=0.005)[0]
        report.add(f"{name}, batch 1, a call, gradient recorded", statistics.median(times) * 1e6, "us", 14.0)
    torch.set_num_threads(THREADS)


def beside(report: Report, name: str, bars: tuple[float, float], rounds: int, peer: Any) -> None:
    """In both formats, in turn with Pinocchio: as called, and into memory that is held, as is the peer's."""
    model, work = load("Go2"), kernel("Go2", name)
    batches = {label: inputs_of("Go2", work.program.inputs, BATCH, dtype) for label, dtype in DTYPES.items()}
    called = [functools.partial(QUANTITIES[name], model, *x) for x in batches.values()]
    held = [into_held_memory(work, x, BATCH) for x in batches.values()]
    ways = [f"{name}, {label}, {way}" for way in ("a call", "kernel into held memory") for label in DTYPES]
    if peer is None:
        for way, times in zip(ways, in_turn(*called, *held, rounds=rounds), strict=True):
            report.add(f"{way}, one core", min(times) / BATCH * 1e9, "ns")
        return
    sample = [x[:1] for x in batches["f64"]]
    agree(QUANTITIES[name](model, *sample), peer.value(name, *sample))
    theirs, calling, what = peer.timed(name, *batches["f64"])
    *times, peers = in_turn(*called, *held, theirs, rounds=rounds)
    cost = min(in_turn(calling, rounds=rounds)[0]) if calling else 0.0
    if calling:
        report.add(f"{name}, the cost of Pinocchio's call, taken off", cost / BATCH * 1e9, "ns")
    best, usual = min(peers) - cost, statistics.median(peers) - cost
    for way, own, bar in zip(ways, times, bars * 2, strict=True):
        report.add(f"{way}, one core", min(own) / BATCH * 1e9, "ns", peer=(what, best / BATCH * 1e9))
        note = f"by medians {usual / statistics.median(own):.1f}"
        report.add(f"{way}, times Pinocchio's", best / min(own), "", at_least=bar, note=note)


def agree(ours: Any, theirs: list[np.ndarray]) -> None:
    """What is compared computes the same."""
    results = ours if isinstance(ours, tuple) else (ours,)
    for own, other in zip(results, theirs, strict=True):
        error = np.abs(own[0].numpy() - other).max() / max(1.0, np.abs(other).max())
        assert error < 1e-9, f"the peer disagrees by {error:.2g}"


def two_cores(report: Report, rounds: int, quick: bool) -> None:
    """The same kernels with two threads."""
    for batch in (BATCH,) if quick else (BATCH, 16 * BATCH):
        for name in ("ABA",) if quick else ("RNEA", "CRBA", "ABA"):
            for label, dtype in DTYPES.items():
                work = kernel("Go2", name)
                run = into_held_memory(work, inputs_of("Go2", work.program.inputs, batch, dtype), batch)

                def calls(threads: int, run: Callable[[], None] = run) -> None:
                    torch.set_num_threads(threads)
                    for _ in range(5):
                        run()

                one, two = in_turn(lambda: calls(1), lambda: calls(2), rounds=rounds, clock=time.perf_counter)
                report.add(f"{name}, {label}, batch {batch}, two cores over one", min(one) / min(two), "", at_least=1.9)
    torch.set_num_threads(1)


def gpu(report: Report, arguments: Namespace) -> None:
    """Kernel times of the Go2 at batch 4096 beside BARD's, whole calls, and the distance to the roofline."""
    model = load("Go2")
    for name, bar in GPU_BARS.items():
        work = kernel("Go2", name)
        tensors = inputs_of("Go2", work.program.inputs, BATCH, torch.float32, "cuda")
        seconds = gpu_time(lambda w=work, x=tensors: w.run(x, (), (BATCH,)))
        peer = (f"{BARD}, eager", BARD_EAGER[name]) if name in BARD_EAGER else None
        note = f"compiled {BARD_COMPILED[name]:g} us" if name in BARD_COMPILED else ""
        report.add(f"{name}, f32, batch {BATCH}, kernel", seconds * 1e6, "us", bar, peer=peer, note=note)
        exact = work.run([x[:64].cpu().double() for x in tensors], (), (64,))
        error = max(
            float((own[:64].cpu().double() - right).abs().max() / right.abs().max().clamp(min=1.0))
            for own, right in zip(work.run(tensors, (), (BATCH,)), exact, strict=True)
        )
        report.add(f"{name}, f32 on the GPU against f64 on the CPU", error, "", note="largest error over largest value")
    for name in ("FK", "Jacobian", "RNEA", "CRBA", "ABA"):
        tensors = inputs_of("Go2", kernel("Go2", name).program.inputs, BATCH, torch.float32, "cuda")
        call = functools.partial(QUANTITIES[name], model, *tensors)
        report.add(f"{name}, an eager call, one after the other", best_of(call, 10, 200) * 1e6, "us", 12.0)

        def waited(call: Callable[[], Any] = call) -> None:
            call()
            torch.cuda.synchronize()

        report.add(f"{name}, an eager call, waited for", best_of(waited, 10, 200) * 1e6, "us", 22.0)
    for name, bar in G1_BARS.items():
        work = kernel("G1", name)
        tensors = inputs_of("G1", work.program.inputs, BATCH, torch.float32, "cuda")
        seconds = gpu_time(lambda w=work, x=tensors: w.run(x, (), (BATCH,)))
        report.add(f"{name} of the G1, f32, batch {BATCH}, kernel", seconds * 1e6, "us", bar)
    report.save()
    if not arguments.quick:
        roofline(report)
        energy(report)


def copy_bandwidth(size: int) -> float:
    """Bytes a second read and written by torch's copy of so many bytes on the GPU."""
    source = torch.empty(size, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * size / gpu_time(lambda: target.copy_(source), 5)


def energy(report: Report) -> None:
    """Joules of a million gradients of forward dynamics: what the GPU draws while it computes nothing else."""
    work = kernel("Go2", "ABA VJP")
    tensors = inputs_of("Go2", work.program.inputs, MILLION, torch.float32, "cuda")
    seconds = gpu_time(lambda: work.run(tensors, (), (MILLION,)), 5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(round(0.25 / seconds)):
            work.run(tensors, (), (MILLION,))
    watts = []
    for _ in range(8):
        graph.replay()
        graph.replay()  # half a second, of which the question takes a part
        asked = ["nvidia-smi", "--query-gpu=power.draw.instant", "--format=csv,noheader,nounits", "--id=0"]
        watts.append(float(subprocess.run(asked, capture_output=True, text=True, check=True).stdout))
        torch.cuda.synchronize()
    power = statistics.median(watts[2:])
    note = f"{power:.0f} W; a CPU of 64 cores and 360 W at 0.21 us a gradient and core, on paper: 1.2 J"
    report.add("ABA VJP, energy of a million", power * seconds * 1e6 / MILLION, "J", note=note)


def roofline(report: Report) -> None:
    """Batch 2^20 against the larger of bytes over bandwidth and operations over peak."""
    bandwidth = copy_bandwidth(1 << 32)
    report.add("bandwidth of a device copy of 4 GiB", bandwidth / 1e12, "TB/s")
    card = torch.cuda.get_device_name()
    peak = next((value for name, value in PEAKS.items() if card.startswith(name)), None)
    if peak is None:
        print(f"  no fp32 peak known for {card}; PEAKS has {', '.join(PEAKS)}")
        return
    report.add("fp32 peak", peak / 1e12, "TFLOP/s", note="NVIDIA's data sheet; a fused multiply-add counts as two")
    for name in (name for name in GPU_BARS if GPU_BARS[name]):
        work = kernel("Go2", name)
        tensors = inputs_of("Go2", work.program.inputs, MILLION, torch.float32, "cuda")
        seconds = gpu_time(lambda w=work, x=tensors: w.run(x, (), (MILLION,)), 5)
        size, count = 4 * numbers(work.program), flops(work.program)
        moving, counting = size * MILLION / bandwidth, count * MILLION / peak
        note = (
            f"{size} bytes x 2^20 / {bandwidth / 1e12:.2f} TB/s = {moving * 1e6:.0f} us; "
            f"{count} operations x 2^20 / {peak / 1e12:g} TFLOP/s = {counting * 1e6:.0f} us; "
            f"measured {seconds * 1e6:.0f} us"
        )
        report.add(f"{name}, f32, batch 2^20, kernel", seconds * 1e6, "us", MILLION_BARS.get(name))
        fraction = max(moving, counting) / seconds
        report.add(f"{name}, fraction of the roofline", fraction, "", at_least=0.4, note=note)
        del tensors
        torch.cuda.empty_cache()


def table(report: Report, arguments: Namespace) -> None:
    """Nanoseconds a robot takes, by device, robot, quantity, format and batch."""
    robots = ["Go2"] if arguments.quick else arguments.robots
    formats = ["f32"] if arguments.quick else list(DTYPES)
    batches = [1, 256, BATCH] if arguments.quick else list(BATCHES)
    torch.set_num_threads(1)
    for device in arguments.devices:
        if not arguments.quick:
            build_all([(device, robot, name) for robot in robots for name in TABLE], arguments.jobs)
        found: dict[str, Any] = {"batches": batches, "unit": "ns a robot", "robots": {}, "skipped": []}
        if device == "cpu":
            found["cores"] = 1
        report.tables[f"table_{device}"] = found
        for robot in robots:
            rows: dict[str, Any] = {"nv": load(robot).nv}
            found["robots"][robot] = rows
            for name in TABLE:
                rows[name] = {label: [] for label in formats}
                for label in formats:
                    for batch in batches:
                        rows[name][label].append(cell(found["skipped"], device, robot, name, label, batch))
                    shown = "  ".join("      -" if ns is None else f"{ns:7.4g}" for ns in rows[name][label])
                    print(f"  {device} {robot:<17} {name:<9} {label}  {shown} ns", flush=True)
            if device == "cpu" and importlib.util.find_spec("pinocchio"):
                rows["Pinocchio"] = pinocchio_row(robot)
                print(f"  cpu {robot:<17} Pinocchio f64  {rows['Pinocchio']}", flush=True)
            report.save()
    torch.set_num_threads(THREADS)


def cell(skipped: list[str], device: str, robot: str, name: str, label: str, batch: int) -> float | None:
    """One entry of the table; None, and a word of why, where memory is too small."""
    work, dtype = kernel(robot, name), DTYPES[label]
    needed = numbers(work.program) * batch * dtype.itemsize
    if needed > room(device):
        skipped.append(f"{name} of {robot}, {label}, batch {batch}: {needed / 1e9:.1f} GB")
        return None
    tensors = inputs_of(robot, work.program.inputs, batch, dtype, device)
    large = batch > 100_000
    if device == "cuda":
        seconds = gpu_time(lambda: work.run(tensors, (), (batch,)), 3 if large else 20, 3)
        torch.cuda.empty_cache()
    else:
        seconds = min(in_turn(into_held_memory(work, tensors, batch), rounds=2 if large else 5)[0])
    return float(f"{seconds / batch * 1e9:.4g}")


def into_held_memory(work: Kernel, tensors: list[torch.Tensor], batch: int) -> Callable[[], None]:
    """The kernel alone: a fresh result of 100 MB costs more in page faults than the kernel takes."""
    executable = work.executable(tensors[0].device, tensors[0].dtype)
    results = [tensors[0].new_zeros(batch, spec.size) for spec in work.program.outputs]
    launch = executable.prepare(tensors, results, batch, ())
    if launch is None:
        return lambda: executable.launch(tensors, results, batch, ())
    held = [*tensors, *results]
    return lambda: launch([tensor.data_ptr() for tensor in held])


def room(device: str) -> float:
    """Bytes that one entry of the table may take: half of what is free; on a GPU less, as results are held twice."""
    if device == "cuda":
        return 0.3 * torch.cuda.mem_get_info()[0]
    return 0.5 * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def pinocchio_row(robot: str) -> dict[str, float]:
    """Pinocchio on one thread at batch 4096, nanoseconds a robot."""
    from peers.pinocchio import Pinocchio

    peer, row = Pinocchio(load(robot)), {}
    for name in ("RNEA", "CRBA", "ABA"):
        run, calling, _ = peer.timed(name, *inputs_of(robot, kernel(robot, name).program.inputs, BATCH, torch.float64))
        cost = min(in_turn(calling, rounds=5)[0]) if calling else 0.0
        row[name] = float(f"{(min(in_turn(run, rounds=5)[0]) - cost) / BATCH * 1e9:.4g}")
    return row


def build_all(works: list[tuple[str, str, str]], jobs: int) -> None:
    """Compile into the cache with several processes, so that a machine with many cores soon has them all."""
    start = time.perf_counter()
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(build, reversed(works)))  # the largest robots first
    print(f"  {len(works)} kernels in the cache after {time.perf_counter() - start:.0f} s", flush=True)


def build(work: tuple[str, str, str]) -> None:
    """Compile one kernel into the cache, in both formats."""
    device, robot, name = work
    traced = program(robot, name)
    for dtype in DTYPES.values():
        if device == "cuda":
            target, _ = gpu_target()
            assert target is not None
        else:
            target = host()
        prebuild(traced, BITS[dtype], target, Cache())


def compile_times(report: Report, arguments: Namespace) -> None:
    """Seconds from nothing to machine code, for the largest robot."""
    load("G1")
    for name, bar in (("ABA", 5.0), ("ABA VJP", 15.0)):
        if arguments.quick and name == "ABA VJP":
            continue
        start = time.perf_counter()
        traced = program("G1", name)
        tracing = time.perf_counter() - start
        report.add(f"{name} of the G1, operations", traced.operations, "")
        report.add(f"{name} of the G1, trace", tracing, "s")
        target, by = gpu_target()
        for label, dtype in DTYPES.items():
            limit = bar if label == "f32" else None
            with tempfile.TemporaryDirectory() as folder:
                cache = Cache(Path(folder, "cache"))
                start = time.perf_counter()
                CpuKernel(traced, BITS[dtype], cache=cache).code(False)
                seconds = tracing + time.perf_counter() - start
                report.add(f"{name} of the G1, {label}, trace and compile, CPU", seconds, "s", limit)
                if target is None:
                    continue
                start = time.perf_counter()
                prebuild(traced, BITS[dtype], target, cache)
                seconds = tracing + time.perf_counter() - start
                report.add(f"{name} of the G1, {label}, trace and compile, GPU ({by})", seconds, "s", limit)


def chosen(names: tuple[str, ...]) -> Callable[[str], list[str]]:
    """The type of an option that takes some of these names."""

    def parse(text: str) -> list[str]:
        wanted = text.split(",")
        unknown = [name for name in wanted if name not in names]
        if unknown:
            raise ValueError(unknown)
        return wanted

    parse.__name__ = f"one of {', '.join(names)}: list"
    return parse


THREADS = torch.get_num_threads()


def main() -> None:
    has_gpu = torch.cuda.is_available()
    options = parser(__doc__)
    options.add_argument("--sections", type=chosen(SECTIONS), default=[s for s in SECTIONS if s != "gpu" or has_gpu])
    options.add_argument("--devices", type=chosen(("cpu", "cuda")), default=["cpu", "cuda"] if has_gpu else ["cpu"])
    options.add_argument("--robots", type=chosen(tuple(ROBOTS)), default=list(ROBOTS))
    options.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that compile for the table")
    arguments = options.parse_args()
    report = Report("dynamics", arguments)
    devices = f" --devices {','.join(arguments.devices)}" if "table" in arguments.sections else ""
    report.tables["command"] = f"python benchmarks/dynamics.py --sections {','.join(arguments.sections)}{devices}"
    sections = {"cpu": cpu, "gpu": gpu, "table": table, "compile": compile_times}
    for name in ("compile", "cpu", "gpu", "table"):  # compiling first, in a process that has compiled nothing
        if name in arguments.sections:
            report.section = name
            sections[name](report, arguments)
            report.save()
    report.finish()


if __name__ == "__main__":
    main()
