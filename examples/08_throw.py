"""A Panda throws a ball to a place on the floor that its hand cannot reach, with gradients and with CMA-ES.

The first experiment of section 6.3 of Qiao et al., Efficient Differentiable Simulation of Articulated Bodies, 2021:
torques of seven joints in 1,000 steps are 7,000 numbers. `throw` in scenes.py says what is different here.
One learns: an objective is one object, and the method that optimizes it one argument.
"""

import argparse
import tempfile
from pathlib import Path

from scenes import RELEASE, THROW_TARGET, throw

from adjoin.control import CMAES, LBFGS, optimize, plot_losses


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    objective = throw()
    methods = {
        "L-BFGS": (LBFGS(), 10 if quick else 20),
        "CMA-ES": (CMAES(diagonal=True, patience=1000), 5 if quick else 300),
    }
    found = {}
    for name, (method, iterations) in methods.items():
        optimize(objective, method, starts=1, iterations=1)  # compiles
        found[name] = optimize(objective, method, starts=1, iterations=iterations, tolerance=0.0, progress=not quick)
        history = found[name].history
        print(
            f"{name:<7} {len(history.loss) - 1:4} iterations, {int(history.rollouts[-1]):6} rollouts, "
            f"{float(history.seconds[-1]):6.2f} s: {(2.0 * found[name].loss) ** 0.5:.1e} m from the target"
        )

    path = objective.rollout(found["L-BFGS"].best)
    ball, target = path.q[:, 9:12], THROW_TARGET
    places = [[round(x, 4) for x in ball[step].tolist()] for step in (RELEASE, -1)]
    print(f"let go at {places[0]} m, at rest at {places[1]} m")
    figure, axes = plot_losses({name: each.history for name, each in found.items()}, 3, "half the squared distance, m²")
    axes[2].plot(ball[:, 0], ball[:, 2], label="ball, from the side: z")
    axes[2].plot(ball[:, 0], ball[:, 1], label="ball, from above: y")
    axes[2].plot([target[0]] * 2, [target[2], target[1]], "k*", markersize=12, linestyle="none", label="target")
    axes[2].plot(ball[RELEASE, 0], ball[RELEASE, 2], "o", label="let go")
    axes[2].set(title="The throw", xlabel="x, m", ylabel="m", aspect="equal")
    axes[2].legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    picture = folder / "throw.png"
    figure.savefig(picture, dpi=100)
    print(f"losses and throw: {picture}")
    return picture


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="few generations")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
