"""A soft body with four muscles learns to walk.

The walker of DiffTaichi (Hu et al., ICLR 2020): particles on a grid, legs that contract and extend with a sum of sines.
Gradients through a second of simulation, some hundred steps of friction and large deformation, teach it in a minute.
One learns: particles, muscles, gradients through the material point method.
"""

import argparse
import math
import tempfile
from pathlib import Path

import torch
from matplotlib.figure import Figure

from adjoin.continuum import ParticleMaterial, Particles

CELLS, DT = 64, 2e-3
LEGS = (0.0, 0.05, 0.2, 0.25)  # m, their left edges


def box(left: float, bottom: float, width: float, height: float) -> torch.Tensor:
    """Positions of particles, two a cell along each axis."""
    axes = []
    for low, size in ((left + 0.15, width), (bottom + 0.055, height)):
        count = round(2 * size * CELLS)
        axes.append(low + (torch.arange(count) + 0.5) * size / count)
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    parts = [box(0.0, 0.1, 0.3, 0.1), *[box(left, 0.0, 0.05, 0.1) for left in LEGS]]
    x = torch.cat(parts)
    muscle = torch.zeros(len(x), len(LEGS), 2)
    first = len(parts[0])
    for i, leg in enumerate(parts[1:]):
        muscle[first : first + len(leg), i, 1] = 1.0  # fibers along y
        first += len(leg)
    material = ParticleMaterial("elastic", density=1.0, young=25.0, poisson=0.25)
    world = Particles((CELLS, CELLS), 1 / CELLS, DT, material, gravity=(0.0, -3.8), muscles=len(LEGS))
    steps = 250 if quick else 600
    t = DT * torch.arange(steps)
    waves = torch.sin(20.0 * t[:, None] + 0.5 * math.pi * torch.arange(4))
    weights = (0.01 * torch.randn(4, 4, generator=torch.Generator().manual_seed(0))).requires_grad_()
    start, volume = world.state(x), 1 / (2 * CELLS) ** 2
    distances = []
    for _ in range(12 if quick else 80):
        activation = 4.0 * torch.tanh(waves @ weights.T)
        last = world.rollout(start, volume, activation, muscle)
        distance = (last.x - x)[:, 0].mean()
        (slope,) = torch.autograd.grad(distance, weights)
        distances.append(distance.item())
        with torch.no_grad():
            weights += 3.0 * slope
    print(f"{len(x)} particles; distance {distances[0]:.3f} m at first, {max(distances):.3f} m at best")
    path = world.rollout(start, volume, activation.detach(), muscle, keep=steps // 5)
    figure = Figure(figsize=(9.0, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 2])
    left.plot(distances)
    left.set(xlabel="iteration", ylabel="distance, m", title="learning")
    left.grid(alpha=0.3)
    for i, places in enumerate(path.x):
        right.scatter(*places.T, s=1, color=f"C{i}", label=f"{i * (steps // 5) * DT:.2f} s")
    right.set(xlabel="x, m", ylabel="y, m", title="the walk", aspect="equal", ylim=(0.0, 0.35))
    right.legend(markerscale=6, ncols=3)
    figure.savefig(folder / "walker.png", dpi=120)
    return folder / "walker.png"


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--folder", type=Path)
    print(main(**vars(options.parse_args())))
