"""The gradient of a whole landing, 500 steps through contact, and what it is good for: tuning a quadruped's gains.

One learns: a rollout is differentiable to its start, its controls and every parameter; the gradient is one launch back;
its memory is the trajectory; the adjoint of contact is one argument.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from matplotlib.figure import Figure

import adjoin

DT, STEPS, DROP = 2e-3, 500, 0.1  # s, steps, m


def main(quick: bool = False, folder: Path | None = None) -> Path:
    (folder := folder or Path(tempfile.mkdtemp())).mkdir(parents=True, exist_ok=True)
    model = adjoin.robots.load("go2").with_servos(kp=60.0, kd=2.0)
    feet = [(f"{leg}_foot", "ground") for leg in ("FL", "FR", "RL", "RR")]
    sim = adjoin.Simulator(model, dt=DT, pairs=feet, contact=adjoin.PGS(adjoint=adjoin.ImplicitAdjoint()))
    home = model.keyframe("home")
    q = torch.tensor(home.q, dtype=torch.float64)
    control = torch.tensor(home.control, dtype=torch.float64).expand(STEPS, -1)
    dropped = q.clone()
    dropped[2] += DROP

    values = sim.model.parameters(dtype=torch.float64)
    gains = torch.stack([values["actuator_gain"], -values["actuator_bias"][:, 2]]).requires_grad_()  # kp and kd

    def landing(gains: torch.Tensor) -> adjoin.Trajectory:
        kp, kd = gains
        params = {"actuator_gain": kp, "actuator_bias": torch.stack([torch.zeros_like(kp), -kp, -kd], -1)}
        return sim.rollout(sim.state(dropped), control, params)

    def unrest(path: adjoin.Trajectory) -> torch.Tensor:
        """Sag and speed over the second half."""
        half = slice(STEPS // 2, None)
        return (path.q[half, 7:] - q[7:]).square().mean() + 1e-3 * path.v[half].square().mean()

    before = landing(gains.detach())
    unrest(landing(gains)).backward()  # the first call compiles
    gains.grad = None
    start = time.perf_counter()
    loss = unrest(landing(gains))
    forward = time.perf_counter() - start
    loss.backward()
    back = time.perf_counter() - start - forward
    print(f"{STEPS} steps: {forward * 1e3:.1f} ms forward, {back * 1e3:.1f} ms back")

    # Is it right? A step along the gradient, by finite differences.
    assert gains.grad is not None
    along, step = gains.grad / gains.grad.norm(), 1e-4
    with torch.no_grad():
        numeric = (unrest(landing(gains + step * along)) - unrest(landing(gains - step * along))) / (2.0 * step)
    print(f"slope of the loss along it {gains.grad.norm():.4e}, by finite differences {numeric:.4e}\n")

    optimizer = torch.optim.Adam([gains], lr=2.0)
    history = []
    print("iteration      loss    thigh: kp     kd    calf: kp     kd")
    for iteration in range(31 if quick else 101):
        optimizer.zero_grad()
        loss = unrest(landing(gains))
        loss.backward()
        history.append(loss.item())
        if iteration % 10 == 0:
            (thigh, calf), (thigh_damping, calf_damping) = gains[:, 1:3].tolist()
            print(f"{iteration:9} {loss:9.2e} {thigh:12.1f} {thigh_damping:6.1f} {calf:11.1f} {calf_damping:6.1f}")
        optimizer.step()
        gains.data.clamp_(min=0.1)
    print(f"loss {history[0]:.2e} to {min(history):.2e}")

    after = landing(gains.detach())
    figure = Figure(figsize=(12, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    left.semilogy(history)
    left.set(title="Sag and unrest of the landing", xlabel="iteration", ylabel="loss")
    for name, path in (("before", before), ("after", after)):
        middle.plot(DT * torch.arange(STEPS + 1), path.q[:, 2], label=name)
        right.plot(DT * torch.arange(STEPS + 1), (path.q[:, 7:] - q[7:]).abs().max(-1).values, label=name)
    middle.set(title=f"Dropped from {DROP} m", xlabel="time, s", ylabel="height of the base, m")
    right.set(title="Joint that is farthest off", xlabel="time, s", ylabel="rad")
    middle.legend()
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
    picture = folder / "rollout.png"
    figure.savefig(picture, dpi=100)
    print(f"loss and landings: {picture}")
    return picture


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer iterations")
    options.add_argument("--folder", type=Path, help="where the picture goes")
    main(**vars(options.parse_args()))
