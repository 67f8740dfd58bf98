"""Model-predictive control: arms follow a moving target with loads that their planner does not know, and a shove.

One learns: `ILQR` plans for a whole batch, costs are small traced functions, `MPC` plans again at every step from
where the arms are; the same plan without looking again is what feedback is compared with.
"""

import argparse
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

import adjoin
from adjoin.control import ILQR, MPC

DT, HORIZON, HAND = 0.02, 20, "iiwa_link_ee"  # s; steps
HOME = (0.0, 0.6, 0.0, -1.4, 0.0, 1.0, 0.0)  # rad
SHOVE = (1.0, 1.2, 40.0)  # s, s, N: from, to, how strong

arm = adjoin.robots.load("iiwa7")


def following(q: Any, v: Any, control: Any, target: Any) -> Any:
    """Residuals: half the sum of their squares is the cost of a step."""
    hand = adjoin.forward_kinematics(arm, q, HAND)[:3, 3]
    return np.concatenate([30.0 * (hand - target), 0.1 * v, 0.01 * (control - adjoin.gravity_forces(arm, q))])


def target(times: torch.Tensor) -> torch.Tensor:
    """A figure of eight in front of the arm, (times, 3)."""
    phase = 0.5 * math.pi * times
    return torch.stack([0.6 + 0.0 * phase, 0.25 * phase.sin(), 0.5 + 0.15 * (2.0 * phase).sin()], -1)


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    count, steps = (4, 80) if quick else (16, 250)
    sim = adjoin.Simulator(arm, dt=DT, pairs=[], limits=False)
    solver = ILQR(sim, following)
    start = sim.state(torch.tensor(HOME, dtype=torch.float64).expand(count, -1))
    times = DT * torch.arange(steps + HORIZON, dtype=torch.float64)
    wanted = target(times)

    # The real arms carry 0 to 3 kg more in their last link than the model says, and are shoved.
    mass = arm.parameters(dtype=torch.float64)["mass"].repeat(count, 1)
    mass[:, -1] += torch.linspace(0.0, 3.0, count, dtype=torch.float64)
    real = {"mass": mass}
    shove = torch.zeros(steps, count, 6, dtype=torch.float64)
    shove[int(SHOVE[0] / DT) : int(SHOVE[1] / DT), :, 1] = SHOVE[2]

    # Once: the whole plan, from the model, without looking again.
    rest = adjoin.gravity_forces(arm, start.q[0])
    plan = solver.solve(
        start, rest.expand(steps, count, -1), tensors={"target": adjoin.PerStep(wanted[:steps])}, iterations=30
    )
    blind = sim.rollout(start, plan.controls, real, external={HAND: shove}).q

    # Again and again: 0.4 s ahead from where the arms are.
    mpc = MPC(solver, rest.expand(HORIZON, -1), iterations=1, first=20)
    state, states, begun = start, [start.q], 0.0
    for step in range(steps):
        control = mpc(state, tensors={"target": adjoin.PerStep(wanted[step : step + HORIZON])})
        state = sim.step(state, control, real, external={HAND: shove[step]})
        states.append(state.q)
        begun = begun or time.perf_counter()  # the first step compiles
    seconds = time.perf_counter() - begun

    hands = {
        "plan, no feedback": adjoin.forward_kinematics(arm, blind, HAND)[..., :3, 3],
        "MPC": adjoin.forward_kinematics(arm, torch.stack(states), HAND)[..., :3, 3],
    }
    errors = {name: 1e3 * (hand - wanted[: steps + 1, None]).norm(dim=-1) for name, hand in hands.items()}
    for name, error in errors.items():
        late = error[steps // 4 :]
        print(f"{name:<18} median error {late.median():7.1f} mm, of the arm with 3 kg {late[:, -1].median():7.1f} mm")
    print(f"{count} arms planned {steps - 1} times, {1e3 * seconds / (steps - 1):.1f} ms for a plan of all of them")

    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(*wanted[:steps, 1:].T, "k:", label="target")
    for (name, hand), color in zip(hands.items(), ("C1", "C0"), strict=True):
        left.plot(*hand[:, -1, 1:].T, color=color, label=f"{name}, 3 kg", linewidth=1)
        right.semilogy(times[: steps + 1], errors[name], color=color, alpha=0.4, linewidth=1)
        right.plot([], [], color=color, label=name)
    left.set(title="The hand that carries 3 kg", xlabel="y, m", ylabel="z, m", xlim=(-0.4, 0.4), ylim=(0.2, 0.8))
    right.axvspan(*SHOVE[:2], color="gray", alpha=0.2, label="shoved")
    right.set(title=f"All {count} arms", xlabel="time, s", ylabel="distance to the target, mm")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(loc="lower left")
    picture = folder / "mpc.png"
    figure.savefig(picture, dpi=100)
    print(f"paths and errors: {picture}")
    return picture


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer arms, a shorter motion")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
