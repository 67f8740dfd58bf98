"""Contact simulation and its gradient: robots on their feet, time, memory and compile time beside peers.

    python benchmarks/simulation.py [--sections cpu,calls,contacts,paper,memory,gpu,compile,start] [--quick] [--json]
                                    [--out FILE] [--mjx PYTHON]

cpu      one core: a Laikago in float64, 4096 of them in float32, and whether time a step grows with their number
paper    tables 1 to 3 and figures 3 and 8 of Qiao et al., Efficient Differentiable Simulation of Articulated Bodies
         (ICML 2021): one Laikago and ten, 50 to 5,000 steps, beside what they print, our interpreter under PyTorch's
         autograd, MuJoCo (forward only), and MJX where `--mjx` names a Python that has it
calls    single calls of two links at batch 1: a step, a step and its gradient, a rollout besides its steps
contacts what pairs cost that do not touch, one core: self-collision over none where no link touches another, and 100
         spheres of which 4 touch the ground over 4 that all do
memory   peak memory of a gradient of 5,000 steps
gpu      steps a second of the Go2 and the Ant
compile  seconds from a model to the results of a step and its gradient, in a process that has compiled nothing
start    seconds from a file to the gradient of a rollout in the default simulator, in a second process: its kernels are
         in the cache

By default all that this machine can run. Times on one core are processor time of the thread, ours and the peers'.
Gradients are of a weighted sum of all states, to the first state and the controls. Memory is the most that a process
holds during a gradient (its high-water mark, set back before) above what it held before; blocks of 64 KB and more go
back to the system when they are freed, so that none is used again unseen.
"""

import ctypes
import functools
import gc
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from report import Report, gpu_time, in_turn, parser

import adjoin
from adjoin.compiler.ir.program import TensorSpec, trace
from adjoin.compiler.runtime.interpreter import interpret

os.environ["CUDA_CACHE_DISABLE"] = "1"  # the driver's own cache would make a cold compile warm

SECTIONS = ("cpu", "calls", "contacts", "paper", "memory", "gpu", "compile", "start")
BATCH = 4096
BATCHES = tuple(1 << k for k in range(12, 19))
DT = 1e-3
DTYPES = {"f32": torch.float32, "f64": torch.float64}
THREADS = torch.get_num_threads()
MB = 1e6

ADJOINTS = {
    "Unrolled": adjoin.UnrolledAdjoint(),
    "Implicit": adjoin.ImplicitAdjoint(),
    "Anticipating": adjoin.AnticipatingAdjoint(),
}
FEET = tuple(f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR"))
ANKLES = tuple(f"{leg}_ankle_geom" for leg in ("left", "right", "third", "fourth"))
LIMBS = tuple(f"{side}_{part}" for side in ("left", "right") for part in ("foot", "hand", "shin1", "larm"))
TOUCHING = {"laikago": FEET, "go2": FEET, "ant": ANKLES, "humanoid": ("head", "torso1", "butt", *LIMBS)}
STANDING = {"ant": (0.0, 0.0, 0.576, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0)}

# Qiao et al. 2021, tables 1 to 3, on an Intel Xeon W-2123 at 3.6 GHz: megabytes, and milliseconds a step.
PAPER_STEPS = (50, 100, 500, 1000, 5000)
PAPER: dict[str, dict[str, list[float | None]]] = {
    "memory": {
        "Ceres": [100.0, 200.0, 1100.0, 2700.0, 23600.0],
        "CppAD": [16.0, 26.0, 160.0, 320.0, 3100.0],
        "JAX": [200.0, 200.0, 400.0, 700.0, 3000.0],
        "PyTorch": [1200.0, 2400.0, 11700.0, 12400.0, None],
        "Qiao et al.": [0.3, 0.3, 0.7, 1.2, 5.0],
    },
    "forward": {
        "ADF": [25.7, 25.5, 25.1, 32.1, 58.4],
        "Ceres": [27.2, 27.5, 27.2, 34.0, 58.2],
        "CppAD": [2.4, 2.4, 2.3, 2.3, 4.5],
        "JAX": [53.3, 46.1, 43.1, 42.7, 42.3],
        "PyTorch": [195.6, 192.2, 199.2, 192.8, None],
        "Qiao et al.": [0.3, 0.3, 0.2, 0.2, 0.2],
    },
    "backward": {
        "Ceres": [29.5, 29.6, 29.5, 37.6, 62.8],
        "CppAD": [2.4, 2.3, 2.3, 2.4, 4.8],
        "JAX": [148.1, 125.7, 127.6, 129.6, 126.6],
        "PyTorch": [275.7, 273.3, 280.8, 272.1, None],
        "Qiao et al.": [1.2, 1.1, 1.2, 1.1, 1.2],
    },
}
COST, ALL = "a running cost to the first state", "all states to the first and the controls"
LOSSES = {
    COST: "states 5,000 x 38 numbers, 1.52 MB; costs and their cotangents 0.08 MB",
    ALL: "states 5,000 x 38 numbers, 1.52 MB; their cotangents 1.48 MB; gradients of controls 0.48 MB",
}
PAPER_NAME = "Qiao et al. 2021, as printed"

# The Ant in float32 at batch 4096 on an NVIDIA H200, measured 2026-11-15: millions of steps a second, forward, and
# forward with backward.
ANT_PEERS = {
    "MJX, one solver iteration": (6.6, 1.34),
    "MJX, four solver iterations": (1.7, "raises"),
    "MuJoCo Warp": (8.5, "none"),
    "MuJoCo Warp at batch 32,768": (20.8, "none"),
    "Newton, Featherstone": (0.19, 0.04),
    "Newton, semi-implicit, maximal coordinates": (74.0, 18.8),
}


@functools.cache
def load(robot: str) -> adjoin.Model:
    model = adjoin.robots.load(robot)
    return model.with_servos(*{"ant": (40.0, 4.0)}.get(robot, (200.0, 10.0)))


def simulator(robot: str, adjoint: str, limits: bool) -> adjoin.Simulator:
    """A robot of which some shapes touch the ground."""
    contact = adjoin.PGS(adjoint=ADJOINTS[adjoint])
    pairs = [(shape, "ground") for shape in TOUCHING[robot]]
    return adjoin.Simulator(load(robot), DT, contact, pairs=pairs, limits=limits)


def standing(robot: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """A configuration, and the control that holds it."""
    model = load(robot)
    keyframe = model.keyframes[0]
    q = STANDING.get(robot, keyframe.q)
    return q, tuple(q[model.coordinates[model.joint_index(drive.joint)].q] for drive in model.actuators)


class Run(NamedTuple):
    """A rollout and its gradient as calls without arguments, and the two one after the other."""

    forward: Callable[[], Any]
    backward: Callable[[], Any]
    both: Callable[[], Any]


def rollout(
    sim: adjoin.Simulator, robot: str, batch: int, steps: int, dtype: torch.dtype, device: str = "cpu", every: int = 1
) -> Run:
    """Robots near where they stand; what is given and the cotangents are there already."""
    q, control = (torch.tensor(values, dtype=dtype, device=device) for values in standing(robot))
    generator = torch.Generator().manual_seed(0)
    noise = 0.02 * torch.randn(batch, len(q) - 7, generator=generator, dtype=dtype)
    q = q.repeat(batch, 1)
    q[:, 7:] += noise.to(device)
    q.requires_grad_()
    v = q.new_zeros(batch, sim.model.nv).requires_grad_()
    controls = control.expand(steps, batch, -1).contiguous().requires_grad_()
    given = [q, v, controls]
    kept = -(-steps // every) + 1
    seeds = [q.new_ones(kept, batch, sim.model.nq), q.new_ones(kept, batch, sim.model.nv)]

    def forward() -> Any:
        return sim.rollout(sim.state(q, v), controls, every=every)

    def gradient(path: Any, again: bool) -> Any:
        return torch.autograd.grad([path.q, path.v], given, seeds, retain_graph=again)

    @functools.cache
    def path() -> Any:
        found = forward()
        assert (found.status == 0.0).all()
        return found

    return Run(forward, lambda: gradient(path(), True), lambda: gradient(forward(), False))


def case(adjoint: str, limits: bool) -> str:
    return f"{adjoint}, {'joint limits' if limits else 'no joint limits'}"


# One core -----------------------------------------------------------------------------------------------------------


def cpu(report: Report, arguments: Namespace) -> None:
    """Time a step of one Laikago and of 4096, and of one over the number of steps."""
    rounds = 3 if arguments.quick else 10
    torch.set_num_threads(1)
    peer = mujoco_peer()
    for adjoint in ("Implicit",) if arguments.quick else ADJOINTS:
        for limits in (True,) if arguments.quick else (True, False):
            sim, held = simulator("laikago", adjoint, limits), adjoint != "Anticipating"
            for label, batch, steps, bars in (("f64", 1, 1000, (10.0, 25.0)), ("f32", BATCH, 20, (0.5, 1.5))):
                run = rollout(sim, "laikago", batch, steps, DTYPES[label])
                forward, backward = (min(x) / steps / batch * 1e6 for x in in_turn(*run[:2], rounds=rounds))
                who = f"{label}, batch {batch}, {case(adjoint, limits)}"
                shown: Any = (PAPER_NAME, 200.0), (PAPER_NAME, 1200.0)
                if batch > 1:
                    shown = None, None
                report.add(f"{who}, forward, a step", forward, "us", bars[0] if held else None, peer=shown[0])
                report.add(f"{who}, backward, a step", backward, "us", bars[1] if held else None, peer=shown[1])
                report.add(f"{who}, backward over forward", backward / forward, "", 4.0 if held else None)
            report.save()
    if peer is not None:
        seconds = {batch: mujoco_time(peer, batch, 1000 if batch == 1 else 100, rounds) for batch in (1, 64)}
        note = "Newton solver, joint limits; its robots one after the other"
        report.add(f"{peer.name}, f64, one robot, forward, a step", seconds[1] * 1e6, "us", note=note)
        report.add(f"{peer.name}, f64, 64 robots, forward, a step", seconds[64] * 1e6, "us", note=note)
    for adjoint in ("Implicit",) if arguments.quick else ("Unrolled", "Implicit"):
        flat(report, adjoint, arguments.quick)
    torch.set_num_threads(THREADS)


def flat(report: Report, adjoint: str, quick: bool) -> None:
    """Time a step over the number of steps."""
    sim, times = simulator("laikago", adjoint, True), {}
    for steps in (50, 500, 5000) if quick else (50, 500, 5000, 50_000):
        run = rollout(sim, "laikago", 1, steps, torch.float64)
        times[steps] = [min(x) / steps * 1e6 for x in in_turn(*run[:2], rounds=3 if quick else 5)]
        for name, value in zip(("forward", "backward"), times[steps], strict=True):
            report.add(f"f64, one robot, {case(adjoint, True)}, {steps} steps, {name}, a step", value, "us")
    for i, name in enumerate(("forward", "backward")):
        *shorter, longest = [x[i] for x in times.values()]
        title = f"f64, one robot, {case(adjoint, True)}, {name}, a step of {max(times)} over the best of fewer"
        report.add(title, longest / min(shorter), "", 1.2)


def calls(report: Report, arguments: Namespace) -> None:
    """What a call costs besides the arithmetic: of a model so small that this is nearly all."""
    torch.set_num_threads(1)
    model = adjoin.robots.load("two_link").with_motors()
    sim, steps = adjoin.Simulator(model, dt=DT, pairs=[]), 101
    state, control = sim.state(batch=1), torch.zeros(1, model.nu)
    tracked, weights = control.clone().requires_grad_(), torch.ones(1, model.nv)
    controls = torch.zeros(steps, 1, model.nu)
    tasks = (
        lambda: sim.step(state, control),
        lambda: torch.autograd.grad(sim.step(state, tracked).v, tracked, weights),
        lambda: sim.rollout(state, controls[:1]),
        lambda: sim.rollout(state, controls),
    )
    rounds = 20 if arguments.quick else 200
    step, both, one, many = (min(times) for times in in_turn(*tasks, rounds=rounds, least=0.002))
    report.add("two links, batch 1, a step", step * 1e6, "us", 10.0)
    report.add("two links, batch 1, a step and its gradient", both * 1e6, "us", 40.0)
    besides = one - (many - one) / (steps - 1)
    report.add("two links, batch 1, a rollout besides its steps", besides * 1e6, "us", 25.0)
    torch.set_num_threads(THREADS)


def contacts(report: Report, arguments: Namespace) -> None:
    """What pairs cost that are near nothing, with the solvers whose gradients cost what touches."""
    torch.set_num_threads(1)
    solvers = {"PGS Implicit": adjoin.PGS(adjoint=ADJOINTS["Implicit"]), "Newton": adjoin.Newton()}
    works = [("f64", 1, 200), ("f32", 1024, 10)]
    for robot in ("laikago",) if arguments.quick else ("laikago", "go2", "g1"):
        for name, solver in list(solvers.items())[: 1 if arguments.quick else 2]:
            model = load(robot)
            sims = [adjoin.Simulator(model, DT, solver, self_collision=own) for own in (False, True)]
            pairs = [len(sim.contact_names) for sim in sims]
            note = f"{pairs[1]} pairs over {pairs[0]}; {len(sims[1].left_out)} left out"
            for label, batch, steps in works:
                runs = [rollout(sim, robot, batch, steps, DTYPES[label]) for sim in sims]
                title = f"self-collision over none, {robot}, {name}, {label}, batch {batch}"
                ratios(report, title, runs, 1.3, note, 3 if arguments.quick else 8)
    for name, solver in list(solvers.items())[: 1 if arguments.quick else 2]:
        sims = [adjoin.Simulator(spheres(count), DT, solver, ground=True) for count in (4, 100)]
        for label, batch, steps in works:
            runs = [falling(sim, batch, steps, DTYPES[label]) for sim in sims]
            title = f"4 of 100 spheres touch over 4 of 4, {name}, {label}, batch {batch}"
            ratios(report, title, runs, 2.0, "", 3 if arguments.quick else 8)
    torch.set_num_threads(THREADS)


def ratios(report: Report, title: str, runs: list[Run], bar: float, note: str, rounds: int) -> None:
    """The time of the second run over that of the first, forward and backward."""
    tasks = [task for run in runs for task in run[:2]]
    times = [min(x) for x in in_turn(*tasks, rounds=rounds)]
    for way, first, second in (("forward", 0, 2), ("backward", 1, 3)):
        report.add(f"{title}, {way}", times[second] / times[first], "", bar, note=note)
    report.save()


def spheres(count: int) -> adjoin.Model:
    """A plate with so many spheres, of which four are feet."""
    places = [(x, y, 0.0) for x in (-0.5, 0.5) for y in (-0.5, 0.5)]
    places += [(0.1 * (k % 10), 0.1 * (k // 10), 0.2) for k in range(count - 4)]
    shapes = [
        adjoin.Geometry(f"sphere{k}", "sphere", 0, "plate", (0.04, 0.0, 0.0), place) for k, place in enumerate(places)
    ]
    body = adjoin.Body("plate", -1, adjoin.Joint("free", "free"), mass=1.0, inertia=(0.1, 0.0, 0.0, 0.1, 0.0, 0.2))
    return adjoin.Model(f"plate{count}", (body,), (adjoin.Frame("plate", 0),), tuple(shapes))


def falling(sim: adjoin.Simulator, batch: int, steps: int, dtype: torch.dtype) -> Run:
    """Plates that rest on their feet."""
    state = sim.drop(batch=batch, dtype=dtype)
    q = state.q.clone().requires_grad_()

    def forward() -> Any:
        return sim.rollout(state.replace(q=q), steps=steps)

    path = forward()
    assert (path.status == 0).all()
    seeds = [torch.ones_like(path.q), torch.ones_like(path.v)]

    def gradient(path: Any, again: bool) -> Any:
        return torch.autograd.grad([path.q, path.v], [q], seeds, retain_graph=again)

    return Run(forward, lambda: gradient(path, True), lambda: gradient(forward(), False))


def mujoco_peer() -> Any:
    """MuJoCo with the same robot, where it is installed."""
    if not importlib.util.find_spec("mujoco"):
        return None
    from peers.mujoco import MuJoCo

    return MuJoCo(load("laikago"), [f"{foot}/0" for foot in FEET], DT)


def mujoco_time(peer: Any, batch: int, steps: int, rounds: int) -> float:
    """Seconds a step of a robot."""
    q, control = (torch.tensor(x, dtype=torch.float64) for x in standing("laikago"))
    run = peer.stepping(q.repeat(batch, 1).numpy(), control.numpy(), steps)
    return min(in_turn(run, rounds=rounds)[0]) / steps / batch


# Memory -------------------------------------------------------------------------------------------------------------


def memory(report: Report, arguments: Namespace) -> None:
    """Of a gradient of 5,000 steps above one of one step, by the interval between kept states."""
    steps = 5000
    intervals = (1, 50) if arguments.quick else (1, 10, 50, 100)
    for adjoint in ("Implicit",) if arguments.quick else ("Unrolled", "Implicit"):
        for loss, note in list(LOSSES.items())[: 1 if arguments.quick else 2]:
            works = [{"steps": 1}, *[{"steps": steps, "every": every} for every in intervals]]
            found = measured(adjoint, 1, works, 1 if arguments.quick else 5, loss)
            for every, bytes_ in zip(intervals, found[1:], strict=True):
                name = f"gradient of {loss}, {steps} steps, f64, one robot, {adjoint}, every={every}"
                added, why = (bytes_ - found[0]) / MB, note if every == 1 else ""
                report.add(f"{name}, above one step", added, "MB", 1.6, peer=(PAPER_NAME, 5.0), note=why)


def measured(adjoint: str, batch: int, works: list[dict[str, int]], repeats: int, loss: str = ALL) -> list[float]:
    """Bytes that gradients take at most: each the median of several processes."""
    asked = {"what": "memory", "adjoint": adjoint, "batch": batch, "works": works, "loss": loss}
    return [median(own) for own in zip(*[child(asked) for _ in range(repeats)], strict=True)]


def child(asked: dict[str, Any], timeout: float = 600.0, **environment: str) -> Any:
    """What a process of its own finds."""
    ran = subprocess.run(
        [sys.executable, __file__, "--child", json.dumps(asked)],
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        check=True,
        timeout=timeout,
    )
    return json.loads(ran.stdout.splitlines()[-1])


def kilobytes(field: str) -> int:
    return int(next(line for line in Path("/proc/self/status").read_text().splitlines() if field in line).split()[1])


def peak(function: Callable[[], Any]) -> int:
    """The most bytes that this process holds during a call above what it held before."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    kept = function()
    found = kilobytes("VmHWM") - before
    del kept
    return 1024 * found


def height(next_q: Any, next_v: Any) -> Any:
    """A running cost."""
    return (next_q[2] - 0.4) ** 2 + 1e-3 * (next_v @ next_v)


def memory_child(asked: dict[str, Any]) -> list[int]:
    """What is given is there before."""
    sim = simulator("laikago", asked["adjoint"], True)
    batch = asked["batch"]
    q, control = (torch.tensor(values, dtype=torch.float64) for values in standing("laikago"))
    q = q.repeat(batch, 1).requires_grad_()
    v = q.new_zeros(batch, sim.model.nv).requires_grad_()

    def gradient(controls: torch.Tensor, every: int) -> Any:
        if asked["loss"] == COST:
            path = sim.rollout(sim.state(q, v), controls.detach(), outputs={"cost": height}, every=every)
            return torch.autograd.grad(path.outputs["cost"].sum(), [q, v])
        path = sim.rollout(sim.state(q, v), controls, every=every)
        return torch.autograd.grad(path.q.sum() + path.v.sum(), [q, v, controls])

    found = []
    for work in asked["works"]:
        controls = control.expand(work["steps"], batch, -1).contiguous().requires_grad_()
        every = work.get("every", 1)
        gradient(control.expand(2, batch, -1).contiguous().requires_grad_(), every)  # compiles
        found.append(peak(lambda given=controls, every=every: gradient(given, every)))
    return found


# The paper's tables and figures -------------------------------------------------------------------------------------


def paper(report: Report, arguments: Namespace) -> None:
    """One Laikago, then ten, then the interval between checkpoints."""
    torch.set_num_threads(1)
    steps = PAPER_STEPS[:3] if arguments.quick else PAPER_STEPS
    rows: dict[str, dict[str, list[float | None]]] = {kind: dict(values) for kind, values in PAPER.items()}
    found: dict[str, Any] = {"steps": list(PAPER_STEPS), "rows": rows, "ten": {}, "intervals": {}}
    report.tables["paper"] = found
    if not arguments.quick:
        interpreted(rows)
    others(rows, arguments)
    for adjoint in ("Implicit",) if arguments.quick else ("Unrolled", "Implicit"):
        forward, backward = zip(*[laikagos(adjoint, 1, n) for n in steps], strict=True)
        works = [{"steps": 1}, *[{"steps": n} for n in steps]]
        bytes_ = measured(adjoint, 1, works, 1 if arguments.quick else 3)[1:]
        own = {"memory": [b / MB for b in bytes_], "forward": forward, "backward": backward}
        for kind, values in own.items():
            rows[kind][f"adjoin, {adjoint}"] = [float(f"{x:.4g}") for x in values] + [None] * (5 - len(steps))
    for kind, unit in (("memory", "MB"), ("forward", "ms"), ("backward", "ms")):
        for name, values in rows[kind].items():
            shown = "  ".join("      -" if x is None else f"{x:7.4g}" for x in values)
            print(f"  {kind:<8} {name:<45} {shown} {unit}", flush=True)
    report.save()
    ten(report, found, arguments.quick)
    torch.set_num_threads(THREADS)


def laikagos(adjoint: str, batch: int, steps: int, every: int = 1) -> list[float]:
    """Milliseconds a step of all of them, forward and backward."""
    run = rollout(simulator("laikago", adjoint, True), "laikago", batch, steps, torch.float64, every=every)
    return [min(x) / steps * 1e3 for x in in_turn(*run[:2], rounds=3)]


def interpreted(rows: dict[str, Any]) -> None:
    """The row of PyTorch: every operation of ours a torch operation under autograd."""
    name = f"adjoin's interpreter, PyTorch {torch.__version__.split('+')[0]}"
    found = [child({"what": "interpret", "steps": steps}) for steps in PAPER_STEPS[:2]]
    for kind in rows:
        values = [x[kind] for x in found]
        rows[kind][name] = values + [None] * (len(PAPER_STEPS) - len(values))


def interpret_child(asked: dict[str, Any]) -> dict[str, float]:
    """Seconds and bytes of a rollout by the interpreter, whose gradient is that of the kernel."""
    torch.set_num_threads(1)
    sim, steps = simulator("laikago", "Unrolled", True), asked["steps"]
    model = sim.model
    slots = [
        TensorSpec("q", (model.nq,)),
        TensorSpec("v", (model.nv,)),
        TensorSpec("status", ()),
        TensorSpec("control", (model.nu,)),
    ]

    def stepped(control: Any, **carry: Any) -> dict[str, Any]:
        return sim.world.step(sim.world.plant(control), carry)[0]

    program, _ = trace("step", stepped, slots)
    program.schedule  # noqa: B018 planned before anything is measured
    q, control = (torch.tensor([values], dtype=torch.float64) for values in standing("laikago"))
    # It moves a little: at rest friction is on a kink, where torch halves a gradient and we do not.
    q, v = q.requires_grad_(), q.new_full((1, model.nv), 1e-3).requires_grad_()
    times: dict[str, float] = {}

    def gradient(controls: torch.Tensor) -> Any:
        start = time.thread_time()
        state = [q, v, q.new_zeros(1, 1)]
        for given in controls:
            state = interpret(program, [*state, given])
        middle = time.thread_time()
        found = torch.autograd.grad(state[0].sum() + state[1].sum(), [q, v, controls])
        times["forward"] = (middle - start) / len(controls) * 1e3
        times["backward"] = (time.thread_time() - middle) / len(controls) * 1e3
        return found

    few, many = (control.expand(n, 1, -1).contiguous().requires_grad_() for n in (2, steps))
    path = sim.rollout(sim.state(q, v), few)
    exact = torch.autograd.grad(path.q[-1].sum() + path.v[-1].sum(), [q, v, few])
    for own, right in zip(gradient(few), exact, strict=True):
        assert (own - right).abs().max() < 1e-9 * right.abs().max(), "the interpreter's gradient is another"
    times["memory"] = peak(lambda: gradient(many)) / MB
    return {name: float(f"{value:.4g}") for name, value in times.items()}


def others(rows: dict[str, Any], arguments: Namespace) -> None:
    """MuJoCo's row of times, and MJX's rows."""
    peer = mujoco_peer()
    if peer is None:
        return
    steps = PAPER_STEPS[:3] if arguments.quick else PAPER_STEPS
    times: list[float | None] = [float(f"{mujoco_time(peer, 1, n, 3) * 1e3:.4g}") for n in steps]
    rows["forward"][peer.name] = times + [None] * (len(PAPER_STEPS) - len(steps))
    if arguments.mjx is None or arguments.quick:
        return
    for i, steps in enumerate(PAPER_STEPS):
        if steps in (50, 500, 5000):  # each is compiled anew, for a minute
            found = mjx(arguments.mjx, peer.text, steps)
            forward, both = (found[way] / steps * 1e3 for way in ("forward", "both"))
            own = {"memory": found["memory"] / MB, "forward": forward, "backward": both - forward}
            for kind, value in own.items():
                row = rows[kind].setdefault(f"{found['name']}, one solver iteration", [None] * len(PAPER_STEPS))
                row[i] = float(f"{value:.4g}")


def mjx(python: str, text: str, steps: int) -> dict[str, Any]:
    """MJX in a process of another Python."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.xml")
        file.write_text(text)
        script = Path(__file__).with_name("mjx_peer.py")
        ran = subprocess.run([python, script, file, str(steps)], cwd=folder, capture_output=True, check=True)
    found = json.loads(ran.stdout.splitlines()[-1])
    print(f"  {steps} steps: {found}", flush=True)
    return found


def ten(report: Report, found: dict[str, Any], quick: bool) -> None:
    """Ten robots, a batch: memory and time over steps, and over the interval between checkpoints."""
    counts = (1000,) if quick else (1000, 2000, 3000, 4000, 5000)
    intervals = (1, 50) if quick else (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000)
    longest = counts[-1]
    works = [*[{"steps": n} for n in counts], *[{"steps": longest, "every": k} for k in intervals]]
    for adjoint in ("Implicit",) if quick else ("Unrolled", "Implicit"):
        bytes_ = [b / MB for b in measured(adjoint, 10, works, 1 if quick else 3)]
        times = [laikagos(adjoint, 10, work["steps"], work.get("every", 1)) for work in works]
        lines = [[float(f"{x:.4g}") for x in (b, *t)] for b, t in zip(bytes_, times, strict=True)]
        found["ten"][adjoint] = dict(zip(counts, lines, strict=False))
        found["intervals"][adjoint] = dict(zip(intervals, lines[len(counts) :], strict=True))
        for work, (size, forward, backward) in zip(works, lines, strict=True):
            print(f"  ten, {adjoint}, {work}: {size:.4g} MB, {forward:.4g} ms, {backward:.4g} ms", flush=True)
        report.save()


# GPU ----------------------------------------------------------------------------------------------------------------


def gpu(report: Report, arguments: Namespace) -> None:
    """Millions of steps a second, forward alone and with backward; the rollout's own copies included."""
    adjoints, limited = ("Implicit", "Unrolled"), (True,) if arguments.quick else (True, False)
    works = [{"robot": r, "adjoint": a, "limits": x} for r in ("ant", "go2") for a in adjoints for x in limited]
    start = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # into the cache, so that a machine with many cores soon has all
        list(pool.map(lambda work: child({"what": "build", **work}), works))
    print(f"  kernels in the cache after {time.perf_counter() - start:.0f} s", flush=True)
    for adjoint in adjoints:
        for limits in limited:
            sim, held = simulator("go2", adjoint, limits), adjoint == "Implicit"
            name, best = f"Go2, f32, {case(adjoint, limits)}", [0.0, 0.0]
            for batch in BATCHES[:1] if arguments.quick else BATCHES:
                rates = throughput(sim, "go2", batch, 50 if batch <= 1 << 14 else 20)
                best = [max(a, b) for a, b in zip(best, rates, strict=True)]
                bars = (150.0, 40.0) if batch == BATCH else (None, None)
                add_rates(report, f"{name}, batch {batch}", rates, bars if held else (bars[0], None))
            if not arguments.quick:
                add_rates(report, f"{name}, best batch", best, (500.0, 120.0) if held else (500.0, None))
            report.save()
    for adjoint in adjoints:
        for limits in limited:
            sim = simulator("ant", adjoint, limits)
            for batch in (BATCH,) if arguments.quick else (BATCH, 32768):
                rates = throughput(sim, "ant", batch, 50 if batch == BATCH else 20)
                bars = (74.0, 18.8) if batch == BATCH and adjoint == "Implicit" else (None, None)
                points = f"{len(sim.contact_names)} points"
                peers = [("Newton's semi-implicit solver, measured before", rate) if rate else None for rate in bars]
                add_rates(report, f"Ant, {points}, f32, {case(adjoint, limits)}, batch {batch}", rates, bars, peers)
            report.save()
    report.tables["ant_peers"] = ANT_PEERS


def build_child(asked: dict[str, Any]) -> None:
    sim = simulator(asked["robot"], asked["adjoint"], asked["limits"])
    rollout(sim, asked["robot"], 64, 2, torch.float32, "cuda").both()


def add_rates(
    report: Report, name: str, rates: list[float], bars: tuple[float | None, float | None], peers: Any = (None, None)
) -> None:
    """Both, and how much longer backward takes."""
    for way, rate, bar, peer in zip(("forward", "forward + backward"), rates, bars, peers, strict=True):
        report.add(f"{name}, {way}", rate, "M/s", at_least=bar, peer=peer)
    report.add(f"{name}, backward over forward", rates[0] / rates[1] - 1.0, "", 4.0 if bars[1] else None)


def throughput(sim: adjoin.Simulator, robot: str, batch: int, steps: int) -> list[float]:
    """Millions of steps a second, forward, and forward with backward."""
    run = rollout(sim, robot, batch, steps, torch.float32, "cuda")
    found = [batch * steps / gpu_time(call, 3) / 1e6 for call in (run.forward, run.both)]
    torch.cuda.empty_cache()
    return found


# Compile times ------------------------------------------------------------------------------------------------------


def compile_times(report: Report, arguments: Namespace) -> None:
    """Seconds from a model to the results of a step and its gradient."""
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    works = [("go2", adjoint, {"cpu": 5.0, "cuda": 10.0}) for adjoint in ("Unrolled", "Implicit")]
    works += [("humanoid", adjoint, {"cpu": 20.0, "cuda": 20.0}) for adjoint in ("Unrolled", "Implicit")]
    for robot, adjoint, bars in works[1:2] if arguments.quick else works:
        for device in devices:
            asked = {"what": "compile", "robot": robot, "adjoint": adjoint, "device": device}
            with tempfile.TemporaryDirectory() as folder:
                found = child(asked, ADJOIN_CACHE_DIR=str(Path(folder, "cache")))
            name = f"{robot}, {found['points']} points, joint limits, {adjoint}, {device}, f32"
            note = f"forward alone {found['forward']:.1f} s"
            report.add(f"{name}, step and its gradient", found["both"], "s", bars[device], note=note)
            report.save()


def compile_child(asked: dict[str, Any]) -> dict[str, float]:
    model, device = load(asked["robot"]), asked["device"]
    torch.zeros(1, device=device)
    start = time.perf_counter()
    sim = simulator(asked["robot"], asked["adjoint"], True)
    q, control = (torch.tensor(values, device=device) for values in standing(asked["robot"]))
    state = sim.state(q.repeat(64, 1).requires_grad_(), torch.zeros(64, model.nv, device=device, requires_grad=True))
    after = sim.step(state, control.repeat(64, 1).requires_grad_())
    after.q.detach().cpu()
    forward = time.perf_counter() - start
    (after.q.sum() + after.v.sum()).backward()
    after.q.detach().cpu()
    return {"forward": forward, "both": time.perf_counter() - start, "points": len(sim.contact_names)}


MJCF = """<mujoco><worldbody><geom type="plane" size="5 5 1"/>
<body pos="0 0 0.5"><freejoint/><geom type="capsule" fromto="-0.2 0 0 0.2 0 0" size="0.05"/>
<body pos="0.2 0 0"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0.2 0 -0.1" size="0.04"/></body>
<body pos="-0.2 0 0"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 -0.2 0 -0.1" size="0.04"/></body>
</body></worldbody></mujoco>"""


def starts(report: Report, arguments: Namespace) -> None:
    """Seconds from a file to a gradient, in a process that finds its kernels in the cache."""
    for robot in ("laikago", "go2", "ant", "MJCF file"):
        with tempfile.TemporaryDirectory() as folder:
            asked = {"what": "start", "robot": robot}
            first, second = (child(asked, ADJOIN_CACHE_DIR=str(Path(folder, "cache"))) for _ in range(2))
        note = f"first process {first['both']:.1f} s"
        report.add(f"{robot}, default simulator, second process, f64", second["both"], "s", 0.5, note=note)
        report.save()


def start_child(asked: dict[str, Any]) -> dict[str, float]:
    _ = adjoin.robots, adjoin.Simulator  # imported with their modules
    torch.zeros(1)
    start = time.perf_counter()
    model = adjoin.load(MJCF) if asked["robot"] == "MJCF file" else adjoin.robots.load(asked["robot"])
    sim = adjoin.Simulator(model)
    state = sim.drop(dtype=torch.float64)
    q = state.q.clone().requires_grad_()
    path = sim.rollout(state.replace(q=q), steps=10)
    path.q[-1].sum().backward()
    return {"both": time.perf_counter() - start}


CHILDREN = {
    "memory": memory_child, "interpret": interpret_child, "compile": compile_child, "build": build_child,
    "start": start_child,
}  # fmt: skip


def main() -> None:
    options = parser(__doc__)
    chosen = [s for s in SECTIONS if s != "gpu" or torch.cuda.is_available()]
    options.add_argument(
        "--sections", type=lambda text: text.split(","), default=chosen, help="some of these, by comma"
    )
    options.add_argument("--mjx", metavar="PYTHON", help="a Python that has mujoco-mjx, to run it beside ours")
    options.add_argument("--child", type=json.loads, help="what a process of its own is to measure; for itself")
    arguments = options.parse_args()
    if arguments.child:
        print(json.dumps(CHILDREN[arguments.child["what"]](arguments.child)))
        return
    unknown = [name for name in arguments.sections if name not in SECTIONS]
    if unknown:
        options.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    report = Report("simulation", arguments)
    beside = " --mjx PYTHON" if arguments.mjx else ""
    report.tables["command"] = f"python benchmarks/simulation.py --sections {','.join(arguments.sections)}{beside}"
    sections = {
        "cpu": cpu, "calls": calls, "contacts": contacts, "paper": paper, "memory": memory, "gpu": gpu,
        "compile": compile_times, "start": starts,
    }  # fmt: skip
    for name in arguments.sections:
        report.section = name
        sections[name](report, arguments)
        report.save()
    report.finish()


if __name__ == "__main__":
    main()
