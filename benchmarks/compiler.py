"""The kernel compiler: compile times, call overhead, and how close reading and writing come to a plain copy.

    python benchmarks/compiler.py [--quick] [--json]

The straight-line kernels are the inverse dynamics of chains of bodies and their gradients, cut to about 11,000 and
50,000 operations. The peer of the copy kernel is torch's own copy of the same bytes, in the same run.
"""

import os
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from report import Report, best_of, gpu_target, gpu_time, options

from adjoin import trace as at
from adjoin.compiler.autodiff.derivatives import vjp
from adjoin.compiler.ir.program import Program, TensorSpec, trace
from adjoin.compiler.runtime.backend import prebuild
from adjoin.compiler.runtime.cache import Cache
from adjoin.compiler.runtime.cpu.kernel import CpuKernel, host

os.environ["CUDA_CACHE_DISABLE"] = "1"  # the driver's own cache would make a second cold compile warm
AXES = np.eye(3)


def cross(a, b):
    return np.array([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def chain(count: int) -> Program:
    """Newton-Euler inverse dynamics of a chain of bodies with random inertias: about 175 operations a body."""
    rng = random.Random(0)

    def draw(*shape):
        return np.array([rng.random() for _ in range(int(np.prod(shape)))]).reshape(shape)

    def inverse_dynamics(q, v, a):
        spin, turning, rising = np.zeros(3), np.zeros(3), np.array([0.0, 0.0, 9.81])
        bodies = []
        for i in range(count):
            c, s = at.cos(q[i]), at.sin(q[i])
            turn = [
                [[c, -s, 0], [s, c, 0], [0, 0, 1]],
                [[1, 0, 0], [0, c, -s], [0, s, c]],
                [[c, 0, s], [0, 1, 0], [-s, 0, c]],
            ]
            rotation, axis = np.array(turn[i % 3], dtype=object), AXES[(2, 0, 1)[i % 3]]
            place, center, mass, inertia = draw(3), draw(3), rng.random(), draw(3, 3)
            rising = rotation.T @ (rising + cross(turning, place) + cross(spin, cross(spin, place)))
            spin, turning = rotation.T @ spin, rotation.T @ turning
            turning = turning + axis * a[i] + cross(spin, axis * v[i])
            spin = spin + axis * v[i]
            force = mass * (rising + cross(turning, center) + cross(spin, cross(spin, center)))
            moment = inertia @ turning + cross(spin, inertia @ spin) + cross(center, force)
            bodies.append((rotation, axis, place, force, moment))
        force, moment, torques = np.zeros(3), np.zeros(3), []
        for rotation, axis, place, own_force, own_moment in reversed(bodies):
            force, moment = force + own_force, moment + own_moment
            torques.append(axis @ moment)
            force = rotation @ force
            moment = rotation @ moment + cross(place, force)
        return torques[::-1]

    return trace(
        "chain", inverse_dynamics, [TensorSpec("q", (count,)), TensorSpec("v", (count,)), TensorSpec("a", (count,))]
    )[0]


def compile_times(report: Report, quick: bool) -> None:
    makers = {"11k": lambda: chain(62), "50k": lambda: vjp(chain(115), [True] * 3)[0]}
    if quick:
        del makers["50k"]
    for label, make in makers.items():
        start = time.perf_counter()
        program = make()
        traced = time.perf_counter()
        report.add(f"operations of the {label} kernel", program.operations, "")
        report.add(f"trace {label}", (traced - start) * 1e3, "ms")
        start = time.perf_counter()
        report.add(f"hash {label}", (len(program.digest) and time.perf_counter() - start) * 1e3, "ms")
        with tempfile.TemporaryDirectory() as folder:
            cache = Cache(Path(folder, "cache"))
            start = time.perf_counter()
            CpuKernel(program, 32, cache=cache).code(False)
            report.add(f"compile {label}, CPU, cold", time.perf_counter() - start, "s", 2.0 if label == "11k" else 10.0)
            warm = best_of(lambda p=program, c=cache: CpuKernel(p, 32, cache=c).code(False), 5)
            report.add(f"load {label}, CPU, warm", warm * 1e3, "ms", 30.0 if label == "11k" else None)
            target, by = gpu_target()
            if target is None:
                continue
            start = time.perf_counter()
            prebuild(program, 32, target, cache)
            bar = 4.0 if label == "11k" else 10.0
            report.add(f"compile {label}, GPU ({by}), cold", time.perf_counter() - start, "s", bar)
            warm = best_of(lambda p=program, t=target, c=cache: prebuild(p, 32, t, c), 5)
            report.add(f"load {label}, GPU, warm", warm * 1e3, "ms", 30.0 if label == "11k" else None)


def overhead(report: Report, quick: bool) -> None:
    function = at.function(q=7, target=7)(lambda q, target: (q - target) @ (q - target))
    repetitions = 20 if quick else 100
    q, target = torch.randn(1, 7), torch.zeros(1, 7)
    report.add("call, batch 1, CPU", best_of(lambda: function(q, target), repetitions, 200) * 1e6, "us", 6.0)
    leaf = q.clone().requires_grad_()
    seconds = best_of(lambda: function(leaf, target), repetitions, 200)
    report.add("call, batch 1, CPU, gradient recorded", seconds * 1e6, "us", 14.0)
    report.add("torch.add of the same tensors, for scale", best_of(lambda: q + target, repetitions, 200) * 1e6, "us")
    if torch.cuda.is_available():
        q, target = torch.randn(4096, 7, device="cuda"), torch.zeros(4096, 7, device="cuda")
        seconds = best_of(lambda: function(q, target), repetitions, 200)
        report.add("call, batch 4096, GPU, eager", seconds * 1e6, "us", 12.0)


def copying(report: Report, quick: bool) -> None:
    kernel = at.function(x=64)(lambda x: x).kernel
    batch = 1 << (18 if quick else 20)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    x = torch.randn(batch, 64)
    out = torch.empty_like(x)
    executable = kernel.executable(x.device, x.dtype)
    ours = best_of(lambda: executable.launch([x], [out], batch, ()), 10)
    theirs = best_of(lambda: out.copy_(x), 10)
    gigabytes = 2 * x.nbytes / 1e9
    report.add(f"copy of 64 floats a row, batch {batch}, one core", gigabytes / ours, "GB/s")
    report.add("torch's copy, one core", gigabytes / theirs, "GB/s")
    report.add("copy kernel / torch's copy, one core", theirs / ours, "", at_least=0.7)
    torch.set_num_threads(threads)
    if torch.cuda.is_available():
        x = torch.randn(1 << 20, 64, device="cuda")
        out = torch.empty_like(x)
        ours = gpu_time(lambda: kernel.run([x], (), (1 << 20,)))
        theirs = gpu_time(lambda: out.copy_(x))
        report.add("copy of 64 floats a row, batch 1 M, GPU", 2 * x.nbytes / 1e12 / ours, "TB/s")
        report.add("torch's copy, GPU", 2 * x.nbytes / 1e12 / theirs, "TB/s")
        report.add("copy kernel / torch's copy, GPU", theirs / ours, "", at_least=0.7)


def scaling(report: Report, quick: bool) -> None:
    function = at.function(x=4)(lambda x: at.loop(400, lambda i, c: [at.sin(v) * 0.9 + x[0] for v in c], list(x)))
    x = torch.randn(1 << (14 if quick else 16), 4)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    one = best_of(lambda: function(x), 5)
    torch.set_num_threads(2)
    two = best_of(lambda: function(x), 5)
    torch.set_num_threads(threads)
    report.add("two threads over one, compute-bound", one / two, "", at_least=1.8)


def throughput(report: Report) -> None:
    """For the record: a straight-line kernel and its gradient."""
    program = chain(18)
    for label, chosen in (("inverse dynamics, 18 bodies", program), ("its gradient", vjp(program, [True] * 3)[0])):
        x = [torch.randn(4096, slot.size) for slot in chosen.inputs]
        out = [torch.empty(4096, slot.size) for slot in chosen.outputs]
        kernel = CpuKernel(chosen, 32)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        seconds = best_of(lambda k=kernel, x=x, out=out: k.launch(x, out, 4096, ()), 20)
        torch.set_num_threads(threads)
        report.add(f"{label}, one core, {host().vector // 32} lanes", seconds / 4096 * 1e9, "ns")
        if torch.cuda.is_available():
            from adjoin.compiler.runtime.kernel import Kernel

            for batch in (4096, 1 << 17):
                on_gpu = [torch.randn(batch, slot.size, device="cuda") for slot in chosen.inputs]
                kernel = Kernel(chosen)
                seconds = gpu_time(lambda k=kernel, x=on_gpu, b=batch: k.run(x, (), (b,)))
                report.add(f"{label}, GPU, batch {batch}", seconds * 1e6, "us")


def main() -> None:
    arguments = options(__doc__)
    report = Report("compiler", arguments)
    compile_times(report, arguments.quick)
    overhead(report, arguments.quick)
    copying(report, arguments.quick)
    scaling(report, arguments.quick)
    if not arguments.quick:
        throughput(report)
    report.finish()


if __name__ == "__main__":
    main()
