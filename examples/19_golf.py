"""An arm of two links hits a golf ball to a target three meters away, with gradients and with CMA-ES.

The second experiment of section 6.3 of Qiao et al., Efficient Differentiable Simulation of Articulated Bodies, 2021:
two torques in 1,000 steps are 2,000 numbers. `golf` in scenes.py says what is different here.
One learns: impacts that last a few steps have gradients that an optimizer can use.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from scenes import GOLF_TARGET, golf

import adjoin
from adjoin.control import CMAES, GaussNewton, optimize, plot_losses

STARTS = 5


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    objective = golf()
    methods = {
        "Gauss-Newton": (GaussNewton(damping=10.0), 20 if quick else 50),
        "CMA-ES": (CMAES(sigma=1.0, diagonal=True, patience=2000), 10 if quick else 700),
    }
    found = {}
    for name, (method, iterations) in methods.items():
        optimize(objective, method, starts=STARTS, iterations=1)  # compiles
        found[name] = optimize(
            objective, method, starts=STARTS, iterations=iterations, tolerance=0.0, progress=not quick
        )
        history, away = found[name].history, (2.0 * found[name].losses).sqrt()
        print(
            f"{name:<12} {STARTS} starts at once, {len(history.loss) - 1:4} iterations, "
            f"{float(history.seconds[-1]):6.2f} s: {float(away.min()):.1e} to {float(away.max()):.1e} m from the target"
        )

    path = objective.rollout(found["Gauss-Newton"].best)
    model, ball = objective.sim.model, path.q[:, 2:5]
    tip = adjoin.forward_kinematics(model, path.q, "arm/club") @ torch.tensor([0.0, 0.5, 0.0, 1.0], dtype=ball.dtype)
    figure, axes = plot_losses({name: each.history for name, each in found.items()}, 3, "half the squared distance, m²")
    axes[2].plot(tip[:, 1], tip[:, 2], label="end of the club")
    axes[2].plot(ball[:, 1], ball[:, 2], label="ball")
    axes[2].plot(GOLF_TARGET[1], GOLF_TARGET[2], "k*", markersize=12, linestyle="none", label="target")
    axes[2].set(title="The stroke", xlabel="y, m", ylabel="z, m")
    axes[2].set_aspect("equal", adjustable="datalim")
    axes[2].legend()
    picture = folder / "golf.png"
    figure.savefig(picture, dpi=100)
    print(f"losses and stroke: {picture}")
    return picture


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="few generations")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
