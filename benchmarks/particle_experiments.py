"""Particles: sections of continuum.py.

The soft walker of DiffTaichi (Hu et al., ICLR 2020, examples/diffmpm.py): 2,976 particles on a grid of 128 x 128 cells,
four legs that are muscles, driven by tanh of four sines, gradient descent on how far the body gets.
"""

import importlib
import importlib.util
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from report import panel

from adjoin.continuum import ParticleMaterial, Particles


def blocks(boxes: list[tuple[list[float], list[float], int]], spacing: float, offset: list[float]) -> tuple[Any, Any]:
    """Particles in boxes (corner, size, muscle), two a cell along each axis; positions and muscles."""
    points, muscles = [], []
    for corner, size, muscle in boxes:
        axes = []
        for low, length, shift in zip(corner, size, offset, strict=True):
            count = 2 * int(length / spacing)
            axes.append(low + shift + (torch.arange(count, dtype=torch.float64) + 0.5) * length / count)
        grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(corner))
        points.append(grid)
        muscles += [muscle] * len(grid)
    return torch.cat(points), torch.tensor(muscles)


def learn(
    world: Particles,
    x: torch.Tensor,
    muscle_of: torch.Tensor,
    volume: float,
    steps: int,
    iterations: int,
    rate: float,
    strength: float,
    params: dict[str, torch.Tensor],
) -> tuple[list[float], list[float]]:
    """Gradient descent on the mean position along x; the losses and the seconds of each iteration.

    On a CPU these are of processor time, of all threads together.
    """
    clock = time.process_time if x.device.type == "cpu" else time.perf_counter
    place = {"dtype": x.dtype, "device": x.device}
    muscle = torch.zeros((len(x), world.muscles, world.dim), **place)
    for i in range(world.muscles):
        muscle[muscle_of == i, i, -1] = 1.0
    generator = torch.Generator().manual_seed(0)
    weights = (0.01 * torch.randn(world.muscles, 4, generator=generator)).to(**place).requires_grad_()
    bias = torch.zeros(world.muscles, **place, requires_grad=True)
    t = world.dt * torch.arange(steps, **place)
    waves = torch.sin(20.0 * t[:, None] + 0.5 * math.pi * torch.arange(4, **place))
    start = world.state(x)
    losses, seconds = [], []
    for _ in range(iterations):
        begin = clock()
        activation = strength * torch.tanh(waves @ weights.T + bias)
        last = world.rollout(start, volume, activation, muscle, params=params)
        loss = -last.x[:, 0].mean()
        gradients = torch.autograd.grad(loss, (weights, bias))
        with torch.no_grad():
            weights -= rate * gradients[0]
            bias -= rate * gradients[1]
        losses.append(loss.item())
        seconds.append(clock() - begin)
    return losses, seconds


def walker(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    spacing = 1 / 128
    boxes: list[tuple[list[float], list[float], int]] = [([0.0, 0.1], [0.3, 0.1], -1)]
    boxes += [([left, 0.0], [0.05, 0.1], leg) for leg, left in enumerate((0.0, 0.05, 0.2, 0.25))]
    x, muscle_of = blocks(boxes, spacing, [0.1, 0.03])
    x, muscle_of = x.float().to(device), muscle_of.to(device)
    material = ParticleMaterial("elastic", density=1.0, young=25.0, poisson=0.25)  # shear and first are 10
    world = Particles((128, 128), spacing, 1e-3, material, gravity=(0.0, -3.8), muscles=4)
    params = {name: torch.tensor(10.0, device=device) for name in ("shear", "first")}
    iterations = 3 if quick else 100
    settings = (x, muscle_of, 1.0, 1023, iterations, 0.1, 4.0, params)
    losses, seconds = learn(world, *settings)
    _, unsorted = learn(replace(world, atomic=True), *settings)
    yield {"name": "walker: particles", "value": len(x), "unit": ""}
    bar = {} if quick else {"at_most": -0.50}
    yield {
        "name": "walker: loss at the last iteration",
        "value": losses[-1],
        "unit": "m",
        "peer": ("Taichi", -0.502),
        **bar,
    }
    each = sorted(seconds)[len(seconds) // 4]
    bar = {"at_most": 1.0 if device == "cpu" else 0.05}
    peer = ("Taichi", 2.9 if device == "cpu" else 0.45)
    yield {"name": "walker: an iteration", "value": each, "unit": "s", "peer": peer, **bar}
    each = sorted(unsorted)[len(unsorted) // 4]
    yield {"name": "walker: an iteration with atomic sums", "value": each, "unit": "s", "peer": peer}
    curve = panel("soft walker", "iteration", "loss, m", loss=(range(len(losses)), losses))
    yield {"table": {"panels": [curve], "seconds": [round(x, 4) for x in seconds]}}


def walker_in_3d(quick: bool, device: str) -> tuple[Particles, torch.Tensor, torch.Tensor, float]:
    """The world, positions of about 30,000 particles, their muscles and their volume."""
    spacing = 1 / 64
    depth = 0.1 if quick else 0.32
    boxes: list[tuple[list[float], list[float], int]] = [([0.0, 0.0, 0.1], [0.3, depth, 0.1], -1)]
    boxes += [([left, 0.0, 0.0], [0.05, depth, 0.1], leg) for leg, left in enumerate((0.0, 0.05, 0.2, 0.25))]
    x, muscle_of = blocks(boxes, spacing, [0.2, 0.3, 0.055])
    material = ParticleMaterial("neo_hookean", density=1.0, young=25.0, poisson=0.25)
    world = Particles((64, 64, 64), spacing, 2e-3, material, gravity=(0.0, 0.0, -3.8), muscles=4)
    return world, x.float().to(device), muscle_of.to(device), (spacing / 2) ** 3


def walker3d(quick: bool, device: str) -> Iterator[dict[str, Any]]:
    world, x, muscle_of, volume = walker_in_3d(quick, device)
    steps, iterations = (64, 2) if quick else (512, 40)
    losses, seconds = learn(world, x, muscle_of, volume, steps, iterations, 3.0, 4.0, {})
    _, unsorted = learn(replace(world, atomic=True), x, muscle_of, volume, steps, min(iterations, 5), 3.0, 4.0, {})
    yield {"name": "walker3d: particles", "value": len(x), "unit": ""}
    bar = {} if quick else {"at_least": 0.05}
    yield {"name": "walker3d: distance learned", "value": losses[0] - losses[-1], "unit": "m", **bar}
    each = sorted(seconds)[len(seconds) // 4]
    yield {"name": f"walker3d: an iteration of {steps} steps", "value": each, "unit": "s"}
    each = sorted(unsorted)[len(unsorted) // 4]
    yield {"name": f"walker3d: an iteration of {steps} steps with atomic sums", "value": each, "unit": "s"}
    curve = panel("soft walker in 3D", "iteration", "loss, m", loss=(range(len(losses)), losses))
    yield {"table": {"panels": [curve], "seconds": [round(x, 4) for x in seconds]}}


def taichi(quick: bool) -> Iterator[dict[str, Any]]:
    """The walker in three dimensions beside Taichi on a CPU, which compiles for 20 to 60 s: nothing of it if quick."""
    if not quick and importlib.util.find_spec("taichi"):
        yield from _beside_taichi(*walker_in_3d(quick, "cpu"))


def _beside_taichi(
    world: Particles, x: torch.Tensor, muscle_of: torch.Tensor, volume: float, steps: int = 64
) -> Iterator[dict[str, Any]]:
    """Compare loss, gradient and processor time of some steps; both on as many threads as torch has."""
    from taichi_walker import TaichiWalker

    taichi: Any = importlib.import_module("taichi")
    taichi.init(arch=taichi.cpu, cpu_max_num_threads=torch.get_num_threads(), log_level=taichi.ERROR)
    x = x - torch.tensor([0.0, 0.0, 0.008])  # it touches the ground from the start
    shear, first = world.material.lame
    settings = world.muscles, steps, world.cells[0], world.dt, shear, first, -3.8, world.boundary
    peer = TaichiWalker(x.numpy(), muscle_of.numpy(), *settings)
    activation = torch.randn(steps, world.muscles, generator=torch.Generator().manual_seed(1)).requires_grad_()
    muscle = torch.zeros((len(x), world.muscles, world.dim))
    for i in range(world.muscles):
        muscle[muscle_of == i, i, -1] = 1.0
    start = world.state(x)
    times: dict[str, list[float]] = {"Adjoin": [], "Adjoin, atomic": [], "Taichi": []}
    loss = gradient = their_loss = their_gradient = None
    for _ in range(4):  # in turn; the first of each compiles
        for name, ours in (("Adjoin", world), ("Adjoin, atomic", replace(world, atomic=True))):
            begin = time.process_time()
            loss = -ours.rollout(start, volume, activation, muscle).x[:, 0].mean()
            (gradient,) = torch.autograd.grad(loss, activation)
            times[name].append(time.process_time() - begin)
        their_loss, their_gradient, seconds = peer.iterate(activation.detach().numpy())
        times["Taichi"].append(seconds)
    assert loss is not None and gradient is not None and their_gradient is not None  # noqa: PT018
    off = (gradient - torch.from_numpy(their_gradient)).norm() / gradient.norm()
    best = {name: min(values[1:]) for name, values in times.items()}
    peers = "taichi: 64 steps and their gradient, processor time"
    yield {"name": "taichi: loss of 64 steps", "value": loss.item(), "unit": "m", "peer": ("Taichi", their_loss)}
    yield {"name": "taichi: gradient off Taichi's", "value": off.item(), "unit": "", "at_most": 1e-4}
    yield {
        "name": peers,
        "value": best["Adjoin"],
        "unit": "s",
        "peer": ("Taichi", best["Taichi"]),
        "at_most": best["Taichi"],
    }
    yield {
        "name": f"{peers}, atomic sums",
        "value": best["Adjoin, atomic"],
        "unit": "s",
        "peer": ("Taichi", best["Taichi"]),
    }
    yield {"name": "taichi: Taichi compiles and runs once", "value": times["Taichi"][0], "unit": "s"}
