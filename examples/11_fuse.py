"""Your own controller and cost inside the kernel: arms reach for targets by Cartesian impedance, whose gains are tuned.

One learns: a controller and a cost are plain functions, in which every function of the library works; they are traced
into the rollout's one launch, forward and back; and how much that saves beside a loop in torch with the same function.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

import adjoin
from adjoin import trace as at

DT, STEPS, HAND = 5e-3, 200, "iiwa_link_ee"
START = (0.0, 0.6, 0.0, -1.4, 0.0, 1.0, 0.0)  # rad

arm = adjoin.robots.load("iiwa7")


def impedance(q: Any, v: Any, gains: Any, target: Any) -> Any:
    """A spring and a damper pull the hand to its target; gravity is compensated; joints are damped a little.

    Traced, q and the others are arrays of one robot's scalars; with tensors of a batch it runs as it stands.
    """
    stiffness, damping, joints = gains
    place = adjoin.forward_kinematics(arm, q, HAND)[..., :3, 3]
    J = adjoin.jacobian(arm, q, HAND, reference="local_world_aligned")[..., :3, :]
    force = stiffness * (target - place) - damping * (J @ v[..., None])[..., 0]
    return (J.swapaxes(-1, -2) @ force[..., None])[..., 0] + adjoin.gravity_forces(arm, q) - joints * v


def miss(next_q: Any, control: Any, target: Any) -> Any:
    """How far the hand is from its target, a smooth distance in meters, and a little for effort."""
    away = adjoin.forward_kinematics(arm, next_q, HAND)[:3, 3] - target
    return at.sqrt(away @ away + 1e-4) + 1e-5 * (control @ control)


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    count, iterations = (32, 20) if quick else (512, 40)
    sim = adjoin.Simulator(arm, dt=DT, pairs=[], limits=False)
    start = sim.state(torch.tensor(START, dtype=torch.float64).expand(count, -1))
    around = 2.0 * torch.rand(count, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) - 1.0
    middle, wide = torch.tensor([[0.55, 0.0, 0.5], [0.15, 0.3, 0.2]], dtype=torch.float64)  # m
    targets = middle + wide * around
    logs = torch.tensor([100.0, 10.0, 0.5], dtype=torch.float64).log().requires_grad_()  # so that gains are positive

    def fused() -> Any:
        named = {"gains": logs.exp(), "target": adjoin.PerEnvironment(targets)}
        return sim.rollout(start, steps=STEPS, controller=impedance, outputs={"cost": miss}, tensors=named)

    def looped() -> torch.Tensor:
        state = start
        for _ in range(STEPS):
            state = sim.step(state, impedance(state.q, state.v, logs.exp(), targets))
        return state.q

    # The same motion and the same gradient, in one launch each way and step by step.
    found, seconds = {}, {}
    for name, end in (("fused", lambda: fused().q[-1]), ("loop in torch", looped)):
        torch.autograd.grad(end().sum(), logs)  # compiles
        begun = time.perf_counter()
        q = end()
        found[name] = q.detach(), torch.autograd.grad(q.square().sum(), logs)[0]
        seconds[name] = time.perf_counter() - begun
        print(f"{name:<14} {STEPS} steps of {count} arms with gradient: {1e3 * seconds[name]:7.1f} ms")
    off = [(a - b).norm() / b.norm() for a, b in zip(*found.values(), strict=True)]
    print(f"they differ by {off[0]:.1e} in the motion and {off[1]:.1e} in the gradient, relatively\n")

    optimizer = torch.optim.Adam([logs], lr=0.15)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations)
    before, history = fused().q.detach(), []
    for iteration in range(iterations):
        optimizer.zero_grad()
        loss = fused().outputs["cost"].mean()
        loss.backward()
        history.append(loss.item())
        if iteration % (iterations // 4) == 0 or iteration == iterations - 1:
            k, d, j = logs.detach().exp().tolist()
            print(
                f"{iteration:5} cost {loss:.4f}: stiffness {k:6.0f} N/m, damping {d:5.0f} Ns/m, joints {j:.2f} Nms/rad"
            )
        optimizer.step()
        slower.step()

    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(history)
    left.set(title="Tuning three gains", xlabel="iteration", ylabel="mean cost of a step")
    for name, q, color in (("before", before, "C1"), ("after", fused().q.detach(), "C0")):
        away = (adjoin.forward_kinematics(arm, q[:, :30], HAND)[..., :3, 3] - targets[:30]).norm(dim=-1)
        right.plot(DT * torch.arange(STEPS + 1), away, color=color, alpha=0.3, linewidth=1)
        right.plot([], [], color=color, label=name)
    right.set(title="The first thirty arms", xlabel="time, s", ylabel="distance to the target, m")
    right.legend()
    right.grid(alpha=0.3)
    picture = folder / "fuse.png"
    figure.savefig(picture, dpi=100)
    print(f"tuning and distances: {picture}")
    return picture


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer arms and iterations")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
