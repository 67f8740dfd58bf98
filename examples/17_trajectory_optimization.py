"""A path for a Panda's hand, over a wall and to a goal, by gradient descent on all of its configurations at once.

The example of kinematic trajectory optimization in differentiable-robot-model, with a wall in the way. `Bounded` keeps
the joints inside their limits, whatever the optimizer does.
One learns: kinematics in a torch loss, over a whole path at once.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from matplotlib.figure import Figure

import adjoin
from adjoin.learn import Bounded

STEPS, HAND = 40, "panda_hand_tcp"
START = (0.6, 0.8, 0.0, -1.6, 0.0, 2.4, 0.8, 0.02)
GOAL = (-0.6, 0.8, 0.0, -1.6, 0.0, 2.4, 0.8, 0.02)
WALL, TOP, WIDTH, MARGIN = 0.0, 0.5, 0.08, 0.03  # m: where the wall is along y, how high, how thick; room above it


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    panda = adjoin.robots.load("panda")
    lower, upper = (torch.tensor(limits) for limits in panda.limits())
    start, goal = torch.tensor(START), torch.tensor(GOAL)
    target = adjoin.forward_kinematics(panda, goal, HAND)[:3, 3]

    # Raw numbers of all configurations but the first; they begin at rest.
    configurations = Bounded(start.expand(STEPS, -1), lower, upper)
    iterations = 200 if quick else 600
    optimizer = torch.optim.Adam(configurations.parameters(), lr=0.03)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations)

    def path() -> tuple[torch.Tensor, torch.Tensor]:
        q = torch.cat([start[None], configurations()])
        return q, adjoin.forward_kinematics(panda, q, HAND)[..., :3, 3]

    def costs(q: torch.Tensor, hand: torch.Tensor) -> dict[str, torch.Tensor]:
        # Who comes near the wall is lifted, not held back: the weight itself has no gradient.
        near = torch.exp(-((hand[:, 1] - WALL) / WIDTH).square()).detach()
        return {
            "goal": 5000.0 * (hand[-1] - target).square().sum(),
            "wall": 1000.0 * (near * torch.relu(TOP + MARGIN - hand[:, 2]).square()).sum(),
            "speed": 0.1 * STEPS * (q[1:] - q[:-1]).square().sum(),
            "jerk": 5.0 * STEPS * (q[2:] - 2.0 * q[1:-1] + q[:-2]).square().sum(),
            "stop": 0.3 * STEPS * (q[-1] - q[-2]).square().sum(),
        }

    history: list[float] = []
    begun = time.perf_counter()
    for iteration in range(iterations):
        optimizer.zero_grad()
        parts = costs(*path())
        total = torch.stack(list(parts.values())).sum()
        total.backward()
        optimizer.step()
        slower.step()
        history.append(total.item())
        if iteration % (iterations // 4) == 0:
            print(f"{iteration:5}  " + "  ".join(f"{name} {float(cost.detach()):8.4f}" for name, cost in parts.items()))
    seconds = time.perf_counter() - begun
    with torch.no_grad():
        q, hand = path()
    near = (hand[:, 1] - WALL).abs() < 0.5 * WIDTH
    lowest = f"{hand[near, 2].min():.3f} m" if bool(near.any()) else "nowhere above it"
    print(f"{iterations} iterations of {STEPS} configurations in {seconds:.2f} s")
    print(f"distance to the goal      {(hand[-1] - target).norm() * 1e3:.1f} mm")
    print(f"lowest above the wall     {lowest}, which is {TOP} m high")
    print(f"all inside the limits     {bool(((q >= lower) & (q <= upper)).all())}")
    return plot(history, q, hand, target, folder / "trajectory_optimization.png")


def plot(history: list[float], q: torch.Tensor, hand: torch.Tensor, target: torch.Tensor, path: Path) -> Path:
    """The cost, the hand's path and the joints."""
    figure = Figure(figsize=(14, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    left.semilogy(history)
    left.set(title="Cost", xlabel="iteration")
    middle.plot(hand[:, 1], hand[:, 2], ".-", label="hand")
    middle.plot(*target[1:], "*", markersize=14, label="goal")
    middle.bar(WALL, TOP, WIDTH, color="gray", alpha=0.5, label="wall")
    middle.set(title="Path of the hand", xlabel="y, m", ylabel="z, m", aspect="equal")
    right.plot(q[:, :7], label=[f"joint {k}" for k in range(1, 8)])
    right.set(title="Joints", xlabel="step", ylabel="rad")
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
    middle.legend()
    right.legend(fontsize="small", ncols=2, loc=(0.03, 0.62))
    figure.savefig(path, dpi=100)
    print(f"cost, path and joints: {path}")
    return path


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer iterations")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
