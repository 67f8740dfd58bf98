"""The power of a laser that heats the middle of a plate as wanted, while the beam moves along it.

A plate of steel is heated by a beam that runs along its middle. Wanted is the same temperature at every sensor below
the track when the beam passes. Constant power overheats the end, where heat has nowhere to go. Gradients through all
steps of the simulation tell how the power of every moment has to change.
One learns: heat, gradients to loads, checkpoints, files for ParaView.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from matplotlib.figure import Figure

from adjoin.continuum import Checkpoints, Heat, HeatMaterial, Laser, box_mesh, write_vtk

LENGTH, WIDTH, HEIGHT = 0.06, 0.02, 0.004  # m
WANTED = 700.0  # K
KNOTS = 24


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    cells = (24, 8, 2) if quick else (60, 20, 4)
    mesh = box_mesh(cells, (LENGTH, WIDTH, HEIGHT))
    x, y, z = mesh.nodes.T
    track = (abs(y - WIDTH / 2) < 1e-9) & (z == HEIGHT) & (x > 0.1 * LENGTH) & (x < 0.9 * LENGTH)
    sensors = track.nonzero()[0].tolist()
    material = HeatMaterial(density=7800.0, specific_heat=500.0, conductivity=[20.0, 0.01])
    heat = Heat(mesh, material, dt=5e-3, convection=30.0, emissivity=0.5, laser=Laser(3e-3, 0.5), sensors=sensors)
    steps = 400 if quick else 1200
    progress = torch.linspace(0.0, 1.0, steps, dtype=torch.float64)
    position = torch.stack([LENGTH * progress, *[torch.full_like(progress, a) for a in (WIDTH / 2, HEIGHT)]], -1)
    start = torch.full((len(mesh.nodes),), 300.0, dtype=torch.float64)
    places = torch.linspace(0.0, 1.0, KNOTS, dtype=torch.float64)
    blend = (1.0 - (progress[:, None] - places).abs() * (KNOTS - 1)).clamp(min=0.0)  # (steps, knots)
    knots = torch.full((KNOTS,), 5.0 if quick else 4.0, dtype=torch.float64, requires_grad=True)  # logarithms of W
    optimizer = torch.optim.Adam([knots], lr=0.1)
    losses, first = [], None
    for _ in range(30 if quick else 150):
        power = blend @ knots.exp()
        path = heat.rollout(start, power, position, checkpoints=Checkpoints("sqrt"))
        assert path.sensors is not None
        peaks = path.sensors.max(0).values
        first = peaks.detach() if first is None else first
        loss = (peaks - WANTED).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item() ** 0.5)
    print(f"error of the peak temperatures: {losses[0]:.1f} K at first, {losses[-1]:.1f} K after {len(losses)} steps")
    write_vtk(folder / "plate.vtu", mesh.nodes, mesh.elements, {"temperature": path.temperature})
    figure = Figure(figsize=(9.0, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(5e-3 * torch.arange(steps), power.detach())
    left.set(xlabel="time, s", ylabel="power, W")
    along = 1e3 * x[sensors]
    left.set_title("power of the laser")
    right.plot(along, first, label="constant power")
    right.plot(along, peaks.detach(), label="found by gradients")
    right.axhline(WANTED, color="gray", linestyle="--")
    right.set(xlabel="along the track, mm", ylabel="peak temperature, K", title="sensors")
    right.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(folder / "laser.png", dpi=120)
    return folder / "laser.png"


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--folder", type=Path)
    print(main(**vars(options.parse_args())))
