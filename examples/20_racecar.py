"""The sliding friction with which a racecar gets to x = 0.8 m, and the landscape of the loss.

The estimation of section 6.3 of Qiao et al., Efficient Differentiable Simulation of Articulated Bodies, 2021: one
number, with wheels and steering that turn. `racecar` in scenes.py says what is different here.
One learns: a physical parameter as what is decided, Gauss-Newton on residuals, and a landscape in one launch.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from scenes import CAR_TARGET, racecar

from adjoin.control import CMAES, GaussNewton, optimize, plot_losses


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    objective = racecar()
    methods = {"Gauss-Newton": (GaussNewton(), 10), "CMA-ES": (CMAES(), 10 if quick else 40)}
    found = {}
    for name, (method, iterations) in methods.items():
        optimize(objective, method, iterations=1)  # compiles
        found[name] = optimize(objective, method, iterations=iterations, target=1e-14)
        history = found[name].history
        print(
            f"{name:<12} {len(history.loss) - 1:3} iterations, {int(history.rollouts[-1]):4} rollouts, "
            f"{1e3 * float(history.seconds[-1]):6.1f} ms: friction {float(found[name].best):.6f}, "
            f"{(2.0 * found[name].loss) ** 0.5:.1e} m from the target"
        )

    # What was tried: the same run, one iteration at a time.
    step = optimize(objective, GaussNewton(), iterations=0)
    tried = [float(step.best)]
    for _ in range(len(found["Gauss-Newton"].history.loss) - 1):
        step = optimize(objective, GaussNewton(), iterations=1, resume=step.state)
        tried.append(float(step.best))
    ends = [float(objective.rollout(torch.tensor([x]).double()).last.q[0]) for x in tried]
    print("friction  " + "  ".join(f"{x:.4f}" for x in tried))
    print("x at end  " + "  ".join(f"{x:.4f}" for x in ends))

    frictions = torch.linspace(0.0, 0.3, 31 if quick else 301, dtype=torch.float64)
    landscape = objective.losses(frictions[:, None])  # one launch
    figure, axes = plot_losses({name: each.history for name, each in found.items()}, 3, "half the squared distance, m²")
    axes[2].plot(frictions, landscape, label=f"½ (x - {CAR_TARGET} m)²")
    axes[2].plot(tried, [0.5 * (x - CAR_TARGET) ** 2 for x in ends], "o", label="Gauss-Newton")
    axes[2].set(title="Loss landscape", xlabel="friction", ylabel="loss")
    axes[2].legend()
    axes[1].minorticks_off()
    picture = folder / "racecar.png"
    figure.savefig(picture, dpi=100)
    print(f"losses and landscape: {picture}")
    return picture


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="few generations")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
