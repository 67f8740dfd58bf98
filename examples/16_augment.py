"""A double pendulum whose second joint rubs, which its model does not know: a network learns that, and no more.

One learns: a residual inside the simulator, trained through rollouts, with a penalty that keeps it silent where it can.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

import adjoin
from adjoin import trace
from adjoin.learn import Recording, ResidualNetwork, Shooting

DT, STEPS, WINDOW = 0.02, 150, 25
NOISE = (2e-3, 1e-2)  # rad, rad/s
DOUBLE = torch.float64


def rubbing(q: Any, v: Any, control: Any) -> dict[str, Any]:
    """What the real pendulum has: dry friction at the second joint that grows as the arm folds."""
    return {"force": [0.0, -(0.3 - 0.15 * trace.cos(q[1])) * trace.tanh(5.0 * v[1]) - 0.05 * v[1]]}


def simulator(residual: Any = None) -> adjoin.Simulator:
    model = adjoin.robots.load("pendulum", links=2)
    return adjoin.Simulator(model, dt=DT, integrator=adjoin.RK4(), pairs=[], limits=False, residual=residual)


def swings(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """q and v of the real pendulum, (steps + 1, count, 2)."""
    real = simulator(rubbing)
    q, v = 0.8 * torch.randn(2, count, 2, generator=generator, dtype=DOUBLE)
    path = real.rollout(real.state(q, v), torch.zeros(STEPS, 0, dtype=DOUBLE))
    return path.q, path.v


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(0)
    seen = [
        x + sigma * torch.randn(x.shape, generator=generator, dtype=DOUBLE)
        for x, sigma in zip(swings(8 if quick else 24, generator), NOISE, strict=True)
    ]
    time = DT * torch.arange(STEPS + 1, dtype=DOUBLE)
    q, v = (x.transpose(0, 1).contiguous() for x in seen)
    recording = Recording(simulator().model, time.expand(len(q), -1), q, v)

    # The network may add forces at both joints. It begins as nothing, and the group lasso keeps an output at exactly 0
    # that the data do not ask for. What is left is then trained on without the penalty.
    network = ResidualNetwork(recording.model, ["force"], (12,), like=recording, dtype=DOUBLE, generator=generator)
    sim = simulator(network)
    shooting = Shooting(sim, network, recording, WINDOW, noise=NOISE)
    history = shooting.descend(200, rate=0.03, sparsity=20.0)
    silent = network.prune()
    history += shooting.solve(10 if quick else 40, progress=not quick)
    print(f"loss {history[0]:.1f} to {history[-1]:.2f}; silent: {', '.join(silent) or 'none'}")

    with torch.no_grad():
        q, v = swings(16, generator)
        nothing = torch.zeros(STEPS, 0, dtype=DOUBLE)
        plain = simulator()
        paths = {
            "model alone": plain.rollout(plain.state(q[0], v[0]), nothing).q,
            "augmented": sim.rollout(sim.state(q[0], v[0]), nothing, tensors=network.weights()).q,
        }
    for name, path in paths.items():
        print(
            f"{name:<12} error over {STEPS * DT:g} s of new motions {float((path - q).square().mean().sqrt()):.4f} rad"
        )
    return plot(time, q, paths, network, folder / "augment.png")


def plot(
    time: torch.Tensor, q: torch.Tensor, paths: dict[str, torch.Tensor], network: ResidualNetwork, file: Path
) -> Path:
    """A new motion, and what the network has learned of the friction."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(time, q[:, 0, 1], color="black", linewidth=3.0, alpha=0.3, label="real")
    for name, path in paths.items():
        left.plot(time, path[:, 0, 1], label=name)
    left.set(title="A motion that was not learned from", xlabel="time, s", ylabel="second joint, rad")
    speed = torch.linspace(-3.0, 3.0, 101, dtype=DOUBLE)
    for angle, color in ((0.0, "C0"), (1.0, "C3")):
        place = torch.stack([torch.zeros_like(speed), torch.full_like(speed, angle)], -1)
        rate = torch.stack([torch.zeros_like(speed), speed], -1)
        with torch.no_grad():
            found = network.evaluate(place, rate)["force"]
        true = -(0.3 - 0.15 * torch.cos(place[:, 1])) * torch.tanh(5.0 * speed) - 0.05 * speed
        right.plot(speed, true, color=color, linewidth=3.0, alpha=0.3, label=f"real, at {angle:g} rad")
        right.plot(speed, found[:, 1], color=color, label=f"network, at {angle:g} rad")
    right.plot(speed, found[:, 0], color="gray", linestyle="--", label="network, first joint")
    right.set(title="Friction of the second joint", xlabel="its speed, rad/s", ylabel="N m")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(file, dpi=100)
    print(f"motion and friction: {file}")
    return file


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer motions and iterations")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
