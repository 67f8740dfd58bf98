"""Reinforcement learning with gradients: a cart learns to swing up its pole, in a minute on a CPU.

One learns: a task is a short class; `adjoin.rl.train` improves a policy by gradients through the simulator; the policy
is evaluated without its noise, and its motion can be watched.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from matplotlib.figure import Figure

from adjoin.rl import Environment, Transition, Vector, evaluate, make_task, train


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    iterations = 10 if quick else 80
    run = train("cartpole", "shac", iterations=iterations, actor_rate=1e-2, critic_rate=1e-2, critic_passes=4)

    environment = Environment(make_task("cartpole"))
    angles: list[torch.Tensor] = []

    def watch(vector: Vector, step: Transition) -> None:
        angles.append(torch.atan2(step.final_observation[:, 2], step.final_observation[:, 3]))

    returns = evaluate(environment, run.policy, n=32, watch=watch)
    print(f"{iterations} iterations: return {returns.mean():.0f} (a pole that hangs down gets -2,370)")

    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot([row["steps"] for row in run.rows], [row["return"] for row in run.rows])
    left.set(title="While it learns, with noise", xlabel="actions of all environments", ylabel="return")
    time = environment.task.control_dt * torch.arange(len(angles))
    right.plot(time, torch.stack(angles), color="C0", alpha=0.3)
    right.set(title="32 poles after it has learned", xlabel="time, s", ylabel="angle from upright, rad")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    picture = folder / "swing_up.png"
    figure.savefig(picture, dpi=100)
    print(f"returns and angles: {picture}")
    return picture


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer iterations")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
